/* SPDX-License-Identifier: Apache-2.0 */
/* Combining what the ranks contribute to a reduction, with defined bits (lc_comm_combine in comm.h). */
#ifndef LC_COMM_COMBINE_H
#define LC_COMM_COMBINE_H

#include <lightc/comm.h>

/* Fails if there is no such reduction. */
lc_status lc__combine_check(lc_dtype dtype, lc_reduce_op op) LC_MUST_USE;
const char *lc__reduce_name(lc_reduce_op op);

#endif

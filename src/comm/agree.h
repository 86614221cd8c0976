/* SPDX-License-Identifier: Apache-2.0 */
/* Agreements between ranks, each made with one or two small collective calls. A NULL communicator is one rank, which
 * agrees with itself. Everything here is collective. */
#ifndef LC_COMM_AGREE_H
#define LC_COMM_AGREE_H

#include <lightc/comm.h>

#include "base/exact_sum.h"
#include "base/str.h"

/* If any rank's status is an error, all ranks return one: their own, or that of the first such rank. */
lc_status lc__ranks_agree(lc_comm *comm, lc_status mine) LC_MUST_USE;
/* *any becomes true if it is true on any rank. */
lc_status lc__ranks_any(lc_comm *comm, bool *any) LC_MUST_USE;
/* Copies rank 0's bytes to all ranks. */
lc_status lc__from_rank_zero(lc_comm *comm, void *data, size_t bytes) LC_MUST_USE;
/* Copies rank 0's text (or NULL) to all ranks; the caller owns *text. */
lc_status lc__ranks_text(lc_comm *comm, char **text) LC_MUST_USE;
/* Adds up the sums of all ranks without rounding. */
lc_status lc__ranks_reduce_exact(lc_comm *comm, lc__exact_sum *s) LC_MUST_USE;
/* Fails if this rank's text differs from rank 0's, naming the first line that does: "the ranks do not have the same
 * `what`". */
lc_status lc__ranks_compare(lc_comm *comm, const char *what, const lc__str *text) LC_MUST_USE;
lc_status lc__ranks_barrier(lc_comm *comm) LC_MUST_USE;

#endif

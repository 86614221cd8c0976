/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that a program starts itself, when its options ask for them. */
#ifndef LC_CORE_TRAINER_START_RANKS_H
#define LC_CORE_TRAINER_START_RANKS_H

#include <lightc/options.h>

/* LC_OK: this process goes on, as a rank or because there is one only. LC_STOP: it has been the supervisor of ranks
 * that ended well. An error: they did not, or what is asked for is not possible. */
lc_status lc__launch_trainer(const lc_trainer_options *o) LC_MUST_USE;

#endif

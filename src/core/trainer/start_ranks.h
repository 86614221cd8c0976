/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that a program starts itself if its options ask for them. */
#ifndef LC_CORE_TRAINER_START_RANKS_H
#define LC_CORE_TRAINER_START_RANKS_H

#include <lightc/options.h>

/* LC_OK: this process continues, as a rank or as the only process. LC_STOP: it was the supervisor, and all ranks
 * succeeded. An error: a rank failed, or the request is not possible. */
lc_status lc__launch_trainer(const lc_trainer_options *o) LC_MUST_USE;

#endif

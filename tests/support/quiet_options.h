/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a trainer that prints and saves nothing; most tests of ranks begin with them. */
#ifndef LC_TESTS_QUIET_OPTIONS_H
#define LC_TESTS_QUIET_OPTIONS_H

#include <lightc/lightc.h>

/* For a rank of `comm`, or for one process (NULL); kernels run on one thread. */
static inline lc_trainer_options quiet_options(lc_comm *comm)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.comm = comm;
    opt.threads = 1;
    opt.logger = "none";
    opt.enable_progress_bar = opt.enable_model_summary = opt.enable_checkpointing = LC_OFF;
    opt.handle_signals = false;
    return opt;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* All optimizers and their flags by name, and their operators. */
#include "optim/clip.h"
#include "optim/keep_low.h"
#include "optim/optim_internal.h"

const lc__optimizer_class *const lc__optimizer_classes[] = {
    &lc__class_sgd,
    &lc__class_adam,
    &lc__class_adamw,
    &lc__class_rmsprop,
    &lc__class_adagrad,
    &lc__class_adadelta,
    &lc__class_adamax,
    &lc__class_nadam,
    &lc__class_radam,
    &lc__class_rprop,
    &lc__class_muon,
    &lc__class_lbfgs,
    NULL,
};

const lc__optimizer_flag lc__optimizer_flags[] = {
    {"nesterov", LC_OPT_NESTEROV},
    {"maximize", LC_OPT_MAXIMIZE},
    {"amsgrad", LC_OPT_AMSGRAD},
    {"centered", LC_OPT_CENTERED},
    {"decoupled_weight_decay", LC_OPT_DECOUPLED_WEIGHT_DECAY},
    {"match_rms_adamw", LC_OPT_MATCH_RMS_ADAMW},
    {"master_weights", LC_OPT_MASTER_WEIGHTS},
    {"stochastic_rounding", LC_OPT_STOCHASTIC_ROUNDING},
    {NULL, 0},
};

#define ADDRESS(name, n_state) &lc__op_update_##name,
const lc_op *const lc__optim_ops[] = {LC_UPDATE_LIST(ADDRESS) & lc__op_muon_momentum,
                                      &lc__op_muon_combine,
                                      &lc__op_muon_apply,
                                      &lc__op_clip_coefficient,
                                      &lc__op_clip_over_ranks,
                                      &lc__op_refresh_low,
                                      NULL};

bool lc__is_update(const lc_op *op)
{
    static const lc_op *const updates[] = {LC_UPDATE_LIST(ADDRESS)};
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
        if (updates[i] == op) return true;
    return false;
}

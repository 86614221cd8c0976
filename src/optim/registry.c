/* SPDX-License-Identifier: Apache-2.0 */
/* All optimizers by name. */
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

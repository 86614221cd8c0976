/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters of a module, inside the library. */
#ifndef LC_CORE_OPTIONS_HYPERPARAMETERS_H
#define LC_CORE_OPTIONS_HYPERPARAMETERS_H

#include <lightc/checkpoint.h>
#include <lightc/hyperparameters.h>
#include <lightc/trainer.h>

struct lc__hyperparameters {
    lc_option_set set;
    /* Only of a module made from a class. */
    const lc_module_class *c;
    void *values, *storage;
};

/* The hyperparameters of a datamodule; n is 0 if it has none, or d is NULL. */
lc_option_set lc__datamodule_hyperparameters(const lc_datamodule *d);
/* The objects "hyper_parameters" and "datamodule_hyper_parameters" of a checkpoint; one without values is left out. */
lc_status lc__hyperparameters_write(const lc_module *m, const lc_datamodule *d, lc_state *root) LC_MUST_USE;
/* Reads the hyperparameters of a checkpoint into the struct of `set`; texts are kept in *storage. */
lc_status lc__hyperparameters_read(const lc_checkpoint *c, const lc_option_set *set, void **storage) LC_MUST_USE;
/* Writes config.json into the folder of the run: every option, as --config reads it. */
lc_status lc__config_write(const lc_trainer_options *opt, const char *run_dir) LC_MUST_USE;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Datamodules: everything about the data of a run in one object, apart from the model.
 *
 * A datamodule is (ops, self), given to a run in lc_run_args.datamodule; it belongs to the program and outlives the
 * run. Every slot is optional. If a datamodule is given, all loaders of the run come from it: the module's are not
 * used. In prepare_data, setup and teardown it comes before callbacks and module; in on_exception callbacks come first.
 * All hooks run on the training thread. */
#ifndef LIGHTC_DATAMODULE_H
#define LIGHTC_DATAMODULE_H

#include <lightc/options.h>

typedef struct lc_datamodule_ops {
    size_t size;      /* LC_DATAMODULE_OPS_INIT(name) */
    const char *name; /* also the key of its state in checkpoints */

    /* ---- OPTIONAL, in call order ---- */
    /* Downloads and unpacks data: called once per machine, before anything else; must not store anything in self. */
    lc_status (*prepare_data)(void *self);
    lc_status (*setup)(void *self, lc_trainer *t, lc_stage stage);
    /* Restores the state that save_state wrote, when a run continues: after setup, before the loaders are requested. */
    lc_status (*load_state)(void *self, lc_trainer *t, const lc_state *state);
    /* lc_loaders_add(out, loader); the trainer frees the loaders. Asked again by reload_dataloaders_every_n_epochs.
     * Several train loaders are combined (lc_combined_loader_new, "max_size_cycle"); several others run one after the
     * other. */
    lc_status (*train_dataloader)(void *self, lc_trainer *t, lc_loaders *out);
    lc_status (*val_dataloader)(void *self, lc_trainer *t, lc_loaders *out);
    lc_status (*test_dataloader)(void *self, lc_trainer *t, lc_loaders *out);
    lc_status (*predict_dataloader)(void *self, lc_trainer *t, lc_loaders *out);
    /* Before each batch's start hooks; the same three of the module are used where these are missing. `batch` is a copy
     * whose tensors may be exchanged, also for results of operations, which are recorded into the step. */
    lc_status (*on_before_batch_transfer)(void *self, lc_trainer *t, lc_batch *batch, int dataloader_idx);
    lc_status (*transfer_batch_to_device)(void *self, lc_trainer *t, lc_batch *batch, int dataloader_idx);
    lc_status (*on_after_batch_transfer)(void *self, lc_trainer *t, lc_batch *batch, int dataloader_idx);
    /* With every checkpoint: `state` is the datamodule's own object. */
    lc_status (*save_state)(void *self, lc_trainer *t, lc_state *state);
    /* The run failed or was interrupted; the result is ignored. */
    lc_status (*on_exception)(void *self, lc_trainer *t, lc_status status, const char *message);
    lc_status (*teardown)(void *self, lc_trainer *t, lc_stage stage);
    void (*free)(void *self); /* lc_datamodule_release */
    /* The datamodule's hyperparameters, which live as long as it: saved with checkpoints and passed to the loggers
     * along with the module's (a name with another value there is an error); BatchSizeFinder looks here too. */
    lc_option_set (*hyperparameters)(void *self);
} lc_datamodule_ops;

#define LC_DATAMODULE_OPS_INIT(text) .size = sizeof(lc_datamodule_ops), .name = (text)

typedef struct lc_datamodule {
    const lc_datamodule_ops *ops;
    void *self;
} lc_datamodule;

/* Lightning's LightningDataModule.from_datasets. */
typedef struct lc_datasets {
    lc_dataset *train, *val, *test, *predict; /* any may be NULL; references are taken */
    int64_t batch_size;                       /* 0: 1 */
    int num_workers;                          /* may be LC_WORKERS_AUTO */
    uint64_t seed;                            /* of the shuffling of `train` */
    void *reserved[2];
} lc_datasets;

LC_BEGIN_DECLS
/* A loader for each of the datasets; only that of `train` shuffles. lc_datamodule_release drops the references. */
LC_API lc_status lc_datamodule_from_datasets(const lc_datasets *datasets, lc_datamodule *out) LC_MUST_USE;
LC_API void lc_datamodule_release(lc_datamodule *d); /* calls ops->free; zeros are fine */
LC_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by saving and restoring a run: the format, optimizers, tensors of callbacks. */
#ifndef LC_CORE_RESUME_RUN_STATE_H
#define LC_CORE_RESUME_RUN_STATE_H

#include <lightc/weights.h>
#include "core/hooks/trainer_internal.h"

#define LC__STATE_FORMAT 1

/* Views of flat buffers, and other tensors, that live (and stay mapped) until the checkpoint is committed or read. */
typedef struct lc__views {
    struct lc__kept_tensor {
        lc_tensor *tensor;
        bool mapped;
    } * v;
    int n, cap;
} lc__views;

void lc__views_free(lc__views *l);
lc_status lc__views_add(lc__views *l, lc_tensor *t) LC_MUST_USE; /* owns t, even if it fails */

/* Adds a tensor to a checkpoint. If the tensor is sliced (tensor/slice.h), every rank adds its range when all of them
 * write (`ranges`); else the first of its ranks adds the whole tensor, which lives in `views`. Collective. */
lc_status lc__save_tensor(lc_ckpt_writer *w, lc_ckpt_kind kind, const char *name, lc_tensor *t, bool ranges,
                          lc__views *views) LC_MUST_USE;

/* Tensors to read, by name. */
typedef struct lc__tensor_list {
    lc_named_tensor *v; /* names are owned */
    int64_t n, cap;
} lc__tensor_list;

lc_status lc__list_add(lc__tensor_list *l, const char *name, lc_tensor *tensor) LC_MUST_USE;
/* Adds the parameters and the persistent buffers of a module. */
lc_status lc__list_model(lc__tensor_list *l, lc_module *m) LC_MUST_USE;
void lc__list_free(lc__tensor_list *l);

/* resume.c: refuses checkpoints in another format. */
lc_status lc__check_format(const lc_checkpoint *c) LC_MUST_USE;
/* resume.c: loads exactly the tensors of the module, with the digits of master weights where they count. */
lc_status lc__load_model(lc_module *m, lc_checkpoint *c) LC_MUST_USE;
/* If a run with another precision wrote c, its numbers are converted to the types of this one as they are loaded. */
void lc__convert_checkpoint(lc_checkpoint *c, const char *precision);
/* load_weights.c: lc_module_load_weights; messages put `options` in front of the names of arguments: "weights_". */
lc_status lc__load_weights(lc_module *m, const char *path, const char *options, const lc_load_args *how,
                           lc_load_result *result) LC_MUST_USE;
/* initial_weights.c: loads the file that opt.weights names, in the first run. */
lc_status lc__initial_weights(lc_trainer *t) LC_MUST_USE;

/* optimizer_state.c: "optimizers" and "schedulers" of state.json, and the tensors. */
/* ranges, views: as in lc__save_tensor. */
lc_status lc__save_optimizers(lc_module *m, const lc_optimizers *all, lc_ckpt_writer *w, bool ranges,
                              lc__views *views) LC_MUST_USE;
lc_status lc__restore_optimizers(lc_module *m, const lc_optimizers *all, lc_checkpoint *c) LC_MUST_USE;

/* ---- master_weights.c ---- */
/* Whether a tensor of optimizer state, "optimizers.I.PATH.STATE", is a master weight. */
bool lc__is_master_weight(const char *name);
/* After the tensors of a model: those that the checkpoint has in another type, and as master weights, are loaded from
 * these. */
lc_status lc__load_master_weights(const lc__tensor_list *model, lc_checkpoint *c) LC_MUST_USE;
/* Adds a master weight that the checkpoint lacks, to be started as the checkpoint's parameter. */
lc_status lc__list_parameter_of(lc__tensor_list *l, const char *name, lc_tensor *master) LC_MUST_USE;
lc_status lc__start_master_weights(const lc__tensor_list *masters, lc_checkpoint *c) LC_MUST_USE;
/* *loses: the checkpoint has master weights of parameters of 16 bits for which this run's optimizers keep none. */
lc_status lc__loses_master_weights(lc_module *m, const lc_optimizers *all, lc_checkpoint *c, bool *loses) LC_MUST_USE;

typedef lc_status lc__state_fn(void *ctx, const char *name, lc_tensor *tensor);
/* Calls fn("callbacks.KEY.NAME", tensor) for each tensor of a callback. */
lc_status lc__walk_callback(lc_trainer *t, const lc__callback *cb, lc__state_fn *fn, void *ctx) LC_MUST_USE;

#endif

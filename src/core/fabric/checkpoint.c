/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a program's own loop. A trainer can load their weights (core/resume/save.c). */
#include "core/fabric/fabric_internal.h"

#include "core/checkpoint/joint.h"
#include "core/hooks/precision_calls.h"
#include "core/options/hyperparameters.h"
#include "comm/agree.h"
#include "base/state_count.h"

static lc_status between_steps(const lc_fabric *f, const char *what)
{
    if (!f->m) return lc_fail(LC_ERR_STATE, "%s: call lc_fabric_setup first", what);
    if (lc_current_graph() == f->graph) return lc_fail(LC_ERR_STATE, "%s: call lc_fabric_end first", what);
    return LC_OK;
}

typedef struct save_walk {
    lc_fabric *f;
    lc__views *views;
} save_walk;

/* Buffers are saved from rank 0. */
static lc_status save_model_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    const save_walk *w = ctx;
    lc_fabric *f = w->f;
    (void)owner;
    if (mt->is_parameter) return lc__save_tensor(f->writer, LC_CKPT_MODEL, path, mt->tensor, f->sharded, w->views);
    if (!mt->persistent || lc_fabric_global_rank(f) != 0) return LC_OK;
    return lc__ckpt_add_own(f->writer, LC_CKPT_MODEL, path, mt->tensor);
}

static lc_status fill_state(lc_fabric *f, lc_state **state)
{
    lc_state *root = lc_ckpt_state(f->writer), *tree = *state, *o;
    *state = NULL; /* the next call owns it, even if it fails */
    if (tree) LC_TRY(lc_state_set_tree(root, "state", tree));
    LC_TRY(lc_state_set_text(root, "lightc_version", lc_version()));
    LC_TRY(lc_state_set_int(root, "format", LC__STATE_FORMAT));
    LC_TRY(lc_state_set_bool(root, "weights_only", true)); /* for the trainer: the file has no state of its loop */
    LC_TRY(lc_state_set_int(root, "fabric_steps", f->steps));
    LC_TRY(lc_state_set_text(root, "strategy", f->strategy->name));
    LC_TRY(lc_state_set_int(root, "world_size", lc_fabric_world_size(f)));
    LC_TRY(lc_state_set_text(root, "state_dict_type", f->sharded ? "sharded" : "full"));
    LC_TRY(lc__hyperparameters_write(f->m, NULL, root));
    LC_TRY(lc_state_set_object(root, "precision", &o));
    LC_TRY(lc_state_set_text(o, "name", f->precision.name));
    return lc__precision_save(&f->precision, f->precision_self, o);
}

static lc_status fill_tensors(lc_fabric *f, lc__views *views)
{
    save_walk walk = {f, views};
    LC_TRY(lc_module_visit(f->m, save_model_tensor, &walk));
    return lc__save_optimizers(f->m, &f->optimizers, f->writer, f->sharded, views);
}

lc_status lc_fabric_save(lc_fabric *f, const char *path, lc_state *state)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(state, STATE, LC_ERR_ARGUMENT);
    lc__views views = {0};
    bool begun = false;
    lc_status status = between_steps(f, "lc_fabric_save");
    if (status < 0) goto done;
    status = f->writer ? LC_OK : lc_ckpt_writer_new(&f->writer);
    if (status >= 0) status = lc_ckpt_begin(f->writer, path);
    begun = status >= 0;
    if (begun) status = fill_state(f, &state);
    LC_TRY_GOTO(status, done, lc__ranks_agree(f->comm, status)); /* all ranks help to gather tensors */
    LC_TRY_GOTO(status, done, lc__ranks_agree(f->comm, fill_tensors(f, &views)));
    begun = false;
    if (f->sharded) {
        status = lc__ckpt_commit_together(f->writer, f->comm, true);
        goto done;
    }
    if (lc_fabric_global_rank(f) == 0)
        status = lc_ckpt_commit(f->writer, true);
    else
        lc_ckpt_abort(f->writer);
    status = lc__ranks_agree(f->comm, status);
done:
    if (begun) lc_ckpt_abort(f->writer);
    lc_state_free(state);
    lc__views_free(&views);
    return status;
}

lc_status lc_fabric_load(lc_fabric *f, const char *path, lc_state **state)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    lc_checkpoint *c = NULL;
    const lc_state *root, *o;
    lc_status status = LC_OK;
    int64_t steps;
    LC_TRY(between_steps(f, "lc_fabric_load"));
    LC_TRY(lc__ranks_open_checkpoint(f->comm, path, &c));
    root = lc_checkpoint_state(c);
    if (lc_state_get_int(root, "fabric_steps", &steps) < 0) {
        status = lc_fail(
            LC_ERR_FORMAT,
            "%s was not written by lc_fabric_save; lc_module_load_checkpoint loads the weights of any checkpoint",
            path);
        goto done;
    }
    if (steps < 0 || steps > LC__MOST_COUNT) {
        status = lc_fail(LC_ERR_FORMAT, "%s: state \"fabric_steps\" is %lld", path, (long long)steps);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__name_checkpoint(path, lc__check_format(c)));
    lc__convert_checkpoint(c, f->precision.name);
    LC_TRY_GOTO(status, done, lc__load_model(f->m, c));
    LC_TRY_GOTO(status, done, lc__name_checkpoint(path, lc__restore_optimizers(f->m, &f->optimizers, c)));
    if (f->precision.load_state && lc_state_find(root, "precision")) {
        LC_TRY_GOTO(status, done, lc__name_checkpoint(path, lc_state_get_object(root, "precision", &o)));
        LC_TRY_GOTO(status, done, lc__precision_load(&f->precision, f->precision_self, o));
    }
    lc_zero_grad(f->graph);
    f->unsummed = false;
    const lc_state *own = lc_state_find(root, "state");
    if (state) LC_TRY_GOTO(status, done, own ? lc_state_copy(own, state) : lc_state_new(state));
    f->steps = steps;
done:
    lc_checkpoint_close(c);
    return status;
}

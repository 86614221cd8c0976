/* SPDX-License-Identifier: Apache-2.0 */
/* Probes (probe.h), for lr_find.c and scale_batch_size.c. */
#include "core/tuner/probe.h"

#include "core/trainer/run.h"
#include "core/resume/resume.h"
#include "core/hooks/precision_calls.h"
#include "core/options/hyperparameters.h"
#include "comm/agree.h"
#include "core/ranks/ranks.h"
#include "base/status.h"
#include "optim/state_buffers.h"
#include "tensor/tensor_impl.h"
#include "base/grow.h"

#include <lightc/nn.h>
#include <stdlib.h>
#include <string.h>

/* ---- saved parameters and buffers ---- */

typedef struct snapshot {
    char *bytes;
    size_t n, cap, at;
} snapshot;

static lc_status take(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    snapshot *s = ctx;
    size_t n = (size_t)lc_tensor_numel(mt->tensor) * lc_dtype_size(lc_tensor_storage(mt->tensor));
    (void)path, (void)owner;
    LC_TRY(lc__grow(&s->bytes, &s->cap, s->n, n + 1, "a copy of the parameters")); /* the first may be empty */
    LC_TRY(lc_tensor_gather(mt->tensor, s->bytes + s->n, n));
    s->n += n;
    return LC_OK;
}

static lc_status put_back(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    snapshot *s = ctx;
    size_t n = (size_t)lc_tensor_numel(mt->tensor) * lc_dtype_size(lc_tensor_storage(mt->tensor));
    (void)path, (void)owner;
    if (s->at + n > s->n) return lc_fail(LC_ERR_STATE, "the module gained a parameter during training");
    LC_TRY(lc_tensor_write(mt->tensor, s->bytes + s->at, n));
    s->at += n;
    return LC_OK;
}

/* Runs after configure_model, which may make parameters. The barrier keeps a rank whose probe fails now from breaking
 * the gathers of the others. */
static lc_status snapshot_start(void *self, lc_trainer *t)
{
    LC_TRY(lc_module_visit(t->m, take, self));
    return lc__ranks_barrier(t->comm);
}

static const lc_callback_ops snapshot_ops = {
    LC_CALLBACK_OPS_INIT("Snapshot"), .tunes = true,
    .on_fit_start = snapshot_start,   .on_validation_start = snapshot_start,
    .on_test_start = snapshot_start,  .on_predict_start = snapshot_start,
};

/* ---- the run ---- */

static lc_trainer_options quiet(const lc_trainer *t, lc_stage stage, int64_t steps)
{
    lc_trainer_options o = t->opt;
    o.size = sizeof o;
    o.max_steps = steps;
    o.max_epochs = -1;
    o.min_epochs = o.min_steps = LC_UNSET;
    o.max_time = (lc_duration){0};
    o.limit_val_batches = o.limit_test_batches = o.limit_predict_batches =
        LC_BATCHES((double)(stage == LC_STAGE_FIT ? 0 : steps));
    o.num_sanity_val_steps = 0;
    o.logger = "none";
    o.log_every_n_steps = 0;
    o.enable_progress_bar = o.enable_model_summary = o.enable_checkpointing = LC_OFF;
    o.early_stopping = o.ckpt_path = o.weights = o.own_config = NULL;
    o.callbacks = NULL;
    o.loggers = NULL;
    o.n_callbacks = o.n_loggers = 0;
    o.trace_hooks = false;
    o.tune = o.detect_anomaly = false;
    o.profiler = NULL;
    o.gather_parameters = true; /* the probe's strategy is not the run's */
    o.profilers = NULL;
    o.n_profilers = 0;
    o.handle_signals = o.handle_signals && !t->in_run; /* the outer run handles them */
    o.storage = NULL;
    return o;
}

/* The module's operations in a probe. In a running trainer, its data and submodules exist already and must stay. */
static lc_module_ops probe_ops(const lc_module_ops *given, lc_stage stage, bool in_run)
{
    lc_module_ops ops = {0};
    memcpy(&ops, given, given->size < sizeof ops ? given->size : sizeof ops);
    ops.size = sizeof ops;
    ops.configure_callbacks = NULL;
    if (stage == LC_STAGE_FIT) {
        ops.val_dataloader = NULL;
        ops.validation_step = NULL;
    }
    if (in_run) {
        ops.prepare_data = NULL;
        ops.setup = NULL;
        ops.configure_model = NULL;
        ops.teardown = NULL;
    }
    return ops;
}

static lc_datamodule_ops probe_data_ops(const lc_datamodule_ops *given, lc_stage stage, bool in_run)
{
    lc_datamodule_ops ops = {0};
    memcpy(&ops, given, given->size < sizeof ops ? given->size : sizeof ops);
    ops.size = sizeof ops;
    if (stage == LC_STAGE_FIT) ops.val_dataloader = NULL;
    if (in_run) {
        ops.prepare_data = NULL;
        ops.setup = NULL;
        ops.teardown = NULL;
    }
    return ops;
}

static lc_status (*const runs[])(lc_trainer *t, lc_module *m, const lc_run_args *args) = {
    [LC_STAGE_FIT] = lc_trainer_fit_with,
    [LC_STAGE_VALIDATE] = lc_trainer_validate_with,
    [LC_STAGE_TEST] = lc_trainer_test_with,
    [LC_STAGE_PREDICT] = lc_trainer_predict_with,
};

/* A strategy that shards has the module in slices, for the outer run or from an earlier probe. */
static lc_status make_whole(lc_trainer *t)
{
    return t->comm && t->strategy->finish ? t->strategy->finish(t->strategy_self) : LC_OK;
}

/* A trial run must not change the scale of the run's losses. */
static lc_status copy_precision(const lc_trainer *t, lc_precision *out)
{
    *out = (lc_precision){.ops = &t->precision};
    if (!t->precision_self) return LC_OK;
    if (t->precision.copy) return lc__precision_copy(&t->precision, t->precision_self, &out->self);
    return lc_fail(LC_ERR_CONFIG, "trial runs need a copy of the precision %s, which has none (lc_precision_ops.copy)",
                   t->precision.name);
}

lc_status lc__probes_end(lc_trainer *t)
{
    lc_optimizer *list[LC_MAX_OPTIMIZERS];
    if (!t->in_run || t->stage != LC_STAGE_FIT || !t->strategy->shards_state) return LC_OK;
    for (int i = 0; i < t->optimizers.n; i++) {
        list[i] = t->optimizers.optimizers[i].optimizer;
        lc__optimizer_forget_state(list[i]);
    }
    return t->strategy->setup(t->strategy_self, t->graph, t->m, list, t->optimizers.n);
}

lc_status lc__probe_run(lc__probe *p)
{
    lc_trainer_options o = quiet(p->t, p->stage, p->steps);
    lc_module *m = p->m;
    lc_comm *group = NULL;
    lc_trainer *probe = NULL, *attached = m->trainer;
    const lc_module_ops *given = m->ops;
    lc_status status = LC_OK;
    lc_precision precision;
    snapshot state = {0};
    char message[1024];
    if (!given || !given->size) return lc_fail(LC_ERR_CONFIG, "the module has no operations");
    LC_TRY(lc__ranks_are_there(p->t));
    lc_module_ops ops = probe_ops(given, p->stage, p->t->in_run);
    lc_run_args run = LC_ARGS(lc_run, .train_dataloader = p->run->train_dataloader, .discard_predictions = true);
    lc_datamodule_ops data_ops;
    lc_datamodule data = {0};
    if (p->run->datamodule && p->run->datamodule->ops) {
        data_ops = probe_data_ops(p->run->datamodule->ops, p->stage, p->t->in_run);
        data = (lc_datamodule){&data_ops, p->run->datamodule->self};
        run.datamodule = &data;
    }
    m->ops = &ops;
    /* The probe has its own communicator, so its failure does not end the outer run. */
    LC_TRY_GOTO(status, done, make_whole(p->t));
    if (p->t->comm) LC_TRY_GOTO(status, done, lc_comm_split(p->t->comm, 0, p->t->rank, &group));
    o.comm = group;
    LC_TRY_GOTO(status, done, copy_precision(p->t, &precision));
    o.precision = NULL;
    o.precision_plugin = &precision;
    LC_TRY_GOTO(status, done, lc_trainer_new(&o, &probe));
    probe->resume->is_probe = true;
    LC_TRY_GOTO(status, done, lc_trainer_add_callback(probe, (lc_callback){&snapshot_ops, &state}));
    LC_TRY_GOTO(status, done, lc_trainer_add_callback(probe, p->watch));
    LC_TRY_GOTO(status, done, lc__make_graph(probe, p->max_bytes));
    status = runs[p->stage](probe, m, &run);
    lc__copy_message(message, sizeof message);
    lc_graph_get_stats(probe->graph, &p->stats);
    lc_trainer_free(probe); /* now slices it has left can be written */
    probe = NULL;
    lc_status restored = state.n ? lc_module_visit(m, put_back, &state) : LC_OK;
    if (status < 0)
        lc_fail(status, "%s", message);
    else
        status = restored;
done:
    lc__copy_message(message, sizeof message);
    lc_trainer_free(probe);
    lc_comm_free(group);
    if (p->t->ranks->batch_norm_comm) lc_sync_batch_norm(m, p->t->ranks->batch_norm_comm);
    if (status < 0) lc_fail(status, "%s", message);
    m->ops = given;
    m->trainer = attached;
    free(state.bytes);
    return status;
}

/* ---- hyperparameters ---- */

static const lc_option *named(const lc_option_set *set, const char *name)
{
    for (int i = 0; i < set->n; i++) {
        const char *dot = strrchr(set->options[i].name, '.');
        if (!strcmp(set->options[i].name, name) || (dot && !strcmp(dot + 1, name))) return &set->options[i];
    }
    return NULL;
}

lc_status lc__tuned_field(const lc_module *m, const lc_run_args *run, const char *asked, const char *const *names,
                          const lc_option **field, void **values)
{
    lc_option_set sets[] = {lc_module_hyperparameters(m), lc__datamodule_hyperparameters(run->datamodule)};
    const char *const only[] = {asked, NULL};
    *field = NULL;
    for (int k = 0; k < 2 && !*field; k++) {
        *values = sets[k].target;
        for (const char *const *name = asked ? only : names; *name && !*field; name++) *field = named(&sets[k], *name);
    }
    if (asked && !*field)
        return lc_fail(LC_ERR_CONFIG, "there is no hyperparameter \"%.60s\" (lc_module_save_hyperparameters)", asked);
    return LC_OK;
}

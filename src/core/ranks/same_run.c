/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks must run the same program with the same options, model and data. Everything that must agree is written as lines
 * of text and compared with rank 0's before it is used; the error names the first line that differs. The values of
 * parameters and buffers come from rank 0.
 *
 * To exclude an option that may differ between ranks, add its name to `own`; for one that may be a path, to `paths`. */
#include "core/input/input.h"
#include "core/options/hyperparameters.h"
#include "core/options/options.h"
#include "comm/agree.h"
#include "core/ranks/ranks.h"
#include "base/status.h"
#include "base/str.h"
#include "tensor/initial.h"
#include "optim/optim_internal.h"
#include "parallel/shard/shard.h"
#include "tensor/host_access.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that may differ between machines or ranks. */
static const char *const own[] = {
    "default_root_dir",
    "run_name",
    "logger",
    "enable_progress_bar",
    "enable_model_summary",
    "profiler",
    "trace_hooks",
    "accelerator",
    "devices",
    "num_nodes",
    "node_rank",
    "nodes_file",
    "max_restarts",
    "comm_security",
    "start_timeout",
    "silence_timeout",
    "progress_timeout",
    "grace_period",
    "threads",
    "handle_signals",
};

/* The trainer's text options that may be paths; all text options of the program may be. */
static const char *const paths[] = {"ckpt_path", "dirpath", "weights"};

static bool is_among(const char *const *names, size_t n, const char *option)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], option)) return true;
    return false;
}

static bool may_be_path(const lc_option *o)
{
    if (o->kind != LC_OPTION_TEXT) return false;
    return !lc__option_is_trainers(o) || is_among(paths, sizeof paths / sizeof *paths, o->name);
}

/* Paths may differ from machine to machine. */
static void add_options(lc__str *out, const lc_option *options, int n, const void *target)
{
    char space[LC__OPTION_SPACE];
    for (int i = 0; i < n; i++) {
        if (lc__option_is_trainers(&options[i]) && is_among(own, sizeof own / sizeof *own, options[i].name)) continue;
        const char *value = lc__option_text(&options[i], target, space);
        if (!may_be_path(&options[i]) || !strchr(value, '/')) lc__str_add(out, "--%s %s\n", options[i].name, value);
    }
}

lc_status lc__check_same_options(lc_trainer *t)
{
    lc__str text = {0};
    int n;
    if (!t->comm) return LC_OK;
    lc_option_set model = lc_module_hyperparameters(t->m), data = lc__datamodule_hyperparameters(&t->datamodule.given);
    const lc_option *options = lc_trainer_option_table(&n);
    lc__str_add(&text, "lightc %s\n%s of %s\n", lc_version(), lc_stage_name(t->stage), t->mo.name);
    add_options(&text, options, n, &t->opt);
    add_options(&text, model.options, model.n, model.target);
    add_options(&text, data.options, data.n, data.target);
    if (t->stage == LC_STAGE_FIT) lc__str_add(&text, "%s validation\n", t->input->enable_validation ? "a" : "no");
    lc_status s = lc__ranks_compare(t->comm, "program and options", &text);
    lc__str_free(&text);
    return s;
}

/* If the trainer divides a loader among ranks, all must have the same one. If ranks have their own loaders, these may
 * differ. */
static void describe(lc_trainer *t, const lc__source *s, const char *what, int i, lc__str *out)
{
    char text[2048] = "";
    if (!s->loader) return;
    lc__str_add(out, "%s loader %d", what, i);
    if (!s->shared_out) {
        lc__str_add(out, " of its own\n");
        return;
    }
    lc_dataloader_describe(s->loader, t->current_epoch, text, sizeof text);
    lc__str_add(out, ": %lld batches%s%s\n", (long long)(s == &t->input->train ? s->own_length : s->length),
                *text ? ": " : "", text);
}

/* All ranks must gather sliced parameters for a batch together, so they need the same number of batches. */
static lc_status check_lengths(lc_trainer *t)
{
    bool sliced = t->strategy->begin_batch && (t->stage == LC_STAGE_FIT || !t->opt.gather_parameters);
    for (int i = 0; i < t->input->eval.n && sliced; i++) {
        const lc__source *s = &t->input->eval.s[i];
        int64_t range[] = {s->length, -s->length};
        if (!s->loader || s->shared_out) continue;
        LC_TRY(lc_comm_all_reduce(t->comm, range, range, 2, LC_I64, LC_COMM_MAX, NULL));
        if (range[0] != -range[1])
            return lc_fail(LC_ERR_CONFIG,
                           "dataloader %d of this evaluation differs per rank, with %lld to %lld batches: with "
                           "parameters in slices (--strategy %s) all ranks need the same number; limit them, or let "
                           "the trainer divide one loader (use_distributed_sampler)",
                           i, (long long)-range[1], (long long)range[0], t->strategy->name);
    }
    return LC_OK;
}

lc_status lc__check_same_data(lc_trainer *t)
{
    lc__str text = {0};
    if (!t->comm) return LC_OK;
    describe(t, &t->input->train, "train", 0, &text);
    for (int i = 0; i < t->input->eval.n; i++)
        describe(t, &t->input->eval.s[i], t->stage == LC_STAGE_FIT ? "val" : lc_stage_name(t->stage), i, &text);
    lc__str_add(&text, "no more\n");
    lc_status s = lc__ranks_compare(t->comm, "data", &text);
    lc__str_free(&text);
    return s < 0 ? s : check_lengths(t);
}

/* ---- the model ---- */

static lc_status describe_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    char shape[128];
    (void)owner;
    lc__str_add(ctx, "%s %s %s%s\n", path, lc_dtype_name(lc_tensor_dtype(t->tensor)),
                lc__shape_text(lc_tensor_type(t->tensor), shape, sizeof shape),
                t->is_parameter && !lc_tensor_requires_grad(t->tensor) ? " frozen" : "");
    if (t->tensor->is_slice) lc__str_add(ctx, "%s in slices\n", path);
    return LC_OK;
}

static lc_status send_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    /* Another trainer may have left the tensor in slices. */
    if (t->tensor->is_slice && t->tensor->slices) LC_TRY(lc__flat_gather(t->tensor->flat));
    if (t->tensor->is_slice)
        return lc_fail(LC_ERR_STATE,
                       "%s: this rank has only a slice, and the others belonged to a run that failed, or to a freed "
                       "trainer; load a checkpoint",
                       path);
    return lc__tensor_broadcast(t->tensor, ctx, 0);
}

/* Sends the initializer, whose seed may differ between ranks, in place of the value. */
static lc_status send_initial(lc_comm *comm, lc_tensor *t, bool *sent)
{
    struct {
        int64_t is_initial;
        lc__initial initial;
    } begin;
    memset(&begin, 0, sizeof begin);
    if (t->initial) begin.is_initial = 1, begin.initial = *t->initial;
    LC_TRY(lc_comm_broadcast(comm, &begin, sizeof begin, LC_U8, 0, NULL));
    *sent = begin.is_initial;
    return *sent ? lc__tensor_set_initial(t, &begin.initial) : LC_OK;
}

static lc_status send_to_slice(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    bool sent = false;
    if (t->tensor->is_slice && t->tensor->slices) return LC_OK;
    if (t->is_parameter && !t->tensor->is_slice) LC_TRY(send_initial(ctx, t->tensor, &sent));
    return sent ? LC_OK : send_tensor(ctx, path, owner, t);
}

lc_status lc__ranks_model(lc_comm *comm, lc_module *m, bool sharding)
{
    lc__str text = {0};
    if (!comm) return LC_OK;
    lc_status s = lc_module_visit(m, describe_tensor, &text);
    lc__str_add(&text, "end\n");
    if (s >= 0) s = lc__ranks_compare(comm, "model", &text);
    lc__str_free(&text);
    return s < 0 ? s : lc_module_visit(m, sharding ? send_to_slice : send_tensor, comm);
}

static lc_status fill_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    return t->tensor->initial ? lc__tensor_broadcast(t->tensor, ctx, 0) : LC_OK;
}

lc_status lc__ranks_fill(lc_comm *comm, lc_module *m)
{
    return lc_module_visit(m, fill_tensor, comm);
}

/* ---- optimizers and schedulers ---- */

/* Prints few digits, since machines may compute the last bits of a number differently. */
static void add_number(lc__str *out, const char *name, double value)
{
    if (isnan(value))
        lc__str_add(out, " %s=nan", name);
    else
        lc__str_add(out, " %s=%.6g", name, value);
}

static void describe_optimizer(const lc_optimizer *opt, int i, lc__str *out)
{
    for (int g = 0; g < opt->n_groups; g++) {
        lc__str_add(out, "optimizer %d, group %d: %s", i, g, opt->ops->name);
        for (int h = 0; opt->ops->hyper_names[h]; h++)
            add_number(out, opt->ops->hyper_names[h], opt->groups[g].hyper[h]);
        for (int k = 0; lc__optimizer_flags[k].name; k++)
            if (opt->flags & lc__optimizer_flags[k].flag) lc__str_add(out, " %s", lc__optimizer_flags[k].name);
        lc__str_add(out, "\n");
    }
}

static void describe_scheduler(const lc_scheduler *s, lc__str *out)
{
    lc__str_add(out, " %s", lc_scheduler_name(s));
    for (int i = 0; i < LC_MAX_SCHED_ARGS && s->ops->args && s->ops->args[i]; i++)
        add_number(out, s->ops->args[i], s->args[i]);
    for (int i = 0; i < s->n_milestones; i++) lc__str_add(out, " at %lld", (long long)s->milestones[i]);
    for (int i = 0; i < s->n_children; i++) describe_scheduler(s->children[i], out);
}

typedef struct owners {
    const lc_optimizers *all;
    lc__str *out;
} owners;

static bool has(const lc_param_group *g, const lc_tensor *p)
{
    for (int i = 0; i < g->n_parameters; i++)
        if (g->parameters[i] == p) return true;
    return false;
}

static lc_status describe_owners(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    const owners *w = ctx;
    (void)owner;
    for (int i = 0; i < w->all->n && t->is_parameter; i++) {
        const lc_optimizer *opt = w->all->optimizers[i].optimizer;
        for (int g = 0; g < opt->n_groups; g++)
            if (has(&opt->groups[g], t->tensor)) lc__str_add(w->out, "%s in group %d of optimizer %d\n", path, g, i);
    }
    return LC_OK;
}

lc_status lc__ranks_optimizers(lc_comm *comm, lc_module *m, const lc_optimizers *optimizers)
{
    lc__str text = {0};
    owners w = {optimizers, &text};
    if (!comm) return LC_OK;
    for (int i = 0; i < optimizers->n; i++) describe_optimizer(optimizers->optimizers[i].optimizer, i, &text);
    for (int i = 0; i < optimizers->n_schedulers; i++) {
        const lc_scheduler_config *c = &optimizers->schedulers[i];
        lc__str_add(&text, "scheduler %d of optimizer %d, each %lld %s%s%s:", i, c->optimizer, (long long)c->frequency,
                    c->interval == LC_INTERVAL_STEP ? "step" : "epoch", c->monitor ? ", monitor " : "",
                    c->monitor ? c->monitor : "");
        describe_scheduler(c->scheduler, &text);
        lc__str_add(&text, "\n");
    }
    lc_status s = lc_module_visit(m, describe_owners, &w);
    lc__str_add(&text, "no more\n");
    if (s >= 0) s = lc__ranks_compare(comm, "optimizers", &text);
    lc__str_free(&text);
    return s;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* BaseFinetuning and BackboneFinetuning: freezing parts of a model, and letting them join the training later.
 *
 * Freezing edits the segment tables of the flat buffers: a frozen parameter has no segment in the next plan. What is
 * frozen and which groups were added is state, so a resumed run continues where it was. */
#include "base/args.h"
#include "callbacks/callbacks.h"
#include "base/handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn_internal.h"
#include "optim/optim_internal.h"

typedef struct finetuning {
    lc_finetuning_args a;
    /* BackboneFinetuning: the functions of `a` are those of this file, and its context is this struct. */
    lc_backbone_finetuning_args b;
    char *backbone;
    double previous_backbone_lr;
    lc_trainer *t;
    int n_groups[LC_MAX_OPTIMIZERS]; /* those of configure_optimizers */
    lc_state *restored;              /* until on_fit_start */
} finetuning;

/* ---- freezing ---- */

static void set_trainable(lc_module *m, bool trainable)
{
    lc_batch_norm_layer *norm = lc__as_batch_norm(m);
    for (int i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].is_parameter) lc_tensor_set_requires_grad(m->tensors[i].tensor, trainable);
    if (norm) norm->no_tracking = !trainable;
}

void lc_finetuning_freeze(lc_module *part, bool train_bn)
{
    LC__IS(part, MODULE, );
    set_trainable(part, train_bn && lc__as_batch_norm(part));
    for (int i = 0; i < part->n_children; i++) lc_finetuning_freeze(part->children[i], train_bn);
}

static void unfreeze(lc_module *part)
{
    set_trainable(part, true);
    for (int i = 0; i < part->n_children; i++) unfreeze(part->children[i]);
}

typedef struct collecting {
    lc_optimizer *opt;
    bool train_bn;
    int known; /* frozen parameters that a group has */
} collecting;

static bool joins(void *ctx, const char *path, lc_module *owner, lc_tensor *p)
{
    collecting *c = ctx;
    (void)path;
    if (lc__as_batch_norm(owner) && !c->train_bn) return false;
    if (!lc__optimizer_owns(c->opt, p)) return true;
    c->known += !lc_tensor_requires_grad(p);
    return false;
}

lc_status lc_finetuning_unfreeze_with(lc_module *part, lc_optimizer *opt, const lc_unfreeze_args *args)
{
    LC__IS(part, MODULE, LC_ERR_ARGUMENT);
    LC__IS(opt, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_unfreeze, lc_unfreeze_args, args);
    if (!(a.initial_denom_lr > 0))
        return lc_fail(LC_ERR_ARGUMENT, "initial_denom_lr is %g; it must be positive", a.initial_denom_lr);
    collecting c = {opt, a.train_bn, 0};
    lc_tensor **list;
    int n;
    double lr = isnan(a.lr) ? (opt->n_groups ? opt->groups[0].hyper[0] : 0) / a.initial_denom_lr : a.lr;
    if (!(lr >= 0)) return lc_fail(LC_ERR_ARGUMENT, "lr is %g; it must not be negative", lr);
    LC_TRY(lc_module_parameters(part, joins, &c, &list, &n));
    unfreeze(part);
    lc_trainer *t = lc_module_root(part)->trainer;
    if (c.known && t)
        lc_trainer_message(
            t, LC_WARNING,
            "%d frozen parameters of %s are already in a group of %s and would train with its learning rate; give the "
            "optimizer only parameters that require a gradient (lc_module_parameters with a filter)",
            c.known, part->name ? part->name : "the module", opt->ops->name);
    int group = n ? lc_optimizer_add_group(opt, NULL, list, n) : 0;
    free(list);
    if (group < 0) return (lc_status)group;
    if (n) opt->groups[group].hyper[0] = opt->groups[group].initial_lr = lr;
    return LC_OK;
}

/* ---- hooks ---- */

static lc_status ft_setup(void *self, lc_trainer *t, lc_stage stage)
{
    finetuning *f = self;
    if (stage != LC_STAGE_FIT) return LC_OK;
    f->t = t;
    lc_state_free(f->restored);
    f->restored = NULL;
    return f->a.freeze_before_training(f->a.context, t->m);
}

static lc_status ft_epoch_start(void *self, lc_trainer *t)
{
    finetuning *f = self;
    for (int i = 0; i < t->optimizers.n; i++)
        LC_TRY(f->a.finetune_function(f->a.context, t->m, t->current_epoch, t->optimizers.optimizers[i].optimizer));
    return LC_OK;
}

/* ---- state: "frozen" and "untracked" list paths, "groups" the paths of each group that was added ---- */

typedef struct path_walk {
    lc_state *frozen, *untracked;
    const lc_state *in_frozen, *in_untracked;
} path_walk;

static lc_status save_path(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    path_walk *w = ctx;
    const lc_batch_norm_layer *norm = lc__as_batch_norm(owner);
    if (mt->is_parameter && !lc_tensor_requires_grad(mt->tensor)) LC_TRY(lc_state_set_text(w->frozen, NULL, path));
    if (norm && norm->no_tracking && !strcmp(mt->name, "running_mean"))
        LC_TRY(lc_state_set_text(w->untracked, NULL, path));
    return LC_OK;
}

static bool lists(const lc_state *list, const char *path)
{
    const char *text;
    for (int64_t i = 0; i < lc_state_length(list); i++)
        if (lc_state_get_text(lc_state_at(list, i), NULL, &text) == LC_OK && !strcmp(text, path)) return true;
    return false;
}

static lc_status restore_path(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    path_walk *w = ctx;
    lc_batch_norm_layer *norm = lc__as_batch_norm(owner);
    if (mt->is_parameter) lc_tensor_set_requires_grad(mt->tensor, !lists(w->in_frozen, path));
    if (norm && !strcmp(mt->name, "running_mean")) norm->no_tracking = lists(w->in_untracked, path);
    return LC_OK;
}

typedef struct group_walk {
    const lc_param_group *group;
    lc_state *out;
} group_walk;

static lc_status save_member(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    group_walk *w = ctx;
    (void)owner;
    for (int i = 0; i < w->group->n_parameters; i++)
        if (w->group->parameters[i] == mt->tensor) return lc_state_set_text(w->out, NULL, path);
    return LC_OK;
}

static lc_status ft_save(void *self, lc_trainer *t, lc_state *out)
{
    finetuning *f = self;
    path_walk w = {0};
    lc_state *optimizers, *groups, *one;
    LC_TRY(lc_state_set_double(out, "previous_backbone_lr", f->previous_backbone_lr));
    LC_TRY(lc_state_set_array(out, "frozen", &w.frozen));
    LC_TRY(lc_state_set_array(out, "untracked", &w.untracked));
    LC_TRY(lc_module_visit(t->m, save_path, &w));
    LC_TRY(lc_state_set_array(out, "groups", &optimizers));
    for (int i = 0; i < t->optimizers.n; i++) {
        const lc_optimizer *opt = t->optimizers.optimizers[i].optimizer;
        LC_TRY(lc_state_set_array(optimizers, NULL, &groups));
        for (int g = f->n_groups[i]; g < opt->n_groups; g++) {
            LC_TRY(lc_state_set_array(groups, NULL, &one));
            LC_TRY(lc_module_visit(t->m, save_member, &(group_walk){&opt->groups[g], one}));
        }
    }
    return LC_OK;
}

/* Optimizers do not exist yet, and check what is frozen when they are made: the rest is restored in on_fit_start. */
static lc_status ft_load(void *self, lc_trainer *t, const lc_state *in)
{
    finetuning *f = self;
    char *text = NULL;
    size_t n;
    (void)t;
    LC_TRY(lc_state_get_double(in, "previous_backbone_lr", &f->previous_backbone_lr));
    LC_TRY(lc_state_print(in, &text, &n));
    lc_status s = lc_state_parse(text, n, &f->restored);
    free(text);
    return s;
}

static lc_status restore_group(lc_trainer *t, lc_optimizer *opt, const lc_state *paths)
{
    int n = (int)lc_state_length(paths);
    lc_status s = LC_OK;
    lc_tensor **list = calloc((size_t)n + 1, sizeof *list);
    if (!list) return lc_fail(LC_ERR_MEMORY, "out of memory: finetuning");
    for (int i = 0; i < n && s >= 0; i++) {
        const char *path;
        s = lc_state_get_text(lc_state_at(paths, i), NULL, &path);
        if (s >= 0 && !(list[i] = lc_module_find(t->m, path)))
            s = lc_fail(LC_ERR_FORMAT, "the checkpoint has %.80s in a group of %s; the model has no such parameter",
                        path, opt->ops->name);
    }
    if (s >= 0) {
        int group = lc_optimizer_add_group(opt, NULL, list, n);
        if (group < 0) s = (lc_status)group;
    }
    free(list);
    return s;
}

static lc_status restore(const finetuning *f, lc_trainer *t)
{
    const lc_state *groups, *added, *paths;
    path_walk w = {0};
    LC_TRY(lc_state_get_array(f->restored, "frozen", &w.in_frozen));
    LC_TRY(lc_state_get_array(f->restored, "untracked", &w.in_untracked));
    LC_TRY(lc_module_visit(t->m, restore_path, &w));
    LC_TRY(lc_state_get_array(f->restored, "groups", &groups));
    for (int i = 0; i < t->optimizers.n && i < lc_state_length(groups); i++) {
        LC_TRY(lc_state_get_array(lc_state_at(groups, i), NULL, &added));
        for (int64_t g = 0; g < lc_state_length(added); g++) {
            LC_TRY(lc_state_get_array(lc_state_at(added, g), NULL, &paths));
            LC_TRY(restore_group(t, t->optimizers.optimizers[i].optimizer, paths));
        }
    }
    return LC_OK;
}

static lc_status ft_fit_start(void *self, lc_trainer *t)
{
    finetuning *f = self;
    for (int i = 0; i < t->optimizers.n; i++) f->n_groups[i] = t->optimizers.optimizers[i].optimizer->n_groups;
    if (!f->restored) return LC_OK;
    LC_TRY(lc__name_checkpoint(t->ckpt_path, restore(f, t)));
    lc_state_free(f->restored);
    f->restored = NULL;
    return LC_OK;
}

static void ft_release(void *self)
{
    finetuning *f = self;
    lc_state_free(f->restored);
    free(f->backbone);
}

#define FINETUNING_OPS(text)                                                                                           \
    {                                                                                                                  \
        LC_CALLBACK_OPS_INIT(text), .setup = ft_setup, .on_fit_start = ft_fit_start,                                   \
                                    .on_train_epoch_start = ft_epoch_start, .save_state = ft_save,                     \
                                    .load_state = ft_load, .free = lc__owned_free                                      \
    }
static const lc_callback_ops finetuning_ops = FINETUNING_OPS("BaseFinetuning");
static const lc_callback_ops backbone_ops = FINETUNING_OPS("BackboneFinetuning");

lc_status lc_finetuning_new(const lc_finetuning_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_finetuning, given);
    if (!args->freeze_before_training || !args->finetune_function)
        return lc_fail(LC_ERR_CONFIG, "BaseFinetuning needs freeze_before_training and finetune_function");
    finetuning *f = lc__owned_new(sizeof *f, ft_release);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: BaseFinetuning");
    f->a = *args;
    *out = (lc_callback){&finetuning_ops, f};
    return LC_OK;
}

/* ---- the backbone ---- */

static lc_status find_backbone(const finetuning *f, lc_module *m, lc_module **out)
{
    const char *path = f->backbone;
    while (*path) {
        size_t n = strcspn(path, ".");
        lc_module *child = NULL;
        for (int i = 0; i < m->n_children && !child; i++)
            if (m->children[i]->name && strlen(m->children[i]->name) == n && !strncmp(m->children[i]->name, path, n))
                child = m->children[i];
        if (!child)
            return lc_fail(LC_ERR_CONFIG,
                           "BackboneFinetuning: the module has no submodule `%s`; name another with .backbone",
                           f->backbone);
        m = child;
        path += n + (path[n] == '.');
    }
    *out = m;
    return LC_OK;
}

static double twice(int64_t epoch)
{
    (void)epoch;
    return 2;
}

static lc_status freeze_backbone(void *context, lc_module *m)
{
    lc_module *backbone = NULL;
    LC_TRY(find_backbone(context, m, &backbone));
    lc_finetuning_freeze(backbone, true);
    return LC_OK;
}

static lc_status finetune_backbone(void *context, lc_module *m, int64_t epoch, lc_optimizer *opt)
{
    finetuning *f = context;
    lc_module *backbone = NULL;
    double current = opt->groups[0].hyper[0], lr;
    if (epoch < f->b.unfreeze_backbone_at_epoch) return LC_OK;
    LC_TRY(find_backbone(f, m, &backbone));
    if (epoch == f->b.unfreeze_backbone_at_epoch) {
        lr = !isnan(f->b.backbone_initial_lr) ? f->b.backbone_initial_lr : current * f->b.backbone_initial_ratio_lr;
        LC_TRY(lc_finetuning_unfreeze(backbone, opt, .lr = lr, .train_bn = f->b.train_bn));
    } else {
        lr = f->b.lambda_func(epoch + 1) * f->previous_backbone_lr;
        if (f->b.should_align && lr > current) lr = current;
        opt->groups[opt->n_groups - 1].hyper[0] = lr;
    }
    f->previous_backbone_lr = lr;
    if (f->b.verbose)
        lc_trainer_message(f->t, LC_INFO, "epoch %lld: learning rate %.12g, backbone %.12g", (long long)epoch, current,
                           lr);
    return LC_OK;
}

lc_status lc_backbone_finetuning_new(const lc_backbone_finetuning_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_backbone_finetuning, given);
    finetuning *f = lc__owned_new(sizeof *f, ft_release);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: BackboneFinetuning");
    f->b = *args;
    f->a = lc_finetuning_defaults();
    f->a.context = f;
    f->a.freeze_before_training = freeze_backbone;
    f->a.finetune_function = finetune_backbone;
    if (!f->b.lambda_func) f->b.lambda_func = twice;
    if (!lc__dup(f->b.backbone ? f->b.backbone : "backbone", &f->backbone)) {
        lc__owned_free(f);
        return lc_fail(LC_ERR_MEMORY, "out of memory: BackboneFinetuning");
    }
    *out = (lc_callback){&backbone_ops, f};
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers as objects: groups, hyperparameters, constructors, state for checkpoints. macros.c records the steps. */
#include "base/args.h"
#include "base/handle.h"
#include "module/tensors.h"
#include "optim/optim_internal.h"
#include "optim/state_buffers.h"

#include "record/graph_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- creation ---- */

/* The array has room for hyperparameters of later groups, so that it never moves: plans point into it. */
typedef struct optimizer_memory {
    lc_optimizer optimizer;
    lc_optimizer_ops ops; /* a copy; members that the program was built without are zero */
    lc_param_group groups[LC_MAX_PARAM_GROUPS];
    double defaults[LC_MAX_HYPER];
    bool scheduled;
} optimizer_memory;

lc_status lc_optimizer_new(const lc_optimizer_ops *ops, void *module, unsigned flags, lc_optimizer **out)
{
    LC__NEEDS(ops, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(module, MODULE, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    int n = 0;
    LC_TRY(lc__ops_check(sizeof *ops, ops, offsetof(lc_optimizer_ops, initial_state), "an optimizer",
                         "LC_OPTIMIZER_OPS_INIT"));
    if (!ops->name || !ops->hyper_names || !ops->hyper_defaults || !ops->state_names || !ops->update)
        return lc_fail(LC_ERR_ARGUMENT,
                       "optimizer %s lacks one of name, hyper_names, hyper_defaults, state_names, update",
                       ops->name ? ops->name : "without a name");
    while (ops->hyper_names[n]) n++;
    if (n > LC_HYPER_CLIP_VALUE) {
        return lc_fail(LC_ERR_ARGUMENT, "%s has %d hyperparameters; at most %d", ops->name, n, LC_HYPER_CLIP_VALUE);
    }
    if (!n || strcmp(ops->hyper_names[0], "lr")) {
        return lc_fail(LC_ERR_ARGUMENT, "%s: its first hyperparameter must be \"lr\"", ops->name);
    }
    /* Flatten before the first step is recorded: parameters that move later are new tensors to its plan. */
    if (module) LC_TRY(lc__module_flatten(lc_module_root(module)));
    optimizer_memory *memory = calloc(1, sizeof *memory);
    if (!memory) return lc_fail(LC_ERR_MEMORY, "out of memory for an optimizer");
    memory->optimizer.mark = LC__MARK_OF(OPTIMIZER);
    memory->optimizer.ops = ops;
    if (ops->size < sizeof *ops) {
        memcpy(&memory->ops, ops, ops->size);
        memory->ops.size = sizeof *ops;
        memory->optimizer.ops = &memory->ops;
    }
    memory->optimizer.flags = flags;
    memory->optimizer.groups = memory->groups;
    memory->optimizer.root = module ? lc_module_root(module) : NULL;
    memcpy(memory->defaults, ops->hyper_defaults, (size_t)n * sizeof(double));
    memory->defaults[LC_HYPER_CLIP_VALUE] = INFINITY;
    *out = &memory->optimizer;
    return LC_OK;
}

void lc_optimizer_free(lc_optimizer *opt)
{
    if (!opt) return;
    LC__IS_OR_NULL(opt, OPTIMIZER, );
    for (int i = 0; i < opt->n_groups; i++) free(opt->groups[i].parameters);
    for (int k = 0; k < LC_MAX_OPTIM_STATE; k++) lc_tensor_unref(opt->state[k]);
    lc_tensor_unref(opt->steps);
    lc__optimizer_drop_ranges(opt, 0);
    free(opt->ranges);
    if (opt->ops->release) opt->ops->release(opt);
    lc__mark_clear(&opt->mark);
    free(opt);
}

/* Extends *t by the numbers of more parameters. */
static lc_status grow(lc_tensor **t, int64_t n)
{
    lc_tensor *old = *t, *more;
    lc_view from, to;
    LC_TRY(lc__tensor_map(old, LC__READ, &from));
    lc_status status = lc_tensor_new(old->type.dtype, 1, &n, &more);
    if (status >= 0) status = lc__tensor_map(more, LC__READ_WRITE, &to); /* the added numbers are zeros */
    if (status >= 0) {
        memcpy(to.data, from.data, (size_t)lc_tensor_numel(old) * lc_dtype_size(old->type.dtype));
        lc__tensor_unmap(more, LC__READ_WRITE);
    }
    lc__tensor_unmap(old, LC__READ);
    LC_TRY(status);
    lc_tensor_unref(old);
    *t = more;
    return LC_OK;
}

/* For a group that is added after the first step: extends the counts of updates, and starts the state of its
 * parameters. Earlier plans no longer match, since `steps` is a new tensor. */
static lc_status extend_state(lc_optimizer *opt, lc_param_group *group)
{
    int64_t before = lc_tensor_numel(opt->steps), n = before + group->n_parameters;
    int64_t count;
    int ranges = opt->n_ranges;
    const lc_graph *g = lc_current_graph();
    lc_status status = lc__optimizer_add_ranges(opt, group, &count);
    if (status >= 0 && opt->n_ranges > ranges && g && g->peers) /* they know the buffers that were there at the start */
        status = lc_fail(LC_ERR_CONFIG,
                         "%s: the group has parameters of a data type or module that the optimizer had none of; with "
                         "several ranks or devices, and with deterministic, use a separate optimizer",
                         opt->ops->name);
    for (int k = 0; k < LC_MAX_OPTIM_STATE && status >= 0; k++) {
        bool scalar = opt->ops->scalar_state >> k & 1;
        if (opt->state[k] && (scalar || opt->n_ranges > ranges)) status = grow(&opt->state[k], scalar ? n : count);
    }
    if (status >= 0) status = lc__optimizer_start_state(opt, group, before);
    if (status >= 0) status = grow(&opt->steps, n);
    if (status < 0) lc__optimizer_drop_ranges(opt, ranges);
    return status;
}

int lc_optimizer_add_group(lc_optimizer *opt, const char *name, lc_tensor *const *parameters, int n)
{
    LC__IS(opt, OPTIMIZER, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("parameters", n, parameters));
    const optimizer_memory *memory = (const optimizer_memory *)opt;
    unsigned before = lc__error_count();
    if (opt->n_groups == LC_MAX_PARAM_GROUPS)
        return lc_fail(LC_ERR_ARGUMENT, "%s: at most %d parameter groups", opt->ops->name, LC_MAX_PARAM_GROUPS);
    lc_param_group *group = &opt->groups[opt->n_groups];
    for (int i = 0; i < n; i++) {
        if (!parameters[i] || !lc_tensor_is_persistent(parameters[i]))
            return lc_fail(LC_ERR_ARGUMENT, "%s: entry %d of the group is not a parameter", opt->ops->name, i);
        if (opt->ops->accept) LC_TRY(lc__said(opt->ops->accept(opt, parameters[i]), before));
        for (int k = 0; k <= opt->n_groups; k++) {
            lc_tensor *const *others = k < opt->n_groups ? opt->groups[k].parameters : parameters;
            int n_others = k < opt->n_groups ? opt->groups[k].n_parameters : i;
            for (int j = 0; j < n_others; j++) {
                if (others[j] != parameters[i]) continue;
                return lc_fail(LC_ERR_ARGUMENT, "%s: entry %d of the group is already in a group", opt->ops->name, i);
            }
        }
    }
    memset(group, 0, sizeof *group);
    group->parameters = malloc(((size_t)n + !n) * sizeof(lc_tensor *));
    if (!group->parameters) return lc_fail(LC_ERR_MEMORY, "out of memory for a group of %d parameters", n);
    for (int i = 0; i < n; i++) group->parameters[i] = parameters[i];
    group->n_parameters = n;
    if (name) snprintf(group->name, sizeof group->name, "%s", name);
    memcpy(group->hyper, memory->defaults, sizeof group->hyper);
    group->initial_lr = group->hyper[0];
    if (opt->steps) {
        lc_status status = extend_state(opt, group);
        if (status < 0) {
            free(group->parameters);
            return status;
        }
    }
    return opt->n_groups++;
}

lc_status lc_optimizer_step_closure(lc_optimizer *opt, lc_evaluate_fn *evaluate, void *ctx)
{
    LC__IS(opt, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__NEEDS(evaluate, LC_ERR_ARGUMENT);
    double loss;
    unsigned before = lc__error_count();
    if (lc__evaluates(opt)) {
        LC_TRY(lc__said(opt->ops->step_closure(opt, evaluate, ctx), before));
        return lc__optimizer_updated(opt);
    }
    lc_status status = evaluate(ctx, &loss);
    if (status != LC_OK) return status == LC_SKIP ? LC_OK : status;
    lc_optimizer_step_at(opt, LC__NO_SITE);
    return LC_OK;
}

bool lc__evaluates(const lc_optimizer *opt)
{
    return opt->ops->step_closure;
}

void lc__optimizer_forget_state(lc_optimizer *opt)
{
    for (int k = 0; k < LC_MAX_OPTIM_STATE; k++) {
        lc_tensor_unref(opt->state[k]);
        opt->state[k] = NULL;
    }
    lc_tensor_unref(opt->steps);
    opt->steps = NULL;
    lc__optimizer_drop_ranges(opt, 0);
}

int64_t lc__optimizer_index(const lc_optimizer *opt, const lc_tensor *p)
{
    int64_t index = 0;
    for (int g = 0; g < opt->n_groups; g++) {
        for (int i = 0; i < opt->groups[g].n_parameters; i++, index++) {
            if (opt->groups[g].parameters[i] == p) return index;
        }
    }
    return -1;
}

bool lc__optimizer_owns(const lc_optimizer *opt, const lc_tensor *p)
{
    return lc__optimizer_index(opt, p) >= 0;
}

bool lc__has_own(const lc_optimizer *opt)
{
    return opt->ops->visit_own;
}

/* ---- hyperparameters ---- */

static int find_hyper(const lc_optimizer *opt, const char *name)
{
    for (int i = 0; opt->ops->hyper_names[i]; i++) {
        if (!strcmp(opt->ops->hyper_names[i], name)) return i;
    }
    return -1;
}

/* Writes "a, b, c" for an error message. */
static const char *list_names(const char *const *names, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; names[i] && at < size; i++) {
        int n = snprintf(text + at, size - at, "%s%s", i ? ", " : "", names[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    return text;
}

static lc_status locate(const lc_optimizer *opt, int group, const char *name, int *index)
{
    char known[256];
    *index = find_hyper(opt, name);
    if (*index < 0) {
        return lc_fail(LC_ERR_NOT_FOUND, "%s has no hyperparameter \"%s\"; it has %s", opt->ops->name, name,
                       list_names(opt->ops->hyper_names, known, sizeof known));
    }
    if (group < -1 || group >= opt->n_groups) {
        return lc_fail(LC_ERR_ARGUMENT, "%s has %d parameter groups; index %d is out of range", opt->ops->name,
                       opt->n_groups, group);
    }
    return LC_OK;
}

bool lc_optimizer_has(const lc_optimizer *opt, const char *name)
{
    LC__IS(opt, OPTIMIZER, false);
    LC__NEEDS(name, false);
    return find_hyper(opt, name) >= 0;
}

/* SGD and RMSprop made without momentum keep no buffer for it. As long as nothing has been allocated (a schedule that
 * cycles the momentum is made before the first step) the optimizer switches to the variant that does. */
static lc_status need_momentum_buffer(lc_optimizer *opt)
{
    const char *const *names = opt->ops->state_names;
    for (int k = 0; names && names[k]; k++)
        if (!strcmp(names[k], "momentum_buffer")) return LC_OK;
    for (const lc__optimizer_class *const *c = lc__optimizer_classes; *c; c++) {
        if ((*c)->hyper_names != opt->ops->hyper_names || strcmp((*c)->name, opt->ops->name)) continue;
        if (opt->steps) {
            return lc_fail(LC_ERR_STATE,
                           "%s was made without momentum and keeps no buffer for it; give it one before the "
                           "first step",
                           opt->ops->name);
        }
        double hyper[LC_MAX_HYPER];
        memcpy(hyper, ((const optimizer_memory *)opt)->defaults, sizeof hyper);
        hyper[find_hyper(opt, "momentum")] = 1;
        opt->ops = (*c)->variant(hyper, opt->flags);
    }
    return LC_OK; /* a user-defined optimizer knows what it keeps */
}

bool lc__optimizer_scheduled(const lc_optimizer *opt)
{
    return ((const optimizer_memory *)opt)->scheduled;
}

void lc__optimizer_set_scheduled(lc_optimizer *opt)
{
    ((optimizer_memory *)opt)->scheduled = true;
}

lc_status lc_optimizer_set(lc_optimizer *opt, int group, const char *name, double value)
{
    LC__IS(opt, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    int index;
    LC_TRY(locate(opt, group, name, &index));
    int first = group < 0 ? 0 : group, last = group < 0 ? opt->n_groups - 1 : group;
    if (!strcmp(name, "momentum") && value != 0) LC_TRY(need_momentum_buffer(opt));
    LC_TRY(lc__optimizer_settle(opt));
    for (int i = first; i <= last; i++) {
        opt->groups[i].hyper[index] = value;
        /* Before training a new rate is the group's initial one; later it is temporary, by a schedule or the user. */
        if (index == 0 && !opt->steps) opt->groups[i].initial_lr = value;
    }
    if (group < 0) ((optimizer_memory *)opt)->defaults[index] = value;
    return LC_OK;
}

lc_status lc_optimizer_get(const lc_optimizer *opt, int group, const char *name, double *value)
{
    LC__IS(opt, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(value, LC_ERR_ARGUMENT);
    int index;
    LC_TRY(locate(opt, group, name, &index));
    *value = group < 0 || !opt->n_groups ? ((const optimizer_memory *)opt)->defaults[index]
                                         : opt->groups[group].hyper[index];
    return LC_OK;
}

/* ---- checks for vtables, of the constructor's arguments ---- */

static double given(const lc_optimizer *opt, const char *name)
{
    int index = find_hyper(opt, name);
    return index < 0 ? 0 : ((const optimizer_memory *)opt)->defaults[index];
}

lc_status lc__check_at_least(const lc_optimizer *opt, const char *name, double low)
{
    double value = given(opt, name);
    if (value >= low && value < INFINITY) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: %s is %g, must be at least %g", opt->ops->name, name, value, low);
}

lc_status lc__check_below(const lc_optimizer *opt, const char *name, double low, double high)
{
    double value = given(opt, name);
    if (value >= low && value < high) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: %s is %g, must be in [%g, %g)", opt->ops->name, name, value, low, high);
}

lc_status lc__check_moments(const lc_optimizer *opt)
{
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc__check_at_least(opt, "weight_decay", 0));
    LC_TRY(lc__check_below(opt, "beta1", 0, 1));
    LC_TRY(lc__check_below(opt, "beta2", 0, 1));
    return lc__check_at_least(opt, "eps", 0);
}

lc_status lc__optimizer_check(lc_optimizer *opt, int group)
{
    double *given = ((optimizer_memory *)opt)->defaults, kept[LC_MAX_HYPER];
    if (!opt->ops->check) return LC_OK;
    memcpy(kept, given, sizeof kept);
    for (int i = LC_H_LR + 1; opt->ops->hyper_names[i]; i++) given[i] = opt->groups[group].hyper[i];
    unsigned before = lc__error_count();
    lc_status status = lc__said(opt->ops->check(opt), before);
    memcpy(given, kept, sizeof kept);
    return status;
}

/* ---- constructors ---- */

/* Makes everything except the groups, from the final numbers. */
static lc_status make(const lc__optimizer_class *c, void *module, const double *hyper, unsigned flags,
                      lc_optimizer **out)
{
    const lc_optimizer_ops *ops = c->variant(hyper, flags);
    if (flags & LC_OPT_STOCHASTIC_ROUNDING && flags & LC_OPT_MASTER_WEIGHTS)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: parameters are either rounded at random or have master weights, which need no such "
                       "rounding; choose stochastic_rounding or master_weights",
                       c->name);
    LC_TRY(lc_optimizer_new(ops, module, flags, out));
    optimizer_memory *memory = (optimizer_memory *)*out;
    for (int i = 0; ops->hyper_names[i]; i++) memory->defaults[i] = hyper[i];
    lc_status status = ops->check ? ops->check(*out) : LC_OK;
    if (status < 0) {
        lc_optimizer_free(*out);
        *out = NULL;
    }
    return status;
}

static lc_status add_all(lc_optimizer *opt, void *module)
{
    lc_tensor **list;
    int n;
    LC_TRY(lc_module_parameters(module, NULL, NULL, &list, &n));
    int group = lc_optimizer_add_group(opt, NULL, list, n);
    free(list);
    return group < 0 ? (lc_status)group : LC_OK;
}

lc_optimizer *lc__optimizer_construct(const lc__optimizer_class *c, const lc__optimizer_common *common,
                                      const double *values, int n_values, unsigned flags)
{
    double hyper[LC_MAX_HYPER] = {0};
    lc_optimizer *opt = NULL;
    lc_status status;
    if (!lc__has_mark(common->module, LC__MARK_OF(MODULE))) {
        lc_fail(LC_ERR_ARGUMENT,
                common->module ? "%s: this is not a module; lc_module_init (or the init of its layer) comes first%s"
                               : "%s needs the module whose parameters it trains%s",
                c->name, lc__at_site(common->site).text);
        return NULL;
    }
    flags |= (c->flags & ~c->allowed) | (common->maximize ? LC_OPT_MAXIMIZE : 0);
    flags |= common->master_weights ? LC_OPT_MASTER_WEIGHTS : 0;
    flags |= common->stochastic_rounding ? LC_OPT_STOCHASTIC_ROUNDING : 0;
    hyper[LC_H_LR] = common->lr;
    hyper[LC_H_WEIGHT_DECAY] = common->weight_decay;
    for (int i = 0; i < n_values; i++) hyper[2 + i] = values[i];
    LC_TRY_GOTO(status, done, lc_module_status(common->module));
    LC_TRY_GOTO(status, done, make(c, common->module, hyper, flags, &opt));
    LC_TRY_GOTO(status, done, lc__list_check("parameters", common->n_parameters, common->parameters));
    if (common->no_parameters) goto done;
    if (common->parameters) {
        int group = lc_optimizer_add_group(opt, NULL, common->parameters, common->n_parameters);
        status = group < 0 ? (lc_status)group : LC_OK;
    } else {
        status = add_all(opt, common->module);
    }
done:
    if (status < 0) {
        char why[768];
        snprintf(why, sizeof why, "%s", lc_error_message());
        if (lc_module_root(common->module)->status == LC_OK)
            lc_module_fail(common->module, status, "%s%s", why, lc__at_site(common->site).text);
        lc_optimizer_free(opt);
        return NULL;
    }
    return opt;
}

static lc_status apply_named(const lc__optimizer_class *c, const lc_named_number *arg, double *hyper, unsigned *flags)
{
    char known[256];
    const unsigned allowed = c->allowed | LC_OPT_MASTER_WEIGHTS | LC_OPT_STOCHASTIC_ROUNDING;
    if (!arg->name) return lc_fail(LC_ERR_ARGUMENT, "%s: an argument has no name", c->name);
    for (int i = 0; c->hyper_names[i]; i++) {
        if (strcmp(c->hyper_names[i], arg->name)) continue;
        hyper[i] = arg->value;
        return LC_OK;
    }
    for (int i = 0; lc__optimizer_flags[i].name; i++) {
        unsigned flag = lc__optimizer_flags[i].flag;
        if (strcmp(lc__optimizer_flags[i].name, arg->name) || !((allowed | c->flags) & flag)) continue;
        if (!(allowed & flag) && arg->value == 0) break; /* it is always on, as AdamW's decoupled decay */
        *flags = arg->value != 0 ? *flags | flag : *flags & ~flag;
        return LC_OK;
    }
    return lc_fail(LC_ERR_ARGUMENT, "%s has no argument \"%s\"; it has %s and flags", c->name, arg->name,
                   list_names(c->hyper_names, known, sizeof known));
}

lc_status lc_optimizer_by_name(const char *name, void *module, const lc_named_number *args, int n_args,
                               lc_optimizer **out)
{
    LC__IS_OR_NULL((lc_module *)module, MODULE, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("args", n_args, args));
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    char known[256] = "";
    for (const lc__optimizer_class *const *c = lc__optimizer_classes; *c; c++) {
        if (strcmp((*c)->name, name)) {
            size_t at = strlen(known);
            snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", (*c)->name);
            continue;
        }
        double hyper[LC_MAX_HYPER] = {0};
        unsigned flags = (*c)->flags;
        for (int i = 0; (*c)->hyper_names[i]; i++) hyper[i] = (*c)->defaults[i];
        for (int i = 0; i < n_args; i++) LC_TRY(apply_named(*c, &args[i], hyper, &flags));
        LC_TRY(make(*c, module, hyper, flags, out));
        lc_status status = module ? add_all(*out, module) : LC_OK;
        if (status < 0) {
            lc_optimizer_free(*out);
            *out = NULL;
        }
        return status;
    }
    return lc_fail(LC_ERR_NOT_FOUND, "unknown optimizer \"%s\"; available: %s", name, known);
}

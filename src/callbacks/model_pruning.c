/* SPDX-License-Identifier: Apache-2.0 */
/* ModelPruning: a part of the weights becomes zero and stays so.
 *
 * Masks multiply the gradients before an optimizer step, and the weights after it (momentum would move them), as
 * operators of the step. Weights in the model are always the pruned ones; there is no counterpart of PyTorch's
 * weight_orig.
 *
 * If a strategy keeps weights or gradients in slices, every rank has all masks and multiplies its own slices. */
#include "base/number.h"
#include "callbacks/callbacks.h"
#include "callbacks/pruning_masks.h"
#include "callbacks/shadow.h"
#include "base/state_count.h"
#include "ops/infer.h"
#include "optim/optim_internal.h"
#include "record/graph_impl.h"
#include "tensor/host_access.h"

#include <stdlib.h>
#include <string.h>

#include <lightc/ops.h>
#include <lightc/random.h>
#include "tensor/slice.h"

/* Mask of a sliced target, for operators; NULL: not needed yet. */
typedef struct slice_views {
    lc_tensor *value, *mask;
} slice_views;

typedef struct pruning {
    lc_model_pruning_args a;
    bool structured, random, global, lottery;
    char **asked; /* paths */
    int n_asked;
    lc__shadow first; /* values of all parameters before training; only those of `target` are used */
    int n;
    lc_tensor **target, **mask;
    slice_views *weights, *gradients;
    const char **path; /* borrowed from `first` */
    bool pruned;       /* any mask holds a zero */
    int64_t rounds;
    uint64_t seed;
    lc__follower follower;
} pruning;

static void forget(pruning *p)
{
    for (int i = 0; i < p->n; i++) {
        lc_tensor_unref(p->mask[i]);
        lc_tensor_unref(p->weights[i].value), lc_tensor_unref(p->weights[i].mask);
        lc_tensor_unref(p->gradients[i].value), lc_tensor_unref(p->gradients[i].mask);
    }
    free(p->weights);
    free(p->gradients);
    p->weights = p->gradients = NULL;
    free(p->target);
    free(p->mask);
    free(p->path);
    lc__shadow_free(&p->first);
    p->target = p->mask = NULL;
    p->path = NULL;
    p->n = 0;
    p->pruned = false;
    p->rounds = 0;
}

/* ---- what is pruned ---- */

static bool ends_in(const char *path, const char *name)
{
    size_t a = strlen(path), b = strlen(name);
    return a >= b && !strcmp(path + a - b, name) && (a == b || path[a - b - 1] == '.');
}

static lc_status add_target(pruning *p, int k)
{
    lc_tensor *of = p->first.of[k], *mask;
    if (!lc_dtype_is_float(lc_tensor_dtype(of)))
        return lc_fail(LC_ERR_UNSUPPORTED, "ModelPruning: %s is of type %s; only floating-point numbers are pruned",
                       p->first.paths[k], lc_dtype_name(lc_tensor_dtype(of)));
    if (p->structured && (p->a.pruning_dim >= lc_tensor_ndim(of) || p->a.pruning_dim < -lc_tensor_ndim(of)))
        return lc_fail(LC_ERR_CONFIG,
                       "ModelPruning: %s has no dimension %d; choose what to prune with .parameters_to_prune",
                       p->first.paths[k], p->a.pruning_dim);
    LC_TRY(lc_tensor_new_layout(LC_F32, of->type.ndim, of->type.shape, of->layout, &mask));
    p->target[p->n] = of;
    p->path[p->n] = p->first.paths[k];
    p->mask[p->n++] = mask;
    lc_view v;
    LC_TRY(lc__tensor_map(mask, LC__WRITE, &v));
    for (int64_t i = 0; i < lc_tensor_numel(mask); i++) ((float *)v.data)[i] = 1;
    lc__tensor_unmap(mask, LC__WRITE);
    return LC_OK;
}

static lc_status find_targets(pruning *p, lc_trainer *t)
{
    if (p->n) return LC_OK;
    LC_TRY(lc__shadow_new(t->m, LC__NO_BUFFERS, &p->first));
    size_t room = (size_t)p->first.n + 1;
    p->target = calloc(room, sizeof *p->target);
    p->mask = calloc(room, sizeof *p->mask);
    p->path = calloc(room, sizeof *p->path);
    p->weights = calloc(room, sizeof *p->weights);
    p->gradients = calloc(room, sizeof *p->gradients);
    if (!p->target || !p->mask || !p->path || !p->weights || !p->gradients)
        return lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    static const char *const names[] = {"weight", "bias"}; /* Lightning's order: all weights, then all biases */
    for (int i = 0; i < (p->n_asked ? p->n_asked : 2); i++) {
        int before = p->n;
        for (int k = 0; k < p->first.n; k++)
            if (p->n_asked ? !strcmp(p->first.paths[k], p->asked[i]) : ends_in(p->first.paths[k], names[i]))
                LC_TRY(add_target(p, k));
        if (p->n_asked && p->n == before)
            return lc_fail(LC_ERR_CONFIG, "ModelPruning: the module has no parameter `%s`", p->asked[i]);
    }
    if (!p->n) return lc_fail(LC_ERR_CONFIG, "ModelPruning: the module has no weight or bias to prune");
    return LC_OK;
}

static lc_status mp_setup(void *self, lc_trainer *t, lc_stage stage)
{
    pruning *p = self;
    if (stage == LC_STAGE_FIT) forget(p);
    p->seed = (uint64_t)t->opt.seed;
    return LC_OK;
}

/* ---- values ---- */

/* The whole value of t as numbers, row-major. Collective if t is in slices. `mine`: see lc__tensor_gather. */
static lc_status read_values(lc_tensor *t, lc_status mine, double *values)
{
    lc_dtype dtype = lc_tensor_storage(t);
    int64_t n = lc_tensor_numel(t);
    void *raw = malloc((size_t)n * lc_dtype_size(dtype) + 1);
    if (mine >= 0 && !raw) mine = lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    lc_status s = lc__tensor_gather(t, mine, -1, raw);
    for (int64_t i = 0; i < n && s >= 0; i++) values[i] = lc__number_at(raw, dtype, i);
    free(raw);
    return s;
}

/* Overwrites `values` with their bytes in the type of t, which are never more. */
static lc_status write_values(lc_tensor *t, double *values)
{
    lc_dtype dtype = lc_tensor_storage(t);
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) lc__set_number(values, dtype, i, values[i]);
    return lc_tensor_write(t, values, (size_t)n * lc_dtype_size(dtype));
}

/* ---- rankings ---- */

static double score_of(const pruning *p, double value, int64_t index)
{
    uint64_t key = lc_random_key(p->seed, (uint64_t)p->rounds);
    return p->random ? lc_random_uniform(key, (uint64_t)index) : fabs(value);
}

/* Ranks targets first .. end - 1 together. */
static lc_status rank_together(pruning *p, int first, int end, lc__prune_amount amount)
{
    int64_t n = 0, at = 0;
    lc_status s = LC_OK;
    for (int i = first; i < end; i++) n += lc_tensor_numel(p->target[i]);
    float *mask = malloc((size_t)(n + 1) * sizeof *mask);
    double *score = calloc((size_t)n + 1, sizeof *score); /* first the values */
    if (!mask || !score) s = lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    for (int i = first; i < end; at += lc_tensor_numel(p->target[i++])) {
        s = read_values(p->target[i], s, score ? score + at : NULL);
        if (s >= 0) s = lc_tensor_read(p->mask[i], mask + at, (size_t)lc_tensor_numel(p->target[i]) * sizeof(float));
    }
    if (s >= 0) {
        for (int64_t i = 0; i < n; i++) score[i] = score_of(p, score[i], i + (int64_t)first * 1000003);
        s = lc__prune_least(score, mask, n, amount);
    }
    at = 0;
    for (int i = first; i < end && s >= 0; at += lc_tensor_numel(p->target[i++]))
        s = lc_tensor_write(p->mask[i], mask + at, (size_t)lc_tensor_numel(p->target[i]) * sizeof(float));
    free(mask);
    free(score);
    return s;
}

static lc_status rank_channels(pruning *p, int i, lc__prune_amount amount)
{
    const lc_type *type = lc_tensor_type(p->target[i]);
    size_t bytes = (size_t)lc_tensor_numel(p->target[i]) * sizeof(float);
    int dim = p->a.pruning_dim < 0 ? p->a.pruning_dim + type->ndim : p->a.pruning_dim;
    uint64_t key = lc_random_key(p->seed, (uint64_t)(p->rounds * 1000003 + i));
    lc_status s = LC_OK;
    double *values = malloc(2 * bytes + 1);
    float *mask = malloc(bytes + 1);
    if (!values || !mask) s = lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    s = read_values(p->target[i], s, values);
    if (s >= 0) s = lc_tensor_read(p->mask[i], mask, bytes);
    if (s >= 0) s = lc__prune_channels(values, mask, type, dim, p->random ? NAN : p->a.pruning_norm, key, amount);
    if (s >= 0) s = lc_tensor_write(p->mask[i], mask, bytes);
    free(values);
    free(mask);
    return s;
}

/* ---- pruning ---- */

static lc_status zeros(lc_tensor *mask, int64_t *n)
{
    lc_view v;
    LC_TRY(lc__tensor_map(mask, LC__READ, &v));
    *n = 0;
    for (int64_t k = 0; k < lc_tensor_numel(mask); k++) *n += ((const float *)v.data)[k] == 0;
    lc__tensor_unmap(mask, LC__READ);
    return LC_OK;
}

/* Weight = its initial value (lottery) or itself, times its mask. */
static lc_status apply_masks(pruning *p, bool lottery)
{
    for (int i = 0; i < p->n; i++) {
        size_t n = (size_t)lc_tensor_numel(p->target[i]);
        double *values = malloc((n + 1) * sizeof *values);
        float *mask = malloc((n + 1) * sizeof *mask);
        lc_tensor *from = lottery ? lc__shadow_of(&p->first, p->target[i]) : p->target[i];
        lc_status s = values && mask ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
        s = read_values(from, s, values);
        if (s >= 0) s = lc_tensor_read(p->mask[i], mask, n * sizeof *mask);
        uint64_t key = lc_random_key(p->seed ^ 0x5eed, (uint64_t)(p->rounds * 1000003 + i));
        for (size_t k = n; s >= 0 && lottery && p->a.resample_parameters && k > 1; k--) { /* Fisher-Yates */
            size_t j = lc_random_below(key, k, k);
            double v = values[k - 1];
            values[k - 1] = values[j];
            values[j] = v;
        }
        for (size_t k = 0; s >= 0 && k < n; k++) values[k] *= (double)mask[k];
        if (s >= 0) s = write_values(p->target[i], values);
        free(values);
        free(mask);
        LC_TRY(s);
    }
    return LC_OK;
}

static void report_sparsity(const pruning *p, lc_trainer *t, const int64_t *before, const int64_t *after)
{
    int64_t old = 0, now = 0, total = 0;
    for (int i = 0; i < p->n; i++) old += before[i], now += after[i], total += lc_tensor_numel(p->target[i]);
    lc_trainer_message(t, LC_INFO, "applied %s: pruned %lld/%lld (%.2f%%) -> %lld/%lld (%.2f%%)", p->a.pruning_fn,
                       (long long)old, (long long)total, 100 * (double)old / (double)total, (long long)now,
                       (long long)total, 100 * (double)now / (double)total);
    for (int i = 0; i < p->n && p->a.verbose > 1; i++) {
        double size = (double)lc_tensor_numel(p->target[i]);
        lc_trainer_message(t, LC_INFO, "  %s: pruned %lld (%.2f%%) -> %lld (%.2f%%)", p->path[i], (long long)before[i],
                           100 * (double)before[i] / size, (long long)after[i], 100 * (double)after[i] / size);
    }
}

static lc_status prune(pruning *p, lc_trainer *t)
{
    int64_t epoch = t->current_epoch;
    lc__prune_amount amount = {p->a.amount, p->a.amount_count};
    if (p->a.amount_fn) amount = (lc__prune_amount){p->a.amount_fn(p->a.context, epoch), 0};
    if (p->a.apply_pruning && !p->a.apply_pruning(p->a.context, epoch)) return LC_OK;
    if (!(amount.part > 0) && amount.count <= 0) return LC_OK;
    if (amount.count <= 0 && amount.part > 1)
        return lc_fail(LC_ERR_CONFIG, "ModelPruning: the amount at epoch %lld is %g; a fraction must be at most 1",
                       (long long)epoch, amount.part);
    int64_t *before = calloc(2 * (size_t)p->n + 1, sizeof *before), *after = before ? before + p->n : NULL;
    lc_status s = before ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    for (int i = 0; i < p->n && s >= 0; i++) s = zeros(p->mask[i], &before[i]);
    if (p->global)
        s = s < 0 ? s : rank_together(p, 0, p->n, amount);
    else
        for (int i = 0; i < p->n && s >= 0; i++) {
            s = p->structured ? rank_channels(p, i, amount) : rank_together(p, i, i + 1, amount);
            if (s < 0) s = lc_fail_context(s, "%s", p->path[i]);
        }
    bool lottery = p->a.lottery_ticket ? p->a.lottery_ticket(p->a.context, epoch) : p->lottery;
    if (s >= 0) s = apply_masks(p, lottery);
    for (int i = 0; i < p->n && s >= 0 && p->a.verbose; i++) s = zeros(p->mask[i], &after[i]);
    if (s >= 0 && p->a.verbose) report_sparsity(p, t, before, after);
    free(before);
    p->pruned = true;
    p->rounds++;
    return s;
}

static lc_status mp_epoch_end(void *self, lc_trainer *t)
{
    pruning *p = self;
    return p->a.prune_on_train_epoch_end ? prune(p, t) : LC_OK;
}

static lc_status mp_validation_epoch_end(void *self, lc_trainer *t)
{
    pruning *p = self;
    bool here = !p->a.prune_on_train_epoch_end && t->stage == LC_STAGE_FIT && !t->sanity;
    return here ? prune(p, t) : LC_OK;
}

/* ---- keeping zeros ---- */

/* Records value *= mask, for the slice that this rank holds. */
static lc_status record(lc_tensor *value, lc_tensor *mask, slice_views *parts)
{
    int64_t begin, count;
    lc__tensor_slice(value, &begin, &count);
    if (!count) return LC_OK;
    if (value->is_slice) {
        lc_type type = {.dtype = LC_F32, .ndim = 1, .shape = {count}};
        const char *at = (char *)lc__tensor_address(mask) + (size_t)begin * sizeof(float);
        LC_TRY(lc__tensor_slice_view(value, &parts->value));
        if (!parts->mask || (char *)lc__tensor_address(parts->mask) != at || lc_tensor_numel(parts->mask) != count) {
            lc_tensor_unref(parts->mask);
            parts->mask = NULL;
            LC_TRY(lc__tensor_range(mask, (size_t)begin * sizeof(float), &type, LC_ROW_MAJOR, &parts->mask));
        }
        value = parts->value, mask = parts->mask;
    } else if (value->seen) {
        LC_TRY(lc__tensor_raw(value, &parts->value));
        value = parts->value;
    }
    lc_dtype dtype = lc_tensor_dtype(value), wide = lc__wide_dtype(dtype);
    lc_no_grad_begin();
    lc__exact_begin();
    lc_assign(value, lc__as(lc_mul(lc__as(value, wide), lc__as(mask, wide)), dtype));
    lc__exact_end();
    lc_no_grad_end();
    return LC_OK;
}

static lc_status mp_before_step(void *self, lc_trainer *t, lc_optimizer *opt)
{
    pruning *p = self;
    lc_status s = LC_OK;
    (void)t, (void)opt;
    for (int i = 0; i < p->n && p->pruned && s >= 0; i++) {
        const lc_tensor *w = p->target[i];
        if (!w->flat || !w->requires_grad) continue;
        s = record(w->flat->gradients[w->flat_index], p->mask[i], &p->gradients[i]);
    }
    return s;
}

/* Manual optimization clips gradients before the step. */
static lc_status mp_after_backward(void *self, lc_trainer *t)
{
    return t->mo.manual_optimization ? mp_before_step(self, t, NULL) : LC_OK;
}

static lc_status mask_weights(void *self, lc_optimizer *opt)
{
    const pruning *p = self;
    lc_status s = LC_OK;
    for (int i = 0; i < p->n && p->pruned && s >= 0; i++)
        if (lc__optimizer_owns(opt, p->target[i])) s = record(p->target[i], p->mask[i], &p->weights[i]);
    return s;
}

static lc_status mp_fit_start(void *self, lc_trainer *t)
{
    pruning *p = self;
    for (int i = 0; i < t->optimizers.n; i++) t->optimizers.optimizers[i].optimizer->follower = &p->follower;
    return find_targets(p, t);
}

/* ---- state ---- */

static lc_status mp_save(void *self, lc_trainer *t, lc_state *out)
{
    pruning *p = self;
    (void)t;
    LC_TRY(lc_state_set_bool(out, "pruned", p->pruned));
    return lc_state_set_int(out, "rounds", p->rounds);
}

static lc_status mp_load(void *self, lc_trainer *t, const lc_state *in)
{
    pruning *p = self;
    LC_TRY(lc_state_get_bool(in, "pruned", &p->pruned));
    LC_TRY(lc__state_get_count(in, "rounds", 0, &p->rounds));
    return find_targets(p, t);
}

static lc_status mp_visit(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx)
{
    pruning *p = self;
    lc__str name = {0};
    lc_status s = LC_OK;
    (void)t;
    for (int i = 0; i < p->n && s >= 0; i++)
        for (int first = 0; first < 2 && s >= 0; first++) {
            lc__str_clear(&name);
            lc__str_add(&name, "%s.%s", first ? "first" : "mask", p->path[i]);
            s = name.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning")
                            : fn(ctx, name.s, first ? lc__shadow_of(&p->first, p->target[i]) : p->mask[i]);
        }
    lc__str_free(&name);
    return s;
}

static void mp_release(void *self)
{
    pruning *p = self;
    forget(p);
    for (int i = 0; i < p->n_asked; i++) free(p->asked[i]);
    free(p->asked);
}

static const lc_callback_ops pruning_ops = {
    LC_CALLBACK_OPS_INIT("ModelPruning"),
    .no_vote = true,
    .setup = mp_setup,
    .on_fit_start = mp_fit_start,
    .on_after_backward = mp_after_backward,
    .on_before_optimizer_step = mp_before_step,
    .on_validation_epoch_end = mp_validation_epoch_end,
    .on_train_epoch_end = mp_epoch_end,
    .save_state = mp_save,
    .load_state = mp_load,
    .free = lc__owned_free,
    .visit_tensors = mp_visit,
};

/* ---- making one ---- */

static const char *const functions[] = {"l1_unstructured", "random_unstructured", "ln_structured", "random_structured"};

static lc_status check(const lc_model_pruning_args *a, int *function)
{
    const char *fn = a->pruning_fn ? a->pruning_fn : "";
    for (*function = 0; *function < 4 && strcmp(functions[*function], fn) != 0;) ++*function;
    if (*function == 4)
        return lc_fail(LC_ERR_CONFIG,
                       "ModelPruning: pruning_fn is \"%.40s\"; it must be l1_unstructured, random_unstructured, "
                       "ln_structured or random_structured",
                       fn);
    if (*function >= 2 && a->use_global_unstructured == LC_ON)
        return lc_fail(LC_ERR_CONFIG, "ModelPruning: use_global_unstructured needs unstructured pruning, not %s", fn);
    if (*function == 2 && !(a->pruning_norm > 0))
        return lc_fail(LC_ERR_CONFIG, "ModelPruning: ln_structured needs pruning_norm, the order of the norm (1, 2, "
                                      "INFINITY)");
    if (a->amount < 0 || a->amount > 1 || a->amount_count < 0)
        return lc_fail(LC_ERR_CONFIG,
                       "ModelPruning: amount must be a fraction from 0 to 1, amount_count a number of weights");
    if (a->verbose < 0 || a->verbose > 2)
        return lc_fail(LC_ERR_CONFIG, "ModelPruning: verbose is %d; it must be 0, 1 or 2", a->verbose);
    LC_TRY(lc__list_check("parameters_to_prune", a->n_parameters_to_prune, a->parameters_to_prune));
    for (int i = 0; i < a->n_parameters_to_prune; i++)
        if (!a->parameters_to_prune[i])
            return lc_fail(LC_ERR_ARGUMENT, "ModelPruning: parameters_to_prune[%d] is NULL", i);
    return LC_OK;
}

lc_status lc_model_pruning_new(const lc_model_pruning_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_model_pruning, given);
    int function, n = args->n_parameters_to_prune;
    LC_TRY(check(args, &function));
    pruning *p = lc__owned_new(sizeof *p, mp_release);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    p->a = *args;
    p->follower = (lc__follower){mask_weights, p};
    p->a.pruning_fn = functions[function];
    p->structured = function >= 2;
    p->random = function == 1 || function == 3;
    p->global = !p->structured && args->use_global_unstructured != LC_OFF;
    p->lottery = args->use_lottery_ticket_hypothesis;
    p->asked = calloc((size_t)n + 1, sizeof *p->asked);
    bool copied = p->asked != NULL;
    for (; copied && p->n_asked < n; p->n_asked += copied)
        copied = lc__dup(args->parameters_to_prune[p->n_asked], &p->asked[p->n_asked]);
    if (!copied) {
        lc__owned_free(p);
        return lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    }
    *out = (lc_callback){&pruning_ops, p};
    return LC_OK;
}

lc_status lc_model_pruning_sparsity(const lc_callback *cb, int i, lc_sparsity *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!cb || !cb->ops || LC__SLOT(cb->ops, visit_tensors) != mp_visit)
        return lc_fail(LC_ERR_ARGUMENT, "this callback is not a ModelPruning");
    const pruning *p = cb->self;
    if (i < -1 || i >= p->n)
        return lc_fail(LC_ERR_NOT_FOUND, "%d parameters are pruned; index %d is out of range", p->n, i);
    *out = (lc_sparsity){.path = i < 0 ? "" : p->path[i]};
    for (int k = i < 0 ? 0 : i; k < (i < 0 ? p->n : i + 1); k++) {
        int64_t n;
        LC_TRY(zeros(p->mask[k], &n));
        out->pruned += n;
        out->total += lc_tensor_numel(p->target[k]);
    }
    return LC_OK;
}

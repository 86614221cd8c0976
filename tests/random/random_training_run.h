/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a training of random_training.h with lc_trainer_fit, and keeps losses, rates, parameters and buffers of every
 * step. */
#ifndef LC_TESTS_RANDOM_TRAINING_RUN_H
#define LC_TESTS_RANDOM_TRAINING_RUN_H

#include "quiet_options.h"
#include "random_training_net.h"

/* ---- the trace ---- */

static inline int64_t read_numbers(lc_tensor *t, double *out)
{
    static _Alignas(8) char bytes[8 * MAX_STATE];
    int64_t n = lc_tensor_numel(t);
    lc_dtype dtype = lc_tensor_dtype(t);
    CHECK(n <= MAX_STATE);
    CHECK_OK(lc_tensor_read(t, bytes, (size_t)n * lc_dtype_size(dtype)));
    for (int64_t i = 0; i < n; i++)
        out[i] = dtype == LC_F32   ? (double)((float *)bytes)[i]
                 : dtype == LC_F64 ? ((double *)bytes)[i]
                                   : (double)((int64_t *)bytes)[i];
    return n;
}

static inline void read_state(net *m, double *out)
{
    for (int k = 0; k < m->out->n_tensors; k++) out += read_numbers(lc_module_find(&m->base, m->out->names[k]), out);
}

/* The masks of a batch, or with LBFGS of one evaluation of its loss. */
static inline lc_status keep_masks(net *m, int n_dropouts, lc_tensor *const *dropped)
{
    static double y[MAX_STATE];
    trace *r = m->out;
    CHECK_EQ(n_dropouts, count_dropouts(m->t));
    if (r->n_draws == MAX_DRAWS) return lc_fail(LC_ERR_USER, "too many evaluations");
    int draw = r->n_draws++;
    r->draws[draw].batch = r->n_losses, r->draws[draw].at = r->n_masks;
    memset(r->draws[draw].numel, 0, sizeof r->draws[draw].numel);
    for (int k = 0; k < n_dropouts; k++) {
        int64_t n = r->draws[draw].numel[k] = read_numbers(dropped[k], y);
        if (r->n_masks + n > MAX_MASKS) return lc_fail(LC_ERR_USER, "too many masks");
        for (int64_t j = 0; j < n; j++) r->masks[r->n_masks++] = y[j] != 0;
    }
    return LC_OK;
}

static inline lc_status net_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    trace *r = m->out;
    (void)b, (void)i;
    if (strcmp(m->t->optimizer, "LBFGS") != 0) LC_TRY(keep_masks(m, o->n, o->values));
    double *loss = &r->losses[r->n_losses++];
    if (r->n_losses == 8 * MAX_STEPS) return lc_fail(LC_ERR_USER, "too many batches");
    *loss = NAN;
    if (o->loss && !m->mode->devices && !m->mode->deterministic) LC_TRY(lc_item(o->loss, loss));
    if (lc_trainer_global_step(self->trainer) == r->n_steps) return LC_OK;
    if (r->n_steps == MAX_STEPS) return lc_fail(LC_ERR_USER, "too many steps");
    for (int g = 0; g < r->n_groups; g++)
        LC_TRY(lc_optimizer_get(lc_trainer_optimizer(self->trainer, 0), g, "lr", &r->rates[r->n_steps][g]));
    read_state(m, r->states[r->n_steps++]);
    return LC_OK;
}

/* Before gradients are clipped. */
static inline lc_status net_before_step(lc_module *self, lc_optimizer *opt)
{
    net *m = (net *)self;
    trace *r = m->out;
    int64_t at = 0;
    if (!strcmp(m->t->optimizer, "LBFGS")) LC_TRY(keep_masks(m, m->dropouts, m->dropped));
    if (!m->mode->gradients) return LC_OK;
    if (r->n_steps == MAX_STEPS) return lc_fail(LC_ERR_USER, "too many steps");
    for (int g = 0; g < r->n_groups; g++)
        for (int h = 0; h < N_HYPERS; h++)
            if (lc_optimizer_get(opt, g, hyper_names[h], &r->hypers[r->n_steps][g][h]) < 0)
                r->hypers[r->n_steps][g][h] = 0;
    for (int k = 0; k < r->n_tensors; k++) {
        lc_tensor *p = lc_module_find(self, r->names[k]);
        double *to = &r->gradients[r->n_steps][at];
        at += lc_tensor_numel(p);
        if (r->group_of[k] >= 0 && lc_tensor_requires_grad(p))
            read_numbers(lc_gradient(p), to);
        else
            for (int64_t i = 0; i < lc_tensor_numel(p); i++) to[i] = NAN;
    }
    evaluations *e = m->mode->evaluations;
    if (!e) return LC_OK;
    if (e->n == 8 * MAX_STEPS) return lc_fail(LC_ERR_USER, "too many evaluations");
    e->of[e->n].step = r->n_steps;
    read_state(m, e->of[e->n].x);
    memcpy(e->of[e->n].gradient, r->gradients[r->n_steps], sizeof e->of[e->n].gradient);
    return lc_item(m->loss, &e->of[e->n++].loss);
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = net_step,
    .configure_optimizers = net_optimizers,
    .on_before_optimizer_step = net_before_step,
    .on_train_batch_end = net_batch_end,
};

/* Initial weights, the same in f32 and f64, and the group of each parameter. */
static inline lc_status net_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *x)
{
    net *m = ctx;
    trace *r = m->out;
    const lc_type *type = lc_tensor_type(x->tensor);
    int64_t n = lc_tensor_numel(x->tensor);
    (void)owner;
    if (r->n_tensors == MAX_TENSORS || r->n_state + n > MAX_STATE) return lc_fail(LC_ERR_USER, "too large");
    int k = r->n_tensors++;
    snprintf(r->names[k], sizeof r->names[k], "%s", path);
    r->types[k] = *type;
    r->group_of[k] = -2;
    if (x->is_parameter) {
        static _Alignas(8) char bytes[8 * MAX_STATE];
        double scale = type->ndim > 1 ? 0.8 / sqrt((double)n / (double)type->shape[0]) : 0.2;
        double middle = type->ndim == 1 && strstr(path, ".weight") ? 1 : 0;
        uint64_t key = lc_random_key_name(m->t->key, path);
        for (int64_t i = 0; i < n; i++) {
            double v = (double)(float)(middle + scale * lc_random_normal(key, (uint64_t)i));
            if (m->dtype == LC_F32)
                ((float *)bytes)[i] = (float)v;
            else
                ((double *)bytes)[i] = v;
        }
        LC_TRY(lc_tensor_write(x->tensor, bytes, (size_t)n * lc_dtype_size(m->dtype)));
        int64_t p = r->n_parameters++;
        bool out = m->t->leave_out && p % m->t->leave_out == m->t->leave_out - 1;
        r->group_of[k] = out ? -1 : (int)(p % m->t->n_groups);
    }
    r->n_state += read_numbers(x->tensor, r->start + r->n_state);
    return LC_OK;
}

/* ---- data ---- */

static inline double input_value(const training *t, int64_t sample, int64_t i)
{
    uint64_t at = (uint64_t)(sample * 1000 + i);
    if (t->vocabulary) return (double)lc_random_below(t->key + 1, at, (uint64_t)t->vocabulary);
    return (double)(float)lc_random_normal(t->key + 1, at);
}

static inline double target_value(const training *t, const shape *out, int64_t sample, int64_t i)
{
    uint64_t at = (uint64_t)(sample * 1000 + i);
    if (!has_classes(t)) return (double)(float)lc_random_normal(t->key + 2, at);
    int64_t classes = out->n[out->ndim - 1],
            least = t->ignore && sample % 2 == 0; /* every batch has a label that is not ignored */
    return (double)(least + (int64_t)lc_random_below(t->key + 2, at, (uint64_t)(classes - least)));
}

static inline int64_t target_numel(const training *t, const shape *out)
{
    return has_classes(t) ? numel(out) / out->n[out->ndim - 1] : numel(out);
}

static inline lc_status loader_new(const net *m, lc_dataloader **out)
{
    static _Alignas(64) char bytes[2][8 * MAX_SAMPLES * 200];
    const training *t = m->t;
    const shape *result = &m->ins[t->n_layers];
    lc_array arrays[2] = {
        {.field = {.name = "x", .dtype = t->vocabulary ? LC_I64 : m->dtype, .ndim = t->input.ndim}, .data = bytes[0]},
        {.field = {.name = "y", .dtype = has_classes(t) ? LC_I64 : m->dtype, .ndim = result->ndim - has_classes(t)},
         .data = bytes[1]}};
    memcpy(arrays[0].field.shape, t->input.n, sizeof t->input.n);
    memcpy(arrays[1].field.shape, result->n, sizeof result->n);
    for (int a = 0; a < 2; a++) {
        int64_t n = a ? target_numel(t, result) : numel(&t->input);
        for (int64_t s = 0; s < t->samples; s++) {
            for (int64_t i = 0; i < n; i++) {
                double v = a ? target_value(t, result, s, i) : input_value(t, s, i);
                if (arrays[a].field.dtype == LC_F32)
                    ((float *)bytes[a])[s * n + i] = (float)v;
                else if (arrays[a].field.dtype == LC_F64)
                    ((double *)bytes[a])[s * n + i] = v;
                else
                    ((int64_t *)bytes[a])[s * n + i] = (int64_t)v;
            }
        }
    }
    lc_dataset *d;
    LC_TRY(lc_array_dataset_new(t->samples, 2, arrays, &d));
    lc_status s = lc_dataloader_new(out, .dataset = d, .batch_size = t->batch);
    lc_dataset_unref(d);
    return s;
}

/* ---- a run ---- */

static inline lc_status net_new(net *m, const training *t, const run_mode *h, trace *r)
{
    memset(m, 0, sizeof *m);
    m->t = t, m->mode = h, m->out = r;
    m->dtype = h->dtype ? h->dtype : t->dtype;
    r->n_tensors = r->n_losses = r->n_steps = r->n_parameters = 0;
    r->n_state = r->n_masks = r->n_draws = 0, r->error[0] = 0;
    r->n_groups = t->n_groups;
    lc_module_init(&m->base, &net_ops, 1);
    if (!shapes_of(t, m->ins)) return lc_fail(LC_ERR_USER, "layers that do not fit");
    for (int k = 0; k < t->n_layers; k++) layer_new(m, k);
    LC_TRY(lc_module_status(&m->base));
    return lc_module_visit(&m->base, net_tensor, m);
}

static inline lc_status weights_new(net *m)
{
    const training *t = m->t;
    const shape *out = &m->ins[t->n_layers];
    if (!t->weighted || (t->loss != LOSS_bce && !has_classes(t))) return LC_OK;
    int64_t n = out->n[out->ndim - 1];
    double w[200];
    float single[200];
    for (int64_t k = 0; k < n; k++) w[k] = 0.5 + 0.25 * (double)(k % 4), single[k] = (float)w[k];
    LC_TRY(lc_tensor_new(m->dtype, 1, &n, &m->weight));
    return lc_tensor_write(m->weight, m->dtype == LC_F32 ? (void *)single : w, (size_t)n * lc_dtype_size(m->dtype));
}

static inline lc_status train(net *m, const run_mode *h)
{
    const training *t = m->t;
    lc_trainer_options opt = quiet_options(NULL);
    lc_trainer *trainer = NULL;
    lc_dataloader *loader = NULL;
    lc_precision scaled;
    opt.max_epochs = t->epochs;
    opt.max_steps = t->max_steps;
    opt.accumulate_grad_batches = t->accumulate;
    if (t->clip) opt.gradient_clip_val = t->clip_at, opt.gradient_clip_algorithm = t->clip;
    opt.deterministic = h->deterministic;
    opt.seed = (int64_t)(t->key >> 32); /* the seed of dropout */
    if (h->devices) opt.strategy = "data_parallel", opt.devices = h->devices;
    if (h->precision) opt.precision = h->precision;
    LC_TRY(weights_new(m));
    LC_TRY(loader_new(m, &loader));
    if (h->scale > 0) {
        LC_TRY(lc_mixed_precision(&scaled, .init_scale = h->scale));
        opt.precision_plugin = &scaled;
    }
    lc_status s = lc_trainer_new(&opt, &trainer);
    if (s >= 0) s = lc_trainer_fit(trainer, &m->base, .train_dataloader = loader);
    if (s >= 0 && h->scale > 0) s = lc_precision_scale(lc_trainer_precision(trainer), &m->out->scale);
    lc_trainer_free(trainer);
    lc_dataloader_free(loader);
    return s;
}

static inline void run_training(const training *t, const run_mode *h, trace *r)
{
    static net m;
    if (h->unplanned) setenv("LIGHTC_PLAN", "off", 1);
    if (h->reference) setenv("LIGHTC_KERNELS", "reference", 1);
    lc_status s = net_new(&m, t, h, r);
    if (s >= 0) s = train(&m, h);
    if (s < 0) snprintf(r->error, sizeof r->error, "%.590s", lc_error_message());
    for (char *c = r->error; *c; c++)
        if (*c == '\n') *c = ' ';
    if (m.weight) lc_tensor_unref(m.weight);
    lc_module_release(&m.base);
    if (h->unplanned) unsetenv("LIGHTC_PLAN");
    if (h->reference) unsetenv("LIGHTC_KERNELS");
}

/* Whether the training has anything to train, and is not too large. */
static inline bool can_train(const training *t, trace *r)
{
    static net m;
    int n = 0;
    bool fits = net_new(&m, t, &(run_mode){0}, r) >= 0;
    int in_group[MAX_GROUPS] = {0};
    for (int k = 0; fits && k < r->n_tensors; k++) {
        int g = r->group_of[k];
        if (g < 0) continue;
        in_group[g]++;
        n += lc_tensor_requires_grad(lc_module_find(&m.base, r->names[k]));
    }
    for (int g = 0; g < t->n_groups; g++) fits = fits && in_group[g] > 0;
    lc_module_release(&m.base);
    return fits && n > 0;
}

#endif

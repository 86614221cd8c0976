/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a training of random_training.h with lc_trainer_fit, and keeps losses, rates, parameters and buffers of every
 * step. */
#ifndef LC_TESTS_RANDOM_TRAINING_RUN_H
#define LC_TESTS_RANDOM_TRAINING_RUN_H

#include "quiet_options.h"
#include "random_training.h"

/* Where LBFGS evaluated the loss. */
typedef struct evaluations {
    int n;
    struct {
        int step;
        double loss, x[MAX_STATE], gradient[MAX_STATE];
    } of[8 * MAX_STEPS];
} evaluations;

typedef struct run_mode {
    bool unplanned, reference, deterministic;
    bool gradients;           /* are kept, and what the optimizer makes its update of */
    evaluations *evaluations; /* are kept there */
    const char *devices;      /* of data_parallel; NULL: one */
    lc_dtype dtype;           /* 0: the training's */
    double noise, phase;      /* what every layer gives is off by this part of it */
} run_mode;

/* Numbers of optimizers. */
/* clang-format off */ /* on lists of cases it does not agree with itself */
#define HYPER_LIST(X) \
    X(lr) X(weight_decay) X(momentum) X(dampening) X(beta1) X(beta2) X(eps) X(alpha) X(lr_decay) \
    X(initial_accumulator_value) X(rho) X(momentum_decay) X(eta_minus) X(eta_plus) X(step_size_min) X(step_size_max)
/* clang-format on */
typedef enum hyper {
#define HYPER_ENUM(name) H_##name,
    HYPER_LIST(HYPER_ENUM)
#undef HYPER_ENUM
        N_HYPERS
} hyper;
static const char *const hyper_names[] = {
#define HYPER_NAME(name) #name,
    HYPER_LIST(HYPER_NAME)
#undef HYPER_NAME
};

typedef struct trace {
    char error[600];
    int n_tensors, n_losses, n_steps;
    char names[MAX_TENSORS][40];
    lc_type types[MAX_TENSORS];
    int64_t n_state;
    double start[MAX_STATE], states[MAX_STEPS][MAX_STATE];
    double losses[8 * MAX_STEPS], rates[MAX_STEPS][MAX_GROUPS];
    double gradients[MAX_STEPS][MAX_STATE]; /* if asked for; NaN: of what is not trained */
    double hypers[MAX_STEPS][MAX_GROUPS][N_HYPERS];
    int n_parameters, n_groups;
    int group_of[MAX_TENSORS]; /* -1: in none; -2: a buffer */
    int64_t n_masks;
    char masks[MAX_MASKS]; /* what was kept, of each batch, dropout and number */
    int64_t mask_numel[8 * MAX_STEPS][MAX_DROPOUTS];
} trace;

static inline int64_t type_numel(const lc_type *type)
{
    int64_t n = 1;
    for (int k = 0; k < type->ndim; k++) n *= type->shape[k];
    return n;
}

typedef union node {
    lc_module base;
    lc_linear linear;
    lc_embedding embedding;
    lc_conv conv;
    lc_batch_norm_layer batch_norm;
    lc_norm_layer norm;
    lc_activation activation;
    lc_pool pool;
    lc_flatten flatten;
    lc_rnn rnn;
    lc_multihead_attention attention;
    lc_dropout dropout;
} node;

typedef struct net {
    lc_module base;
    const training *t;
    const run_mode *mode;
    lc_dtype dtype;
    shape ins[MAX_LAYERS + 1];
    node nodes[MAX_LAYERS];
    lc_tensor *weight; /* of classes, or of the positive class */
    lc_tensor *loss;
    int dropouts; /* that have been called in this step */
    trace *out;
} net;

/* ---- layers ---- */

static inline void layer_new(net *m, int at)
{
    const layer *l = &m->t->layers[at];
    const shape *in = &m->ins[at];
    node *x = &m->nodes[at];
    lc_dtype dtype = m->dtype;
    int64_t last = in->n[in->ndim - 1];
    char name[16];
    snprintf(name, sizeof name, "l%d", at);
    switch (l->op) {
    case L_linear:
        lc_linear_init(&x->linear, m, name, last, l->i[0], .no_bias = l->i[1], .dtype = dtype);
        break;
    case L_embedding:
        lc_embedding_init(&x->embedding, m, name, m->t->vocabulary, l->i[0], .has_padding_idx = l->i[1] > 0,
                          .padding_idx = l->i[1] - 1, .dtype = dtype);
        break;
    case L_conv:
        LC_CONV_INIT(&x->conv, in->ndim - 1, false, m, name, in->n[0], l->i[0], l->i[1], .stride = l->i[2],
                     .padding = l->i[3], .dilation = l->i[4], .groups = l->i[5], .no_bias = l->i[6], .dtype = dtype);
        break;
    case L_conv_t:
        LC_CONV_INIT(&x->conv, in->ndim - 1, true, m, name, in->n[0], l->i[0], l->i[1], .stride = l->i[2],
                     .padding = l->i[3], .output_padding = l->i[4], .no_bias = l->i[6], .dtype = dtype);
        break;
    case L_batch_norm:
        LC_BATCH_NORM_INIT(&x->batch_norm, in->ndim == 3 ? 2 : 1, m, name, in->n[0], .no_affine = l->i[0],
                           .no_track_running_stats = l->i[1], .momentum = l->f[0] != 0 ? l->f[0] : 0.1,
                           .eps = l->f[1] != 0 ? l->f[1] : 1e-5, .dtype = dtype);
        break;
    case L_layer_norm:
        lc_layer_norm_init(&x->norm, m, name, last, .no_affine = l->i[0], .no_bias = l->i[1],
                           .eps = l->f[0] != 0 ? l->f[0] : 1e-5, .dtype = dtype);
        break;
    case L_rms_norm:
        lc_rms_norm_init(&x->norm, m, name, last, .no_affine = l->i[0], .eps = l->f[0] != 0 ? l->f[0] : -1,
                         .dtype = dtype);
        break;
    case L_group_norm:
        lc_group_norm_init(&x->norm, m, name, l->i[0], in->n[0], .no_affine = l->i[1],
                           .eps = l->f[0] != 0 ? l->f[0] : 1e-5, .dtype = dtype);
        break;
    case L_activation:
        lc_activation_init(&x->activation, m, name, (lc_activation_kind)l->i[0],
                           .a = l->f[0] != 0 ? l->f[0] : LC_NOT_GIVEN);
        break;
    case L_max_pool:
        lc_max_pool2d_init(&x->pool, m, name, l->i[0], .stride = l->i[1], .padding = l->i[2], .ceil_mode = l->i[3]);
        break;
    case L_avg_pool:
        lc_avg_pool2d_init(&x->pool, m, name, l->i[0], .stride = l->i[1], .padding = l->i[2], .ceil_mode = l->i[3],
                           .exclude_pad = l->i[4]);
        break;
    case L_adaptive:
        lc_adaptive_avg_pool2d_init(&x->pool, m, name, l->i[0]);
        break;
    case L_flatten:
        lc_flatten_init(&x->flatten, m, name, 1);
        break;
    case L_lstm:
    case L_gru:
        LC_CALL_INIT(lc_rnn_init, lc_rnn_init_args, (&x->rnn, l->op == L_gru, m, name, last, ), .hidden_size = l->i[0],
                     .num_layers = (int)l->i[1], .bidirectional = l->i[2], .no_bias = l->i[3], .dtype = dtype);
        break;
    case L_attention:
        lc_multihead_attention_init(&x->attention, m, name, last, l->i[0], .no_bias = l->i[1], .dtype = dtype);
        break;
    case L_dropout:
        lc_dropout_init(&x->dropout, m, name, l->f[0]);
        break;
    case L_tied:
        lc_module_init_child(&x->base, m, name, "Tied");
        lc_module_share_parameter(&x->base, "weight", m->nodes[l->i[0]].embedding.weight);
        break;
    case L_again:
        return;
    }
    if (l->frozen && l->op != L_tied) lc_module_requires_grad(&x->base, false);
}

/* The mask is read from the result, which has a 0 where a number was dropped. */
static inline lc_tensor *drop(net *m, node *n, lc_tensor *x)
{
    static const char *const names[MAX_DROPOUTS] = {"mask 0", "mask 1", "mask 2", "mask 3"};
    lc_tensor *y = lc_forward(&n->base, lc_add_scalar(x, 0.73));
    lc_output(&m->base, names[m->dropouts++], y);
    return y;
}

static inline lc_tensor *layer_call(net *m, int at, lc_tensor *x)
{
    const layer *l = &m->t->layers[at];
    node *n = &m->nodes[at];
    switch (l->op) {
    case L_again:
        return layer_call(m, (int)l->i[0], x);
    case L_tied:
        return lc_linear(x, m->nodes[l->i[0]].embedding.weight, NULL);
    case L_attention:
        return lc_multihead_attention_forward(&n->attention, x, .causal = l->i[2]);
    case L_lstm:
    case L_gru:
        return lc_lstm_forward(&n->rnn, x);
    case L_dropout:
        return drop(m, n, x);
    default:
        return lc_forward(&n->base, x);
    }
}

static inline lc_tensor *with_noise(lc_tensor *x, const run_mode *h)
{
    lc_no_grad_begin();
    lc_tensor *off = lc_sin(lc_add_scalar(lc_mul_scalar(lc_detach(x), 1234.5), h->phase));
    lc_tensor *factor = lc_add_scalar(lc_mul_scalar(off, h->noise), 1);
    lc_no_grad_end();
    return lc_mul(x, factor);
}

/* ---- the step ---- */

static inline lc_tensor *loss_of(net *m, lc_tensor *x, lc_tensor *y)
{
    const training *t = m->t;
    const shape *out = &m->ins[t->n_layers];
    lc_reduction reduction = t->sum ? LC_REDUCE_SUM : LC_REDUCE_MEAN;
    if (has_classes(t) && out->ndim == 2) {
        x = lc_flatten(lc_transpose(x, 0, 2), 1); /* [K, S * B] */
        x = lc_transpose(x, 0, 1);
        y = lc_flatten(lc_transpose(y, 0, 1), 0);
    }
    switch (t->loss) {
    case LOSS_mse:
        return lc_mse_loss(x, y, .reduction = reduction);
    case LOSS_l1:
        return lc_l1_loss(x, y, .reduction = reduction);
    case LOSS_smooth_l1:
        return lc_smooth_l1_loss(x, y, .reduction = reduction, .beta = t->loss_f);
    case LOSS_huber:
        return lc_huber_loss(x, y, .reduction = reduction, .delta = t->loss_f);
    case LOSS_bce:
        return lc_bce_with_logits(x, lc_sigmoid(y), .reduction = reduction, .pos_weight = m->weight);
    case LOSS_kl:
        return lc_kl_div(lc_log_softmax(x, -1), lc_softmax(y, -1), .reduction = reduction);
    case LOSS_cross_entropy:
        return lc_cross_entropy(x, y, .reduction = reduction, .weight = m->weight, .has_ignore_index = t->ignore,
                                .label_smoothing = t->loss_f);
    case LOSS_nll:
        return lc_nll_loss(lc_log_softmax(x, -1), y, .reduction = reduction, .weight = m->weight,
                           .has_ignore_index = t->ignore);
    }
    return NULL;
}

static inline bool has_plateau(const training *t)
{
    for (int k = 0; k < t->n_schedulers; k++)
        if (!strcmp(t->schedulers[k].self.name, "ReduceLROnPlateau")) return true;
    return false;
}

static inline lc_tensor *net_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *x = batch->x;
    (void)i;
    m->dropouts = 0;
    for (int k = 0; k < m->t->n_layers; k++) {
        lc_tensor *y = layer_call(m, k, x);
        x = m->t->layers[k].residual ? lc_add(x, y) : y;
        if (m->mode->noise != 0) x = with_noise(x, m->mode);
    }
    lc_tensor *loss = loss_of(m, x, batch->y);
    if (m->t->sum) loss = lc_mul_scalar(loss, 0.05);
    if (option_of(&m->t->options, "maximize")) loss = lc_neg(loss);
    m->loss = loss;
    if (has_plateau(m->t)) lc_log(self, "train_loss", loss, .on_step = LC_OFF, .on_epoch = LC_ON);
    return loss;
}

/* ---- optimizer and schedules ---- */

static inline lc_optimizer *optimizer_new(net *m)
{
    const training *t = m->t;
    const options *o = &t->options;
    const lc_named_number *v;
#define GIVEN(name)                                                                                                    \
    if ((v = option_of(o, #name))) a.name = v->value;
#define FLAG(name)                                                                                                     \
    if ((v = option_of(o, #name))) a.name = v->value != 0;
#define MAKE(text, kind, type, ...)                                                                                    \
    if (!strcmp(t->optimizer, text)) {                                                                                 \
        type a = kind##_defaults();                                                                                    \
        a.module = m, a.no_parameters = true;                                                                          \
        GIVEN(lr) GIVEN(weight_decay) FLAG(maximize) __VA_ARGS__ return kind##_with(&a);                               \
    }
    if (t->by_name) {
        lc_optimizer *opt = NULL;
        if (lc_optimizer_by_name(t->optimizer, m, o->v, o->n, &opt) < 0)
            lc_module_fail(&m->base, LC_ERR_ARGUMENT, "%.300s", lc_error_message());
        return opt;
    }
    MAKE("SGD", lc_sgd, lc_sgd_args, GIVEN(momentum) GIVEN(dampening) FLAG(nesterov))
    MAKE("Adam", lc_adam, lc_adam_args, GIVEN(beta1) GIVEN(beta2) GIVEN(eps) FLAG(amsgrad) FLAG(decoupled_weight_decay))
    MAKE("AdamW", lc_adamw, lc_adam_args, GIVEN(beta1) GIVEN(beta2) GIVEN(eps) FLAG(amsgrad))
    MAKE("RMSprop", lc_rmsprop, lc_rmsprop_args, GIVEN(alpha) GIVEN(eps) GIVEN(momentum) FLAG(centered))
    MAKE("Adagrad", lc_adagrad, lc_adagrad_args, GIVEN(lr_decay) GIVEN(initial_accumulator_value) GIVEN(eps))
    MAKE("Adadelta", lc_adadelta, lc_adadelta_args, GIVEN(rho) GIVEN(eps))
    MAKE("Adamax", lc_adamax, lc_adamax_args, GIVEN(beta1) GIVEN(beta2) GIVEN(eps))
    MAKE("NAdam", lc_nadam, lc_nadam_args,
         GIVEN(beta1) GIVEN(beta2) GIVEN(eps) GIVEN(momentum_decay) FLAG(decoupled_weight_decay))
    MAKE("RAdam", lc_radam, lc_radam_args, GIVEN(beta1) GIVEN(beta2) GIVEN(eps) FLAG(decoupled_weight_decay))
    MAKE("Rprop", lc_rprop, lc_rprop_args, GIVEN(eta_minus) GIVEN(eta_plus) GIVEN(step_size_min) GIVEN(step_size_max))
    MAKE("LBFGS", lc_lbfgs, lc_lbfgs_args, GIVEN(max_iter) GIVEN(max_eval) GIVEN(history_size) FLAG(strong_wolfe))
    return NULL;
}

static inline double lambda_of(void *ctx, int64_t epoch)
{
    const options *o = ctx;
    double base = option_of(o, "base") ? option_of(o, "base")->value : 0;
    return option_of(o, "inverse")->value != 0 ? 1 / (1 + base * (double)epoch) : pow(base, (double)epoch);
}

static inline lc_status schedule_new(lc_optimizer *opt, const schedule *s, lc_scheduler *const *parts, int n_parts,
                                     lc_scheduler **out)
{
    if (!strcmp(s->name, "LambdaLR")) {
        *out = lc_lambda_lr(opt, .fn = lambda_of, .ctx = (void *)&s->options);
        return *out ? LC_OK : lc_fail(LC_ERR_USER, "%.300s", lc_error_message());
    }
    return lc_scheduler_by_name(s->name, opt, s->options.v, s->options.n, s->milestones, s->n_milestones, parts,
                                n_parts, out);
}

static inline lc_status net_optimizers(lc_module *self, lc_optimizers *out)
{
    net *m = (net *)self;
    const training *t = m->t;
    lc_optimizer *opt = optimizer_new(m);
    if (!opt) return lc_module_status(self);
    for (int g = 0; !t->by_name && g < t->n_groups; g++) {
        lc_tensor *list[MAX_TENSORS];
        int n = 0;
        for (int k = 0; k < m->out->n_tensors; k++)
            if (m->out->group_of[k] == g) list[n++] = lc_module_find(self, m->out->names[k]);
        if (lc_optimizer_add_group(opt, "", list, n) < 0) return lc_fail(LC_ERR_USER, "%.300s", lc_error_message());
        for (int k = 0; k < t->groups[g].n; k++)
            LC_TRY(lc_optimizer_set(opt, g, t->groups[g].v[k].name, t->groups[g].v[k].value));
    }
    LC_TRY(lc_optimizers_add(out, opt));
    for (int k = 0; k < t->n_schedulers; k++) {
        const scheduler *s = &t->schedulers[k];
        lc_scheduler *parts[MAX_PARTS], *made;
        for (int j = 0; j < s->n_parts; j++) LC_TRY(schedule_new(opt, &s->parts[j], NULL, 0, &parts[j]));
        LC_TRY(schedule_new(opt, &s->self, parts, s->n_parts, &made));
        bool plateau = lc_scheduler_needs_metric(made);
        LC_TRY(lc_optimizers_add_scheduler(
            out, (lc_scheduler_config){.scheduler = made,
                                       .interval = s->every_step ? LC_INTERVAL_STEP : LC_INTERVAL_EPOCH,
                                       .frequency = s->frequency,
                                       .monitor = plateau ? "train_loss" : NULL,
                                       .reduce_on_plateau = plateau}));
    }
    return LC_OK;
}

/* ---- what is kept ---- */

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

static inline lc_status keep_masks(net *m, const lc_outputs *o, int64_t *numel_of)
{
    static double y[MAX_STATE];
    trace *r = m->out;
    CHECK_EQ(o->n, count_dropouts(m->t));
    for (int k = 0; k < o->n; k++) {
        int64_t n = numel_of[k] = read_numbers(o->values[k], y);
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
    double *loss = &r->losses[r->n_losses++];
    if (r->n_losses == 8 * MAX_STEPS) return lc_fail(LC_ERR_USER, "too many batches");
    LC_TRY(keep_masks(m, o, r->mask_numel[r->n_losses - 1]));
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

static const lc_module_ops watched_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = net_step,
    .configure_optimizers = net_optimizers,
    .on_before_optimizer_step = net_before_step,
    .on_train_batch_end = net_batch_end,
};

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = net_step,
    .configure_optimizers = net_optimizers,
    .on_train_batch_end = net_batch_end,
};

/* First weights, the same in f32 and f64, and a place in a group. */
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
            least = t->ignore && sample % 2 == 0; /* no batch without one that counts */
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
    r->n_state = r->n_masks = 0, r->error[0] = 0;
    r->n_groups = t->n_groups;
    lc_module_init(&m->base, h->gradients ? &watched_ops : &net_ops, 1);
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
    opt.max_epochs = t->epochs;
    opt.max_steps = t->max_steps;
    opt.accumulate_grad_batches = t->accumulate;
    if (t->clip) opt.gradient_clip_val = t->clip_at, opt.gradient_clip_algorithm = t->clip;
    opt.deterministic = h->deterministic;
    opt.seed = (int64_t)(t->key >> 32); /* of what is dropped */
    if (h->devices) opt.strategy = "data_parallel", opt.devices = h->devices;
    LC_TRY(weights_new(m));
    LC_TRY(loader_new(m, &loader));
    lc_status s = lc_trainer_new(&opt, &trainer);
    if (s >= 0) s = lc_trainer_fit(trainer, &m->base, .train_dataloader = loader);
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

/* Whether there is something to train, and not too much. */
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

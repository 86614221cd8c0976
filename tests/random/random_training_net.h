/* SPDX-License-Identifier: Apache-2.0 */
/* The module of a training of random_training.h (its layers, step, optimizers and schedules), and the trace of a run.
 */
#ifndef LC_TESTS_RANDOM_TRAINING_NET_H
#define LC_TESTS_RANDOM_TRAINING_NET_H

#include "ops/ops.h"
#include "random_training.h"
#include "record/graph_impl.h"

/* The points where LBFGS evaluated the loss. */
typedef struct evaluations {
    int n;
    struct {
        int step;
        double loss, x[MAX_STATE], gradient[MAX_STATE];
    } of[8 * MAX_STEPS];
} evaluations;

typedef struct run_mode {
    bool unplanned, reference, deterministic;
    bool gradients;           /* keep gradients and the optimizer's numbers */
    evaluations *evaluations; /* kept here */
    const char *devices;      /* of data_parallel; NULL: one */
    lc_dtype dtype;           /* 0: the training's own */
    double noise, phase;      /* relative error added to the output of every layer; phase -1: at random */
    const char *precision;    /* NULL: that of dtype */
    double scale;             /* of the loss, at first; 0: there is none */
} run_mode;

/* Hyperparameters of optimizers. */
/* clang-format off */ /* clang-format does not format case lists stably */
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
    double gradients[MAX_STEPS][MAX_STATE]; /* if requested; NaN: not trained */
    double hypers[MAX_STEPS][MAX_GROUPS][N_HYPERS];
    int n_parameters, n_groups;
    double scale;              /* of the loss, at the end */
    int group_of[MAX_TENSORS]; /* -1: in no group; -2: a buffer */
    /* The masks of each batch; with LBFGS, of each evaluation of its loss. */
    int n_draws;
    struct {
        int batch;
        int64_t at, numel[MAX_DROPOUTS]; /* where its masks begin, and how long they are */
    } draws[MAX_DRAWS];
    int64_t n_masks;
    char masks[MAX_MASKS]; /* 1: kept, for each draw, dropout and number */
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
    int dropouts; /* called so far in this step, or evaluation */
    lc_tensor *dropped[MAX_DROPOUTS];
    trace *out;
} net;

/* ---- layers ---- */

/* The default depends on the data type (-1). A run in f64 that judges one in f32 takes that of f32, which matters if
 * all numbers were dropped. */
static inline double rms_eps(const net *m, const layer *l)
{
    if (l->f[0] != 0) return l->f[0];
    return m->t->dtype == LC_F32 && m->dtype == LC_F64 ? 0x1p-23 : -1;
}

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
        lc_embedding_init(&x->embedding, m, name, m->t->vocabulary, l->i[0],
                          .padding_idx = l->i[1] > 0 ? l->i[1] - 1 : LC_UNSET, .dtype = dtype);
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
        lc_rms_norm_init(&x->norm, m, name, last, .no_affine = l->i[0], .eps = rms_eps(m, l), .dtype = dtype);
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
                     .num_layers = (int)l->i[1], .bidirectional = l->i[2], .no_bias = l->i[3], .dropout = l->f[0],
                     .dtype = dtype);
        break;
    case L_attention:
        lc_multihead_attention_init(&x->attention, m, name, last, l->i[0], .no_bias = l->i[1], .dropout = l->f[0],
                                    .dtype = dtype);
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

/* ---- masks ---- */

/* The mask is read from y, in which dropped numbers are 0. */
static inline void output_mask(net *m, lc_tensor *y)
{
    static const char *const names[MAX_DROPOUTS] = {"mask 0", "mask 1", "mask 2", "mask 3"};
    m->dropped[m->dropouts] = y;
    lc_output(&m->base, names[m->dropouts++], y);
}

static inline lc_tensor *drop(net *m, node *n, lc_tensor *x)
{
    lc_tensor *y = lc_forward(&n->base, lc_add_scalar(x, 0.73));
    output_mask(m, y);
    return y;
}

/* How many random streams each place in the code has used in this step. */
typedef struct streams {
    uint32_t n;
    int64_t used[64];
} streams;

static inline streams streams_used(void)
{
    const lc_graph *g = lc_current_graph();
    streams s = {.n = g->n_random_sites};
    CHECK(s.n <= 64);
    for (uint32_t i = 0; i < s.n; i++) s.used[i] = g->random_sites[i].count;
    return s;
}

/* The result of an LSTM, GRU or attention does not show what was dropped inside. For each random stream that the layer
 * has used since `before`, the mask is a tensor of ones that the same stream drops from. */
static inline void output_masks_since(net *m, const streams *before, double p, int ndim, const int64_t *sizes)
{
    const lc_graph *g = lc_current_graph();
    lc_no_grad_begin();
    for (uint32_t i = 0; i < g->n_random_sites; i++) {
        for (int64_t k = i < before->n ? before->used[i] : 0; k < g->random_sites[i].count; k++) {
            int64_t stream[] = {(int64_t)g->random_sites[i].hash, k + 1};
            lc_tensor *ones = lc_full_at(1, m->dtype, ndim, sizes, LC_HERE);
            output_mask(m, lc_op_call(&lc__op_dropout, 1, &ones, 2, stream, 1, &p, LC_HERE));
        }
    }
    lc_no_grad_end();
}

static inline lc_tensor *rnn_call(net *m, const layer *l, node *n, lc_tensor *x)
{
    streams before = streams_used();
    lc_tensor *y = lc_lstm_forward(&n->rnn, x);
    int64_t sizes[] = {lc_tensor_dim(x, 0), lc_tensor_dim(x, 1), l->i[0] * (l->i[2] ? 2 : 1)};
    output_masks_since(m, &before, l->f[0], 3, sizes);
    return y;
}

static inline lc_tensor *attention_call(net *m, const layer *l, node *n, lc_tensor *x)
{
    streams before = streams_used();
    lc_tensor *y = lc_multihead_attention_forward(&n->attention, x, .causal = l->i[2]);
    int64_t sizes[] = {lc_tensor_dim(x, 0), l->i[0], lc_tensor_dim(x, 1), lc_tensor_dim(x, 1)};
    output_masks_since(m, &before, l->f[0], 4, sizes);
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
        return attention_call(m, l, n, x);
    case L_lstm:
    case L_gru:
        return rnn_call(m, l, n, x);
    case L_dropout:
        return drop(m, n, x);
    default:
        return lc_forward(&n->base, x);
    }
}

static inline lc_tensor *with_noise(lc_tensor *x, const run_mode *h)
{
    lc_no_grad_begin();
    lc_tensor *off =
        h->phase < 0 ? lc_randn_like(x) : lc_sin(lc_add_scalar(lc_mul_scalar(lc_detach(x), 1234.5), h->phase));
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
        return lc_cross_entropy(x, y, .reduction = reduction, .weight = m->weight, .ignore_index = t->ignore ? 0 : -100,
                                .label_smoothing = t->loss_f);
    case LOSS_nll:
        return lc_nll_loss(lc_log_softmax(x, -1), y, .reduction = reduction, .weight = m->weight,
                           .ignore_index = t->ignore ? 0 : -100);
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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Draws trainings of random_training.h. Scales are such that losses fall and rounding errors do not grow: a chaotic
 * training tests nothing.
 *
 * To add a layer: its name in LAYER_LIST, its shape in layer_shape, a case in draw_layer, in layer_new and layer_call
 * of random_training_net.h, and in torch/trainings.py. */
#ifndef LC_TESTS_RANDOM_TRAINING_DRAW_H
#define LC_TESTS_RANDOM_TRAINING_DRAW_H

#include "random_training_run.h"

typedef struct dice {
    uint64_t key, n;
} dice;

static inline int64_t below(dice *d, int64_t n)
{
    return (int64_t)lc_random_below(d->key, d->n++, (uint64_t)n);
}

static inline int64_t from_to(dice *d, int64_t low, int64_t high)
{
    return low + below(d, high - low + 1);
}

static inline bool one_in(dice *d, int64_t n)
{
    return below(d, n) == 0;
}

static inline double real(dice *d, double low, double high)
{
    return low + (high - low) * lc_random_uniform(d->key, d->n++);
}

/* Drawn uniformly by its logarithm, to three digits. */
static inline double magnitude(dice *d, double low, double high)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", low * pow(high / low, lc_random_uniform(d->key, d->n++)));
    return atof(text);
}

static inline void give(options *o, const char *name, double value)
{
    if (o->n < MAX_OPTIONS) o->v[o->n++] = (lc_named_number){name, value};
}

static inline void maybe(dice *d, options *o, const char *name, double value)
{
    if (one_in(d, 2)) give(o, name, value);
}

/* ---- layers ---- */

static inline layer draw_layer(dice *d, const training *t)
{
    static const layer_op often[] = {
        L_linear,     L_linear,   L_linear,     L_conv,       L_conv,       L_conv_t,     L_batch_norm, L_batch_norm,
        L_layer_norm, L_rms_norm, L_group_norm, L_activation, L_activation, L_activation, L_activation, L_max_pool,
        L_avg_pool,   L_adaptive, L_flatten,    L_lstm,       L_lstm,       L_gru,        L_gru,        L_attention,
        L_attention,  L_again,    L_again,      L_tied,       L_tied,       L_dropout,    L_dropout};
    layer l = {.op = often[below(d, (int64_t)(sizeof often / sizeof *often))]};
    if (t->vocabulary && t->n_layers == 0) l.op = L_embedding;
    l.frozen = one_in(d, 12);
    l.residual = one_in(d, 3);
    switch (l.op) {
    case L_linear:
        l.i[0] = from_to(d, 3, 7), l.i[1] = one_in(d, 4);
        break;
    case L_embedding:
        l.i[0] = from_to(d, 1, 3) * 2, l.i[1] = one_in(d, 3) ? from_to(d, 1, t->vocabulary) : 0;
        break;
    case L_conv:
        l.i[5] = one_in(d, 4) ? 2 : 1;
        l.i[0] = from_to(d, 1, 3) * l.i[5], l.i[1] = from_to(d, 1, 3), l.i[2] = one_in(d, 3) ? 2 : 1;
        l.i[3] = below(d, 2), l.i[4] = one_in(d, 4) ? 2 : 1, l.i[6] = one_in(d, 3);
        if (l.residual) l.i[1] = 3, l.i[3] = l.i[2] = l.i[4] = 1;
        break;
    case L_conv_t:
        l.i[0] = from_to(d, 1, 3), l.i[1] = from_to(d, 1, 3), l.i[2] = from_to(d, 1, 2), l.i[5] = 1;
        l.i[3] = l.i[1] > 2 ? below(d, 2) : 0, l.i[4] = one_in(d, 3), l.i[6] = one_in(d, 3);
        break;
    case L_batch_norm:
        l.i[0] = one_in(d, 6), l.i[1] = one_in(d, 6);
        l.f[0] = one_in(d, 2) ? 0.3 : 0, l.f[1] = one_in(d, 2) ? 1e-3 : 0;
        break;
    case L_layer_norm:
        l.i[0] = one_in(d, 5), l.i[1] = one_in(d, 5), l.f[0] = one_in(d, 2) ? 1e-3 : 0;
        break;
    case L_rms_norm:
        l.i[0] = one_in(d, 5), l.f[0] = one_in(d, 2) ? 1e-3 : 0;
        break;
    case L_group_norm:
        l.i[0] = from_to(d, 1, 3), l.i[1] = one_in(d, 5), l.f[0] = one_in(d, 2) ? 1e-3 : 0;
        break;
    case L_activation:
        l.i[0] = below(d, LC_ACT_LOG_SOFTMAX + 1);
        l.f[0] = (l.i[0] == LC_ACT_LEAKY_RELU || l.i[0] == LC_ACT_ELU) && one_in(d, 2) ? 0.3 : 0;
        break;
    case L_max_pool:
    case L_avg_pool:
        l.i[0] = from_to(d, 2, 3), l.i[1] = from_to(d, 1, 2), l.i[2] = below(d, 2), l.i[3] = one_in(d, 3);
        l.i[4] = one_in(d, 2);
        break;
    case L_adaptive:
        l.i[0] = from_to(d, 1, 3);
        break;
    case L_lstm:
    case L_gru:
        l.i[0] = from_to(d, 2, 4), l.i[1] = from_to(d, 1, 2), l.i[2] = one_in(d, 3), l.i[3] = one_in(d, 4);
        if (!one_in(d, 3)) l.i[1] = from_to(d, 2, 3), l.f[0] = real(d, 0.1, 0.6);
        break;
    case L_attention:
        l.i[0] = from_to(d, 1, 2), l.i[1] = one_in(d, 4), l.i[2] = one_in(d, 2);
        l.f[0] = one_in(d, 2) ? real(d, 0.1, 0.6) : 0;
        break;
    case L_dropout:
        l.f[0] = real(d, 0.1, 0.6);
        break;
    case L_again:
    case L_tied:
        l.i[0] = t->n_layers ? below(d, t->n_layers) : 0;
        break;
    case L_flatten:
        break;
    }
    if (l.op == L_tied) l.i[0] = 0, l.residual = false;
    return l;
}

/* Adds a layer if it fits. */
static inline bool add_layer(training *t, layer l)
{
    shape ins[MAX_LAYERS + 1];
    loss_kind loss = t->loss;
    if (t->n_layers == MAX_LAYERS) return false;
    t->layers[t->n_layers++] = l;
    t->loss = LOSS_mse; /* accepts any shape */
    bool fits = shapes_of(t, ins);
    t->loss = loss;
    if (!fits) t->n_layers--;
    return fits;
}

static inline bool draw_layers(dice *d, training *t)
{
    shape ins[MAX_LAYERS + 1];
    int64_t n = from_to(d, 1, 6);
    for (int tries = 0; t->n_layers < n && tries < 40; tries++) add_layer(t, draw_layer(d, t));
    loss_kind loss = t->loss;
    t->loss = LOSS_mse;
    if (!shapes_of(t, ins)) return false;
    t->loss = loss;
    if (ins[t->n_layers].ndim == 3 && !add_layer(t, (layer){.op = L_flatten})) return false;
    if (!one_in(d, 4)) add_layer(t, (layer){.op = L_linear, .i = {from_to(d, 2, 4)}});
    return shapes_of(t, ins);
}

/* ---- optimizers ---- */

static inline void draw_betas(dice *d, options *o)
{
    maybe(d, o, "beta1", magnitude(d, 0.5, 0.95));
    maybe(d, o, "beta2", one_in(d, 2) ? 0.99 : magnitude(d, 0.8, 0.95));
    maybe(d, o, "eps", magnitude(d, 1e-6, 1e-3));
}

static inline void draw_optimizer(dice *d, training *t)
{
    static const char *const names[] = {"SGD",      "SGD",    "Adam",  "Adam",  "AdamW", "RMSprop", "Adagrad",
                                        "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "LBFGS"};
    options *o = &t->options;
    const char *name = t->optimizer = names[below(d, (int64_t)(sizeof names / sizeof *names))];
    if (strcmp(name, "Rprop") && strcmp(name, "LBFGS")) maybe(d, o, "weight_decay", magnitude(d, 1e-3, 0.2));
    if (strcmp(name, "LBFGS") && one_in(d, 5)) give(o, "maximize", 1);
    if (!strcmp(name, "SGD")) {
        give(o, "lr", magnitude(d, 0.005, 0.08));
        if (one_in(d, 3)) return;
        give(o, "momentum", magnitude(d, 0.3, 0.9));
        if (one_in(d, 2))
            give(o, "nesterov", 1);
        else
            maybe(d, o, "dampening", real(d, 0, 0.7));
    } else if (!strncmp(name, "Adam", 4) && strcmp(name, "Adamax")) {
        maybe(d, o, "lr", magnitude(d, 5e-4, 0.01));
        draw_betas(d, o);
        maybe(d, o, "amsgrad", 1);
        if (!strcmp(name, "Adam") && one_in(d, 3)) give(o, "decoupled_weight_decay", 1);
    } else if (!strcmp(name, "RMSprop")) {
        give(o, "lr", magnitude(d, 5e-4, 5e-3));
        maybe(d, o, "alpha", magnitude(d, 0.8, 0.99));
        maybe(d, o, "eps", magnitude(d, 1e-6, 1e-3));
        maybe(d, o, "momentum", magnitude(d, 0.3, 0.9));
        maybe(d, o, "centered", 1);
    } else if (!strcmp(name, "Adagrad")) {
        maybe(d, o, "lr", magnitude(d, 5e-3, 0.05));
        maybe(d, o, "lr_decay", magnitude(d, 1e-3, 0.2));
        maybe(d, o, "initial_accumulator_value", magnitude(d, 1e-3, 0.3));
        maybe(d, o, "eps", magnitude(d, 1e-8, 1e-3));
    } else if (!strcmp(name, "Adadelta")) {
        maybe(d, o, "lr", magnitude(d, 0.3, 1));
        maybe(d, o, "rho", magnitude(d, 0.7, 0.95));
        maybe(d, o, "eps", magnitude(d, 1e-6, 1e-3));
    } else if (!strcmp(name, "Adamax") || !strcmp(name, "NAdam") || !strcmp(name, "RAdam")) {
        maybe(d, o, "lr", magnitude(d, 5e-4, 0.01));
        draw_betas(d, o);
        if (!strcmp(name, "NAdam")) maybe(d, o, "momentum_decay", magnitude(d, 1e-3, 0.1));
        if (strcmp(name, "Adamax") && one_in(d, 3)) give(o, "decoupled_weight_decay", 1);
    } else if (!strcmp(name, "Rprop")) {
        give(o, "lr", magnitude(d, 1e-4, 5e-3));
        maybe(d, o, "eta_minus", real(d, 0.3, 0.7));
        maybe(d, o, "eta_plus", real(d, 1.1, 1.4));
        if (one_in(d, 3)) give(o, "step_size_max", magnitude(d, 5e-3, 0.05));
    } else {
        give(o, "lr", magnitude(d, 0.05, 0.5));
        give(o, "max_iter", (double)from_to(d, 1, 4));
        maybe(d, o, "history_size", (double)from_to(d, 1, 4));
        maybe(d, o, "strong_wolfe", 1);
    }
}

/* Some numbers of a group that differ from the optimizer's. */
static inline void draw_group(dice *d, const training *t, options *o)
{
    const options *all = &t->options;
    const lc_named_number *lr = option_of(all, "lr"), *eps = option_of(all, "eps"), *momentum;
    maybe(d, o, "lr", lr ? lr->value * 0.5 : 2e-3);
    if (strcmp(t->optimizer, "Rprop")) maybe(d, o, "weight_decay", magnitude(d, 1e-3, 0.1));
    if (eps) maybe(d, o, "eps", eps->value * 3);
    momentum = option_of(all, "momentum");
    if (momentum) maybe(d, o, "momentum", momentum->value * 0.8);
    if (option_of(all, "beta1")) maybe(d, o, "beta1", 0.7), maybe(d, o, "beta2", 0.97);
    if (option_of(all, "rho")) maybe(d, o, "rho", 0.8);
    if (option_of(all, "alpha")) maybe(d, o, "alpha", 0.9);
}

/* ---- schedules ---- */

/* One of the first `kinds`; parts of other schedules are among the first nine. */
static inline void draw_schedule(dice *d, const training *t, int64_t steps, int64_t kinds, schedule *s)
{
    options *o = &s->options;
    bool cycles = strstr("SGD Adam AdamW NAdam RAdam Adamax", t->optimizer) && one_in(d, 2);
    const lc_named_number *given = option_of(&t->options, "lr");
    double lr = given ? given->value : 1e-3;
    switch (below(d, kinds)) {
    case 0:
        s->name = "StepLR";
        give(o, "step_size", (double)from_to(d, 1, 5)), maybe(d, o, "gamma", real(d, 0.3, 0.9));
        break;
    case 1:
        s->name = "MultiStepLR";
        s->n_milestones = (int)from_to(d, 1, 3);
        for (int k = 0; k < s->n_milestones; k++)
            s->milestones[k] = (k ? s->milestones[k - 1] : 0) + from_to(d, k ? 0 : 1, 5);
        maybe(d, o, "gamma", real(d, 0.3, 0.9));
        break;
    case 2:
        s->name = "ExponentialLR";
        give(o, "gamma", real(d, 0.8, 0.99));
        break;
    case 3:
        s->name = "ConstantLR";
        maybe(d, o, "factor", real(d, 0.2, 0.8)), maybe(d, o, "total_iters", (double)from_to(d, 1, 8));
        break;
    case 4:
        s->name = "LinearLR";
        maybe(d, o, "start_factor", real(d, 0.2, 0.8)), maybe(d, o, "end_factor", real(d, 0.3, 1));
        maybe(d, o, "total_iters", (double)from_to(d, 1, 9));
        break;
    case 5:
        s->name = "PolynomialLR";
        maybe(d, o, "total_iters", (double)from_to(d, 1, 20)), maybe(d, o, "power", real(d, 0.5, 2));
        break;
    case 6:
        s->name = "CosineAnnealingLR";
        give(o, "T_max", (double)from_to(d, 2, 20)), maybe(d, o, "eta_min", lr * 0.1);
        break;
    case 7:
        s->name = "CosineAnnealingWarmRestarts";
        give(o, "T_0", (double)from_to(d, 1, 6)), maybe(d, o, "T_mult", (double)from_to(d, 1, 2));
        maybe(d, o, "eta_min", lr * 0.1);
        break;
    case 8: /* the factor of an epoch: base^epoch, or 1 / (1 + base * epoch) */
        s->name = "LambdaLR";
        give(o, "base", real(d, 0.7, 0.98)), give(o, "inverse", (double)below(d, 2));
        break;
    case 9:
        s->name = "OneCycleLR";
        give(o, "max_lr", lr * 2), give(o, "total_steps", (double)(steps + from_to(d, 2, 5)));
        maybe(d, o, "pct_start", real(d, 0.1, 0.6)), maybe(d, o, "linear", 1), maybe(d, o, "three_phase", 1);
        maybe(d, o, "div_factor", real(d, 2, 20));
        give(o, "cycle_momentum", cycles);
        if (cycles) maybe(d, o, "base_momentum", 0.6), maybe(d, o, "max_momentum", 0.9);
        break;
    case 10:
        s->name = "CyclicLR";
        give(o, "base_lr", lr * 0.5), give(o, "max_lr", lr * 1.5), give(o, "step_size_up", (double)from_to(d, 1, 6));
        maybe(d, o, "step_size_down", (double)from_to(d, 1, 6)), maybe(d, o, "mode", (double)from_to(d, 0, 2));
        maybe(d, o, "gamma", real(d, 0.8, 1));
        give(o, "cycle_momentum", cycles);
        if (cycles) maybe(d, o, "base_momentum", 0.6), maybe(d, o, "max_momentum", 0.85);
        break;
    case 11:
        s->name = "ReduceLROnPlateau";
        maybe(d, o, "max", 1), maybe(d, o, "factor", real(d, 0.3, 0.8)), give(o, "patience", (double)below(d, 2));
        maybe(d, o, "threshold", magnitude(d, 1e-4, 0.1)), maybe(d, o, "absolute", 1);
        maybe(d, o, "cooldown", (double)below(d, 3)), maybe(d, o, "min_lr", lr * 0.2);
        break;
    default:
        s->name = "SWALR";
        give(o, "swa_lr", lr * 0.3), give(o, "anneal_epochs", (double)from_to(d, 1, 8)), maybe(d, o, "linear", 1);
        break;
    }
}

static inline void draw_scheduler(dice *d, const training *t, int64_t steps, int at, scheduler *s)
{
    bool lbfgs = !strcmp(t->optimizer, "LBFGS");
    s->every_step = !one_in(d, 3);
    s->frequency = one_in(d, 3) ? from_to(d, 2, 3) : 1;
    if (one_in(d, 3)) {
        s->self.name = one_in(d, 2) ? "SequentialLR" : "ChainedScheduler";
        s->n_parts = (int)from_to(d, 2, MAX_PARTS);
        for (int k = 0; k < s->n_parts; k++) draw_schedule(d, t, steps, 9, &s->parts[k]);
        if (!strcmp(s->self.name, "ChainedScheduler")) return;
        s->self.n_milestones = s->n_parts - 1;
        for (int k = 0; k < s->self.n_milestones; k++)
            s->self.milestones[k] = (k ? s->self.milestones[k - 1] : 0) + from_to(d, 1, 6);
        return;
    }
    /* PyTorch's CyclicLR ignores base_lr if another schedule was made before it; and LBFGS has no single loss to
     * monitor. */
    draw_schedule(d, t, steps, at > 0 || lbfgs ? 9 : 13, &s->self);
    if (!strcmp(s->self.name, "ReduceLROnPlateau")) s->every_step = false;
}

/* ---- the whole training ---- */

static inline bool draw_once(dice *d, training *t)
{
    memset(t, 0, sizeof *t);
    t->key = lc_random_key(d->key, d->n);
    t->dtype = one_in(d, 2) ? LC_F32 : LC_F64;
    t->batch = from_to(d, 2, 9);
    t->samples = t->batch * from_to(d, 1, 5) + below(d, t->batch);
    if (t->samples > MAX_SAMPLES || t->samples % t->batch == 1) return false;
    int64_t batches = (t->samples + t->batch - 1) / t->batch;
    draw_optimizer(d, t);
    bool lbfgs = !strcmp(t->optimizer, "LBFGS");
    if (lbfgs) t->dtype = LC_F64; /* in f32 rounding decides when it stops */
    t->accumulate = !lbfgs && one_in(d, 3) ? from_to(d, 2, 3) : 1;
    int64_t steps_of_epoch = (batches + t->accumulate - 1) / t->accumulate;
    t->epochs = from_to(d, 8, 30) / steps_of_epoch + 1;
    t->max_steps = one_in(d, 4) ? from_to(d, 5, 20) : -1;
    /* Near a minimum rounding decides the path of a line search, and PyTorch's divides by zero there. */
    if (option_of(&t->options, "strong_wolfe")) t->max_steps = from_to(d, 1, 3);
    int64_t steps = steps_of_epoch * t->epochs;
    switch (below(d, 4)) {
    case 0:
        t->input = (shape){1, {from_to(d, 3, 6)}};
        break;
    case 1:
        t->input = (shape){3, {from_to(d, 1, 3), from_to(d, 4, 6), from_to(d, 4, 6)}};
        break;
    case 2:
        t->input = (shape){2, {from_to(d, 2, 5), from_to(d, 3, 5)}};
        break;
    default:
        t->input = (shape){1, {from_to(d, 2, 5)}};
        t->vocabulary = from_to(d, 4, 8);
    }
    t->loss = (loss_kind)below(d, LOSS_nll + 1);
    t->sum = one_in(d, 5), t->weighted = one_in(d, 3);
    t->ignore = t->loss >= LOSS_cross_entropy && one_in(d, 3);
    t->loss_f = t->loss == LOSS_cross_entropy                        ? (one_in(d, 2) ? 0.1 : 0)
                : t->loss == LOSS_smooth_l1 || t->loss == LOSS_huber ? real(d, 0.5, 2)
                                                                     : 0;
    if (!draw_layers(d, t)) return false;
    if (count_dropouts(t) > MAX_DROPOUTS) return false;
    /* The bias of attention's keys has a gradient of pure rounding, which optimizers other than SGD make as large as
     * any. */
    for (int k = 0; k < t->n_layers; k++)
        if (t->layers[k].op == L_attention && strcmp(t->optimizer, "SGD")) t->layers[k].i[1] = 1;
    if (!lbfgs && one_in(d, 3)) {
        t->clip = one_in(d, 2) ? "norm" : "value";
        t->clip_at = t->clip[0] == 'n' ? magnitude(d, 0.05, 2) : magnitude(d, 0.01, 0.5);
    }
    t->n_groups = lbfgs || one_in(d, 2) ? 1 : (int)from_to(d, 2, MAX_GROUPS);
    for (int k = 0; t->n_groups > 1 && k < t->n_groups; k++) draw_group(d, t, &t->groups[k]);
    t->leave_out = t->n_groups > 1 && one_in(d, 4) ? from_to(d, 3, 5) : 0;
    t->by_name = t->n_groups == 1 && one_in(d, 2);
    t->n_schedulers = one_in(d, 3) ? 0 : one_in(d, 5) ? 2 : 1;
    for (int k = 0; k < t->n_schedulers; k++) draw_scheduler(d, t, steps, k, &t->schedulers[k]);
    return steps <= MAX_STEPS;
}

static inline void draw_training(uint64_t key, training *t)
{
    static trace unused;
    dice d = {.key = key};
    while (!draw_once(&d, t) || !can_train(t, &unused)) continue;
}

#endif

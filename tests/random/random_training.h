/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings as data: layers, a loss, an optimizer with groups and schedules, batches. A training is drawn
 * (random_training_draw.h), runs here (random_training_run.h) and in PyTorch (torch/trainings.py), can be shrunk
 * (random_training_shrink.h), and is printed as
 *
 *     training f32
 *     layer 0 linear residual ; ints ; floats ; input shape of one sample
 *     loss mse ints ; floats
 *     data samples batch epochs max_steps accumulate
 *     clip norm 0.5
 *     optimizer SGD by_name name=value ...
 *     group name=value ... : parameters
 *     scheduler step 2 SequentialLR name=value ... ; milestones
 *     part StepLR name=value ... ; milestones
 *
 * The meaning of a layer's ints and floats is next to its name below. */
#ifndef LC_TESTS_RANDOM_TRAINING_H
#define LC_TESTS_RANDOM_TRAINING_H

#include "test.h"

#include <lightc/lightc.h>

enum {
    MAX_LAYERS = 10,
    MAX_OPTIONS = 12,
    MAX_GROUPS = 3,
    MAX_SCHEDULERS = 2,
    MAX_PARTS = 3,
    MAX_MILESTONES = 4,
    MAX_SAMPLES = 48,
    MAX_STEPS = 40,
    MAX_STATE = 2500, /* numbers in all parameters and buffers */
    MAX_TENSORS = 96,
    MAX_DROPOUTS = 4,
    MAX_DRAWS = 8 * MAX_STEPS,
    MAX_MASKS = 1 << 20 /* numbers in all masks of a training */
};

/* "norm" layers and convolutions take the number of their dimensions from the sample's shape. */
#define LAYER_LIST(X)                                                                                                  \
    X(linear)     /* out, no_bias */                                                                                   \
    X(embedding)  /* dim, padding row + 1 */                                                                           \
    X(conv)       /* out, kernel, stride, padding, dilation, groups, no_bias */                                        \
    X(conv_t)     /* out, kernel, stride, padding, output_padding, 1, no_bias */                                       \
    X(batch_norm) /* no_affine, no_track; momentum, eps */                                                             \
    X(layer_norm) /* no_affine, no_bias; eps */                                                                        \
    X(rms_norm)   /* no_affine; eps */                                                                                 \
    X(group_norm) /* groups, no_affine; eps */                                                                         \
    X(activation) /* lc_activation_kind; a */                                                                          \
    X(max_pool)   /* kernel, stride, padding, ceil_mode */                                                             \
    X(avg_pool)   /* kernel, stride, padding, ceil_mode, exclude_pad */                                                \
    X(adaptive)   /* size */                                                                                           \
    X(flatten)    /* */                                                                                                \
    X(lstm)       /* hidden, layers, bidirectional, no_bias; p of what is dropped between layers */                    \
    X(gru)        /* the same */                                                                                       \
    X(attention)  /* heads, no_bias, causal; p of the weights that are dropped */                                      \
    X(dropout)    /* ; p. Its input is x + 0.73, so that a 0 means dropped */                                          \
    X(again)      /* a layer that is called once more */                                                               \
    X(tied)       /* the embedding whose weight multiplies */

typedef enum layer_op {
#define LAYER_ENUM(name) L_##name,
    LAYER_LIST(LAYER_ENUM)
#undef LAYER_ENUM
} layer_op;

static const char *const layer_names[] = {
#define LAYER_NAME(name) #name,
    LAYER_LIST(LAYER_NAME)
#undef LAYER_NAME
};

typedef struct layer {
    layer_op op;
    bool frozen, residual;
    int64_t i[7];
    double f[2];
} layer;

/* ints: sum in place of mean, ignores class 0, class weights, log_target; floats: beta, delta or label smoothing */
#define LOSS_KINDS(X) X(mse) X(l1) X(smooth_l1) X(huber) X(bce) X(kl) X(cross_entropy) X(nll)
typedef enum loss_kind {
#define LOSS_ENUM(name) LOSS_##name,
    LOSS_KINDS(LOSS_ENUM)
#undef LOSS_ENUM
} loss_kind;
static const char *const loss_names[] = {
#define LOSS_NAME(name) #name,
    LOSS_KINDS(LOSS_NAME)
#undef LOSS_NAME
};

typedef struct options {
    lc_named_number v[MAX_OPTIONS];
    int n;
} options;

typedef struct schedule {
    const char *name;
    options options;
    int64_t milestones[MAX_MILESTONES];
    int n_milestones;
} schedule;

typedef struct scheduler {
    schedule self, parts[MAX_PARTS];
    int n_parts;
    bool every_step;
    int64_t frequency;
} scheduler;

typedef struct shape {
    int ndim;
    int64_t n[3];
} shape;

typedef struct training {
    uint64_t key; /* of the data and the initial weights */
    lc_dtype dtype;
    shape input;
    int64_t vocabulary; /* 0: x holds numbers */
    layer layers[MAX_LAYERS];
    int n_layers;
    loss_kind loss;
    bool sum, ignore, weighted;
    double loss_f;
    int64_t samples, batch, epochs, max_steps, accumulate;
    const char *clip; /* NULL: none */
    double clip_at;
    const char *optimizer;
    bool by_name;
    options options, groups[MAX_GROUPS]; /* of a group: what differs from the optimizer's */
    int n_groups;
    int64_t leave_out; /* every nth parameter is in no group; 0: all are in groups */
    scheduler schedulers[MAX_SCHEDULERS];
    int n_schedulers;
} training;

static inline int64_t numel(const shape *s)
{
    int64_t n = 1;
    for (int k = 0; k < s->ndim; k++) n *= s->n[k];
    return n;
}

static inline bool same_shape(const shape *a, const shape *b)
{
    return a->ndim == b->ndim && !memcmp(a->n, b->n, (size_t)a->ndim * sizeof *a->n);
}

static inline const lc_named_number *option_of(const options *o, const char *name)
{
    for (int k = 0; k < o->n; k++)
        if (!strcmp(o->v[k].name, name)) return &o->v[k];
    return NULL;
}

/* The output shape of layer `at` for a sample of shape `in`; false: it does not accept that shape. `ins`: the input
 * shapes of earlier layers. */
static inline bool layer_shape(const training *t, int at, const shape *ins, shape *out)
{
    const layer *l = &t->layers[at];
    const shape in = ins[at];
    int64_t last = in.ndim ? in.n[in.ndim - 1] : 0, *n = out->n;
    bool ids = t->vocabulary && at == 0;
    *out = in;
    if (ids != (l->op == L_embedding)) return false;
    switch (l->op) {
    case L_linear:
        n[in.ndim - 1] = l->i[0];
        break;
    case L_embedding:
        if (in.ndim != 1) return false;
        out->ndim = 2, n[1] = l->i[0];
        break;
    case L_conv:
    case L_conv_t:
        if (in.ndim < 2 || in.n[0] % l->i[5] || l->i[0] % l->i[5]) return false;
        n[0] = l->i[0];
        for (int k = 1; k < in.ndim; k++) {
            if (l->op == L_conv)
                n[k] = (in.n[k] + 2 * l->i[3] - l->i[4] * (l->i[1] - 1) - 1) / l->i[2] + 1;
            else
                n[k] = (in.n[k] - 1) * l->i[2] - 2 * l->i[3] + l->i[1] + l->i[4];
            if (n[k] < 1 || n[k] > 12 || in.n[k] + 2 * l->i[3] < l->i[4] * (l->i[1] - 1) + 1) return false;
        }
        if (l->op == L_conv_t && l->i[4] >= l->i[2]) return false;
        break;
    case L_batch_norm: /* of at least three numbers: with two they become 1 and -1 */
        return t->samples % t->batch == 0 ? t->batch >= 4 : t->samples % t->batch >= 3 && t->batch >= 4;
    case L_layer_norm:
    case L_rms_norm:
        return last >= 3;
    case L_group_norm:
        return in.n[0] % l->i[0] == 0 && numel(&in) / l->i[0] >= 3;
    case L_activation:
        return l->i[0] < LC_ACT_SOFTMAX || last >= 2;
    case L_max_pool:
    case L_avg_pool:
        if (in.ndim != 3 || l->i[2] * 2 > l->i[0]) return false;
        for (int k = 1; k < 3; k++) {
            int64_t room = in.n[k] + 2 * l->i[2] - l->i[0];
            if (room < 0) return false;
            n[k] = (room + (l->i[3] ? l->i[1] - 1 : 0)) / l->i[1] + 1;
            if (l->i[3] && (n[k] - 1) * l->i[1] >= in.n[k] + l->i[2]) n[k]--;
        }
        break;
    case L_adaptive:
        if (in.ndim != 3) return false;
        n[1] = n[2] = l->i[0];
        break;
    case L_flatten:
        out->ndim = 1, n[0] = numel(&in);
        break;
    case L_lstm:
    case L_gru:
        if (in.ndim != 2) return false;
        n[1] = l->i[0] * (l->i[2] ? 2 : 1);
        break;
    case L_attention:
        return in.ndim == 2 && last % l->i[0] == 0;
    case L_dropout:
        break;
    case L_again: /* as many dimensions as the first time, and the same sizes, except for the length of a sequence */
        if (l->i[0] >= at || t->layers[l->i[0]].op >= L_again || t->layers[l->i[0]].op == L_embedding) return false;
        if (!same_shape(&in, &ins[l->i[0]])) return false;
        return layer_shape(t, (int)l->i[0], ins, out);
    case L_tied:
        if (l->i[0] >= at || t->layers[l->i[0]].op != L_embedding || last != t->layers[l->i[0]].i[0]) return false;
        n[in.ndim - 1] = t->vocabulary;
        break;
    }
    return !l->residual || same_shape(out, &in);
}

/* The input shapes of all layers and the output shape of the last; false: the layers, or the loss, do not fit. */
static inline bool shapes_of(const training *t, shape ins[MAX_LAYERS + 1])
{
    ins[0] = t->input;
    for (int k = 0; k < t->n_layers; k++) {
        if (!layer_shape(t, k, ins, &ins[k + 1]) || numel(&ins[k + 1]) > 200) return false;
        if (t->layers[k].residual && !same_shape(&ins[k], &ins[k + 1])) return false;
    }
    const shape *out = &ins[t->n_layers];
    if (t->n_layers < 1 || numel(out) > 80) return false;
    return t->loss < LOSS_kl || (out->ndim < 3 && out->n[out->ndim - 1] >= 2);
}

static inline bool has_layer(const training *t, layer_op op)
{
    for (int k = 0; k < t->n_layers; k++)
        if (t->layers[k].op == op) return true;
    return false;
}

/* How often a call of layer `at`, or of the layer that it calls again, drops something, and with what probability. */
static inline int dropouts_of(const training *t, int at, double *p)
{
    const layer *l = &t->layers[at];
    if (l->op == L_again) l = &t->layers[l->i[0]];
    *p = l->f[0];
    if (l->op == L_dropout) return 1;
    if (l->op == L_attention) return *p > 0;
    return (l->op == L_lstm || l->op == L_gru) && *p > 0 ? (int)l->i[1] - 1 : 0;
}

static inline int count_dropouts(const training *t)
{
    int n = 0;
    double p;
    for (int k = 0; k < t->n_layers; k++) n += dropouts_of(t, k, &p);
    return n;
}

static inline bool has_classes(const training *t)
{
    return t->loss >= LOSS_cross_entropy;
}

/* ---- print ---- */

static inline void print_options(FILE *f, const options *o)
{
    for (int k = 0; k < o->n; k++) fprintf(f, " %s=%.17g", o->v[k].name, o->v[k].value);
}

static inline void print_schedule(FILE *f, const schedule *s)
{
    fprintf(f, " %s", s->name);
    print_options(f, &s->options);
    fprintf(f, " ;");
    for (int k = 0; k < s->n_milestones; k++) fprintf(f, " %lld", (long long)s->milestones[k]);
    fprintf(f, "\n");
}

/* All except the groups, which are known when the parameters are. */
static inline void print_training(FILE *f, const training *t)
{
    shape ins[MAX_LAYERS + 1];
    bool fits = shapes_of(t, ins);
    fprintf(f, "training %s\n", t->dtype == LC_F32 ? "f32" : "f64");
    if (t->vocabulary) fprintf(f, "vocabulary %lld\n", (long long)t->vocabulary);
    for (int k = 0; k < t->n_layers; k++) {
        const layer *l = &t->layers[k];
        fprintf(f, "layer %d %s%s%s ;", k, layer_names[l->op], l->frozen ? " frozen" : "",
                l->residual ? " residual" : "");
        for (int j = 0; j < 7; j++) fprintf(f, " %lld", (long long)l->i[j]);
        fprintf(f, " ; %.17g %.17g ;", l->f[0], l->f[1]);
        for (int j = 0; fits && j < ins[k].ndim; j++) fprintf(f, " %lld", (long long)ins[k].n[j]);
        fprintf(f, "\n");
    }
    fprintf(f, "loss %s %d %d %d ; %.17g\n", loss_names[t->loss], t->sum, t->ignore, t->weighted, t->loss_f);
    fprintf(f, "data %lld %lld %lld %lld %lld\n", (long long)t->samples, (long long)t->batch, (long long)t->epochs,
            (long long)t->max_steps, (long long)t->accumulate);
    if (t->clip) fprintf(f, "clip %s %.17g\n", t->clip, t->clip_at);
    fprintf(f, "optimizer %s%s", t->optimizer, t->by_name ? " by_name" : "");
    print_options(f, &t->options);
    fprintf(f, "\n");
    for (int k = 0; k < t->n_schedulers; k++) {
        const scheduler *s = &t->schedulers[k];
        fprintf(f, "scheduler %s %lld", s->every_step ? "step" : "epoch", (long long)s->frequency);
        print_schedule(f, &s->self);
        for (int j = 0; j < s->n_parts; j++) fprintf(f, "part"), print_schedule(f, &s->parts[j]);
    }
}

#endif

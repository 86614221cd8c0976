/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings of small networks: operators that only a plan contains, sums of gradients, clipping, updates: also of
 * master weights, of parameters that are rounded at random, and with gradients that are scaled on the device. */
#include "check/check.h"
#include "module/tensors.h"

#include <math.h>

enum { BATCH = 3, CLASSES = 5, SIDE = 10, WORDS = 11 };

/* One network has pooling and dropout. In the other, gelu, and batch norm with relu, come right before a convolution,
 * whose backward pass needs their results: they are computed again. */
typedef enum kind { POOLED, COMPUTED_AGAIN } kind;

typedef struct net {
    lc_module base;
    kind kind;
    lc_embedding words;
    lc_conv2d conv, again;
    lc_batch_norm2d norm;
    lc_layer_norm rows;
    lc_linear hidden, out;
} net;

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net")};

static lc_status make(net *n)
{
    lc_module_init(&n->base, &net_ops, 3);
    lc_embedding_init(&n->words, n, "words", WORDS, SIDE);
    lc_conv2d_init(&n->conv, n, "conv", 2, 4, 3, .padding = 1, .stride = n->kind == COMPUTED_AGAIN ? 2 : 1);
    if (n->kind == COMPUTED_AGAIN) lc_conv2d_init(&n->again, n, "again", 4, 4, 3, .padding = 1);
    lc_batch_norm2d_init(&n->norm, n, "norm", 4);
    lc_layer_norm_init(&n->rows, n, "rows", 4 * SIDE / 2 * SIDE / 2);
    lc_linear_init(&n->hidden, n, "hidden", 4 * SIDE / 2 * SIDE / 2, 16);
    lc_linear_init(&n->out, n, "out", 16, CLASSES);
    return lc_module_status(&n->base);
}

/* x [B,2,SIDE,SIDE], ids [B,SIDE] */
static lc_tensor *loss_of(net *n, lc_tensor *x, lc_tensor *ids, lc_tensor *label)
{
    lc_tensor *text = lc_reshape(lc_embedding_forward(&n->words, ids), BATCH, 1, SIDE, SIDE);
    lc_tensor *h = lc_conv2d_forward(&n->conv, lc_add(x, text));
    if (n->kind == COMPUTED_AGAIN) h = lc_conv2d_forward(&n->again, lc_gelu(h));
    h = lc_relu(lc_batch_norm2d_forward(&n->norm, h));
    h = n->kind == POOLED ? lc_max_pool2d(h, 2) : lc_conv2d_forward(&n->again, h);
    h = lc_gelu(lc_linear_forward(&n->hidden, lc_layer_norm_forward(&n->rows, lc_flatten(h, 1))));
    if (n->kind == POOLED) h = lc_dropout(h, 0.2);
    return lc_cross_entropy(lc_linear_forward(&n->out, h), label);
}

/* ---- optimizers ---- */

static lc_optimizer *optimizer(net *n, int which)
{
    switch (which) {
    case 0:
        return lc_sgd(n, .lr = 0.1);
    case 1:
        return lc_sgd(n, .lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01);
    case 2:
        return lc_adam(n, .lr = 0.01);
    case 3:
        return lc_adam(n, .lr = 0.01, .amsgrad = true);
    case 4:
        return lc_adamw(n, .lr = 0.01, .maximize = true);
    case 5:
        return lc_rmsprop(n, .lr = 0.01);
    case 6:
        return lc_rmsprop(n, .lr = 0.01, .momentum = 0.5);
    case 7:
        return lc_rmsprop(n, .lr = 0.01, .centered = true);
    case 8:
        return lc_rmsprop(n, .lr = 0.01, .centered = true, .momentum = 0.5);
    case 9:
        return lc_adagrad(n, .lr = 0.01);
    case 10:
        return lc_adadelta(n, .lr = 0.1);
    case 11:
        return lc_adamax(n, .lr = 0.01);
    case 12:
        return lc_nadam(n, .lr = 0.01);
    case 13:
        return lc_radam(n, .lr = 0.01);
    case 14:
        return lc_rprop(n, .lr = 0.01);
    case 15: {
        const lc_tensor *matrices[] = {n->hidden.weight, n->out.weight};
        return lc_muon(n, .lr = 0.01, .parameters = (lc_tensor **)(uintptr_t)matrices, .n_parameters = 2);
    }
    default:
        return NULL;
    }
}

/* ---- steps ---- */

typedef struct batch {
    lc_tensor *x, *ids, *label;
} batch;

static lc_status make_batch(batch *b)
{
    float pixels[BATCH * 2 * SIDE * SIDE];
    int64_t words[BATCH * SIDE], labels[BATCH];
    for (int i = 0; i < BATCH * 2 * SIDE * SIDE; i++) pixels[i] = (float)lc_random_normal(8, (uint64_t)i);
    for (int i = 0; i < BATCH * SIDE; i++) words[i] = (int64_t)lc_random_below(9, (uint64_t)i, WORDS);
    for (int i = 0; i < BATCH; i++) labels[i] = i % CLASSES;
    LC_TRY(lc_tensor_new(LC_F32, 4, (int64_t[]){BATCH, 2, SIDE, SIDE}, &b->x));
    LC_TRY(lc_tensor_new(LC_I64, 2, (int64_t[]){BATCH, SIDE}, &b->ids));
    LC_TRY(lc_tensor_new(LC_I64, 1, (int64_t[]){BATCH}, &b->label));
    LC_TRY(lc_tensor_write(b->x, pixels, sizeof pixels));
    LC_TRY(lc_tensor_write(b->ids, words, sizeof words));
    return lc_tensor_write(b->label, labels, sizeof labels);
}

/* One training of the check. */
typedef struct task {
    kind network;
    int optimizer;
    bool unplanned;
    lc_dtype stored; /* the type of parameters and values; 0: f32 */
    unsigned flags;  /* of the optimizer: LC_OPT_MASTER_WEIGHTS, LC_OPT_STOCHASTIC_ROUNDING */
    bool scaled;     /* gradients are multiplied by a number on the device, which skips the second update */
    bool alone;      /* every batch has an update, and gradients are not clipped */
} task;

/* Two batches for an update, twice. */
static lc_status train(check *c, lc_graph *g, net *n, lc_optimizer *opt, const batch *b, bool alone)
{
    for (uint64_t step = 0; step < 4; step++) {
        const float factor = step < 2 ? 0.5f : INFINITY;
        if (g->unscale) LC_TRY(lc_tensor_write(g->unscale, &factor, sizeof factor));
        LC_TRY(lc_step_begin(g, step / 2, step % 2));
        if (alone || step % 2 == 0) lc_zero_grad(g);
        lc_backward(loss_of(n, b->x, b->ids, b->label));
        if (!alone && step % 2) {
            lc_clip_grad_norm(opt, 0.1);
            lc_clip_grad_value(opt, 0.05);
        }
        if (alone || step % 2) lc_optimizer_step(opt);
        LC_TRY(lc_step_status(g));
        LC_TRY(check_step(c, g));
        LC_TRY(lc_step_end(g));
    }
    return LC_OK;
}

static lc_status train_on(check *c, lc_graph *g, net *n, lc_optimizer *opt, const task *t)
{
    batch b = {0};
    lc_tensor *unscale = NULL;
    g->reference_only = true;
    g->plan_off = t->unplanned;
    lc_status status = make_batch(&b);
    if (status >= 0 && t->scaled) status = lc_tensor_new(LC_F32, 0, NULL, &unscale);
    g->unscale = unscale;
    c->random = t->flags & LC_OPT_STOCHASTIC_ROUNDING;
    if (status >= 0) status = train(c, g, n, opt, &b, t->alone);
    c->random = false;
    g->unscale = NULL;
    lc_tensor_unref(unscale);
    lc_tensor_unref(b.x), lc_tensor_unref(b.ids), lc_tensor_unref(b.label);
    return status;
}

static lc_status check_network(check *c, const task *t, bool *exists)
{
    net n = {.kind = t->network};
    lc_graph *g = NULL;
    lc_status status = make(&n);
    if (status >= 0 && t->stored) status = lc__module_store(&n.base, t->stored);
    lc_module_train(&n.base, true);
    lc_optimizer *opt = optimizer(&n, t->optimizer);
    *exists = opt != NULL;
    if (opt) opt->flags |= t->flags; /* as its arguments do */
    if (status >= 0 && opt) status = lc_graph_new(&g, .threads = 1, .seed = 5, .device = "cpu", .storage = t->stored);
    if (status >= 0 && g) status = train_on(c, g, &n, opt, t);
    lc_graph_free(g);
    lc_optimizer_free(opt);
    lc_module_release(&n.base);
    return status;
}

/* With each optimizer. */
static lc_status check_all(check *c, task t)
{
    bool exists = true;
    for (t.optimizer = 0; exists; t.optimizer++) LC_TRY(check_network(c, &t, &exists));
    return LC_OK;
}

lc_status check_networks(check *c)
{
    static const lc_dtype types[] = {LC_F64, LC_BF16, LC_F16};
    bool exists;
    LC_TRY(check_all(c, (task){0}));
    LC_TRY(check_all(c, (task){.unplanned = true}));
    LC_TRY(check_all(c, (task){.scaled = true}));
    LC_TRY(check_network(c, &(task){.scaled = true, .alone = true}, &exists));
    LC_TRY(check_network(c, &(task){.network = COMPUTED_AGAIN}, &exists));
    for (int i = 0; i < 3; i++) {
        LC_TRY(check_all(c, (task){.stored = types[i]}));
        if (types[i] == LC_F64) continue;
        LC_TRY(check_all(c, (task){.stored = types[i], .flags = LC_OPT_MASTER_WEIGHTS, .scaled = true}));
        LC_TRY(check_all(c, (task){.stored = types[i], .flags = LC_OPT_STOCHASTIC_ROUNDING}));
    }
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* To add a network: a struct that starts with `model`, its build and logits functions, and its line in `kinds`. */
#include "models.h"

#include <stdlib.h>
#include <string.h>

/* ---- 784-128-10 ---- */

typedef struct mlp {
    model base;
    lc_linear l1, l2;
} mlp;

static void mlp_build(model *m)
{
    mlp *n = (mlp *)m;
    lc_linear_init(&n->l1, n, "l1", 784, 128);
    lc_linear_init(&n->l2, n, "l2", 128, 10);
}

static lc_tensor *mlp_logits(model *m, lc_tensor *x) /* x [N,1,28,28] */
{
    mlp *n = (mlp *)m;
    return lc_linear_forward(&n->l2, lc_relu(lc_linear_forward(&n->l1, lc_flatten(x, 1))));
}

/* ---- FashionCNN ---- */

typedef struct fashion {
    model base;
    lc_conv2d c1, c2;
    lc_batch_norm2d b1, b2;
    lc_linear fc1, fc2, fc3;
    lc_dropout drop;
} fashion;

static void fashion_build(model *m)
{
    fashion *n = (fashion *)m;
    lc_conv2d_init(&n->c1, n, "c1", 1, 32, 3, .padding = 1);
    lc_batch_norm2d_init(&n->b1, n, "b1", 32);
    lc_conv2d_init(&n->c2, n, "c2", 32, 64, 3);
    lc_batch_norm2d_init(&n->b2, n, "b2", 64);
    lc_linear_init(&n->fc1, n, "fc1", 64 * 6 * 6, 600);
    lc_dropout_init(&n->drop, n, "drop", 0.25);
    lc_linear_init(&n->fc2, n, "fc2", 600, 120);
    lc_linear_init(&n->fc3, n, "fc3", 120, 10);
}

static lc_tensor *fashion_logits(model *m, lc_tensor *x) /* x [N,1,28,28] */
{
    fashion *n = (fashion *)m;
    x = lc_max_pool2d(lc_relu(lc_batch_norm2d_forward(&n->b1, lc_conv2d_forward(&n->c1, x))), 2);
    x = lc_max_pool2d(lc_relu(lc_batch_norm2d_forward(&n->b2, lc_conv2d_forward(&n->c2, x))), 2);
    x = lc_dropout_forward(&n->drop, lc_linear_forward(&n->fc1, lc_flatten(x, 1)));
    return lc_linear_forward(&n->fc3, lc_linear_forward(&n->fc2, x));
}

/* ---- ResNet-18 for 32x32 images ---- */

typedef struct resnet18 {
    model base;
    lc_resnet18 net;
} resnet18;

static void resnet18_build(model *m)
{
    resnet18 *n = (resnet18 *)m;
    lc_resnet18_init(&n->net, n, "net", 10, .small_stem = true);
}

static lc_tensor *resnet18_logits(model *m, lc_tensor *x) /* x [N,3,32,32] */
{
    resnet18 *n = (resnet18 *)m;
    return lc_resnet_forward(&n->net, x);
}

/* ---- GPT with tied embeddings ---- */

#define MAX_LAYERS 12

typedef struct gpt_block {
    lc_module base;
    lc_layer_norm n1, n2;
    lc_linear qkv, proj, up, down;
} gpt_block;

typedef struct gpt {
    model base;
    int layers;
    int64_t heads, width, context, vocabulary;
    lc_embedding tok, pos;
    gpt_block blocks[MAX_LAYERS];
    lc_layer_norm norm;
} gpt;

static void gpt_layers(gpt *n)
{
    static const char *const names[MAX_LAYERS] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"};
    int64_t w = n->width;
    lc_embedding_init(&n->tok, n, "tok", n->vocabulary, w);
    lc_embedding_init(&n->pos, n, "pos", n->context, w);
    for (int i = 0; i < n->layers; i++) {
        gpt_block *b = &n->blocks[i];
        lc_module_init_child(&b->base, n, names[i], "Block");
        lc_layer_norm_init(&b->n1, b, "n1", w);
        lc_linear_init(&b->qkv, b, "qkv", w, 3 * w);
        lc_linear_init(&b->proj, b, "proj", w, w);
        lc_layer_norm_init(&b->n2, b, "n2", w);
        lc_linear_init(&b->up, b, "up", w, 4 * w);
        lc_linear_init(&b->down, b, "down", 4 * w, w);
    }
    lc_layer_norm_init(&n->norm, n, "norm", w);
}

static void gpt_build(model *m)
{
    gpt *n = (gpt *)m;
    n->layers = 6, n->heads = 6, n->width = 384, n->context = 256, n->vocabulary = 65;
    gpt_layers(n);
}

static void gpt_small_build(model *m)
{
    gpt *n = (gpt *)m;
    n->layers = 2, n->heads = 2, n->width = 32, n->context = 16, n->vocabulary = 11;
    gpt_layers(n);
}

static lc_tensor *gpt_logits(model *m, lc_tensor *ids) /* ids [B,T] -> [B,T,V] */
{
    gpt *n = (gpt *)m;
    int64_t batch = lc_tensor_dim(ids, 0), t = lc_tensor_dim(ids, 1), d = n->width / n->heads;
    lc_tensor *x = lc_add(lc_embedding_forward(&n->tok, ids), lc_slice(n->pos.weight, 0, 0, t));
    for (int i = 0; i < n->layers; i++) {
        gpt_block *b = &n->blocks[i];
        lc_tensor *qkv = lc_linear_forward(&b->qkv, lc_layer_norm_forward(&b->n1, x)), *part[3];
        for (int k = 0; k < 3; k++)
            part[k] = lc_transpose(lc_reshape(lc_slice(qkv, 2, k * n->width, n->width), batch, t, n->heads, d), 1, 2);
        lc_tensor *y = lc_sdpa(part[0], part[1], part[2], .causal = true);
        y = lc_reshape(lc_transpose(y, 1, 2), batch, t, n->width);
        x = lc_add(x, lc_linear_forward(&b->proj, y));
        y = lc_gelu(lc_linear_forward(&b->up, lc_layer_norm_forward(&b->n2, x)), .tanh = true);
        x = lc_add(x, lc_linear_forward(&b->down, y));
    }
    return lc_linear(lc_layer_norm_forward(&n->norm, x), n->tok.weight, NULL);
}

/* ---- LSTM over rows of an image ---- */

typedef struct lstm {
    model base;
    lc_lstm rnn;
    lc_linear out;
} lstm;

static void lstm_build(model *m)
{
    lstm *n = (lstm *)m;
    lc_lstm_init(&n->rnn, n, "rnn", 28, 24);
    lc_linear_init(&n->out, n, "out", 24, 10);
}

static lc_tensor *lstm_logits(model *m, lc_tensor *x) /* x [N,1,28,28] */
{
    lstm *n = (lstm *)m;
    lc_tensor *h = lc_lstm_forward(&n->rnn, lc_reshape(x, -1, 28, 28));
    return lc_linear_forward(&n->out, lc_select(h, 1, 27));
}

/* ---- all of them ---- */

static const model_kind kinds[] = {
    {"mlp", sizeof(mlp), mlp_build, mlp_logits},
    {"fashion", sizeof(fashion), fashion_build, fashion_logits},
    {"resnet18", sizeof(resnet18), resnet18_build, resnet18_logits},
    {"gpt", sizeof(gpt), gpt_build, gpt_logits},
    {"gpt_small", sizeof(gpt), gpt_small_build, gpt_logits},
    {"lstm", sizeof(lstm), lstm_build, lstm_logits},
};

const model_kind *model_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    lc_fail(LC_ERR_NOT_FOUND, "unknown model %s", name);
    return NULL;
}

model *model_new(const char *name, const lc_module_ops *ops, uint64_t seed)
{
    const model_kind *kind = model_find(name);
    model *m = kind ? calloc(1, kind->size) : NULL;
    if (!m) return NULL;
    m->kind = kind;
    lc_module_init(&m->base, ops, seed);
    kind->build(m);
    return m;
}

void model_free(model *m)
{
    if (!m) return;
    lc_module_release(&m->base);
    free(m);
}

lc_tensor *model_loss(model *m, lc_tensor *x, lc_tensor *y)
{
    lc_tensor *logits = m->kind->logits(m, x);
    if (lc_tensor_ndim(logits) == 3) {
        logits = lc_reshape(logits, -1, lc_tensor_dim(logits, 2));
        y = lc_reshape(y, -1);
    }
    return lc_cross_entropy(logits, y);
}

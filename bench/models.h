/* SPDX-License-Identifier: Apache-2.0 */
/* The networks of the benchmarks and of the law tests: each a root module with a loss over a batch (x, y). */
#ifndef LC_BENCH_MODELS_H
#define LC_BENCH_MODELS_H

#include <lightc/lightc.h>

typedef struct model model;

typedef struct model_kind {
    const char *name;
    size_t size;
    void (*build)(model *m); /* registers the layers */
    lc_tensor *(*logits)(model *m, lc_tensor *x);
} model_kind;

struct model {
    lc_module base;
    const model_kind *kind;
};

/* mlp (784-128-10), fashion (FashionCNN), resnet18 (32x32), gpt (6 x 384), gpt_small (2 x 32, for tests), lstm, noop */
const model_kind *model_find(const char *name);
/* Allocates a model; NULL with an error set. `ops` may be NULL if no trainer is used. */
model *model_new(const char *name, const lc_module_ops *ops, uint64_t seed);
void model_free(model *m);
/* Cross entropy of logits [N, classes] (or [B, T, classes]) and class ids of the other dimensions. */
lc_tensor *model_loss(model *m, lc_tensor *x, lc_tensor *y);

#endif

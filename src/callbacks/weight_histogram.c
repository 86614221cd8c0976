/* SPDX-License-Identifier: Apache-2.0 */
/* WeightHistogram: how the values of every parameter, and if asked of its gradient, are distributed; for the loggers
 * that keep histograms. Under the parameter's path, and PATH.grad. */
#include "callbacks/callbacks.h"

#include <stdlib.h>

typedef struct histograms {
    lc_weight_histogram_args a;
    lc_tensor **gradients; /* of this step; by the order of the visit */
    int n, cap, next;
    bool kept;
} histograms;

static bool due(const histograms *h, const lc_trainer *t)
{
    if (t->accumulating) return false;
    if (h->a.every_n_train_steps > 0) return (t->batches_that_stepped + 1) % h->a.every_n_train_steps == 0;
    return t->is_last_batch && (t->current_epoch + 1) % h->a.every_n_epochs == 0;
}

static lc_status keep_gradient(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    histograms *h = ctx;
    (void)path, (void)owner;
    if (!mt->is_parameter) return LC_OK;
    if (h->n == h->cap) {
        int cap = h->cap ? 2 * h->cap : 32;
        lc_tensor **gradients = realloc(h->gradients, (size_t)cap * sizeof(lc_tensor *));
        if (!gradients) return lc_fail(LC_ERR_MEMORY, "out of memory: WeightHistogram");
        h->gradients = gradients;
        h->cap = cap;
    }
    h->gradients[h->n++] = lc_tensor_requires_grad(mt->tensor) ? lc_keep(lc_gradient(mt->tensor)) : NULL;
    return LC_OK;
}

static lc_status wh_before_step(void *self, lc_trainer *t, lc_optimizer *opt)
{
    histograms *h = self;
    (void)opt;
    if (!h->a.gradients || h->kept || !t->window_backwards || !due(h, t)) return LC_OK;
    h->n = 0;
    LC_TRY(lc_module_visit(t->m, keep_gradient, h));
    h->kept = true;
    return LC_OK;
}

typedef struct log_walk {
    histograms *h;
    lc_trainer *t;
} log_walk;

static lc_status log_one(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    log_walk *w = ctx;
    lc__str name = {0};
    (void)owner;
    if (!mt->is_parameter) return LC_OK;
    LC_TRY(lc_trainer_log_histogram(w->t, path, mt->tensor, w->t->batches_that_stepped));
    lc_tensor *gradient = w->h->kept ? w->h->gradients[w->h->next++] : NULL;
    if (!gradient) return LC_OK;
    lc__str_add(&name, "%s.grad", path);
    lc_status s = name.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: WeightHistogram")
                              : lc_trainer_log_histogram(w->t, name.s, gradient, w->t->batches_that_stepped);
    lc__str_free(&name);
    return s;
}

static lc_status wh_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    histograms *h = self;
    (void)o, (void)b, (void)i;
    if (!due(h, t)) return LC_OK;
    h->next = 0;
    lc_status s = lc_module_visit(t->m, log_one, &(log_walk){h, t});
    h->kept = false;
    return s;
}

static void wh_free(void *self)
{
    free(((histograms *)self)->gradients);
    free(self);
}

static const lc_callback_ops histogram_ops = {
    LC_CALLBACK_OPS_INIT("WeightHistogram"), .ranks = LC_RANK_ZERO, .on_before_optimizer_step = wh_before_step,
    .on_train_batch_end = wh_batch_end,      .free = wh_free,
};

lc_status lc_weight_histogram_new(const lc_weight_histogram_args *args, lc_callback *out)
{
    histograms *h = calloc(1, sizeof *h);
    if (!h) return lc_fail(LC_ERR_MEMORY, "out of memory: WeightHistogram");
    if (args) h->a = *args;
    if (h->a.every_n_epochs <= 0) h->a.every_n_epochs = 1;
    *out = (lc_callback){&histogram_ops, h};
    return LC_OK;
}

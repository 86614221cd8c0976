/* SPDX-License-Identifier: Apache-2.0 */
/* WeightHistogram: how the values of every parameter, and if asked of its gradient, are distributed; for the loggers
 * that keep histograms. Under the parameter's path, and PATH.grad. */
#include "callbacks/callbacks.h"

#include <stdlib.h>

#include "optim/optim_internal.h"

typedef struct histograms {
    lc_weight_histogram_args a;
    lc__parameters weights, gradients; /* the same ones, under their two names */
    lc_tensor **kept;                  /* gradients of this step, NULL: there is none; [gradients.n] */
} histograms;

static bool due(const histograms *h, const lc_trainer *t)
{
    if (t->accumulating) return false;
    if (h->a.every_n_train_steps > 0) return (t->batches_that_stepped + 1) % h->a.every_n_train_steps == 0;
    return t->is_last_batch && (t->current_epoch + 1) % h->a.every_n_epochs == 0;
}

static lc_status wh_train_start(void *self, lc_trainer *t)
{
    histograms *h = self;
    LC_TRY(lc__parameters_collect(t->m, "", "", &h->weights));
    if (!h->a.gradients) return LC_OK;
    LC_TRY(lc__parameters_collect(t->m, "", ".grad", &h->gradients));
    free(h->kept);
    h->kept = calloc((size_t)h->gradients.n + 1, sizeof(lc_tensor *));
    return h->kept ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: WeightHistogram");
}

static lc_status wh_before_step(void *self, lc_trainer *t, lc_optimizer *opt)
{
    histograms *h = self;
    if (!h->a.gradients || !t->window_backwards || !due(h, t)) return LC_OK;
    for (int i = 0; i < h->gradients.n; i++) {
        lc_tensor *p = h->gradients.v[i];
        if (!h->kept[i] && lc_tensor_requires_grad(p) && lc__optimizer_owns(opt, p))
            h->kept[i] = lc_keep(lc_gradient(p));
    }
    return LC_OK;
}

static lc_status wh_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    histograms *h = self;
    (void)o, (void)b, (void)i;
    if (!due(h, t)) return LC_OK;
    for (int k = 0; k < h->weights.n; k++) {
        LC_TRY(lc_trainer_log_histogram(t, h->weights.names[k], h->weights.v[k], t->batches_that_stepped));
        lc_tensor *gradient = h->kept ? h->kept[k] : NULL;
        if (!gradient) continue;
        h->kept[k] = NULL;
        LC_TRY(lc_trainer_log_histogram(t, h->gradients.names[k], gradient, t->batches_that_stepped));
    }
    return LC_OK;
}

static void wh_free(void *self)
{
    histograms *h = self;
    lc__parameters_free(&h->weights);
    lc__parameters_free(&h->gradients);
    free(h->kept);
    free(h);
}

static const lc_callback_ops histogram_ops = {
    LC_CALLBACK_OPS_INIT("WeightHistogram"), .ranks = LC_RANK_ZERO,
    .on_train_start = wh_train_start,        .on_before_optimizer_step = wh_before_step,
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

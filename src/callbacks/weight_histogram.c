/* SPDX-License-Identifier: Apache-2.0 */
/* WeightHistogram: the distribution of the values of every parameter, and optionally of its gradient, for loggers that
 * keep histograms, under the parameter's path and PATH.grad. Rank 0 logs; if ranks hold slices of parameters or
 * gradients, all ranks gather them. */
#include "callbacks/callbacks.h"
#include "base/handle.h"

#include <stdlib.h>

#include "optim/optim_internal.h"
#include "tensor/host_access.h"
#include "tensor/slice.h"
#include "tensor/tensor_impl.h"

typedef struct histograms {
    lc_weight_histogram_args a;
    lc__parameters weights, gradients; /* the same parameters, under their two names */
    lc_tensor **kept;                  /* [gradients.n] gradients of this step, which rank 0 reads; NULL: none */
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
    bool helps = t->rank && t->strategy->shards_state; /* this rank takes part in gathering for rank 0, which logs */
    if (!h->a.gradients || !t->window_backwards || (t->rank && !helps) || !due(h, t)) return LC_OK;
    for (int i = 0; i < h->gradients.n; i++) {
        lc_tensor *p = h->gradients.v[i];
        if (h->kept[i] || !lc_tensor_requires_grad(p) || !lc__optimizer_owns(opt, p)) continue;
        lc_tensor *gradient = lc_gradient(p);
        h->kept[i] = helps ? gradient : lc_keep(gradient);
    }
    return LC_OK;
}

static lc_status log_weight(const histograms *h, lc_trainer *t, int k)
{
    lc_tensor *w = h->weights.v[k], *whole = NULL;
    if (!w->is_slice)
        return t->rank ? LC_OK : lc_trainer_log_histogram(t, h->weights.names[k], w, t->batches_that_stepped);
    lc_view v = {.data = NULL};
    lc_status s = lc_tensor_new(w->type.dtype, w->type.ndim, w->type.shape, &whole);
    bool mapped = s >= 0 && (s = lc__tensor_map(whole, LC__WRITE, &v)) >= 0;
    s = lc__tensor_gather(w, s, -1, v.data);
    if (mapped) lc__tensor_unmap(whole, LC__WRITE);
    if (s >= 0 && !t->rank) s = lc_trainer_log_histogram(t, h->weights.names[k], whole, t->batches_that_stepped);
    lc_tensor_unref(whole);
    return s;
}

static lc_status wh_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    histograms *h = self;
    (void)o, (void)b, (void)i;
    if (!due(h, t)) return LC_OK;
    for (int k = 0; k < h->weights.n; k++) {
        LC_TRY(log_weight(h, t, k));
        lc_tensor *gradient = h->kept ? h->kept[k] : NULL;
        if (!gradient) continue;
        h->kept[k] = NULL;
        if (!t->rank) LC_TRY(lc_trainer_log_histogram(t, h->gradients.names[k], gradient, t->batches_that_stepped));
    }
    return LC_OK;
}

static void wh_release(void *self)
{
    histograms *h = self;
    lc__parameters_free(&h->weights);
    lc__parameters_free(&h->gradients);
    free(h->kept);
}

static const lc_callback_ops histogram_ops = {
    LC_CALLBACK_OPS_INIT("WeightHistogram"), .no_vote = true,
    .on_train_start = wh_train_start,        .on_before_optimizer_step = wh_before_step,
    .on_train_batch_end = wh_batch_end,      .free = lc__owned_free,
};

lc_status lc_weight_histogram_new(const lc_weight_histogram_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_weight_histogram, given);
    if (args->every_n_epochs < 1 && args->every_n_train_steps < 1)
        return lc_fail(LC_ERR_CONFIG, "WeightHistogram: every_n_epochs is %lld; it must be positive",
                       (long long)args->every_n_epochs);
    histograms *h = lc__owned_new(sizeof *h, wh_release);
    if (!h) return lc_fail(LC_ERR_MEMORY, "out of memory: WeightHistogram");
    h->a = *args;
    *out = (lc_callback){&histogram_ops, h};
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* StochasticWeightAveraging: the mean of the weights at the start of each of the last epochs.
 *
 * Lightning adds an epoch to compute the statistics of batch norms for the averaged weights. Here, a pass over the
 * training data follows the last epoch instead, so that epochs, steps and names of checkpoints count only training. */
#include "core/loop/loop.h"
#include "callbacks/shadow.h"
#include "base/state_count.h"

#include <stdlib.h>
#include <string.h>

#include "nn/nn_internal.h"

typedef struct swa {
    double *lrs;
    int n_lrs;
    lc_duration start_at;
    int64_t annealing_epochs;
    bool linear;
    lc__shadow average;
    lc_scheduler *replaced; /* the run's own schedule; kept, since the module may hold it */
    int64_t start, end;     /* first and last epoch of averaging; end -1: none */
    bool started;
    int64_t n_averaged, latest_update_epoch;
} swa;

static lc_status sw_setup(void *self, lc_trainer *t, lc_stage stage)
{
    swa *a = self;
    (void)t;
    if (stage != LC_STAGE_FIT) return LC_OK;
    lc__shadow_free(&a->average);
    lc_scheduler_free(a->replaced);
    a->replaced = NULL;
    a->started = false;
    a->n_averaged = 0;
    a->latest_update_epoch = -1;
    return LC_OK;
}

/* From now on this callback sets the learning rate. */
static lc_status replace_schedule(swa *a, lc_trainer *t)
{
    lc_optimizer *opt = t->optimizers.optimizers[0].optimizer;
    if (a->n_lrs != 1 && a->n_lrs != opt->n_groups)
        return lc_fail(LC_ERR_CONFIG, "StochasticWeightAveraging: %d swa_lrs for an optimizer of %d groups", a->n_lrs,
                       opt->n_groups);
    for (int g = 0; g < opt->n_groups; g++) opt->groups[g].initial_lr = a->lrs[a->n_lrs == 1 ? 0 : g];
    lc_scheduler_config *c = &t->optimizers.schedulers[0];
    lc_scheduler *s = lc_swa_lr(opt, .anneal_epochs = a->annealing_epochs, .linear = a->linear);
    if (!s) return lc_module_status(t->m);
    if (t->optimizers.n_schedulers) {
        if (c->interval != LC_INTERVAL_EPOCH || c->frequency != 1)
            lc_trainer_message(
                t, LC_WARNING,
                "StochasticWeightAveraging steps its schedule once per epoch, but %s was stepped otherwise",
                lc_scheduler_name(c->scheduler));
        lc_trainer_message(t, LC_INFO, "swapping scheduler %s for SWALR", lc_scheduler_name(c->scheduler));
        a->replaced = c->scheduler;
    }
    *c = (lc_scheduler_config){.scheduler = s, .frequency = 1};
    t->optimizers.n_schedulers = 1;
    a->started = true;
    return LC_OK;
}

static lc_status sw_fit_start(void *self, lc_trainer *t)
{
    swa *a = self;
    if (t->optimizers.n != 1)
        return lc_fail(LC_ERR_CONFIG, "StochasticWeightAveraging needs exactly one optimizer; there are %d",
                       t->optimizers.n);
    if (t->optimizers.n_schedulers > 1)
        return lc_fail(LC_ERR_CONFIG, "StochasticWeightAveraging allows at most one scheduler; there are %d",
                       t->optimizers.n_schedulers);
    if (a->start_at.unit == LC_UNIT_FRACTION && t->max_epochs < 0)
        return lc_fail(LC_ERR_CONFIG,
                       "StochasticWeightAveraging: swa_epoch_start=%g is a fraction of max_epochs, which has no limit; "
                       "use LC_EPOCHS(n)",
                       a->start_at.value);
    int64_t epoch = a->start_at.unit == LC_UNIT_FRACTION ? (int64_t)((double)t->max_epochs * a->start_at.value)
                                                         : (int64_t)a->start_at.value;
    a->start = epoch > 1 ? epoch - 1 : 0;
    a->end = t->max_epochs - 1;
    if (!a->average.n) LC_TRY(lc__shadow_new(t->m, LC__NO_BUFFERS, &a->average));
    /* A run resumed after the start needs that schedule before its state is read. */
    return a->started ? replace_schedule(a, t) : LC_OK;
}

static bool averaging_epoch(const swa *a, const lc_trainer *t)
{
    return t->current_epoch >= a->start && (t->max_epochs < 0 || t->current_epoch <= a->end);
}

static lc_status sw_epoch_start(void *self, lc_trainer *t)
{
    swa *a = self;
    if (!averaging_epoch(a, t)) return LC_OK;
    if (!a->started) LC_TRY(replace_schedule(a, t));
    if (t->current_epoch <= a->latest_update_epoch) return LC_OK;
    LC_TRY(lc__shadow_update(&a->average, t, 1 / (double)(a->n_averaged + 1)));
    a->n_averaged++;
    a->latest_update_epoch = t->current_epoch;
    return LC_OK;
}

/* ---- batch norms ---- */

/* A batch norm that tracks statistics, and its original momentum. */
typedef struct kept_norm {
    lc_batch_norm_layer *layer;
    double momentum;
} kept_norm;

typedef struct batch_norms {
    kept_norm *v; /* NULL: they are only counted */
    int n;
} batch_norms;

static void find_batch_norms(lc_module *m, batch_norms *out)
{
    lc_batch_norm_layer *layer = lc__as_batch_norm(m);
    if (layer && layer->running_mean) {
        if (out->v) out->v[out->n] = (kept_norm){layer, layer->momentum};
        out->n++;
    }
    for (int i = 0; i < m->n_children; i++) find_batch_norms(m->children[i], out);
}

/* Makes the statistics a mean over the batches so far, as PyTorch with momentum=None. */
static void before_batch(void *ctx, int64_t batch_idx)
{
    const batch_norms *k = ctx;
    for (int i = 0; i < k->n; i++) k->v[i].layer->momentum = 1 / (double)(batch_idx + 1);
}

static lc_status update_batch_norms(lc_trainer *t)
{
    batch_norms k = {0};
    int64_t zero = 0;
    lc_status status = LC_OK;
    find_batch_norms(t->m, &k);
    if (!k.n) return LC_OK;
    k.v = calloc((size_t)k.n, sizeof *k.v);
    if (!k.v) return lc_fail(LC_ERR_MEMORY, "out of memory: StochasticWeightAveraging");
    k.n = 0;
    find_batch_norms(t->m, &k);
    for (int i = 0; i < k.n && status >= 0; i++)
        status = lc_tensor_write(k.v[i].layer->num_batches_tracked, &zero, sizeof zero);
    if (status >= 0) status = lc__forward_epoch(t, before_batch, &k);
    for (int i = 0; i < k.n; i++) k.v[i].layer->momentum = k.v[i].momentum;
    free(k.v);
    return status;
}

static lc_status sw_train_end(void *self, lc_trainer *t)
{
    swa *a = self;
    if (!a->n_averaged) return LC_OK;
    if (t->max_epochs >= 0 && t->current_epoch - 1 != a->end) {
        lc_trainer_message(t, LC_WARNING,
                           "training ended in epoch %lld of %lld, before StochasticWeightAveraging was complete: the "
                           "model keeps its own weights, not the averaged ones",
                           (long long)t->current_epoch, (long long)t->max_epochs);
        return LC_OK;
    }
    LC_TRY(lc__shadow_give(&a->average));
    return update_batch_norms(t);
}

/* ---- state ---- */

static lc_status sw_save(void *self, lc_trainer *t, lc_state *out)
{
    swa *a = self;
    (void)t;
    LC_TRY(lc_state_set_int(out, "n_averaged", a->n_averaged));
    LC_TRY(lc_state_set_int(out, "latest_update_epoch", a->latest_update_epoch));
    return lc_state_set_bool(out, "started", a->started);
}

static lc_status sw_load(void *self, lc_trainer *t, const lc_state *in)
{
    swa *a = self;
    LC_TRY(lc__state_get_count(in, "n_averaged", 0, &a->n_averaged));
    LC_TRY(lc__state_get_count(in, "latest_update_epoch", -1, &a->latest_update_epoch));
    LC_TRY(lc_state_get_bool(in, "started", &a->started));
    return a->average.n ? LC_OK : lc__shadow_new(t->m, LC__NO_BUFFERS, &a->average);
}

static lc_status sw_visit(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx)
{
    swa *a = self;
    (void)t;
    return lc__shadow_visit(&a->average, "average", false, fn, ctx);
}

static void sw_release(void *self)
{
    swa *a = self;
    lc__shadow_free(&a->average);
    lc_scheduler_free(a->replaced);
    free(a->lrs);
}

static const lc_callback_ops swa_ops = {
    LC_CALLBACK_OPS_INIT("StochasticWeightAveraging"),
    .setup = sw_setup,
    .on_fit_start = sw_fit_start,
    .on_train_epoch_start = sw_epoch_start,
    .on_train_end = sw_train_end,
    .save_state = sw_save,
    .load_state = sw_load,
    .free = lc__owned_free,
    .visit_tensors = sw_visit,
};

static lc_status check(const lc_stochastic_weight_averaging_args *a)
{
    lc_duration d = a->swa_epoch_start;
    bool part = d.unit == LC_UNIT_FRACTION && d.value >= 0 && d.value <= 1;
    bool whole = d.unit == LC_UNIT_EPOCHS && d.value >= 1 && d.value == floor(d.value);
    if (!part && !whole)
        return lc_fail(LC_ERR_CONFIG, "StochasticWeightAveraging: swa_epoch_start must be LC_FRACTION(0 to 1) or "
                                      "LC_EPOCHS(1 or more)");
    if (!a->swa_lrs || a->n_swa_lrs < 1)
        return lc_fail(LC_ERR_CONFIG,
                       "StochasticWeightAveraging needs swa_lrs, the learning rate (or rates) to anneal to");
    for (int i = 0; i < a->n_swa_lrs; i++)
        if (!(a->swa_lrs[i] > 0))
            return lc_fail(LC_ERR_CONFIG,
                           "StochasticWeightAveraging: swa_lrs contains %g; learning rates must be positive",
                           a->swa_lrs[i]);
    if (a->annealing_strategy && strcmp(a->annealing_strategy, "cos") != 0 &&
        strcmp(a->annealing_strategy, "linear") != 0)
        return lc_fail(LC_ERR_CONFIG,
                       "StochasticWeightAveraging: annealing_strategy is \"%.40s\"; it must be cos or linear",
                       a->annealing_strategy);
    if (a->annealing_epochs < 0)
        return lc_fail(LC_ERR_CONFIG, "StochasticWeightAveraging: annealing_epochs is %lld; it must not be negative",
                       (long long)a->annealing_epochs);
    return LC_OK;
}

lc_status lc_stochastic_weight_averaging_new(const lc_stochastic_weight_averaging_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_stochastic_weight_averaging, given);
    LC_TRY(check(args));
    swa *a = lc__owned_new(sizeof *a, sw_release);
    double *lrs = malloc((size_t)args->n_swa_lrs * sizeof *lrs);
    if (!a || !lrs) {
        lc__owned_free(a);
        free(lrs);
        return lc_fail(LC_ERR_MEMORY, "out of memory: StochasticWeightAveraging");
    }
    memcpy(lrs, args->swa_lrs, (size_t)args->n_swa_lrs * sizeof *lrs);
    a->lrs = lrs;
    a->n_lrs = args->n_swa_lrs;
    a->start_at = args->swa_epoch_start;
    a->annealing_epochs = args->annealing_epochs;
    a->linear = args->annealing_strategy && !strcmp(args->annealing_strategy, "linear");
    *out = (lc_callback){&swa_ops, a};
    return LC_OK;
}

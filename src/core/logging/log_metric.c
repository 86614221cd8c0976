/* SPDX-License-Identifier: Apache-2.0 */
/* lc_log_metric: logs the value of a metric.
 *
 * The entry borrows the metric from its first log in an epoch until the epoch's rows are sent; then the metric is reset
 * and forgotten. A checkpoint inside an epoch contains the metric's state. A run that continues knows the metric only
 * when it is logged again, so rank 0's entry keeps the state until then. If no batch is left to log it, the epoch has
 * the value saved with the state. */
#include "core/logging/logging.h"
#include "core/hooks/trainer_internal.h"
#include "metrics/metrics_internal.h"

#include <stdlib.h>
#include <string.h>

lc_status lc__logged_keep(lc__logged *e)
{
    int64_t n = 0;
    LC_TRY(lc_metric_save(e->metric, NULL, &n));
    double *state = realloc(e->state, ((size_t)n + 1) * sizeof *state);
    if (!state) return lc_fail(LC_ERR_MEMORY, "out of memory: the state of metric %s", e->name);
    e->state = state;
    LC_TRY(lc_metric_save(e->metric, state, &n));
    e->n_state = n;
    e->weight = lc_metric_compute(e->metric, &e->sum) >= 0;
    return LC_OK;
}

void lc__logged_give(lc__logged *e, double *state, int64_t n)
{
    free(e->state);
    e->state = state;
    e->n_state = n;
}

static void forget_state(lc__logged *e)
{
    lc__logged_give(e, NULL, 0);
}

void lc__logged_drop(lc__logged *e)
{
    if (!e->of_metric) e->sum = e->weight = 0;
    if (e->exact) *e->exact = (lc__exact_sums){0};
    forget_state(e);
}

/* Merges what the metric has counted since into the state of the checkpoint. An update adds a batch's state to the
 * existing one, so the numbers are those of an uninterrupted run. */
static lc_status continue_from(const lc__logged *e, lc_metric *metric)
{
    int64_t n = 0;
    LC_TRY(lc_metric_save(metric, NULL, &n));
    double *since = malloc(((size_t)n + 1) * sizeof *since);
    if (!since) return lc_fail(LC_ERR_MEMORY, "out of memory: the state of metric %s", e->name);
    lc_status s = lc_metric_save(metric, since, &n);
    if (s >= 0) s = lc_metric_load(metric, e->state, e->n_state);
    if (s >= 0) s = lc_metric_merge_state(metric, since, n);
    free(since);
    return s < 0 ? lc_fail_context(s, "metric %s, as in the checkpoint", e->name) : LC_OK;
}

/* A metric counts the samples of training, or those of one loader of an evaluation. */
static lc_status check_owner(const lc_trainer *t, const lc__results *r, const lc__logged *e, const lc_metric *metric)
{
    const lc__results *all[] = {&t->logging->train_results, &t->logging->eval_results};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < all[k]->n; i++) {
            const lc__logged *other = &all[k]->e[i];
            if (other->metric != metric) continue;
            if (all[k] != r)
                return lc_fail(LC_ERR_CONFIG,
                               "metric %s: training logs it too; training and validation need metrics of their own",
                               e->name);
            if (other->source != e->source && other->source >= 0 && e->source >= 0)
                return lc_fail(LC_ERR_CONFIG,
                               "metric %s: another loader logs it too; each needs a metric of its own, chosen by "
                               "dataloader_idx",
                               e->name);
        }
    return LC_OK;
}

lc_status lc__logged_metric(const lc_trainer *t, lc__results *r, lc__logged *e, lc_metric *metric)
{
    if (!e->metric) LC_TRY(check_owner(t, r, e, metric));
    if (!e->metric && e->state) {
        bool known = false; /* under another name, so it has already been continued */
        for (int i = 0; i < r->n && !known; i++) known = r->e[i].metric == metric;
        if (!known) LC_TRY(continue_from(e, metric));
        forget_state(e);
    }
    e->metric = metric;
    e->computed = false;
    return LC_OK;
}

lc_status lc__logged_compute(lc_trainer *t, lc__logged *e)
{
    if (!e->active || !e->of_metric || e->computed) return LC_OK;
    if (!e->metric)
        return lc_fail(LC_ERR_STATE,
                       "metric %s had no value yet when the checkpoint was saved, and has not been logged since",
                       e->name);
    if (!lc__metric_has_counted(e->metric) && !e->warned) {
        e->warned = true;
        lc_trainer_message(t, LC_WARNING,
                           "metric %s was logged, but has counted nothing: update it for each batch "
                           "(lc_metric_update_tensor), before lc_log_metric",
                           e->name);
    }
    lc_status s = lc_metric_compute(e->metric, &e->sum);
    if (s < 0) return lc_fail_context(s, "metric %s", e->name);
    e->weight = 1;
    e->computed = true;
    return LC_OK;
}

void lc__logged_forget(lc__logged *e)
{
    if (e->metric) lc_metric_reset(e->metric);
    e->metric = NULL;
    forget_state(e);
}

lc_status lc__results_keep(lc__results *r)
{
    lc_status status = LC_OK;
    for (int i = 0; i < r->n && status >= 0; i++) {
        lc__logged *e = &r->e[i];
        if (!e->metric) continue;
        status = lc__logged_keep(e);
        e->computed = e->weight > 0;
    }
    return status;
}

void lc__results_release(lc__results *r)
{
    for (int i = 0; i < r->n; i++) {
        if (r->e[i].metric) lc_metric_reset(r->e[i].metric);
        r->e[i].metric = NULL;
    }
}

/* ---- in checkpoints ---- */

lc_status lc__logged_metric_save(lc__logged *e, lc_state *out)
{
    lc_state *state;
    if (!e->of_metric) return LC_OK;
    if (e->metric) LC_TRY(lc__logged_keep(e));
    LC_TRY(lc_state_set_array(out, "metric", &state));
    for (int64_t i = 0; i < e->n_state; i++) LC_TRY(lc_state_set_double(state, NULL, e->state[i]));
    return LC_OK;
}

lc_status lc__logged_metric_load(lc__logged *e, const lc_state *in)
{
    const lc_state *state = lc_state_find(in, "metric");
    if (!state) return LC_OK;
    int64_t n = lc_state_length(state);
    forget_state(e);
    e->state = malloc(((size_t)n + 1) * sizeof *e->state);
    if (!e->state) return lc_fail(LC_ERR_MEMORY, "out of memory: the state of metric %s", e->name);
    for (int64_t i = 0; i < n; i++) LC_TRY(lc_state_get_double(lc_state_at(state, i), NULL, &e->state[i]));
    e->n_state = n;
    e->of_metric = true;
    e->computed = e->weight > 0;
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Rows: the logged values that are sent to loggers, and when. */
#include "core/input/input.h"
#include "core/logging/arrivals.h"
#include "core/hooks/trainer_internal.h"
#include "base/grow.h"
#include "base/handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool lc__log_interval_due(const lc_trainer *t)
{
    int64_t n = t->opt.log_every_n_steps;
    int64_t step = t->input->eval_batches ? t->input->eval_batches : t->batches_that_stepped + 1;
    return n > 0 && (lc__should_stop(t) || step % n == 0);
}

bool lc__should_log(const lc_trainer *t)
{
    return t->opt.fast_dev_run || lc__log_interval_due(t);
}

lc_status lc__row_check(const lc_metric_value *values, int n)
{
    LC_TRY(lc__list_check("values", n, values));
    for (int i = 0; i < n; i++)
        if (!values[i].name) return lc_fail(LC_ERR_ARGUMENT, "value %d of the row has no name", i);
    return LC_OK;
}

int lc__row_insert(lc_metric_value *row, int n, const char *name, double value)
{
    int i = n;
    while (i > 0) {
        int c = strcmp(row[i - 1].name, name);
        if (c == 0) {
            row[i - 1].value = value;
            return n;
        }
        if (c < 0) break;
        i--;
    }
    memmove(row + i + 1, row + i, (size_t)(n - i) * sizeof *row);
    row[i] = (lc_metric_value){name, value};
    return n + 1;
}

/* A name without a suffix belongs to the loader that logged it. */
static bool is_of_loader(const lc__logged *e, int loader)
{
    if (loader == LC__ALL_LOADERS || e->loader == loader) return true;
    return e->loader == LC__NO_LOADER && (e->source == loader || e->source == LC__ALL_LOADERS);
}

/* Puts the values into the row. */
static lc_status collect(lc_trainer *t, lc__results *r, lc__values which, int loader, int *out)
{
    int n = 0;
    LC_TRY(lc__grow(&t->logging->row, &t->logging->cap_row, 0, r->n, "a row of values"));
    for (int i = 0; i < r->n; i++) {
        lc__logged *e = &r->e[i];
        bool wanted = which == LC__EPOCH_VALUES ? e->on_epoch : e->on_step;
        if (!e->active || !e->logger || !is_of_loader(e, loader) || !wanted) continue;
        LC_TRY(lc__arrivals_settle(t));
        if (which == LC__EPOCH_VALUES ? e->weight == 0 : !e->has_step) continue;
        n = which == LC__EPOCH_VALUES ? lc__row_insert(t->logging->row, n, e->epoch_name, lc__logged_epoch_value(e))
                                      : lc__row_insert(t->logging->row, n, e->step_name, e->step);
    }
    *out = n;
    return LC_OK;
}

static lc_status send(lc_trainer *t, int n, int64_t step, int64_t epoch)
{
    lc__metric_map *logged = &t->logging->metrics[LC_LOGGED_METRICS];
    if (!t->logging->n_loggers) return LC_OK;
    for (int i = 0; i < n; i++) {
        int slot = lc__map_slot(logged, t->logging->row[i].name);
        if (slot >= 0) logged->v[slot].value = t->logging->row[i].value;
    }
    lc_log_row row = {.values = t->logging->row, .n = n, .step = step, .epoch = epoch, .time_ns = lc__realtime_ns()};
    return lc__loggers_row(t, &row);
}

/* A value named "step" replaces the trainer's step, and the epoch. */
static lc_status take_step(lc_trainer *t, int *n, int64_t *step, int64_t *epoch)
{
    lc_metric_value *row = t->logging->row;
    for (int i = 0; i < *n; i++) {
        if (strcmp(row[i].name, "step") != 0) continue;
        if (!(fabs(row[i].value) < 1e15))
            return lc_fail(LC_ERR_CONFIG, "the value logged as \"step\", which replaces the step of its row, is %g",
                           row[i].value);
        *step = (int64_t)row[i].value;
        *epoch = -1;
        memmove(row + i, row + i + 1, (size_t)(*n - i - 1) * sizeof *row);
        --*n;
        break;
    }
    return LC_OK;
}

lc_status lc__rows_send(lc_trainer *t, lc__results *r, lc__values which)
{
    int n;
    LC_TRY(collect(t, r, which, LC__ALL_LOADERS, &n));
    if (!n) return LC_OK;
    int64_t step = t->batches_that_stepped, epoch = t->current_epoch;
    LC_TRY(take_step(t, &n, &step, &epoch));
    return send(t, n, step, epoch);
}

lc_status lc__rows_send_eval(lc_trainer *t, lc__results *r, int64_t step, int loader)
{
    int n;
    LC_TRY(collect(t, r, LC__STEP_VALUES, loader, &n));
    return n ? send(t, n, step, -1) : LC_OK;
}

lc_status lc_trainer_log_row(lc_trainer *t, const lc_metric_value *values, int n, int64_t step, int64_t epoch)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC_TRY(lc__row_check(values, n));
    int sorted = 0;
    LC_TRY(lc__grow(&t->logging->row, &t->logging->cap_row, 0, n, "a row of values"));
    for (int i = 0; i < n; i++) sorted = lc__row_insert(t->logging->row, sorted, values[i].name, values[i].value);
    return n ? send(t, sorted, step, epoch) : LC_OK;
}

/* Keeps the values that validate or test will return for a loader. */
lc_status lc__rows_keep_results(lc_trainer *t, lc__results *r, int loader)
{
    int n;
    LC_TRY(collect(t, r, LC__EPOCH_VALUES, t->input->eval.n > 1 ? loader : LC__NO_LOADER, &n));
    free(t->logging->result_values[loader]);
    t->logging->n_result_values[loader] = 0;
    t->logging->result_values[loader] = malloc((size_t)(n + 1) * sizeof *t->logging->row);
    if (!t->logging->result_values[loader]) return lc_fail(LC_ERR_MEMORY, "out of memory: results of %d values", n);
    if (n) memcpy(t->logging->result_values[loader], t->logging->row, (size_t)n * sizeof *t->logging->row);
    t->logging->n_result_values[loader] = n;
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Logged values of several ranks: their reduction, and their names for ranks that logged nothing because they had no
 * samples. Ranks must reduce values in the same order, so the first rank with samples sends its names to the others. */
#include "core/logging/results_ranks.h"

#include "core/logging/arrivals.h"
#include "core/input/input.h"
#include "comm/agree.h"
#include "base/status.h"
#include "data/batch_slice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* An entry in a message, followed by its name. */
typedef struct sent {
    int64_t length, hook, loader, source, on_step, on_epoch, of_metric;
    lc_log_args args; /* without the site */
} sent;

static bool pack(const lc__results *r, lc__str *out)
{
    for (int i = 0; i < r->n; i++) {
        const lc__logged *e = &r->e[i];
        if (!lc__is_of_all_ranks(e)) continue;
        sent s;
        memset(&s, 0, sizeof s);
        s.length = (int64_t)strlen(e->base) + 1;
        s.hook = e->hook, s.loader = e->loader, s.source = e->source;
        s.on_step = e->on_step, s.on_epoch = e->on_epoch, s.of_metric = e->of_metric;
        s.args = e->args;
        s.args.site = (lc_site){0};
        lc__str_add_bytes(out, (const char *)&s, sizeof s);
        lc__str_add_bytes(out, e->base, (size_t)s.length);
    }
    return !out->failed;
}

/* Moves entry `i` down to `to`; those between move up. */
static void move_entry(lc__results *r, int i, int to)
{
    lc__logged e = r->e[i];
    memmove(&r->e[to + 1], &r->e[to], (size_t)(i - to) * sizeof e);
    r->e[to] = e;
}

static lc_status take(lc__results *r, const sent *s, const char *name, int to)
{
    lc__logged *e = lc__results_find(r, name, (lc_hook)s->hook, (int)s->loader);
    if (!e) {
        e = lc__results_add(r, name, (lc_hook)s->hook, (int)s->loader, &s->args, s->on_step, s->on_epoch);
        if (!e) return LC_ERR_MEMORY;
        e->of_metric = s->of_metric;
    }
    e->given = e->base; /* the received name is temporary */
    e->active = true;
    e->source = (int)s->source;
    move_entry(r, (int)(e - r->e), to);
    return LC_OK;
}

static lc_status unpack(lc__results *r, const char *text, size_t n)
{
    int to = 0;
    for (size_t at = 0; at < n; to++) {
        sent s;
        memcpy(&s, text + at, sizeof s);
        LC_TRY(take(r, &s, text + at + sizeof s, to));
        at += sizeof s + (size_t)s.length;
    }
    r->cursor = 0;
    return LC_OK;
}

lc_status lc__share_names(lc_trainer *t, lc__results *r, const lc__source *source, const lc_batch *batch)
{
    lc__str text = {0};
    if (!t->comm || !lc__source_is_shared(source) || !lc__leaves_ranks_empty(t, source, batch)) return LC_OK;
    bool empty = lc__is_empty_share(batch);
    int64_t n, first = empty ? 0 : t->n_ranks - t->rank; /* the first rank has the largest number */
    LC_TRY(lc_comm_all_reduce(t->comm, &first, &first, 1, LC_I64, LC_COMM_MAX, NULL));
    int from = t->n_ranks - (int)first;
    if (!first) return LC_OK;
    if (t->rank == from && !pack(r, &text)) {
        lc__str_free(&text);
        return lc_fail(LC_ERR_MEMORY, "out of memory: the names of logged values");
    }
    n = (int64_t)text.n;
    lc_status status = lc_comm_broadcast(t->comm, &n, 1, LC_I64, from, NULL);
    char *all = status >= 0 && t->rank != from ? malloc((size_t)n + 1) : text.s;
    if (status >= 0 && n && !all) status = lc_fail(LC_ERR_MEMORY, "out of memory: the names of logged values");
    if (status >= 0 && n) status = lc_comm_broadcast(t->comm, all, n, LC_U8, from, NULL);
    if (status >= 0 && n && empty) status = lc__arrivals_settle(t); /* entries move */
    if (status >= 0 && n && empty) status = unpack(r, all, (size_t)n);
    if (t->rank != from) free(all);
    lc__str_free(&text);
    return status;
}

/* Ranks reduce values in the order in which they were first logged, so the order must be the same. */
static lc_status check_same_names(lc_trainer *t, const lc__results *r)
{
    static const char *const how[] = {
        [LC_LOG_MEAN] = "mean", [LC_LOG_SUM] = "sum", [LC_LOG_MIN] = "min", [LC_LOG_MAX] = "max"};
    lc__str text = {0};
    if (!t->comm) return LC_OK;
    for (int i = 0; i < r->n; i++)
        if (lc__is_of_all_ranks(&r->e[i]))
            lc__str_add(&text, "%s (%s)\n", r->e[i].name, r->e[i].of_metric ? "metric" : how[r->e[i].args.reduce_fx]);
    lc__str_add(&text, "no more\n");
    lc_status s = lc__ranks_compare(t->comm, "logged values", &text);
    lc__str_free(&text);
    if (s != LC_ERR_STATE) return s;
    char why[1024];
    lc__copy_message(why, sizeof why);
    return lc_fail(s, "%s; log every value on every rank, in the same order, or with .rank_zero_only", why);
}

lc_status lc__look_at_names(lc_trainer *t, const lc_batch *batch)
{
    if (!t->comm || t->epochs_processed) return LC_OK;
    if (lc__source_is_shared(&t->input->train) && lc__leaves_ranks_empty(t, &t->input->train, batch)) return LC_OK;
    lc_status s = lc__ranks_agree(t->comm, check_same_names(t, &t->logging->train_results));
    if (s != LC_ERR_STATE) return s;
    lc_trainer_message(t, LC_WARNING,
                       "%s (in the first batch; the run fails if this is still so at the end of the epoch)",
                       lc_error_message());
    return LC_OK;
}

/* ---- values ---- */

static bool waits(const lc__logged *e)
{
    return e->active && !e->reduced;
}

static bool is_global(const lc__logged *e)
{
    return waits(e) && e->on_epoch && !e->args.rank_zero_only && !e->of_metric;
}

bool lc__is_of_all_ranks(const lc__logged *e)
{
    return is_global(e) || (waits(e) && (e->of_metric || (e->on_step && e->args.sync_dist)));
}

bool lc__results_are_shared(const lc__results *r)
{
    bool any = false;
    for (int i = 0; i < r->n; i++) any |= is_global(&r->e[i]) || (waits(&r->e[i]) && r->e[i].of_metric);
    return any;
}

lc_status lc__ranks_reduce(lc_comm *comm, double *values, int n, lc_log_reduce how)
{
    static const lc_reduce_op ops[] = {[LC_LOG_MEAN] = LC_COMM_SUM,
                                       [LC_LOG_SUM] = LC_COMM_SUM,
                                       [LC_LOG_MIN] = LC_COMM_MIN,
                                       [LC_LOG_MAX] = LC_COMM_MAX};
    if (!comm || n == 0) return LC_OK;
    LC_TRY(lc_comm_all_reduce(comm, values, values, n, LC_F64, ops[how], NULL));
    for (int i = 0; i < n && how == LC_LOG_MEAN; i++) values[i] /= lc_comm_size(comm);
    return LC_OK;
}

lc_status lc__metric_from_rank_zero(lc_trainer *t, const char *name, bool *found, double *value)
{
    const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
    int at = lc__map_find(m, name);
    double v[2] = {at >= 0, at >= 0 ? m->v[at].value : 0};
    LC_TRY(lc__from_rank_zero(t->comm, v, sizeof v));
    *found = v[0] != 0;
    *value = v[1];
    return LC_OK;
}

/* Merges all states in the order of ranks, so that all ranks get the same numbers. A rank that does not know the metric
 * has the checkpoint's state, or none. */
static lc_status merge_states(lc_trainer *t, const lc__logged *e, int64_t most)
{
    int64_t n = e->metric ? most : e->n_state, size = t->n_ranks;
    double *mine = calloc((size_t)most + 1, sizeof *mine);
    double *all = calloc((size_t)(most + 1) * (size_t)size, sizeof *all);
    bool first = true;
    lc_status status = LC_OK;
    if (!mine || !all)
        LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: metric %s of all ranks", e->name));
    if (e->metric)
        LC_TRY_GOTO(status, done, lc_metric_save(e->metric, mine + 1, &n));
    else if (e->state)
        memcpy(mine + 1, e->state, (size_t)n * sizeof *mine);
    mine[0] = e->metric || e->state ? (double)n : -1;
    LC_TRY_GOTO(status, done, lc_comm_all_gather(t->comm, mine, all, most + 1, LC_F64, NULL));
    for (int64_t r = 0; r < size && e->metric && status >= 0; r++) {
        const double *state = all + r * (most + 1);
        if (state[0] < 0) continue;
        status = first ? lc_metric_load(e->metric, state + 1, (int64_t)state[0])
                       : lc_metric_merge_state(e->metric, state + 1, (int64_t)state[0]);
        first = false;
    }
done:
    free(mine);
    free(all);
    return status;
}

/* Sends the state and value of rank `from` to all. */
static lc_status broadcast_metric(lc_trainer *t, lc__logged *e, int from)
{
    if (t->rank == from) LC_TRY(lc__logged_keep(e));
    double head[] = {(double)e->n_state, e->sum, e->weight};
    LC_TRY(lc_comm_broadcast(t->comm, head, 3, LC_F64, from, NULL));
    int64_t n = (int64_t)head[0];
    double *state = calloc((size_t)n + 1, sizeof *state);
    if (!state) return lc_fail(LC_ERR_MEMORY, "out of memory: metric %s of rank %d", e->name, from);
    if (t->rank == from) memcpy(state, e->state, (size_t)n * sizeof *state);
    lc_status status = lc_comm_broadcast(t->comm, state, n, LC_F64, from, NULL);
    if (status >= 0 && e->metric) status = lc_metric_load(e->metric, state, n);
    if (status < 0 || e->metric) {
        free(state);
        return status;
    }
    lc__logged_give(e, state, n);
    e->sum = head[1];
    e->weight = head[2];
    e->computed = e->weight > 0;
    return LC_OK;
}

/* In the epoch with which a run continues, a rank without samples may not know a metric, or not under all of its names.
 * It gets the state of the others. */
static lc_status reduce_metric(lc_trainer *t, const lc__results *r, int i)
{
    enum { MOST, KNOWN, AGAIN, NOT_KNOWN, NOT_AGAIN, HEAD }; /* the first rank has the largest number */
    lc__logged *e = &r->e[i];
    bool again = false;
    for (int k = 0; k < r->n && e->metric && !again; k++)
        again = (k < i || r->e[k].reduced) && r->e[k].active && r->e[k].metric == e->metric;
    int64_t n = e->n_state, mark = t->n_ranks - t->rank;
    if (e->metric) LC_TRY(lc_metric_save(e->metric, NULL, &n));
    int64_t head[HEAD] = {n, e->metric ? mark : 0, again ? mark : 0, !e->metric, !again};
    LC_TRY(lc_comm_all_reduce(t->comm, head, head, HEAD, LC_I64, LC_COMM_MAX, NULL));
    if (head[AGAIN]) return head[NOT_AGAIN] ? broadcast_metric(t, e, t->n_ranks - (int)head[AGAIN]) : LC_OK;
    if (!head[KNOWN]) return LC_OK; /* no rank has counted since */
    LC_TRY(merge_states(t, e, head[MOST]));
    return head[NOT_KNOWN] ? broadcast_metric(t, e, t->n_ranks - (int)head[KNOWN]) : LC_OK;
}

static lc_status reduce_metrics(lc_trainer *t, lc__results *r)
{
    for (int i = 0; i < r->n; i++) {
        const lc__logged *e = &r->e[i];
        if (!waits(e) || !e->of_metric) continue;
        lc_status s = reduce_metric(t, r, i);
        if (s < 0) return lc_fail_context(s, "metric %s, over all ranks", e->name);
    }
    return LC_OK;
}

/* Adds sums and weights logged since the last call; for minimum and maximum, a rank without a value must not count. */
lc_status lc__results_reduce(lc_trainer *t, lc__results *r)
{
    if (!t->comm) return LC_OK;
    LC_TRY(lc__arrivals_settle(t));
    LC_TRY(check_same_names(t, r));
    LC_TRY(reduce_metrics(t, r));
    double *v = malloc(((size_t)r->n + 1) * 2 * sizeof *v);
    int n = 0;
    if (!v) return lc_fail(LC_ERR_MEMORY, "out of memory: values of %d names over all ranks", r->n);
    for (int i = 0; i < r->n; i++) {
        const lc__logged *e = &r->e[i];
        if (!is_global(e)) continue;
        bool least = e->args.reduce_fx == LC_LOG_MIN, most = e->args.reduce_fx == LC_LOG_MAX;
        v[2 * n] = least || most ? 0 : e->sum;
        v[2 * n + 1] = e->weight;
        n++;
    }
    lc_status s = lc__ranks_reduce(t->comm, v, 2 * n, LC_LOG_SUM);
    for (int i = 0, k = 0; i < r->n && s >= 0; i++) {
        lc__logged *e = &r->e[i];
        if (!is_global(e)) continue;
        if (e->args.reduce_fx == LC_LOG_MIN || e->args.reduce_fx == LC_LOG_MAX) {
            bool least = e->args.reduce_fx == LC_LOG_MIN;
            double one = e->weight > 0 ? e->sum : least ? INFINITY : -INFINITY;
            s = lc__ranks_reduce(t->comm, &one, 1, (lc_log_reduce)e->args.reduce_fx);
            v[2 * k] = one;
        }
        if (e->exact && s >= 0) s = lc__ranks_reduce_exact(t->comm, &e->exact->epoch);
        e->sum = v[2 * k];
        e->weight = v[2 * k + 1];
        k++;
    }
    free(v);
    for (int i = 0; i < r->n && s >= 0; i++) r->e[i].reduced = r->e[i].active;
    return s;
}

typedef struct kept_sums {
    lc__exact_sum exact;
    double sum, weight, *state;
    int64_t n_state;
    bool computed, reduced;
    bool adds; /* a sum of doubles over all ranks */
} kept_sums;

static lc_status keep(const lc__logged *e, kept_sums *k)
{
    k->sum = e->sum;
    k->weight = e->weight;
    k->computed = e->computed;
    k->reduced = e->reduced;
    k->adds = is_global(e) && !e->exact && e->args.reduce_fx <= LC_LOG_SUM;
    if (e->exact) k->exact = e->exact->epoch;
    if (!e->active || (e->metric ? e->reduced : !e->state)) return LC_OK;
    k->n_state = e->n_state;
    if (e->metric) LC_TRY(lc_metric_save(e->metric, NULL, &k->n_state));
    k->state = malloc(((size_t)k->n_state + 1) * sizeof *k->state);
    if (!k->state) return lc_fail(LC_ERR_MEMORY, "out of memory: the state of metric %s", e->name);
    if (e->metric) return lc_metric_save(e->metric, k->state, &k->n_state);
    memcpy(k->state, e->state, (size_t)k->n_state * sizeof *k->state);
    return LC_OK;
}

/* Restores this rank's sums; owns the state of `k`. */
static lc_status give_back(lc__logged *e, kept_sums *k)
{
    e->of_ranks = NULL;
    e->sum = k->sum;
    e->weight = k->weight;
    e->computed = k->computed;
    e->reduced = k->reduced;
    if (e->exact) e->exact->epoch = k->exact;
    if (!e->metric) {
        lc__logged_give(e, k->state, k->n_state);
        return LC_OK;
    }
    lc_status s = k->state ? lc_metric_load(e->metric, k->state, k->n_state) : LC_OK;
    free(k->state);
    return s;
}

/* Entries point into *out until their sums are given back. */
static lc_status gather_sums(lc_trainer *t, lc__results *r, const kept_sums *kept, double **out)
{
    const size_t n_ranks = (size_t)t->n_ranks;
    size_t n = 0, at = 0;
    for (int i = 0; i < r->n; i++) n += kept[i].adds;
    double *mine = calloc(2 * n + 1, sizeof *mine), *all = calloc(2 * n * n_ranks + 1, sizeof *all);
    *out = calloc(2 * n * n_ranks + 1, sizeof **out);
    lc_status status = mine && all && *out ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: the sums of all ranks");
    LC_TRY_GOTO(status, done, lc__ranks_agree(t->comm, status));
    for (int i = 0; i < r->n; i++)
        if (kept[i].adds) mine[at++] = kept[i].sum, mine[at++] = kept[i].weight;
    LC_TRY_GOTO(status, done, lc_comm_all_gather(t->comm, mine, all, (int64_t)(2 * n), LC_F64, NULL));
    double *next = *out;
    for (int i = 0, k = 0; i < r->n; i++) {
        if (!kept[i].adds) continue;
        r->e[i].of_ranks = next;
        for (size_t rank = 0; rank < n_ranks; rank++, next += 2)
            memcpy(next, all + 2 * (rank * n + (size_t)k), 2 * sizeof *next);
        k++;
    }
done:
    free(mine);
    free(all);
    return status;
}

lc_status lc__results_save_all(lc_trainer *t, lc__results *r, lc_state *out)
{
    lc__first_error e = {0};
    double *of_ranks = NULL;
    LC_TRY(lc__arrivals_settle(t));
    if (!t->comm) return lc__results_save(t, r, out);
    kept_sums *kept = calloc((size_t)r->n + 1, sizeof *kept);
    if (!kept) return lc_fail(LC_ERR_MEMORY, "out of memory: values of %d names over all ranks", r->n);
    for (int i = 0; i < r->n; i++) lc__first_error_note(&e, keep(&r->e[i], &kept[i]));
    lc__first_error_note(&e, lc__ranks_agree(t->comm, lc__first_error_status(&e)));
    if (e.status >= 0) lc__first_error_note(&e, lc__results_reduce(t, r));
    if (e.status >= 0) lc__first_error_note(&e, gather_sums(t, r, kept, &of_ranks));
    if (e.status >= 0) lc__first_error_note(&e, lc__results_save(t, r, out));
    for (int i = 0; i < r->n; i++) lc__first_error_note(&e, give_back(&r->e[i], &kept[i]));
    free(of_ranks);
    free(kept);
    return lc__first_error_status(&e);
}

/* Reduces the step over all ranks: its sum and, for a mean, its weight. */
static lc_status reduce_exact_step(lc_trainer *t, const lc__results *r, lc__logged *e)
{
    bool here = e->has_step && e->step_number == r->step; /* a rank without samples has logged nothing */
    lc__exact_sum sum = here ? lc__step_value_sum(&e->pieces, (lc_log_reduce)e->args.reduce_fx) : (lc__exact_sum){0};
    double weight = here ? e->step_weight : 0;
    LC_TRY(lc__ranks_reduce_exact(t->comm, &sum));
    LC_TRY(lc_comm_all_reduce(t->comm, &weight, &weight, 1, LC_F64, LC_COMM_SUM, NULL));
    if (weight == 0) return LC_OK;
    e->step = lc__exact_value(&sum) / (e->args.reduce_fx == LC_LOG_MEAN ? weight : 1);
    e->has_step = true;
    return LC_OK;
}

/* A rank without samples has logged nothing, and a mean is weighted by samples. */
static lc_status reduce_step(lc_trainer *t, const lc__results *r, lc__logged *e)
{
    bool here = e->has_step && e->step_number == r->step && e->step_weight > 0;
    bool mean = e->args.reduce_fx == LC_LOG_MEAN, least = e->args.reduce_fx == LC_LOG_MIN;
    double v[2] = {0, here ? e->step_weight : 0};
    if (mean || e->args.reduce_fx == LC_LOG_SUM) {
        if (here) v[0] = mean ? e->step * e->step_weight : e->step;
        LC_TRY(lc__ranks_reduce(t->comm, v, 2, LC_LOG_SUM));
    } else {
        v[0] = here ? e->step : least ? INFINITY : -INFINITY;
        LC_TRY(lc__ranks_reduce(t->comm, v, 1, (lc_log_reduce)e->args.reduce_fx));
        LC_TRY(lc__ranks_reduce(t->comm, v + 1, 1, LC_LOG_SUM));
    }
    if (v[1] == 0) return LC_OK; /* no rank has logged it in this step */
    e->step = v[0] / (mean ? v[1] : 1);
    e->has_step = true;
    return LC_OK;
}

static bool is_of_batch_end(const lc__logged *e)
{
    return e->hook == LC_HOOK_ON_TRAIN_BATCH_END || e->hook == LC_HOOK_ON_VALIDATION_BATCH_END ||
           e->hook == LC_HOOK_ON_TEST_BATCH_END;
}

lc_status lc__results_reduce_step(lc_trainer *t, lc__results *r, bool batch_end)
{
    if (!t->comm) return LC_OK;
    for (int i = 0; i < r->n; i++) {
        lc__logged *e = &r->e[i];
        if (!e->active || !e->on_step || !e->args.sync_dist || is_of_batch_end(e) != batch_end) continue;
        LC_TRY(lc__arrivals_settle(t));
        LC_TRY(e->exact ? reduce_exact_step(t, r, e) : reduce_step(t, r, e));
    }
    return LC_OK;
}

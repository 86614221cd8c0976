/* SPDX-License-Identifier: Apache-2.0 */
/* In a synchronizing step the slowest rank waits least, so clocks need not agree: waiting times show which rank the
 * others waited for, and the time that all of them waited is communication. */
#include "core/ranks/rank_times.h"

#include "base/c_locale.h"
#include "core/ranks/ranks.h"
#include "comm/comm_internal.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lc__rank_times {
    lc__rank_record record;
    int64_t started; /* start of the running step; 0: none */
    int64_t loading, waited;
    bool synced;               /* gradients have been synced in this batch */
    int64_t sent, sent_across; /* totals before the first step that counts */
};

lc_status lc__rank_times_begin(lc_trainer *t)
{
    lc__rank_times_free(t);
    if (!t->comm) return LC_OK;
    t->ranks->rank_times = calloc(1, sizeof *t->ranks->rank_times);
    if (!t->ranks->rank_times)
        return lc_fail(LC_ERR_MEMORY, "out of memory: the times of %d steps", LC__RANK_TIMES_KEPT);
    gethostname(t->ranks->rank_times->record.host, sizeof t->ranks->rank_times->record.host - 1);
    return LC_OK;
}

void lc__rank_times_free(lc_trainer *t)
{
    free(t->ranks->rank_times);
    t->ranks->rank_times = NULL;
}

/* ---- a step ---- */

int64_t lc__rank_times_start(lc_trainer *t)
{
    struct lc__rank_times *r = t->ranks->rank_times;
    int64_t now = r ? lc__now_ns() : 0;
    if (r && !r->started) r->started = now, r->loading = 0;
    return now;
}

void lc__rank_times_loaded(lc_trainer *t, int64_t asked)
{
    if (t->ranks->rank_times) t->ranks->rank_times->loading += lc__now_ns() - asked;
}

void lc__rank_times_sync(lc_trainer *t)
{
    lc_comm_stats stats;
    struct lc__rank_times *r = t->ranks->rank_times;
    if (!r || !t->comm || r->synced) return;
    lc__comm_total(t->comm, &stats);
    r->synced = true;
    r->waited = stats.waited_ns;
    if (r->record.steps == LC__RANK_TIMES_SKIPPED) r->sent = stats.sent, r->sent_across = stats.sent_across;
}

static int32_t microseconds(int64_t ns)
{
    return ns / 1000 < INT32_MAX ? (int32_t)(ns / 1000) : INT32_MAX;
}

void lc__rank_times_stepped(lc_trainer *t)
{
    lc_comm_stats stats;
    struct lc__rank_times *r = t->ranks->rank_times;
    if (!r || !t->comm || !r->synced) return;
    r->synced = false;
    lc__comm_total(t->comm, &stats);
    r->record.of[r->record.steps++ % LC__RANK_TIMES_KEPT] =
        (lc__rank_step){.all_us = r->started ? microseconds(lc__now_ns() - r->started) : 0,
                        .loading_us = microseconds(r->loading),
                        .waited_us = microseconds(stats.waited_ns - r->waited)};
    r->record.sent = stats.sent - r->sent;
    r->record.sent_across = stats.sent_across - r->sent_across;
    r->started = 0;
}

/* ---- evaluation ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-quantile of v; sorts v. */
static double quantile(double *v, int64_t n, double q)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n ? v[(int64_t)(q * (double)(n - 1) + 0.5)] : 0;
}

static double median_loading(const lc__rank_record *r, int64_t first, double *v)
{
    int64_t n = r->steps - first;
    for (int64_t i = 0; i < n; i++) v[i] = 1e-6 * r->of[(first + i) % LC__RANK_TIMES_KEPT].loading_us;
    return quantile(v, n, 0.5);
}

/* The rank that came last in most steps, if clearly more often than one step in n; else -1. */
static int find_slowest(const int *last, int64_t steps, int64_t *count, int n)
{
    int most = 0;
    for (int64_t i = 0; i < steps; i++) count[last[i]]++;
    for (int i = 1; i < n; i++)
        if (count[i] > count[most]) most = i;
    return (double)count[most] > (double)steps * (1 + 1.0 / n) / 2 ? most : -1;
}

lc_status lc__rank_times_judge(const lc__rank_record *all, int n, lc__rank_verdict *out)
{
    int64_t first = all[0].steps > LC__RANK_TIMES_KEPT ? all[0].steps - LC__RANK_TIMES_KEPT : 0, k = 0;
    double total = 0, others = 0;
    *out = (lc__rank_verdict){.slowest = -1};
    if (first < LC__RANK_TIMES_SKIPPED) first = LC__RANK_TIMES_SKIPPED;
    int64_t steps = all[0].steps - first;
    if (steps <= 0) return LC_OK;
    double *v = calloc((size_t)(4 * steps), sizeof *v);
    int *last = calloc((size_t)steps, sizeof *last);
    int64_t *count = calloc((size_t)n, sizeof *count);
    if (!v || !last || !count) {
        free(v), free(last), free(count);
        return lc_fail(LC_ERR_MEMORY, "out of memory: the times of %d ranks", n);
    }
    double *step = v, *exposed = v + steps, *late = v + 2 * steps, *scratch = v + 3 * steps;
    for (int64_t i = 0; i < steps; i++) {
        int32_t least = INT32_MAX, most = 0;
        for (int r = 0; r < n; r++) {
            const lc__rank_step *s = &all[r].of[(first + i) % LC__RANK_TIMES_KEPT];
            if (s->waited_us < least) least = s->waited_us, last[i] = r;
            if (s->waited_us > most) most = s->waited_us;
            if (1e-6 * s->all_us > step[i]) step[i] = 1e-6 * s->all_us;
        }
        exposed[i] = 1e-6 * least;
        late[i] = 1e-6 * (most - least);
        total += step[i], out->exposed_all += exposed[i], out->late_all += late[i];
    }
    out->steps = steps;
    out->slowest = find_slowest(last, steps, count, n);
    for (int64_t i = 0; i < steps && out->slowest >= 0; i++)
        if (last[i] == out->slowest) scratch[k++] = late[i];
    out->slowest_steps = k;
    out->slowest_late = quantile(scratch, k, 0.5);
    for (int r = 0; r < n && out->slowest >= 0; r++)
        if (r != out->slowest) others += median_loading(&all[r], first, scratch) / (n - 1);
    if (out->slowest >= 0) out->slowest_loading = median_loading(&all[out->slowest], first, scratch) - others;
    out->step = quantile(step, steps, 0.5);
    out->exposed = quantile(exposed, steps, 0.5);
    out->late = quantile(late, steps, 0.5);
    out->late_p95 = quantile(late, steps, 0.95);
    out->exposed_all = total > 0 ? out->exposed_all / total : 0;
    out->late_all = total > 0 ? out->late_all / total : 0;
    for (int r = 0; r < n; r++) out->sent += all[r].sent / n, out->sent_across += all[r].sent_across / n;
    out->sent /= all[0].steps - LC__RANK_TIMES_SKIPPED;
    out->sent_across /= all[0].steps - LC__RANK_TIMES_SKIPPED;
    free(v), free(last), free(count);
    return LC_OK;
}

static void say(lc_trainer *t, const lc__rank_record *all, const lc__rank_verdict *v)
{
    char across[64] = "";
    if (v->sent_across)
        lc__snprintf(across, sizeof across, ", %.3g MB of it to other hosts", 1e-6 * (double)v->sent_across);
    lc_trainer_message(
        t, LC_INFO,
        "ranks waited in %.2g %% of the training for communication (median %.3g ms of a step of %.3g ms) and "
        "in %.2g %% for the slowest rank (median %.3g ms, p95 %.3g ms); a rank sent %.3g MB per step%s",
        100 * v->exposed_all, 1e3 * v->exposed, 1e3 * v->step, 100 * v->late_all, 1e3 * v->late, 1e3 * v->late_p95,
        1e-6 * (double)v->sent, across);
    /* A negligible loss is not reported. */
    double lost = v->slowest_late * (double)v->slowest_steps;
    if (v->slowest < 0 || v->slowest_late < 0.05 * v->step || lost < 0.1) return;
    bool loader = v->slowest_loading > v->slowest_late / 2;
    char where[96] = "";
    if (loader)
        lc__snprintf(where, sizeof where, "; its loader takes %.3g ms longer than the others'",
                     1e3 * v->slowest_loading);
    lc_trainer_message(t, LC_WARNING,
                       "rank %d (host %.63s) is slower than the others: they waited for it in %lld of %lld steps, by a "
                       "median of %.3g ms%s",
                       v->slowest, all[v->slowest].host, (long long)v->slowest_steps, (long long)v->steps,
                       1e3 * v->slowest_late, where);
}

lc_status lc__rank_times_report(lc_trainer *t)
{
    enum { FEW = 8 };
    struct lc__rank_times *r = t->ranks->rank_times;
    lc__rank_record *all = NULL;
    lc__rank_verdict v;
    lc_status status = LC_OK;
    /* This decision is the same on all ranks. */
    if (!r || !t->comm || t->n_ranks < 2 || r->record.steps < LC__RANK_TIMES_SKIPPED + FEW) return LC_OK;
    bool root = lc__is_rank_zero(t);
    if (root) all = malloc((size_t)t->n_ranks * sizeof *all);
    if (root && !all) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: times of %d ranks", t->n_ranks));
    LC_TRY_GOTO(status, done, lc_comm_gather(t->comm, &r->record, all, sizeof *all, LC_U8, 0, NULL));
    if (!root) goto done;
    LC_TRY_GOTO(status, done, lc__rank_times_judge(all, t->n_ranks, &v));
    if (v.exposed_all + v.late_all >= 0.05 || t->profiling) say(t, all, &v);
done:
    free(all);
    return status;
}

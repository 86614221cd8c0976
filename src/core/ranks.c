/* SPDX-License-Identifier: Apache-2.0 */
/* Several ranks run the same loop in step: every rank calls every hook, and whatever decides how the loop goes on is
 * decided for all at once. A wish of one rank (to stop, to save, a signal) rides on the next sync of gradients as a
 * byte, the largest of all wins; numbers that callbacks look at are reduced, or rank 0's. */
#include "core/ranks.h"

#include "core/deterministic.h"
#include "core/rank_times.h"
#include "core/run_state.h"
#include "core/status.h"
#include "data/batch_slice.h"
#include "nn/nn_internal.h"
#include "tensor/graph_impl.h"
#include "tensor/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__ranks_are_there(const lc_trainer *t)
{
    if (t->n_ranks == 1 || t->comm) return LC_OK;
    return lc_fail(LC_ERR_PEER, "an earlier run of this trainer has lost its ranks; start the program again");
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

lc_status lc__ranks_reduce_exact(lc_comm *comm, lc__exact_sum *s)
{
    if (!comm) return LC_OK;
    lc__exact_tidy(s);
    LC_TRY(lc_comm_all_reduce(comm, s->digit, s->digit, LC__EXACT_DIGITS, LC_I64, LC_COMM_SUM, NULL));
    LC_TRY(lc_comm_all_reduce(comm, &s->special, &s->special, 1, LC_F64, LC_COMM_SUM, NULL));
    lc__exact_tidy(s);
    return LC_OK;
}

lc_status lc__request_check(const lc_strategy_request *ask, const lc_strategy_ops *strategy, const lc_comm *comm,
                            bool deterministic)
{
    const char *name = ask->gradient_compression;
    lc_dtype wire;
    if (ask->shard_size && !strategy->replicates)
        return lc_fail(LC_ERR_CONFIG,
                       "shard_size=%lld: the strategy %s has no copies that ranks share; use --strategy sharded_hybrid",
                       (long long)ask->shard_size, strategy->name);
    LC_TRY(lc__wire_find(name, &wire));
    if (wire == LC_F32 || (!strategy->devices && (!comm || lc_comm_size(comm) == 1))) return LC_OK;
    if (!strategy->compresses)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "gradient_compression=%s: the strategy %s keeps gradients as they are; use --strategy ddp", name,
                       strategy->name);
    if (deterministic)
        return lc_fail(LC_ERR_CONFIG,
                       "gradient_compression=%s rounds what ranks send, so that deterministic cannot give "
                       "the bits of one process; leave out one of the two",
                       name);
    return LC_OK;
}

void lc__say_waiting(void *ctx, const char *text)
{
    lc__str line = {0};
    (void)ctx;
    lc__str_add(&line, "%s\n", text);
    if (!line.failed) lc__show(2, line.s, line.n);
    lc__str_free(&line);
}

lc_status lc__from_rank_zero(lc_trainer *t, void *data, size_t bytes)
{
    return t->comm ? lc_comm_broadcast(t->comm, data, (int64_t)bytes, LC_U8, 0, NULL) : LC_OK;
}

lc_status lc__ranks_text(lc_comm *comm, char **text)
{
    if (!comm) return LC_OK;
    bool root = lc_comm_rank(comm) == 0;
    int64_t n = *text && root ? (int64_t)strlen(*text) + 1 : 0;
    LC_TRY(lc_comm_broadcast(comm, &n, 1, LC_I64, 0, NULL));
    if (!root) {
        free(*text);
        *text = n ? malloc((size_t)n) : NULL;
        if (n && !*text) return lc_fail(LC_ERR_MEMORY, "out of memory: a text of rank 0");
    }
    lc_status s = n ? lc_comm_broadcast(comm, *text, n, LC_U8, 0, NULL) : LC_OK;
    if (s < 0 && !root) free(*text), *text = NULL; /* it has no end, maybe */
    return s;
}

lc_status lc__ranks_agree(lc_comm *comm, lc_status mine)
{
    enum { TEXT = 1024 };
    char why[TEXT];
    if (!comm) return mine;
    int rank = lc_comm_rank(comm), first = 0;
    int64_t code = mine < 0 ? mine : 0, all[2] = {code ? lc_comm_size(comm) - rank : 0, 0};
    lc__copy_message(why, sizeof why);
    /* The first rank that failed has the largest number. */
    LC_TRY(lc_comm_all_reduce(comm, &all[0], &all[1], 1, LC_I64, LC_COMM_MAX, NULL));
    if (!all[1]) return mine;
    first = lc_comm_size(comm) - (int)all[1];
    char theirs[TEXT];
    memcpy(theirs, why, sizeof theirs);
    LC_TRY(lc_comm_broadcast(comm, &code, 1, LC_I64, first, NULL));
    LC_TRY(lc_comm_broadcast(comm, theirs, TEXT, LC_U8, first, NULL));
    if (mine < 0) return lc_fail(mine, "%s", why);
    theirs[TEXT - 1] = 0;
    return lc_fail((lc_status)code, "rank %d: %s", first, theirs);
}

lc_status lc__text_from_rank_zero(lc_trainer *t, char **text)
{
    return lc__ranks_text(t->comm, text);
}

lc_status lc__ranks_barrier(lc_trainer *t)
{
    return t->comm ? lc_comm_barrier(t->comm, NULL) : LC_OK;
}

void lc__tell_progress(lc_trainer *t)
{
    if (!t->comm || !t->strategy->progress) return;
    t->strategy->progress(t->strategy_self, t->global_step,
                          t->sanity       ? "sanity check"
                          : t->validating ? "validation"
                                          : lc_stage_name(t->stage));
}

/* ---- gradients and wishes ---- */

enum { WISH_STOP, WISH_SIGNAL, WISH_SAVE, WISH_VALIDATE, BACKWARDS };

void lc__weigh_batch(lc_trainer *t, const lc_batch *batch)
{
    double weight = 1;
    lc__rank_times_start(t);
    if (!t->comm || !t->strategy->before_backward) return;
    if (batch && batch->global_size > 0)
        weight = (double)batch->size * lc_comm_size(t->comm) / (double)batch->global_size;
    t->strategy->before_backward(t->strategy_self, weight);
}

bool lc__leaves_ranks_empty(const lc_trainer *t, const lc__source *source, const lc_batch *batch)
{
    const lc_shard *s = lc_dataloader_get_shard(source->loader);
    if (batch->global_size < 1) return false;
    if (batch->piece > 0) { /* the last one is */
        int64_t each = (s->pieces + s->size - 1) / s->size * batch->piece;
        return batch->global_size <= each * (t->n_ranks - 1);
    }
    int64_t units = lc__batch_units(batch, t->n_ranks);
    return units > 0 && units < t->n_ranks;
}

static bool is_uneven(const lc_batch *batch, int64_t shares)
{
    bool uneven = lc__batch_units(batch, shares) == 0;
    int64_t all = lc__batch_samples(batch);
    for (int i = 0; i < batch->n_parts && !uneven; i++) { /* a loader of the program's own, perhaps, which cannot */
        const lc_batch *b = batch->parts[i];
        uneven = b && b->size * all != batch->size * lc__batch_samples(b);
    }
    return uneven;
}

void lc__tell_uneven(lc_trainer *t, const lc_batch *batch, int64_t shares)
{
    lc__str sizes = {0};
    char loader[40] = "train";
    if (t->parts_told || shares < 2 || lc__cuts_chunks(t) || !is_uneven(batch, shares)) return;
    t->parts_told = true;
    for (int i = 0; i < batch->n_parts; i++)
        if (batch->parts[i])
            lc__str_add(&sizes, "%s%lld", sizes.n ? ", " : "", (long long)lc__batch_samples(batch->parts[i]));
    if (t->validating || t->stage != LC_STAGE_FIT)
        snprintf(loader, sizeof loader, "%s %d", lc_stage_name(t->stage), t->dataloader_idx);
    lc_trainer_message(
        t, "warning",
        "the combined %s loader has a batch of parts with %s samples, of which %lld %s cannot have equal "
        "shares: some samples count more than with one, and results differ a little; drop_last leaves "
        "such batches out",
        loader, sizes.failed ? "different numbers of" : sizes.s, (long long)shares, t->parts ? "devices" : "ranks");
    lc__str_free(&sizes);
}

lc_status lc__begin_batch(lc_trainer *t, const lc_batch *batch)
{
    if (batch->n_parts && batch->global_size > 0) lc__tell_uneven(t, batch, t->n_ranks);
    if (!t->comm || !t->strategy->begin_batch) return LC_OK;
    int64_t passes = lc__is_empty_share(batch) ? 0 : lc__chunks_in(t, batch);
    return t->strategy->begin_batch(t->strategy_self, passes);
}

lc_status lc__end_batch(lc_trainer *t)
{
    return t->comm && t->strategy->end_batch ? t->strategy->end_batch(t->strategy_self) : LC_OK;
}

static void wishes(lc_trainer *t, uint8_t flags[LC_SYNC_FLAGS])
{
    memset(flags, 0, LC_SYNC_FLAGS);
    flags[WISH_STOP] = t->stop_wish;
    flags[WISH_SIGNAL] = (uint8_t)atomic_load(&t->signal);
    flags[WISH_SAVE] = atomic_load(&t->save_requested) != 0;
    flags[WISH_VALIDATE] = t->val_check_batch == -2 && lc__validation_time_is_up(t);
    /* By hand nothing is divided by them, and no window ends their count. */
    int64_t backwards = t->mo.manual_optimization ? 0 : t->window_backwards;
    flags[BACKWARDS] = (uint8_t)(backwards < UINT8_MAX ? backwards : UINT8_MAX);
}

static void agree(lc_trainer *t, const uint8_t flags[LC_SYNC_FLAGS])
{
    if (flags[WISH_STOP]) t->user_stop = true;
    t->agreed_signal = flags[WISH_SIGNAL];
    t->agreed_save = flags[WISH_SAVE];
    t->agreed_validate = flags[WISH_VALIDATE];
}

lc_status lc__sync_gradients(lc_trainer *t)
{
    uint8_t flags[LC_SYNC_FLAGS];
    if (!t->strategy->after_backward) return LC_OK;
    wishes(t, flags);
    lc__rank_times_sync(t);
    LC_TRY(t->strategy->after_backward(t->strategy_self, flags));
    agree(t, flags);
    /* A rank without samples, or without a loss, in a micro-batch divides by as many as the others. */
    int64_t most = flags[BACKWARDS];
    if (most == UINT8_MAX && t->comm) {
        most = t->window_backwards;
        LC_TRY(lc_comm_all_reduce(t->comm, &most, &most, 1, LC_I64, LC_COMM_MAX, NULL));
    }
    if (most <= t->window_backwards) return LC_OK;
    t->graph->backwards += most - t->window_backwards;
    t->window_backwards = most;
    return LC_OK;
}

lc_status lc__sync_wishes(lc_trainer *t)
{
    uint8_t flags[LC_SYNC_FLAGS];
    if (!t->comm) return LC_OK;
    wishes(t, flags);
    LC_TRY(lc_comm_all_reduce(t->comm, flags, flags, LC_SYNC_FLAGS, LC_U8, LC_COMM_MAX, NULL));
    agree(t, flags);
    return LC_OK;
}

int lc__signal_of(const lc_trainer *t)
{
    return t->comm ? t->agreed_signal : atomic_load_explicit(&t->signal, memory_order_relaxed);
}

bool lc__save_requested(const lc_trainer *t)
{
    return t->comm ? t->agreed_save : atomic_load_explicit(&t->save_requested, memory_order_relaxed) != 0;
}

/* ---- logged values ---- */

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

lc_status lc__check_names(const lc_trainer *t, const lc_batch *batch)
{
    const lc__results *r = &t->train_results;
    bool logged = false;
    if (!t->comm || !lc__source_is_shared(&t->train) || !lc__leaves_ranks_empty(t, &t->train, batch)) return LC_OK;
    for (int i = 0; i < r->n; i++) logged |= lc__is_of_all_ranks(&r->e[i]);
    if (!logged) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "the first batch of the epoch has %lld samples, which leaves some of %d ranks without any; what is "
                   "logged is put together by name, and they know no names; use %smore samples, or fewer ranks",
                   (long long)batch->global_size, t->n_ranks,
                   batch->piece > 0 ? "a smaller deterministic_chunk, " : "");
}

/* All states, merged in the order of ranks: the same numbers everywhere. A rank that does not know the metric has the
 * checkpoint's state, or none. */
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

/* The state and the value that rank `from` has, on all. */
static lc_status tell_metric(lc_trainer *t, lc__logged *e, int from)
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

/* In an epoch that a run goes on with, a rank may have had no samples, and so not know a metric, or not under all of
 * its names. What the others have counted is told to it. */
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
    if (head[AGAIN]) return head[NOT_AGAIN] ? tell_metric(t, e, t->n_ranks - (int)head[AGAIN]) : LC_OK;
    if (!head[KNOWN]) return LC_OK; /* nobody has counted since */
    LC_TRY(merge_states(t, e, head[MOST]));
    return head[NOT_KNOWN] ? tell_metric(t, e, t->n_ranks - (int)head[KNOWN]) : LC_OK;
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

/* Of what was logged since the last call sums and weights add up; of the smallest and the largest a rank that has none
 * must not count. */
lc_status lc__results_reduce(lc_trainer *t, lc__results *r)
{
    if (!t->comm) return LC_OK;
    LC_TRY(lc__check_same_names(t, r));
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
} kept_sums;

static lc_status keep(const lc__logged *e, kept_sums *k)
{
    k->sum = e->sum;
    k->weight = e->weight;
    k->computed = e->computed;
    k->reduced = e->reduced;
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

/* Takes over what `k` owns. */
static lc_status give_back(lc__logged *e, kept_sums *k)
{
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

lc_status lc__results_save_all(lc_trainer *t, lc__results *r, lc_state *out)
{
    lc__first_error e = {0};
    if (!t->comm) return lc__results_save(r, out);
    kept_sums *kept = calloc((size_t)r->n + 1, sizeof *kept);
    if (!kept) return lc_fail(LC_ERR_MEMORY, "out of memory: values of %d names over all ranks", r->n);
    for (int i = 0; i < r->n; i++) lc__first_error_note(&e, keep(&r->e[i], &kept[i]));
    if (e.status >= 0) lc__first_error_note(&e, lc__results_reduce(t, r));
    if (e.status >= 0) lc__first_error_note(&e, lc__results_save(r, out));
    for (int i = 0; i < r->n; i++) lc__first_error_note(&e, give_back(&r->e[i], &kept[i]));
    free(kept);
    return lc__first_error_status(&e);
}

/* The step of all ranks together: its sum, and for a mean its weight. */
static lc_status reduce_exact_step(lc_trainer *t, const lc__results *r, lc__logged *e)
{
    bool here = e->exact->step_number == r->step; /* a rank without samples has logged nothing */
    lc__exact_sum sum = here ? e->exact->step : (lc__exact_sum){0};
    double weight = here ? e->exact->step_weight : 0;
    LC_TRY(lc__ranks_reduce_exact(t->comm, &sum));
    LC_TRY(lc_comm_all_reduce(t->comm, &weight, &weight, 1, LC_F64, LC_COMM_SUM, NULL));
    if (weight > 0) e->step = lc__exact_value(&sum) / (e->args.reduce_fx == LC_LOG_MEAN ? weight : 1);
    return LC_OK;
}

/* A rank without samples has logged nothing, and one with more counts more. */
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
    if (v[1] > 0) e->step = v[0] / (mean ? v[1] : 1); /* else nobody has logged it in this step */
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
        LC_TRY(e->exact ? reduce_exact_step(t, r, e) : reduce_step(t, r, e));
    }
    return LC_OK;
}

/* ---- buffers ---- */

static lc_status send_values(lc_comm *comm, const lc_tensor *b)
{
    return lc_comm_broadcast(comm, b->data, lc_tensor_numel(b), lc_tensor_dtype(b), 0, NULL);
}

static lc_status send_buffer(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    (void)path, (void)owner;
    if (mt->is_parameter) return LC_OK;
    const lc_tensor *saved = lc__saved_tensor(t, mt->tensor);
    LC_TRY(send_values(t->comm, mt->tensor));
    return saved ? send_values(t->comm, saved) : LC_OK;
}

lc_status lc__buffers_from_rank_zero(lc_trainer *t)
{
    return t->comm && t->m ? lc_module_visit(t->m, send_buffer, t) : LC_OK;
}

/* What batch norm keeps, no training step reads. */
static bool may_be_read(lc_module *owner, const lc_module_tensor *mt)
{
    return !mt->is_parameter && !lc__as_batch_norm(owner);
}

static lc_status find_read_buffer(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    (void)path;
    t->reads_buffers |= may_be_read(owner, mt);
    return LC_OK;
}

lc_status lc__read_buffers_setup(lc_trainer *t)
{
    t->reads_buffers = false;
    return t->comm ? lc_module_visit(t->m, find_read_buffer, t) : LC_OK;
}

static lc_status send_read_buffer(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    (void)path;
    return may_be_read(owner, mt) ? send_values(t->comm, mt->tensor) : LC_OK;
}

lc_status lc__read_buffers_from_rank_zero(lc_trainer *t)
{
    return t->reads_buffers ? lc_module_visit(t->m, send_read_buffer, t) : LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A batch in chunks (chunks.h).
 *
 * Weights: chunk i with n_i samples counts n_i / c, where c is the number of samples of a whole chunk, so a whole chunk
 * always counts 1. The divisor of the sum, m / c for m samples, is applied in the update. In an accumulation window
 * every batch counts as much as the first (Lightning's mean of means): a batch with another number of samples, the last
 * of an epoch, is reweighted. */
#include "core/split/chunks.h"

#include "core/logging/logging.h"
#include "core/hooks/hooks.h"
#include "base/grow.h"
#include "core/input/pieces.h"
#include "core/split/device_parts.h"
#include "comm/agree.h"
#include "core/ranks/ranks.h"
#include "optim/optim_internal.h"
#include "engine/run/run.h"
#include "record/graph_impl.h"
#include "parallel/reduce/reducer.h"

#include <stdlib.h>

lc_status lc__chunks_begin(lc_trainer *t)
{
    if (!t->opt.deterministic || t->chunks) return LC_OK;
    t->chunks = calloc(1, sizeof *t->chunks);
    t->logging->train_results.exact = t->logging->eval_results.exact = true;
    return t->chunks ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: the trainer");
}

/* If each node has a copy of the model (sharded_hybrid), sums within a node come first. */
static lc_status check_tree(lc_trainer *t)
{
    const lc__reducer *r = lc__reducer_of_graph(t->graph);
    lc_status status = LC_OK;
    if (r && !lc__reducer_sums_on_tree(r))
        status = lc_fail(
            LC_ERR_CONFIG,
            "deterministic with %s: the ranks that share a copy of the model must be a power of two, with consecutive "
            "numbers, so that the sum of all equals that of one rank; use such a shard_size, or use "
            "--strategy sharded",
            t->strategy->name);
    return lc__ranks_agree(t->comm, status);
}

lc_status lc__chunks_train(lc_trainer *t)
{
    if (!t->chunks) return LC_OK;
    lc__statistics_free(t->chunks);
    LC_TRY(lc__device_parts_forget_tree(t));
    lc__tree_free(t->chunks->tree);
    t->chunks->tree = NULL;
    if (t->opt.sync_batchnorm)
        return lc_fail(LC_ERR_CONFIG, "sync_batchnorm needs statistics of the whole batch, but deterministic calls "
                                      "training_step for one chunk at a time; use one of the two");
    if (t->mo.manual_optimization) {
        if (!t->comm) return LC_OK;
        return lc_fail(LC_ERR_CONFIG,
                       "deterministic with several ranks sums gradients over chunks of a batch, for which the trainer "
                       "must call the backward pass; %s optimizes manually",
                       t->mo.name);
    }
    for (int i = 0; i < t->optimizers.n && (t->comm || t->device_parts); i++)
        if (lc__evaluates(t->optimizers.optimizers[i].optimizer))
            return lc_fail(LC_ERR_CONFIG,
                           "deterministic with several ranks or devices: %s uses the loss of the batch, whose rounding "
                           "depends on their number; use another optimizer, or one rank",
                           t->optimizers.optimizers[i].optimizer->ops->name);
    LC_TRY(check_tree(t));
    int devices = lc__device_parts_most(t);
    LC_TRY(lc__tree_new(t->graph, t->n_ranks * devices, &t->chunks->tree));
    for (int i = 0; i < t->optimizers.n; i++)
        LC_TRY(lc__tree_add(t->chunks->tree, t->optimizers.optimizers[i].optimizer));
    return lc__statistics_new(t->chunks, t->m, devices);
}

void lc__chunks_free(lc_trainer *t)
{
    lc__chunks *k = t->chunks;
    if (!k) return;
    lc__statistics_free(k);
    lc__tree_free(k->tree);
    for (int i = 0; i < k->n_splits; i++) lc__split_free(&k->split[i]);
    free(k->split);
    free(k);
    t->chunks = NULL;
}

/* ---- how many ---- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

int64_t lc__chunks_in(const lc_trainer *t, const lc_batch *batch)
{
    bool cut = lc__cuts_chunks(t) && batch->piece > 0; /* a batch without pieces is cut only on a single rank */
    return cut ? ceil_div(batch->size, batch->piece) : 1;
}

int64_t lc__chunks_size(const lc_trainer *t, const lc_batch *batch)
{
    if (batch->piece || t->comm || batch->size <= 0) return batch->piece;
    return ceil_div(batch->size, lc__pieces_of(t, batch->size));
}

double lc__chunks_of_all(const lc_trainer *t, const lc_batch *batch)
{
    int64_t all = batch->global_size > 0 ? batch->global_size : batch->size, size = lc__chunks_size(t, batch);
    return all > 0 && size > 0 ? (double)all / (double)size : 1;
}

int64_t lc__chunks_per_device(int64_t samples, int64_t size, int devices)
{
    int64_t each = 1;
    while (each * devices * size < samples) each *= 2;
    return each;
}

/* ---- one after the other ---- */

/* Each device's part needs its own split: those of earlier parts are still in use. */
static lc_status next_split(lc__chunks *k, int part)
{
    for (; k->n_splits <= part; k->n_splits++) {
        LC_TRY(lc__grow_one(&k->split, k->n_splits, "chunks of a batch"));
        k->split[k->n_splits] = (lc__split){0};
    }
    k->now = &k->split[part];
    return LC_OK;
}

static lc_status check_batch(const lc_batch *batch, int64_t size)
{
    if (batch->global_offset % size && batch->size)
        return lc_fail(LC_ERR_USER,
                       "deterministic: this rank's slice begins at sample %lld of the batch, inside a piece of %lld",
                       (long long)batch->global_offset, (long long)size);
    int64_t all = lc__batch_samples(batch);
    if (batch->n_parts && lc__batch_least(batch) < ceil_div(all, size))
        return lc_fail(LC_ERR_CONFIG,
                       "deterministic: one of the combined loaders gives %lld samples, but a batch of %lld is cut into "
                       "%lld chunks, each of which needs one; use drop_last, or a larger deterministic_chunk "
                       "than %lld",
                       (long long)lc__batch_least(batch), (long long)all, (long long)ceil_div(all, size),
                       (long long)size);
    return LC_OK;
}

static lc_status cut(lc_trainer *t, const lc_batch *batch)
{
    lc__chunks *k = t->chunks;
    int64_t size = lc__chunks_size(t, batch);
    LC_TRY(next_split(k, t->part));
    k->first = 0;
    if (!size && t->comm)
        return lc_fail(LC_ERR_CONFIG, "deterministic with several ranks: the batch does not list its pieces "
                                      "(lc_batch.piece); let the trainer give each rank its share "
                                      "(use_distributed_sampler), and see lc_share in <lightc/data.h>");
    if (!size) return lc__split_begin(t, k->now, batch, 1, 1, 0); /* the places of samples are unknown */
    LC_TRY(check_batch(batch, size));
    k->first = batch->global_offset / size;
    return lc__split_begin(t, k->now, batch, ceil_div(batch->size, size), size, 0);
}

lc_status lc__each_chunk(lc_trainer *t, const lc_batch *batch, lc__piece_fn *fn, void *ctx, lc_tensor **value)
{
    if (!lc__cuts_chunks(t)) return fn(ctx, batch, value);
    lc__chunks *k = t->chunks;
    LC_TRY(cut(t, batch));
    for (int64_t i = 0; i < k->now->n; i++) {
        LC_TRY(lc__split_enter(t, k->now, i));
        lc__graph_chunk(t->graph, k->first + i);
        lc_status s = lc_step_status(t->graph);
        if (s >= 0) s = fn(ctx, t->batch, &k->now->piece[i].value);
        lc__graph_chunk(t->graph, -1);
        lc__split_leave(t, k->now);
        LC_TRY(s);
    }
    LC_TRY(lc__split_value(t, k->now, lc__join_recorded, NULL, value));
    return lc__split_outputs(t, k->now, lc__join_recorded, NULL);
}

double lc__chunk_weight(const lc__chunks *k)
{
    int64_t samples = k->now->piece[k->now->entered].samples;
    return samples > 0 ? (double)samples / (double)k->now->size : 1;
}

/* ---- the closure ---- */

/* State that the chunks of a closure's batch share. */
typedef struct training {
    lc_closure *c;
    double chunks; /* in the batch of all ranks */
    bool zeroes;   /* gradients are to be zeroed, after the first step function, as without chunks */
    bool any;      /* some chunk had a loss */
} training;

static lc_status train_chunk(void *ctx, const lc_batch *chunk, lc_tensor **loss)
{
    training *r = ctx;
    lc_closure *c = r->c;
    lc_trainer *t = c->t;
    lc__chunks *k = t->chunks;
    lc__tree *tree = lc__tree_of_graph(t->graph);
    int64_t i = k->now->entered, n = k->now->n;
    if (i == 0) lc__statistics_begin(k);
    c->batch = chunk;
    lc__tree_chunk_begin(tree, k->first + i, i, n, lc__chunk_weight(k) * (k->window / r->chunks));
    LC_TRY(lc__run_training_step(c));
    if (r->zeroes) LC_TRY(lc__device_part_zero_grad(c));
    r->zeroes = false;
    *loss = c->loss;
    if (c->loss) {
        r->any = true;
        LC_TRY(lc__backward_hooks(t, c->loss));
    }
    lc__tree_chunk_end(tree);
    LC_TRY(lc_step_status(t->graph));
    if (t->device_parts && i == n - 1) t->graph->backwards = 1; /* absent chunks are part of the sum, too */
    return lc__statistics_chunk(k);
}

lc_status lc__chunks_closure(lc_closure *c)
{
    lc_trainer *t = c->t;
    lc__chunks *k = t->chunks;
    const lc_batch *batch = c->batch;
    int64_t place = lc__window_place(t, c->batch_idx);
    training r = {.c = c, .chunks = lc__chunks_of_all(t, batch), .zeroes = place == 0};
    if (place == 0) k->window = r.chunks;
    LC_TRY(lc__each_part(t, batch, train_chunk, &r, &c->loss));
    c->batch = batch;
    LC_TRY(lc__device_parts_train(c));
    if (k->now->n == 0) {
        if (place == 0) LC_TRY(lc__closure_zero_grad(c));
        lc__tree_no_chunk(k->tree);
        LC_TRY(lc__statistics_no_chunk(k));
    }
    /* Sums over ranks come before sums over the window, as they would on one rank. */
    int64_t before = place == 0 ? 0 : t->window_backwards;
    t->window_backwards = r.any;
    if (!r.any) lc__scale_no_loss(t);
    LC_TRY(lc__sync_gradients(t));
    /* Ranks execute the step here, to exchange gradients. One process does so, too: the place decides which operators
     * are fused, and so the last bits of results. */
    if (!lc__reducer_of_graph(t->graph) && !t->device_parts) LC_TRY(lc__graph_run_step(t->graph, t->graph->sync_keeps));
    bool any = t->window_backwards > 0;
    t->window_backwards = before + any;
    LC_TRY(lc__statistics_end(k, t->comm, lc__device_parts_running(t), r.chunks));
    lc__tree_window(k->tree, place, !t->accumulating);
    lc_graph_set_window(t->graph, k->window * (double)(t->window_backwards ? t->window_backwards : 1));
    return any ? lc__hook(t, LC_HOOK_ON_AFTER_BACKWARD, NULL) : LC_OK;
}

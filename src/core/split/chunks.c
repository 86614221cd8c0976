/* SPDX-License-Identifier: Apache-2.0 */
/* A batch in chunks (chunks.h).
 *
 * Weights: chunk i with n_i samples counts n_i / c, c being the samples of a whole chunk, so a whole one counts 1
 * whatever it is a part of. What the sum must be divided by, m / c of m samples, goes into the update. In an
 * accumulation window every batch counts as much as the first (Lightning's mean of means): one with another number of
 * samples, the last of an epoch, is weighted up. */
#include "core/logging/logging.h"
#include "core/hooks/hooks.h"
#include "core/split/chunks.h"

#include "core/input/pieces.h"
#include "core/split/device_parts.h"
#include "comm/agree.h"
#include "core/ranks/ranks.h"
#include "optim/optim_internal.h"
#include "record/graph_impl.h"
#include "parallel/reduce/reducer.h"

#include <lightc/ops_math.h>

#include <stdlib.h>
#include <string.h>

lc_status lc__chunks_begin(lc_trainer *t)
{
    if (!t->opt.deterministic || t->chunks) return LC_OK;
    t->chunks = calloc(1, sizeof *t->chunks);
    t->logging->train_results.exact = t->logging->eval_results.exact = true;
    return t->chunks ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: the trainer");
}

/* Where nodes have copies of the model (sharded_hybrid), sums within a node come first. */
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
    for (int64_t i = 0; i < k->cap; i++) lc__batch_slice_release(&k->slices[i]);
    free(k->slices);
    free(k->outputs);
    free(k);
    t->chunks = NULL;
}

/* ---- one after the other ---- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static lc_status room_for(lc__chunks *k, int64_t n)
{
    if (n <= k->cap) return LC_OK;
    lc__batch_slice *slices = realloc(k->slices, (size_t)n * sizeof *slices);
    if (slices) k->slices = slices;
    lc_outputs *outputs = realloc(k->outputs, (size_t)n * sizeof *outputs);
    if (outputs) k->outputs = outputs;
    if (!slices || !outputs) return lc_fail(LC_ERR_MEMORY, "out of memory: a batch in %lld chunks", (long long)n);
    memset(slices + k->cap, 0, (size_t)(n - k->cap) * sizeof *slices);
    k->cap = n;
    return LC_OK;
}

int64_t lc__chunks_in(const lc_trainer *t, const lc_batch *batch)
{
    bool cut = lc__cuts_chunks(t) && batch->piece > 0; /* without pieces one rank alone cuts */
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

int64_t lc__chunks_each(int64_t samples, int64_t size, int devices)
{
    int64_t each = 1;
    while (each * devices * size < samples) each *= 2;
    return each;
}

lc_status lc__chunks_cut(lc_trainer *t, const lc_batch *batch)
{
    lc__chunks *k = t->chunks;
    k->batch = batch;
    k->size = lc__chunks_size(t, batch);
    k->slot = 0;
    if (!k->size) {
        if (!t->comm) { /* nothing tells where samples lie */
            k->size = 1, k->n = 1, k->first = 0;
            return room_for(k, 1);
        }
        return lc_fail(LC_ERR_CONFIG, "deterministic with several ranks: the batch does not list its pieces "
                                      "(lc_batch.piece); let the trainer give each rank its share "
                                      "(use_distributed_sampler), and see lc_shard in <lightc/data.h>");
    }
    if (batch->global_offset % k->size && batch->size)
        return lc_fail(LC_ERR_USER,
                       "deterministic: this rank's slice begins at sample %lld of the batch, inside a piece of %lld",
                       (long long)batch->global_offset, (long long)k->size);
    int64_t all = lc__batch_samples(batch);
    if (batch->n_parts && lc__batch_least(batch) < ceil_div(all, k->size))
        return lc_fail(LC_ERR_CONFIG,
                       "deterministic: one of the combined loaders gives %lld samples, but a batch of %lld is cut into "
                       "%lld chunks, each of which needs one; use drop_last, or a larger deterministic_chunk "
                       "than %lld",
                       (long long)lc__batch_least(batch), (long long)all, (long long)ceil_div(all, k->size),
                       (long long)k->size);
    k->n = ceil_div(batch->size, k->size);
    k->first = batch->global_offset / k->size;
    if (t->device_parts) k->slot = k->first; /* those of the devices before are in use */
    return room_for(k, k->slot + k->n);
}

lc_status lc__chunks_take(lc_trainer *t, int64_t i, const lc_batch **out)
{
    lc__chunks *k = t->chunks;
    int64_t begin = i * k->size, left = k->batch->size - begin;
    *out = k->batch;
    if (k->n > 1) LC_TRY(lc__batch_cut(&k->slices[k->slot + i], k->batch, begin, left < k->size ? left : k->size, out));
    t->batch = *out;
    return lc_step_status(t->graph);
}

double lc__chunks_part(const lc__chunks *k, int64_t i)
{
    int64_t left = k->batch->size - i * k->size;
    return k->batch->size > 0 && left < k->size ? (double)left / (double)k->size : 1;
}

/* ---- what chunks give ---- */

static double share_of(const lc__chunks *k, int64_t i)
{
    int64_t left = k->batch->size - i * k->size;
    return k->batch->size > 0 ? (double)(left < k->size ? left : k->size) / (double)k->batch->size : 1;
}

/* The mean over samples of this rank's values; NULL where there is none. */
static lc_tensor *mean_of(const lc__chunks *k, lc_tensor *sum, int64_t i, lc_tensor *value)
{
    if (k->n == 1 || !value) return sum ? sum : value;
    lc_no_grad_begin();
    value = lc_mul_scalar(value, share_of(k, i));
    if (sum) value = lc_add(sum, value);
    lc_no_grad_end();
    return value;
}

/* Values that are one number become their mean, others are put together. */
static lc_status join_outputs(lc_trainer *t)
{
    const lc__chunks *k = t->chunks;
    if (k->n < 2) return LC_OK;
    t->outputs.n = k->outputs[0].n;
    for (int o = 0; o < t->outputs.n; o++) {
        lc_tensor *sum = NULL, *first = k->outputs[0].values[o];
        const char *name = t->outputs.names[o] = k->outputs[0].names[o];
        lc_tensor **all = malloc((size_t)k->n * sizeof(lc_tensor *));
        if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: outputs of %lld chunks", (long long)k->n);
        bool same = true;
        for (int64_t i = 0; i < k->n && same; i++) {
            const lc_outputs *of = &k->outputs[i];
            same = of->n > o && !strcmp(of->names[o], name);
            if (!same) break;
            all[i] = of->values[o];
            if (lc_tensor_ndim(first) == 0) sum = mean_of(k, sum, i, all[i]);
        }
        if (same && lc_tensor_ndim(first) > 0) {
            lc_no_grad_begin();
            sum = lc_cat_at(0, (int)k->n, all, LC_HERE);
            lc_no_grad_end();
        }
        free(all);
        if (!same)
            return lc_fail(LC_ERR_USER,
                           "lc_output(\"%.60s\"): in deterministic training every chunk of a batch must "
                           "give the same outputs",
                           name);
        t->outputs.values[o] = lc_keep(sum);
    }
    return LC_OK;
}

/* ---- the closure ---- */

/* Of the host's graph, behind the first step function, as without chunks. */
static lc_status zero_grad(lc_closure *c)
{
    lc_trainer *t = c->t;
    const lc_batch *chunk = t->batch;
    lc__device_part_leave(t);
    lc_status status = lc__closure_zero_grad(c);
    if (t->device_parts) lc__device_part_enter(t, 0);
    t->batch = chunk;
    return status;
}

static lc_status run_chunk(lc_closure *c, int64_t i, double samples, double weight, bool first_of_window, bool *any)
{
    lc_trainer *t = c->t;
    lc__chunks *k = t->chunks;
    lc__tree *tree = lc__tree_of_graph(t->graph);
    t->outputs.n = 0;
    LC_TRY(lc__chunks_take(t, i, &c->batch));
    lc__tree_chunk_begin(tree, k->first + i, i, k->n, weight);
    LC_TRY(lc__run_training_step(c));
    if (first_of_window && i == 0) LC_TRY(zero_grad(c));
    if (c->loss) {
        *any = true;
        LC_TRY(lc__backward_hooks(t, c->loss));
    }
    lc__tree_chunk_end(tree);
    k->outputs[i] = t->outputs;
    LC_TRY(lc_step_status(t->graph));
    return lc__statistics_chunk(k, i, samples);
}

/* The chunks of this rank, or of a device; there are `chunks` in all. */
static lc_status run_chunks(lc_closure *c, const lc_batch *batch, double chunks, bool first_of_window, bool *any)
{
    lc_trainer *t = c->t;
    lc__chunks *k = t->chunks;
    lc_tensor *loss = NULL;
    LC_TRY(lc__chunks_cut(t, batch));
    lc__statistics_begin(k);
    for (int64_t i = 0; i < k->n; i++) {
        double samples = lc__chunks_part(k, i);
        LC_TRY(run_chunk(c, i, samples, samples * (k->window / chunks), first_of_window, any));
        loss = mean_of(k, loss, i, c->loss);
    }
    t->batch = batch;
    c->loss = k->n > 1 && loss ? lc_keep(loss) : loss;
    return join_outputs(t);
}

static lc_status run_parts(lc_closure *c, double chunks, bool first_of_window, int *n, bool *any)
{
    lc_trainer *t = c->t;
    LC_TRY(lc__device_parts_begin(t, c->batch, n));
    for (int i = 0; i < *n; i++) {
        lc_status s = run_chunks(c, lc__device_part_enter(t, i), chunks, first_of_window && i == 0, any);
        t->graph->backwards = 1; /* what is absent is added up, too */
        lc__device_part_set_value(t, i, c->loss);
        lc__device_part_leave(t);
        LC_TRY(s);
    }
    LC_TRY(lc__device_parts_run(t));
    LC_TRY(lc__results_read(t, &t->logging->train_results)); /* another closure of this step begins its own parts */
    c->loss = lc__device_parts_value(t);
    return LC_OK;
}

lc_status lc__chunks_closure(lc_closure *c)
{
    lc_trainer *t = c->t;
    lc__chunks *k = t->chunks;
    const lc_batch *batch = c->batch;
    int64_t place = lc__window_place(t, c->batch_idx);
    double chunks = lc__chunks_of_all(t, batch);
    bool any = false;
    int parts = 1;
    if (place == 0) k->window = chunks;
    LC_TRY(t->device_parts ? run_parts(c, chunks, place == 0, &parts, &any)
                           : run_chunks(c, batch, chunks, place == 0, &any));
    c->batch = t->batch = batch;
    if (k->n == 0) {
        if (place == 0) LC_TRY(lc__closure_zero_grad(c));
        lc__tree_no_chunk(k->tree);
        LC_TRY(lc__statistics_no_chunk(k));
    }
    /* Sums over ranks come before sums over the window, as they would on one rank. */
    int64_t before = place == 0 ? 0 : t->window_backwards;
    t->window_backwards = any;
    if (t->comm || !t->accumulating || t->strategy->syncs_every_backward) LC_TRY(lc__sync_gradients(t));
    any = t->window_backwards > 0;
    t->window_backwards = before + any;
    LC_TRY(lc__statistics_end(k, t->comm, parts, chunks));
    lc__tree_window(k->tree, place, !t->accumulating);
    lc_graph_set_window(t->graph, k->window * (double)(t->window_backwards ? t->window_backwards : 1));
    return any ? lc__hook(t, LC_HOOK_ON_AFTER_BACKWARD, NULL) : LC_OK;
}

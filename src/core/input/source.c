/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders in a run: the rank's share of them, limits, the last batch, and one batch read ahead if the length is
 * unknown. */
#include "core/input/input.h"
#include "comm/world/world.h"
#include "core/input/pieces.h"
#include "core/hooks/profiling.h"
#include "core/hooks/trainer_internal.h"
#include "data/batch_slice.h"
#include "data/data_internal.h"
#include "record/graph_impl.h"
#include "base/handle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ahead: a copy of a batch in our own memory ---- */
typedef struct lc__batch_copy {
    lc_batch batch; /* the batch handed out */
    bool full;
    lc_tensor *tensors[LC_MAX_BATCH_TENSORS];
    void *data[LC_MAX_BATCH_TENSORS];
    size_t bytes[LC_MAX_BATCH_TENSORS];
    struct lc__batch_copy **parts; /* of a combined loader's batch */
    const lc_batch **part_batches;
    int n_parts;
} batch_copy;

static void copy_free(batch_copy *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_parts; i++) copy_free(c->parts[i]);
    free(c->parts);
    free(c->part_batches);
    for (int i = 0; i < LC_MAX_BATCH_TENSORS; i++) {
        lc_tensor_unref(c->tensors[i]);
        free(c->data[i]);
    }
    free(c);
}

static bool fits(const batch_copy *c, int i, const lc_type *type, size_t bytes)
{
    const lc_tensor *have = c->tensors[i];
    if (!have || bytes > c->bytes[i]) return false;
    const lc_type *h = lc_tensor_type(have);
    return type->ndim > 0 && h->dtype == type->dtype && h->ndim == type->ndim &&
           !memcmp(h->shape + 1, type->shape + 1, (size_t)(type->ndim - 1) * sizeof *type->shape);
}

static lc_status copy_tensors(batch_copy *c, const lc_batch *b)
{
    for (int i = 0; i < b->n; i++) {
        const lc_type *type = lc_tensor_type(b->tensors[i]);
        size_t bytes = (size_t)lc_tensor_numel(b->tensors[i]) * lc_dtype_size(type->dtype);
        if (!fits(c, i, type, bytes)) {
            void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
            if (!data) return lc_fail(LC_ERR_MEMORY, "out of memory: a batch of %zu bytes read ahead", bytes);
            lc_tensor_unref(c->tensors[i]);
            c->tensors[i] = NULL;
            free(c->data[i]);
            c->data[i] = data;
            c->bytes[i] = bytes;
            LC_TRY(lc_input_new(type->dtype, type->ndim, type->shape, LC_ROW_MAJOR, data, &c->tensors[i]));
        }
        LC_TRY(lc_tensor_read(b->tensors[i], c->data[i], bytes));
        if (type->ndim > 0) lc_input_set(c->tensors[i], c->data[i], type->shape[0]);
    }
    c->batch = *b; /* sample numbers stay valid in the loader for the whole epoch */
    memcpy(c->batch.tensors, c->tensors, sizeof c->tensors);
    c->batch.x = b->n > 0 ? c->tensors[0] : NULL;
    c->batch.y = b->n > 1 ? c->tensors[1] : NULL;
    c->full = true;
    return LC_OK;
}

/* The tensors of a combined batch are those of its first part. */
static lc_status copy_batch(batch_copy *c, const lc_batch *b)
{
    if (!b->n_parts) return copy_tensors(c, b);
    if (b->n_parts > c->n_parts) { /* the next loader in a sequence of combined loaders may have more */
        batch_copy **parts = realloc(c->parts, (size_t)b->n_parts * sizeof *parts);
        if (parts) c->parts = parts;
        const lc_batch **batches = realloc(c->part_batches, (size_t)b->n_parts * sizeof *batches);
        if (batches) c->part_batches = batches;
        if (!parts || !batches) return lc_fail(LC_ERR_MEMORY, "out of memory: a batch read ahead");
        while (c->n_parts < b->n_parts) c->parts[c->n_parts++] = NULL;
    }
    const lc_batch *first = NULL;
    for (int i = 0; i < b->n_parts; i++) {
        c->part_batches[i] = NULL;
        if (!b->parts[i]) continue;
        if (!c->parts[i] && !(c->parts[i] = calloc(1, sizeof *c->parts[i])))
            return lc_fail(LC_ERR_MEMORY, "out of memory: a batch read ahead");
        LC_TRY(copy_batch(c->parts[i], b->parts[i]));
        c->part_batches[i] = &c->parts[i]->batch;
        if (!first) first = c->part_batches[i];
    }
    if (!first) return lc_fail(LC_ERR_USER, "a loader returned a combined batch without parts");
    c->batch = *first;
    c->batch.n_parts = b->n_parts;
    c->batch.parts = c->part_batches;
    c->full = true;
    return LC_OK;
}

static lc_status read_ahead(lc__source *s, int which)
{
    lc_batch *b = NULL;
    batch_copy *c = s->ahead[which];
    if (!c) {
        c = s->ahead[which] = calloc(1, sizeof *c);
        if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: a batch read ahead");
    }
    c->full = false;
    LC_TRY(lc_dataloader_next(s->loader, &b));
    return b ? copy_batch(c, b) : LC_OK;
}

/* ---- an epoch ---- */

lc_status lc__source_begin(lc__source *s, int64_t epoch, int64_t start)
{
    LC_TRY(lc_dataloader_begin(s->loader, epoch, start));
    s->running = true;
    s->fetched = start;
    s->which = -1;
    return LC_OK;
}

lc_status lc__source_next(lc__source *s, const lc_batch **out, bool *is_last)
{
    *out = NULL;
    *is_last = true;
    if (s->length >= 0) {
        lc_batch *b = NULL;
        if (s->fetched >= s->length) return LC_OK;
        LC_TRY(lc_dataloader_next(s->loader, &b));
        if (!b)
            return lc_fail(LC_ERR_STATE, "the loader ended after %lld of the %lld batches that it promised",
                           (long long)s->fetched, (long long)s->length);
        s->fetched++;
        *out = b;
        *is_last = s->fetched >= s->length;
        return LC_OK;
    }
    if (s->which < 0) {
        s->which = 0;
        LC_TRY(read_ahead(s, 0));
    }
    batch_copy *now = s->ahead[s->which];
    if (!now->full || (s->limit >= 0 && s->fetched >= s->limit)) return LC_OK;
    LC_TRY(lc__source_remember(s));
    s->which = !s->which;
    LC_TRY(read_ahead(s, s->which));
    s->fetched++;
    *out = &now->batch;
    /* As in Lightning, a limit is taken as the length, even if the data ends before it. */
    *is_last = s->limit >= 0 ? s->fetched >= s->limit : !s->ahead[s->which]->full;
    return LC_OK;
}

void lc__source_end(lc__source *s)
{
    if (s->running) lc_dataloader_end(s->loader);
    s->running = false;
}

bool lc__source_is_shared(const lc__source *s)
{
    return s->loader && lc_dataloader_get_share(s->loader)->size > 1; /* NULL: the program's own loop */
}

bool lc__leaves_ranks_empty(const lc_trainer *t, const lc__source *source, const lc_batch *batch)
{
    const lc_share *s = lc_dataloader_get_share(source->loader);
    if (batch->global_size < 1) return false;
    if (batch->piece > 0) { /* the last rank's share is empty */
        int64_t each = (s->pieces + s->size - 1) / s->size * batch->piece;
        return batch->global_size <= each * (t->n_ranks - 1);
    }
    int64_t units = lc__batch_units(batch, t->n_ranks);
    return units > 0 && units < t->n_ranks;
}

void lc__source_close(lc__source *s)
{
    lc__source_end(s);
    for (int i = 0; i < 2; i++) copy_free(s->ahead[i]);
    free(s->state);
    if (s->sequential) lc_dataloader_sequential(s->loader, false);
    if (s->shared_out) {
        lc_status status = lc_dataloader_share(s->loader, &s->share_before);
        (void)status; /* cannot fail: the loader had this share before */
    }
    if (s->owned) lc_dataloader_free(s->loader);
    *s = (lc__source){0};
}

void lc__sources_close(lc__sources *s)
{
    for (int i = 0; i < s->n; i++) lc__source_close(&s->s[i]);
    s->n = 0;
}

void lc__input_close(lc_trainer *t)
{
    lc__source_close(&t->input->train);
    t->input->train.which = -1;
    lc__sources_close(&t->input->eval);
    t->input->eval_loaded = false;
}

/* ---- limits ---- */

bool lc__allows_none(lc_duration limit)
{
    return limit.unit != LC_UNIT_NONE && limit.value == 0;
}

/* Sets the number of batches after a limit. `what` is "train", "val", ... */
static lc_status limit_batches(lc_duration limit, int64_t length, const char *what, lc__source *out)
{
    out->length = length;
    out->limit = -1;
    switch (limit.unit) {
    case LC_UNIT_NONE:
        return LC_OK;
    case LC_UNIT_BATCHES:
        if (length < 0)
            out->limit = (int64_t)limit.value;
        else if (limit.value < (double)length)
            out->length = (int64_t)limit.value;
        return LC_OK;
    case LC_UNIT_FRACTION:
        if (limit.value >= 1) return LC_OK;
        if (length < 0)
            return lc_fail(LC_ERR_CONFIG,
                           "limit_%s_batches=%g cannot be used with a loader of unknown length; use 1.0 or a whole "
                           "number of batches",
                           what, limit.value);
        out->length = (int64_t)((double)length * limit.value);
        if (out->length == 0 && limit.value > 0 && length > 0)
            return lc_fail(LC_ERR_CONFIG,
                           "You requested to check %g of the `%s_dataloader` but %g * %lld < 1. Please increase the "
                           "`limit_%s_batches` argument. Try at least `limit_%s_batches=%.3g`",
                           limit.value, what, limit.value, (long long)length, what, what, 1.0 / (double)length);
        return LC_OK;
    case LC_UNIT_EPOCHS:
    case LC_UNIT_STEPS:
    case LC_UNIT_SECONDS:
        break;
    }
    return lc_fail(LC_ERR_CONFIG,
                   "limit_%s_batches must be a number of batches (100) or a fraction of the loader (0.2)", what);
}

/* A per-rank loader is not divided. No other rank can read the samples of lost ranks. */
static lc_status check_per_rank(const lc_trainer *t)
{
    int ranks = lc_trainer_world_size(t), batches = lc__world_batches(ranks);
    if (ranks == batches) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "%d of %d ranks are left, but each rank has its own loader (per_rank of lc_dataloader_ops), so the "
                   "samples of the lost ranks would be skipped; with --use_distributed_sampler false all ranks restart",
                   ranks, batches);
}

/* Restricts the loader to this rank's share, unless the program has done so itself. */
static lc_status share(lc_trainer *t, lc__source *s, bool train)
{
    s->share_before = *lc_dataloader_get_share(s->loader);
    lc_share mine = {.rank = lc_trainer_global_rank(t), .size = lc_trainer_world_size(t)};
    mine.batches = lc__world_batches(mine.size);
    bool shared = mine.batches > 1; /* also if only one rank is left */
    if (shared && (!t->opt.use_distributed_sampler || s->share_before.size > 1)) return LC_OK;
    if (shared && lc__dataloader_is_per_rank(s->loader)) return check_per_rank(t);
    if (!shared) mine = s->share_before;
    if (t->opt.deterministic) LC_TRY(lc__pieces_share(t, s->loader, train, &mine));
    if (!shared && mine.size == 1 && !mine.pieces) return LC_OK;
    LC_TRY(lc_dataloader_share(s->loader, &mine));
    s->shared_out = true;
    return LC_OK;
}

static lc_status source_open(lc_trainer *t, lc__source *s, lc_dataloader *loader, bool owned, lc_duration limit,
                             const char *what)
{
    char name[40];
    snprintf(name, sizeof name, "%s_dataloader", what);
    *s = (lc__source){.which = -1};
    /* Freeing a loader before the run is an easy mistake, since the program owns the loaders it passes. */
    if (!lc__has_mark(loader, LC__MARK_OF(LOADER))) return lc__not_a(loader, LC__MARK_OF(LOADER), name);
    s->loader = loader;
    s->owned = owned;
    /* overfit_batches uses the same batches in every epoch. */
    s->sequential = t->stage == LC_STAGE_FIT && t->opt.overfit_batches.value > 0;
    if (s->sequential && lc_dataloader_sequential(loader, true))
        lc_trainer_message(t, LC_WARNING,
                           "overfit_batches: the %s loader gives its samples in order, without shuffling", what);
    LC_TRY(lc__dataloader_pin(loader, t->graph->on));
    LC_TRY(share(t, s, t->stage == LC_STAGE_FIT && s == &t->input->train));
    int64_t length = lc_dataloader_length(loader, t->current_epoch);
    if (length == 0 && s != &t->input->train) /* watch.c reports an epoch without training */
        lc_trainer_message(t, LC_WARNING, "the %s loader gives no batches: is that intended?", what);
    return limit_batches(limit, length, what, s);
}

static void free_loaders(lc_loaders *l, int from)
{
    for (int i = from; i < l->n; i++) lc_dataloader_free(l->loaders[i]);
}

/* Resolves val_check_interval when the number of training batches is known. */
static lc_status setup_val_check(lc_trainer *t)
{
    lc_duration v = t->opt.val_check_interval;
    int64_t n =
        t->input->train.length < 0 && t->input->train.limit > 0 ? t->input->train.limit : t->input->train.length;
    bool across = t->opt.check_val_every_n_epoch == LC_UNSET;
    bool wanted = t->opt.limit_val_batches.unit == LC_UNIT_NONE || t->opt.limit_val_batches.value > 0;
    if (v.unit == LC_UNIT_NONE) v = LC_FRACTION(1);
    switch (v.unit) {
    case LC_UNIT_SECONDS:
        t->input->val_check = LC__VAL_TIME;
        t->input->val_time_ns = lc__now_ns();
        return LC_OK;
    case LC_UNIT_STEPS:
        if (v.value < 1)
            return lc_fail(LC_ERR_CONFIG, "val_check_interval=%gst must be at least 1 optimizer step", v.value);
        t->input->val_check = LC__VAL_STEPS;
        return LC_OK;
    case LC_UNIT_BATCHES:
        if (v.value < 1) return lc_fail(LC_ERR_CONFIG, "val_check_interval=%g must be at least 1 batch", v.value);
        if (n >= 0 && v.value > (double)n && !across && wanted && n > 0)
            return lc_fail(LC_ERR_CONFIG,
                           "`val_check_interval` (%.0f) must be less than or equal to the number of the training "
                           "batches (%lld). If you want to disable validation set `limit_val_batches` to 0 instead; to "
                           "count batches across epochs set check_val_every_n_epoch to none",
                           v.value, (long long)n);
        t->input->val_check = LC__VAL_BATCHES;
        t->input->val_check_batch = (int64_t)v.value;
        return LC_OK;
    case LC_UNIT_FRACTION:
        if (n < 0) {
            if (v.value < 1)
                return lc_fail(LC_ERR_CONFIG,
                               "val_check_interval=%g cannot be used with a loader of unknown length; use 1.0 or a "
                               "number of batches",
                               v.value);
            t->input->val_check = LC__VAL_EPOCH_END;
            return LC_OK;
        }
        t->input->val_check = LC__VAL_BATCHES;
        t->input->val_check_batch = (int64_t)((double)n * v.value);
        if (t->input->val_check_batch < 1) t->input->val_check_batch = 1;
        return LC_OK;
    default:
        return lc_fail(
            LC_ERR_CONFIG,
            "val_check_interval must be a fraction of an epoch (0.25), a number of batches (100), optimizer steps "
            "(500st) or epochs (2ep), or a time (10m)");
    }
}

static lc_status open_train_data(lc_trainer *t)
{
    lc_duration limit = t->opt.limit_train_batches;
    lc_loaders list = {0};
    lc_dataloader *loader;
    t->input->loaders_epoch = t->current_epoch;
    if (t->args && t->args->train_dataloader)
        return source_open(t, &t->input->train, t->args->train_dataloader, false, limit, "train");
    LC_TRY(lc__ask_loaders(t, LC_HOOK_TRAIN_DATALOADER, &list));
    loader = list.loaders[0];
    if (list.n > 1) LC_TRY(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, list.n, list.loaders, &loader));
    return source_open(t, &t->input->train, loader, true, limit, "train");
}

/* Every rank must train on the same number of batches in an epoch, or a rank would wait for gradients of one that has
 * none left. If ranks have their own loaders (use_distributed_sampler=false) the shortest decides. Collective. */
static lc_status agree_on_length(lc_trainer *t)
{
    int64_t mine = t->input->train.own_length = t->input->train.length, *all;
    int least = 0, most = 0;
    if (!t->comm) return LC_OK;
    all = malloc((size_t)t->n_ranks * sizeof *all);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: the lengths of %d ranks' data", t->n_ranks);
    for (int r = 0; r < t->n_ranks; r++) all[r] = mine; /* also for ranks that do not exist (lc_comm_fake) */
    lc_status s = lc_comm_all_gather(t->comm, &mine, all, 1, LC_I64, NULL);
    for (int r = 1; r < t->n_ranks && s >= 0; r++) {
        if (all[r] < all[least]) least = r;
        if (all[r] > all[most]) most = r;
    }
    if (s >= 0 && all[least] < 0 && all[most] >= 0)
        s = lc_fail(LC_ERR_CONFIG,
                    "rank %d does not know its number of training batches, while rank %d has %lld; give both loaders a "
                    "length (lc_dataloader_ops.length), or set limit_train_batches on both",
                    least, most, (long long)all[most]);
    if (s >= 0 && all[least] != all[most]) {
        t->input->train.length = all[least];
        if (!t->input->uneven_reported)
            lc_trainer_message(
                t, LC_WARNING,
                "rank %d has %lld training batches per epoch and rank %d has %lld: every rank trains on %lld", least,
                (long long)all[least], most, (long long)all[most], (long long)all[least]);
        t->input->uneven_reported = true;
    }
    free(all);
    return s;
}

lc_status lc__setup_train_data(lc_trainer *t)
{
    int64_t every = t->opt.reload_dataloaders_every_n_epochs;
    if (t->input->train.loader && every > 0 && t->current_epoch - t->input->loaders_epoch >= every) {
        t->input->loaders_epoch = t->current_epoch;
        if (t->input->eval.n && t->input->eval.s[0].owned) {
            lc__sources_close(&t->input->eval);
            t->input->eval_loaded = false;
            memset(t->input->val_batch_count, 0,
                   sizeof t->input->val_batch_count); /* counts of new loaders start over */
        }
        if (t->input->train.owned) lc__source_close(&t->input->train);
    }
    if (t->input->train.loader) {
        if (t->input->train.limit < 0 && t->input->train.length >= 0) { /* the next epoch may be longer */
            lc__source now = t->input->train;
            LC_TRY(limit_batches(t->opt.limit_train_batches,
                                 lc_dataloader_length(t->input->train.loader, t->current_epoch), "train", &now));
            t->input->train.length = now.length;
            t->input->train.limit = now.limit;
        }
        LC_TRY(agree_on_length(t));
        lc_unit unit = t->opt.val_check_interval.unit; /* a fraction of this epoch, or its end */
        return unit == LC_UNIT_NONE || unit == LC_UNIT_FRACTION ? setup_val_check(t) : LC_OK;
    }
    LC_TRY(open_train_data(t));
    LC_TRY(agree_on_length(t));
    if (t->profiling) lc__profiling_watch(t, t->input->train.loader, true);
    return setup_val_check(t);
}

static lc_duration eval_limit(const lc_trainer *t)
{
    switch (t->stage) {
    case LC_STAGE_TEST:
        return t->opt.limit_test_batches;
    case LC_STAGE_PREDICT:
        return t->opt.limit_predict_batches;
    default:
        return t->opt.limit_val_batches;
    }
}

lc_status lc__setup_eval_data(lc_trainer *t)
{
    static const char *const what[] = {"val", "val", "test", "predict"};
    if (t->input->eval_loaded) return LC_OK;
    lc__sources_close(&t->input->eval);
    if (lc__allows_none(eval_limit(t))) return LC_OK;
    lc_dataloader *given[1];
    lc_dataloader *const *list = t->args ? t->args->dataloaders : NULL;
    int n = t->args ? t->args->n_dataloaders : 0;
    if (!n && t->args && t->args->val_dataloader) {
        given[0] = t->args->val_dataloader;
        list = given;
        n = 1;
    }
    if (n > LC_MAX_LOADERS)
        return lc_fail(LC_ERR_CONFIG, "%d loaders were given; at most %d are allowed", n, LC_MAX_LOADERS);
    lc_loaders from_module = {0};
    bool owned = false;
    if (!n) {
        LC_TRY(lc__ask_loaders(t,
                               t->stage == LC_STAGE_TEST      ? LC_HOOK_TEST_DATALOADER
                               : t->stage == LC_STAGE_PREDICT ? LC_HOOK_PREDICT_DATALOADER
                                                              : LC_HOOK_VAL_DATALOADER,
                               &from_module));
        list = from_module.loaders;
        n = from_module.n;
        owned = true;
    }
    for (int i = 0; i < n; i++) {
        lc_status s = source_open(t, &t->input->eval.s[i], list[i], owned, eval_limit(t), what[t->stage]);
        t->input->eval.n = i + 1;
        if (s < 0) {
            if (owned) free_loaders(&from_module, i + 1);
            return s;
        }
    }
    t->input->eval_loaded = true;
    return LC_OK;
}

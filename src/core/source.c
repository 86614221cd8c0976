/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders in a run: limits, the last batch, one batch read ahead where nobody knows how many come. */
#include "core/trainer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ahead: a copy of a batch in memory of our own ---- */
typedef struct lc__batch_copy {
    lc_batch batch;
    bool full;
    int n;
    void *data[LC_MAX_BATCH_TENSORS];
    size_t bytes[LC_MAX_BATCH_TENSORS];
} batch_copy;

static void copy_free(batch_copy *c)
{
    if (!c) return;
    for (int i = 0; i < LC_MAX_BATCH_TENSORS; i++) {
        lc_tensor_unref(c->batch.tensors[i]);
        free(c->data[i]);
    }
    free(c);
}

static bool fits(const batch_copy *c, int i, const lc_type *type, size_t bytes)
{
    const lc_tensor *have = c->batch.tensors[i];
    if (!have || bytes > c->bytes[i]) return false;
    const lc_type *h = lc_tensor_type(have);
    return type->ndim > 0 && h->dtype == type->dtype && h->ndim == type->ndim &&
           !memcmp(h->shape + 1, type->shape + 1, (size_t)(type->ndim - 1) * sizeof *type->shape);
}

static lc_status copy_batch(batch_copy *c, const lc_batch *b)
{
    for (int i = 0; i < b->n; i++) {
        const lc_type *type = lc_tensor_type(b->tensors[i]);
        size_t bytes = (size_t)lc_tensor_numel(b->tensors[i]) * lc_dtype_size(type->dtype);
        if (!fits(c, i, type, bytes)) {
            void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
            if (!data) return lc_fail(LC_ERR_MEMORY, "out of memory: a batch of %zu bytes read ahead", bytes);
            lc_tensor_unref(c->batch.tensors[i]);
            c->batch.tensors[i] = NULL;
            free(c->data[i]);
            c->data[i] = data;
            c->bytes[i] = bytes;
            LC_TRY(lc_input_new(type->dtype, type->ndim, type->shape, LC_ROW_MAJOR, data, &c->batch.tensors[i]));
        }
        LC_TRY(lc_tensor_read(b->tensors[i], c->data[i], bytes));
        if (type->ndim > 0) lc_input_set(c->batch.tensors[i], c->data[i], type->shape[0]);
        c->batch.names[i] = b->names[i];
    }
    c->batch.n = b->n;
    c->batch.x = b->n > 0 ? c->batch.tensors[0] : NULL;
    c->batch.y = b->n > 1 ? c->batch.tensors[1] : NULL;
    c->batch.size = b->size;
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
    s->which = !s->which;
    LC_TRY(read_ahead(s, s->which));
    s->fetched++;
    *out = &now->batch;
    *is_last = !s->ahead[s->which]->full || (s->limit >= 0 && s->fetched >= s->limit);
    return LC_OK;
}

void lc__source_end(lc__source *s)
{
    if (s->running) lc_dataloader_end(s->loader);
    s->running = false;
}

void lc__source_close(lc__source *s)
{
    lc__source_end(s);
    for (int i = 0; i < 2; i++) copy_free(s->ahead[i]);
    if (s->owned) lc_dataloader_free(s->loader);
    *s = (lc__source){0};
}

void lc__sources_close(lc__sources *s)
{
    for (int i = 0; i < s->n; i++) lc__source_close(&s->s[i]);
    s->n = 0;
}

/* ---- limits ---- */

lc_status lc__limit(lc_duration limit, int64_t length, const char *what, lc__source *out)
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
    return lc_fail(LC_ERR_CONFIG, "limit_%s_batches takes a number of batches (100) or a part of the loader (0.2)",
                   what);
}

static lc_status source_open(lc_trainer *t, lc__source *s, lc_dataloader *loader, bool owned, lc_duration limit,
                             const char *what)
{
    *s = (lc__source){.loader = loader, .owned = owned, .which = -1};
    return lc__limit(limit, lc_dataloader_length(loader, t->current_epoch), what, s);
}

static void free_loaders(lc_loaders *l, int from)
{
    for (int i = from; i < l->n; i++) lc_dataloader_free(l->loaders[i]);
}

/* val_check_interval, once the number of training batches is known. */
static lc_status setup_val_check(lc_trainer *t)
{
    lc_duration v = t->opt.val_check_interval;
    int64_t n = t->train.length < 0 && t->train.limit > 0 ? t->train.limit : t->train.length;
    bool across = t->opt.check_val_every_n_epoch <= 0;
    bool wanted = t->opt.limit_val_batches.unit == LC_UNIT_NONE || t->opt.limit_val_batches.value > 0;
    if (v.unit == LC_UNIT_NONE) v = LC_FRACTION(1);
    switch (v.unit) {
    case LC_UNIT_SECONDS:
        t->val_check_batch = -2;
        t->val_time_ns = lc__now_ns();
        return LC_OK;
    case LC_UNIT_BATCHES:
        if (v.value < 1) return lc_fail(LC_ERR_CONFIG, "val_check_interval=%g must be at least 1 batch", v.value);
        if (n >= 0 && v.value > (double)n && !across && wanted && n > 0)
            return lc_fail(LC_ERR_CONFIG,
                           "`val_check_interval` (%.0f) must be less than or equal to the number of the training "
                           "batches (%lld). If you want to disable validation set `limit_val_batches` to 0 instead; to "
                           "count batches across epochs set check_val_every_n_epoch to none",
                           v.value, (long long)n);
        t->val_check_batch = (int64_t)v.value;
        return LC_OK;
    case LC_UNIT_FRACTION:
        if (across && t->opt.val_check_interval.unit == LC_UNIT_FRACTION)
            return lc_fail(LC_ERR_CONFIG, "val_check_interval must be a number of batches (100) or a time (10m) where "
                                          "check_val_every_n_epoch is none");
        if (n < 0) {
            if (v.value < 1)
                return lc_fail(LC_ERR_CONFIG,
                               "val_check_interval=%g cannot be used with a loader of unknown length; use 1.0 or a "
                               "number of batches",
                               v.value);
            t->val_check_batch = -1;
            return LC_OK;
        }
        t->val_check_batch = (int64_t)((double)n * v.value);
        if (t->val_check_batch < 1) t->val_check_batch = 1;
        return LC_OK;
    default:
        return lc_fail(LC_ERR_CONFIG,
                       "val_check_interval takes a part of an epoch (0.25), a number of batches (100) or a time (10m)");
    }
}

lc_status lc__setup_train_data(lc_trainer *t)
{
    int64_t every = t->opt.reload_dataloaders_every_n_epochs;
    bool loaded = t->train.loader != NULL;
    if (loaded && !(every > 0 && t->current_epoch - t->loaders_epoch >= every && t->train.owned)) {
        if (t->train.limit < 0 && t->train.length >= 0) { /* the next epoch may be longer */
            lc__source now = t->train;
            LC_TRY(lc__limit(t->opt.limit_train_batches, lc_dataloader_length(t->train.loader, t->current_epoch),
                             "train", &now));
            t->train.length = now.length;
            t->train.limit = now.limit;
        }
        return LC_OK;
    }
    if (loaded) {
        lc__source_close(&t->train);
        if (t->eval.n && t->eval.s[0].owned) { /* validation loaders come anew as well */
            lc__sources_close(&t->eval);
            t->eval_loaded = false;
            memset(t->val_batch_count, 0, sizeof t->val_batch_count); /* rows of new loaders count anew */
        }
    }
    t->loaders_epoch = t->current_epoch;
    if (t->args && t->args->train_dataloader) {
        LC_TRY(source_open(t, &t->train, t->args->train_dataloader, false, t->opt.limit_train_batches, "train"));
    } else {
        lc_loaders list = {0};
        if (!t->mo.train_dataloader)
            return lc_fail(LC_ERR_CONFIG, "%s has no train_dataloader, and none was given to lc_trainer_fit",
                           t->mo.name);
        lc_hook saved = t->hook;
        t->hook = LC_HOOK_TRAIN_DATALOADER;
        lc_status s = t->mo.train_dataloader(t->m, &list);
        if (s != LC_OK) s = lc__hook_result(t, s, NULL);
        t->hook = saved;
        if (s >= 0 && list.n != 1)
            s = lc_fail(LC_ERR_CONFIG, "train_dataloader added %d loaders; it must add one", list.n);
        if (s < 0) {
            free_loaders(&list, 0);
            return s;
        }
        LC_TRY(source_open(t, &t->train, list.loaders[0], true, t->opt.limit_train_batches, "train"));
    }
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
    if (t->eval_loaded) return LC_OK;
    lc_dataloader *given[1];
    lc_dataloader *const *list = t->args ? t->args->dataloaders : NULL;
    int n = t->args ? t->args->n_dataloaders : 0;
    if (!n && t->args && t->args->val_dataloader) {
        given[0] = t->args->val_dataloader;
        list = given;
        n = 1;
    }
    if (n > LC_MAX_LOADERS)
        return lc_fail(LC_ERR_CONFIG, "%d loaders were given; at most %d can be", n, LC_MAX_LOADERS);
    lc_loaders from_module = {0};
    bool owned = false;
    if (!n) {
        lc_status (*ask)(lc_module *, lc_loaders *) = t->stage == LC_STAGE_TEST      ? t->mo.test_dataloader
                                                      : t->stage == LC_STAGE_PREDICT ? t->mo.predict_dataloader
                                                                                     : t->mo.val_dataloader;
        if (!ask)
            return lc_fail(LC_ERR_CONFIG, "%s has no %s_dataloader, and no loader was given", t->mo.name,
                           what[t->stage]);
        lc_hook saved = t->hook;
        t->hook = t->stage == LC_STAGE_TEST      ? LC_HOOK_TEST_DATALOADER
                  : t->stage == LC_STAGE_PREDICT ? LC_HOOK_PREDICT_DATALOADER
                                                 : LC_HOOK_VAL_DATALOADER;
        lc_status s = ask(t->m, &from_module);
        if (s != LC_OK) s = lc__hook_result(t, s, NULL);
        t->hook = saved;
        if (s < 0) {
            free_loaders(&from_module, 0);
            return s;
        }
        list = from_module.loaders;
        n = from_module.n;
        owned = true;
    }
    lc__sources_close(&t->eval);
    for (int i = 0; i < n; i++) {
        lc_status s = source_open(t, &t->eval.s[i], list[i], owned, eval_limit(t), what[t->stage]);
        t->eval.n = i + 1;
        if (s < 0) {
            if (owned) free_loaders(&from_module, i + 1);
            return s;
        }
    }
    t->eval_loaded = true;
    return LC_OK;
}

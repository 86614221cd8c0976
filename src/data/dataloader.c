/* SPDX-License-Identifier: Apache-2.0 */
/* The loader handle: a vtable with its defaults, and the cursor that counts consumed batches. The loader over a dataset
 * is in loader.c; a program's own loader uses the same interface. */
#include "base/args.h"
#include "data_internal.h"
#include "base/handle.h"
#include "device/pin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lc_dataloader {
    lc__mark mark;
    lc_dataloader_ops ops; /* defaults filled in */
    void *self;
    lc__pin_fn *pin;     /* NULL: a program's own */
    const lc_device *on; /* what it was called with last */
    lc_share share;
    int64_t epoch, consumed;
    enum { IDLE, RUNNING, FINISHED, FAILED } phase;
    bool is_part; /* of a combined loader */
};

static int64_t unknown_length(void *self, int64_t epoch)
{
    (void)self, (void)epoch;
    return -1;
}

static void nothing_to_end(void *self)
{
    (void)self;
}

static lc_status save_nothing(void *self, void *data, size_t *size)
{
    (void)self, (void)data;
    *size = 0;
    return LC_OK;
}

static lc_status load_nothing(void *self, const void *data, size_t size)
{
    (void)self, (void)data;
    if (size) return lc_fail(LC_ERR_STATE, "this loader has no state, but %zu bytes of state were stored", size);
    return LC_OK;
}

static int64_t none_replaced(void *self, const char **why)
{
    (void)self, (void)why;
    return -1;
}

static int64_t unknown_batch_size(void *self)
{
    (void)self;
    return 0;
}

static void nothing_to_observe(void *self, lc_span_fn *fn, void *ctx)
{
    (void)self, (void)fn, (void)ctx;
}

static bool always_sequential(void *self, bool on)
{
    (void)self, (void)on;
    return false;
}

static lc_status all_or_nothing(void *self, const lc_share *share)
{
    (void)self;
    if (share->size == 1 && share->batches == 1) return LC_OK; /* batches without pieces */
    return lc_fail(LC_ERR_UNSUPPORTED,
                   "it is the program's own loader and lacks `share` of lc_dataloader_ops, so it cannot give rank %d "
                   "of %d its share. Add `share`; or set `per_rank` if the loaders of the ranks already give different "
                   "samples; or keep all loaders as they are (--use_distributed_sampler false)",
                   share->rank, share->size);
}

static int nothing_to_describe(void *self, int64_t epoch, char *text, size_t size)
{
    (void)self, (void)epoch;
    return snprintf(text, size, "%s", "");
}

lc_status lc_dataloader_from_ops(const lc_dataloader_ops *ops, void *self, lc_dataloader **out)
{
    return lc__dataloader_new(ops, NULL, self, out);
}

lc_status lc__dataloader_new(const lc_dataloader_ops *ops, lc__pin_fn *pin, void *self, lc_dataloader **out)
{
    lc_dataloader_ops full = {0};
    if (out) *out = NULL;
    LC_TRY(lc__ops_take(&full, sizeof full, ops, offsetof(lc_dataloader_ops, length), "a loader",
                        "LC_DATALOADER_OPS_INIT"));
    if (!full.name) full.name = "loader";
    lc_status status = LC_OK;
    lc_dataloader *l = calloc(1, sizeof *l);
    if (!out)
        status = lc__is_null(__func__, "out");
    else if (!l)
        status = lc_fail(LC_ERR_MEMORY, "out of memory for loader '%s'", full.name);
    else if (!full.begin || !full.next)
        status = lc_fail(LC_ERR_ARGUMENT, "loader '%s' lacks the required function '%s'", full.name,
                         full.begin ? "next" : "begin");
    else if (!full.save != !full.load)
        status =
            lc_fail(LC_ERR_ARGUMENT, "loader '%s' has only one of save and load; it needs both or neither", full.name);
    if (status < 0) {
        if (full.free) full.free(self);
        free(l);
        return status;
    }
    if (!full.length) full.length = unknown_length;
    if (!full.end) full.end = nothing_to_end;
    if (!full.save) full.save = save_nothing;
    if (!full.load) full.load = load_nothing;
    if (!full.batch_size) full.batch_size = unknown_batch_size;
    if (!full.sequential) full.sequential = always_sequential;
    if (!full.observe) full.observe = nothing_to_observe;
    if (!full.replaced) full.replaced = none_replaced;
    if (!full.share) full.share = all_or_nothing;
    if (!full.describe) full.describe = nothing_to_describe;
    l->mark = LC__MARK_OF(LOADER);
    l->ops = full;
    l->self = self;
    l->pin = pin;
    l->share = (lc_share){.size = 1, .batches = 1};
    *out = l;
    return LC_OK;
}

void lc__dataloader_set_part(lc_dataloader *l, bool is_part)
{
    l->is_part = is_part;
}

bool lc__dataloader_is_part(const lc_dataloader *l)
{
    return l->is_part;
}

void lc_dataloader_free(lc_dataloader *l)
{
    if (!l) return;
    LC__IS_OR_NULL(l, LOADER, );
    if (l->is_part) {
        (void)lc_fail(LC_ERR_ARGUMENT, "lc_dataloader_free: the loader belongs to a combined loader, which frees it");
        return;
    }
    lc_dataloader_end(l);
    if (l->ops.free) l->ops.free(l->self);
    lc__mark_clear(&l->mark);
    free(l);
}

lc_status lc_dataloader_begin(lc_dataloader *l, int64_t epoch, int64_t start)
{
    LC__IS(l, LOADER, LC_ERR_ARGUMENT);
    lc_dataloader_end(l);
    if (epoch < 0 || start < 0)
        return lc_fail(LC_ERR_ARGUMENT, "loader '%s': epoch %lld, batch %lld: both must be at least 0", l->ops.name,
                       (long long)epoch, (long long)start);
    l->epoch = epoch;
    l->consumed = start;
    l->phase = FAILED;
    unsigned before = lc__error_count();
    lc_status status = lc__answered(l->ops.begin(l->self, epoch, start), before, "begin", "a loader");
    if (status != LC_OK) return lc_fail_context(status, "loader '%s', epoch %lld", l->ops.name, (long long)epoch);
    l->phase = RUNNING;
    return LC_OK;
}

lc_status lc_dataloader_next(lc_dataloader *l, lc_batch **out)
{
    LC__IS(l, LOADER, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    if (l->phase == FINISHED) return LC_OK;
    if (l->phase != RUNNING)
        return lc_fail(LC_ERR_STATE, "loader '%s': %s", l->ops.name,
                       l->phase == FAILED ? "the epoch ended with an error; begin a new one"
                                          : "no epoch has begun (lc_dataloader_begin)");
    unsigned before = lc__error_count();
    lc_status status = lc__answered(l->ops.next(l->self, out), before, "next", "a loader");
    if (status == LC_OK && *out && l->share.size > 1 && (*out)->global_size < 1)
        status =
            lc_fail(LC_ERR_USER, "it does not set the number of samples of all ranks together (lc_batch.global_size)");
    if (status != LC_OK) {
        *out = NULL;
        l->phase = FAILED;
        return lc_fail_context(status, "loader '%s', batch %lld", l->ops.name, (long long)l->consumed);
    }
    if (*out)
        l->consumed++;
    else
        l->phase = FINISHED;
    return LC_OK;
}

bool lc__dataloader_is_per_rank(const lc_dataloader *l)
{
    return l->ops.per_rank;
}

bool lc__dataloader_can_cut(const lc_dataloader *l)
{
    return l->ops.cut != NULL;
}

lc_status lc__dataloader_cut(lc_dataloader *l, int64_t begin, int64_t n, lc_batch **out)
{
    *out = NULL;
    if (!l->ops.cut)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "loader '%s' lacks `cut` of lc_dataloader_ops, so a combined loader cannot give every rank the "
                       "same share of parts of different sizes; add it, or avoid smaller batches (drop_last)",
                       l->ops.name);
    unsigned before = lc__error_count();
    lc_status status = lc__answered(l->ops.cut(l->self, begin, n, out), before, "cut", "a loader");
    if (status == LC_OK && (!*out || (*out)->size != n || (*out)->global_offset != begin))
        status =
            lc_fail(LC_ERR_USER, "cut did not return samples [%lld, %lld)", (long long)begin, (long long)(begin + n));
    if (status == LC_OK) return LC_OK;
    *out = NULL;
    l->phase = FAILED;
    return lc_fail_context(status, "loader '%s', batch %lld", l->ops.name, (long long)l->consumed - 1);
}

void lc_dataloader_end(lc_dataloader *l)
{
    LC__IS(l, LOADER, );
    if (l->phase == IDLE) return;
    l->phase = IDLE;
    l->ops.end(l->self);
}

int64_t lc_dataloader_length(lc_dataloader *l, int64_t epoch)
{
    LC__IS(l, LOADER, 0);
    int64_t n = l->ops.length(l->self, epoch);
    return n < 0 ? -1 : n;
}

int64_t lc_dataloader_batch_size(const lc_dataloader *l)
{
    LC__IS(l, LOADER, 0);
    return l->ops.batch_size(l->self);
}

int64_t lc__dataloader_replaced(lc_dataloader *l, const char **why)
{
    *why = NULL;
    return l->ops.replaced(l->self, why);
}

int64_t lc_dataloader_replaced(lc_dataloader *l, const char **why)
{
    LC__IS(l, LOADER, 0);
    const char *first;
    int64_t n = lc__dataloader_replaced(l, &first);
    if (why) *why = first;
    return n > 0 ? n : 0;
}

void lc_dataloader_cursor(const lc_dataloader *l, int64_t *epoch, int64_t *batches)
{
    LC__IS(l, LOADER, );
    LC__NEEDS(epoch, );
    LC__NEEDS(batches, );
    *epoch = l->epoch;
    *batches = l->consumed;
}

lc_status lc_dataloader_save(lc_dataloader *l, void *data, size_t *size)
{
    LC__IS(l, LOADER, LC_ERR_ARGUMENT);
    LC__NEEDS(size, LC_ERR_ARGUMENT);
    unsigned before = lc__error_count();
    return lc__answered(l->ops.save(l->self, data, size), before, "save", "a loader");
}

lc_status lc_dataloader_load(lc_dataloader *l, const void *data, size_t size)
{
    LC__IS(l, LOADER, LC_ERR_ARGUMENT);
    unsigned before = lc__error_count();
    return lc__answered(l->ops.load(l->self, data, size), before, "load", "a loader");
}

bool lc_dataloader_sequential(lc_dataloader *l, bool on)
{
    LC__IS(l, LOADER, false);
    return l->ops.sequential(l->self, on);
}

int lc_dataloader_describe(lc_dataloader *l, int64_t epoch, char *text, size_t size)
{
    LC__IS(l, LOADER, 0);
    if (size) LC__NEEDS(text, 0);
    return l->ops.describe(l->self, epoch, text, size);
}

void lc_dataloader_observe(lc_dataloader *l, lc_span_fn *fn, void *ctx)
{
    LC__IS(l, LOADER, );
    if (l) l->ops.observe(l->self, fn, ctx);
}

lc_status lc_dataloader_share(lc_dataloader *l, const lc_share *given)
{
    LC__IS(l, LOADER, LC_ERR_ARGUMENT);
    lc_share share;
    LC_TRY(lc__share_resolve(given, &share));
    lc_dataloader_end(l);
    unsigned before = lc__error_count();
    lc_status status = lc__answered(l->ops.share(l->self, &share), before, "share", "a loader");
    if (status != LC_OK) return lc_fail_context(status, "loader '%s'", l->ops.name);
    l->share = share;
    return LC_OK;
}

lc_status lc__dataloader_pin(lc_dataloader *l, const lc_device *on)
{
    on = lc__can_pin(on) ? on : NULL;
    if (!l->pin || l->on == on) return LC_OK;
    lc_dataloader_end(l);
    LC_TRY(l->pin(l->self, on));
    l->on = on;
    return LC_OK;
}

void lc_dataloader_times(lc_dataloader *l, lc_loader_times *out)
{
    LC__NEEDS(out, );
    *out = (lc_loader_times){.waited = 0};
    LC__IS(l, LOADER, );
    if (l->ops.times) l->ops.times(l->self, out);
}

const lc_share *lc_dataloader_get_share(const lc_dataloader *l)
{
    LC__IS(l, LOADER, NULL);
    return &l->share;
}

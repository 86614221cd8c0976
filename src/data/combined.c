/* SPDX-License-Identifier: Apache-2.0 */
/* Several loaders as one: Lightning's CombinedLoader, with its four modes.
 *
 * With several ranks each loader gives shares of its own batches, evenly cut. Batches are usually full, and a rank then
 * has the same share of all of them. If the last batch of one loader is smaller it may not: then ranges in the same
 * proportions are requested (cut). */
#include "base/str.h"
#include "batch_slice.h"
#include "data_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of the loaders, and its position. */
typedef struct part {
    lc_dataloader *loader;
    int64_t cycle, consumed; /* how often it restarted, and batches since then */
    bool ended;              /* at least once */
} part;

typedef struct combined {
    lc_combine mode;
    int n, current; /* current: of LC_SEQUENTIAL */
    bool loaded;    /* the parts' positions come from load() */
    int64_t epoch;
    int64_t replaced; /* samples (lc_dataloader_replaced) of cycles that have ended, and why the first was */
    const char *why_replaced;
    lc_share share;
    lc_batch batch;
    const lc_batch **batches;
    part parts[];
} combined;

#define MOST_CYCLES  ((int64_t)1 << 30)
#define MOST_BATCHES INT64_C(1000000000000000)

/* Each cycle has its own order; the first has the order of the loader by itself. */
static int64_t epoch_of(const combined *c, const part *p)
{
    return c->epoch + p->cycle * ((int64_t)1 << 32);
}

static lc_status slice_begin(combined *c, part *p)
{
    return lc_dataloader_begin(p->loader, epoch_of(c, p), p->consumed);
}

static int64_t combined_length(void *self, int64_t epoch)
{
    const combined *c = self;
    int64_t most = 0, least = INT64_MAX, sum = 0;
    for (int i = 0; i < c->n; i++) {
        int64_t n = lc_dataloader_length(c->parts[i].loader, epoch);
        if (n < 0) return -1;
        if (n > most) most = n;
        if (n < least) least = n;
        sum += n;
    }
    if (c->mode == LC_MAX_SIZE_CYCLE) return least ? most : 0;
    return c->mode == LC_MIN_SIZE ? least : c->mode == LC_MAX_SIZE ? most : sum;
}

/* A part begins again whenever it ends, each time perhaps with another number of batches (max_tokens). */
static void seek_cycle(const combined *c, part *p)
{
    int64_t length = lc_dataloader_length(p->loader, epoch_of(c, p));
    while (length > 0 && p->consumed > length) {
        p->ended = true;
        p->consumed -= length;
        p->cycle++;
        length = lc_dataloader_length(p->loader, epoch_of(c, p));
    }
}

/* Sets the positions after `start` batches, from the lengths. */
static void seek(combined *c, int64_t start)
{
    c->current = 0;
    for (int i = 0; i < c->n; i++) {
        part *p = &c->parts[i];
        int64_t length = lc_dataloader_length(p->loader, c->epoch);
        p->cycle = 0;
        p->consumed = start;
        p->ended = false;
        if (c->mode == LC_SEQUENTIAL) {
            bool past = length >= 0 && start >= length && i + 1 < c->n;
            if (i > c->current) p->consumed = 0;
            if (!past || i != c->current) continue;
            c->current++;
            start -= length;
        } else if (c->mode == LC_MAX_SIZE_CYCLE) {
            seek_cycle(c, p);
        } else if (length >= 0 && start > length) {
            p->ended = true;
            p->consumed = length;
        }
    }
}

static lc_status check_start(combined *c, int64_t start)
{
    const int64_t length = start ? combined_length(c, c->epoch) : 0;
    if (length < 0 || start <= length) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "cannot start at batch %lld: the epoch has %lld", (long long)start,
                   (long long)length);
}

static lc_status combined_begin(void *self, int64_t epoch, int64_t start)
{
    combined *c = self;
    c->epoch = epoch;
    c->replaced = 0;
    c->why_replaced = NULL;
    if (!c->loaded || start == 0) {
        LC_TRY(check_start(c, start));
        seek(c, start);
    }
    c->loaded = false;
    for (int i = c->mode == LC_SEQUENTIAL ? c->current : 0; i < c->n; i++) {
        if (c->mode == LC_MAX_SIZE && c->parts[i].ended) continue;
        LC_TRY(slice_begin(c, &c->parts[i]));
        if (c->mode == LC_SEQUENTIAL) break;
    }
    return LC_OK;
}

static void add_replaced(const part *p, int64_t *n, const char **why)
{
    const char *first;
    *n += lc_dataloader_replaced(p->loader, &first);
    if (!*why) *why = first;
}

/* *out NULL: this loader has nothing more for the epoch. */
static lc_status part_next(combined *c, part *p, lc_batch **out)
{
    *out = NULL;
    if (c->mode == LC_MAX_SIZE && p->ended) return LC_OK;
    LC_TRY(lc_dataloader_next(p->loader, out));
    if (*out) {
        p->consumed++;
        return LC_OK;
    }
    p->ended = true;
    if (c->mode != LC_MAX_SIZE_CYCLE) return LC_OK;
    bool all = true;
    for (int i = 0; i < c->n; i++) all = all && c->parts[i].ended;
    if (all) return LC_OK;
    p->cycle++;
    p->consumed = 0;
    add_replaced(p, &c->replaced, &c->why_replaced);
    LC_TRY(slice_begin(c, p));
    LC_TRY(lc_dataloader_next(p->loader, out));
    p->consumed = *out != NULL;
    return LC_OK;
}

static lc_status next_in_sequence(combined *c, lc_batch **out)
{
    for (;; c->current++) {
        LC_TRY(part_next(c, &c->parts[c->current], out));
        if (*out || c->current + 1 == c->n) return LC_OK;
        LC_TRY(slice_begin(c, &c->parts[c->current + 1]));
    }
}

/* Makes the fields above the parts mirror the first non-NULL part. False: there is none. */
static bool join(combined *c)
{
    const lc_batch *first = NULL;
    for (int i = 0; i < c->n && !first; i++) first = c->batches[i];
    if (!first) return false;
    c->batch = *first;
    c->batch.n_parts = c->n;
    c->batch.parts = c->batches;
    return true;
}

static lc_status cut_part(combined *c, int i, int64_t begin, int64_t n)
{
    lc_batch *b;
    LC_TRY(lc__dataloader_cut(c->parts[i].loader, begin, n, &b));
    c->batches[i] = b;
    return LC_OK;
}

/* In pieces a batch is cut in proportion to its first part: every piece has its share of the others. */
static lc_status cut_in_pieces(combined *c, int64_t begin, int64_t n, int64_t all)
{
    for (int i = 0; i < c->n; i++) {
        const lc_batch *b = c->batches[i];
        if (!b) continue;
        int64_t from = begin * b->global_size / all, to = (begin + n) * b->global_size / all;
        if (b->size == to - from && (!b->size || b->global_offset == from)) continue;
        LC_TRY(cut_part(c, i, from, to - from));
    }
    return LC_OK;
}

static lc_status cut_in_units(combined *c)
{
    int64_t units = lc__batch_units(&c->batch, c->share.size);
    for (int i = 0; i < c->n && units; i++) {
        const lc_batch *b = c->batches[i];
        int64_t begin, n;
        if (!b) continue;
        lc__batch_share(b->global_size, units, c->share.rank, c->share.size, &begin, &n);
        if (b->size == n && (!n || b->global_offset == begin)) continue;
        /* Even shares are better than none, if every rank has one. */
        if (units >= c->share.size && !lc__dataloader_can_cut(c->parts[i].loader)) continue;
        LC_TRY(cut_part(c, i, begin, n));
    }
    return LC_OK;
}

static lc_status combined_next(void *self, lc_batch **out)
{
    combined *c = self;
    *out = NULL;
    if (c->mode == LC_SEQUENTIAL) return next_in_sequence(c, out);
    for (int i = 0; i < c->n; i++) {
        lc_batch *b;
        LC_TRY(part_next(c, &c->parts[i], &b));
        if (!b && c->mode != LC_MAX_SIZE) return LC_OK;
        c->batches[i] = b;
    }
    if (!join(c)) return LC_OK;
    if (c->share.size > 1) {
        LC_TRY(c->share.pieces ? cut_in_pieces(c, c->batch.global_offset, c->batch.size, c->batch.global_size)
                               : cut_in_units(c));
        join(c);
    }
    *out = &c->batch;
    return LC_OK;
}

static lc_status combined_cut(void *self, int64_t begin, int64_t n, lc_batch **out)
{
    combined *c = self;
    if (c->mode == LC_SEQUENTIAL) return lc__dataloader_cut(c->parts[c->current].loader, begin, n, out);
    LC_TRY(cut_in_pieces(c, begin, n, c->batch.global_size));
    join(c);
    *out = &c->batch;
    return LC_OK;
}

static void combined_end(void *self)
{
    combined *c = self;
    for (int i = 0; i < c->n; i++) lc_dataloader_end(c->parts[i].loader);
}

/* Four numbers a loader, then its own state: {cycle, consumed, ended, bytes} bytes... ; `current` comes first. */
static lc_status combined_save(void *self, void *data, size_t *size)
{
    combined *c = self;
    size_t room = *size, at = sizeof(int64_t);
    char *to = data;
    int64_t current = c->current;
    if (to && room >= at) memcpy(to, &current, at);
    for (int i = 0; i < c->n; i++) {
        const part *p = &c->parts[i];
        size_t bytes = 0;
        LC_TRY(lc_dataloader_save(p->loader, NULL, &bytes));
        int64_t head[] = {p->cycle, p->consumed, p->ended, (int64_t)bytes};
        if (to && at + sizeof head + bytes > room)
            return lc_fail(LC_ERR_ARGUMENT, "the state of a combined loader needs more than %zu bytes", room);
        if (to) {
            memcpy(to + at, head, sizeof head);
            LC_TRY(lc_dataloader_save(p->loader, to + at + sizeof head, &bytes));
        }
        at += sizeof head + bytes;
    }
    *size = at;
    return LC_OK;
}

static lc_status combined_load(void *self, const void *data, size_t size)
{
    combined *c = self;
    const char *from = data;
    size_t at = sizeof(int64_t);
    int64_t head[4];
    if (size < at) return lc_fail(LC_ERR_FORMAT, "the state of a combined loader has %zu bytes", size);
    memcpy(head, from, at);
    if (head[0] < 0 || head[0] >= c->n) return lc_fail(LC_ERR_FORMAT, "the state is not for %d loaders", c->n);
    c->current = (int)head[0];
    for (int i = 0; i < c->n; i++) {
        part *p = &c->parts[i];
        if (size - at < sizeof head) return lc_fail(LC_ERR_FORMAT, "the state is not for %d loaders", c->n);
        memcpy(head, from + at, sizeof head);
        at += sizeof head;
        if (head[0] < 0 || head[0] > MOST_CYCLES || head[1] < 0 || head[1] > MOST_BATCHES || head[3] < 0 ||
            (uint64_t)head[3] > size - at)
            return lc_fail(LC_ERR_FORMAT, "the state of loader %d is invalid", i);
        p->cycle = head[0];
        p->consumed = head[1];
        p->ended = head[2] != 0;
        LC_TRY(lc_dataloader_load(p->loader, from + at, (size_t)head[3]));
        at += (size_t)head[3];
    }
    if (at != size) return lc_fail(LC_ERR_FORMAT, "the state is for more than %d loaders", c->n);
    c->loaded = true;
    return LC_OK;
}

static int64_t combined_batch_size(void *self)
{
    return lc_dataloader_batch_size(((combined *)self)->parts[0].loader);
}

static void combined_observe(void *self, lc_span_fn *fn, void *ctx)
{
    combined *c = self;
    for (int i = 0; i < c->n; i++) lc_dataloader_observe(c->parts[i].loader, fn, ctx);
}

static bool combined_sequential(void *self, bool on)
{
    combined *c = self;
    bool other = false;
    for (int i = 0; i < c->n; i++) other |= lc_dataloader_sequential(c->parts[i].loader, on);
    return other;
}

/* Pieces do not depend on the number of ranks, so no part may be cut separately. */
static lc_status check_pieces(const combined *c, const lc_share *share)
{
    if (!share->pieces || share->size == 1 || c->n == 1 || c->mode == LC_SEQUENTIAL) return LC_OK;
    for (int i = 0; i < c->n; i++)
        if (!lc__dataloader_can_cut(c->parts[i].loader))
            return lc_fail(LC_ERR_UNSUPPORTED,
                           "loader %d of %d lacks `cut` of lc_dataloader_ops, so %d ranks cannot get the same chunks "
                           "of all parts as one rank (deterministic); add it, or turn deterministic off",
                           i, c->n, share->size);
    return LC_OK;
}

static bool is_per_rank(const lc_dataloader *l)
{
    return lc__has_mark(l, LC__MARK_OF(LOADER)) && lc__dataloader_is_per_rank(l);
}

/* A batch is either shared out, or each rank's own. If all parts are the latter, so is the combined loader. */
static lc_status check_per_rank(const combined *c, const lc_share *share)
{
    for (int i = 0; i < c->n && share->size > 1; i++)
        if (is_per_rank(c->parts[i].loader))
            return lc_fail(LC_ERR_UNSUPPORTED,
                           "loader %d of a combined loader is each rank's own (per_rank), and others are not, so their "
                           "batches cannot be shared out together; make all of them per_rank, or none",
                           i);
    return LC_OK;
}

/* All parts have the same share: if one refuses it, restore the shares of those before it. */
static lc_status combined_share(void *self, const lc_share *share)
{
    combined *c = self;
    LC_TRY(check_per_rank(c, share));
    LC_TRY(check_pieces(c, share));
    for (int i = 0; i < c->n; i++) {
        lc_share before = *lc_dataloader_get_share(c->parts[i].loader);
        lc_status status = lc_dataloader_share(c->parts[i].loader, share);
        if (status == LC_OK) continue;
        while (i--) {
            lc_status back = lc_dataloader_share(c->parts[i].loader, &before);
            (void)back; /* they accepted the old share before */
        }
        return status;
    }
    c->share = *share;
    return LC_OK;
}

static lc_status combined_pin(void *self, const lc_device *on)
{
    combined *c = self;
    for (int i = 0; i < c->n; i++) LC_TRY(lc__dataloader_pin(c->parts[i].loader, on));
    return LC_OK;
}

static void combined_times(void *self, lc_loader_times *add)
{
    combined *c = self;
    for (int i = 0; i < c->n; i++) {
        lc_loader_times one;
        lc_dataloader_times(c->parts[i].loader, &one);
        add->waited += one.waited;
        add->gathered += one.gathered;
        add->read += one.read;
        add->decoded += one.decoded;
        add->transformed += one.transformed;
        add->batches += one.batches;
        add->workers += one.workers;
        add->bytes += one.bytes;
    }
}

static void combined_free(void *self)
{
    combined *c = self;
    for (int i = 0; i < c->n; i++) {
        lc__dataloader_set_part(c->parts[i].loader, false);
        lc_dataloader_free(c->parts[i].loader);
    }
    free(c->batches);
    free(c);
}

static int64_t combined_replaced(void *self, const char **why)
{
    combined *c = self;
    int64_t n = c->replaced;
    bool ever = false;
    *why = c->why_replaced;
    for (int i = 0; i < c->n; i++) {
        const char *first;
        ever |= lc__dataloader_replaced(c->parts[i].loader, &first) >= 0;
        add_replaced(&c->parts[i], &n, why);
    }
    return ever ? n : -1;
}

/* "max_size_cycle of (96 samples of 'mnist' ...) and (...)" */
static int combined_describe(void *self, int64_t epoch, char *text, size_t size)
{
    static const char *const modes[] = {"max_size_cycle", "min_size", "max_size", "sequential"};
    combined *c = self;
    lc__str parts = {0};
    for (int i = 0; i < c->n; i++) {
        char one[512] = "";
        lc_dataloader_describe(c->parts[i].loader, epoch, one, sizeof one);
        lc__str_add(&parts, "%s(%s)", i ? " and " : "", one);
    }
    int n = snprintf(text, size, "%s of %s", modes[c->mode], parts.s ? parts.s : "");
    lc__str_free(&parts);
    return n;
}

static const lc_dataloader_ops combined_ops = {
    LC_DATALOADER_OPS_INIT,
    .name = "combined",
    .begin = combined_begin,
    .next = combined_next,
    .length = combined_length,
    .end = combined_end,
    .save = combined_save,
    .load = combined_load,
    .batch_size = combined_batch_size,
    .free = combined_free,
    .sequential = combined_sequential,
    .observe = combined_observe,
    .share = combined_share,
    .describe = combined_describe,
    .cut = combined_cut,
    .replaced = combined_replaced,
    .times = combined_times,
};

static bool is_among(lc_dataloader *const *list, int n, const lc_dataloader *l)
{
    for (int i = 0; i < n; i++)
        if (list[i] == l) return true;
    return false;
}

static bool can_free(const lc_dataloader *l)
{
    return lc__has_mark(l, LC__MARK_OF(LOADER)) && !lc__dataloader_is_part(l);
}

lc_status lc_combined_loader_new(lc_combine mode, int n, lc_dataloader *const *loaders, lc_dataloader **out)
{
    lc_status status = LC_OK;
    combined *c = NULL;
    if (out) *out = NULL;
    if (n < 1) return lc_fail(LC_ERR_ARGUMENT, "a combined loader needs at least one loader");
    LC__NEEDS(loaders, LC_ERR_ARGUMENT);
    if (!out) status = lc__is_null(__func__, "out");
    for (int i = 0; i < n && status >= 0; i++)
        if (!loaders[i])
            status = lc_fail(LC_ERR_ARGUMENT, "loader %d of a combined loader is NULL", i);
        else if (!lc__has_mark(loaders[i], LC__MARK_OF(LOADER)))
            status = lc__not_a(loaders[i], LC__MARK_OF(LOADER), __func__);
        else if (lc__dataloader_is_part(loaders[i]))
            status = lc_fail(LC_ERR_ARGUMENT, "loader %d belongs to another combined loader; make another", i);
        else if (is_among(loaders, i, loaders[i]))
            status = lc_fail(LC_ERR_ARGUMENT, "loader %d of a combined loader is in the list twice; make another", i);
    if (status >= 0 && (unsigned)mode > LC_SEQUENTIAL)
        status = lc_fail(LC_ERR_ARGUMENT,
                         "mode %d of a combined loader; it must be LC_MAX_SIZE_CYCLE, LC_MIN_SIZE, "
                         "LC_MAX_SIZE or LC_SEQUENTIAL",
                         (int)mode);
    if (status >= 0) {
        c = calloc(1, sizeof *c + (size_t)n * sizeof *c->parts);
        if (c) c->batches = calloc((size_t)n, sizeof(lc_batch *));
        if (!c || !c->batches) status = lc_fail(LC_ERR_MEMORY, "out of memory: a combined loader");
    }
    if (status < 0) {
        for (int i = 0; i < n; i++)
            if (!is_among(loaders, i, loaders[i]) && can_free(loaders[i])) lc_dataloader_free(loaders[i]);
        free(c);
        return status;
    }
    c->mode = mode;
    c->n = n;
    c->share = (lc_share){.size = 1, .batches = 1};
    lc_dataloader_ops ops = combined_ops;
    ops.per_rank = true;
    for (int i = 0; i < n; i++) {
        c->parts[i].loader = loaders[i];
        lc__dataloader_set_part(loaders[i], true);
        ops.per_rank = ops.per_rank && is_per_rank(loaders[i]);
    }
    return lc__dataloader_new(&ops, combined_pin, c, out);
}

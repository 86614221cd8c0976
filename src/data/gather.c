/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering, by the thread that calls next or by workers of the loader. */
#include "data/gather.h"
#include "base/clock.h"
#include "data/collate.h"
#include "data/mix.h"
#include "data_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static void field_free(lc__slot *s, int f)
{
    if (s->data[f] && s->pin.on) s->pin.on->ops->host_unregister(s->pin.on->context, s->data[f]);
    free(s->data[f]);
}

void lc__slots_free(lc__slot *slots, int n)
{
    for (int i = 0; slots && i < n; i++)
        for (int f = 0; f < LC_MAX_BATCH_TENSORS; f++) field_free(&slots[i], f);
    free(slots);
}

static lc_status field_new(lc__slot *s, int f, size_t bytes)
{
    const lc_device *on = s->pin.on;
    s->bytes += bytes;
    if (!on) return (s->data[f] = lc__data_alloc(bytes, "a batch")) ? LC_OK : LC_ERR_MEMORY;
    void *data = lc__data_alloc_pages(&bytes, "a batch");
    if (!data) return LC_ERR_MEMORY;
    lc_status status = on->ops->host_register(on->context, data, bytes);
    if (status < 0)
        free(data);
    else
        s->data[f] = data;
    return status;
}

lc_status lc__slots_new(const lc_dataset *d, const lc__padding *p, int n, int64_t room, const lc_device *on,
                        lc__slot **out)
{
    lc__slot *slots = calloc((size_t)n, sizeof *slots);
    lc_status status = LC_OK;
    *out = NULL;
    if (!slots) return lc_fail(LC_ERR_MEMORY, "out of memory for %d batches", n);
    for (int i = 0; i < n; i++) {
        slots[i].batch = -1;
        slots[i].pin.on = on;
        for (int f = 0; f < (p ? p->n : d->spec.n) && status == LC_OK; f++) {
            size_t bytes = p ? p->bytes[f] : 0;
            if (!p && __builtin_mul_overflow(d->bytes[f], (size_t)room, &bytes))
                status = lc_fail(LC_ERR_SHAPE, "a batch of %lld samples would be larger than memory", (long long)room);
            else
                status = field_new(&slots[i], f, bytes);
        }
    }
    if (status < 0)
        lc__slots_free(slots, n);
    else
        *out = slots;
    return status;
}

lc_status lc__gatherer_grow(lc__gatherer *w, const lc__epoch *e, const lc__gathering *g, int64_t room)
{
    const lc_dataset *d = e->dataset;
    uint64_t *keys = realloc(w->keys, (size_t)room * sizeof *keys);
    if (!keys) return lc_fail(LC_ERR_MEMORY, "out of memory for a worker of the loader");
    w->keys = keys;
    if (d->scratch && !w->scratch && !(w->scratch = lc__data_alloc(d->scratch, "a worker of the loader")))
        return LC_ERR_MEMORY;
    for (int f = 0; g->padding && f < d->spec.n; f++) {
        free(w->before[f]);
        if (!(w->before[f] = lc__data_alloc(g->padding->sample[f], "a worker of the loader"))) return LC_ERR_MEMORY;
    }
    for (int f = 0; g->mix && f < d->spec.n; f++)
        if (!w->before[f] && !(w->before[f] = lc__data_alloc(d->bytes[f], "a worker of the loader")))
            return LC_ERR_MEMORY;
    return LC_OK;
}

void lc__gatherer_release(lc__gatherer *w)
{
    for (int f = 0; f < LC_MAX_BATCH_TENSORS; f++) free(w->before[f]);
    free(w->scratch);
    free(w->keys);
}

/* ---- a batch ---- */

static void report_span(const lc__epoch *e, const lc__gathering *g, int64_t batch, const lc__gatherer *w, int64_t start)
{
    lc_span_fn *fn = atomic_load(&g->observe);
    if (!fn) return;
    lc_span s = {.kind = LC_SPAN_LOADER,
                 .name = "gather",
                 .owner = lc_dataset_name(e->dataset),
                 .start_ns = start,
                 .end_ns = lc__now_ns(),
                 .thread = w->thread,
                 .number = batch,
                 .ndim = -1};
    fn(g->observe_ctx, &s);
}

/* Sample j of a field in a slot. */
static void *sample_at(const lc_dataset *d, const lc__slot *s, int f, int64_t j)
{
    return (char *)s->data[f] + (size_t)j * d->bytes[f];
}

/* Mixes a share of batch b, from its last sample to its first, each with the one before it. That of the first is read
 * once more, unless it is the last of this share. */
static lc_status mix(const lc__epoch *e, const lc__gathering *g, int64_t b, lc__rank_share share, lc__slot *s,
                     lc__gatherer *w)
{
    lc_dataset *d = e->dataset;
    if (share.global_size < 2) return LC_OK;
    const int64_t whole = share.begin - share.offset; /* the first sample of all ranks */
    const int64_t before = share.offset ? share.begin - 1 : whole + share.global_size - 1;
    const uint64_t key = lc_random_key(e->key, (uint64_t)e->order[before]);
    if (share.n == share.global_size)
        for (int f = 0; f < 2; f++) memcpy(w->before[f], sample_at(d, s, f, share.n - 1), d->bytes[f]);
    else
        LC_TRY(lc_dataset_get_many(d, 1, &e->order[before], &key, w->before, w->scratch));
    const lc__mixture m =
        lc__mix_draw(&d->spec, g->mix, g->mix_alpha, lc_random_key(lc_random_key_name(e->key, "mix"), (uint64_t)b));
    for (int64_t j = share.n - 1; j >= 0; j--)
        lc__mix_run(&d->spec, &m, sample_at(d, s, 0, j), j ? sample_at(d, s, 0, j - 1) : w->before[0],
                    sample_at(d, s, 1, j), j ? sample_at(d, s, 1, j - 1) : w->before[1]);
    return LC_OK;
}

/* Reading the clock takes as long as gathering a small batch: of batches that take less than this, one of 16 is timed,
 * and the others count like it. */
enum { SMALL_NS = 10000, UNTIMED = 15 };

static bool is_timed(const lc__gathering *g, const lc__gatherer *w)
{
    return g->observe || w->last_ns >= SMALL_NS || !w->last_ns || w->untimed == UNTIMED;
}

/* Only the gatherer's own thread adds. */
static void add_time(atomic_llong *to, int64_t ns)
{
    if (ns) atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + ns, memory_order_relaxed);
}

static void count_time(lc__gatherer *w, int64_t start, const lc__sample_times *before)
{
    const int64_t read = lc__spent.read_ns - before->read_ns, decode = lc__spent.decode_ns - before->decode_ns,
                  transform = lc__spent.transform_ns - before->transform_ns, known = read + decode + transform;
    w->untimed = start ? 0 : w->untimed + 1;
    if (start) w->last_ns = lc__now_ns() - start;
    if (w->last_ns < known) w->last_ns = known;
    add_time(&w->ns, w->last_ns);
    add_time(&w->read_ns, read);
    add_time(&w->decode_ns, decode);
    add_time(&w->transform_ns, transform);
}

void lc__gather_batch(const lc__epoch *e, const lc__gathering *g, int64_t b, lc__rank_share share, lc__slot *s,
                      lc__gatherer *w)
{
    const int64_t *indices = e->order + share.begin;
    s->status = LC_OK;
    if (!share.n && !g->padding) return;
    for (int64_t j = 0; j < share.n; j++) w->keys[j] = lc_random_key(e->key, (uint64_t)indices[j]);
    s->status = lc__pin_wait(&s->pin);
    const lc__sample_times before = lc__spent;
    const int64_t start = is_timed(g, w) ? lc__now_ns() : 0;
    if (s->status == LC_OK)
        s->status = g->padding ? lc__padding_gather(g->padding, e, share, s, w)
                               : lc_dataset_get_many(e->dataset, (int)share.n, indices, w->keys, s->data, w->scratch);
    if (s->status == LC_OK && g->mix) s->status = mix(e, g, b, share, s, w);
    count_time(w, start, &before);
    if (start) report_span(e, g, b, w, start);
    if (s->status < 0) snprintf(s->error, sizeof s->error, "%s", lc_error_message());
}

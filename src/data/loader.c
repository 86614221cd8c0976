/* SPDX-License-Identifier: Apache-2.0 */
/* The loader over a dataset: a ring of batch slots, filled in the order of the sampler.
 *
 * Batch b goes to slot b % n_slots. Without workers there is one slot, filled inside next(). Each worker takes the next
 * batch number as soon as that batch's slot is free, and gathers without holding the lock; next() waits for the slot of
 * the batch that is due. So batches come out in order, whichever worker is faster; and since the samples' keys depend
 * on (seed, epoch, index), neither does their content depend on workers.
 *
 * The batch that next() returns stays valid until the next call: its slot counts as free only then. One lc_batch with
 * one set of input tensors serves all slots (their memory is exchanged), so the engine sees the same tensors in every
 * step. After creation nothing is allocated, except by a sampler whose epochs grow.
 *
 * With several ranks (lc_share) each has the whole order, and gathers its share of every global batch. A combined
 * loader may need a different range of a batch that is smaller than usual: that is gathered into a separate slot. */
#include "base/args.h"
#include "data_internal.h"
#include "data/mix.h"
#include "base/clock.h"
#include "base/thread.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot {
    void *data[LC_MAX_BATCH_TENSORS];
    int64_t batch; /* the batch in this slot, -1: none */
    lc_status status;
    char error[1024];
} slot;

struct loader;
typedef struct worker {
    struct loader *loader;
    pthread_t thread;
    void *scratch;
    uint64_t *keys;                     /* one per sample of a batch */
    void *before[LC_MAX_BATCH_TENSORS]; /* the sample that the first one is mixed with; only with a mix */
    int number;                         /* number of its thread; 0: the thread that calls next */
    bool started;
} worker;

typedef struct loader {
    lc_dataset *dataset;
    lc_sampler sampler;
    int64_t batch_size;
    lc_share share;
    int64_t global_batch; /* samples of a full batch on all ranks together */
    int64_t room;         /* samples that a slot has room for */
    bool drop_last, sequential;
    uint64_t seed;
    lc_mix mix;
    double mix_alpha;
    lc_batch batch;

    /* State of the epoch; written while no worker is busy. */
    int64_t *order, order_room, n_samples, n_batches;
    uint64_t epoch_key;

    slot *slots;
    int n_slots;
    worker *workers; /* max(1, n_workers); without threads entry 0 is the calling thread's */
    int n_workers;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* workers wait for work; the consumer for a slot, or until no worker is busy */
    bool active, quit;
    int busy;
    int64_t next_fill; /* the next batch a worker takes */
    int64_t keep;      /* the batch that the caller holds or waits for: slots of batches before it are free */

    lc_span_fn *observe; /* called for batches; NULL: none. Written while no worker is busy */
    void *observe_ctx;

    /* Used only by the consumer. */
    int64_t due;      /* the batch next() returns next */
    int64_t replaced; /* samples of this epoch so far that had the data of others, and why the first had */
    const char *why_replaced;

    /* For loader_cut, made on first use. */
    slot *cut;
    worker cutter;
    int64_t cut_room;
} loader;

static void report_span(const loader *l, int64_t batch, const worker *w, int64_t start)
{
    lc_span s = {.kind = LC_SPAN_LOADER,
                 .name = "gather",
                 .owner = lc_dataset_name(l->dataset),
                 .start_ns = start,
                 .end_ns = lc__now_ns(),
                 .thread = w->number,
                 .number = batch,
                 .ndim = -1};
    l->observe(l->observe_ctx, &s);
}

/* This rank's part of batch b: samples [begin, begin + n) of the epoch's order, `offset` after the first of the
 * `global_size` samples of all ranks. */
typedef struct range {
    int64_t begin, n, offset, global_size;
} range;

static range range_of(const loader *l, int64_t b)
{
    int64_t global_begin = b * l->global_batch, left = l->n_samples - global_begin;
    range s = {.global_size = left < l->global_batch ? left : l->global_batch};
    lc_share_range(&l->share, l->global_batch, s.global_size, &s.offset, &s.n);
    s.begin = global_begin + s.offset;
    return s;
}

/* Otherwise other ranks may have different loaders, about which this one knows nothing. */
static bool is_share(const loader *l)
{
    return l->share.size > 1 || l->share.pieces > 0;
}

/* Sample j of a field in a slot. */
static void *sample_at(const loader *l, const slot *s, int f, int64_t j)
{
    return (char *)s->data[f] + (size_t)j * l->dataset->bytes[f];
}

/* Mixes a part of batch b, from its last sample to its first, each with the one before it. That of the first is read
 * once more, unless it is the last of this part. */
static lc_status mix(loader *l, int64_t b, range part, slot *s, worker *w)
{
    const lc_sample_spec *spec = &l->dataset->spec;
    if (part.global_size < 2) return LC_OK;
    const int64_t whole = part.begin - part.offset; /* the first sample of all ranks */
    const int64_t before = part.offset ? part.begin - 1 : whole + part.global_size - 1;
    const uint64_t key = lc_random_key(l->epoch_key, (uint64_t)l->order[before]);
    if (part.n == part.global_size)
        for (int f = 0; f < 2; f++) memcpy(w->before[f], sample_at(l, s, f, part.n - 1), l->dataset->bytes[f]);
    else
        LC_TRY(lc_dataset_get_many(l->dataset, 1, &l->order[before], &key, w->before, w->scratch));
    const lc__mixture m =
        lc__mix_draw(spec, l->mix, l->mix_alpha, lc_random_key(lc_random_key_name(l->epoch_key, "mix"), (uint64_t)b));
    for (int64_t j = part.n - 1; j >= 0; j--)
        lc__mix_run(spec, &m, sample_at(l, s, 0, j), j ? sample_at(l, s, 0, j - 1) : w->before[0],
                    sample_at(l, s, 1, j), j ? sample_at(l, s, 1, j - 1) : w->before[1]);
    return LC_OK;
}

/* Gathers a part of batch b into a slot. On any thread, without the lock. */
static void gather(loader *l, int64_t b, range part, slot *s, worker *w)
{
    const int64_t *indices = l->order + part.begin;
    s->status = LC_OK;
    if (!part.n) return;
    for (int64_t j = 0; j < part.n; j++) w->keys[j] = lc_random_key(l->epoch_key, (uint64_t)indices[j]);
    int64_t start = l->observe ? lc__now_ns() : 0;
    s->status = lc_dataset_get_many(l->dataset, (int)part.n, indices, w->keys, s->data, w->scratch);
    if (s->status == LC_OK && l->mix) s->status = mix(l, b, part, s, w);
    if (l->observe) report_span(l, b, w, start);
    if (s->status < 0) snprintf(s->error, sizeof s->error, "%s", lc_error_message());
}

static void *work(void *arg)
{
    worker *w = arg;
    loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        if (!l->active || l->next_fill >= l->n_batches || l->next_fill >= l->keep + l->n_slots) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int64_t b = l->next_fill++;
        slot *s = &l->slots[b % l->n_slots];
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        gather(l, b, range_of(l, b), s, w);
        pthread_mutex_lock(&l->lock);
        l->busy--;
        s->batch = b;
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void quiet(loader *l)
{
    if (!l->n_workers) return;
    pthread_mutex_lock(&l->lock);
    l->active = false;
    while (l->busy) pthread_cond_wait(&l->ready, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static int64_t batches_of(const loader *l, int64_t samples)
{
    return samples / l->global_batch + (!l->drop_last && samples % l->global_batch != 0);
}

static int64_t samples_of(const loader *l, int64_t epoch)
{
    return l->sequential ? l->dataset->length : l->sampler.ops->length(l->sampler.self, epoch);
}

static lc_status loader_begin(void *self, int64_t epoch, int64_t start)
{
    loader *l = self;
    quiet(l);
    int64_t n = samples_of(l, epoch);
    if (n < 0)
        return lc_fail(LC_ERR_USER, "sampler '%s' has the invalid length %lld", l->sampler.ops->name, (long long)n);
    if (n > l->order_room) {
        int64_t *order = (uint64_t)n > SIZE_MAX / sizeof *order ? NULL : realloc(l->order, (size_t)n * sizeof *order);
        if (!order) return lc_fail(LC_ERR_MEMORY, "out of memory for the order of %lld samples", (long long)n);
        l->order = order;
        l->order_room = n;
    }
    lc_status status = n && !l->sequential ? l->sampler.ops->order(l->sampler.self, epoch, n, l->order) : LC_OK;
    for (int64_t i = 0; l->sequential && i < n; i++) l->order[i] = i;
    if (status != LC_OK)
        return lc_fail_context(status < 0 ? status : LC_ERR_USER, "sampler '%s'", l->sampler.ops->name);
    for (int64_t i = 0; i < n; i++)
        if (l->order[i] < 0 || l->order[i] >= l->dataset->length)
            return lc_fail(LC_ERR_USER, "sampler '%s' asks for sample %lld, but dataset '%s' has %lld",
                           l->sampler.ops->name, (long long)l->order[i], lc_dataset_name(l->dataset),
                           (long long)l->dataset->length);
    int64_t batches = batches_of(l, n);
    if (start > batches)
        return lc_fail(LC_ERR_ARGUMENT, "cannot start at batch %lld: the epoch has %lld", (long long)start,
                       (long long)batches);
    l->epoch_key = lc_random_key(lc_random_key_name(l->seed, "samples"), (uint64_t)epoch);
    l->n_samples = n;
    l->replaced = 0;
    l->why_replaced = NULL;
    pthread_mutex_lock(&l->lock);
    l->n_batches = batches;
    for (int i = 0; i < l->n_slots; i++) l->slots[i].batch = -1;
    l->due = l->keep = l->next_fill = start;
    l->active = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return LC_OK;
}

static void count_replaced(loader *l, range part)
{
    if (!l->dataset->ops.replaced) return;
    for (int64_t j = 0; j < part.n; j++) {
        const char *why = lc_dataset_replaced(l->dataset, l->order[part.begin + j]);
        if (!why) continue;
        if (!l->replaced++) l->why_replaced = why;
    }
}

static int64_t loader_replaced(void *self, const char **why)
{
    loader *l = self;
    *why = l->why_replaced;
    return l->dataset->ops.replaced ? l->replaced : -1;
}

static lc_status hand_out(loader *l, range part, const slot *s, lc_batch **out)
{
    if (s->status < 0) return lc_fail(s->status, "%s", s->error);
    for (int f = 0; f < l->batch.n; f++) lc_input_set(l->batch.tensors[f], s->data[f], part.n);
    l->batch.size = part.n;
    l->batch.indices = l->order + part.begin;
    l->batch.global_size = is_share(l) ? part.global_size : 0;
    l->batch.global_offset = part.offset;
    l->batch.first = part.begin;
    l->batch.piece = lc_share_piece(&l->share, l->global_batch);
    *out = &l->batch;
    return LC_OK;
}

static lc_status loader_next(void *self, lc_batch **out)
{
    loader *l = self;
    if (l->due >= l->n_batches) {
        *out = NULL;
        return LC_OK;
    }
    int64_t b = l->due;
    slot *s = &l->slots[b % l->n_slots];
    if (l->n_workers) {
        /* Only now is the previous batch no longer in use, and its slot free. */
        pthread_mutex_lock(&l->lock);
        l->keep = b;
        pthread_cond_signal(&l->work);
        while (s->batch != b) pthread_cond_wait(&l->ready, &l->lock);
        pthread_mutex_unlock(&l->lock);
    } else {
        gather(l, b, range_of(l, b), s, &l->workers[0]);
    }
    l->due = b + 1;
    if (s->status == LC_OK) count_replaced(l, range_of(l, b));
    return hand_out(l, range_of(l, b), s, out);
}

static int64_t loader_length(void *self, int64_t epoch)
{
    loader *l = self;
    int64_t n = samples_of(l, epoch);
    return n < 0 ? -1 : batches_of(l, n);
}

static int64_t loader_batch_size(void *self)
{
    return ((const loader *)self)->batch_size;
}

static bool loader_sequential(void *self, bool on)
{
    loader *l = self;
    l->sequential = on;
    return strcmp(l->sampler.ops->name, "sequential") != 0;
}

/* Between epochs, or when one has just ended: workers are not busy then. */
static void loader_observe(void *self, lc_span_fn *fn, void *ctx)
{
    loader *l = self;
    quiet(l);
    pthread_mutex_lock(&l->lock);
    l->observe = fn;
    l->observe_ctx = ctx;
    pthread_mutex_unlock(&l->lock);
}

static void slots_free(slot *slots, int n)
{
    for (int i = 0; slots && i < n; i++)
        for (int f = 0; f < LC_MAX_BATCH_TENSORS; f++) free(slots[i].data[f]);
    free(slots);
}

static lc_status slots_new(const loader *l, int n, int64_t room, slot **out)
{
    slot *slots = calloc((size_t)n, sizeof *slots);
    lc_status status = LC_OK;
    *out = NULL;
    if (!slots) return lc_fail(LC_ERR_MEMORY, "out of memory for %d batches", n);
    for (int i = 0; i < n; i++) {
        slots[i].batch = -1;
        for (int f = 0; f < l->dataset->spec.n && status == LC_OK; f++) {
            size_t bytes;
            if (__builtin_mul_overflow(l->dataset->bytes[f], (size_t)room, &bytes))
                status = lc_fail(LC_ERR_SHAPE, "a batch of %lld samples would be larger than memory", (long long)room);
            else if (!(slots[i].data[f] = lc__data_alloc(bytes, "a batch")))
                status = LC_ERR_MEMORY;
        }
    }
    if (status < 0)
        slots_free(slots, n);
    else
        *out = slots;
    return status;
}

/* Makes room for larger shares; a failure leaves the loader as it was. */
static lc_status grow(loader *l, int64_t room)
{
    slot *slots;
    if (room > INT_MAX) return lc_fail(LC_ERR_ARGUMENT, "a rank would have batches of %lld samples", (long long)room);
    for (int i = 0; i < (l->n_workers ? l->n_workers : 1); i++) {
        uint64_t *keys = realloc(l->workers[i].keys, (size_t)room * sizeof *keys);
        if (!keys) return lc_fail(LC_ERR_MEMORY, "out of memory for a worker of the loader");
        l->workers[i].keys = keys;
    }
    LC_TRY(slots_new(l, l->n_slots, room, &slots));
    slots_free(l->slots, l->n_slots);
    l->slots = slots;
    l->room = room;
    for (int f = 0; f < l->batch.n; f++) lc_input_set(l->batch.tensors[f], slots[0].data[f], room);
    return LC_OK;
}

static lc_status loader_share(void *self, const lc_share *share)
{
    loader *l = self;
    int64_t global_batch = l->batch_size * share->batches, room = lc__share_most(share, global_batch);
    quiet(l);
    if (room > l->room) LC_TRY(grow(l, room));
    l->share = *share;
    l->global_batch = global_batch;
    return LC_OK;
}

/* What a worker needs besides its keys. */
static lc_status worker_room(const loader *l, worker *w)
{
    if (l->dataset->scratch && !w->scratch &&
        !(w->scratch = lc__data_alloc(l->dataset->scratch, "a worker of the loader")))
        return LC_ERR_MEMORY;
    for (int f = 0; l->mix && f < l->dataset->spec.n; f++)
        if (!w->before[f] && !(w->before[f] = lc__data_alloc(l->dataset->bytes[f], "a worker of the loader")))
            return LC_ERR_MEMORY;
    return LC_OK;
}

static void worker_release(worker *w)
{
    for (int f = 0; f < LC_MAX_BATCH_TENSORS; f++) free(w->before[f]);
    free(w->scratch);
    free(w->keys);
}

static lc_status room_to_cut(loader *l, int64_t room)
{
    slot *cut;
    LC_TRY(worker_room(l, &l->cutter));
    if (room <= l->cut_room) return LC_OK;
    uint64_t *keys = realloc(l->cutter.keys, (size_t)room * sizeof *keys);
    if (!keys) return lc_fail(LC_ERR_MEMORY, "out of memory for a worker of the loader");
    l->cutter.keys = keys;
    LC_TRY(slots_new(l, 1, room, &cut));
    slots_free(l->cut, 1);
    l->cut = cut;
    l->cut_room = room;
    return LC_OK;
}

/* Used only for batches that are smaller than usual, so nothing is gathered ahead. */
static lc_status loader_cut(void *self, int64_t begin, int64_t n, lc_batch **out)
{
    loader *l = self;
    int64_t b = l->due - 1;
    range part = range_of(l, b);
    if (begin < 0 || n < 0 || begin > part.global_size - n)
        return lc_fail(LC_ERR_ARGUMENT, "samples [%lld, %lld) are not in a batch of %lld", (long long)begin,
                       (long long)(begin + n), (long long)part.global_size);
    part.begin += begin - part.offset;
    part.offset = begin;
    part.n = n;
    LC_TRY(room_to_cut(l, n ? n : 1));
    gather(l, b, part, l->cut, &l->cutter);
    return hand_out(l, part, l->cut, out);
}

static void loader_end(void *self)
{
    quiet(self);
}

static void loader_free(void *self)
{
    loader *l = self;
    if (l->workers) {
        pthread_mutex_lock(&l->lock);
        l->quit = true;
        pthread_cond_broadcast(&l->work);
        pthread_mutex_unlock(&l->lock);
        for (int i = 0; i < (l->n_workers ? l->n_workers : 1); i++) {
            if (l->workers[i].started) pthread_join(l->workers[i].thread, NULL);
            worker_release(&l->workers[i]);
        }
    }
    for (int f = 0; f < l->batch.n; f++) lc_tensor_unref(l->batch.tensors[f]);
    slots_free(l->slots, l->n_slots);
    slots_free(l->cut, 1);
    worker_release(&l->cutter);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    lc_sampler_release(&l->sampler);
    lc_dataset_unref(l->dataset);
    free(l->workers);
    free(l->order);
    free(l);
}

static int loader_describe(void *self, int64_t epoch, char *text, size_t size)
{
    const loader *l = self;
    const char *name = l->sequential ? "sequential" : l->sampler.ops->name;
    static const char *const mixes[] = {"", ", MixUp", ", CutMix", ", MixUp or CutMix"};
    return snprintf(text, size, "%lld samples of '%s' in batches of %lld%s, %s (seed %llu)%s",
                    (long long)samples_of(l, epoch), lc_dataset_name(l->dataset), (long long)l->batch_size,
                    l->drop_last ? ", without the last incomplete one" : "", name ? name : "a sampler",
                    (unsigned long long)l->seed, mixes[l->mix]);
}

static const lc_dataloader_ops loader_ops = {
    LC_DATALOADER_OPS_INIT,
    .name = "dataloader",
    .begin = loader_begin,
    .next = loader_next,
    .length = loader_length,
    .end = loader_end,
    .batch_size = loader_batch_size,
    .free = loader_free,
    .sequential = loader_sequential,
    .observe = loader_observe,
    .share = loader_share,
    .describe = loader_describe,
    .cut = loader_cut,
    .replaced = loader_replaced,
};

static lc_status make_batch(loader *l)
{
    const lc_sample_spec *spec = &l->dataset->spec;
    LC_TRY(slots_new(l, l->n_slots, l->room, &l->slots));
    for (int f = 0; f < spec->n; f++) {
        const lc_field *field = &spec->fields[f];
        int64_t shape[LC_MAX_DIMS] = {l->room};
        memcpy(shape + 1, field->shape, (size_t)field->ndim * sizeof *shape);
        LC_TRY(lc_input_new(field->dtype, field->ndim + 1, shape, field->layout, l->slots[0].data[f],
                            &l->batch.tensors[f]));
        l->batch.names[f] = field->name;
        l->batch.n = f + 1;
    }
    l->batch.x = l->batch.tensors[0];
    l->batch.y = l->batch.n > 1 ? l->batch.tensors[1] : NULL;
    return LC_OK;
}

/* Worker threads block all signals: the program handles them. */
static lc_status make_workers(loader *l)
{
    int n = l->n_workers ? l->n_workers : 1;
    l->workers = calloc((size_t)n, sizeof *l->workers);
    if (!l->workers) return lc_fail(LC_ERR_MEMORY, "out of memory for %d workers", n);
    for (int i = 0; i < n; i++) {
        worker *w = &l->workers[i];
        w->loader = l;
        w->number = l->n_workers ? i + 1 : 0;
        w->keys = malloc((size_t)l->room * sizeof *w->keys);
        if (!w->keys) return lc_fail(LC_ERR_MEMORY, "out of memory for a worker of the loader");
        LC_TRY(worker_room(l, w));
        if (!l->n_workers) break;
        LC_TRY(lc__thread_start(&w->thread, work, w, "worker %d of %d of the loader", i + 1, n));
        w->started = true;
    }
    return LC_OK;
}

static lc_status check_sampler(const lc_sampler *s)
{
    LC_TRY(lc__ops_check(sizeof *s->ops, s->ops, offsetof(lc_sampler_ops, free), "a sampler", "LC_SAMPLER_OPS_INIT"));
    return s->ops->length && s->ops->order ? LC_OK : lc_fail(LC_ERR_ARGUMENT, "sampler: the ops lack length or order");
}

lc_status lc_dataloader_new_with(lc_dataloader **out, const lc_dataloader_args *args)
{
    LC__TAKE(taken, lc_dataloader, lc_dataloader_args, args, LC_ERR_ARGUMENT);
    const lc_dataloader_args *o = &taken;
    lc_status status = LC_OK;
    lc_sampler given = {0};
    if (out) *out = NULL;
    if (o->sampler) {
        given = *o->sampler;
        *o->sampler = (lc_sampler){0};
    }
    if (!out)
        status = lc__is_null(__func__, "out");
    else if (!o->dataset)
        status = lc_fail(LC_ERR_ARGUMENT, "a loader needs a dataset");
    else if (!lc__has_mark(o->dataset, LC__MARK_OF(DATASET)))
        status = lc__not_a(o->dataset, LC__MARK_OF(DATASET), __func__);
    else if (o->batch_size < 1 || o->batch_size > INT_MAX)
        status = lc_fail(LC_ERR_ARGUMENT, "batch_size %lld: it must be at least 1", (long long)o->batch_size);
    else if (o->num_workers < 0 || o->num_workers > 1024)
        status = lc_fail(LC_ERR_ARGUMENT, "num_workers %d: it must be between 0 and 1024", o->num_workers);
    else if (o->prefetch < (o->num_workers ? 1 : 0) || o->prefetch > 1024)
        status = lc_fail(LC_ERR_ARGUMENT, "prefetch %d: it must be between %d and 1024", o->prefetch,
                         o->num_workers ? 1 : 0);
    else if (o->sampler && o->shuffle)
        status =
            lc_fail(LC_ERR_ARGUMENT, "a loader takes a sampler or shuffle, not both: the sampler decides the order");
    else if (o->sampler)
        status = check_sampler(&given);
    if (status == LC_OK) status = lc__mix_check(&o->dataset->spec, o->mix, o->mix_alpha);
    if (status < 0) {
        lc_sampler_release(&given);
        return status;
    }
    loader *l = calloc(1, sizeof *l);
    if (!l) {
        lc_sampler_release(&given);
        return lc_fail(LC_ERR_MEMORY, "out of memory for a loader");
    }
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->dataset = lc_dataset_ref(o->dataset);
    l->sampler = given;
    l->batch_size = l->global_batch = l->room = o->batch_size;
    l->share = (lc_share){.size = 1, .batches = 1};
    l->drop_last = o->drop_last;
    l->seed = o->seed;
    l->mix = o->mix;
    l->mix_alpha = o->mix_alpha;
    l->n_workers = o->num_workers;
    l->n_slots = o->num_workers ? o->num_workers * o->prefetch + 1 : 1;
    if (!given.ops)
        status = o->shuffle ? lc_sampler_random(l->dataset->length, o->seed, &l->sampler)
                            : lc_sampler_sequential(l->dataset->length, &l->sampler);
    if (status == LC_OK) status = make_batch(l);
    if (status == LC_OK) status = make_workers(l);
    if (status < 0) {
        loader_free(l);
        return status;
    }
    return lc_dataloader_from_ops(&loader_ops, l, out);
}

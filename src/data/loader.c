/* SPDX-License-Identifier: Apache-2.0 */
/* The loader over a dataset: a ring of batch slots, filled in the order of the sampler.
 *
 * Batch b goes to slot b % n_slots. Without workers there is one slot, filled inside next(). Each worker takes the next
 * batch number as soon as that batch's slot is free, and gathers without holding the lock; next() waits for the slot of
 * the batch that is due. So batches come out in order, whichever worker is faster; and since the samples' keys depend
 * on (seed, epoch, index), neither does their content depend on workers.
 *
 * The batch that next() returns stays valid until the next call: its slot counts as free only then. A device may copy
 * it even later, if the slots are registered with one: there are two more of them then, and the thread that fills a
 * slot waits until the device has copied the batch that was there. One lc_batch with one set of input tensors serves
 * all slots (their memory is exchanged), so the engine sees the same tensors in every step. After creation nothing is
 * allocated, except when an epoch begins: for its order, and if samples differ in size, for its largest batch.
 *
 * A worker that is late (timeout) cannot be stopped. Its slot and all that it reads stay as they are until it is done,
 * and if the loader is freed before, the last worker to end frees the memory.
 *
 * A combined loader may need another range of a batch that is smaller than usual than this rank's share
 * (epoch.h): that is gathered into a separate slot. */
#include "base/args.h"
#include "base/clock.h"
#include "base/thread.h"
#include "data/collate.h"
#include "data/gather.h"
#include "data/mix.h"
#include "data/workers.h"
#include "data_internal.h"
#include "tensor/tensor_impl.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT = 2 }; /* batches that a device may not have copied yet when the next one is due */

typedef struct worker {
    struct loader *loader;
    pthread_t thread;
    lc__gatherer own;
    bool started;
} worker;

typedef struct loader {
    /* Written while no worker is busy. */
    lc__epoch epoch;
    lc__gathering how;

    int64_t batch_size;
    lc_batch batch;

    lc__slot *slots;
    int n_slots;
    int64_t room;        /* samples that a slot has room for */
    int64_t longest;     /* no epoch has more samples */
    const lc_device *on; /* slots are registered with it; NULL: with none */
    worker *workers;     /* max(1, n_workers); without threads entry 0 is the calling thread's */
    int n_workers;
    int n_ahead;        /* batches that the caller holds or that are gathered ahead */
    int64_t timeout_ns; /* 0: none */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* workers wait for work; the consumer for a slot, or until no worker is busy */
    bool active, quit;
    int busy, running; /* workers that gather, and that have not ended */
    bool late;         /* next() has waited too long for a busy worker: nothing else waits for it */
    bool left;         /* to its workers: the last one frees the loader */
    int64_t next_fill; /* the next batch a worker takes */
    int64_t keep;      /* the batch that the caller holds or waits for: slots of batches before it are free */

    /* Used only by the consumer. */
    int64_t due;              /* the batch next() returns next */
    int64_t given, waited_ns; /* batches since the loader was made, and how long next() waited for them */
    int64_t replaced;         /* samples of this epoch so far that had the data of others, and why the first had */
    const char *why_replaced;

    /* For loader_cut, made on first use. */
    lc__slot *cut;
    lc__gatherer cutter;
    int64_t cut_room;
} loader;

static void release(loader *l);

static void *work(void *arg)
{
    worker *w = arg;
    loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        if (!l->active || l->next_fill >= l->epoch.n_batches || l->next_fill >= l->keep + l->n_ahead) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int64_t b = l->next_fill++;
        lc__slot *s = &l->slots[b % l->n_slots];
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        lc__gather_batch(&l->epoch, &l->how, b, lc__epoch_share(&l->epoch, b), s, &w->own);
        pthread_mutex_lock(&l->lock);
        l->busy--;
        s->batch = b;
        pthread_cond_signal(&l->ready);
    }
    const bool last = !--l->running && l->left;
    pthread_mutex_unlock(&l->lock);
    if (last) release(l);
    return NULL;
}

/* Waits until no worker is busy. False: one is late, and still is. */
static bool quiet(loader *l)
{
    if (!l->n_workers) return true;
    pthread_mutex_lock(&l->lock);
    l->active = false;
    while (l->busy && !l->late) pthread_cond_wait(&l->ready, &l->lock);
    l->late = l->busy > 0;
    const bool is_quiet = !l->late;
    pthread_mutex_unlock(&l->lock);
    return is_quiet;
}

static lc_status must_be_quiet(loader *l)
{
    return quiet(l) ? LC_OK
                    : lc_fail(LC_ERR_STATE, "a worker still makes a batch that was not there in time (timeout)");
}

/* Replaces the slots; a failure leaves the loader as it was. */
static lc_status new_slots(loader *l, int64_t room, const lc_device *on)
{
    lc__slot *slots;
    const int n = l->n_ahead + (on ? IN_FLIGHT : 0);
    if (room > INT_MAX) return lc_fail(LC_ERR_ARGUMENT, "a rank would have batches of %lld samples", (long long)room);
    for (int i = 0; i < (l->n_workers ? l->n_workers : 1); i++)
        LC_TRY(lc__gatherer_grow(&l->workers[i].own, &l->epoch, &l->how, room));
    LC_TRY(lc__slots_new(l->epoch.dataset, l->how.padding, n, room, on, &slots));
    lc__slots_free(l->slots, l->n_slots);
    l->slots = slots;
    l->n_slots = n;
    l->room = room;
    l->on = on;
    for (int f = 0; f < l->batch.n; f++) lc_input_set(l->batch.tensors[f], slots[0].data[f], room);
    return LC_OK;
}

/* Makes room for the largest batch of the epoch, if samples differ in size. */
static lc_status measure(loader *l)
{
    bool grown;
    int64_t room = l->room;
    LC_TRY(lc__padding_measure(l->how.padding, &l->epoch, &grown));
    for (int64_t b = 0; b < l->epoch.n_batches; b++) {
        const lc__rank_share share = lc__epoch_share(&l->epoch, b);
        if (share.n > room) room = share.n;
    }
    return grown || room > l->room ? new_slots(l, room, l->on) : LC_OK;
}

static lc_status loader_begin(void *self, int64_t epoch, int64_t start)
{
    loader *l = self;
    LC_TRY(must_be_quiet(l));
    LC_TRY(lc__epoch_begin(&l->epoch, epoch, start));
    if (l->how.padding) LC_TRY(measure(l));
    l->replaced = 0;
    l->why_replaced = NULL;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_slots; i++) l->slots[i].batch = -1;
    l->due = l->keep = l->next_fill = start;
    l->active = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return LC_OK;
}

static void count_replaced(loader *l, lc__rank_share share)
{
    if (!l->epoch.dataset->ops.replaced) return;
    for (int64_t j = 0; j < share.n; j++) {
        const char *why = lc_dataset_replaced(l->epoch.dataset, l->epoch.order[share.begin + j]);
        if (!why) continue;
        if (!l->replaced++) l->why_replaced = why;
    }
}

static int64_t loader_replaced(void *self, const char **why)
{
    loader *l = self;
    *why = l->why_replaced;
    return l->epoch.dataset->ops.replaced ? l->replaced : -1;
}

static double seconds(const atomic_llong *ns)
{
    return 1e-9 * (double)atomic_load_explicit(ns, memory_order_relaxed);
}

static void add_times(const lc__gatherer *w, lc_loader_times *add)
{
    add->gathered += seconds(&w->ns);
    add->read += seconds(&w->read_ns);
    add->decoded += seconds(&w->decode_ns);
    add->transformed += seconds(&w->transform_ns);
}

static void loader_times(void *self, lc_loader_times *add)
{
    loader *l = self;
    for (int i = 0; i < (l->n_workers ? l->n_workers : 1); i++) add_times(&l->workers[i].own, add);
    add->waited += l->n_workers ? 1e-9 * (double)l->waited_ns : add->gathered;
    add->batches += l->given;
    add->workers += l->n_workers;
    for (int i = 0; i < l->n_slots; i++) add->bytes += (int64_t)l->slots[i].bytes;
    if (l->cut) add->bytes += (int64_t)l->cut->bytes;
    lc__dataset_times(l->epoch.dataset, add);
}

static lc_status hand_out(loader *l, lc__rank_share share, lc__slot *s, lc_batch **out)
{
    if (s->status < 0) return lc_fail(s->status, "%s", s->error);
    for (int f = 0; f < l->batch.n; f++) {
        if (l->how.padding)
            lc__input_set_sizes(l->batch.tensors[f], s->data[f], share.n, s->sizes[f]);
        else
            lc_input_set(l->batch.tensors[f], s->data[f], share.n);
        if (s->pin.on) l->batch.tensors[f]->pin = &s->pin;
    }
    l->batch.size = share.n;
    l->batch.indices = l->epoch.order + share.begin;
    l->batch.global_size = lc__epoch_is_share(&l->epoch) ? share.global_size : 0;
    l->batch.global_offset = share.offset;
    l->batch.first = share.begin;
    l->batch.piece = lc_share_piece(&l->epoch.share, l->epoch.global_batch);
    *out = &l->batch;
    return LC_OK;
}

/* Under the lock. False: the batch was not there in time. */
static bool wait_for(loader *l, const lc__slot *s, int64_t b)
{
    const int64_t until = lc__now_ns() + l->timeout_ns;
    const struct timespec t = {until / 1000000000, until % 1000000000};
    int failed = 0;
    while (s->batch != b && !failed)
        failed =
            l->timeout_ns ? pthread_cond_timedwait(&l->ready, &l->lock, &t) : pthread_cond_wait(&l->ready, &l->lock);
    l->late = s->batch != b;
    return !l->late;
}

static lc_status loader_next(void *self, lc_batch **out)
{
    loader *l = self;
    if (l->due >= l->epoch.n_batches) {
        *out = NULL;
        return LC_OK;
    }
    int64_t b = l->due;
    lc__rank_share share = lc__epoch_share(&l->epoch, b);
    lc__slot *s = &l->slots[b % l->n_slots];
    if (l->n_workers) {
        /* Only now is the previous batch no longer in use, and its slot free. */
        pthread_mutex_lock(&l->lock);
        l->keep = b;
        pthread_cond_signal(&l->work);
        const int64_t start = s->batch != b ? lc__now_ns() : 0;
        const bool in_time = !start || wait_for(l, s, b);
        pthread_mutex_unlock(&l->lock);
        if (start) l->waited_ns += lc__now_ns() - start;
        if (!in_time)
            return lc_fail(LC_ERR_IO,
                           "no worker has made it within %g s (timeout): a disk or dataset '%s' hangs or is slow",
                           1e-9 * (double)l->timeout_ns, lc_dataset_name(l->epoch.dataset));
    } else {
        lc__gather_batch(&l->epoch, &l->how, b, share, s, &l->workers[0].own);
    }
    l->due = b + 1;
    l->given++;
    if (s->status == LC_OK) count_replaced(l, share);
    return hand_out(l, share, s, out);
}

static int64_t loader_length(void *self, int64_t epoch)
{
    return lc__epoch_batches(&((loader *)self)->epoch, epoch);
}

static int64_t loader_batch_size(void *self)
{
    const loader *l = self;
    return l->epoch.max_tokens ? 0 : l->batch_size;
}

static bool loader_sequential(void *self, bool on)
{
    loader *l = self;
    l->epoch.sequential = on;
    lc__epoch_changed(&l->epoch);
    return l->epoch.group_by_length || strcmp(l->epoch.sampler.ops->name, "sequential") != 0;
}

/* Between epochs, or when one has just ended: workers are not busy then, or late. A late one reports nothing. */
static void loader_observe(void *self, lc_span_fn *fn, void *ctx)
{
    loader *l = self;
    const bool late = !quiet(l);
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->how.observe, late ? NULL : fn);
    if (!late) l->how.observe_ctx = ctx;
    pthread_mutex_unlock(&l->lock);
}

static lc_status loader_share(void *self, const lc_share *share)
{
    loader *l = self;
    int64_t global_batch = l->batch_size * share->batches, room = lc__share_most(share, global_batch);
    if (room > l->longest && room <= INT_MAX) room = l->longest; /* larger is an error of new_slots */
    if (l->epoch.max_tokens && share->pieces)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "batches of max_tokens have no number of samples that could be cut into pieces");
    LC_TRY(must_be_quiet(l));
    if (room > l->room) LC_TRY(new_slots(l, room, l->on));
    l->epoch.share = *share;
    l->epoch.global_batch = global_batch;
    lc__epoch_changed(&l->epoch);
    return LC_OK;
}

static lc_status loader_pin(void *self, const lc_device *on)
{
    loader *l = self;
    LC_TRY(must_be_quiet(l));
    return new_slots(l, l->room, on);
}

static lc_status room_to_cut(loader *l, int64_t room)
{
    lc__slot *cut;
    lc__padding wide;
    if (room <= l->cut_room && !l->how.padding) return LC_OK;
    if (l->how.padding) {
        wide = *l->how.padding;
        for (int t = 0; t < wide.n; t++) wide.bytes[t] = (size_t)room * wide.row[t];
    }
    LC_TRY(lc__gatherer_grow(&l->cutter, &l->epoch, &l->how, room));
    LC_TRY(lc__slots_new(l->epoch.dataset, l->how.padding ? &wide : NULL, 1, room, NULL, &cut));
    lc__slots_free(l->cut, 1);
    l->cut = cut;
    l->cut_room = room;
    return LC_OK;
}

/* Used only for batches that are smaller than usual, so nothing is gathered ahead. */
static lc_status loader_cut(void *self, int64_t begin, int64_t n, lc_batch **out)
{
    loader *l = self;
    int64_t b = l->due - 1;
    lc__rank_share share = lc__epoch_share(&l->epoch, b);
    if (begin < 0 || n < 0 || begin > share.global_size - n)
        return lc_fail(LC_ERR_ARGUMENT, "samples [%lld, %lld) are not in a batch of %lld", (long long)begin,
                       (long long)(begin + n), (long long)share.global_size);
    share.begin += begin - share.offset;
    share.offset = begin;
    share.n = n;
    LC_TRY(room_to_cut(l, n ? n : 1));
    lc__gather_batch(&l->epoch, &l->how, b, share, l->cut, &l->cutter);
    return hand_out(l, share, l->cut, out);
}

static void loader_end(void *self)
{
    (void)quiet(self); /* a worker that is late is an error when the next epoch begins */
}

/* Without its tensors. */
static void release(loader *l)
{
    for (int i = 0; l->workers && i < (l->n_workers ? l->n_workers : 1); i++) lc__gatherer_release(&l->workers[i].own);
    if (!l->left || !l->on) lc__slots_free(l->slots, l->n_slots); /* a late worker may outlive the device */
    lc__slots_free(l->cut, 1);
    lc__gatherer_release(&l->cutter);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    lc__epoch_release(&l->epoch);
    free(l->how.padding);
    free(l->workers);
    free(l);
}

static void loader_free(void *self)
{
    loader *l = self;
    for (int f = 0; f < l->batch.n; f++) lc_tensor_unref(l->batch.tensors[f]);
    pthread_mutex_lock(&l->lock);
    const bool left = l->late && l->busy;
    l->quit = true;
    l->left = left;
    pthread_cond_broadcast(&l->work);
    for (int i = 0; left && i < l->n_workers; i++) pthread_detach(l->workers[i].thread);
    pthread_mutex_unlock(&l->lock);
    if (left) return;
    for (int i = 0; l->workers && i < l->n_workers; i++)
        if (l->workers[i].started) pthread_join(l->workers[i].thread, NULL);
    release(l);
}

static int loader_describe(void *self, int64_t epoch, char *text, size_t size)
{
    const loader *l = self;
    const char *name = l->epoch.sequential ? "sequential" : l->epoch.sampler.ops->name;
    static const char *const mixes[] = {"", ", MixUp", ", CutMix", ", MixUp or CutMix"};
    const int64_t tokens = l->epoch.max_tokens;
    return snprintf(text, size, "%lld samples of '%s' in batches of %lld%s%s%s, %s (seed %llu)%s",
                    (long long)lc__epoch_samples(&l->epoch, epoch), lc_dataset_name(l->epoch.dataset),
                    (long long)(tokens ? tokens : l->batch_size), tokens ? " tokens" : "",
                    l->epoch.group_by_length ? ", by length" : "",
                    l->epoch.drop_last ? ", without the last incomplete one" : "", name ? name : "a sampler",
                    (unsigned long long)l->epoch.seed, mixes[l->how.mix]);
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
    .times = loader_times,
};

static lc_status make_batch(loader *l)
{
    const lc_dataset *d = l->epoch.dataset;
    const lc__padding *p = l->how.padding;
    LC_TRY(lc__slots_new(d, p, l->n_slots, l->room, NULL, &l->slots));
    for (int f = 0; f < (p ? p->n : d->spec.n); f++) {
        const lc_field field = p ? lc__padding_field(p, d, f) : d->spec.fields[f];
        int64_t shape[LC_MAX_DIMS] = {l->room};
        for (int i = 0; i < field.ndim; i++) shape[i + 1] = field.shape[i] ? field.shape[i] : 1;
        LC_TRY(
            lc_input_new(field.dtype, field.ndim + 1, shape, field.layout, l->slots[0].data[f], &l->batch.tensors[f]));
        l->batch.names[f] = f < d->spec.n ? field.name : p->names[f];
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
        w->own.thread = l->n_workers ? i + 1 : 0;
        LC_TRY(lc__gatherer_grow(&w->own, &l->epoch, &l->how, l->room));
        if (!l->n_workers) break;
        LC_TRY(lc__thread_start(&w->thread, work, w, "worker %d of %d of the loader", i + 1, n));
        w->started = true;
        l->running++;
    }
    return LC_OK;
}

static lc_status check_sampler(const lc_sampler *s)
{
    if (!s->ops)
        return lc_fail(LC_ERR_ARGUMENT,
                       "the sampler is empty: it was never made, or has been taken over; make another");
    LC_TRY(lc__ops_check(sizeof *s->ops, s->ops, offsetof(lc_sampler_ops, free), "a sampler", "LC_SAMPLER_OPS_INIT"));
    return s->ops->length && s->ops->order ? LC_OK : lc_fail(LC_ERR_ARGUMENT, "sampler: the ops lack length or order");
}

static lc_status check_budget(const lc_dataloader_args *o)
{
    if (o->max_tokens < 0)
        return lc_fail(LC_ERR_ARGUMENT, "max_tokens %lld: it must not be negative", (long long)o->max_tokens);
    if (o->max_tokens && (o->batch_size != 1 || o->drop_last))
        return lc_fail(LC_ERR_ARGUMENT,
                       "max_tokens decides how many samples a batch has: leave batch_size and drop_last "
                       "away");
    if ((o->max_tokens || o->group_by_length) && !o->dataset->differs)
        return lc_fail(LC_ERR_ARGUMENT,
                       "max_tokens and group_by_length are for samples that differ in size, and those of dataset '%s' "
                       "do not; use batch_size",
                       o->dataset->ops.name);
    return LC_OK;
}

/* Whether arguments with a dataset fit together; `given` is the sampler that was in them. */
static lc_status check_args(const lc_dataloader_args *o, const lc_sampler *given)
{
    if (o->batch_size < 1 || o->batch_size > INT_MAX)
        return lc_fail(LC_ERR_ARGUMENT, "batch_size %lld: it must be from 1 to %d", (long long)o->batch_size, INT_MAX);
    if (o->num_workers < 0 || o->num_workers > 1024)
        return lc_fail(LC_ERR_ARGUMENT, "num_workers %d: it must be between 0 and 1024, or LC_WORKERS_AUTO",
                       o->num_workers);
    if (!(o->timeout >= 0 && o->timeout <= 1e9))
        return lc_fail(LC_ERR_ARGUMENT, "timeout %g: it must be a number of seconds from 0 (none) to 1e9", o->timeout);
    if (o->prefetch < (o->num_workers ? 1 : 0) || o->prefetch > 1024)
        return lc_fail(LC_ERR_ARGUMENT, "prefetch %d: it must be between %d and 1024", o->prefetch,
                       o->num_workers ? 1 : 0);
    if (o->sampler && o->shuffle)
        return lc_fail(LC_ERR_ARGUMENT, "a loader takes a sampler or shuffle, not both: the sampler decides the order");
    if (o->sampler) LC_TRY(check_sampler(given));
    LC_TRY(check_budget(o));
    if ((unsigned)o->pad_side > LC_PAD_LEFT || o->pad_multiple < 1)
        return lc_fail(LC_ERR_ARGUMENT,
                       "pad_side %d, pad_multiple %lld: the side must be an lc_pad_side, and the "
                       "multiple at least 1",
                       (int)o->pad_side, (long long)o->pad_multiple);
    const bool pads = o->pad_value || o->pad_side || o->pad_multiple != 1 || o->target_pad_value == o->target_pad_value;
    if ((o->collate || o->collate_sizes || pads) && !o->dataset->differs)
        return lc_fail(LC_ERR_ARGUMENT, "%s for samples that differ in size, and those of dataset '%s' do not; use %s",
                       pads ? "pad_value, target_pad_value, pad_side and pad_multiple are"
                            : "collate and collate_sizes are",
                       o->dataset->ops.name,
                       pads ? "lc_transform_pad, or leave them out" : "get_many of a dataset, or a transform");
    if (o->mix && o->dataset->differs)
        return lc_fail(LC_ERR_UNSUPPORTED, "mix: the samples of dataset '%s' differ in size", o->dataset->ops.name);
    return lc__mix_check(&o->dataset->spec, o->mix, o->mix_alpha);
}

static lc_status make_padding(loader *l, const lc_dataloader_args *o)
{
    if (!o->dataset->differs) return LC_OK;
    l->how.padding = calloc(1, sizeof *l->how.padding);
    if (!l->how.padding) return lc_fail(LC_ERR_MEMORY, "out of memory for a loader");
    l->epoch.padding = l->how.padding;
    return lc__padding_init(l->how.padding, o->dataset, o);
}

static lc_status set_up(loader *l, const lc_dataloader_args *o, lc_sampler given)
{
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&l->ready, &clock);
    pthread_condattr_destroy(&clock);
    if (given.ops) LC_TRY(lc__sampler_own(&given));
    l->epoch = (lc__epoch){.dataset = lc_dataset_ref(o->dataset),
                           .sampler = given,
                           .drop_last = o->drop_last,
                           .seed = o->seed,
                           .share = {.size = 1, .batches = 1},
                           .global_batch = o->batch_size,
                           .max_tokens = o->max_tokens,
                           .group_by_length = o->group_by_length,
                           .shuffles = o->shuffle || given.ops,
                           .counted = -1};
    l->how = (lc__gathering){.mix = o->mix, .mix_alpha = o->mix_alpha};
    l->longest = given.ops ? INT64_MAX : o->dataset->length ? o->dataset->length : 1;
    l->batch_size = o->batch_size;
    l->room = l->batch_size < l->longest ? l->batch_size : l->longest;
    l->n_workers = o->num_workers;
    l->timeout_ns = (int64_t)(1e9 * o->timeout);
    l->n_slots = l->n_ahead = o->num_workers ? o->num_workers * o->prefetch + 1 : 1;
    if (!given.ops)
        LC_TRY(o->shuffle ? lc_sampler_random(o->dataset->length, o->seed, &l->epoch.sampler)
                          : lc_sampler_sequential(o->dataset->length, &l->epoch.sampler));
    LC_TRY(make_padding(l, o));
    LC_TRY(make_batch(l));
    return make_workers(l);
}

lc_status lc_dataloader_new_with(lc_dataloader **out, const lc_dataloader_args *args)
{
    LC__TAKE(taken, lc_dataloader, lc_dataloader_args, args, LC_ERR_ARGUMENT);
    const lc_dataloader_args *o = &taken;
    lc_status status = LC_OK;
    if (taken.num_workers == LC_WORKERS_AUTO) taken.num_workers = lc__workers_auto();
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
    else
        status = check_args(o, &given);
    loader *l = status == LC_OK ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        lc_sampler_release(&given);
        return status < 0 ? status : lc_fail(LC_ERR_MEMORY, "out of memory for a loader");
    }
    status = set_up(l, o, given);
    if (status < 0) {
        loader_free(l);
        return status;
    }
    return lc__dataloader_new(&loader_ops, loader_pin, l, out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Two buffers: the training thread fills one under a lock held for nanoseconds, the writer's thread empties the other
 * without it and then swaps them. */
#define _GNU_SOURCE
#include "loggers/writer.h"

#include "base/thread.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_BYTES ((size_t)256 << 10)
#define MOST_BYTES  ((size_t)64 << 20)
#define BATCH_BYTES ((size_t)64 << 10) /* enough to wake the thread early */
#define RETRY_MS    1000
#define BUSY_MS     50

typedef struct header {
    uint32_t bytes; /* of the record, header included; a multiple of 8 */
    uint16_t kind;
    uint16_t has_score;
    int64_t step, epoch, time_ns;
    double score;
    uint32_t n, text_bytes; /* followed by text and text2 with their zeros, padded to 8; then the data of the kind */
} header;

typedef struct buffer {
    char *data;
    size_t used, capacity;
    int64_t n;
} buffer;

struct lc__log_writer {
    char name[32];
    lc__log_sink *sink;
    void *self;
    int interval_ms;
    int64_t patience_ms; /* how long LC_SKIP is retried before it is reported */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    buffer front; /* under the lock, like all members below except `back` */
    buffer back;  /* the writer's thread's */
    bool idle, stop, flushing;
    int64_t pushed, written;
    int64_t begun, ended; /* attempts, and the last one that ended otherwise than by LC_SKIP */
    int64_t dropped;
    bool failing;  /* the last attempt failed */
    bool reported; /* the training thread has `message`, or there is none */
    bool reported_once;
    bool warned; /* `message` is a warning: kept even if everything was written */
    lc_status status;
    char message[768];
};

/* ---- records ---- */

bool lc__log_next(const lc__log_batch *batch, size_t *cursor, lc__log_record *record)
{
    if (*cursor >= batch->bytes) return false;
    const char *at = batch->data + *cursor;
    header h;
    memcpy(&h, at, sizeof h);
    *cursor += h.bytes;
    at += sizeof h;
    *record = (lc__log_record){.kind = (lc__log_kind)h.kind,
                               .step = h.step,
                               .epoch = h.epoch,
                               .time_ns = h.time_ns,
                               .has_score = h.has_score,
                               .score = h.score,
                               .n = (int)h.n,
                               .at = at + h.text_bytes};
    if (h.text_bytes) record->text = at, record->text2 = at + strlen(at) + 1;
    at += h.text_bytes;
    if (record->kind == LC__LOG_HISTOGRAM) {
        memcpy(&record->histogram, at, sizeof record->histogram);
        record->histogram.name = record->text;
        record->histogram.edges = (const double *)(const void *)(at + sizeof record->histogram);
        record->histogram.counts = record->histogram.edges + record->histogram.n_bins + 1;
    }
    if (record->kind == LC__LOG_IMAGE) {
        memcpy(&record->image, at, sizeof record->image);
        record->image.name = record->text;
        record->image.pixels = (const uint8_t *)(at + sizeof record->image);
    }
    return true;
}

double lc__log_value(lc__log_record *record, const char **name)
{
    double value;
    uint64_t bytes;
    memcpy(&value, record->at, 8);
    memcpy(&bytes, record->at + 8, 8);
    *name = record->at + 16;
    record->at += 16 + bytes;
    return value;
}

lc_hparam lc__log_hparam(lc__log_record *record)
{
    lc_hparam p;
    memcpy(&p, record->at, sizeof p);
    uint64_t bytes;
    memcpy(&bytes, record->at + sizeof p, 8);
    p.name = record->at + sizeof p + 8;
    p.text = p.kind == LC_HPARAM_TEXT ? p.name + strlen(p.name) + 1 : NULL;
    record->at += sizeof p + 8 + bytes;
    return p;
}

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

/* ---- the training thread's side ---- */

/* Reserves room for a record; NULL if it must be dropped. With the lock held. */
static char *reserve(lc__log_writer *w, size_t bytes)
{
    buffer *b = &w->front;
    if (bytes > MOST_BYTES - b->used || lc__grow(&b->data, &b->capacity, b->used, bytes, "rows to be logged") < 0)
        return NULL;
    char *at = b->data + b->used;
    b->used += bytes;
    b->n++;
    return at;
}

/* After a push: wakes the thread if need be, and returns a failure to report. Releases the lock. */
static lc_status pushed(lc__log_writer *w, bool fits)
{
    w->pushed += fits;
    w->dropped += !fits;
    if (!fits && w->dropped == 1 && !w->reported_once) {
        w->status = LC_ERR_IO, w->reported = false;
        snprintf(w->message, sizeof w->message, "logger %s: writing is too slow; some rows are dropped", w->name);
    }
    if (w->idle || w->front.used >= BATCH_BYTES) {
        w->idle = false;
        pthread_cond_signal(&w->wake);
    }
    lc_status status = LC_OK;
    char message[sizeof w->message];
    if (!w->reported) {
        status = w->status;
        memcpy(message, w->message, sizeof message);
        w->reported = w->reported_once = true;
    }
    pthread_mutex_unlock(&w->lock);
    return status < 0 ? lc_fail(status, "%s", message) : LC_OK;
}

/* Names and texts may come from anywhere; invalid UTF-8 would make a JSON line or a TensorBoard record unreadable. */
static void copy_text(char *to, const char *from, size_t n)
{
    memcpy(to, from, n);
    lc__utf8_repair(to, n - 1);
}

lc_status lc__log_row(lc__log_writer *w, const lc_log_row *row)
{
    size_t bytes = sizeof(header);
    for (int i = 0; i < row->n; i++) bytes += 16 + padded(strlen(row->values[i].name) + 1);
    header h = {(uint32_t)bytes, LC__LOG_ROW, 0, row->step, row->epoch, row->time_ns, 0, (uint32_t)row->n, 0};
    pthread_mutex_lock(&w->lock);
    char *at = bytes <= MOST_BYTES ? reserve(w, bytes) : NULL;
    if (at) {
        memcpy(at, &h, sizeof h);
        at += sizeof h;
        for (int i = 0; i < row->n; i++) {
            size_t n = strlen(row->values[i].name) + 1;
            uint64_t space = padded(n);
            memcpy(at, &row->values[i].value, 8);
            memcpy(at + 8, &space, 8);
            copy_text(at + 16, row->values[i].name, n);
            at += 16 + space;
        }
    }
    return pushed(w, at != NULL);
}

/* Some bytes of a record. */
typedef struct piece {
    const void *data;
    size_t bytes;
} piece;

/* Appends a record of two texts and further pieces. */
static lc_status push(lc__log_writer *w, header h, const char *text, const char *text2, const piece *pieces, int n)
{
    size_t a = strlen(text) + 1, b = strlen(text2) + 1, texts = padded(a + b), bytes = sizeof h + texts;
    for (int i = 0; i < n && bytes <= MOST_BYTES; i++)
        bytes += pieces[i].bytes <= MOST_BYTES ? pieces[i].bytes : MOST_BYTES;
    bytes = padded(bytes);
    h.bytes = (uint32_t)bytes, h.text_bytes = (uint32_t)texts;
    pthread_mutex_lock(&w->lock);
    char *at = a <= MOST_BYTES && b <= MOST_BYTES && bytes <= MOST_BYTES ? reserve(w, bytes) : NULL;
    if (at) {
        memcpy(at, &h, sizeof h);
        copy_text(at + sizeof h, text, a);
        copy_text(at + sizeof h + a, text2, b);
        at += sizeof h + texts;
        for (int i = 0; i < n; i++) {
            memcpy(at, pieces[i].data, pieces[i].bytes);
            at += pieces[i].bytes;
        }
    }
    return pushed(w, at != NULL);
}

static lc_status log_checkpoint(lc__log_writer *w, const char *path, int64_t step, double score, bool has_score)
{
    header h = {.kind = LC__LOG_CHECKPOINT,
                .has_score = has_score,
                .step = step,
                .epoch = -1,
                .time_ns = lc__realtime_ns(),
                .score = score};
    return push(w, h, path, "", NULL, 0);
}

static lc_status log_removed(lc__log_writer *w, const char *path)
{
    header h = {.kind = LC__LOG_REMOVED, .epoch = -1, .time_ns = lc__realtime_ns()};
    return push(w, h, path, "", NULL, 0);
}

lc_status lc__log_event(lc__log_writer *w, const char *event, const char *text)
{
    header h = {.kind = LC__LOG_EVENT, .epoch = -1, .time_ns = lc__realtime_ns()};
    return push(w, h, event, text, NULL, 0);
}

static lc_status log_text(lc__log_writer *w, const lc_log_text *t)
{
    header h = {.kind = LC__LOG_TEXT, .step = t->step, .epoch = -1, .time_ns = t->time_ns};
    return push(w, h, t->name, t->text, NULL, 0);
}

static lc_status log_histogram(lc__log_writer *w, const lc_log_histogram *t)
{
    header h = {.kind = LC__LOG_HISTOGRAM, .step = t->step, .epoch = -1, .time_ns = t->time_ns};
    size_t n = (size_t)t->n_bins;
    piece pieces[] = {{t, sizeof *t}, {t->edges, (n + 1) * sizeof *t->edges}, {t->counts, n * sizeof *t->counts}};
    return push(w, h, t->name, "", pieces, 3);
}

static lc_status log_image(lc__log_writer *w, const lc_log_image *t)
{
    header h = {.kind = LC__LOG_IMAGE, .step = t->step, .epoch = -1, .time_ns = t->time_ns};
    piece pieces[] = {{t, sizeof *t}, {t->pixels, (size_t)t->width * (size_t)t->height * (size_t)t->channels}};
    return push(w, h, t->name, "", pieces, 2);
}

static size_t hparam_texts(const lc_hparam *p)
{
    return strlen(p->name) + 1 + (p->kind == LC_HPARAM_TEXT ? strlen(p->text) + 1 : 0);
}

static lc_status log_hparams(lc__log_writer *w, const lc_hparam *params, int n)
{
    size_t bytes = sizeof(header);
    for (int i = 0; i < n; i++) bytes += sizeof *params + 8 + padded(hparam_texts(&params[i]));
    header h = {(uint32_t)bytes, LC__LOG_HPARAMS, 0, 0, -1, lc__realtime_ns(), 0, (uint32_t)n, 0};
    pthread_mutex_lock(&w->lock);
    char *at = bytes <= MOST_BYTES ? reserve(w, bytes) : NULL;
    if (at) {
        memcpy(at, &h, sizeof h);
        at += sizeof h;
        for (const lc_hparam *p = params; p < params + n; p++) {
            uint64_t space = padded(hparam_texts(p));
            size_t name = strlen(p->name) + 1;
            memcpy(at, p, sizeof *p);
            memcpy(at + sizeof *p, &space, 8);
            at += sizeof *p + 8;
            copy_text(at, p->name, name);
            if (p->kind == LC_HPARAM_TEXT) copy_text(at + name, p->text, strlen(p->text) + 1);
            at += space;
        }
    }
    return pushed(w, at != NULL);
}

/* ---- the writer's thread ---- */

/* Waits for at most `ms`, or until woken. With the lock held. */
static void wait_ms(lc__log_writer *w, int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

/* Waits until there is a batch worth writing. With the lock held. */
static void wait_for_batch(lc__log_writer *w)
{
    while (!w->front.used && !w->stop) {
        w->idle = true;
        pthread_cond_broadcast(&w->done);
        pthread_cond_wait(&w->wake, &w->lock);
    }
    w->idle = false;
    int64_t until = lc__now_ms() + w->interval_ms, now;
    while (!w->stop && !w->flushing && w->front.used < BATCH_BYTES && (now = lc__now_ms()) < until)
        wait_ms(w, until - now);
    buffer swap = w->back;
    w->back = w->front;
    w->front = swap;
    w->front.used = 0, w->front.n = 0;
}

/* Sets the error that the training thread will get. With the lock held. */
static void report(lc__log_writer *w, lc_status status)
{
    w->status = status;
    snprintf(w->message, sizeof w->message, "logger %s: %s", w->name, lc_error_message());
    if (!w->reported_once) w->reported = false;
}

void lc__log_warn(lc__log_writer *w, lc_status status)
{
    pthread_mutex_lock(&w->lock);
    report(w, status);
    w->warned = true;
    pthread_mutex_unlock(&w->lock);
}

static void *run(void *arg)
{
    lc__log_writer *w = arg;
    int64_t busy_since = 0;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        if (!w->back.used) wait_for_batch(w);
        if (!w->back.used) break; /* stopping, and nothing is left */
        bool last = w->stop;      /* one that began before may have failed for what is mended by now */
        w->begun++;
        pthread_mutex_unlock(&w->lock);
        lc_status status = w->sink(w->self, &(lc__log_batch){w->back.data, w->back.used, w->back.n});
        pthread_mutex_lock(&w->lock);
        if (status == LC_OK) {
            w->written += w->back.n;
            w->back.used = 0, w->back.n = 0;
            w->failing = false;
            w->ended = w->begun;
            busy_since = 0;
        } else if (status == LC_SKIP && (!busy_since || lc__now_ms() - busy_since < w->patience_ms)) {
            if (!busy_since) busy_since = lc__now_ms();
            wait_ms(w, BUSY_MS);
        } else {
            w->failing = true;
            report(w, status < 0 ? status : LC_ERR_IO);
            w->ended = w->begun;
            busy_since = 0;
            pthread_cond_broadcast(&w->done);
            if (last) break;
            if (!w->flushing && !w->stop) wait_ms(w, RETRY_MS);
            w->flushing = false;
        }
        if (w->flushing && !w->front.used && !w->back.used) w->flushing = false;
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- beginning and end ---- */

static void free_writer(lc__log_writer *w)
{
    free(w->front.data);
    free(w->back.data);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

lc_status lc__log_writer_new(const char *name, lc__log_sink *sink, void *self, int interval_ms, lc__log_writer **out)
{
    *out = NULL;
    lc__log_writer *w = calloc(1, sizeof *w);
    if (!w) return lc_fail(LC_ERR_MEMORY, "out of memory: logger %s", name);
    snprintf(w->name, sizeof w->name, "%s", name);
    w->sink = sink, w->self = self, w->interval_ms = interval_ms, w->patience_ms = LC__LOG_PATIENCE_MS;
    w->reported = true;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &clock);
    pthread_cond_init(&w->done, NULL);
    pthread_condattr_destroy(&clock);
    w->front = (buffer){.data = malloc(FIRST_BYTES), .capacity = FIRST_BYTES};
    w->back = (buffer){.data = malloc(FIRST_BYTES), .capacity = FIRST_BYTES};
    if (!w->front.data || !w->back.data) {
        free_writer(w);
        return lc_fail(LC_ERR_MEMORY, "out of memory: the buffers of logger %s", name);
    }
    lc_status status = lc__thread_start(&w->thread, run, w, "logger %s", name);
    if (status < 0) {
        free_writer(w);
        return status;
    }
    *out = w;
    return LC_OK;
}

void lc__log_set_patience(lc__log_writer *w, int64_t ms)
{
    pthread_mutex_lock(&w->lock);
    w->patience_ms = ms;
    pthread_mutex_unlock(&w->lock);
}

lc_status lc__log_flush(lc__log_writer *w)
{
    pthread_mutex_lock(&w->lock);
    int64_t target = w->pushed, begun = w->begun;
    bool failed = false;
    while (w->written < target && !failed) {
        w->flushing = true;
        w->idle = false;
        pthread_cond_signal(&w->wake);
        pthread_cond_wait(&w->done, &w->lock);
        failed = w->failing && w->ended > begun;
    }
    w->flushing = false;
    lc_status status = failed ? w->status : LC_OK;
    char message[sizeof w->message];
    memcpy(message, w->message, sizeof message);
    if (failed) w->reported = w->reported_once = true;
    pthread_mutex_unlock(&w->lock);
    return status < 0 ? lc_fail(status, "%s", message) : LC_OK;
}

lc_status lc__log_finish(lc__log_writer *w)
{
    if (!w) return LC_OK;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    int64_t lost = w->pushed - w->written + w->dropped;
    lc_status status = LC_OK;
    if (lost)
        status = lc_fail(LC_ERR_IO, "%s (%" PRId64 " records were lost)",
                         *w->message ? w->message : "the logger's writer ended early", lost);
    else if (w->warned && !w->reported)
        status = lc_fail(w->status, "%s", w->message);
    free_writer(w);
    return status;
}

/* ---- slots ---- */

#define WRITER(self) (*(lc__log_writer **)(self))

lc_status lc__slot_row(void *self, const lc_log_row *row)
{
    return WRITER(self) ? lc__log_row(WRITER(self), row) : LC_OK;
}
lc_status lc__slot_hparams(void *self, const lc_hparam *params, int n)
{
    return WRITER(self) ? log_hparams(WRITER(self), params, n) : LC_OK;
}
lc_status lc__slot_histogram(void *self, const lc_log_histogram *histogram)
{
    return WRITER(self) ? log_histogram(WRITER(self), histogram) : LC_OK;
}
lc_status lc__slot_image(void *self, const lc_log_image *image)
{
    return WRITER(self) ? log_image(WRITER(self), image) : LC_OK;
}
lc_status lc__slot_text(void *self, const lc_log_text *text)
{
    return WRITER(self) ? log_text(WRITER(self), text) : LC_OK;
}
lc_status lc__slot_checkpoint(void *self, const char *path, int64_t step, double score, bool has_score)
{
    return WRITER(self) ? log_checkpoint(WRITER(self), path, step, score, has_score) : LC_OK;
}
lc_status lc__slot_removed(void *self, const char *path)
{
    return WRITER(self) ? log_removed(WRITER(self), path) : LC_OK;
}
lc_status lc__slot_message(void *self, lc_level level, const char *text)
{
    return WRITER(self) ? lc__log_event(WRITER(self), lc_level_name(level), text) : LC_OK;
}
lc_status lc__slot_status(void *self, const char *status)
{
    return WRITER(self) ? lc__log_event(WRITER(self), "status", status) : LC_OK;
}
lc_status lc__slot_flush(void *self)
{
    return WRITER(self) ? lc__log_flush(WRITER(self)) : LC_OK;
}

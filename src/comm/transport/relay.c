/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of bytes over send and receive of other communicators, one for each lane: the far side of "shm+mpi".
 *
 * Committed bytes are sent when the lane is free: a letter that gives the size and holds the first bytes, followed by
 * the rest. A letter is received when its lane is waited for, so there are no more requests than active streams. */
#include "comm/transport/relay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 64 << 10, LETTER = 192 }; /* LETTER: what MPI's first packet has room for (mpi/backend.h) */

typedef struct letter {
    int64_t bytes; /* of the chunk */
    char first[LETTER - sizeof(int64_t)];
} letter;
_Static_assert(sizeof(letter) == LETTER, "a letter has no gaps");

/* Two chunks: one is under way while the other is filled or read. */
typedef struct side {
    char *chunk[2];
    letter head;
    lc_request *letter, *rest; /* under way; NULL */
    int now;                   /* the chunk that is filled, or read */
    size_t n, at;              /* its bytes, and how many of them are read */
    bool busy;                 /* the other one is under way */
} side;

typedef struct stream {
    side out, in;
    char *memory;
} stream;

typedef struct relay {
    int size;
    lc_comm *lanes[LC__LANES]; /* owned */
    stream *streams;           /* [size,LC__LANES] */
} relay;

static stream *stream_of(relay *r, int peer, int lane)
{
    return &r->streams[peer * LC__LANES + lane];
}

static size_t room(void *self, int peer, int lane, void **at)
{
    side *s = &stream_of(self, peer, lane)->out;
    *at = s->chunk[s->now] + s->n;
    return CHUNK - s->n;
}

static void commit(void *self, int peer, int lane, size_t n)
{
    stream_of(self, peer, lane)->out.n += n;
}

static bool sent(void *self, int peer, int lane)
{
    const side *s = &stream_of(self, peer, lane)->out;
    return !s->n && !s->busy;
}

static size_t peek(void *self, int peer, int lane, const void **at)
{
    const side *s = &stream_of(self, peer, lane)->in;
    *at = s->chunk[s->now] + s->at;
    return s->n - s->at;
}

static void consume(void *self, int peer, int lane, size_t n)
{
    stream_of(self, peer, lane)->in.at += n;
}

/* ---- moving ---- */

static lc_status done_with(lc_request **r, bool *done)
{
    bool one = true;
    if (!*r) return LC_OK;
    lc_status s = lc_comm_poll(*r, &one);
    if (s < 0 || one) *r = NULL;
    *done = *done && one;
    return s;
}

static lc_status send_some(lc_comm *c, int peer, side *s)
{
    bool done = true;
    if (s->busy) {
        LC_TRY(done_with(&s->letter, &done));
        LC_TRY(done_with(&s->rest, &done));
        s->busy = !done;
    }
    if (s->busy || !s->n) return LC_OK;
    const char *chunk = s->chunk[s->now];
    size_t n = s->n, first = n < sizeof s->head.first ? n : sizeof s->head.first;
    s->head.bytes = (int64_t)n;
    memcpy(s->head.first, chunk, first);
    s->now = !s->now, s->n = 0, s->busy = true;
    LC_TRY(lc_comm_send(c, &s->head, LETTER, LC_U8, peer, &s->letter));
    return n > first ? lc_comm_send(c, chunk + first, (int64_t)(n - first), LC_U8, peer, &s->rest) : LC_OK;
}

/* Asks for a letter. */
static lc_status expect(lc_comm *c, int peer, side *s)
{
    if (s->busy) return LC_OK;
    s->busy = true;
    return lc_comm_recv(c, &s->head, LETTER, LC_U8, peer, &s->letter);
}

static lc_status receive_some(lc_comm *c, int peer, side *s)
{
    bool done = true, rest = true;
    char *chunk = s->chunk[!s->now];
    const size_t most = sizeof s->head.first;
    if (!s->busy) return LC_OK;
    if (s->letter) {
        LC_TRY(done_with(&s->letter, &done));
        if (!done) return LC_OK;
        size_t n = (size_t)s->head.bytes;
        if (s->head.bytes <= 0 || n > CHUNK || n % LC__GRAIN)
            return lc_fail(LC_ERR_INTERNAL, "rank %d sent a chunk of %lld bytes", peer, (long long)s->head.bytes);
        memcpy(chunk, s->head.first, n < most ? n : most);
        if (n > most) LC_TRY(lc_comm_recv(c, chunk + most, (int64_t)(n - most), LC_U8, peer, &s->rest));
    }
    LC_TRY(done_with(&s->rest, &rest));
    /* The previous chunk is read to its end first. */
    if (!rest || s->at < s->n) return LC_OK;
    s->now = !s->now, s->n = (size_t)s->head.bytes, s->at = 0, s->busy = false;
    return LC_OK;
}

static lc_status progress(void *self)
{
    relay *r = self;
    for (int i = 0; i < r->size; i++)
        for (int l = 0; l < LC__LANES; l++) {
            stream *s = stream_of(r, i, l);
            if (!s->memory) continue;
            LC_TRY(send_some(r->lanes[l], i, &s->out));
            LC_TRY(receive_some(r->lanes[l], i, &s->in));
        }
    return LC_OK;
}

/* The communicator keeps an error and returns it at the next progress. */
static void miss(void *self, int peer, int lane)
{
    relay *r = self;
    (void)!expect(r->lanes[lane], peer, &stream_of(r, peer, lane)->in);
}

/* Nothing wakes this rank. */
static void idle(void *self, int microseconds)
{
    enum { NAP_US = 50 };
    (void)self;
    struct timespec t = {0, (microseconds < NAP_US ? microseconds : NAP_US) * 1000L};
    nanosleep(&t, NULL);
}

static void abort_all(void *self, const char *why)
{
    for (int l = 0; l < LC__LANES; l++) lc_comm_abort(((relay *)self)->lanes[l], why);
}

/* ---- making ---- */

static void close_all(void *self)
{
    relay *r = self;
    for (int l = 0; l < LC__LANES; l++) lc_comm_free(r->lanes[l]); /* calls may still be under way, in this memory */
    for (int i = 0; r->streams && i < r->size * LC__LANES; i++) free(r->streams[i].memory);
    free(r->streams);
    free(r);
}

lc_status lc__relay_new(lc_comm *const lanes[LC__LANES], const bool *without, void **out)
{
    int size = lc_comm_size(lanes[0]);
    bool fits = true;
    relay *r = calloc(1, sizeof *r);
    if (!r) {
        for (int l = 0; l < LC__LANES; l++) lc_comm_free(lanes[l]);
        return lc_fail(LC_ERR_MEMORY, "out of memory: streams of %d ranks", size);
    }
    memcpy(r->lanes, lanes, sizeof r->lanes);
    r->size = size;
    r->streams = calloc((size_t)size * LC__LANES, sizeof *r->streams);
    for (int i = 0; r->streams && i < size * LC__LANES; i++) {
        stream *s = &r->streams[i];
        if (without[i / LC__LANES]) continue;
        s->memory = aligned_alloc(64, 4 * (size_t)CHUNK);
        fits = fits && s->memory;
        for (int k = 0; k < 2 && s->memory; k++) {
            s->out.chunk[k] = s->memory + k * CHUNK;
            s->in.chunk[k] = s->memory + (2 + k) * CHUNK;
        }
    }
    if (!r->streams || !fits) {
        close_all(r);
        return lc_fail(LC_ERR_MEMORY, "out of memory: streams of %d ranks", size);
    }
    *out = r;
    return LC_OK;
}

lc_status lc__relay_split(void *self, int color, int key, lc_comm *lanes[LC__LANES])
{
    relay *r = self;
    lc_status s = LC_OK;
    for (int l = 0; l < LC__LANES; l++) lanes[l] = NULL;
    for (int l = 0; l < LC__LANES && s >= 0; l++) s = lc_comm_split(r->lanes[l], color, key, &lanes[l]);
    for (int l = 0; l < LC__LANES && s < 0; l++) lc_comm_free(lanes[l]);
    return s;
}

const lc__transport_ops lc__relay = {
    .name = "relay",
    .close = close_all,
    .room = room,
    .commit = commit,
    .sent = sent,
    .peek = peek,
    .consume = consume,
    .miss = miss,
    .progress = progress,
    .idle = idle,
    .abort = abort_all,
};

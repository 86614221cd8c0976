/* SPDX-License-Identifier: Apache-2.0 */
/* A ring has one writer and one reader. `written` and `read` count bytes since the beginning, each on a cache line of
 * its own; the difference is what the ring holds. The rings of collectives are so large that the place being written is
 * no longer in the reader's cache: with 256 KiB they took up to twice as long. Those of answers go both ways, and are
 * faster the less of a cache they take (docs/benchmarks.md).
 *
 * A rank with nothing to do sleeps on its bell, a futex that others ring after they wrote or read. Sleeps are short:
 * what moved just before a sleep is seen after it. */
#include "comm/transport/rings.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct ring {
    _Alignas(64) atomic_uint_fast64_t written;
    _Alignas(64) atomic_uint_fast64_t read;
} ring;

typedef struct bell {
    _Alignas(64) atomic_uint rung;
    atomic_int asleep;
    atomic_bool left; /* the rank has closed its end */
} bell;

/* Why the group has ended. */
typedef struct reason {
    atomic_int state; /* 1: `text` is being written; 2: it is written */
    char text[512];
} reason;

struct lc__rings {
    int size;
    atomic_int left;
    reason why;
    _Alignas(64) char rest[]; /* bell[size], ring[size][size][LANES], bytes */
};

enum { LANES = LC__LANE_ANSWERED + 1 };

typedef struct end {
    lc__rings *w;
    int rank, size;
    bell *bells;
    ring *rings;
    uint64_t *taken; /* [size]: bytes of answers that this rank has taken */
    char *data;
    size_t ring_bytes[LANES], pair_bytes;
    int missed; /* a rank that has left and is still needed; -1 */
    reason why; /* this rank's own copy: the rank that began to write the shared one may have been killed before it was
                   done */
    void (*release)(lc__rings *w, size_t bytes);
} end;

/* All rings of a lane together take at most `all` bytes a rank, unless each of them would have less than `least`. */
static size_t ring_bytes(int size, int lane)
{
    enum { KIB = 1 << 10 };
    static const struct {
        size_t all, least, most;
    } limits[LANES] = {
        [LC__LANE_COLLECTIVE] = {8192 * KIB, 256 * KIB, 1024 * KIB},
        [LC__LANE_DIRECT] = {0, 64 * KIB, 64 * KIB},
        [LC__LANE_ANSWERED] = {2048 * KIB, 64 * KIB, 256 * KIB},
    };
    size_t least = limits[lane].least, most = limits[lane].most, n = limits[lane].all / (size_t)size / least * least;
    return n < least ? least : n > most ? most : n;
}

static size_t pair_bytes(int size)
{
    size_t n = 0;
    for (int l = 0; l < LANES; l++) n += ring_bytes(size, l);
    return n;
}

size_t lc__rings_bytes(int size)
{
    size_t n = (size_t)size, head = sizeof(lc__rings) + n * sizeof(bell) + n * n * LANES * sizeof(ring);
    return (head + 4095) / 4096 * 4096 + n * n * pair_bytes(size);
}

void lc__rings_init(lc__rings *w, int size)
{
    w->size = size;
}

lc_status lc__rings_join(lc__rings *w, int rank, void (*release)(lc__rings *w, size_t bytes), void **out)
{
    end *e = calloc(1, sizeof *e);
    uint64_t *taken = calloc((size_t)w->size, sizeof *taken);
    if (!e || !taken) {
        free(e), free(taken);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a rank's end of shared memory");
    }
    e->w = w;
    e->taken = taken;
    e->rank = rank;
    e->size = w->size;
    e->bells = (bell *)w->rest;
    e->rings = (ring *)(w->rest + (size_t)w->size * sizeof(bell));
    e->pair_bytes = pair_bytes(w->size);
    for (int l = 0; l < LANES; l++) e->ring_bytes[l] = ring_bytes(w->size, l);
    e->data = (char *)w + lc__rings_bytes(w->size) - (size_t)w->size * (size_t)w->size * e->pair_bytes;
    e->release = release;
    e->missed = -1;
    *out = e;
    return LC_OK;
}

bool lc__rings_leave(lc__rings *w)
{
    int size = w->size; /* `w` may be gone after the next line */
    return atomic_fetch_add(&w->left, 1) + 1 == size;
}

static void wake(bell *b)
{
    if (!atomic_load(&b->asleep)) return; /* sequentially consistent with the count that moved, and with moved() */
    atomic_fetch_add(&b->rung, 1);
    syscall(SYS_futex, &b->rung, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void lc__rings_close(void *self)
{
    end *e = self;
    atomic_store(&e->bells[e->rank].left, true);
    for (int i = 0; i < e->size; i++) wake(&e->bells[i]);
    e->release(e->w, lc__rings_bytes(e->size));
    free(e->taken);
    free(e);
}

static ring *ring_of(const end *e, int from, int to, int lane, char **data)
{
    size_t pair = (size_t)from * (size_t)e->size + (size_t)to;
    *data = e->data + pair * e->pair_bytes;
    for (int l = 0; l < lane; l++) *data += e->ring_bytes[l];
    return &e->rings[pair * LANES + (size_t)lane];
}

size_t lc__rings_room(void *self, int peer, int lane, void **at)
{
    end *e = self;
    char *data;
    ring *r = ring_of(e, e->rank, peer, lane, &data);
    uint64_t written = atomic_load_explicit(&r->written, memory_order_relaxed);
    uint64_t read = lane == LC__LANE_ANSWERED ? e->taken[peer] : atomic_load_explicit(&r->read, memory_order_acquire);
    size_t size = e->ring_bytes[lane], place = (size_t)(written % size), room = size - (size_t)(written - read);
    *at = data + place;
    if (!room && atomic_load_explicit(&e->bells[peer].left, memory_order_acquire)) e->missed = peer;
    return room < size - place ? room : size - place;
}

void lc__rings_commit(void *self, int peer, int lane, size_t n)
{
    end *e = self;
    char *data;
    ring *r = ring_of(e, e->rank, peer, lane, &data);
    atomic_fetch_add(&r->written, n);
    wake(&e->bells[peer]);
}

size_t lc__rings_peek(void *self, int peer, int lane, const void **at)
{
    end *e = self;
    char *data;
    ring *r = ring_of(e, peer, e->rank, lane, &data);
    uint64_t read = atomic_load_explicit(&r->read, memory_order_relaxed);
    uint64_t written = atomic_load_explicit(&r->written, memory_order_acquire);
    size_t size = e->ring_bytes[lane], place = (size_t)(read % size), here = (size_t)(written - read);
    *at = data + place;
    return here < size - place ? here : size - place;
}

void lc__rings_consume(void *self, int peer, int lane, size_t n)
{
    end *e = self;
    char *data;
    ring *r = ring_of(e, peer, e->rank, lane, &data);
    atomic_fetch_add(&r->read, n);
    wake(&e->bells[peer]);
}

size_t lc__rings_peek_answer(void *self, int peer, const void **at)
{
    end *e = self;
    char *data;
    const ring *r = ring_of(e, e->rank, peer, LC__LANE_ANSWERED, &data);
    bool left = atomic_load_explicit(&e->bells[peer].left, memory_order_acquire); /* read before its last answers */
    size_t here = (size_t)(atomic_load_explicit(&r->read, memory_order_acquire) - e->taken[peer]);
    size_t size = e->ring_bytes[LC__LANE_ANSWERED], place = (size_t)(e->taken[peer] % size);
    if (left && !here) e->missed = peer;
    *at = data + place;
    return here < size - place ? here : size - place;
}

void lc__rings_take_answer(void *self, int peer, size_t n)
{
    ((end *)self)->taken[peer] += n;
}

void lc__rings_miss(void *self, int peer, int lane)
{
    end *e = self;
    const void *at;
    bool left = atomic_load_explicit(&e->bells[peer].left, memory_order_acquire);
    if (__builtin_expect(left, 0) && !lc__rings_peek(self, peer, lane, &at)) e->missed = peer;
}

int lc__rings_missed(const void *self)
{
    const end *e = self; /* a rank that ends the group writes why before it leaves */
    return atomic_load_explicit(&e->w->why.state, memory_order_acquire) ? -1 : e->missed;
}

static bool is_written(const reason *r)
{
    return __builtin_expect(atomic_load_explicit(&r->state, memory_order_acquire) == 2, 0);
}

lc_status lc__rings_progress(void *self)
{
    const end *e = self;
    if (is_written(&e->w->why)) return lc_fail(LC_ERR_PEER, "%s", e->w->why.text);
    if (is_written(&e->why)) return lc_fail(LC_ERR_PEER, "%s", e->why.text);
    if (__builtin_expect(e->missed < 0, 1) || lc__rings_missed(self) < 0) return LC_OK;
    return lc_fail(LC_ERR_PEER, LC__MISSED_TEXT, e->missed, e->rank);
}

/* The sum of all counts that concern this rank, which changes when anything moves. */
static uint64_t moved(const end *e)
{
    uint64_t sum = 0;
    char *data;
    for (int i = 0; i < e->size; i++)
        for (int l = 0; l < LANES && i != e->rank; l++) {
            sum += atomic_load(&ring_of(e, i, e->rank, l, &data)->written);
            sum += atomic_load(&ring_of(e, e->rank, i, l, &data)->read);
        }
    return sum;
}

void lc__rings_idle(void *self, int microseconds)
{
    end *e = self;
    bell *b = &e->bells[e->rank];
    struct timespec t = {microseconds / 1000000, microseconds % 1000000 * 1000};
    uint64_t before = moved(e);
    unsigned rung = atomic_load(&b->rung);
    atomic_store(&b->asleep, 1);
    if (moved(e) == before) syscall(SYS_futex, &b->rung, FUTEX_WAIT, rung, &t, NULL, 0);
    atomic_store(&b->asleep, 0);
}

/* The first reason stays. */
static bool write_reason(reason *r, const char *text)
{
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&r->state, &nobody, 1)) return false;
    snprintf(r->text, sizeof r->text, "%s", text);
    atomic_store_explicit(&r->state, 2, memory_order_release);
    return true;
}

void lc__rings_abort(void *self, const char *why)
{
    end *e = self;
    if (!write_reason(&e->w->why, why)) (void)write_reason(&e->why, why);
    for (int i = 0; i < e->size; i++) wake(&e->bells[i]);
}

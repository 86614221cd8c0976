/* SPDX-License-Identifier: Apache-2.0 */
/* A loop has a row of runs, one for each seat: a 64-bit word with the pieces of the run that are not taken, whether the
 * seat is taken, and the loop it belongs to. So taking a piece is one compare-and-swap, which fails if the loop has
 * ended meanwhile; and once a thread has taken a piece, the loop's other fields stay valid until it reports the piece
 * done. The owner of the seat takes from the front of its run, others take from the end. */
#define _GNU_SOURCE /* syscall */
#include "base/pool.h"

#include "base/at_fork.h"
#include "base/clock.h"
#include "base/spin.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LOOPS = 8,            /* loops that get helpers at the same time; further callers work without */
    SPIN_NS = 200 * 1000, /* how long a helper looks for the next loop before it sleeps */
    WAIT_NS = 20 * 1000,  /* how long a caller spins, besides the time of a piece, while a helper ends its piece */
    LOOKS = 64            /* between two looks at the clock */
};
#define SLEEPS 0x80000000u /* in `left`: the caller sleeps */

/* ---- shared state ---- */

typedef struct run {
    _Alignas(64) _Atomic uint64_t word; /* next piece, end, whether the seat is taken, loop: 16, 16, 1, 31 bits */
} run;

typedef struct loop {
    _Alignas(64) atomic_bool open; /* a caller uses it */
    atomic_int seats;
    _Atomic uint32_t number; /* the loop's number, as in its words */
    lc__piece_fn *fn;
    void *context;
    _Alignas(64) _Atomic uint32_t left; /* pieces that are not done */
    run runs[LC__POOL_SEATS];
} loop;

static struct {
    _Alignas(64) _Atomic uint32_t calls; /* loops that were opened; helpers sleep on it */
    _Alignas(64) atomic_int sleeping;
    atomic_int helpers;
    atomic_llong spin_ns;
    loop loops[LOOPS];
    pthread_mutex_t lock; /* for starting helpers */
    lc__at_fork at_fork;
    bool registered;
    /* How many threads are worth it: see `judge`. */
    _Alignas(64) atomic_int limit; /* 0: any number */
    _Atomic int64_t try_at;        /* when one more is tried */
    atomic_flag judging;           /* guards the members below */
    int64_t lost, hold, raised_at;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .judging = ATOMIC_FLAG_INIT};

static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    int before = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    errno = before;
}

static void wake(_Atomic uint32_t *word, int n)
{
    int before = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
    errno = before;
}

/* ---- taking pieces ---- */

#define TAKEN ((uint64_t)1 << 32)

static inline uint64_t word_of(uint32_t number, bool taken, uint64_t next, uint64_t end)
{
    return (uint64_t)(number & 0x7fffffffu) << 33 | (taken ? TAKEN : 0) | end << 16 | next;
}

static inline bool belongs(uint64_t word, uint32_t number)
{
    return (uint32_t)(word >> 33) == (number & 0x7fffffffu);
}

static inline bool pieces_left(uint64_t word)
{
    return (word & 0xffff) < (word >> 16 & 0xffff);
}

/* The next piece of a run; -1 if there is none. */
static inline int64_t take(run *r, uint32_t number, bool front)
{
    uint64_t word = atomic_load_explicit(&r->word, memory_order_relaxed);
    while (belongs(word, number) && pieces_left(word)) {
        uint64_t after = front ? word + 1 : word - ((uint64_t)1 << 16);
        if (atomic_compare_exchange_weak_explicit(&r->word, &word, after, memory_order_acquire, memory_order_relaxed))
            return (int64_t)(front ? word & 0xffff : (word >> 16 & 0xffff) - 1);
    }
    return -1;
}

/* Does pieces until none is left, `piece` first; returns how many. */
static uint32_t work(loop *l, uint32_t number, int seats, int seat, int64_t piece)
{
    uint32_t n = 0;
    int from = seat;
    if (piece < 0) piece = take(&l->runs[seat], number, true);
    for (;;) {
        while (piece < 0) {
            from = from + 1 == seats ? 0 : from + 1;
            if (from == seat) return n;
            piece = take(&l->runs[from], number, false);
        }
        l->fn(l->context, piece, seat);
        n++;
        piece = take(&l->runs[from], number, from == seat);
    }
}

/* A thread reports all its pieces at once, at its end: until then it may use the loop's fields. */
static void say_done(loop *l, uint32_t n)
{
    if (atomic_fetch_sub_explicit(&l->left, n, memory_order_acq_rel) == (n | SLEEPS)) wake(&l->left, 1);
}

/* ---- helpers ---- */

/* Takes a seat, its own if it is free, and a piece; -1 if there is no seat or no piece. */
static int take_seat(loop *l, uint32_t number, int seats, int me, int64_t *piece)
{
    for (int i = 0, seat = 1 + (me - 1) % (seats - 1); i < seats - 1; i++, seat = seat + 1 == seats ? 1 : seat + 1) {
        uint64_t word = atomic_load_explicit(&l->runs[seat].word, memory_order_relaxed);
        while (belongs(word, number) && !(word & TAKEN)) {
            bool any = pieces_left(word);
            if (!atomic_compare_exchange_weak_explicit(&l->runs[seat].word, &word, (word | TAKEN) + any,
                                                       memory_order_acquire, memory_order_relaxed))
                continue;
            *piece = any ? (int64_t)(word & 0xffff) : -1;
            for (int j = 1; *piece < 0 && j < seats; j++) *piece = take(&l->runs[(seat + j) % seats], number, false);
            return *piece < 0 ? -1 : seat;
        }
    }
    return -1;
}

static bool help(loop *l, int me)
{
    int64_t piece;
    if (!atomic_load_explicit(&l->open, memory_order_acquire)) return false;
    uint32_t number = atomic_load_explicit(&l->number, memory_order_acquire);
    int seats = atomic_load_explicit(&l->seats, memory_order_relaxed);
    int seat = seats > 1 ? take_seat(l, number, seats, me, &piece) : -1;
    if (seat < 0) return false;
    say_done(l, work(l, number, seats, seat, piece));
    return true;
}

static void wait_for_loop(uint32_t seen)
{
    int64_t spin = atomic_load_explicit(&pool.spin_ns, memory_order_relaxed), end = 0;
    while (spin) {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&pool.calls, memory_order_acquire) != seen) return;
            lc__spin();
        }
        int64_t now = lc__now_ns();
        if (!end) end = now + spin;
        if (now >= end) break;
    }
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&pool.calls) == seen) sleep_on(&pool.calls, seen);
    atomic_fetch_sub(&pool.sleeping, 1);
}

static void *be_helper(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&pool.calls, memory_order_acquire);
        bool helped = false;
        for (int i = 0; i < LOOPS; i++) helped |= help(&pool.loops[i], me);
        if (!helped) wait_for_loop(seen);
    }
    return NULL;
}

/* A child has only the thread that forked. */
static void forget_helpers(void *unused)
{
    (void)unused;
    pthread_mutex_init(&pool.lock, NULL);
    atomic_store(&pool.helpers, 0);
    atomic_store(&pool.sleeping, 0);
    atomic_flag_clear(&pool.judging);
    for (int i = 0; i < LOOPS; i++) atomic_store(&pool.loops[i].open, false);
}

/* Starts fewer than asked for if no more can be started: then loops take longer. */
static void start_helpers(int n)
{
    pthread_mutex_lock(&pool.lock);
    if (!pool.registered) {
        const char *policy = getenv("OMP_WAIT_POLICY");
        atomic_store(&pool.spin_ns, policy && !strcasecmp(policy, "passive") ? 0 : SPIN_NS);
        pool.at_fork.in_child = forget_helpers;
        lc__at_fork_add(&pool.at_fork);
        pool.registered = true;
    }
    for (int i = atomic_load(&pool.helpers); i < n; i++) {
        pthread_t thread;
        if (lc__thread_create(&thread, be_helper, (void *)(intptr_t)(i + 1))) break;
        pthread_detach(thread);
        atomic_store(&pool.helpers, i + 1);
    }
    pthread_mutex_unlock(&pool.lock);
}

/* ---- how many threads ----
 *
 * The time of a loop is compared with that of one thread fewer, at the caller's own speed. If threads get
 * processors of their own, more of them are faster. If one has to share, the others wait for it whenever it has taken a
 * piece and is not scheduled: milliseconds, which the gain of the loops between two such waits may not outweigh. So
 * losses and gains are added up; when a loss remains, one thread fewer takes part for a while. That time gets four
 * times as long when one thread more turns out to be a loss again. */

#define LOSS_NS     ((int64_t)1000 * 1000) /* a loss that is worth a change */
#define BANK_NS     (3 * LOSS_NS)          /* gains that are remembered: one wait on a quiet machine changes nothing */
#define MIN_HOLD_NS (30 * LOSS_NS)
#define MAX_HOLD_NS (2000 * LOSS_NS)

static int allowed(int threads, int64_t now)
{
    int limit = atomic_load_explicit(&pool.limit, memory_order_relaxed);
    if (!limit || threads <= limit) return threads;
    if (now < atomic_load_explicit(&pool.try_at, memory_order_relaxed) ||
        atomic_flag_test_and_set_explicit(&pool.judging, memory_order_acquire))
        return limit;
    limit = atomic_load_explicit(&pool.limit, memory_order_relaxed) + 1;
    pool.lost = 0;
    pool.raised_at = now;
    atomic_store_explicit(&pool.limit, limit, memory_order_relaxed);
    atomic_store_explicit(&pool.try_at, now + MIN_HOLD_NS, memory_order_relaxed);
    atomic_flag_clear_explicit(&pool.judging, memory_order_release);
    return limit < threads ? limit : threads;
}

static void judge(int seats, int64_t now, int64_t took, int64_t fewer_would_take)
{
    if (atomic_flag_test_and_set_explicit(&pool.judging, memory_order_acquire)) return;
    pool.lost += took - fewer_would_take;
    if (pool.lost < -BANK_NS) pool.lost = -BANK_NS;
    if (pool.lost > LOSS_NS) {
        bool again = pool.hold && now - pool.raised_at < 2 * pool.hold;
        pool.hold = !again ? MIN_HOLD_NS : pool.hold < MAX_HOLD_NS / 4 ? 4 * pool.hold : MAX_HOLD_NS;
        pool.lost = 0;
        atomic_store_explicit(&pool.limit, seats - 1, memory_order_relaxed);
        atomic_store_explicit(&pool.try_at, now + pool.hold, memory_order_relaxed);
    }
    atomic_flag_clear_explicit(&pool.judging, memory_order_release);
}

bool lc__pool_helps(void)
{
    return atomic_load_explicit(&pool.helpers, memory_order_relaxed) > 0;
}

int lc__pool_allowed(int threads)
{
    return allowed(threads, lc__now_ns());
}

/* ---- the caller ---- */

static loop *open_loop(void)
{
    for (int i = 0; i < LOOPS; i++)
        if (!atomic_load_explicit(&pool.loops[i].open, memory_order_relaxed) &&
            !atomic_exchange_explicit(&pool.loops[i].open, true, memory_order_acquire))
            return &pool.loops[i];
    return NULL;
}

static void call_helpers(int n)
{
    atomic_fetch_add(&pool.calls, 1);
    int sleeping = atomic_load(&pool.sleeping);
    if (!sleeping) return;
    int awake = atomic_load_explicit(&pool.helpers, memory_order_relaxed) - sleeping;
    if (awake < n) wake(&pool.calls, n - awake);
}

/* Waits until helpers have finished the pieces they are in. */
static void wait_for_rest(loop *l, int64_t now, int64_t piece_ns)
{
    int64_t spin = atomic_load_explicit(&pool.spin_ns, memory_order_relaxed);
    if (spin > WAIT_NS + piece_ns) spin = WAIT_NS + piece_ns;
    for (int64_t end = now + spin; spin && now < end; now = lc__now_ns()) {
        for (int i = 0; i < LOOKS; i++) {
            if (!atomic_load_explicit(&l->left, memory_order_acquire)) return;
            lc__spin();
        }
    }
    uint32_t left = atomic_load_explicit(&l->left, memory_order_acquire);
    while (left & ~SLEEPS) {
        if (left & SLEEPS)
            sleep_on(&l->left, left);
        else if (!atomic_compare_exchange_weak(&l->left, &left, left | SLEEPS))
            continue;
        left = atomic_load_explicit(&l->left, memory_order_acquire);
    }
}

static void run_alone(int64_t pieces, lc__piece_fn *fn, void *context)
{
    for (int64_t i = 0; i < pieces; i++) fn(context, i, 0);
}

void lc__pool_run(int threads, int64_t pieces, lc__piece_fn *fn, void *context)
{
    int seats = threads > LC__POOL_SEATS ? LC__POOL_SEATS : threads;
    int64_t begun = 0;
    if (seats > pieces) seats = (int)pieces;
    if (seats > 1) seats = allowed(seats, begun = lc__now_ns());
    loop *l = seats > 1 ? open_loop() : NULL;
    if (!l) {
        run_alone(pieces, fn, context);
        return;
    }
    if (atomic_load_explicit(&pool.helpers, memory_order_relaxed) < seats - 1) start_helpers(seats - 1);
    uint32_t number = atomic_load_explicit(&l->number, memory_order_relaxed) + 1;
    l->fn = fn;
    l->context = context;
    atomic_store_explicit(&l->seats, seats, memory_order_relaxed);
    atomic_store_explicit(&l->left, (uint32_t)pieces, memory_order_relaxed);
    for (int s = 0; s < seats; s++)
        atomic_store_explicit(
            &l->runs[s].word,
            word_of(number, s == 0, (uint64_t)(pieces * s / seats), (uint64_t)(pieces * (s + 1) / seats)),
            memory_order_release);
    atomic_store_explicit(&l->number, number, memory_order_release);
    call_helpers(seats - 1);
    uint32_t n = work(l, number, seats, 0, -1);
    int64_t now = lc__now_ns(), piece_ns = n ? (now - begun) / n : 0;
    say_done(l, n);
    if (atomic_load_explicit(&l->left, memory_order_acquire)) {
        wait_for_rest(l, now, piece_ns);
        now = lc__now_ns();
    }
    atomic_store_explicit(&l->open, false, memory_order_release);
    if (n) judge(seats, now, now - begun, ((pieces - 1) / (seats - 1) + 1) * piece_ns);
}

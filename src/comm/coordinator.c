/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator: a thread with one connection to every rank, which decides when the run has ended and why.
 *
 * It goes in rounds: wait for bytes, take what has come, then decide. Everything that has come is taken before silence
 * is judged, so that a coordinator that was stopped for a while itself finds nobody guilty when it goes on. Of several
 * things that are wrong in a round, a rank that is gone comes before a rank that complains: the complaint is mostly
 * about the one that is gone.
 *
 * Ranks begin together, and may do so again after all have said goodbye: a program that makes one trainer after
 * another.
 *
 * A connection without the secret is a stranger: it may send one small message within a few seconds and learns nothing.
 */
#include "comm/control_internal.h"
#include "comm/socket.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXPLAIN       0.1  /* seconds for who watches a process to say how it ended, and for its last words to arrive */
#define COMPLAIN      0.05 /* seconds until a complaint is believed: its cause may be a rank whose end is not seen yet */
#define GONE          "its process ended, or its network did: the connection is gone"
#define STRANGER_TIME 5.0  /* seconds */
#define FIRST_WORD    2.0  /* seconds until those who wait are told for whom */
#define NEXT_WORD     10.0 /* and told again */
#define LEAVE_TIME    1.0  /* seconds for the last messages */
enum { STRANGERS = 64, HELLO_BYTES = 20 + LC__HOST_TEXT, STRANGER_LIMIT = HELLO_BYTES + 128 };

typedef enum member_state { ABSENT, HERE, LOST, FAILED, LEFT } member_state;

typedef struct member {
    member_state state;
    bool waiting; /* HERE, for the others */
    lc__wire wire;
    char host[LC__HOST_TEXT];
    uint64_t process;
    double heard;             /* when anything came */
    double since;             /* LOST, FAILED: when that was seen */
    char cause[LC__END_TEXT]; /* FAILED: in the rank's words */
    char ended[256];          /* in the words of who watches its process; "" while it is thought to run */
    double ended_at;
    uint64_t reports; /* of progress */
    double reported;  /* when their number grew */
    int64_t step;     /* -1: none yet */
    char where[128];
    uint8_t *gift; /* what it gives to the meeting that is on */
    size_t gift_bytes;
    uint64_t gift_number; /* 0: nothing */
} member;

typedef struct stranger {
    lc__wire wire;
    double since;
} stranger;

struct lc__coordinator {
    int listener, wake, size;
    char secret[65];
    lc__control_times times;
    pthread_t thread;
    pthread_mutex_t lock; /* of everything below */
    member *members;      /* [size] */
    stranger strangers[STRANGERS];
    int n_strangers;
    bool gathering; /* ranks wait for others that have not come, or not come back */
    bool ended, stopping;
    int silent;                 /* the rank whose silence ended the run, or -1 */
    double started, beat, word; /* word: when those who wait are told next */
    char message[LC__END_TEXT];
    struct pollfd *polled; /* [2 + size + STRANGERS] */
};

/* ---- telling ---- */

/* A connection that has no memory left for its messages is as good as gone. */
static void tell(member *m, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data, size_t n)
{
    if (m->wire.fd >= 0 && !lc__wire_put(&m->wire, kind, head, head_bytes, data, n))
        (void)shutdown(m->wire.fd, SHUT_RDWR);
}

static void tell_all(lc__coordinator *c, lc__frame_kind kind, const char *text)
{
    for (int i = 0; i < c->size; i++) tell(&c->members[i], kind, NULL, 0, text, strlen(text));
}

static void end_run(lc__coordinator *c)
{
    c->ended = true;
    tell_all(c, LC__FRAME_END, c->message);
}

/* "rank 3 (host a), step 120, epoch 2, validation: cause" */
static void end_by_rank(lc__coordinator *c, int rank, const char *cause)
{
    const member *m = &c->members[rank];
    char step[32] = "";
    if (m->step >= 0) snprintf(step, sizeof step, ", step %lld", (long long)m->step);
    if (m->host[0])
        snprintf(c->message, sizeof c->message, "rank %d (host %s)%s%s%s: %s", rank, m->host, step,
                 m->where[0] ? ", " : "", m->where, cause);
    else
        snprintf(c->message, sizeof c->message, "rank %d: %s", rank, cause);
    end_run(c);
}

/* "ranks 2, 3 of 4" */
static void absent_ranks(const lc__coordinator *c, char *text, size_t size)
{
    int n = 0, all = 0;
    for (int i = 0; i < c->size; i++) all += !c->members[i].waiting;
    int k = snprintf(text, size, all == 1 ? "rank" : "ranks");
    for (int i = 0; i < c->size && (size_t)k + 40 < size; i++) {
        if (c->members[i].waiting) continue;
        k += snprintf(text + k, size - (size_t)k, "%s %d", n ? "," : "", i);
        if (++n == 16 && all > 16) k += snprintf(text + k, size - (size_t)k, " and %d more", all - n);
        if (n == 16) break;
    }
    snprintf(text + k, size - (size_t)k, " of %d", c->size);
}

/* ---- deciding ---- */

static void set_lost(member *m, double now)
{
    lc__wire_release(&m->wire);
    if (m->state != HERE && m->state != ABSENT) return;
    m->state = LOST;
    m->since = now;
}

/* The rank that has been in `state` longest, or -1. */
static int earliest(const lc__coordinator *c, member_state state)
{
    int found = -1;
    for (int i = 0; i < c->size; i++)
        if (c->members[i].state == state && (found < 0 || c->members[i].since < c->members[found].since)) found = i;
    return found;
}

static bool meeting_is_on(const lc__coordinator *c)
{
    for (int i = 0; i < c->size; i++)
        if (c->members[i].gift_number && c->members[i].state == HERE) return true;
    return false;
}

static void decide_about(lc__coordinator *c, int rank, double now)
{
    member *m = &c->members[rank];
    char cause[128];
    if ((m->state == LEFT || m->waiting) && meeting_is_on(c)) {
        end_by_rank(c, rank, "it has left the run, and others still wait for it");
        return;
    }
    if (m->state != HERE) return;
    if (now - m->heard > c->times.silence) {
        snprintf(cause, sizeof cause,
                 "nothing was heard from it for %.3g s: its process is stopped, or its host or network is gone",
                 now - m->heard);
        c->silent = rank;
        end_by_rank(c, rank, cause);
    } else if (!m->waiting && c->times.progress > 0 && now - m->reported > c->times.progress) {
        snprintf(cause, sizeof cause, "no progress for %.3g s", now - m->reported);
        end_by_rank(c, rank, cause);
    }
}

/* Those whose processes have ended are lost once their last words, if there are any, have come. Whether some may still
 * come. */
static bool bury(lc__coordinator *c, double now)
{
    for (int i = 0; i < c->size; i++) {
        member *m = &c->members[i];
        if (!m->ended[0] || (m->state != ABSENT && m->state != HERE)) continue;
        if (m->wire.fd >= 0 && now - m->ended_at < EXPLAIN) return true;
        set_lost(m, now);
    }
    return false;
}

/* Whether to look again soon. */
static bool decide(lc__coordinator *c, double now)
{
    if (c->ended) return false;
    if (bury(c, now)) return true;
    int rank = earliest(c, LOST);
    if (rank >= 0) {
        const member *m = &c->members[rank];
        if (!m->ended[0] && now - m->since < EXPLAIN) return true;
        end_by_rank(c, rank, m->ended[0] ? m->ended : GONE);
        return false;
    }
    rank = earliest(c, FAILED);
    if (rank >= 0) {
        if (now - c->members[rank].since < COMPLAIN) return true;
        end_by_rank(c, rank, c->members[rank].cause);
        return false;
    }
    for (int i = 0; i < c->size && !c->ended; i++) decide_about(c, i, now);
    if (!c->ended && c->gathering && now - c->started > c->times.start) {
        char who[256];
        absent_ranks(c, who, sizeof who);
        snprintf(c->message, sizeof c->message, "%s did not come within %.3g s", who, c->times.start);
        end_run(c);
    }
    return false;
}

/* ---- what ranks send ---- */

/* The meeting is over when all have given. */
static void meet(lc__coordinator *c)
{
    member *m = c->members;
    uint8_t number[8], *all;
    size_t bytes = m[0].gift_bytes;
    for (int i = 0; i < c->size; i++)
        if (!m[i].gift_number || m[i].state != HERE) return;
    for (int i = 1; i < c->size; i++)
        if (m[i].gift_bytes != bytes || m[i].gift_number != m[0].gift_number) {
            snprintf(c->message, sizeof c->message,
                     "ranks 0 and %d tell each other different things (%zu and %zu bytes): they are different programs",
                     i, bytes, m[i].gift_bytes);
            end_run(c);
            return;
        }
    all = malloc(bytes * (size_t)c->size + 1);
    if (!all) {
        snprintf(c->message, sizeof c->message, "the process that coordinates the run is out of memory");
        end_run(c);
        return;
    }
    lc__put_u64(number, m[0].gift_number);
    for (int i = 0; i < c->size; i++) {
        if (bytes) memcpy(all + bytes * (size_t)i, m[i].gift, bytes);
        free(m[i].gift);
        m[i].gift = NULL;
        m[i].gift_number = 0;
    }
    for (int i = 0; i < c->size; i++)
        tell(&m[i], LC__FRAME_GATHERED, number, sizeof number, all, bytes * (size_t)c->size);
    free(all);
}

/* False: that is not what a rank sends. */
static bool take_gift(lc__coordinator *c, member *m, const lc__frame *f)
{
    if (f->n < 8 || f->n - 8 > LC__MEETING_BYTES || m->gift_number || !lc__get_u64(f->data)) return false;
    m->gift = malloc(f->n - 8 + 1);
    if (!m->gift) return false;
    memcpy(m->gift, f->data + 8, f->n - 8);
    m->gift_bytes = f->n - 8;
    m->gift_number = lc__get_u64(f->data);
    meet(c);
    return true;
}

static bool take(lc__coordinator *c, member *m, const lc__frame *f, double now)
{
    switch (f->kind) {
    case LC__FRAME_BEAT:
        if (f->n < 16) return false;
        if (lc__get_u64(f->data) != m->reports) {
            m->reports = lc__get_u64(f->data);
            m->step = (int64_t)lc__get_u64(f->data + 8);
            m->reported = now;
            lc__frame_text(f->data + 16, f->n - 16, m->where, sizeof m->where);
        }
        return true;
    case LC__FRAME_GATHER:
        return take_gift(c, m, f);
    case LC__FRAME_FAIL:
        lc__frame_text(f->data, f->n, m->cause, sizeof m->cause);
        if (m->state != HERE) return true;
        m->state = FAILED;
        m->since = now;
        return true;
    case LC__FRAME_BYE:
        if (m->state == HERE) m->state = LEFT;
        m->waiting = false;
        lc__wire_release(&m->wire);
        return true;
    default:
        return false;
    }
}

static void serve_member(lc__coordinator *c, member *m, double now)
{
    lc__frame f;
    bool open = lc__wire_fill(&m->wire);
    int got;
    m->heard = now;
    while (m->wire.fd >= 0 && (got = lc__wire_next(&m->wire, &f)) != 0)
        if (got < 0 || !take(c, m, &f, now)) {
            open = false;
            snprintf(m->ended, sizeof m->ended, "what it sends is not understood");
            break;
        }
    if (m->wire.fd >= 0 && !open) set_lost(m, now);
}

/* ---- strangers ---- */

static void all_are_here(lc__coordinator *c, double now)
{
    char here[LC__HOST_TEXT] = "";
    uint8_t head[4];
    uint32_t hosting = UINT32_MAX;
    for (int i = 0; i < c->size; i++)
        if (!c->members[i].waiting) return;
    gethostname(here, sizeof here - 1);
    for (int i = 0; i < c->size; i++) {
        member *m = &c->members[i];
        m->reported = now;
        m->waiting = false;
        if (m->process == (uint64_t)getpid() && !strcmp(m->host, here) && hosting == UINT32_MAX) hosting = (uint32_t)i;
    }
    lc__put_u32(head, hosting);
    c->gathering = false;
    for (int i = 0; i < c->size; i++) tell(&c->members[i], LC__FRAME_READY, head, sizeof head, here, strlen(here));
}

static void refuse(lc__wire *w, const char *why)
{
    /* It fits into the socket's buffer. */
    if (lc__wire_put(w, LC__FRAME_REFUSED, NULL, 0, why, strlen(why))) (void)lc__wire_flush(w);
    (void)shutdown(w->fd, SHUT_WR);
}

static void gather_from(lc__coordinator *c, double now)
{
    c->gathering = true;
    c->started = now;
    c->word = now + FIRST_WORD;
}

/* Whether the connection has become a member's, which has taken it over. */
static bool admit(lc__coordinator *c, lc__wire *w, const lc__frame *f, double now)
{
    char why[256];
    uint8_t given[sizeof c->secret] = {0};
    size_t length = f->n - HELLO_BYTES;
    if (f->kind != LC__FRAME_HELLO || f->n < HELLO_BYTES || length >= sizeof given) return false;
    memcpy(given, f->data + HELLO_BYTES, length);
    if (!lc__same_secret(given, c->secret, sizeof given)) {
        refuse(w, "its secret is that of another run");
        return false;
    }
    uint32_t rank = lc__get_u32(f->data + 4), size = lc__get_u32(f->data + 8);
    if (lc__get_u32(f->data) != LC__CONTROL_VERSION) {
        refuse(w, "the run is coordinated by another version of lightc");
        return false;
    }
    if (size != (uint32_t)c->size || rank >= size) {
        snprintf(why, sizeof why, "the run has %d ranks, and this is rank %u of %u", c->size, rank, size);
        refuse(w, why);
        return false;
    }
    member *m = &c->members[rank];
    if (m->process && m->state != LEFT) {
        snprintf(why, sizeof why, "rank %u has come before (host %s, process %llu)", rank, m->host,
                 (unsigned long long)m->process);
        refuse(w, why);
        return false;
    }
    free(m->gift);
    *m = (member){.state = m->state == LOST ? LOST : HERE, /* an ended run has lost those that come too late */
                  .waiting = true,
                  .wire = *w,
                  .process = lc__get_u64(f->data + 12),
                  .heard = now,
                  .step = -1};
    m->wire.limit = LC__MEETING_BYTES + 64;
    lc__frame_text(f->data + 20, LC__HOST_TEXT, m->host, sizeof m->host);
    if (!c->gathering) gather_from(c, now);
    tell(m, LC__FRAME_WELCOME, NULL, 0, NULL, 0);
    if (c->ended)
        tell(m, LC__FRAME_END, NULL, 0, c->message, strlen(c->message));
    else
        all_are_here(c, now);
    return true;
}

static void serve_stranger(lc__coordinator *c, stranger *s, double now)
{
    lc__frame f;
    bool open = lc__wire_fill(&s->wire);
    int got = lc__wire_next(&s->wire, &f);
    if (got > 0 && admit(c, &s->wire, &f, now))
        s->wire = (lc__wire){.fd = -1};
    else if (got || !open || now - s->since > STRANGER_TIME)
        lc__wire_release(&s->wire);
}

static void accept_strangers(lc__coordinator *c, double now)
{
    for (int fd; c->n_strangers < STRANGERS && (fd = lc__socket_accept(c->listener)) >= 0;) {
        stranger *s = &c->strangers[c->n_strangers++];
        s->since = now;
        lc__wire_init(&s->wire, fd, STRANGER_LIMIT);
    }
}

static void forget_strangers(lc__coordinator *c, double now)
{
    int n = 0;
    for (int i = 0; i < c->n_strangers; i++) {
        if (now - c->strangers[i].since > STRANGER_TIME) lc__wire_release(&c->strangers[i].wire);
        if (c->strangers[i].wire.fd >= 0) c->strangers[n++] = c->strangers[i];
    }
    c->n_strangers = n;
}

/* ---- the thread ---- */

static void beat(lc__coordinator *c, double now)
{
    if (now - c->beat >= c->times.heartbeat) {
        c->beat = now;
        for (int i = 0; i < c->size; i++) /* one that does not read them needs no more of them */
            if (!lc__wire_pending(&c->members[i].wire)) tell(&c->members[i], LC__FRAME_BEAT, NULL, 0, NULL, 0);
    }
    if (c->gathering && !c->ended && now >= c->word) {
        char who[256];
        c->word = now + NEXT_WORD;
        absent_ranks(c, who, sizeof who);
        tell_all(c, LC__FRAME_WAITING, who);
    }
}

static void flush(lc__coordinator *c, double now)
{
    for (int i = 0; i < c->size; i++) {
        member *m = &c->members[i];
        if (m->wire.fd >= 0 && !lc__wire_flush(&m->wire)) set_lost(m, now);
    }
}

static short interest(const lc__wire *w)
{
    return (short)(POLLIN | (lc__wire_pending(w) ? POLLOUT : 0));
}

/* One round: waits at most `seconds`. Called and left with the lock, which is free while it waits. */
static void round_of(lc__coordinator *c, double seconds)
{
    struct pollfd *p = c->polled;
    int n = 2, strangers = c->n_strangers, size = c->size;
    p[0] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    p[1] = (struct pollfd){.fd = strangers < STRANGERS ? c->listener : -1, .events = POLLIN};
    for (int i = 0; i < size; i++)
        p[n++] = (struct pollfd){.fd = c->members[i].wire.fd, .events = interest(&c->members[i].wire)};
    for (int i = 0; i < strangers; i++) p[n++] = (struct pollfd){.fd = c->strangers[i].wire.fd, .events = POLLIN};
    pthread_mutex_unlock(&c->lock);
    int some = poll(p, (nfds_t)n, (int)(seconds * 1000) + 1);
    pthread_mutex_lock(&c->lock);
    double now = lc__seconds();
    uint64_t rung;
    if (some > 0 && p[0].revents) (void)!read(c->wake, &rung, sizeof rung);
    for (int i = 0; some > 0 && i < size; i++)
        if (p[2 + i].revents & ~POLLOUT && c->members[i].wire.fd == p[2 + i].fd) serve_member(c, &c->members[i], now);
    for (int i = 0; some > 0 && i < strangers; i++)
        if (p[2 + size + i].revents) serve_stranger(c, &c->strangers[i], now);
    forget_strangers(c, now);
    if (some > 0 && p[1].revents) accept_strangers(c, now);
}

/* What is wrong is said without waiting for a better explanation. */
static void settle(lc__coordinator *c)
{
    int lost = earliest(c, LOST), failed = earliest(c, FAILED);
    if (c->ended) return;
    if (lost >= 0)
        end_by_rank(c, lost, c->members[lost].ended[0] ? c->members[lost].ended : GONE);
    else if (failed >= 0)
        end_by_rank(c, failed, c->members[failed].cause);
}

/* The last messages: a connection is closed when the rank has closed its end, so that nothing under way is lost. Who
 * has been silent all the time is not waited for. */
static void leave(lc__coordinator *c)
{
    double now = lc__seconds(), until = now + LEAVE_TIME;
    bool open = true;
    for (int i = 0; i < c->size; i++)
        if (now - c->members[i].heard > c->times.silence) lc__wire_release(&c->members[i].wire);
    tell_all(c, LC__FRAME_BYE, "");
    for (int i = 0; i < c->n_strangers; i++) lc__wire_release(&c->strangers[i].wire);
    c->n_strangers = 0;
    while (open && lc__seconds() < until) {
        struct pollfd *p = c->polled;
        open = false;
        for (int i = 0; i < c->size; i++) {
            lc__wire *w = &c->members[i].wire;
            if (w->fd >= 0 && !lc__wire_flush(w)) lc__wire_release(w);
            if (w->fd >= 0 && !lc__wire_pending(w)) (void)shutdown(w->fd, SHUT_WR);
            p[i] = (struct pollfd){.fd = w->fd, .events = interest(w)};
            open |= w->fd >= 0;
        }
        if (!open || poll(p, (nfds_t)c->size, 50) <= 0) continue;
        for (int i = 0; i < c->size; i++) {
            lc__wire *w = &c->members[i].wire;
            lc__frame f;
            if (!(p[i].revents & ~POLLOUT)) continue;
            bool more = lc__wire_fill(w);
            while (more && lc__wire_next(w, &f) > 0) continue;
            if (!more) lc__wire_release(w);
        }
    }
}

/* This process was stopped itself for so long (Ctrl-Z, or the whole machine slept), and ranks with it, perhaps: time in
 * which nobody could be heard is no silence. */
static void forgive(lc__coordinator *c, double now, double slept)
{
    for (int i = 0; i < c->size; i++) {
        member *m = &c->members[i];
        m->heard = m->heard + slept < now ? m->heard + slept : now;
        m->reported = m->reported + slept < now ? m->reported + slept : now;
    }
    c->started += slept;
}

static void *run(void *arg)
{
    lc__coordinator *c = arg;
    bool soon = false;
    double tick = c->times.heartbeat < c->times.silence / 4 ? c->times.heartbeat : c->times.silence / 4;
    pthread_mutex_lock(&c->lock);
    while (!c->stopping) {
        double before = lc__seconds(), wait = soon ? EXPLAIN / 4 : tick;
        round_of(c, wait);
        double now = lc__seconds();
        if (now - before - wait > c->times.silence / 2) forgive(c, now, now - before - wait);
        soon = decide(c, now);
        beat(c, now);
        flush(c, now);
    }
    settle(c);
    leave(c);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- from outside ---- */

static void coordinator_free(lc__coordinator *c)
{
    for (int i = 0; c->members && i < c->size; i++) {
        lc__wire_release(&c->members[i].wire);
        free(c->members[i].gift);
    }
    for (int i = 0; i < c->n_strangers; i++) lc__wire_release(&c->strangers[i].wire);
    if (c->listener >= 0) close(c->listener);
    if (c->wake >= 0) close(c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c->members);
    free(c->polled);
    free(c);
}

static lc_status start(lc__coordinator *c, const char *address, int *port)
{
    c->members = calloc((size_t)c->size, sizeof *c->members);
    c->polled = calloc(2 + (size_t)c->size + STRANGERS, sizeof *c->polled);
    if (!c->members || !c->polled)
        return lc_fail(LC_ERR_MEMORY, "out of memory: coordinating a run of %d ranks", c->size);
    for (int i = 0; i < c->size; i++) {
        c->members[i].wire.fd = -1;
        c->members[i].step = -1;
    }
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0) return lc_fail(LC_ERR_IO, "an event descriptor: %s", strerror(errno));
    LC_TRY(lc__socket_listen(address, port, &c->listener));
    gather_from(c, lc__seconds());
    int code = lc__control_thread(&c->thread, run, c);
    return code ? lc_fail(LC_ERR_MEMORY, "a thread to coordinate the run: %s", strerror(code)) : LC_OK;
}

lc_status lc__coordinator_start(const char *address, int *port, int size, const char *secret,
                                const lc__control_times *times, lc__coordinator **out)
{
    *out = NULL;
    if (size < 1) return lc_fail(LC_ERR_ARGUMENT, "%d ranks; there must be at least 1", size);
    LC_TRY(lc__control_check_secret(secret));
    lc__coordinator *c = calloc(1, sizeof *c);
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: coordinating a run");
    c->listener = c->wake = c->silent = -1;
    c->size = size;
    c->times = lc__control_default_times(times);
    snprintf(c->secret, sizeof c->secret, "%s", secret);
    pthread_mutex_init(&c->lock, NULL);
    lc_status s = start(c, address, port);
    if (s < 0) {
        coordinator_free(c);
        return s;
    }
    *out = c;
    return LC_OK;
}

static void ring(lc__coordinator *c)
{
    uint64_t one = 1;
    (void)!write(c->wake, &one, sizeof one);
}

void lc__coordinator_rank_ended(lc__coordinator *c, int rank, const char *how)
{
    if (rank < 0 || rank >= c->size) return;
    pthread_mutex_lock(&c->lock);
    member *m = &c->members[rank];
    if (!m->ended[0]) {
        snprintf(m->ended, sizeof m->ended, "%s", how);
        m->ended_at = lc__seconds();
    }
    pthread_mutex_unlock(&c->lock);
    ring(c);
}

void lc__coordinator_message(lc__coordinator *c, char *text, size_t size)
{
    pthread_mutex_lock(&c->lock);
    snprintf(text, size, "%s", c->message);
    pthread_mutex_unlock(&c->lock);
}

bool lc__coordinator_ended(lc__coordinator *c, int *silent)
{
    pthread_mutex_lock(&c->lock);
    bool ended = c->ended;
    *silent = c->silent;
    pthread_mutex_unlock(&c->lock);
    return ended;
}

void lc__coordinator_stop(lc__coordinator *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_mutex_unlock(&c->lock);
    ring(c);
    pthread_join(c->thread, NULL);
    coordinator_free(c);
}

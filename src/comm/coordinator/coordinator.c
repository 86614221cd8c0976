/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator: a thread with one connection to every rank, which decides when the run has ended and why.
 *
 * It works in rounds: it waits for bytes, handles what has arrived, then decides. Everything that has arrived is
 * handled before silence is judged, so that a coordinator that was itself stopped for a while blames no rank when it
 * resumes.
 *
 * Ranks begin together, and may do so again after all have said goodbye, as in a program that makes one trainer after
 * another. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "comm/coordinator/coordinator_internal.h"
#include "comm/net/socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- the thread ---- */

static void send_who_waits(lc__coordinator *c)
{
    char who[256], text[sizeof who + sizeof c->refused];
    lc__verdict_absent(c, who, sizeof who);
    snprintf(text, sizeof text, "%s\n%s", who, c->refused);
    lc__members_send(c, LC__FRAME_WAITING, text);
}

static void beat(lc__coordinator *c, double now)
{
    if (now - c->beat >= c->times.heartbeat) {
        c->beat = now;
        for (int i = 0; i < c->size; i++) /* one that does not read them needs no more of them */
            if (!lc__wire_pending(&c->members[i].wire))
                lc__member_send(&c->members[i], LC__FRAME_BEAT, NULL, 0, NULL, 0);
    }
    if (c->gathering && !c->ended && now >= c->word) {
        c->word = now + LC__SECONDS(LC__NEXT_WORD_MS);
        c->news = true;
        if (!c->asked_for_word) send_who_waits(c);
    }
}

static void flush(lc__coordinator *c, double now)
{
    for (int i = 0; i < c->size; i++) {
        lc__member *m = &c->members[i];
        if (m->wire.fd >= 0 && !lc__wire_flush(&m->wire)) lc__member_lost(m, now);
    }
    for (int i = 0; i < c->n_launchers; i++) {
        lc__wire *w = &c->launchers[i].wire;
        if (w->fd >= 0 && !lc__wire_flush(w)) lc__wire_release(w);
    }
}

static const char *last_calls(const lc__coordinator *c)
{
    return c->calls.n && !c->calls.failed ? c->calls.s : "";
}

static void *show(void *arg)
{
    lc__coordinator *c = arg;
    c->on_end(c->ctx, c->message, last_calls(c)); /* which do not change anymore */
    return NULL;
}

/* The message is printed before other ranks are notified: when one of them exits, mpirun ends this process at once.
 * Printing may take forever (a stopped terminal, a pipe that nobody reads), so the ranks wait for it only a moment, and
 * nobody holds the lock meanwhile. */
static void show_end(lc__coordinator *c)
{
    struct timespec until;
    pthread_t thread;
    if (!c->unshown) return;
    c->unshown = false;
    pthread_mutex_unlock(&c->lock);
    bool has_thread = lc__thread_create(&thread, show, c) == 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LC__SHOWN_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    bool shown = has_thread && pthread_timedjoin_np(thread, NULL, &until) == 0;
    pthread_mutex_lock(&c->lock);
    flush(c, lc__seconds());
    pthread_mutex_unlock(&c->lock);
    if (!has_thread)
        (void)show(c);
    else if (!shown)
        pthread_join(thread, NULL);
    pthread_mutex_lock(&c->lock);
    lc__member_send_text(&c->members[0], LC__FRAME_END, c->message);
    flush(c, lc__seconds());
}

static short interest(const lc__wire *w)
{
    return (short)(POLLIN | (lc__wire_pending(w) ? POLLOUT : 0));
}

/* One round: waits at most `seconds`. Entered and left with the lock, which is free while it waits. Only this thread
 * opens and closes connections. Only open descriptors are polled: poll takes no more entries than the limit on
 * descriptors. */
static void round_of(lc__coordinator *c, double seconds)
{
    struct pollfd *p = c->polled;
    int n = 2, unproven = c->n_unproven, launchers = c->n_launchers;
    double shut = c->shut - lc__seconds();
    if (shut > 0 && shut < seconds) seconds = shut;
    p[0] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    p[1] = (struct pollfd){.fd = shut > 0 || c->full ? -1 : c->listener, .events = POLLIN};
    for (int i = 0; i < c->size; i++)
        if (c->members[i].wire.fd >= 0)
            p[n++] = (struct pollfd){.fd = c->members[i].wire.fd, .events = interest(&c->members[i].wire)};
    for (int i = 0; i < launchers; i++)
        p[n++] = (struct pollfd){.fd = c->launchers[i].wire.fd, .events = interest(&c->launchers[i].wire)};
    for (int i = 0; i < unproven; i++) p[n++] = (struct pollfd){.fd = c->unproven[i].wire.fd, .events = POLLIN};
    pthread_mutex_unlock(&c->lock);
    int some = poll(p, (nfds_t)n, (int)(seconds * 1000) + 1);
    pthread_mutex_lock(&c->lock);
    c->full = false;
    double now = lc__seconds();
    uint64_t rung;
    if (some > 0 && p[0].revents) (void)!read(c->wake, &rung, sizeof rung);
    const struct pollfd *at = p + 2;
    for (int i = 0; some > 0 && i < c->size; i++)
        if (c->members[i].wire.fd >= 0 && at++->revents & ~POLLOUT) lc__member_serve(c, &c->members[i], now);
    for (int i = 0; some > 0 && i < launchers; i++, at++)
        if (at->revents & ~POLLOUT && c->launchers[i].wire.fd >= 0) lc__launcher_serve(c, &c->launchers[i], now);
    lc__launchers_tidy(c);
    for (int i = 0; some > 0 && i < unproven; i++, at++)
        if (at->revents) lc__admit_serve(c, &c->unproven[i], now);
    lc__admit_forget(c, now);
    if (some > 0 && p[1].revents) lc__admit_accept(c, now);
}

/* Sends and receives the last messages: a connection is closed when the rank has closed its end, so nothing in flight
 * is lost. A rank that has been silent all along is not waited for. */
static void leave(lc__coordinator *c)
{
    double now = lc__seconds(), until = now + LC__SECONDS(LC__GOODBYE_MS);
    bool open = true;
    for (int i = 0; i < c->size; i++)
        if (now - c->members[i].heard > c->times.silence) lc__wire_release(&c->members[i].wire);
    lc__members_send(c, LC__FRAME_BYE, "");
    for (int i = 0; i < c->n_unproven; i++) lc__wire_release(&c->unproven[i].wire);
    for (int i = 0; i < c->n_launchers; i++) lc__wire_release(&c->launchers[i].wire);
    c->n_unproven = 0;
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

/* This process itself was stopped for `slept` seconds (Ctrl-Z, or the whole machine slept), perhaps together with
 * ranks: time in which it could not receive does not count as silence. */
static void forgive(lc__coordinator *c, double now, double slept)
{
    for (int i = 0; i < c->size; i++) {
        lc__member *m = &c->members[i];
        m->heard = m->heard + slept < now ? m->heard + slept : now;
        m->reported = m->reported + slept < now ? m->reported + slept : now;
        m->moved += slept;
        m->given += slept;
    }
    c->started += slept;
    if (c->left > 0) c->left += slept;
    c->slept = slept;
    c->woken = now;
}

static void *run(void *arg)
{
    lc__coordinator *c = arg;
    bool soon = false;
    double tick = c->times.heartbeat < c->times.silence / 4 ? c->times.heartbeat : c->times.silence / 4;
    pthread_mutex_lock(&c->lock);
    while (!c->stopping) {
        double before = lc__seconds(), wait = soon ? LC__SECONDS(LC__LAST_WORDS_MS) / 4 : tick;
        round_of(c, wait);
        double now = lc__seconds();
        if (now - before - wait > c->times.silence / 2) forgive(c, now, now - before - wait);
        soon = lc__verdict_decide(c, now);
        beat(c, now);
        show_end(c);
        flush(c, now);
    }
    lc__verdict_settle(c);
    show_end(c);
    flush(c, lc__seconds());
    leave(c);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- called from other threads ---- */

/* A forked child coordinates nothing. */
static void close_in_child(void *self)
{
    lc__coordinator *c = self;
    int *const fds[] = {&c->listener, &c->wake};
    pthread_mutex_init(&c->lock, NULL);
    for (int i = 0; i < 2; i++)
        if (*fds[i] >= 0) close(*fds[i]), *fds[i] = -1;
    for (int i = 0; i < c->size; i++)
        if (c->members[i].wire.fd >= 0) close(c->members[i].wire.fd), c->members[i].wire.fd = -1;
    for (int i = 0; i < c->n_unproven; i++)
        if (c->unproven[i].wire.fd >= 0) close(c->unproven[i].wire.fd), c->unproven[i].wire.fd = -1;
    for (int i = 0; i < c->n_launchers; i++)
        if (c->launchers[i].wire.fd >= 0) close(c->launchers[i].wire.fd), c->launchers[i].wire.fd = -1;
    c->alone = true;
}

static void coordinator_free(lc__coordinator *c)
{
    lc__at_fork_remove(&c->forked);
    for (int i = 0; c->members && i < c->size; i++) {
        lc__wire_release(&c->members[i].wire);
        free(c->members[i].gift);
    }
    for (int i = 0; i < c->n_unproven; i++) lc__wire_release(&c->unproven[i].wire);
    for (int i = 0; i < c->n_launchers; i++) lc__wire_release(&c->launchers[i].wire);
    if (c->listener >= 0) close(c->listener);
    if (c->wake >= 0) close(c->wake);
    pthread_mutex_destroy(&c->lock);
    lc__str_free(&c->calls);
    free(c->members);
    free(c->launchers);
    free(c->unproven);
    free(c->polled);
    free(c);
}

static lc_status start(lc__coordinator *c, const char *address, int *port)
{
    char here[64];
    c->most_unproven = lc__guests_most(c->size);
    c->members = calloc((size_t)c->size, sizeof *c->members);
    c->launchers = calloc((size_t)c->size, sizeof *c->launchers);
    c->unproven = calloc((size_t)c->most_unproven, sizeof *c->unproven);
    c->polled = calloc(2 + 2 * (size_t)c->size + (size_t)c->most_unproven, sizeof *c->polled);
    if (!c->members || !c->launchers || !c->unproven || !c->polled)
        return lc_fail(LC_ERR_MEMORY, "out of memory: coordinating a run of %d ranks", c->size);
    for (int i = 0; i < c->size; i++) {
        c->members[i].wire.fd = -1;
        c->members[i].step = -1;
    }
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0) return lc_fail(LC_ERR_IO, "cannot make an event descriptor: %s", strerror(errno));
    LC_TRY(lc__socket_listen(address, port, &c->listener));
    lc__socket_local(c->listener, here, sizeof here);
    if (lc__proof_reveals() && !lc__socket_is_loopback(here))
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "ranks of several hosts cannot meet at %s:%d: they would have to send each other the run's "
                       "secret, because %s; on one host they can meet at 127.0.0.1",
                       here, *port, lc__proof_why_not());
    lc__admit_gather(c, lc__seconds());
    LC_TRY(lc__thread_start(&c->thread, run, c, "coordinating the run"));
    c->forked = (lc__at_fork){.in_child = close_in_child, .self = c};
    lc__at_fork_add(&c->forked);
    return LC_OK;
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

lc_status lc__coordinator_start_as(const char *address, bool others, int *port, int size, const char *secret,
                                   const lc__control_times *times, bool *everywhere, lc__coordinator **out)
{
    const char *on = others && address ? lc__socket_listen_as(address) : address;
    lc_status s = lc__coordinator_start(on, port, size, secret, times, out);
    *everywhere = s == LC_ERR_CONFIG && others && address && strcmp(on, "*") != 0;
    if (*everywhere) s = lc__coordinator_start("*", port, size, secret, times, out);
    if (s == LC_ERR_STATE)
        return lc_fail_context(s, "another run may be using the port; set MASTER_PORT to a different one");
    if (s == LC_ERR_CONFIG) return lc_fail_context(s, "MASTER_ADDR must be an address of the host of rank 0");
    return s;
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
    lc__member_ended(&c->members[rank], how, lc__seconds());
    pthread_mutex_unlock(&c->lock);
    ring(c);
}

void lc__coordinator_on_end(lc__coordinator *c, void (*on_end)(void *ctx, const char *message, const char *calls),
                            void *ctx)
{
    pthread_mutex_lock(&c->lock);
    c->on_end = on_end;
    c->ctx = ctx;
    pthread_mutex_unlock(&c->lock);
}

void lc__coordinator_on_stall(lc__coordinator *c, void (*on_stall)(const char *text))
{
    pthread_mutex_lock(&c->lock);
    c->on_stall = on_stall;
    pthread_mutex_unlock(&c->lock);
}

void lc__coordinator_message(lc__coordinator *c, char *text, size_t size)
{
    pthread_mutex_lock(&c->lock);
    snprintf(text, size, "%s", c->ended ? c->message : "");
    pthread_mutex_unlock(&c->lock);
}

void lc__coordinator_last_calls(lc__coordinator *c, lc__str *out)
{
    pthread_mutex_lock(&c->lock);
    if (c->ended) lc__str_add(out, "%s", last_calls(c));
    pthread_mutex_unlock(&c->lock);
}

void lc__coordinator_stuck_calls(lc__coordinator *c, lc__str *out)
{
    pthread_mutex_lock(&c->lock);
    double now = lc__seconds();
    if (!c->ending && lc__calls_are_stuck(c, now)) {
        c->asked = now;
        lc__calls_list(c, out);
    }
    pthread_mutex_unlock(&c->lock);
}

bool lc__coordinator_waits(lc__coordinator *c, char who[256], char refused[256])
{
    pthread_mutex_lock(&c->lock);
    bool news = c->news && c->gathering && !c->ending && !c->ended;
    c->asked_for_word = true;
    c->news = false;
    if (news) {
        lc__verdict_absent(c, who, 256);
        memcpy(refused, c->refused, sizeof c->refused);
    }
    pthread_mutex_unlock(&c->lock);
    return news;
}

bool lc__coordinator_ended(lc__coordinator *c, int *silent)
{
    pthread_mutex_lock(&c->lock);
    bool ended = c->ended;
    *silent = c->silent;
    pthread_mutex_unlock(&c->lock);
    return ended;
}

bool lc__coordinator_failed(lc__coordinator *c)
{
    bool open = true, failed = false;
    for (double until = lc__seconds() + LC__SECONDS(LC__DECIDED_MS); open && lc__seconds() < until;) {
        pthread_mutex_lock(&c->lock);
        failed = c->ended && !c->harmless;
        open = c->ending;
        for (int i = 0; i < c->size; i++) {
            const lc__member *m = &c->members[i];
            open |= m->state == LC__LOST || m->state == LC__FAILED || (m->state == LC__HERE && m->ended[0]);
        }
        open &= !c->ended;
        pthread_mutex_unlock(&c->lock);
        if (open) lc__control_nap(0.01);
    }
    return failed;
}

int lc__coordinator_stopped(lc__coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    int signal = c->ending || c->ended ? 0 : c->stopped;
    pthread_mutex_unlock(&c->lock);
    return signal;
}

bool lc__coordinator_lost(lc__coordinator *c, int rank)
{
    pthread_mutex_lock(&c->lock);
    bool lost = rank >= 0 && rank < c->size && c->members[rank].blamed;
    pthread_mutex_unlock(&c->lock);
    return lost;
}

unsigned lc__coordinator_terms(lc__coordinator *c)
{
    pthread_mutex_lock(&c->lock);
    unsigned terms = c->terms;
    pthread_mutex_unlock(&c->lock);
    return terms;
}

bool lc__coordinator_has_met(lc__coordinator *c, int rank)
{
    pthread_mutex_lock(&c->lock);
    bool has = rank >= 0 && rank < c->size && c->members[rank].process;
    pthread_mutex_unlock(&c->lock);
    return has;
}

bool lc__coordinator_watches(lc__coordinator *c, int rank)
{
    pthread_mutex_lock(&c->lock);
    bool watches = rank >= 0 && rank < c->size && c->members[rank].state == LC__HERE;
    pthread_mutex_unlock(&c->lock);
    return watches;
}

void lc__coordinator_stop(lc__coordinator *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_mutex_unlock(&c->lock);
    ring(c);
    if (!c->alone) pthread_join(c->thread, NULL);
    coordinator_free(c);
}

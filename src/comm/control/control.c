/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's calls on the control channel. Any thread other than the channel's own (rank_thread.c) only queues a
 * message and sends what the socket takes; answers arrive through the channel's thread. */
#include "comm/control/rank.h"
#include "comm/control/times.h"
#include "comm/net/socket.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK 0.01 /* seconds between two calls of `look` while it waits */
enum { TRIES = 4 };

/* ---- beginning ---- */

static void control_free(lc__control *c)
{
    lc__at_fork_remove(&c->forked);
    lc__wire_release(&c->wire);
    if (c->wake >= 0) close(c->wake);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c->address);
    free(c->secret);
    free(c);
}

static void say(const lc__control *c, const char *text)
{
    if (c->options.say) c->options.say(c->options.ctx, text);
}

static lc_status connect_to(lc__control *c, double until, double answered)
{
    const lc__control_args *o = &c->options;
    char who[32];
    int fd;
    snprintf(who, sizeof who, "rank %d", o->rank);
    LC_TRY(lc__control_reach(o, who, until, answered, &fd));
    lc__wire_init(&c->wire, fd, LC__UNPROVEN_BYTES);
    lc__socket_local(fd, c->local, sizeof c->local);
    if (!lc__proof_reveals() || lc__socket_is_loopback(c->local)) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED, "rank %d would have to send the run's secret to %s:%d, because %s", o->rank,
                   o->address, o->port, lc__proof_why_not());
}

/* Waits until something has changed, or `until`; with the lock. */
static void await(lc__control *c, double until)
{
    struct timespec t = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
    pthread_cond_timedwait(&c->changed, &c->lock, &t);
}

/* With the lock. */
static lc_status await_all(lc__control *c, double until)
{
    const lc__control_args *o = &c->options;
    while (!c->ready && !c->ended && !c->over && lc__seconds() < until) {
        if (c->waiting[0]) {
            char text[1024], *more = c->waiting + strcspn(c->waiting, "\n");
            if (*more) *more++ = 0;
            snprintf(text, sizeof text, "waiting for %s at %s:%d%s%s", c->waiting, o->address, o->port,
                     *more ? "; " : "", more);
            c->waiting[0] = 0;
            pthread_mutex_unlock(&c->lock);
            say(c, text);
            pthread_mutex_lock(&c->lock);
            continue;
        }
        await(c, until);
    }
    if (c->ended) return lc__control_fail_ended(c);
    if (c->ready) return LC_OK;
    if (c->refused[0])
        return lc_fail(LC_ERR_CONFIG, "the coordinator of the run at %s:%d refused rank %d: %s", o->address, o->port,
                       o->rank, c->refused);
    if (c->doubt[0])
        return lc_fail(LC_ERR_CONFIG, "the process listening at %s:%d does not coordinate the run of rank %d: %s",
                       o->address, o->port, o->rank, c->doubt);
    if (c->over && !c->welcome)
        return lc_fail(LC_ERR_CONFIG,
                       "the process listening at %s:%d closed the connection of rank %d without answering: it is not a "
                       "coordinator",
                       o->address, o->port, o->rank);
    return lc_fail(LC_ERR_PEER, "the coordinator at %s:%d did not start the run within %.3g s", o->address, o->port,
                   o->times.start);
}

static void init_locks(lc__control *c)
{
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &steady);
    pthread_condattr_destroy(&steady);
}

/* A forked child is not a rank: it sends nothing here, and the connection ends with the rank. */
static void close_in_child(void *self)
{
    lc__control *c = self;
    init_locks(c);
    if (c->wire.fd >= 0) close(c->wire.fd);
    if (c->wake >= 0) close(c->wake);
    c->wire.fd = c->wake = -1;
    c->over = c->alone = true;
}

static lc_status begin(lc__control *c, const lc__control_args *o, double until, double answered)
{
    c->options = *o;
    c->options.times = lc__control_default_times(&o->times);
    c->address = strdup(o->address);
    c->secret = strdup(o->secret);
    c->options.address = c->address;
    c->options.secret = c->secret;
    if (!c->address || !c->secret) return lc_fail(LC_ERR_MEMORY, "out of memory: a rank's control channel");
    snprintf(c->coordinator, sizeof c->coordinator, "the coordinator of the run");
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0) return lc_fail(LC_ERR_IO, "cannot make an event descriptor: %s", strerror(errno));
    LC_TRY(connect_to(c, until, answered));
    c->heard = c->beat = lc__seconds();
    LC_TRY(lc__thread_start(&c->thread, lc__control_serve, c, "the control channel"));
    c->started = true;
    c->forked = (lc__at_fork){.in_child = close_in_child, .self = c};
    lc__at_fork_add(&c->forked);
    return LC_OK;
}

static void end(lc__control *c)
{
    if (c->started)
        lc__control_close(c);
    else
        control_free(c);
}

static lc__control *control_new(void)
{
    lc__control *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    init_locks(c);
    c->wake = c->wire.fd = -1;
    c->step = -1;
    c->parent = getppid();
    return c;
}

/* Whether the coordinator that was reached was about to leave: that of the program's last trainer, if this rank is the
 * first to begin with the next one, whose coordinator will be at the same place. Or it had too many connections, and
 * took this slow rank for one. */
static bool was_leaving(const lc__control *c, int tries)
{
    return c->started && c->over && !c->ended && !c->ready && !c->refused[0] && !c->doubt[0] &&
           (c->welcome || c->greeted || tries < TRIES);
}

lc_status lc__control_open(const lc__control_args *o, lc__control **out)
{
    double until = lc__seconds() + lc__control_default_times(&o->times).start;
    *out = NULL;
    if (o->size < 1 || o->rank < 0 || o->rank >= o->size)
        return lc_fail(LC_ERR_ARGUMENT, "there is no rank %d of %d", o->rank, o->size);
    LC_TRY(lc__control_check_secret(o->secret));
    for (int tries = 1;; tries++) {
        lc__control *c = control_new();
        if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: a rank's control channel");
        lc_status s = begin(c, o, until, until);
        pthread_mutex_lock(&c->lock);
        if (s >= 0) s = await_all(c, until + LC__SECONDS(LC__LATE_START_MS));
        bool again = s < 0 && was_leaving(c, tries) && lc__seconds() + LC__RETRY < until;
        pthread_mutex_unlock(&c->lock);
        if (s >= 0) {
            *out = c;
            return LC_OK;
        }
        end(c);
        if (!again) return s;
        lc__control_nap(LC__RETRY);
    }
}

/* ---- while it runs ---- */

/* `look`, if there is one, is called with `ctx` repeatedly while it waits. */
static lc_status gather(lc__control *c, const void *mine, void *all, size_t bytes, void (*look)(void *ctx), void *ctx)
{
    uint8_t number[8];
    lc_status s = LC_OK;
    if (bytes > LC__MEETING_BYTES)
        return lc_fail(LC_ERR_ARGUMENT, "a rank can send at most %d bytes over the control channel, not %zu",
                       LC__MEETING_BYTES, bytes);
    pthread_mutex_lock(&c->lock);
    c->gifts = all;
    c->gift_bytes = bytes;
    c->met = false;
    lc__put_u64(number, ++c->meeting);
    if (!lc__control_send(c, LC__FRAME_GATHER, number, sizeof number, mine, bytes))
        s = lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for the control channel", bytes);
    while (s >= 0 && !c->met && !c->ended && !c->over) {
        if (!look) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        await(c, lc__seconds() + LOOK);
        pthread_mutex_unlock(&c->lock);
        look(ctx);
        pthread_mutex_lock(&c->lock);
    }
    if (s >= 0 && !c->met)
        s = c->ended ? lc__control_fail_ended(c) : lc_fail(LC_ERR_PEER, "the coordinator has left the run");
    c->gifts = NULL;
    pthread_mutex_unlock(&c->lock);
    return s;
}

lc_status lc__control_all_gather(void *control, const void *mine, void *all, size_t bytes)
{
    return gather(control, mine, all, bytes, NULL, NULL);
}

lc_status lc__control_leave(lc__control *c, void (*look)(void *ctx), void *ctx)
{
    char mine = 0, *all = malloc((size_t)c->options.size);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: leaving a run of %d ranks", c->options.size);
    pthread_mutex_lock(&c->lock);
    lc__control_send_calls(c, false, lc__seconds());
    bool sent = lc__control_send(c, LC__FRAME_LEAVE, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&c->lock);
    lc_status s = sent ? gather(c, &mine, all, 1, look, ctx)
                       : lc_fail(LC_ERR_MEMORY, "out of memory: leaving a run of %d ranks", c->options.size);
    free(all);
    return s;
}

static void replace(lc__control *c, lc_comm *from, lc_comm *to)
{
    for (int i = 0; i < LC__WATCHED; i++)
        if (c->watched[i] == from) {
            c->watched[i] = to;
            return;
        }
}

void lc__control_watch(lc__control *c, lc_comm *comm)
{
    pthread_mutex_lock(&c->lock);
    replace(c, NULL, comm);
    if (c->ended) lc_comm_abort(comm, c->message);
    pthread_mutex_unlock(&c->lock);
}

void lc__control_unwatch(lc__control *c, lc_comm *comm)
{
    pthread_mutex_lock(&c->lock);
    replace(c, comm, NULL);
    pthread_mutex_unlock(&c->lock);
}

void lc__control_progress(lc__control *c, int64_t step, const char *where)
{
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    bool news = c->reports == c->reports_sent; /* the thread has nothing to report yet, and sleeps longer */
    c->reports++;
    c->step = step;
    c->in_run = where && strcmp(where, LC__OWN_LOOP) != 0;
    snprintf(c->where, sizeof c->where, "%s", where ? where : "");
    pthread_mutex_unlock(&c->lock);
    if (news) (void)!write(c->wake, &one, sizeof one);
}

void lc__control_terms(lc__control *c, unsigned terms)
{
    uint8_t head[4];
    lc__put_u32(head, terms);
    pthread_mutex_lock(&c->lock);
    (void)lc__control_send(c, LC__FRAME_TERMS, head, sizeof head, NULL, 0);
    pthread_mutex_unlock(&c->lock);
}

/* Whether the newest error of this thread has nothing to do with other ranks. */
static bool is_own_matter(void)
{
    switch (lc__last_error()) {
    case LC_ERR_ARGUMENT:
    case LC_ERR_CONFIG:
    case LC_ERR_SHAPE:
    case LC_ERR_DTYPE:
    case LC_ERR_DEVICE:
    case LC_ERR_MEMORY:
    case LC_ERR_IO:
    case LC_ERR_FORMAT:
    case LC_ERR_NOT_FOUND:
    case LC_ERR_UNSUPPORTED:
        return true;
    default:
        return false;
    }
}

/* Sends this rank's position first: the heartbeat that would carry it may be some time away. */
void lc__control_fail(lc__control *c, const char *why)
{
    uint8_t head[8];
    lc__put_u32(head, is_own_matter());
    lc__put_u32(head + 4, (uint32_t)lc__error_rank());
    pthread_mutex_lock(&c->lock);
    c->beat = c->called = 0;
    lc__control_beat(c, lc__seconds());
    if (!c->ended) (void)lc__control_send(c, LC__FRAME_FAIL, head, sizeof head, why, strnlen(why, LC__END_TEXT));
    pthread_mutex_unlock(&c->lock);
}

bool lc__control_ended(lc__control *c, char *text, size_t size)
{
    pthread_mutex_lock(&c->lock);
    bool ended = c->ended;
    if (size) snprintf(text, size, "%s", c->message);
    pthread_mutex_unlock(&c->lock);
    return ended;
}

/* With the lock. */
static void await_end(lc__control *c, double seconds)
{
    double until = lc__seconds() + seconds;
    while (!c->ended && !c->over && lc__seconds() < until) await(c, until);
}

/* Whether the run has ended because of this rank's newest error, `why`; the rank on which it happened reports it in its
 * own words. With the lock. */
static bool ended_of(const lc__control *c, const char *why)
{
    int rank = -1, of = lc__error_rank();
    if (!c->ended || !c->by_word) return false;
    return strstr(c->message, why) || (of >= 0 && sscanf(c->message, "rank %d", &rank) == 1 && rank == of);
}

/* If the run has ended because another rank failed at the same time, this rank's message is kept. */
void lc__control_fail_and_wait(lc__control *c, const char *why)
{
    lc__control_fail(c, why);
    pthread_mutex_lock(&c->lock);
    await_end(c, LC__SECONDS(LC__ENDED_MS));
    if (ended_of(c, why)) (void)!lc__control_fail_ended(c);
    pthread_mutex_unlock(&c->lock);
}

/* Connects to the coordinator for one message; NULL: it cannot be reached. One that is there may be late, one that is
 * gone does not come back. */
static lc__control *come(const lc__control_args *o)
{
    double now = lc__seconds(), until = now + LC__SECONDS(LC__ENDED_MS);
    lc__control *c = control_new();
    if (!c) return NULL;
    lc_status s = begin(c, o, now + LC__SECONDS(LC__REACHED_MS), until);
    pthread_mutex_lock(&c->lock);
    while (s >= 0 && !c->welcome && !c->over && lc__seconds() < until) await(c, until);
    bool welcome = c->welcome;
    pthread_mutex_unlock(&c->lock);
    if (welcome) return c;
    end(c);
    return NULL;
}

void lc__control_last_words(const lc__control_args *o, const char *why)
{
    lc__control *c = come(o);
    if (!c) return;
    lc__control_fail_and_wait(c, why);
    lc__control_close(c);
}

void lc__control_last_terms(const lc__control_args *o, unsigned terms)
{
    lc__control *c = come(o);
    if (!c) return;
    lc__control_terms(c, terms);
    lc__control_close(c);
}

lc_status lc__control_explain(lc__control *c, double seconds, lc_status status)
{
    pthread_mutex_lock(&c->lock);
    await_end(c, seconds);
    if (c->ended) status = lc__control_fail_ended(c);
    if (seconds > 0) c->unexplained = !c->ended; /* else there was no wait */
    pthread_mutex_unlock(&c->lock);
    return status;
}

lc_status lc__control_pass_on(lc__control *c, double seconds, lc_status status)
{
    char why[LC__END_TEXT];
    lc__copy_message(why, sizeof why);
    pthread_mutex_lock(&c->lock);
    bool unexplained = c->unexplained;
    pthread_mutex_unlock(&c->lock);
    if (!unexplained) (void)!lc__control_explain(c, seconds, status);
    if (!lc__control_ended(c, NULL, 0)) lc__control_fail(c, why);
    return lc__control_explain(c, LC__SECONDS(LC__ENDED_MS), status);
}

void lc__control_last_resort(lc__control *c, bool process_exit)
{
    pthread_mutex_lock(&c->lock);
    c->process_exit = process_exit;
    pthread_mutex_unlock(&c->lock);
}

void lc__control_local_address(const lc__control *c, char *text, size_t size)
{
    snprintf(text, size, "%s", c->local);
}

/* With the lock. */
static void say_goodbye(lc__control *c, const void *head, size_t n)
{
    if (c->closing) return;
    if (c->welcome) (void)lc__control_send(c, LC__FRAME_BYE, head, n, NULL, 0);
    c->closing = true;
    c->closing_at = lc__seconds();
}

void lc__control_stopped(lc__control *c, int signal)
{
    uint8_t head[4];
    lc__put_u32(head, (uint32_t)signal);
    pthread_mutex_lock(&c->lock);
    say_goodbye(c, head, sizeof head);
    await_end(c, LC__SECONDS(LC__GOODBYE_MS));
    pthread_mutex_unlock(&c->lock);
}

void lc__control_close(lc__control *c)
{
    if (!c) return;
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    say_goodbye(c, NULL, 0);
    pthread_mutex_unlock(&c->lock);
    (void)!write(c->wake, &one, sizeof one);
    if (!c->alone) pthread_join(c->thread, NULL);
    control_free(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's end of the control channel: a thread that beats, listens for the end of the run, and ends this process if
 * nobody else does.
 *
 * Whoever calls from another thread only queues a message and sends what the socket takes; answers come through the
 * thread. The run ends once, here as everywhere: by the coordinator's word, or because the coordinator is gone. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "comm/control_internal.h"
#include "comm/history.h"
#include "comm/socket.h"
#include "core/status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROMPT     0.1 /* seconds between two messages about progress, at least */
#define SLACK      5.0 /* seconds that the coordinator may be late with the end of a start that took too long */
#define LEAVE_TIME 1.0 /* seconds for the goodbye */
#define LAST_TIME  1.0 /* seconds to wait for the end of a run that has failed */
enum { WATCHED = 8, TRIES = 4, LAST_SAY = 1 }; /* LAST_SAY: seconds */

struct lc__control {
    lc__control_options options;
    char *address, *secret; /* of options */
    char local[64];         /* the address of this host that leads to the coordinator */
    int wake;
    pthread_t thread;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    lc__wire wire; /* closed once the run has ended */
    bool started, welcome, ready, ended, over, closing;
    pid_t parent;     /* the launcher */
    bool orphaned;    /* it is gone, and the coordinator knows */
    bool by_word;     /* it was the coordinator that ended the run */
    bool unexplained; /* it has been waited for the end in vain: the coordinator does not know of what is wrong */
    char message[LC__END_TEXT], refused[256], waiting[512];
    char doubt[LC__DOUBT_TEXT];                       /* why it is not the coordinator of this run that was reached */
    uint8_t asked[LC__NONCE], hello[LC__HELLO_BYTES]; /* the coordinator's number, and what this rank answered */
    bool greeted;
    char coordinator[LC__HOST_TEXT + 64]; /* what is gone when it is */
    double heard, beat, ended_at, closing_at;
    bool process_exit;
    lc_comm *watched[WATCHED];
    uint64_t reports, told; /* of progress; of which the coordinator knows */
    double called;          /* when the last calls were told */
    int64_t step;
    char where[128];
    uint64_t meeting; /* the number of the last one */
    void *gifts;      /* where those of the meeting that is on go */
    size_t gift_bytes;
    bool met;
};

/* ---- the end of the run; with the lock ---- */

static void end_run(lc__control *c, const char *text)
{
    if (c->ended) return;
    c->ended = true;
    c->ended_at = lc__seconds();
    snprintf(c->message, sizeof c->message, "%s", text);
    for (int i = 0; i < WATCHED; i++)
        if (c->watched[i]) lc_comm_abort(c->watched[i], c->message);
    pthread_cond_broadcast(&c->changed);
}

/* The run has ended: the error that says why. */
static lc_status fail_ended(const lc__control *c)
{
    lc_status s = lc_fail(LC_ERR_PEER, "%s", c->message);
    if (c->by_word && c->options.told) lc__note_told();
    return s;
}

/* The connection is over. Whether that ends the run depends on what was said before. */
static void disconnect(lc__control *c, const char *how)
{
    char text[LC__END_TEXT];
    lc__wire_release(&c->wire);
    if (!c->over && !c->closing && c->welcome) {
        snprintf(text, sizeof text, "%s is gone: %s", c->coordinator, how);
        end_run(c, text);
    }
    c->over = true;
    pthread_cond_broadcast(&c->changed);
}

/* The last calls on all that is watched. `answer`: they were asked for. */
static void tell_calls(lc__control *c, bool answer, double now)
{
    lc__standing s = {0};
    const struct lc__last_call *one = &s.under_way;
    char call[LC_COMM_CALL_TEXT] = "", last[LC__LAST_TEXT], text[LC__CALLS_TEXT];
    uint8_t head[LC__CALLS_HEAD];
    for (int i = 0; i < WATCHED; i++)
        if (c->watched[i]) lc__comm_standing(c->watched[i], &s);
    if (one->record.number) lc_comm_call_text(&one->record.call, call, sizeof call);
    lc__last_calls_text(&s.last, last, sizeof last);
    int n = snprintf(text, sizeof text, "%s\n%s\n%s", one->group, call, last);
    c->called = now;
    lc__put_u32(head, answer);
    lc__put_u32(head + 4, s.waits);
    lc__put_u64(head + 8, s.activity);
    lc__put_u64(head + 16, one->record.number);
    lc__put_u64(head + 24, one->record.collective);
    if (c->wire.fd >= 0) (void)lc__wire_put(&c->wire, LC__FRAME_CALLS, head, sizeof head, text, (size_t)n);
}

/* ---- what the coordinator says; with the lock ---- */

static void take_gifts(lc__control *c, const lc__frame *f)
{
    size_t all = c->gift_bytes * (size_t)c->options.size;
    if (!c->gifts || f->n < 8 || lc__get_u64(f->data) != c->meeting || f->n - 8 != all) return;
    if (all) memcpy(c->gifts, f->data + 8, all);
    c->met = true;
    pthread_cond_broadcast(&c->changed);
}

static void take_ready(lc__control *c, const lc__frame *f)
{
    char host[LC__HOST_TEXT] = "?";
    uint32_t rank = f->n >= 4 ? lc__get_u32(f->data) : UINT32_MAX;
    if (f->n > 4) lc__frame_text(f->data + 4, f->n - 4, host, sizeof host);
    if (rank < (uint32_t)c->options.size)
        snprintf(c->coordinator, sizeof c->coordinator, "rank %u (host %s), which coordinates the run,", rank, host);
    else
        snprintf(c->coordinator, sizeof c->coordinator, "the process that coordinates the run (host %s)", host);
    c->ready = true;
    pthread_cond_broadcast(&c->changed);
}

/* The first word is the coordinator's; this rank then says who it is, and proves it. */
static bool take_challenge(lc__control *c, const lc__frame *f)
{
    char host[LC__HOST_TEXT] = "";
    if (f->n != LC__CHALLENGE_BYTES || c->greeted) return false;
    c->greeted = true;
    memcpy(c->asked, f->data + 8, sizeof c->asked);
    gethostname(host, sizeof host - 1);
    return lc__control_answer(&c->options, LC__PROOF_RANK, host, f, c->hello, c->doubt) &&
           lc__wire_put(&c->wire, LC__FRAME_HELLO, c->hello, sizeof c->hello, NULL, 0);
}

/* From here on the other end is believed. */
static bool take_welcome(lc__control *c, const lc__frame *f)
{
    const char *secret = c->options.secret;
    const lc__proof_ask ask = lc__control_ask(LC__PROOF_COORDINATOR, c->asked, c->hello);
    if (!c->greeted || f->n != LC__PROOF || !lc__proof_is(secret, strlen(secret), &ask, f->data)) {
        snprintf(c->doubt, sizeof c->doubt, "it does not know the run's secret");
        return false;
    }
    c->welcome = true;
    pthread_cond_broadcast(&c->changed);
    c->wire.limit = (size_t)c->options.size * LC__MEETING_BYTES + 64;
    return true;
}

/* Of whoever has not proven to know the secret. False: a coordinator does not say that. */
static bool take_unproven(lc__control *c, const lc__frame *f)
{
    switch (f->kind) {
    case LC__FRAME_CHALLENGE:
        return take_challenge(c, f);
    case LC__FRAME_REFUSED:
        lc__frame_text(f->data, f->n, c->refused, sizeof c->refused);
        return true;
    case LC__FRAME_WELCOME:
        return take_welcome(c, f);
    default:
        return false;
    }
}

static void take(lc__control *c, const lc__frame *f)
{
    char text[LC__END_TEXT];
    switch (f->kind) {
    case LC__FRAME_WAITING:
        lc__frame_text(f->data, f->n, c->waiting, sizeof c->waiting);
        pthread_cond_broadcast(&c->changed);
        break;
    case LC__FRAME_READY:
        take_ready(c, f);
        break;
    case LC__FRAME_GATHERED:
        take_gifts(c, f);
        break;
    case LC__FRAME_ASK:
        tell_calls(c, true, lc__seconds());
        break;
    case LC__FRAME_END:
        lc__frame_text(f->data, f->n, text, sizeof text);
        end_run(c, text);
        c->by_word = c->over = true;
        break;
    case LC__FRAME_BYE: /* the others have gone on without it: so does this rank */
        c->over = true;
        break;
    default:
        break;
    }
}

static void listen_to(lc__control *c)
{
    lc__frame f;
    int got = 0;
    bool open = lc__wire_fill(&c->wire);
    c->heard = lc__seconds();
    while ((got = lc__wire_next(&c->wire, &f)) > 0) {
        if (c->welcome)
            take(c, &f);
        else if (!take_unproven(c, &f))
            got = -1;
        if (got < 0) break;
    }
    if (got < 0 && !c->welcome && !c->doubt[0]) snprintf(c->doubt, sizeof c->doubt, "what it sends is not understood");
    if (got < 0)
        disconnect(c, "what it sends is not understood");
    else if (!open || c->over)
        disconnect(c, "the connection is gone");
}

/* ---- the thread; with the lock ---- */

/* Whether there is progress to be told without waiting for the next heartbeat. */
static bool has_news(const lc__control *c, double now)
{
    return c->reports != c->told && (!c->told || now - c->beat >= PROMPT);
}

static void beat(lc__control *c, double now)
{
    uint8_t head[16];
    if (c->wire.fd < 0 || !c->welcome || c->closing) return;
    if (now - c->beat < c->options.times.heartbeat && !has_news(c, now)) return;
    c->beat = now;
    if (lc__wire_pending(&c->wire)) return; /* what waits says as much */
    c->told = c->reports;
    lc__put_u64(head, c->reports);
    lc__put_u64(head + 8, (uint64_t)c->step);
    (void)lc__wire_put(&c->wire, LC__FRAME_BEAT, head, sizeof head, c->where, strlen(c->where));
    if (now - c->called >= c->options.times.heartbeat) tell_calls(c, false, now);
}

static void flush(lc__control *c)
{
    if (c->wire.fd < 0) return;
    if (!lc__wire_flush(&c->wire))
        disconnect(c, "the connection is gone");
    else if (c->closing && !lc__wire_pending(&c->wire))
        (void)shutdown(c->wire.fd, SHUT_WR); /* the coordinator answers by closing its end */
}

/* Queues a message and sends what can be sent at once, so that it is under way even if this process ends now. With the
 * lock. False: no memory. */
static bool tell(lc__control *c, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data, size_t n)
{
    uint64_t one = 1;
    if (c->wire.fd < 0) return true;
    if (!lc__wire_put(&c->wire, kind, head, head_bytes, data, n)) return false;
    (void)lc__wire_flush(&c->wire); /* the thread sees what goes wrong */
    (void)!write(c->wake, &one, sizeof one);
    return true;
}

/* A launcher that was killed can end nobody. */
static void miss_launcher(lc__control *c)
{
    char why[128];
    bool may = c->options.launcher && c->welcome && !c->closing && !c->ended && !c->orphaned;
    if (!may || getppid() == c->parent) return;
    c->orphaned = true;
    snprintf(why, sizeof why, "the process that started it (%s) is gone", c->options.launcher);
    (void)tell(c, LC__FRAME_FAIL, NULL, 0, why, strlen(why));
}

/* It may never come back: whoever is told may be a terminal that is stopped, or a pipe that nobody reads. */
static void *say_end(void *arg)
{
    const lc__control *c = arg;
    c->options.say(c->options.ctx, c->message); /* which does not change any more */
    return NULL;
}

/* The lock is free meanwhile, for who still waits for the end. */
static void end_process(lc__control *c)
{
    pthread_t thread;
    pthread_mutex_unlock(&c->lock);
    if (c->options.say && lc__control_thread(&thread, say_end, c) == 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LAST_SAY;
        (void)pthread_timedjoin_np(thread, NULL, &until);
    }
    _exit(1);
}

static void judge(lc__control *c, double now)
{
    miss_launcher(c);
    char how[128];
    const lc__control_times *t = &c->options.times;
    if (c->wire.fd >= 0 && c->welcome && !c->closing && now - c->heard > t->silence) {
        snprintf(how, sizeof how,
                 "nothing was heard from it for %.3g s: it is stopped, or its host or the network is gone",
                 now - c->heard);
        disconnect(c, how);
    }
    if (c->ended && c->process_exit && !c->closing && now - c->ended_at > t->grace) end_process(c);
}

static void *serve(void *arg)
{
    lc__control *c = arg;
    const lc__control_times *t = &c->options.times;
    double tick = t->heartbeat < t->silence / 4 ? t->heartbeat : t->silence / 4;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        double now = lc__seconds();
        uint64_t rung;
        beat(c, now);
        flush(c);
        if (c->closing && (c->wire.fd < 0 || now - c->closing_at > LEAVE_TIME)) break;
        struct pollfd p[2] = {
            {.fd = c->wake, .events = POLLIN},
            {.fd = c->wire.fd, .events = (short)(POLLIN | (lc__wire_pending(&c->wire) ? POLLOUT : 0))}};
        double due = c->beat + (c->reports == c->told ? t->heartbeat : PROMPT) - now;
        double wait = due > 0 && due < tick ? due : tick;
        pthread_mutex_unlock(&c->lock);
        int some = poll(p, 2, (int)(wait * 1000) + 1);
        pthread_mutex_lock(&c->lock);
        if (some > 0 && p[0].revents) (void)!read(c->wake, &rung, sizeof rung);
        if (some > 0 && p[1].revents & ~POLLOUT && c->wire.fd >= 0) listen_to(c);
        double woken = lc__seconds(), slept = woken - now - wait;
        if (slept > t->silence / 2) /* this process was stopped, and the coordinator with it, perhaps */
            c->heard = c->heard + slept < woken ? c->heard + slept : woken;
        judge(c, woken);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- beginning ---- */

static void control_free(lc__control *c)
{
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

static lc_status connect_to(lc__control *c, double until)
{
    const lc__control_options *o = &c->options;
    char who[32];
    int fd;
    snprintf(who, sizeof who, "rank %d", o->rank);
    LC_TRY(lc__control_reach(o, who, until, &fd));
    lc__wire_init(&c->wire, fd, LC__UNPROVEN_BYTES);
    lc__socket_local(fd, c->local, sizeof c->local);
    if (!lc__proof_reveals() || lc__socket_is_loopback(c->local)) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED, "rank %d would have to send the run's secret to %s, port %d, because %s",
                   o->rank, o->address, o->port, lc__proof_why_not());
}

/* Until something has changed or `until`; with the lock. */
static void await(lc__control *c, double until)
{
    struct timespec t = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
    pthread_cond_timedwait(&c->changed, &c->lock, &t);
}

/* With the lock. */
static lc_status await_all(lc__control *c, double until)
{
    const lc__control_options *o = &c->options;
    while (!c->ready && !c->ended && !c->over && lc__seconds() < until) {
        if (c->waiting[0]) {
            char text[1024], *more = c->waiting + strcspn(c->waiting, "\n");
            if (*more) *more++ = 0;
            snprintf(text, sizeof text, "waiting for %s at %s, port %d%s%s", c->waiting, o->address, o->port,
                     *more ? "; " : "", more);
            c->waiting[0] = 0;
            pthread_mutex_unlock(&c->lock);
            say(c, text);
            pthread_mutex_lock(&c->lock);
            continue;
        }
        await(c, until);
    }
    if (c->ended) return fail_ended(c);
    if (c->ready) return LC_OK;
    if (c->refused[0])
        return lc_fail(LC_ERR_CONFIG, "the process that coordinates the run at %s, port %d, refused rank %d: %s",
                       o->address, o->port, o->rank, c->refused);
    if (c->doubt[0])
        return lc_fail(LC_ERR_CONFIG, "whoever listens at %s, port %d, does not coordinate the run of rank %d: %s",
                       o->address, o->port, o->rank, c->doubt);
    if (c->over && !c->welcome)
        return lc_fail(LC_ERR_CONFIG,
                       "whoever listens at %s, port %d, hung up on rank %d without a word: it coordinates no run",
                       o->address, o->port, o->rank);
    return lc_fail(LC_ERR_PEER, "the process that coordinates the run at %s, port %d, did not start it within %.3g s",
                   o->address, o->port, o->times.start);
}

static lc_status begin(lc__control *c, const lc__control_options *o, double until)
{
    c->options = *o;
    c->options.times = lc__control_default_times(&o->times);
    c->address = strdup(o->address);
    c->secret = strdup(o->secret);
    c->options.address = c->address;
    c->options.secret = c->secret;
    if (!c->address || !c->secret) return lc_fail(LC_ERR_MEMORY, "out of memory: a rank's control channel");
    snprintf(c->coordinator, sizeof c->coordinator, "the process that coordinates the run");
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0) return lc_fail(LC_ERR_IO, "an event descriptor: %s", strerror(errno));
    LC_TRY(connect_to(c, until));
    c->heard = c->beat = lc__seconds();
    int code = lc__control_thread(&c->thread, serve, c);
    if (code) return lc_fail(LC_ERR_MEMORY, "a thread for the control channel: %s", strerror(code));
    c->started = true;
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
    pthread_condattr_t steady;
    lc__control *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &steady);
    pthread_condattr_destroy(&steady);
    c->wake = c->wire.fd = -1;
    c->step = -1;
    c->parent = getppid();
    return c;
}

/* Whether whom it reached was about to leave: the coordinator of the run's last trainer, where this rank is the first
 * to begin with the next one. The new one comes to the same place. */
static bool was_leaving(const lc__control *c, int tries)
{
    return c->started && c->over && !c->ended && !c->ready && !c->refused[0] && !c->doubt[0] &&
           (c->welcome || tries < TRIES);
}

lc_status lc__control_open(const lc__control_options *o, lc__control **out)
{
    double until = lc__seconds() + lc__control_default_times(&o->times).start;
    *out = NULL;
    if (o->size < 1 || o->rank < 0 || o->rank >= o->size)
        return lc_fail(LC_ERR_ARGUMENT, "there is no rank %d of %d", o->rank, o->size);
    LC_TRY(lc__control_check_secret(o->secret));
    for (int tries = 1;; tries++) {
        lc__control *c = control_new();
        if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: a rank's control channel");
        lc_status s = begin(c, o, until);
        pthread_mutex_lock(&c->lock);
        if (s >= 0) s = await_all(c, until + SLACK);
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

lc_status lc__control_all_gather(void *control, const void *mine, void *all, size_t bytes)
{
    lc__control *c = control;
    uint8_t number[8];
    lc_status s = LC_OK;
    if (bytes > LC__MEETING_BYTES)
        return lc_fail(LC_ERR_ARGUMENT, "a rank can tell at most %d bytes over the control channel, not %zu",
                       LC__MEETING_BYTES, bytes);
    pthread_mutex_lock(&c->lock);
    c->gifts = all;
    c->gift_bytes = bytes;
    c->met = false;
    lc__put_u64(number, ++c->meeting);
    if (!tell(c, LC__FRAME_GATHER, number, sizeof number, mine, bytes))
        s = lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for the control channel", bytes);
    while (s >= 0 && !c->met && !c->ended && !c->over) pthread_cond_wait(&c->changed, &c->lock);
    if (s >= 0 && !c->met)
        s = c->ended ? fail_ended(c) : lc_fail(LC_ERR_PEER, "the process that coordinates the run has left it");
    c->gifts = NULL;
    pthread_mutex_unlock(&c->lock);
    return s;
}

static void replace(lc__control *c, lc_comm *from, lc_comm *to)
{
    for (int i = 0; i < WATCHED; i++)
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
    bool news = c->reports == c->told; /* the thread has nothing to tell yet, and sleeps longer */
    c->reports++;
    c->step = step;
    snprintf(c->where, sizeof c->where, "%s", where ? where : "");
    pthread_mutex_unlock(&c->lock);
    if (news) (void)!write(c->wake, &one, sizeof one);
}

void lc__control_terms(lc__control *c, unsigned terms)
{
    uint8_t head[4];
    lc__put_u32(head, terms);
    pthread_mutex_lock(&c->lock);
    (void)tell(c, LC__FRAME_TERMS, head, sizeof head, NULL, 0);
    pthread_mutex_unlock(&c->lock);
}

/* Where this rank is goes first: the beat that would tell may be some time away. */
void lc__control_fail(lc__control *c, const char *why)
{
    pthread_mutex_lock(&c->lock);
    c->beat = c->called = 0;
    beat(c, lc__seconds());
    if (!c->ended) (void)tell(c, LC__FRAME_FAIL, NULL, 0, why, strnlen(why, LC__END_TEXT));
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

/* Others may have failed at the same time, and the run have ended of that: this rank's words are not lost then. */
void lc__control_fail_and_wait(lc__control *c, const char *why)
{
    lc__control_fail(c, why);
    pthread_mutex_lock(&c->lock);
    await_end(c, LAST_TIME);
    if (c->ended && c->by_word && strstr(c->message, why)) (void)!fail_ended(c);
    pthread_mutex_unlock(&c->lock);
}

void lc__control_last_words(const lc__control_options *o, const char *why)
{
    double until = lc__seconds() + LAST_TIME;
    lc__control *c = control_new();
    if (!c) return;
    lc_status s = begin(c, o, until);
    pthread_mutex_lock(&c->lock);
    while (s >= 0 && !c->welcome && !c->over && lc__seconds() < until) await(c, until);
    bool welcome = c->welcome;
    pthread_mutex_unlock(&c->lock);
    if (welcome) lc__control_fail_and_wait(c, why);
    end(c);
}

lc_status lc__control_explain(lc__control *c, double seconds, lc_status status)
{
    pthread_mutex_lock(&c->lock);
    await_end(c, seconds);
    if (c->ended) status = fail_ended(c);
    if (seconds > 0) c->unexplained = !c->ended; /* else nobody has waited */
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
    return lc__control_explain(c, LAST_TIME, status);
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

void lc__control_close(lc__control *c)
{
    if (!c) return;
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    (void)tell(c, LC__FRAME_BYE, NULL, 0, NULL, 0);
    c->closing = true;
    c->closing_at = lc__seconds();
    pthread_mutex_unlock(&c->lock);
    (void)!write(c->wake, &one, sizeof one);
    pthread_join(c->thread, NULL);
    control_free(c);
}

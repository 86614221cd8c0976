/* SPDX-License-Identifier: Apache-2.0 */
/* A thread in each rank that sends heartbeats, listens for the end of the run, and ends this process if nobody else
 * does.
 *
 * The run ends once, here as everywhere: by the coordinator's message, or because the coordinator is gone. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "base/c_locale.h"
#include "comm/control/rank.h"
#include "comm/control/times.h"
#include "comm/history.h"
#include "comm/net/socket.h"
#include "base/status.h"
#include "base/thread.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PROMPT 0.1 /* seconds between two messages about progress, at least */

/* ---- the end of the run; with the lock ---- */

static void end_run(lc__control *c, const char *text)
{
    if (c->ended) return;
    c->ended = true;
    c->ended_at = lc__seconds();
    snprintf(c->message, sizeof c->message, "%s", text);
    for (int i = 0; i < LC__WATCHED; i++)
        if (c->watched[i]) lc_comm_abort(c->watched[i], c->message);
    pthread_cond_broadcast(&c->changed);
}

lc_status lc__control_fail_ended(const lc__control *c)
{
    lc_status s = lc_fail(LC_ERR_PEER, "%s", c->message);
    if (c->by_word && c->options.supervisor_reports) lc__note_reported();
    return s;
}

/* The connection is over. Whether that ends the run depends on what was sent before. */
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

/* Reports how far this rank is in the calls of the communicator watched first, that of all ranks. */
static void send_reach(lc__control *c)
{
    uint8_t head[20];
    if (!c->watched[0] || c->wire.fd < 0) return;
    const lc__comm_reach r = lc__comm_reached(c->watched[0]);
    lc__put_u64(head, r.begun);
    lc__put_u64(head + 8, r.done);
    lc__put_u32(head + 16, (uint32_t)r.peer);
    (void)lc__wire_put(&c->wire, LC__FRAME_REACHED, head, sizeof head, NULL, 0);
}

void lc__control_send_calls(lc__control *c, bool answer, double now)
{
    lc__standing s = {0};
    const struct lc__last_call *one = &s.under_way;
    char call[LC_COMM_CALL_TEXT] = "", last[LC__LAST_TEXT], text[LC__CALLS_TEXT];
    uint8_t head[LC__CALLS_HEAD];
    for (int i = 0; i < LC__WATCHED; i++)
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
    send_reach(c);
}

/* ---- messages from the coordinator; with the lock ---- */

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
        snprintf(c->coordinator, sizeof c->coordinator, "the coordinator of the run (host %s)", host);
    c->ready = true;
    pthread_cond_broadcast(&c->changed);
}

/* The coordinator sends the first message; this rank then says which rank it is, and proves it. */
static bool take_challenge(lc__control *c, const lc__frame *f)
{
    if (f->n != LC__CHALLENGE_BYTES || c->greeted) return false;
    c->greeted = true;
    memcpy(c->asked, f->data + 8, sizeof c->asked);
    return lc__control_answer(&c->options, LC__PROOF_RANK, 1, f, c->hello, c->doubt) &&
           lc__wire_put(&c->wire, LC__FRAME_HELLO, c->hello, sizeof c->hello, NULL, 0);
}

/* From here on the other end is trusted. */
static bool take_welcome(lc__control *c, const lc__frame *f)
{
    const char *secret = c->options.secret;
    const lc__proof_ask ask = lc__control_ask(LC__PROOF_COORDINATOR, c->asked, c->hello);
    if (!c->greeted || f->n != LC__PROOF || !lc__proof_is(secret, strlen(secret), &ask, f->data)) {
        snprintf(c->doubt, sizeof c->doubt, "it does not know the secret of the run");
        return false;
    }
    if (lc__wire_seal(&c->wire, secret, strlen(secret), &ask, true) < 0) {
        snprintf(c->doubt, sizeof c->doubt, "this rank cannot seal its messages to it: %.150s", lc_error_message());
        return false;
    }
    c->welcome = true;
    pthread_cond_broadcast(&c->changed);
    c->wire.limit = (size_t)c->options.size * LC__MEETING_BYTES + 64;
    return true;
}

/* Reads a message of an end that has not proven that it knows the secret. False: a coordinator does not send it. */
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
        lc__frame_lines(f->data, f->n, c->waiting, sizeof c->waiting);
        pthread_cond_broadcast(&c->changed);
        break;
    case LC__FRAME_READY:
        take_ready(c, f);
        break;
    case LC__FRAME_GATHERED:
        take_gifts(c, f);
        break;
    case LC__FRAME_ASK:
        lc__control_send_calls(c, true, lc__seconds());
        break;
    case LC__FRAME_END:
        lc__frame_lines(f->data, f->n, text, sizeof text);
        end_run(c, *text ? text : "the run has ended without a reason");
        c->by_word = c->over = true;
        break;
    case LC__FRAME_BYE: /* the other ranks continue without a coordinator: so does this one */
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
    if (got < 0 && !c->welcome && !c->doubt[0]) snprintf(c->doubt, sizeof c->doubt, "it sent an invalid message");
    if (got < 0)
        disconnect(c, c->wire.tampered ? LC__TAMPERED : "it sent an invalid message");
    else if (!open || c->over)
        disconnect(c, "the connection is closed");
}

/* ---- the thread; with the lock ---- */

/* Whether there is progress to report without waiting for the next heartbeat. */
static bool has_news(const lc__control *c, double now)
{
    return c->reports != c->reports_sent && (!c->reports_sent || now - c->beat >= PROMPT);
}

void lc__control_beat(lc__control *c, double now)
{
    uint8_t head[20];
    if (c->wire.fd < 0 || !c->welcome || c->closing) return;
    if (now - c->beat < c->options.times.heartbeat && !has_news(c, now)) return;
    c->beat = now;
    if (lc__wire_pending(&c->wire)) return; /* the pending messages say as much */
    c->reports_sent = c->reports;
    lc__put_u64(head, c->reports);
    lc__put_u64(head + 8, (uint64_t)c->step);
    lc__put_u32(head + 16, c->in_run);
    (void)lc__wire_put(&c->wire, LC__FRAME_BEAT, head, sizeof head, c->where, strlen(c->where));
    if (now - c->called >= c->options.times.heartbeat) lc__control_send_calls(c, false, now);
}

static void flush(lc__control *c)
{
    if (c->wire.fd < 0) return;
    if (!lc__wire_flush(&c->wire))
        disconnect(c, "the connection is closed");
    else if (c->closing && !lc__wire_pending(&c->wire))
        (void)shutdown(c->wire.fd, SHUT_WR); /* the coordinator answers by closing its end */
}

bool lc__control_send(lc__control *c, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data,
                      size_t n)
{
    uint64_t one = 1;
    if (c->wire.fd < 0) return true;
    if (!lc__wire_put(&c->wire, kind, head, head_bytes, data, n)) return false;
    (void)lc__wire_flush(&c->wire); /* the thread notices errors */
    (void)!write(c->wake, &one, sizeof one);
    return true;
}

/* Reports that the launcher is gone: if it was killed, it could not end its ranks. */
static void miss_launcher(lc__control *c)
{
    uint8_t head[8] = {0};
    char why[128];
    bool may = c->options.launcher && c->welcome && !c->closing && !c->ended && !c->orphaned;
    if (!may || getppid() == c->parent) return;
    c->orphaned = true;
    lc__put_u32(head + 4, UINT32_MAX);
    snprintf(why, sizeof why, LC__ORPHANED " (%s) has exited", c->options.launcher);
    (void)lc__control_send(c, LC__FRAME_FAIL, head, sizeof head, why, strlen(why));
}

/* It may never return: the output may be a stopped terminal, or a pipe that nobody reads. */
static void *say_end(void *arg)
{
    const lc__control *c = arg;
    c->options.say(c->options.ctx, c->message); /* which does not change anymore */
    return NULL;
}

/* Releases the lock for threads that still wait for the end. */
static void end_process(lc__control *c)
{
    pthread_t thread;
    pthread_mutex_unlock(&c->lock);
    if (c->options.say && lc__thread_create(&thread, say_end, c) == 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LC__PRINTED_MS / 1000;
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
        lc__snprintf(how, sizeof how,
                     "no heartbeat from it for %.3g s: it is stopped, or its host or the network is down",
                     now - c->heard);
        disconnect(c, how);
    }
    if (c->ended && c->process_exit && !c->closing && now - c->ended_at > t->grace) end_process(c);
}

void *lc__control_serve(void *arg)
{
    lc__control *c = arg;
    const lc__control_times *t = &c->options.times;
    double tick = t->heartbeat < t->silence / 4 ? t->heartbeat : t->silence / 4;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        double now = lc__seconds();
        uint64_t rung;
        lc__control_beat(c, now);
        flush(c);
        if (c->closing && (c->wire.fd < 0 || now - c->closing_at > LC__SECONDS(LC__GOODBYE_MS))) break;
        struct pollfd p[2] = {
            {.fd = c->wake, .events = POLLIN},
            {.fd = c->wire.fd, .events = (short)(POLLIN | (lc__wire_pending(&c->wire) ? POLLOUT : 0))}};
        double due = c->beat + (c->reports == c->reports_sent ? t->heartbeat : PROMPT) - now;
        double wait = due > 0 && due < tick ? due : tick;
        pthread_mutex_unlock(&c->lock);
        int some = poll(p, 2, (int)(wait * 1000) + 1);
        pthread_mutex_lock(&c->lock);
        if (some > 0 && p[0].revents) (void)!read(c->wake, &rung, sizeof rung);
        if (some > 0 && p[1].revents & ~POLLOUT && c->wire.fd >= 0) listen_to(c);
        double woken = lc__seconds(), slept = woken - now - wait;
        if (slept > t->silence / 2) /* this process was stopped, and perhaps the coordinator with it */
            c->heard = c->heard + slept < woken ? c->heard + slept : woken;
        judge(c, woken);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

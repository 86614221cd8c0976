/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher on another host than the coordinator's. When a rank is killed, the coordinator only sees that its
 * connection is gone; the launcher knows the cause and reports it here. It has a connection of its own, from before it
 * starts the ranks until after their end: as long as it is open, no other launcher can start or end these ranks. */
#include "comm/control/control_internal.h"
#include "comm/control/times.h"
#include "comm/net/socket.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lc__watch {
    lc__wire wire;
    char local[64], refused[256], doubt[LC__DOUBT_TEXT];
    uint8_t asked[LC__NONCE], hello[LC__HELLO_BYTES];
    bool greeted, welcome;
};

static bool take_challenge(lc__watch *w, const lc__control_args *o, int count, const lc__frame *f)
{
    snprintf(w->doubt, sizeof w->doubt, "it sent an invalid message");
    if (f->kind != LC__FRAME_CHALLENGE || f->n != LC__CHALLENGE_BYTES) return false;
    w->doubt[0] = 0;
    w->greeted = true;
    memcpy(w->asked, f->data + 8, sizeof w->asked);
    return lc__control_answer(o, LC__PROOF_WATCHER, count, f, w->hello, w->doubt) &&
           lc__wire_put(&w->wire, LC__FRAME_WATCH, w->hello, sizeof w->hello, NULL, 0) && lc__wire_flush(&w->wire);
}

static bool take_answer(lc__watch *w, const lc__control_args *o, const lc__frame *f)
{
    const lc__proof_ask ask = lc__control_ask(LC__PROOF_COORDINATOR, w->asked, w->hello);
    if (f->kind == LC__FRAME_REFUSED) {
        lc__frame_text(f->data, f->n, w->refused, sizeof w->refused);
        return false;
    }
    w->welcome =
        f->kind == LC__FRAME_WELCOME && f->n == LC__PROOF && lc__proof_is(o->secret, strlen(o->secret), &ask, f->data);
    if (!w->welcome) snprintf(w->doubt, sizeof w->doubt, "it does not know the secret of the run");
    if (w->welcome && lc__wire_seal(&w->wire, o->secret, strlen(o->secret), &ask, true) < 0) {
        snprintf(w->doubt, sizeof w->doubt, "messages to it cannot be sealed: %.150s", lc_error_message());
        w->welcome = false;
    }
    return w->welcome;
}

/* Returns when the coordinator has accepted or refused; or neither, if it was about to leave. */
static void introduce(lc__watch *w, const lc__control_args *o, int count, double until)
{
    struct pollfd p = {.fd = w->wire.fd, .events = POLLIN};
    bool open = true;
    for (double now; open && !w->welcome && (now = lc__seconds()) < until;) {
        lc__frame f;
        int got = 0;
        (void)poll(&p, 1, (int)((until - now) * 1000) + 1);
        open = lc__wire_fill(&w->wire);
        while (!w->welcome && (got = lc__wire_next(&w->wire, &f)) > 0)
            if (!(w->greeted ? take_answer(w, o, &f) : take_challenge(w, o, count, &f))) return;
        if (got < 0) snprintf(w->doubt, sizeof w->doubt, "it sent an invalid message");
        if (got < 0) return;
    }
}

static lc_status try_to_open(lc__watch *w, const lc__control_args *o, const char *who, int count, double until)
{
    int fd;
    LC_TRY(lc__control_reach(o, who, until, until, &fd));
    lc__wire_init(&w->wire, fd, LC__UNPROVEN_BYTES);
    lc__socket_local(fd, w->local, sizeof w->local);
    if (lc__proof_reveals() && !lc__socket_is_loopback(w->local))
        return lc_fail(LC_ERR_UNSUPPORTED, "%s would have to send the run's secret to %s:%d, because %s", who,
                       o->address, o->port, lc__proof_why_not());
    introduce(w, o, count, until);
    if (w->refused[0])
        return lc_fail(LC_ERR_CONFIG, "the coordinator of the run at %s:%d refused %s: %s", o->address, o->port, who,
                       w->refused);
    if (w->doubt[0])
        return lc_fail(LC_ERR_CONFIG, "the process listening at %s:%d does not coordinate the run of %s: %s",
                       o->address, o->port, who, w->doubt);
    return LC_OK;
}

lc_status lc__watch_open(const lc__control_args *o, const char *who, int count, lc__watch **out)
{
    double until = lc__seconds() + lc__control_default_times(&o->times).start;
    *out = NULL;
    LC_TRY(lc__control_check_secret(o->secret));
    for (;;) {
        lc__watch *w = calloc(1, sizeof *w);
        if (!w) return lc_fail(LC_ERR_MEMORY, "out of memory: a launcher's connection to the run");
        w->wire.fd = -1;
        lc_status s = try_to_open(w, o, who, count, until);
        if (s >= 0 && w->welcome) {
            *out = w;
            return LC_OK;
        }
        lc__watch_close(w);
        if (s < 0) return s;
        lc__control_nap(LC__RETRY); /* the coordinator of an earlier run was leaving */
    }
}

void lc__watch_report(lc__watch *w, int rank, const char *how)
{
    uint8_t head[4];
    lc__put_u32(head, (uint32_t)rank);
    if (lc__wire_put(&w->wire, LC__FRAME_ENDED, head, sizeof head, how, strnlen(how, LC__END_TEXT)))
        (void)lc__wire_flush(&w->wire); /* it fits into the socket's buffer */
}

void lc__watch_close(lc__watch *w)
{
    if (!w) return;
    lc__wire_release(&w->wire);
    free(w);
}

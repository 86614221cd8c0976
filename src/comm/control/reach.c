/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching the coordinator: connects until it is there and has sent the first message. A listener at its port that
 * never speaks is usually another program, which is reported while this one waits. */
#include "comm/control/control_internal.h"
#include "comm/control/times.h"
#include "comm/net/socket.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void lc__control_nap(double seconds)
{
    struct timespec t = {0, (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* Prints at intervals; by then this thread's error says what is wrong. */
static void report(const lc__control_args *o, const char *who, double *word)
{
    char text[512];
    double now = lc__seconds();
    if (now < *word) return;
    *word = now + LC__SECONDS(LC__NEXT_WORD_MS);
    snprintf(text, sizeof text, "%s waits for the coordinator of the run: %s", who, lc_error_message());
    if (o->say) o->say(o->ctx, text);
}

/* Waits for the first message, or the end of the connection. */
static lc_status await_word(const lc__control_args *o, const char *who, int fd, double until, double *word)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (double now; (now = lc__seconds()) < until;) {
        double next = *word > now && *word < until ? *word : until;
        if (poll(&p, 1, (int)((next - now) * 1000) + 1) > 0) return LC_OK;
        (void)!lc_fail(LC_ERR_IO, "%s:%d accepts connections but does not answer", o->address, o->port);
        report(o, who, word);
    }
    return lc_fail(LC_ERR_IO, "%s:%d accepted the connection but did not answer", o->address, o->port);
}

lc_status lc__control_reach(const lc__control_args *o, const char *who, double until, double answered, int *out)
{
    double start = lc__control_default_times(&o->times).start, word = lc__seconds() + LC__SECONDS(LC__FIRST_WORD_MS);
    double pause = LC__RETRY / 50;
    int fd = -1;
    lc_status s;
    while ((s = lc__socket_connect(o->address, o->port, until, &fd)) < 0 && lc__seconds() + LC__RETRY < until) {
        report(o, who, &word);
        lc__control_nap(pause); /* short at first: it is usually there within milliseconds */
        pause = pause * 2 < LC__RETRY ? pause * 2 : LC__RETRY;
    }
    if (s >= 0) s = await_word(o, who, fd, answered, &word);
    *out = fd;
    if (s >= 0) return LC_OK;
    if (fd >= 0) close(fd);
    return lc_fail_context(s, "%s did not reach the coordinator of the run within %.3g s", who, start);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Of a rank whose process is killed the coordinator sees that its connection is gone. Who has started it knows more,
 * and where that is another host than the coordinator's, says it here: on a connection of its own, with one message. */
#include "comm/control_internal.h"
#include "comm/socket.h"

void lc__control_rank_ended(const lc__control_options *o, const char *how)
{
    double until = lc__seconds() + LC__OBITUARY;
    uint8_t hello[LC__HELLO_BYTES];
    char here[64], doubt[LC__DOUBT_TEXT];
    lc__wire w;
    lc__frame f;
    int fd;
    if (lc__socket_connect(o->address, o->port, until, &fd) < 0) return;
    lc__wire_init(&w, fd, LC__UNPROVEN_BYTES);
    lc__socket_local(fd, here, sizeof here);
    bool safe = !lc__proof_reveals() || lc__socket_is_loopback(here);
    if (safe && lc__control_first_word(&w, until, &f) > 0 &&
        lc__control_answer(o, LC__PROOF_WATCHER, how, &f, hello, doubt) &&
        lc__wire_put(&w, LC__FRAME_ENDED, hello, sizeof hello, NULL, 0))
        (void)lc__wire_flush(&w); /* it fits into the socket's buffer */
    lc__wire_release(&w);
}

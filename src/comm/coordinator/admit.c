/* SPDX-License-Identifier: Apache-2.0 */
/* How connections are admitted: each is unproven until it has proven that it knows the secret (proof.h). Until then it
 * may send one small message within a few seconds, and learns nothing except a random number. However many there are,
 * they do not delay a rank that can prove itself at once (guests.h). */
#include "comm/coordinator/coordinator_internal.h"
#include "comm/net/socket.h"
#include "base/descriptors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void all_are_here(lc__coordinator *c, double now)
{
    char here[LC__HOST_TEXT] = "";
    uint8_t head[4];
    uint32_t hosting = UINT32_MAX;
    for (int i = 0; i < c->size; i++)
        if (!c->members[i].waiting) return;
    gethostname(here, sizeof here - 1);
    for (int i = 0; i < c->size; i++) {
        lc__member *m = &c->members[i];
        m->reported = now;
        m->waiting = false;
        if (m->process == (uint64_t)getpid() && !strcmp(m->host, here) && hosting == UINT32_MAX) hosting = (uint32_t)i;
    }
    lc__put_u32(head, hosting);
    c->gathering = false;
    for (int i = 0; i < c->size; i++)
        lc__member_send(&c->members[i], LC__FRAME_READY, head, sizeof head, here, strlen(here));
}

/* Notifies waiting ranks at once: the rejected process may be one they wait for, started with a mistake. `ends`: it has
 * proven to be one, so they would wait in vain, and the run ends. */
static void refuse(lc__coordinator *c, lc__wire *w, const lc__frame *hello, double now, bool ends, const char *why)
{
    char sender[LC__SENDER_TEXT];
    /* It fits into the socket's buffer. */
    if (lc__wire_put(w, LC__FRAME_REFUSED, NULL, 0, why, strlen(why))) (void)lc__wire_flush(w);
    (void)shutdown(w->fd, SHUT_WR);
    if (!c->gathering) return;
    lc__control_sender(hello->data, sender);
    sender[strcspn(sender, ",")] = 0;
    if (!c->refused[0]) c->word = now;
    snprintf(c->refused, sizeof c->refused, "a %s %u (%.63s) was rejected: %.139s",
             hello->kind == LC__FRAME_WATCH ? "launcher of rank" : "rank", lc__get_u32(hello->data + 4), sender, why);
    if (!ends || c->ending) return;
    snprintf(c->message, sizeof c->message, "%s", c->refused);
    lc__verdict_end(c);
}

void lc__admit_gather(lc__coordinator *c, double now)
{
    c->gathering = true;
    c->stopped = 0;
    c->refused[0] = 0;
    c->started = now;
    c->word = now + LC__SECONDS(LC__FIRST_WORD_MS);
}

/* Whether the others would wait for it in vain: it has not joined, and no other launcher starts it. */
static bool is_missed(const lc__coordinator *c, uint32_t rank, uint64_t identity)
{
    char unused[8];
    return rank < (uint32_t)c->size && !c->members[rank].process &&
           !lc__launcher_forbids(c, (int)rank, identity, unused, sizeof unused);
}

/* Why the hello does not fit the run; NULL: it does. */
static const char *misfit(const lc__coordinator *c, const uint8_t *hello, char *text, size_t size)
{
    uint32_t rank = lc__get_u32(hello + 4), ranks = lc__get_u32(hello + 8);
    if (lc__get_u32(hello) != LC__CONTROL_VERSION) return "the run is coordinated by a different version of lightc";
    if (ranks == (uint32_t)c->size && rank < ranks) return NULL;
    snprintf(text, size, "the run has %d ranks, but this is rank %u of %u; start all ranks with the same numbers",
             c->size, rank, ranks);
    return text;
}

static void become_member(lc__coordinator *c, lc__member *m, const lc__wire *w, const uint8_t *hello, double now)
{
    free(m->gift);
    *m = (lc__member){.state = m->state == LC__LOST ? LC__LOST
                                                    : LC__HERE, /* an ended run has lost ranks that join too late */
                      .waiting = true,
                      .wire = *w,
                      .process = lc__get_u64(hello + 16),
                      .identity = lc__get_u64(hello + 24),
                      .heard = now,
                      .peer = -1,
                      .step = -1};
    m->wire.limit = LC__MEETING_BYTES + 64;
    lc__frame_text(hello + LC__HELLO_TEXT, LC__HOST_TEXT, m->host, sizeof m->host);
    if (!c->gathering) lc__admit_gather(c, now);
}

/* Sends the coordinator's proof, after which messages are sealed. */
static bool welcome(const lc__coordinator *c, lc__wire *w, const lc__proof_ask *ask)
{
    uint8_t mine[LC__PROOF];
    size_t n = strlen(c->secret);
    return lc__proof_make(c->secret, n, ask, mine) >= 0 &&
           lc__wire_put(w, LC__FRAME_WELCOME, NULL, 0, mine, sizeof mine) &&
           lc__wire_seal(w, c->secret, n, ask, false) >= 0;
}

/* Whether the connection now belongs to a member or a launcher. */
static bool admit(lc__coordinator *c, lc__unproven *s, const lc__frame *f, double now)
{
    char text[512];
    const char *why;
    lc__wire *w = &s->wire;
    bool launches = f->kind == LC__FRAME_WATCH;
    if ((f->kind != LC__FRAME_HELLO && !launches) || f->n != LC__HELLO_BYTES) return false;
    if (!lc__get_u64(f->data + 16)) return false; /* a member's process is 0 until it joins */
    const lc__proof_ask its = lc__control_ask(launches ? LC__PROOF_WATCHER : LC__PROOF_RANK, s->asked, f->data),
                        ours = lc__control_ask(LC__PROOF_COORDINATOR, s->asked, f->data);
    if (!lc__proof_is(c->secret, strlen(c->secret), &its, f->data + LC__HELLO_HEAD + LC__NONCE)) {
        refuse(
            c, w, f, now, false,
            "it has the secret of another run (LIGHTC_SECRET, or without it MASTER_ADDR and MASTER_PORT, must be the "
            "same for all ranks)");
        return false;
    }
    uint32_t rank = lc__get_u32(f->data + 4);
    uint64_t identity = lc__get_u64(f->data + 24);
    if ((why = misfit(c, f->data, text, sizeof text)) != NULL) {
        refuse(c, w, f, now, is_missed(c, rank, identity), why);
        return false;
    }
    if (launches) {
        if (!lc__launcher_add(c, w, f->data, text, sizeof text)) {
            refuse(c, w, f, now, false, text);
            return false;
        }
        lc__wire *taken = &c->launchers[c->n_launchers - 1].wire;
        if (!welcome(c, taken, &ours)) lc__wire_release(taken);
        return true;
    }
    lc__member *m = &c->members[rank];
    if (m->process && (m->state != LC__LEFT || m->identity != identity)) {
        snprintf(text, sizeof text, "rank %u has already joined (host %s, process %llu)", rank, m->host,
                 (unsigned long long)m->process);
        refuse(c, w, f, now, false, text);
        return false;
    }
    if (lc__launcher_forbids(c, (int)rank, identity, text, sizeof text)) {
        refuse(c, w, f, now, false, text);
        return false;
    }
    become_member(c, m, w, f->data, now);
    if (!welcome(c, &m->wire, &ours)) (void)shutdown(m->wire.fd, SHUT_RDWR);
    if (c->ended)
        lc__member_send_text(m, LC__FRAME_END, c->message);
    else if (!c->ending)
        all_are_here(c, now);
    return true;
}

void lc__admit_serve(lc__coordinator *c, lc__unproven *s, double now)
{
    lc__frame f;
    bool open = lc__wire_fill(&s->wire);
    int got = lc__wire_next(&s->wire, &f);
    if (got > 0 && admit(c, s, &f, now))
        s->wire = (lc__wire){.fd = -1};
    else if (got || !open || now - s->guest.since > LC__GUEST_TIME)
        lc__wire_release(&s->wire);
}

/* False: the connection is closed. */
static bool challenge(lc__unproven *s)
{
    uint8_t head[8];
    lc__put_u32(head, LC__CONTROL_VERSION);
    lc__put_u32(head + 4, lc__proof_reveals());
    return lc__proof_nonce(s->asked) >= 0 &&
           lc__wire_put(&s->wire, LC__FRAME_CHALLENGE, head, sizeof head, s->asked, sizeof s->asked) &&
           lc__wire_flush(&s->wire); /* it fits into the socket's buffer */
}

/* An unaccepted connection is left pending and checked again later. */
static void note_full(lc__coordinator *c)
{
    c->full = true;
    snprintf(c->refused, sizeof c->refused,
             "the coordinator has no file descriptors left for them (ulimit -n is %lld; it needs "
             "one for each rank, and some more)",
             lc__descriptors_limit());
}

/* Makes room for the next connection. False: not yet. */
static bool put_one_out(lc__coordinator *c, double now)
{
    int i = lc__guest_to_leave(c->unproven, sizeof *c->unproven, c->n_unproven, now, &c->shut);
    if (i < 0) return false;
    lc__wire_release(&c->unproven[i].wire);
    c->unproven[i] = c->unproven[--c->n_unproven];
    return true;
}

void lc__admit_accept(lc__coordinator *c, double now)
{
    for (int i = 0; i < c->most_unproven; i++) { /* members must not wait for more */
        lc__guest guest;
        if (c->n_unproven == c->most_unproven && !put_one_out(c, now)) return;
        int fd = lc__guest_accept(c->listener, now, &guest);
        bool lacked = fd < 0 && lc__descriptors_lacked(errno);
        if (lacked && !c->n_unproven) note_full(c);
        if (lacked && c->n_unproven && put_one_out(c, now)) continue;
        if (fd < 0) return;
        lc__unproven *s = &c->unproven[c->n_unproven++];
        s->guest = guest;
        lc__wire_init(&s->wire, fd, LC__HELLO_BYTES);
        if (!challenge(s)) lc__wire_release(&s->wire);
    }
}

void lc__admit_forget(lc__coordinator *c, double now)
{
    int n = 0;
    for (int i = 0; i < c->n_unproven; i++) {
        if (now - c->unproven[i].guest.since > LC__GUEST_TIME) lc__wire_release(&c->unproven[i].wire);
        if (c->unproven[i].wire.fd >= 0) c->unproven[n++] = c->unproven[i];
    }
    c->n_unproven = n;
}

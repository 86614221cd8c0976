/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from members and to them. Every value is checked against its bounds; a member that sends what no rank sends
 * counts as lost. */
#include "comm/coordinator/coordinator_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void lc__member_send(lc__member *m, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data,
                     size_t n)
{
    if (m->wire.fd >= 0 && !lc__wire_put(&m->wire, kind, head, head_bytes, data, n))
        (void)shutdown(m->wire.fd, SHUT_RDWR);
}

void lc__member_send_text(lc__member *m, lc__frame_kind kind, const char *text)
{
    lc__member_send(m, kind, NULL, 0, text, strlen(text));
}

void lc__members_send(lc__coordinator *c, lc__frame_kind kind, const char *text)
{
    for (int i = 0; i < c->size; i++) lc__member_send_text(&c->members[i], kind, text);
}

void lc__member_lost(lc__member *m, double now)
{
    lc__wire_release(&m->wire);
    if (m->state != LC__HERE && m->state != LC__ABSENT) return;
    m->state = LC__LOST;
    m->since = now;
}

void lc__member_ended(lc__member *m, const char *how, double now)
{
    if (m->ended[0]) return;
    m->well = !how;
    snprintf(m->ended, sizeof m->ended, "%s", how ? how : "exited with status 0 while others wait for it");
    m->ended_at = now;
}

/* ---- messages from members ---- */

/* Ends the meeting if all have given their data. */
static void meet(lc__coordinator *c)
{
    lc__member *m = c->members;
    uint8_t number[8], *all;
    size_t bytes = m[0].gift_bytes;
    if (c->ending) return;
    for (int i = 0; i < c->size; i++)
        if (!m[i].gift_number || m[i].state != LC__HERE) return;
    for (int i = 1; i < c->size; i++)
        if (m[i].gift_bytes != bytes || m[i].gift_number != m[0].gift_number) {
            snprintf(c->message, sizeof c->message,
                     "ranks 0 and %d send different data (%zu and %zu bytes): they run different programs", i, bytes,
                     m[i].gift_bytes);
            lc__verdict_end(c);
            return;
        }
    all = malloc(bytes * (size_t)c->size + 1);
    if (!all) {
        snprintf(c->message, sizeof c->message, "the coordinator of the run is out of memory");
        lc__verdict_end(c);
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
        lc__member_send(&m[i], LC__FRAME_GATHERED, number, sizeof number, all, bytes * (size_t)c->size);
    free(all);
}

/* False: no rank sends that. */
static bool take_gift(lc__coordinator *c, lc__member *m, const lc__frame *f, double now)
{
    if (f->n < 8 || f->n - 8 > LC__MEETING_BYTES || m->gift_number || !lc__get_u64(f->data)) return false;
    m->gift = malloc(f->n - 8 + 1);
    if (!m->gift) return false;
    memcpy(m->gift, f->data + 8, f->n - 8);
    m->gift_bytes = f->n - 8;
    m->gift_number = lc__get_u64(f->data);
    m->given = now;
    meet(c);
    return true;
}

static bool take(lc__coordinator *c, lc__member *m, const lc__frame *f, double now)
{
    switch (f->kind) {
    case LC__FRAME_BEAT:
        if (f->n < 20) return false;
        if (lc__get_u64(f->data) != m->reports) {
            m->reports = lc__get_u64(f->data);
            m->step = (int64_t)lc__get_u64(f->data + 8);
            lc__stall_take_report(c, m, lc__get_u32(f->data + 16), now);
            lc__frame_text(f->data + 20, f->n - 20, m->where, sizeof m->where);
        }
        return true;
    case LC__FRAME_CALLS:
        if (f->n < LC__CALLS_HEAD) return false;
        lc__calls_take(m, f, now);
        return true;
    case LC__FRAME_REACHED:
        if (f->n < 20) return false;
        m->begun = lc__get_u64(f->data);
        m->done = lc__get_u64(f->data + 8);
        m->peer = (int32_t)lc__get_u32(f->data + 16);
        m->reached = now;
        return true;
    case LC__FRAME_LEAVE:
        m->leaving = now;
        return true;
    case LC__FRAME_TERMS:
        if (f->n < 4) return false;
        c->terms = (c->terms & ~(unsigned)LC__TRAINED) | lc__get_u32(f->data);
        return true;
    case LC__FRAME_GATHER:
        return take_gift(c, m, f, now);
    case LC__FRAME_FAIL:
        if (f->n < 8) return false;
        m->own_matter = lc__get_u32(f->data);
        m->error_of = (int32_t)lc__get_u32(f->data + 4);
        lc__frame_lines(f->data + 8, f->n - 8, m->cause, sizeof m->cause);
        if (m->state != LC__HERE) return true;
        m->state = LC__FAILED;
        m->since = now;
        return true;
    case LC__FRAME_BYE:
        if (m->state == LC__HERE && f->n >= 4) c->stopped = (int)lc__get_u32(f->data);
        if (m->state == LC__HERE) {
            m->state = LC__LEFT;
            c->left = now;
        }
        m->waiting = false;
        lc__wire_release(&m->wire);
        return true;
    default:
        return false;
    }
}

void lc__member_serve(lc__coordinator *c, lc__member *m, double now)
{
    lc__frame f;
    bool open = lc__wire_fill(&m->wire);
    int got;
    m->heard = now;
    while (m->wire.fd >= 0 && (got = lc__wire_next(&m->wire, &f)) != 0)
        if (got < 0 || !take(c, m, &f, now)) {
            open = false;
            snprintf(m->ended, sizeof m->ended, "%s", m->wire.tampered ? LC__TAMPERED : "it sent an invalid message");
            break;
        }
    if (m->wire.fd >= 0 && !open) lc__member_lost(m, now);
}

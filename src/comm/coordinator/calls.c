/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that ranks report with each heartbeat: to be printed when the run has ended, and to find errors that no
 * rank sees by itself.
 *
 * Two ranks whose collectives with the same number, on the same communicator, differ make different calls. Usually the
 * communicator finds that and reports it at once. But if each waits for the other to send (gathers to different roots,
 * a gather and a scatter), the communicator has nothing to compare.
 *
 * If every rank waits, in a call or in a meeting, and none has seen a byte move for long, they wait for each other: two
 * receives, say. A rank that computes does not wait, and a slow link still moves bytes; a cut link is noticed earlier
 * (tcp.c). */
#include "base/c_locale.h"
#include "comm/coordinator/coordinator_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS_OF_CALLS = 8, DOING_TEXT = 256 };

void lc__calls_take(lc__member *m, const lc__frame *f, double now)
{
    char text[LC__CALLS_TEXT], *call, *last;
    uint64_t activity = lc__get_u64(f->data + 8);
    struct lc__under_way u = {.number = lc__get_u64(f->data + 16), .collective = lc__get_u64(f->data + 24)};
    lc__frame_lines(f->data + LC__CALLS_HEAD, f->n - LC__CALLS_HEAD, text, sizeof text);
    call = text + strcspn(text, "\n");
    if (*call) *call++ = 0;
    last = call + strcspn(call, "\n");
    if (*last) *last++ = 0;
    snprintf(u.group, sizeof u.group, "%.31s", text);
    snprintf(u.text, sizeof u.text, "%.95s", call);
    snprintf(m->calls, sizeof m->calls, "%.639s", last);
    if (!m->called || activity != m->activity) {
        m->moved = now;
        if (!m->reports) m->reported = now; /* in programs without a trainer, that is progress */
    }
    if (u.number != m->under_way.number || strcmp(u.group, m->under_way.group) != 0) m->since_call = now;
    m->under_way = u;
    m->activity = activity;
    m->answered = lc__get_u32(f->data);
    m->in_call = lc__get_u32(f->data + 4);
    m->called = now;
}

/* ---- the last calls ---- */

/* How old the reported calls are, in the second step of the end. */
static void known_as(const lc__coordinator *c, const lc__member *m, char *text, size_t size)
{
    double since = m->state == LC__LOST ? m->since : c->asked;
    if (m->answered)
        snprintf(text, size, ":");
    else if (!m->calls[0])
        snprintf(text, size, ": unknown");
    else
        lc__snprintf(text, size, ", as reported %.1f s before the end:", since > m->called ? since - m->called : 0);
}

static bool same_calls(const lc__member *a, const lc__member *b)
{
    return a->answered == b->answered && !strcmp(a->calls, b->calls);
}

/* Whether ranks have failed by themselves, at the same point, with nothing under way: then calls explain nothing. */
static bool nobody_waits(const lc__coordinator *c)
{
    bool failed = false, waits = false;
    for (int i = 0; i < c->size; i++) {
        failed |= c->members[i].state == LC__FAILED;
        waits |= strchr(c->members[i].calls, '>') || strcmp(c->members[i].calls, c->members[0].calls) != 0;
    }
    return failed && !waits;
}

/* Whether the ranks that are to blame, or all, have failed for a reason that others have no part in: an option, a
 * file. */
static bool is_own_matter(const lc__coordinator *c)
{
    bool some = false;
    for (int i = 0; i < c->size; i++) some |= c->members[i].blamed;
    for (int i = 0; i < c->size; i++) {
        const lc__member *m = &c->members[i];
        if ((m->blamed || !some) && !(m->state == LC__FAILED && m->own_matter)) return false;
    }
    return true;
}

/* Groups ranks that did the same, so that differences are seen at once. */
void lc__calls_list(const lc__coordinator *c, lc__str *out)
{
    bool *shown = calloc((unsigned)c->size, sizeof *shown), *same = calloc((unsigned)c->size, sizeof *same);
    bool some = false;
    for (int i = 0; i < c->size; i++) some |= c->members[i].calls[0] != 0;
    some = some && !nobody_waits(c) && !is_own_matter(c);
    if (some) lc__str_add(out, "the last calls of each rank (> has not finished):\n");
    for (int i = 0, kinds = 0; i < c->size && some && shown && same; i++) {
        char who[256], known[64];
        int rest = 0;
        if (shown[i]) continue;
        if (kinds++ == KINDS_OF_CALLS) {
            for (int k = i; k < c->size; k++) rest += !shown[k];
            lc__str_add(out, "  and %d more ranks\n", rest);
            break;
        }
        for (int k = 0; k < c->size; k++)
            shown[k] |= same[k] = k >= i && !shown[k] && same_calls(&c->members[i], &c->members[k]);
        lc__verdict_list(c, same, who, sizeof who);
        known_as(c, &c->members[i], known, sizeof known);
        lc__str_add(out, "  %s%s\n%s", who, known, c->members[i].calls);
    }
    free(shown), free(same);
}

bool lc__calls_are_stuck(const lc__coordinator *c, double now)
{
    for (int i = 0; i < c->size; i++) {
        const lc__member *m = &c->members[i];
        if (m->state == LC__HERE && m->under_way.number && now - m->since_call > LC__SECONDS(LC__STUCK_MS)) return true;
    }
    return false;
}

/* ---- errors in them ---- */

/* "call 12, gather of 4 f32 to rank 0, in group 1.0" */
static void name_call(const struct lc__under_way *u, char *text, size_t size)
{
    snprintf(text, size, "call %llu, %s%s%s", (unsigned long long)u->number, u->text, *u->group ? ", in group " : "",
             u->group);
}

static bool collective_is_known(const lc__member *m, double now)
{
    return m->state == LC__HERE && m->under_way.collective && now - m->since_call > LC__SECONDS(LC__DIFFERENCE_MS);
}

static bool differ(const struct lc__under_way *a, const struct lc__under_way *b)
{
    return a->collective == b->collective && !strcmp(a->group, b->group) && strcmp(a->text, b->text) != 0;
}

static void find_difference(lc__coordinator *c, double now)
{
    const lc__member *m = c->members;
    for (int i = 0; i < c->size; i++)
        for (int k = i + 1; k < c->size && collective_is_known(&m[i], now); k++) {
            char one[DOING_TEXT], other[DOING_TEXT];
            if (!collective_is_known(&m[k], now) || !differ(&m[i].under_way, &m[k].under_way)) continue;
            name_call(&m[i].under_way, one, sizeof one);
            name_call(&m[k].under_way, other, sizeof other);
            snprintf(c->message, sizeof c->message,
                     "the ranks make different calls: rank %d (host %s) is in %s, and rank %d (host %s) in %s", i,
                     m[i].host, one, k, m[k].host, other);
            lc__verdict_end(c);
            return;
        }
}

/* Longer than it takes to notice a link that carries nothing. */
static double standstill(const lc__coordinator *c)
{
    return 2 * c->times.silence + 2;
}

/* How long the rank has waited with nothing moving; 0: it does not wait, or has not reported lately. Counted from when
 * a rank left: it may just have made the call that the others wait for, and they have not reported since. */
static double stands(const lc__coordinator *c, const lc__member *m, double now)
{
    if (m->gift_number) return now - fmax(m->given, c->left);
    return m->in_call && now - m->called < c->times.silence ? now - fmax(m->moved, c->left) : 0;
}

/* "rank 1 (host a) in call 3, recv of 4 f32 from rank 0" */
static void name_doing(const lc__coordinator *c, int rank, char *text, size_t size)
{
    const lc__member *m = &c->members[rank];
    char call[DOING_TEXT] = "a barrier of all ranks, at the start or the end";
    if (!m->gift_number) name_call(&m->under_way, call, sizeof call);
    snprintf(text, size, "rank %d (host %s) in %s", rank, m->host, call);
}

static void find_standstill(lc__coordinator *c, double now)
{
    const lc__member *m = c->members;
    int one = -1, other = -1;
    double least = 0;
    char first[DOING_TEXT + 100], second[DOING_TEXT + 100] = "no other rank remains";
    for (int i = 0; i < c->size; i++) {
        if (m[i].state == LC__LEFT) continue;
        double s = m[i].state == LC__HERE ? stands(c, &m[i], now) : 0;
        if (s <= standstill(c)) return;
        if (one < 0 || s < least) least = s;
        if (one < 0)
            one = i;
        else if (other < 0 || !strcmp(m[other].under_way.text, m[one].under_way.text))
            other = i; /* preferably one that does something else */
    }
    if (one < 0) return;
    name_doing(c, one, first, sizeof first);
    if (other >= 0) name_doing(c, other, second, sizeof second);
    lc__snprintf(c->message, sizeof c->message, "the ranks wait for each other without progress for %.3g s: %s, and %s",
                 least, first, second);
    lc__verdict_end(c);
}

void lc__calls_judge(lc__coordinator *c, double now)
{
    if (now - c->compared < c->times.heartbeat) return; /* nothing new is known yet */
    c->compared = now;
    find_difference(c, now);
    if (!c->ending) find_standstill(c, now);
}

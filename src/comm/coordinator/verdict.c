/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the run has ended, and why. If several things are wrong in a round, a rank that is gone takes precedence over
 * a rank that reports a failure: the failure is mostly about the rank that is gone.
 *
 * The end comes in two steps. First every rank is asked for its last calls, which takes a moment; then all are
 * notified, and those calls go to the coordinator's process. For a rank that does not answer it uses what came with the
 * heartbeats. */
#include "base/c_locale.h"
#include "comm/coordinator/coordinator_internal.h"
#include "comm/net/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 16 };

/* ---- names ---- */

void lc__verdict_list(const lc__coordinator *c, const bool *is, char *text, size_t size)
{
    int n = 0, all = 0;
    for (int i = 0; i < c->size; i++) all += is[i];
    int k = snprintf(text, size, all == 1 ? "rank" : "ranks");
    for (int i = 0; i < c->size && n < LISTED && (size_t)k + 40 < size; i++)
        if (is[i]) k += snprintf(text + k, size - (size_t)k, "%s %d", n++ ? "," : "", i);
    if (n < all) snprintf(text + k, size - (size_t)k, " and %d more", all - n);
}

void lc__verdict_absent(const lc__coordinator *c, char *text, size_t size)
{
    bool *absent = calloc((size_t)c->size, sizeof *absent);
    for (int i = 0; i < c->size && absent; i++) absent[i] = !c->members[i].waiting;
    snprintf(text, size, "some ranks"); /* if there is no memory for the list */
    if (absent) lc__verdict_list(c, absent, text, size);
    size_t n = strlen(text);
    snprintf(text + n, size - n, " of %d", c->size);
    free(absent);
}

/* ---- the end ---- */

void lc__verdict_end(lc__coordinator *c)
{
    c->ending = true;
    c->asked = lc__seconds();
    lc__members_send(c, LC__FRAME_ASK, "");
}

/* Whether a rank may still report its last calls. */
static bool awaits_answers(const lc__coordinator *c, double now)
{
    bool some = false;
    for (int i = 0; i < c->size; i++) some |= i != c->silent && c->members[i].wire.fd >= 0 && !c->members[i].answered;
    return some && now - c->asked < LC__SECONDS(LC__ANSWER_MS);
}

/* Rank 0's process prints it and may exit once notified, so rank 0 is notified last. */
static void pronounce(lc__coordinator *c)
{
    c->ended = true;
    for (int i = 0; i < c->size; i++) c->harmless = c->harmless && !strchr(c->members[i].calls, '>');
    lc__calls_list(c, &c->calls);
    for (int i = c->on_end ? 1 : 0; i < c->size; i++) lc__member_send_text(&c->members[i], LC__FRAME_END, c->message);
    c->unshown = c->on_end;
}

/* When a host is gone, the silence of one of its ranks is noticed first: the others are as silent. */
static void blame(lc__coordinator *c, int rank)
{
    double now = lc__seconds();
    for (int i = 0; i < c->size; i++) {
        lc__member *m = &c->members[i];
        m->blamed = i == rank || (c->silent == rank && m->state == LC__HERE && now - m->heard > c->times.silence / 2);
    }
}

void lc__verdict_place(const lc__coordinator *c, int rank, char *text, size_t size)
{
    const lc__member *m = &c->members[rank];
    char step[32] = "";
    if (m->step >= 0) snprintf(step, sizeof step, ", step %lld", (long long)m->step);
    if (m->host[0])
        snprintf(text, size, "rank %d (host %s)%s%s%s", rank, m->host, step, m->where[0] ? ", " : "", m->where);
    else
        snprintf(text, size, "rank %d", rank);
}

/* "rank 3 (host a), step 120, epoch 2, validation: cause" */
static void end_by_rank(lc__coordinator *c, int rank, const char *cause)
{
    char place[LC__PLACE_TEXT];
    lc__verdict_place(c, rank, place, sizeof place);
    blame(c, rank);
    snprintf(c->message, sizeof c->message, "%s: %s", place, cause);
    lc__verdict_end(c);
}

/* Ranks wait no longer for a stopped coordinator than it would for them; it finds them gone when it resumes. */
static void end_by_loss(lc__coordinator *c, int rank)
{
    const lc__member *m = &c->members[rank];
    const char *how = m->ended[0] ? m->ended : LC__GONE;
    char cause[512];
    c->harmless = m->well; /* unless a rank waits for it */
    bool gave_up = c->slept > 0 && m->since - c->woken < LC__SECONDS(LC__RESUMED_MS);
    if (gave_up) lc__snprintf(cause, sizeof cause, "%s; the coordinator was stopped for %.3g s", how, c->slept);
    end_by_rank(c, rank, gave_up ? cause : how);
}

static bool all_complain(const lc__coordinator *c)
{
    for (int i = 0; i < c->size; i++)
        if (c->members[i].state != LC__FAILED) return false;
    return true;
}

static bool is_of_another(const lc__coordinator *c, int rank)
{
    int of = c->members[rank].error_of;
    return of >= 0 && of < c->size && of != rank;
}

/* If all report the same, as for a file that no rank finds, no rank is to blame. A rank may report an error that
 * happened on another one, which reports it in its own words. */
static void end_by_complaint(lc__coordinator *c, int rank)
{
    const char *cause = c->members[rank].cause;
    if (is_of_another(c, rank)) {
        rank = c->members[rank].error_of;
        if (c->members[rank].state == LC__FAILED && !is_of_another(c, rank)) cause = c->members[rank].cause;
    }
    bool alike = c->size > 1 && all_complain(c);
    for (int i = 0; i < c->size && alike; i++) alike = !strcmp(c->members[i].cause, cause);
    if (!alike) {
        end_by_rank(c, rank, cause);
        return;
    }
    snprintf(c->message, sizeof c->message, "all %d ranks: %.1000s", c->size, cause);
    lc__verdict_end(c);
}

/* ---- deciding ---- */

/* The rank that has been in `state` longest, or -1. */
static int earliest(const lc__coordinator *c, lc__member_state state)
{
    int found = -1;
    for (int i = 0; i < c->size; i++)
        if (c->members[i].state == state && (found < 0 || c->members[i].since < c->members[found].since)) found = i;
    return found;
}

static bool meeting_is_on(const lc__coordinator *c)
{
    for (int i = 0; i < c->size; i++)
        if (c->members[i].gift_number && c->members[i].state == LC__HERE) return true;
    return false;
}

/* Ranks that wait for another one, in a call or to meet, make no progress either: one that waits for no other is the
 * cause. */
int lc__verdict_who_hangs(const lc__coordinator *c, double now, double seconds)
{
    int who = -1;
    for (int i = 0; i < c->size; i++) {
        const lc__member *m = &c->members[i];
        bool hangs = m->state == LC__HERE && !m->waiting && now - m->reported > seconds;
        bool waits = !m->called || strchr(m->calls, '>') || m->gift_number;
        if (hangs && !waits && (who < 0 || m->reported < c->members[who].reported)) who = i;
    }
    return who;
}

/* No rank is to blame if each waits for others: they make different calls, or one hangs while a call is under way. */
static void end_by_standstill(lc__coordinator *c, int rank, double now)
{
    int who = lc__verdict_who_hangs(c, now, lc__stall_limit(c, &c->members[rank]) / 2);
    char cause[64], place[LC__PLACE_TEXT];
    lc__snprintf(cause, sizeof cause, "no progress for %.3g s", now - c->members[who < 0 ? rank : who].reported);
    if (who >= 0) {
        end_by_rank(c, who, cause);
        return;
    }
    lc__verdict_place(c, rank, place, sizeof place);
    snprintf(
        c->message, sizeof c->message,
        "%s in %s: it waits for others, as do all ranks that make no progress; compare the last calls of each rank",
        cause, place);
    lc__verdict_end(c);
}

/* Among the ranks that have made their last call, the one with the fewest calls; -1: none. */
static int first_to_leave(const lc__coordinator *c)
{
    int first = -1;
    for (int i = 0; i < c->size; i++) {
        const lc__member *m = &c->members[i];
        if (m->state == LC__HERE && m->leaving > 0 && (first < 0 || m->done < c->members[first].done)) first = i;
    }
    return first;
}

/* The rank that a rank waits for in vain, if rank `first` was the first to leave; -1: none. A message from another rank
 * may still be in flight. */
static int misses(const lc__coordinator *c, const lc__member *m, int first)
{
    if (m->state != LC__HERE || m->leaving > 0) return -1;
    if (m->begun > m->done && m->begun > c->members[first].done) return first;
    if (m->peer < 0 || m->peer >= c->size) return -1;
    const lc__member *other = &c->members[m->peer];
    bool gone =
        other->state == LC__HERE && other->leaving > 0 && m->reached - other->leaving > LC__SECONDS(LC__IN_FLIGHT_MS);
    return gone ? m->peer : -1;
}

static void decide_about_calls(lc__coordinator *c)
{
    int first = first_to_leave(c);
    for (int i = 0; i < c->size && first >= 0 && !c->ending; i++) {
        char cause[64];
        int missed = misses(c, &c->members[i], first);
        if (missed < 0) continue;
        snprintf(cause, sizeof cause, "it has left the group while rank %d still waits for it", i);
        end_by_rank(c, missed, cause);
    }
}

static void decide_about(lc__coordinator *c, int rank, double now)
{
    lc__member *m = &c->members[rank];
    char cause[128];
    if ((m->state == LC__LEFT || m->waiting) && meeting_is_on(c)) {
        end_by_rank(c, rank, "it has left the run while others still wait for it");
        return;
    }
    if (m->state != LC__HERE) return;
    if (now - m->heard > c->times.silence) {
        snprintf(cause, sizeof cause,
                 "no heartbeat from it for %.3g s: its process is stopped, or its host or network is down",
                 now - m->heard);
        c->silent = rank;
        end_by_rank(c, rank, cause);
    } else if (!m->waiting && now - m->reported > lc__stall_limit(c, m)) {
        end_by_standstill(c, rank, now);
    }
}

/* Whether no rank has joined: perhaps the program does not use the others. */
static bool none_has_joined(const lc__coordinator *c)
{
    for (int i = 0; i < c->size; i++)
        if (c->members[i].process) return false;
    return true;
}

/* Ranks whose processes have ended are lost once their last messages, if any, have arrived. Returns whether some may
 * still arrive. */
static bool wait_for_ended(lc__coordinator *c, double now)
{
    for (int i = 0; i < c->size; i++) {
        lc__member *m = &c->members[i];
        if (!m->ended[0] || (m->state != LC__ABSENT && m->state != LC__HERE)) continue;
        if (m->well && none_has_joined(c)) continue;
        if (m->wire.fd >= 0 && now - m->ended_at < LC__SECONDS(LC__LAST_WORDS_MS)) return true;
        lc__member_lost(m, now);
    }
    return false;
}

/* If all ranks have stopped together, a rank that a launcher ends afterwards is not lost: its work was done. */
static void forget_stopped(lc__coordinator *c)
{
    for (int i = 0; i < c->size && c->stopped; i++)
        if (c->members[i].state == LC__LOST) c->members[i].state = LC__LEFT;
}

bool lc__verdict_decide(lc__coordinator *c, double now)
{
    if (c->ended) return false;
    if (c->ending) {
        bool soon = awaits_answers(c, now);
        if (!soon) pronounce(c);
        return soon;
    }
    if (wait_for_ended(c, now)) return true;
    forget_stopped(c);
    int rank = earliest(c, LC__LOST);
    if (rank >= 0) {
        const lc__member *m = &c->members[rank];
        bool watched = !c->on_end; /* if processes are watched, rank 0 hosts no coordinator */
        if (watched && !m->ended[0] && now - m->since < LC__SECONDS(LC__OBITUARY_MS)) return true;
        end_by_loss(c, rank);
        return true;
    }
    rank = earliest(c, LC__FAILED);
    if (rank >= 0) {
        if (now - c->members[rank].since < LC__SECONDS(LC__COMPLAINT_MS) && !all_complain(c)) return true;
        end_by_complaint(c, rank);
        return true;
    }
    for (int i = 0; i < c->size && !c->ending; i++) decide_about(c, i, now);
    if (!c->ending && !c->gathering) lc__stall_judge(c, now);
    if (!c->ending) decide_about_calls(c);
    if (!c->ending && !c->gathering) lc__calls_judge(c, now);
    if (!c->ending && c->gathering && now - c->started > c->times.start) {
        char who[256];
        lc__verdict_absent(c, who, sizeof who);
        lc__snprintf(c->message, sizeof c->message, "%s did not join within %.3g s%s%s", who, c->times.start,
                     c->refused[0] ? "; " : "", c->refused);
        lc__verdict_end(c);
    }
    return c->ending;
}

void lc__verdict_settle(lc__coordinator *c)
{
    forget_stopped(c);
    int lost = earliest(c, LC__LOST), failed = earliest(c, LC__FAILED);
    if (c->ended) return;
    if (!c->ending && lost >= 0)
        end_by_loss(c, lost);
    else if (!c->ending && failed >= 0)
        end_by_complaint(c, failed);
    if (c->ending) pronounce(c);
}

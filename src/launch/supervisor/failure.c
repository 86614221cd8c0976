/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a supervisor whose run has failed: which rank is to blame, what that rank has printed, and the calls
 * that ranks were in. */
#include "launch/supervisor/supervisor_internal.h"

#include "comm/net/socket.h"
#include "base/io.h"
#include "base/status.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum { SHOWN_LINES = 20 };

child *lc__child_of_rank(const supervisor *s, int rank)
{
    for (int i = 0; i < s->n; i++)
        if (s->children[i].place.rank == rank) return &s->children[i];
    return NULL;
}

static void show_output(const supervisor *s, int file, int rank)
{
    lc__str text = {0};
    bool more;
    char path[4200];
    if (file < 0) return;
    lc__output_tail(file, SHOWN_LINES, &text, &more);
    if (!text.n) goto done;
    snprintf(path, sizeof path, "%s/rank-%d.log", s->plan->root_dir, rank);
    if (!more)
        lc__show_line(2, "---- the output of rank %d", rank);
    else if (lc__make_dirs(&lc__io_system, s->plan->root_dir) == LC_OK && lc__output_save(file, path) == LC_OK)
        lc__show_line(2, "---- the last %d lines of rank %d (all of it is in %s)", SHOWN_LINES, rank, path);
    else
        lc__show_line(2, "---- the last %d lines of rank %d (the rest is lost: %s)", SHOWN_LINES, rank,
                      lc_error_message());
    lc__show(2, text.s, text.n);
    lc__show_line(2, "----");
done:
    lc__str_free(&text);
}

/* For a rank that mpirun has started. */
static void show_kept(const supervisor *s, int rank)
{
    if (rank >= 0 && rank < s->size) show_output(s, s->kept[rank], rank);
}

void lc__supervisor_show_calls(const supervisor *s, const char *why)
{
    char path[4200];
    if (!s->calls.n || s->calls.failed) return;
    lc__show(2, s->calls.s, s->calls.n);
    snprintf(path, sizeof path, "%s/failure.log", s->plan->root_dir);
    FILE *f = NULL;
    lc_status status = lc__make_dirs(&lc__io_system, s->plan->root_dir);
    if (status >= 0)
        status = lc__open_stream(path, *s->restarted ? O_APPEND : O_TRUNC, &f); /* appends the report of a later life */
    if (status < 0) {
        lc__show_line(2, "warning: %s", lc_error_message()); /* the calls are on the screen */
        return;
    }
    fprintf(f, "%serror: %s\n", s->calls.s, why);
    fclose(f);
}

/* Whether the rank joined the coordinator. */
static bool has_joined(const supervisor *s, const child *c)
{
    return s->coordinator && lc__coordinator_has_met(s->coordinator, c->place.rank);
}

/* The coordinator takes a moment to decide about the rank that ended last, and longer if its processors are busy; about
 * one that had said goodbye it reports nothing. */
static void await_verdict(const supervisor *s)
{
    int silent;
    for (double until = lc__seconds() + LC__SECONDS(LC__VERDICT_MS);
         lc__seconds() < until && !lc__coordinator_ended(s->coordinator, &silent);)
        nanosleep(&(struct timespec){.tv_nsec = LC__LOOK_MS * 1000000}, NULL);
    (void)lc__coordinator_failed(s->coordinator); /* waits if it has yet to decide */
}

/* The coordinator saw only that the rank was gone; its parent, mpirun or this process, knows how it ended. If this
 * process is late, the run has ended before it can say so. */
static void add_status(const supervisor *s, int rank, char *why, size_t size)
{
    const child *own = s->plan->hosts ? NULL : lc__child_of_rank(s, rank);
    bool knows =
        s->plan->hosts ? rank == s->blame.rank && s->blame.status >= 0 : own && !own->ended_here && own->status != 0;
    char *gone = strstr(why, LC__GONE), rest[512];
    if (!gone || !knows) return;
    snprintf(rest, sizeof rest, "%s", gone + strlen(LC__GONE));
    lc__process_status(own ? own->status : s->blame.status, gone, size - (size_t)(gone - why));
    size_t n = strlen(why);
    snprintf(why + n, size - n, "%s", rest);
}

/* Whether something else killed mpirun, and its ranks with it; these may have noticed it first, and ended the run. */
static bool lost_mpirun(const supervisor *s)
{
    const child *mpirun = &s->children[0];
    char why[1024] = LC__ORPHANED;
    if (!s->plan->hosts || !WIFSIGNALED(mpirun->status) || mpirun->ended_here || s->asked) return false;
    if (s->run_ended) lc__coordinator_message(s->coordinator, why, sizeof why);
    return strstr(why, LC__ORPHANED) != NULL;
}

/* If the rank had joined, the coordinator knows more than an exit status says: which rank was silent, or failed first,
 * and at which step. */
lc_status lc__supervisor_failure(supervisor *s)
{
    child *c = &s->children[s->culprit];
    char why[1024] = "", how[128];
    int rank = -1, colon = 0;
    if (lost_mpirun(s)) {
        lc__process_status(c->status, how, sizeof how);
        return lc_fail(LC_ERR_PEER, "mpirun was %s, and its ranks with it", how);
    }
    if (s->stopped_for > 0) {
        char who[320] = "mpirun";
        if (!s->plan->hosts)
            snprintf(who, sizeof who, "rank %d of %d (host %s)", c->place.rank, c->place.size, s->host);
        return lc_fail(LC_ERR_PEER, "%s: its process was stopped for %.3g s and then killed", who, s->stopped_for);
    }
    if (s->coordinator) await_verdict(s);
    if (s->coordinator) lc__coordinator_message(s->coordinator, why, sizeof why);
    if (s->coordinator) lc__coordinator_last_calls(s->coordinator, &s->calls);
    child *named = sscanf(why, "rank %d:%n", &rank, &colon) == 1 ? lc__child_of_rank(s, rank) : NULL;
    add_status(s, rank, why, sizeof why);
    bool unmet = !*why || (named && colon); /* nothing is known except its exit status */
    if (named) c = named;
    s->culprit = (int)(c - s->children);
    s->common = !unmet && !named;
    child *first = lc__child_of_rank(s, 0);
    bool alike = unmet && first && first->output < 0 && WIFEXITED(first->status) && first->status == c->status &&
                 !has_joined(s, first);
    if (alike) c = first;
    if (s->plan->hosts)
        show_kept(s, *why ? rank : s->blame.rank);
    else if (named || unmet) /* otherwise no single rank is at fault, and rank 0's output is on the screen */
        show_output(s, c->output, c->place.rank);
    if (!unmet) lc__supervisor_show_calls(s, why);
    lc__process_status(c->status, how, sizeof how);
    if (!unmet) return lc_fail(LC_ERR_PEER, "%s", why);
    if (s->plan->hosts && s->blame.status >= 0) {
        lc__process_status(s->blame.status, how, sizeof how);
        return lc_fail(LC_ERR_PEER, "rank %d of %d: %s", s->blame.rank, s->size, how);
    }
    const char *unknown = s->plan->unknown;
    if (s->plan->hosts && unknown)
        return lc_fail(LC_ERR_PEER, "mpirun %s; %.400s has no known address here: is the name right?", how, unknown);
    if (s->plan->hosts) return lc_fail(LC_ERR_PEER, "mpirun %s", how);
    if (named && c == named) snprintf(how, sizeof how, "%s", why + colon + 1); /* after the blank */
    return lc_fail(LC_ERR_PEER, "rank %d of %d (host %s): %s", c->place.rank, c->place.size, s->host, how);
}

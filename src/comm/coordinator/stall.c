/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are alive and make no progress: when a line is printed, and when the run ends.
 *
 * Unless it sets a limit, a run ends when a rank makes no progress for LEAST seconds, and for FACTOR times the longest
 * time between two reports of any rank so far, so that a run with slow steps has more patience. Only the time inside of
 * a trainer's run counts: what a program does between two runs, or in a loop of its own, may take as long as it
 * likes. */
#include "base/c_locale.h"
#include "comm/coordinator/coordinator_internal.h"
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST       1800.0 /* seconds */
#define FACTOR      20.0
#define LINE        60.0 /* least seconds without progress until a line is printed */
#define LINE_FACTOR 3.0  /* and at least as many times the longest so far */

void lc__show_stall(const char *text)
{
    lc__show_line(2, "warning: %s", text);
}

static double or_default(double given, double otherwise)
{
    return given > 0 ? given : otherwise;
}

double lc__stall_limit(const lc__coordinator *c, const lc__member *m)
{
    if (c->times.progress != 0) return c->times.progress > 0 ? c->times.progress : INFINITY;
    if (!m->in_run) return INFINITY;
    return fmax(or_default(c->times.progress_least, LEAST), FACTOR * c->longest);
}

void lc__stall_take_report(lc__coordinator *c, lc__member *m, bool in_run, double now)
{
    if (m->in_run) c->longest = fmax(c->longest, now - m->reported);
    m->in_run = in_run;
    m->reported = now;
}

/* ---- the line ---- */

typedef struct line {
    void (*show)(const char *text);
    char text[LC__END_TEXT];
} line;

static void *show(void *arg)
{
    line *l = arg;
    l->show(l->text);
    free(l);
    return NULL;
}

/* Prints in a thread of its own, which nobody waits for: the terminal may be stopped. */
static void show_line(const lc__coordinator *c, const char *place, double seconds, double limit)
{
    pthread_t thread;
    char end[128] = "";
    line *l = malloc(sizeof *l);
    if (!l) return;
    if (limit < INFINITY) lc__snprintf(end, sizeof end, "; the run ends after %.3g s (--progress_timeout)", limit);
    *l = (line){.show = c->on_stall};
    lc__snprintf(l->text, sizeof l->text, "no progress for %.0f s: %s%s", seconds, place, end);
    if (lc__thread_create(&thread, show, l) == 0)
        pthread_detach(thread);
    else
        free(l);
}

void lc__stall_judge(lc__coordinator *c, double now)
{
    double least = fmax(or_default(c->times.progress_line, LINE), LINE_FACTOR * c->longest);
    int slowest = -1;
    for (int i = 0; i < c->size; i++) {
        const lc__member *m = &c->members[i];
        if (m->state != LC__HERE || m->waiting || !m->in_run) continue;
        if (slowest < 0 || m->reported < c->members[slowest].reported) slowest = i;
    }
    double without = slowest < 0 ? 0 : now - c->members[slowest].reported;
    if (without < least) c->next_line = least;
    if (!c->on_stall || without < c->next_line) return;
    int who = lc__verdict_who_hangs(c, now, without / 2);
    if (who < 0) who = slowest;
    char place[LC__PLACE_TEXT];
    lc__verdict_place(c, who, place, sizeof place);
    show_line(c, place, now - c->members[who].reported, lc__stall_limit(c, &c->members[who]));
    while (c->next_line <= without) c->next_line *= 2;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* "simple": a row for each action: number of calls, mean and total time, and percentage of the run. Actions contain
 * others (run_training_batch the hooks inside), so the percentages add up to more than 100;
 * so do those of [Loader], whose threads work at the same time. After a fit also a row for each kind of memory:
 * "planned" is the sum of those above it, "process" the most that the process has had, and "rest" what of it was not
 * planned. */
#include "base/owned.h"
#include "profilers/profilers.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 16 };

typedef struct row {
    const char *owner, *name;
    int64_t calls, ns;
} row;

/* "OWNER.NAME", made printable, since a plug-in may have chosen the names. */
static const char *action(const row *r, char text[160])
{
    char raw[160];
    snprintf(raw, sizeof raw, "%s.%s", r->owner, r->name);
    return lc_printable(raw, false, text, 160);
}

typedef struct simple {
    row *rows;
    int n, cap;
    bool full; /* out of memory: some actions are not in the table */
    struct {
        const char *name;
        int64_t bytes;
    } memory[MOST_KINDS]; /* in the order in which they came */
    int n_memory;
} simple;

static void simple_span(void *self, const lc_span *span)
{
    simple *p = self;
    int i = 0;
    if (span->kind == LC_SPAN_MEMORY) {
        if (p->n_memory < MOST_KINDS) {
            p->memory[p->n_memory].name = span->name;
            p->memory[p->n_memory++].bytes = span->number;
        }
        return;
    }
    /* Few rows: a linear search. */
    while (i < p->n && (p->rows[i].name != span->name || strcmp(p->rows[i].owner, span->owner) != 0)) i++;
    if (i == p->n) {
        if (lc__grow(&p->rows, &p->cap, p->n, 1, "a profile") < 0) {
            p->full = true;
            return;
        }
        p->rows[p->n++] = (row){span->owner, span->name, 0, 0};
    }
    p->rows[i].calls += span->kind == LC_SPAN_DATA ? span->number : 1;
    p->rows[i].ns += span->end_ns - span->start_ns;
}

static int longest_first(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void report_memory(const simple *p, const char *stage, FILE *out)
{
    char text[160];
    if (!p->n_memory) return;
    fprintf(out, "memory of %s\n| %-15s | %12s |\n", stage, "Kind", "MiB");
    for (int i = 0; i < p->n_memory; i++)
        fprintf(out, "| %-15s | %12.2f |\n", lc_printable(p->memory[i].name, false, text, sizeof text),
                (double)p->memory[i].bytes / (1 << 20));
}

static lc_status simple_report(void *self, const char *stage, double seconds, FILE *out)
{
    simple *p = self;
    char text[160];
    int width = 6;
    int64_t calls = 0;
    qsort(p->rows, (size_t)p->n, sizeof *p->rows, longest_first);
    for (int i = 0; i < p->n; i++) {
        int n = (int)strlen(action(&p->rows[i], text));
        if (n > width) width = n;
        calls += p->rows[i].calls;
    }
    fprintf(out, "profile of %s\n", stage);
    fprintf(out, "| %-*s | %17s | %9s | %14s | %12s |\n", width, "Action", "Mean duration (s)", "Num calls",
            "Total time (s)", "Percentage %");
    fprintf(out, "| %-*s | %17s | %9lld | %14.5g | %12.4g |\n", width, "Total", "-", (long long)calls, seconds, 100.0);
    for (int i = 0; i < p->n; i++) {
        const row *r = &p->rows[i];
        double total = 1e-9 * (double)r->ns;
        fprintf(out, "| %-*s | %17.5g | %9lld | %14.5g | %12.4g |\n", width, action(r, text), total / (double)r->calls,
                (long long)r->calls, total, seconds > 0 ? 100 * total / seconds : 0);
    }
    if (p->full) fprintf(out, "some actions are missing: out of memory\n");
    report_memory(p, stage, out);
    p->n = p->n_memory = 0;
    p->full = false;
    return LC_OK;
}

static void simple_release(void *self)
{
    simple *p = self;
    free(p->rows);
}

static const lc_profiler_ops simple_ops = {
    LC_PROFILER_OPS_INIT("simple"),
    .suffix = "txt",
    .shown = true,
    .wants = LC_SPAN_ACTION | LC_SPAN_DATA | LC_SPAN_MEMORY,
    .span = simple_span,
    .report = simple_report,
    .free = lc__owned_free,
};

lc_status lc__simple_profiler_new(lc_profiler *out)
{
    *out = (lc_profiler){&simple_ops, lc__owned_new(sizeof(simple), simple_release)};
    return out->self ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: a profiler");
}

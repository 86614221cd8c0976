/* SPDX-License-Identifier: Apache-2.0 */
/* Profilers: where time goes. The option `profiler` selects lightc's own, several with commas:
 *
 *     simple   trainer actions and hooks, as Lightning's SimpleProfiler: a table
 *     ops      every operator of every plan: time, FLOP/s, bytes/s, and where it was called
 *     trace    all of this and the loaders' threads on one time line, for chrome://tracing and ui.perfetto.dev
 *
 * Each writes RUN_DIR/<stage>-<name>.<suffix> when a run ends. A program's own profilers go into
 * lc_trainer_options.profilers. Without a profiler nothing is measured: the loop tests one pointer.
 *
 * To add one to lightc: a file in src/profilers/ with an lc_profiler_ops, and a line in src/builtin.c. */
#ifndef LIGHTC_PROFILER_H
#define LIGHTC_PROFILER_H

#include <lightc/span.h>
#include <stdio.h>

typedef struct lc_profiler_ops {
    size_t size; /* LC_PROFILER_OPS_INIT(name) */
    const char *name;
    const char *suffix; /* of its file: "txt", "json" */
    bool shown;         /* its report is also printed to standard error, unless the trainer prints nothing */
    unsigned wants;     /* lc_span_kind, or-ed */
    /* ---- REQUIRED ---- */
    /* A span ended. Spans of loaders come from their threads, all others from the training thread; inner spans come
     * before outer ones. The span is borrowed; its texts live as long as the trainer. */
    void (*span)(void *self, const lc_span *span);
    /* A run (fit, validate, ...) that took `seconds` ended: writes the report of the spans since it began, and forgets
     * them. */
    lc_status (*report)(void *self, const char *stage, double seconds, FILE *out);
    /* ---- OPTIONAL ---- */
    void (*free)(void *self);
} lc_profiler_ops;

#define LC_PROFILER_OPS_INIT(text) .size = sizeof(lc_profiler_ops), .name = (text)

typedef struct lc_profiler {
    const lc_profiler_ops *ops;
    void *self;
} lc_profiler;

LC_BEGIN_DECLS
/* A profiler by its name; the error for an unknown name lists the available ones. */
LC_API lc_status lc_profiler_new(const char *name, lc_profiler *out) LC_MUST_USE;
LC_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Profilers, inside the trainer. Every call except opening and freeing needs t->profiling to be set. */
#ifndef LC_CORE_HOOKS_PROFILING_H
#define LC_CORE_HOOKS_PROFILING_H

#include "base/io.h"
#include "core/hooks/trainer_internal.h"

typedef struct lc__profiling lc__profiling;

lc_status lc__profiling_open(lc_trainer *t) LC_MUST_USE; /* makes the profilers that the options name */
void lc__profiling_free(lc_trainer *t);
/* Begins a run, when the graph exists and the module is attached. */
void lc__profiling_begin(lc_trainer *t);
void lc__profiling_end(lc_trainer *t); /* writes the reports */
/* Starts (on) or stops observing a loader's batches. Call before the loader begins an epoch. */
void lc__profiling_watch(lc_trainer *t, lc_dataloader *loader, bool on);

/* Records what the running hook did since `start_ns` in a callback of that name; NULL: in the module. */
void lc__profile_hook(lc_trainer *t, const char *callback, int64_t start_ns);
/* Reports a part of the loader's work, added up over the fit: nothing if it took no time. */
void lc__profile_loader(lc_trainer *t, const char *name, double seconds, int64_t batches);
/* Reports how much memory of a kind the run has. */
void lc__profile_memory(lc_trainer *t, const char *name, int64_t bytes);
void lc__profile_action(lc_trainer *t, const char *name, int64_t start_ns);
/* The time, or 0 without a profiler. */
#define LC__PROFILE_START(t) (__builtin_expect((t)->profiling != NULL, 0) ? lc__now_ns() : 0)
#define LC__PROFILE_HOOK(t, callback, start)                                                                           \
    do {                                                                                                               \
        if (__builtin_expect((start) != 0, 0)) lc__profile_hook((t), (callback), (start));                             \
    } while (0)
#define LC__PROFILE_ACTION(t, name, start)                                                                             \
    do {                                                                                                               \
        if (__builtin_expect((start) != 0, 0)) lc__profile_action((t), (name), (start));                               \
    } while (0)

#endif

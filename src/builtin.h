/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in components: the backend, strategies, precisions, profilers, loggers, the callbacks that options ask for,
 * operators, and passes of the planner that belong to no peer of a graph. The library knows them by their vtables, and
 * finds them in this table. builtin.c fills it, and is the one file that names them. It hands the table over when the
 * library is loaded, so that no room needs a symbol of those above it. */
#ifndef LC_BUILTIN_H
#define LC_BUILTIN_H

#include <lightc/callback.h>
#include <lightc/logger.h>
#include <lightc/precision.h>
#include <lightc/profiler.h>
#include <lightc/strategy.h>

#include "device/device.h"

typedef struct lc__named_precision {
    const char *name;
    const lc_precision_ops *ops;
} lc__named_precision;

typedef struct lc__named_profiler {
    const char *name;
    lc_status (*make)(lc_profiler *out);
} lc__named_profiler;

/* One of the two makes it; make_with takes what follows the colon in "name:argument", or NULL. */
typedef struct lc__named_logger {
    const char *name;
    const char *argument; /* what it is, for people: "FILE"; NULL: it takes none */
    lc_status (*make)(lc_logger *out);
    lc_status (*make_with)(const char *argument, lc_logger *out);
} lc__named_logger;

/* Sets *wanted to whether the trainer's options ask for the callback and the program did not bring it, and makes it if
 * they do. */
typedef lc_status lc__default_callback(lc_trainer *t, bool *wanted, lc_callback *out);

/* Each list ends with a zero. */
typedef struct lc__builtins {
    const lc_device *host;          /* what the library runs on */
    const lc_backend_host *plugins; /* what backends in shared objects call */
    const lc_strategy_ops *const *strategies;
    const lc__named_precision *precisions;
    const lc__named_profiler *profilers;
    const lc__named_logger *loggers;
    lc__default_callback *const *callbacks;
    const lc_op *const *const *operators; /* lists of the rooms that have some; each ends with NULL */
    const struct lc_pass *passes;         /* of the planner (engine/plan/passes.h) */
} lc__builtins;

/* Not NULL once constructors have run, as they have when main begins. */
extern const lc__builtins *lc__builtin;

#endif

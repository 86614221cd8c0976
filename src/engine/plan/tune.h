/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and thread counts chosen by measuring.
 *
 * A choice belongs to a key (operator, types, shapes, strides, attributes) on one machine (instruction set, versions,
 * threads). It is made once and then frozen: other kernels and other thread counts round differently, so a resumed run
 * must use the same ones, whatever a clock would say now. Choices are kept in the graph, in checkpoints, and in a file
 * of the user's cache, from which other runs take them.
 *
 * tune.c        estimates, and measures if the estimate is not enough
 * tune_store.c  the choices, their keys and their file */
#ifndef LC_ENGINE_PLAN_TUNE_H
#define LC_ENGINE_PLAN_TUNE_H

#include "device/device.h"
#include <lightc/graph.h>
#include <lightc/state.h>

typedef struct lc__choice {
    char *key, *kernel;
    int threads;
    bool measured; /* false: there was no time left for measuring */
} lc__choice;

typedef struct lc__tuning {
    bool on;           /* measure unknown calls */
    char machine[128]; /* what choices depend on besides their key */
    char *cache;       /* the file, or NULL */
    lc__choice *choices;
    int n, cap;
    bool changed;   /* since the file was read or written */
    double seconds; /* spent measuring */
} lc__tuning;

/* tune_store.c */
/* `on`: reads the cache. A cache that cannot be read, or belongs to another machine, is not an error. */
lc_status lc__tuning_new(bool on, const lc_backend_ops *backend, const void *kernel_set, int threads, lc__tuning **out);
void lc__tuning_free(lc__tuning *t);
lc_status lc__tuning_key(const lc_call *call, char **key); /* free */
const lc__choice *lc__tuning_find(const lc__tuning *t, const char *key);
lc_status lc__tuning_add(lc__tuning *t, const char *key, const char *kernel, int threads, bool measured);
/* Writes the cache if there are new choices. Errors are ignored. */
void lc__tuning_keep(lc__tuning *t);
/* The choices as state, and back: choices made on another kind of machine are ignored, others replace those already
 * known. Nothing is written if there are none. */
lc_status lc__tuning_save(const lc__tuning *t, lc_state *root);
lc_status lc__tuning_load(lc__tuning *t, const lc_state *root);

/* plan.c */
/* Between steps: takes over the choices of a checkpoint; plans made with other choices are dropped. */
lc_status lc__graph_load_tuning(lc_graph *g, const lc_state *root);

/* tune.c */
/* Whether all threads are faster than one, by an estimate that depends only on the call. */
bool lc__worth_threads(const lc_call *call);
/* Sets call->kernel and call->threads of a call that is complete except for its preparation, if there is a choice for
 * it or one can be made. */
lc_status lc__tune(lc_graph *g, lc_call *call);

#endif

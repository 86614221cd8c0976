/* SPDX-License-Identifier: Apache-2.0 */
/* Spans: when an action began and ended. The trainer, the engine and loaders report to profilers in this form. */
#ifndef LIGHTC_SPAN_H
#define LIGHTC_SPAN_H

#include <lightc/status.h>

typedef enum lc_span_kind {
    LC_SPAN_ACTION = 1,  /* of the trainer: hooks, batches, epochs, checkpoints */
    LC_SPAN_OP = 2,      /* one kernel call of a plan */
    LC_SPAN_LOADER = 4,  /* a batch that a loader gathered */
    LC_SPAN_DATA = 16,   /* what the training loader did in a run, in all: the time is the sum over its threads */
    LC_SPAN_MEMORY = 32, /* a kind of memory at the end of a fit, its bytes as the number (lc_device_memory) */
    LC_SPAN_PLAN = 8,    /* a plan that was made, since the step was not like those before */
} lc_span_kind;

typedef struct lc_span {
    lc_span_kind kind;
    const char *name;  /* "training_step", "conv", "gather", "plan" */
    const char *owner; /* actions: "[Module]net", "[Callback]EarlyStopping", "[Trainer]"; operators: the kernel; plans:
                        * "[Engine]" */
    int64_t start_ns, end_ns; /* monotonic clock */
    int thread;               /* 0: the training thread; loaders: their threads from 1 */
    int64_t number;           /* loaders: of the batch; LC_SPAN_DATA: how many batches; memory: bytes */
    /* Operators: */
    lc_site site;       /* where the program called it (or the operator it is the gradient of) */
    double flop, bytes; /* floating-point operations of products (0 for others); memory read and written */
    int ndim;           /* of the first result; -1: none */
    const int64_t *shape;
} lc_span;

typedef void lc_span_fn(void *ctx, const lc_span *span);

#endif

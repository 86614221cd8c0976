/* SPDX-License-Identifier: Apache-2.0 */
/* Precisions: in which data types a run computes and stores its values (docs/precision.md).
 *
 * A precision is a plug-in: an lc_precision_ops that chooses the storage of the graph's values, converts the module,
 * and scales the loss. To add one: a file in src/precision/ and a line in src/builtin.c; or, from outside of the
 * library, lc_trainer_options.precision_plugin. */
#ifndef LIGHTC_PRECISION_H
#define LIGHTC_PRECISION_H

#include <lightc/graph.h>
#include <lightc/hooks.h>
#include <lightc/op.h>

#define LC_PRECISION_TENSORS 4

typedef struct lc_precision_ops {
    size_t size; /* LC_PRECISION_OPS_INIT(name) */
    const char *name;
    /* The scale of the loss changes with updates: optimizers that evaluate it several times for one are refused. */
    bool scale_changes;
    /* ---- OPTIONAL, in call order ---- */
    /* Another one with the same settings, for a trial run of the tuner. Needed if self is not NULL. */
    lc_status (*copy)(const void *self, void **out);
    /* Sets autocast or storage. *self is what lc_precision has, NULL for the precisions of `precision`. */
    lc_status (*configure_graph)(void **self, lc_graph_args *graph);
    /* Once a run, of which a trainer may have several, when the module has been built: before weights are loaded, and
     * before configure_optimizers. */
    lc_status (*convert_module)(void **self, lc_module *m);
    /* Persistent tensors that scale_loss uses, at most LC_PRECISION_TENSORS: devices of data_parallel have copies of
     * them, as of parameters. Returns how many. */
    int (*tensors)(void *self, lc_tensor **out);
    /* Recorded before each backward pass; returns the loss to differentiate. A scaled loss needs lc_graph_set_unscale:
     * gradients that are read, clipped or applied then have the scale taken out. A rank that has no loss yet when
     * others have one calls it with a zero, and drops the result. */
    lc_tensor *(*scale_loss)(void *self, lc_tensor *loss);
    /* Before the hooks on_before_optimizer_step. LC_SKIP leaves the update out on all ranks; the step still counts. It
     * costs an agreement of ranks; updates whose gradients overflowed are skipped without it (lc_graph_set_unscale). */
    lc_status (*before_optimizer_step)(void *self, lc_optimizer *optimizer);
    lc_status (*save_state)(void *self, lc_state *state);
    lc_status (*load_state)(void *self, const lc_state *state);
    void (*teardown)(void *self); /* frees it */
} lc_precision_ops;

#define LC_PRECISION_OPS_INIT(text) .size = sizeof(lc_precision_ops), .name = (text)

/* A precision of the program, for lc_trainer_options.precision_plugin. */
typedef struct lc_precision {
    const lc_precision_ops *ops;
    void *self;
} lc_precision;

/* Mixed precision with a dynamic scale of the loss, as PyTorch's GradScaler: an update whose gradients are not all
 * finite is skipped and multiplies the scale by backoff_factor; after growth_interval updates in a row that were not
 * skipped it is multiplied by growth_factor. */
typedef struct lc_mixed_precision_args {
    size_t size;
    lc_dtype dtype; /* LC_F16, or LC_BF16, which needs no scale: giving one is LC_ERR_ARGUMENT */
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval;
} lc_mixed_precision_args;
LC_DEFAULTS(lc_mixed_precision, lc_mixed_precision_args, .dtype = LC_F16, .init_scale = 65536, .growth_factor = 2,
            .backoff_factor = 0.5, .growth_interval = 2000)

/* The types in which an operator takes and gives f32 values in mixed precision. */
typedef enum lc_autocast_class {
    LC_AUTOCAST_F32,    /* takes and gives f32 */
    LC_AUTOCAST_LOW,    /* takes and gives 16 bits: products, convolutions, attention */
    LC_AUTOCAST_FOLLOW, /* gives 16 bits if all its data operands have 16, else f32 */
} lc_autocast_class;

/* The shortest times of lc_precision_measure. */
typedef struct lc_precision_times {
    double product_ms; /* two products of matrices, one after the other */
    double chain_ms;   /* elementwise operators on a value four times as large */
} lc_precision_times;

LC_BEGIN_DECLS
#define lc_mixed_precision(...) LC_CALL_NEW_(lc_mixed_precision, lc_mixed_precision, (), __VA_ARGS__, )
LC_API lc_status lc_mixed_precision_with(lc_precision *out, const lc_mixed_precision_args *args) LC_MUST_USE;
/* The scale of the loss as it is now (waits for the device): lc_precision_scale(lc_trainer_precision(t), &scale).
 * LC_ERR_STATE: the precision has none, or no run has begun. */
LC_API lc_status lc_precision_scale(lc_precision precision, double *scale) LC_MUST_USE;
/* The precision of that name or alias ("32"); the error for an unknown name lists the available ones. */
LC_API lc_status lc_precision_find(const char *name, const lc_precision_ops **out) LC_MUST_USE;
/* The class of an operator; those of a program are of class F32, except for views, which follow. */
LC_API lc_autocast_class lc_autocast_class_of(const lc_op *op);
/* Measures on the CPU, through the graph, what mixed precision of each of n types (1 to 4; LC_F32: none) costs:
 * matrices are [size,size]. threads: as in lc_graph_args. */
LC_API lc_status lc_precision_measure(const lc_dtype *types, int n, int64_t size, int threads,
                                      lc_precision_times *out) LC_MUST_USE;
LC_END_DECLS
#endif

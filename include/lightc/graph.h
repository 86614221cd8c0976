/* SPDX-License-Identifier: Apache-2.0 */
/* The step: record, plan, replay.
 *
 * The trainer drives these functions; programs that own their loop call them themselves. One graph belongs to one
 * thread. Between lc_step_begin and lc_step_end operations called on that thread are recorded into it; lc_step_run
 * plans (first time) or replays (from then on) what was recorded. */
#ifndef LIGHTC_GRAPH_H
#define LIGHTC_GRAPH_H

#include <lightc/args.h>
#include <lightc/tensor.h>

typedef struct lc_graph lc_graph;
typedef struct lc_optimizer lc_optimizer;

typedef struct lc_graph_args {
    size_t size;
    int threads;        /* 0: OMP_NUM_THREADS or lc_processors */
    bool deterministic; /* results do not depend on `threads` */
    uint64_t seed;      /* of random operators */
    int max_plans;      /* bound of the plan cache */
    int64_t max_bytes;  /* bound of planned memory; 0: the machine's memory */
    bool tune;          /* kernels and threads are chosen by timing; see docs/engine.md */
    bool nan_check;     /* a step fails at the first operator that makes a NaN or infinity; costs speed */
    /* Storage of f32 values (docs/precision.md). Types that the program sees do not change: lc_tensor_dtype is f32. */
    lc_dtype autocast; /* mixed precision: LC_BF16 or LC_F16, the type of products and what follows them; 0: none */
    lc_dtype storage;  /* LC_BF16, LC_F16 or LC_F64: the type of every f32 value of a step; 0: f32 */
    lc_matmul_precision matmul_precision; /* where the device gains nothing from a lower one, it is the highest */
    const char *device; /* where steps run: "cpu", or a backend's device, "cuda", "cuda:1"; NULL: lc_fabric_new's or the
                         * trainer's, within these; else what LIGHTC_ACCELERATOR names, or the CPU */
} lc_graph_args;
LC_DEFAULTS(lc_graph, lc_graph_args, .max_plans = 64)

/* Counts of what the graph has done so far. */
typedef struct lc_graph_stats {
    int64_t plans;         /* plans alive */
    int64_t hits, misses;  /* replays, and plans made */
    int64_t evictions;     /* plans dropped because the cache was full */
    int64_t planned_bytes; /* arena of the largest plan */
    int64_t lower_bound;   /* of that plan: max over time of live bytes */
    int64_t scratch_bytes; /* largest workspace */
    int64_t nodes;         /* kernel calls in the last plan run */
    int64_t recorded;      /* operations recorded in the last step */
    double flops;          /* floating-point operations of all plans run so far: two for each multiplication and
                            * addition of matrix products, convolutions, recurrent layers and attention */
} lc_graph_stats;

/* Memory use of a device, in bytes. Shared memory is counted on the device that owns it. */
typedef struct lc_device_memory {
    int64_t parameters; /* with the copies of 16 bits that mixed precision keeps */
    int64_t buffers, gradients, optimizer_state;
    int64_t activations; /* intermediate results of the largest step so far */
    int64_t workspace;   /* of its kernels */
    /* lc_trainer_memory only, else 0: */
    int64_t loader;  /* batches of the training's loader */
    int64_t process; /* the most that the process has had in memory so far, all together; 0: unknown */
} lc_device_memory;

/* A kind of device, for people to read. */
typedef struct lc_device_info {
    int devices;        /* how many of the kind this machine has */
    char kernels[128];  /* "avx512, oneDNN 2.6.0"; "" if the kind does not say, like the next */
    char features[256]; /* of the processor: "avx2 f16c avx512 avx512_bf16" */
} lc_device_info;

LC_BEGIN_DECLS

/* What `device` ("cpu", or the name of a backend) is. Opens it. */
LC_API lc_status lc_device_describe(const char *device, lc_device_info *out) LC_MUST_USE;

/* How many processors this process can keep busy, at least 1: those it may run on, or fewer if its control groups limit
 * its CPU time (a container's --cpus, rounded up). */
LC_API int lc_processors(void);

/* Free it with lc_graph_free, on the thread that uses it and outside of a step. */
#define lc_graph_new(...) LC_CALL_NEW_(lc_graph_new, lc_graph, (), __VA_ARGS__, )
LC_API lc_status lc_graph_new_with(lc_graph **out, const lc_graph_args *args) LC_MUST_USE;
LC_API void lc_graph_free(lc_graph *g); /* NULL is fine */
LC_API void lc_graph_get_stats(const lc_graph *g, lc_graph_stats *out);
LC_API int lc_graph_threads(const lc_graph *g); /* `threads`, resolved */

/* Starts recording on this thread. step and micro_batch key the random operators: the same seed, step and micro_batch
 * give the same masks, whatever ran before. Step tensors of earlier steps expire. */
LC_API lc_status lc_step_begin(lc_graph *g, uint64_t step, uint64_t micro_batch) LC_MUST_USE;
/* Runs everything recorded since the last run. Host reads (lc_item, lc_tensor_read) do this by themselves. */
LC_API lc_status lc_step_run(lc_graph *g) LC_MUST_USE;
/* Ends recording (runs nothing). Step tensors stay readable until the next lc_step_begin if they were kept. */
LC_API lc_status lc_step_end(lc_graph *g) LC_MUST_USE;
/* LC_OK, or the first error of an operation recorded in this step, with its message. */
LC_API lc_status lc_step_status(lc_graph *g) LC_MUST_USE;

/* Marks a value as wanted after the step has run: it can then be read (lc_item, lc_tensor_read) at any time until the
 * next lc_step_begin without splitting the plan. Returns t. */
LC_API lc_tensor *lc_keep_at(lc_tensor *t, lc_site site);
#define lc_keep(t) lc_keep_at((t), LC_HERE)

/* Gradients of `loss` (one element) are added to the gradient of every parameter that requires one. Recorded; runs
 * with the step. */
LC_API void lc_backward_at(lc_tensor *loss, lc_site site);
#define lc_backward(loss) lc_backward_at(loss, LC_HERE)

/* The next backward overwrites gradients instead of adding to them. Free. */
LC_API void lc_zero_grad(lc_graph *g);

/* For losses that were multiplied by a scale: `unscale`, a persistent f32 tensor of no dimensions, is its reciprocal.
 * Gradients that are read, clipped or applied are multiplied by it, and an update whose gradients are not all finite is
 * skipped: it writes nothing and does not count. after_update: called when an update has been recorded, whatever
 * recorded it; records how the scale changes (see lc_optimizer.factor). Both borrowed; NULL (the default): losses have
 * no scale, and nothing follows an update. */
typedef void lc_after_update_fn(void *ctx, lc_optimizer *optimizer);
LC_API void lc_graph_set_unscale(lc_graph *g, lc_tensor *unscale, lc_after_update_fn *after_update, void *ctx);

/* A region that begins in a step ends in it: an end without a beginning is an error of the step, and so is a region
 * that is open when the step runs (lc_step_run) or ends.
 *
 * Region in which no gradients are recorded, even through a function that returns x itself because there is nothing to
 * do. Calls nest. */
LC_API void lc_no_grad_begin_at(lc_site site);
LC_API void lc_no_grad_end_at(lc_site site);
#define lc_no_grad_begin() lc_no_grad_begin_at(LC_HERE)
#define lc_no_grad_end()   lc_no_grad_end_at(LC_HERE)

/* Region in which products, convolutions and attention compute in 16 bits (PyTorch's autocast), or do not. The type is
 * lc_graph_args.autocast, or bf16 if that is not set. Without effect in a graph with lc_graph_args.storage. Regions
 * nest; a step begins with what lc_graph_args.autocast says. */
LC_API void lc_autocast_begin_at(bool enabled, lc_site site);
LC_API void lc_autocast_end_at(lc_site site);
#define lc_autocast_begin(enabled) lc_autocast_begin_at((enabled), LC_HERE)
#define lc_autocast_end()          lc_autocast_end_at(LC_HERE)

/* Region whose intermediate results are not kept for backward but computed again there. Regions do not nest. */
LC_API void lc_checkpoint_begin_at(lc_site site);
LC_API void lc_checkpoint_end_at(lc_site site);
#define lc_checkpoint_begin() lc_checkpoint_begin_at(LC_HERE)
#define lc_checkpoint_end()   lc_checkpoint_end_at(LC_HERE)

/* A value without history: no gradient flows through. */
LC_API lc_tensor *lc_detach_at(lc_tensor *x, lc_site site);
#define lc_detach(x) lc_detach_at(x, LC_HERE)

/* target (persistent) = value, at this point of the step. The only side effect of a step: batch-norm statistics, moving
 * averages, manual updates. `value` may be a view of target.
 *
 * Views of target (reshape, permute, slice, expand, detach and views of these) taken before show the new value
 * afterwards; copies (lc_contiguous, any other operator's result) keep the old one. Whether lc_reshape of something
 * that is not row-major in memory is a view or a copy is not defined, as in PyTorch.
 *
 * Backward is an error (LC_ERR_STATE) if a gradient needs the value that a tensor had before it was assigned, updated
 * by an optimizer or written with lc_tensor_write in this step, as with PyTorch's tensors that are "modified by an
 * inplace operation": write after lc_backward, or compute with a copy. */
LC_API void lc_assign_at(lc_tensor *target, lc_tensor *value, lc_site site);
#define lc_assign(target, value) lc_assign_at(target, value, LC_HERE)

/* The accumulated gradient of a parameter, scaled as the optimizer would see it (divided by the accumulation window);
 * zeros if it has none. A step tensor with the parameter's type. With the strategy sharded, in which every rank has a
 * slice of the gradient, the ranks gather it: collective when it is a sum over them (with sharded_1 after the last
 * backward pass of a window, from sharded_2 on after each), and the gathered gradient takes memory while it is used. */
LC_API lc_tensor *lc_gradient_at(lc_tensor *parameter, lc_site site);
#define lc_gradient(parameter) lc_gradient_at(parameter, LC_HERE)
/* Replaces that gradient, as lc_gradient gives it, from row-major `data` of exactly `bytes` bytes, of the parameter's
 * type (lc_tensor_dtype): for programs and strategies that change gradients outside of the graph, for example to reduce
 * them over ranks. Call it between backward and the optimizer's step; runs the step up to there first. */
LC_API lc_status lc_gradient_write(lc_tensor *parameter, const void *data, size_t bytes) LC_MUST_USE;

/* The graph this thread is recording into, or NULL. */
LC_API lc_graph *lc_current_graph(void);

LC_END_DECLS

#endif

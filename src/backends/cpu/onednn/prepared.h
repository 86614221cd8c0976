/* SPDX-License-Identifier: Apache-2.0 */
/* A prepared call: a few oneDNN primitives run one after the other, with everything created beforehand.
 *
 * A step is a primitive and its operands; an operand says where its data will be at run time (an input or output of the
 * call, or scratch). One step may be cut into chunks of equal shape (images of a batch, rows of a matrix), with a next
 * step for the rest: the same one-thread primitive runs on every chunk, and up to `lanes` threads take one chunk after
 * the other. So results do not depend on the number of threads, a thread that is not scheduled delays at most one
 * chunk, and batches that oneDNN cannot describe are possible. The library's own threads, which wait for each other,
 * are used only for steps that cannot be cut.
 *
 * Use: lc__dnnl_new; per step lc__dnnl_add and lc__dnnl_bind. A plan made with probe = true stops short of generating
 * code: it only checks whether the call can be done. */
#ifndef LC_ONEDNN_PREPARED_H
#define LC_ONEDNN_PREPARED_H

#include "backends/cpu/onednn/dnnl_shim.h"
#include <lightc/op.h>

#define LC_DNNL_MAX_STEPS 22
#define LC_DNNL_MAX_ARGS  6
#define LC_DNNL_NO_CHUNKS (-1)

typedef enum lc__dnnl_where { LC_DNNL_IN, LC_DNNL_OUT, LC_DNNL_SCRATCH } lc__dnnl_where;

typedef struct lc__dnnl_operand {
    lc__dnnl_where where;
    int index;          /* of the input or output */
    size_t offset;      /* bytes into it, or into scratch */
    size_t lane_stride; /* scratch: bytes from one lane's area to the next */
    int column;         /* which column of chunk_offset applies; LC_DNNL_NO_CHUNKS: none */
} lc__dnnl_operand;

typedef struct lc__dnnl_step {
    dnnl_primitive_t primitive;
    int n_args;
    bool chunked;
    bool rest;    /* of the previous step: its primitive is for chunk number n_chunks */
    int64_t relu; /* results of an execution, if a relu follows; else 0 */
    int results;  /* the operand that they are */
    lc__dnnl_operand operand[LC_DNNL_MAX_ARGS];
    size_t element[LC_DNNL_MAX_ARGS]; /* bytes */
    dnnl_exec_arg_t *exec;            /* [lanes][LC_DNNL_MAX_ARGS] */
    void **last;                      /* [lanes][LC_DNNL_MAX_ARGS]: the present handle of the memory object */
} lc__dnnl_step;

typedef struct lc__dnnl_plan {
    bool probe;
    int threads;                /* inside a primitive: 1, except for steps that cannot be cut */
    int lanes;                  /* threads that share chunks */
    int64_t n_chunks;           /* 1: not cut */
    int64_t (*chunk_offset)[4]; /* [n_chunks + 1] elements, per column; NULL if not cut */
    dnnl_engine_t engine;
    dnnl_stream_t *stream; /* [lanes] */
    int n_steps;
    lc__dnnl_step step[LC_DNNL_MAX_STEPS];
    size_t scratch_bytes;
    bool add_scratch; /* at the end out[0] += scratch at add_offset (f32) */
    size_t add_offset;
    int64_t add_count;
    char impl[96];
} lc__dnnl_plan;

/* Sets the number of threads in this thread's next OpenMP regions; returns the previous number. */
int lc__dnnl_set_threads(int threads);

dnnl_status_t lc__dnnl_new(lc__dnnl_plan **out, bool probe, int threads, int lanes, int64_t n_chunks);
void lc__dnnl_free(lc__dnnl_plan *plan); /* NULL is fine */
/* Reserves scratch; returns its offset, 64-byte aligned. */
size_t lc__dnnl_scratch(lc__dnnl_plan *plan, size_t bytes);
/* Appends a step, with its scratchpad. Takes `pd`. `main` notes the implementation's name for dumps. */
dnnl_status_t lc__dnnl_add(lc__dnnl_plan *plan, dnnl_primitive_desc_t pd, bool chunked, bool main);
/* Binds an argument of the step appended last. */
dnnl_status_t lc__dnnl_bind(lc__dnnl_plan *plan, int arg, lc__cmd md, lc__dnnl_operand operand);
/* The step appended last ends with a relu of its results: the operand bound last, dense, f32 or bf16. The library's own
 * relu turns NaN into 0. */
void lc__dnnl_relu(lc__dnnl_plan *plan, int64_t count);
/* Appends a reorder. `sum`: adds to the target. */
dnnl_status_t lc__dnnl_add_reorder(lc__dnnl_plan *plan, lc__cmd from, lc__dnnl_operand source, lc__cmd to,
                                   lc__dnnl_operand target, bool sum);

/* Running out of memory. The library silently skips implementations for which it has no memory, and calls whole
 * functions unimplemented; if even that fails it crashes. So a build is enclosed by these two: the first ensures that
 * some memory is available, the second (which gets the status of the build) checks whether an allocation has failed
 * nevertheless. */
dnnl_status_t lc__dnnl_enter(void);
dnnl_status_t lc__dnnl_leave(dnnl_status_t status);
/* The results of supports() and prepare() for a build's status. */
bool lc__dnnl_supported(dnnl_status_t status);
lc_status lc__dnnl_failed(const lc_call *call, dnnl_status_t status);

/* Whether the library has kernels for the types: both operands are in f32, and so is the rest; or both in bf16, and the
 * bias (the third operand, if there is one) and the result in either. */
bool lc__dnnl_takes_types(const lc_call *call);
dnnl_data_type_t lc__dnnl_type(lc_dtype dtype);

/* Functions of kernels with a plan. */
typedef dnnl_status_t lc__dnnl_build_fn(const lc_call *call, bool probe, lc__dnnl_plan **out);
bool lc__dnnl_supports(const lc_call *call, lc__dnnl_build_fn *build);
lc_status lc__dnnl_prepare(lc_call *call, lc__dnnl_build_fn *build); /* the plan becomes call->state */
void lc__dnnl_run(const lc_call *call);
/* A part of lc__dnnl_run, for kernels that do something in between: points the step's operands at this run's data and
 * executes it on one chunk. */
void lc__dnnl_execute(const lc__dnnl_plan *plan, const lc__dnnl_step *step, const lc_call *call, int lane,
                      int64_t chunk);
void lc__dnnl_release(lc_call *call);

#endif

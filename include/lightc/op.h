/* SPDX-License-Identifier: Apache-2.0 */
/* Operators: how they are defined, and how to add one, in the library or in your own program.
 *
 * An operator is one constant `lc_op`: its name, a function that infers the types of its results, a gradient rule
 * written in terms of other operators, and a portable kernel. Built-in operators additionally have fast kernels in the
 * backends. There is no registry: a program declares `static const lc_op my_op = {...}` and calls lc_op_call(&my_op,
 * ...). Operators are pure: results depend only on inputs and attributes (random ones on their Philox key); nothing is
 * modified in place. The exceptions are operators flagged LC_OP_MUTATES (assign, optimizer updates), which write
 * persistent inputs.
 *
 * Attributes are two arrays. `ints` (sizes, axes, flags) are part of a plan's key. `floats` (a scale, a clamp bound)
 * are not: they may differ from step to step without planning again. A gradient rule must therefore never compute with
 * the *value* of a float; it passes the pointer on (call->floats, or into it) to another operator, and the recorder
 * keeps the two linked. */
#ifndef LIGHTC_OP_H
#define LIGHTC_OP_H

#include <lightc/tensor.h>

#define LC_MAX_OUTPUTS 8

typedef struct lc_op lc_op;

/* ---- type inference ---- */
typedef struct lc_infer {
    const lc_op *op;
    int n_in;
    const lc_type *const *in; /* NULL entry: an optional input that was not given */
    int n_int;
    const int64_t *ints;
    int n_float;
    const double *floats;
    int n_out;    /* preset from the operator; lower it if fewer results are produced */
    lc_type *out; /* to fill */
} lc_infer;

/* Fills call->out. On error returns lc_fail(LC_ERR_SHAPE or LC_ERR_DTYPE, "weight expects 3 input channels, x has 1"):
 * the operator's name, all operand shapes and the caller's file and line are added by the recorder. */
typedef lc_status lc_infer_fn(lc_infer *call);

/* ---- gradient ---- */
typedef struct lc_grad {
    const lc_op *op;
    int n_in, n_out;
    lc_tensor *const *in;   /* NULL entries for absent optional inputs */
    lc_tensor *const *out;  /* the results */
    lc_tensor *const *dout; /* gradient of each result; NULL if none reached it. At least one is not NULL */
    const bool *need;       /* which inputs want a gradient */
    lc_tensor **din;        /* to fill for every i with need[i]: the gradient, or NULL for zero */
    int n_int;
    const int64_t *ints;
    int n_float;
    const double *floats; /* pass the pointer on, never the value */
} lc_grad;

/* Records the operators that compute the gradient of each input with need[i]. Runs when a step is planned, not every
 * step. Gradients have the type of their input. */
typedef lc_status lc_grad_fn(lc_grad *g);

/* ---- kernels ---- */
/* One operand of a kernel. Strides are in elements; a broadcast dimension has stride 0. */
typedef struct lc_view {
    void *data;
    lc_dtype dtype;
    int ndim;
    int64_t shape[LC_MAX_DIMS];
    int64_t stride[LC_MAX_DIMS];
    void *reserved[2];
} lc_view;

/* Key of random operators: Philox key is (seed, site), counter (step, micro_batch, logical element index). */
typedef struct lc_rng_key {
    uint64_t seed;
    uint64_t step;
    uint64_t micro_batch;
} lc_rng_key;

typedef struct lc_kernel lc_kernel;
typedef struct lc_call lc_call;

/* One prepared call of a kernel inside a plan. Everything except data pointers, floats and rng is fixed at prepare. */
struct lc_call {
    const lc_op *op;
    const lc_kernel *kernel;
    int n_in, n_out, n_int, n_float;
    lc_view *in; /* an absent optional input has data == NULL and ndim == -1 */
    lc_view *out;
    const int64_t *ints;
    const double *floats;  /* read in run(), not in prepare(): values may change from run to run */
    const lc_rng_key *rng; /* of the current step */
    int threads;           /* how many threads this call may use; fixed at prepare */
    bool deterministic;    /* results must not depend on `threads` */
    bool accumulate; /* add to out[0] instead of overwriting it; only set if kernel->flags has LC_KERNEL_ACCUMULATES */
    size_t scratch_bytes;                 /* prepare() asks; 256-byte aligned */
    void *scratch;                        /* given in run(); contents are lost between runs */
    void *state;                          /* prepare() may make this (primitives, tables); release() frees it */
    void *device;                         /* what lc_backend_ops.open returned; NULL: the host */
    void *queue;                          /* what run() enqueues its work on: lc_backend_ops.queue; NULL: the host */
    struct lc__fault *fault;              /* used by lc_call_bad_index */
    const lc_call *origin;                /* a copy that a device keeps of a call: the call itself; else NULL */
    lc_matmul_precision matmul_precision; /* what products of f32 may be computed in; kernels may use a higher one */
    uint32_t rounded;    /* bit i: in[i], of f32, counts as rounded to `rounded_to`, of 16 bits; only */
    lc_dtype rounded_to; /* set if kernel->flags has LC_KERNEL_ROUNDS */
};

/* An out-of-range index among the values of an operand. */
typedef struct lc_bad_index {
    int input;           /* the operand that holds it */
    int64_t at;          /* its position in that operand, row-major */
    int64_t index, size; /* 0 to size - 1 are allowed, */
    const char *or_name; /* and the value of this name: "ignore_index" (static); NULL: no other */
    int64_t or_index;
} lc_bad_index;

/* The memory layout that a kernel needs. The planner copies a value that has a different layout. */
typedef enum lc_kernel_layout {
    /* Any strides for inputs and outputs. */
    LC_WANT_STRIDED = 0,
    /* All operands dense row-major. */
    LC_WANT_ROW_MAJOR,
    /* Operands with ndim >= 3 are dense channels-last, the others dense row-major. */
    LC_WANT_CHANNELS_LAST,
    /* Elementwise: every operand that has the output's shape is dense in one common order (row-major or
     * channels-last, whichever the inputs have); smaller, broadcast operands come with strides (0 where broadcast),
     * already expanded to the output's ndim and shape. */
    LC_WANT_ELEMENTWISE,
    /* Inputs: any strides as long as the last or the last-but-one dimension has stride 1 (matrix operands, also
     * transposed); outputs dense row-major. */
    LC_WANT_MATRIX,
    /* Inputs: last dimension has stride 1, others arbitrary (attention heads inside a packed row). Outputs likewise. */
    LC_WANT_LAST_DENSE,
} lc_kernel_layout;

enum {
    LC_KERNEL_ACCUMULATES = 1, /* run() honors call->accumulate */
    LC_KERNEL_INPLACE_0 = 2,   /* out[0] may share memory with in[0] if types are equal and in[0] dies here */
    LC_KERNEL_INPLACE_ANY = 4, /* out[0] may share memory with any input of equal type that dies here */
    LC_KERNEL_SERIAL = 8,      /* never gains from threads */
    LC_KERNEL_ROUNDS = 16,     /* run() honors call->rounded of in[0] and in[1], supports() is asked with it */
};

struct lc_kernel {
    const char *name; /* shown in plan dumps: "onednn_conv2d", "reference" */
    lc_kernel_layout layout;
    unsigned flags;
    /* OPTIONAL (always): whether this kernel can do this call. Operands have types, strides and ints, but no data. If
     * the check itself runs out of memory, it leaves errno at ENOMEM: the choice of a kernel must not depend on
     * that. */
    bool (*supports)(const lc_call *call);
    /* OPTIONAL: set scratch_bytes, create state. Runs once, when the plan is made. If it fails, it frees what it made:
     * release() runs only for calls that were prepared. */
    lc_status (*prepare)(lc_call *call);
    /* REQUIRED. Must not allocate and cannot fail. */
    void (*run)(const lc_call *call);
    /* OPTIONAL: free state. */
    void (*release)(lc_call *call);
    void *reserved[2]; /* zero */
};

/* ---- the operator ---- */
enum {
    LC_OP_ELEMENTWISE = 1,  /* out[i] depends on element i of the (broadcast) inputs only */
    LC_OP_VIEW = 2,         /* result is another view of in[0]'s storage; `view` computes its strides, no kernel */
    LC_OP_NO_GRAD = 4,      /* not differentiable: gradient stops here (argmax, comparisons) */
    LC_OP_RANDOM = 8,       /* uses call->rng; its first two ints are set by the recorder: site hash, occurrence */
    LC_OP_MUTATES = 16,     /* writes persistent inputs given by mutated_inputs; never dropped as dead */
    LC_OP_SIDE_EFFECT = 32, /* never dropped as dead */
    LC_OP_LATER = 64,       /* results and written inputs are complete only after a later operator */
    LC_OP_CHECKS = 128, /* its kernels report bad indices (lc_call_bad_index), even if nothing reads its results: a call
                           by the program is never dropped as dead, only one by a gradient rule */
    LC_OP_HOST = 256,   /* its `kernel` runs on the host, whatever the device, with copies of its operands there */
    LC_OP_STAGES = 512, /* with LC_OP_HOST: its kernel gets the device's addresses, and copies what it needs itself. It
                           runs when the calls before it are enqueued */
};

struct lc_op {
    const char *name; /* PyTorch's name, if there is one */
    unsigned flags;
    int n_out; /* results; at most LC_MAX_OUTPUTS */
    lc_infer_fn *infer;
    /* NULL with LC_OP_NO_GRAD, or if no input can want a gradient: a backward pass that needs it fails. */
    lc_grad_fn *grad;
    /* LC_OP_VIEW: fill out->stride and *offset (elements) from `in`; return false if the result is not a view of these
     * strides (the planner then makes in[0] dense row-major and asks again). out has dtype and shape. */
    bool (*view)(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset);
    /* LC_OP_MUTATES: bit i set = in[i] is written. */
    uint32_t mutated_inputs;
    /* The portable reference kernel; for every dtype and any strides the operator allows. Backends' fast kernels are
     * looked up first. NULL only for views and collectives. A program's gets the dtypes that infer has seen. */
    const lc_kernel *kernel;
    /* OPTIONAL (x, y, z): names of the inputs for error messages, separated by spaces. */
    const char *inputs;
    /* OPTIONAL (name): the name that users know, if it depends on the ints: conv1d, conv2d. Static. */
    const char *(*title)(int n_int, const int64_t *ints);
    void *reserved[2]; /* zero */
};

LC_BEGIN_DECLS

/* For kernels that follow indices, from any of their threads: reports the out-of-range index `bad`. The kernel then
 * continues without reading or writing there, and its result does not matter: the step fails with a message that names
 * the operator, the index and the line of the program. If a kernel reports several, the one with the smallest `at`
 * counts; if several kernels do, the first one's. */
LC_API void lc_call_bad_index(const lc_call *call, const lc_bad_index *bad);

/* Gives an operator a kernel for devices of a backend ("cuda"): usually an operator of the program, whose lc_op.kernel
 * runs on the host. run() enqueues its work on call->queue and returns; all pointers of the call except `ints` are then
 * addresses of the device. Plans that are made from now on ask the kernels that were added, the last one first, then
 * the backend's own. All three are used until the process ends; any thread may call this. */
LC_API lc_status lc_op_add_kernel(const lc_op *op, const char *backend, const lc_kernel *kernel);

/* Records a call and returns its first result (an error tensor on failure; errors are sticky and reported once by the
 * step). `in` entries may be NULL for optional inputs. Arrays are copied. */
LC_API lc_tensor *lc_op_call(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints,
                             int n_float, const double *floats, lc_site site);
/* The same for operators with several results; `out` has op->n_out entries; those beyond an n_out that infer lowered
 * are NULL. */
LC_API void lc_op_call_n(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints, int n_float,
                         const double *floats, lc_tensor **out, lc_site site);

LC_END_DECLS

#endif

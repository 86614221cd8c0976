/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder, the intermediate form and the plan, as the files of src/record and src/engine share them.
 *
 * engine/run/graph_run.c  the life of a graph and of its steps
 * record/graph.c    what a thread records into
 * record/record.c   appends what the user calls to a tape: one node per call, plus a few macro nodes (below);
 *                   errors.c: the first error of a step
 * record/peer.c     the peers of a graph: other devices and ranks
 * engine/plan/plan.c  looks up a tape segment in the cache, or makes its plan by passes (engine/plan/passes.h):
 *   expand.c          macro nodes -> operators; backward.c: gradients; macros.c: the graph's own macros (others are in
 *                     optim and parallel); expand_writes.c: what rules may still read
 *   storage_types.c   values kept in a smaller type than the program sees
 *   drop_dead.c       nodes whose results nobody reads are dropped
 *   fuse_patterns.c   named patterns -> fused operators; fuse_linear.c: of linear layers; fuse_elementwise.c: chains
 *   choose_kernel.c   the kernel of a call, and whether a fusion has one
 *   optim/keep_low.c  parameters in 16 bits, kept from step to step
 *   parallel/reduce/place_slices.c  sharded tensors (tensor/slice.h) become intermediate results
 *   parallel/collectives/collectives.c  each collective -> where it starts and where it is waited for
 *   lower.c           operators -> kernel calls: layouts, copies
 *   share_memory.c    results in place of inputs, gradients in their place
 *   arena.c           liveness -> offsets in one arena
 *   tune.c            one thread or all, and which of several kernels (tune.h)
 *   program.c         calls -> the program that a replay runs
 *   flops.c           floating-point operations of a call
 *   dump.c            writes a plan as text and as a graph
 * engine/run/execute.c  replays a plan; anomaly.c: the first NaN; fault.c: indices out of range;
 *                     host_access.c: host access
 *
 * A *segment* is what was recorded between two runs of a step: usually the whole step; a host read in the middle of a
 * step ends one. Value numbers run through the whole step, so that later segments refer to earlier ones. */
#ifndef LC_RECORD_GRAPH_IMPL_H
#define LC_RECORD_GRAPH_IMPL_H

#include <lightc/span.h>
#include "base/exact_sum.h"
#include "tensor/host_access.h"
#include "record/fault.h"
#include "record/peer.h"

#define LC_ABSENT UINT32_MAX
#define LC_ARENAS 4 /* step tensors exist for this many steps, so that the use of an expired one is detected */

/* GRADIENT: of a backward pass; only on the expanded tape. */
enum { LC_NODE_NO_GRAD = 1, LC_NODE_AUTOCAST = 2, LC_NODE_GRADIENT = 4 };

/* One recorded call. Compared with memcmp, so it has no padding. */
typedef struct lc_node {
    const lc_op *op;
    uint32_t n_in, n_int; /* an update has three ints for each parameter */
    uint8_t n_out, n_float;
    uint16_t flags;
    uint32_t region;    /* checkpointed region, from 1; 0: none */
    uint32_t first_out; /* value number of the first result */
    uint32_t in_at, int_at, float_at;
} lc_node;
_Static_assert(sizeof(lc_node) == 32 + sizeof(void *), "records are compared byte by byte, so they have no padding");

/* The origin of a float of an expanded node. */
typedef struct lc_float_source {
    const double *live; /* read at every replay, or NULL */
    int64_t user;       /* index in the user's tape, or -1: the constant in the tape */
} lc_float_source;

typedef struct lc_tape {
    lc_node *nodes;
    lc_site *sites;
    uint32_t n_nodes, cap_nodes;
    uint32_t *in;
    uint32_t n_in, cap_in;
    int64_t *ints;
    uint32_t n_ints, cap_ints;
    double *floats;
    lc_float_source *sources; /* only on the expanded tape */
    uint32_t n_floats, cap_floats;
} lc_tape;

/* A persistent or input tensor a segment refers to for the first time in the step. Compared with memcmp. */
typedef struct lc_external {
    uint64_t id; /* 0 for inputs, whose memory does not matter */
    uint32_t value;
    uint16_t kind, layout;
    lc_type type;
} lc_external;

/* The effect of a segment on the accumulation state of one lc_flat. LC_FLAT_ANY: any, since it is zeroed first.
 * LC_FLAT_PENDING, while a segment is expanded: a gradient of this rank only, which the next sync adds to the slices
 * (tensor/slice.h). */
#define LC_FLAT_ANY     0xff
#define LC_FLAT_PENDING 2
typedef struct lc_flat_state {
    lc_flat *flat;
    uint8_t *before, *after; /* [flat->n] */
    uint8_t *trained;        /* [flat->n]: part of the key, since a plan may update and send parameters that its records
                              * do not name */
    int n_low;               /* if the plan updates its parameters: flat->n_low when it was made; -1: any */
} lc_flat_state;

/* A write to a persistent tensor by a node of the step (expand_writes.c). */
typedef struct lc_write {
    const lc_tensor *tensor;
    uint32_t node; /* in the user's tape */
} lc_write;

/* The place of a value once its plan has run. */
typedef struct lc_location {
    bool made;      /* it has a place */
    bool in_input;  /* it is a view of an input tensor, whose memory may change with each step */
    uint32_t input; /* the input's value number */
    int64_t offset; /* in it, elements */
    void *data;     /* otherwise */
    void *exact;    /* of an f32 number that is stored as f64: that, for the host; else NULL */
    int64_t stride[LC_MAX_DIMS];
} lc_location;

typedef struct lc_patch {
    lc_view *view;
    uint32_t value; /* of an input tensor */
    int64_t offset; /* bytes */
} lc_patch;

/* On a device whose memory the host cannot reach: what a replay brings there, in one block of its memory: the key of
 * random numbers, the floats, and the inputs, which the host has. The block is written from `slots` places
 * on the host that take turns (engine/run/device_run.c). */
enum { LC_SLOTS = 3 };
typedef struct lc_upload {
    uint32_t value;
    size_t offset, bytes;
} lc_upload;

/* Calls of a plan that a device runs without the host: one program of the backend. */
typedef struct lc_stretch {
    int begin, end; /* in plan->calls; from end on to the next stretch, they are the host's */
    void *program;  /* of the backend; NULL: not made */
} lc_stretch;

typedef struct lc_block {
    void *device, *ahead; /* ahead: another place there, where inputs arrive while the device computes; NULL: none */
    char *slots;          /* [LC_SLOTS][bytes] */
    size_t bytes, floats;
    lc_upload *uploads;
    int n_uploads, turn;
    uint64_t marks[LC_SLOTS]; /* of the last replay that used the slot; 0: none */
    lc_stretch *stretches;    /* without empty ones */
    int n_stretches;
    uint64_t runs;
} lc_block;

/* A call of the host's that begins when the device has got to a mark (engine/run/starts.c). */
typedef struct lc_start {
    const lc_call *call;
    void (*begin)(const lc_call *call);
    const void *key;
    uint64_t mark;
} lc_start;

typedef struct lc_plan_call {
    lc_call call;
    lc_site site;
    const lc_site *sites; /* of a fused call's instructions, where NaN are looked for; else NULL */
    bool of_gradients;    /* it computes gradients, or with them */
    size_t first_view;    /* in plan->views */
    double seconds;       /* measured, if requested */
    int64_t runs;
} lc_plan_call;

/* The values that a segment keeps when it has run, in addition to those named by lc_keep. */
typedef enum lc__keeps {
    LC__KEEPS_ALL,     /* all: the rest of the step may need any of them */
    LC__KEEPS_NUMBERS, /* those of one element, since these are logged */
    LC__KEEPS_NAMED,   /* no other */
} lc__keeps;

typedef struct lc_plan {
    /* ---- key ---- */
    uint64_t uid, previous; /* previous: uid of the plan of the segment before, 0 at the start of a step */
    uint64_t hash;
    lc__keeps keeps;
    uint64_t peers; /* lc__peers_key */
    uint32_t node_0, n_nodes, in_0, n_in, int_0, n_ints, float_0, n_floats, ext_0, n_externals;
    lc_node *nodes;
    lc_site *node_sites; /* when the plan was made; not part of the key */
    uint32_t *in;
    int64_t *ints;
    lc_external *externals;
    bool zero_grad;
    lc_flat_state *flats;
    int n_flats;
    lc_write *writes; /* for later segments of the step */
    uint32_t n_writes, cap_writes;
    uint64_t **written; /* counters of writes to memory (tensor/low.h) */
    lc_flat **copied;   /* flat buffers whose low copies it reads: it holds them */
    int n_copied;
    uint32_t n_written, cap_written;
    /* ---- types of the values recorded, so that a hit infers nothing ---- */
    uint32_t value_0, n_values;
    lc_type *types;
    bool *requires_grad;
    lc_location *locations;
    /* ---- program ---- */
    bool by_bucket; /* begins with an update that itself waits for other ranks' gradients */
    lc_plan_call *calls;
    int n_calls;
    lc_view *views;
    double *floats; /* [n_floats of the user | constants | live] */
    int64_t *call_ints;
    struct lc_live_float {
        double *to;
        const double *from;
    } * live;
    int n_live;
    struct lc_user_float {
        double *to;
        uint32_t from;
    } * linked;
    int n_linked;
    lc_patch *patches;
    int n_patches;
    lc_site *sites; /* additional sites of calls */
    size_t arena_0, arena_bytes, lower_bound, scratch_bytes;
    const lc_device *on;
    lc_block block;
    double flops;
    uint64_t last_used;
} lc_plan;

typedef struct lc_slab_arena {
    lc_tensor **slabs;
    uint32_t n_slabs, used;
} lc_slab_arena;

/* Functions that a graph calls when the host reads or writes a tensor, and devices compute parts of the step. */
struct lc__devices;
typedef struct lc__parts_ops {
    lc_status (*run)(struct lc__devices *d, lc_tensor *t); /* the host is about to read or write a tensor */
    void (*wrote)(struct lc__devices *d, lc_tensor *t);    /* the host has written it */
} lc__parts_ops;

/* Regions of one kind that the program has begun and not ended. */
typedef enum lc__region { LC__NO_GRAD, LC__AUTOCAST, LC__CHECKPOINT, LC__REGIONS } lc__region;
typedef struct lc__open_regions {
    int n;
    lc_site site; /* where the outermost began */
} lc__open_regions;

struct lc_graph {
    lc__recorder recorder;
    lc_graph_args options;
    int threads;
    bool plan_off, nan_check, profile, reference_only, host_fallback;
    const char *dump_path;
    lc_span_fn *observe; /* called for kernel calls; NULL: not */
    void *observe_ctx;
    const lc_device *on; /* runs the steps */
    lc_start *starts;    /* those before first_start have begun */
    int first_start, n_starts, cap_starts;
    const struct lc_pass *passes; /* built-in passes besides the planner's */
    const void *kernel_set;       /* of the backend */
    lc_matmul_precision products; /* options.matmul_precision, or the highest */
    lc_dtype low;                 /* of f32 values that are stored in another type (engine/plan/storage_types.c) */
    struct lc__tuning *tuning;    /* engine/plan/tune.h */

    /* ---- the step being recorded ---- */
    bool recording, expanding;
    uint32_t generation;
    lc_rng_key rng;
    lc_status status;
    char error[1024];
    lc__open_regions open[LC__REGIONS];
    int any_open;        /* of all kinds together */
    bool evaluates;      /* the whole step is without gradients */
    bool no_grad;        /* so is what is recorded now */
    uint64_t autocast;   /* whether it is enabled: of the innermost region in the lowest bit, of the step around all */
    uint64_t writes;     /* operators of the step so far that write persistent tensors */
    bool any_seen;       /* some operand was of 16 bits, or stored in another type than the program sees */
    bool raw;            /* operands are taken as they are: see lc__host_ops.operands */
    bool toggled;        /* some parameters are frozen for now, and keep their gradients */
    uint16_t node_flags; /* of what is recorded now: lc__graph_modes */
    uint32_t region, n_regions;
    int64_t backwards; /* since the last lc_zero_grad */
    double window;     /* 0: backwards */
    /* Multiplies gradients too, wherever they are used: 1 / the scale of the loss. A borrowed persistent number of no
     * dimensions, which operators of the step may change; updates whose factor is not finite then write nothing. NULL:
     * losses are not scaled, and such an update is done. */
    lc_tensor *unscale;
    bool scaled; /* losses are multiplied by a scale, also if another graph's `unscale` takes it out */
    lc_after_update_fn *after_update; /* lc_graph_set_unscale */
    void *after_update_ctx;
    lc_peer *peers; /* peer.h */
    uint64_t next_peer;
    struct {
        int64_t number;      /* of the chunk being recorded; -1: none */
        uint32_t first_site; /* of random_sites that are the chunk's */
        bool sums, backward; /* its gradients are added on the tree; its backward pass has been recorded */
    } chunk;
    struct lc__devices *devices; /* the devices that this graph is one of (devices.h); NULL: none */
    int device;                  /* its index there */
    struct lc__devices *parts;   /* the devices that compute parts of this graph's steps; NULL: none */
    const lc__parts_ops *parts_ops;
    lc__keeps sync_keeps;      /* of segments that a sync ends (reduce/reducer.h); lc_step_begin: LC__KEEPS_NAMED */
    const double *loss_weight; /* the gradient of a loss, read at every replay; NULL: 1 */

    lc_tape tape; /* the user's */
    lc_tape ir;   /* expanded; only while planning */
    lc_tensor **values;
    uint32_t n_values, cap_values;
    lc_external *externals;
    uint32_t n_externals, cap_externals;
    lc_tensor *kept; /* persistent tensors of the step that the program no longer has (lc__tensor_keep) */
    lc_slab_arena arenas[LC_ARENAS];
    struct lc_random_site {
        uint64_t hash;
        int64_t count;
    } * random_sites;
    uint32_t n_random_sites, cap_random_sites;

    /* ---- the segment being recorded ---- */
    uint32_t node_0, in_0, int_0, float_0, ext_0, value_0;
    lc_plan *expect; /* the plan this segment has followed so far, or NULL */
    lc_plan *last;   /* plan of the previous segment of this step */

    /* ---- plans ---- */
    lc_plan **plans;
    int n_plans, cap_plans;
    uint64_t next_uid, clock;
    lc_plan **chain; /* plans run in this step */
    int n_chain, cap_chain;
    void *arena;
    size_t arena_reserved, arena_committed;
    bool arena_dropped;   /* to be committed again before the next step */
    int64_t memory_limit; /* for messages: the limit that options.max_bytes was derived from; 0: none */
    void *scratch;        /* an arena, which all plans share */
    size_t scratch_reserved, scratch_bytes;
    lc__fault fault; /* of the calls of all plans */
    lc_flat **flats; /* referenced */
    int n_flats, cap_flats;
    lc_graph_stats stats;
};

/* ---- macro nodes ----
 *
 * Requests of a step besides operators: a backward pass, an update. Macros are recorded like operators, so that they
 * are part of the key of a plan, and expand themselves into operators when a plan is made. A macro is recorded and
 * expanded where it belongs: engine/plan, optim, parallel. */
struct lc_build;                 /* engine/plan/plan_impl.h */
enum { LC__OP_MACRO = 1 << 16 }; /* in lc_op.flags: the operator is the first member of an lc_macro */
typedef struct lc_macro {
    lc_op op;
    lc_status (*expand)(struct lc_build *b, const lc_node *n);
} lc_macro;

static inline bool lc__is_macro(const lc_op *op)
{
    return op->flags & LC__OP_MACRO;
}

/* Whether gradients pass through an operator, by its rule. A backward pass that reaches one without a rule fails. */
static inline bool lc__passes_gradients(const lc_op *op)
{
    return !(op->flags & (LC_OP_NO_GRAD | LC__OP_MACRO));
}

/* graph.c */
/* Keeps the first error of a step for lc_step_status; returns `status`. */
lc_status lc__step_failed(lc_graph *g, lc_status status);
/* Region whose values are stored as they are, whatever the precision of the graph: arithmetic on weights. */
void lc__exact_begin(void);
void lc__exact_end(void);
/* Sets no_grad and node_flags, after regions or `evaluates` have changed. */
void lc__graph_modes(lc_graph *g);
/* The step fails if a region of the program is open. */
lc_status lc__graph_regions_closed(lc_graph *g);
/* This thread records into g again. Another graph may have recorded in the meantime, and a persistent tensor knows only
 * the last one. */
void lc__graph_enter(lc_graph *g);

/* From now on records belong to the part of the batch with this number among those of all ranks, by which random
 * operators are keyed (instead of by their place in the step); -1: no longer. */
void lc__graph_chunk(lc_graph *g, int64_t number);
/* errors.c */
/* Reports an error of a function that returns no status: keeps it in the step that this thread records, with the user's
 * call site (file NULL: unknown). Outside of a step, puts the title in front of this thread's message. */
void lc__refuse_call(lc_status status, const char *title, lc_site site);
void lc__refuse_tensor(const lc_tensor *t, const char *what, const char *title, lc_site site) __attribute__((cold));
/* Whether t is a tensor; if not, refuses the call, and names t `what`: "the loss". */
static inline bool lc__check_tensor(const lc_tensor *t, const char *what, const char *title, lc_site site)
{
    if (__builtin_expect(lc__is_tensor(t), 1)) return true;
    lc__refuse_tensor(t, what, title, site);
    return false;
}
/* Fails because t is not a tensor. */
lc_status lc__no_tensor(const lc_tensor *t, const char *what);
/* The name of input i of an operator in messages: from `names` (lc_op.inputs), or by its position. */
void lc__input_title(const char *names, int i, char *out, size_t size);
/* The call site of functions that do not get one. */
#define LC__NO_SITE ((lc_site){NULL, 0})
/* The call site at which the running step computed t, a tensor; searched from the newest call back. */
lc_site lc__site_of(const lc_tensor *t);
/* Keeps the first error of a step: "title: message (name shape, ...) at file:line". `names`: see lc_op.inputs. */
void lc__record_error(lc_graph *g, lc_status status, const char *title, lc_site site, const char *names,
                      lc_tensor *const *in, int n_in);
/* The same for a planned call: extends the current message. */
lc_status lc__call_error(const lc_call *call, lc_status status, lc_site site);
/* The names of an operator, and of its input i, for users. */
const char *lc__op_title(const lc_op *op, int n_int, const int64_t *ints);
void lc__operand_name(const lc_op *op, int i, char *out, size_t size);
/* record.c */
lc_status lc__value_of(lc_graph *g, lc_tensor *t, uint32_t *value);
/* The persistent or input tensor that a value of this step is, or is a view of; NULL: none. */
lc_tensor *lc__viewed_tensor(const lc_graph *g, uint32_t value);
/* On a device whose memory the host cannot reach, the one kernel that is not the backend's is the reference. */
static inline bool lc__runs_on_host(const lc_device *on, const lc_call *call)
{
    return !lc__on_host(on) && call->kernel == call->op->kernel;
}

/* The handle of a tensor on this graph's device. */
static inline lc_tensor *lc__own_handle(const lc_graph *g, lc_tensor *t)
{
    if (!g->devices || !t->replicas) return t;
    lc_tensor *own = t->replicas[g->device];
    return own ? own : t;
}

/* Number of elements of an operand; 0 if it is absent. */
static inline double lc__view_numel(const lc_view *v)
{
    double n = v->ndim < 0 ? 0 : 1;
    for (int i = 0; i < v->ndim; i++) n *= (double)v->shape[i];
    return n;
}
#endif

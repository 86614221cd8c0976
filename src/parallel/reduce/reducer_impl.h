/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer, as reducer.c and reducer_sums.c (at run time), expand_sync.c and place_slices.c (when a plan is made)
 * share it. */
#ifndef LC_PARALLEL_REDUCE_REDUCER_IMPL_H
#define LC_PARALLEL_REDUCE_REDUCER_IMPL_H

#include "device/staging.h"
#include "tensor/slice.h"
#include "parallel/reduce/reducer.h"
#include "parallel/reduce/compress.h"
#include "engine/plan/passes.h"

/* Values of `summed`. A restored share stays one until a sync in which the parameter is trained. */
enum { LC__NOT_SUMMED, LC__SUM, LC__RESTORED_SHARE };

/* Where a call under way has what it sends, and where the result goes on a device. */
typedef struct lc__sending {
    lc__staging memory;
    void *to;
    size_t offset, bytes; /* of the result in `memory`, which is copied to `to`; 0 bytes: nothing is */
} lc__sending;

struct lc__reducer {
    lc_peer peer;
    lc_graph *g;
    lc_comm *comm;
    lc_comm *slices;   /* the ranks that have a slice each: `comm`, or a group of it */
    lc_comm *replicas; /* the ranks that have the same slice; NULL: there are none */
    int stage;         /* of sharding; 0: nothing is sharded */
    size_t bucket_bytes;
    double weight;
    lc__wire *wire;  /* NULL: gradients are sent as they are */
    lc_flat **flats; /* referenced */
    int n_flats;
    lc_tensor **exposed; /* [n_flats]: their gradients that other ranks can access, referenced; or NULL */
    uint8_t *mask;       /* has_gradient of all flats, the trainer's flags, and hashes of what ranks must have in
                          * common */
    uint8_t *summed;     /* by parameter, as `mask`: the state of its gradient since the last lc_zero_grad */
    bool any_summed;     /* there may be a sum */
    bool any_restored;   /* there may be a share from a checkpoint */
    char *sums; /* saved while gradients are shares for a checkpoint: `summed`, then gradients; NULL: they are not */
    int64_t n_mask;
    lc_request **requests; /* by slot, room for the largest plan's; NULL: done */
    const char **sent;     /* by slot: start of the bucket */
    lc__sending *sending;  /* by slot */
    int cap_requests, n_under_way;
    lc_request *agreement;         /* about `mask` */
    uint8_t flags[LC__SYNC_FLAGS]; /* this rank's, for the running sync */
    bool owed;                     /* the backward pass is over, but some of its buckets are still to be waited for */
    uint32_t order;                /* a hash of the units gathered since it was last compared */
    bool uneven;                   /* some ranks compute less of this batch than others (lc__reducer_begin_batch) */
    void *scratch;                 /* for units that are gathered only for others */
    lc__staging shares;            /* for the kernel that distributes sums */
    lc_status status;              /* of the kernels */
    char message[1024];
    lc__reducer_stats stats;
};

static inline bool lc__trained(const lc_flat *flat, int i)
{
    return flat->parameters[i] && flat->parameters[i]->requires_grad;
}

static inline bool lc__any_trained(const lc_flat *flat, const lc__unit *u)
{
    bool any = false;
    for (int i = u->first; i < u->first + u->n; i++) any |= lc__trained(flat, i);
    return any;
}

/* reducer_sums.c: notes the parameters that the sync just made has summed. */
void lc__reducer_note_sums(lc__reducer *r);
lc_status lc__not_summed(void);

/* ---- at run time ---- */
/* Kernels cannot fail: the first error is kept for lc__reducer_sync. */
void lc__reducer_keep_error(lc__reducer *r, lc_status s);
lc_status lc__reducer_status(const lc__reducer *r) LC_MUST_USE;
/* Moves the bytes of all calls under way; the next two wait for one call, or for all that nodes have begun
 * (reducer_ops.c). */
void lc__reducer_move(lc__reducer *r);
void lc__reducer_wait(lc__reducer *r, lc_request *request);
void lc__reducer_wait_for_all(lc__reducer *r);
/* Copies the result of a slot's call, which is done, to the device. */
void lc__reducer_deliver(lc__reducer *r, int slot);
/* Begins to agree on which parameters have a gradient on any rank, and on the trainer's flags, unless it has begun. */
void lc__reducer_begin_agreement(lc__reducer *r);
/* reducer_uneven.c: notes that a unit is gathered. Units of the same size look alike to the ranks of a call, so they
 * compare the order afterwards. */
void lc__reducer_note_unit(lc__reducer *r, int64_t unit);
lc_status lc__reducer_other_order(void);
/* reducer_uneven.c: called before a call that not all ranks reach by themselves; `which`: the slot, or the unit. As
 * long as any rank needs to gather, all take part; ranks that do not need the result discard it. All other calls have
 * the same order on all ranks. */
enum { LC__ENDS, LC__REDUCES, LC__GATHERS };
void lc__reducer_agree(lc__reducer *r, int kind, int64_t which);

/* Slots of lc_peer_ops. In reducer_uneven.c: */
void lc__reducer_add_up(lc_peer *p, int64_t *words, int n);
/* In reducer_sums.c: */
void lc__reducer_before_backward(lc_peer *p);
void lc__reducer_zeroed(lc_peer *p);
lc_status lc__reducer_check_summed(const lc_peer *p, const lc_tensor *parameter);
/* In expand_sync.c, with the macros of the graph's reducer: */
extern const lc_macro lc__macro_sync, lc__macro_share_sum;
extern const lc_pass lc__reducer_passes[];
lc_status lc__reducer_whole_gradient(lc_peer *p, const lc_flat *flat, int i, lc_tensor **out);
lc_status lc__reducer_next_bucket(lc_peer *p, struct lc_build *b, lc_flat *flat, lc__unit *u, bool *any);
lc_status lc__reducer_updated(lc_peer *p, struct lc_build *b, lc_flat *flat, const lc__unit *u);

/* A gather brings a unit in f32, the unit rounded to the graph's low type, or only the unit's vectors. Its
 * LC__SYNC_UNIT has the unit and which of these it is. */
typedef enum lc__gathered { LC__GATHERED_F32, LC__GATHERED_LOW, LC__GATHERED_VECTORS, LC__GATHERED_KINDS } lc__gathered;
static inline int64_t lc__gather_of(int64_t unit, lc__gathered what)
{
    return unit * LC__GATHERED_KINDS + what;
}

/* unit_vectors.c: the vectors of a unit are its parameters of at most one dimension. Each rank sends those elements
 * that are in its slice, one after the other, and up to the number of the rank that has most. */
bool lc__is_vector(const lc_flat *flat, int k);
int64_t lc__vectors_most(const lc_flat *flat, const lc__unit *u);
/* How many elements of parameter k a rank sends, 0 if it is not a vector; the first one's offset in the slice, and
 * among what the rank sends. */
int64_t lc__vector_piece(const lc_flat *flat, const lc__unit *u, int rank, int k, int64_t *from, int64_t *at);

/* place_slices.c: gradients and parameters of which a rank keeps a slice become intermediate results. */
lc_status lc__place_slices(struct lc_build *b) LC_MUST_USE;

/* Makes room for a plan with this many requests in one segment. */
lc_status lc__reducer_reserve(lc__reducer *r, int n) LC_MUST_USE;

/* The first ints of the operators below. */
enum { LC__SYNC_REDUCER, LC__SYNC_SLOT, LC__SYNC_OFFSET, LC__SYNC_COUNT, LC__SYNC_UNIT, LC__SYNC_FIRST };

static inline lc__reducer *lc__reducer_of(const lc_call *c)
{
    return (lc__reducer *)(uintptr_t)c->ints[LC__SYNC_REDUCER];
}

/* in: gradients; ints: reducer, number of the flat buffer. Replaces sums over ranks by this rank's share of them. */
extern const lc_op lc__op_share_sum;
/* in: gradients; COUNT elements from OFFSET on are summed over all ranks in place */
extern const lc_op lc__op_reduce_bucket;
/* in: gradients; N * COUNT elements from OFFSET on are summed, this rank's slice in place. Then (offset, count) of the
 * gaps between parameters, which are zeroed. */
extern const lc_op lc__op_reduce_unit;
/* in: a unit's gradients; waits for the slot, then COUNT elements from OFFSET on, a slice, are summed over the
 * replicas, in the same slot */
extern const lc_op lc__op_reduce_slice;
/* in: a unit's gradients, slice buffer; waits for the slot, then copies COUNT elements from OFFSET on from the first to
 * the second: (from OFFSET, in the slice buffer, count, whether to add) per parameter */
extern const lc_op lc__op_take_slice;
/* in: parameters; N * COUNT elements from OFFSET on are gathered from all ranks, with this rank's slice in place */
extern const lc_op lc__op_gather_whole;
/* in: slice buffer; out: N * COUNT elements, the slices at OFFSET of all ranks */
extern const lc_op lc__op_gather_unit;
/* in: slice buffer; out: N * COUNT elements, the unit's vectors (below) of all ranks. Then (offset in the slice buffer,
 * offset among this rank's, count) of each. */
extern const lc_op lc__op_gather_vectors;
/* in: the buffer concerned, if any, and what must stay in memory until then; waits for the slot, or for all slots (-1)
 */
extern const lc_op lc__op_wait;
/* in: gradients; waits for the buckets that begin before OFFSET */
extern const lc_op lc__op_wait_until;

#endif

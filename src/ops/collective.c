/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: types and gradients. parallel/collectives/collectives.c runs them. */
#include "comm/combine.h"
#include "record/graph_impl.h"
#include "ops/ops.h"
#include "tensor/tensor_impl.h"

#include <string.h>

static bool has_root(lc_collective which)
{
    return which == LC_COMM_BROADCAST || which == LC_COMM_REDUCE || which == LC_COMM_GATHER || which == LC_COMM_SCATTER;
}

static lc_status collective_infer(lc_infer *call)
{
    const int64_t *ints = call->ints;
    int64_t n = ints[LC__COMM_SIZE], root = ints[LC__COMM_ROOT];
    lc_collective which = (lc_collective)ints[LC__COMM_WHICH];
    const lc_type *x = call->in[0];
    if (!x) return lc_fail(LC_ERR_ARGUMENT, "x is missing");
    if (!ints[LC__COMM_POINTER]) return lc_fail(LC_ERR_ARGUMENT, "the communicator is missing");
    call->out[0] = *x;
    if (has_root(which) && (root < 0 || root >= n))
        return lc_fail(LC_ERR_ARGUMENT, "there is no rank %lld; there are 0 to %lld", (long long)root,
                       (long long)n - 1);
    if (which == LC_COMM_BROADCAST) return LC_OK;
    if (which == LC_COMM_ALL_REDUCE || which == LC_COMM_REDUCE)
        return lc__combine_check(x->dtype, (lc_reduce_op)ints[LC__COMM_REDUCE]);
    if (!x->ndim) return lc_fail(LC_ERR_SHAPE, "x has no dimension along which ranks can be placed; reshape it to [1]");
    if (which == LC_COMM_ALL_GATHER || which == LC_COMM_GATHER) {
        lc_type all = *x;
        size_t bytes;
        all.shape[0] *= n;
        return lc__type_check(x->dtype, x->ndim, all.shape, &call->out[0], &bytes);
    }
    if (x->shape[0] % n)
        return lc_fail(LC_ERR_SHAPE,
                       "the first dimension of x, %lld, is not a multiple of the %lld ranks; pad (lc_pad) or slice it",
                       (long long)x->shape[0], (long long)n);
    if (which == LC_COMM_ALL_TO_ALL) return LC_OK;
    call->out[0].shape[0] /= n;
    return which == LC_COMM_SCATTER ? LC_OK : lc__combine_check(x->dtype, LC_COMM_SUM);
}

static lc_tensor *collective(lc_tensor *x, const int64_t ints[LC__COMM_INTS], lc_site site)
{
    static const lc_op *const ops[LC_COLLECTIVES] = {
        [LC_COMM_ALL_REDUCE] = &lc__op_all_reduce, [LC_COMM_REDUCE] = &lc__op_reduce,
        [LC_COMM_BROADCAST] = &lc__op_broadcast,   [LC_COMM_ALL_GATHER] = &lc__op_all_gather,
        [LC_COMM_GATHER] = &lc__op_gather_to,      [LC_COMM_SCATTER] = &lc__op_scatter_from,
        [LC_COMM_ALL_TO_ALL] = &lc__op_all_to_all, [LC_COMM_REDUCE_SCATTER] = &lc__op_reduce_scatter,
    };
    return lc_op_call(ops[ints[LC__COMM_WHICH]], 1, &x, LC__COMM_INTS, ints, 0, NULL, site);
}

/* The transposed collective: if y on one rank came from x on another, that x gets its gradient from that dy. */
static lc_status collective_grad(lc_grad *g)
{
    static const lc_collective transposed[LC_COLLECTIVES] = {
        [LC_COMM_ALL_REDUCE] = LC_COMM_ALL_REDUCE, [LC_COMM_REDUCE] = LC_COMM_BROADCAST,
        [LC_COMM_BROADCAST] = LC_COMM_REDUCE,      [LC_COMM_ALL_GATHER] = LC_COMM_REDUCE_SCATTER,
        [LC_COMM_GATHER] = LC_COMM_SCATTER,        [LC_COMM_SCATTER] = LC_COMM_GATHER,
        [LC_COMM_ALL_TO_ALL] = LC_COMM_ALL_TO_ALL, [LC_COMM_REDUCE_SCATTER] = LC_COMM_ALL_GATHER,
    };
    int64_t ints[LC__COMM_INTS];
    memcpy(ints, g->ints, sizeof ints);
    if (ints[LC__COMM_REDUCE] != LC_COMM_SUM)
        return lc_fail(LC_ERR_UNSUPPORTED, "the %s over ranks has no gradient; only the sum has",
                       lc__reduce_name((lc_reduce_op)ints[LC__COMM_REDUCE]));
    ints[LC__COMM_WHICH] = transposed[ints[LC__COMM_WHICH]];
    g->din[0] = collective(g->dout[0], ints, LC_HERE);
    return LC_OK;
}

/* Never dropped, even if nobody reads the result on this rank: the other ranks wait for it. */
#define COLLECTIVE(id)                                                                                                 \
    const lc_op lc__op_##id = {.name = #id,                                                                            \
                               .inputs = "x",                                                                          \
                               .flags = LC_OP_SIDE_EFFECT,                                                             \
                               .n_out = 1,                                                                             \
                               .infer = collective_infer,                                                              \
                               .grad = collective_grad};
LC_OPS_COMM_LIST(COLLECTIVE)

/* ---- public functions ---- */

static lc_tensor *call(lc_tensor *x, lc_comm *comm, lc_collective which, int root, lc_reduce_op op, lc_site site)
{
    if (comm && !lc__has_mark(comm, LC__MARK_OF(COMM))) {
        lc_fail(LC_ERR_ARGUMENT, "comm is not a communicator; it was never made, has been freed, or is another object");
        lc__refuse_call(LC_ERR_ARGUMENT, lc_collective_name(which), site);
        return lc__error_tensor();
    }
    int64_t ints[LC__COMM_INTS] = {
        which, (int64_t)(uintptr_t)comm, comm ? lc_comm_rank(comm) : 0, comm ? lc_comm_size(comm) : 1, root, op};
    return collective(x, ints, site);
}

lc_tensor *lc_all_reduce_at(lc_tensor *x, lc_comm *comm, lc_reduce_op op, lc_site site)
{
    return call(x, comm, LC_COMM_ALL_REDUCE, -1, op, site);
}

lc_tensor *lc_reduce_at(lc_tensor *x, lc_comm *comm, int root, lc_site site)
{
    return call(x, comm, LC_COMM_REDUCE, root, LC_COMM_SUM, site);
}

lc_tensor *lc_broadcast_at(lc_tensor *x, lc_comm *comm, int root, lc_site site)
{
    return call(x, comm, LC_COMM_BROADCAST, root, LC_COMM_SUM, site);
}

lc_tensor *lc_all_gather_at(lc_tensor *x, lc_comm *comm, lc_site site)
{
    return call(x, comm, LC_COMM_ALL_GATHER, -1, LC_COMM_SUM, site);
}

lc_tensor *lc_reduce_scatter_at(lc_tensor *x, lc_comm *comm, lc_site site)
{
    return call(x, comm, LC_COMM_REDUCE_SCATTER, -1, LC_COMM_SUM, site);
}

lc_tensor *lc_gather_to_at(lc_tensor *x, lc_comm *comm, int root, lc_site site)
{
    return call(x, comm, LC_COMM_GATHER, root, LC_COMM_SUM, site);
}

lc_tensor *lc_scatter_from_at(lc_tensor *x, lc_comm *comm, int root, lc_site site)
{
    return call(x, comm, LC_COMM_SCATTER, root, LC_COMM_SUM, site);
}

lc_tensor *lc_all_to_all_at(lc_tensor *x, lc_comm *comm, lc_site site)
{
    return call(x, comm, LC_COMM_ALL_TO_ALL, -1, LC_COMM_SUM, site);
}

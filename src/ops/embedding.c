/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding: rows of a table selected by index. */
#include "ops/nn_util.h"
#include "ops/take.h"

#define LC_TEMPLATE "ops/embedding.inl"
#include "ops/for_floats.h"

static lc_status embedding_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 3, 1, 0));
    LC_TRY(lc__check_index(call, 0, "ids"));
    LC_TRY(lc__check_float(call, 1, "weight"));
    const lc_type *ids = call->in[0], *w = call->in[1];
    if (w->ndim != 2) return lc_fail(LC_ERR_SHAPE, "weight must have 2 dimensions [V,D], has %d", w->ndim);
    if (ids->ndim + 1 > LC_MAX_DIMS) return lc_fail(LC_ERR_SHAPE, "ids have too many dimensions");
    if (call->ints[0] < -1 || call->ints[0] >= w->shape[0])
        return lc_fail(LC_ERR_ARGUMENT, "padding_idx is %lld, but weight has %lld rows", (long long)call->ints[0],
                       (long long)w->shape[0]);
    lc__set_type(&call->out[0], w->dtype, ids->ndim, ids->shape);
    call->out[0].shape[call->out[0].ndim++] = w->shape[1];
    return LC_OK;
}

static lc_status embedding_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 3, 2, 0));
    LC_TRY(lc__check_float(call, 0, "dy"));
    LC_TRY(lc__check_index(call, 1, "ids"));
    const lc_type *dy = call->in[0], *ids = call->in[1];
    if (dy->ndim != ids->ndim + 1 || call->ints[0] < 0) return lc_fail(LC_ERR_SHAPE, "dy does not match ids");
    LC_TRY(lc__check_shape(call, 1, "ids", ids->ndim, dy->shape));
    lc__set_type(&call->out[0], dy->dtype, 2, (int64_t[]){call->ints[0], dy->shape[dy->ndim - 1]});
    return LC_OK;
}

static lc_status embedding_grad(lc_grad *g)
{
    if (g->need[1])
        g->din[1] = lc_op_call(&lc__op_embedding_backward, LC_IN(g->dout[0], g->in[0]),
                               LC_ATTRS(lc_tensor_dim(g->in[1], 0), g->ints[0]), LC_NONE, LC_HERE);
    return LC_OK;
}

LC_NN_KERNEL(embedding)
LC_NN_KERNEL_ADDING(embedding_backward)
const lc_op lc__op_embedding = {.name = "embedding",
                                .inputs = "ids weight",
                                .flags = LC_OP_CHECKS,
                                .n_out = 1,
                                .infer = embedding_infer,
                                .grad = embedding_grad,
                                .kernel = &embedding_kernel};
const lc_op lc__op_embedding_backward = {.name = "embedding_backward",
                                         .inputs = "dy ids",
                                         .flags = LC_OP_NO_GRAD,
                                         .n_out = 1,
                                         .infer = embedding_backward_infer,
                                         .kernel = &embedding_backward_kernel};

lc_tensor *lc_embedding_at(lc_tensor *ids, const lc_embedding_args *given, lc_site site)
{
    LC__TAKE_OP(args, "embedding", lc_embedding, given, site);
    int64_t padding = args.padding_idx;
    /* As in PyTorch, a negative padding_idx counts from the end. */
    if (padding == LC_UNSET)
        padding = -1;
    else if (padding < 0 && !lc__unusable(args.weight) && lc_tensor_ndim(args.weight) == 2) {
        int64_t rows = lc_tensor_dim(args.weight, 0);
        padding = padding >= -rows ? padding + rows : padding < -1 ? padding : -2; /* -1 would be none */
    }
    return lc_op_call(&lc__op_embedding, LC_IN(ids, args.weight), LC_ATTRS(padding), LC_NONE, site);
}

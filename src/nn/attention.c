/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.MultiheadAttention: a packed projection of query, key and value, attention, an output projection. */
#include "nn/nn_internal.h"

#include <stdlib.h>

static lc_tensor *forward(lc_module *self, lc_tensor *x, lc_site site)
{
    lc_multihead_attention_forward_args in = lc_multihead_attention_forward_defaults();
    in.query = x;
    return lc_multihead_attention_forward_at((lc_multihead_attention *)self, &in, site);
}

void lc_multihead_attention_init_with(lc_multihead_attention *l, void *parent, const char *name, int64_t embed_dim,
                                      const lc_multihead_attention_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_multihead_attention_init, lc_multihead_attention_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, "MultiheadAttention", forward);
    l->embed_dim = embed_dim;
    l->num_heads = o.num_heads;
    l->dropout = o.dropout;
    l->seq_first = o.seq_first;
    if (embed_dim < 1 || o.num_heads < 1 || embed_dim % o.num_heads) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "embed_dim %lld must be a multiple of num_heads %lld",
                       (long long)embed_dim, (long long)o.num_heads);
        return;
    }
    if (!(o.dropout >= 0 && o.dropout <= 1)) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "dropout %g must be between 0 and 1", o.dropout);
        return;
    }
    int64_t packed = 3 * embed_dim;
    l->in_proj_weight =
        lc_module_add_parameter(&l->base, "in_proj_weight", o.dtype, LC_ROW_MAJOR, 2, (int64_t[]){packed, embed_dim},
                                (lc_init){.kind = LC_INIT_XAVIER_UNIFORM});
    if (!o.no_bias) {
        l->in_proj_bias = lc_module_add_parameter(&l->base, "in_proj_bias", o.dtype, LC_ROW_MAJOR, 1, &packed,
                                                  (lc_init){.kind = LC_INIT_ZEROS});
    }
    lc_linear_init(&l->out_proj, &l->base, "out_proj", embed_dim, embed_dim, .no_bias = o.no_bias, .dtype = o.dtype);
    if (!l->out_proj.bias || lc_tensor_is_error(l->out_proj.bias)) return;
    /* Unlike the bias of Linear, this one starts at zero. */
    size_t bytes = (size_t)embed_dim * lc_dtype_size(lc_tensor_dtype(l->out_proj.bias));
    void *zeros = calloc(1, bytes);
    lc_status status = zeros ? lc_tensor_write(l->out_proj.bias, zeros, bytes) : LC_ERR_MEMORY;
    free(zeros);
    if (status < 0) lc_module_fail(&l->base, status, "the bias of out_proj could not be set");
}

/* The i-th of three parts of the packed projection applied to x: [B,S,E] */
static lc_tensor *project(lc_multihead_attention *l, lc_tensor *x, int i, lc_site site)
{
    int64_t e = l->embed_dim;
    lc_tensor *w = lc_slice_at(l->in_proj_weight, 0, i * e, e, site);
    lc_tensor *b = l->in_proj_bias ? lc_slice_at(l->in_proj_bias, 0, i * e, e, site) : NULL;
    return lc_linear_at(x, w, b, site);
}

/* [B,S,E] -> [B,heads,S,E/heads] */
static lc_tensor *split_heads(lc_multihead_attention *l, lc_tensor *x, lc_site site)
{
    int64_t shape[] = {lc_tensor_dim(x, 0), lc_tensor_dim(x, 1), l->num_heads, l->embed_dim / l->num_heads};
    return lc_permute_at(lc_reshape_at(x, 4, shape, site), 4, (int64_t[]){0, 2, 1, 3}, site);
}

/* scores[B,heads,S,T] with the mask, as lc_sdpa has it: added, or bool. */
static lc_tensor *masked(lc_tensor *scores, lc_tensor *mask, lc_site site)
{
    if (!mask || lc_tensor_is_error(scores)) return scores;
    if (lc_tensor_dtype(mask) != LC_BOOL) return lc_add_at(scores, mask, site);
    return lc_masked_fill_at(scores, lc_logical_not_at(mask, site), -INFINITY, site);
}

/* Softmax in which a query that may attend to nothing has weights of 0. */
static lc_tensor *masked_softmax(lc_tensor *scores, lc_site site)
{
    if (lc_tensor_is_error(scores)) return scores;
    lc_tensor *none = lc_scalar_at(-INFINITY, lc_tensor_dtype(scores), site);
    lc_tensor *most = LC__CALL_AT(lc_amax, lc_reduce, (), site, .x = scores, .dims = LC_DIMS(-1), .keepdim = true);
    lc_tensor *blind = lc_eq_at(most, none, site);
    lc_tensor *weights = lc_softmax_at(lc_masked_fill_at(scores, blind, 0, site), -1, site);
    return lc_masked_fill_at(weights, blind, 0, site);
}

/* Attention with dropout of the weights, which the fused operator does not support. */
static lc_tensor *attend_with_dropout(lc_multihead_attention *l, lc_tensor *q, lc_tensor *k, lc_tensor *v,
                                      const lc_multihead_attention_forward_args *in, lc_site site)
{
    double scale = 1 / sqrt((double)(l->embed_dim / l->num_heads));
    lc_tensor *scores = lc_matmul_at(lc_mul_scalar_at(q, scale, site), lc_transpose_at(k, 2, 3, site), site);
    scores = masked(scores, in->attn_mask, site);
    if (in->causal && !lc_tensor_is_error(scores)) {
        int64_t shape[] = {lc_tensor_dim(scores, 2), lc_tensor_dim(scores, 3)};
        lc_tensor *minus = lc_full_at(-INFINITY, lc_tensor_dtype(scores), 2, shape, site);
        scores = lc_add_at(scores, lc_triu_at(minus, 1, site), site);
    }
    lc_tensor *weights = in->attn_mask ? masked_softmax(scores, site) : lc_softmax_at(scores, -1, site);
    return lc_matmul_at(lc_dropout_at(weights, l->dropout, site), v, site); /* [B,heads,S,T] x [B,heads,T,D] */
}

lc_tensor *lc_multihead_attention_forward_at(lc_multihead_attention *l,
                                             const lc_multihead_attention_forward_args *inputs, lc_site site)
{
    lc_multihead_attention_forward_args in = lc_multihead_attention_forward_defaults();
    LC_LAYER_TAKE(in, lc_multihead_attention_forward, inputs, "multihead_attention", site);
    LC_LAYER_FORWARD(l, "multihead_attention", "lc_multihead_attention_init", site);
    lc_tensor *key = in.key ? in.key : in.query, *value = in.value ? in.value : key;
    lc_tensor *query = in.query, *q, *k, *v;
    bool self_attention = key == query && value == query;
    if (l->seq_first) {
        query = lc_transpose_at(query, 0, 1, site);
        key = self_attention ? query : lc_transpose_at(key, 0, 1, site);
        value = self_attention ? query : lc_transpose_at(value, 0, 1, site);
    }
    if (self_attention) {
        lc_tensor *qkv = lc_linear_at(query, l->in_proj_weight, l->in_proj_bias, site); /* [B,S,3E] */
        if (lc_tensor_is_error(qkv)) return qkv;
        q = lc_slice_at(qkv, -1, 0, l->embed_dim, site);
        k = lc_slice_at(qkv, -1, l->embed_dim, l->embed_dim, site);
        v = lc_slice_at(qkv, -1, 2 * l->embed_dim, l->embed_dim, site);
    } else {
        q = project(l, query, 0, site);
        k = project(l, key, 1, site);
        v = project(l, value, 2, site);
    }
    if (lc_tensor_is_error(q)) return q;
    if (lc_tensor_is_error(k)) return k;
    if (lc_tensor_is_error(v)) return v;
    int64_t batch = lc_tensor_dim(q, 0), length = lc_tensor_dim(q, 1);
    q = split_heads(l, q, site);
    k = split_heads(l, k, site);
    v = split_heads(l, v, site);
    lc_tensor *y;
    if (l->base.training && l->dropout > 0) {
        y = attend_with_dropout(l, q, k, v, &in, site);
    } else {
        y = LC__CALL_AT(lc_sdpa, lc_sdpa, (q, k, ), site, .value = v, .mask = in.attn_mask, .causal = in.causal);
    }
    y = lc_permute_at(y, 4, (int64_t[]){0, 2, 1, 3}, site); /* [B,S,heads,E/heads] */
    y = lc_reshape_at(y, 3, (int64_t[]){batch, length, l->embed_dim}, site);
    y = lc_linear_forward_at(&l->out_proj, y, site);
    return l->seq_first ? lc_transpose_at(y, 0, 1, site) : y;
}

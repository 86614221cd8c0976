/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Embedding */
#include "nn/nn_internal.h"

#include "tensor/initial.h"

static lc_tensor *forward(lc_module *self, lc_tensor *ids, lc_site site)
{
    return lc_embedding_forward_at((lc_embedding *)self, ids, site);
}

void lc_embedding_init_with(lc_embedding *l, void *parent, const char *name, int64_t num_embeddings,
                            const lc_embedding_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_embedding_init, lc_embedding_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, "Embedding", forward);
    l->num_embeddings = num_embeddings;
    l->embedding_dim = o.embedding_dim;
    l->padding_idx = -1;
    if (num_embeddings < 1 || o.embedding_dim < 1) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "num_embeddings %lld and embedding_dim %lld must be positive",
                       (long long)num_embeddings, (long long)o.embedding_dim);
        return;
    }
    if (o.padding_idx != LC_UNSET) {
        l->padding_idx = o.padding_idx < 0 ? o.padding_idx + num_embeddings : o.padding_idx;
        if (l->padding_idx < 0 || l->padding_idx >= num_embeddings) {
            lc_module_fail(&l->base, LC_ERR_ARGUMENT, "padding_idx %lld is out of range for %lld embeddings",
                           (long long)o.padding_idx, (long long)num_embeddings);
            return;
        }
    }
    l->weight = lc_module_add_parameter(&l->base, "weight", o.dtype, LC_ROW_MAJOR, 2,
                                        (int64_t[]){num_embeddings, o.embedding_dim},
                                        (lc_init){.kind = LC_INIT_NORMAL, .a = 0, .b = 1});
    if (lc_tensor_is_error(l->weight) || l->padding_idx < 0) return;
    /* In PyTorch the padding row starts at zero. */
    lc_status status = lc__tensor_start_with_zeros(l->weight, l->padding_idx * o.embedding_dim, o.embedding_dim);
    if (status < 0) lc_module_fail(&l->base, status, "the padding row could not be set");
}

lc_tensor *lc_embedding_forward_at(lc_embedding *l, lc_tensor *ids, lc_site site)
{
    LC_LAYER_FORWARD(l, "embedding", "lc_embedding_init", site);
    lc_embedding_args a = lc_embedding_defaults();
    a.weight = l->weight;
    if (l->padding_idx >= 0) a.padding_idx = l->padding_idx;
    return lc_embedding_at(ids, &a, site); /* [..., D] */
}

/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.BatchNorm1d, BatchNorm2d, BatchNorm3d */
#include "nn/nn_internal.h"

static const char *const type_names[3] = {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d"};

static lc_tensor *forward(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_batch_norm_forward_at((lc_batch_norm_layer *)self, x, site);
}

/* Identified by its function: the type is only a name for messages, and other modules may use the same. */
lc_batch_norm_layer *lc__as_batch_norm(lc_module *m)
{
    return m->forward == forward ? (lc_batch_norm_layer *)m : NULL;
}

void lc_batch_norm_init_with(lc_batch_norm_layer *l, int nd, void *parent, const char *name,
                             const lc_batch_norm_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_batch_norm_init, lc_batch_norm_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, type_names[nd - 1], forward);
    l->nd = nd;
    l->num_features = o.num_features;
    l->eps = o.eps;
    l->momentum = o.momentum;
    if (o.num_features < 1) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "num_features %lld must be positive", (long long)o.num_features);
        return;
    }
    if (isnan(o.momentum)) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT,
                       "momentum must be a number; PyTorch's None, for a cumulative average, is not supported");
        return;
    }
    lc_init ones = {.kind = LC_INIT_ONES}, zeros = {.kind = LC_INIT_ZEROS};
    if (!o.no_affine) {
        l->weight = lc_module_add_parameter(&l->base, "weight", o.dtype, LC_ROW_MAJOR, 1, &o.num_features, ones);
        l->bias = lc_module_add_parameter(&l->base, "bias", o.dtype, LC_ROW_MAJOR, 1, &o.num_features, zeros);
    }
    if (o.no_track_running_stats) return;
    l->running_mean = lc_module_add_buffer(&l->base, "running_mean", o.dtype, 1, &o.num_features, zeros, true);
    l->running_var = lc_module_add_buffer(&l->base, "running_var", o.dtype, 1, &o.num_features, ones, true);
    l->num_batches_tracked = lc_module_add_buffer(&l->base, "num_batches_tracked", LC_I64, 0, NULL, zeros, true);
}

lc_tensor *lc_batch_norm_forward_at(lc_batch_norm_layer *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "batch_norm", "lc_batch_normNd_init", site);
    bool training = l->base.training, tracks = !(training && l->no_tracking);
    lc_batch_norm_args a = lc_batch_norm_defaults();
    a.bias = l->bias;
    a.running_mean = tracks ? l->running_mean : NULL;
    a.running_var = tracks ? l->running_var : NULL;
    a.training = training || !l->running_mean;
    a.momentum = l->momentum;
    a.eps = l->eps;
    a.comm = l->comm;
    if (training && tracks && l->num_batches_tracked) {
        lc_assign_at(l->num_batches_tracked, lc_add_scalar_at(l->num_batches_tracked, 1, site), site);
    }
    return lc_batch_norm_at(x, l->weight, &a, site);
}

int lc_sync_batch_norm(lc_module *root, lc_comm *comm)
{
    LC__IS(root, MODULE, 0);
    LC__IS_OR_NULL(comm, COMM, 0);
    lc_batch_norm_layer *l = lc__as_batch_norm(root);
    int n = l != NULL;
    if (l) l->comm = comm;
    for (int i = 0; i < root->n_children; i++) n += lc_sync_batch_norm(root->children[i], comm);
    return n;
}

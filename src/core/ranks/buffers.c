/* SPDX-License-Identifier: Apache-2.0 */
/* Sends rank 0's buffers (statistics of batch norm, and a module's own) to the other ranks. */
#include "core/ranks/ranks.h"
#include "nn/nn_internal.h"
#include "tensor/host_access.h"

static lc_status send_buffer(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    (void)path, (void)owner;
    if (mt->is_parameter) return LC_OK;
    lc_tensor *saved = lc__saved_tensor(t, mt->tensor);
    LC_TRY(lc__tensor_broadcast(mt->tensor, t->comm, 0));
    return saved ? lc__tensor_broadcast(saved, t->comm, 0) : LC_OK;
}

lc_status lc__buffers_from_rank_zero(lc_trainer *t)
{
    return t->comm && t->m ? lc_module_visit(t->m, send_buffer, t) : LC_OK;
}

/* A training step does not read the statistics of batch norm. */
static bool may_be_read(lc_module *owner, const lc_module_tensor *mt)
{
    return !mt->is_parameter && !lc__as_batch_norm(owner);
}

static lc_status find_read_buffer(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    (void)path;
    t->ranks->reads_buffers |= may_be_read(owner, mt);
    return LC_OK;
}

lc_status lc__read_buffers_setup(lc_trainer *t)
{
    t->ranks->reads_buffers = false;
    return t->comm ? lc_module_visit(t->m, find_read_buffer, t) : LC_OK;
}

static lc_status send_read_buffer(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc_trainer *t = ctx;
    (void)path;
    return may_be_read(owner, mt) ? lc__tensor_broadcast(mt->tensor, t->comm, 0) : LC_OK;
}

lc_status lc__read_buffers_from_rank_zero(lc_trainer *t)
{
    return t->ranks->reads_buffers ? lc_module_visit(t->m, send_read_buffer, t) : LC_OK;
}

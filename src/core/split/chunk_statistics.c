/* SPDX-License-Identifier: Apache-2.0 */
/* Running statistics of batch norm when a batch is cut into chunks (chunks.h). Every chunk starts from the values
 * before the batch, and the new values are the mean of the results of all chunks, weighted by samples; the differences
 * are added on the tree of the gradients. The result thus depends neither on the number of ranks nor on the order of
 * chunks. The statistics of a layer in eval mode, or one that is not called, do not change. */
#include "core/split/chunks.h"
#include "base/grow.h"

#include "nn/nn_internal.h"
#include "parallel/devices/devices.h"
#include "tensor/slice.h"

#include <lightc/ops_math.h>
#include <stdlib.h>
#include <string.h>

typedef struct statistic {
    lc_tensor *running; /* of the layer */
    bool is_mean;       /* false: a count */
    lc_tensor *before;  /* value before the batch */
    lc_tensor *moved;   /* only for means: sum of the chunks' differences */
    lc_tensor *held[LC__TREE_LEVELS];
} statistic;

struct lc__statistics {
    statistic *v;
    int n;
    int devices;
    char *packed; /* buffer, to reduce all statistics at once */
    size_t bytes;
};

/* Makes a tensor like `t`, with a replica for each device except the first. */
static lc_status like(const struct lc__statistics *all, const lc_tensor *t, lc_tensor **out)
{
    if (*out) return LC_OK;
    LC_TRY(lc__tensor_like(t, out));
    if (all->devices == 1) return LC_OK;
    lc_tensor **replicas = (*out)->replicas = calloc((size_t)all->devices, sizeof *replicas);
    if (!replicas) return lc_fail(LC_ERR_MEMORY, "out of memory: statistics of batch norm");
    for (int i = 1; i < all->devices; i++)
        LC_TRY(lc__tensor_like(t->replicas && t->replicas[i] ? t->replicas[i] : t, &replicas[i]));
    return LC_OK;
}

static void drop(const struct lc__statistics *all, lc_tensor *t)
{
    for (int i = 1; t && t->replicas && i < all->devices; i++) lc_tensor_unref(t->replicas[i]);
    if (t) free(t->replicas);
    if (t) t->replicas = NULL;
    lc_tensor_unref(t);
}

static lc_status add_statistic(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    lc__chunks *k = ctx;
    struct lc__statistics *all = k->statistics;
    (void)path;
    if (mt->is_parameter || !lc__as_batch_norm(owner)) return LC_OK;
    LC_TRY(lc__grow_one(&all->v, all->n, "statistics of batch norm"));
    statistic *s = &all->v[all->n++];
    *s = (statistic){.running = lc_tensor_ref(mt->tensor)};
    s->is_mean = lc_dtype_is_float(s->running->type.dtype);
    all->bytes += s->running->bytes;
    LC_TRY(like(all, s->running, &s->before));
    if (s->is_mean) LC_TRY(like(all, s->running, &s->moved));
    return lc__tree_allow(k->tree, s->running);
}

lc_status lc__statistics_new(lc__chunks *k, lc_module *m, int devices)
{
    k->statistics = calloc(1, sizeof *k->statistics);
    if (!k->statistics) return lc_fail(LC_ERR_MEMORY, "out of memory: statistics of batch norm");
    k->statistics->devices = devices;
    LC_TRY(lc_module_visit(m, add_statistic, k));
    k->statistics->packed = malloc(k->statistics->bytes + 1);
    return k->statistics->packed ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: statistics of batch norm");
}

void lc__statistics_free(lc__chunks *k)
{
    struct lc__statistics *all = k->statistics;
    for (int i = 0; all && i < all->n; i++) {
        statistic *s = &all->v[i];
        lc_tensor_unref(s->running);
        drop(all, s->before);
        drop(all, s->moved);
        for (int level = 0; level < LC__TREE_LEVELS; level++) drop(all, s->held[level]);
    }
    if (all) free(all->v);
    if (all) free(all->packed);
    free(all);
    k->statistics = NULL;
}

void lc__statistics_begin(lc__chunks *k)
{
    for (int i = 0; i < k->statistics->n; i++) {
        statistic *s = &k->statistics->v[i];
        lc_assign(s->before, s->running);
    }
}

/* Adds a chunk's difference on the tree; moved NULL: no chunk. */
static lc_status add(const struct lc__statistics *all, statistic *s, lc_tensor *moved, int64_t index, bool last)
{
    lc_tensor *in[2 + LC__TREE_LEVELS], *none[LC_MAX_OUTPUTS];
    int levels[LC__TREE_LEVELS], to, n = lc__tree_path(index, last, levels, &to);
    for (int i = 0; i < n; i++) in[2 + i] = s->held[levels[i]];
    if (to >= 0) LC_TRY(like(all, s->running, &s->held[to]));
    in[0] = to >= 0 ? s->held[to] : s->moved;
    in[1] = moved;
    lc_op_call_n(&lc__op_combine, 2 + n, in, 0, NULL, 0, NULL, none, LC_HERE);
    return LC_OK;
}

lc_status lc__statistics_chunk(lc__chunks *k)
{
    int64_t i = k->now->entered, last = k->now->n - 1;
    double weight = lc__chunk_weight(k);
    lc_status status = LC_OK;
    lc_no_grad_begin();
    for (int j = 0; j < k->statistics->n && status >= 0; j++) {
        statistic *s = &k->statistics->v[j];
        if (s->is_mean)
            status = add(k->statistics, s, lc_mul_scalar(lc_sub(s->running, s->before), weight), i, i == last);
        if (s->is_mean || i < last) lc_assign(s->running, s->before);
    }
    lc_no_grad_end();
    return status;
}

lc_status lc__statistics_no_chunk(lc__chunks *k)
{
    for (int i = 0; i < k->statistics->n; i++)
        if (k->statistics->v[i].is_mean) LC_TRY(add(k->statistics, &k->statistics->v[i], NULL, 0, true));
    return LC_OK;
}

/* Combines the statistics of one data type over all ranks: means are added; the largest count is taken, since a rank
 * without a chunk has not counted. */
static lc_status reduce(const struct lc__statistics *all, lc_comm *comm, lc_dtype dtype)
{
    size_t n = 0;
    for (int back = 0; back < 2; back++) {
        if (back && n) {
            LC_TRY(lc_comm_all_reduce(comm, all->packed, all->packed, (int64_t)(n / lc_dtype_size(dtype)), dtype,
                                      lc_dtype_is_float(dtype) ? LC_COMM_SUM : LC_COMM_MAX, NULL));
            n = 0;
        }
        for (int i = 0; i < all->n; i++) {
            lc_tensor *t = all->v[i].is_mean ? all->v[i].moved : all->v[i].running;
            if (t->type.dtype != dtype) continue;
            lc_view v;
            lc__access access = back ? LC__WRITE : LC__READ;
            LC_TRY(lc__tensor_map(t, access, &v));
            memcpy(back ? v.data : all->packed + n, back ? all->packed + n : v.data, t->bytes);
            lc__tensor_unmap(t, access);
            n += t->bytes;
        }
    }
    return LC_OK;
}

/* Sums over the devices that had chunks, into the tensor of the first. */
static lc_status add_up(lc_tensor *moved, int parts)
{
    const void *list[LC__MAX_DEVICES];
    lc_view sum, one;
    lc_status status = LC_OK;
    int n = 1;
    if (parts <= 1) return LC_OK;
    LC_TRY(lc__tensor_map(moved, LC__READ_WRITE, &sum));
    list[0] = sum.data;
    for (; n < parts; n++) {
        LC_TRY_GOTO(status, done, lc__tensor_map(moved->replicas[n], LC__READ, &one));
        list[n] = one.data;
    }
    lc_comm_combine(sum.dtype, LC_COMM_SUM, parts, list, sum.data, lc_tensor_numel(moved));
done:
    while (--n > 0) lc__tensor_unmap(moved->replicas[n], LC__READ);
    lc__tensor_unmap(moved, LC__READ_WRITE);
    return status;
}

lc_status lc__statistics_end(lc__chunks *k, lc_comm *comm, int parts, double chunks)
{
    static const lc_dtype dtypes[] = {LC_F32, LC_F64, LC_I64};
    for (int i = 0; i < k->statistics->n; i++)
        if (k->statistics->v[i].is_mean) LC_TRY(add_up(k->statistics->v[i].moved, parts));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && comm; i++) LC_TRY(reduce(k->statistics, comm, dtypes[i]));
    lc_no_grad_begin();
    for (int i = 0; i < k->statistics->n; i++) {
        statistic *s = &k->statistics->v[i];
        if (s->is_mean) lc_assign(s->running, lc_add(s->running, lc_mul_scalar(s->moved, 1 / chunks)));
    }
    lc_no_grad_end();
    return LC_OK;
}

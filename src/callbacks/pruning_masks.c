/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights are pruned next. As in torch.nn.utils.prune, an amount is a fraction of the remaining weights, not of
 * all. */
#include "callbacks/pruning_masks.h"

#include <math.h>
#include <stdlib.h>

#include <lightc/random.h>

typedef struct ranked {
    double score;
    int64_t index;
} ranked;

static int compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static lc_status how_many(lc__prune_amount amount, int64_t left, int64_t *n)
{
    *n = amount.count > 0 ? amount.count : (int64_t)nearbyint(amount.part * (double)left);
    if (*n <= left) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "amount_count is %lld, but only %lld are left to prune; use a smaller one, or end the pruning with "
                   "apply_pruning",
                   (long long)*n, (long long)left);
}

lc_status lc__prune_least(const double *score, float *mask, int64_t n, lc__prune_amount amount)
{
    int64_t left = 0, k = 0;
    ranked *r = malloc((size_t)(n + 1) * sizeof *r);
    if (!r) return lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    for (int64_t i = 0; i < n; i++)
        if (mask[i] != 0) r[left++] = (ranked){score[i], i};
    qsort(r, (size_t)left, sizeof *r, compare);
    lc_status s = how_many(amount, left, &k);
    for (int64_t i = 0; s >= 0 && i < k; i++) mask[r[i].index] = 0;
    free(r);
    return s;
}

lc_status lc__prune_channels(const double *values, float *mask, const lc_type *type, int dim, double p, uint64_t key,
                             lc__prune_amount amount)
{
    int64_t channels = type->shape[dim], inner = 1, outer = 1;
    for (int d = 0; d < dim; d++) outer *= type->shape[d];
    for (int d = dim + 1; d < type->ndim; d++) inner *= type->shape[d];
    double *score = calloc((size_t)channels + 1, sizeof *score);
    float *open = calloc((size_t)channels + 1, sizeof *open);
    lc_status status = score && open ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: ModelPruning");
    for (int64_t c = 0; c < channels && status >= 0; c++) {
        double sum = 0, most = 0;
        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (o * channels + c) * inner + i;
                double v = fabs(values[at]);
                if (mask[at] != 0) open[c] = 1;
                sum += p == 2 ? v * v : p == 1 ? v : isfinite(p) && v > 0 ? pow(v, p) : 0;
                most = v > most ? v : most;
            }
        score[c] = isnan(p) ? lc_random_uniform(key, (uint64_t)c) : isinf(p) ? most : pow(sum, 1 / p);
    }
    if (status >= 0) status = lc__prune_least(score, open, channels, amount);
    for (int64_t at = 0; status >= 0 && at < outer * channels * inner; at++)
        if (open[at / inner % channels] == 0) mask[at] = 0;
    free(score);
    free(open);
    return status;
}

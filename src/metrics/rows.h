/* SPDX-License-Identifier: Apache-2.0 */
/* A growing table of doubles: the state of metrics that need every sample (curves, ranks). */
#ifndef LC_METRICS_ROWS_H
#define LC_METRICS_ROWS_H

#include "base/grow.h"
#include "metrics_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct rows {
    int64_t width, n, room; /* room: of numbers */
    double *data;
} rows;

/* Makes room for `more` rows after the current n, from *to on: NULL if there is no row, and none is needed. */
static inline lc_status rows_grow(rows *r, int64_t more, const char *name, double **to)
{
    int64_t cells = 0;
    *to = NULL;
    if (__builtin_mul_overflow(more, r->width, &cells)) cells = INT64_MAX; /* too large to allocate */
    if (lc__grow(&r->data, &r->room, r->n * r->width, cells, "the samples of a metric") < 0)
        return lc_fail(LC_ERR_MEMORY, "%s: out of memory for %lld more samples", name, (long long)more);
    if (r->data) *to = r->data + r->n * r->width;
    return LC_OK;
}

static inline lc_status rows_save(const rows *r, const char *name, double *data, int64_t *n)
{
    LC_TRY(lc__metric_room(name, data, n, r->n * r->width));
    if (data && r->n) memcpy(data, r->data, (size_t)*n * sizeof *data);
    return LC_OK;
}

static inline lc_status rows_merge(rows *r, const char *name, const double *data, int64_t n)
{
    if (n < 0 || n % r->width)
        return lc_fail(LC_ERR_STATE, "%s: a state of %lld numbers does not divide into rows of %lld", name,
                       (long long)n, (long long)r->width);
    double *to;
    LC_TRY(rows_grow(r, n / r->width, name, &to));
    if (n) memcpy(to, data, (size_t)n * sizeof *data);
    r->n += n / r->width;
    return LC_OK;
}

#endif

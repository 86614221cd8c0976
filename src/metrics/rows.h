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

/* Makes room for `more` rows after the current n; NULL with an error message set. */
static inline double *rows_grow(rows *r, int64_t more, const char *name)
{
    int64_t cells = 0;
    if (__builtin_mul_overflow(more, r->width, &cells)) cells = INT64_MAX; /* too large to allocate */
    bool room = lc__grow(&r->data, &r->room, r->n * r->width, cells, "the samples of a metric") == LC_OK;
    if (!room) (void)lc_fail(LC_ERR_MEMORY, "%s: out of memory for %lld more samples", name, (long long)more);
    return room ? r->data + r->n * r->width : NULL;
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
    double *to = rows_grow(r, n / r->width, name);
    if (!to) return LC_ERR_MEMORY;
    if (n) memcpy(to, data, (size_t)n * sizeof *data);
    r->n += n / r->width;
    return LC_OK;
}

#endif

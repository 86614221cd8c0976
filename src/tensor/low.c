/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/low.h"

#include <stdlib.h>

static lc_tensor *storage_of(lc_tensor *t)
{
    while (t->base) t = t->base;
    return t;
}

uint64_t *lc__tensor_writes(lc_tensor *t)
{
    return storage_of(t)->writes;
}

void lc__tensor_written(lc_tensor *t)
{
    uint64_t *writes = lc__tensor_writes(t);
    for (int kind = 0; kind < LC__LOW_KINDS; kind++) __atomic_fetch_add(&writes[kind], 1, __ATOMIC_RELAXED);
}

static struct lc__low_origin value_of(lc_tensor *parameter, int kind)
{
    const uint64_t *writes = &lc__tensor_writes(parameter)[kind];
    return (struct lc__low_origin){parameter->id, __atomic_load_n(writes, __ATOMIC_RELAXED)};
}

bool lc__low_is_current(const lc_flat *flat, int k, int kind)
{
    const struct lc__low_origin now = value_of(flat->parameters[k], kind), from = flat->low[kind]->from[k];
    return now.id == from.id && now.writes == from.writes;
}

/* The planner times kernels with other memory. */
static bool is_copy(const lc_flat *flat, int k, int kind, const void *at)
{
    return at == flat->low[kind]->copies[k]->device_data;
}

bool lc__low_is_old(const lc_flat *flat, int k, int kind, const void *at)
{
    return !is_copy(flat, k, kind, at) || !lc__low_is_current(flat, k, kind);
}

void lc__low_made(const lc_flat *flat, int k, int kind, const void *at)
{
    if (is_copy(flat, k, kind, at)) flat->low[kind]->from[k] = value_of(flat->parameters[k], kind);
}

int64_t lc__low_bytes(const lc_flat *flat)
{
    int64_t bytes = 0;
    for (int kind = 0; kind < LC__LOW_KINDS; kind++)
        for (int k = 0; flat->low[kind] && k < flat->n; k++) {
            const lc_tensor *copy = flat->low[kind]->copies[k];
            bytes += copy ? (int64_t)copy->bytes : 0;
        }
    return bytes;
}

static lc_status make(lc_flat *flat, lc_dtype dtype, lc__low **out)
{
    lc__low *low = *out = calloc(1, sizeof *low);
    if (!low) return lc_fail(LC_ERR_MEMORY, "out of memory: the low copies of %d parameters", flat->n);
    low->copies = calloc((size_t)flat->n, sizeof(lc_tensor *));
    low->from = calloc((size_t)flat->n, sizeof *low->from);
    if (!low->copies || !low->from)
        return lc_fail(LC_ERR_MEMORY, "out of memory: the low copies of %d parameters", flat->n);
    const lc_type type = {.dtype = dtype, .ndim = 1, .shape = {flat->count}};
    return lc__tensor_reserve_on(flat->parameter->on, &type, LC_ROW_MAJOR, &low->all);
}

static void drop(lc__low *low, int n)
{
    for (int k = 0; low && low->copies && k < n; k++) lc_tensor_unref(low->copies[k]);
    if (!low) return;
    lc_tensor_unref(low->all);
    free(low->copies);
    free(low->from);
    free(low);
}

void lc__low_free(lc_flat *flat)
{
    for (int kind = 0; kind < LC__LOW_KINDS; kind++) {
        drop(flat->low[kind], flat->n);
        flat->low[kind] = NULL;
    }
}

lc_status lc__low_copy(lc_flat *flat, int k, lc_dtype dtype, lc_tensor **out)
{
    lc__low **low = &flat->low[lc__low_kind(dtype)];
    lc_status status = *low ? LC_OK : make(flat, dtype, low);
    if (status < 0) {
        drop(*low, flat->n);
        *low = NULL;
        return status;
    }
    *out = (*low)->copies[k];
    if (*out) return LC_OK;
    const lc_tensor *p = flat->parameters[k];
    lc_type type = p->type;
    type.dtype = dtype;
    LC_TRY(lc__tensor_range((*low)->all, (size_t)flat->offset[k] * lc_dtype_size(dtype), &type, p->layout, out));
    (*low)->copies[k] = *out;
    flat->n_low++;
    return LC_OK;
}

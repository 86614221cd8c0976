/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting flat buffers into units and slices, and making them whole again. */
#include "parallel/shard/shard.h"

#include "comm/agree.h"
#include "tensor/host_access.h"
#include "tensor/initial.h"
#include "tensor/low.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN_BYTES 256 /* as in flat.c */

static int64_t up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Makes units for `size` ranks; offset[i] becomes that of parameter i in the new buffers, *count their elements. */
static lc_status make_units(const lc_flat *flat, lc__sharding *s, size_t unit_bytes, int64_t *offset, int64_t *count)
{
    size_t width = lc_dtype_size(flat->parameter->type.dtype); /* gradients may be wider */
    int64_t align = (int64_t)(ALIGN_BYTES / width);
    s->units = calloc((size_t)flat->n, sizeof *s->units);
    if (!s->units) return lc_fail(LC_ERR_MEMORY, "out of memory: the slices of %d parameters", flat->n);
    *count = 0;
    for (int i = 0; i < flat->n;) {
        lc__unit *u = &s->units[s->n_units++];
        int64_t at = 0;
        *u = (lc__unit){.first = i, .offset = *count, .at = s->count};
        for (; i < flat->n && (size_t)at * width < unit_bytes; i++, u->n++) {
            int64_t n = flat->parameters[i] ? lc__numel(&flat->parameters[i]->type) : 0;
            offset[i] = u->offset + at;
            u->count = at + n;
            at += up(n, align);
        }
        u->slice = up((u->count + s->size - 1) / s->size, align);
        *count += u->slice * s->size;
        s->count += u->slice;
    }
    return LC_OK;
}

static void cut_parameter(lc_flat *flat, int i, const lc__unit *u)
{
    const lc__sharding *s = flat->sharding;
    lc_tensor *p = flat->parameters[i];
    int64_t at, count = lc__slice_of(s, u, flat->offset[i], lc__numel(&p->type), &at);
    int64_t begin = count ? u->offset + s->rank * u->slice + at - flat->offset[i] : 0;
    lc__tensor_cut(p, s->parameter, u->at + at, s, begin, count);
}

/* The ranks of `replicas` have initialized their slice independently, or got it from a rank of their copy: all take the
 * first rank's. */
static lc_status share_slices(const lc__sharding *s, lc_comm *replicas)
{
    if (!replicas || !s->parameter) return LC_OK;
    return lc__tensor_broadcast(s->parameter, replicas, 0);
}

lc_status lc__flat_shard(lc_flat *flat, lc_comm *comm, lc_comm *replicas, int stage, size_t unit_bytes,
                         const void *owner)
{
    lc_dtype dtype = flat->parameter->type.dtype, of_gradient = flat->gradient->type.dtype;
    lc_status status = LC_OK;
    lc_tensor *whole = NULL;
    int64_t count = 0;
    const lc__sharding *before = flat->sharding;
    if (before && before->parameter && stage == 3 && before->comm == comm && before->unit_bytes == unit_bytes) {
        flat->sharding->owner = owner;
        return LC_OK;
    }
    if (flat->sharding) {
        LC_TRY(lc__flat_gather(flat));
        LC_TRY(lc__flat_forget_sharding(flat));
    }
    lc__sharding *s = calloc(1, sizeof *s);
    int64_t *offset = calloc((size_t)flat->n, sizeof *offset);
    if (!s || !offset) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: slices"));
    *s = (lc__sharding){.stage = stage,
                        .comm = comm,
                        .unit_bytes = unit_bytes,
                        .owner = owner,
                        .rank = lc_comm_rank(comm),
                        .size = lc_comm_size(comm),
                        .replica = replicas ? lc_comm_rank(replicas) : 0,
                        .replicas = replicas ? lc_comm_size(replicas) : 1};
    LC_TRY_GOTO(status, done, make_units(flat, s, unit_bytes, offset, &count));
    if (stage >= 2) LC_TRY_GOTO(status, done, lc_tensor_new(of_gradient, 1, &s->count, &s->gradient));
    if (stage >= 3) LC_TRY_GOTO(status, done, lc_tensor_new(dtype, 1, &s->count, &s->parameter));
    if (stage >= 3)
        LC_TRY_GOTO(status, done, lc__flat_nowhere(s->parameter, count, s, &whole));
    else
        LC_TRY_GOTO(status, done, lc_tensor_new(dtype, 1, &count, &whole));
    /* From here on until the parameters have moved nothing can fail. */
    lc__low_free(flat);
    memcpy(flat->offset, offset, (size_t)flat->n * sizeof *offset);
    flat->count = count;
    flat->sharding = s;
    for (int k = 0; k < s->n_units; k++)
        for (int i = s->units[k].first; i < s->units[k].first + s->units[k].n; i++) {
            lc_tensor *p = flat->parameters[i];
            if (!p) continue;
            if (stage >= 3)
                cut_parameter(flat, i, &s->units[k]);
            else
                lc__tensor_move(p, whole, (size_t)flat->offset[i] * lc_dtype_size(dtype));
        }
    lc__flat_set_whole(flat, whole);
    s = NULL;
    whole = NULL;
    status = lc__flat_make_gradients(flat);
    for (int i = 0; i < flat->n && status >= 0 && stage >= 3; i++)
        if (flat->parameters[i]) status = lc__tensor_fill(flat->parameters[i]);
    if (status >= 0) status = share_slices(flat->sharding, replicas);
done:
    lc_tensor_unref(whole);
    lc__sharding_free(s);
    free(offset);
    return status;
}

/* Gathers the slices of all ranks into a whole buffer. `mine`: this rank's error, if it has no buffer; the ranks first
 * agree that all can take part, since the others would wait for one that cannot. */
static lc_status gather_units(const lc__sharding *s, lc_status mine, lc_tensor *whole)
{
    lc_view from, to;
    if (mine >= 0) mine = lc__tensor_map(s->parameter, LC__READ, &from);
    bool mapped = mine >= 0;
    if (mapped) mine = lc__tensor_map(whole, LC__WRITE, &to);
    lc_status status = lc__ranks_agree(s->comm, mine);
    for (int k = 0; k < s->n_units && status >= 0; k++) {
        const lc__unit *u = &s->units[k];
        size_t width = lc_dtype_size(to.dtype);
        status = lc_comm_all_gather(s->comm, (char *)from.data + (size_t)u->at * width,
                                    (char *)to.data + (size_t)u->offset * width, u->slice, to.dtype, NULL);
    }
    if (mine >= 0) lc__tensor_unmap(whole, LC__WRITE);
    if (mapped) lc__tensor_unmap(s->parameter, LC__READ);
    return status;
}

lc_status lc__flat_gather(lc_flat *flat)
{
    lc__sharding *s = flat->sharding;
    lc_tensor *whole = NULL;
    if (!s || !s->parameter) return LC_OK;
    lc_status status = lc_tensor_new(flat->parameter->type.dtype, 1, &flat->count, &whole);
    status = gather_units(s, status, whole);
    if (status < 0) {
        lc_tensor_unref(whole);
        return status;
    }
    for (int i = 0; i < flat->n; i++)
        if (flat->parameters[i]) lc__tensor_place(flat->parameters[i], whole, flat->offset[i]);
    lc__flat_set_whole(flat, whole);
    lc_tensor_unref(s->parameter);
    s->parameter = NULL;
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of the gradients that several devices have computed: each adds one piece of it. */
#include "parallel/devices/devices_impl.h"

#include <lightc/comm.h>

/* Where device i's gradients are added; i n: the host's. */
static char *gradients_at(const lc__devices *d, const lc__shared_flat *f, int i)
{
    if (i < d->n && !f->of[i]) i = d->n;
    const lc_flat *flat = i < d->n ? f->of[i] : f->host;
    return lc__staging_at(&f->copies[i], 0, flat->gradient->device_data);
}

/* Lists the gradients of a parameter, for lc_comm_combine. On a tree every device has one, possibly an absent one, and
 * the host's is not part of the sum. */
static int sources_of(const lc__devices *d, const lc__shared_flat *f, int parameter, const void **list)
{
    int n = 0;
    const lc_tensor *p = f->host->parameters[parameter];
    for (int i = 0; i < d->parts && d->tree && p && p->requires_grad; i++) list[n++] = gradients_at(d, f, i);
    if (d->tree) return n;
    if (f->host->has_gradient[parameter]) list[n++] = gradients_at(d, f, d->n);
    for (int i = 0; i < d->parts; i++)
        if (f->of[i] && f->of[i]->has_gradient[parameter]) list[n++] = gradients_at(d, f, i);
    return n;
}

/* A copy that fails is reported by the device's next call. */
static void read_flat(const lc_flat *flat, lc__staging *to)
{
    const lc_tensor *g = flat->gradient;
    (void)!lc__staging_read(to, g->on, 0, g->device_data, g->bytes);
}

void lc__devices_read_gradients(const lc__devices *d, int i)
{
    for (int k = 0; k < d->n_flats; k++) {
        const lc__shared_flat *f = &d->flats[k];
        if (f->of[i]) read_flat(f->of[i], &f->copies[i]);
        if (i == 0) read_flat(f->host, &f->copies[d->n]);
    }
}

static void write_piece(const lc__devices *d, const lc__shared_flat *f, size_t from, size_t bytes)
{
    const lc_tensor *g = f->host->gradient;
    (void)!lc__staging_write(&f->copies[d->n], g->on, from, (char *)g->device_data + from, bytes);
}

/* Each of the `parts` members reduces one piece of the flat buffer; `member` is this one. */
static void reduce_flat(lc__devices *d, const lc__shared_flat *f, int member)
{
    const lc_flat *host = f->host;
    lc_dtype dtype = host->gradient->type.dtype;
    size_t width = lc_dtype_size(dtype);
    const void **list = d->sources + (size_t)member * (size_t)(d->n + 1);
    char *sums = gradients_at(d, f, d->n);
    int64_t piece = (host->count / d->parts + 63) & ~(int64_t)63;
    int64_t begin = piece * member, end = begin + piece;
    if (member == d->parts - 1 || end > host->count) end = host->count;
    if (begin >= end) return;
    for (int p = 0; p < host->n; p++) {
        int64_t from = host->offset[p], to = p + 1 < host->n ? host->offset[p + 1] : host->count;
        if (from < begin) from = begin;
        if (to > end) to = end;
        if (from >= to) continue;
        int n = sources_of(d, f, p, list);
        if (n == 0 || (n == 1 && list[0] == sums)) continue;
        for (int k = 0; k < n; k++) list[k] = (const char *)list[k] + (size_t)from * width;
        lc_comm_combine(dtype, LC_COMM_SUM, n, list, sums + (size_t)from * width, to - from);
    }
    write_piece(d, f, (size_t)begin * width, (size_t)(end - begin) * width);
}

static void reduce(void *ctx, int member)
{
    lc__devices *d = ctx;
    for (int k = 0; k < d->n_flats; k++) reduce_flat(d, &d->flats[k], member);
}

static void note_gradients(lc__devices *d)
{
    for (int k = 0; k < d->n_flats; k++)
        for (int i = 0; i < d->parts; i++)
            for (int p = 0; d->flats[k].of[i] && p < d->flats[k].host->n; p++)
                d->flats[k].host->has_gradient[p] |= d->flats[k].of[i]->has_gradient[p];
}

void lc__devices_reduce(lc__devices *d)
{
    lc__team_run(d->team, d->parts, reduce, d);
    note_gradients(d);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "data/batch_slice.h"

#include "base/status.h"
#include "tensor/host_access.h"
#include "tensor/tensor_impl.h"

#include <lightc/data.h>
#include <lightc/ops_math.h>

#include <stdlib.h>
#include <string.h>

/* ---- shares ---- */

int64_t lc__batch_samples(const lc_batch *b)
{
    return b->global_size > 0 ? b->global_size : b->size;
}

static void look_at_parts(const lc_batch *b, int64_t *divisor, int64_t *least)
{
    for (int i = 0; i < b->n_parts; i++)
        if (b->parts[i]) look_at_parts(b->parts[i], divisor, least);
    if (b->n_parts) return;
    int64_t n = lc__batch_samples(b), rest = *divisor;
    if (*least < 0 || n < *least) *least = n;
    for (*divisor = n; rest;) {
        int64_t next = *divisor % rest;
        *divisor = rest;
        rest = next;
    }
}

int64_t lc__batch_least(const lc_batch *b)
{
    int64_t divisor = 0, least = -1;
    look_at_parts(b, &divisor, &least);
    return least;
}

int64_t lc__batch_units(const lc_batch *b, int64_t shares)
{
    int64_t divisor = 0, least = -1;
    look_at_parts(b, &divisor, &least);
    return divisor >= shares || least < shares ? divisor : 0;
}

void lc__batch_share(int64_t samples, int64_t units, int64_t share, int64_t shares, int64_t *begin, int64_t *n)
{
    const lc_share s = {.rank = (int)share, .size = (int)shares};
    int64_t each = units > 0 ? samples / units : 1;
    lc_share_range(&s, samples / each, samples / each, begin, n);
    *begin *= each;
    *n *= each;
}

/* ---- slices ---- */

/* An input tensor over samples [begin, begin + n) of x; reuses *have if it fits. */
static lc_status cut_input(lc_tensor **have, lc_tensor *x, int64_t begin, int64_t n)
{
    const lc_type *type = &x->type;
    size_t row = lc_dtype_size(type->dtype);
    for (int d = 1; d < type->ndim; d++) row *= (size_t)type->shape[d];
    void *data = (char *)lc__tensor_address(x) + (size_t)begin * row;
    lc_type want = *type;
    want.shape[0] = *have ? (*have)->type.shape[0] : 0;
    if (!*have || (*have)->layout != x->layout || !lc__type_equal(&(*have)->type, &want)) {
        lc_tensor_unref(*have);
        *have = NULL;
        want.shape[0] = n;
        LC_TRY(lc_input_new(type->dtype, type->ndim, want.shape, x->layout, data, have));
    }
    lc_input_set(*have, data, n);
    (*have)->pin = x->pin;
    return LC_OK;
}

static lc_status cut_tensor(lc_tensor **have, const lc_batch *b, lc_tensor *x, int64_t begin, int64_t n,
                            lc_tensor **out)
{
    *out = x;
    if (!x || lc_tensor_ndim(x) == 0 || lc_tensor_dim(x, 0) != b->size) return LC_OK;
    if (x->kind == LC_TENSOR_INPUT) {
        LC_TRY(cut_input(have, x, begin, n));
        *out = *have;
        return LC_OK;
    }
    *out = lc_slice(x, 0, begin, n);
    return lc_tensor_is_error(*out) ? LC_ERR_STATE : LC_OK; /* lc_slice has set the message */
}

/* x and y are two of the tensors, unless a hook has replaced only x or y. */
static lc_status cut_named(lc__batch_slice *s, int which, const lc_batch *b, lc_tensor *x, int64_t begin, int64_t n,
                           lc_tensor **out)
{
    for (int i = 0; i < b->n; i++)
        if (x && b->tensors[i] == x) {
            *out = s->batch.tensors[i];
            return LC_OK;
        }
    return cut_tensor(&s->inputs[LC_MAX_BATCH_TENSORS + which], b, x, begin, n, out);
}

static lc_status cut_tensors(lc__batch_slice *s, const lc_batch *b, int64_t begin, int64_t n)
{
    if (begin < 0 || n < 0 || begin > b->size - n)
        return lc_fail(LC_ERR_ARGUMENT, "samples [%lld, %lld) are not in a batch of %lld", (long long)begin,
                       (long long)(begin + n), (long long)b->size);
    s->batch = *b;
    for (int i = 0; i < b->n; i++) LC_TRY(cut_tensor(&s->inputs[i], b, b->tensors[i], begin, n, &s->batch.tensors[i]));
    LC_TRY(cut_named(s, 0, b, b->x, begin, n, &s->batch.x));
    LC_TRY(cut_named(s, 1, b, b->y, begin, n, &s->batch.y));
    s->batch.size = n;
    s->batch.indices = b->indices ? b->indices + begin : NULL;
    s->batch.global_offset = b->global_offset + begin;
    s->batch.first = b->first + begin;
    return LC_OK;
}

static lc_status grow(lc__batch_slice *s, int n)
{
    if (n <= s->n_parts) return LC_OK;
    lc__batch_slice *parts = realloc(s->parts, (size_t)n * sizeof *parts);
    if (parts) s->parts = parts;
    const lc_batch **batches = realloc(s->part_batches, (size_t)n * sizeof *batches);
    if (batches) s->part_batches = batches;
    if (!parts || !batches) return lc_fail(LC_ERR_MEMORY, "out of memory: a slice of a batch of %d parts", n);
    memset(parts + s->n_parts, 0, (size_t)(n - s->n_parts) * sizeof *parts);
    s->n_parts = n;
    return LC_OK;
}

/* The position of sample `at` of the batch in one of its parts. */
static int64_t place_in(const lc_batch *b, const lc_batch *part, int64_t at)
{
    if (at <= 0 || at >= b->size) return at <= 0 ? 0 : part->size;
    if (b->global_size < 1 || part->global_size < 1) return at * part->size / b->size;
    int64_t place = (b->global_offset + at) * part->global_size / b->global_size - part->global_offset;
    return place < 0 ? 0 : place > part->size ? part->size : place;
}

/* The fields above the parts mirror the first non-NULL part. */
static void join_parts(lc__batch_slice *s, const lc_batch *b, const lc_batch **out)
{
    for (int i = b->n_parts - 1; i >= 0; i--)
        if (s->part_batches[i]) s->batch = *s->part_batches[i];
    s->batch.n_parts = b->n_parts;
    s->batch.parts = s->part_batches;
    *out = &s->batch;
}

lc_status lc__batch_cut(lc__batch_slice *s, const lc_batch *b, int64_t begin, int64_t n, const lc_batch **out)
{
    *out = NULL;
    if (!b->n_parts) {
        LC_TRY(cut_tensors(s, b, begin, n));
        *out = &s->batch;
        return LC_OK;
    }
    LC_TRY(grow(s, b->n_parts));
    for (int i = 0; i < b->n_parts; i++) {
        s->part_batches[i] = NULL;
        if (!b->parts[i]) continue;
        int64_t from = place_in(b, b->parts[i], begin), to = place_in(b, b->parts[i], begin + n);
        LC_TRY(lc__batch_cut(&s->parts[i], b->parts[i], from, to - from, &s->part_batches[i]));
    }
    join_parts(s, b, out);
    return LC_OK;
}

lc_status lc__batch_cut_share(lc__batch_slice *s, const lc_batch *b, int64_t units, int64_t share, int64_t shares,
                              const lc_batch **out)
{
    int64_t begin, n;
    *out = NULL;
    if (!b->n_parts) {
        lc__batch_share(b->size, units, share, shares, &begin, &n);
        return lc__batch_cut(s, b, begin, n, out);
    }
    LC_TRY(grow(s, b->n_parts));
    for (int i = 0; i < b->n_parts; i++) {
        s->part_batches[i] = NULL;
        if (!b->parts[i]) continue;
        LC_TRY(lc__batch_cut_share(&s->parts[i], b->parts[i], units, share, shares, &s->part_batches[i]));
    }
    join_parts(s, b, out);
    return LC_OK;
}

void lc__batch_slice_release(lc__batch_slice *s)
{
    for (int i = 0; i < LC_MAX_BATCH_TENSORS + 2; i++) lc_tensor_unref(s->inputs[i]);
    for (int i = 0; i < s->n_parts; i++) lc__batch_slice_release(&s->parts[i]);
    free(s->parts);
    free(s->part_batches);
    *s = (lc__batch_slice){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets made of others: subset, split, concat. They translate indices and pass keys on unchanged. */
#include "data_internal.h"
#include "base/handle.h"
#include "tensor/tensor_impl.h"

#include <stdlib.h>
#include <string.h>

/* Indices are translated in pieces on the stack, so that a gather allocates nothing. */
#define PIECE 256

/* ---- subset ---- */

typedef struct subset {
    lc_dataset *parent;
    int64_t length;
    int64_t indices[];
} subset;

static int64_t subset_length(void *self)
{
    return ((subset *)self)->length;
}

static lc_status subset_describe(void *self, lc_sample_spec *spec)
{
    *spec = ((subset *)self)->parent->spec;
    return LC_OK;
}

static lc_status subset_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    subset *s = self;
    return lc_dataset_get(s->parent, s->indices[index], key, out, scratch);
}

static lc_status subset_get_many(void *self, int n, const int64_t *indices, const uint64_t *keys, void *const *out,
                                 void *scratch)
{
    subset *s = self;
    int64_t piece[PIECE];
    for (int at = 0; at < n; at += PIECE) {
        int k = n - at < PIECE ? n - at : PIECE;
        void *to[LC_MAX_BATCH_TENSORS];
        for (int f = 0; f < s->parent->spec.n; f++) to[f] = (char *)out[f] + (size_t)at * s->parent->bytes[f];
        for (int j = 0; j < k; j++) piece[j] = s->indices[indices[at + j]];
        LC_TRY(lc_dataset_get_many(s->parent, k, piece, keys + at, to, scratch));
    }
    return LC_OK;
}

static size_t subset_scratch(void *self)
{
    return ((subset *)self)->parent->scratch;
}

static const char *subset_replaced(void *self, int64_t index)
{
    const subset *s = self;
    return lc_dataset_replaced(s->parent, s->indices[index]);
}

static void subset_times(void *self, lc_loader_times *add)
{
    lc__dataset_times(((subset *)self)->parent, add);
}

static const char *subset_source(void *self, int64_t index)
{
    const subset *s = self;
    return lc__dataset_source(s->parent, s->indices[index]);
}

static lc_status subset_sizes(void *self, int64_t index, int field, int64_t *sizes)
{
    subset *s = self;
    return lc_dataset_sizes(s->parent, s->indices[index], field, sizes);
}

static void subset_free(void *self)
{
    lc_dataset_unref(((subset *)self)->parent);
    free(self);
}

static const lc_dataset_ops subset_ops = {
    LC_DATASET_OPS_INIT,
    .name = "subset",
    .length = subset_length,
    .describe = subset_describe,
    .get = subset_get,
    .get_many = subset_get_many,
    .scratch_size = subset_scratch,
    .free = subset_free,
    .replaced = subset_replaced,
    .sizes = subset_sizes,
    .times = subset_times,
    .source = subset_source,
};

lc_status lc_dataset_subset(lc_dataset *d, const int64_t *indices, int64_t n, lc_dataset **out)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(indices, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    size_t bytes;
    if (n < 0) return lc_fail(LC_ERR_ARGUMENT, "a subset cannot have %lld samples", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (indices[i] < 0 || indices[i] >= d->length)
            return lc_fail(LC_ERR_ARGUMENT, "subset: index %lld (entry %lld) is outside the dataset's %lld samples",
                           (long long)indices[i], (long long)i, (long long)d->length);
    subset *s =
        __builtin_mul_overflow((size_t)n, sizeof *indices, &bytes) || __builtin_add_overflow(bytes, sizeof *s, &bytes)
            ? NULL
            : malloc(bytes);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory for a subset of %lld samples", (long long)n);
    s->parent = lc_dataset_ref(d);
    s->length = n;
    if (n) memcpy(s->indices, indices, (size_t)n * sizeof *indices);
    lc_dataset_ops ops = subset_ops;
    if (!d->ops.replaced) ops.replaced = NULL;
    LC_TRY(lc_dataset_new(&ops, s, out));
    lc__dataset_made_of(*out, d);
    return LC_OK;
}

lc_status lc_dataset_split(lc_dataset *d, uint64_t seed, int n, const int64_t *sizes, lc_dataset **out)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(sizes, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    int64_t total = 0;
    lc_status status = LC_OK;
    for (int i = 0; i < n; i++) out[i] = NULL;
    for (int i = 0; i < n; i++)
        if (sizes[i] < 0 || __builtin_add_overflow(total, sizes[i], &total))
            return lc_fail(LC_ERR_ARGUMENT, "split: part %d has the invalid size %lld", i, (long long)sizes[i]);
    if (total != d->length)
        return lc_fail(LC_ERR_ARGUMENT, "split: the parts have %lld samples in total, but the dataset has %lld",
                       (long long)total, (long long)d->length);
    int64_t *order = total ? malloc((size_t)total * sizeof *order) : NULL;
    if (total && !order) return lc_fail(LC_ERR_MEMORY, "out of memory for a split of %lld samples", (long long)total);
    lc_random_permutation(lc_random_key_name(seed, "split"), 0, total, order);
    int64_t at = 0;
    for (int i = 0; status == LC_OK && i < n; i++) {
        status = lc_dataset_subset(d, order ? order + at : NULL, sizes[i], &out[i]);
        at += sizes[i];
    }
    free(order);
    if (status < 0)
        for (int i = 0; i < n; i++) {
            lc_dataset_unref(out[i]);
            out[i] = NULL;
        }
    return status;
}

/* ---- concat ---- */

typedef struct concat {
    int n;
    int64_t length;
    struct {
        lc_dataset *dataset;
        int64_t begin;
    } parts[];
} concat;

static int64_t concat_length(void *self)
{
    return ((concat *)self)->length;
}

static lc_status concat_describe(void *self, lc_sample_spec *spec)
{
    *spec = ((concat *)self)->parts[0].dataset->spec;
    return LC_OK;
}

/* The part that holds sample `index`: the last one that begins at or before it (empty parts are passed over). */
static int concat_part(const concat *c, int64_t index)
{
    int low = 0, high = c->n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (c->parts[middle].begin <= index)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static lc_status concat_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    concat *c = self;
    int p = concat_part(c, index);
    return lc_dataset_get(c->parts[p].dataset, index - c->parts[p].begin, key, out, scratch);
}

static size_t concat_scratch(void *self)
{
    concat *c = self;
    size_t most = 0;
    for (int i = 0; i < c->n; i++)
        if (c->parts[i].dataset->scratch > most) most = c->parts[i].dataset->scratch;
    return most;
}

static const char *concat_replaced(void *self, int64_t index)
{
    const concat *c = self;
    int p = concat_part(c, index);
    return lc_dataset_replaced(c->parts[p].dataset, index - c->parts[p].begin);
}

static void concat_times(void *self, lc_loader_times *add)
{
    concat *c = self;
    for (int i = 0; i < c->n; i++) lc__dataset_times(c->parts[i].dataset, add);
}

static const char *concat_source(void *self, int64_t index)
{
    const concat *c = self;
    int p = concat_part(c, index);
    return lc__dataset_source(c->parts[p].dataset, index - c->parts[p].begin);
}

static lc_status concat_sizes(void *self, int64_t index, int field, int64_t *sizes)
{
    concat *c = self;
    int p = concat_part(c, index);
    return lc_dataset_sizes(c->parts[p].dataset, index - c->parts[p].begin, field, sizes);
}

/* What `f` has of what two fields differ in. */
static const char *text_of(const lc_field *f, const char *what, char *room, size_t size)
{
    lc_type type = {.dtype = f->dtype, .ndim = f->ndim};
    if (!strcmp(what, "name")) return f->name;
    if (!strcmp(what, "dtype")) return lc_dtype_name(f->dtype);
    if (!strcmp(what, "layout")) return f->layout == LC_ROW_MAJOR ? "row-major" : "channels-last";
    memcpy(type.shape, f->shape, (size_t)f->ndim * sizeof *f->shape);
    return lc__shape_text(&type, room, size);
}

/* An error unless the samples of dataset i are as those of dataset 0. */
static lc_status check_same(const lc_sample_spec *first, const lc_sample_spec *s, int i)
{
    if (first->n != s->n)
        return lc_fail(LC_ERR_SHAPE, "concat: the samples of dataset %d have %d fields, and those of dataset 0 have %d",
                       i, s->n, first->n);
    for (int f = 0; f < s->n; f++) {
        const lc_field *a = &first->fields[f], *b = &s->fields[f];
        const char *what = lc__field_difference(a, b);
        char one[256], other[256];
        if (what)
            return lc_fail(LC_ERR_SHAPE, "concat: field %d ('%s') has the %s %s in dataset %d, but %s in dataset 0", f,
                           a->name, what, text_of(b, what, one, sizeof one), i, text_of(a, what, other, sizeof other));
    }
    return LC_OK;
}

static void concat_free(void *self)
{
    concat *c = self;
    for (int i = 0; i < c->n; i++) lc_dataset_unref(c->parts[i].dataset);
    free(c);
}

static const lc_dataset_ops concat_ops = {
    LC_DATASET_OPS_INIT,         .name = "concat",      .length = concat_length,
    .describe = concat_describe, .get = concat_get,     .scratch_size = concat_scratch,
    .free = concat_free,         .sizes = concat_sizes, .times = concat_times,
    .source = concat_source,
};

lc_status lc_dataset_concat(lc_dataset *const *parts, int n, lc_dataset **out)
{
    if (n > 0) LC__NEEDS(parts, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    if (n < 1) return lc_fail(LC_ERR_ARGUMENT, "concat needs at least one dataset");
    for (int i = 0; i < n; i++) LC__IS(parts[i], DATASET, LC_ERR_ARGUMENT);
    for (int i = 1; i < n; i++) LC_TRY(check_same(&parts[0]->spec, &parts[i]->spec, i));
    concat *c = malloc(sizeof *c + (size_t)n * sizeof c->parts[0]);
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory for a dataset");
    lc_dataset_ops ops = concat_ops;
    ops.replaced = NULL;
    c->n = n;
    c->length = 0;
    for (int i = 0; i < n; i++) {
        c->parts[i].dataset = lc_dataset_ref(parts[i]);
        c->parts[i].begin = c->length;
        c->length += parts[i]->length;
        if (parts[i]->ops.replaced) ops.replaced = concat_replaced;
    }
    LC_TRY(lc_dataset_new(&ops, c, out));
    for (int i = 0; i < n; i++) lc__dataset_made_of(*out, parts[i]);
    return LC_OK;
}

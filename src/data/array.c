/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset over arrays in memory: a batch is a gather, with a conversion if one was requested. */
#include "data_internal.h"
#include "base/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct array_dataset {
    int64_t length;
    int n;
    struct {
        lc_array a;
        lc_field out;
        lc__convert_fn *convert; /* NULL: a plain copy */
        int64_t numel;
        size_t in_bytes, out_bytes;
        char name[64];
    } fields[LC_MAX_BATCH_TENSORS];
} array_dataset;

static int64_t array_length(void *self)
{
    return ((array_dataset *)self)->length;
}

static lc_status array_describe(void *self, lc_sample_spec *spec)
{
    array_dataset *d = self;
    spec->n = d->n;
    for (int i = 0; i < d->n; i++) spec->fields[i] = d->fields[i].out;
    return LC_OK;
}

static lc_status array_get_many(void *self, int n, const int64_t *indices, const uint64_t *keys, void *const *out,
                                void *scratch)
{
    (void)keys, (void)scratch;
    const array_dataset *d = self;
    for (int f = 0; f < d->n; f++) {
        const char *base = d->fields[f].a.data;
        const size_t in = d->fields[f].in_bytes, step = d->fields[f].out_bytes;
        const int64_t numel = d->fields[f].numel;
        const double scale = d->fields[f].a.scale, shift = d->fields[f].a.shift;
        lc__convert_fn *convert = lc__conversion_into_batch(d->fields[f].convert);
        char *to = out[f];
        for (int j = 0; j < n; j++, to += step) {
            const char *from = base + (size_t)indices[j] * in;
            if (j + 1 < n) lc__fetch_sample(base + (size_t)indices[j + 1] * in, in);
            if (convert)
                convert(from, to, numel, scale, shift);
            else
                memcpy(to, from, in);
        }
    }
    lc__stores_arrive();
    return LC_OK;
}

/* Rows of fields with offsets; numel is that of a row then. */
static lc_status array_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)key, (void)scratch;
    const array_dataset *d = self;
    for (int f = 0; f < d->n; f++) {
        const lc_array *a = &d->fields[f].a;
        int64_t first = a->offsets ? a->offsets[index] : index, rows = a->offsets ? a->offsets[index + 1] - first : 1;
        const char *from = (const char *)a->data + (size_t)first * d->fields[f].in_bytes;
        if (d->fields[f].convert)
            d->fields[f].convert(from, out[f], rows * d->fields[f].numel, a->scale, a->shift);
        else
            memcpy(out[f], from, (size_t)rows * d->fields[f].in_bytes);
    }
    return LC_OK;
}

static lc_status array_sizes(void *self, int64_t index, int field, int64_t *sizes)
{
    const int64_t *offsets = ((array_dataset *)self)->fields[field].a.offsets;
    sizes[0] = offsets[index + 1] - offsets[index];
    return LC_OK;
}

static void array_free(void *self)
{
    array_dataset *d = self;
    for (int i = 0; i < d->n; i++)
        if (d->fields[i].a.free) d->fields[i].a.free((void *)(uintptr_t)d->fields[i].a.data);
    free(d);
}

static const lc_dataset_ops array_ops = {
    LC_DATASET_OPS_INIT, .name = "arrays",           .length = array_length, .describe = array_describe,
    .get = array_get,    .get_many = array_get_many, .free = array_free,     .sizes = array_sizes,
};

/* Makes *row the field of a row, if there are offsets, which must fit. */
static lc_status take_offsets(const lc_array *a, int64_t n, lc_field *row)
{
    *row = a->field;
    if (!a->offsets) return LC_OK;
    if (row->ndim < 1 || row->shape[0] != 0 || row->layout != LC_ROW_MAJOR)
        return lc_fail(LC_ERR_SHAPE, "array '%s' has offsets, so its first size must be 0, and its layout row-major",
                       row->name ? row->name : "?");
    for (int64_t i = 0; i <= n; i++)
        if (a->offsets[i] < (i ? a->offsets[i - 1] : 0))
            return lc_fail(LC_ERR_ARGUMENT, "array '%s': offset %lld is %lld, and must not be below the one before",
                           row->name ? row->name : "?", (long long)i, (long long)a->offsets[i]);
    row->shape[0] = 1;
    return LC_OK;
}

static lc_status find_conversion(const lc_array *a, lc__convert_fn **fn)
{
    bool scaled = a->scale != 1.0 || a->shift != 0.0;
    if (lc__conversion((lc__number)a->field.dtype, a->to, scaled, fn)) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "array '%s' cannot be converted from %s to %s%s when a batch is made", a->field.name,
                   lc_dtype_name(a->field.dtype), lc_dtype_name(a->to), scaled ? " with a scale or a shift" : "");
}

lc_status lc_array_dataset_new(int64_t n, int n_arrays, const lc_array *arrays, lc_dataset **out)
{
    if (n_arrays > 0) LC__NEEDS(arrays, LC_ERR_ARGUMENT);
    lc_status status = out ? LC_OK : lc__is_null(__func__, "out");
    if (out) *out = NULL;
    array_dataset *d = calloc(1, sizeof *d);
    if (!d && status == LC_OK) status = lc_fail(LC_ERR_MEMORY, "out of memory for a dataset");
    if (status == LC_OK && (n_arrays < 1 || n_arrays > LC_MAX_BATCH_TENSORS))
        status = lc_fail(LC_ERR_ARGUMENT, "a dataset has 1 to %d arrays, not %d", LC_MAX_BATCH_TENSORS, n_arrays);
    if (status == LC_OK && n < 0) status = lc_fail(LC_ERR_ARGUMENT, "a dataset cannot have %lld samples", (long long)n);
    for (int i = 0; status == LC_OK && i < n_arrays; i++) {
        lc_array a = arrays[i];
        status = lc__reserved_check(a.reserved, "lc_array");
        if (!a.field.dtype) a.field.dtype = LC_F32;
        if (!a.to) a.to = a.field.dtype;
        if (a.scale == 0.0) a.scale = 1.0;
        if (status == LC_OK && !a.data && n > 0)
            status = lc_fail(LC_ERR_ARGUMENT, "array '%s' has no data", a.field.name ? a.field.name : "?");
        lc_field row;
        if (status == LC_OK) status = take_offsets(&a, n, &row);
        if (status == LC_OK) status = lc__field_check(&row, "arrays");
        if (status == LC_OK) status = find_conversion(&a, &d->fields[i].convert);
        size_t total;
        if (status == LC_OK && __builtin_mul_overflow(lc_field_bytes(&row), (size_t)n, &total))
            status = lc_fail(LC_ERR_SHAPE, "array '%s' would be larger than memory", a.field.name);
        if (status != LC_OK) break;
        d->fields[i].numel = lc_field_numel(&row);
        d->fields[i].in_bytes = lc_field_bytes(&row);
        row.dtype = a.to;
        d->fields[i].out_bytes = lc_field_bytes(&row);
        d->fields[i].out = a.field;
        d->fields[i].out.dtype = a.to;
        snprintf(d->fields[i].name, sizeof d->fields[i].name, "%s", a.field.name);
        d->fields[i].out.name = d->fields[i].name;
        a.field.name = d->fields[i].name;
        d->fields[i].a = a;
    }
    if (status < 0) {
        for (int i = 0; i < n_arrays && i < LC_MAX_BATCH_TENSORS; i++)
            if (arrays[i].free) arrays[i].free((void *)(uintptr_t)arrays[i].data);
        free(d);
        return status;
    }
    d->length = n;
    d->n = n_arrays;
    return lc_dataset_new(&array_ops, d, out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Other numbers for the same values: data types, layouts, one-hot labels. */
#include "data/transforms/transform.h"

#include <stdlib.h>
#include <string.h>

/* ---- data types ---- */

typedef struct to_dtype {
    lc_dtype dtype;
    bool scale;
} to_dtype;

static lc_status to_dtype_describe(void *self, const lc_field *in, lc_field *out)
{
    const to_dtype *t = self;
    lc__convert_fn *fn;
    *out = *in;
    out->dtype = t->dtype;
    if (lc__conversion((lc__number)in->dtype, t->dtype, t->scale && in->dtype == LC_U8, &fn)) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "to_dtype: field '%s' is %s, which does not become %s%s", in->name,
                   lc_dtype_name(in->dtype), lc_dtype_name(t->dtype), t->scale ? " with a scale" : "");
}

static lc_status to_dtype_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                uint64_t key, void *scratch)
{
    (void)key, (void)scratch;
    const to_dtype *t = self;
    const bool scaled = t->scale && in->dtype == LC_U8;
    lc__convert_fn *fn = NULL;
    (void)lc__conversion((lc__number)in->dtype, out->dtype, scaled, &fn);
    if (fn)
        fn(src, dst, lc_field_numel(in), scaled ? 1.0 / 255 : 1, 0);
    else
        memcpy(dst, src, lc_field_bytes(in));
    return LC_OK;
}

static const lc_transform_ops to_dtype_ops = {
    LC_TRANSFORM_OPS_INIT,   .name = "to_dtype",     .describe = to_dtype_describe,
    .apply = to_dtype_apply, .free = lc__owned_free, .self_size = sizeof(to_dtype),
};

lc_status lc_transform_to_dtype_with(lc_dtype dtype, lc_transform *out, const lc_transform_to_dtype_args *args)
{
    LC__TAKE(a, lc_transform_to_dtype, lc_transform_to_dtype_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const to_dtype t = {dtype, a.scale};
    *out = (lc_transform){0};
    if (!lc_dtype_size(dtype)) return lc_fail(LC_ERR_DTYPE, "to_dtype: unknown data type %d", (int)dtype);
    return lc__transform_make(&to_dtype_ops, &t, sizeof t, out);
}

/* ---- layouts ---- */

static lc_status to_layout_describe(void *self, const lc_field *in, lc_field *out)
{
    *out = *in;
    out->layout = *(const lc_layout *)self;
    if (in->ndim == 3) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "to_layout expects an image [C,H,W], but field '%s' has %d dimensions", in->name,
                   in->ndim);
}

static lc_status to_layout_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                 uint64_t key, void *scratch)
{
    (void)self, (void)key, (void)scratch;
    const size_t size = lc_dtype_size(in->dtype), bytes = lc_field_bytes(in);
    if (in->layout == out->layout) {
        memcpy(dst, src, bytes);
        return LC_OK;
    }
    /* Channels-last to planes, or back: rows of the one are columns of the other. */
    const bool last = in->layout == LC_CHANNELS_LAST;
    const size_t all = bytes / size, rows = last ? all / (size_t)in->shape[0] : (size_t)in->shape[0],
                 cols = rows ? all / rows : 0;
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < rows; r++)
            memcpy((char *)dst + (c * rows + r) * size, (const char *)src + (r * cols + c) * size, size);
    return LC_OK;
}

static const lc_transform_ops to_layout_ops = {
    LC_TRANSFORM_OPS_INIT,    .name = "to_layout",    .describe = to_layout_describe,
    .apply = to_layout_apply, .free = lc__owned_free,
};

lc_status lc_transform_to_layout(lc_layout layout, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    if (layout != LC_ROW_MAJOR && layout != LC_CHANNELS_LAST)
        return lc_fail(LC_ERR_ARGUMENT, "to_layout: unknown lc_layout %d", (int)layout);
    return lc__transform_make(&to_layout_ops, &layout, sizeof layout, out);
}

/* ---- one-hot ---- */

static lc_status one_hot_describe(void *self, const lc_field *in, lc_field *out)
{
    *out = *in;
    if (in->dtype != LC_I64 && in->dtype != LC_I32 && in->dtype != LC_U8)
        return lc_fail(LC_ERR_DTYPE, "one_hot expects integer labels, but field '%s' is %s", in->name,
                       lc_dtype_name(in->dtype));
    if (in->ndim >= LC_MAX_DIMS - 1 || in->layout != LC_ROW_MAJOR)
        return lc_fail(LC_ERR_SHAPE, "one_hot expects row-major labels of at most %d dimensions", LC_MAX_DIMS - 2);
    out->dtype = LC_F32;
    out->shape[out->ndim++] = *(const int64_t *)self;
    return LC_OK;
}

static lc_status one_hot_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                               uint64_t key, void *scratch)
{
    (void)key, (void)scratch;
    int64_t classes = *(const int64_t *)self, n = lc_field_numel(in);
    float *d = dst;
    memset(dst, 0, lc_field_bytes(out));
    for (int64_t i = 0; i < n; i++) {
        int64_t label = in->dtype == LC_I64   ? ((const int64_t *)src)[i]
                        : in->dtype == LC_I32 ? ((const int32_t *)src)[i]
                                              : ((const uint8_t *)src)[i];
        if (label < 0 || label >= classes)
            return lc_fail(LC_ERR_ARGUMENT, "one_hot: label %lld is not one of %lld classes", (long long)label,
                           (long long)classes);
        d[i * classes + label] = 1.0f;
    }
    return LC_OK;
}

static const lc_transform_ops one_hot_ops = {
    LC_TRANSFORM_OPS_INIT,  .name = "one_hot",      .describe = one_hot_describe,
    .apply = one_hot_apply, .free = lc__owned_free, .self_size = sizeof(int64_t),
};

lc_status lc_transform_one_hot(int64_t classes, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    if (classes < 1)
        return lc_fail(LC_ERR_ARGUMENT, "one_hot: %lld is not a valid number of classes", (long long)classes);
    return lc__transform_make(&one_hot_ops, &classes, sizeof classes, out);
}

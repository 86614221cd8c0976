/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of one field of a sample. To add one: describe and apply, an ops table, a constructor, and a test in
 * tests/data/test_transforms.c. Randomness comes only from the sample's key. */
#include "base/args.h"
#include "data_internal.h"
#include "base/handle.h"

#include <stdlib.h>
#include <string.h>

void lc_transform_release(lc_transform *t)
{
    if (!t || !t->ops) return;
    if (LC__SLOT(t->ops, free)) t->ops->free(t->self);
    *t = (lc_transform){0};
}

static lc_status make(const lc_transform_ops *ops, const void *self, size_t size, lc_transform *out)
{
    void *copy = malloc(size);
    *out = (lc_transform){0};
    if (!copy) return lc_fail(LC_ERR_MEMORY, "out of memory for transform '%s'", ops->name);
    memcpy(copy, self, size);
    *out = (lc_transform){ops, copy};
    return LC_OK;
}

/* ---- images: rows of pixels ---- */

/* Row-major C,H,W is C planes of pixels of one element; channels-last is one plane of pixels of C elements. */
typedef struct image {
    int64_t channels, height, width, planes;
    size_t pixel; /* bytes */
} image;

static lc_status image_of(const char *who, const lc_field *f, image *m)
{
    if (f->ndim != 2 && f->ndim != 3)
        return lc_fail(LC_ERR_SHAPE, "%s expects an image [C,H,W] or [H,W], but field '%s' has %d dimensions", who,
                       f->name, f->ndim);
    const int64_t *hw = f->shape + f->ndim - 2;
    m->channels = f->ndim == 3 ? f->shape[0] : 1;
    m->height = hw[0];
    m->width = hw[1];
    bool last = f->ndim == 3 && f->layout == LC_CHANNELS_LAST;
    m->planes = last ? 1 : m->channels;
    m->pixel = lc_dtype_size(f->dtype) * (size_t)(last ? m->channels : 1);
    return LC_OK;
}

static void set_size(lc_field *f, int64_t height, int64_t width)
{
    f->shape[f->ndim - 2] = height;
    f->shape[f->ndim - 1] = width;
}

/* Copies the part of `in` under a window of `out`'s size at (top, left); the window may extend beyond `in`. */
static void copy_window(const image *in, const char *src, const image *out, char *dst, int64_t top, int64_t left)
{
    int64_t x0 = left < 0 ? -left : 0, x1 = out->width;
    if (left + x1 > in->width) x1 = in->width - left;
    for (int64_t p = 0; p < in->planes; p++)
        for (int64_t y = 0; y < out->height; y++) {
            int64_t from = top + y;
            if (from < 0 || from >= in->height || x1 <= x0) continue;
            memcpy(dst + (size_t)((p * out->height + y) * out->width + x0) * out->pixel,
                   src + (size_t)((p * in->height + from) * in->width + left + x0) * in->pixel,
                   (size_t)(x1 - x0) * in->pixel);
        }
}

/* ---- to_tensor ---- */

static lc_status to_tensor_describe(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    out->dtype = LC_F32;
    if (in->dtype != LC_U8)
        return lc_fail(LC_ERR_DTYPE, "to_tensor expects u8, but field '%s' is %s", in->name, lc_dtype_name(in->dtype));
    return LC_OK;
}

static lc_status to_tensor_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                 uint64_t key, void *scratch)
{
    (void)self, (void)out, (void)key, (void)scratch;
    const uint8_t *s = src;
    float *d = dst;
    int64_t n = lc_field_numel(in);
    for (int64_t i = 0; i < n; i++) d[i] = (float)s[i] / 255.0f;
    return LC_OK;
}

static const lc_transform_ops to_tensor_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "to_tensor", .describe = to_tensor_describe, .apply = to_tensor_apply, .free = free,
};

lc_status lc_transform_to_tensor(lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    char nothing = 0;
    return make(&to_tensor_ops, &nothing, 1, out);
}

/* ---- normalize ---- */

#define MAX_CHANNELS 64

typedef struct normalize {
    int n;
    float mean[MAX_CHANNELS], std[MAX_CHANNELS];
} normalize;

static lc_status normalize_describe(void *self, const lc_field *in, lc_field *out)
{
    const normalize *t = self;
    *out = *in;
    if (in->dtype != LC_F32)
        return lc_fail(LC_ERR_DTYPE, "normalize expects f32, but field '%s' is %s; put to_tensor before it", in->name,
                       lc_dtype_name(in->dtype));
    if (t->n == 1) return LC_OK;
    image m = {0};
    LC_TRY(image_of("normalize", in, &m));
    if (m.channels != t->n)
        return lc_fail(LC_ERR_SHAPE, "normalize has means for %d channels, but field '%s' has %lld", t->n, in->name,
                       (long long)m.channels);
    return LC_OK;
}

static lc_status normalize_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                 uint64_t key, void *scratch)
{
    (void)out, (void)key, (void)scratch;
    const normalize *t = self;
    const float *s = src;
    float *d = dst;
    int64_t n = lc_field_numel(in);
    if (t->n > 1 && in->layout == LC_CHANNELS_LAST) {
        for (int64_t i = 0; i < n; i += t->n)
            for (int c = 0; c < t->n; c++) d[i + c] = (s[i + c] - t->mean[c]) / t->std[c];
        return LC_OK;
    }
    int64_t plane = n / t->n;
    for (int c = 0; c < t->n; c++)
        for (int64_t i = c * plane; i < (c + 1) * plane; i++) d[i] = (s[i] - t->mean[c]) / t->std[c];
    return LC_OK;
}

static const lc_transform_ops normalize_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "normalize", .describe = normalize_describe, .apply = normalize_apply, .free = free,
};

lc_status lc_transform_normalize(int n, const double *mean, const double *std, lc_transform *out)
{
    if (n > 0) LC__NEEDS(mean, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(std, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    normalize t = {.n = n};
    *out = (lc_transform){0};
    if (n < 1 || n > MAX_CHANNELS)
        return lc_fail(LC_ERR_ARGUMENT, "normalize takes 1 to %d channels, not %d", MAX_CHANNELS, n);
    for (int c = 0; c < n; c++) {
        if (!(std[c] > 0.0))
            return lc_fail(LC_ERR_ARGUMENT,
                           "normalize: the standard deviation of channel %d is %g; it must be positive", c, std[c]);
        t.mean[c] = (float)mean[c];
        t.std[c] = (float)std[c];
    }
    return make(&normalize_ops, &t, sizeof t, out);
}

/* ---- random crop ---- */

typedef struct random_crop {
    int64_t height, width, padding;
} random_crop;

static lc_status random_crop_describe(void *self, const lc_field *in, lc_field *out)
{
    const random_crop *t = self;
    image m = {0};
    *out = *in;
    LC_TRY(image_of("random_crop", in, &m));
    if (t->height > m.height + 2 * t->padding || t->width > m.width + 2 * t->padding)
        return lc_fail(LC_ERR_SHAPE, "random_crop of %lldx%lld does not fit into %lldx%lld with a padding of %lld",
                       (long long)t->height, (long long)t->width, (long long)m.height, (long long)m.width,
                       (long long)t->padding);
    set_size(out, t->height, t->width);
    return LC_OK;
}

static lc_status random_crop_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                   uint64_t key, void *scratch)
{
    (void)scratch;
    const random_crop *t = self;
    image from, to;
    LC_TRY(image_of("random_crop", in, &from));
    LC_TRY(image_of("random_crop", out, &to));
    int64_t top =
        (int64_t)lc_random_below(key, 0, (uint64_t)(from.height + 2 * t->padding - t->height + 1)) - t->padding;
    int64_t left =
        (int64_t)lc_random_below(key, 1, (uint64_t)(from.width + 2 * t->padding - t->width + 1)) - t->padding;
    if (t->padding) memset(dst, 0, lc_field_bytes(out));
    copy_window(&from, src, &to, dst, top, left);
    return LC_OK;
}

static const lc_transform_ops random_crop_ops = {
    LC_TRANSFORM_OPS_INIT,      .name = "random_crop", .describe = random_crop_describe,
    .apply = random_crop_apply, .free = free,
};

lc_status lc_transform_random_crop(int64_t height, int64_t width, int64_t padding, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    if (height < 1 || width < 1 || padding < 0 || padding > 1 << 20)
        return lc_fail(LC_ERR_ARGUMENT, "random_crop of %lldx%lld with a padding of %lld is not possible",
                       (long long)height, (long long)width, (long long)padding);
    random_crop t = {height, width, padding};
    return make(&random_crop_ops, &t, sizeof t, out);
}

/* ---- horizontal flip ---- */

static lc_status flip_describe(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    image m = {0};
    *out = *in;
    return image_of("horizontal_flip", in, &m);
}

static lc_status flip_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                            uint64_t key, void *scratch)
{
    (void)out, (void)scratch;
    image m = {0};
    LC_TRY(image_of("horizontal_flip", in, &m));
    if (!(lc_random_uniform(key, 0) < *(const double *)self)) {
        memcpy(dst, src, lc_field_bytes(in));
        return LC_OK;
    }
    for (int64_t row = 0; row < m.planes * m.height; row++) {
        const char *s = (const char *)src + (size_t)(row * m.width) * m.pixel;
        char *d = (char *)dst + (size_t)((row + 1) * m.width) * m.pixel;
        for (int64_t x = 0; x < m.width; x++) {
            d -= m.pixel;
            memcpy(d, s, m.pixel);
            s += m.pixel;
        }
    }
    return LC_OK;
}

static const lc_transform_ops flip_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "horizontal_flip", .describe = flip_describe, .apply = flip_apply, .free = free,
};

lc_status lc_transform_horizontal_flip(double p, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    if (!(p >= 0.0 && p <= 1.0)) return lc_fail(LC_ERR_ARGUMENT, "horizontal_flip: %g is not a probability", p);
    return make(&flip_ops, &p, sizeof p, out);
}

/* ---- pad ---- */

typedef struct pad {
    int64_t left, right, top, bottom;
    double value;
} pad;

static lc_status element_of(const char *who, lc_dtype dtype, double value, unsigned char element[8])
{
#define ELEMENT(id, type)                                                                                              \
    case id: {                                                                                                         \
        type v = (type)value;                                                                                          \
        memcpy(element, &v, sizeof v);                                                                                 \
        return LC_OK;                                                                                                  \
    }
    switch (dtype) {
        ELEMENT(LC_F32, float)
        ELEMENT(LC_F64, double)
        ELEMENT(LC_I64, int64_t)
        ELEMENT(LC_I32, int32_t)
        ELEMENT(LC_U8, uint8_t)
        ELEMENT(LC_BOOL, bool)
    default:
        break;
    }
#undef ELEMENT
    memset(element, 0, 8);
    if (value == 0.0) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "%s with a value is not possible on %s; apply it before the conversion", who,
                   lc_dtype_name(dtype));
}

static lc_status pad_describe(void *self, const lc_field *in, lc_field *out)
{
    const pad *t = self;
    image m = {0};
    unsigned char element[8];
    *out = *in;
    LC_TRY(image_of("pad", in, &m));
    set_size(out, m.height + t->top + t->bottom, m.width + t->left + t->right);
    if (in->dtype == LC_U8 && !(t->value >= 0.0 && t->value <= 255.0))
        return lc_fail(LC_ERR_ARGUMENT, "pad: %g does not fit into u8", t->value);
    return element_of("pad", in->dtype, t->value, element);
}

static lc_status pad_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                           uint64_t key, void *scratch)
{
    (void)key, (void)scratch;
    const pad *t = self;
    image from, to;
    unsigned char element[8];
    LC_TRY(image_of("pad", in, &from));
    LC_TRY(image_of("pad", out, &to));
    LC_TRY(element_of("pad", in->dtype, t->value, element));
    size_t size = lc_dtype_size(out->dtype), bytes = lc_field_bytes(out);
    if (t->value == 0.0)
        memset(dst, 0, bytes);
    else
        for (size_t i = 0; i < bytes; i += size) memcpy((char *)dst + i, element, size);
    copy_window(&from, src, &to, dst, -t->top, -t->left);
    return LC_OK;
}

static const lc_transform_ops pad_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "pad", .describe = pad_describe, .apply = pad_apply, .free = free,
};

lc_status lc_transform_pad(int64_t left, int64_t right, int64_t top, int64_t bottom, double value, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const int64_t most = 1 << 20;
    *out = (lc_transform){0};
    if (left < 0 || right < 0 || top < 0 || bottom < 0 || left > most || right > most || top > most || bottom > most)
        return lc_fail(LC_ERR_ARGUMENT, "pad by %lld, %lld, %lld, %lld: each must be between 0 and %lld",
                       (long long)left, (long long)right, (long long)top, (long long)bottom, (long long)most);
    pad t = {left, right, top, bottom, value};
    return make(&pad_ops, &t, sizeof t, out);
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
    LC_TRANSFORM_OPS_INIT, .name = "one_hot", .describe = one_hot_describe, .apply = one_hot_apply, .free = free,
};

lc_status lc_transform_one_hot(int64_t classes, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    if (classes < 1)
        return lc_fail(LC_ERR_ARGUMENT, "one_hot: %lld is not a valid number of classes", (long long)classes);
    return make(&one_hot_ops, &classes, sizeof classes, out);
}

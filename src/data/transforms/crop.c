/* SPDX-License-Identifier: Apache-2.0 */
/* Crops of a size: in the middle, and at a random place. */
#include "data/transforms/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the middle ---- */

typedef struct size {
    int64_t height, width;
} size;

static lc_status center_describe(void *self, const lc_field *in, lc_field *out)
{
    const size *t = self;
    lc__picture m;
    *out = *in;
    LC_TRY(lc__picture_of("center_crop", in, &m));
    lc__picture_resize(out, t->height, t->width);
    return LC_OK;
}

/* Where a crop of `n` begins. A shorter line is padded, with the smaller half before it. The half of an odd number goes
 * to the even neighbor, as Python's round does. */
static int64_t middle(int64_t from, int64_t n)
{
    return n > from ? -((n - from) / 2) : (int64_t)nearbyint((double)(from - n) / 2);
}

static void center_reads(void *self, const lc_field *in, uint64_t key, lc_box *part)
{
    (void)key;
    const size *t = self;
    lc__picture m;
    if (lc__picture_of("center_crop", in, &m) < 0) return;
    const lc_box window = {middle(m.height, t->height), middle(m.width, t->width), t->height, t->width};
    *part = lc__window_reads(&m, window, LC_PAD_CONSTANT);
}

static lc_status center_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                              uint64_t key, void *scratch)
{
    (void)self, (void)key, (void)scratch;
    const lc__fill zero = {.n = 1, .size = lc_dtype_size(in->dtype)};
    lc__picture from, to;
    LC_TRY(lc__picture_of("center_crop", in, &from));
    LC_TRY(lc__picture_of("center_crop", out, &to));
    lc__padded_window(&from, src, &to, dst, middle(from.height, to.height), middle(from.width, to.width),
                      LC_PAD_CONSTANT, &zero);
    return LC_OK;
}

static const lc_transform_ops center_ops = {
    LC_TRANSFORM_OPS_INIT,  .name = "center_crop", .describe = center_describe, .apply = center_apply,
    .free = lc__owned_free, .reads = center_reads, .self_size = sizeof(size),   .cuts = true,
};

lc_status lc_transform_center_crop(int64_t height, int64_t width, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const size t = {height, width};
    *out = (lc_transform){0};
    LC_TRY(lc__check_size("center_crop", height, width));
    return lc__transform_make(&center_ops, &t, sizeof t, out);
}

/* ---- a random place ---- */

typedef struct random_crop {
    int64_t height, width;
    int64_t sides[4]; /* left, top, right, bottom */
    lc_transform_random_crop_args a;
} random_crop;

/* The numbers of pixels that a picture is padded by: t->sides, and with pad_if_needed also the rows and columns that it
 * still lacks, on both sides each, so that it may be anywhere in the crop. */
static void padding_of(const random_crop *t, const lc__picture *m, int64_t sides[4])
{
    memcpy(sides, t->sides, sizeof t->sides);
    if (!t->a.pad_if_needed) return;
    const int64_t height = m->height + sides[1] + sides[3], width = m->width + sides[0] + sides[2];
    const int64_t rows = t->height > height ? t->height - height : 0, cols = t->width > width ? t->width - width : 0;
    sides[0] += cols;
    sides[1] += rows;
    sides[2] += cols;
    sides[3] += rows;
}

static lc_status random_crop_describe(void *self, const lc_field *in, lc_field *out)
{
    const random_crop *t = self;
    lc__picture m;
    int64_t sides[4];
    lc__fill fill;
    *out = *in;
    LC_TRY(lc__picture_of("random_crop", in, &m));
    LC_TRY(lc__fill_of("random_crop", in, t->a.fill, &t->a.fill_color, &fill));
    lc__picture_resize(out, t->height, t->width);
    if (!m.height || !m.width) return LC_OK;
    padding_of(t, &m, sides);
    LC_TRY(lc__check_padding("random_crop", &m, sides, t->a.padding_mode));
    if (t->height > m.height + sides[1] + sides[3] || t->width > m.width + sides[0] + sides[2])
        return lc_fail(
            LC_ERR_SHAPE,
            "random_crop of %lldx%lld does not fit into %lldx%lld with its padding; .pad_if_needed pads more",
            (long long)t->height, (long long)t->width, (long long)m.height, (long long)m.width);
    return LC_OK;
}

/* The window that a key draws. */
static lc_box window_of(const random_crop *t, const lc__picture *from, uint64_t key)
{
    int64_t sides[4];
    padding_of(t, from, sides);
    const int64_t rows = from->height + sides[1] + sides[3] - t->height + 1,
                  cols = from->width + sides[0] + sides[2] - t->width + 1;
    return (lc_box){.top = (int64_t)lc_random_below(key, 0, (uint64_t)rows) - sides[1],
                    .left = (int64_t)lc_random_below(key, 1, (uint64_t)cols) - sides[0],
                    .height = t->height,
                    .width = t->width};
}

static void random_crop_reads(void *self, const lc_field *in, uint64_t key, lc_box *part)
{
    const random_crop *t = self;
    lc_field out;
    lc__picture from;
    if (random_crop_describe(self, in, &out) < 0 || lc__picture_of("random_crop", in, &from) < 0) return;
    *part = lc__window_reads(&from, window_of(t, &from, key), t->a.padding_mode);
}

static lc_status random_crop_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                   uint64_t key, void *scratch)
{
    (void)scratch;
    const random_crop *t = self;
    lc__picture from, to;
    lc__fill fill;
    LC_TRY(lc__picture_of("random_crop", in, &from));
    LC_TRY(lc__picture_of("random_crop", out, &to));
    LC_TRY(lc__fill_of("random_crop", in, t->a.fill, &t->a.fill_color, &fill));
    const lc_box w = window_of(t, &from, key);
    lc__padded_window(&from, src, &to, dst, w.top, w.left, t->a.padding_mode, &fill);
    return LC_OK;
}

static const lc_transform_ops random_crop_ops = {
    LC_TRANSFORM_OPS_INIT,  .name = "random_crop",      .describe = random_crop_describe, .apply = random_crop_apply,
    .free = lc__owned_free, .reads = random_crop_reads, .self_size = sizeof(random_crop), .cuts = true,
};

lc_status lc_transform_random_crop_with(int64_t height, int64_t width, lc_transform *out,
                                        const lc_transform_random_crop_args *args)
{
    LC__TAKE(a, lc_transform_random_crop, lc_transform_random_crop_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    random_crop t = {height, width, {0}, a};
    *out = (lc_transform){0};
    LC_TRY(lc__check_size("random_crop", height, width));
    LC_TRY(lc__check_padding_mode("random_crop", a.padding_mode, a.fill, &a.fill_color));
    if (a.padding.n != 0 && a.padding.n != 1 && a.padding.n != 2 && a.padding.n != 4)
        return lc_fail(LC_ERR_ARGUMENT, "random_crop: a padding of %d numbers; it has 1, 2 or 4", a.padding.n);
    for (int i = 0; i < 4 && a.padding.n; i++) {
        t.sides[i] = a.padding.dim[i % a.padding.n];
        if (t.sides[i] < 0 || t.sides[i] > 1 << 20)
            return lc_fail(LC_ERR_ARGUMENT, "random_crop: a padding of %lld is not possible; it must be from 0 to %d",
                           (long long)t.sides[i], 1 << 20);
    }
    return lc__transform_make(&random_crop_ops, &t, sizeof t, out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing to a size, or to a length of the shorter side. */
#include "data/transforms/transform.h"

#include <math.h>
#include <stdlib.h>

lc_status lc__check_resample(const char *who, lc_resample interpolation)
{
    if ((unsigned)interpolation <= LC_RESAMPLE_BICUBIC) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: unknown lc_resample %d", who, (int)interpolation);
}

/* lc_resample has the numbers of lc__filter. */
static lc__resize_sizes sizes_of(const lc__pixels *from, const lc_box *part, int64_t height, int64_t width,
                                 lc_resample interpolation, bool antialias)
{
    return (lc__resize_sizes){
        part->height, part->width, height, width, (int)lc__pixel_bytes(from), (lc__filter)interpolation, antialias};
}

static lc_box all_of(const lc__pixels *p)
{
    return (lc_box){.height = p->height, .width = p->width};
}

size_t lc__resample_scratch(const lc__pixels *from, int64_t height, int64_t width, lc_resample interpolation,
                            bool antialias)
{
    const lc_box all = all_of(from); /* there are the most weights for the longest sides */
    const lc__resize_sizes s = sizes_of(from, &all, height, width, interpolation, antialias);
    return lc__resize_room(&s);
}

void lc__resample(const lc__pixels *from, const lc_box *part, const lc__pixels *to, lc_resample interpolation,
                  bool antialias, void *scratch)
{
    const lc__resize_sizes s = sizes_of(from, part, to->height, to->width, interpolation, antialias);
    lc__resize_plan plan;
    lc__resize_prepare(&plan, &s, scratch);
    for (int p = 0; p < lc__pixel_planes(from); p++) {
        const lc__pixels plane = lc__pixel_plane(from, p);
        lc__resize_run(&plan, lc__pixel_row(&plane, part->top) + (size_t)part->left * lc__pixel_bytes(from),
                       from->stride, lc__pixel_plane(to, p).at);
    }
}

/* ---- the transform ---- */

/* As torchvision's: lengths are cut, not rounded. */
static void size_of(const lc_transform_resize_args *a, int64_t height, int64_t width, int64_t *to_height,
                    int64_t *to_width)
{
    *to_height = a->height;
    *to_width = a->width;
    if (!a->shorter) return;
    *to_height = *to_width = 0;
    if (height < 1 || width < 1) return;
    const int64_t shorter = height < width ? height : width, longer = height < width ? width : height;
    int64_t to_shorter = a->shorter, to_longer = (int64_t)((double)a->shorter * (double)longer / (double)shorter);
    if (a->max_size && to_longer > a->max_size) {
        to_shorter = (int64_t)((double)a->max_size * (double)to_shorter / (double)to_longer);
        to_longer = a->max_size;
    }
    if (to_shorter < 1) to_shorter = 1;
    *to_height = height < width ? to_shorter : to_longer;
    *to_width = height < width ? to_longer : to_shorter;
}

static lc_status resize_describe(void *self, const lc_field *in, lc_field *out)
{
    lc__picture m;
    int64_t height, width;
    *out = *in;
    LC_TRY(lc__byte_picture_of("resize", in, 0, &m));
    size_of(self, m.height, m.width, &height, &width);
    if (m.height && m.width) LC_TRY(lc__resize_check(m.height, m.width, height, width));
    lc__picture_resize(out, height, width);
    return LC_OK;
}

static size_t resize_scratch(void *self, const lc_field *in)
{
    const lc_transform_resize_args *a = self;
    const lc__pixels from = lc__pixels_of(in, NULL);
    int64_t height, width;
    size_of(a, from.height, from.width, &height, &width);
    return from.height && from.width ? lc__resample_scratch(&from, height, width, a->interpolation, a->antialias) : 0;
}

static lc_status resize_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                              uint64_t key, void *scratch)
{
    (void)key;
    const lc_transform_resize_args *a = self;
    const lc__pixels from = lc__pixels_of(in, src), to = lc__pixels_of(out, dst);
    const lc_box all = all_of(&from);
    lc__resample(&from, &all, &to, a->interpolation, a->antialias, scratch);
    return LC_OK;
}

static double resize_least_scale(void *self, const lc_field *in, uint64_t key)
{
    (void)key;
    lc__picture m;
    int64_t height, width;
    if (lc__picture_of("resize", in, &m) < 0) return 1;
    size_of(self, m.height, m.width, &height, &width);
    return fmin(1, fmax((double)height / (double)m.height, (double)width / (double)m.width));
}

static const lc_transform_ops resize_ops = {
    LC_TRANSFORM_OPS_INIT,
    .name = "resize",
    .describe = resize_describe,
    .apply = resize_apply,
    .scratch_size = resize_scratch,
    .free = lc__owned_free,
    .least_scale = resize_least_scale,
    .self_size = sizeof(lc_transform_resize_args),
};

lc_status lc_transform_resize_with(lc_transform *out, const lc_transform_resize_args *args)
{
    LC__TAKE(a, lc_transform_resize, lc_transform_resize_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    if (a.shorter ? a.height || a.width : a.max_size != 0)
        return lc_fail(LC_ERR_ARGUMENT, "resize takes a height and a width, or `shorter`, perhaps with a max_size");
    if (!a.height != !a.width)
        return lc_fail(LC_ERR_ARGUMENT, "resize: .%s is missing; give both sides, or .shorter for the shorter one",
                       a.height ? "width" : "height");
    if (!a.shorter && !a.height)
        return lc_fail(LC_ERR_ARGUMENT, "resize: give .height and .width, or .shorter for the shorter side");
    if (a.max_size && a.max_size <= a.shorter)
        return lc_fail(LC_ERR_ARGUMENT, "resize: a max_size of %lld must be larger than `shorter`, which is %lld",
                       (long long)a.max_size, (long long)a.shorter);
    LC_TRY(lc__check_resample("resize", a.interpolation));
    LC_TRY(a.shorter ? lc__check_size("resize", a.shorter, a.max_size ? a.max_size : a.shorter)
                     : lc__check_size("resize", a.height, a.width));
    return lc__transform_make(&resize_ops, &a, sizeof a, out);
}

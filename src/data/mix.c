/* SPDX-License-Identifier: Apache-2.0 */
/* MixUp (Zhang et al., 2018) and CutMix (Yun et al., 2019), as torchvision's v2 transforms of a batch. What is drawn
 * depends on the key of the global batch, so that every rank mixes its share in the same way. */
#include "data/mix.h"

#include <math.h>
#include <string.h>

lc_status lc__mix_check(const lc_sample_spec *spec, lc_mix mix, double alpha)
{
    if ((unsigned)mix > LC_MIXUP_OR_CUTMIX) return lc_fail(LC_ERR_ARGUMENT, "mix: unknown lc_mix %d", (int)mix);
    if (mix == LC_MIX_NONE) return LC_OK;
    if (!(alpha > 0 && alpha <= 1e6))
        return lc_fail(LC_ERR_ARGUMENT, "mix_alpha is %g; it must be positive, and at most 1e6", alpha);
    if (spec->n < 2 || spec->fields[0].dtype != LC_F32 || spec->fields[1].dtype != LC_F32 || spec->fields[1].ndim != 1)
        return lc_fail(LC_ERR_DTYPE,
                       "mix: samples must be x in f32, and y in f32 [classes]; put lc_transform_normalize "
                       "on field 0 and lc_transform_one_hot on field 1");
    const int ndim = spec->fields[0].ndim;
    if (mix == LC_MIXUP || ndim == 2 || ndim == 3) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "mix: CutMix needs images [C,H,W] or [H,W], and '%s' has %d dimensions",
                   spec->fields[0].name, ndim);
}

/* ---- random numbers ---- */

/* The logarithm of a number of the Gamma distribution (Marsaglia and Tsang, 2000): for a small alpha the number itself
 * may be too small for a double. */
static double log_gamma_number(double alpha, uint64_t key)
{
    const double shape = alpha < 1 ? alpha + 1 : alpha, d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    const double below_1 = alpha < 1 ? log(1 - lc_random_uniform(key, 0)) / alpha : 0;
    for (uint64_t i = 1;; i += 2) {
        const double x = lc_random_normal(lc_random_key(key, i), 0), v = 1 + c * x;
        if (!(v > 0)) continue;
        const double cube = v * v * v, u = 1 - lc_random_uniform(key, i);
        if (log(u) < 0.5 * x * x + d - d * cube + d * log(cube)) return log(d * cube) + below_1;
    }
}

double lc__beta(double alpha, uint64_t key)
{
    const double a = log_gamma_number(alpha, lc_random_key(key, 0)), b = log_gamma_number(alpha, lc_random_key(key, 1));
    return 1 / (1 + exp(b - a));
}

/* ---- a batch ---- */

static int64_t clamp(int64_t v, int64_t most)
{
    return v < 0 ? 0 : v > most ? most : v;
}

lc__mixture lc__mix_draw(const lc_sample_spec *spec, lc_mix mix, double alpha, uint64_t key)
{
    lc__mixture m = {.own = lc__beta(alpha, lc_random_key_name(key, "beta"))};
    m.cuts = mix == LC_CUTMIX || (mix == LC_MIXUP_OR_CUTMIX && lc_random_uniform(key, 0) < 0.5);
    if (!m.cuts) return m;
    const lc_field *x = &spec->fields[0];
    const int64_t height = x->shape[x->ndim - 2], width = x->shape[x->ndim - 1];
    const double half = 0.5 * sqrt(1 - m.own);
    const int64_t cx = (int64_t)lc_random_below(key, 1, (uint64_t)width),
                  cy = (int64_t)lc_random_below(key, 2, (uint64_t)height);
    const int64_t half_width = (int64_t)(half * (double)width), half_height = (int64_t)(half * (double)height);
    m.left = clamp(cx - half_width, width);
    m.right = clamp(cx + half_width, width);
    m.top = clamp(cy - half_height, height);
    m.bottom = clamp(cy + half_height, height);
    m.own = 1 - (double)((m.right - m.left) * (m.bottom - m.top)) / (double)(width * height);
    return m;
}

static void blend(float *to, const float *other, int64_t n, float own)
{
    const float rest = 1 - own;
    for (int64_t i = 0; i < n; i++) to[i] = to[i] * own + other[i] * rest;
}

static void cut(const lc_field *f, const lc__mixture *m, float *to, const float *other)
{
    const int64_t height = f->shape[f->ndim - 2], width = f->shape[f->ndim - 1],
                  channels = f->ndim == 3 ? f->shape[0] : 1;
    const bool last = f->ndim == 3 && f->layout == LC_CHANNELS_LAST;
    const int64_t planes = last ? 1 : channels, pixel = last ? channels : 1;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t y = m->top; y < m->bottom; y++) {
            const int64_t at = ((p * height + y) * width + m->left) * pixel;
            memcpy(to + at, other + at, (size_t)((m->right - m->left) * pixel) * sizeof *to);
        }
}

void lc__mix_run(const lc_sample_spec *spec, const lc__mixture *m, float *x, const float *other_x, float *y,
                 const float *other_y)
{
    if (m->cuts)
        cut(&spec->fields[0], m, x, other_x);
    else
        blend(x, other_x, lc_field_numel(&spec->fields[0]), (float)m->own);
    blend(y, other_y, lc_field_numel(&spec->fields[1]), (float)m->own);
}

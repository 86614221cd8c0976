/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and their gradients as products, whose factors are patches of images:
 *
 *   y[place][o]   = sum over (tap, c) of x[patch of place][tap, c] * w[o][tap, c]
 *   dx[place][c]  = sum over (tap, o) of dy[patch of place][tap, o] * w[o][tap, c]
 *   dw[o][tap, c] = sum over places of dy[place][o] * x[patch of place][tap, c]
 *
 * Images and weights are channels-last. With a stride, a place of dx is reached only by the taps that are a multiple of
 * the stride away, so there is one product for each remainder, with the taps and places of that remainder. */
#ifndef LC_BACKENDS_CPU_ISA_PATCHES_H
#define LC_BACKENDS_CPU_ISA_PATCHES_H

#include <lightc/op.h>
#include <string.h>

typedef struct tap {
    int64_t number, shift[3]; /* in the kernel; from a place times `step` to the pixel */
} tap;

/* The patches of all places, and where results of these places go. Three dimensions; those that are missing have size
 * 1. */
typedef struct patches {
    int64_t places[3], step[3], size[3]; /* size: of the images that are read */
    int64_t channels, pixel;             /* of a group; of all groups */
    const tap *taps;
    const void *images;
    int64_t to_step[3], to_shift[3], to_size[3], to_pixel; /* dx */
} patches;

typedef struct place {
    int64_t image, at[3];
} place;

static inline place place_of(const patches *f, int64_t i)
{
    place p;
    for (int d = 2; d >= 0; d--) {
        p.at[d] = i % f->places[d];
        i /= f->places[d];
    }
    p.image = i;
    return p;
}

static inline place next_place(const patches *f, place p)
{
    for (int d = 2; d >= 0; d--) {
        if (++p.at[d] < f->places[d]) return p;
        p.at[d] = 0;
    }
    p.image++;
    return p;
}

/* The element of the images where the pixel begins that a tap reads; -1 outside. */
static inline int64_t pixel_at(const patches *f, const place *p, const tap *t)
{
    int64_t at = p->image;
    for (int d = 0; d < 3; d++) {
        int64_t i = p->at[d] * f->step[d] + t->shift[d];
        if (i < 0 || i >= f->size[d]) return -1;
        at = at * f->size[d] + i;
    }
    return at * f->pixel;
}

/* The element of dx where the results of place m begin. */
static inline int64_t result_at(const patches *f, int64_t m)
{
    place to = place_of(f, m);
    int64_t at = to.image;
    for (int d = 0; d < 3; d++) at = at * f->to_size[d] + to.at[d] * f->to_step[d] + f->to_shift[d];
    return at * f->to_pixel;
}

/* The attributes with three dimensions. */
typedef struct shape {
    int64_t images, in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t in_channels, out_channels, groups;
} shape;

static inline shape shape_of(const int64_t *ints, const lc_view *x, const lc_view *w, const lc_view *y)
{
    int nd = (int)ints[0], missing = 3 - nd;
    shape s = {
        .images = x->shape[0], .in_channels = x->shape[1], .out_channels = y->shape[1], .groups = ints[1 + 3 * nd]};
    for (int d = 0; d < 3; d++) {
        int i = d - missing;
        s.in[d] = i < 0 ? 1 : x->shape[2 + i];
        s.out[d] = i < 0 ? 1 : y->shape[2 + i];
        s.kernel[d] = i < 0 ? 1 : w->shape[2 + i];
        s.stride[d] = i < 0 ? 1 : ints[1 + i];
        s.padding[d] = i < 0 ? 0 : ints[1 + nd + i];
        s.dilation[d] = i < 0 ? 1 : ints[1 + 2 * nd + i];
    }
    return s;
}

static inline int64_t product_of_3(const int64_t *n)
{
    return n[0] * n[1] * n[2];
}

/* The patches of x that results are computed from. */
static inline void all_patches(const shape *s, tap *taps, patches *f)
{
    *f = (patches){.channels = s->in_channels / s->groups, .pixel = s->in_channels, .taps = taps};
    memcpy(f->places, s->out, sizeof f->places);
    memcpy(f->step, s->stride, sizeof f->step);
    memcpy(f->size, s->in, sizeof f->size);
    for (int64_t i = 0; i < product_of_3(s->kernel); i++) {
        int64_t rest = taps[i].number = i;
        for (int d = 2; d >= 0; d--) {
            taps[i].shift[d] = rest % s->kernel[d] * s->dilation[d] - s->padding[d];
            rest /= s->kernel[d];
        }
    }
}

/* The places of dx whose coordinates have these remainders, and their taps, which are written to `taps`. Returns how
 * many there are; a tap outside of all images stands for none. */
static inline int64_t some_patches(const shape *s, const int64_t *remainder, tap *taps, patches *f)
{
    int64_t n = 0;
    *f = (patches){
        .channels = s->out_channels / s->groups, .pixel = s->out_channels, .taps = taps, .to_pixel = s->in_channels};
    memcpy(f->size, s->out, sizeof f->size);
    for (int d = 0; d < 3; d++) {
        f->places[d] = (s->in[d] - remainder[d] + s->stride[d] - 1) / s->stride[d];
        f->step[d] = 1;
        f->to_step[d] = s->stride[d];
        f->to_shift[d] = remainder[d];
        f->to_size[d] = s->in[d];
    }
    for (int64_t i = 0; i < product_of_3(s->kernel); i++) {
        tap t = {.number = i};
        int64_t rest = i;
        bool reaches = true;
        for (int d = 2; d >= 0; d--) {
            int64_t away = remainder[d] + s->padding[d] - rest % s->kernel[d] * s->dilation[d];
            reaches &= away % s->stride[d] == 0;
            t.shift[d] = away / s->stride[d];
            rest /= s->kernel[d];
        }
        if (reaches) taps[n++] = t;
    }
    if (n == 0) taps[n++] = (tap){.shift = {s->out[0]}};
    return n;
}

#endif

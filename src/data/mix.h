/* SPDX-License-Identifier: Apache-2.0 */
/* MixUp and CutMix: the samples of a batch, each mixed with the one before it. */
#ifndef LC_DATA_MIX_H
#define LC_DATA_MIX_H

#include <lightc/data.h>

/* What was drawn for a batch. */
typedef struct lc__mixture {
    bool cuts;                        /* a rectangle comes from the other sample; else all of it, in part */
    double own;                       /* the share of a sample's own label, and of its numbers */
    int64_t top, left, bottom, right; /* the rectangle, its ends excluded */
} lc__mixture;

/* Arguments that do not fit the samples are an error. */
lc_status lc__mix_check(const lc_sample_spec *spec, lc_mix mix, double alpha) LC_MUST_USE;
lc__mixture lc__mix_draw(const lc_sample_spec *spec, lc_mix mix, double alpha, uint64_t key);
/* Mixes x and y of a sample with those of another. */
void lc__mix_run(const lc_sample_spec *spec, const lc__mixture *m, float *x, const float *other_x, float *y,
                 const float *other_y);
/* A number of the Beta distribution of alpha and alpha. */
double lc__beta(double alpha, uint64_t key);

#endif

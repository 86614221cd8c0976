/* SPDX-License-Identifier: Apache-2.0 */
/* Points of three classes, for trainings that take an instant. Define before including it: enum { SAMPLES }. */
#ifndef LC_TESTS_SMALL_DATA_H
#define LC_TESTS_SMALL_DATA_H

#include <lightc/lightc.h>

enum { FEATURES = 6, CLASSES = 3 };

static float inputs[SAMPLES][FEATURES];
static int64_t labels[SAMPLES];

__attribute__((constructor)) static void small_data_make(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < FEATURES; k++) inputs[i][k] = (float)lc_random_normal(9, (uint64_t)(i * FEATURES + k));
        labels[i] = (inputs[i][0] + inputs[i][1] > 0) + (inputs[i][2] > 0.5f);
    }
}

/* Samples [first, first + n). */
static inline lc_status loader_of(int64_t first, int64_t n, int64_t batch, bool shuffle, lc_dataloader **out)
{
    lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs[first]},
        {.field = {.name = "y", .dtype = LC_I64}, .data = labels + first}};
    lc_dataset *d;
    LC_TRY(lc_array_dataset_new(n, 2, arrays, &d));
    lc_status s = lc_dataloader_new(out, .dataset = d, .batch_size = batch, .shuffle = shuffle, .seed = 4);
    lc_dataset_unref(d);
    return s;
}

#endif

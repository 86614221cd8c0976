/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that no row and no network calls: those that make numbers, those of whole batches, the scale of a loss. */
#include "check/check.h"
#include "device/device.h"

#include <math.h>

enum { SAMPLES = 3, SIDE = 6 };

static lc_status fill(lc_tensor *t, lc_dtype dtype)
{
    union {
        float f[SAMPLES * SIDE * SIDE];
        int64_t i[SAMPLES * SIDE * SIDE];
    } numbers;
    int64_t n = lc_tensor_numel(t);
    for (int64_t k = 0; k < n; k++) {
        if (dtype == LC_I64)
            numbers.i[k] = k;
        else
            numbers.f[k] = (float)k / (float)n;
    }
    return lc_tensor_write(t, &numbers, (size_t)n * lc_dtype_size(dtype));
}

static lc_status new_tensor(lc_dtype dtype, int ndim, lc_tensor **out)
{
    LC_TRY(lc_tensor_new(dtype, ndim, (const int64_t[]){SAMPLES, 1, SIDE, SIDE}, out));
    return fill(*out, dtype);
}

/* x [B,1,H,W], keys [B] */
static void make_numbers(lc_tensor *x, lc_tensor *keys)
{
    const int64_t shape[] = {SAMPLES, SIDE};
    lc_keep(lc_arange(2, 3, SIDE, LC_F32));
    lc_keep(lc_arange(-1, 2, SIDE, LC_I64));
    lc_keep(lc_one_hot(keys, SIDE));
    lc_keep(lc_bernoulli(x));
    lc_keep(lc_normal(2, shape, .std = 2));
    lc_keep(lc_uniform(2, shape, .low = -1));
}

static lc_status transform(lc_tensor *x, lc_tensor *keys)
{
    lc_transform crop;
    LC_TRY(lc_transform_random_crop(SIDE - 2, SIDE - 1, &crop));
    lc_keep(lc_transform_batch(&crop, x, keys));
    crop.ops->free(crop.self);
    for (lc_mix mix = LC_MIXUP; mix <= LC_CUTMIX; mix++) {
        lc_tensor *mixed = x, *labels = lc_cast(lc_one_hot(keys, SIDE), LC_F32);
        lc_mix_batch(&mixed, &labels, keys, mix, 1);
        lc_keep(mixed), lc_keep(labels);
    }
    return LC_OK;
}

/* Once after finite gradients, and once after others. */
static void scale(lc_tensor *const *numbers)
{
    for (int k = 0; k < 2; k++) {
        lc_tensor *factor = lc_scalar(k ? NAN : 0.5, LC_F32);
        lc_tensor *in[] = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], factor};
        lc_op_call(lc__op_find("update_scale"), 6, in, 2, (const int64_t[]){2, !k}, 2, (const double[]){2, 0.5},
                   LC_HERE);
    }
}

typedef struct operands {
    lc_tensor *x, *keys, *numbers[5];
} operands;

static lc_status make_operands(operands *o)
{
    LC_TRY(new_tensor(LC_F32, 4, &o->x));
    LC_TRY(new_tensor(LC_I64, 1, &o->keys));
    for (int i = 0; i < 5; i++) {
        LC_TRY(lc_tensor_new(LC_F32, 0, NULL, &o->numbers[i]));
        LC_TRY(lc_tensor_write(o->numbers[i], &(float){1}, sizeof(float)));
    }
    return LC_OK;
}

static lc_status run(check *c, lc_graph *g, const operands *o)
{
    g->reference_only = true;
    LC_TRY(lc_step_begin(g, 0, 0));
    make_numbers(o->x, o->keys);
    LC_TRY(transform(o->x, o->keys));
    scale(o->numbers);
    LC_TRY(lc_step_status(g));
    LC_TRY(check_step(c, g));
    return lc_step_end(g);
}

lc_status check_others(check *c)
{
    operands o = {0};
    lc_graph *g = NULL;
    lc_status status = lc_graph_new(&g, .threads = 1, .seed = 5, .device = "cpu");
    if (status >= 0) status = make_operands(&o);
    if (status >= 0 && g) status = run(c, g, &o);
    for (int i = 0; i < 5; i++) lc_tensor_unref(o.numbers[i]);
    lc_tensor_unref(o.x), lc_tensor_unref(o.keys);
    lc_graph_free(g);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/initial.h"

#include "base/number.h"
#include "base/philox.h"
#include "tensor/host_access.h"
#include "tensor/low.h"
#include "tensor/slice.h"

#include <lightc/random.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static int64_t fan(int ndim, const int64_t *shape, bool out)
{
    if (ndim < 2) return ndim ? shape[0] : 1;
    int64_t n = shape[out ? 0 : 1];
    for (int i = 2; i < ndim; i++) n *= shape[i];
    return n;
}

/* Turns every kind into uniform [a, b), normal (a, b) or constant a. */
static lc_init resolve_init(lc_init init, int ndim, const int64_t *shape)
{
    int64_t fan_in = init.fan_in ? init.fan_in : fan(ndim, shape, false), fan_out = fan(ndim, shape, true);
    double in = fan_in > 0 ? (double)fan_in : 1, both = fan_in + fan_out > 0 ? (double)(fan_in + fan_out) : 1;
    double gain = init.a == 0 ? 1 : init.a, bound;
    switch (init.kind) {
    case LC_INIT_ZEROS:
        return (lc_init){LC_INIT_CONSTANT, 0, 0, 0};
    case LC_INIT_ONES:
        return (lc_init){LC_INIT_CONSTANT, 1, 0, 0};
    case LC_INIT_KAIMING_UNIFORM:
        bound = sqrt(6 / ((1 + init.a * init.a) * in));
        return (lc_init){LC_INIT_UNIFORM, -bound, bound, 0};
    case LC_INIT_KAIMING_NORMAL:
        return (lc_init){LC_INIT_NORMAL, 0, sqrt(2 / ((1 + init.a * init.a) * in)), 0};
    case LC_INIT_XAVIER_UNIFORM:
        bound = gain * sqrt(6 / both);
        return (lc_init){LC_INIT_UNIFORM, -bound, bound, 0};
    case LC_INIT_XAVIER_NORMAL:
        return (lc_init){LC_INIT_NORMAL, 0, gain * sqrt(2 / both), 0};
    default:
        return init;
    }
}

static double init_value(const lc_init *init, uint64_t key, uint64_t i)
{
    switch (init->kind) {
    case LC_INIT_UNIFORM:
        return init->a + (init->b - init->a) * lc_random_uniform(key, i);
    case LC_INIT_NORMAL:
        return init->a + init->b * lc_random_normal(key, i);
    default:
        return init->a;
    }
}

static void fill(void *data, lc_dtype dtype, int64_t begin, int64_t n, const lc__initial *from)
{
    for (int64_t i = 0; i < n; i++)
        lc__set_number(data, dtype, i, init_value(&from->init, from->key, (uint64_t)(begin + i)));
}

/* f32 needs 24 bits a number, so one Philox block makes four: a program's start-up time is largely spent here. Halves
 * are the same numbers, rounded; so is f64 that the program sees as f32. */
static void fill_f32(void *data, lc_dtype dtype, int64_t begin, int64_t n, const lc__initial *from)
{
    enum { BLOCKS = 64, VALUES = BLOCKS * 4 };
    uint32_t w[BLOCKS][4];
    float value[VALUES];
    const lc_init *init = &from->init;
    const bool normal = init->kind == LC_INIT_NORMAL;
    const float a = (float)init->a, range = (float)(init->b - init->a), sd = (float)init->b;
    for (int64_t at = begin / 4 * 4; at < begin + n; at += VALUES) {
        for (int k = 0; k < BLOCKS; k++) lc__philox(from->key, (uint64_t)(at / 4 + k), 0, w[k]);
        if (normal) { /* Box-Muller: two words make two numbers */
            for (int k = 0; k < BLOCKS * 2; k++) {
                const uint32_t *pair = &w[0][0] + 2 * k;
                float r = sd * sqrtf(-2 * logf(((float)pair[0] + 1) * 0x1p-32f));
                float angle = (float)(pair[1] >> 8) * (0x1p-24f * 6.28318530717958648f);
                value[2 * k] = a + r * cosf(angle);
                value[2 * k + 1] = a + r * sinf(angle);
            }
        } else {
            const uint32_t *words = &w[0][0];
            for (int k = 0; k < VALUES; k++) value[k] = a + range * ((float)(int32_t)(words[k] >> 8) * 0x1p-24f);
        }
        int64_t first = at < begin ? begin - at : 0, left = begin + n - at, last = left < VALUES ? left : VALUES;
        if (dtype == LC_F32)
            memcpy((float *)data + (at + first - begin), value + first, (size_t)(last - first) * sizeof *value);
        else
            for (int64_t i = first; i < last; i++) lc__set_number(data, dtype, at + i - begin, (double)value[i]);
    }
}

void lc__initial_range(const lc_tensor *t, int64_t begin, int64_t count, void *data)
{
    lc_dtype dtype = t->type.dtype;
    if (lc_dtype_is_float(dtype) && lc__seen_type(t)->dtype != LC_F64 && t->initial->init.kind != LC_INIT_CONSTANT)
        fill_f32(data, dtype, begin, count, t->initial);
    else
        fill(data, dtype, begin, count, t->initial);
    int64_t from = t->initial->zeros_from, end = from + t->initial->zeros;
    from = from > begin ? from : begin;
    end = end < begin + count ? end : begin + count;
    size_t width = lc_dtype_size(dtype);
    if (from < end) memset((char *)data + (size_t)(from - begin) * width, 0, (size_t)(end - from) * width);
}

/* ---- tensors ---- */

lc_status lc__tensor_set_initial(lc_tensor *t, const lc__initial *initial)
{
    if (!t->initial && !(t->initial = malloc(sizeof *t->initial)))
        return lc_fail(LC_ERR_MEMORY, "out of memory: the initial values of a tensor");
    *t->initial = *initial;
    return LC_OK;
}

lc_status lc__tensor_start_as(lc_tensor *t, lc_init init, uint64_t key)
{
    lc__initial initial = {.init = resolve_init(init, t->type.ndim, t->type.shape), .key = key};
    /* Recorded operators may still read the old value. */
    LC_TRY(lc__tensor_wait(t));
    LC_TRY(lc__tensor_revive(t));
    LC_TRY(lc__tensor_set_initial(t, &initial));
    /* A tensor in use has been filled already, and will not be checked again. */
    bool in_use = t->is_slice || t->flat || t->graph || t->replicas;
    return in_use ? lc__tensor_fill(t) : LC_OK;
}

lc_status lc__tensor_start_with_zeros(lc_tensor *t, int64_t from, int64_t count)
{
    if (!t->initial) { /* the module is being built while a step is recorded */
        lc_view v;
        size_t width = lc_dtype_size(t->type.dtype);
        LC_TRY(lc__tensor_map(t, LC__READ_WRITE, &v));
        memset((char *)v.data + (size_t)from * width, 0, (size_t)count * width);
        lc__tensor_unmap(t, LC__READ_WRITE);
        return LC_OK;
    }
    t->initial->zeros_from = from;
    t->initial->zeros = count;
    return LC_OK;
}

void lc__tensor_forget_initial(lc_tensor *t)
{
    free(t->initial);
    t->initial = NULL;
}

/* The address space was reserved without asking for memory. */
static lc_status check_memory(const lc_tensor *t, size_t bytes)
{
    enum { LARGE = 64 << 20 };
    char shape[128];
    if (bytes < LARGE) return LC_OK;
    size_t available = t->on->ops->available(t->on->context);
    if (bytes <= available) return LC_OK;
    return lc_fail(LC_ERR_MEMORY, "a tensor of %s %s needs %zu MiB of memory; %zu MiB are available",
                   lc_dtype_name(t->type.dtype), lc__shape_text(&t->type, shape, sizeof shape), bytes >> 20,
                   available >> 20);
}

/* The initial value of what this rank has of t, in t's layout. */
static lc_status make_value(lc_tensor *t, int64_t begin, int64_t count, void *out)
{
    lc_view from, to;
    if (t->layout == LC_ROW_MAJOR || t->type.ndim < 3) {
        lc__initial_range(t, begin, count, out);
        return LC_OK;
    }
    size_t bytes = (size_t)lc__numel(&t->type) * lc_dtype_size(t->type.dtype);
    void *whole = malloc(bytes + 1);
    if (!whole) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for initial values", bytes);
    lc__initial_range(t, 0, lc__numel(&t->type), whole);
    lc_status status = LC_OK;
    if (t->is_slice) {
        status = lc__tensor_cut_value(t, whole, out);
    } else {
        lc__view_of(&t->type, LC_ROW_MAJOR, whole, &from);
        lc__view_of(&t->type, t->layout, out, &to);
        lc__copy_strided(&from, &to);
    }
    free(whole);
    return status;
}

static lc_status fill_on_device(lc_tensor *t, int64_t begin, int64_t count)
{
    size_t bytes = (size_t)count * lc_dtype_size(t->type.dtype);
    void *value = malloc(bytes + 1);
    if (!value) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for initial values", bytes);
    lc_status status = make_value(t, begin, count, value);
    if (status >= 0) status = lc__device_copy(t->on, t->device_data, lc__host_device(), value, bytes);
    free(value);
    return status;
}

lc_status lc__tensor_fill(lc_tensor *t)
{
    int64_t begin, count;
    if (!t->initial) return LC_OK;
    lc__tensor_slice(t, &begin, &count);
    LC_TRY(check_memory(t, (size_t)count * lc_dtype_size(t->type.dtype)));
    if (lc__on_host(t->on))
        LC_TRY(make_value(t, begin, count, t->device_data));
    else
        LC_TRY(fill_on_device(t, begin, count));
    lc__tensor_written(t);
    lc__tensor_forget_initial(t);
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/reduce/compress.h"

#include "base/number.h"

#include <lightc/status.h>
#include <stdlib.h>
#include <string.h>

typedef struct bucket {
    void *data;
    lc_dtype dtype;
    int64_t count, at; /* in `packed` */
} bucket;

struct lc__wire {
    lc_dtype dtype;
    double ranks;
    bucket *buckets;
    int n, cap;
    uint16_t *packed;
    int64_t used, room;
};

lc_status lc__wire_find(const char *name, lc_dtype *out)
{
    *out = name && !strcmp(name, "bf16") ? LC_BF16 : name && !strcmp(name, "fp16") ? LC_F16 : LC_F32;
    if (*out != LC_F32 || !name || !*name || !strcmp(name, "none")) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "gradient_compression is \"%.60s\"; it must be none, bf16 or fp16", name);
}

lc_status lc__wire_new(lc_dtype dtype, int ranks, lc__wire **out)
{
    lc__wire *w = *out = calloc(1, sizeof *w);
    if (!w) return lc_fail(LC_ERR_MEMORY, "out of memory: compressed gradients");
    w->dtype = dtype;
    w->ranks = ranks;
    return LC_OK;
}

void lc__wire_free(lc__wire *w)
{
    if (!w) return;
    free(w->buckets);
    free(w->packed);
    free(w);
}

lc_dtype lc__wire_dtype(const lc__wire *w)
{
    return w->dtype;
}

lc_status lc__wire_reserve(lc__wire *w, int64_t elements, int buckets)
{
    if (elements > w->room) {
        uint16_t *packed = realloc(w->packed, (size_t)elements * sizeof *packed);
        if (!packed) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld compressed gradients", (long long)elements);
        w->packed = packed;
        w->room = elements;
    }
    if (buckets > w->cap) {
        bucket *list = realloc(w->buckets, (size_t)buckets * sizeof *list);
        if (!list) return lc_fail(LC_ERR_MEMORY, "out of memory: %d buckets of compressed gradients", buckets);
        w->buckets = list;
        w->cap = buckets;
    }
    return LC_OK;
}

#define PACK(T, to_half)                                                                                               \
    for (int64_t i = 0; i < count; i++) to[i] = to_half((float)(((const T *)data)[i] * (T)factor))
#define UNPACK(T, from_half)                                                                                           \
    for (int64_t i = 0; i < b->count; i++) ((T *)b->data)[i] = (T)from_half(from[i]) * (T)w->ranks

void *lc__wire_pack(lc__wire *w, void *data, lc_dtype dtype, int64_t count)
{
    uint16_t *to = w->packed + w->used;
    double factor = 1 / w->ranks;
    w->buckets[w->n++] = (bucket){data, dtype, count, w->used};
    w->used += count;
    if (lc__is_half(dtype))
        for (int64_t i = 0; i < count; i++) lc__set_number(to, w->dtype, i, lc__number_at(data, dtype, i) * factor);
    else if (dtype == LC_F64 && w->dtype == LC_BF16)
        PACK(double, lc__f32_to_bf16);
    else if (dtype == LC_F64)
        PACK(double, lc__f32_to_f16);
    else if (w->dtype == LC_BF16)
        PACK(float, lc__f32_to_bf16);
    else
        PACK(float, lc__f32_to_f16);
    return to;
}

void lc__wire_unpack(lc__wire *w)
{
    for (const bucket *b = w->buckets; b < w->buckets + w->n; b++) {
        const uint16_t *from = w->packed + b->at;
        if (lc__is_half(b->dtype))
            for (int64_t i = 0; i < b->count; i++)
                lc__set_number(b->data, b->dtype, i, lc__number_at(from, w->dtype, i) * w->ranks);
        else if (b->dtype == LC_F64 && w->dtype == LC_BF16)
            UNPACK(double, lc__bf16_to_f32);
        else if (b->dtype == LC_F64)
            UNPACK(double, lc__f16_to_f32);
        else if (w->dtype == LC_BF16)
            UNPACK(float, lc__bf16_to_f32);
        else
            UNPACK(float, lc__f16_to_f32);
    }
    w->n = 0;
    w->used = 0;
}

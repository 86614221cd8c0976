/* SPDX-License-Identifier: Apache-2.0 */
/* The tree is walked as a binary counter: after part k, as many partial sums are merged as k has trailing ones, so that
 * at any time the stack holds one subtree for each bit of the number of parts seen. Elements are processed in blocks
 * that stay in the first-level cache. */
#include "comm/combine.h"
#include "base/handle.h"

#include "base/half.h"

#include <string.h>

enum { BLOCK = 256, LEVELS = 32 };

#define PLUS(a, b)  ((a) + (b))
#define TIMES(a, b) ((a) * (b))
#define LEAST(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define MOST(a, b)  ((b) > (a) || (b) != (b) ? (b) : (a))
#define SAME(x)     (x)

/* stored: the type in memory; T: the type it is combined in. */
#define COMBINE(name, stored, T, GET, PUT, OP)                                                                         \
    static void name(int n, const void *const *parts, void *out, int64_t count)                                        \
    {                                                                                                                  \
        T level[LEVELS][BLOCK];                                                                                        \
        for (int64_t at = 0; at < count; at += BLOCK) {                                                                \
            int m = count - at < BLOCK ? (int)(count - at) : BLOCK, top = 0;                                           \
            for (int k = 0; k < n; k++) {                                                                              \
                const stored *part = (const stored *)parts[k] + at;                                                    \
                for (int i = 0; i < m; i++) level[top][i] = GET(part[i]);                                              \
                top++;                                                                                                 \
                for (unsigned ones = (unsigned)k; ones & 1; ones >>= 1, top--)                                         \
                    for (int i = 0; i < m; i++) level[top - 2][i] = OP(level[top - 2][i], level[top - 1][i]);          \
            }                                                                                                          \
            for (; top > 1; top--)                                                                                     \
                for (int i = 0; i < m; i++) level[top - 2][i] = OP(level[top - 2][i], level[top - 1][i]);              \
            stored *to = (stored *)out + at;                                                                           \
            for (int i = 0; i < m; i++) to[i] = PUT(level[0][i]);                                                      \
        }                                                                                                              \
    }

#define COMBINE_ALL(type, stored, T, GET, PUT)                                                                         \
    COMBINE(sum_##type, stored, T, GET, PUT, PLUS)                                                                     \
    COMBINE(prod_##type, stored, T, GET, PUT, TIMES)                                                                   \
    COMBINE(min_##type, stored, T, GET, PUT, LEAST)                                                                    \
    COMBINE(max_##type, stored, T, GET, PUT, MOST)

/* Integers wrap around, as unsigned ones do. */
#define WRAP_PLUS(a, b)  ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define WRAP_TIMES(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define COMBINE_WHOLE(type, stored)                                                                                    \
    COMBINE(sum_##type, stored, int64_t, SAME, (stored), WRAP_PLUS)                                                    \
    COMBINE(prod_##type, stored, int64_t, SAME, (stored), WRAP_TIMES)                                                  \
    COMBINE(min_##type, stored, int64_t, SAME, (stored), LEAST)                                                        \
    COMBINE(max_##type, stored, int64_t, SAME, (stored), MOST)

COMBINE_ALL(f32, float, float, SAME, SAME)
COMBINE_ALL(f64, double, double, SAME, SAME)
COMBINE_ALL(f16, uint16_t, float, lc__f16_to_f32, lc__f32_to_f16)
COMBINE_ALL(bf16, uint16_t, float, lc__bf16_to_f32, lc__f32_to_bf16)
COMBINE_WHOLE(i64, int64_t)
COMBINE_WHOLE(i32, int32_t)
COMBINE_WHOLE(u8, uint8_t)

typedef void combine_fn(int n, const void *const *parts, void *out, int64_t count);

#define ROW(type)                                                                                                      \
    {                                                                                                                  \
        sum_##type, prod_##type, min_##type, max_##type                                                                \
    }
static combine_fn *const table[][4] = {
    [LC_F32] = ROW(f32), [LC_F64] = ROW(f64), [LC_F16] = ROW(f16), [LC_BF16] = ROW(bf16),
    [LC_I64] = ROW(i64), [LC_I32] = ROW(i32), [LC_U8] = ROW(u8),   [LC_BOOL] = {NULL, NULL, min_u8, max_u8},
};

/* The usual case, without the stack. */
static void sum_two(const float *a, const float *b, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

void lc_comm_combine(lc_dtype dtype, lc_reduce_op op, int n, const void *const *parts, void *out, int64_t count)
{
    LC__NEEDS(parts, );
    LC__NEEDS(out, );
    if (n == 2 && dtype == LC_F32 && op == LC_COMM_SUM)
        sum_two(parts[0], parts[1], out, count);
    else
        table[dtype][op](n, parts, out, count);
}

const char *lc__reduce_name(lc_reduce_op op)
{
    static const char *const names[] = {"sum", "prod", "min", "max"};
    return op >= LC_COMM_SUM && op <= LC_COMM_MAX ? names[op] : "?";
}

lc_status lc__combine_check(lc_dtype dtype, lc_reduce_op op)
{
    if (op < LC_COMM_SUM || op > LC_COMM_MAX)
        return lc_fail(LC_ERR_ARGUMENT, "%d is not a reduction; available: sum, prod, min and max", (int)op);
    if (!table[dtype][op])
        return lc_fail(LC_ERR_DTYPE, "%s is not defined for %s; use min for \"and\", max for \"or\"",
                       lc__reduce_name(op), lc_dtype_name(dtype));
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do in the tests of collectives, over any backend: each function is one rank's part. They use only the
 * public interface. */
#ifndef LC_COMM_RANKS_H
#define LC_COMM_RANKS_H

#include "comm_world.h"

#include "base/half.h"

/* ---- integers ---- */

/* Rank r's number at index i: small, so that sums and products of 8 ranks are exact even in bf16 (8 bits). */
static double number(lc_reduce_op op, int rank, int64_t i)
{
    return op == LC_COMM_PROD ? (double)(1 + ((rank + i) % 4 == 0)) : (double)((rank * 7 + i * 3) % 11);
}

static void put(lc_dtype dtype, void *data, int64_t i, double v)
{
    switch (dtype) {
    case LC_F32:
        ((float *)data)[i] = (float)v;
        break;
    case LC_F64:
        ((double *)data)[i] = v;
        break;
    case LC_F16:
        ((uint16_t *)data)[i] = lc__f32_to_f16((float)v);
        break;
    case LC_BF16:
        ((uint16_t *)data)[i] = lc__f32_to_bf16((float)v);
        break;
    case LC_I64:
        ((int64_t *)data)[i] = (int64_t)v;
        break;
    case LC_I32:
        ((int32_t *)data)[i] = (int32_t)v;
        break;
    case LC_BOOL:
        ((uint8_t *)data)[i] = v > 5;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)v;
    }
}

static double combined(lc_reduce_op op, int size, int64_t i, bool truth)
{
    double all = 0;
    for (int r = 0; r < size; r++) {
        double v = number(op, r, i);
        if (truth) v = v > 5;
        if (r == 0)
            all = v;
        else
            all = op == LC_COMM_SUM    ? all + v
                  : op == LC_COMM_PROD ? all * v
                  : op == LC_COMM_MIN  ? fmin(all, v)
                                       : fmax(all, v);
    }
    return truth ? all * 10 : all;
}

enum { GUARD = 64 };

typedef struct buffers {
    char *in, *out, *want;
    size_t bytes;
} buffers;

/* Room for n elements, with a guard after each buffer that is offset by one element, so that nothing is aligned by
 * chance. */
static lc_status buffers_new(buffers *b, lc_dtype dtype, int64_t n)
{
    b->bytes = (size_t)n * lc_dtype_size(dtype);
    for (int i = 0; i < 3; i++) {
        char *p = malloc(b->bytes + GUARD);
        if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory");
        memset(p, 0xa5, b->bytes + GUARD);
        *(i == 0 ? &b->in : i == 1 ? &b->out : &b->want) = p;
    }
    return LC_OK;
}

static void buffers_free(buffers *b)
{
    free(b->in), free(b->out), free(b->want);
}

#define SAME(b) (!memcmp((b).out, (b).want, (b).bytes + GUARD))

typedef struct reduction {
    lc_dtype dtype;
    lc_reduce_op op;
    int64_t count;
} reduction;

static lc_status reductions(lc_comm *c, const reduction *r)
{
    int n = lc_comm_size(c), me = lc_comm_rank(c);
    int64_t count = r->count;
    buffers b = {0};
    LC_TRY(buffers_new(&b, r->dtype, count * n));
    for (int64_t i = 0; i < count * n; i++) put(r->dtype, b.in, i, number(r->op, me, i));
    char *kept = malloc(b.bytes + GUARD);
    memcpy(kept, b.in, b.bytes + GUARD);
    /* all_reduce of everything */
    for (int64_t i = 0; i < count * n; i++) put(r->dtype, b.want, i, combined(r->op, n, i, r->dtype == LC_BOOL));
    LC_TRY(lc_comm_all_reduce(c, b.in, b.out, count * n, r->dtype, r->op, NULL));
    RANK_CHECK(SAME(b));
    RANK_CHECK(!memcmp(b.in, kept, b.bytes + GUARD));
    memcpy(b.out, b.in, b.bytes);
    LC_TRY(lc_comm_all_reduce(c, b.out, b.out, count * n, r->dtype, r->op, NULL));
    RANK_CHECK(SAME(b));
    /* to each root */
    for (int root = 0; root < n; root++) {
        memset(b.out, 0xa5, b.bytes);
        LC_TRY(lc_comm_reduce(c, b.in, me == root ? b.out : NULL, count * n, r->dtype, r->op, root, NULL));
        RANK_CHECK(me != root || SAME(b));
    }
    /* a part for each */
    size_t part = (size_t)count * lc_dtype_size(r->dtype);
    memset(b.out, 0xa5, b.bytes);
    LC_TRY(lc_comm_reduce_scatter(c, b.in, b.out, count, r->dtype, r->op, NULL));
    RANK_CHECK(!memcmp(b.out, b.want + (size_t)me * part, part));
    RANK_CHECK(n == 1 || part == 0 || (unsigned char)b.out[part] == 0xa5);
    LC_TRY(lc_comm_reduce_scatter(c, b.in, b.in + (size_t)me * part, count, r->dtype, r->op, NULL));
    RANK_CHECK(!memcmp(b.in + (size_t)me * part, b.want + (size_t)me * part, part));
    free(kept);
    buffers_free(&b);
    return LC_OK;
}

static const int64_t sizes[] = {0, 1, 3, 16, 17, 1000, 70001};

static lc_status all_reductions(lc_comm *c, void *ctx)
{
    static const lc_dtype dtypes[] = {LC_F32, LC_F64, LC_F16, LC_BF16, LC_I64, LC_I32, LC_U8, LC_BOOL};
    (void)ctx;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int op = dtypes[d] == LC_BOOL ? LC_COMM_MIN : LC_COMM_SUM; op <= LC_COMM_MAX; op++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                /* sizes larger than the buffers between two ranks, for one type */
                if (sizes[s] > 1000 && (d > 0 || op != LC_COMM_SUM)) continue;
                if (op != LC_COMM_SUM && sizes[s] != 17 && d > 0) continue;
                reduction r = {dtypes[d], (lc_reduce_op)op, sizes[s]};
                LC_TRY(reductions(c, &r));
            }
    return LC_OK;
}

/* ---- moving ---- */

static int32_t mark(int rank, int64_t i)
{
    return (int32_t)(rank * 1000003 + i);
}

static lc_status move(lc_comm *c, int64_t count)
{
    int n = lc_comm_size(c), me = lc_comm_rank(c);
    buffers b = {0};
    LC_TRY(buffers_new(&b, LC_I32, count * n));
    int32_t *in = (int32_t *)b.in, *want = (int32_t *)b.want;
    size_t part = (size_t)count * sizeof *in;
    for (int64_t i = 0; i < count * n; i++) in[i] = mark(me, i);
    for (int root = 0; root < n; root++) {
        for (int64_t i = 0; i < count * n; i++) want[i] = mark(root, i);
        if (me == root) memcpy(b.out, b.in, b.bytes);
        if (me != root) memset(b.out, 0xa5, b.bytes);
        LC_TRY(lc_comm_broadcast(c, b.out, count * n, LC_I32, root, NULL));
        RANK_CHECK(SAME(b));
        memset(b.out, 0xa5, b.bytes);
        LC_TRY(lc_comm_scatter(c, me == root ? b.in : NULL, b.out, count, LC_I32, root, NULL));
        RANK_CHECK(!memcmp(b.out, b.want + (size_t)me * part, part));
        memset(b.out, 0xa5, b.bytes);
        for (int64_t i = 0; i < count * n; i++) want[i] = mark((int)(i / (count ? count : 1)), i % (count ? count : 1));
        LC_TRY(lc_comm_gather(c, b.in, me == root ? b.out : NULL, count, LC_I32, root, NULL));
        RANK_CHECK(me != root || SAME(b));
    }
    memset(b.out, 0xa5, b.bytes);
    LC_TRY(lc_comm_all_gather(c, b.in, b.out, count, LC_I32, NULL));
    RANK_CHECK(SAME(b));
    memset(b.out, 0xa5, b.bytes);
    memcpy(b.out + (size_t)me * part, b.in, part);
    LC_TRY(lc_comm_all_gather(c, b.out + (size_t)me * part, b.out, count, LC_I32, NULL));
    RANK_CHECK(SAME(b));
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < count; i++) want[r * count + i] = mark(r, me * count + i);
    LC_TRY(lc_comm_all_to_all(c, b.in, b.out, count, LC_I32, NULL));
    RANK_CHECK(SAME(b));
    buffers_free(&b);
    return lc_comm_barrier(c, NULL);
}

static lc_status moves(lc_comm *c, void *ctx)
{
    (void)ctx;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) LC_TRY(move(c, sizes[s]));
    return LC_OK;
}

/* ---- defined bits ---- */

static float wild(int rank, int64_t i)
{
    uint32_t x = (uint32_t)(rank * 7919 + i * 104729 + 13) * 2654435761u;
    return (float)((double)(x % 20001) / 10000 - 1) * (x & 1 ? 1e-3f : 1e3f);
}

/* The tree, computed recursively, so differently from combine.c. */
static float tree(int first, int n, int64_t i)
{
    int left = 1;
    if (n == 1) return wild(first, i);
    while (2 * left < n) left *= 2;
    return tree(first, left, i) + tree(first + left, n - left, i);
}

static lc_status tree_bits(lc_comm *c, void *ctx)
{
    enum { N = 400003 }; /* several times the size of a ring */
    int n = lc_comm_size(c);
    float *x = malloc(N * sizeof *x);
    (void)ctx;
    for (int64_t i = 0; i < N; i++) x[i] = wild(lc_comm_rank(c), i);
    LC_TRY(lc_comm_all_reduce(c, x, x, N, LC_F32, LC_COMM_SUM, NULL));
    for (int64_t i = 0; i < N; i++) {
        float want = tree(0, n, i);
        RANK_CHECK(!memcmp(&x[i], &want, sizeof want));
    }
    free(x);
    return LC_OK;
}

/* ---- several at once ---- */

static lc_status many_at_once(lc_comm *c, void *ctx)
{
    enum { CALLS = 12, N = 30000 };
    int n = lc_comm_size(c), me = lc_comm_rank(c), right = (me + 1) % n, left = (me + n - 1) % n;
    static _Thread_local float x[CALLS][N];
    static _Thread_local int64_t give[2][N], got[2][N];
    lc_request *r[CALLS], *direct[4];
    (void)ctx;
    for (int k = 0; k < CALLS; k++)
        for (int i = 0; i < N; i++) x[k][i] = (float)(me + k + i % 3);
    for (int i = 0; i < N; i++) give[0][i] = me * 10 + i, give[1][i] = -(me * 10 + i);
    for (int k = 0; k < CALLS; k++) {
        if (k == 4) { /* both directions at once, larger than any buffer between the two */
            LC_TRY(lc_comm_send(c, give[0], N, LC_I64, right, &direct[0]));
            LC_TRY(lc_comm_send(c, give[1], N, LC_I64, right, &direct[1]));
            LC_TRY(lc_comm_recv(c, got[0], N, LC_I64, left, &direct[2]));
            LC_TRY(lc_comm_recv(c, got[1], N, LC_I64, left, &direct[3]));
        }
        LC_TRY(lc_comm_all_reduce(c, x[k], x[k], N - k, LC_F32, LC_COMM_SUM, &r[k]));
        LC_TRY(lc_comm_progress(c));
    }
    for (int k = CALLS - 1; k >= 0; k--) LC_TRY(lc_comm_wait(r[k]));
    for (int k = 0; k < 4; k++) LC_TRY(lc_comm_wait(direct[k]));
    for (int k = 0; k < CALLS; k++)
        for (int i = 0; i < N - k; i++) RANK_CHECK(x[k][i] == (float)(n * (n - 1) / 2 + n * (k + i % 3)));
    for (int i = 0; i < N; i++) RANK_CHECK(got[0][i] == left * 10 + i && got[1][i] == -(left * 10 + i));
    return LC_OK;
}

/* ---- groups ---- */

static lc_status groups(lc_comm *c, void *ctx)
{
    int n = lc_comm_size(c), me = lc_comm_rank(c);
    lc_comm *half = NULL, *none = NULL, *reversed = NULL;
    (void)ctx;
    LC_TRY(lc_comm_split(c, me % 2, me, &half));
    RANK_CHECK(lc_comm_size(half) == (n + 1 - me % 2) / 2 && lc_comm_rank(half) == me / 2);
    int64_t sum = me;
    LC_TRY(lc_comm_all_reduce(half, &sum, &sum, 1, LC_I64, LC_COMM_SUM, NULL));
    int64_t want = 0;
    for (int i = me % 2; i < n; i += 2) want += i;
    RANK_CHECK(sum == want);
    LC_TRY(lc_comm_split(c, me == 0 ? -1 : 3, 0, &none));
    RANK_CHECK((none == NULL) == (me == 0));
    LC_TRY(lc_comm_split(c, 0, -me, &reversed));
    RANK_CHECK(lc_comm_rank(reversed) == n - 1 - me);
    int32_t first = me;
    LC_TRY(lc_comm_broadcast(reversed, &first, 1, LC_I32, 0, NULL));
    RANK_CHECK(first == n - 1);
    LC_TRY(lc_comm_barrier(c, NULL));
    lc_comm_free(half), lc_comm_free(none), lc_comm_free(reversed);
    return LC_OK;
}

/* ---- errors ---- */

/* In call 2: a split does not count as a call. */
static lc_status disagree(lc_comm *c, void *ctx)
{
    float x[8] = {0};
    lc_comm *group;
    (void)ctx;
    LC_TRY(lc_comm_split(c, 0, lc_comm_rank(c), &group));
    lc_comm_free(group);
    LC_TRY(lc_comm_barrier(c, NULL));
    if (lc_comm_rank(c) == 1) return lc_comm_broadcast(c, x, 5, LC_F32, 0, NULL);
    return lc_comm_all_reduce(c, x, x, 8, LC_F32, LC_COMM_SUM, NULL);
}

static lc_status wrong_count(lc_comm *c, void *ctx)
{
    float x[8] = {0};
    (void)ctx;
    return lc_comm_rank(c) ? lc_comm_recv(c, x, 7, LC_F32, 0, NULL) : lc_comm_send(c, x, 8, LC_F32, 1, NULL);
}

static lc_status gives_up(lc_comm *c, void *ctx)
{
    float x = 0;
    (void)ctx;
    if (lc_comm_rank(c) == 2) return lc_fail(LC_ERR_USER, "rank 2 has lost interest");
    lc_status s = lc_comm_all_reduce(c, &x, &x, 1, LC_F32, LC_COMM_SUM, NULL);
    RANK_CHECK(s == LC_ERR_PEER && strstr(lc_error_message(), "rank 2 has lost interest"));
    /* the error is permanent */
    s = lc_comm_barrier(c, NULL);
    RANK_CHECK(s == LC_ERR_PEER && strstr(lc_error_message(), "rank 2 has lost interest"));
    char history[2000];
    RANK_CHECK(lc_comm_history(c, history, sizeof history) > 0 &&
               strstr(history, "1 all_reduce of 1 f32, sum: running"));
    return LC_OK;
}

#endif

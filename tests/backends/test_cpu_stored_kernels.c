/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's kernels with operands that are stored in 16 bits. */
#include "stored_check.h"

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* ---- attention ---- */
typedef struct attention_case {
    int64_t batch, heads, s, sk, d, dv;
    bool causal, packed, masked;
    unsigned low; /* bits: q k v mask y or dy, dq dk dv */
} attention_case;

enum { Q = 1, K = 2, V = 4, MASK = 8, Y = 16, DQ = 32, DK = 64, DV = 128, ALL = 255 };

/* packed: the heads of a row are adjacent, as a single linear layer gives them. */
static void add_heads(kernel_case *c, const attention_case *a, int64_t rows, int64_t size)
{
    if (!a->packed) {
        add_input(c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a->batch, a->heads, rows, size), fill_normal, 1);
        return;
    }
    lc_view *v = add_input(c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a->batch, rows, a->heads, size + 5), fill_normal, 1);
    int64_t of_head = v->stride[2];
    v->stride[2] = v->stride[1];
    v->stride[1] = of_head;
    v->shape[1] = a->heads;
    v->shape[2] = rows;
    v->shape[3] = size;
}

static void check_attention(attention_case a)
{
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_of(backward ? &lc__op_sdpa_backward : &lc__op_sdpa);
        if (backward) add_heads(&c, &a, a.s, a.dv);
        add_heads(&c, &a, a.s, a.d);
        add_heads(&c, &a, a.sk, a.d);
        add_heads(&c, &a, a.sk, a.dv);
        if (a.masked)
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a.batch, 1, a.s, a.sk), fill_normal, 1);
        else
            add_missing(&c);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a.batch, a.heads, a.s, a.dv), fill_normal, 1);
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(a.batch, a.heads, a.s), fill_normal, 1);
        add_int(&c, a.causal);
        add_int(&c, 1);
        add_float(&c, 0.3);
        if (backward)
            check_stored(&c, (a.low & 15) << 1 | (a.low & Y ? 1 : 0), a.low / DQ);
        else
            check_stored(&c, a.low & 15, a.low & Y ? 1 : 0);
    }
}

TEST(attention)
{
    for (int form = 0; form < 8; form++) {
        bool causal = form & 1, packed = form & 2, masked = form & 4;
        check_attention((attention_case){1, 1, 1, 1, 1, 1, causal, packed, masked, ALL});
        check_attention((attention_case){2, 3, 5, 5, 8, 8, causal, packed, masked, ALL});
        check_attention((attention_case){1, 2, 70, 70, 64, 64, causal, packed, masked, ALL});
        check_attention((attention_case){1, 2, 130, 75, 20, 33, causal, packed, masked, ALL});
        check_attention((attention_case){2, 1, 37, 200, 128, 16, causal, packed, masked, ALL});
    }
    /* Some operands of 16 bits. */
    const unsigned low[] = {Q, K, V, MASK, Y, DQ, DK, DV, Q | K | V, ALL - MASK, Y | DQ | DK | DV};
    for (int i = 0; i < 11; i++) check_attention((attention_case){2, 2, 67, 80, 24, 17, true, true, true, low[i]});
}

TEST_MAIN

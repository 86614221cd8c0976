/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in f64 and its gradients against the reference kernels: sizes, masks, strides, and the same bits for any
 * number of threads (check_case). */
#include "kernel_check.h"

typedef enum attention_mask { NO_MASK, ADDED, BOOLEAN, BLIND } attention_mask;

typedef struct sizes {
    int64_t batch, heads, s, sk, d, dv;
} sizes;

/* packed: queries, keys and values of all heads are adjacent in one row, as a single linear layer gives them. */
static void add_operands(kernel_case *f, const sizes *z, bool packed, attention_mask mask)
{
    const int64_t shapes[3][4] = {
        {z->batch, z->heads, z->s, z->d}, {z->batch, z->heads, z->sk, z->d}, {z->batch, z->heads, z->sk, z->dv}};
    for (int i = 0; i < 3; i++) {
        int64_t row[] = {z->batch, shapes[i][2], z->heads, shapes[i][3] + 5};
        lc_view *v = add_input(f, LC_F64, CHECK_ROW_MAJOR, 4, packed ? row : shapes[i], fill_normal, 1);
        if (!packed) continue;
        int64_t swap = v->stride[1];
        v->stride[1] = v->stride[2];
        v->stride[2] = swap;
        memcpy(v->shape, shapes[i], sizeof shapes[i]);
    }
    if (mask == NO_MASK) {
        add_missing(f);
    } else if (mask == ADDED) {
        add_input(f, LC_F64, CHECK_ROW_MAJOR, 4, (int64_t[]){z->batch, 1, z->s, z->sk}, fill_normal, 1);
    } else {
        lc_view *m = add_input(f, LC_BOOL, CHECK_ROW_MAJOR, 3, (int64_t[]){z->heads, 1, z->sk}, fill_whole, 2);
        if (mask == BLIND) memset(m->data, 0, (size_t)z->sk); /* the first head sees nothing */
    }
}

static void check_attention(sizes z, bool causal, bool packed, attention_mask mask)
{
    kernel_case f = case_of(&lc__op_sdpa);
    add_operands(&f, &z, packed, mask);
    add_int(&f, causal);
    add_int(&f, mask == ADDED);
    add_float(&f, 0.3);
    f.f64 = 1e-13;

    /* The backward kernel needs the forward's results. */
    infer_outputs(&f);
    run_kernel(&f, f.op->kernel, 1);
    kernel_case b = case_of(&lc__op_sdpa_backward);
    add_input(&b, LC_F64, CHECK_ROW_MAJOR, 4, (int64_t[]){z.batch, z.heads, z.s, z.dv}, fill_normal, 1);
    for (int i = 0; i < 4; i++) {
        b.in[b.n_in] = f.in[i];
        b.storage[b.n_in++] = f.storage[i];
        f.storage[i] = NULL;
    }
    for (int i = 0; i < 2; i++) {
        b.in[b.n_in] = f.out[i];
        b.storage[b.n_in++] = f.out[i].data;
    }
    memcpy(b.ints, f.ints, sizeof f.ints);
    memcpy(b.floats, f.floats, sizeof f.floats);
    b.n_int = f.n_int;
    b.n_float = f.n_float;
    b.f64 = 1e-13;
    kernel_case again = f;
    again.n_out = 0;
    check_case(&again);
    check_case(&b);
}

TEST(attention)
{
    for (int form = 0; form < 8; form++) {
        bool causal = form & 1, packed = form & 2;
        attention_mask mask = form & 4 ? ADDED : NO_MASK;
        check_attention((sizes){1, 1, 1, 1, 1, 1}, causal, packed, mask);
        check_attention((sizes){2, 3, 5, 5, 8, 8}, causal, packed, mask);
        check_attention((sizes){1, 2, 70, 70, 64, 64}, causal, packed, mask);
        check_attention((sizes){1, 2, 130, 75, 20, 33}, causal, packed, mask);
        check_attention((sizes){2, 1, 37, 200, 128, 16}, causal, packed, mask);
        check_attention((sizes){1, 1, 96, 48, 7, 9}, causal, packed, mask);
    }
    check_attention((sizes){2, 2, 40, 50, 16, 16}, false, false, BOOLEAN);
    check_attention((sizes){2, 2, 40, 50, 16, 16}, true, true, BOOLEAN);
    check_attention((sizes){2, 2, 10, 20, 16, 16}, false, false, BLIND);
}

TEST_MAIN

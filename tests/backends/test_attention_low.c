/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of bf16 and its gradients against the reference kernels in f32 on the same numbers: sizes, masks, strides,
 * every instruction set of this machine, and the same bits for any number of threads. One set multiplies numbers in
 * pairs, for which it rounds weights and gradients of scores. */
#include "low_check.h"

typedef enum attention_mask { NO_MASK, ADDED, ADDED_LOW, BOOLEAN, BLIND } attention_mask;

typedef struct sizes {
    int64_t batch, heads, s, sk, d, dv;
} sizes;

/* packed: queries, keys and values of all heads are adjacent in one row, as a single linear layer gives them. */
static void add_rows(kernel_case *c, const sizes *z, int64_t rows, int64_t size, bool packed)
{
    int64_t row[] = {z->batch, rows, z->heads, size + 5}, shape[] = {z->batch, z->heads, rows, size};
    lc_view *v = add_input(c, LC_BF16, CHECK_ROW_MAJOR, 4, packed ? row : shape, fill_normal, 1);
    if (!packed) return;
    int64_t swap = v->stride[1];
    v->stride[1] = v->stride[2];
    v->stride[2] = swap;
    memcpy(v->shape, shape, sizeof shape);
}

static void add_mask(kernel_case *c, const sizes *z, attention_mask mask)
{
    if (mask == NO_MASK) {
        add_missing(c);
    } else if (mask == ADDED || mask == ADDED_LOW) {
        add_input(c, mask == ADDED ? LC_F32 : LC_BF16, CHECK_ROW_MAJOR, 4, (int64_t[]){z->batch, 1, z->s, z->sk},
                  fill_normal, 1);
    } else {
        lc_view *m = add_input(c, LC_BOOL, CHECK_ROW_MAJOR, 3, (int64_t[]){z->heads, 1, z->sk}, fill_whole, 2);
        if (mask == BLIND) memset(m->data, 0, (size_t)z->sk); /* the first head sees nothing */
    }
}

static kernel_case case_with_heads(const lc_op *op, const sizes *z, bool causal, bool packed, attention_mask mask)
{
    kernel_case c = case_of(op);
    if (op == &lc__op_sdpa_backward) add_rows(&c, z, z->s, z->dv, packed);
    add_rows(&c, z, z->s, z->d, packed);
    add_rows(&c, z, z->sk, z->d, packed);
    add_rows(&c, z, z->sk, z->dv, packed);
    add_mask(&c, z, mask);
    add_int(&c, causal);
    add_int(&c, mask == ADDED);
    add_float(&c, -0.3);
    return c;
}

/* Every set's kernel. The logarithms of the sums of weights are f32. */
static void check_sets(kernel_case *c, float **want)
{
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16", "amx"};
    const double exact = 5e-6, in_pairs = 0x1p-8;
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        const lc__isa *isa = lc__isa_find(sets[s]);
        if (!isa) continue;
        lc_call call = call_of(c, NULL, 1);
        const lc_kernel *kernel = lc__isa_kernel(isa, &call);
        if (!kernel) TEST_FAIL("%s has no kernel for %s", isa->name, c->op->name);
        c->of_largest = s == 3 ? in_pairs : exact;
        check_low_kernel(c, kernel, want, false);
        c->of_largest = exact;
        if (c->op == &lc__op_sdpa) compare_low(c, 1, want[1], 0, kernel->name);
    }
}

static void check_attention(sizes z, bool causal, bool packed, attention_mask mask)
{
    float *want[LC_MAX_OUTPUTS], *gradients[LC_MAX_OUTPUTS];
    kernel_case f = case_with_heads(&lc__op_sdpa, &z, causal, packed, mask);
    reference_of(&f, LC_BF16, want);
    f.out[1].dtype = LC_F32;
    f.out[1].data = realloc(f.out[1].data, (size_t)view_numel(&f.out[1]) * sizeof(float));
    check_sets(&f, want);

    /* The backward kernel gets the forward's results in f32: the reference kernel computes with y. */
    kernel_case b = case_with_heads(&lc__op_sdpa_backward, &z, causal, packed, mask);
    for (int i = 0; i < 4; i++) free(b.storage[1 + i]), b.in[1 + i] = f.in[i], b.storage[1 + i] = f.in[i].data;
    for (int k = 0; k < 2; k++) {
        lc_view *v = &b.in[b.n_in];
        *v = f.out[k];
        v->dtype = LC_F32;
        v->data = b.storage[b.n_in++] = want[k];
        free(f.out[k].data);
    }
    reference_of(&b, LC_BF16, gradients);
    check_sets(&b, gradients);
    release_low(&b, gradients);
}

static const sizes shapes[] = {{1, 1, 1, 1, 2, 2},      {2, 3, 5, 5, 8, 8},       {1, 2, 70, 70, 64, 64},
                               {1, 2, 130, 75, 20, 34}, {2, 1, 37, 200, 128, 16}, {1, 1, 96, 48, 6, 10},
                               {1, 1, 3, 129, 96, 80},  {2, 1, 67, 66, 7, 9},     {1, 1, 200, 200, 30, 50}};

TEST(sizes_and_strides)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 4; form++) check_attention(shapes[i], form & 1, form & 2, NO_MASK);
}

TEST(masks)
{
    for (int form = 0; form < 4; form++)
        for (attention_mask mask = ADDED; mask <= BLIND; mask++) {
            check_attention((sizes){2, 2, 40, 51, 16, 18}, form & 1, form & 2, mask);
            check_attention((sizes){2, 2, 131, 77, 32, 16}, form & 1, form & 2, mask);
        }
}

TEST_MAIN

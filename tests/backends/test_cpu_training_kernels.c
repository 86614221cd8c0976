/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's own kernels against the operators' reference kernels: losses, row normalization, copies, optimizer
 * updates. */
#include "kernel_check.h"

#include "ops/ops.h"
#include "optim/clip.h"
#include "optim/optim_internal.h"

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* ---- cross entropy ---- */
static void check_cross_entropy(lc_dtype dtype, int ndim, const int64_t *shape, lc_dtype ids, int reduction,
                                double smoothing, bool weighted, bool odd_labels)
{
    int64_t places[LC_MAX_DIMS], classes = shape[1];
    places[0] = shape[0];
    for (int d = 2; d < ndim; d++) places[d - 1] = shape[d];
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_in(dtype, backward ? &lc__op_cross_entropy_backward : &lc__op_cross_entropy);
        if (backward && dtype == LC_F64) c.f64 = 1e-12; /* p - 1 is only as exact as p */
        c.may_lack = dtype == LC_F64 && ndim > 2;
        c.out_layout = CHECK_CHANNELS_LAST;
        if (backward) add_input(&c, dtype, CHECK_ROW_MAJOR, reduction == 2 ? ndim - 1 : 0, places, fill_positive, 1);
        add_input(&c, dtype, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 4);
        lc_view *x = &c.in[c.n_in - 1];
        lc_view *t = add_input(&c, ids, CHECK_ROW_MAJOR, ndim - 1, places, fill_whole, (double)classes);
        put_value(ids, t->data, 0, -100); /* ignored */
        if (odd_labels) put_value(ids, t->data, 1, (double)classes);
        if (weighted)
            add_input(&c, dtype, CHECK_ROW_MAJOR, 1, &classes, fill_positive, 1);
        else
            add_missing(&c);
        if (backward) {
            lc_view *lse = add_input(&c, dtype, CHECK_ROW_MAJOR, ndim - 1, places, fill_normal, 1);
            int64_t n = view_numel(lse), inner = n / places[0];
            for (int64_t p = 0; p < n; p++) {
                const int64_t row = ndim > 2 ? p * classes : p / inner * classes;
                double sum = 0;
                for (int64_t k = 0; k < classes; k++) sum += exp(lc__number_at(x->data, dtype, row + k));
                put_value(dtype, lse->data, p, log(sum));
            }
            add_input(&c, dtype, CHECK_ROW_MAJOR, 0, NULL, fill_positive, 100);
        }
        add_int(&c, -100);
        add_int(&c, reduction);
        add_float(&c, smoothing);
        check_case(&c);
    }
}

static void check_cross_entropies(lc_dtype dtype)
{
    const int64_t shapes[][4] = {{2, 2, 1, 1}, {3, 10, 1, 1}, {130, 10, 1, 1}, {40, 33, 1, 1}, {5, 5000, 1, 1}};
    for (int s = 0; s < 5; s++) {
        for (int form = 0; form < 12; form++)
            check_cross_entropy(dtype, 2, shapes[s], form & 1 ? LC_I32 : LC_I64, form % 3, form & 2 ? 0.1 : 0,
                                form >= 6, form == 11);
    }
    check_cross_entropy(dtype, SHAPE(3, 7, 5, 4), LC_I64, 0, 0, false, false);
    check_cross_entropy(dtype, SHAPE(3, 7, 5, 4), LC_I64, 2, 0.2, true, true);
    check_cross_entropy(dtype, SHAPE(3, 20, 9), LC_I64, 1, 0, false, false);
}

TEST(cross_entropy)
{
    check_cross_entropies(LC_F32);
    check_cross_entropies(LC_F64);
}

/* ---- layer and RMS normalization ---- */
static void check_row_norm(int ndim, const int64_t *shape, int dims, bool affine, bool rms, double offset)
{
    int first = ndim - dims;
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_of(backward ? (rms ? &lc__op_rms_norm_backward : &lc__op_layer_norm_backward)
                                         : (rms ? &lc__op_rms_norm : &lc__op_layer_norm));
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, ndim, shape, fill_normal, 1);
        lc_view *x = add_input(&c, LC_F32, CHECK_ROW_MAJOR, ndim, shape, fill_normal, 1);
        for (int64_t i = 0; i < view_numel(x); i++) ((float *)x->data)[i] += (float)offset;
        for (int k = 0; k < (backward || rms ? 1 : 2); k++) {
            if (affine)
                add_input(&c, LC_F32, CHECK_ROW_MAJOR, dims, shape + first, fill_normal, 1);
            else
                add_missing(&c);
        }
        if (backward && !rms) {
            lc_view *mean = add_input(&c, LC_F32, CHECK_ROW_MAJOR, first, shape, fill_normal, 0.1);
            for (int64_t i = 0; i < view_numel(mean); i++) ((float *)mean->data)[i] += (float)offset;
        }
        if (backward) add_input(&c, LC_F32, CHECK_ROW_MAJOR, first, shape, fill_positive, 1);
        add_int(&c, dims);
        if (!backward) add_float(&c, 1e-5);
        c.of_largest = 4e-6;
        check_case(&c);
    }
}

TEST(row_normalization)
{
    for (int form = 0; form < 4; form++) {
        bool affine = form & 1, rms = form >> 1;
        check_row_norm(SHAPE(3, 10), 1, affine, rms, 0);
        check_row_norm(SHAPE(5, 1), 1, affine, rms, 1);
        check_row_norm(SHAPE(4, 31, 129), 1, affine, rms, 5);
        check_row_norm(SHAPE(2, 3, 20, 70), 2, affine, rms, 0);
        check_row_norm(SHAPE(3000, 64), 1, affine, rms, 0);
        check_row_norm(SHAPE(2, 5000), 1, affine, rms, 0);
    }
}

static void check_group_norm(int ndim, const int64_t *shape, int64_t groups, bool affine)
{
    for (int backward = 0; backward < 2; backward++) {
        kernel_case c = case_of(backward ? &lc__op_group_norm_backward : &lc__op_group_norm);
        c.out_layout = CHECK_CHANNELS_LAST;
        c.of_largest = 4e-6;
        if (backward) add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        add_input(&c, LC_F32, CHECK_CHANNELS_LAST, ndim, shape, fill_normal, 1);
        for (int k = 0; k < (backward ? 1 : 2); k++) {
            if (affine)
                add_input(&c, LC_F32, CHECK_ROW_MAJOR, 1, &shape[1], fill_normal, 1);
            else
                add_missing(&c);
        }
        if (backward) {
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(shape[0], groups), fill_normal, 0.1);
            add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(shape[0], groups), fill_positive, 1);
        }
        add_int(&c, groups);
        if (!backward) add_float(&c, 1e-5);
        check_case(&c);
    }
}

TEST(group_normalization)
{
    for (int affine = 0; affine < 2; affine++) {
        check_group_norm(SHAPE(2, 6, 5, 7), 3, affine);
        check_group_norm(SHAPE(3, 64, 9, 9), 8, affine);
        check_group_norm(SHAPE(1, 33, 40, 3), 1, affine);
        check_group_norm(SHAPE(4, 20, 11), 20, affine);
        check_group_norm(SHAPE(5, 24), 4, affine);
    }
}

/* ---- copies ---- */
TEST(copies_between_layouts)
{
    const int64_t shapes[][4] = {{2, 3, 4, 5},   {1, 1, 1, 1},   {3, 33, 35, 37},
                                 {5, 64, 9, 11}, {2, 1, 7, 300}, {40, 50, 1, 1}};
    const lc_dtype dtypes[] = {LC_F32, LC_U8, LC_BF16, LC_I64};
    const int permutations[][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}, {1, 0, 3, 2}, {0, 2, 1, 3}};
    for (int s = 0; s < 6; s++) {
        for (int t = 0; t < 4; t++) {
            for (int p = 0; p < 5; p++) {
                for (int layout = 0; layout < 4; layout++) {
                    kernel_case c = case_of(&lc__op_contiguous);
                    c.out_layout = layout & 1 ? CHECK_CHANNELS_LAST : CHECK_ROW_MAJOR;
                    lc_view *v = add_input(&c, dtypes[t], layout & 2 ? CHECK_CHANNELS_LAST : CHECK_ROW_MAJOR, 4,
                                           shapes[s], fill_whole, 200);
                    lc_view old = *v;
                    for (int d = 0; d < 4; d++) {
                        v->shape[d] = old.shape[permutations[p][d]];
                        v->stride[d] = old.stride[permutations[p][d]];
                    }
                    c.relative = c.of_largest = 0;
                    check_case(&c);
                }
            }
        }
    }
}

TEST(copies_of_parts)
{
    kernel_case c = case_of(&lc__op_contiguous);
    lc_view *v = add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(20, 30, 40), fill_normal, 1);
    v->shape[1] = 7; /* a slice */
    v->shape[2] = 11;
    check_case(&c);
    kernel_case e = case_of(&lc__op_contiguous);
    v = add_input(&e, LC_F32, CHECK_ROW_MAJOR, SHAPE(20, 1, 40), fill_normal, 1);
    v->shape[1] = 9; /* expanded */
    v->stride[1] = 0;
    check_case(&e);
    kernel_case f = case_of(&lc__op_contiguous);
    v = add_input(&f, LC_F32, CHECK_ROW_MAJOR, SHAPE(20, 40), fill_normal, 1);
    v->shape[1] = 20; /* every second row */
    v->stride[1] = 2;
    check_case(&f);
}

TEST(joining)
{
    for (int dim = 0; dim < 4; dim++) {
        for (int layout = 0; layout < 2; layout++) {
            kernel_case c = case_of(&lc__op_cat);
            c.out_layout = layout ? CHECK_CHANNELS_LAST : CHECK_ROW_MAJOR;
            for (int i = 0; i < 3; i++) {
                int64_t shape[] = {3, 20, 9, 40};
                shape[dim] = 5 * i + (dim != 2);
                add_input(&c, LC_F32, i == 1 ? CHECK_ROW_MAJOR : c.out_layout, 4, shape, fill_normal, 1);
            }
            add_int(&c, dim);
            c.relative = c.of_largest = 0;
            check_case(&c);
        }
    }
}

TEST(padding)
{
    const int64_t pads[][6] = {{0, 0, 0, 0, 3, 50},    {0, 0, 0, 0, 0, 7}, {1, 2, 0, 3, 4, 0},
                               {0, -1, -2, 3, -5, -6}, {0, 0, 1, 1, 0, 0}, {0, 0, -9, -11, 0, 0}};
    for (int p = 0; p < 6; p++) {
        for (int form = 0; form < 2; form++) {
            kernel_case c = case_of(&lc__op_pad);
            lc_view *v = add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(40, 20, 33), fill_normal, 1);
            if (form) { /* transposed */
                *v = (lc_view){
                    .data = v->data, .dtype = LC_F32, .ndim = 3, .shape = {20, 40, 33}, .stride = {33, 660, 1}};
            }
            for (int i = 0; i < 6; i++) add_int(&c, pads[p][i]);
            add_float(&c, form ? 1.5 : 0);
            c.relative = c.of_largest = 0;
            check_case(&c);
        }
    }
}

/* ---- updates ---- */
static const struct {
    const lc_op *op;
    int n_state;
} updates[] = {
#define ROW(name, n) {&lc__op_update_##name, n},
    LC_UPDATE_LIST(ROW)
#undef ROW
};

enum { UPDATE_SIZE = 60000, SEGMENTS = 3 };

/* Parameters, gradients, state and steps of one run, made again for every kernel. */
typedef struct update_data {
    float *p, *g, *s[LC_MAX_OPTIM_STATE];
    uint16_t *low; /* copies of the parameters, where updates write them */
    double steps[SEGMENTS];
    float scale;
    lc_view in[LC__UPDATE_INPUTS + LC_MAX_OPTIM_STATE];
} update_data;

/* low: the type of low copies; 0: there are none. */
static void fill_update(update_data *u, int n_state, double steps, lc_dtype low)
{
    uint64_t seed = 4711;
    float **arrays[2 + LC_MAX_OPTIM_STATE] = {&u->p, &u->g};
    for (int k = 0; k < n_state; k++) arrays[2 + k] = &u->s[k];
    for (int a = 0; a < 2 + n_state; a++) {
        float *x = *arrays[a] = aligned_alloc(64, UPDATE_SIZE * sizeof(float));
        for (int i = 0; i < UPDATE_SIZE; i++) x[i] = (float)(a < 2 ? fill_normal(&seed, 1) : fill_positive(&seed, 0.5));
        u->in[a] = dense_view(LC_F32, CHECK_ROW_MAJOR, SHAPE(UPDATE_SIZE));
        u->in[a].data = x;
    }
    for (int i = 0; i < SEGMENTS; i++) u->steps[i] = steps + i;
    u->in[2 + n_state] = dense_view(LC_F64, CHECK_ROW_MAJOR, SHAPE(SEGMENTS));
    u->in[2 + n_state].data = u->steps;
    u->scale = 0.5f;
    u->in[3 + n_state] = dense_view(LC_F32, CHECK_ROW_MAJOR, 0, NULL);
    u->in[3 + n_state].data = &u->scale;
    u->in[4 + n_state] = u->in[5 + n_state] = (lc_view){.ndim = -1}; /* no master weights */
    if (!low) return;
    u->low = calloc(UPDATE_SIZE, sizeof *u->low);
    u->in[5 + n_state] = dense_view(low, CHECK_ROW_MAJOR, SHAPE(UPDATE_SIZE));
    u->in[5 + n_state].data = u->low;
}

static void free_update(update_data *u, int n_state)
{
    free(u->p);
    free(u->g);
    free(u->low);
    for (int k = 0; k < n_state; k++) free(u->s[k]);
}

static void run_update(kernel_case *c, update_data *u, const lc_kernel *kernel, int threads)
{
    c->n_in = LC__UPDATE_INPUTS;
    for (int k = 0; k < LC_MAX_OPTIM_STATE; k++) c->n_in += u->s[k] != NULL;
    memcpy(c->in, u->in, (size_t)c->n_in * sizeof u->in[0]);
    run_kernel(c, kernel, threads);
}

static void check_equal(const char *name, const float *got, const float *want, double tolerance)
{
    for (int i = 0; i < UPDATE_SIZE; i++) {
        if (got[i] != got[i] && want[i] != want[i]) continue;
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * (1 + fabs((double)want[i]))))
            TEST_FAIL("%s: element %d is %.9g, wanted %.9g", name, i, (double)got[i], (double)want[i]);
    }
}

/* Those of the segments that have them are rounded parameters; nothing else is written. */
static void check_low(const kernel_case *c, const update_data *u, lc_dtype low)
{
    for (int64_t i = 0; low && i < UPDATE_SIZE; i++) {
        uint64_t want = 0;
        for (int s = 0; s < SEGMENTS; s++) {
            const int64_t *entry = c->ints + LC_U_FIRST + LC_S_INTS * s, at = i - entry[LC_S_OFFSET];
            if (entry[LC_S_LOW] && at >= 0 && at < entry[LC_S_COUNT]) lc__store_number(&want, low, (double)u->p[i]);
        }
        const bool nan = want && isnan(u->p[i]) && isnan(lc__number_at(u->low, low, i));
        if (u->low[i] != want && !nan)
            TEST_FAIL("%s: low copy %lld is 0x%x, wanted 0x%x", c->op->name, (long long)i, u->low[i], (unsigned)want);
    }
}

TEST(updates)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    const double hyper[LC_MAX_HYPER] = {0.01, 0.02, 0.9, 0.99, 1e-8, 0.004, 1e-6, 50};
    const unsigned flags[] = {0, LC_OPT_MAXIMIZE | LC_OPT_NESTEROV | LC_OPT_DECOUPLED_WEIGHT_DECAY};
    for (int k = 0; k < (int)(sizeof updates / sizeof updates[0]); k++) {
        for (int form = 0; form < 4; form++) {
            const lc_dtype low = (lc_dtype[]){0, 0, LC_BF16, LC_F16}[form];
            kernel_case c = case_of(updates[k].op);
            memcpy(c.floats, hyper, sizeof hyper);
            c.n_float = LC_MAX_HYPER;
            const int64_t scalar_state = updates[k].op == &lc__op_update_nadam ? 1 << 2 : 0;
            const int64_t ints[] = {
                SEGMENTS, 0, flags[form & 1], scalar_state, 0, 0, 1000, 0, 0, low != 0, 1024, 40001, 1, 0, 0, 50000, 7,
                2,        0, low != 0};
            memcpy(c.ints, ints, sizeof ints);
            c.n_int = sizeof ints / sizeof ints[0];
            update_data want = {0};
            fill_update(&want, updates[k].n_state, form & 1 ? 0 : 10, low);
            run_update(&c, &want, c.op->kernel, 1);
            check_low(&c, &want, low);
            for (int s = 0; s < 3; s++) {
                const lc__isa *isa = lc__isa_find(sets[s]);
                if (!isa) continue;
                update_data first = {0};
                for (int threads = 1; threads <= 2; threads++) {
                    update_data got = {0};
                    fill_update(&got, updates[k].n_state, form & 1 ? 0 : 10, low);
                    lc_call call = call_of(&c, NULL, threads);
                    const lc_kernel *kernel = lc__isa_kernel(isa, &call);
                    CHECK(kernel != NULL);
                    run_update(&c, &got, kernel, threads);
                    check_equal(kernel->name, got.p, want.p, 2e-6);
                    check_low(&c, &got, low);
                    for (int i = 0; i < updates[k].n_state; i++) check_equal(kernel->name, got.s[i], want.s[i], 2e-6);
                    for (int i = 0; i < SEGMENTS; i++) CHECK(got.steps[i] == want.steps[i]);
                    if (threads == 1) {
                        first = got;
                        continue;
                    }
                    CHECK(!memcmp(first.p, got.p, UPDATE_SIZE * sizeof(float)));
                    free_update(&got, updates[k].n_state);
                }
                free_update(&first, updates[k].n_state);
            }
            free_update(&want, updates[k].n_state);
        }
    }
}

/* ---- reductions of whole gradients ---- */
TEST(norms_for_clipping)
{
    for (int form = 0; form < 6; form++) {
        const bool only_finite = form >= 3;
        kernel_case c = case_of(&lc__op_clip_coefficient);
        lc_view *v = add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(60000), fill_normal, form % 3 == 2 ? 1e25 : 1);
        if (form % 3 == 1) ((float *)v->data)[50001] = only_finite ? INFINITY : NAN;
        add_input(&c, LC_F32, CHECK_ROW_MAJOR, SHAPE(300), fill_normal, 1);
        add_int(&c, LC_F32);
        add_int(&c, 0); /* no reducer */
        add_int(&c, 0); /* no scale of the loss */
        add_int(&c, only_finite);
        const int64_t ranges[][3] = {{0, 0, 1}, {0, 64, 40001}, {1, 9, 270}, {0, 50000, 7}}; /* input, offset, count */
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 3; k++) add_int(&c, ranges[i][k]);
        add_float(&c, only_finite ? (double)INFINITY : form == 0 ? 1e6 : 3);
        add_float(&c, 0.25);
        check_case(&c);
    }
}

/* Whether all gradients are finite is seen at each place, also between parameters, where the norm is not wanted. */
TEST(a_gradient_that_is_not_finite)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    enum { N = 200, FIRST = 3, COUNT = 190 };
    float x[N], norm, factor;
    int64_t ints[] = {LC_F32, 0, 0, true, 0, FIRST, COUNT};
    double floats[] = {(double)INFINITY, 0.25};
    for (int set = -1; set < 3; set++)
        for (int at = -1; at < N; at++) {
            kernel_case c = case_of(&lc__op_clip_coefficient);
            for (int i = 0; i < N; i++) x[i] = 3e38f;
            if (at >= 0) x[at] = at % 2 ? NAN : -INFINITY;
            c.n_in = 1;
            c.in[0] = (lc_view){.data = x, .dtype = LC_F32, .ndim = 1, .shape = {N}, .stride = {1}};
            c.n_out = 2;
            c.out[0] = (lc_view){.data = &norm, .dtype = LC_F32};
            c.out[1] = (lc_view){.data = &factor, .dtype = LC_F32};
            for (int i = 0; i < 7; i++) add_int(&c, ints[i]);
            for (int i = 0; i < 2; i++) add_float(&c, floats[i]);
            lc_call call = call_of(&c, NULL, 1);
            if (set >= 0 && !lc__isa_find(sets[set])) continue;
            const lc_kernel *kernel = set < 0 ? c.op->kernel : lc__isa_kernel(lc__isa_find(sets[set]), &call);
            CHECK(kernel != NULL);
            run_kernel(&c, kernel, 1);
            const bool outside = at < FIRST || at >= FIRST + COUNT;
            CHECK(outside ? norm == 0 && factor == 0.25f : !isfinite(norm));
        }
}

TEST(accumulation)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    for (int form = 0; form < 2; form++) {
        for (int s = 0; s < 3; s++) {
            if (!lc__isa_find(sets[s])) continue;
            kernel_case c = case_of(&lc__op_accumulate);
            for (int i = 0; i < 2; i++) add_input(&c, LC_F32, CHECK_CHANNELS_LAST, SHAPE(9, 40, 7, 13), fill_normal, 1);
            add_int(&c, form);
            int64_t n = view_numel(&c.in[0]);
            float *want = malloc((size_t)n * sizeof *want), *to = c.in[0].data;
            const float *from = c.in[1].data;
            for (int64_t i = 0; i < n; i++) want[i] = form ? to[i] + from[i] : from[i];
            lc_call call = call_of(&c, NULL, 2);
            const lc_kernel *kernel = lc__isa_kernel(lc__isa_find(sets[s]), &call);
            CHECK(kernel != NULL);
            run_kernel(&c, kernel, 2);
            CHECK(!memcmp(want, to, (size_t)n * sizeof *want));
            c.in[1].stride[1] *= 2; /* a different layout */
            CHECK(lc__isa_kernel(lc__isa_find(sets[s]), &call) == NULL);
            free(want);
            for (int i = 0; i < 2; i++) free(c.storage[i]);
        }
    }
}

/* ---- attention ---- */
typedef enum attention_mask { NO_MASK, ADDED, BOOLEAN, BLIND } attention_mask;

/* packed: queries, keys and values of all heads are adjacent in one row, as a single linear layer gives them. */
static void check_attention(int64_t batch, int64_t heads, int64_t s, int64_t sk, int64_t d, int64_t dv, bool causal,
                            bool packed, attention_mask mask)
{
    int64_t q_shape[] = {batch, heads, s, d}, k_shape[] = {batch, heads, sk, d}, v_shape[] = {batch, heads, sk, dv};
    int64_t y_shape[] = {batch, heads, s, dv};
    int64_t *const shapes[] = {q_shape, k_shape, v_shape};
    kernel_case f = case_of(&lc__op_sdpa);
    for (int i = 0; i < 3; i++) {
        if (packed) {
            int64_t row[] = {batch, shapes[i][2], heads, shapes[i][3] + 5};
            lc_view *v = add_input(&f, LC_F32, CHECK_ROW_MAJOR, 4, row, fill_normal, 1);
            int64_t swap = v->stride[1];
            v->stride[1] = v->stride[2];
            v->stride[2] = swap;
            memcpy(v->shape, shapes[i], 4 * sizeof(int64_t));
        } else {
            add_input(&f, LC_F32, CHECK_ROW_MAJOR, 4, shapes[i], fill_normal, 1);
        }
    }
    if (mask == NO_MASK) {
        add_missing(&f);
    } else if (mask == ADDED) {
        add_input(&f, LC_F32, CHECK_ROW_MAJOR, SHAPE(batch, 1, s, sk), fill_normal, 1);
    } else {
        lc_view *m = add_input(&f, LC_BOOL, CHECK_ROW_MAJOR, SHAPE(heads, 1, sk), fill_whole, 2);
        if (mask == BLIND) memset(m->data, 0, (size_t)sk); /* the first head sees nothing */
    }
    add_int(&f, causal);
    add_int(&f, mask == ADDED);
    add_float(&f, 0.3);
    f.relative = 4e-6;
    f.of_largest = 4e-6;

    /* The backward kernel needs the forward's results. */
    infer_outputs(&f);
    run_kernel(&f, f.op->kernel, 1);
    kernel_case b = case_of(&lc__op_sdpa_backward);
    add_input(&b, LC_F32, CHECK_ROW_MAJOR, 4, y_shape, fill_normal, 1);
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
    b.relative = b.of_largest = 5e-6;
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
        check_attention(1, 1, 1, 1, 1, 1, causal, packed, mask);
        check_attention(2, 3, 5, 5, 8, 8, causal, packed, mask);
        check_attention(1, 2, 70, 70, 64, 64, causal, packed, mask);
        check_attention(1, 2, 130, 75, 20, 33, causal, packed, mask);
        check_attention(2, 1, 37, 200, 128, 16, causal, packed, mask);
    }
    check_attention(2, 2, 40, 50, 16, 16, false, false, BOOLEAN);
    check_attention(2, 2, 40, 50, 16, 16, true, true, BOOLEAN);
    check_attention(2, 2, 10, 20, 16, 16, false, false, BLIND);
}

/* ---- embedding ---- */
static void check_embedding(lc_dtype dtype)
{
    const int64_t sizes[] = {1, 16, 100, 768};
    for (int s = 0; s < 4; s++) {
        for (int form = 0; form < 2; form++) {
            lc_dtype ids = form ? LC_I32 : LC_I64;
            kernel_case c = case_in(dtype, &lc__op_embedding);
            lc_view *v = add_input(&c, ids, CHECK_ROW_MAJOR, SHAPE(4, 60), fill_whole, 31);
            put_value(ids, v->data, 3, 500);
            put_value(ids, v->data, 4, -1);
            add_input(&c, dtype, CHECK_ROW_MAJOR, SHAPE(31, sizes[s]), fill_normal, 1);
            add_int(&c, -1);
            c.relative = c.of_largest = 0;
            check_case(&c);
            kernel_case b = case_in(dtype, &lc__op_embedding_backward);
            add_input(&b, dtype, CHECK_ROW_MAJOR, SHAPE(4, 60, sizes[s]), fill_normal, 1);
            v = add_input(&b, ids, CHECK_ROW_MAJOR, SHAPE(4, 60), fill_whole, 31);
            put_value(ids, v->data, 3, 500);
            add_int(&b, 31);
            add_int(&b, form ? 7 : -1);
            check_case(&b);
        }
    }
}

TEST(embedding)
{
    check_embedding(LC_F32);
    check_embedding(LC_F64);
}

/* ---- dropout ---- */
static void check_dropout(lc_dtype dtype)
{
    const int64_t sizes[] = {1, 3, 255, 256, 257, 100003};
    const double p[] = {0.1, 0.5, 0.9999999, 1, 1e-9};
    for (int s = 0; s < 6; s++) {
        for (int k = 0; k < 5; k++) {
            kernel_case c = case_in(dtype, &lc__op_dropout);
            add_input(&c, dtype, CHECK_ROW_MAJOR, SHAPE(sizes[s]), fill_positive, 1);
            add_int(&c, 12345);
            add_int(&c, 2);
            add_float(&c, p[k]);
            c.relative = c.of_largest = 0;
            check_case(&c);
        }
    }
}

TEST(dropout)
{
    check_dropout(LC_F32);
    check_dropout(LC_F64);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Updates that round parameters of 16 bits at random: without bias, to a neighbor, and with numbers that depend only on
 * the seed, the parameter and its update. tests/precision/test_true_run.c has whole runs, on several ranks. */
#include "test.h"

#include "base/number.h"

#include <lightc/lightc.h>
#include <math.h>

enum { N = 30000 };

static const lc_dtype halves[] = {LC_F16, LC_BF16};

typedef struct way {
    lc_dtype dtype;
    uint64_t seed;
    int threads, step, updates;
    bool reference, muon;
} way;

/* Sets `bits` to N parameters of the value `from` after an update that subtracts `less`. */
static void update(const way *h, double from, double less, uint16_t *bits)
{
    lc_module root;
    lc_graph *g;
    lc_optimizer *opt;
    setenv("LIGHTC_KERNELS", h->reference ? "reference" : "fast", 1);
    lc_module_init(&root, NULL, 1);
    lc_tensor *p = lc_module_add_parameter(&root, "p", h->dtype, LC_ROW_MAJOR, 2, (int64_t[]){N / 100, 100},
                                           (lc_init){LC_INIT_ZEROS});
    for (int i = 0; i < N; i++) lc__set_number(bits, h->dtype, i, from);
    CHECK_OK(lc_tensor_write(p, bits, N * sizeof *bits));
    /* A gradient has 16 bits, too, but not a rate. */
    const double rate = isfinite(less) ? fabs(less) : 1, gradient = less == 0 ? 0 : less / rate;
    opt = lc_sgd(&root, .lr = rate, .stochastic_rounding = true);
    if (h->muon) {
        lc_optimizer_free(opt);
        opt = lc_muon(&root, .lr = less, .stochastic_rounding = true);
    }
    CHECK_OK(lc_module_status(&root));
    CHECK_OK(lc_graph_new(&g, .threads = h->threads ? h->threads : 1, .seed = h->seed));
    for (int i = 0; i < (h->updates ? h->updates : 1); i++) {
        CHECK_OK(lc_step_begin(g, (uint64_t)(h->step + i), 0));
        lc_zero_grad(g);
        lc_backward(lc_sum(lc_mul_scalar(lc_cast(p, LC_F32), gradient)));
        lc_optimizer_step(opt);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
    }
    CHECK_OK(lc_tensor_read(p, bits, N * sizeof *bits));
    lc_graph_free(g);
    lc_optimizer_free(opt);
    lc_module_release(&root);
    unsetenv("LIGHTC_KERNELS");
}

static uint16_t one[N], two[N];

/* `up`: the part of the way from one neighbor, low, to the other at which the exact value is. */
static void check_mean(lc_dtype dtype, double low, double high, double up)
{
    double from = up < 0.5 ? low : high, less = from - (low + up * (high - low)), n = 0;
    update(&(way){.dtype = dtype}, from, less, one);
    for (int i = 0; i < N; i++) {
        double x = lc__number_at(one, dtype, i);
        CHECK(x == low || x == high);
        n += x == high;
    }
    if (fabs(n / N - up) > 5 * sqrt(up * (1 - up) / N))
        TEST_FAIL("%s between %g and %g: %g of all were rounded up, not %g", lc_dtype_name(dtype), low, high, n / N,
                  up);
}

TEST(the_mean_is_the_exact_value)
{
    for (int k = 0; k < 2; k++) {
        double ulp = k ? 0x1p-7 : 0x1p-10;
        check_mean(halves[k], 1, 1 + ulp, 0.25);
        check_mean(halves[k], 1, 1 + ulp, 0.875);
        check_mean(halves[k], -1.5, -1.5 + ulp, 0.03125);
        check_mean(halves[k], 24, 24 + 16 * ulp, 0.5);
    }
    check_mean(LC_F16, 0x1p-24, 0x1p-23, 0.375); /* which are not normal */
    check_mean(LC_F16, 0, 0x1p-24, 0.25);
    check_mean(LC_F16, 0x1.ff8p-15, 0x1p-14, 0.5);
}

static void check_all(lc_dtype dtype, double from, double less, double want)
{
    for (int reference = 0; reference < 2; reference++) {
        update(&(way){.dtype = dtype, .reference = reference}, from, less, one);
        for (int i = 0; i < N; i++) {
            double x = lc__number_at(one, dtype, i);
            if (!(x == want || (isnan(x) && isnan(want))))
                TEST_FAIL("%s: %g - %g is %g, not %g", lc_dtype_name(dtype), from, less, x, want);
        }
    }
}

TEST(numbers_at_the_edges)
{
    for (int k = 0; k < 2; k++) {
        double ulp = k ? 0x1p-7 : 0x1p-10;
        check_all(halves[k], 1, -ulp, 1 + ulp); /* what the type holds is not changed */
        check_all(halves[k], -3, 0, -3);
        check_all(halves[k], 0, 0, 0);
        check_all(halves[k], 1, NAN, NAN);
        check_all(halves[k], 1, -INFINITY, INFINITY);
        check_all(halves[k], 1, INFINITY, -INFINITY);
    }
    /* Rounding never makes a finite number infinite. */
    check_all(LC_F16, 65504, -31, 65504);
    check_all(LC_F16, -65504, 31, -65504);
    check_all(LC_F16, 65504, -32, INFINITY);
    check_all(LC_BF16, 0x1.fep127, -0x1p119, 0x1.fep127);
}

static bool this_machine_has(const char *isa)
{
    lc_graph *g;
    setenv("LIGHTC_ISA", isa, 1);
    bool has = lc_graph_new(&g, .threads = 1) >= 0;
    if (has) lc_graph_free(g);
    return has;
}

TEST(what_the_numbers_depend_on)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    for (int k = 0; k < 2; k++) {
        const double less = k ? 0x1p-9 : 0x1p-12;
        way h = {.dtype = halves[k], .seed = 5, .updates = 3};
        update(&h, 1, less, one);
        h.threads = 3;
        update(&h, 1, less, two);
        CHECK(!memcmp(one, two, sizeof one));
        for (int i = 0; i < 3; i++) {
            if (!this_machine_has(sets[i])) continue;
            update(&h, 1, less, two);
            CHECK(!memcmp(one, two, sizeof one));
        }
        unsetenv("LIGHTC_ISA");
        h.reference = true;
        update(&h, 1, less, two);
        CHECK(!memcmp(one, two, sizeof one));
        h.reference = false, h.step = 7; /* the number of updates counts, not that of steps */
        update(&h, 1, less, two);
        CHECK(!memcmp(one, two, sizeof one));
        h.seed = 6;
        update(&h, 1, less, two);
        CHECK(memcmp(one, two, sizeof one));
        /* Each update has numbers of its own: after two, some have moved twice, and some not at all. */
        int moved[3] = {0};
        h.updates = 2;
        update(&h, 1, less, one);
        for (int i = 0; i < N; i++) {
            double ulps = (1 - lc__number_at(one, halves[k], i)) / (k ? 0x1p-8 : 0x1p-11);
            CHECK(ulps == 0 || ulps == 1 || ulps == 2);
            moved[(int)ulps]++;
        }
        CHECK_NEAR(moved[0], N / 4, 500);
        CHECK_NEAR(moved[1], N / 2, 500);
    }
}

/* Muon has a kernel of its own. */
TEST(muon_rounds_at_random)
{
    for (int k = 0; k < 2; k++) {
        update(&(way){.dtype = halves[k], .muon = true}, 1, 1e-4, one); /* decay by 0.1 of the rate: far below an ulp */
        int moved = 0;
        for (int i = 0; i < N; i++) moved += lc__number_at(one, halves[k], i) < 1;
        CHECK(moved > 10 && moved < N / 2);
    }
}

TEST(f32_is_not_rounded)
{
    lc_module root;
    lc_graph *g;
    float x[2];
    lc_module_init(&root, NULL, 1);
    lc_tensor *p =
        lc_module_add_parameter(&root, "p", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){2}, (lc_init){LC_INIT_ZEROS});
    lc_optimizer *opt = lc_sgd(&root, .lr = 0.1, .stochastic_rounding = true);
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_backward(lc_sum(p));
    lc_optimizer_step(opt);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    CHECK_OK(lc_tensor_read(p, x, sizeof x));
    CHECK(x[0] == -0.1f && x[1] == -0.1f);
    lc_graph_free(g);
    lc_optimizer_free(opt);
    lc_module_release(&root);
}

TEST(what_is_refused)
{
    lc_module root;
    lc_optimizer *opt;
    lc_module_init(&root, NULL, 1);
    lc_module_add_parameter(&root, "p", LC_BF16, LC_ROW_MAJOR, 1, (int64_t[]){2}, (lc_init){LC_INIT_ZEROS});
    static const lc_named_number both[] = {{"master_weights", 1}, {"stochastic_rounding", 1}};
    CHECK_STATUS(lc_optimizer_by_name("Adam", &root, both, 2, &opt), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "choose stochastic_rounding or master_weights");
    CHECK_STATUS(lc_optimizer_by_name("LBFGS", &root, both + 1, 1, &opt), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "LBFGS has no stochastic_rounding");
    CHECK_OK(lc_optimizer_by_name("Adam", &root, both + 1, 1, &opt));
    lc_optimizer_free(opt);
    lc_module_release(&root);
}

TEST_MAIN

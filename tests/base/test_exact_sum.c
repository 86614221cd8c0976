/* SPDX-License-Identifier: Apache-2.0 */
/* Sums without rounding (base/exact_sum.h): the same for any order and grouping, and rounded once. */
#include "test.h"
#include "base/exact_sum.h"

#include <lightc/random.h>
#include <math.h>
#include <string.h>

static bool same_bits(double a, double b)
{
    return !memcmp(&a, &b, sizeof a);
}

TEST(exact_sums)
{
    static const double special[] = {0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp1023, 1, -1, 0x1p-1022, 3e-320, 1e300};
    double x[400];
    for (int trial = 0; trial < 200; trial++) {
        lc__exact_sum a = {0}, b = {0}, c = {0};
        for (int i = 0; i < 400; i++) {
            double v = ldexp(lc_random_normal((uint64_t)trial, (uint64_t)i), (int)(i * 37 % 120) - 60);
            x[i] = i % 50 == 7 ? special[(i + trial) % 8] : v;
            if (x[i] > 1e307) x[i] /= 2;
        }
        for (int i = 0; i < 400; i++) lc__exact_add(&a, x[i]);
        for (int i = 399; i >= 0; i--) lc__exact_add(i % 3 ? &b : &c, x[i]);
        lc__exact_tidy(&b), lc__exact_tidy(&c);
        for (int i = 0; i < LC__EXACT_DIGITS; i++) b.digit[i] += c.digit[i];
        CHECK(same_bits(lc__exact_value(&a), lc__exact_value(&b)));
        for (int i = 0; i < 400; i++) lc__exact_add(&a, -x[i]);
        CHECK(lc__exact_value(&a) == 0);
    }
    /* Rounded to nearest, ties to even. */
    static const double cases[][4] = {{1, 0x1p-53, 0, 1},
                                      {1, 0x1p-53, 0x1p-1074, 1 + 0x1p-52},
                                      {1 + 0x1p-52, 0x1p-53, 0, 1 + 0x1p-51},
                                      {-1, -0x1p-53, -0x1p-1074, -1 - 0x1p-52},
                                      {0x1p-1074, 0x1p-1074, 0, 0x1p-1073},
                                      {0x1p-1022, -0x1p-1074, 0, 0x1.ffffffffffffep-1023},
                                      {0x1p1023, 0x1p1023, -0x1p1023, 0x1p1023},
                                      {0x1p1023, 0x1p1023, 0, INFINITY},
                                      {INFINITY, 1, 0, INFINITY},
                                      {1e16, 1, -1e16, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lc__exact_sum s = {0};
        for (int k = 0; k < 3; k++) lc__exact_add(&s, cases[i][k]);
        if (!same_bits(lc__exact_value(&s), cases[i][3]))
            TEST_FAIL("case %zu: %a, not %a", i, lc__exact_value(&s), cases[i][3]);
    }
    lc__exact_sum s = {0};
    lc__exact_add(&s, INFINITY), lc__exact_add(&s, -INFINITY);
    CHECK(isnan(lc__exact_value(&s)));
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Philox compared with the vectors published with the generator; distributions by their moments. */
#include "test.h"

#include <lightc/random.h>

TEST(philox_known_answers)
{
    static const struct {
        uint64_t key, lo, hi;
        uint32_t want[4];
    } rows[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        uint32_t got[4];
        lc_philox4x32(rows[r].key, rows[r].lo, rows[r].hi, got);
        for (int i = 0; i < 4; i++) CHECK_EQ(got[i], rows[r].want[i]);
    }
}

TEST(uniform_and_normal_have_their_moments)
{
    enum { N = 200000 };
    double sum = 0, squares = 0, nsum = 0, nsquares = 0, fourth = 0, lag = 0, before = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = lc_random_uniform(42, i), z = lc_random_normal(42, i);
        CHECK(u >= 0 && u < 1);
        CHECK(isfinite(z));
        sum += u, squares += u * u, nsum += z, nsquares += z * z, fourth += z * z * z * z, lag += z * before;
        before = z;
    }
    CHECK_NEAR(sum / N, 0.5, 0.004);
    CHECK_NEAR(squares / N, 1.0 / 3, 0.004);
    CHECK_NEAR(nsum / N, 0, 0.015);
    CHECK_NEAR(nsquares / N, 1, 0.02);
    CHECK_NEAR(fourth / N, 3, 0.15);
    CHECK_NEAR(lag / N, 0, 0.015);
}

TEST(below_is_uniform)
{
    int count[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t v = lc_random_below(7, i, 7);
        CHECK(v < 7);
        count[v]++;
    }
    for (int i = 0; i < 7; i++) CHECK_NEAR(count[i], 10000, 500);
    CHECK_EQ(lc_random_below(7, 0, 1), 0);
    /* A range that needs all 64 bits: both words are used. */
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t v = lc_random_below(7, i, 0xC000000000000001u);
        CHECK(v <= 0xC000000000000000u);
        sum += (double)v / 0xC000000000000000u;
    }
    CHECK_NEAR(sum / 10000, 0.5, 0.015);
}

TEST(keys_differ)
{
    uint64_t seen[64];
    for (uint64_t i = 0; i < 32; i++) seen[i] = lc_random_key(1, i), seen[32 + i] = lc_random_key(i + 2, 1);
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < i; j++) CHECK(seen[i] != seen[j]);
    CHECK(lc_random_key_name(1, "l1.weight") != lc_random_key_name(1, "l1.bias"));
    CHECK(lc_random_key_name(1, "l1.weight") == lc_random_key_name(1, "l1.weight"));
    CHECK(lc_random_key_name(1, "l1.weight") != lc_random_key_name(2, "l1.weight"));
    /* One bit of the number changes about half of the key's bits. */
    int changed = 0;
    for (int bit = 0; bit < 64; bit++)
        changed += __builtin_popcountll(lc_random_key(9, 5) ^ lc_random_key(9, 5 ^ 1ull << bit));
    CHECK_NEAR(changed / 64.0, 32, 3);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions into batches, which write past the caches once helpers of loops have read batches. */
#include "test.h"
#include <lightc/data.h>
#include "base/pool.h"
#include "data/data_internal.h"

static void nothing(void *context, int64_t piece, int seat)
{
    (void)context, (void)piece, (void)seat;
}

static lc__convert_fn *from_bytes(void)
{
    lc__convert_fn *fn = NULL;
    CHECK(lc__conversion(LC__U8, LC_F32, true, &fn));
    return fn;
}

/* No loop has run before this test. */
TEST(without_helpers_batches_go_through_the_caches)
{
    CHECK(!lc__pool_helps());
    CHECK(lc__conversion_into_batch(from_bytes()) == from_bytes());
    CHECK(lc__conversion_into_batch(NULL) == NULL);
}

/* Samples of all lengths, so of all alignments in a batch, too. */
TEST(with_helpers_they_have_the_same_numbers)
{
    enum { SAMPLES = 9, LONGEST = 70 };
    lc__pool_run(2, 2, nothing, NULL);
    CHECK(lc__pool_helps());
    CHECK(lc__conversion_into_batch(from_bytes()) != from_bytes());
    CHECK(lc__conversion_into_batch(NULL) == NULL);
    for (int length = 1; length <= LONGEST; length++) {
        uint8_t bytes[SAMPLES * LONGEST];
        float out[SAMPLES * LONGEST + 2];
        for (int i = 0; i < SAMPLES * length; i++) bytes[i] = (uint8_t)(i * 37 + length);
        const lc_array a = {.field = {.name = "x", .dtype = LC_U8, .ndim = 1, .shape = {length}},
                            .data = bytes,
                            .to = LC_F32,
                            .scale = 0.3,
                            .shift = -1.7};
        lc_dataset *d;
        CHECK_OK(lc_array_dataset_new(SAMPLES, 1, &a, &d));
        int64_t order[SAMPLES];
        for (int j = 0; j < SAMPLES; j++) order[j] = (j * 4) % SAMPLES;
        for (int at = 0; at < 2; at++) {
            out[at + SAMPLES * length] = 5;
            CHECK_OK(lc_dataset_get_many(d, SAMPLES, order, (uint64_t[SAMPLES]){0}, (void *[]){out + at}, NULL));
            for (int j = 0; j < SAMPLES; j++)
                for (int i = 0; i < length; i++)
                    CHECK(out[at + j * length + i] == (float)bytes[order[j] * length + i] * 0.3F + -1.7F);
            CHECK(out[at + SAMPLES * length] == 5);
        }
        lc_dataset_unref(d);
    }
}

TEST_MAIN

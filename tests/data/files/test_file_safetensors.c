/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors as files of arrays. */
#include "fixtures.h"

static void check_file(void)
{
    lc_array_file *f = open_fixture("some.safetensors");
    CHECK_EQ(lc_array_file_count(f), 6);
    CHECK_STR(lc_array_file_info(f, lc_array_file_find(f, "i8"))->type, "i8");
    CHECK_EQ(lc_array_file_info(f, lc_array_file_find(f, "number"))->ndim, 0);
    lc_file_field fields[] = {{.name = "x", .file = f, .arrays = "images", .to = LC_F32, .scale = 2},
                              {.name = "labels", .file = f},
                              {.name = "u16", .file = f, .to = LC_I32},
                              {.name = "f16", .file = f}};
    lc_dataset *d;
    CHECK_OK(lc_file_dataset_new(4, fields, &d));
    lc_array_file_close(f);
    float x[6];
    int64_t y;
    int32_t u16[3];
    uint16_t f16[3];
    void *out[] = {x, &y, u16, f16};
    for (int i = 0; i < 4; i++) {
        CHECK_OK(lc_dataset_read(d, i, 0, out));
        for (int k = 0; k < 6; k++) CHECK_NEAR(x[k], 2 * (i * 6 + k), 0);
        CHECK_EQ(y, i - 3);
        for (int k = 0; k < 3; k++) CHECK_EQ(u16[k], i * 3 + k);
    }
    CHECK_EQ(f16[0], 0x4600); /* 6 */
    lc_dataset_unref(d);
}

TEST(a_dataset)
{
    check_file();
}

TEST(live_safetensors)
{
    with_live_files("safetensors", check_file);
}

TEST(files_that_end_early_or_are_changed)
{
    try_broken("some.safetensors", true);
}

TEST(types_without_numbers)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    unsigned char bytes[200] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    CHECK_STATUS(try_bytes("f8.safetensors", bytes, 8 + sizeof header - 1 + 2), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "F8_E4M3");
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Files of arrays without memory: each allocation fails once, and the call says so and leaves nothing behind. */
#include "fixtures.h"

#include "fail_malloc.h"

#ifndef SANITIZED
static lc_status use(const char *path, const char *array)
{
    lc_array_file *f = NULL;
    lc_dataset *d = NULL;
    double values[4096];
    LC_TRY(lc_array_file_open(path, &f, .missing = 0));
    lc_file_field fields[] = {{.name = "x", .file = f, .arrays = "*", .to = LC_F32},
                              {.name = "y", .file = f, .arrays = array, .to = LC_F64}};
    lc_status status = lc_file_dataset_new(1, fields + 1, &d);
    if (status < 0) CHECK(!d);
    if (status >= 0 && lc_array_file_find(f, "number") == 0 && lc_array_file_info(f, 0)->ndim) {
        lc_dataset_unref(d);
        status = lc_file_dataset_new(2, fields, &d);
    }
    lc_array_file_close(f);
    if (status < 0) return status;
    void *out[] = {values, values + 2048};
    status = lc_dataset_read(d, 0, 0, out);
    lc_dataset_unref(d);
    return status;
}

static int failures(const char *name, const char *array)
{
    char path[4300];
    snprintf(path, sizeof path, "%s", fixture(name));
    CHECK_OK(use(path, array)); /* what is made once is made now */
    for (long n = 1;; n++) {
        atomic_store(&mallocs, 0);
        atomic_store(&malloc_fail_at, n);
        lc_status status = use(path, array);
        bool failed = atomic_load(&mallocs) >= n;
        atomic_store(&malloc_fail_at, 0);
        if (!failed) {
            CHECK_OK(status);
            return (int)n - 1;
        }
        CHECK_STATUS(status, LC_ERR_MEMORY);
    }
}
#endif

TEST(each_allocation_fails_once)
{
#ifdef SANITIZED
    SKIP("a sanitizer has its own allocator");
#else
    static const char *const files[][2] = {{"f4.npy", ""},
                                           {"deflated.npz", "images"},
                                           {"pandas.csv", "number"},
                                           {"some.safetensors", "labels"},
                                           {"nanogpt.bin", "tokens"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) CHECK(failures(files[i][0], files[i][1]) >= 5);
#endif
}

TEST_MAIN

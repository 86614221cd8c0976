/* SPDX-License-Identifier: Apache-2.0 */
/* Files of arrays, from memory. The first byte chooses the name, which decides the kind of files without a mark. For
 * any bytes opening and reading give a status, and arrays that are as long as they say. */
#include "data/files/file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16 };
static const char *const names[] = {"a.npz", "a.bin", "a.csv", "b.csv", "a.safetensors"};

static void read_array(lc_array_file *f, int64_t i)
{
    static double values[MOST];
    const lc_array_info *info = lc_array_file_info(f, i);
    int64_t n = 1, numel;
    if (lc_array_file_find(f, info->name) != i) abort();
    if (info->ndim) n = info->shape[0];
    numel = n;
    for (int d = 1; d < info->ndim; d++)
        if (__builtin_mul_overflow(numel, info->shape[d], &numel)) return;
    for (int64_t k = 1; k < info->classes; k++)
        if (strcmp(lc_array_file_class(f, i, k - 1), lc_array_file_class(f, i, k)) >= 0) abort();
    if (numel > MOST) return;
    if (lc_array_file_read(f, i, 0, n, LC_F64, values, (size_t)numel * sizeof *values) < 0 && !*lc_error_message())
        abort();
}

static void read_as_dataset(lc_array_file *f)
{
    lc_dataset *d;
    static char sample[MOST * 8];
    lc_file_field field = {.name = "x", .file = f, .arrays = "*", .to = LC_F32};
    if (lc_file_dataset_new(1, &field, &d) < 0) return;
    void *out = sample;
    if (lc_dataset_length(d) > 0 && lc_field_bytes(&lc_dataset_spec(d)->fields[0]) <= sizeof sample)
        (void)!lc_dataset_read(d, lc_dataset_length(d) - 1, 0, &out);
    lc_dataset_unref(d);
}

static void read_windows(lc_array_file *f)
{
    lc_dataset *d;
    int64_t x[8], y[8];
    void *out[] = {x, y};
    if (lc_file_windows_new(f, &d, .window = 8) < 0) return;
    if (lc_dataset_length(d) < 1 || lc_dataset_read(d, lc_dataset_length(d) - 1, 0, out) < 0) abort();
    lc_dataset_unref(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lc_array_file *f;
    if (!size) return 0;
    const char *name = names[data[0] % (sizeof names / sizeof *names)];
    lc_array_file_args args = lc_array_file_defaults();
    if (name[0] == 'b') args.header = LC_OFF, args.missing = 7, args.text = "1";
    if (lc__array_file_of(name, data + 1, size - 1, &args, &f) < 0) {
        if (f || !*lc_error_message()) abort();
        return 0;
    }
    for (int64_t i = 0; i < lc_array_file_count(f); i++) read_array(f, i);
    read_as_dataset(f);
    read_windows(f);
    lc_array_file_close(f);
    return 0;
}

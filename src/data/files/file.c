/* SPDX-License-Identifier: Apache-2.0 */
/* Files of arrays: opening, and what they contain. To add a kind: a file here with its lc__file_kind, a line in `kinds`
 * and in file.h, its fuzz target, its tests. */
#include "data/files/file.h"
#include "base/args.h"
#include "base/grow.h"
#include "base/io.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const lc__file_kind *const kinds[] = {&lc__npy_kind, &lc__npz_kind,         &lc__tokens_kind,
                                             &lc__csv_kind, &lc__safetensors_kind, &lc__hdf5_kind};
/* Bytes that are read at once from an array that is not mapped, if they become another type. */
#define READ_BYTES ((size_t)1 << 18)

enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- for the kinds ---- */

lc_status lc__file_fail(const lc_array_file *f, lc_status status, const char *name, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (name && *name) return lc_fail(status, "%s: array '%.200s' %s", f->path, name, text);
    return lc_fail(status, "%s %s", f->path, text);
}

lc_status lc__file_add(lc_array_file *f, const char *name, size_t n, lc__file_array **out)
{
    LC_TRY(lc__grow(&f->arrays, &f->capacity, f->n, 1, "the arrays of a file"));
    char *copy = strndup(name, n);
    if (!copy) return lc_fail(LC_ERR_MEMORY, "out of memory for the names in %s", f->path);
    *out = &f->arrays[f->n++];
    **out = (lc__file_array){.info.name = copy};
    return LC_OK;
}

lc_status lc__file_refuse(lc__file_array *a, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    a->refused = strdup(text);
    return a->refused ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory for an array of a file");
}

bool lc__file_strides(lc__file_array *a, bool fortran, uint64_t *bytes)
{
    const uint64_t most = UINT64_C(1) << 62;
    uint64_t at = lc__number_size(a->number), all = at;
    /* A dimension of 0 must not hide an overflow: strides are products without it. */
    for (int k = 0; k < a->info.ndim; k++) {
        int d = fortran ? k : a->info.ndim - 1 - k;
        uint64_t size = (uint64_t)a->info.shape[d];
        a->stride[d] = (int64_t)at;
        if (__builtin_mul_overflow(at, size ? size : 1, &at) || at > most) return false;
        all *= size; /* <= at */
    }
    *bytes = all;
    return true;
}

/* ---- open and close ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names the types for users, and checks that no two arrays have the same name. */
static lc_status finish(lc_array_file *f)
{
    for (int64_t i = 0; i < f->n; i++) {
        lc__file_array *a = &f->arrays[i];
        if (!a->refused) a->info.type = lc__number_name(a->number);
        a->info.dtype = !a->refused && a->number < LC__I8 ? (lc_dtype)a->number : 0;
    }
    if (f->n < 2) return LC_OK;
    const char **names = malloc((size_t)f->n * sizeof *names);
    if (!names) return lc_fail(LC_ERR_MEMORY, "out of memory for the names in %s", f->path);
    for (int64_t i = 0; i < f->n; i++) names[i] = f->arrays[i].info.name;
    lc_status status = LC_OK;
    qsort(names, (size_t)f->n, sizeof *names, by_name);
    for (int64_t i = 1; i < f->n && status == LC_OK; i++)
        if (!strcmp(names[i - 1], names[i])) status = lc__file_fail(f, LC_ERR_FORMAT, names[i], "is there twice");
    free(names);
    return status;
}

static lc_status read_header(lc_array_file *f, const lc_array_file_args *args)
{
    for (int k = 0; k < KINDS && !f->kind; k++)
        if (kinds[k]->matches(f)) f->kind = kinds[k];
    if (!f->kind)
        return lc_fail(LC_ERR_FORMAT,
                       "%s is not a file of arrays that lightc reads, which are .npy, .npz, .csv, "
                       ".safetensors, HDF5 and .bin (tokens)",
                       f->path);
    f->args = args;
    lc_status status = f->kind->read_header(f);
    f->args = NULL;
    return status < 0 ? status : finish(f);
}

static lc_status new_file(const char *path, lc_array_file **out)
{
    lc_array_file *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return lc_fail(LC_ERR_MEMORY, "out of memory for opening %s", path);
    }
    f->mark = LC__MARK_OF(ARRAY_FILE);
    atomic_init(&f->refs, 1);
    *out = f;
    return LC_OK;
}

lc_status lc__array_file_of(const char *path, const void *bytes, size_t size, const lc_array_file_args *args,
                            lc_array_file **out)
{
    *out = NULL;
    lc_array_file *f;
    LC_TRY(new_file(path, &f));
    f->bytes = bytes, f->size = size;
    lc_status status = read_header(f, args);
    if (status < 0)
        lc__array_file_unref(f);
    else
        *out = f;
    return status;
}

lc_status lc_array_file_open_with(const char *path, lc_array_file **out, const lc_array_file_args *args)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    LC__TAKE(a, lc_array_file, lc_array_file_args, args, LC_ERR_ARGUMENT);
    lc_array_file *f = NULL;
    struct stat st;
    int fd;
    LC_TRY(lc__open_to_read(&lc__io_system, path, &fd, &st));
    lc_status status;
    LC_TRY_GOTO(status, done, new_file(path, &f));
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            status = lc_fail(LC_ERR_MEMORY, "%s cannot be mapped: %m", path);
            goto done;
        }
        f->bytes = p, f->size = (size_t)st.st_size, f->mapped = true;
    }
    status = read_header(f, &a);
done:
    lc__io_system.close(&lc__io_system, fd);
    if (status < 0)
        lc__array_file_unref(f);
    else
        *out = f;
    return status;
}

lc_array_file *lc__array_file_ref(lc_array_file *f)
{
    atomic_fetch_add(&f->refs, 1);
    return f;
}

void lc__array_file_unref(lc_array_file *f)
{
    if (!f || atomic_fetch_sub(&f->refs, 1) != 1) return;
    if (f->kind && f->kind->free) f->kind->free(f);
    for (int64_t i = 0; i < f->n; i++) {
        free((void *)(uintptr_t)f->arrays[i].info.name);
        free(f->arrays[i].refused);
        free(f->arrays[i].owned);
    }
    free(f->arrays);
    if (f->mapped) munmap((void *)(uintptr_t)f->bytes, f->size);
    free(f->path);
    free(f);
}

void lc_array_file_close(lc_array_file *f)
{
    if (!f) return;
    LC__IS_OR_NULL(f, ARRAY_FILE, );
    lc__mark_clear(&f->mark);
    lc__array_file_unref(f);
}

/* ---- contents ---- */

const char *lc_array_file_path(const lc_array_file *f)
{
    LC__IS(f, ARRAY_FILE, "");
    return f->path;
}

int64_t lc_array_file_count(const lc_array_file *f)
{
    LC__IS(f, ARRAY_FILE, 0);
    return f->n;
}

const lc_array_info *lc_array_file_info(const lc_array_file *f, int64_t i)
{
    LC__IS(f, ARRAY_FILE, NULL);
    return i >= 0 && i < f->n ? &f->arrays[i].info : NULL;
}

int64_t lc_array_file_find(const lc_array_file *f, const char *name)
{
    LC__IS(f, ARRAY_FILE, -1);
    LC__NEEDS(name, -1);
    for (int64_t i = 0; i < f->n; i++)
        if (!strcmp(f->arrays[i].info.name, name)) return i;
    return -1;
}

const char *lc_array_file_class(const lc_array_file *f, int64_t i, int64_t k)
{
    LC__IS(f, ARRAY_FILE, NULL);
    return i >= 0 && i < f->n && k >= 0 && k < f->arrays[i].info.classes ? f->arrays[i].classes[k] : NULL;
}

lc_status lc_array_file_read(lc_array_file *f, int64_t i, int64_t first, int64_t n, lc_dtype to, void *data,
                             size_t bytes)
{
    LC__IS(f, ARRAY_FILE, LC_ERR_ARGUMENT);
    if (bytes) LC__NEEDS(data, LC_ERR_ARGUMENT);
    if (i < 0 || i >= f->n)
        return lc_fail(LC_ERR_ARGUMENT, "%s has no array %lld: it has %lld", f->path, (long long)i, (long long)f->n);
    lc__part p;
    size_t need;
    LC_TRY(lc__part_init(&p, f, i, to, 1, 0));
    const char *name = f->arrays[i].info.name;
    if (first < 0 || n < 0 || first > p.samples - n)
        return lc__file_fail(f, LC_ERR_ARGUMENT, name, "has %lld samples, not %lld from sample %lld on",
                             (long long)p.samples, (long long)n, (long long)first);
    if (__builtin_mul_overflow((size_t)p.numel * p.to_size, (size_t)n, &need) || need != bytes)
        return lc__file_fail(f, LC_ERR_ARGUMENT, name, "needs %zu bytes for %lld samples, not %zu", need, (long long)n,
                             bytes);
    if (!bytes) return LC_OK;
    const size_t sample = (size_t)p.numel * p.size;
    int64_t room = (int64_t)(READ_BYTES / sample);
    room = room < 1 ? 1 : room > n ? n : room;
    void *scratch = p.data ? NULL : lc__data_alloc((size_t)room * sample, f->path);
    if (!p.data && !scratch) return LC_ERR_MEMORY;
    lc_status status = lc__part_read(&p, first, n, data, scratch, room);
    free(scratch);
    return status;
}

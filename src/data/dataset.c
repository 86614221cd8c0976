/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets: the handle around a vtable, its defaults and checks. A new kind of dataset is a file of its own with an
 * lc_dataset_ops and a constructor that calls lc_dataset_new; see array.c. */
#include "base/args.h"
#include "data_internal.h"
#include "base/io.h"
#include "base/handle.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/mman.h>

static void *alloc(size_t n, size_t least, const char *what)
{
    /* Large blocks use huge pages: first touch costs less than a tenth, and random rows miss the TLB less often. */
    const size_t huge = (size_t)2 << 20;
    size_t unit = n >= 4 * huge ? huge : least;
    size_t bytes = n < unit ? unit : (n + unit - 1) & ~(unit - 1);
    void *p = bytes < n ? NULL : aligned_alloc(unit, bytes);
    if (!p) (void)lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for %s", n, what);
    if (p && unit == huge) (void)madvise(p, bytes, MADV_HUGEPAGE); /* only advice */
    return p;
}

void *lc__data_alloc(size_t n, const char *what)
{
    return alloc(n, 64, what);
}

void *lc__data_alloc_pages(size_t *n, const char *what)
{
    enum { PAGE = 1 << 16 }; /* no system has larger ones */
    void *p = alloc(*n, PAGE, what);
    if (p) *n = *n < PAGE ? PAGE : (*n + PAGE - 1) / PAGE * PAGE;
    return p;
}

int64_t lc_field_numel(const lc_field *f)
{
    LC__NEEDS(f, 0);
    int64_t n = 1;
    for (int i = 0; i < f->ndim; i++) n *= f->shape[i];
    return n;
}

size_t lc_field_bytes(const lc_field *f)
{
    LC__NEEDS(f, 0);
    return (size_t)lc_field_numel(f) * lc_dtype_size(f->dtype ? f->dtype : LC_F32);
}

bool lc__field_differs(const lc_field *f)
{
    for (int i = 0; i < f->ndim; i++)
        if (!f->shape[i]) return true;
    return false;
}

lc_status lc__field_check(const lc_field *f, const char *dataset)
{
    if (!f->name || !*f->name) return lc_fail(LC_ERR_ARGUMENT, "dataset '%s': a field has no name", dataset);
    if (!lc_dtype_size(f->dtype))
        return lc_fail(LC_ERR_DTYPE, "dataset '%s': field '%s' has the unknown dtype %d", dataset, f->name,
                       (int)f->dtype);
    if (f->ndim < 0 || f->ndim > LC_MAX_DIMS - 1)
        return lc_fail(LC_ERR_SHAPE, "dataset '%s': field '%s' has %d dimensions; 0 to %d are allowed", dataset,
                       f->name, f->ndim, LC_MAX_DIMS - 1);
    if (f->layout == LC_CHANNELS_LAST && f->ndim < 2)
        return lc_fail(LC_ERR_SHAPE, "dataset '%s': field '%s' is channels-last, but has only %d dimensions", dataset,
                       f->name, f->ndim);
    int64_t bytes = (int64_t)lc_dtype_size(f->dtype);
    for (int i = 0; i < f->ndim; i++)
        if (f->shape[i] < 1 || __builtin_mul_overflow(bytes, f->shape[i], &bytes) || bytes > (INT64_C(1) << 46))
            return lc_fail(LC_ERR_SHAPE, "dataset '%s': field '%s' has the invalid size %lld in dimension %d", dataset,
                           f->name, (long long)f->shape[i], i);
    return LC_OK;
}

const char *lc__field_difference(const lc_field *a, const lc_field *b)
{
    if (strcmp(a->name, b->name) != 0) return "name";
    if (a->dtype != b->dtype) return "dtype";
    if (a->ndim != b->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) != 0) return "shape";
    return a->layout == b->layout ? NULL : "layout";
}

/* Sizes of 0 need a function that gives them for each sample. */
static lc_status check_sizes(const lc_dataset_ops *ops, const lc_field *f)
{
    lc_field largest = *f;
    for (int i = 0; ops->sizes && i < f->ndim && i < LC_MAX_DIMS - 1; i++)
        if (!largest.shape[i]) largest.shape[i] = 1;
    return lc__field_check(&largest, ops->name);
}

/* A batch and messages tell fields apart by their names. */
static lc_status check_names(const lc_sample_spec *spec, const char *dataset)
{
    for (int i = 1; i < spec->n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(spec->fields[k].name, spec->fields[i].name))
                return lc_fail(LC_ERR_ARGUMENT,
                               "dataset '%s': fields %d and %d are both named '%s'; give one another name", dataset, k,
                               i, spec->fields[i].name);
    return LC_OK;
}

/* Asks for the fields of a sample. */
static lc_status describe(lc_dataset *d)
{
    unsigned before = lc__error_count();
    lc_status status = lc__answered(d->ops.describe(d->self, &d->spec), before, "describe", "a dataset");
    if (status < 0) return lc_fail_context(status, "dataset '%s'", d->ops.name);
    if (d->spec.n < 1 || d->spec.n > LC_MAX_BATCH_TENSORS)
        return lc_fail(LC_ERR_ARGUMENT, "dataset '%s' describes %d fields; 1 to %d are allowed", d->ops.name, d->spec.n,
                       LC_MAX_BATCH_TENSORS);
    for (int i = 0; i < d->spec.n; i++) {
        lc_field *f = &d->spec.fields[i];
        if (!f->dtype) f->dtype = LC_F32;
        LC_TRY(check_sizes(&d->ops, f));
        d->bytes[i] = lc_field_bytes(f);
        d->differs |= lc__field_differs(f);
    }
    return check_names(&d->spec, d->ops.name);
}

lc_status lc_dataset_new(const lc_dataset_ops *ops, void *self, lc_dataset **out)
{
    lc_status status = LC_OK;
    if (out) *out = NULL;
    lc_dataset *d = NULL;
    lc_dataset_ops full = {0};
    LC_TRY(
        lc__ops_take(&full, sizeof full, ops, offsetof(lc_dataset_ops, get_many), "a dataset", "LC_DATASET_OPS_INIT"));
    d = calloc(1, sizeof *d);
    if (!full.name) full.name = "dataset";
    if (!d) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory for dataset '%s'", full.name);
        goto done;
    }
    if (!out) {
        status = lc__is_null(__func__, "out");
        goto done;
    }
    d->mark = LC__MARK_OF(DATASET);
    d->ops = full;
    d->self = self;
    atomic_init(&d->refs, 1);
    if (!full.length || !full.describe || !full.get) {
        status = lc_fail(LC_ERR_ARGUMENT, "dataset '%s' lacks the required function '%s'", full.name,
                         !full.length     ? "length"
                         : !full.describe ? "describe"
                                          : "get");
        goto done;
    }
    d->length = full.length(self);
    if (d->length < 0) {
        status = lc_fail(LC_ERR_ARGUMENT, "dataset '%s' has the invalid length %lld", full.name, (long long)d->length);
        goto done;
    }
    LC_TRY_GOTO(status, done, describe(d));
    d->scratch = full.scratch_size ? full.scratch_size(self) : 0;
done:
    if (status < 0) {
        if (full.free) full.free(self);
        free(d);
        return status;
    }
    *out = d;
    return LC_OK;
}

lc_dataset *lc_dataset_ref(lc_dataset *d)
{
    if (!d) return NULL;
    LC__IS(d, DATASET, NULL);
    atomic_fetch_add(&d->refs, 1);
    return d;
}

void lc_dataset_unref(lc_dataset *d)
{
    if (!d) return;
    LC__IS_OR_NULL(d, DATASET, );
    if (atomic_fetch_sub(&d->refs, 1) != 1) return;
    if (d->ops.free) d->ops.free(d->self);
    lc__mark_clear(&d->mark);
    free(d);
}

const char *lc_dataset_name(const lc_dataset *d)
{
    LC__IS(d, DATASET, "");
    return d->ops.name;
}

int64_t lc_dataset_length(const lc_dataset *d)
{
    LC__IS(d, DATASET, 0);
    return d->length;
}

const lc_sample_spec *lc_dataset_spec(const lc_dataset *d)
{
    LC__IS(d, DATASET, NULL);
    return &d->spec;
}

size_t lc_dataset_scratch_size(const lc_dataset *d)
{
    LC__IS(d, DATASET, 0);
    return d->scratch;
}

const char *lc_dataset_replaced(const lc_dataset *d, int64_t index)
{
    LC__IS(d, DATASET, NULL);
    return d->ops.replaced && index >= 0 && index < d->length ? d->ops.replaced(d->self, index) : NULL;
}

lc_status lc_dataset_sizes(lc_dataset *d, int64_t index, int field, int64_t *sizes)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    LC__NEEDS(sizes, LC_ERR_ARGUMENT);
    if (index < 0 || index >= d->length || field < 0 || field >= d->spec.n)
        return lc_fail(LC_ERR_ARGUMENT, "dataset '%s' has no field %d of sample %lld", d->ops.name, field,
                       (long long)index);
    const lc_field *f = &d->spec.fields[field];
    memcpy(sizes, f->shape, sizeof f->shape);
    if (!lc__field_differs(f)) return LC_OK;
    unsigned before = lc__error_count();
    lc_status status = lc__answered(d->ops.sizes(d->self, index, field, sizes), before, "sizes", "a dataset");
    if (status == LC_OK)
        for (int i = 0; i < f->ndim; i++)
            if (sizes[i] < 0 || (f->shape[i] && sizes[i] != f->shape[i]))
                status = lc_fail(LC_ERR_SHAPE, "field '%s' has the invalid size %lld in dimension %d", f->name,
                                 (long long)sizes[i], i);
    if (status == LC_OK) return LC_OK;
    return lc_fail_context(status, "sample %lld of dataset '%s'", (long long)index, d->ops.name);
}

void lc__dataset_times(const lc_dataset *d, lc_loader_times *add)
{
    if (d->ops.times) d->ops.times(d->self, add);
}

const char *lc__dataset_source(const lc_dataset *d, int64_t index)
{
    return d->ops.source ? d->ops.source(d->self, index) : NULL;
}

_Thread_local lc__sample_times lc__spent;

void lc__dataset_made_of(lc_dataset *d, const lc_dataset *part)
{
    for (int f = 0; f < LC_MAX_BATCH_TENSORS; f++)
        if (part->transforms[f] > d->transforms[f]) d->transforms[f] = part->transforms[f];
}

/* A get must not return a request (stop, skip): every sample exists. */
static lc_status get_one(lc_dataset *d, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    unsigned before = lc__error_count();
    lc_status status = lc__answered(d->ops.get(d->self, index, key, out, scratch), before, "get", "a dataset");
    if (status == LC_OK) return LC_OK;
    return lc_fail_context(status, "sample %lld of dataset '%s'", (long long)index, d->ops.name);
}

lc_status lc_dataset_get(lc_dataset *d, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (d->scratch) LC__NEEDS(scratch, LC_ERR_ARGUMENT);
    if (index < 0 || index >= d->length)
        return lc_fail(LC_ERR_ARGUMENT, "sample %lld of dataset '%s' does not exist: it has %lld", (long long)index,
                       d->ops.name, (long long)d->length);
    return get_one(d, index, key, out, scratch);
}

lc_status lc_dataset_get_many(lc_dataset *d, int n, const int64_t *indices, const uint64_t *keys, void *const *out,
                              void *scratch)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("indices", n, indices));
    LC_TRY(lc__list_check("keys", n, keys));
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (d->scratch) LC__NEEDS(scratch, LC_ERR_ARGUMENT);
    for (int j = 0; j < n; j++)
        if (indices[j] < 0 || indices[j] >= d->length)
            return lc_fail(LC_ERR_ARGUMENT, "sample %lld of dataset '%s' does not exist: it has %lld",
                           (long long)indices[j], d->ops.name, (long long)d->length);
    if (d->differs)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "the samples of dataset '%s' differ in size, so they cannot be written one after the other; use "
                       "lc_dataset_get, or a loader, which pads them",
                       d->ops.name);
    if (d->ops.get_many) {
        unsigned before = lc__error_count();
        return lc__answered(d->ops.get_many(d->self, n, indices, keys, out, scratch), before, "get_many", "a dataset");
    }
    for (int j = 0; j < n; j++) {
        void *at[LC_MAX_BATCH_TENSORS];
        for (int f = 0; f < d->spec.n; f++) at[f] = (char *)out[f] + (size_t)j * d->bytes[f];
        LC_TRY(get_one(d, indices[j], keys[j], at, scratch));
    }
    return LC_OK;
}

lc_status lc_dataset_read(lc_dataset *d, int64_t index, uint64_t key, void *const *out)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    void *scratch = NULL;
    if (d->scratch && !(scratch = lc__data_alloc(d->scratch, "the scratch memory of a dataset"))) return LC_ERR_MEMORY;
    lc_status status = lc_dataset_get(d, index, key, out, scratch);
    free(scratch);
    return status;
}

lc_status lc__read_file(const char *path, size_t cap, void **data, size_t *size)
{
    char *buffer = NULL;
    struct stat st;
    int fd;
    *data = NULL;
    *size = 0;
    LC_TRY(lc__open_to_read(&lc__io_system, path, &fd, &st));
    lc_status status = LC_OK;
    size_t length = (size_t)st.st_size;
    if (length > cap) {
        status = lc_fail(LC_ERR_FORMAT, "%s has %zu bytes; at most %zu are read", path, length, cap);
        goto done;
    }
    buffer = malloc(length + 1);
    if (!buffer) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for %s", length, path);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__read_all(&lc__io_system, fd, path, buffer, length, 0));
    buffer[length] = 0;
    *data = buffer;
    *size = length;
    buffer = NULL;
done:
    free(buffer);
    lc__io_system.close(&lc__io_system, fd);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of fields from files: which arrays a field consists of, and the gather. */
#include "base/args.h"
#include "data/files/file.h"
#include "data/files/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes read at once from an array that is not mapped. */
#define READ_BYTES ((size_t)1 << 18)
/* Samples that are sorted at once, so that those side by side are read together. */
#define SORTED 256

typedef struct field {
    lc_field out;
    char name[64];
    int64_t n;
    lc__part *parts;
} field;

typedef struct file_dataset {
    int64_t length;
    int n;
    size_t scratch;
    field fields[LC_MAX_BATCH_TENSORS];
} file_dataset;

static int64_t files_length(void *self)
{
    return ((file_dataset *)self)->length;
}

static lc_status files_describe(void *self, lc_sample_spec *spec)
{
    file_dataset *d = self;
    spec->n = d->n;
    for (int i = 0; i < d->n; i++) spec->fields[i] = d->fields[i].out;
    return LC_OK;
}

static size_t files_scratch(void *self)
{
    return ((file_dataset *)self)->scratch;
}

/* ---- the gather ---- */

static void get_mapped(const lc__part *p, int n, const int64_t *indices, char *to, size_t step)
{
    lc__convert_fn *const convert = p->direct ? lc__conversion_into_batch(p->convert) : NULL;
    for (int j = 0; j < n; j++, to += step) {
        if (j + 1 < n && p->direct) lc__fetch_sample(p->data + indices[j + 1] * p->stride, (size_t)p->numel * p->size);
        const char *from = p->data + indices[j] * p->stride;
        if (convert)
            convert(from, to, p->numel, p->scale, p->shift);
        else
            lc__part_convert(p, from, to);
    }
    lc__stores_arrive();
}

typedef struct wanted {
    int64_t index;
    int place;
} wanted;

static int by_index(const void *a, const void *b)
{
    const wanted *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index ? 1 : x->place - y->place;
}

/* Reads samples in the order of the file, and those side by side at once. */
static lc_status get_read(const lc__part *p, int n, const int64_t *indices, char *to, size_t step, char *scratch)
{
    wanted order[SORTED];
    size_t bytes = (size_t)p->numel * p->size;
    for (int j = 0; j < n; j++) order[j] = (wanted){indices[j], j};
    qsort(order, (size_t)n, sizeof *order, by_index);
    for (int j = 0, k; j < n; j = k) {
        for (k = j + 1; k < n && order[k].index - order[k - 1].index <= 1 &&
                        (size_t)(order[k].index - order[j].index + 1) * bytes <= READ_BYTES;
             k++) {
        }
        int64_t first = order[j].index;
        LC_TRY(p->file->kind->read(p->file, p->array, first, order[k - 1].index - first + 1, scratch));
        for (int i = j; i < k; i++)
            lc__part_convert(p, scratch + (size_t)(order[i].index - first) * bytes, to + (size_t)order[i].place * step);
    }
    return LC_OK;
}

static lc_status files_get_many(void *self, int n, const int64_t *indices, const uint64_t *keys, void *const *out,
                                void *scratch)
{
    (void)keys;
    const file_dataset *d = self;
    for (int f = 0; f < d->n; f++) {
        const size_t step = lc_field_bytes(&d->fields[f].out);
        char *to = out[f];
        for (int64_t i = 0; i < d->fields[f].n; i++) {
            const lc__part *p = &d->fields[f].parts[i];
            if (p->data) get_mapped(p, n, indices, to, step);
            for (int at = 0; !p->data && at < n; at += SORTED)
                LC_TRY(get_read(p, n - at < SORTED ? n - at : SORTED, indices + at, to + (size_t)at * step, step,
                                scratch));
            to += (size_t)p->numel * p->to_size;
        }
    }
    return LC_OK;
}

static lc_status files_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    return files_get_many(self, 1, &index, &key, out, scratch);
}

static void files_free(void *self)
{
    file_dataset *d = self;
    for (int i = 0; i < d->n; i++) {
        for (int64_t k = 0; k < d->fields[i].n; k++)
            lc__array_file_unref((lc_array_file *)(uintptr_t)d->fields[i].parts[k].file);
        free(d->fields[i].parts);
    }
    free(d);
}

static const lc_dataset_ops file_ops = {
    LC_DATASET_OPS_INIT,           .name = "files",    .length = files_length,
    .describe = files_describe,    .get = files_get,   .get_many = files_get_many,
    .scratch_size = files_scratch, .free = files_free,
};

/* ---- making one ---- */

/* Whether `p` continues `before`: the columns of a table that are side by side are converted at once. */
static bool continues(const lc__part *before, const lc__part *p)
{
    return p->data && before->direct && p->direct && before->array->number == p->array->number &&
           before->stride == p->stride && before->data + (size_t)before->numel * before->size == p->data;
}

/* The parts of a field that stands for the arrays `which` of its file. */
static lc_status add_parts(field *f, const lc_file_field *given, int64_t n, const int64_t *which)
{
    lc_array_file *file = given->file;
    f->parts = calloc((size_t)n, sizeof *f->parts);
    if (!f->parts) return lc_fail(LC_ERR_MEMORY, "out of memory for a dataset");
    lc_dtype to = given->to ? given->to : file->arrays[which[0]].info.dtype;
    int64_t numel = 0;
    for (int64_t i = 0; i < n; i++) {
        lc__file_array *a = &file->arrays[which[i]];
        lc__part p;
        LC_TRY(lc__part_init(&p, file, which[i], to, given->scale == 0.0 ? 1.0 : given->scale, given->shift));
        if (a->info.ndim == 0)
            return lc__file_fail(file, LC_ERR_SHAPE, a->info.name,
                                 "has no dimension of samples: it is a single number");
        if (n > 1 && a->info.ndim != 1)
            return lc__file_fail(file, LC_ERR_SHAPE, a->info.name,
                                 "has %d dimensions: only arrays of one are put side by side", a->info.ndim);
        if (p.samples != file->arrays[which[0]].info.shape[0])
            return lc__file_fail(file, LC_ERR_SHAPE, a->info.name, "has %lld samples, but array '%.200s' has %lld",
                                 (long long)p.samples, file->arrays[which[0]].info.name,
                                 (long long)file->arrays[which[0]].info.shape[0]);
        numel += p.numel;
        lc__part *before = f->n ? &f->parts[f->n - 1] : NULL;
        if (before && continues(before, &p)) {
            before->numel += p.numel;
            before->shape[0] = before->numel;
            continue;
        }
        lc__array_file_ref(file);
        f->parts[f->n++] = p;
    }
    const lc__file_array *first = &file->arrays[which[0]];
    f->out.dtype = to;
    f->out.ndim = n > 1 ? 1 : first->info.ndim - 1;
    if (n > 1) f->out.shape[0] = numel;
    for (int k = 0; n == 1 && k < f->out.ndim; k++) f->out.shape[k] = first->info.shape[k + 1];
    return LC_OK;
}

/* A sample H,W,C becomes C,H,W. */
static lc_status set_layout(field *f, const lc_file_field *given)
{
    int last = f->out.ndim - 1;
    f->out.layout = given->layout;
    if (given->layout != LC_CHANNELS_LAST || last < 1) return LC_OK; /* lc__field_check reports it */
    int64_t channels = f->out.shape[last];
    memmove(f->out.shape + 1, f->out.shape, (size_t)last * sizeof *f->out.shape);
    f->out.shape[0] = channels;
    return LC_OK;
}

static lc_status add_field(file_dataset *d, int n, const lc_file_field *fields, const lc_file_field *given)
{
    field *f = &d->fields[d->n++]; /* from now on files_free frees it */
    int64_t *which = NULL, count = 0;
    LC_TRY(lc__reserved_check(given->reserved, "lc_file_field"));
    if (!given->name || !*given->name)
        return lc_fail(LC_ERR_ARGUMENT, "field %d of a dataset of files has no name", d->n - 1);
    if (!lc__has_mark(given->file, LC__MARK_OF(ARRAY_FILE)))
        return lc_fail(LC_ERR_ARGUMENT, "field '%.60s' of a dataset of files has no file of arrays: .file is NULL",
                       given->name);
    snprintf(f->name, sizeof f->name, "%s", given->name);
    f->out.name = f->name;
    lc_status status = lc__arrays_of_field(n, fields, given, &which, &count);
    if (status == LC_OK) status = add_parts(f, given, count, which);
    free(which);
    LC_TRY(status);
    for (int k = 0; k < f->out.ndim; k++)
        if (f->out.shape[k] == 0)
            return lc_fail(LC_ERR_SHAPE, "%s: the samples of field '%s' are empty: dimension %d has the size 0",
                           given->file->path, f->name, k + 1);
    LC_TRY(set_layout(f, given));
    LC_TRY(lc__field_check(&f->out, "files"));
    const lc__part *p = f->parts;
    if (d->n == 1) d->length = p->samples;
    if (p->samples != d->length)
        return lc_fail(LC_ERR_SHAPE, "field '%s' (%s) has %lld samples, but field '%s' (%s) has %lld", f->name,
                       given->file->path, (long long)p->samples, d->fields[0].name, fields[0].file->path,
                       (long long)d->length);
    size_t scratch = lc__align64((size_t)p->numel * p->size);
    if (scratch < READ_BYTES) scratch = READ_BYTES;
    if (!p->data && scratch > d->scratch) d->scratch = scratch;
    return LC_OK;
}

lc_status lc_file_dataset_new(int n, const lc_file_field *fields, lc_dataset **out)
{
    if (n > 0) LC__NEEDS(fields, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    if (n < 1 || n > LC_MAX_BATCH_TENSORS)
        return lc_fail(LC_ERR_ARGUMENT, "a dataset has 1 to %d fields, not %d", LC_MAX_BATCH_TENSORS, n);
    file_dataset *d = calloc(1, sizeof *d);
    if (!d) return lc_fail(LC_ERR_MEMORY, "out of memory for a dataset");
    for (int i = 0; i < n; i++) {
        lc_status status = add_field(d, n, fields, &fields[i]);
        if (status < 0) {
            files_free(d);
            return status;
        }
    }
    return lc_dataset_new(&file_ops, d, out);
}

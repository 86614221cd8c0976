/* SPDX-License-Identifier: Apache-2.0 */
/* Writing safetensors files: the layout, which the checkpoint writer uses too, and a file of its own. Data types with
 * wide elements come first and tensors of one type are ordered by name, as the reference writer has it, so that every
 * tensor is aligned and the same tensors give the same file. */
#define _GNU_SOURCE
#include "safetensors/safetensors_impl.h"
#include "base/handle.h"

#include "base/json.h"
#include "base/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ranks as in the reference implementation's list of data types: data of higher ranks come first. */
static int rank_of(lc_dtype dtype)
{
    switch (dtype) {
    case LC_BOOL:
        return 0;
    case LC_U8:
        return 1;
    case LC_F16:
        return 2;
    case LC_BF16:
        return 3;
    case LC_I32:
        return 4;
    case LC_F32:
        return 5;
    case LC_F64:
        return 6;
    case LC_I64:
        return 7;
    case LC_DTYPE_DEFAULT:
        break;
    }
    return -1;
}

static const char *st_name(lc_dtype dtype)
{
    switch (dtype) {
#define CASE(id, value, name, bytes, st)                                                                               \
    case id:                                                                                                           \
        return st;
        LC_DTYPE_LIST(CASE)
#undef CASE
    case LC_DTYPE_DEFAULT:
        break;
    }
    return NULL;
}

static unsigned size_of(lc_dtype dtype)
{
    switch (dtype) {
#define CASE(id, value, name, bytes, st)                                                                               \
    case id:                                                                                                           \
        return bytes;
        LC_DTYPE_LIST(CASE)
#undef CASE
    case LC_DTYPE_DEFAULT:
        break;
    }
    return 0;
}

const lc_type *lc__st_type(const lc_named_tensor *t)
{
    return t->tensor ? &t->tensor->type : &t->type; /* as it is stored */
}

static bool is_dense(const lc_view *v)
{
    return lc__is_dense(v->ndim, v->shape, v->stride, LC_ROW_MAJOR);
}

void *lc__st_map(lc_tensor *t, lc__access access)
{
    lc_view v;
    if (lc_tensor_is_error(t) || t->is_slice) return NULL;
    lc__view_of(&t->type, t->layout, NULL, &v);
    if (!is_dense(&v) || lc__tensor_map(t, access, &v) < 0) return NULL;
    if (is_dense(&v)) return v.data;
    lc__tensor_unmap(t, access); /* a result of a step, which may have any strides */
    return NULL;
}

bool lc__type_bytes(const lc_type *type, uint64_t *bytes)
{
    if (type->ndim < 0 || type->ndim > LC_MAX_DIMS || !size_of(type->dtype)) return false;
    int64_t n = size_of(type->dtype);
    bool fits = true;
    for (int d = 0; d < type->ndim; d++) {
        if (type->shape[d] < 0) return false;
        fits &= !__builtin_mul_overflow(n, type->shape[d], &n);
    }
    *bytes = (uint64_t)n;
    return fits;
}

typedef struct sort_key {
    const char *name;
    int rank;
    int64_t i;
} sort_key;

static int by_place(const void *pa, const void *pb)
{
    const sort_key *a = pa, *b = pb;
    if (a->rank != b->rank) return a->rank > b->rank ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *pa, const void *pb)
{
    return strcmp(((const sort_key *)pa)->name, ((const sort_key *)pb)->name);
}

static lc_status add_metadata(lc__text *t, int n, const lc_text_pair *metadata)
{
    if (!n) return LC_OK;
    LC_TRY(lc__text_puts(t, "\"__metadata__\":{"));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            if (!strcmp(metadata[i].key, metadata[k].key))
                return lc_fail(LC_ERR_ARGUMENT, "the metadata key \"%s\" is given twice", metadata[i].key);
        if (i) LC_TRY(lc__text_puts(t, ","));
        LC_TRY(lc__text_quoted(t, metadata[i].key));
        LC_TRY(lc__text_puts(t, ":"));
        LC_TRY(lc__text_quoted(t, metadata[i].value));
    }
    return lc__text_puts(t, "}");
}

static lc_status add_entry(lc__text *t, const char *name, const lc_type *type, uint64_t begin, uint64_t end)
{
    char text[96];
    LC_TRY(lc__text_quoted(t, name));
    snprintf(text, sizeof text, ":{\"dtype\":\"%s\",\"shape\":[", st_name(type->dtype));
    LC_TRY(lc__text_puts(t, text));
    for (int d = 0; d < type->ndim; d++) {
        snprintf(text, sizeof text, "%s%" PRId64, d ? "," : "", type->shape[d]);
        LC_TRY(lc__text_puts(t, text));
    }
    snprintf(text, sizeof text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
    return lc__text_puts(t, text);
}

/* In the order of the file. `keys` has room for n. */
static lc_status sort_tensors(const char *what, int64_t n, const lc_named_tensor *tensors, sort_key *keys)
{
    for (int64_t i = 0; i < n; i++) {
        const lc_named_tensor *e = &tensors[i];
        uint64_t bytes;
        if (!e->name || !strcmp(e->name, "__metadata__"))
            return lc_fail(LC_ERR_ARGUMENT, "\"%s\": a tensor cannot be named \"%s\"", what, e->name ? e->name : "");
        if (!lc__type_bytes(lc__st_type(e), &bytes))
            return lc_fail(LC_ERR_ARGUMENT, "\"%s\": tensor \"%s\" has no valid type (or is too large)", what, e->name);
        keys[i] = (sort_key){e->name, rank_of(lc__st_type(e)->dtype), i};
    }
    qsort(keys, (size_t)n, sizeof *keys, by_name); /* never NULL */
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(keys[i - 1].name, keys[i].name))
            return lc_fail(LC_ERR_ARGUMENT, "\"%s\": two tensors are named \"%s\"", what, keys[i].name);
    qsort(keys, (size_t)n, sizeof *keys, by_place);
    return LC_OK;
}

lc_status lc__st_layout_make(const char *what, int64_t n, const lc_named_tensor *tensors, int n_metadata,
                             const lc_text_pair *metadata, lc__st_layout *out)
{
    *out = (lc__st_layout){0};
    lc__text t = {0};
    lc_status status = LC_OK;
    size_t count = n > 0 ? (size_t)n : 1;
    sort_key *keys = calloc(count, sizeof *keys);
    out->order = calloc(count, sizeof *out->order);
    out->offset = calloc(count, sizeof *out->offset);
    if (!keys || !out->order || !out->offset) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: the layout of %" PRId64 " tensors in \"%s\"", n, what);
        goto done;
    }
    LC_TRY_GOTO(status, done, sort_tensors(what, n, tensors, keys));
    LC_TRY_GOTO(status, done, lc__text_add(&t, "\0\0\0\0\0\0\0\0{", 9));
    LC_TRY_GOTO(status, done, add_metadata(&t, n_metadata, metadata));
    uint64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const lc_named_tensor *e = &tensors[keys[i].i];
        uint64_t bytes = 0, end;
        lc__type_bytes(lc__st_type(e), &bytes);
        if (__builtin_add_overflow(at, bytes, &end) || end > INT64_MAX / 2) {
            status = lc_fail(LC_ERR_ARGUMENT, "\"%s\": the tensors are too large for one file", what);
            goto done;
        }
        if (i || n_metadata) LC_TRY_GOTO(status, done, lc__text_puts(&t, ","));
        LC_TRY_GOTO(status, done, add_entry(&t, e->name, lc__st_type(e), at, end));
        out->order[i] = keys[i].i;
        out->offset[keys[i].i] = at;
        at = end;
    }
    LC_TRY_GOTO(status, done, lc__text_puts(&t, "}"));
    while (t.length % 8) LC_TRY_GOTO(status, done, lc__text_puts(&t, " "));
    if (t.length - 8 > LC__ST_MOST_HEADER) {
        status = lc_fail(LC_ERR_ARGUMENT,
                         "\"%s\": the header of %" PRId64 " tensors has more than %u bytes, which readers reject", what,
                         n, LC__ST_MOST_HEADER);
        goto done;
    }
    for (int k = 0; k < 8; k++) t.data[k] = (char)((uint64_t)(t.length - 8) >> (8 * k) & 255);
    for (int64_t i = 0; i < n; i++) out->offset[i] += t.length;
    out->header = t.data, out->header_bytes = t.length, out->total = t.length + at;
    t.data = NULL;
done:
    lc__text_release(&t);
    free(keys);
    if (status < 0) lc__st_layout_release(out);
    return status;
}

void lc__st_layout_release(lc__st_layout *layout)
{
    free(layout->header);
    free(layout->order);
    free(layout->offset);
    *layout = (lc__st_layout){0};
}

static lc_status write_values(const lc__io *io, int fd, const char *path, int64_t n, const lc_named_tensor *tensors,
                              const lc__st_layout *layout)
{
    void *value = NULL; /* a copy of a tensor; has room for the largest so far */
    size_t value_bytes = 0;
    lc_status status = LC_OK;
    for (int64_t k = 0; k < n; k++) {
        const lc_named_tensor *e = &tensors[layout->order[k]];
        const void *data = e->data;
        uint64_t bytes = 0;
        lc__type_bytes(lc__st_type(e), &bytes);
        if (e->tensor && bytes) {
            if (bytes > value_bytes) {
                free(value);
                value = malloc(bytes), value_bytes = bytes;
                if (!value) {
                    status = lc_fail(LC_ERR_MEMORY, "out of memory: a copy of tensor \"%s\" (%" PRIu64 " bytes)",
                                     e->name, bytes);
                    goto done;
                }
            }
            LC_TRY_GOTO(status, done, lc_tensor_read(e->tensor, value, bytes));
            data = value;
        }
        LC_TRY_GOTO(status, done, lc__write_all(io, fd, path, data, bytes, layout->offset[layout->order[k]]));
    }
done:
    free(value);
    return status;
}

lc_status lc_safetensors_save(const char *path, int64_t n, const lc_named_tensor *tensors, int n_metadata,
                              const lc_text_pair *metadata)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("tensors", n, tensors));
    LC_TRY(lc__list_check("metadata", n_metadata, metadata));
    for (int i = 0; i < n_metadata; i++)
        if (!metadata[i].key || !metadata[i].value) return lc_fail(LC_ERR_ARGUMENT, "metadata[%d] has a NULL", i);
    const lc__io *io = &lc__io_system;
    lc__st_layout layout = {0};
    char *dir = NULL, *temp = NULL;
    uint64_t bytes = 0;
    int fd = -1;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__st_layout_make(path, n, tensors, n_metadata, metadata, &layout));
    for (int64_t i = 0; i < n; i++)
        if (!tensors[i].tensor && !tensors[i].data && lc__type_bytes(&tensors[i].type, &bytes) && bytes)
            LC_TRY_GOTO(status, done,
                        lc_fail(LC_ERR_ARGUMENT, "\"%s\": tensor \"%s\" has no data", path, tensors[i].name));
    LC_TRY_GOTO(status, done, lc__path_dir(path, &dir));
    LC_TRY_GOTO(status, done, lc__temp_name(dir, "tmp", lc__path_base(path), &temp));
    fd = io->open(io, temp, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) {
        status = lc__io_fail(errno, "create", temp);
        free(temp);
        temp = NULL;
        goto done;
    }
    if (io->allocate(io, fd, (off_t)layout.total) < 0) {
        status = lc__io_fail(errno, "reserve space for", path);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__write_all(io, fd, path, layout.header, layout.header_bytes, 0));
    LC_TRY_GOTO(status, done, write_values(io, fd, path, n, tensors, &layout));
    if (io->sync(io, fd) < 0) {
        status = lc__io_fail(errno, "sync", path);
        goto done;
    }
    int closed = io->close(io, fd);
    fd = -1;
    if (closed < 0) {
        status = lc__io_fail(errno, "close", path);
        goto done;
    }
    status = lc__replace_by(io, temp, path);
    free(temp);
    temp = NULL;
    if (status >= 0) status = lc__sync_dir(io, dir);
done:
    if (fd >= 0) io->close(io, fd);
    if (status < 0 && temp) lc__remove_made(io, temp);
    free(temp);
    free(dir);
    lc__st_layout_release(&layout);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reading safetensors files: opening them, and the values of their tensors. */
#define _GNU_SOURCE
#include "safetensors/safetensors_impl.h"
#include "base/chunks.h"
#include "base/handle.h"
#include "tensor/initial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

bool lc__st_is_torch(const unsigned char first[8])
{
    return !memcmp(first, "PK\3\4", 4) || (first[0] == 0x80 && first[1] >= 2 && first[1] <= 5);
}

/* The length of the header of a file of `size` bytes, from its first 8. */
static lc_status header_length(const char *path, const unsigned char *first, uint64_t size, uint64_t *n)
{
    if (size < 8)
        return lc_fail(LC_ERR_FORMAT, "\"%s\" is not a safetensors file: it has only %" PRIu64 " bytes", path, size);
    *n = 0;
    for (int k = 7; k >= 0; k--) *n = *n << 8 | first[k];
    if (lc__st_is_torch(first) && *n > size - 8)
        return lc_fail(LC_ERR_FORMAT,
                       "\"%s\" is not a safetensors file but one that torch.save wrote; in Python, "
                       "safetensors.torch.save_file(torch.load(\"file.pt\"), \"file.safetensors\") converts it",
                       path);
    if (*n > LC__ST_MOST_HEADER)
        return lc_fail(LC_ERR_FORMAT,
                       "\"%s\" is not a safetensors file: its header would have %" PRIu64 " bytes, the limit is %u",
                       path, *n, LC__ST_MOST_HEADER);
    if (*n > size - 8)
        return lc_fail(LC_ERR_FORMAT, "\"%s\" is truncated: it has %" PRIu64 " bytes, its header alone needs %" PRIu64,
                       path, size, *n + 8);
    return LC_OK;
}

lc_status lc__st_parse_file(const char *path, const unsigned char *bytes, uint64_t size, lc_safetensors **out)
{
    uint64_t n;
    *out = NULL;
    LC_TRY(header_length(path, bytes, size, &n));
    return lc__st_parse(path, (const char *)bytes + 8, n, size, out);
}

lc_status lc__st_open(const lc__io *io, const char *path, lc_safetensors **out)
{
    *out = NULL;
    char *json = NULL;
    unsigned char length[8];
    struct stat st;
    lc_status status;
    int fd;
    LC_TRY(lc__open_to_read(io, path, &fd, &st));
    uint64_t size = (uint64_t)st.st_size, n = 0;
    status = size < 8 ? LC_OK : lc__read_all(io, fd, path, length, 8, 0);
    if (status == LC_OK) status = header_length(path, length, size, &n);
    if (status < 0) goto done;
    json = malloc(n ? n : 1);
    if (!json) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: the header of \"%s\" (%" PRIu64 " bytes)", path, n);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__read_all(io, fd, path, json, n, 8));
    LC_TRY_GOTO(status, done, lc__st_parse(path, json, n, size, out));
    (*out)->fd = fd, (*out)->io = io;
    fd = -1;
done:
    free(json);
    if (fd >= 0) io->close(io, fd);
    return status;
}

lc_status lc_safetensors_open(const char *path, lc_safetensors **out)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return lc__st_open(&lc__io_system, path, out);
}

void lc_safetensors_close(lc_safetensors *f)
{
    if (!f) return;
    LC__IS_OR_NULL(f, SAFETENSORS, );
    if (f->fd >= 0) f->io->close(f->io, f->fd);
    for (int64_t i = 0; i < f->n; i++) free((char *)f->infos[i].name);
    for (int64_t i = 0; i < f->n_metadata; i++) {
        free((char *)f->metadata[i].key);
        free((char *)f->metadata[i].value);
    }
    free(f->infos);
    free(f->sorted);
    free(f->metadata);
    for (int i = 0; i < f->n_files; i++) lc_safetensors_close(f->files[i]);
    free(f->files);
    free(f->pieces);
    free(f->first_piece);
    free(f->layouts);
    free(f->path);
    lc__mark_clear(&f->mark);
    free(f);
}

const char *lc_safetensors_path(const lc_safetensors *f)
{
    LC__IS(f, SAFETENSORS, "");
    return f->path;
}

int64_t lc_safetensors_count(const lc_safetensors *f)
{
    LC__IS(f, SAFETENSORS, 0);
    return f->n;
}

const lc_safetensor_info *lc_safetensors_info(const lc_safetensors *f, int64_t i)
{
    LC__IS(f, SAFETENSORS, NULL);
    return i >= 0 && i < f->n ? &f->infos[i] : NULL;
}

int64_t lc_safetensors_find(const lc_safetensors *f, const char *name)
{
    LC__IS(f, SAFETENSORS, -1);
    LC__NEEDS(name, -1);
    int64_t lo = 0, hi = f->n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        int order = strcmp(f->infos[f->sorted[mid]].name, name);
        if (!order) return f->sorted[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

const char *lc_safetensors_metadata(const lc_safetensors *f, const char *key)
{
    LC__IS(f, SAFETENSORS, NULL);
    LC__NEEDS(key, NULL);
    for (int64_t i = 0; i < f->n_metadata; i++)
        if (!strcmp(f->metadata[i].key, key)) return f->metadata[i].value;
    return NULL;
}

const lc_text_pair *lc_safetensors_metadata_at(const lc_safetensors *f, int64_t i)
{
    LC__IS(f, SAFETENSORS, NULL);
    return i >= 0 && i < f->n_metadata ? &f->metadata[i] : NULL;
}

/* ---- values ---- */

lc_status lc_safetensors_read_range(lc_safetensors *f, int64_t i, uint64_t offset, void *data, size_t count)
{
    LC__IS(f, SAFETENSORS, LC_ERR_ARGUMENT);
    if (count) LC__NEEDS(data, LC_ERR_ARGUMENT);
    if (i < 0 || i >= f->n) return lc_fail(LC_ERR_ARGUMENT, "\"%s\" has no tensor number %" PRId64, f->path, i);
    const lc_safetensor_info *info = &f->infos[i];
    if (offset > info->bytes || count > info->bytes - offset)
        return lc_fail(LC_ERR_ARGUMENT,
                       "\"%s\": tensor \"%s\" has %" PRIu64 " bytes; bytes %" PRIu64 " to %" PRIu64 " were asked for",
                       f->path, info->name, info->bytes, offset, offset + count);
    if (f->n_files) return lc__st_read_joined(f, i, offset, data, count);
    return lc__read_all(f->io, f->fd, f->path, data, count, info->offset + offset);
}

lc_status lc_safetensors_read(lc_safetensors *f, int64_t i, void *data, size_t bytes)
{
    LC__IS(f, SAFETENSORS, LC_ERR_ARGUMENT);
    if (i >= 0 && i < f->n && bytes != f->infos[i].bytes)
        return lc_fail(LC_ERR_SHAPE, "\"%s\": tensor \"%s\" has %" PRIu64 " bytes, the destination %zu", f->path,
                       f->infos[i].name, f->infos[i].bytes, bytes);
    return lc_safetensors_read_range(f, i, 0, data, bytes);
}

static void print_type(char *text, size_t size, const char *dtype, const lc_type *type)
{
    int n = snprintf(text, size, "%s [", dtype);
    for (int d = 0; d < type->ndim && n < (int)size; d++)
        n += snprintf(text + n, size - (size_t)n, "%s%" PRId64, d ? "," : "", type->shape[d]);
    if (n < (int)size) snprintf(text + n, size - (size_t)n, "]");
}

void lc__safetensors_convert(lc_safetensors *f, bool on)
{
    f->converts = on;
}

static lc_status match(lc_safetensors *f, const char *name, lc_tensor *t, int64_t *i)
{
    *i = lc_safetensors_find(f, name);
    if (*i < 0) return lc_fail(LC_ERR_NOT_FOUND, "\"%s\" has no tensor \"%s\"", f->path, name);
    if (!lc__is_tensor(t)) return lc_fail_context(lc__not_a_tensor(t, "lc_safetensors_load"), "tensor \"%s\"", name);
    const lc_type *have = &f->infos[*i].type, *want = &t->type;
    bool same =
        have->dtype == want->dtype || (f->converts && lc_dtype_is_float(have->dtype) && lc_dtype_is_float(want->dtype));
    same &= have->ndim == want->ndim;
    for (int d = 0; same && d < want->ndim; d++) same = have->shape[d] == want->shape[d];
    if (same) return LC_OK;
    char a[256], b[256];
    print_type(a, sizeof a, f->infos[*i].dtype, have);
    print_type(b, sizeof b, lc_dtype_name(want->dtype), want);
    return lc_fail(have->dtype == want->dtype ? LC_ERR_SHAPE : LC_ERR_DTYPE,
                   "\"%s\": tensor \"%s\" is %s, but the model's is %s", f->path, name, a, b);
}

typedef struct direct_read {
    lc_safetensors *f;
    int64_t i;
    uint64_t bytes;
    char *to;
} direct_read;

static lc_status read_chunk(void *ctx, uint64_t i)
{
    direct_read *d = ctx;
    uint64_t from = i * LC__CHUNK, n = d->bytes - from < LC__CHUNK ? d->bytes - from : LC__CHUNK;
    return lc_safetensors_read_range(d->f, d->i, from, d->to + from, (size_t)n);
}

/* `scratch` is grown as needed and freed by the caller. */
static lc_status load(lc_safetensors *f, int64_t i, lc_tensor *t, void **scratch, uint64_t *scratch_bytes)
{
    const lc_safetensor_info *info = &f->infos[i];
    bool same = info->type.dtype == t->type.dtype;
    direct_read direct = {f, i, info->bytes, same ? lc__st_map(t, LC__WRITE) : NULL};
    if (direct.to) {
        lc_status status = lc__for_chunks((info->bytes + LC__CHUNK - 1) / LC__CHUNK, read_chunk, &direct);
        lc__tensor_unmap(t, LC__WRITE);
        return status;
    }
    if (info->bytes > *scratch_bytes) {
        free(*scratch);
        *scratch = malloc(info->bytes);
        *scratch_bytes = *scratch ? info->bytes : 0;
    }
    if (!*scratch && info->bytes)
        return lc_fail(LC_ERR_MEMORY, "out of memory: tensor \"%s\" of \"%s\" (%" PRIu64 " bytes)", info->name, f->path,
                       info->bytes);
    LC_TRY(lc_safetensors_read(f, i, *scratch, info->bytes));
    return lc__tensor_write_as(t, &info->type, *scratch);
}

lc_status lc_safetensors_load(lc_safetensors *f, const char *name, lc_tensor *t)
{
    LC__IS(f, SAFETENSORS, LC_ERR_ARGUMENT);
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    int64_t i;
    void *scratch = NULL;
    uint64_t scratch_bytes = 0;
    LC_TRY(match(f, name, t, &i));
    lc_status status = load(f, i, t, &scratch, &scratch_bytes);
    free(scratch);
    return status;
}

lc_status lc__safetensors_load_all(lc_safetensors *f, int64_t n, const lc_named_tensor *tensors,
                                   bool (*may_be_left)(const char *name))
{
    void *scratch = NULL;
    uint64_t scratch_bytes = 0;
    lc_status status = LC_OK;
    lc_tensor **wanted = calloc((size_t)(f->n ? f->n : 1), sizeof(lc_tensor *));
    if (!wanted) return lc_fail(LC_ERR_MEMORY, "out of memory: %" PRId64 " tensors", f->n);
    for (int64_t k = 0; k < n; k++) {
        int64_t i;
        LC_TRY_GOTO(status, done, tensors[k].name ? LC_OK : lc__is_null(__func__, "the name of a tensor"));
        LC_TRY_GOTO(status, done, match(f, tensors[k].name, tensors[k].tensor, &i));
        if (wanted[i]) {
            status = lc_fail(LC_ERR_ARGUMENT, "tensor \"%s\" of \"%s\" is requested twice", tensors[k].name, f->path);
            goto done;
        }
        wanted[i] = tensors[k].tensor;
    }
    for (int64_t i = 0; i < f->n; i++)
        if (!wanted[i] && !may_be_left(f->infos[i].name)) {
            status = lc_fail(LC_ERR_NOT_FOUND, "\"%s\" has a tensor \"%s\" that the model does not have", f->path,
                             f->infos[i].name);
            goto done;
        }
    for (int64_t i = 0; i < f->n; i++)
        if (wanted[i]) LC_TRY_GOTO(status, done, load(f, i, wanted[i], &scratch, &scratch_bytes));
done:
    free(scratch);
    free(wanted);
    return status;
}

static bool always(const char *name)
{
    return (void)name, true;
}

static bool never(const char *name)
{
    return (void)name, false;
}

lc_status lc_safetensors_load_all(lc_safetensors *f, int64_t n, const lc_named_tensor *tensors, bool strict)
{
    LC__IS(f, SAFETENSORS, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("tensors", n, tensors));
    return lc__safetensors_load_all(f, n, tensors, strict ? never : always);
}

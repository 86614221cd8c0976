/* SPDX-License-Identifier: Apache-2.0 */
/* Several safetensors files as one: what the ranks of a run wrote together (docs/checkpoints.md). A tensor is whole in
 * one of the files, or each file holds a range of its elements, which is given in the file's metadata. The ranges are
 * as untrusted as the rest of a header: every tensor must be covered once, without holes and overlaps. */
#define _GNU_SOURCE
#include "safetensors/safetensors_impl.h"
#include "base/grow.h"
#include "base/handle.h"

#include "tensor/tensor_impl.h"

#include <lightc/state.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of one tensor that is in one file. */
typedef struct part {
    lc_safetensor_info info; /* of the whole tensor; the name is the file's */
    unsigned char layout;
    lc__st_piece piece;
} part;

typedef struct join {
    const char *path;
    lc_safetensors **files;
    part *parts;
    int64_t n, capacity;
} join;

static lc_status bad(const lc_safetensors *file, const char *name, const char *why)
{
    return lc_fail(LC_ERR_FORMAT, "\"%s\": the range of tensor \"%.200s\" %s", file->path, name, why);
}

/* ---- what a file says ---- */

static lc_status read_range(lc_safetensors *file, const lc_state *one, part *p)
{
    const lc_state *shape;
    const char *layout = "";
    lc_type type = {.dtype = p->info.type.dtype};
    int64_t first, end;
    uint64_t bytes = 0;
    size_t size = lc_dtype_size(type.dtype);
    LC_TRY(lc_state_get_array(one, "shape", &shape));
    LC_TRY(lc_state_get_int(one, "first", &first));
    LC_TRY(lc_state_get_text(one, "layout", &layout));
    bool last = !strcmp(layout, "channels_last");
    if (!last && strcmp(layout, "row_major") != 0) return bad(file, p->info.name, "has an unknown layout");
    if (!size || p->info.type.ndim != 1) return bad(file, p->info.name, "is for a tensor that is not one-dimensional");
    if (lc_state_length(shape) > LC_MAX_DIMS)
        return bad(file, p->info.name, "is for a tensor with too many dimensions");
    for (int64_t d = 0; d < lc_state_length(shape); d++)
        LC_TRY(lc_state_get_int(lc_state_at(shape, d), NULL, &type.shape[type.ndim++]));
    bool fits = lc__type_bytes(&type, &bytes);
    if (!fits || first < 0 || __builtin_add_overflow(first, p->info.type.shape[0], &end) ||
        (uint64_t)end > bytes / size)
        return bad(file, p->info.name, "is outside its shape");
    p->info.type = type;
    p->info.bytes = bytes;
    p->layout = last ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
    p->piece.at = (uint64_t)first * size;
    return LC_OK;
}

static lc_status read_ranges(join *j, int file, part *parts)
{
    lc_safetensors *f = j->files[file];
    const char *text = lc_safetensors_metadata(f, LC__ST_RANGES), *name;
    lc_state *list = NULL;
    lc_status status;
    if (!text) return LC_OK;
    char *seen = calloc((size_t)f->n + 1, 1);
    if (!seen) return lc_fail(LC_ERR_MEMORY, "out of memory: the ranges in \"%s\"", f->path);
    LC_TRY_GOTO(status, done, lc_state_parse(text, strlen(text), &list));
    if (lc_state_kind_of(list) != LC_STATE_ARRAY) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_FORMAT, "not an array"));
    for (int64_t i = 0; i < lc_state_length(list); i++) {
        LC_TRY_GOTO(status, done, lc_state_get_text(lc_state_at(list, i), "name", &name));
        int64_t at = lc_safetensors_find(f, name);
        if (at < 0 || seen[at]++)
            LC_TRY_GOTO(status, done, bad(f, name, at < 0 ? "names no tensor of the file" : "appears twice"));
        LC_TRY_GOTO(status, done, read_range(f, lc_state_at(list, i), &parts[at]));
    }
done:
    free(seen);
    lc_state_free(list);
    if (status == LC_ERR_NOT_FOUND) status = LC_ERR_FORMAT; /* a missing field */
    if (status == LC_ERR_FORMAT && !strstr(lc_error_message(), f->path))
        lc_fail_context(status, "\"%s\": the ranges in its metadata", f->path);
    return status;
}

static lc_status add_file(join *j, int file)
{
    lc_safetensors *f = j->files[file];
    LC_TRY(lc__grow(&j->parts, &j->capacity, j->n, f->n, "the tensors of several files"));
    for (int64_t i = 0; i < f->n; i++)
        j->parts[j->n + i] = (part){f->infos[i], LC_ROW_MAJOR, {file, i, 0, f->infos[i].bytes}};
    LC_TRY(f->n ? read_ranges(j, file, j->parts + j->n) : LC_OK);
    j->n += f->n;
    return LC_OK;
}

/* ---- putting it together ---- */

static int by_name_and_place(const void *pa, const void *pb)
{
    const part *a = pa, *b = pb;
    int order = strcmp(a->info.name, b->info.name);
    if (order) return order;
    if (a->piece.at != b->piece.at) return a->piece.at < b->piece.at ? -1 : 1;
    return a->piece.file - b->piece.file;
}

static bool same_type(const part *a, const part *b)
{
    bool same = !strcmp(a->info.dtype, b->info.dtype) && a->info.type.ndim == b->info.type.ndim &&
                a->layout == b->layout && a->info.bytes == b->info.bytes;
    for (int d = 0; same && d < a->info.type.ndim; d++) same = a->info.type.shape[d] == b->info.type.shape[d];
    return same;
}

/* Checks parts [from, to), which are of one tensor. */
static lc_status check_tensor(const join *j, int64_t from, int64_t to)
{
    const part *first = &j->parts[from];
    const char *name = first->info.name;
    uint64_t covered = 0;
    for (int64_t i = from; i < to; i++) {
        const part *p = &j->parts[i];
        const char *file = j->files[p->piece.file]->path;
        if (!same_type(first, p))
            return lc_fail(LC_ERR_FORMAT, "\"%s\" and \"%s\" have different data types or shapes of tensor \"%.200s\"",
                           j->files[first->piece.file]->path, file, name);
        if (p->piece.at < covered)
            return lc_fail(LC_ERR_FORMAT, "\"%s\" and \"%s\" hold the same elements of tensor \"%.200s\"",
                           j->files[j->parts[i - 1].piece.file]->path, file, name);
        if (p->piece.at > covered) break;
        covered += p->piece.size;
    }
    if (covered == first->info.bytes) return LC_OK;
    return lc_fail(LC_ERR_FORMAT,
                   "\"%s\": tensor \"%.200s\" (%" PRIu64
                   " bytes) is incomplete: no file has its data from byte %" PRIu64 " on",
                   j->path, name, first->info.bytes, covered);
}

static lc_status put_together(join *j, lc_safetensors *f)
{
    if (j->n) qsort(j->parts, (size_t)j->n, sizeof *j->parts, by_name_and_place);
    f->infos = calloc((size_t)j->n + 1, sizeof *f->infos);
    f->pieces = calloc((size_t)j->n + 1, sizeof *f->pieces);
    f->first_piece = calloc((size_t)j->n + 1, sizeof *f->first_piece);
    f->layouts = calloc((size_t)j->n + 1, 1);
    if (!f->infos || !f->pieces || !f->first_piece || !f->layouts)
        return lc_fail(LC_ERR_MEMORY, "out of memory: the %" PRId64 " tensors of \"%s\"", j->n, j->path);
    for (int64_t from = 0, to; from < j->n; from = to) {
        for (to = from + 1; to < j->n && !strcmp(j->parts[to].info.name, j->parts[from].info.name);) to++;
        LC_TRY(check_tensor(j, from, to));
        lc_safetensor_info *info = &f->infos[f->n];
        *info = j->parts[from].info;
        info->offset = 0;
        info->name = strdup(info->name);
        if (!info->name) return lc_fail(LC_ERR_MEMORY, "out of memory: the tensors of \"%s\"", j->path);
        f->layouts[f->n] = j->parts[from].layout;
        f->first_piece[f->n++] = from;
        for (int64_t i = from; i < to; i++) f->pieces[i] = j->parts[i].piece;
    }
    f->first_piece[f->n] = j->n;
    return lc__st_index(f);
}

lc_status lc__st_join(const char *path, int n, lc_safetensors **files, lc_safetensors **out)
{
    join j = {.path = path, .files = files};
    lc_status status = LC_OK;
    *out = NULL;
    lc_safetensors *f = calloc(1, sizeof *f);
    if (f) f->files = calloc((size_t)n + 1, sizeof *f->files);
    if (!f || !f->files) {
        for (int i = 0; i < n; i++) lc_safetensors_close(files[i]);
        free(f);
        return lc_fail(LC_ERR_MEMORY, "out of memory: \"%s\"", path);
    }
    f->mark = LC__MARK_OF(SAFETENSORS);
    f->fd = -1, f->io = &lc__io_system, f->n_files = n;
    memcpy(f->files, files, (size_t)n * sizeof(lc_safetensors *));
    LC_TRY_GOTO(status, done, lc__format(&f->path, "%s", path));
    for (int i = 0; i < n; i++) LC_TRY_GOTO(status, done, add_file(&j, i));
    status = put_together(&j, f);
done:
    free(j.parts);
    if (status < 0)
        lc_safetensors_close(f);
    else
        *out = f;
    return status;
}

int64_t lc_safetensors_pieces(const lc_safetensors *f, int64_t i, int64_t k, lc_safetensor_piece *piece)
{
    LC__IS(f, SAFETENSORS, 0);
    if (i < 0 || i >= f->n) return 0;
    const lc_safetensor_info *info = &f->infos[i];
    int64_t n = f->n_files ? f->first_piece[i + 1] - f->first_piece[i] : 1, numel = 1;
    if (!piece || k < 0 || k >= n) return n;
    for (int d = 0; d < info->type.ndim; d++) numel *= info->type.shape[d]; /* checked when the file was opened */
    *piece = (lc_safetensor_piece){f->path, 0, numel};
    if (!f->n_files) return n;
    const lc__st_piece *p = &f->pieces[f->first_piece[i] + k];
    size_t size = lc_dtype_size(info->type.dtype); /* 0: an unknown type, which is always whole */
    piece->path = f->files[p->file]->path;
    if (size) piece->first = (int64_t)(p->at / size), piece->count = (int64_t)(p->size / size);
    return n;
}

/* ---- reading ---- */

/* Bytes of a tensor as the files have them. */
static lc_status read_stored(lc_safetensors *f, int64_t i, uint64_t offset, char *data, size_t count)
{
    for (int64_t k = f->first_piece[i]; k < f->first_piece[i + 1] && count; k++) {
        const lc__st_piece *p = &f->pieces[k];
        if (offset >= p->at + p->size) continue;
        uint64_t skip = offset - p->at, n = p->size - skip < count ? p->size - skip : count;
        LC_TRY(lc_safetensors_read_range(f->files[p->file], p->index, skip, data, (size_t)n));
        data += n, offset += n, count -= (size_t)n;
    }
    return LC_OK;
}

lc_status lc__st_read_joined(lc_safetensors *f, int64_t i, uint64_t offset, void *data, size_t count)
{
    const lc_safetensor_info *info = &f->infos[i];
    lc_layout stored = (lc_layout)f->layouts[i];
    int64_t strides[LC_MAX_DIMS];
    lc_view from, to;
    if (!count) return LC_OK;
    lc__dense_strides(&info->type, stored, strides);
    if (stored == LC_ROW_MAJOR || lc__is_dense(info->type.ndim, info->type.shape, strides, LC_ROW_MAJOR))
        return read_stored(f, i, offset, data, count);
    /* In another order: read the whole tensor, reorder it, and copy the part that was asked for. */
    lc_status status = LC_OK;
    char *in = malloc(info->bytes + 1), *out = malloc(info->bytes + 1);
    if (!in || !out) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: tensor \"%s\" of \"%s\"", info->name, f->path);
        goto done;
    }
    LC_TRY_GOTO(status, done, read_stored(f, i, 0, in, info->bytes));
    lc__view_of(&info->type, stored, in, &from);
    lc__view_of(&info->type, LC_ROW_MAJOR, out, &to);
    lc__copy_strided(&from, &to);
    memcpy(data, out + offset, count);
done:
    free(in);
    free(out);
    return status;
}

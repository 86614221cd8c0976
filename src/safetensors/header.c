/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file. It is hostile until every number in it has been checked against every other and
 * against the length of the file: tensors must cover the data without holes or overlaps, so that no two readers can see
 * different things in one file. */
#define _GNU_SOURCE
#include "safetensors/safetensors_impl.h"
#include "base/grow.h"
#include "base/handle.h"
#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All data types of the format, so that sizes are checked also for those that lightc does not compute with. */
static const struct {
    const char *name;
    unsigned bits;
    lc_dtype dtype;
} dtypes[] = {
    {"BOOL", 8, LC_BOOL},  {"F4", 4, 0},      {"F6_E2M3", 6, 0},   {"F6_E3M2", 6, 0},   {"U8", 8, LC_U8},
    {"I8", 8, 0},          {"F8_E5M2", 8, 0}, {"F8_E4M3", 8, 0},   {"F8_E8M0", 8, 0},   {"F8_E4M3FNUZ", 8, 0},
    {"F8_E5M2FNUZ", 8, 0}, {"I16", 16, 0},    {"U16", 16, 0},      {"F16", 16, LC_F16}, {"BF16", 16, LC_BF16},
    {"I32", 32, LC_I32},   {"U32", 32, 0},    {"F32", 32, LC_F32}, {"C64", 64, 0},      {"F64", 64, LC_F64},
    {"I64", 64, LC_I64},   {"U64", 64, 0},
};

static lc_status bad(lc_safetensors *f, const char *name, const char *why)
{
    return lc_fail(LC_ERR_FORMAT, "\"%s\" is not a valid safetensors file: tensor \"%.200s\" %s", f->path, name, why);
}

static lc_status take_text(lc__json_reader *r, char **out)
{
    if (memchr(r->text, 0, r->text_length)) return lc__json_fail(r, "a name contains a zero character");
    *out = strndup(r->text, r->text_length);
    if (!*out) return lc_fail(LC_ERR_MEMORY, "out of memory: a name of %zu bytes", r->text_length);
    return LC_OK;
}

static lc_status read_metadata(lc_safetensors *f, lc__json_reader *r)
{
    lc__json_token token;
    LC_TRY(lc__json_next(r, &token));
    if (token != LC__JSON_OBJECT) return lc__json_fail(r, "\"__metadata__\" must be an object");
    for (;;) {
        LC_TRY(lc__json_next(r, &token));
        if (token == LC__JSON_OBJECT_END) return LC_OK;
        LC_TRY(lc__grow(&f->metadata, &f->metadata_capacity, f->n_metadata, 1, "the metadata of a file"));
        lc_text_pair *pair = &f->metadata[f->n_metadata++];
        *pair = (lc_text_pair){0};
        char *text;
        LC_TRY(take_text(r, &text));
        pair->key = text;
        LC_TRY(lc__json_next(r, &token));
        if (token != LC__JSON_TEXT) return lc__json_fail(r, "values of \"__metadata__\" must be strings");
        LC_TRY(take_text(r, &text));
        pair->value = text;
    }
}

static lc_status read_shape(lc_safetensors *f, lc__json_reader *r, lc_safetensor_info *info, uint64_t *numel)
{
    lc__json_token token;
    LC_TRY(lc__json_next(r, &token));
    if (token != LC__JSON_ARRAY) return lc__json_fail(r, "\"shape\" must be an array");
    *numel = 1;
    bool overflow = false;
    for (;;) {
        LC_TRY(lc__json_next(r, &token));
        if (token == LC__JSON_ARRAY_END) break;
        if (token != LC__JSON_INT || r->integer < 0) return lc__json_fail(r, "a shape must consist of whole numbers");
        if (info->type.ndim == LC_MAX_DIMS)
            return bad(f, info->name, "has more than 8 dimensions, the most that lightc supports");
        info->type.shape[info->type.ndim++] = r->integer;
        overflow |= __builtin_mul_overflow(*numel, (uint64_t)r->integer, numel);
    }
    return overflow ? bad(f, info->name, "has a shape whose product overflows") : LC_OK;
}

static lc_status read_tensor(lc_safetensors *f, lc__json_reader *r, lc_safetensor_info *info)
{
    lc__json_token token;
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0, bits = 0;
    uint64_t numel = 0, begin = 0, end = 0, need;
    LC_TRY(lc__json_next(r, &token));
    if (token != LC__JSON_OBJECT) return bad(f, info->name, "is not described by an object");
    for (;;) {
        LC_TRY(lc__json_next(r, &token));
        if (token == LC__JSON_OBJECT_END) break;
        unsigned field = r->text_length == 5 && !memcmp(r->text, "dtype", 5)            ? DTYPE
                         : r->text_length == 5 && !memcmp(r->text, "shape", 5)          ? SHAPE
                         : r->text_length == 12 && !memcmp(r->text, "data_offsets", 12) ? OFFSETS
                                                                                        : 0;
        if (!field)
            return bad(f, info->name, "has an unknown field; \"dtype\", \"shape\" and \"data_offsets\" are known");
        if (seen & field) return bad(f, info->name, "has a duplicate field");
        seen |= field;
        if (field == DTYPE) {
            LC_TRY(lc__json_next(r, &token));
            for (size_t k = 0; token == LC__JSON_TEXT && k < sizeof dtypes / sizeof *dtypes; k++)
                if (strlen(dtypes[k].name) == r->text_length && !memcmp(dtypes[k].name, r->text, r->text_length))
                    info->dtype = dtypes[k].name, info->type.dtype = dtypes[k].dtype, bits = dtypes[k].bits;
            if (!bits) return bad(f, info->name, "has an unknown data type");
        } else if (field == SHAPE) {
            LC_TRY(read_shape(f, r, info, &numel));
        } else {
            LC_TRY(lc__json_next(r, &token));
            if (token != LC__JSON_ARRAY) return bad(f, info->name, "has no valid data_offsets");
            for (int k = 0; k < 2; k++) {
                LC_TRY(lc__json_next(r, &token));
                if (token != LC__JSON_INT || r->integer < 0) return bad(f, info->name, "has no valid data_offsets");
                *(k ? &end : &begin) = (uint64_t)r->integer;
            }
            LC_TRY(lc__json_next(r, &token));
            if (token != LC__JSON_ARRAY_END) return bad(f, info->name, "has no valid data_offsets");
        }
    }
    if (seen != (DTYPE | SHAPE | OFFSETS)) return bad(f, info->name, "lacks its dtype, shape or data_offsets");
    if (__builtin_mul_overflow(numel, (uint64_t)bits, &need)) return bad(f, info->name, "has a size that overflows");
    if (need % 8) return bad(f, info->name, "does not end at a byte boundary");
    if (end < begin || end - begin != need / 8) {
        lc_fail(LC_ERR_FORMAT,
                "has %" PRIu64 " bytes by its shape and data type, but its data_offsets say [%" PRIu64 ", %" PRIu64 "]",
                need / 8, begin, end);
        return bad(f, info->name, lc_error_message());
    }
    info->offset = begin, info->bytes = need / 8;
    return LC_OK;
}

static int by_offset(const void *pa, const void *pb)
{
    const lc_safetensor_info *a = pa, *b = pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *pa, const void *pb, void *infos)
{
    const lc_safetensor_info *all = infos;
    return strcmp(all[*(const int64_t *)pa].name, all[*(const int64_t *)pb].name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const lc_text_pair *)a)->key, ((const lc_text_pair *)b)->key);
}

lc_status lc__st_index(lc_safetensors *f)
{
    f->sorted = malloc((size_t)(f->n ? f->n : 1) * sizeof *f->sorted);
    if (!f->sorted) return lc_fail(LC_ERR_MEMORY, "out of memory: %" PRId64 " tensors", f->n);
    for (int64_t i = 0; i < f->n; i++) f->sorted[i] = i;
    if (f->n) qsort_r(f->sorted, (size_t)f->n, sizeof *f->sorted, by_name, f->infos);
    return LC_OK;
}

static lc_status read_header(lc_safetensors *f, lc__json_reader *r, uint64_t data_start, uint64_t data_bytes)
{
    lc__json_token token;
    bool metadata = false;
    LC_TRY(lc__json_next(r, &token));
    if (token != LC__JSON_OBJECT) return lc__json_fail(r, "the header must be an object");
    for (;;) {
        LC_TRY(lc__json_next(r, &token));
        if (token == LC__JSON_OBJECT_END) break;
        if (r->text_length == 12 && !memcmp(r->text, "__metadata__", 12)) {
            if (metadata) return lc__json_fail(r, "\"__metadata__\" appears twice");
            metadata = true;
            LC_TRY(read_metadata(f, r));
            continue;
        }
        LC_TRY(lc__grow(&f->infos, &f->capacity, f->n, 1, "the tensors of a file"));
        lc_safetensor_info *info = &f->infos[f->n++];
        *info = (lc_safetensor_info){0};
        char *name;
        LC_TRY(take_text(r, &name));
        info->name = name;
        LC_TRY(read_tensor(f, r, info));
    }
    LC_TRY(lc__json_next(r, &token)); /* only white space may follow */

    if (f->n) qsort(f->infos, (size_t)f->n, sizeof *f->infos, by_offset);
    uint64_t at = 0;
    for (int64_t i = 0; i < f->n; i++) {
        lc_safetensor_info *info = &f->infos[i];
        if (info->offset != at)
            return bad(f, info->name, info->offset > at ? "leaves a gap before its data" : "overlaps another tensor");
        at += info->bytes; /* cannot overflow: both are ends of data_offsets, below 2^63 */
        info->offset += data_start;
    }
    if (at != data_bytes)
        return lc_fail(LC_ERR_FORMAT,
                       at > data_bytes ? "\"%s\" is truncated: it has %" PRIu64
                                         " bytes of data, its header describes %" PRIu64
                                       : "\"%s\" has %" PRIu64 " bytes of data, but its header describes only %" PRIu64,
                       f->path, data_bytes, at);
    LC_TRY(lc__st_index(f));
    for (int64_t i = 1; i < f->n; i++)
        if (!strcmp(f->infos[f->sorted[i - 1]].name, f->infos[f->sorted[i]].name))
            return bad(f, f->infos[f->sorted[i]].name, "appears twice in the header");
    if (f->n_metadata) qsort(f->metadata, (size_t)f->n_metadata, sizeof *f->metadata, by_key);
    for (int64_t i = 1; i < f->n_metadata; i++)
        if (!strcmp(f->metadata[i - 1].key, f->metadata[i].key))
            return lc_fail(LC_ERR_FORMAT, "\"%s\": the metadata key \"%.200s\" appears twice", f->path,
                           f->metadata[i].key);
    return LC_OK;
}

lc_status lc__st_parse(const char *path, const char *json, uint64_t n, uint64_t file_bytes, lc_safetensors **out)
{
    *out = NULL;
    lc_safetensors *f = calloc(1, sizeof *f);
    if (!f) return lc_fail(LC_ERR_MEMORY, "out of memory: \"%s\"", path);
    f->mark = LC__MARK_OF(SAFETENSORS);
    f->fd = -1, f->io = &lc__io_system;
    lc__json_reader r = {0};
    lc_status status;
    LC_TRY_GOTO(status, done, lc__format(&f->path, "%s", path));
    status = lc__json_begin(&r, json, n);
    if (status >= 0) status = read_header(f, &r, 8 + n, file_bytes - 8 - n);
    if (status == LC_ERR_FORMAT && !strstr(lc_error_message(), path))
        lc_fail(status, "\"%s\" is not a valid safetensors file: header, %s", path, lc_error_message());
done:
    lc__json_release(&r);
    if (status < 0)
        lc_safetensors_close(f);
    else
        *out = f;
    return status;
}

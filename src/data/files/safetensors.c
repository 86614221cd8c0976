/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors as data: the header is read by src/safetensors, the tensors where the file is mapped. */
#include "safetensors/safetensors_impl.h"
#include "data/files/file.h"

#include <string.h>

static const struct {
    const char *name;
    lc__number number;
} more_types[] = {{"I8", LC__I8}, {"U16", LC__U16}, {"I16", LC__I16}, {"U32", LC__U32}, {"U64", LC__U64}};

static bool matches(const lc_array_file *f)
{
    size_t n = strlen(f->path);
    return n > 12 && !strcmp(f->path + n - 12, ".safetensors");
}

static lc_status add_tensor(lc_array_file *f, const lc_safetensor_info *info)
{
    lc__file_array *a;
    uint64_t bytes;
    LC_TRY(lc__file_add(f, info->name, strlen(info->name), &a));
    a->number = (lc__number)info->type.dtype;
    for (size_t k = 0; k < sizeof more_types / sizeof *more_types; k++)
        if (!strcmp(info->dtype, more_types[k].name)) a->number = more_types[k].number;
    if (!a->number)
        return lc__file_refuse(a, "has the type %s, which lightc does not have; convert it, as in t.float()",
                               info->dtype);
    a->info.ndim = info->type.ndim;
    memcpy(a->info.shape, info->type.shape, sizeof a->info.shape);
    a->swapped = __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__;
    if (!lc__file_strides(a, false, &bytes) || info->offset > f->size || bytes > f->size - info->offset)
        return lc__file_fail(f, LC_ERR_FORMAT, info->name, "does not fit into the file");
    a->data = (const char *)f->bytes + info->offset;
    return LC_OK;
}

static lc_status read_header(lc_array_file *f)
{
    lc_safetensors *s;
    LC_TRY(lc__st_parse_file(f->path, f->bytes, f->size, &s));
    lc_status status = LC_OK;
    for (int64_t i = 0; i < s->n && status == LC_OK; i++) status = add_tensor(f, &s->infos[i]);
    lc_safetensors_close(s);
    return status;
}

const lc__file_kind lc__safetensors_kind = {.matches = matches, .read_header = read_header};

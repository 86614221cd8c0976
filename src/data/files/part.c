/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of an array of a file on their way into a batch: from any strides and byte order, converted. */
#include "data/files/file.h"

#include <string.h>

/* Elements that are brought together before they are converted, if they are not side by side. */
#define GATHERED 512

lc_status lc__part_init(lc__part *p, lc_array_file *f, int64_t i, lc_dtype to, double scale, double shift)
{
    lc__file_array *a = &f->arrays[i];
    const char *name = a->info.name;
    *p = (lc__part){.file = f, .array = a, .scale = scale, .shift = shift, .samples = 1};
    if (a->refused) return lc__file_fail(f, LC_ERR_UNSUPPORTED, name, "%s", a->refused);
    if (!to) to = a->info.dtype;
    if (!to)
        return lc__file_fail(f, LC_ERR_DTYPE, name,
                             "has numbers of type %s, of which lightc has no tensors: say what they become, as in "
                             ".to = LC_F32",
                             a->info.type);
    bool scaled = scale != 1.0 || shift != 0.0;
    if (!lc__conversion(a->number, to, scaled, &p->convert))
        return lc__file_fail(f, LC_ERR_DTYPE, name, "cannot be converted from %s to %s%s", a->info.type,
                             lc_dtype_name(to), scaled ? " with a scale or a shift" : "");
    if (f->kind->load) LC_TRY(f->kind->load(f, a));
    p->data = a->data;
    p->size = lc__number_size(a->number);
    p->to_size = lc_dtype_size(to);
    p->swapped = a->swapped && p->size > 1;
    p->numel = 1;
    if (a->info.ndim > 0) p->samples = a->info.shape[0], p->stride = a->stride[0];
    p->ndim = a->info.ndim > 1 ? a->info.ndim - 1 : 0;
    for (int d = 0; d < p->ndim; d++) {
        p->shape[d] = a->info.shape[d + 1];
        p->strides[d] = a->stride[d + 1];
        p->numel *= p->shape[d];
    }
    /* Dimensions of size 1 may have any stride. */
    bool dense = true;
    int64_t stride = (int64_t)p->size;
    for (int d = p->ndim - 1; d >= 0; d--) {
        if (p->shape[d] != 1 && p->strides[d] != stride) dense = false;
        stride *= p->shape[d];
    }
    if (dense) p->ndim = 1, p->shape[0] = p->numel, p->strides[0] = (int64_t)p->size;
    p->direct = dense && !p->swapped;
    return LC_OK;
}

#define GATHER(bits)                                                                                                   \
    static void gather_##bits(const char *from, int64_t stride, int64_t n, bool swapped, void *to)                     \
    {                                                                                                                  \
        uint##bits##_t *out = to;                                                                                      \
        for (int64_t i = 0; i < n; i++) memcpy(&out[i], from + i * stride, sizeof *out);                               \
        for (int64_t i = 0; swapped && i < n; i++) out[i] = __builtin_bswap##bits(out[i]);                             \
    }
GATHER(16)
GATHER(32)
GATHER(64)

static void gather(const char *from, int64_t stride, int64_t n, size_t size, bool swapped, void *to)
{
    if (size == 8)
        gather_64(from, stride, n, swapped, to);
    else if (size == 4)
        gather_32(from, stride, n, swapped, to);
    else if (size == 2)
        gather_16(from, stride, n, swapped, to);
    else
        for (int64_t i = 0; i < n; i++) ((char *)to)[i] = from[i * stride];
}

/* n elements with one stride. */
static void convert_row(const lc__part *p, const char *from, int64_t stride, int64_t n, char *to)
{
    uint64_t row[GATHERED];
    for (int64_t at = 0; at < n; at += GATHERED) {
        int64_t k = n - at < GATHERED ? n - at : GATHERED;
        gather(from + at * stride, stride, k, p->size, p->swapped, row);
        if (p->convert)
            p->convert(row, to, k, p->scale, p->shift);
        else
            memcpy(to, row, (size_t)k * p->to_size);
        to += (size_t)k * p->to_size;
    }
}

void lc__part_convert(const lc__part *p, const char *from, char *to)
{
    if (p->direct) {
        if (p->convert)
            p->convert(from, to, p->numel, p->scale, p->shift);
        else
            memcpy(to, from, (size_t)p->numel * p->size);
        return;
    }
    int last = p->ndim - 1;
    int64_t index[LC_MAX_DIMS] = {0}, n = p->shape[last], rows = n ? p->numel / n : 0;
    for (int64_t row = 0; row < rows; row++) {
        const char *at = from;
        for (int d = 0; d < last; d++) at += index[d] * p->strides[d];
        convert_row(p, at, p->strides[last], n, to);
        to += (size_t)n * p->to_size;
        for (int d = last - 1; d >= 0 && ++index[d] == p->shape[d]; d--) index[d] = 0;
    }
}

lc_status lc__part_read(const lc__part *p, int64_t first, int64_t n, char *to, void *scratch, int64_t room)
{
    size_t step = (size_t)p->numel * p->to_size;
    if (p->data) {
        for (int64_t j = 0; j < n; j++) lc__part_convert(p, p->data + (first + j) * p->stride, to + (size_t)j * step);
        return LC_OK;
    }
    if (!p->convert) return p->file->kind->read(p->file, p->array, first, n, to);
    for (int64_t j = 0; j < n; j += room) {
        const int64_t k = n - j < room ? n - j : room;
        LC_TRY(p->file->kind->read(p->file, p->array, first + j, k, scratch));
        p->convert(scratch, to + (size_t)j * step, k * p->numel, p->scale, p->shift);
    }
    return LC_OK;
}

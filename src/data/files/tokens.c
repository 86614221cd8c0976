/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens in a .bin, as one array "tokens": nanoGPT's, which has only 16-bit numbers, and llm.c's, which begins
 * with 256 numbers of 32 bits: magic, version, number of tokens, zeros. All are little-endian. */
#include "data/files/file.h"

#include <string.h>

#define HEADER_BYTES 1024

static const struct {
    uint32_t magic, version;
    lc__number number;
    const char *what;
} formats[] = {{20240520, 1, LC__U16, "GPT-2's tokens"},
               {20240801, 7, LC__U32, "Llama 3's tokens"},
               {20240522, 1, LC__NO_NUMBER, ""}};
enum { FORMATS = sizeof formats / sizeof *formats };

static uint32_t header_at(const lc_array_file *f, int i)
{
    const unsigned char *p = f->bytes + 4 * i;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The format of a file with a header, or -1. */
static int format_of(const lc_array_file *f)
{
    for (int i = 0; f->size >= 12 && i < FORMATS; i++)
        if (header_at(f, 0) == formats[i].magic) return i;
    return -1;
}

static bool matches(const lc_array_file *f)
{
    size_t n = strlen(f->path);
    return format_of(f) >= 0 || (n > 4 && !strcmp(f->path + n - 4, ".bin"));
}

static lc_status read_header(lc_array_file *f)
{
    lc__file_array *a;
    int format = format_of(f);
    uint64_t begin = format < 0 ? 0 : HEADER_BYTES, n, bytes;
    LC_TRY(lc__file_add(f, "tokens", 6, &a));
    a->number = format < 0 ? LC__U16 : formats[format].number;
    a->swapped = __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__;
    if (format >= 0 && !a->number)
        return lc__file_fail(f, LC_ERR_UNSUPPORTED, NULL,
                             "has llm.c's multiple-choice questions, which are not a row of tokens");
    if (format >= 0 && header_at(f, 1) != formats[format].version)
        return lc__file_fail(f, LC_ERR_UNSUPPORTED, NULL, "has version %u of llm.c's format for %s; %u is known",
                             header_at(f, 1), formats[format].what, formats[format].version);
    if (f->size < begin)
        return lc__file_fail(f, LC_ERR_FORMAT, NULL, "is truncated: it has %zu bytes, and its header alone %d", f->size,
                             HEADER_BYTES);
    n = format < 0 ? f->size / 2 : header_at(f, 2);
    bytes = begin + n * lc__number_size(a->number);
    if (format < 0 && bytes != f->size)
        return lc__file_fail(f, LC_ERR_FORMAT, NULL,
                             "has an odd number of bytes, %zu: tokens without a header have two "
                             "bytes each",
                             f->size);
    if (bytes != f->size)
        return lc__file_fail(f, LC_ERR_FORMAT, NULL,
                             "%s: its header says %llu tokens, and so %llu bytes, but it has %zu",
                             f->size < bytes ? "is truncated" : "is too long", (unsigned long long)n,
                             (unsigned long long)bytes, f->size);
    a->info.ndim = 1;
    a->info.shape[0] = (int64_t)n;
    a->data = (const char *)f->bytes + begin;
    (void)lc__file_strides(a, false, &bytes);
    return LC_OK;
}

const lc__file_kind lc__tokens_kind = {.matches = matches, .read_header = read_header};

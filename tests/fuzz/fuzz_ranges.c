/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges that the files of a sharded checkpoint claim to contain: if they are accepted, the pieces of every tensor
 * must cover it exactly once, from its beginning to its end. The first byte selects: the ranges of up to three files as
 * text, cut at zeros; or as numbers, which are far more often nearly right. */
#include "safetensors/safetensors_impl.h"
#include "base/str.h"

#include <lightc/state.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static int byte(input *in)
{
    if (!in->left) return 0;
    in->left--;
    return *in->at++;
}

/* A number that is small, at a limit, or any. */
static long long number(input *in)
{
    static const int64_t edges[] = {-1, INT64_MAX, INT64_MIN, (int64_t)1 << 62, (int64_t)1 << 32, INT32_MAX, 1 << 20};
    int b = byte(in);
    if (b < 200) return b % 13;
    if (b < 250) return edges[b % 7];
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | (uint64_t)byte(in);
    return (long long)v;
}

static void add_ranges(input *in, lc__str *out)
{
    static const char *const names[] = {"x", "y", "z"}, *const layouts[] = {"row_major", "channels_last", "diagonal"};
    int n = byte(in) % 4;
    lc__str_add(out, "[");
    for (int i = 0; i < n; i++) {
        int kinds = byte(in), dims = kinds / 16 % 10;
        lc__str_add(out, "%s{\"name\":\"%s\",\"layout\":\"%s\",\"first\":%lld,\"shape\":[", i ? "," : "",
                    names[kinds % 16 < 15 ? kinds % 2 : 2], layouts[kinds % 16 < 14 ? kinds / 2 % 2 : 2], number(in));
        for (int d = 0; d < dims; d++) lc__str_add(out, "%s%lld", d ? "," : "", number(in));
        lc__str_add(out, "]}");
    }
    lc__str_add(out, "]");
}

/* A file with two tensors and these ranges; NULL: invalid. */
static lc_safetensors *file_of(const char *ranges, int x, int y)
{
    lc__str header = {0};
    lc_state *metadata = NULL;
    lc_safetensors *f = NULL;
    char *text = NULL;
    size_t n;
    if (lc_state_new(&metadata) < 0) return NULL;
    if (lc_state_set_text(metadata, LC__ST_RANGES, ranges) >= 0 && lc_state_print(metadata, &text, &n) >= 0) {
        lc__str_add(&header,
                    "{\"__metadata__\":%s,\"x\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]},\"y\":{"
                    "\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
                    text, x, 4 * x, y, 4 * x, 4 * (x + y));
        if (lc__st_parse("fuzz", header.s, header.n, 8 + header.n + 4 * (uint64_t)(x + y), &f) < 0) f = NULL;
    }
    free(text);
    lc_state_free(metadata);
    lc__str_free(&header);
    return f;
}

static void check(const lc_safetensors *all)
{
    for (int64_t i = 0; i < lc_safetensors_count(all); i++) {
        const lc_safetensor_info *info = lc_safetensors_info(all, i);
        int64_t n = lc_safetensors_pieces(all, i, 0, NULL), at = 0;
        uint64_t bytes;
        if (!lc__type_bytes(&info->type, &bytes) || bytes != info->bytes) abort();
        for (int64_t k = 0; k < n; k++) {
            lc_safetensor_piece piece;
            lc_safetensors_pieces(all, i, k, &piece);
            if (piece.first != at || piece.count < 0) abort();
            at += piece.count;
        }
        if ((uint64_t)at * 4 != bytes) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    lc_safetensors *files[3], *all;
    int kinds = byte(&in), n = 0;
    while (n < 3 && in.left) {
        lc__str ranges = {0};
        int x = byte(&in) % 9, y = byte(&in) % 9;
        if (kinds % 4) {
            add_ranges(&in, &ranges);
        } else {
            size_t length = in.left;
            const uint8_t *end = length ? memchr(in.at, 0, length) : NULL;
            if (end) length = (size_t)(end - in.at);
            lc__str_add_bytes(&ranges, (const char *)in.at, length);
            in.at += length + (end != NULL), in.left -= length + (end != NULL);
        }
        files[n] = ranges.s ? file_of(ranges.s, x, y) : NULL;
        lc__str_free(&ranges);
        if (!files[n]) break;
        n++;
    }
    if (lc__st_join("all", n, files, &all) < 0) return 0;
    check(all);
    lc_safetensors_close(all);
    return 0;
}

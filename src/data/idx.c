/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files, the format of MNIST: big-endian magic 00 00 TT DD (type, rank), DD sizes of 32 bits, then the numbers,
 * last dimension fastest. Usually gzip-compressed, detected by the first two bytes.
 *
 * The file is not trusted: nothing is allocated before the header is known to be plausible (a compressed file cannot
 * hold more than 1032 times its length: deflate's limit), the data must have exactly the length in the header, and
 * gzip's checksum is verified. */
#include "data_internal.h"
#include "base/io.h"
#include "base/handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define INPUT_CHUNK   ((size_t)1 << 17)
#define DEFLATE_LIMIT 1032u

/* The source of bytes: a file or memory, plain or gzip. */
typedef struct source {
    const char *name;
    FILE *file;
    const unsigned char *memory;
    uint64_t left;  /* compressed bytes not yet read from file or memory */
    uint64_t total; /* length of the whole file */
    bool gzip, ended;
    z_stream z;
    bool z_open;
    unsigned char *chunk;
} source;

static lc_status raw_read(source *s, void *to, size_t n, size_t *got)
{
    if (n > s->left) n = (size_t)s->left;
    if (s->file) {
        *got = n ? fread(to, 1, n, s->file) : 0;
        if (*got < n)
            return lc_fail(LC_ERR_IO, "cannot read %s: %s", s->name, ferror(s->file) ? strerror(errno) : "it shrank");
    } else {
        if (n) memcpy(to, s->memory, n);
        s->memory += n;
        *got = n;
    }
    s->left -= n;
    return LC_OK;
}

/* Compressed bytes for zlib, unless it has some or there are no more. */
static lc_status refill(source *s)
{
    if (s->z.avail_in || !s->left) return LC_OK;
    size_t k;
    LC_TRY(raw_read(s, s->chunk, INPUT_CHUNK, &k));
    s->z.next_in = s->chunk;
    s->z.avail_in = (uInt)k;
    return LC_OK;
}

/* A gzip file may consist of several streams one after the other. Zeros after one are padding. */
static lc_status next_stream(source *s)
{
    LC_TRY(refill(s));
    while (s->z.avail_in && !*s->z.next_in) {
        s->z.next_in++, s->z.avail_in--;
        LC_TRY(refill(s));
    }
    s->ended = !s->z.avail_in;
    if (!s->ended && inflateReset(&s->z) != Z_OK) return lc_fail(LC_ERR_INTERNAL, "%s: zlib cannot be reset", s->name);
    return LC_OK;
}

/* Reads up to n bytes of content; *got < n means that the content ended there. */
static lc_status content_read(source *s, void *to, size_t n, size_t *got)
{
    *got = 0;
    if (!s->gzip) return raw_read(s, to, n, got);
    unsigned char *p = to;
    while (*got < n && !s->ended) {
        LC_TRY(refill(s));
        size_t want = n - *got;
        if (want > (1u << 30)) want = 1u << 30;
        s->z.next_out = p + *got;
        s->z.avail_out = (uInt)want;
        int rc = inflate(&s->z, Z_NO_FLUSH);
        *got += want - s->z.avail_out;
        if (rc == Z_STREAM_END) {
            LC_TRY(next_stream(s));
        } else if (rc == Z_MEM_ERROR) {
            return lc_fail(LC_ERR_MEMORY, "%s: out of memory during decompression", s->name);
        } else if (rc == Z_BUF_ERROR || (rc == Z_OK && s->z.avail_in == 0 && s->left == 0 && s->z.avail_out > 0)) {
            return lc_fail(LC_ERR_FORMAT, "%s: the compressed data end early; the file is probably truncated", s->name);
        } else if (rc != Z_OK) {
            return lc_fail(LC_ERR_FORMAT, "%s: the compressed data are corrupt (%s)", s->name,
                           s->z.msg ? s->z.msg : "zlib gives no reason");
        }
    }
    return LC_OK;
}

static lc_status source_open(source *s)
{
    unsigned char magic[2];
    s->total = s->left;
    if (s->file) {
        size_t n = fread(magic, 1, 2, s->file);
        s->gzip = n == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
        if (fseek(s->file, 0, SEEK_SET) != 0) return lc_fail(LC_ERR_IO, "cannot read %s: %s", s->name, strerror(errno));
    } else {
        s->gzip = s->left >= 2 && s->memory[0] == 0x1f && s->memory[1] == 0x8b;
    }
    if (!s->gzip) return LC_OK;
    s->chunk = malloc(INPUT_CHUNK);
    if (!s->chunk || inflateInit2(&s->z, 15 + 16) != Z_OK)
        return lc_fail(LC_ERR_MEMORY, "out of memory for decompressing %s", s->name);
    s->z_open = true;
    return LC_OK;
}

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Turns big-endian numbers of `width` bytes into this machine's; widens s8 and i16 into a new block. */
static lc_status to_native(const char *name, int code, int64_t count, lc_idx *out)
{
    unsigned char *p = out->data;
    if (code == 0x09 || code == 0x0B) {
        int32_t *wide = lc__data_alloc((size_t)count * 4, name);
        if (!wide) return LC_ERR_MEMORY;
        for (int64_t i = 0; i < count; i++)
            wide[i] = code == 0x09 ? (int8_t)p[i] : (int16_t)(uint16_t)(p[2 * i] << 8 | p[2 * i + 1]);
        free(out->data);
        out->data = wide;
        out->bytes = (size_t)count * 4;
    } else if (code == 0x0C || code == 0x0D) {
        for (int64_t i = 0; i < count; i++) {
            uint32_t v = be32(p + 4 * i);
            memcpy(p + 4 * i, &v, 4);
        }
    } else if (code == 0x0E) {
        for (int64_t i = 0; i < count; i++) {
            uint64_t v = (uint64_t)be32(p + 8 * i) << 32 | be32(p + 8 * i + 4);
            memcpy(p + 8 * i, &v, 8);
        }
    }
    return LC_OK;
}

static const struct {
    int code;
    size_t width; /* in the file */
    lc_dtype dtype;
} idx_types[] = {{0x08, 1, LC_U8},  {0x09, 1, LC_I32}, {0x0B, 2, LC_I32},
                 {0x0C, 4, LC_I32}, {0x0D, 4, LC_F32}, {0x0E, 8, LC_F64}};

/* "[60000, 28, 28]" */
static const char *shape_text(const lc_idx *x, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < x->ndim && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? ", " : "", (long long)x->shape[i]);
    if (at < size) snprintf(text + at, size - at, "]");
    return text;
}

static lc_status parse(source *s, lc_idx *out)
{
    unsigned char head[4], size[4], extra;
    char text[160];
    size_t got, width = 0, bytes;
    LC_TRY(content_read(s, head, 4, &got));
    if (got < 4 || head[0] != 0 || head[1] != 0)
        return lc_fail(LC_ERR_FORMAT, "%s is not an IDX file: it %s (an IDX file starts with 00 00, a type and a rank)",
                       s->name, got < 4 ? "has fewer than 4 bytes" : "starts otherwise");
    for (size_t i = 0; i < sizeof idx_types / sizeof *idx_types; i++)
        if (idx_types[i].code == head[2]) {
            out->dtype = idx_types[i].dtype;
            width = idx_types[i].width;
        }
    if (!width) return lc_fail(LC_ERR_FORMAT, "%s: 0x%02x is not an IDX data type", s->name, head[2]);
    if (head[3] < 1 || head[3] > LC_MAX_DIMS)
        return lc_fail(LC_ERR_FORMAT, "%s: rank %d is not supported; it must be 1 to %d", s->name, head[3],
                       LC_MAX_DIMS);
    out->ndim = head[3];
    bytes = width;
    for (int i = 0; i < out->ndim; i++) {
        LC_TRY(content_read(s, size, 4, &got));
        if (got < 4) return lc_fail(LC_ERR_FORMAT, "%s ends inside its header", s->name);
        out->shape[i] = be32(size);
        if (__builtin_mul_overflow(bytes, (size_t)out->shape[i], &bytes) || bytes > SIZE_MAX / 8)
            return lc_fail(LC_ERR_FORMAT, "%s: its header describes more data than fits into memory", s->name);
    }
    uint64_t holds =
        s->gzip ? (s->total > UINT64_MAX / DEFLATE_LIMIT ? UINT64_MAX : s->total * DEFLATE_LIMIT) : s->left;
    if (bytes > holds || (!s->gzip && bytes != holds))
        return lc_fail(LC_ERR_FORMAT, "%s: its header says %s, which is %zu bytes of data, but %s%llu", s->name,
                       shape_text(out, text, sizeof text), bytes,
                       s->gzip ? "a compressed file of this length holds at most " : "it has ",
                       (unsigned long long)holds);
    out->data = lc__data_alloc(bytes, s->name);
    if (!out->data) return LC_ERR_MEMORY;
    out->bytes = bytes;
    LC_TRY(content_read(s, out->data, bytes, &got));
    if (got < bytes)
        return lc_fail(LC_ERR_FORMAT, "%s: its header says %s, which is %zu bytes of data, but it has only %zu",
                       s->name, shape_text(out, text, sizeof text), bytes, got);
    /* There must be no further byte; asking for one also makes zlib verify the checksum. */
    LC_TRY(content_read(s, &extra, 1, &got));
    if (got)
        return lc_fail(LC_ERR_FORMAT, "%s: its header says %s, but there is more data", s->name,
                       shape_text(out, text, sizeof text));
    return to_native(s->name, head[2], (int64_t)(bytes / width), out);
}

static lc_status source_parse(source *s, lc_idx *out)
{
    lc_status status = source_open(s);
    if (status == LC_OK) status = parse(s, out);
    if (s->z_open) inflateEnd(&s->z);
    free(s->chunk);
    if (status < 0) lc_idx_release(out);
    return status;
}

lc_status lc_idx_parse(const void *bytes, size_t size, const char *name, lc_idx *out)
{
    if (size) LC__NEEDS(bytes, LC_ERR_ARGUMENT);
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_idx){0};
    source s = {.name = name, .memory = bytes, .left = size};
    return source_parse(&s, out);
}

lc_status lc_idx_read(const char *path, lc_idx *out)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_idx){0};
    source s = {.name = path};
    struct stat st;
    int fd;
    LC_TRY(lc__open_to_read(&lc__io_system, path, &fd, &st));
    s.file = fdopen(fd, "rb");
    if (!s.file) {
        lc__io_system.close(&lc__io_system, fd);
        return lc_fail(LC_ERR_MEMORY, "cannot open %s: %s", path, strerror(errno));
    }
    s.left = (uint64_t)st.st_size;
    lc_status status = source_parse(&s, out);
    fclose(s.file);
    return status;
}

void lc_idx_release(lc_idx *idx)
{
    if (!idx) return;
    free(idx->data);
    *idx = (lc_idx){0};
}

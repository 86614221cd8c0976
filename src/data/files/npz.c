/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's .npz: a ZIP archive of .npy files, stored or deflated, with 64-bit sizes where needed. A stored array is read
 * where it is, and its checksum is not verified, since that would read all of it. A deflated one has only its header
 * inflated when the file is opened, and the rest at its first use; then its checksum is verified.
 *
 * The archive's directory, at its end, is what counts: the headers in front of the members only say how long they are
 * themselves. */
#include "data/files/file.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define END_BYTES      22 /* the end record, without its comment */
#define MOST_COMMENT   65535
#define LOCATOR_BYTES  20
#define END64_BYTES    56
#define ENTRY_BYTES    46
#define LOCAL_BYTES    30
#define FIRST_INFLATED ((size_t)1 << 17) /* enough for any header of an .npy */
#define DEFLATE_LIMIT  1032              /* no byte inflates to more */
#define STORED         0
#define DEFLATED       8
#define FLAG_ENCRYPTED 1u

/* The numbers in lc__file_array.place; the packed bytes begin with the header of the .npy. */
enum { PACKED_AT, PACKED, UNPACKED, CHECKSUM };

static uint16_t le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t le32(const unsigned char *p)
{
    return le16(p) | (uint32_t)le16(p + 2) << 16;
}

static uint64_t le64(const unsigned char *p)
{
    return le32(p) | (uint64_t)le32(p + 4) << 32;
}

static bool is(const unsigned char *p, const char *magic)
{
    return !memcmp(p, "PK", 2) && !memcmp(p + 2, magic, 2);
}

static bool matches(const lc_array_file *f)
{
    return f->size >= 4 && (is(f->bytes, "\3\4") || is(f->bytes, "\5\6"));
}

/* ---- the directory ---- */

typedef struct directory {
    uint64_t at, bytes, n;
} directory;

/* The end record with 64-bit sizes, if a locator of one precedes the end record at `end`. */
static lc_status find_end64(const lc_array_file *f, uint64_t end, directory *d)
{
    if (end < LOCATOR_BYTES || !is(f->bytes + end - LOCATOR_BYTES, "\6\7")) return LC_OK;
    uint64_t at = le64(f->bytes + end - LOCATOR_BYTES + 8);
    if (at > end - LOCATOR_BYTES || end - LOCATOR_BYTES - at < END64_BYTES || !is(f->bytes + at, "\6\6"))
        return lc__file_fail(f, LC_ERR_FORMAT, NULL, "is not a valid .npz: its 64-bit end record is not where it says");
    d->n = le64(f->bytes + at + 32);
    d->bytes = le64(f->bytes + at + 40);
    d->at = le64(f->bytes + at + 48);
    return LC_OK;
}

static lc_status find_directory(const lc_array_file *f, directory *d)
{
    uint64_t end = 0;
    bool found = false;
    for (uint64_t back = END_BYTES; !found && back <= f->size && back <= END_BYTES + MOST_COMMENT; back++) {
        end = f->size - back;
        found = is(f->bytes + end, "\5\6") && le16(f->bytes + end + 20) == back - END_BYTES;
    }
    if (!found)
        return lc__file_fail(f, LC_ERR_FORMAT, NULL,
                             "is not a valid .npz: the directory at its end is missing; it is probably truncated");
    *d = (directory){le32(f->bytes + end + 16), le32(f->bytes + end + 12), le16(f->bytes + end + 10)};
    LC_TRY(find_end64(f, end, d));
    if (d->at > end || d->bytes > end - d->at || d->n > d->bytes / ENTRY_BYTES)
        return lc__file_fail(f, LC_ERR_FORMAT, NULL, "is not a valid .npz: its directory does not fit into it");
    return LC_OK;
}

typedef struct entry {
    const char *name;
    size_t n_name;
    unsigned flags, method;
    uint32_t checksum;
    uint64_t packed, unpacked, local;
} entry;

/* Sizes that do not fit 32 bits are in a field of their own, in this order. */
static bool take_sizes64(const unsigned char *extra, size_t n, entry *e)
{
    uint64_t *const wide[] = {&e->unpacked, &e->packed, &e->local};
    bool missing = e->unpacked == UINT32_MAX || e->packed == UINT32_MAX || e->local == UINT32_MAX;
    while (missing && n >= 4) {
        size_t k = le16(extra + 2), at = 4;
        if (k > n - 4) return false;
        if (le16(extra) != 1) {
            extra += 4 + k, n -= 4 + k;
            continue;
        }
        for (int i = 0; i < 3; i++) {
            if (*wide[i] != UINT32_MAX) continue;
            if (at + 8 > 4 + k) return false;
            *wide[i] = le64(extra + at);
            at += 8;
        }
        return true;
    }
    return !missing;
}

/* The entry at *at, which moves on; false if it does not fit or contradicts itself. */
static bool next_entry(const lc_array_file *f, uint64_t *at, uint64_t end, entry *e)
{
    const unsigned char *p = f->bytes + *at;
    if (end - *at < ENTRY_BYTES || !is(p, "\1\2")) return false;
    size_t extra = le16(p + 30), comment = le16(p + 32);
    *e = (entry){.name = (const char *)p + ENTRY_BYTES,
                 .n_name = le16(p + 28),
                 .flags = le16(p + 8),
                 .method = le16(p + 10),
                 .checksum = le32(p + 16),
                 .packed = le32(p + 20),
                 .unpacked = le32(p + 24),
                 .local = le32(p + 42)};
    size_t whole = ENTRY_BYTES + e->n_name + extra + comment;
    if (end - *at < whole) return false;
    *at += whole;
    return take_sizes64(p + ENTRY_BYTES + e->n_name, extra, e);
}

/* ---- members ---- */

static lc_status inflate_fail(const lc_array_file *f, const char *name, const z_stream *z, int rc)
{
    if (rc == Z_MEM_ERROR) return lc_fail(LC_ERR_MEMORY, "%s: out of memory during decompression", f->path);
    return lc__file_fail(f, LC_ERR_FORMAT, name, "cannot be inflated: %s",
                         z->msg ? z->msg : "its data end early or are longer than the archive says");
}

/* Inflates the first n bytes of an array's member into `to`; `whole`: these are all. *got may be less if not. */
static lc_status inflate_some(const lc_array_file *f, const lc__file_array *a, void *to, size_t n, bool whole,
                              size_t *got)
{
    z_stream z = {0};
    const unsigned char *from = f->bytes + a->place[PACKED_AT];
    uint64_t left = a->place[PACKED];
    if (inflateInit2(&z, -15) != Z_OK) return lc_fail(LC_ERR_MEMORY, "%s: out of memory during decompression", f->path);
    size_t at = 0;
    int rc = Z_OK;
    unsigned char more; /* so that the end of the stream is seen after the last byte */
    while (rc == Z_OK && (at < n || whole)) {
        if (z.avail_in == 0) {
            z.next_in = (Bytef *)(uintptr_t)from;
            z.avail_in = left < (1u << 30) ? (uInt)left : 1u << 30;
            from += z.avail_in, left -= z.avail_in;
        }
        size_t room = at < n ? n - at < (1u << 30) ? n - at : 1u << 30 : 1;
        z.next_out = at < n ? (Bytef *)to + at : &more;
        z.avail_out = (uInt)room;
        rc = inflate(&z, Z_NO_FLUSH);
        if (at == n && z.avail_out == 0) rc = Z_DATA_ERROR;
        at += at < n ? room - z.avail_out : 0;
    }
    bool ended = rc == Z_STREAM_END && left == 0 && z.avail_in == 0;
    bool fine = whole ? ended && at == n : rc == Z_OK || rc == Z_STREAM_END;
    *got = at;
    lc_status status = fine ? LC_OK : inflate_fail(f, a->info.name, &z, rc);
    inflateEnd(&z);
    return status;
}

/* Finds the bytes of a member that the archive's directory lists. */
static lc_status find_member(const lc_array_file *f, const entry *e, lc__file_array *a)
{
    const char *name = a->info.name;
    if (e->flags & FLAG_ENCRYPTED) return lc__file_refuse(a, "is encrypted");
    if (e->method != STORED && e->method != DEFLATED)
        return lc__file_refuse(a, "is compressed by method %u; save it with np.savez_compressed or np.savez",
                               e->method);
    const unsigned char *p = f->bytes + e->local;
    if (e->local > f->size || f->size - e->local < LOCAL_BYTES || !is(p, "\3\4"))
        return lc__file_fail(f, LC_ERR_FORMAT, name, "is not where the archive says");
    uint64_t head = LOCAL_BYTES + (uint64_t)le16(p + 26) + le16(p + 28), room = f->size - e->local;
    if (head > room || le16(p + 26) != e->n_name || memcmp(p + LOCAL_BYTES, e->name, e->n_name))
        return lc__file_fail(f, LC_ERR_FORMAT, name, "has another name in front of its data");
    if (e->packed > room - head)
        return lc__file_fail(f, LC_ERR_FORMAT, name, "is truncated: the archive says %llu bytes, and has %llu",
                             (unsigned long long)e->packed, (unsigned long long)(room - head));
    if (e->method == STORED ? e->packed != e->unpacked : e->unpacked / DEFLATE_LIMIT > e->packed)
        return lc__file_fail(f, LC_ERR_FORMAT, name, "cannot have %llu bytes: the archive has %llu of it",
                             (unsigned long long)e->unpacked, (unsigned long long)e->packed);
    a->place[PACKED_AT] = e->local + head;
    a->place[PACKED] = e->packed;
    a->place[UNPACKED] = e->unpacked;
    a->place[CHECKSUM] = e->checksum;
    return LC_OK;
}

static lc_status read_member(const lc_array_file *f, const entry *e, lc__file_array *a, unsigned char *first)
{
    uint64_t begin, bytes;
    LC_TRY(find_member(f, e, a));
    if (a->refused) return LC_OK;
    const unsigned char *from = f->bytes + a->place[PACKED_AT];
    if (e->method == STORED) {
        LC_TRY(lc__npy_header(f, from, e->unpacked, e->unpacked, a, &begin, &bytes));
        a->data = (const char *)from + begin;
        return LC_OK;
    }
    size_t n = e->unpacked < FIRST_INFLATED ? (size_t)e->unpacked : FIRST_INFLATED;
    LC_TRY(inflate_some(f, a, first, n, false, &n));
    return lc__npy_header(f, first, n, e->unpacked, a, &begin, &bytes);
}

/* A deflated array at its first use. */
static lc_status load(lc_array_file *f, lc__file_array *a)
{
    if (a->data) return LC_OK;
    lc__file_array again = {.info.name = a->info.name};
    uint64_t begin, bytes;
    size_t got, n = (size_t)a->place[UNPACKED];
    unsigned char *all = lc__data_alloc(n, f->path);
    if (!all) return LC_ERR_MEMORY;
    lc_status status = inflate_some(f, a, all, n, true, &got);
    if (status == LC_OK && crc32_z(0, all, n) != a->place[CHECKSUM])
        status = lc__file_fail(f, LC_ERR_FORMAT, a->info.name, "is damaged: its checksum is wrong");
    if (status == LC_OK) status = lc__npy_header(f, all, n, n, &again, &begin, &bytes);
    if (status < 0) {
        free(all);
        return status;
    }
    a->owned = all;
    a->data = (const char *)all + begin;
    return LC_OK;
}

static lc_status read_header(lc_array_file *f)
{
    directory d = {0};
    LC_TRY(find_directory(f, &d));
    unsigned char *first = malloc(FIRST_INFLATED);
    if (!first) return lc_fail(LC_ERR_MEMORY, "out of memory for opening %s", f->path);
    lc_status status = LC_OK;
    uint64_t at = d.at;
    for (uint64_t i = 0; i < d.n && status == LC_OK; i++) {
        entry e;
        lc__file_array *a;
        if (!next_entry(f, &at, d.at + d.bytes, &e)) {
            status = lc__file_fail(f, LC_ERR_FORMAT, NULL, "is not a valid .npz: entry %llu of its directory is broken",
                                   (unsigned long long)i);
            break;
        }
        if (e.n_name < 4 || memcmp(e.name + e.n_name - 4, ".npy", 4)) continue;
        if (memchr(e.name, 0, e.n_name)) {
            status = lc__file_fail(f, LC_ERR_FORMAT, NULL, "is not a valid .npz: a name has a zero character");
            break;
        }
        status = lc__file_add(f, e.name, e.n_name - 4, &a);
        if (status == LC_OK) status = read_member(f, &e, a, first);
    }
    free(first);
    if (status == LC_OK && !f->n && d.n)
        return lc__file_fail(f, LC_ERR_FORMAT, NULL, "is a ZIP archive without any .npy, and so not an .npz");
    return status;
}

const lc__file_kind lc__npz_kind = {.matches = matches, .read_header = read_header, .load = load};

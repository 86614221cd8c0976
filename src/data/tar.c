/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tar.h"
#include "base/grow.h"
#include "base/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Fields of a header: where, and how long. */
enum {
    NAME = 0,
    NAME_N = 100,
    SIZE = 124,
    SIZE_N = 12,
    SUM = 148,
    SUM_N = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_N = 155
};

/* Long names, and pax records of other things. */
#define MOST_NAME ((uint64_t)1 << 16)

/* ---- headers ---- */

/* A number in octal digits, or (with the first bit set) in base 256. */
static bool number_of(const uint8_t *field, int n, uint64_t *value)
{
    int i = 0;
    *value = 0;
    if (field[0] & 0x80) {
        *value = field[0] & 0x7F;
        for (i = 1; i < n; i++) {
            if (*value >> 54) return false;
            *value = *value << 8 | field[i];
        }
        return true;
    }
    while (i < n && field[i] == ' ') i++;
    if (i == n || field[i] < '0' || field[i] > '7') return false;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++) *value = *value << 3 | (uint64_t)(field[i] - '0');
    return i == n || field[i] == ' ' || field[i] == 0;
}

/* The sum of a header's bytes, with spaces for the field that holds it. */
static uint64_t sum_of(const uint8_t *block)
{
    uint64_t sum = 8 * ' ';
    for (int i = 0; i < LC__TAR_BLOCK; i++)
        if (i < SUM || i >= SUM + SUM_N) sum += block[i];
    return sum;
}

static bool has_sum(const uint8_t *block)
{
    uint64_t sum;
    return number_of(block + SUM, SUM_N, &sum) && sum == sum_of(block);
}

static bool is_file(uint8_t type)
{
    return type == '0' || type == 0 || type == '7';
}

/* Links, devices and folders: some headers have a size all the same. */
static bool has_no_data(uint8_t type)
{
    return type >= '1' && type <= '6';
}

bool lc__tar_is_header(const uint8_t block[LC__TAR_BLOCK], uint64_t size)
{
    uint64_t n;
    return has_sum(block) && is_file(block[TYPE]) && number_of(block + SIZE, SIZE_N, &n) && n == size;
}

void lc__tar_header(uint8_t block[LC__TAR_BLOCK], const char *name, uint64_t size)
{
    static const char owner[24] = "0000644\0"
                                  "0000000\0"
                                  "0000000"; /* mode, owner, group */
    static const char magic[8] = {'u', 's', 't', 'a', 'r', 0, '0', '0'};
    memset(block, 0, LC__TAR_BLOCK);
    snprintf((char *)block + NAME, NAME_N, "%s", name);
    memcpy(block + 100, owner, sizeof owner);
    snprintf((char *)block + SIZE, SIZE_N, "%011llo", (unsigned long long)(size & 077777777777));
    memcpy(block + 136, "00000000000", 12); /* time */
    block[TYPE] = '0';
    memcpy(block + MAGIC, magic, sizeof magic);
    snprintf((char *)block + SUM, SUM_N, "%06llo", (unsigned long long)sum_of(block));
    block[SUM + 7] = ' ';
}

/* ---- members ---- */

lc_status lc__tar_open(lc__tar *t, const char *path)
{
    struct stat st;
    *t = (lc__tar){.path = path, .fd = -1};
    LC_TRY(lc__open_to_read(&lc__io_system, path, &t->fd, &st));
    t->bytes = (uint64_t)st.st_size;
    return LC_OK;
}

void lc__tar_close(lc__tar *t)
{
    if (t->fd >= 0) lc__io_system.close(&lc__io_system, t->fd);
    free(t->name);
    *t = (lc__tar){.fd = -1};
}

static lc_status broken(const lc__tar *t, const char *what)
{
    return lc_fail(LC_ERR_FORMAT, "%s, byte %llu: %s", t->path, (unsigned long long)t->at, what);
}

/* Name of at most n bytes, after those that are there. */
static lc_status take_name(lc__tar *t, size_t begin, const void *text, size_t n)
{
    LC_TRY(lc__grow(&t->name, &t->cap_name, begin, n + 1, "the name of a member of a tar file"));
    memcpy(t->name + begin, text, n);
    t->name[begin + n] = 0;
    return LC_OK;
}

/* The name in a header of ustar, unless a header before it gave one. */
static lc_status name_of_header(lc__tar *t)
{
    const uint8_t *b = t->block;
    size_t n = strnlen((const char *)b + PREFIX, PREFIX_N), begin = 0;
    if (!memcmp(b + MAGIC, "ustar\0", 6) && n) {
        LC_TRY(take_name(t, 0, b + PREFIX, n));
        LC_TRY(take_name(t, n, "/", 1));
        begin = n + 1;
    }
    return take_name(t, begin, b + NAME, strnlen((const char *)b + NAME, NAME_N));
}

/* What headers before that of a file said about it. */
typedef struct extended {
    bool has_name, has_size, is_sparse;
    uint64_t size;
} extended;

/* Records of pax: "LENGTH KEY=VALUE\n". */
static lc_status take_pax(lc__tar *t, char *text, size_t n, extended *e)
{
    for (char *p = text, *end = text + n; p < end;) {
        char *key;
        const unsigned long long length = strtoull(p, &key, 10);
        if (key == p || *key != ' ' || length > (size_t)(end - p) || length < (size_t)(key - p) + 2 ||
            p[length - 1] != '\n')
            return broken(t, "a pax header is damaged");
        key++;
        char *value = memchr(key, '=', (size_t)(p + length - key));
        if (!value) return broken(t, "a pax header is damaged");
        const size_t value_n = (size_t)(p + length - 1 - ++value);
        p[length - 1] = 0;
        if (!strncmp(key, "path=", 5)) {
            LC_TRY(take_name(t, 0, value, value_n));
            e->has_name = true;
        }
        if (!strncmp(key, "size=", 5)) {
            char *last;
            e->size = strtoull(value, &last, 10);
            e->has_size = true;
            if (last == value || *last) return broken(t, "a pax header is damaged");
        }
        e->is_sparse |= !strncmp(key, "GNU.sparse.", 11);
        p += length;
    }
    return LC_OK;
}

/* A header about the next one: GNU's long name, or pax. */
static lc_status take_extended(lc__tar *t, uint8_t type, uint64_t size, extended *e)
{
    if (size > MOST_NAME) return broken(t, "a header about a member's name is too long");
    char *text = malloc((size_t)size + 1);
    if (!text) return lc_fail(LC_ERR_MEMORY, "out of memory: a header of %s", t->path);
    lc_status status = lc__read_all(&lc__io_system, t->fd, t->path, text, (size_t)size, t->at + LC__TAR_BLOCK);
    text[size] = 0;
    if (status == LC_OK && type == 'L') {
        status = take_name(t, 0, text, strnlen(text, (size_t)size));
        e->has_name = true;
    }
    if (status == LC_OK && type == 'x') status = take_pax(t, text, (size_t)size, e);
    free(text);
    return status;
}

static bool is_zero(const uint8_t *block)
{
    for (int i = 0; i < LC__TAR_BLOCK; i++)
        if (block[i]) return false;
    return true;
}

/* Reports that the n bytes at t->at are not a header. */
static lc_status no_header(const lc__tar *t, size_t n)
{
    static const struct {
        const char *begins, *name;
    } compressed[] = {{"\x1F\x8B", "gzip"}, {"BZh", "bzip2"}, {"\xFD\x37zXZ", "xz"}, {"\x28\xB5\x2F\xFD", "zstd"}};
    for (size_t i = 0; i < sizeof compressed / sizeof *compressed && !t->at; i++)
        if (n > 4 && !memcmp(t->block, compressed[i].begins, strlen(compressed[i].begins)))
            return lc_fail(LC_ERR_FORMAT, "%s is compressed by %s; decompress it, since samples are read at any place",
                           t->path, compressed[i].name);
    return broken(t, n < LC__TAR_BLOCK ? "the tar file ends early" : "there is no header of a tar file");
}

/* Reads the header at t->at; *size is 0 at the end. */
static lc_status read_header(lc__tar *t, uint64_t *size, bool *end)
{
    *end = t->at == t->bytes;
    if (*end) return LC_OK;
    const uint64_t left = t->bytes - t->at;
    const size_t n = left < LC__TAR_BLOCK ? (size_t)left : LC__TAR_BLOCK;
    LC_TRY(lc__read_all(&lc__io_system, t->fd, t->path, t->block, n, t->at));
    *end = n == LC__TAR_BLOCK && is_zero(t->block);
    if (*end) return LC_OK;
    if (n < LC__TAR_BLOCK || !has_sum(t->block)) return no_header(t, n);
    if (!number_of(t->block + SIZE, SIZE_N, size)) return broken(t, "a header has no size");
    return LC_OK;
}

/* Goes on after a member of `size` bytes. */
static lc_status pass(lc__tar *t, uint64_t size)
{
    const uint64_t data = t->at + LC__TAR_BLOCK, padded = (size + LC__TAR_BLOCK - 1) / LC__TAR_BLOCK * LC__TAR_BLOCK;
    if (size > t->bytes - data) return broken(t, "a member is longer than the tar file");
    t->at = padded > t->bytes - data ? t->bytes : data + padded;
    return LC_OK;
}

lc_status lc__tar_next(lc__tar *t, lc__tar_member *m)
{
    extended e = {0};
    *m = (lc__tar_member){0};
    for (;;) {
        uint64_t size = 0;
        bool end;
        LC_TRY(read_header(t, &size, &end));
        if (end) return LC_OK;
        const uint8_t type = t->block[TYPE];
        if (type == 'S' || (is_file(type) && e.is_sparse))
            return broken(t, "sparse members are not read; write the tar file without --sparse");
        if (is_file(type) && e.has_size) size = e.size;
        if (has_no_data(type)) size = 0;
        const uint64_t data = t->at + LC__TAR_BLOCK;
        if (type == 'L' || type == 'x') LC_TRY(take_extended(t, type, size, &e));
        if (is_file(type) && !e.has_name) LC_TRY(name_of_header(t));
        LC_TRY(pass(t, size));
        if (type == 'L' || type == 'x' || type == 'g' || type == 'K') continue;
        if (is_file(type)) {
            *m = (lc__tar_member){t->name, data, size};
            return LC_OK;
        }
        e = (extended){0};
    }
}

lc_status lc__tar_read(lc__tar *t, const lc__tar_member *m, void *data, size_t n)
{
    return lc__read_all(&lc__io_system, t->fd, t->path, data, n < m->size ? n : (size_t)m->size, m->offset);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A shard's index, SHARD.idx, so that opening it need not read all of its headers: a CSV file whose first row is
 * "lightc,1,BYTES OF THE TAR FILE," and whose others are the offset and size of a picture, its name and its target. It
 * lists the pictures with the default extensions. An index that is older than its shard is not used, since targets may
 * have changed. The header before a picture is read with it, so an index that is not the shard's is noticed. */
#include "data/shards/shards.h"
#include "base/handle.h"
#include "base/io.h"
#include "base/str.h"
#include "data/csv_reader.h"
#include "data/tar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_INDEX ((size_t)1 << 32)

static lc_status index_path(const char *path, char **index)
{
    return lc__format(index, "%s.idx", path);
}

/* ---- writing ---- */

static void add_quoted(lc__str *t, const char *text)
{
    lc__str_add_bytes(t, "\"", 1);
    for (; *text; text++) lc__str_add_bytes(t, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    lc__str_add_bytes(t, "\"", 1);
}

/* Anything else of that name is somebody's. A damaged index is made again, also one that is empty. */
static lc_status check_replaced(const char *index)
{
    static const char ours[] = "lightc,";
    char head[sizeof ours];
    struct stat st;
    int fd;
    lc_status status = lc__open_to_read(&lc__io_system, index, &fd, &st);
    if (status < 0) return status == LC_ERR_NOT_FOUND ? LC_OK : status;
    const size_t n = st.st_size < (off_t)sizeof head ? (size_t)st.st_size : sizeof head;
    status = lc__read_all(&lc__io_system, fd, index, head, n, 0);
    lc__io_system.close(&lc__io_system, fd);
    if (status < 0 || !n) return status;
    /* A version follows. */
    if (n == sizeof head && !memcmp(head, ours, sizeof ours - 1) && head[n - 1] >= '0' && head[n - 1] <= '9')
        return LC_OK;
    return lc_fail(LC_ERR_FORMAT, "\"%s\" is not an index of a shard; move it away", index);
}

static lc_status write_index(const char *path, const lc__image_list *list, const lc__names *targets)
{
    struct stat st;
    int fd;
    lc__str text = {0};
    char *index = NULL;
    LC_TRY(lc__open_to_read(&lc__io_system, path, &fd, &st));
    lc__io_system.close(&lc__io_system, fd);
    lc__str_add(&text, "lightc,1,%lld,\n", (long long)st.st_size);
    for (int64_t i = 0; i < list->files.n; i++) {
        lc__str_add(&text, "%llu,%llu,", (unsigned long long)list->places[i].offset,
                    (unsigned long long)list->places[i].size);
        add_quoted(&text, lc__names_at(&list->files, i));
        lc__str_add_bytes(&text, ",", 1);
        add_quoted(&text, lc__names_at(targets, i));
        lc__str_add_bytes(&text, "\n", 1);
    }
    lc_status status =
        text.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: the index of %s", path) : index_path(path, &index);
    if (status == LC_OK) status = check_replaced(index);
    if (status == LC_OK) status = lc__replace_file(&lc__io_system, index, text.s, text.n);
    free(index);
    lc__str_free(&text);
    return status;
}

lc_status lc_image_shards_index(const char *path, int64_t *samples)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    const lc_image_args defaults = lc_image_defaults();
    lc__image_list list = {0};
    lc__names targets = {0};
    lc_status status = lc__shard_list(path, 0, &defaults, &list, &targets);
    if (status == LC_OK) status = write_index(path, &list, &targets);
    if (status == LC_OK && samples) *samples = list.files.n;
    lc__names_free(&targets);
    lc__image_list_free(&list);
    return status;
}

/* ---- reading ---- */

typedef struct reader {
    const char *index, *shard;
    lc__csv at;
    uint64_t bytes; /* of the shard */
} reader;

static lc_status damaged(const reader *r, int64_t line, const char *what)
{
    return lc_fail(LC_ERR_FORMAT, "%s, line %lld: %s; make it again: lightc data index %s", r->index, (long long)line,
                   what, r->shard);
}

static bool whole_number(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* A row's four texts, cut off in place. */
static lc_status read_row(reader *r, const char *text[4])
{
    for (int i = 0; i < 4; i++) {
        lc__csv_value v;
        const int64_t line = r->at.line;
        const char *wrong = lc__csv_next_text(&r->at, &v);
        if (!wrong && v.last != (i == 3)) wrong = "a row has four columns";
        if (wrong) return damaged(r, line, wrong);
        text[i] = v.text;
    }
    return LC_OK;
}

static lc_status read_sample(reader *r, int64_t archive, lc__image_list *list, lc__names *targets)
{
    const char *text[4];
    const int64_t line = r->at.line;
    lc__image_place p = {.archive = archive};
    LC_TRY(read_row(r, text));
    if (!whole_number(text[0], &p.offset) || !whole_number(text[1], &p.size) || !*text[2] || !*text[3])
        return damaged(r, line, "there is no offset, size, name and target");
    if (p.offset < LC__TAR_BLOCK || p.offset > r->bytes || p.size > r->bytes - p.offset)
        return damaged(r, line, "the picture is not within the shard");
    LC_TRY(lc__image_list_add_place(list, text[2], &p));
    return lc__names_add(targets, text[3]);
}

static lc_status read_index(reader *r, int64_t archive, lc__image_list *list, lc__names *targets)
{
    const char *text[4];
    uint64_t bytes;
    if (!lc__csv_next_row(&r->at)) return damaged(r, 1, "it is empty");
    LC_TRY(read_row(r, text));
    if (strcmp(text[0], "lightc") != 0 || strcmp(text[1], "1") != 0 || !whole_number(text[2], &bytes))
        return damaged(r, 1, "it is not an index of this version of lightc");
    if (bytes != r->bytes) return damaged(r, 1, "the shard had another size when it was made");
    while (lc__csv_next_row(&r->at)) LC_TRY(read_sample(r, archive, list, targets));
    return LC_OK;
}

static bool is_older(const struct stat *a, const struct stat *b)
{
    if (a->st_mtim.tv_sec != b->st_mtim.tv_sec) return a->st_mtim.tv_sec < b->st_mtim.tv_sec;
    return a->st_mtim.tv_nsec < b->st_mtim.tv_nsec;
}

lc_status lc__shard_index_read(const char *path, int64_t archive, lc__image_list *list, lc__names *targets, bool *found)
{
    char *index, *text = NULL;
    struct stat st, own;
    size_t n;
    int fd;
    *found = false;
    LC_TRY(index_path(path, &index));
    lc_status status = lc__open_to_read(&lc__io_system, path, &fd, &st);
    if (status == LC_OK) lc__io_system.close(&lc__io_system, fd);
    *found = status == LC_OK && stat(index, &own) == 0 && !(S_ISREG(own.st_mode) && is_older(&own, &st));
    if (*found) status = lc__io_read_file(&lc__io_system, index, MOST_INDEX, &text, &n);
    if (*found && status == LC_OK) {
        reader r = {index, path, {text, text + n, 1, ','}, (uint64_t)st.st_size};
        status = read_index(&r, archive, list, targets);
    }
    free(text);
    free(index);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Class folders to shards: PREFIX-000000.tar and so on, each with its index, and PREFIX-classes.txt. */
#include "data/shards/shards.h"
#include "base/args.h"
#include "base/handle.h"
#include "base/io.h"
#include "base/remove.h"
#include "base/str.h"
#include "data/tar.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILE ((size_t)1 << 31)
#define CLASSES   "-classes.txt"

typedef struct packer {
    const char *dir, *prefix;
    lc_image_shards_pack_args a;
    char *path, *temp; /* of the shard that is written; NULL: none */
    int fd;
    uint64_t at;     /* its bytes so far */
    int64_t samples; /* its samples so far */
    int64_t shards;
} packer;

/* Nothing is overwritten: not the shard of that name, its index, nor the names of classes. */
static lc_status check_new(const char *path, const char *end)
{
    struct stat st;
    char *name;
    LC_TRY(lc__format(&name, "%s%s", path, end));
    lc_status status = LC_OK;
    if (lstat(name, &st) == 0) status = lc_fail(LC_ERR_STATE, "%s exists; remove it, or give another prefix", name);
    free(name);
    return status;
}

static lc_status begin_shard(packer *p)
{
    char *dir = NULL;
    p->at = 0;
    p->samples = 0;
    LC_TRY(lc__format(&p->path, "%s-%06lld.tar", p->prefix, (long long)p->shards));
    LC_TRY(check_new(p->path, ""));
    LC_TRY(check_new(p->path, ".idx"));
    if (!p->shards) LC_TRY(check_new(p->prefix, CLASSES));
    lc_status status = lc__path_dir(p->path, &dir);
    if (status == LC_OK) status = lc__make_dirs(&lc__io_system, dir);
    if (status == LC_OK) status = lc__temp_name(dir, "tmp", lc__path_base(p->path), &p->temp);
    if (status == LC_OK) status = lc__open_to_write(p->temp, O_WRONLY | O_CREAT | O_EXCL, &p->fd);
    free(dir);
    return status;
}

static lc_status put(packer *p, const void *data, size_t n)
{
    LC_TRY(lc__write_all(&lc__io_system, p->fd, p->temp, data, n, p->at));
    p->at += n;
    return LC_OK;
}

static lc_status put_member(packer *p, const char *name, const void *data, size_t n)
{
    static const uint8_t zeros[LC__TAR_BLOCK];
    uint8_t header[LC__TAR_BLOCK];
    lc__tar_header(header, name, n);
    LC_TRY(put(p, header, sizeof header));
    LC_TRY(put(p, data, n));
    return put(p, zeros, (LC__TAR_BLOCK - n % LC__TAR_BLOCK) % LC__TAR_BLOCK);
}

static lc_status end_shard(packer *p)
{
    static const uint8_t zeros[2 * LC__TAR_BLOCK];
    if (!p->path) return LC_OK;
    LC_TRY(put(p, zeros, sizeof zeros));
    if (lc__io_system.sync(&lc__io_system, p->fd) < 0) return lc__io_fail(errno, "write", p->temp);
    const int fd = p->fd;
    p->fd = -1;
    if (lc__io_system.close(&lc__io_system, fd) < 0) return lc__io_fail(errno, "write", p->temp);
    LC_TRY(lc__replace_by(&lc__io_system, p->temp, p->path));
    free(p->temp);
    p->temp = NULL;
    LC_TRY(lc_image_shards_index(p->path, NULL));
    free(p->path);
    p->path = NULL;
    p->shards++;
    return LC_OK;
}

static void give_up(packer *p)
{
    if (p->fd >= 0) lc__io_system.close(&lc__io_system, p->fd);
    if (p->temp) lc__remove_made(&lc__io_system, p->temp);
    free(p->temp);
    free(p->path);
}

/* Whether a sample with a picture of n bytes must go into another shard: it has three blocks more, two headers and a
 * target, and two end the shard. */
static bool is_full(const packer *p, size_t n)
{
    const uint64_t blocks = (n + LC__TAR_BLOCK - 1) / LC__TAR_BLOCK + 5;
    return p->samples >= p->a.samples || p->at + blocks * LC__TAR_BLOCK > (uint64_t)p->a.bytes;
}

static lc_status pack_sample(packer *p, const lc_dataset *d, int64_t number, int64_t i)
{
    char *path, *data = NULL, name[64], target[32];
    size_t n;
    LC_TRY(lc__path_join(p->dir, lc_image_file(d, i), &path));
    const char *extension = strrchr(path, '.') + 1;
    lc_status status = lc__io_read_file(&lc__io_system, path, MOST_FILE, &data, &n);
    if (status == LC_OK && p->path && is_full(p, n)) status = end_shard(p);
    if (status == LC_OK && !p->path) status = begin_shard(p);
    snprintf(name, sizeof name, "%010lld.%s", (long long)number, extension);
    for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
    if (status == LC_OK) status = put_member(p, name, data, n);
    snprintf(name, sizeof name, "%010lld.%s", (long long)number, LC__SHARD_TARGET);
    const int length = snprintf(target, sizeof target, "%lld", (long long)lc_image_target(d, i));
    if (status == LC_OK) status = put_member(p, name, target, (size_t)length);
    p->samples++;
    free(data);
    free(path);
    return status;
}

/* The file of names has one a line. */
static lc_status check_classes(const char *dir, const lc_dataset *d)
{
    for (int64_t i = 0; i < lc_image_classes(d); i++)
        if (strchr(lc_image_class(d, i), '\n'))
            return lc_fail(LC_ERR_ARGUMENT, "%s: the class %s has a line break in its name; rename its folder", dir,
                           lc_image_class(d, i));
    return LC_OK;
}

static lc_status write_classes(const packer *p, const lc_dataset *d)
{
    lc__str text = {0};
    char *path = NULL;
    for (int64_t i = 0; i < lc_image_classes(d); i++) lc__str_add(&text, "%s\n", lc_image_class(d, i));
    lc_status status = text.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: the names of classes")
                                   : lc__format(&path, "%s" CLASSES, p->prefix);
    if (status == LC_OK) status = lc__replace_file(&lc__io_system, path, text.s, text.n);
    free(path);
    lc__str_free(&text);
    return status;
}

static lc_status pack(packer *p, const lc_dataset *d)
{
    const int64_t n = lc_dataset_length(d);
    int64_t *order = malloc((size_t)n * sizeof *order);
    if (!order) return lc_fail(LC_ERR_MEMORY, "out of memory: the order of %lld pictures", (long long)n);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    if (p->a.shuffle) lc_random_permutation(lc_random_key_name(p->a.seed, "pack"), 0, n, order);
    lc_status status = LC_OK;
    for (int64_t i = 0; i < n && status == LC_OK; i++) status = pack_sample(p, d, i, order[i]);
    free(order);
    if (status == LC_OK) status = end_shard(p);
    return status == LC_OK ? write_classes(p, d) : status;
}

lc_status lc_image_shards_pack_with(const char *dir, const char *prefix, int64_t *shards,
                                    const lc_image_shards_pack_args *args)
{
    LC__NEEDS(dir, LC_ERR_ARGUMENT);
    LC__NEEDS(prefix, LC_ERR_ARGUMENT);
    LC__NEEDS(shards, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_image_shards_pack, lc_image_shards_pack_args, args);
    lc_dataset *d;
    *shards = 0;
    if (a.samples < 1 || a.bytes < 1)
        return lc_fail(LC_ERR_ARGUMENT, "shards of %lld samples and %lld bytes are not possible; both are at least 1",
                       (long long)a.samples, (long long)a.bytes);
    if (!*lc__path_base(prefix))
        return lc_fail(LC_ERR_ARGUMENT,
                       "the prefix \"%s\" has no name that shards could begin with, as in shards/train", prefix);
    /* A size, so that no picture is opened to find one. */
    LC_TRY(lc_image_folder_new(dir, &d, .height = 1, .width = 1, .allow_empty = a.allow_empty));
    packer p = {.dir = dir, .prefix = prefix, .a = a, .fd = -1};
    lc_status status = check_classes(dir, d);
    if (status == LC_OK) status = pack(&p, d);
    if (status < 0) give_up(&p);
    *shards = p.shards;
    lc_dataset_unref(d);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A dataset over shards: which tar files, and the order that reads them one after the other. */
#include "data/shards/shards.h"
#include "base/args.h"
#include "base/handle.h"
#include "base/io.h"
#include "data/data_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_SHARDS 1000000

/* ---- which files ---- */

static bool ends_in_tar(const char *name)
{
    const size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".tar");
}

/* The tar files in a folder, in the order of their names. */
static lc_status find_in_folder(const char *folder, lc__names *paths)
{
    DIR *dir = opendir(folder);
    lc_status status = LC_OK;
    if (!dir) return lc__io_fail(errno, "read the folder", folder);
    for (struct dirent *e; status == LC_OK && (errno = 0, e = readdir(dir));) {
        char *path = NULL;
        if (!ends_in_tar(e->d_name)) continue;
        status = lc__path_join(folder, e->d_name, &path);
        if (status == LC_OK) status = lc__names_add(paths, path);
        free(path);
    }
    if (status == LC_OK && errno) status = lc__io_fail(errno, "read the folder", folder);
    closedir(dir);
    if (status == LC_OK && !paths->n) status = lc_fail(LC_ERR_NOT_FOUND, "%s has no tar files (.tar)", folder);
    return status == LC_OK ? lc__names_sort(paths) : status;
}

/* "A{000..123}B": the names with each number, in as many digits as the first has. */
static lc_status find_in_range(const char *pattern, const char *open, lc__names *paths)
{
    char *end, *last;
    const unsigned long long from = strtoull(open + 1, &end, 10);
    const int digits = (int)(end - open - 1);
    const unsigned long long to = strncmp(end, "..", 2) ? 0 : strtoull(end + 2, &last, 10);
    if (digits < 1 || digits > 18 || strncmp(end, "..", 2) != 0 || last == end + 2 || *last != '}' || to < from ||
        to - from >= MOST_SHARDS || open[1] == '-' || open[1] == '+' || open[1] == ' ' || strchr(last, '{'))
        return lc_fail(LC_ERR_ARGUMENT, "%s: shards are numbered as in train-{000000..000123}.tar", pattern);
    lc_status status = LC_OK;
    for (unsigned long long i = from; i <= to && status == LC_OK; i++) {
        char *path;
        LC_TRY(lc__format(&path, "%.*s%0*llu%s", (int)(open - pattern), pattern, digits, i, last + 1));
        status = lc__names_add(paths, path);
        free(path);
    }
    return status;
}

static lc_status find_shards(const char *pattern, lc__names *paths)
{
    struct stat st;
    const char *open = strchr(pattern, '{');
    if (stat(pattern, &st) == 0)
        return S_ISDIR(st.st_mode) ? find_in_folder(pattern, paths) : lc__names_add(paths, pattern);
    return open ? find_in_range(pattern, open, paths) : lc__names_add(paths, pattern);
}

/* ---- the dataset ---- */

static lc_status read_shards(const lc_image_args *a, lc__image_list *list, lc__names *targets)
{
    const bool usual = !a->extensions && !a->target_extension; /* what an index is of */
    for (int64_t i = 0; i < list->archives.n; i++) {
        const char *path = lc__names_at(&list->archives, i);
        const int64_t before = list->files.n;
        bool found = false;
        if (usual) LC_TRY(lc__shard_index_read(path, i, list, targets, &found));
        if (!found) LC_TRY(lc__shard_list(path, i, a, list, targets));
        if (list->files.n == before) return lc_fail(LC_ERR_FORMAT, "%s has no samples", path);
    }
    return LC_OK;
}

static lc_status shards_new(const char *pattern, const lc_image_args *a, lc_dataset **out)
{
    lc__image_list list = {0};
    lc__names targets = {0};
    LC_TRY(lc__image_args_check(a));
    if (a->root || a->file_column || a->target_column || a->allow_empty)
        return lc_fail(LC_ERR_ARGUMENT, "%s: root, file_column, target_column and allow_empty are not for shards",
                       pattern);
    lc_status status = lc__image_list_root(&list, "");
    if (status == LC_OK) status = find_shards(pattern, &list.archives);
    if (status == LC_OK) status = read_shards(a, &list, &targets);
    if (status == LC_OK) status = lc__image_list_targets(&list, &targets);
    lc__names_free(&targets);
    if (status == LC_OK) return lc__image_dataset_new(&list, a, out);
    lc__image_list_free(&list);
    return status;
}

lc_status lc_image_shards_new_with(const char *pattern, lc_dataset **out, const lc_image_args *args)
{
    LC__TAKE_IF_GIVEN(a, lc_image, lc_image_args, args);
    if (out) *out = NULL;
    lc_status status = !pattern ? lc__is_null(__func__, "pattern") : !out ? lc__is_null(__func__, "out") : LC_OK;
    if (status == LC_OK) status = shards_new(pattern, &a, out);
    return lc__image_args_taken(status, &a);
}

int64_t lc_image_shards(const lc_dataset *d)
{
    LC__IS(d, DATASET, 0);
    const lc__image_list *list = lc__image_list_of(d);
    return list ? list->archives.n : 0;
}

/* ---- the order ---- */

typedef struct order {
    uint64_t seed;
    int64_t n, shards, buffer;
    int64_t begins[]; /* [shards + 1]: the first sample of each shard */
} order;

static int64_t order_length(void *self, int64_t epoch)
{
    (void)epoch;
    return ((const order *)self)->n;
}

/* As if samples passed through a buffer, out of which one leaves at random when the next comes. The buffer is the part
 * of `indices` that follows: place i gets one of those at i to i + buffer - 1, and what it had waits in that place. */
static void shuffle_through(const order *o, uint64_t key, int64_t *indices)
{
    for (int64_t i = 0; i < o->n; i++) {
        const int64_t left = o->n - i, room = left < o->buffer ? left : o->buffer;
        const int64_t k = i + (int64_t)lc_random_below(key, (uint64_t)i, (uint64_t)room), swapped = indices[i];
        indices[i] = indices[k];
        indices[k] = swapped;
    }
}

static lc_status order_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    (void)n;
    const order *o = self;
    int64_t *shards = malloc((size_t)o->shards * sizeof *shards), at = 0;
    if (!shards) return lc_fail(LC_ERR_MEMORY, "out of memory: the order of %lld shards", (long long)o->shards);
    lc_random_permutation(lc_random_key_name(o->seed, "shards"), epoch, o->shards, shards);
    for (int64_t s = 0; s < o->shards; s++)
        for (int64_t i = o->begins[shards[s]]; i < o->begins[shards[s] + 1]; i++) indices[at++] = i;
    free(shards);
    shuffle_through(o, lc_random_key(lc_random_key_name(o->seed, "buffer"), (uint64_t)epoch), indices);
    return LC_OK;
}

static const lc_sampler_ops order_ops = {
    LC_SAMPLER_OPS_INIT, .name = "shards", .length = order_length, .order = order_order, .free = lc__owned_free,
};

lc_status lc_image_shards_sampler(const lc_dataset *d, int64_t buffer, uint64_t seed, lc_sampler *out)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc__image_list *list = lc__image_list_of(d);
    *out = (lc_sampler){0};
    if (!list) return LC_ERR_ARGUMENT;
    if (!list->archives.n) return lc_fail(LC_ERR_ARGUMENT, "dataset '%s' has no shards", d->ops.name);
    if (buffer < 1) return lc_fail(LC_ERR_ARGUMENT, "a buffer of %lld samples; it has at least 1", (long long)buffer);
    order *o = lc__owned_new(sizeof *o + (size_t)(list->archives.n + 1) * sizeof *o->begins, NULL);
    if (!o) return lc_fail(LC_ERR_MEMORY, "out of memory: the order of shards");
    o->seed = seed;
    o->n = list->files.n;
    o->shards = list->archives.n;
    o->buffer = buffer;
    for (int64_t i = 0; i < o->n; i++) o->begins[list->places[i].archive + 1] = i + 1;
    *out = (lc_sampler){&order_ops, o};
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of picture files, which folders, CSV files, functions and shards fill. */
#include "data/image_files.h"
#include "base/grow.h"
#include "base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__names_add(lc__names *names, const char *name)
{
    size_t n = strlen(name) + 1;
    LC_TRY(lc__grow(&names->at, &names->cap_n, names->n, 1, "names of files"));
    LC_TRY(lc__grow(&names->text, &names->cap, names->used, n, "names of files"));
    memcpy(names->text + names->used, name, n);
    names->at[names->n++] = names->used;
    names->used += n;
    return LC_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

lc_status lc__names_sort(lc__names *names)
{
    const char **order = malloc(((size_t)names->n + 1) * sizeof *order);
    lc__names sorted = {0};
    lc_status status = order ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: names of files");
    for (int64_t i = 0; order && i < names->n; i++) order[i] = lc__names_at(names, i);
    if (order) qsort(order, (size_t)names->n, sizeof *order, by_name);
    for (int64_t i = 0; status == LC_OK && i < names->n; i++) status = lc__names_add(&sorted, order[i]);
    free(order);
    lc__names_free(names);
    *names = sorted;
    return status;
}

void lc__names_free(lc__names *names)
{
    free(names->text);
    free(names->at);
    *names = (lc__names){0};
}

lc_status lc__image_list_add(lc__image_list *list, const char *file, int64_t target)
{
    LC_TRY(lc__grow(&list->targets, &list->cap_targets, list->files.n, 1, "targets of files"));
    list->targets[list->files.n] = target;
    return lc__names_add(&list->files, file);
}

lc_status lc__image_list_add_place(lc__image_list *list, const char *file, const lc__image_place *place)
{
    LC_TRY(lc__grow(&list->places, &list->cap_places, list->files.n, 1, "places of files"));
    list->places[list->files.n] = *place;
    return lc__image_list_add(list, file, 0);
}

lc_status lc__image_list_root(lc__image_list *list, const char *root)
{
    size_t n = strlen(root);
    return lc__format(&list->root, n && root[n - 1] != '/' ? "%s/" : "%s", root);
}

void lc__image_list_free(lc__image_list *list)
{
    lc__names_free(&list->files);
    lc__names_free(&list->classes);
    lc__names_free(&list->archives);
    free(list->places);
    free(list->targets);
    free(list->root);
    *list = (lc__image_list){0};
}

/* ---- targets ---- */

bool lc__target_is_integer(const char *text, int64_t *value, bool *fits)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    *fits = !errno;
    return end != text && !*end;
}

lc_status lc__image_list_targets(lc__image_list *list, const lc__names *names)
{
    bool integers = true;
    const char *large = NULL; /* an integer that does not fit */
    for (int64_t i = 0; i < names->n && integers; i++) {
        bool fits;
        integers = lc__target_is_integer(lc__names_at(names, i), &list->targets[i], &fits);
        if (!fits) large = lc__names_at(names, i);
    }
    if (integers && large)
        return lc_fail(LC_ERR_FORMAT, "all targets are integers, and %.60s does not fit into 64 bits", large);
    if (integers) return LC_OK;
    const char **order = malloc((size_t)names->n * sizeof *order);
    if (!order) return lc_fail(LC_ERR_MEMORY, "out of memory: names of classes");
    lc_status status = LC_OK;
    int64_t different = 0;
    for (int64_t i = 0; i < names->n; i++) order[i] = lc__names_at(names, i);
    qsort(order, (size_t)names->n, sizeof *order, by_name);
    for (int64_t i = 0; i < names->n; i++)
        if (!different || strcmp(order[different - 1], order[i]) != 0) order[different++] = order[i];
    for (int64_t i = 0; i < different && status == LC_OK; i++) status = lc__names_add(&list->classes, order[i]);
    for (int64_t i = 0; i < names->n && status == LC_OK; i++) {
        const char *name = lc__names_at(names, i);
        const char **found = bsearch(&name, order, (size_t)different, sizeof *order, by_name);
        list->targets[i] = found - order;
    }
    free(order);
    return status;
}

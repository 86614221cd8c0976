/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures that a CSV file or a function lists. */
#include "data/image_dataset.h"
#include "base/args.h"
#include "base/handle.h"
#include "base/io.h"
#include "data/csv_reader.h"
#include "data_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 34)

/* ---- rows of a CSV file ---- */

typedef struct csv {
    const char *path;
    lc__csv at; /* in text of this process, which is cut into fields in place; a zero follows it */
} csv;

/* Cuts the next field off; *last: it ends its row. */
static lc_status next_field(csv *c, const char **field, bool *last)
{
    lc__csv_value v;
    const char *wrong = lc__csv_next_text(&c->at, &v);
    *field = v.text;
    *last = v.last;
    return wrong ? lc_fail(LC_ERR_FORMAT, "%s, line %lld: %s", c->path, (long long)v.line, wrong) : LC_OK;
}

/* Cuts off what is blank around a field, in place. */
static const char *without_blanks(const char *field)
{
    while (isspace((unsigned char)*field)) field++;
    size_t n = strlen(field);
    while (n && isspace((unsigned char)field[n - 1])) n--;
    ((char *)(uintptr_t)field)[n] = 0;
    return field;
}

/* The columns that are wanted. */
typedef struct columns {
    int64_t file, target;
} columns;

static lc_status read_row(csv *c, const columns *wanted, const char **file, const char **target)
{
    bool last = false;
    int64_t n = 0, line = c->at.line;
    *file = *target = NULL;
    for (; !last; n++) {
        const char *field;
        LC_TRY(next_field(c, &field, &last));
        if (n == wanted->file) *file = field;
        if (n == wanted->target) *target = field;
    }
    if (!*file || !*target)
        return lc_fail(LC_ERR_FORMAT,
                       "%s, line %lld has %lld columns; the file is column %lld, and the target column %lld", c->path,
                       (long long)line, (long long)n, (long long)wanted->file + 1, (long long)wanted->target + 1);
    *target = without_blanks(*target);
    if (**file && **target) return LC_OK;
    return lc_fail(LC_ERR_FORMAT, "%s, line %lld names no %s", c->path, (long long)line, **file ? "target" : "file");
}

/* Finds columns by the names in the first row. */
static lc_status find_columns(csv *c, const char *file, const char *target, columns *out)
{
    bool last = !lc__csv_next_row(&c->at);
    *out = (columns){-1, -1};
    for (int64_t n = 0; !last; n++) {
        const char *field;
        LC_TRY(next_field(c, &field, &last));
        if (!strcmp(field, file)) out->file = n;
        if (!strcmp(field, target)) out->target = n;
    }
    if (out->file >= 0 && out->target >= 0) return LC_OK;
    return lc_fail(LC_ERR_FORMAT, "%s: its first line names no column \"%s\"", c->path, out->file < 0 ? file : target);
}

static bool is_integer(const char *target)
{
    int64_t number;
    bool fits;
    return lc__target_is_integer(target, &number, &fits);
}

static bool has_extension(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot && !strchr(dot, '/');
}

static bool only_first_lacks(const lc__names *names, bool (*property)(const char *))
{
    int64_t i = 1;
    if (names->n < 2 || property(lc__names_at(names, 0))) return false;
    while (i < names->n && property(lc__names_at(names, i))) i++;
    return i == names->n;
}

/* Without names of columns, the first line is a picture. One whose target is the only name, or whose file is the only
 * one without an extension, is not. */
static lc_status check_no_header(const csv *c, const lc__names *files, const lc__names *targets)
{
    const bool target = only_first_lacks(targets, is_integer);
    if (!target && !only_first_lacks(files, has_extension)) return LC_OK;
    return lc_fail(LC_ERR_FORMAT,
                   "%s: the first %s is \"%s\", and all others %s; if the first line names the columns, give "
                   ".file_column and .target_column",
                   c->path, target ? "target" : "file", lc__names_at(target ? targets : files, 0),
                   target ? "are integers" : "end as files do (.jpg)");
}

/* ---- the datasets ---- */

static lc_status read_list(csv *c, const lc_image_args *a, lc__image_list *list)
{
    columns wanted = {0, 1};
    lc__names targets = {0};
    lc_status status = LC_OK;
    const char *wrong = lc__csv_begin(&c->at);
    if (wrong) return lc_fail(LC_ERR_FORMAT, "%s: %s", c->path, wrong);
    if (a->file_column) LC_TRY(find_columns(c, a->file_column, a->target_column, &wanted));
    while (lc__csv_next_row(&c->at)) {
        const char *file, *target;
        LC_TRY_GOTO(status, done, read_row(c, &wanted, &file, &target));
        LC_TRY_GOTO(status, done, lc__image_list_add(list, file, 0));
        LC_TRY_GOTO(status, done, lc__names_add(&targets, target));
    }
    if (!list->files.n) status = lc_fail(LC_ERR_FORMAT, "%s lists no files", c->path);
    if (status == LC_OK && !a->file_column) status = check_no_header(c, &list->files, &targets);
    if (status == LC_OK) status = lc__image_list_targets(list, &targets);
done:
    lc__names_free(&targets);
    return status;
}

static lc_status check_list_args(const lc_image_args *a, const char *what)
{
    LC_TRY(lc__image_args_check(a));
    if (a->extensions || a->allow_empty || a->target_extension)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: extensions, allow_empty and target_extension are for folders and shards, not for a list",
                       what);
    if (!a->file_column != !a->target_column)
        return lc_fail(LC_ERR_ARGUMENT, "%s: file_column and target_column are given together, or neither", what);
    return LC_OK;
}

static lc_status csv_new(const char *path, const lc_image_args *a, lc_dataset **out)
{
    lc__image_list list = {0};
    char *folder = NULL;
    void *text;
    size_t n;
    LC_TRY(check_list_args(a, path));
    LC_TRY(lc__read_file(path, MOST_BYTES, &text, &n));
    csv c = {.path = path, .at = {text, (char *)text + n, 1, ','}};
    lc_status status = a->root ? LC_OK : lc__path_dir(path, &folder);
    if (status == LC_OK) status = lc__image_list_root(&list, a->root ? a->root : folder);
    if (status == LC_OK) status = read_list(&c, a, &list);
    free(folder);
    free(text);
    if (status == LC_OK) return lc__image_dataset_new(&list, a, out);
    lc__image_list_free(&list);
    return status;
}

lc_status lc_image_list_new_with(const char *path, lc_dataset **out, const lc_image_args *args)
{
    LC__TAKE_IF_GIVEN(a, lc_image, lc_image_args, args);
    if (out) *out = NULL;
    lc_status status = !path ? lc__is_null(__func__, "path") : !out ? lc__is_null(__func__, "out") : LC_OK;
    if (status == LC_OK) status = csv_new(path, &a, out);
    return lc__image_args_taken(status, &a);
}

static lc_status function_new(int64_t n, lc_image_list_fn *fn, void *ctx, const lc_image_args *a, lc_dataset **out)
{
    lc__image_list list = {0};
    LC_TRY(check_list_args(a, "a list of pictures"));
    if (a->file_column) return lc_fail(LC_ERR_ARGUMENT, "file_column and target_column are for CSV files");
    lc_status status = lc__image_list_root(&list, a->root ? a->root : "");
    for (int64_t i = 0; i < n && status == LC_OK; i++) {
        const char *file = NULL;
        int64_t target = 0;
        unsigned before = lc__error_count();
        status = lc__answered(fn(ctx, i, &file, &target), before, "the function", "it");
        if (status == LC_OK && !file) status = lc_fail(LC_ERR_USER, "the function named no file");
        if (status < 0) (void)lc_fail_context(status, "sample %lld of a list of pictures", (long long)i);
        if (status == LC_OK) status = lc__image_list_add(&list, file, target);
    }
    if (status == LC_OK) return lc__image_dataset_new(&list, a, out);
    lc__image_list_free(&list);
    return status;
}

lc_status lc_image_list_from_with(int64_t n, lc_image_list_fn *fn, void *ctx, lc_dataset **out,
                                  const lc_image_args *args)
{
    LC__TAKE_IF_GIVEN(a, lc_image, lc_image_args, args);
    if (out) *out = NULL;
    lc_status status = !fn ? lc__is_null(__func__, "fn") : !out ? lc__is_null(__func__, "out") : LC_OK;
    if (status == LC_OK) status = function_new(n, fn, ctx, &a, out);
    return lc__image_args_taken(status, &a);
}

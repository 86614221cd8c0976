/* SPDX-License-Identifier: Apache-2.0 */
/* The arrays of a field: one, several by name, or all that are left. */
#include "data/files/names.h"
#include "base/grow.h"
#include "data/files/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct list {
    int64_t *which;
    int64_t n, capacity;
} list;

static lc_status add(list *l, int64_t i)
{
    LC_TRY(lc__grow(&l->which, &l->capacity, l->n, 1, "the arrays of a field"));
    l->which[l->n++] = i;
    return LC_OK;
}

static lc_status no_such_array(const lc_array_file *f, const char *name)
{
    char names[300] = "";
    size_t at = 0;
    for (int64_t i = 0; i < f->n && at < sizeof names - 1; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s'%s'", i ? ", " : "", f->arrays[i].info.name);
    if (at >= sizeof names) memcpy(names + sizeof names - 4, "...", 4);
    return lc_fail(LC_ERR_NOT_FOUND, "%s has no array '%.200s'; it has %s", f->path, name, f->n ? names : "none");
}

/* Takes the next name off *text: up to a comma, or in quotes, where two quotes are one. */
static void next_name(const char **text, char *name)
{
    const char *p = *text;
    if (*p == '"') {
        for (p++; *p && (*p != '"' || p[1] == '"'); p++) {
            if (*p == '"') p++;
            *name++ = *p;
        }
        if (*p == '"') p++;
    }
    while (*p && *p != ',') *name++ = *p++;
    *name = 0;
    *text = p;
}

static lc_status add_named(const lc_file_field *field, list *l)
{
    const lc_array_file *f = field->file;
    int64_t whole = lc_array_file_find(f, field->arrays);
    if (whole >= 0) return add(l, whole);
    char *name = malloc(strlen(field->arrays) + 1);
    if (!name) return lc_fail(LC_ERR_MEMORY, "out of memory for the names of arrays");
    lc_status status = LC_OK;
    for (const char *p = field->arrays;; p++) {
        next_name(&p, name);
        int64_t i = lc_array_file_find(f, name);
        status = i < 0 ? no_such_array(f, name) : add(l, i);
        if (status < 0 || !*p) break;
    }
    free(name);
    return status;
}

static bool is_rest(const lc_file_field *field)
{
    return field->arrays && !strcmp(field->arrays, "*");
}

/* All arrays that no other field of the same file names. */
static lc_status add_rest(int n, const lc_file_field *fields, const lc_file_field *field, list *l)
{
    const lc_array_file *f = field->file;
    bool *taken = calloc((size_t)(f->n ? f->n : 1), sizeof *taken);
    if (!taken) return lc_fail(LC_ERR_MEMORY, "out of memory for the names of arrays");
    lc_status status = LC_OK;
    for (int k = 0; k < n && status == LC_OK; k++) {
        int64_t *which = NULL, count = 0;
        if (&fields[k] == field || fields[k].file != f || is_rest(&fields[k])) continue;
        status = lc__arrays_of_field(n, fields, &fields[k], &which, &count);
        for (int64_t i = 0; i < count && status == LC_OK; i++) taken[which[i]] = true;
        free(which);
    }
    for (int64_t i = 0; i < f->n && status == LC_OK; i++)
        if (!taken[i]) status = add(l, i);
    free(taken);
    if (status == LC_OK && !l->n)
        return lc_fail(LC_ERR_ARGUMENT, "%s has no arrays left for field '%s'", f->path, field->name);
    return status;
}

lc_status lc__arrays_of_field(int n, const lc_file_field *fields, const lc_file_field *field, int64_t **which,
                              int64_t *count)
{
    const lc_array_file *f = field->file;
    list l = {0};
    lc_status status;
    if (is_rest(field)) {
        status = add_rest(n, fields, field, &l);
    } else if (field->arrays) {
        status = add_named(field, &l);
    } else {
        int64_t i = f->n == 1 ? 0 : field->name ? lc_array_file_find(f, field->name) : -1;
        status = i < 0 ? no_such_array(f, field->name ? field->name : "") : add(&l, i);
    }
    if (status < 0) {
        free(l.which);
        return status;
    }
    *which = l.which, *count = l.n;
    return LC_OK;
}

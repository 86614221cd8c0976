/* SPDX-License-Identifier: Apache-2.0 */
/* State trees as JSON, and back. NaN and Inf, which JSON does not have, are the texts "nan", "inf" and "-inf";
 * lc_state_get_double takes them back. */
#include "base/json.h"
#include "base/state_node.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lc_status print(const lc_state *s, lc__text *t, int level)
{
    char number[LC__DOUBLE_SIZE + 8];
    switch (s->kind) {
    case LC_STATE_NULL:
        return lc__text_puts(t, "null");
    case LC_STATE_BOOL:
        return lc__text_puts(t, s->u.boolean ? "true" : "false");
    case LC_STATE_INT:
        snprintf(number, sizeof number, "%" PRId64, s->u.integer);
        return lc__text_puts(t, number);
    case LC_STATE_DOUBLE:
        lc__print_double(number, s->u.number);
        return isfinite(s->u.number) ? lc__text_puts(t, number) : lc__text_quoted(t, number);
    case LC_STATE_TEXT:
        return lc__text_quoted(t, s->u.text);
    case LC_STATE_ARRAY:
    case LC_STATE_OBJECT:
        break;
    }
    if (level == LC__JSON_DEPTH) return lc_fail(LC_ERR_ARGUMENT, "a state tree has more than %d levels", level);
    bool object = s->kind == LC_STATE_OBJECT;
    LC_TRY(lc__text_puts(t, object ? "{" : "["));
    for (int64_t i = 0; i < s->u.list.n; i++) {
        const lc_state *child = s->u.list.items[i];
        if (i) LC_TRY(lc__text_puts(t, object ? "," : ", "));
        if (object) {
            LC_TRY(lc__text_puts(t, "\n"));
            for (int k = 0; k <= level; k++) LC_TRY(lc__text_puts(t, "  "));
            LC_TRY(lc__text_quoted(t, child->key));
            LC_TRY(lc__text_puts(t, ": "));
        }
        LC_TRY(print(child, t, level + 1));
    }
    if (object && s->u.list.n) {
        LC_TRY(lc__text_puts(t, "\n"));
        for (int k = 0; k < level; k++) LC_TRY(lc__text_puts(t, "  "));
    }
    return lc__text_puts(t, object ? "}" : "]");
}

lc_status lc_state_print(const lc_state *s, char **text, size_t *length)
{
    LC__IS(s, STATE, LC_ERR_ARGUMENT);
    LC__NEEDS(text, LC_ERR_ARGUMENT);
    lc__text t = {0};
    lc_status status = print(s, &t, 0);
    if (status >= 0) status = lc__text_puts(&t, "\n");
    if (status < 0) {
        lc__text_release(&t);
        return status;
    }
    *text = t.data;
    if (length) *length = t.length;
    return LC_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(lc_state *const *)a)->key, (*(lc_state *const *)b)->key);
}

/* Refuses an object with duplicate keys. Sorting keeps this from being quadratic for hostile files. */
static lc_status check_duplicates(const lc__json_reader *r, const lc_state *s)
{
    int64_t n = s->u.list.n;
    if (n < 2) return LC_OK;
    lc_state **sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return lc_fail(LC_ERR_MEMORY, "out of memory: %" PRId64 " members of a state tree", n);
    memcpy(sorted, s->u.list.items, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_key);
    lc_status status = LC_OK;
    for (int64_t i = 1; i < n && status >= 0; i++)
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key)) {
            char text[160];
            snprintf(text, sizeof text, "the key \"%.100s\" appears twice in one object", sorted[i]->key);
            status = lc__json_fail(r, text);
        }
    free(sorted);
    return status;
}

static lc_status copy_text(const lc__json_reader *r, char **out)
{
    if (memchr(r->text, 0, r->text_length)) return lc__json_fail(r, "a string with a zero character");
    *out = strndup(r->text, r->text_length);
    if (!*out) return lc_fail(LC_ERR_MEMORY, "out of memory: a text of %zu bytes", r->text_length);
    return LC_OK;
}

/* Builds the value that begins with `token`; *out is NULL on failure. */
static lc_status build(lc__json_reader *r, lc__json_token token, lc_state **out)
{
    static const lc_state_kind kinds[] = {
        [LC__JSON_OBJECT] = LC_STATE_OBJECT, [LC__JSON_ARRAY] = LC_STATE_ARRAY,   [LC__JSON_TEXT] = LC_STATE_TEXT,
        [LC__JSON_INT] = LC_STATE_INT,       [LC__JSON_DOUBLE] = LC_STATE_DOUBLE, [LC__JSON_BOOL] = LC_STATE_BOOL,
        [LC__JSON_NULL] = LC_STATE_NULL,
    };
    lc_state *s = NULL, *child = NULL;
    char *key = NULL;
    lc_status status;
    LC_TRY_GOTO(status, done, lc__state_node(LC_STATE_NULL, &s));
    s->line = r->line;
    switch (token) {
    case LC__JSON_TEXT:
        LC_TRY_GOTO(status, done, copy_text(r, &s->u.text));
        break;
    case LC__JSON_INT:
        s->u.integer = r->integer;
        break;
    case LC__JSON_DOUBLE:
        s->u.number = r->number;
        break;
    case LC__JSON_BOOL:
        s->u.boolean = r->boolean;
        break;
    default:
        break;
    }
    s->kind = kinds[token];
    if (token != LC__JSON_OBJECT && token != LC__JSON_ARRAY) goto done;
    for (;;) {
        LC_TRY_GOTO(status, done, lc__json_next(r, &token));
        if (token == LC__JSON_OBJECT_END || token == LC__JSON_ARRAY_END) break;
        if (token == LC__JSON_KEY) {
            LC_TRY_GOTO(status, done, copy_text(r, &key));
            LC_TRY_GOTO(status, done, lc__json_next(r, &token));
        }
        LC_TRY_GOTO(status, done, build(r, token, &child));
        child->key = key, key = NULL;
        LC_TRY_GOTO(status, done, lc__state_append(s, child));
        child = NULL;
    }
    if (token == LC__JSON_OBJECT_END) status = check_duplicates(r, s);
done:
    free(key);
    lc_state_free(child);
    if (status < 0) {
        lc_state_free(s);
        s = NULL;
    }
    *out = s;
    return status;
}

lc_status lc_state_parse(const char *text, size_t length, lc_state **out)
{
    LC__NEEDS(text, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    lc__json_reader r;
    lc__json_token token;
    lc_state *s = NULL;
    lc_status status = lc__json_begin(&r, text, length);
    if (status >= 0) status = lc__json_next(&r, &token);
    if (status >= 0) status = build(&r, token, &s);
    if (status >= 0) status = lc__json_next(&r, &token); /* nothing may follow */
    lc__json_release(&r);
    if (status < 0)
        lc_state_free(s);
    else
        *out = s;
    return status;
}

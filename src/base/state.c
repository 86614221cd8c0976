/* SPDX-License-Identifier: Apache-2.0 */
/* State trees in memory. */
#include "base/grow.h"
#include "base/state_node.h"
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__state_node(lc_state_kind kind, lc_state **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return lc_fail(LC_ERR_MEMORY, "out of memory: a node of a state tree");
    (*out)->mark = LC__MARK_OF(STATE);
    (*out)->kind = kind;
    return LC_OK;
}

lc_status lc_state_new(lc_state **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return lc__state_node(LC_STATE_OBJECT, out);
}

/* Recurses as deep as the tree; trees from files are at most LC__JSON_DEPTH deep. */
void lc_state_free(lc_state *s)
{
    if (!s) return;
    LC__IS_OR_NULL(s, STATE, );
    if (s->kind == LC_STATE_ARRAY || s->kind == LC_STATE_OBJECT) {
        for (int64_t i = 0; i < s->u.list.n; i++) lc_state_free(s->u.list.items[i]);
        free(s->u.list.items);
    } else if (s->kind == LC_STATE_TEXT) {
        free(s->u.text);
    }
    free(s->key);
    lc__mark_clear(&s->mark);
    free(s);
}

/* ---- setting ---- */

lc_status lc__state_append(lc_state *s, lc_state *child)
{
    LC_TRY(lc__grow(&s->u.list.items, &s->u.list.capacity, s->u.list.n, 1, "members of a state tree"));
    s->u.list.items[s->u.list.n++] = child;
    return LC_OK;
}

/* Puts a node into its place; takes ownership of it, also on failure. */
static lc_status put(lc_state *s, const char *key, lc_state *child)
{
    lc_status status = LC_OK;
    if (!s) {
        status = lc_fail(LC_ERR_ARGUMENT, "state \"%s\" cannot be set: the tree is NULL", key ? key : "");
        goto fail;
    }
    if (!lc__has_mark(s, LC__MARK_OF(STATE))) {
        status = lc__not_a(s, LC__MARK_OF(STATE), "lc_state_set");
        goto fail;
    }
    if (key ? s->kind != LC_STATE_OBJECT : s->kind != LC_STATE_ARRAY) {
        status = key ? lc_fail(LC_ERR_ARGUMENT, "state \"%s\" cannot be set: the node is not an object", key)
                     : lc_fail(LC_ERR_ARGUMENT, "a state without a key can only be added to an array");
        goto fail;
    }
    if (key) {
        char *copy = strdup(key);
        if (!copy) {
            status = lc_fail(LC_ERR_MEMORY, "out of memory: the key \"%s\"", key);
            goto fail;
        }
        free(child->key);
        child->key = copy;
        for (int64_t i = 0; i < s->u.list.n; i++) {
            if (strcmp(s->u.list.items[i]->key, key)) continue;
            lc_state_free(s->u.list.items[i]);
            s->u.list.items[i] = child;
            return LC_OK;
        }
    }
    LC_TRY_GOTO(status, fail, lc__state_append(s, child));
    return LC_OK;
fail:
    lc_state_free(child);
    return status;
}

lc_status lc_state_set_int(lc_state *s, const char *key, int64_t value)
{
    lc_state *node;
    LC_TRY(lc__state_node(LC_STATE_INT, &node));
    node->u.integer = value;
    return put(s, key, node);
}

lc_status lc_state_set_uint(lc_state *s, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return lc_state_set_text(s, key, text);
}

lc_status lc_state_set_double(lc_state *s, const char *key, double value)
{
    lc_state *node;
    LC_TRY(lc__state_node(LC_STATE_DOUBLE, &node));
    node->u.number = value;
    return put(s, key, node);
}

lc_status lc_state_set_bool(lc_state *s, const char *key, bool value)
{
    lc_state *node;
    LC_TRY(lc__state_node(LC_STATE_BOOL, &node));
    node->u.boolean = value;
    return put(s, key, node);
}

lc_status lc_state_set_text(lc_state *s, const char *key, const char *value)
{
    lc_state *node;
    LC_TRY(lc__state_node(LC_STATE_NULL, &node));
    if (value) {
        node->u.text = strdup(value);
        if (!node->u.text) {
            lc_state_free(node);
            return lc_fail(LC_ERR_MEMORY, "out of memory: a text of %zu bytes", strlen(value));
        }
        node->kind = LC_STATE_TEXT;
    }
    return put(s, key, node);
}

lc_status lc_state_set_object(lc_state *s, const char *key, lc_state **child)
{
    LC__NEEDS(child, LC_ERR_ARGUMENT);
    LC_TRY(lc__state_node(LC_STATE_OBJECT, child));
    return put(s, key, *child);
}

lc_status lc_state_set_array(lc_state *s, const char *key, lc_state **child)
{
    LC__NEEDS(child, LC_ERR_ARGUMENT);
    LC_TRY(lc__state_node(LC_STATE_ARRAY, child));
    return put(s, key, *child);
}

lc_status lc_state_set_tree(lc_state *s, const char *key, lc_state *tree)
{
    if (!tree) return lc_fail(LC_ERR_ARGUMENT, "the tree for state \"%s\" is NULL", key ? key : "");
    LC__IS(tree, STATE, LC_ERR_ARGUMENT);
    return put(s, key, tree);
}

/* Recurses as deep as the tree. */
lc_status lc_state_copy(const lc_state *s, lc_state **out)
{
    LC__IS(s, STATE, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc_state *child = NULL, *copy;
    lc_status status = LC_OK;
    *out = NULL;
    LC_TRY(lc__state_node(LC_STATE_NULL, &copy));
    if (s->kind == LC_STATE_ARRAY || s->kind == LC_STATE_OBJECT) {
        copy->kind = s->kind;
        for (int64_t i = 0; i < s->u.list.n; i++) {
            LC_TRY_GOTO(status, done, lc_state_copy(s->u.list.items[i], &child));
            if (s->u.list.items[i]->key) LC_TRY_GOTO(status, done, lc__copy_text(s->u.list.items[i]->key, &child->key));
            LC_TRY_GOTO(status, done, lc__state_append(copy, child));
            child = NULL;
        }
    } else {
        copy->u = s->u;
        if (s->kind == LC_STATE_TEXT) LC_TRY_GOTO(status, done, lc__copy_text(s->u.text, &copy->u.text));
        copy->kind = s->kind;
    }
done:
    lc_state_free(child);
    if (status < 0)
        lc_state_free(copy);
    else
        *out = copy;
    return status;
}

/* ---- getting ---- */

lc_state_kind lc_state_kind_of(const lc_state *s)
{
    LC__IS_OR_NULL(s, STATE, LC_STATE_NULL);
    return s ? s->kind : LC_STATE_NULL;
}

const lc_state *lc_state_find(const lc_state *s, const char *key)
{
    LC__IS_OR_NULL(s, STATE, NULL);
    if (!key || !s) return s;
    if (s->kind != LC_STATE_OBJECT) return NULL;
    for (int64_t i = 0; i < s->u.list.n; i++)
        if (!strcmp(s->u.list.items[i]->key, key)) return s->u.list.items[i];
    return NULL;
}

int64_t lc_state_length(const lc_state *s)
{
    LC__IS_OR_NULL(s, STATE, 0);
    return s && (s->kind == LC_STATE_ARRAY || s->kind == LC_STATE_OBJECT) ? s->u.list.n : 0;
}

const lc_state *lc_state_at(const lc_state *s, int64_t i)
{
    LC__IS(s, STATE, NULL);
    return i >= 0 && i < lc_state_length(s) ? s->u.list.items[i] : NULL;
}

const char *lc_state_key_at(const lc_state *s, int64_t i)
{
    LC__IS(s, STATE, "");
    const lc_state *node = lc_state_at(s, i);
    return node ? node->key : NULL;
}

static const char *kind_name(lc_state_kind kind)
{
    static const char *const names[] = {"null",   "a boolean", "an integer", "a number",
                                        "a text", "an array",  "an object"};
    return names[kind];
}

static lc_status find(const lc_state *s, const char *key, const lc_state **node)
{
    *node = lc_state_find(s, key);
    if (!*node) return lc_fail(LC_ERR_NOT_FOUND, "the state has no member \"%s\"", key ? key : "");
    return LC_OK;
}

static lc_status wrong_kind(const lc_state *node, const char *key, lc_state_kind want)
{
    if (!key) key = node->key ? node->key : "";
    return lc_fail(LC_ERR_FORMAT, "state \"%s\" is %s, not %s", key, kind_name(node->kind), kind_name(want));
}

lc_status lc_state_get_int(const lc_state *s, const char *key, int64_t *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_state *node;
    LC_TRY(find(s, key, &node));
    if (node->kind != LC_STATE_INT) return wrong_kind(node, key, LC_STATE_INT);
    *out = node->u.integer;
    return LC_OK;
}

lc_status lc_state_get_uint(const lc_state *s, const char *key, uint64_t *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_state *node;
    LC_TRY(find(s, key, &node));
    if (node->kind != LC_STATE_TEXT) return wrong_kind(node, key, LC_STATE_TEXT);
    const char *text = node->u.text;
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9')
        return lc_fail(LC_ERR_FORMAT, "state \"%s\" is \"%s\", not a 64-bit number", key ? key : "", text);
    *out = value;
    return LC_OK;
}

lc_status lc_state_get_double(const lc_state *s, const char *key, double *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_state *node;
    LC_TRY(find(s, key, &node));
    if (node->kind == LC_STATE_DOUBLE)
        *out = node->u.number;
    else if (node->kind == LC_STATE_INT)
        *out = (double)node->u.integer;
    else if (node->kind == LC_STATE_TEXT && !strcmp(node->u.text, "nan"))
        *out = (double)NAN;
    else if (node->kind == LC_STATE_TEXT && !strcmp(node->u.text, "inf"))
        *out = (double)INFINITY;
    else if (node->kind == LC_STATE_TEXT && !strcmp(node->u.text, "-inf"))
        *out = -(double)INFINITY;
    else
        return wrong_kind(node, key, LC_STATE_DOUBLE);
    return LC_OK;
}

lc_status lc_state_get_bool(const lc_state *s, const char *key, bool *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_state *node;
    LC_TRY(find(s, key, &node));
    if (node->kind != LC_STATE_BOOL) return wrong_kind(node, key, LC_STATE_BOOL);
    *out = node->u.boolean;
    return LC_OK;
}

lc_status lc_state_get_text(const lc_state *s, const char *key, const char **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_state *node;
    LC_TRY(find(s, key, &node));
    if (node->kind != LC_STATE_TEXT) return wrong_kind(node, key, LC_STATE_TEXT);
    *out = node->u.text;
    return LC_OK;
}

lc_status lc_state_get_object(const lc_state *s, const char *key, const lc_state **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_state *node;
    LC_TRY(find(s, key, &node));
    if (node->kind != LC_STATE_OBJECT) return wrong_kind(node, key, LC_STATE_OBJECT);
    *out = node;
    return LC_OK;
}

lc_status lc_state_get_array(const lc_state *s, const char *key, const lc_state **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_state *node;
    LC_TRY(find(s, key, &node));
    if (node->kind != LC_STATE_ARRAY) return wrong_kind(node, key, LC_STATE_ARRAY);
    *out = node;
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of state: what a checkpoint's state.json holds (counters, random state, cursors, callback states).
 *
 * Objects have named members, arrays have numbered members, leaves are integers (64 bits, exact), doubles (NaN and Inf
 * too), booleans and texts (UTF-8). `key` names a member of an object; with key == NULL setters append to an array and
 * getters read the node itself (an element of an array). Setting a key again replaces its value; kinds never convert
 * (except that an integer can be read as a double). */
#ifndef LIGHTC_STATE_H
#define LIGHTC_STATE_H

#include <lightc/status.h>

typedef struct lc_state lc_state;

typedef enum lc_state_kind {
    LC_STATE_NULL,
    LC_STATE_BOOL,
    LC_STATE_INT,
    LC_STATE_DOUBLE,
    LC_STATE_TEXT,
    LC_STATE_ARRAY,
    LC_STATE_OBJECT,
} lc_state_kind;

LC_BEGIN_DECLS

/* An empty object; free it with lc_state_free (its members go with it). */
LC_API lc_status lc_state_new(lc_state **out) LC_MUST_USE;
LC_API void lc_state_free(lc_state *s); /* NULL is fine */

/* Sets a member of an object, in place of one of that name, or, with key NULL, adds an element to an array. */
LC_API lc_status lc_state_set_int(lc_state *s, const char *key, int64_t value) LC_MUST_USE;
LC_API lc_status lc_state_set_uint(lc_state *s, const char *key, uint64_t value) LC_MUST_USE; /* kept as text */
LC_API lc_status lc_state_set_double(lc_state *s, const char *key, double value) LC_MUST_USE;
LC_API lc_status lc_state_set_bool(lc_state *s, const char *key, bool value) LC_MUST_USE;
LC_API lc_status lc_state_set_text(lc_state *s, const char *key,
                                   const char *value) LC_MUST_USE; /* copied; NULL: null */
/* A new empty object or array inside; *child is borrowed from the tree. */
LC_API lc_status lc_state_set_object(lc_state *s, const char *key, lc_state **child) LC_MUST_USE;
LC_API lc_status lc_state_set_array(lc_state *s, const char *key, lc_state **child) LC_MUST_USE;
/* Puts a tree that was made with lc_state_new or lc_state_copy into another one, which owns it from then on (also on
 * failure). */
LC_API lc_status lc_state_set_tree(lc_state *s, const char *key, lc_state *tree) LC_MUST_USE;

/* A deep copy of this tree, which may be a member of another. */
LC_API lc_status lc_state_copy(const lc_state *s, lc_state **out) LC_MUST_USE;

/* LC_ERR_NOT_FOUND if there is no member of that name, LC_ERR_FORMAT if it is of another kind; *out is then
 * unchanged. */
LC_API lc_status lc_state_get_int(const lc_state *s, const char *key, int64_t *out) LC_MUST_USE;
LC_API lc_status lc_state_get_uint(const lc_state *s, const char *key, uint64_t *out) LC_MUST_USE;
LC_API lc_status lc_state_get_double(const lc_state *s, const char *key, double *out) LC_MUST_USE;
LC_API lc_status lc_state_get_bool(const lc_state *s, const char *key, bool *out) LC_MUST_USE;
LC_API lc_status lc_state_get_text(const lc_state *s, const char *key, const char **out) LC_MUST_USE; /* borrowed */
LC_API lc_status lc_state_get_object(const lc_state *s, const char *key, const lc_state **out) LC_MUST_USE;
LC_API lc_status lc_state_get_array(const lc_state *s, const char *key, const lc_state **out) LC_MUST_USE;

LC_API lc_state_kind lc_state_kind_of(const lc_state *s);                 /* NULL: LC_STATE_NULL */
LC_API const lc_state *lc_state_find(const lc_state *s, const char *key); /* NULL if there is none */
LC_API int64_t lc_state_length(const lc_state *s);                        /* members of an object or array */
LC_API const lc_state *lc_state_at(const lc_state *s, int64_t i);         /* member i, in the order they were set */
LC_API const char *lc_state_key_at(const lc_state *s, int64_t i);         /* its name; NULL in arrays */

/* As JSON, and back. Free the text with free(). At most 64 levels deep. A parse error names the line and column. */
LC_API lc_status lc_state_print(const lc_state *s, char **text, size_t *length) LC_MUST_USE;
LC_API lc_status lc_state_parse(const char *text, size_t length, lc_state **out) LC_MUST_USE;

LC_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of state trees: in memory (state.c), and their way to JSON and back (state_json.c). */
#ifndef LC_BASE_STATE_NODE_H
#define LC_BASE_STATE_NODE_H

#include "base/handle.h"

#include <lightc/state.h>

struct lc_state {
    lc__mark mark;
    lc_state_kind kind;
    int line;  /* of the JSON that it was read from; 0: none */
    char *key; /* NULL: it is not in an object */
    union {
        bool boolean;
        int64_t integer;
        double number;
        char *text;
        struct {
            lc_state **items;
            int64_t n, capacity;
        } list;
    } u;
};

/* A node without a key. */
lc_status lc__state_node(lc_state_kind kind, lc_state **out) LC_MUST_USE;
/* Adds a child to a list or an object. Takes ownership of it, unless there is no memory. */
lc_status lc__state_append(lc_state *s, lc_state *child) LC_MUST_USE;

#endif

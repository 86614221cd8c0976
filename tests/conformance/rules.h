/* SPDX-License-Identifier: Apache-2.0 */
/* Where lightc differs from Lightning on purpose. */
#ifndef LC_TESTS_RULES_H
#define LC_TESTS_RULES_H

#include "scripted.h"

/* A difference: which cases it touches, and what is done to make the two sides comparable: another way to tell lightc
 * the case, or a rewrite of both records. To add one: its functions and a line in rules.c. */
typedef struct rule {
    const char *name, *reason;
    /* Looks at the case alone (got, want NULL) if it has `tell`, and at both records otherwise. */
    bool (*applies)(const lc_state *c, const outcome *got, const outcome *want);
    void (*tell)(told *how);
    void (*rewrite)(const lc_state *c, outcome *got, outcome *want);
} rule;

extern const rule rules[];
extern const int n_rules;

#endif

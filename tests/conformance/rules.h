/* SPDX-License-Identifier: Apache-2.0 */
/* Where lightc differs from Lightning on purpose. */
#ifndef LC_TESTS_RULES_H
#define LC_TESTS_RULES_H

#include "scripted.h"

/* A difference: the cases to which it applies, and how to make the two sides comparable, either by running the case
 * with other settings or by rewriting both records. To add one: its functions and a line in rules.c. */
typedef struct rule {
    const char *name, *reason;
    /* Called with the case only (got, want NULL) if there is `set`, and with both records otherwise. */
    bool (*applies)(const lc_state *c, const outcome *got, const outcome *want);
    void (*set)(run_settings *how);
    void (*rewrite)(const lc_state *c, outcome *got, outcome *want);
} rule;

extern const rule rules[];
extern const int n_rules;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The names that an option which chooses something built in accepts: --help, docs/options.md and errors list them. */
#include "core/options/options.h"
#include "builtin.h"

#include <string.h>

typedef struct names {
    lc__str *out;
    int n;
} names;

static void add(names *to, const char *name, const char *argument)
{
    lc__str_add(to->out, "%s%s%s%s", to->n++ ? ", " : "", name, argument ? ":" : "", argument ? argument : "");
}

bool lc__option_available(const char *option, lc__str *out)
{
    names to = {out, 0};
    if (!strcmp(option, "strategy")) {
        add(&to, "auto", NULL);
        for (const lc_strategy_ops *const *s = lc__builtin->strategies; *s; s++) add(&to, (*s)->name, NULL);
    } else if (!strcmp(option, "precision")) {
        for (const lc__named_precision *p = lc__builtin->precisions; p->name; p++) add(&to, p->name, NULL);
    } else if (!strcmp(option, "profiler")) {
        for (const lc__named_profiler *p = lc__builtin->profilers; p->name; p++) add(&to, p->name, NULL);
    } else if (!strcmp(option, "logger")) {
        for (const lc__named_logger *l = lc__builtin->loggers; l->name; l++) add(&to, l->name, l->argument);
    }
    return to.n > 0;
}

void lc__option_help(const lc_option *o, lc__str *out)
{
    lc__str list = {0};
    lc__str_add(out, "%s", o->help ? o->help : "");
    if (lc__option_is_trainers(o) && lc__option_available(o->name, &list)) lc__str_add(out, "; available: %s", list.s);
    lc__str_free(&list);
}

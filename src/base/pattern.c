/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of names, and what they match. */
#include "base/pattern.h"

#include "base/str.h"

#include <string.h>

enum { MOST_STARS = 16 };

/* The text matched by a "*" or "?". */
typedef struct span {
    const char *from;
    size_t n;
} span;

/* spans [MOST_STARS] or NULL. A "*" takes one more character only when the rest does not match. Only the last "*" is
 * ever extended, so the time is at most the product of both lengths. */
static bool fits(const char *pattern, const char *name, span *spans)
{
    const char *star = NULL, *star_name = NULL;
    int n = 0, star_number = 0;
    for (;;) {
        if (*pattern == '*') {
            star = ++pattern;
            star_name = name;
            star_number = n++;
            if (spans && star_number < MOST_STARS) spans[star_number] = (span){name, 0};
        } else if (*name && (*pattern == *name || *pattern == '?')) {
            if (*pattern == '?') {
                if (spans && n < MOST_STARS) spans[n] = (span){name, 1};
                n++;
            }
            pattern++, name++;
        } else if (!*pattern && !*name) {
            return true;
        } else if (star && *star_name) {
            pattern = star;
            name = ++star_name;
            n = star_number + 1;
            if (spans && star_number < MOST_STARS) spans[star_number].n++;
        } else {
            return false;
        }
    }
}

bool lc__pattern_fits(const char *pattern, const char *name)
{
    return fits(pattern, name, NULL);
}

lc_status lc__pattern_replace(const char *pattern, const char *name, const char *text, char **out)
{
    span spans[MOST_STARS] = {{0}};
    lc__str made = {0};
    fits(pattern, name, spans);
    lc__str_add(&made, "%s", "");
    for (int n = 0; *text; text++) {
        const span *s = *text == '*' && n < MOST_STARS ? &spans[n++] : NULL;
        if (s && s->from)
            lc__str_add_bytes(&made, s->from, s->n);
        else
            lc__str_add_bytes(&made, text, 1);
    }
    if (made.failed) {
        lc__str_free(&made);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a name");
    }
    *out = made.s;
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of names: "*" stands for any number of characters, "?" for one. */
#ifndef LC_BASE_PATTERN_H
#define LC_BASE_PATTERN_H

#include <lightc/status.h>

#include <stdbool.h>

/* Whether the pattern matches the whole name. */
bool lc__pattern_fits(const char *pattern, const char *name);
/* `text` with the n-th "*" replaced by what the n-th "*" or "?" of the pattern matches in the name (earlier ones match
 * as few characters as possible); a "*" without a counterpart stays. The caller frees *out. */
lc_status lc__pattern_replace(const char *pattern, const char *name, const char *text, char **out) LC_MUST_USE;

#endif

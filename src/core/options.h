/* SPDX-License-Identifier: Apache-2.0 */
/* Options, inside the library. */
#ifndef LC_CORE_OPTIONS_H
#define LC_CORE_OPTIONS_H

#include <lightc/options.h>
#include <lightc/state.h>
#include "core/str.h"

/* The option of that name (dashes and underscores are the same), and the struct it lies in. */
const lc_option *lc__option_find(const lc_option_set *sets, int n_sets, const char *name, size_t length, void **target);
/* The name that is most like `name`, or NULL if none is near. */
const char *lc__option_nearest(const lc_option_set *sets, int n_sets, const char *name, size_t length);
/* What --help shows. */
void lc__options_help(const lc_option_set *sets, int n_sets, const char *program, lc__str *out);
/* All options as members of a JSON object that --config reads: "\n  \"name\": value" with commas between. */
void lc__options_json(const lc_option_set *sets, int n_sets, lc__str *out);
/* Sets options from the members of an object; `where` ("run.json: ") begins errors. What is not among `sets` is an
 * error. Texts are kept in *storage. */
lc_status lc__options_read(const lc_option_set *sets, int n_sets, const lc_state *root, const char *where,
                           void **storage) LC_MUST_USE;
/* The values as members of an object, which lc__options_read takes back. */
lc_status lc__options_write(const lc_option_set *set, lc_state *out) LC_MUST_USE;

#endif

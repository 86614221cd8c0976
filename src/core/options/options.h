/* SPDX-License-Identifier: Apache-2.0 */
/* Options, inside the library. */
#ifndef LC_CORE_OPTIONS_OPTIONS_H
#define LC_CORE_OPTIONS_OPTIONS_H

#include <lightc/options.h>
#include <lightc/state.h>
#include "base/str.h"

/* The option of that name (dashes and underscores are the same), and the struct that contains it. */
const lc_option *lc__option_find(const lc_option_set *sets, int n_sets, const char *name, size_t length, void **target);
/* Dashes and underscores are the same. `name` need not be terminated. */
bool lc__option_same_name(const char *option, const char *name, size_t length);
/* Whether the option is in the trainer's table. */
bool lc__option_is_trainers(const lc_option *o);
/* How many options the trainer has. */
#define LC__ONE_OPTION(kind, type, name, def, min, max, help) +1
enum { LC__TRAINER_OPTIONS = 0 LC_TRAINER_OPTION_LIST(LC__ONE_OPTION) };
/* The options that start ranks and those named in `used`, in the table's order: for lc_trainer_options_parse_used. */
lc_status lc__trainer_options_used(const char *used, lc_option *out, int *n) LC_MUST_USE;
/* LC_OK if the value is in the range of the trainer's option of that name; else the error that parsing it would
 * give. */
lc_status lc__option_check(const char *name, double value) LC_MUST_USE;
/* The same for all numbers that a program wrote into the options. */
lc_status lc__trainer_options_check(const lc_trainer_options *o) LC_MUST_USE;
/* Whether the trainer's option of that name has another value than its default, and not an empty one. */
bool lc__option_is_given(const char *name, const lc_trainer_options *o);
/* That the rows of programs are of this library's lc_option. */
lc_status lc__option_rows_check(const lc_option *rows, int n) LC_MUST_USE;
lc_status lc__option_set_check(const lc_option_set *set) LC_MUST_USE;
/* The title of the group that begins with this option of the trainer; NULL: none does. */
const char *lc__option_group(const lc_option *o);
/* ---- available.c ---- */
/* Appends the names of what is built in that an option of the trainer chooses from (strategy, precision, profiler,
 * logger), with commas between; false: it is not such an option. */
bool lc__option_available(const char *option, lc__str *out);
/* Appends what an option is for, and what is available. */
void lc__option_help(const lc_option *o, lc__str *out);
/* ---- old_names.c: names of older Lightning ---- */
typedef struct lc__old_name {
    const char *name;
    /* The row is for this value only; NULL: for every value. "off": false, none, 0; "on": all others. */
    const char *when;
    /* The options to set. value NULL: the value given. */
    struct {
        const char *option, *value;
        bool unless_given; /* only if that option (a text) has no value yet */
    } set[2];
    const char *answer; /* ... or an error says this. Neither: accepted, means today's default */
} lc__old_name;
const lc__old_name *lc__option_old_names(int *n);
bool lc__option_is_old(const char *name, size_t length);
/* *done: the name or value was an old one, and today's options have been set. An error says what to write today. */
lc_status lc__option_set_old(const lc_option_set *sets, int n_sets, const char *name, size_t length, const char *value,
                             bool *done) LC_MUST_USE;
/* LC_OK if the accelerator exists; else the error says what is missing. */
lc_status lc__accelerator_check(const char *name) LC_MUST_USE;
/* Whether a text is a size (LC_OPTION_SIZE) of less than 2^62 bytes. */
bool lc__size_read(const char *text, int64_t *bytes);
/* As snprintf: in the largest unit that needs no fraction. */
int lc__size_print(char *text, size_t size, int64_t bytes);
/* The option `devices` of the trainer as a number, 1 to `most`. `what` names the devices in an error. 0: auto (or
 * NULL), which starts no ranks (core/trainer/start_ranks.c), accepts as many as others have started
 * (strategies/processes.c), and is one device of data_parallel. */
lc_status lc__devices_parse(const char *text, int most, const char *what, int *n) LC_MUST_USE;
/* The value as text, whole however long it is: a text's own, or printed into `space`. */
enum { LC__OPTION_SPACE = 64 };
const char *lc__option_text(const lc_option *o, const void *target, char space[LC__OPTION_SPACE]);
/* ---- table.c, parse.c ---- */
/* The name of the option most like `name`; NULL: none is near. */
const char *lc__option_nearest(const lc_option_set *sets, int n_sets, const char *name, size_t length);
/* Copies a text into *storage, which lc_options_free frees. */
lc_status lc__options_keep(void **storage, const char *s, const char **out) LC_MUST_USE;
/* The storage of options once a trainer has taken their texts over. */
extern const char lc__texts_taken;
/* The text of --help. */
void lc__options_help(const lc_option_set *sets, int n_sets, const char *program, lc__str *out);
/* All options as members of a JSON object that --config reads: "\n  \"name\": value" with commas between. */
void lc__options_json(const lc_option_set *sets, int n_sets, lc__str *out);
/* Sets options from the members of an object; `where` ("run.json: ") begins errors. A member that is not in `sets` is
 * an error. Texts are kept in *storage. */
lc_status lc__options_read(const lc_option_set *sets, int n_sets, const lc_state *root, const char *where,
                           void **storage) LC_MUST_USE;
/* Sets options from variables of the environment: PREFIX, then the name in capitals. */
lc_status lc__options_from_environment(const lc_option_set *sets, int n_sets, const char *prefix) LC_MUST_USE;
/* Warns, on standard error, of variables that begin with the prefix and are misspelled. */
void lc__options_doubt_environment(const lc_option_set *sets, int n_sets, const char *prefix);
/* Writes the values as members of an object, for lc__options_read. */
lc_status lc__options_write(const lc_option_set *set, lc_state *out) LC_MUST_USE;

#endif

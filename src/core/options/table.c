/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's options as a table, made from the list in <lightc/options.h>. To add an option: a line there. */
#include "core/options/options.h"
#include "base/args.h"
#include "base/edit_distance.h"
#include "base/handle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const lc_option table[] = {
#define ROW(kind, type, name, def, min, max, help)                                                                     \
    {#name, LC_OPTION_##kind, offsetof(lc_trainer_options, name), min, max, help, {NULL, NULL}},
    LC_TRAINER_OPTION_LIST(ROW)
#undef ROW
};

const lc_option *lc_trainer_option_table(int *n)
{
    LC__NEEDS(n, NULL);
    *n = (int)(sizeof table / sizeof *table);
    return table;
}

lc_status lc__option_rows_check(const lc_option *rows, int n)
{
    for (int i = 0; rows && i < n; i++) LC_TRY(lc__reserved_check(rows[i].reserved, "lc_option"));
    return LC_OK;
}

lc_status lc__option_set_check(const lc_option_set *set)
{
    LC_TRY(lc__reserved_check(set->reserved, "lc_option_set"));
    return lc__option_rows_check(set->options, set->n);
}

bool lc__option_is_trainers(const lc_option *o)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (o == &table[i] || o->help == table[i].help) return true; /* itself, or lc__trainer_options_used's copy */
    return false;
}

static bool among(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; at && *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strcspn(at, " ") == n && !strncmp(at, name, n)) return true;
    }
    return false;
}

lc_status lc__trainer_options_used(const char *used, lc_option *out, int *n)
{
    static const char launching[] =
        "default_root_dir devices num_nodes node_rank nodes_file max_restarts start_timeout "
        "silence_timeout grace_period";
    *n = 0;
    for (const char *at = used; at && *at; at += strcspn(at, " ")) {
        void *none;
        at += strspn(at, " ");
        int length = (int)strcspn(at, " ");
        const lc_option_set all = {.options = table, .n = LC__TRAINER_OPTIONS};
        if (length && !lc__option_find(&all, 1, at, (size_t)length, &none))
            return lc_fail(LC_ERR_ARGUMENT, "the trainer has no option \"%.*s\" that a program could use", length, at);
    }
    for (int i = 0; i < LC__TRAINER_OPTIONS; i++)
        if (among(launching, table[i].name) || among(used, table[i].name)) out[(*n)++] = table[i];
    return LC_OK;
}

bool lc__option_same_name(const char *option, const char *name, size_t length)
{
    if (strlen(option) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (option[i] != (name[i] == '-' ? '_' : name[i])) return false;
    return true;
}

const lc_option *lc__option_find(const lc_option_set *sets, int n_sets, const char *name, size_t length, void **target)
{
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s].n; i++)
            if (lc__option_same_name(sets[s].options[i].name, name, length)) {
                *target = sets[s].target;
                return &sets[s].options[i];
            }
    return NULL;
}

/* Names of options in other tools. */
static const struct {
    const char *theirs, *ours;
} synonyms[] = {
    {"gpus", "devices"},
    {"gpu", "accelerator"},
    {"learning_rate", "lr"},
    {"resume", "ckpt_path"},
    {"checkpoint", "ckpt_path"},
    {"log_dir", "default_root_dir"},
    {"output", "default_root_dir"},
    {"output_dir", "default_root_dir"},
};

static const char *synonym(const lc_option_set *sets, int n_sets, const char *name, size_t length)
{
    void *target;
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (lc__option_same_name(synonyms[i].theirs, name, length)) {
            const lc_option *o = lc__option_find(sets, n_sets, synonyms[i].ours, strlen(synonyms[i].ours), &target);
            if (o) return o->name;
        }
    return NULL;
}

/* The shortest option that contains the name: "max_epochs" for "epochs". */
static const char *containing(const lc_option_set *sets, int n_sets, const char *name, size_t length)
{
    const char *found = NULL;
    if (length < 4) return NULL;
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s].n; i++) {
            const char *other = sets[s].options[i].name;
            size_t n = strlen(other);
            if (found && strlen(found) <= n) continue;
            for (size_t k = 0; k + length <= n; k++)
                if (lc__edit_distance(name, length, other + k, length) == 0) found = other;
        }
    return found;
}

/* The longest option that the name continues: "data" for "data_dir". */
static const char *begun(const lc_option_set *sets, int n_sets, const char *name, size_t length)
{
    const char *found = NULL;
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s].n; i++) {
            const char *other = sets[s].options[i].name;
            size_t n = strlen(other);
            bool goes_on = n < length && (name[n] == '_' || name[n] == '-');
            if (!goes_on || (found && strlen(found) >= n)) continue;
            if (lc__option_same_name(other, name, n)) found = other;
        }
    return found;
}

const char *lc__option_nearest(const lc_option_set *sets, int n_sets, const char *name, size_t length)
{
    const char *nearest = NULL, *other;
    int best = (int)(length / 4) + 2;
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s].n; i++) {
            other = sets[s].options[i].name;
            int d = lc__edit_distance(name, length, other, strlen(other));
            if (d < best) best = d, nearest = other;
        }
    if (nearest && best <= 2) return nearest;
    if ((other = synonym(sets, n_sets, name, length)) || (other = containing(sets, n_sets, name, length))) return other;
    return nearest ? nearest : begun(sets, n_sets, name, length);
}

static const char *placeholder(const lc_option *o)
{
    switch (o->kind) {
    case LC_OPTION_INT:
    case LC_OPTION_INT32:
    case LC_OPTION_COUNT:
        return "N";
    case LC_OPTION_FLOAT:
    case LC_OPTION_FLOAT32:
        return "X";
    case LC_OPTION_BOOL:
        return "true|false";
    case LC_OPTION_CHOICE:
        return "true|false|auto";
    case LC_OPTION_TEXT:
        return "TEXT";
    case LC_OPTION_DURATION:
        return "AMOUNT";
    case LC_OPTION_SIZE:
        return "SIZE";
    case LC_OPTION_WORKERS:
        return "N|auto";
    }
    return "VALUE";
}

/* The trainer's options come in groups, in the order of the list in <lightc/options.h>: the first option of each. */
static const struct {
    const char *first, *title;
} groups[] = {
    {"max_epochs", "how long to train"},  {"limit_train_batches", "how much of the data"},
    {"val_check_interval", "validation"}, {"accumulate_grad_batches", "optimization"},
    {"logger", "logging and display"},    {"enable_checkpointing", "checkpoints"},
    {"early_stopping", "early stopping"}, {"accelerator", "the machine, and random numbers"},
};

const char *lc__option_group(const lc_option *o)
{
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        if (!strcmp(groups[g].first, o->name)) return groups[g].title;
    return NULL;
}

enum { HELP_INDENT = 38 }; /* column of descriptions; after a longer name they begin on the next line */

static size_t help_columns(void)
{
    const char *columns = getenv("COLUMNS");
    int n = columns ? atoi(columns) : 0;
    return n >= 60 && n < 100 ? (size_t)n : 100;
}

/* "  left       the words of text, wrapped" */
static void add_help_row(lc__str *out, const char *left, const char *text)
{
    size_t columns = help_columns(), at = strlen(left) + 2;
    lc__str_add(out, "  %s", left);
    if (at + 1 > HELP_INDENT) lc__str_add(out, "\n"), at = 0;
    lc__str_add(out, "%*s", (int)(HELP_INDENT - at), "");
    at = HELP_INDENT;
    for (const char *word = text; *word;) {
        size_t n = strcspn(word, " ");
        if (at > HELP_INDENT) {
            bool wraps = at + 1 + n > columns;
            lc__str_add(out, wraps ? "\n%*s" : "%*s", wraps ? HELP_INDENT : 1, "");
            at = wraps ? HELP_INDENT : at + 1;
        }
        lc__str_add_bytes(out, word, n);
        at += n;
        word += n + (word[n] == ' ');
    }
    lc__str_add(out, "\n");
}

void lc__options_help(const lc_option_set *sets, int n_sets, const char *program, lc__str *out)
{
    lc__str_add(out,
                "usage: %s [--OPTION VALUE | --OPTION=VALUE]...\n\n"
                "Options can also be set in the environment (LIGHTC_MAX_EPOCHS=5) and in a JSON file.\nThe command "
                "line overrides the environment, and the environment overrides the file.\n\n",
                program);
    add_help_row(out, "--config FILE", "read options from a JSON file");
    add_help_row(out, "--print_config", "print the resolved options as JSON (usable with --config) and exit");
    add_help_row(out, "--help", "print this help and exit");
    for (int s = 0; s < n_sets; s++) {
        bool grouped = sets[s].options == table; /* a program that uses a few of them needs no groups */
        if (!grouped) lc__str_add(out, "\n%s:\n", sets[s].title ? sets[s].title : "options");
        for (int i = 0; i < sets[s].n; i++) {
            const lc_option *o = &sets[s].options[i];
            char left[96], space[LC__OPTION_SPACE];
            lc__str text = {0};
            const char *group = grouped ? lc__option_group(o) : NULL;
            if (group) lc__str_add(out, "\n%s:\n", group);
            snprintf(left, sizeof left, "--%s %s", o->name, placeholder(o));
            const char *value = lc__option_text(o, sets[s].target, space);
            bool show = value[0] && strcmp(value, "none") != 0;
            lc__option_help(o, &text);
            if (show) lc__str_add(&text, " [%s]", value);
            add_help_row(out, left, text.n ? text.s : "");
            lc__str_free(&text);
        }
    }
}

static void add_json_text(lc__str *out, const char *s)
{
    lc__str_add_bytes(out, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            lc__str_add(out, "\\%c", c);
        else if (c < 0x20)
            lc__str_add(out, "\\u%04x", c);
        else
            lc__str_add_bytes(out, s, 1);
    }
    lc__str_add_bytes(out, "\"", 1);
}

static bool is_number(const lc_option *o, const char *value)
{
    switch (o->kind) {
    case LC_OPTION_INT:
    case LC_OPTION_INT32:
    case LC_OPTION_COUNT:
    case LC_OPTION_BOOL:
        return true;
    case LC_OPTION_WORKERS:
        return strcmp(value, "auto") != 0;
    case LC_OPTION_FLOAT:
    case LC_OPTION_FLOAT32:
        return strcmp(value, "inf") != 0 && strcmp(value, "-inf") != 0 && strcmp(value, "nan") != 0;
    default:
        return false;
    }
}

void lc__options_json(const lc_option_set *sets, int n_sets, lc__str *out)
{
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s].n; i++) {
            const lc_option *o = &sets[s].options[i];
            char value[64];
            const char *text = value;
            lc__str_add(out, "%s\n  \"%s\": ", out->n ? "," : "", o->name);
            if (o->kind == LC_OPTION_TEXT)
                memcpy(&text, (const char *)sets[s].target + o->offset, sizeof text);
            else
                lc_option_get_text(o, sets[s].target, value, sizeof value);
            if (!text || (o->kind != LC_OPTION_TEXT && !strcmp(text, "none")))
                lc__str_add(out, "null");
            else if (is_number(o, text))
                lc__str_add(out, "%s", text);
            else
                add_json_text(out, text);
        }
}

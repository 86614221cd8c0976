/* SPDX-License-Identifier: Apache-2.0 */
/* Reads options from file, environment and command line, in that order; the last one wins. */
#include "base/c_locale.h"
#include "core/options/options.h"
#include "base/state_node.h"
#include "base/handle.h"

#include "comm/world/prints.h"
#include "base/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES (16 << 20)

/* Texts that options point to, in a list that is freed as a whole. */
typedef struct kept_text {
    struct kept_text *next;
    char text[];
} kept_text;

lc_status lc__options_keep(void **storage, const char *s, const char **out)
{
    size_t n = strlen(s) + 1;
    kept_text *k = malloc(sizeof *k + n);
    if (!k) return lc_fail(LC_ERR_MEMORY, "out of memory: an option of %zu bytes", n);
    memcpy(k->text, s, n);
    k->next = *storage;
    *storage = k;
    *out = k->text;
    return LC_OK;
}

const char lc__texts_taken = 0;

void lc_options_free(void *storage)
{
    if (storage == &lc__texts_taken) return;
    for (kept_text *k = storage, *next; k; k = next) {
        next = k->next;
        free(k);
    }
}

void lc_trainer_options_release(lc_trainer_options *opt)
{
    if (!opt) return;
    lc_options_free(opt->storage);
    opt->storage = NULL;
    opt->size = 0; /* its texts are gone */
}

static lc_status unknown(const lc_option_set *sets, int n_sets, const char *where, const char *name, size_t length)
{
    const char *near = lc__option_nearest(sets, n_sets, name, length);
    int shown = length > 60 ? 60 : (int)length, n;
    void *none;
    lc_option_set trainer = {.options = lc_trainer_option_table(&n)};
    trainer.n = n;
    if (lc__option_find(&trainer, 1, name, length, &none))
        return lc_fail(LC_ERR_CONFIG,
                       "%soption \"%.*s\" of the trainer is not available in this program; --help lists all options",
                       where, shown, name);
    if (near)
        return lc_fail(LC_ERR_CONFIG, "%sunknown option \"%.*s\"; did you mean \"%s\"?", where, shown, name, near);
    return lc_fail(LC_ERR_CONFIG, "%sunknown option \"%.*s\"; --help lists all options", where, shown, name);
}

/* ---- the file ---- */

/* The value of a leaf as text, kept. */
static lc_status node_text(const char *name, const lc_state *node, void **storage, const char **out)
{
    char number[64];
    const char *text = NULL;
    int64_t i;
    double d;
    bool b;
    switch (lc_state_kind_of(node)) {
    case LC_STATE_NULL:
        text = "none";
        break;
    case LC_STATE_BOOL:
        LC_TRY(lc_state_get_bool(node, NULL, &b));
        text = b ? "true" : "false";
        break;
    case LC_STATE_INT:
        LC_TRY(lc_state_get_int(node, NULL, &i));
        snprintf(number, sizeof number, "%lld", (long long)i);
        text = number;
        break;
    case LC_STATE_DOUBLE: {
        LC_TRY(lc_state_get_double(node, NULL, &d));
        lc__snprintf(number, sizeof number - 2, "%.17g", d);
        if (!strpbrk(number, ".en")) strcat(number, ".0");
        text = number;
        break;
    }
    case LC_STATE_TEXT:
        LC_TRY(lc_state_get_text(node, NULL, &text));
        break;
    case LC_STATE_ARRAY:
    case LC_STATE_OBJECT:
        return lc_fail(LC_ERR_CONFIG, "%s must be a number, a string, true, false or null", name);
    }
    return lc__options_keep(storage, text, out);
}

/* Accepts old names too. `where` begins errors. */
static lc_status set_named(const lc_option_set *sets, int n_sets, const char *where, const char *name, size_t length,
                           const char *value)
{
    void *target;
    bool done;
    LC_TRY(lc__option_set_old(sets, n_sets, name, length, value, &done));
    if (done) return LC_OK;
    const lc_option *o = lc__option_find(sets, n_sets, name, length, &target);
    return o ? lc_option_set_text(o, target, value) : unknown(sets, n_sets, where, name, length);
}

/* `prefix` is "" at the root, "optimizer." in {"optimizer": {...}}. `where` begins errors; NULL: their line does. */
static lc_status read_members(const lc_option_set *sets, int n_sets, const lc_state *root, const char *prefix,
                              const char *where, void **storage)
{
    for (int64_t i = 0; i < lc_state_length(root); i++) {
        const lc_state *node = lc_state_at(root, i);
        char key[256], line[32];
        void *target;
        snprintf(line, sizeof line, "line %d: ", node->line);
        const char *at = where ? where : line;
        int n = snprintf(key, sizeof key, "%s%s", prefix, lc_state_key_at(root, i));
        if (n < 0 || (size_t)n >= sizeof key - 1) return unknown(sets, n_sets, at, key, strlen(key));
        const lc_option *o = lc__option_find(sets, n_sets, key, (size_t)n, &target);
        if (!o && lc_state_kind_of(node) == LC_STATE_OBJECT) {
            strcpy(key + n, ".");
            LC_TRY(read_members(sets, n_sets, node, key, where, storage));
            continue;
        }
        const char *text = NULL;
        if (o && o->kind == LC_OPTION_TEXT && lc_state_kind_of(node) == LC_STATE_NULL) {
            memcpy((char *)target + o->offset, &text, sizeof text); /* not given: "none" may be a value */
            continue;
        }
        if (!o && !lc__option_is_old(key, (size_t)n)) return unknown(sets, n_sets, at, key, (size_t)n);
        lc_status status = node_text(key, node, storage, &text);
        if (status >= 0) status = set_named(sets, n_sets, "", key, (size_t)n, text);
        if (status < 0) return *at ? lc_fail_context(status, "%.*s", (int)strlen(at) - 2, at) : status;
    }
    return LC_OK;
}

lc_status lc__options_read(const lc_option_set *sets, int n_sets, const lc_state *root, const char *where,
                           void **storage)
{
    return read_members(sets, n_sets, root, "", where, storage);
}

static lc_status parse_config(const lc_option_set *sets, int n_sets, const char *path, void **storage)
{
    lc_status status = LC_OK;
    lc_state *root = NULL;
    char *text = NULL;
    size_t length = 0;
    status = lc__io_read_file(&lc__io_system, path, MAX_CONFIG_BYTES, &text, &length);
    if (status < 0) return lc_fail_context(status, "the configuration");
    status = lc_state_parse(text, length, &root);
    if (status < 0) {
        lc_fail_context(status, "%s", path);
        goto done;
    }
    if (lc_state_kind_of(root) != LC_STATE_OBJECT) {
        status = lc_fail(LC_ERR_CONFIG, "%s must contain one JSON object, {\"max_epochs\": 5, ...}", path);
        goto done;
    }
    status = read_members(sets, n_sets, root, "", NULL, storage);
    if (status < 0) lc_fail_context(status, "%s", path);
done:
    lc_state_free(root);
    free(text);
    return status;
}

/* ---- the command line ---- */

static bool named(const char *arg, size_t length, const char *name)
{
    size_t n = strlen(name);
    if (length != n) return false;
    for (size_t i = 0; i < n; i++)
        if ((arg[i] == '-' ? '_' : arg[i]) != name[i]) return false;
    return true;
}

/* Options that need no value on the command line. */
static bool is_switch(const lc_option *o)
{
    return o->kind == LC_OPTION_BOOL || o->kind == LC_OPTION_CHOICE || o->kind == LC_OPTION_COUNT;
}

/* o NULL: --config. */
static lc_status needs_value(const lc_option *o, const char *name, size_t length)
{
    lc__str help = {0};
    if (o)
        lc__option_help(o, &help);
    else
        lc__str_add(&help, "a JSON file");
    lc_status status = lc_fail(LC_ERR_CONFIG, "--%.*s needs a value%s%s%s", (int)length, name, help.n ? " (" : "",
                               help.n ? help.s : "", help.n ? ")" : "");
    lc__str_free(&help);
    return status;
}

/* Walks argv. With `config`, only looks for --config, --help and --print_config; otherwise sets options. */
static lc_status walk(const lc_option_set *sets, int n_sets, int argc, char **argv, const char **config, bool *help,
                      bool *print)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!strcmp(arg, "-h")) arg = "--help";
        if (strncmp(arg, "--", 2) != 0 || !arg[2]) {
            if (config) continue;
            return lc_fail(LC_ERR_CONFIG, "\"%.60s\" is not an option; options are written --name value (see --help)",
                           arg);
        }
        const char *name = arg + 2, *value = strchr(name, '=');
        size_t length = value ? (size_t)(value - name) : strlen(name);
        if (value) value++;
        if (!value && (named(name, length, "help") || named(name, length, "print_config"))) {
            if (config) *(name[0] == 'h' ? help : print) = true;
            continue;
        }
        bool is_config = named(name, length, "config");
        void *target = NULL;
        const lc_option *o = is_config ? NULL : lc__option_find(sets, n_sets, name, length, &target);
        bool old = !o && !is_config && lc__option_is_old(name, length);
        if (!o && !is_config && !old) {
            /* --no_deterministic, --no-enable-progress-bar */
            if (!value && length > 3 && !strncmp(name, "no", 2) && (name[2] == '_' || name[2] == '-'))
                o = lc__option_find(sets, n_sets, name + 3, length - 3, &target);
            if (o && is_switch(o)) {
                if (!config) LC_TRY(lc_option_set_text(o, target, "false"));
                continue;
            }
            if (config) continue;
            return unknown(sets, n_sets, "", name, length);
        }
        if (!value && ((o && is_switch(o)) || old)) {
            bool next = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
            value = next ? argv[++i] : "true";
        } else if (!value) {
            if (i + 1 >= argc || (!strncmp(argv[i + 1], "--", 2) && argv[i + 1][2])) {
                if (config && !is_config) continue;
                return needs_value(o, name, length);
            }
            value = argv[++i];
        }
        if (is_config) {
            if (config) *config = value;
        } else if (!config) {
            LC_TRY(set_named(sets, n_sets, "", name, length, value));
        }
    }
    return LC_OK;
}

lc_status lc_options_parse(const lc_option_set *sets, int n_sets, const char *env_prefix, int argc, char **argv,
                           void **storage)
{
    if (n_sets > 0) LC__NEEDS(sets, LC_ERR_ARGUMENT);
    if (argc > 1) LC__NEEDS(argv, LC_ERR_ARGUMENT);
    LC__NEEDS(storage, LC_ERR_ARGUMENT);
    const char *config = NULL;
    bool help = false, print = false;
    lc_status status;
    for (int i = 0; i < n_sets; i++) LC_TRY(lc__option_set_check(&sets[i]));
    if (env_prefix) {
        char name[64];
        snprintf(name, sizeof name, "%sCONFIG", env_prefix);
        config = getenv(name);
        if (config && !*config) config = NULL;
    }
    LC_TRY(walk(sets, n_sets, argc, argv, &config, &help, &print));
    lc__str out = {0};
    if (help) { /* shown with the defaults, even if something else is wrong */
        lc__options_help(sets, n_sets, argc > 0 && argv[0] ? argv[0] : "program", &out);
    } else {
        if (config) LC_TRY(parse_config(sets, n_sets, config, storage));
        if (env_prefix) LC_TRY(lc__options_from_environment(sets, n_sets, env_prefix));
        LC_TRY(walk(sets, n_sets, argc, argv, NULL, &help, &print));
        if (env_prefix) lc__options_doubt_environment(sets, n_sets, env_prefix);
        if (!print) return LC_OK;
        lc__options_json(sets, n_sets, &out);
        lc__str show = {0};
        lc__str_add(&show, "{%s\n}\n", out.s ? out.s : "");
        show.failed |= out.failed;
        lc__str_free(&out);
        out = show;
    }
    status = out.failed ? lc_fail(LC_ERR_MEMORY, "out of memory while listing the options") : LC_STOP;
    if (!out.failed && !lc__show(1, out.s, out.n) && errno != EPIPE) /* as in --help | head */
        status = lc__io_fail(errno, "write", "standard output");
    lc__str_free(&out);
    return status;
}

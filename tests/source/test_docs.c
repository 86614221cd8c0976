/* SPDX-License-Identifier: Apache-2.0 */
/* The documents are up to date: docs/options.md and the end of docs/precision.md match the tables (LIGHTC_WRITE_DOCS=1
 * writes them again), every lc_ name in the guides is declared, and every argument of Lightning's Trainer has its
 * counterpart. docs.sh builds the guides' programs. */
#include "sources.h"

#include "core/options/options.h"
#include "ops/ops.h"

#include <lightc/precision.h>

static char *document(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "docs/%s", name);
    return read_source(path);
}

/* ---- options.md ---- */

static const char *kind_name(lc_option_kind kind)
{
    switch (kind) {
    case LC_OPTION_INT:
    case LC_OPTION_INT32:
        return "whole number";
    case LC_OPTION_FLOAT:
    case LC_OPTION_FLOAT32:
        return "number";
    case LC_OPTION_COUNT:
        return "whole number, true, false";
    case LC_OPTION_BOOL:
        return "true, false";
    case LC_OPTION_CHOICE:
        return "true, false, auto";
    case LC_OPTION_TEXT:
        return "text";
    case LC_OPTION_DURATION:
        return "amount";
    case LC_OPTION_SIZE:
        return "size";
    case LC_OPTION_WORKERS:
        return "whole number, auto";
    }
    return "";
}

static void options_document(lc__str *out)
{
    lc_trainer_options defaults = LC_TRAINER_OPTIONS_INIT;
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    lc__str_add(out,
                "# Options of the trainer\n\n"
                "<!-- Written by `LIGHTC_WRITE_DOCS=1 build/bin/test_docs`; the test of that name checks it. -->\n\n"
                "Each can be set in `lc_trainer_options`, on the command line (`--max_epochs 5`, `--max-epochs=5`, "
                "`--no_deterministic`),\nin the environment (`LIGHTC_MAX_EPOCHS=5`) and in a JSON file (`--config "
                "run.json`). The command line overrides the\nenvironment, that the file, and that the struct. An "
                "*amount* is a whole number of batches, a fraction (`0.2`), or has\na unit: `3ep`, `500st`, `100ba`, "
                "`30s`, `10m`, `2h`. `none` takes a value away.\n");
    for (int i = 0; i < n; i++) {
        char value[256];
        const char *group = lc__option_group(&table[i]);
        if (group)
            lc__str_add(out, "\n## %c%s\n\n| option | value | default | |\n|---|---|---|---|\n", toupper(group[0]),
                        group + 1);
        lc_option_get_text(&table[i], &defaults, value, sizeof value);
        lc__str_add(out, "| `%s` | %s | %s | ", table[i].name, kind_name(table[i].kind), value);
        lc__option_help(&table[i], out);
        lc__str_add(out, " |\n");
    }
    lc__str_add(out, "\n## Names of other times\n\n"
                     "These work, or are answered with what to write today. A program's own option of that name comes "
                     "first.\n\n| written | means |\n|---|---|\n");
    int n_old;
    const lc__old_name *old = lc__option_old_names(&n_old);
    for (int i = 0; i < n_old; i++) {
        lc__str_add(out, "| `%s%s%s` | ", old[i].name, old[i].when ? " " : "", old[i].when ? old[i].when : "");
        for (int k = 0; k < 2 && old[i].set[k].option; k++)
            lc__str_add(out, "%s`%s%s%s`", k ? ", " : "", old[i].set[k].option, old[i].set[k].value ? " " : "",
                        old[i].set[k].value ? old[i].set[k].value : "");
        lc__str_add(out, "%s |\n",
                    old[i].answer          ? old[i].answer
                    : old[i].set[0].option ? ""
                                           : "nothing: that is so anyway");
    }
}

/* Checks that docs/NAME is `want`, or writes it. */
static void check_document(const char *name, lc__str *want)
{
    CHECK(!want->failed);
    if (getenv("LIGHTC_WRITE_DOCS")) {
        char path[PATH_MAX + 40];
        snprintf(path, sizeof path, "%s/docs/%s", source_root(), name);
        FILE *f = fopen(path, "w");
        CHECK(f && fwrite(want->s, 1, want->n, f) == want->n);
        fclose(f);
    }
    char *have = document(name);
    size_t at = 0, line = 1;
    while (have[at] && have[at] == want->s[at]) line += have[at++] == '\n';
    bool same = have[at] == want->s[at];
    free(have);
    lc__str_free(want);
    if (!same) TEST_FAIL("docs/%s differs from the tables in line %zu; run LIGHTC_WRITE_DOCS=1 test_docs", name, line);
}

TEST(options_are_current)
{
    lc__str want = {0};
    options_document(&want);
    check_document("options.md", &want);
}

/* ---- the end of precision.md ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_class(lc__str *out, lc_autocast_class class, const char *title)
{
    const char *names[512];
    int n = 0;
    for (int i = 0; lc__math_ops[i]; i++) {
        bool writes = lc__math_ops[i]->flags & (LC_OP_MUTATES | LC_OP_SIDE_EFFECT);
        if (!writes && lc_autocast_class_of(lc__math_ops[i]) == class) names[n++] = lc__math_ops[i]->name;
    }
    qsort(names, (size_t)n, sizeof *names, by_name);
    lc__str_add(out, "| %s | ", title);
    for (int i = 0; i < n; i++) lc__str_add(out, "%s`%s`", i ? ", " : "", names[i]);
    lc__str_add(out, " |\n");
}

TEST(classes_of_operators_are_current)
{
    static const char mark[] = "the test of that name checks it. -->\n\n";
    lc__str want = {0};
    char *have = document("precision.md"), *end = strstr(have, mark);
    CHECK(end != NULL);
    end[sizeof mark - 1] = 0;
    lc__str_add(&want, "%s", have);
    free(have);
    lc__str_add(&want, "| class | operators |\n|---|---|\n");
    add_class(&want, LC_AUTOCAST_LOW, "low");
    add_class(&want, LC_AUTOCAST_FOLLOW, "follow");
    add_class(&want, LC_AUTOCAST_F32, "f32");
    check_document("precision.md", &want);
}

/* ---- names ---- */

/* Whether the name is a word in any public header (or, with `prefix`, begins one). */
static bool declared(const char *in, const char *name, size_t n)
{
    for (const char *p = in; (p = strstr(p, name)); p++) {
        bool starts = p == in || !in_name(p[-1]);
        if (starts && !in_name(p[n])) return true;
    }
    return false;
}

static char *headers; /* all of them */

static void add_header(const char *name, char *text)
{
    size_t size = headers ? strlen(headers) : 0, n = strlen(text);
    (void)name;
    headers = realloc(headers, size + n + 1);
    CHECK(headers != NULL);
    memcpy(headers + size, text, n + 1);
}

/* Every word that begins with lc_ or LC_. */
static int undeclared(const char *text, const char *in, const char *document_name)
{
    int missing = 0;
    for (const char *p = text; *p;) {
        size_t n = 0;
        while (in_name(p[n])) n++;
        if (n > 3 && n < 100 && (!strncmp(p, "lc_", 3) || !strncmp(p, "LC_", 3))) {
            char word[100];
            snprintf(word, sizeof word, "%.*s", (int)n, p);
            if (!declared(in, word, n)) {
                if (document_name) printf("  %s names %s, which no header declares\n", document_name, word);
                missing++;
            }
        }
        p += n ? n : 1;
    }
    return missing;
}

TEST(names_are_declared)
{
    static const char *const documents[] = {"from-lightning.md", "from-a-loop.md", "trainer.md", "options.md",
                                            "precision.md"};
    each_source("include/lightc", c_files, add_header);
    int missing = 0;
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        char *text = document(documents[i]);
        missing += undeclared(text, headers, documents[i]);
        free(text);
    }
    free(headers);
    headers = NULL;
    CHECK_EQ(missing, 0);
    CHECK_EQ(undeclared("an lc_word_nobody_knows", "lc_word", NULL), 1);
}

/* The arguments of Lightning 2.6's Trainer: each has its place in the guide, and is an option or explained. */
TEST(every_argument_of_the_trainer)
{
    static const char *const arguments[] = {"accelerator",
                                            "strategy",
                                            "devices",
                                            "num_nodes",
                                            "precision",
                                            "logger",
                                            "callbacks",
                                            "fast_dev_run",
                                            "max_epochs",
                                            "min_epochs",
                                            "max_steps",
                                            "min_steps",
                                            "max_time",
                                            "limit_train_batches",
                                            "limit_val_batches",
                                            "limit_test_batches",
                                            "limit_predict_batches",
                                            "overfit_batches",
                                            "val_check_interval",
                                            "check_val_every_n_epoch",
                                            "num_sanity_val_steps",
                                            "log_every_n_steps",
                                            "enable_checkpointing",
                                            "enable_progress_bar",
                                            "enable_model_summary",
                                            "accumulate_grad_batches",
                                            "gradient_clip_val",
                                            "gradient_clip_algorithm",
                                            "deterministic",
                                            "benchmark",
                                            "inference_mode",
                                            "use_distributed_sampler",
                                            "profiler",
                                            "detect_anomaly",
                                            "barebones",
                                            "plugins",
                                            "sync_batchnorm",
                                            "reload_dataloaders_every_n_epochs",
                                            "default_root_dir",
                                            "enable_autolog_hparams",
                                            "model_registry",
                                            "suggest_integrations"};
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    lc_option_set set = {.options = table, .n = n};
    char *text = document("from-lightning.md");
    CHECK_EQ(sizeof arguments / sizeof *arguments, 42);
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        char quoted[100];
        void *target;
        snprintf(quoted, sizeof quoted, "`%s`", arguments[i]);
        if (!strstr(text, quoted)) TEST_FAIL("docs/from-lightning.md does not mention %s", arguments[i]);
        bool known = lc__option_find(&set, 1, arguments[i], strlen(arguments[i]), &target) ||
                     lc__option_is_old(arguments[i], strlen(arguments[i])) || !strcmp(arguments[i], "callbacks");
        if (!known) TEST_FAIL("%s is neither an option nor an old name with an answer", arguments[i]);
    }
    free(text);
}

TEST_MAIN

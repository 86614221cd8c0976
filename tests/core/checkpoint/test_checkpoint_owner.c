/* SPDX-License-Identifier: Apache-2.0 */
/* A resumed run manages the checkpoints of its own training and touches nothing else, whatever the checkpoint that it
 * resumes from says (docs/checkpoints.md, "What lightc deletes"). */
#include "checkpoint_runs.h"

#include "base/crc32c.h"
#include "base/json.h"

static char dir[300]; /* of the running test */

static const char *at(const char *name)
{
    static char paths[8][1200];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static bool is_there(const char *name)
{
    struct stat st;
    return lstat(at(name), &st) == 0;
}

static void copy(const char *from, const char *to)
{
    char command[2600];
    snprintf(command, sizeof command, "cp -a '%s' '%s'", at(from), at(to));
    CHECK(system(command) == 0);
}

static void put(const char *path, const char *text, size_t n)
{
    CHECK(remove_tree(path));
    CHECK_OK(lc__create_file(&lc__io_system, path, text, n));
}

/* Replaces the value of the first "key" after `after`. */
static char *with(const char *text, const char *after, const char *key, const char *value)
{
    char want[100];
    snprintf(want, sizeof want, "\"%s\"", key);
    const char *from = strstr(text, after), *begin = from ? strstr(from, want) : NULL, *end;
    CHECK(begin);
    begin += strlen(want);
    begin += strspn(begin, ": \n");
    end = *begin == '"' ? strchr(begin + 1, '"') + 1 : begin + strcspn(begin, ",}\n");
    char *out = NULL;
    CHECK_OK(lc__format(&out, "%.*s\"%s\"%s", (int)(begin - text), text, value, end));
    return out;
}

/* Sets `key` to `value` in a checkpoint, and makes its checksums right again. training: the id to claim; NULL: leaves
 * it; "": none, as in older versions. */
static void forge(const char *ckpt, const char *after, const char *key, const char *value, const char *training)
{
    char path[700], *text;
    size_t n;
    lc__manifest m;
    snprintf(path, sizeof path, "%s/state.json", ckpt);
    CHECK_OK(lc__io_read_file(&lc__io_system, path, 1 << 24, &text, &n));
    if (key) {
        char *forged = with(text, after, key, value);
        free(text);
        text = forged;
        n = strlen(text);
    }
    put(path, text, n);
    CHECK_OK(lc__manifest_read(&lc__io_system, ckpt, &m));
    for (int i = 0; i < m.n; i++)
        if (!strcmp(m.files[i].name, LC__STATE)) m.files[i].size = n, m.files[i].crc = lc__crc32c(0, text, n);
    free(text);
    if (training) snprintf(m.origin.training, sizeof m.origin.training, "%s", training);
    CHECK_OK(lc__manifest_print(&m, &text, &n));
    lc__manifest_release(&m);
    snprintf(path, sizeof path, "%s/manifest.json", ckpt);
    put(path, text, n);
    free(text);
    CHECK_OK(lc_checkpoint_verify(ckpt));
}

static const double falling[] = {9, 8, 7, 6, 5, 4, 3, 2, 1};
static const double rising[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
#define SCRIPT(s) .script = s, .n_script = sizeof s / sizeof *s

/* A folder with a manifest.json next to the directory of checkpoints, and one below it. */
static void begin(const char *name)
{
    snprintf(dir, sizeof dir, "%s", fresh_dir(name));
    CHECK(!mkdir(at("app"), 0777));
    put(at("app/manifest.json"), "{}", 2);
    put(at("app/index.html"), "precious", 8);
}

/* A path that a forged checkpoint names, and how it came to be there. */
typedef struct victim {
    const char *path; /* in dir */
    bool is_copy;     /* a real checkpoint of the same training, outside of its directory */
    bool is_other;    /* a checkpoint of another training */
    bool is_unowned;  /* a checkpoint that names no training */
    bool linked;      /* ckpt/link points to its folder */
} victim;

static const victim victims[] = {
    {"ckpt/../app", false, false, false, false},       {"app", false, false, false, false},
    {"ckpt/../copy.ckpt", true, false, false, false},  {"copy.ckpt", true, false, false, false},
    {"ckpt/other.ckpt", false, true, false, false},    {"ckpt/older.ckpt", false, false, true, false},
    {"ckpt/link/copy.ckpt", true, false, false, true}, {"ckpt/./../copy.ckpt", true, false, false, false},
    {"ckpt/folder", false, false, false, false},
};

static void set_up(const victim *v, const char *own)
{
    char other[400];
    snprintf(other, sizeof other, "%s-other", dir);
    CHECK(remove_tree(other));
    if (v->linked) {
        CHECK(!mkdir(at("elsewhere"), 0777));
        CHECK(!symlink("../elsewhere", at("ckpt/link")));
    }
    if (v->is_copy || v->is_unowned) copy(own, v->path);
    if (v->is_unowned) forge(at(v->path), "", NULL, NULL, "");
    if (v->is_other) {
        CHECK(!mkdir(other, 0777));
        CHECK_OK(train(other, (short_run){.epochs = 1}));
        char command[2000];
        snprintf(command, sizeof command, "mv '%s'/ckpt/*.ckpt '%s'", other, at(v->path));
        CHECK(system(command) == 0);
        CHECK(remove_tree(other));
    }
    if (strstr(v->path, "folder")) {
        CHECK(!mkdir(at(v->path), 0777));
        put(at("ckpt/folder/manifest.json"), "{}", 2);
    }
}

static void check_victim(const victim *v)
{
    char file[700];
    snprintf(file, sizeof file, "%s/manifest.json", v->path);
    if (!is_there(file)) TEST_FAIL("%s is gone", v->path);
    if (v->is_copy || v->is_other || v->is_unowned) CHECK_OK(lc_checkpoint_verify(at(v->path)));
    CHECK(is_there("app/index.html"));
}

/* The newest is kept: the one that the state calls the previous is removed when there is a new one. */
TEST(previous_newest_is_removed_only_if_it_is_the_runs_own)
{
    for (size_t i = 0; i < sizeof victims / sizeof *victims; i++) {
        const victim *v = &victims[i];
        begin("before");
        CHECK_OK(train(dir, (short_run){.epochs = 1}));
        CHECK_STR(kept(dir), "epoch=0-step=2.ckpt ");
        CHECK(!rename(at("ckpt/epoch=0-step=2.ckpt"), at("given.ckpt")));
        set_up(v, "given.ckpt");
        forge(at("given.ckpt"), "\"callbacks\"", "best_model_path", at(v->path), NULL);
        CHECK_OK(train(dir, (short_run){.epochs = 4, .ckpt_path = at("given.ckpt")}));
        check_victim(v);
        CHECK_OK(lc_checkpoint_verify(at("ckpt/epoch=3-step=8.ckpt")));
        CHECK(is_there("given.ckpt"));
        CHECK(is_tidy(dir));
    }
}

/* The best are kept: a new one replaces the worst. */
TEST(worst_is_removed_only_if_it_is_the_runs_own)
{
    for (size_t i = 0; i < sizeof victims / sizeof *victims; i++) {
        const victim *v = &victims[i];
        begin("worst");
        short_run r = {
            .keep = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2), .epochs = 1, SCRIPT(falling)};
        CHECK_OK(train(dir, r));
        CHECK(!rename(at("ckpt/epoch=0-step=2.ckpt"), at("given.ckpt")));
        set_up(v, "given.ckpt");
        forge(at("given.ckpt"), "\"best_k_models\"", "path", at(v->path), NULL);
        r.epochs = 5, r.ckpt_path = at("given.ckpt");
        CHECK_OK(train(dir, r));
        check_victim(v);
        CHECK_OK(lc_checkpoint_verify(at("ckpt/epoch=4-step=10.ckpt")));
        CHECK_OK(lc_checkpoint_verify(at("ckpt/epoch=3-step=8.ckpt")));
        CHECK(!is_there("ckpt/epoch=2-step=6.ckpt"));
        CHECK(is_there("given.ckpt"));
        CHECK(is_tidy(dir));
    }
}

/* The newest is called `last`; if that name belongs to another training, it stays there. */
TEST(last_is_replaced_only_if_it_is_the_runs_own)
{
    for (int link = 0; link < 2; link++)
        for (size_t i = 0; i < sizeof victims / sizeof *victims; i++) {
            victim v = victims[i];
            if (!v.is_other) continue;
            begin("last");
            short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .save_last = LC_ON, .save_top_k = link ? 1 : 0),
                           .epochs = 1};
            CHECK_OK(train(dir, r));
            const char *saved = link ? "ckpt/epoch=0-step=2.ckpt" : "ckpt/last.ckpt";
            CHECK(!rename(at(saved), at("given.ckpt")));
            if (link) CHECK(!unlink(at("ckpt/last.ckpt")));
            v.path = "ckpt/last.ckpt";
            set_up(&v, "given.ckpt");
            r.epochs = 3, r.ckpt_path = at("given.ckpt");
            CHECK_OK(train(dir, r));
            check_victim(&v);
            CHECK_STR(run_last, at("ckpt/last-v1.ckpt"));
            CHECK_OK(lc_checkpoint_verify(at("ckpt/last-v1.ckpt")));
            CHECK(is_tidy(dir));
        }
}

/* ---- a run's own checkpoints, over a resumption ---- */

TEST(a_resumed_run_keeps_managing_its_own)
{
    begin("own");
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON),
                   .epochs = 3,
                   SCRIPT(falling)};
    CHECK_OK(train(dir, r));
    CHECK_STR(kept(dir), "epoch=1-step=4.ckpt epoch=2-step=6.ckpt last.ckpt ");
    r.epochs = 4, r.ckpt_path = at("ckpt/last.ckpt");
    CHECK_OK(train(dir, r)); /* the script starts over, at 9 */
    CHECK_STR(kept(dir), "epoch=1-step=4.ckpt epoch=2-step=6.ckpt last.ckpt ");
    static const double better[] = {0.5, 0.4, 0.3};
    r.script = better, r.n_script = 3, r.epochs = 5, r.ckpt_path = at("ckpt/epoch=2-step=6.ckpt");
    CHECK_OK(train(dir, r));
    /* The checkpoint that the run resumes from is never removed. */
    CHECK_STR(kept(dir), "epoch=2-step=6.ckpt epoch=3-step=8.ckpt epoch=4-step=10.ckpt last.ckpt ");
    CHECK_STR(run_best, at("ckpt/epoch=4-step=10.ckpt"));
    CHECK_STR(run_last, at("ckpt/last.ckpt"));
    r.epochs = 6, r.ckpt_path = at("ckpt/last.ckpt"), r.script = better + 2;
    CHECK_OK(train(dir, r));
    CHECK_STR(kept(dir), "epoch=2-step=6.ckpt epoch=4-step=10.ckpt epoch=5-step=12.ckpt last.ckpt ");
    CHECK(is_tidy(dir));
}

/* In another directory only the path of the best is known: any checkpoint saved there is the best of its list. */
TEST(a_resumed_run_elsewhere_knows_the_best_but_no_score)
{
    begin("first_place");
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss"), .epochs = 2, SCRIPT(falling)};
    char first[600], best[600];
    CHECK_OK(train(dir, r));
    CHECK(run_has_score);
    snprintf(first, sizeof first, "%s", run_best);
    snprintf(best, sizeof best, "%s", first);
    r.ckpt_path = first;
    begin("second_place");
    CHECK_OK(train(dir, r)); /* has nothing left to train */
    CHECK_STR(run_best, best);
    CHECK(!run_has_score);
    r.epochs = 3;
    CHECK_OK(train(dir, r));
    CHECK(run_has_score);
    CHECK_STR(run_best, at("ckpt/epoch=2-step=6.ckpt"));
}

/* `last` is a checkpoint rather than a link if no better one came. */
TEST(a_last_that_is_no_link_is_replaced_after_a_resumption)
{
    begin("own_last");
    short_run r = {
        .keep = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_last = LC_ON), .epochs = 2, SCRIPT(rising)};
    CHECK_OK(train(dir, r));
    CHECK_STR(kept(dir), "epoch=0-step=2.ckpt last.ckpt ");
    r.epochs = 4, r.ckpt_path = at("ckpt/last.ckpt"), r.script = rising + 2, r.n_script = 3;
    CHECK_OK(train(dir, r));
    CHECK_STR(kept(dir), "epoch=0-step=2.ckpt last.ckpt ");
    CHECK_STR(run_last, at("ckpt/last.ckpt"));
    CHECK(is_tidy(dir));
}

/* Checkpoints from before trainings had ids: they count, none of them is removed, and the name of a link is kept. */
TEST(checkpoints_of_an_older_version_count_and_stay)
{
    begin("older");
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON),
                   .epochs = 2,
                   SCRIPT(falling)};
    CHECK_OK(train(dir, r));
    forge(at("ckpt/epoch=0-step=2.ckpt"), "", NULL, NULL, "");
    forge(at("ckpt/epoch=1-step=4.ckpt"), "", NULL, NULL, "");
    r.epochs = 4, r.ckpt_path = at("ckpt/epoch=1-step=4.ckpt");
    static const double next[] = {8.5, 7, 1};
    r.script = next, r.n_script = 3;
    CHECK_OK(train(dir, r)); /* 9 and 8 were there: 8.5 replaces 9, then 7 replaces 8.5 */
    CHECK_STR(kept(dir), "epoch=0-step=2.ckpt epoch=1-step=4.ckpt epoch=3-step=8.ckpt last.ckpt ");
    CHECK_STR(run_best, at("ckpt/epoch=3-step=8.ckpt"));
    CHECK_STR(run_last, at("ckpt/last.ckpt"));
    CHECK_OK(lc_checkpoint_remove(at("ckpt/epoch=0-step=2.ckpt")));
    CHECK(is_tidy(dir));
}

/* ---- on exceptions ---- */

static lc_status fit_with_on_exception(const char *ckpt, bool fails)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_trainer *t;
    lc_callback cb;
    world m;
    world_init(&m, &world_ops_without_val, 4, 0);
    if (fails) m.raise_at[0] = 0, m.raise_at[1] = 2;
    o.default_root_dir = dir;
    o.enable_checkpointing = LC_AUTO;
    o.max_epochs = 2;
    LC_TRY(lc_on_exception_checkpoint(&cb, .dirpath = dir));
    o.callbacks = &cb;
    o.n_callbacks = 1;
    LC_TRY(lc_trainer_new(&o, &t));
    lc_run_args args = LC_ARGS(lc_run, .ckpt_path = ckpt);
    lc_status s = lc_trainer_fit_with(t, &m.base, &args);
    lc_trainer_free(t);
    world_release(&m);
    return s;
}

TEST(on_exception_removes_its_own)
{
    begin("exception");
    CHECK_STATUS(fit_with_on_exception(NULL, true), LC_ERR_USER);
    CHECK(is_there("on_exception.ckpt"));
    copy("on_exception.ckpt", "copy.ckpt");
    /* One of another training, which this run does not resume from, and one with other things in it. */
    CHECK_OK(train(dir, (short_run){.epochs = 1}));
    CHECK(!rename(at("ckpt/epoch=0-step=2.ckpt"), at("other.ckpt")));
    CHECK_OK(fit_with_on_exception(at("other.ckpt"), false));
    CHECK(is_there("on_exception.ckpt"));
    put(at("on_exception.ckpt/thesis.tex"), "precious", 8);
    CHECK_OK(fit_with_on_exception(NULL, false));
    CHECK(is_there("on_exception.ckpt/thesis.tex"));
    CHECK(remove_tree(at("on_exception.ckpt")));
    /* Its own, of this version and of the previous one. */
    for (int older = 0; older < 2; older++) {
        copy("copy.ckpt", "on_exception.ckpt");
        if (older) forge(at("on_exception.ckpt"), "", NULL, NULL, "");
        CHECK_OK(fit_with_on_exception(NULL, false));
        CHECK(!is_there("on_exception.ckpt"));
    }
    CHECK(is_there("copy.ckpt"));
    CHECK(is_there("other.ckpt"));
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints are removed and replaced, and leftovers of dead processes are cleaned away; what somebody else has put
 * there stays (docs/checkpoints.md, "What lightc deletes"). */
#include "checkpoint_world.h"
#include "core/checkpoint/removal.h"
#include "core/checkpoint/taken.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char dir[300]; /* of the running test */

static const char *at(const char *name)
{
    static char paths[8][600];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void begin(const char *name)
{
    snprintf(dir, sizeof dir, "%s", fresh_dir(name));
}

static void put(const char *name, const char *text)
{
    CHECK_OK(lc__create_file(&lc__io_system, at(name), text, strlen(text)));
}

static void make_dir(const char *name)
{
    CHECK(!mkdir(at(name), 0777));
}

static bool is_there(const char *name)
{
    struct stat st;
    return lstat(at(name), &st) == 0;
}

/* Checks that `name` is neither removed nor replaced, and that the message names `entry`. */
static void check_refused(const char *name, const char *entry, lc_status want)
{
    lc_ckpt_writer *w;
    CHECK_STATUS(lc_checkpoint_remove(at(name)), want);
    CHECK_CONTAINS(lc_error_message(), entry);
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_STATUS(save_with(w, at(name), 2, true), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "not replaced");
    if (want == LC_ERR_STATE) CHECK_CONTAINS(lc_error_message(), entry);
    CHECK_STATUS(save_with(w, at(name), 2, true), LC_ERR_STATE); /* again: the first attempt has not moved it */
    lc_ckpt_writer_free(w);
}

TEST(a_checkpoint_with_other_things_in_it_is_left_alone)
{
    static const char *const entries[] = {
        "thesis.tex",          ".notes",           "optimizer2.safetensors", "tensors.safetensors",
        "model-1.safetensors", "manifest.json.bak"};
    begin("entries");
    save(at("a.ckpt"), 1);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        char name[100];
        snprintf(name, sizeof name, "a.ckpt/%s", entries[i]);
        put(name, "precious");
        check_refused("a.ckpt", entries[i], LC_ERR_STATE);
        CHECK(is_there(name));
        CHECK_EQ(step_of(at("a.ckpt")), 1);
        CHECK(!unlink(at(name)));
    }
    make_dir("a.ckpt/figures");
    put("a.ckpt/figures/one.png", "precious");
    check_refused("a.ckpt", "figures", LC_ERR_STATE);
    CHECK(is_there("a.ckpt/figures/one.png"));
    CHECK_EQ(step_of(at("a.ckpt")), 1);
    CHECK_EQ(count_entries(dir), 1);
    CHECK(remove_tree(at("a.ckpt/figures")));
    save(at("a.ckpt"), 3);
    CHECK_EQ(step_of(at("a.ckpt")), 3);
    CHECK_OK(lc_checkpoint_remove(at("a.ckpt")));
    CHECK_EQ(count_entries(dir), 0);
}

TEST(a_folder_with_some_manifest_is_no_checkpoint)
{
    static const char *const manifests[] = {"{\"name\": \"my web app\"}", "", "{\n  \"format\": \"zip\",\n"};
    for (size_t i = 0; i < sizeof manifests / sizeof *manifests; i++) {
        begin("manifest");
        make_dir("app");
        put("app/manifest.json", manifests[i]);
        check_refused("app", "is not a checkpoint of lightc", LC_ERR_ARGUMENT);
        put("app/index.html", "precious");
        check_refused("app", "is not a checkpoint of lightc", LC_ERR_ARGUMENT);
        CHECK(is_there("app/manifest.json"));
        CHECK(is_there("app/index.html"));
        CHECK_EQ(count_entries(dir), 1);
    }
    begin("state");
    make_dir("app");
    put("app/state.json", "{}");
    check_refused("app", "is not a checkpoint of lightc", LC_ERR_ARGUMENT);
    CHECK(is_there("app/state.json"));
}

/* A manifest that is a link belongs to the checkpoint it points to. */
TEST(a_link_to_another_manifest_proves_nothing)
{
    begin("borrowed");
    save(at("a.ckpt"), 1);
    make_dir("mine");
    CHECK(!symlink("../a.ckpt/manifest.json", at("mine/manifest.json")));
    check_refused("mine", "is not a checkpoint of lightc", LC_ERR_ARGUMENT);
    CHECK(is_there("mine/manifest.json"));
}

TEST(a_damaged_checkpoint_is_replaced_and_removed)
{
    begin("damaged");
    for (int i = 0; i < 2; i++) {
        save(at("a.ckpt"), 1);
        CHECK(!truncate(at("a.ckpt/manifest.json"), 150));
        CHECK(!unlink(at("a.ckpt/model.safetensors")));
        CHECK(step_of(at("a.ckpt")) < 0);
        if (i) {
            CHECK_OK(lc_checkpoint_remove(at("a.ckpt")));
        } else {
            save(at("a.ckpt"), 2);
            CHECK_EQ(step_of(at("a.ckpt")), 2);
        }
        CHECK_EQ(count_entries(dir), 1 - i);
    }
}

TEST(links_are_removed_and_never_followed)
{
    begin("links");
    make_dir("elsewhere");
    put("elsewhere/weights", "precious");
    save(at("a.ckpt"), 1);
    CHECK(!unlink(at("a.ckpt/model.safetensors")));
    CHECK(!symlink("../elsewhere/weights", at("a.ckpt/model.safetensors")));
    CHECK_OK(lc_checkpoint_remove(at("a.ckpt")));
    CHECK(!is_there("a.ckpt"));
    CHECK(is_there("elsewhere/weights"));
    /* A link to a directory with a checkpoint's name is an entry like any other. */
    save(at("a.ckpt"), 1);
    CHECK(!symlink("../elsewhere", at("a.ckpt/tensors.safetensors")));
    check_refused("a.ckpt", "tensors.safetensors", LC_ERR_STATE);
    CHECK(is_there("elsewhere/weights"));
}

/* ---- leftovers ---- */

static const char *const others[] = {
    ".tmp-notes",           ".tmp-a.ckpt-host-1",      ".tmp-a.ckpt-host-1-xyz", ".del-",         ".old-a.ckpt",
    ".tmp-a.ckpt-host-1-2", ".del-a.ckpt-host-77-abc", ".old-b.ckpt-host-1-2",   ".taken-a.ckpt", ".tmp--1-2",
};
enum { OTHERS = sizeof others / sizeof *others };

static void check_others(bool folders)
{
    for (int i = 0; i < OTHERS; i++) {
        char name[100];
        snprintf(name, sizeof name, "%s%s", others[i], folders ? "/manifest.json" : "");
        if (!is_there(name)) TEST_FAIL("%s is gone", name);
    }
}

TEST(names_like_those_of_leftovers_are_not_cleaned_away)
{
    char found[600];
    lc_checkpoint *c;
    for (int folders = 0; folders < 2; folders++) {
        begin("others");
        for (int i = 0; i < OTHERS; i++) {
            char name[100];
            if (folders) make_dir(others[i]);
            snprintf(name, sizeof name, "%s%s", others[i], folders ? "/manifest.json" : "");
            put(name, "precious");
        }
        save(at("a.ckpt"), 1);
        check_others(folders);
        CHECK_OK(lc_checkpoint_clean(dir));
        check_others(folders);
        CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
        CHECK(lc_checkpoint_open(at("none.ckpt"), &c) < 0);
        check_others(folders);
        save(at("b.ckpt"), 2);
        check_others(folders);
        CHECK_EQ(count_entries(dir), OTHERS + 2);
    }
}

/* A directory of exactly that form, with lightc's mark in it, that holds something else as well. */
TEST(a_leftover_with_other_things_in_it_stays)
{
    begin("mixed");
    make_dir(".tmp-a.ckpt-host-1-2");
    put(".tmp-a.ckpt-host-1-2/.lightc-unfinished", "");
    put(".tmp-a.ckpt-host-1-2/model.safetensors", "half");
    put(".tmp-a.ckpt-host-1-2/thesis.tex", "precious");
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK(is_there(".tmp-a.ckpt-host-1-2/thesis.tex"));
    CHECK(is_there(".tmp-a.ckpt-host-1-2/model.safetensors"));
    CHECK(!unlink(at(".tmp-a.ckpt-host-1-2/thesis.tex")));
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(count_entries(dir), 0);
}

/* Links of that form may belong to anybody. */
TEST(links_of_others_are_not_cleaned_away)
{
    begin("their_links");
    CHECK(!symlink("a.ckpt", at(".tmp-last.ckpt-host-1-2")));
    CHECK(!symlink("me@here", at(".taken-a.ckpt")));
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(count_entries(dir), 2);
}

static void *clean_on_and_on(void *done)
{
    while (!atomic_load((atomic_bool *)done)) (void)!lc_checkpoint_clean(dir);
    return NULL;
}

/* A process that cleans up locks a directory for a moment, also one that has just been made for a name, or that a dead
 * process has left. The name is free all the same. */
TEST(a_name_is_free_while_others_clean_up)
{
    enum { CLEANERS = 4 };
    static atomic_bool done;
    pthread_t cleaners[CLEANERS];
    begin("cleaned");
    atomic_store(&done, false);
    for (int i = 0; i < CLEANERS; i++) CHECK(!pthread_create(&cleaners[i], NULL, clean_on_and_on, &done));
    int refused = 0;
    for (int i = 0; i < 600; i++) {
        lc__taken *name;
        bool taken;
        if (i % 2) (void)!mkdir(at(".taken-a.ckpt"), 0777);
        CHECK_OK(lc__take_name(at("a.ckpt"), &taken, &name));
        refused += taken;
        lc__taken_release(name);
    }
    atomic_store(&done, true);
    for (int i = 0; i < CLEANERS; i++) pthread_join(cleaners[i], NULL);
    CHECK_EQ(refused, 0);
}

/* Names that differ only at their end, which the name of the directory has no room for. */
TEST(long_names_are_different_names)
{
    char name[2][256];
    lc__taken *names[2];
    bool taken[2];
    begin("long");
    for (int i = 0; i < 2; i++) {
        memset(name[i], 'a', 240);
        snprintf(name[i] + 240, sizeof name[i] - 240, "%d.ckpt", i);
        CHECK_OK(lc__take_name(at(name[i]), &taken[i], &names[i]));
    }
    CHECK(!taken[0] && !taken[1]);
    for (int i = 0; i < 2; i++) lc__taken_release(names[i]);
    CHECK_EQ(count_entries(dir), 0);
}

/* A search for a free name ends even if no directory can be opened, and makes no directory for every name that exists.
 */
TEST(a_name_is_not_taken_because_files_cannot_be_opened)
{
    lc__taken *name;
    bool taken;
    begin("descriptors");
    struct rlimit usual;
    CHECK(!getrlimit(RLIMIT_NOFILE, &usual));
    for (int i = 0; i < 3; i++) {
        const char *path = at("a.ckpt");
        CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, usual.rlim_max}));
        lc_status status = lc__take_name(path, &taken, &name);
        CHECK(!setrlimit(RLIMIT_NOFILE, &usual));
        CHECK_OK(status);
        CHECK(!name);
        CHECK_EQ(taken, i > 0); /* the first has left a directory, which looks like another run's */
    }
    CHECK_EQ(count_entries(dir), 1);
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(count_entries(dir), 0);
}

static void leave_behind(void)
{
    make_dir(".tmp-a.ckpt-host-1-2");
    put(".tmp-a.ckpt-host-1-2/.lightc-unfinished", "");
    put(".tmp-a.ckpt-host-1-2/model-00001-of-00002.safetensors", "half");
    put(".tmp-a.ckpt-host-1-2/.part-00001", "half");
    make_dir(".tmp-b.ckpt-host-1-2");
    save(at("c"), 1);
    CHECK(!rename(at("c"), at(".del-a.ckpt-host-1-2")));
    CHECK(!unlink(at(".del-a.ckpt-host-1-2/state.json")));
}

/* Opens and verifies in another process. */
static int inspect(const char *name)
{
    const char *bin = getenv("LIGHTC_TEST_BIN");
    char command[1400];
    snprintf(command, sizeof command, "%s/lightc ckpt inspect '%s' >/dev/null 2>&1", bin ? bin : "bin", at(name));
    return system(command);
}

TEST(reading_removes_nothing)
{
    char found[600];
    lc_checkpoint *c;
    begin("reading");
    save(at("good.ckpt"), 1);
    save(at("bad.ckpt"), 2);
    CHECK(!truncate(at("bad.ckpt/model.safetensors"), 100));
    leave_behind();
    int before = count_entries(dir);
    CHECK(lc_checkpoint_open(at("bad.ckpt"), &c) < 0);
    CHECK_CONTAINS(lc_error_message(), "good.ckpt");
    CHECK_EQ(count_entries(dir), before);
    CHECK_OK(lc_checkpoint_open(at("good.ckpt"), &c));
    lc_checkpoint_close(c);
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK(inspect("bad.ckpt") != 0);
    CHECK_EQ(count_entries(dir), before);
    save(at("new.ckpt"), 3); /* saving cleans */
    CHECK_EQ(count_entries(dir), 3);
}

/* A name that a dead writer had moved away comes back, unless somebody has used it since. */
TEST(a_lost_name_comes_back)
{
    char found[600];
    begin("lost");
    save(at("x"), 1);
    CHECK(!rename(at("x"), at(".old-a.ckpt-host-1-2")));
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK_STR(found, at("a.ckpt"));
    CHECK_EQ(step_of(at("a.ckpt")), 1);
    save(at("x"), 2);
    CHECK(!rename(at("x"), at(".old-a.ckpt-host-1-3")));
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK_EQ(step_of(at("a.ckpt")), 1);
    CHECK_EQ(count_entries(dir), 2);
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(step_of(at("a.ckpt")), 1);
    CHECK_EQ(count_entries(dir), 1);
}

/* ---- at the same time ---- */

/* Several processes save under the same name: the last save stays, and each reports success. */
TEST(one_name_for_several_writers)
{
    enum { WRITERS = 4, SAVES = 25 };
    begin("race");
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i]) continue;
        lc_ckpt_writer *w;
        int failed = lc_ckpt_writer_new(&w) < 0;
        for (int k = 0; k < SAVES && !failed; k++) {
            failed = save_with(w, at("a.ckpt"), 1000 * i + k, true) < 0;
            if (failed) printf("  %s\n", lc_error_message());
        }
        fflush(stdout);
        lc_ckpt_writer_free(w);
        _exit(failed);
    }
    for (int i = 0; i < WRITERS; i++) {
        int how;
        CHECK(waitpid(children[i], &how, 0) == children[i]);
        CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    CHECK(step_of(at("a.ckpt")) % 1000 == SAVES - 1);
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(count_entries(dir), 1);
}

/* Somebody puts a folder of their own in the place of the checkpoint just before it is replaced. */
static bool came;

static void come_between(void)
{
    if (came) return;
    came = true;
    CHECK(remove_tree(at("a.ckpt")));
    make_dir("a.ckpt");
    put("a.ckpt/thesis.tex", "precious");
}

static int exchange_late(const lc__io *io, const char *a, const char *b)
{
    (void)io;
    come_between();
    return lc__io_system.exchange(&lc__io_system, a, b);
}

static int exchange_never(const lc__io *io, const char *a, const char *b)
{
    (void)io, (void)a, (void)b;
    errno = EINVAL;
    return -1;
}

static int rename_late(const lc__io *io, const char *from, const char *to)
{
    (void)io;
    if (!strcmp(from, at("a.ckpt"))) come_between();
    return lc__io_system.rename(&lc__io_system, from, to);
}

TEST(a_folder_that_appears_before_the_rename_keeps_its_name)
{
    for (int twice = 0; twice < 2; twice++) {
        lc__io io = lc__io_system;
        lc_ckpt_writer *w;
        begin("between");
        save(at("a.ckpt"), 1);
        came = false;
        io.exchange = twice ? exchange_never : exchange_late;
        io.rename = rename_late;
        CHECK_OK(lc_ckpt_writer_new(&w));
        lc__ckpt_writer_set_io(w, &io);
        CHECK_STATUS(save_with(w, at("a.ckpt"), 2, true), LC_ERR_STATE);
        CHECK_CONTAINS(lc_error_message(), "not replaced");
        lc_ckpt_writer_free(w);
        CHECK(is_there("a.ckpt/thesis.tex"));
        CHECK_EQ(count_entries(dir), 1);
    }
}

/* ---- a rank that still writes ---- */

static const char *late_entry; /* what another rank writes once the mark is gone; NULL: nothing more */

static int unlink_while_written(const lc__io *io, int fd, const char *name, int flags)
{
    (void)io;
    int r = lc__io_system.unlinkat(&lc__io_system, fd, name, flags);
    if (r == 0 && late_entry && !strcmp(name, LC__MARK)) {
        put(late_entry, "late");
        late_entry = NULL;
    }
    return r;
}

TEST(files_written_while_rank_0_gives_up_are_removed)
{
    static const char *const entries[] = {"a/.failed-00001", "a/.part-00002", "a/optimizer-00003-of-00003.safetensors"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        lc__io io = lc__io_system;
        begin("late");
        make_dir("a");
        put("a/" LC__MARK, "");
        io.unlinkat = unlink_while_written;
        late_entry = entries[i];
        CHECK_OK(lc__ckpt_remove_own(&io, at("a")));
        CHECK(!late_entry); /* it was written */
        CHECK(!is_there("a"));
    }
}

TEST(a_leftover_with_only_ranks_notes_is_cleaned_away)
{
    begin("notes");
    make_dir(".tmp-a.ckpt-elsewhere-77-ab");
    put(".tmp-a.ckpt-elsewhere-77-ab/.failed-00001", "-3 why");
    make_dir(".tmp-b.ckpt-elsewhere-77-ac");
    put(".tmp-b.ckpt-elsewhere-77-ac/.failed-me", "a user's");
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK(!is_there(".tmp-a.ckpt-elsewhere-77-ab"));
    CHECK(is_there(".tmp-b.ckpt-elsewhere-77-ac/.failed-me"));
}

TEST_MAIN

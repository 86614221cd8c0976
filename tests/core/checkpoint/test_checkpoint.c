/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints load as they were saved, and damaged ones are refused. test_checkpoint_faults.c disturbs the saving
 * itself. */
#include "checkpoint_world.h"
#include "core/checkpoint/find_newest.h"
#include "fake_io.h"

TEST(saved_and_loaded)
{
    char path[512], found[512];
    const char *dir = fresh_dir("plain");
    snprintf(path, sizeof path, "%s/made/on the way/epoch=4-step=10.ckpt/", dir);
    save(path, 10);
    CHECK_EQ(step_of(path), 10);
    CHECK_OK(lc_checkpoint_verify(path));
    path[strlen(path) - 1] = 0;
    CHECK_EQ(count_entries(path), 4);
    struct stat st;
    mode_t mask = umask(0);
    umask(mask);
    CHECK(!stat(path, &st));
    CHECK_EQ(st.st_mode & 0777, 0777 & ~mask);
    strcat(path, "/model.safetensors");
    CHECK(!stat(path, &st));
    CHECK_EQ(st.st_mode & 0777, 0666 & ~mask);
    /* The same name again: replaced, nothing is left over. */
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    save(path, 1);
    save(path, 2);
    CHECK_EQ(step_of(path), 2);
    CHECK_EQ(count_entries(dir), 2);
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK_STR(found, path);
    CHECK_STATUS(lc_checkpoint_find_last_good(dir, found, 5), LC_ERR_ARGUMENT);
}

TEST(other_files_are_not_replaced)
{
    char path[512], inside[600];
    const char *dir = fresh_dir("in_the_way");
    lc_ckpt_writer *w;
    CHECK_OK(lc_ckpt_writer_new(&w));
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    FILE *f = fopen(path, "w");
    CHECK(f && fclose(f) == 0);
    CHECK_STATUS(save_with(w, path, 1, true), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "is not a checkpoint, so it is not replaced");
    CHECK(unlink(path) == 0 && mkdir(path, 0777) == 0); /* an empty folder may be replaced */
    snprintf(inside, sizeof inside, "%s/notes", path);
    f = fopen(inside, "w");
    CHECK(f && fclose(f) == 0);
    CHECK_STATUS(save_with(w, path, 1, true), LC_ERR_STATE);
    CHECK_EQ(count_entries(dir), 1);
    CHECK(unlink(inside) == 0);
    CHECK_OK(save_with(w, path, 1, true));
    CHECK_EQ(step_of(path), 1);
    lc_ckpt_writer_free(w);
}

TEST(asynchronous)
{
    char path[512];
    const char *dir = fresh_dir("async");
    lc_ckpt_writer *w;
    CHECK_OK(lc_ckpt_writer_new(&w));
    for (int64_t step = 1; step <= 20; step++) {
        snprintf(path, sizeof path, "%s/step=%d.ckpt", dir, (int)step);
        CHECK_OK(save_with(w, path, step, false));
    }
    CHECK_OK(lc_ckpt_wait(w));
    CHECK(!lc_ckpt_busy(w));
    CHECK_OK(lc_ckpt_wait(w));
    for (int64_t step = 1; step <= 20; step++) {
        snprintf(path, sizeof path, "%s/step=%d.ckpt", dir, (int)step);
        CHECK_EQ(step_of(path), step);
    }
    /* The next call returns the error, once. */
    snprintf(path, sizeof path, "%s/step=1.ckpt/model.safetensors/x.ckpt", dir);
    CHECK_OK(save_with(w, path, 21, false));
    snprintf(path, sizeof path, "%s/step=21.ckpt", dir);
    CHECK(lc_ckpt_begin(w, path) < 0);
    CHECK_CONTAINS(lc_error_message(), "x.ckpt\" was not saved: ");
    CHECK_OK(save_with(w, path, 21, false));
    lc_ckpt_writer_free(w); /* waits */
    CHECK_EQ(step_of(path), 21);
}

TEST(links_and_removals_follow_a_successful_save)
{
    char a[512], b[512], last[512];
    const char *dir = fresh_dir("then");
    snprintf(a, sizeof a, "%s/a.ckpt", dir);
    snprintf(b, sizeof b, "%s/b.ckpt", dir);
    snprintf(last, sizeof last, "%s/last.ckpt", dir);
    save(a, 1);
    lc_ckpt_writer *w;
    lc_type one = {LC_I64, 0, {0}};
    int64_t v = 5;
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_STATUS(lc_ckpt_then_link(w, last), LC_ERR_STATE);
    for (int fails = 1; fails >= 0; fails--) {
        CHECK_OK(lc_ckpt_begin(w, b));
        CHECK_OK(lc_ckpt_add_data(w, LC_CKPT_MODEL, "a", &one, &v));
        CHECK_OK(lc_ckpt_then_link(w, last));
        CHECK_OK(lc_ckpt_then_remove(w, a));
        fake_io fake;
        fake_init(&fake, 1, EIO, true);
        lc__ckpt_writer_set_io(w, fails ? &fake.io : &lc__io_system);
        CHECK_OK(lc_ckpt_commit(w, false));
        if (fails)
            CHECK(lc_ckpt_wait(w) < 0);
        else
            CHECK_OK(lc_ckpt_wait(w));
        if (fails) CHECK_EQ(step_of(a), 1);
        if (fails) CHECK_EQ(count_entries(dir), 1);
    }
    CHECK_OK(lc_checkpoint_verify(last));
    lc_ckpt_writer_free(w);
    CHECK_EQ(count_entries(dir), 2);
    CHECK(access(a, F_OK) < 0);
}

static int no_exchange(const lc__io *io, const char *a, const char *b)
{
    (void)io, (void)a, (void)b;
    errno = EINVAL;
    return -1;
}

/* Another trainer cleans the directory whenever something is renamed. */
static int rename_and_clean(const lc__io *io, const char *from, const char *to)
{
    char dir[512];
    int rc = lc__io_system.rename(io, from, to);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(to, '/') - to), to);
    return rc == 0 && lc_checkpoint_clean(dir) < 0 ? -1 : rc;
}

TEST(a_replaced_checkpoint_is_not_restored_by_another_process)
{
    char path[512];
    const char *dir = fresh_dir("aside");
    lc__io io = lc__io_system;
    lc_ckpt_writer *w;
    io.exchange = no_exchange;
    io.rename = rename_and_clean;
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    CHECK_OK(lc_ckpt_writer_new(&w));
    lc__ckpt_writer_set_io(w, &io);
    for (int i = 1; i <= 3; i++) {
        CHECK_OK(save_with(w, path, i, false));
        CHECK_OK(lc_ckpt_wait(w));
        CHECK_EQ(step_of(path), i);
    }
    lc__ckpt_rest(w);
    CHECK_EQ(count_entries(dir), 1);
    lc_ckpt_writer_free(w);
}

/* The same, requested when the checkpoint is already being written, or is done. */
TEST(links_and_removals_may_be_requested_late)
{
    char path[4][512], last[512];
    const char *dir = fresh_dir("late");
    lc_ckpt_writer *w;
    fake_io fake;
    snprintf(last, sizeof last, "%s/last.ckpt", dir);
    for (int i = 0; i < 4; i++) snprintf(path[i], sizeof path[i], "%s/%d.ckpt", dir, i);
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(save_with(w, path[0], 1, false));
    CHECK_OK(lc_ckpt_then_link(w, last));
    CHECK_OK(lc_ckpt_wait(w));
    CHECK_OK(save_with(w, path[1], 2, false));
    CHECK_OK(lc_ckpt_then_remove(w, path[0]));
    CHECK_OK(lc_ckpt_then_link(w, last));
    CHECK_OK(lc_ckpt_wait(w));
    lc__ckpt_rest(w);
    CHECK_EQ(count_entries(dir), 2);
    CHECK_EQ(step_of(last), 2);
    /* Nothing is done if the save fails, whether it was requested before the result or after it. */
    fake_init(&fake, 1, EIO, true);
    lc__ckpt_writer_set_io(w, &fake.io);
    CHECK_OK(save_with(w, path[2], 3, false));
    CHECK_OK(lc_ckpt_then_remove(w, path[1]));
    CHECK(lc_ckpt_wait(w) < 0);
    CHECK_OK(lc_ckpt_then_link(w, last));
    CHECK_OK(lc_ckpt_then_remove(w, path[1]));
    lc__ckpt_writer_set_io(w, &lc__io_system);
    for (int i = 0; i < 2; i++) { /* at rest, and right before the next save */
        if (i == 0) lc__ckpt_rest(w);
        CHECK_EQ(step_of(last), 2);
        CHECK_OK(save_with(w, path[3], 4, false));
        CHECK_OK(lc_ckpt_wait(w));
        CHECK_EQ(step_of(path[1]), 2);
    }
    /* After the result, on an idle thread. */
    lc__ckpt_rest(w);
    CHECK_OK(lc_ckpt_then_remove(w, path[1]));
    CHECK_OK(lc_ckpt_then_link(w, last));
    lc__ckpt_rest(w);
    CHECK_EQ(step_of(last), 4);
    CHECK_EQ(count_entries(dir), 2);
    /* A failure is reported, and nothing else is affected. */
    char text[1024];
    CHECK(!lc__ckpt_complaint(w, text, sizeof text));
    CHECK_OK(lc_ckpt_then_link(w, "/nowhere/last.ckpt"));
    lc__ckpt_rest(w);
    CHECK(lc__ckpt_complaint(w, text, sizeof text));
    CHECK_CONTAINS(text, "not in the same directory");
    CHECK(!lc__ckpt_complaint(w, text, sizeof text));
    lc_ckpt_writer_free(w);
    CHECK_EQ(step_of(last), 4);
}

/* A link on an idle thread, and right after it a checkpoint that takes the link's name. */
TEST(a_late_link_never_takes_the_place_of_a_newer_checkpoint)
{
    char path[512], last[512];
    const char *dir = fresh_dir("newer");
    lc_ckpt_writer *w;
    snprintf(path, sizeof path, "%s/one.ckpt", dir);
    snprintf(last, sizeof last, "%s/last.ckpt", dir);
    CHECK_OK(lc_ckpt_writer_new(&w));
    for (int i = 0; i < 50; i++) {
        CHECK_OK(save_with(w, path, 2 * i, true));
        lc__ckpt_rest(w);
        CHECK_OK(lc_ckpt_then_link(w, last));
        CHECK_OK(save_with(w, last, 2 * i + 1, true));
        lc__ckpt_rest(w);
        CHECK_EQ(step_of(last), 2 * i + 1);
    }
    lc_ckpt_writer_free(w);
}

TEST(misuse)
{
    lc_ckpt_writer *w;
    lc_type one = {LC_I64, 0, {0}};
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_STATUS(lc_ckpt_commit(w, true), LC_ERR_STATE);
    CHECK_STATUS(lc_ckpt_add_data(w, LC_CKPT_MODEL, "a", &one, NULL), LC_ERR_STATE);
    CHECK_STATUS(lc_ckpt_add_tensor(w, LC_CKPT_MODEL, "a", NULL), LC_ERR_ARGUMENT);
    static const char *const names[] = {"", "/", "a/..", ".", "/tmp/./", NULL};
    for (int i = 0; names[i]; i++) CHECK_STATUS(lc_ckpt_begin(w, names[i]), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_ckpt_begin(w, NULL), LC_ERR_ARGUMENT);
    char path[512];
    snprintf(path, sizeof path, "%s/a.ckpt", fresh_dir("misuse"));
    CHECK_OK(lc_ckpt_begin(w, path));
    int64_t v = 1;
    CHECK_OK(lc_ckpt_add_data(w, LC_CKPT_MODEL, "a", &one, &v));
    CHECK_OK(lc_ckpt_add_data(w, LC_CKPT_MODEL, "a", &one, &v));
    CHECK_STATUS(lc_ckpt_commit(w, true), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "two tensors are named \"a\"");
    CHECK_OK(lc_ckpt_begin(w, path));
    CHECK_OK(lc_state_set_text(lc_ckpt_state(w), "a", "\xff"));
    CHECK_STATUS(lc_ckpt_commit(w, true), LC_ERR_ARGUMENT);
    lc_ckpt_abort(w);
    lc_ckpt_writer_free(w);
    lc_ckpt_writer_free(NULL);
    CHECK(access(path, F_OK) < 0);
}

/* ---- damage ---- */

static void check_damaged(const char *path, const char *file, const char *good)
{
    lc_checkpoint *c;
    lc_status status = lc_checkpoint_open(path, &c);
    if (status >= 0) TEST_FAIL("damage in %s was not detected", file);
    CHECK_EQ(status, LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), file);
    CHECK_CONTAINS(lc_error_message(), good);
    CHECK(lc_checkpoint_verify(path) < 0);
}

/* Writes m as the checkpoint's, and releases it. */
static void replace_manifest(const char *path, lc__manifest *m)
{
    char file[600], *text;
    size_t n;
    snprintf(file, sizeof file, "%s/manifest.json", path);
    CHECK_OK(lc__manifest_print(m, &text, &n));
    CHECK(!unlink(file));
    CHECK_OK(lc__create_file(&lc__io_system, file, text, n));
    free(text);
    lc__manifest_release(m);
}

/* All files that its manifest lists are whole, but the model is not among them. */
TEST(what_is_refused_is_not_named_as_valid)
{
    char path[512], good[512], found[512];
    lc_checkpoint *c;
    lc__manifest m;
    const char *dir = fresh_dir("without_model");
    snprintf(good, sizeof good, "%s/good.ckpt", dir);
    save(good, 1);
    snprintf(path, sizeof path, "%s/bad.ckpt", dir);
    save(path, 2);
    CHECK_OK(lc__manifest_read(&lc__io_system, path, &m));
    for (int i = 0; i < m.n; i++)
        if (!strcmp(m.files[i].name, "model.safetensors")) m.files[i] = m.files[--m.n];
    replace_manifest(path, &m);
    CHECK_OK(lc_checkpoint_verify(path));
    CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "its manifest lists no model");
    CHECK_CONTAINS(lc_error_message(), "newest valid checkpoint there is");
    CHECK_CONTAINS(lc_error_message(), "good.ckpt");
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK_STR(found, good);
}

TEST(flipped_bits_and_truncation)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"};
    char path[512], good[512], file[600];
    const char *dir = fresh_dir("damage");
    snprintf(good, sizeof good, "%s/good.ckpt", dir);
    save(good, 1);
    snprintf(path, sizeof path, "%s/bad.ckpt", dir);
    save(path, 2);
    for (int k = 0; k < 4; k++) {
        char *bytes;
        size_t n;
        snprintf(file, sizeof file, "%s/%s", path, files[k]);
        CHECK_OK(lc__io_read_file(&lc__io_system, file, 1 << 24, &bytes, &n));
        int fd = open(file, O_RDWR);
        CHECK(fd >= 0);
        size_t stride = n < 1000 ? 1 : n / 97;
        for (size_t i = 0; i < n; i += stride) {
            char flipped = bytes[i] ^ (char)(1 << i % 8);
            CHECK(pwrite(fd, &flipped, 1, (off_t)i) == 1);
            check_damaged(path, files[k], "good.ckpt");
            CHECK(pwrite(fd, bytes + i, 1, (off_t)i) == 1);
        }
        CHECK_EQ(step_of(path), 2);
        for (size_t length = 0; length < n; length += stride) {
            CHECK(!ftruncate(fd, (off_t)length));
            check_damaged(path, files[k], "good.ckpt");
            CHECK(pwrite(fd, bytes, n, 0) == (ssize_t)n);
        }
        CHECK(!ftruncate(fd, (off_t)n + 1));
        check_damaged(path, files[k], "good.ckpt");
        CHECK(!ftruncate(fd, (off_t)n));
        close(fd);
        CHECK(!unlink(file));
        check_damaged(path, files[k], "good.ckpt");
        CHECK_OK(lc__create_file(&lc__io_system, file, bytes, n));
        free(bytes);
        CHECK_EQ(step_of(path), 2);
    }
}

TEST(other_files_are_refused)
{
    char path[512];
    lc_checkpoint *c;
    const char *dir = fresh_dir("foreign");
    snprintf(path, sizeof path, "%s/torch.ckpt", dir);
    CHECK_OK(lc__create_file(&lc__io_system, path, "PK\3\4", 4));
    CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "torch.ckpt\" is a file, not a checkpoint of lightc");
    snprintf(path, sizeof path, "%s/dir.ckpt", dir);
    CHECK(!mkdir(path, 0777));
    CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "has no manifest.json");
    CHECK_STATUS(lc_checkpoint_remove(path), LC_ERR_ARGUMENT);
    CHECK(!access(path, F_OK));
    snprintf(path, sizeof path, "%s/none.ckpt", dir);
    CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_checkpoint_remove(path), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_checkpoint_find_last_good(dir, path, sizeof path), LC_ERR_NOT_FOUND);
}

TEST(links_and_removal)
{
    char a[512], b[512], last[512], target[64];
    const char *dir = fresh_dir("links");
    snprintf(a, sizeof a, "%s/a.ckpt", dir);
    snprintf(b, sizeof b, "%s/b.ckpt", dir);
    snprintf(last, sizeof last, "%s/last.ckpt", dir);
    save(a, 1);
    CHECK_OK(lc_checkpoint_link(last, a));
    CHECK_EQ(step_of(last), 1);
    save(b, 2);
    CHECK_OK(lc_checkpoint_link(last, b));
    CHECK_EQ(step_of(last), 2);
    ssize_t n = readlink(last, target, sizeof target - 1);
    CHECK(n > 0);
    target[n] = 0;
    CHECK_STR(target, "b.ckpt"); /* relative, so that the directory can be moved */
    CHECK_OK(lc_checkpoint_remove(a));
    CHECK(access(a, F_OK) < 0);
    CHECK_EQ(step_of(last), 2);
    /* Into a folder below, through which the newest is found; never to a place outside. */
    char below[600], found[600];
    snprintf(below, sizeof below, "%s/x/y.ckpt", dir);
    save(below, 4);
    CHECK_OK(lc_checkpoint_link(last, below));
    CHECK_EQ(step_of(last), 4);
    n = readlink(last, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    CHECK_STR(target, "x/y.ckpt");
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK_STR(found, below);
    CHECK_STATUS(lc_checkpoint_link(below, b), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "nor in a folder below it");
    char outside[600];
    snprintf(outside, sizeof outside, "%s/x/../../y.ckpt", dir);
    CHECK_STATUS(lc_checkpoint_link(last, outside), LC_ERR_ARGUMENT);
    CHECK_OK(lc_checkpoint_link(last, b));
    CHECK_OK(lc_checkpoint_remove(below));
    snprintf(below, sizeof below, "%s/x", dir);
    CHECK(rmdir(below) == 0);
    CHECK_STATUS(lc_checkpoint_remove(last), LC_ERR_ARGUMENT); /* a link is not a checkpoint */
    CHECK_STATUS(lc_checkpoint_link(b, a), LC_ERR_IO);         /* b is a checkpoint, not a link */
    CHECK_EQ(step_of(b), 2);
    /* Saving to the name of a link replaces the link, not what it points to. */
    save(last, 3);
    CHECK_EQ(step_of(last), 3);
    CHECK_EQ(step_of(b), 2);
    CHECK_EQ(count_entries(dir), 2);
}

TEST(cleaning_spares_live_writers)
{
    const char *dir = fresh_dir("living");
    char path[512], temp[600];
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    lc_ckpt_writer *w;
    CHECK_OK(lc_ckpt_writer_new(&w));
    for (int64_t i = 0; i < 30; i++) {
        CHECK_OK(save_with(w, path, i, false));
        while (lc_ckpt_busy(w)) CHECK_OK(lc_checkpoint_clean(dir));
        CHECK_OK(lc_ckpt_wait(w));
        CHECK_EQ(step_of(path), i);
    }
    lc_ckpt_writer_free(w);
    snprintf(temp, sizeof temp, "%s/.tmp-b.ckpt-host-1-2", dir);
    CHECK(!mkdir(temp, 0777));
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(count_entries(dir), 1);
}

static void save_from(const char *dir, const char *name, lc__ckpt_origin origin, bool weights_only)
{
    char path[512];
    lc_ckpt_writer *w;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(lc_ckpt_begin(w, path));
    lc__ckpt_set_origin(w, &origin);
    CHECK_OK(lc_ckpt_add_data(w, LC_CKPT_MODEL, "w", &(lc_type){LC_F32, 1, {4}}, weights));
    CHECK_OK(lc_state_set_bool(lc_ckpt_state(w), "weights_only", weights_only));
    CHECK_OK(lc_ckpt_commit(w, true));
    lc_ckpt_writer_free(w);
}

static void check_newest(const char *dir, const lc__ckpt_origin *origin, bool to_continue, const char *want)
{
    lc__ckpt_list list = {0};
    CHECK_OK(lc__ckpt_list_add(&list, dir, origin));
    const char *path = lc__ckpt_list_newest(&list, to_continue);
    CHECK_STR(path ? strrchr(path, '/') + 1 : "none", want);
    lc__ckpt_list_free(&list);
}

/* The newest of a run, of one of its fits, and of the checkpoints that a training can resume from. */
TEST(newest_by_origin)
{
    const char *dir = fresh_dir("whom");
    save_from(dir, "a1", (lc__ckpt_origin){"a", 1}, false);
    save_from(dir, "a2", (lc__ckpt_origin){"a", 2}, false);
    save_from(dir, "b1", (lc__ckpt_origin){"b", 1}, false);
    save_from(dir, "b1-weights", (lc__ckpt_origin){"b", 1}, true);
    save_from(dir, "unowned", (lc__ckpt_origin){"", 0}, false);
    save_from(dir, "unowned-weights", (lc__ckpt_origin){"", 0}, true);
    check_newest(dir, NULL, false, "unowned-weights");
    check_newest(dir, NULL, true, "unowned");
    check_newest(dir, &(lc__ckpt_origin){"a", 1}, true, "a1");
    check_newest(dir, &(lc__ckpt_origin){"a", 2}, true, "a2");
    check_newest(dir, &(lc__ckpt_origin){"b", 1}, true, "b1");
    check_newest(dir, &(lc__ckpt_origin){"b", 1}, false, "b1-weights");
    check_newest(dir, &(lc__ckpt_origin){"b", 2}, false, "none");
    check_newest(dir, &(lc__ckpt_origin){"", 2}, false, "a2"); /* of any run */
}

TEST(names_that_leave_the_directory)
{
    char path[512];
    lc_checkpoint *c;
    snprintf(path, sizeof path, "%s/a.ckpt", fresh_dir("names"));
    save(path, 1);
    lc__manifest m;
    CHECK_OK(lc__manifest_read(&lc__io_system, path, &m));
    snprintf(m.files[1].name, sizeof m.files[1].name, "../../passwd");
    replace_manifest(path, &m);
    CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "not a valid file name");
}

TEST_MAIN

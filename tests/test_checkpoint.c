/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: what was reported as saved is there and whole, whatever was killed, failed, flipped or cut off. */
#include "test.h"
#include <lightc/checkpoint.h>
#include "core/checkpoint.h"
#include "fail_malloc.h"
#include "fake_io.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

/* ---- a model to save: every value depends on the step ---- */

#define WEIGHTS 20000

static char root[256];
/* For tests that save hundreds of times: in memory if there is such a file system. A sync takes a tenth of a second on
 * a disk that others keep busy. */
static char fast_root[256];
static float *weights; /* read by the writer */

__attribute__((constructor)) static void make_dir(void)
{
    struct statvfs shm;
    bool fast = statvfs("/dev/shm", &shm) == 0 && (double)shm.f_bavail * (double)shm.f_frsize > 64e6;
    snprintf(root, sizeof root, "/tmp/lightc-test-ckpt-XXXXXX");
    snprintf(fast_root, sizeof fast_root, "/dev/shm/lightc-test-ckpt-XXXXXX");
    if (!mkdtemp(root)) abort();
    if (!fast || !mkdtemp(fast_root)) snprintf(fast_root, sizeof fast_root, "%s", root);
    weights = malloc(WEIGHTS * sizeof *weights);
}

static pid_t owner;
__attribute__((destructor)) static void remove_dir(void)
{
    if (owner && getpid() != owner) return;
    const char *const roots[] = {root, fast_root};
    for (int i = 0; i < 2; i++)
        if (lc__remove_tree(&lc__io_system, roots[i]) < 0) fprintf(stderr, "%s is left behind\n", roots[i]);
    free(weights);
}

static const char *empty_dir(const char *below, const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", below, name);
    CHECK_OK(lc__remove_tree(&lc__io_system, path));
    CHECK(!mkdir(path, 0777));
    return path;
}

/* An empty directory. */
static const char *fresh_dir(const char *name)
{
    return empty_dir(root, name);
}

static const char *fast_dir(const char *name)
{
    return empty_dir(fast_root, name);
}

static lc_status save_with(lc_ckpt_writer *w, const char *path, int64_t step, bool wait)
{
    LC_TRY(lc_ckpt_begin(w, path));
    for (int i = 0; i < WEIGHTS; i++) weights[i] = (float)(step * 31 + i);
    lc_type matrix = {LC_F32, 2, {WEIGHTS / 100, 100}}, one = {LC_I64, 0, {0}};
    LC_TRY(lc_ckpt_add_data(w, LC_CKPT_MODEL, "net.weight", &matrix, weights));
    LC_TRY(lc_ckpt_add_data(w, LC_CKPT_MODEL, "net.step", &one, &step));
    LC_TRY(lc_ckpt_add_data(w, LC_CKPT_OPTIMIZER, "exp_avg", &matrix, weights));
    LC_TRY(lc_state_set_int(lc_ckpt_state(w), "global_step", step));
    LC_TRY(lc_state_set_double(lc_ckpt_state(w), "best", -INFINITY));
    lc_status status = lc_ckpt_commit(w, wait);
    memset(weights, 0xff, WEIGHTS * sizeof *weights); /* the snapshot must not look at it again */
    return status;
}

static void save(const char *path, int64_t step)
{
    lc_ckpt_writer *w;
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(save_with(w, path, step, true));
    lc_ckpt_writer_free(w);
}

/* The step of a checkpoint whose content is all of that step; -1 if it cannot be opened. */
static int64_t step_of(const char *path)
{
    lc_checkpoint *c;
    if (lc_checkpoint_open(path, &c) < 0) return -1;
    int64_t step, model_step;
    double best;
    float *value = malloc(WEIGHTS * sizeof *value);
    CHECK_OK(lc_state_get_int(lc_checkpoint_state(c), "global_step", &step));
    CHECK_OK(lc_state_get_double(lc_checkpoint_state(c), "best", &best));
    lc_safetensors *model = lc_checkpoint_part(c, LC_CKPT_MODEL), *opt = lc_checkpoint_part(c, LC_CKPT_OPTIMIZER);
    CHECK(model && opt && !lc_checkpoint_part(c, LC_CKPT_TENSORS));
    CHECK_OK(lc_safetensors_read(model, lc_safetensors_find(model, "net.step"), &model_step, 8));
    CHECK_EQ(step, model_step);
    for (int k = 0; k < 2; k++) {
        lc_safetensors *f = k ? opt : model;
        CHECK_OK(lc_safetensors_read(f, lc_safetensors_find(f, k ? "exp_avg" : "net.weight"), value,
                                     WEIGHTS * sizeof *value));
        for (int i = 0; i < WEIGHTS; i++) CHECK(value[i] == (float)(step * 31 + i));
    }
    free(value);
    lc_checkpoint_close(c);
    return step;
}

static int count_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

TEST(saved_and_loaded)
{
    owner = getpid();
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
    /* The same name again: replaced, nothing left over. */
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    save(path, 1);
    save(path, 2);
    CHECK_EQ(step_of(path), 2);
    CHECK_EQ(count_entries(dir), 2);
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK_STR(found, path);
    CHECK_STATUS(lc_checkpoint_find_last_good(dir, found, 5), LC_ERR_ARGUMENT);
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
    /* An error comes with the next call, once. */
    snprintf(path, sizeof path, "%s/step=1.ckpt/model.safetensors/x.ckpt", dir);
    CHECK_OK(save_with(w, path, 21, false));
    snprintf(path, sizeof path, "%s/step=21.ckpt", dir);
    CHECK(lc_ckpt_begin(w, path) < 0);
    CHECK_CONTAINS(lc_error_message(), "x.ckpt\" was not saved: ");
    CHECK_OK(save_with(w, path, 21, false));
    lc_ckpt_writer_free(w); /* waits */
    CHECK_EQ(step_of(path), 21);
}

TEST(what_is_done_afterwards)
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

/* The same, asked for when the checkpoint is already on its way, or done. */
TEST(what_is_done_afterwards_can_be_said_late)
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
    /* Not if it fails: neither what was said before the result nor after it. */
    fake_init(&fake, 1, EIO, true);
    lc__ckpt_writer_set_io(w, &fake.io);
    CHECK_OK(save_with(w, path[2], 3, false));
    CHECK_OK(lc_ckpt_then_remove(w, path[1]));
    CHECK(lc_ckpt_wait(w) < 0);
    CHECK_OK(lc_ckpt_then_link(w, last));
    CHECK_OK(lc_ckpt_then_remove(w, path[1]));
    lc__ckpt_writer_set_io(w, &lc__io_system);
    for (int i = 0; i < 2; i++) { /* at rest, and with the next one right behind */
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
    /* What cannot be done is told, and nothing else is hurt. */
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
    if (status >= 0) TEST_FAIL("damage in %s was not seen", file);
    CHECK_EQ(status, LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), file);
    CHECK_CONTAINS(lc_error_message(), good);
    CHECK(lc_checkpoint_verify(path) < 0);
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

TEST(foreign)
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
    CHECK_STATUS(lc_checkpoint_remove(last), LC_ERR_ARGUMENT); /* a link is not a checkpoint */
    CHECK_STATUS(lc_checkpoint_link(b, a), LC_ERR_IO);         /* b is one, and not a link */
    CHECK_EQ(step_of(b), 2);
    /* Saving to the name of a link replaces the link, not what it points to. */
    save(last, 3);
    CHECK_EQ(step_of(last), 3);
    CHECK_EQ(step_of(b), 2);
    CHECK_EQ(count_entries(dir), 2);
}

/* ---- faults ---- */

/* A machine that dies at the n-th call of a save: the checkpoint that was reported before is still there, and under
 * the new one's name there is nothing or a whole one. Mode 1: both have the same name. Mode 2: and the file system
 * cannot exchange names. */
TEST(crash_at_every_call)
{
    for (int mode = 0; mode < 3; mode++) {
        bool done = false;
        for (long n = 1; !done; n++) {
            char old[512], new[512], found[512];
            const char *dir = fast_dir("crash");
            snprintf(old, sizeof old, "%s/old.ckpt", dir);
            snprintf(new, sizeof new, "%s/%s.ckpt", dir, mode ? "old" : "new");
            save(old, 1);
            fake_io fake;
            lc_ckpt_writer *w;
            fake_init(&fake, n, EIO, true);
            fake.no_exchange = mode == 2;
            CHECK_OK(lc_ckpt_writer_new(&w));
            lc__ckpt_writer_set_io(w, &fake.io);
            lc_status status = save_with(w, new, 2, true);
            lc_ckpt_writer_free(w);
            if (fake.violation) TEST_FAIL("call %ld: %s", n, fake.violation);
            done = !fake.dead;
            if (!fake.dead) CHECK_OK(status);
            fake_lose(&fake);
            CHECK_OK(lc_checkpoint_clean(dir));
            CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
            int64_t want = step_of(found);
            if (status >= 0) CHECK_EQ(want, 2);
            if (!mode) CHECK_EQ(step_of(old), 1);
            if (mode) CHECK(step_of(old) >= 1);
            if (!access(new, F_OK)) CHECK(step_of(new) >= 1);
            CHECK_EQ(count_entries(dir), access(new, F_OK) || mode ? 1 : 2);
            CHECK(n < 1000);
        }
    }
}

/* One call fails, then all is well again: an error that says so, the old one untouched, and the next save works. */
TEST(error_at_every_call)
{
    static const int errors[] = {EIO, ENOSPC};
    for (int e = 0; e < 2; e++) {
        bool done = false;
        for (long n = 1; !done; n++) {
            char old[512], new[512];
            const char *dir = fast_dir("fault");
            snprintf(old, sizeof old, "%s/old.ckpt", dir);
            snprintf(new, sizeof new, "%s/new.ckpt", dir);
            save(old, 1);
            fake_io fake;
            lc_ckpt_writer *w;
            fake_init(&fake, n, errors[e], false);
            CHECK_OK(lc_ckpt_writer_new(&w));
            lc__ckpt_writer_set_io(w, &fake.io);
            lc_status status = save_with(w, new, 2, true);
            done = fake.calls < n;
            if (done) CHECK_OK(status);
            if (status < 0) {
                CHECK_CONTAINS(lc_error_message(), "new.ckpt\" was not saved: ");
                CHECK_CONTAINS(lc_error_message(), strerror(errors[e]));
            }
            CHECK_EQ(step_of(old), 1);
            if (status >= 0) CHECK_EQ(step_of(new), 2);
            fake.fail_at = 0;
            CHECK_OK(save_with(w, new, 3, true));
            CHECK_EQ(step_of(new), 3);
            CHECK_EQ(step_of(old), 1);
            if (fake.violation) TEST_FAIL("call %ld: %s", n, fake.violation);
            lc_ckpt_writer_free(w);
            CHECK_OK(lc_checkpoint_clean(dir));
            CHECK_EQ(count_entries(dir), 2);
            CHECK(n < 1000);
        }
    }
}

TEST(short_writes_and_interruptions)
{
    char path[512];
    snprintf(path, sizeof path, "%s/a.ckpt", fresh_dir("short"));
    fake_io fake;
    lc_ckpt_writer *w;
    fake_init(&fake, 0, 0, false);
    fake.short_writes = true;
    CHECK_OK(lc_ckpt_writer_new(&w));
    lc__ckpt_writer_set_io(w, &fake.io);
    CHECK_OK(save_with(w, path, 7, true));
    lc_ckpt_writer_free(w);
    CHECK_EQ(step_of(path), 7);
}

TEST(limit_on_file_sizes)
{
    char path[512], old[512];
    const char *dir = fresh_dir("limit");
    snprintf(old, sizeof old, "%s/old.ckpt", dir);
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    save(old, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) { /* SIGXFSZ keeps its default action: it must not end the program */
        struct rlimit limit = {8192, 8192};
        lc_ckpt_writer *w;
        if (setrlimit(RLIMIT_FSIZE, &limit) < 0 || lc_ckpt_writer_new(&w) < 0) _exit(2);
        lc_status status = save_with(w, path, 2, true);
        int code = status == LC_ERR_IO && strstr(lc_error_message(), "ulimit -f") ? 0 : 1;
        lc_ckpt_writer_free(w);
        _exit(code);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
    CHECK_EQ(step_of(old), 1);
    CHECK_EQ(count_entries(dir), 1);
}

TEST(no_memory_at_every_call)
{
#ifdef SANITIZED
    SKIP("sanitizers have an allocator of their own");
#else
    char old[512], new[512];
    const char *dir = fast_dir("memory");
    snprintf(old, sizeof old, "%s/old.ckpt", dir);
    snprintf(new, sizeof new, "%s/new.ckpt", dir);
    save(old, 1);
    bool done = false;
    int failed = 0;
    for (long n = 1; !done; n++) {
        lc_ckpt_writer *w = NULL;
        lc_checkpoint *c = NULL;
        atomic_store(&mallocs, 0);
        atomic_store(&malloc_fail_at, n);
        lc_status status = lc_ckpt_writer_new(&w);
        if (status >= 0) status = save_with(w, new, 2, true);
        if (status >= 0) status = lc_checkpoint_open(new, &c);
        done = atomic_load(&mallocs) < n;
        atomic_store(&malloc_fail_at, 0);
        if (status < 0) {
            failed++;
            if (status != LC_ERR_MEMORY && status != LC_ERR_IO) TEST_FAIL("malloc %ld: %s", n, lc_error_message());
            CHECK(*lc_error_message());
            CHECK(!c);
        }
        lc_checkpoint_close(c);
        lc_ckpt_writer_free(w);
        CHECK_EQ(step_of(old), 1);
        if (!access(new, F_OK)) CHECK_EQ(step_of(new), 2);
        CHECK(n < 5000);
    }
    CHECK(failed > 20);
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(count_entries(dir), 2);
#endif
}

/* ---- kill -9 ---- */

static void save_until_killed(const char *dir, int fd, int64_t first, bool background)
{
    lc_ckpt_writer *w;
    char path[512];
    if (lc_ckpt_writer_new(&w) < 0) _exit(1);
    int64_t reported = 0;
    for (int64_t step = first;; step++) {
        /* Two names in turn and a link, so that replacing and linking are hit as well. */
        snprintf(path, sizeof path, "%s/%s.ckpt", dir, step % 2 ? "odd" : "even");
        if (save_with(w, path, step, !background) < 0) _exit(2);
        if (background && step % 3 && lc_ckpt_wait(w) < 0) _exit(3);
        if (background && !(step % 3)) { /* the next begin is what reports it */
            reported = step - 1;
        } else {
            reported = step;
        }
        if (reported >= first && write(fd, &reported, sizeof reported) != sizeof reported) _exit(4);
        char last[512];
        snprintf(last, sizeof last, "%s/last.ckpt", dir);
        if (!(background && !(step % 3)) && lc_checkpoint_link(last, path) < 0) _exit(5);
    }
}

TEST(kill_9_during_save)
{
    owner = getpid();
    const char *dir = fast_dir("kill");
    int64_t reported = 0, rounds = 200, next = 1;
    long longest_us = 20000;
#ifdef SANITIZED
    rounds = 40, longest_us = 200000;
#endif
    srand(1);
    for (int round = 0; round < rounds; round++) {
        int fds[2], how;
        CHECK(!pipe(fds));
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            close(fds[0]);
            save_until_killed(dir, fds[1], next, round % 2);
            _exit(0);
        }
        close(fds[1]);
        long us = rand() % longest_us;
        struct timespec pause = {us / 1000000, us % 1000000 * 1000};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        CHECK(waitpid(child, &how, 0) == child);
        if (!WIFSIGNALED(how)) TEST_FAIL("the child ended with %d", WEXITSTATUS(how));
        int64_t step, before = reported;
        while (read(fds[0], &step, sizeof step) == sizeof step) reported = step;
        close(fds[0]);
        /* On a busy machine a save takes longer: stay where some rounds report a few and some none. */
        if (reported == before && longest_us < 2000000)
            longest_us += longest_us / 4;
        else if (longest_us > 20000)
            longest_us -= longest_us / 8;
        /* Everything that has a name is whole, and the last that was reported, or a newer one, is there. */
        int64_t newest = 0;
        DIR *d = opendir(dir);
        CHECK(d);
        for (struct dirent *e; (e = readdir(d));) {
            char path[600];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            step = step_of(path);
            if (step < 0) TEST_FAIL("round %d: %s: %s", round, e->d_name, lc_error_message());
            if (step > newest) newest = step;
        }
        closedir(d);
        if (newest < reported)
            TEST_FAIL("round %d: step %d was reported, step %d is there", round, (int)reported, (int)newest);
        char found[512];
        if (reported) {
            CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
            CHECK_EQ(step_of(found), newest);
        }
        next = newest + 1;
    }
    CHECK(reported > 0);
    /* What the killed ones left behind goes away. */
    CHECK_OK(lc_checkpoint_clean(dir));
    int left = count_entries(dir);
    if (left > 3) TEST_FAIL("%d entries are left", left);
}

/* A writer's directory is not taken for a leftover as long as it lives. */
TEST(cleaning_spares_the_living)
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

TEST(names_that_leave_the_directory)
{
    char path[512], file[600], *text;
    size_t n;
    lc_checkpoint *c;
    snprintf(path, sizeof path, "%s/a.ckpt", fresh_dir("names"));
    save(path, 1);
    snprintf(file, sizeof file, "%s/manifest.json", path);
    lc__manifest m;
    CHECK_OK(lc__manifest_read(&lc__io_system, path, &m));
    snprintf(m.files[1].name, sizeof m.files[1].name, "../../passwd");
    CHECK_OK(lc__manifest_print(&m, &text, &n));
    CHECK(!unlink(file));
    CHECK_OK(lc__create_file(&lc__io_system, file, text, n));
    free(text);
    CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "not a valid file name");
}

TEST_MAIN

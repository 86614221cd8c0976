/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that was reported as saved is there and whole, whatever was killed, failed or cut off. */
#include "checkpoint_world.h"
#include "fail_malloc.h"
#include "fake_io.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

/* For tests that save hundreds of times: in memory if there is such a file system. A sync takes a tenth of a second on
 * a disk that others keep busy. */
static char fast_root[256];

__attribute__((constructor)) static void make_fast_root(void)
{
    struct statvfs shm;
    bool fast = statvfs("/dev/shm", &shm) == 0 && (double)shm.f_bavail * (double)shm.f_frsize > 64e6;
    snprintf(fast_root, sizeof fast_root, "/dev/shm/lightc-test-XXXXXX");
    if (!fast || !mkdtemp(fast_root)) snprintf(fast_root, sizeof fast_root, "%s", scratch_root);
}

__attribute__((destructor)) static void remove_fast_root(void)
{
    if (getpid() == scratch_owner && !remove_tree(fast_root)) fprintf(stderr, "%s is left behind\n", fast_root);
}

static const char *fast_dir(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", fast_root, name);
    CHECK(remove_tree(path));
    CHECK(!mkdir(path, 0777));
    return path;
}

/* ---- faults ---- */

/* A machine that dies at the n-th call of a save: the checkpoint reported before is still there, and the new name has
 * nothing or a whole checkpoint. Mode 1: both have the same name. Mode 2: also, the file system cannot exchange names.
 */
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
            CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found)); /* puts names back, and removes nothing */
            CHECK_OK(lc_checkpoint_clean(dir));
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

/* One call fails, then all is well again: the save returns an error that says so, the old checkpoint is untouched, and
 * the next save works. */
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
    if (!child) { /* SIGXFSZ has its default action, but must not end the program */
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
        if (background && !(step % 3)) { /* the next begin reports it */
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
        /* On a busy machine a save takes longer: stay in the range in which some rounds report a few saves and some
         * report none. */
        if (reported == before && longest_us < 2000000)
            longest_us += longest_us / 4;
        else if (longest_us > 20000)
            longest_us -= longest_us / 8;
        /* Everything that has a name is whole, and the last reported checkpoint, or a newer one, is there. */
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
    /* What the killed processes left behind is cleaned away. */
    CHECK_OK(lc_checkpoint_clean(dir));
    int left = count_entries(dir);
    if (left > 3) TEST_FAIL("%d entries are left", left);
}

/* A writer's directory is not taken for a leftover while the writer lives. */

TEST_MAIN

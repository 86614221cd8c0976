/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that several ranks write together: any number of ranks reads them as one; they are there whole or not at
 * all, whichever rank is killed; and a part that is missing, damaged or from another save is named.
 * test_ddp_checkpoints.c resumes runs from them with any number of ranks. */
#include "checkpoint_world.h"
#include "comm_world.h"
#include "fake_io.h"
#include "peer_python.h"

#include "core/checkpoint/joint.h"

#include <sys/statvfs.h>

enum { TENSORS = 40 };

/* Tensor i of a save: i * 37 + 5 elements. */
static int64_t elements_of(int i)
{
    return i * 37 + 5;
}

static float value_of(int64_t step, int tensor, int64_t i)
{
    return (float)(step * 1000 + tensor) + (float)i / 4096;
}

typedef struct save_job {
    char path[600];
    int64_t step;
    bool wait;
    int odd_rank, failing_rank; /* the rank that adds one tensor less; the rank whose disk fails; -1: none */
    lc_status want;
    char says[128];
    long fail_at;
} save_job;

static lc_status add_all(lc_ckpt_writer *w, int64_t step, bool less)
{
    lc_type one = {LC_I64, 0, {0}};
    for (int i = 0; i < TENSORS - less; i++) {
        char name[32];
        int64_t n = elements_of(i);
        static _Thread_local float data[TENSORS][TENSORS * 40];
        for (int64_t k = 0; k < n; k++) data[i][k] = value_of(step, i, k);
        snprintf(name, sizeof name, "layer%d.weight", i);
        lc_type type = {LC_F32, 1, {n}};
        LC_TRY(lc_ckpt_add_data(w, i % 3 ? LC_CKPT_MODEL : LC_CKPT_OPTIMIZER, name, &type, data[i]));
    }
    LC_TRY(lc_state_set_int(lc_ckpt_state(w), "global_step", step));
    static _Thread_local int64_t kept;
    kept = step;
    return lc_ckpt_add_data(w, LC_CKPT_MODEL, "step", &one, &kept);
}

static lc_status save_on(lc_comm *comm, lc_ckpt_writer *w, const save_job *j)
{
    LC_TRY(lc_ckpt_begin(w, j->path));
    LC_TRY(add_all(w, j->step, lc_comm_rank(comm) == j->odd_rank));
    return lc__ckpt_commit_together(w, comm, j->wait);
}

static lc_status save_rank(lc_comm *comm, void *ctx)
{
    const save_job *j = ctx;
    lc_ckpt_writer *w;
    fake_io fake;
    LC_TRY(lc_ckpt_writer_new(&w));
    fake_init(&fake, j->fail_at ? j->fail_at : 5, ENOSPC, true);
    if (lc_comm_rank(comm) == j->failing_rank) lc__ckpt_writer_set_io(w, &fake.io);
    lc_status status = save_on(comm, w, j);
    char message[1024];
    lc__copy_message(message, sizeof message);
    lc_ckpt_writer_free(w);
    if (j->want < 0) {
        RANK_CHECK(status < 0);
        if (!strstr(message, j->says)) return lc_fail(LC_ERR_INTERNAL, "it says: %s", message);
        return LC_OK;
    }
    return status < 0 ? lc_fail(status, "%s", message) : LC_OK;
}

static save_job job_at(const char *dir, const char *name, int64_t step)
{
    save_job j = {.step = step, .wait = true, .odd_rank = -1, .failing_rank = -1};
    snprintf(j.path, sizeof j.path, "%s/%s", dir, name);
    return j;
}

/* The step that everything in the checkpoint is of; -1 if it cannot be opened. */
static int64_t whole_step(const char *path)
{
    lc_checkpoint *c;
    int64_t step, tensor_step;
    static float data[TENSORS * 40];
    if (lc_checkpoint_open(path, &c) < 0) return -1;
    CHECK_OK(lc_state_get_int(lc_checkpoint_state(c), "global_step", &step));
    lc_safetensors *part[2] = {lc_checkpoint_tensors(c, LC_CKPT_MODEL), lc_checkpoint_tensors(c, LC_CKPT_OPTIMIZER)};
    CHECK(part[0] && part[1] && !lc_checkpoint_tensors(c, LC_CKPT_TENSORS));
    CHECK_EQ(lc_safetensors_count(part[0]) + lc_safetensors_count(part[1]), TENSORS + 1);
    CHECK_OK(lc_safetensors_read(part[0], lc_safetensors_find(part[0], "step"), &tensor_step, 8));
    CHECK_EQ(step, tensor_step);
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        lc_safetensors *f = part[!(i % 3)];
        snprintf(name, sizeof name, "layer%d.weight", i);
        CHECK_OK(lc_safetensors_read(f, lc_safetensors_find(f, name), data, (size_t)elements_of(i) * 4));
        for (int64_t k = 0; k < elements_of(i); k++) CHECK(data[k] == value_of(step, i, k));
    }
    lc_checkpoint_close(c);
    return step;
}

static uint64_t part_bytes(const char *ckpt, const char *name)
{
    char path[800];
    struct stat st;
    snprintf(path, sizeof path, "%.700s/%.63s", ckpt, name);
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

TEST(each_rank_writes_a_part)
{
    char path[800];
    for (int n = 1; n <= 4; n++) {
        uint64_t least = UINT64_MAX, most = 0;
        save_job j = job_at(fresh_dir("parts"), "a.ckpt", n);
        snprintf(path, sizeof path, "%s", j.path);
        CHECK_RANKS("threads", n, save_rank, &j);
        CHECK_EQ(whole_step(path), n);
        CHECK_EQ(count_entries(path), 2 * n + 2);
        for (int rank = 0; rank < n; rank++) {
            char model[64], optimizer[64];
            lc__kind_file(LC_CKPT_MODEL, rank, n, model);
            lc__kind_file(LC_CKPT_OPTIMIZER, rank, n, optimizer);
            uint64_t bytes = part_bytes(path, model) + part_bytes(path, optimizer);
            if (bytes < least) least = bytes;
            if (bytes > most) most = bytes;
        }
        CHECK(least > 0 && most < least + least / 5);
        /* Over the existing one; nothing is left over. */
        j.step = 10;
        CHECK_RANKS("shm", n, save_rank, &j);
        j.step++;
        CHECK_RANKS("tcp", n, save_rank, &j);
        CHECK_EQ(whole_step(path), 11);
        snprintf(path, sizeof path, "%s/parts", scratch_root);
        CHECK_EQ(count_entries(path), 1);
    }
    save_job j = job_at(fresh_dir("parts"), "model.ckpt", 3);
    CHECK_RANKS("threads", 2, save_rank, &j);
    snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", j.path);
    CHECK(!access(path, F_OK));
}

static lc_status save_many(lc_comm *comm, void *ctx)
{
    save_job j = *(save_job *)ctx;
    lc_ckpt_writer *w;
    char dir[400];
    snprintf(dir, sizeof dir, "%.390s", j.path);
    LC_TRY(lc_ckpt_writer_new(&w));
    for (j.step = 1; j.step <= 12; j.step++) {
        j.wait = j.step % 5 == 0;
        snprintf(j.path, sizeof j.path, "%s/step=%d.ckpt", dir, (int)j.step);
        LC_TRY(lc__ckpt_wait_together(w, comm));
        LC_TRY(save_on(comm, w, &j));
        /* A checkpoint of a single rank in between. */
        if (j.step != 6) continue;
        LC_TRY(lc__ckpt_wait_together(w, comm));
        if (lc_comm_rank(comm)) continue;
        snprintf(j.path, sizeof j.path, "%s/alone.ckpt", dir);
        LC_TRY(lc_ckpt_begin(w, j.path));
        LC_TRY(add_all(w, 60, false));
        LC_TRY(lc_ckpt_commit(w, true));
    }
    LC_TRY(lc__ckpt_wait_together(w, comm));
    LC_TRY(lc__ckpt_wait_together(w, comm)); /* nothing is left to wait for */
    lc_ckpt_writer_free(w);
    return LC_OK;
}

TEST(in_the_background)
{
    char path[512];
    save_job j = job_at(fresh_dir("many"), ".", 0);
    CHECK_RANKS("threads", 3, save_many, &j);
    for (int step = 1; step <= 12; step++) {
        snprintf(path, sizeof path, "%s/many/step=%d.ckpt", scratch_root, step);
        CHECK_EQ(whole_step(path), step);
    }
    snprintf(path, sizeof path, "%s/many/alone.ckpt", scratch_root);
    CHECK_EQ(whole_step(path), 60);
    CHECK_EQ(count_entries(path), 4);
    snprintf(path, sizeof path, "%s/many", scratch_root);
    CHECK_EQ(count_entries(path), 13);
}

/* ---- errors ---- */

TEST(ranks_with_different_tensors)
{
    char dir[400];
    for (int odd = 0; odd < 3; odd++) {
        snprintf(dir, sizeof dir, "%s", fresh_dir("odd"));
        save_job j = job_at(dir, "a.ckpt", 1);
        j.odd_rank = odd;
        world *w = world_run("threads", 3, save_rank, &j);
        int failed = 0;
        for (int rank = 0; rank < 3; rank++) failed += w->ranks[rank].status < 0;
        /* Everything is there unless some rank's share has the extra tensor twice. */
        if (failed) CHECK_EQ(failed, 3);
        if (!failed) CHECK_EQ(odd, 0);
        CHECK_EQ(count_entries(dir), failed ? 0 : 1);
        world_free(w);
    }
}

/* A disk that fails on one rank, at any of its calls: all ranks get an error, and the previous checkpoint is still
 * there. */
TEST(a_rank_that_cannot_write)
{
    char dir[400], path[512];
    int failed = 0;
    for (int rank = 0; rank < 3; rank++)
        for (long at = 1; at < 40; at += 3) {
            snprintf(dir, sizeof dir, "%s", fresh_dir("full"));
            save_job j = job_at(dir, "a.ckpt", 1);
            CHECK_RANKS("threads", 3, save_rank, &j);
            j.step = 2;
            j.failing_rank = rank;
            j.fail_at = at;
            world *w = world_run("threads", 3, save_rank, &j);
            int bad = 0;
            for (int i = 0; i < 3; i++) {
                bad += w->ranks[i].status < 0;
                if (w->ranks[i].status < 0 && !strstr(w->ranks[i].message, "No space left"))
                    TEST_FAIL("rank %d fails at %ld: rank %d says %s", rank, at, i, w->ranks[i].message);
            }
            world_free(w);
            if (bad && bad < 3) TEST_FAIL("rank %d fails at %ld: %d ranks have an error", rank, at, bad);
            failed += bad > 0;
            snprintf(path, sizeof path, "%s/a.ckpt", dir);
            int64_t step = whole_step(path);
            if (step != 2 && (step != 1 || !bad)) TEST_FAIL("rank %d fails at %ld: step %d", rank, at, (int)step);
            CHECK_OK(lc_checkpoint_clean(dir));
            CHECK_EQ(count_entries(dir), 1);
        }
    CHECK(failed > 12);
}

static void copy_file(const char *from, const char *to)
{
    char *bytes;
    size_t n;
    CHECK_OK(lc__io_read_file(&lc__io_system, from, 1 << 24, &bytes, &n));
    CHECK(remove_tree(to));
    CHECK_OK(lc__create_file(&lc__io_system, to, bytes, n));
    free(bytes);
}

TEST(damaged_parts_are_named)
{
    char a[720], b[700], part[700];
    const char *dir = fresh_dir("damage");
    save_job good = job_at(dir, "good.ckpt", 1), bad = job_at(dir, "bad.ckpt", 2);
    lc_checkpoint *c;
    CHECK_RANKS("threads", 3, save_rank, &good);
    CHECK_RANKS("threads", 3, save_rank, &bad);
    snprintf(part, sizeof part, "%s/model-00002-of-00003.safetensors", bad.path);
    snprintf(a, sizeof a, "%s.kept", part);
    copy_file(part, a);
    /* missing */
    CHECK(!unlink(part));
    CHECK_STATUS(lc_checkpoint_open(bad.path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "model-00002-of-00003.safetensors\" is missing");
    CHECK_CONTAINS(lc_error_message(), "good.ckpt");
    /* damaged */
    copy_file(a, part);
    CHECK_EQ(whole_step(bad.path), 2);
    int fd = open(part, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 5000) == 1);
    close(fd);
    CHECK_STATUS(lc_checkpoint_open(bad.path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "model-00002-of-00003.safetensors\" is damaged: its checksum is");
    /* from another save */
    snprintf(b, sizeof b, "%s/model-00002-of-00003.safetensors", good.path);
    copy_file(b, part);
    CHECK_STATUS(lc_checkpoint_open(bad.path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "model-00002-of-00003.safetensors\" belongs to another save");
    /* of another rank */
    snprintf(b, sizeof b, "%s/model-00001-of-00003.safetensors", bad.path);
    copy_file(b, part);
    CHECK_STATUS(lc_checkpoint_open(bad.path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "model-00002-of-00003.safetensors\" is ");
    copy_file(a, part);
    CHECK_EQ(whole_step(bad.path), 2);
}

/* Each of several ranks verifies a part of the files; all get an error if one finds damage. */
static lc_status open_rank(lc_comm *comm, void *ctx)
{
    lc_checkpoint *c;
    lc_status status = lc__ranks_open_checkpoint(comm, ctx, &c);
    if (status >= 0) lc_checkpoint_close(c);
    return status;
}

TEST(ranks_verify_together)
{
    char file[700];
    const char *dir = fresh_dir("verify");
    save_job j = job_at(dir, "a.ckpt", 2);
    CHECK_RANKS("threads", 4, save_rank, &j);
    CHECK_RANKS("threads", 3, open_rank, j.path);
    for (int part = 1; part <= 4; part++) {
        char kept[800];
        snprintf(file, sizeof file, "%s/optimizer-%05d-of-00004.safetensors", j.path, part);
        snprintf(kept, sizeof kept, "%s.kept", file);
        copy_file(file, kept);
        int fd = open(file, O_RDWR);
        CHECK(fd >= 0 && pwrite(fd, "x", 1, 3000) == 1);
        close(fd);
        for (int n = 1; n <= 3; n++) {
            world *w = world_run("threads", n, open_rank, j.path);
            for (int i = 0; i < n; i++) {
                CHECK(w->ranks[i].status < 0);
                CHECK_CONTAINS(w->ranks[i].message, strrchr(file, '/') + 1);
            }
            world_free(w);
        }
        copy_file(kept, file);
    }
    CHECK_RANKS("threads", 3, open_rank, j.path);
}

/* ---- kill -9 ---- */

typedef struct kill_job {
    const char *dir;
    int64_t first;
    int fd;
} kill_job;

/* Saves until a rank is lost. Rank 0 reports what is saved. */
static lc_status save_until_killed(lc_comm *comm, void *ctx)
{
    const kill_job *k = ctx;
    lc_ckpt_writer *w;
    LC_TRY(lc_ckpt_writer_new(&w));
    lc_status status = LC_OK;
    for (int64_t step = k->first; status >= 0; step++) {
        save_job j = job_at(k->dir, step % 2 ? "odd.ckpt" : "even.ckpt", step);
        j.wait = step % 3 == 0;
        status = save_on(comm, w, &j);
        if (status >= 0) status = lc__ckpt_wait_together(w, comm);
        if (status >= 0 && lc_comm_rank(comm) == 0 && write(k->fd, &step, sizeof step) != sizeof step) _exit(4);
    }
    lc_ckpt_writer_free(w);
    return status == LC_ERR_PEER ? LC_OK : status;
}

/* Forks the ranks; kills one when they have met, and waits for the others. */
static void kill_one(const kill_job *k, int n, int victim, long us)
{
    world *w = world_new(n), *met = world_new(0);
    pid_t pids[4];
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i]) continue;
        world_meeting m = {w, i};
        lc__meeting meeting = {LC_MEETING_INIT, .all_gather = world_all_gather, .ctx = &m};
        lc_comm *comm = NULL;
        kill_job mine = *k;
        lc_status status = world_tcp(i, n, &meeting, &comm);
        atomic_fetch_add(&met->arrived, 1);
        if (status >= 0) status = save_until_killed(comm, &mine);
        world_note(w, i, status);
        _exit(status < 0);
    }
    for (int ms = 0; atomic_load(&met->arrived) < n; ms++) {
        CHECK(ms < 60000);
        pause_ms(1);
    }
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
    kill(pids[victim], SIGKILL);
    for (int i = 0; i < n; i++) {
        int how;
        CHECK(waitpid(pids[i], &how, 0) == pids[i]);
        if (i != victim && (!WIFEXITED(how) || WEXITSTATUS(how)))
            TEST_FAIL("rank %d of %d, when %d was killed: %#x, %s", i, n, victim, how, w->ranks[i].message);
    }
    world_free(w);
    world_free(met);
}

static const char *fast_dir(void)
{
    static char path[300];
    struct statvfs shm;
    bool fast = statvfs("/dev/shm", &shm) == 0 && (double)shm.f_bavail * (double)shm.f_frsize > 64e6;
    snprintf(path, sizeof path, "/dev/shm/lightc-test-XXXXXX");
    if (!fast || !mkdtemp(path)) snprintf(path, sizeof path, "%s", fresh_dir("kill"));
    return path;
}

TEST(kill_9_of_any_rank)
{
    const char *dir = fast_dir();
    int64_t reported = 0, next = 1;
    int rounds = 60, with_reports = 0;
#ifdef SANITIZED
    rounds = 15;
#endif
    srand(7);
    long longest_us = 60000;
    for (int round = 0; round < rounds; round++) {
        int fds[2], n = 2 + round % 2;
        CHECK(!pipe(fds));
        kill_job k = {dir, next, fds[1]};
        kill_one(&k, n, rand() % n, 1000 + rand() % longest_us);
        close(fds[1]);
        int64_t step, before = reported, newest = 0;
        while (read(fds[0], &step, sizeof step) == sizeof step) reported = step;
        close(fds[0]);
        with_reports += reported > before;
        /* On a busy machine a save takes longer: stay in the range in which some rounds report a few saves and some
         * report none. */
        if (reported == before && longest_us < 4000000)
            longest_us *= 2;
        else if (longest_us > 60000)
            longest_us -= longest_us / 8;
        for (int i = 0; i < 2; i++) {
            char path[400];
            snprintf(path, sizeof path, "%s/%s.ckpt", dir, i ? "odd" : "even");
            if (access(path, F_OK) < 0) continue;
            step = whole_step(path);
            if (step < 0) TEST_FAIL("round %d: %s", round, lc_error_message());
            if (step > newest) newest = step;
        }
        if (newest < reported)
            TEST_FAIL("round %d: step %d was reported, step %d is there", round, (int)reported, (int)newest);
        next = newest + 1;
    }
    CHECK(with_reports > rounds / 8);
    CHECK_OK(lc_checkpoint_clean(dir));
    CHECK_EQ(count_entries(dir), 2);
    CHECK(remove_tree(dir));
}

/* ---- other readers ---- */

TEST(python_reads_each_part)
{
    const char *python = peer_python("safetensors, torch");
    if (!python)
        SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with safetensors and torch");
    const char *dir = fresh_dir("python");
    save_job j = job_at(dir, "a.ckpt", 3);
    CHECK_RANKS("threads", 3, save_rank, &j);
    run_python(python, dir,
               "import glob, torch\nfrom safetensors.torch import load_file\n"
               "all = {}\n"
               "for path in glob.glob('%s/*.safetensors'):\n"
               "    part = load_file(path)\n    assert not set(part) & set(all)\n    all.update(part)\n"
               "assert len(all) == %d, len(all)\n"
               "for i in range(%d):\n"
               "    t = all[f'layer{i}.weight']\n"
               "    want = torch.arange(i * 37 + 5, dtype=torch.float32) / 4096 + (3000 + i)\n"
               "    assert torch.equal(t, want), i\n",
               j.path, TENSORS + 1, TENSORS);
}

TEST_MAIN

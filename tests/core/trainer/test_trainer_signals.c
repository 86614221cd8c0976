/* SPDX-License-Identifier: Apache-2.0 */
/* Signals sent to processes that train: one Ctrl-C ends after the step, two at once; SIGUSR1 saves and the run
 * continues. */
#include "test.h"

#include "core/ranks/ranks.h"
#include "launch/slurm.h"
#include "base/spawn.h"
#include "core/hooks/trainer_internal.h"
#include "trainer_world.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

typedef struct child {
    char dir[256];
    pid_t pid;
    int out; /* a byte per batch, and one when the trainer has received a signal that ends it */
} child;

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int beat = -1;
static int64_t slow_us;
static bool a_thread;       /* starts before the trainer, and may receive the signal in its place */
static bool no_hangup;      /* SIGHUP is ignored, as by nohup */
static bool end_late;       /* waits a moment after an interrupted run, before the trainer is freed */
static bool exit_late;      /* waits a moment after it is freed, before the program prints why it ended */
static int raised;          /* what the training thread sends itself in the second batch */
static bool save_in_second; /* the second batch lasts until a checkpoint is requested */

static lc_status slow_batch(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    int64_t begun = now_ms();
    bool seen = false;
    (void)context, (void)o, (void)b, (void)i;
    if (write(beat, "b", 1) != 1) return lc_fail(LC_ERR_IO, "nobody listens");
    if (raised && lc_trainer_global_step(t) == 2) raise(raised);
    do {
        usleep(1000);
        if (!seen && lc_trainer_received_signal(t)) seen = write(beat, "s", 1) == 1;
    } while (now_ms() - begun < slow_us / 1000 ||
             (save_in_second && lc_trainer_global_step(t) == 2 && !atomic_load(&t->ranks->save_requested)));
    return LC_OK;
}

static void *idle(void *arg)
{
    for (;;) pause();
    return arg;
}

/* Exit codes of the process that trains: 40 interrupted, 0 finished, 41 anything else. */
static int train(const char *dir, int64_t epochs, bool signals)
{
    world m;
    lc_trainer *t;
    lc_callback cb;
    pthread_t thread;
    if (a_thread && pthread_create(&thread, NULL, idle, NULL)) return 41;
    world_init(&m, &world_ops_without_val, 4, 0);
    m.lr = 0.01;
    lc_lambda_args args = LC_ARGS(lc_lambda, .on_train_batch_end = slow_batch);
    if (lc_lambda_callback_new(&args, &cb) < 0) return 41;
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb;
    o.n_callbacks = 1;
    o.max_epochs = epochs;
    o.handle_signals = signals;
    if (lc_trainer_new(&o, &t) < 0) return 41;
    lc_status s = lc_trainer_fit(t, &m.base);
    int code = s == LC_OK ? 0 : s == LC_ERR_INTERRUPTED ? 40 : 41;
    if (code == 41) printf("  %s\n", lc_error_message());
    if (end_late && write(beat, "e", 1) == 1) usleep(300000);
    lc_trainer_free(t);
    if (exit_late && write(beat, "e", 1) == 1) usleep(300000);
    world_release(&m);
    return code;
}

static void start(child *c, int64_t epochs, int64_t us, bool signals)
{
    int fds[2];
    CHECK(world_dir(c->dir, sizeof c->dir));
    CHECK(pipe(fds) == 0);
    fflush(stdout);
    c->pid = fork();
    CHECK(c->pid >= 0);
    if (c->pid == 0) {
        if (no_hangup) signal(SIGHUP, SIG_IGN);
        setpgid(0, 0); /* in a process group of its own, as launchers do; this process is the launcher */
        close(fds[0]);
        beat = fds[1];
        slow_us = us;
        int code = train(c->dir, epochs, signals);
        fflush(stdout);
        _exit(code);
    }
    close(fds[1]);
    c->out = fds[0];
}

static void wait_for(const child *c, int n)
{
    char b;
    for (int i = 0; i < n; i++) CHECK(read(c->out, &b, 1) == 1);
}

static int end(child *c)
{
    int status = 0;
    CHECK(waitpid(c->pid, &status, 0) == c->pid);
    close(c->out); /* not earlier: its writes would raise SIGPIPE */
    return status;
}

static void files(const child *c, const char *sub, char *out, size_t size)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s", c->dir, sub);
    world_list(path, ".ckpt", out, size);
}

TEST(one_interrupt_ends_after_the_step)
{
    child c;
    char names[512];
    start(&c, 1000, 20000, true);
    wait_for(&c, 2);
    CHECK(kill(c.pid, SIGINT) == 0);
    int status = end(&c);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 40);
    files(&c, "/checkpoints", names, sizeof names);
    CHECK_CONTAINS(names, "interrupted.ckpt ");
    world_remove(c.dir);
}

/* Only the thread that raises a signal can take it. */
TEST(a_signal_that_the_program_raises)
{
    child c;
    char names[512];
    raised = SIGINT;
    start(&c, 1000, 1000, true);
    wait_for(&c, 2);
    int status = end(&c);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 40);
    files(&c, "/checkpoints", names, sizeof names);
    CHECK_CONTAINS(names, "interrupted.ckpt ");
    world_remove(c.dir);

    raised = SIGUSR1;
    start(&c, 3, 1000, true);
    wait_for(&c, 12);
    status = end(&c);
    raised = 0;
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    files(&c, "", names, sizeof names);
    CHECK_STR(names, "hpc_ckpt_1.ckpt ");
    world_remove(c.dir);
}

/* The step takes seconds; the second signal does not wait for it. */
TEST(two_interrupts_end_immediately)
{
    static const int pairs[][2] = {{SIGINT, SIGINT}, {SIGTERM, SIGINT}, {SIGINT, SIGTERM}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        child c;
        char names[512];
        start(&c, 1000, 20000000, true);
        wait_for(&c, 1);
        int64_t before = now_ms();
        CHECK(kill(c.pid, pairs[k][0]) == 0);
        wait_for(&c, 1);
        CHECK(waitpid(c.pid, NULL, WNOHANG) == 0); /* it still waits for its step */
        CHECK(kill(c.pid, pairs[k][1]) == 0);
        int status = end(&c);
        CHECK(WIFSIGNALED(status));
        CHECK_EQ(WTERMSIG(status), pairs[k][1]);
        CHECK(now_ms() - before < 10000);
        files(&c, "", names, sizeof names);
        CHECK_STR(names, "");
        world_remove(c.dir);
    }
}

/* From a process that is not the launcher. */
static void signal_from_stranger(pid_t pid, int sig)
{
    int status;
    pid_t other = fork();
    if (other == 0) _exit(kill(pid, sig) != 0);
    CHECK(waitpid(other, &status, 0) == other && status == 0);
}

static void sigterm_from(int launcher, pid_t pid)
{
    if (launcher)
        CHECK(kill(pid, SIGTERM) == 0);
    else
        signal_from_stranger(pid, SIGTERM);
}

/* A signal that comes twice, once through the launcher, counts once; a further one ends the run. */
TEST(a_forwarded_signal_counts_once)
{
    for (int k = 0; k < 4; k++) {
        child c;
        int launcher_first = k % 2;
        a_thread = k / 2;
        start(&c, 1000, 20000000, true);
        wait_for(&c, 1);
        sigterm_from(launcher_first, c.pid);
        wait_for(&c, 1);
        sigterm_from(!launcher_first, c.pid);
        usleep(200000);
        CHECK(waitpid(c.pid, NULL, WNOHANG) == 0);
        sigterm_from(launcher_first, c.pid);
        int status = end(&c);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        world_remove(c.dir);
    }
    a_thread = false;
}

/* The second copy arrives after the run, or even after the trainer is freed: the program still ends in its own way. */
TEST(a_forwarded_signal_may_be_late)
{
    for (int k = 0; k < 4; k++) {
        child c;
        char b = 'b';
        int launcher_first = k % 2;
        end_late = k < 2, exit_late = k >= 2;
        start(&c, 1000, 20000, true);
        end_late = exit_late = false;
        wait_for(&c, 1);
        sigterm_from(launcher_first, c.pid);
        while (b != 'e') CHECK(read(c.out, &b, 1) == 1);
        sigterm_from(!launcher_first, c.pid);
        int status = end(&c);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 40);
        world_remove(c.dir);
    }
}

/* However many there are, before or after SIGTERM. */
TEST(hangups_do_not_count_as_repeated)
{
    static const int series[][3] = {{SIGHUP, SIGHUP, SIGHUP}, {SIGHUP, SIGTERM, SIGHUP}, {SIGTERM, SIGHUP, SIGHUP}};
    for (size_t k = 0; k < sizeof series / sizeof *series; k++) {
        child c;
        char names[512];
        start(&c, 1000, 300000, true);
        wait_for(&c, 1);
        CHECK(kill(c.pid, series[k][0]) == 0);
        wait_for(&c, 1);
        for (int i = 1; i < 3; i++) {
            CHECK(kill(c.pid, series[k][i]) == 0);
            usleep(20000);
        }
        int status = end(&c);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 40);
        files(&c, "/checkpoints", names, sizeof names);
        CHECK_CONTAINS(names, "interrupted.ckpt ");
        world_remove(c.dir);
    }
}

TEST(nohup_continues)
{
    child c;
    no_hangup = true;
    start(&c, 2, 20000, true);
    no_hangup = false;
    wait_for(&c, 2);
    CHECK(kill(c.pid, SIGHUP) == 0);
    wait_for(&c, 6); /* all batches */
    int status = end(&c);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    world_remove(c.dir);
}

TEST(signals_left_to_the_program)
{
    child c;
    start(&c, 1000, 1000, false);
    wait_for(&c, 1);
    CHECK(kill(c.pid, SIGTERM) == 0);
    int status = end(&c);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    world_remove(c.dir);
}

static void note_the_limit(int sig)
{
    (void)sig;
    if (write(beat, "x", 1) != 1) _exit(42);
}

/* The run database and a checkpoint are larger than this. */
static int fit_past_the_limit(const char *dir)
{
    struct rlimit limit = {4096, 4096};
    world m;
    lc_trainer *t;
    world_init(&m, &world_ops_without_val, 4, 0);
    lc_trainer_options o = world_options(dir);
    o.logger = "sqlite";
    o.max_epochs = 1;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || lc_trainer_new(&o, &t) < 0) return 41;
    lc_status s = lc_trainer_fit(t, &m.base);
    bool named = strstr(lc_error_message(), ".ckpt\"") && strstr(lc_error_message(), "(ulimit -f)");
    if (s < 0 && !named) printf("  %s\n", lc_error_message());
    lc_trainer_free(t);
    return s == LC_ERR_IO && named ? 40 : 41;
}

/* SIGXFSZ would end the process; but a handler of the program is left to it. */
TEST(a_limit_on_file_sizes_is_an_error)
{
    for (int handles = 0; handles < 2; handles++) {
        child c;
        int fds[2], status = 0;
        char b;
        CHECK(world_dir(c.dir, sizeof c.dir));
        CHECK(pipe(fds) == 0);
        fflush(stdout);
        CHECK((c.pid = fork()) >= 0);
        if (c.pid == 0) {
            beat = fds[1];
            signal(SIGXFSZ, handles ? note_the_limit : SIG_DFL);
            int code = fit_past_the_limit(c.dir);
            fflush(stdout);
            _exit(code);
        }
        close(fds[1]);
        CHECK(waitpid(c.pid, &status, 0) == c.pid);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 40);
        CHECK_EQ(read(fds[0], &b, 1), handles);
        close(fds[0]);
        world_remove(c.dir);
    }
}

/* As with a lost connection without a terminal, or `| tee log` that was interrupted: the training goes on. */
TEST(output_that_nobody_reads_any_more)
{
    char dir[200];
    int fds[2], status = 0;
    CHECK(world_dir(dir, sizeof dir));
    CHECK(pipe(fds) == 0);
    close(fds[0]);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        world m;
        lc_trainer *t;
        signal(SIGPIPE, SIG_DFL);
        dup2(fds[1], 2);
        world_init(&m, &world_ops_without_val, 4, 0);
        lc_trainer_options o = world_options(dir);
        o.max_epochs = 3;
        o.enable_progress_bar = o.enable_model_summary = LC_ON;
        bool done = lc_trainer_new(&o, &t) >= 0 && lc_trainer_fit(t, &m.base) >= 0;
        sigset_t waiting;
        sigpending(&waiting);
        _exit(done && !sigismember(&waiting, SIGPIPE) ? 40 : 41);
    }
    close(fds[1]);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 40);
    world_remove(dir);
}

TEST(the_time_left_of_a_slurm_job_is_read)
{
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {{"3:04", 184},           {"0:00", 0},  {"59:59", 3599}, {"2:03:04", 7384}, {"1-02:03:04", 93784},
                 {"UNLIMITED", INFINITY}, {"", -1},     {"INVALID", -1}, {"7", -1},         {"1-", -1},
                 {"1:2:3:4", -1},         {"1::2", -1}, {"NOT_SET", -1}, {"-1:00", -1},     {"3:04 ", -1}};
    double seconds;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool good = lc__slurm_time(cases[i].text, &seconds);
        if (good != (cases[i].seconds >= 0) || (good && seconds != cases[i].seconds))
            TEST_FAIL("\"%s\": %d, %g", cases[i].text, good, seconds);
    }
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)time(NULL) + 100);
    setenv("SLURM_JOB_END_TIME", text, 1);
    CHECK_OK(lc__slurm_time_left(&seconds));
    CHECK(seconds > 50 && seconds <= 100);
    unsetenv("SLURM_JOB_END_TIME");
}

static lc_status ask(const char *script, double seconds, char *text, size_t size)
{
    return lc__spawn_ask((char *const[]){(char *)"sh", (char *)"-c", (char *)(uintptr_t)script, NULL}, seconds, text,
                         size);
}

/* Slurm's commands are started while signals are blocked, and the controller may not answer. */
TEST(commands_receive_signals_and_time_out)
{
    sigset_t term, before;
    char text[8];
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    CHECK(pthread_sigmask(SIG_BLOCK, &term, &before) == 0);
    lc_status killed = ask("kill -TERM $$; exit 0", 60, text, sizeof text);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK_STATUS(killed, LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "sh -c failed: killed by signal 15");
    CHECK_STATUS(ask("echo begun; exec sleep 600", 0.3, text, sizeof text), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "did not exit within 0.3 s");
    CHECK_STR(text, "begun\n");
    CHECK_OK(ask("sleep 600 >/dev/null 2>&1 & kill $!; echo 123456789", 60, text, sizeof text));
    CHECK_STR(text, "1234567");
    CHECK_STATUS(ask("exit 3", 60, text, sizeof text), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "status 3");
}

/* A fit stops in time, like one that reaches max_time; outside of a job nothing stops. */
TEST(a_fit_ends_before_its_slurm_job)
{
    char dir[512], text[32];
    world m;
    lc_trainer *t;
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 3;
    o.slurm_margin = LC_SECONDS(3600);
    snprintf(text, sizeof text, "%lld", (long long)time(NULL) + 1800);
    for (int job = 0; job < 2; job++) {
        if (job) setenv("SLURM_JOB_ID", "4711", 1), setenv("SLURM_JOB_END_TIME", text, 1);
        world_init(&m, &world_ops_without_val, 4, 0);
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_OK(lc_trainer_fit(t, &m.base));
        CHECK_EQ(lc_trainer_global_step(t), job ? 0 : 12);
        lc_trainer_free(t);
        world_release(&m);
    }
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_JOB_END_TIME");
    o.slurm_margin = LC_EPOCHS(3);
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "slurm_margin");
    world_remove(dir);
}

/* As under Slurm: the checkpoint of SIGUSR1 is resumed by a job that was started again; scontrol is asked to requeue
 * it. */
TEST(usr1_saves_and_continues)
{
    child c;
    char names[512], path[700], seen[256] = "";
    const char *old_path = getenv("PATH");
    CHECK(world_dir(names, sizeof names)); /* the place of a fake scontrol */
    snprintf(path, sizeof path, "%s/scontrol", names);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f, "#!/bin/sh\necho \"$@\" > \"$(dirname \"$0\")/seen\"\n");
    fclose(f);
    CHECK(chmod(path, 0755) == 0);
    char *search = malloc(strlen(old_path) + 600);
    CHECK(search != NULL);
    sprintf(search, "%s:%s", names, old_path);
    setenv("PATH", search, 1);
    setenv("SLURM_JOB_ID", "4711", 1);
    unsetenv("SLURM_JOB_NAME");
    save_in_second = true;
    start(&c, 3, 20000, true);
    save_in_second = false;
    wait_for(&c, 2);
    CHECK(kill(c.pid, SIGUSR1) == 0);
    wait_for(&c, 10); /* all batches */
    int status = end(&c);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    char found[256];
    files(&c, "", found, sizeof found);
    CHECK_STR(found, "hpc_ckpt_1.ckpt ");
    snprintf(path, sizeof path, "%s/seen", names);
    f = fopen(path, "r");
    CHECK(f != NULL && fgets(seen, sizeof seen, f));
    fclose(f);
    CHECK_STR(seen, "requeue 4711\n");

    /* The job is started again. */
    world m;
    lc_trainer *t;
    lc_trainer_options o = world_options(c.dir);
    world_init(&m, &world_ops_without_val, 4, 0);
    o.max_epochs = 3;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK_CONTAINS(lc_trainer_ckpt_path(t), "hpc_ckpt_1.ckpt");
    CHECK_EQ(lc_trainer_global_step(t), 12);
    lc_trainer_free(t);
    setenv("PATH", old_path, 1);
    unsetenv("SLURM_JOB_ID");
    free(search);

    /* By name, and if there is none. */
    o = world_options(names);
    o.ckpt_path = "hpc";
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &m.base), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "ckpt_path=hpc");
    lc_trainer_free(t);
    world_release(&m);
    world_remove(c.dir);
    world_remove(names);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that test_last_calls.c starts: they make some calls on the world and some on a group of it, then rank --on
 * ends as --act says, or makes another call than the others, which wait for it:
 *
 * last_calls_program [options of the trainer] --act
 * kill|stop|hang|idle|differ|fail|go|mistake|leave|end|forget|child|orphan --on RANK --dir DIR (fail: -1 is all
 * ranks; go: the same, when DIR/go exists; idle: it makes no call at all; leave: it exits with 0; end: the same,
 * without lc_comm_free; forget: all do the same, the others later; roots, receives: ranks wait for each other; call,
 * compute: no failure, for --seconds; child: its child does what only a rank should, and it continues; orphan: it is
 * killed, and its child lives on for a minute)
 *
 * Creates DIR/rank-N when rank N has reached that point. */
#include <lightc/comm.h>
#include <lightc/trainer.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* If SLOW_ERRORS is in the environment, writes to standard error are late, as on a busy machine. Replaces the C
 * library's. */
__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t n)
{
    if (fd == 2 && getenv("SLOW_ERRORS")) usleep(50000);
    return syscall(SYS_write, fd, data, n);
}

typedef struct settings {
    const char *act, *dir;
    int64_t on;
    double seconds;
} settings;

static const lc_option table[] = {
    LC_FIELD(settings, act, "what to do"),
    LC_FIELD(settings, dir, "where to report"),
    LC_FIELD(settings, on, "on this rank"),
    LC_FIELD(settings, seconds, "for how long"),
};

static lc_status come_to(const settings *s, int rank)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/rank-%d", s->dir, rank);
    FILE *f = fopen(path, "w");
    if (!f) return lc_fail(LC_ERR_IO, "cannot write %s", path);
    fprintf(f, "pid=%d\n", (int)getpid());
    fclose(f);
    return LC_OK;
}

static bool is(const settings *s, const char *act)
{
    return !strcmp(s->act, act);
}

static void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

/* Waits for the file DIR/go. */
static void await_go(const settings *s)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/go", s->dir);
    while (access(path, F_OK) != 0) nap(0.01);
}

static lc_status call_often(const settings *s, lc_comm *world)
{
    float x = 0;
    for (double t = 0; t < s->seconds; t += 0.1, nap(0.1))
        LC_TRY(lc_comm_all_reduce(world, &x, &x, 1, LC_F32, LC_COMM_SUM, NULL));
    return LC_OK;
}

/* While a call runs: all of them compute, and then one, for which the others wait. */
static lc_status compute(const settings *s, lc_comm *world)
{
    lc_request *r;
    float x = 0;
    LC_TRY(lc_comm_all_reduce(world, &x, &x, 1, LC_F32, LC_COMM_SUM, &r));
    nap(s->seconds);
    LC_TRY(lc_comm_wait(r));
    if (lc_comm_rank(world) == s->on) nap(s->seconds);
    return lc_comm_barrier(world, NULL);
}

static lc_status wait_for_each_other(const settings *s, lc_comm *world)
{
    float x[4] = {0}, y[400];
    int rank = lc_comm_rank(world), size = lc_comm_size(world);
    if (!strcmp(s->act, "roots")) return lc_comm_gather(world, x, y, 4, LC_F32, rank, NULL);
    return lc_comm_recv(world, x, 4, LC_F32, (rank + 1) % size, NULL);
}

/* The child communicates, frees what it has, and exits with the resulting error, which is only for users. */
static lc_status have_a_child(lc_comm *world)
{
    int status = 0;
    float x = 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        lc_status s = lc_comm_all_reduce(world, &x, &x, 1, LC_F32, LC_COMM_SUM, NULL);
        char why[256];
        snprintf(why, sizeof why, "%s", lc_error_message());
        lc_comm_free(world);
        (void)!lc_fail(s, "%s", why);
        _exit(s == LC_ERR_STATE && strstr(why, "forked") ? lc_exit_status(s) : 9);
    }
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1) return LC_OK;
    return lc_fail(LC_ERR_STATE, "the child of a rank ended with %d", status);
}

static lc_status talk(const settings *s, lc_comm *world)
{
    float x[100] = {0};
    int rank = lc_comm_rank(world);
    lc_comm *group;
    while (is(s, "idle") && rank == s->on) pause();
    for (int i = 0; i < 40; i++) LC_TRY(lc_comm_all_reduce(world, x, x, 3 + i, LC_F32, LC_COMM_SUM, NULL));
    LC_TRY(lc_comm_split(world, 0, -rank, &group)); /* rank 0 is the last one in it */
    LC_TRY(lc_comm_broadcast(group, x, 7, LC_F32, 0, NULL));
    LC_TRY(lc_comm_barrier(world, NULL));
    LC_TRY(come_to(s, rank));
    if (is(s, "call")) return call_often(s, world);
    if (is(s, "compute")) return compute(s, world);
    if (is(s, "roots") || is(s, "receives")) return wait_for_each_other(s, world);
    if (is(s, "go")) await_go(s);
    if ((is(s, "fail") || is(s, "go")) && (s->on < 0 || rank == s->on))
        return lc_fail(LC_ERR_IO, "the disk of a rank is gone");
    if (is(s, "mistake") && rank == s->on) return lc_fail(LC_ERR_ARGUMENT, "lr is -1, must be at least 0");
    if (is(s, "child")) {
        if (rank == s->on) LC_TRY(have_a_child(world));
        LC_TRY(lc_comm_all_reduce(group, x, x, 11, LC_F32, LC_COMM_MAX, NULL));
        lc_comm_free(group);
        return LC_OK;
    }
    if (is(s, "leave")) lc_comm_free(group);
    if (is(s, "leave") || is(s, "end")) return rank == s->on ? LC_OK : lc_comm_barrier(world, NULL);
    if (is(s, "forget")) {
        if (rank != s->on) usleep(1200000);
        return LC_OK;
    }
    if (rank == s->on) {
        if (!is(s, "differ")) usleep(1200000); /* until a heartbeat has reported the calls */
        if (is(s, "orphan") && fork() == 0) {
            sleep(60);
            _exit(0);
        }
        if (is(s, "kill") || is(s, "orphan")) raise(SIGKILL);
        if (is(s, "stop")) raise(SIGSTOP);
        while (is(s, "hang")) pause();
        return lc_comm_broadcast(world, x, 5, LC_F32, 0, NULL);
    }
    return lc_comm_all_reduce(group, x, x, 11, LC_F32, LC_COMM_MAX, NULL);
}

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    settings s = {.act = "", .dir = ".", .on = -1};
    lc_comm *world;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, table, sizeof table / sizeof *table, &s, argc, argv));
    lc_trainer_options_release(&opt);
    LC_MAIN_TRY(lc_comm_world(&world));
    LC_MAIN_TRY(talk(&s, world));
    if (!is(&s, "end") && !is(&s, "forget")) lc_comm_free(world);
    return 0;
}

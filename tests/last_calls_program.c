/* SPDX-License-Identifier: Apache-2.0 */
/* What test_last_calls.c starts as ranks: some calls on the world, some on a group of it, then rank --on ends in a way,
 * or makes another call than the others, who wait for it:
 *
 * last_calls_program [options of the trainer] --act kill|stop|hang|idle|differ|fail|leave|end|forget --on RANK --dir
 * DIR (fail: -1 is all; idle: it makes no call at all; leave: it ends well; end: so, without lc_comm_free; forget: all
 * do so, the others later)
 *
 * Leaves DIR/rank-N when rank N has come to that place. */
#include <lightc/comm.h>
#include <lightc/trainer.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    const char *act, *dir;
    int64_t on;
} settings;

static const lc_option table[] = {
    LC_FIELD(settings, act, "what to do"),
    LC_FIELD(settings, dir, "where to report"),
    LC_FIELD(settings, on, "on this rank"),
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

static lc_status talk(const settings *s, lc_comm *world)
{
    float x[100] = {0};
    int rank = lc_comm_rank(world);
    lc_comm *group;
    while (is(s, "idle") && rank == s->on) pause();
    for (int i = 0; i < 40; i++) LC_TRY(lc_comm_all_reduce(world, x, x, 3 + i, LC_F32, LC_COMM_SUM, NULL));
    LC_TRY(lc_comm_split(world, 0, -rank, &group)); /* rank 0 is the last there */
    LC_TRY(lc_comm_broadcast(group, x, 7, LC_F32, 0, NULL));
    LC_TRY(lc_comm_barrier(world, NULL));
    LC_TRY(come_to(s, rank));
    if (is(s, "fail") && (s->on < 0 || rank == s->on)) return lc_fail(LC_ERR_IO, "the disk of a rank is gone");
    if (is(s, "leave")) lc_comm_free(group);
    if (is(s, "leave") || is(s, "end")) return rank == s->on ? LC_OK : lc_comm_barrier(world, NULL);
    if (is(s, "forget")) {
        if (rank != s->on) usleep(1200000);
        return LC_OK;
    }
    if (rank == s->on) {
        if (!is(s, "differ")) usleep(1200000); /* a heartbeat tells the calls */
        if (is(s, "kill")) raise(SIGKILL);
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

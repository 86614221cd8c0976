/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that test_launch_prints.c starts with mpirun: all print, then one ends in a given way, and the others wait
 * for it.
 *
 * prints_program [options of the trainer] [--act WHAT] [--on RANK] [--lines N] [--meet false] --dir DIR
 *
 * WHAT: end (all do); abort; kill; exit (with status 3); fail; many (60 lines, or N, then status 3); flood (the same,
 * and rank 0 too); leave (DIR/left, by a process that inherits the rank's output and outlives it; then it waits); once
 * (dies in its first life). If ranks do not meet, they are killed before they could. Creates DIR/rank-N when rank N has
 * reached that point. With PRINT_EARLY all print before they call lightc. */
#include <lightc/comm.h>
#include <lightc/trainer.h>

#undef NDEBUG
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    const char *act, *dir;
    int64_t on, lines;
    bool meet;
} settings;

static const lc_option table[] = {
    LC_FIELD(settings, act, "what to do"),        LC_FIELD(settings, dir, "where to report"),
    LC_FIELD(settings, on, "on this rank"),       LC_FIELD(settings, lines, "so many"),
    LC_FIELD(settings, meet, "the others first"),
};

static int come_to(const settings *s, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    FILE *f = fopen(path, "w");
    if (f) fprintf(f, "pid=%d\n", (int)getpid());
    return f ? fclose(f) : -1;
}

/* All have printed, and mpirun has read it. */
static void await_others(const settings *s)
{
    char path[4200];
    for (int rank = 0; rank < 3; rank++) {
        snprintf(path, sizeof path, "%s/rank-%d", s->dir, rank);
        while (access(path, F_OK) != 0) usleep(10000);
    }
    usleep(200000);
}

/* Like progress bars and other programs: without newlines, and with bytes that are not text. */
static void speak(int rank)
{
    static const char odd[] = "\r10 %\r100 %\x1e\x1e"
                              "0123\0\xff\x1e";
    printf("rank %d speaks\n\nand ends without a newline", rank);
    fflush(stdout);
    fprintf(stderr, "rank %d complains", rank);
    if (rank == 0) fwrite(odd, 1, sizeof odd - 1, stderr);
    fprintf(stderr, "\n");
    if (getenv("LIGHTC_KEEP")) fprintf(stderr, "rank %d has the variable\n", rank);
}

static void print_many(int rank, int64_t lines)
{
    for (int i = 1; i <= lines; i++) printf("%d\n", i);
    printf("the last line of rank %d\n", rank);
    fflush(stdout);
}

static int act(const settings *s)
{
    assert(strcmp(s->act, "abort") != 0);
    if (!strcmp(s->act, "kill") || !strcmp(s->act, "once")) raise(SIGKILL);
    if (!strcmp(s->act, "fail")) LC_MAIN_TRY(lc_fail(LC_ERR_IO, "the disk of a rank is gone"));
    if (!strcmp(s->act, "many")) print_many((int)s->on, s->lines);
    if (!strcmp(s->act, "leave") && fork() == 0) {
        setsid();
        if (come_to(s, "left") == 0) sleep(600);
        _exit(0);
    }
    if (!strcmp(s->act, "leave")) pause();
    return 3;
}

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    settings s = {.act = "end", .dir = ".", .on = 1, .lines = 60, .meet = true};
    lc_comm *world = NULL;
    if (getenv("PRINT_EARLY")) printf("early\n"), fflush(stdout);
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, table, sizeof table / sizeof *table, &s, argc, argv));
    lc_trainer_options_release(&opt);
    const char *mpi = getenv("OMPI_COMM_WORLD_RANK");
    int rank = mpi ? atoi(mpi) : 0;
    char name[32];
    snprintf(name, sizeof name, "rank-%d", rank);
    speak(rank);
    if (s.meet) LC_MAIN_TRY(lc_comm_world(&world));
    if (s.meet) LC_MAIN_TRY(lc_comm_barrier(world, NULL));
    if (come_to(&s, name) != 0) return 4;
    const char *restarted = getenv("LIGHTC_RESTARTED");
    bool all = !strcmp(s.act, "end") || (!strcmp(s.act, "once") && restarted && *restarted);
    bool flood = !strcmp(s.act, "flood");
    if (flood && rank != 2) print_many(rank, s.lines);
    if (flood && s.meet) LC_MAIN_TRY(lc_comm_barrier(world, NULL));
    if (!all && rank == s.on) return await_others(&s), act(&s);
    if (!all && !s.meet) sleep(600);
    if (world) LC_MAIN_TRY(lc_comm_barrier(world, NULL));
    lc_comm_free(world);
    return 0;
}

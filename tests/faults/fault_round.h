/* SPDX-License-Identifier: Apache-2.0 */
/* A round of fault_rounds.c: its kind of fault, what is drawn for it, and its results. */
#ifndef LC_TESTS_FAULT_ROUND_H
#define LC_TESTS_FAULT_ROUND_H

#include "fault_strangers.h"
#include "free_port.h"
#include "machines.h"
#include "scratch.h"

#include <lightc/checkpoint.h>

#include "comm/control/control.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/resource.h>

#define SILENCE patience(1.5) /* seconds; the option of the runs */
#define GRACE   1.0
#define DEATH   3 /* promised time until the others have ended */
#define LATE    patience(20)
enum { STEPS_AN_EPOCH = 24, EPOCHS = 3, MAX_RANKS = 4, MAX_ROUNDS = 10000 };

/* ---- kinds of faults ---- */

/* How a run is started, and what else happens. */
typedef enum surroundings { ALONE, NODES, TWICE_NODE, TWICE_RANK, STRANGERS, FILLS, SHARED } surroundings;

typedef struct kind {
    const char *name, *fault, *phase, *cause;
    bool silent; /* noticed by its silence; otherwise at once */
    surroundings way;
} kind;

static const kind kinds[] = {
    {"kill, forward", "kill", "forward", "killed by signal 9|connection is closed|its process ended"},
    {"error, step", "error", "forward_error", "is unplugged"},
    {"kill, collective", "kill", "collective", "killed by signal 9|connection is closed|its process ended"},
    {"stop", "stop", "anywhere", "no heartbeat", true},
    {"kill, checkpoint", "kill", "checkpoint", "killed by signal 9|connection is closed|its process ended"},
    {"link down", "link", "", "no heartbeat", true},
    {"kill, init", "kill", "init", "killed by signal 9|connection is closed|its process ended"},
    {"full disk", "full", "", "No space left|File too large"},
    {"error, loader", "error", "loader", "is unplugged"},
    {"kill, end", "kill", "end", "killed by signal 9|connection is closed|its process ended"},
    {"error, hook", "error", "hook", "is unplugged"},
    {"exit", "exit", "anywhere", "exited with status 7|connection is closed|its process ended"},
    {"nodes, kill", "kill", "forward", "killed by signal 9|connection is closed|its process ended", .way = NODES},
    {"nodes, error", "error", "forward_error", "is unplugged", .way = NODES},
    {"twice, node", "", "", "", .way = TWICE_NODE},
    {"twice, rank", "", "", "", .way = TWICE_RANK},
    {"strangers", "", "", "", .way = STRANGERS},
    {"strangers, kill", "kill", "forward", "killed by signal 9|connection is closed|its process ended",
     .way = STRANGERS},
    {"disk, fills", "fill", "forward", "", .way = FILLS},
    {"shared directory", "kill", "checkpoint", "killed by signal 9|connection is closed|its process ended",
     .way = SHARED},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct numbers {
    double *v;
    int n;
} numbers;

static struct {
    int rounds, failed, skipped, hung; /* hung: mpirun itself hung */
    numbers others, all;
    const char *why; /* why rounds were skipped */
} table[KINDS];

/* ---- a round ---- */

typedef struct trial {
    int number, kind, ranks, on, port, nodes;
    char backend[8];
    const char *phase, *strategy;
    int64_t at, call, delay_us, disk;
    bool restarts; /* the run, by itself */
    uint64_t draws, key;
    /* results */
    char dir[300], err[16384], wrong[2048];
    int status, others_status[2]; /* of the other runs in its directory */
    strangers strangers;
    bool met;  /* a stranger reached its coordinator */
    bool hung; /* mpirun hung after all ranks had ended */
    double others, all;
} trial;

static uint64_t next_random(trial *r)
{
    uint64_t x = r->key + 0x9e3779b97f4a7c15u * ++r->draws; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int64_t below(trial *r, int64_t n)
{
    return (int64_t)(next_random(r) % (uint64_t)n);
}

typedef enum ground { OTHER, LOST, LEAKED, BLAMED, BITS, GROUNDS } ground; /* the reason for a failure */
static int failures[GROUNDS];

static void wrong(trial *r, ground why, const char *format, ...) LC_PRINTF(3, 4);
static void wrong(trial *r, ground why, const char *format, ...)
{
    failures[why]++;
    size_t n = strlen(r->wrong);
    va_list args;
    va_start(args, format);
    if (n + 2 < sizeof r->wrong) {
        snprintf(r->wrong + n, sizeof r->wrong - n, "    ");
        vsnprintf(r->wrong + n + 4, sizeof r->wrong - n - 4, format, args);
        n = strlen(r->wrong);
        if (n + 1 < sizeof r->wrong) strcpy(r->wrong + n, "\n");
    }
    va_end(args);
}

static struct {
    uint64_t seed;
    char backends[3][8];
    int n_backends;
    bool own_mounts;
    const char *no_machines;
    machines two;
    pid_t guest; /* the process of the strangers */
    int port;    /* at which ranks without a launcher meet */
    char program[PATH_MAX + 32], plugin[PATH_MAX + 64];
    char host[256];
    const char *breaks;                    /* the check to break: "", or as given to --break */
    int saved;                             /* checkpoints that were checked when they were reported */
    int refused;                           /* second starts that were refused */
    int came[3];                           /* strangers: at coordinators, at data ports, with another secret */
    char reference[2][MAX_RANKS + 1][128]; /* results of runs that do not restart, and of those that do */
} the;

static int64_t steps_of(int ranks)
{
    return STEPS_AN_EPOCH / ranks;
}

static void plan(trial *r, int number)
{
    *r = (trial){.number = number, .kind = number % KINDS, .key = the.seed * 0x2545f4914f6cdd1du + (uint64_t)number};
    const kind *k = &kinds[r->kind];
    for (int i = 0; i < 4; i++) (void)next_random(r);
    r->ranks = (int)(2 + below(r, MAX_RANKS - 1));
    snprintf(r->backend, sizeof r->backend, "%s", the.backends[below(r, the.n_backends)]);
    if (!strcmp(k->fault, "link")) r->ranks = 2, snprintf(r->backend, sizeof r->backend, "tcp");
    if (k->way == SHARED) r->ranks = 2;
    r->nodes = r->ranks == 4 && below(r, 2) ? 2 : r->ranks;
    r->on = (int)below(r, r->ranks);
    if (k->way == FILLS) r->on = 0; /* the rank that writes, under ddp */
    if (k->way != ALONE && !strcmp(r->backend, "mpi")) snprintf(r->backend, sizeof r->backend, "shm");
    if (k->way == STRANGERS) snprintf(r->backend, sizeof r->backend, "tcp");
    if (k->way == NODES || k->way == TWICE_NODE) /* nodes share no memory */
        snprintf(r->backend, sizeof r->backend, strcmp(r->backend, "shm") ? "tcp" : "shm+tcp");
    if (!strcmp(k->fault, "full")) r->on = 0; /* the rank that writes */
    if (!strcmp(k->fault, "link")) r->on = 1; /* as seen by the coordinator, on the other machine */
    r->phase = k->phase;
    if (!strcmp(k->phase, "forward_error")) r->phase = "forward";
    if (!strcmp(k->phase, "anywhere")) {
        static const char *const phases[] = {"init", "forward", "collective", "checkpoint", "end"};
        r->phase = phases[below(r, 5)];
    }
    int64_t steps = EPOCHS * steps_of(r->ranks);
    r->at = below(r, steps);
    if (!strcmp(r->phase, "init")) r->at = below(r, 4);
    if (!strcmp(r->phase, "end")) r->at = below(r, 3);
    if (!strcmp(r->phase, "loader")) r->at = below(r, 200 / r->ranks);
    if (!strcmp(r->phase, "checkpoint")) r->at = 1 + below(r, steps / 2), r->call = below(r, 12);
    if (!strcmp(r->phase, "hook")) r->at = below(r, steps / 2), r->call = below(r, 4);
    if (k->way == FILLS) r->call = 3 + below(r, steps - 3); /* may last longer than the training */
    r->delay_us = below(r, 2) ? below(r, 3000) : below(r, 40000);
    r->disk = 800 + below(r, 3000); /* KiB */
    bool may = strcmp(k->fault, "full") != 0 && strcmp(k->fault, "link") != 0 && strcmp(r->backend, "mpi") != 0;
    may = may && k->way == ALONE;
    r->restarts = may && below(r, 3) == 0;
    /* All have the same bits in the end. On a full disk the rank that writes is to blame, under ddp rank 0. */
    static const char *const strategies[] = {"ddp", "ddp", "sharded_2", "sharded_3"};
    r->strategy = strategies[strcmp(k->fault, "full") && k->way != FILLS ? below(r, 4) : 0];
    /* A rank stopped after the others left is missed only by the launcher. */
    if (!strcmp(k->fault, "stop") && !strcmp(r->phase, "end") && r->at == 2) r->at = 1;
    /* ... and a rank that has not joined yet is waited for until start_timeout. */
    if (!strcmp(k->fault, "stop") && !strcmp(r->phase, "init") && r->at == 0) r->at = 3;
}

static bool breaks(const char *what)
{
    return the.breaks && !strcmp(the.breaks, what);
}

static bool is_healthy(const trial *r)
{
    return !*kinds[r->kind].fault || kinds[r->kind].way == FILLS;
}

/* The number of processes that start the run, or of runs in the same directory. */
static int parts_of(const trial *r)
{
    surroundings way = kinds[r->kind].way;
    if (!strcmp(kinds[r->kind].fault, "link")) return 2;
    return way == NODES || way == TWICE_NODE ? r->nodes : way == TWICE_RANK ? r->ranks : way == SHARED ? 3 : 1;
}

static const char *dirpath_of(const trial *r)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", r->dir, kinds[r->kind].way == FILLS ? "disk" : "run/checkpoints");
    return path;
}

static void describe(const trial *r, char *text, size_t size)
{
    snprintf(text, size,
             "round %d: %s; %s over %s, %d ranks; on rank %d, %s at %lld, call %lld, %lld us later, %lld KiB%s",
             r->number, kinds[r->kind].name, r->strategy, r->backend, r->ranks, r->on, r->phase, (long long)r->at,
             (long long)r->call, (long long)r->delay_us, (long long)r->disk, r->restarts ? "; restarts by itself" : "");
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Fault rounds: a training on several ranks (fault_program.c) is disturbed at a random place, and must end everywhere
 * in time, say whose fault it was, leave nothing behind, and end with the numbers of an undisturbed run when it goes
 * on. Or it is a healthy one that others should not disturb: a node or a rank that is started a second time, strangers
 * at its ports, a disk that fills and empties again, runs with the same directory for checkpoints.
 *
 *   fault_rounds [--rounds N] [--seed N] [--backends shm,tcp,mpi] [--round N]   (--round: only that one, in full)
 *                [--kind NAME] [--break lost|leaked|blamed|bits|twice|strangers|disk|shared]
 *
 * --kind: only rounds of kinds whose name begins so. --break does what a check is for, to show that it fails then.
 *
 * Everything about a round follows from the seed and its number. To add a kind of fault: a row in `kinds`, and what
 * fault_program does. tests/faults.sh runs this with what it needs.
 * LIGHTC_TEST_SLACK=4 gives all four times as long. */
#include "fault_strangers.h"
#include "free_port.h"
#include "machines.h"
#include "scratch.h"

#include <lightc/checkpoint.h>

#include "comm/control.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/resource.h>

#define SILENCE patience(1.5) /* seconds; the option of the runs */
#define GRACE   1.0
#define DEATH   3 /* until the others are gone, as is promised */
#define LATE    patience(20)
enum { STEPS_AN_EPOCH = 24, EPOCHS = 3, MAX_RANKS = 4, MAX_ROUNDS = 10000 };

/* ---- kinds of faults ---- */

/* How a run is started, and what is around it. */
typedef enum surroundings { ALONE, NODES, TWICE_NODE, TWICE_RANK, STRANGERS, FILLS, SHARED } surroundings;

typedef struct kind {
    const char *name, *fault, *phase, *cause;
    bool silent; /* noticed by its silence; else at once */
    surroundings way;
} kind;

static const kind kinds[] = {
    {"kill, forward", "kill", "forward", "killed by signal 9|connection is gone|its process ended"},
    {"error, step", "error", "forward_error", "is unplugged"},
    {"kill, collective", "kill", "collective", "killed by signal 9|connection is gone|its process ended"},
    {"stop", "stop", "anywhere", "nothing was heard", true},
    {"kill, checkpoint", "kill", "checkpoint", "killed by signal 9|connection is gone|its process ended"},
    {"link down", "link", "", "nothing was heard", true},
    {"kill, init", "kill", "init", "killed by signal 9|connection is gone|its process ended"},
    {"full disk", "full", "", "No space left|File too large"},
    {"error, loader", "error", "loader", "is unplugged"},
    {"kill, end", "kill", "end", "killed by signal 9|connection is gone|its process ended"},
    {"error, hook", "error", "hook", "is unplugged"},
    {"exit", "exit", "anywhere", "ended with status 7|connection is gone|its process ended"},
    {"nodes, kill", "kill", "forward", "killed by signal 9|connection is gone|its process ended", .way = NODES},
    {"nodes, error", "error", "forward_error", "is unplugged", .way = NODES},
    {"twice, node", "", "", "", .way = TWICE_NODE},
    {"twice, rank", "", "", "", .way = TWICE_RANK},
    {"strangers", "", "", "", .way = STRANGERS},
    {"strangers, kill", "kill", "forward", "killed by signal 9|connection is gone|its process ended", .way = STRANGERS},
    {"disk, fills", "fill", "forward", "", .way = FILLS},
    {"shared directory", "kill", "checkpoint", "killed by signal 9|connection is gone|its process ended",
     .way = SHARED},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct numbers {
    double *v;
    int n;
} numbers;

static struct {
    int rounds, failed, skipped, hung; /* hung: mpirun itself */
    numbers others, all;
    const char *why; /* skipped */
} table[KINDS];

/* ---- a round ---- */

typedef struct trial {
    int number, kind, ranks, on, port, nodes;
    char backend[8];
    const char *phase, *strategy;
    int64_t at, call, delay_us, disk;
    bool restarts; /* by itself */
    uint64_t draws, key;
    /* what happened */
    char dir[300], err[16384], wrong[2048];
    int status, others_status[2]; /* of runs beside it */
    strangers strangers;
    bool met;  /* its coordinator by a stranger */
    bool hung; /* mpirun, all ranks being gone */
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

typedef enum ground { OTHER, LOST, LEAKED, BLAMED, BITS, GROUNDS } ground; /* of a failure */
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
    pid_t guest; /* strangers */
    int port;    /* where ranks meet that are not told by their launcher */
    char program[PATH_MAX + 32], plugin[PATH_MAX + 64];
    char host[256];
    const char *breaks;                    /* what is to go wrong: "", or of --break */
    int saved;                             /* checkpoints that were looked at as they were reported */
    int refused;                           /* second starts */
    int came[3];                           /* strangers: at coordinators, at ports for data, with another secret */
    char reference[2][MAX_RANKS + 1][128]; /* of runs that do not restart, and of those that do */
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
    if (k->way == FILLS) r->on = 0; /* which writes, under ddp */
    if (k->way != ALONE && !strcmp(r->backend, "mpi")) snprintf(r->backend, sizeof r->backend, "shm");
    if (k->way == STRANGERS) snprintf(r->backend, sizeof r->backend, "tcp");
    if (k->way == NODES || k->way == TWICE_NODE) /* no memory is shared between those */
        snprintf(r->backend, sizeof r->backend, strcmp(r->backend, "shm") ? "tcp" : "shm+tcp");
    if (!strcmp(k->fault, "full")) r->on = 0; /* which writes */
    if (!strcmp(k->fault, "link")) r->on = 1; /* as the coordinator, on the other machine, sees it */
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
    if (k->way == FILLS) r->call = 3 + below(r, steps - 3); /* may be longer than it trains */
    r->delay_us = below(r, 2) ? below(r, 3000) : below(r, 40000);
    r->disk = 800 + below(r, 3000); /* KiB */
    bool may = strcmp(k->fault, "full") != 0 && strcmp(k->fault, "link") != 0 && strcmp(r->backend, "mpi") != 0;
    may = may && k->way == ALONE;
    r->restarts = may && below(r, 3) == 0;
    /* All end with the same bits. On a full disk the one that is to blame is whoever writes, under ddp rank 0. */
    static const char *const strategies[] = {"ddp", "ddp", "sharded_2", "sharded_3"};
    r->strategy = strategies[strcmp(k->fault, "full") && k->way != FILLS ? below(r, 4) : 0];
    /* Who has stopped after the others left is nobody's loss but the launcher's. */
    if (!strcmp(k->fault, "stop") && !strcmp(r->phase, "end") && r->at == 2) r->at = 1;
    /* ... and who has not come yet is waited for until start_timeout. */
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

/* How many processes start the run, or are runs beside it. */
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

/* ---- processes ----
 * This process inherits what its descendants leave, so that nothing is left when it has no child. */

static char state_of(pid_t pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return 'X';
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    fclose(f);
    return state;
}

static bool is_gone(pid_t pid)
{
    char state = state_of(pid);
    return state == 'Z' || state == 'X';
}

static bool is_holder(pid_t pid)
{
    return pid == the.two.holder[0] || pid == the.two.holder[1] || pid == the.guest;
}

/* Processes whose parent this one is, but for the holders. */
static int children(pid_t *out, int most)
{
    char path[64];
    int n = 0, pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    while (f && n < most && fscanf(f, "%d", &pid) == 1)
        if (!is_holder(pid)) out[n++] = pid;
    if (f) fclose(f);
    return n;
}

/* But for those that are waited for elsewhere. */
static void reap_strays(const pid_t keep[MAX_RANKS])
{
    pid_t list[64];
    int n = children(list, 64);
    for (int i = 0; i < n; i++)
        if (is_gone(list[i]) && !memmem(keep, MAX_RANKS * sizeof *keep, &list[i], sizeof *list))
            waitpid(list[i], NULL, WNOHANG);
}

/* What a rank wrote down when it began. */
typedef struct life {
    pid_t pid;
    double begun;
    int rank, port;
} life;

/* Those that began at `since` or later. */
static int lives_of(const trial *r, double since, life *out, int most)
{
    int n = 0;
    DIR *d = opendir(r->dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[700];
        int pid, end = 0;
        if (sscanf(e->d_name, "life-%d%n", &pid, &end) != 1 || e->d_name[end] || n == most) continue;
        snprintf(path, sizeof path, "%s/%s", r->dir, e->d_name);
        FILE *f = fopen(path, "r");
        out[n].pid = pid;
        if (f && fscanf(f, "%lf %d %d", &out[n].begun, &out[n].rank, &out[n].port) == 3) n += out[n].begun >= since;
        if (f) fclose(f);
    }
    if (d) closedir(d);
    return n;
}

static bool struck(const trial *r, double *when, long long *step)
{
    char path[400];
    snprintf(path, sizeof path, "%s/struck", r->dir);
    FILE *f = fopen(path, "r");
    bool ok = f && fscanf(f, "%lf %lld", when, step) == 2;
    if (f) fclose(f);
    return ok;
}

/* ---- a run ---- */

typedef struct run {
    pid_t pid[MAX_RANKS]; /* of what was started by hand */
    int status[MAX_RANKS];
} run;

static void add(char **argv, int *n, const char *format, ...) LC_PRINTF(3, 4);
static void add(char **argv, int *n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (vasprintf(&argv[(*n)++], format, args) < 0) abort();
    va_end(args);
    argv[*n] = NULL;
}

/* Of its part number `part`. */
static void command(const trial *r, int part, const char *ckpt, bool fault, char **argv)
{
    const kind *k = &kinds[r->kind];
    int n = 0;
    bool beside = k->way == SHARED && part > 0, slow = k->way == TWICE_NODE || k->way == TWICE_RANK;
    char other[64] = "";
    if (beside) snprintf(other, sizeof other, "/other-%d", part), fault = false;
    bool mpi = !strcmp(r->backend, "mpi");
    if (mpi) add(argv, &n, "mpirun"), add(argv, &n, "-np"), add(argv, &n, "%d", r->ranks);
    add(argv, &n, "%s", the.program);
    add(argv, &n, "--dir=%s%s", r->dir, other);
    add(argv, &n, "--default_root_dir=%s%s/run", r->dir, other);
    add(argv, &n, "--dirpath=%s", dirpath_of(r));
    if (k->way == FILLS && !breaks("disk")) add(argv, &n, "--on_save_error=continue");
    if (slow && fault) add(argv, &n, "--pace_us=60000");
    add(argv, &n, "--every_n_train_steps=2");
    add(argv, &n, "--save_top_k=%d", beside ? 1 : -1);
    add(argv, &n, "--max_epochs=%d", EPOCHS);
    add(argv, &n, "--silence_timeout=%g", SILENCE);
    add(argv, &n, "--grace_period=%g", GRACE);
    add(argv, &n, "--threads=1");
    add(argv, &n, "--strategy=%s", r->strategy);
    int nodes = !strcmp(k->fault, "link") ? 2 : k->way == NODES || k->way == TWICE_NODE ? r->nodes : 0;
    if (nodes)
        add(argv, &n, "--num_nodes=%d", nodes), add(argv, &n, "--node_rank=%d", part),
            add(argv, &n, "--devices=%d", r->ranks / nodes);
    else if (!mpi && k->way != TWICE_RANK)
        add(argv, &n, "--devices=%d", r->ranks);
    if (fault && r->restarts) add(argv, &n, "--max_restarts=1");
    if (r->restarts) /* with one rank less, to the same bits */
        add(argv, &n, "--deterministic=true"), add(argv, &n, "--deterministic_chunk=4");
    if (ckpt) add(argv, &n, "--ckpt_path=%s", ckpt);
    if (!fault || !*r->phase) return;
    add(argv, &n, "--fault=%s", k->fault);
    add(argv, &n, "--phase=%s", r->phase);
    add(argv, &n, "--on=%d", r->on);
    add(argv, &n, "--at=%lld", (long long)r->at);
    add(argv, &n, "--call=%lld", (long long)r->call);
    add(argv, &n, "--delay_us=%lld", (long long)r->delay_us);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Starts its part number `part`, which prints into FILES/out and FILES/err. */
static pid_t start_part(const trial *r, int part, char **argv, const char *files, bool fault)
{
    const kind *k = &kinds[r->kind];
    bool link = !strcmp(k->fault, "link"), nodes = link || k->way == NODES || k->way == TWICE_NODE;
    char path[400];
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    setpgid(0, 0);
    snprintf(path, sizeof path, "%s/tmp", r->dir);
    setenv("TMPDIR", path, 1);
    setenv("LIGHTC_COMM", r->backend, 1);
    if (!strcmp(r->backend, "mpi")) setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI's own */
    setenv("LIGHTC_MPI_PLUGIN", the.plugin, 1);
    if (nodes || k->way == TWICE_RANK || !strcmp(r->backend, "mpi")) {
        setenv("LIGHTC_SECRET", "a secret of the fault rounds", 1);
        setenv("MASTER_ADDR", link ? machines_address[0] : "127.0.0.1", 1);
        set_number("MASTER_PORT", r->port);
    }
    if (k->way == TWICE_RANK) set_number("RANK", part), set_number("WORLD_SIZE", r->ranks);
    snprintf(path, sizeof path, "%s/out", files);
    dup2(open(path, O_WRONLY | O_CREAT | O_APPEND, 0666), 1);
    snprintf(path, sizeof path, "%s/err", files);
    dup2(open(path, O_WRONLY | O_CREAT | O_APPEND, 0666), 2);
    if (fault && !strcmp(k->fault, "full") && !the.own_mounts) {
        struct rlimit most = {(rlim_t)r->disk * 200, (rlim_t)r->disk * 200};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &most);
    }
    if (link && !machines_enter(&the.two, part)) _exit(125);
    execvp(argv[0], argv);
    _exit(126);
}

static void make_dir(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) abort();
}

static void start(trial *r, run *out, const char *ckpt, bool fault)
{
    int n = parts_of(r);
    char path[400];
    if (kinds[r->kind].way == SHARED && !fault) n = 1; /* those beside it have ended */
    r->port = kinds[r->kind].way == ALONE ? the.port : free_port();
    snprintf(path, sizeof path, "%s/tmp", r->dir);
    make_dir(path);
    *out = (run){0};
    for (int i = 0; i < n; i++) {
        char *argv[64];
        snprintf(path, sizeof path, "%s", r->dir);
        if (kinds[r->kind].way == SHARED && i) {
            snprintf(path, sizeof path, "%s/other-%d", r->dir, i);
            make_dir(path);
        }
        command(r, i, ckpt, fault, argv);
        out->pid[i] = start_part(r, i, argv, path, fault);
        for (int k = 0; argv[k]; k++) free(argv[k]);
    }
}

/* But for rank `but`. */
static bool are_gone(const life *l, int n, int but)
{
    for (int i = 0; i < n; i++)
        if (l[i].rank != but && !is_gone(l[i].pid)) return false;
    return true;
}

/* Open MPI 4.1 with PMIx 4.2 sometimes waits for itself in PMIx_server_finalize when several ranks have failed at once.
 * That is counted, and held against nobody. */
static void end_mpirun(trial *r, run *p, int *status)
{
    kill(-p->pid[0], SIGKILL);
    waitpid(p->pid[0], NULL, 0);
    p->pid[0] = 0;
    *status = 1;
    r->hung = true;
}

static void end_all(trial *r, run *p)
{
    pid_t list[64];
    for (int i = 0; i < MAX_RANKS; i++)
        if (p->pid[i]) kill(-p->pid[i], SIGKILL);
    for (int tries = 0; tries < 200; tries++) {
        int n = children(list, 64);
        if (!n) return;
        for (int i = 0; i < n; i++) kill(list[i], SIGKILL);
        reap_strays((pid_t[MAX_RANKS]){0});
        pause_ms(10);
    }
    wrong(r, LEAKED, "processes cannot be ended");
}

/* Until all of it has ended; when that was, and when the ranks other than the culprit had. */
static void await_end(trial *r, run *p, double begun, double *others, double *all)
{
    life l[64];
    pid_t left[64];
    double ended = 0, empty = 0; /* when the last process of ours, and the last rank, had ended */
    bool mpi = !strcmp(r->backend, "mpi");
    *others = *all = 0;
    for (;;) {
        double now = seconds();
        int n = lives_of(r, begun, l, 64), running = 0, status;
        if (!*others && n >= r->ranks && are_gone(l, n, r->on)) *others = now;
        if (mpi && !empty && n >= r->ranks && are_gone(l, n, -1)) empty = now;
        if (empty && p->pid[0] && now - empty > patience(3)) end_mpirun(r, p, &p->status[0]);
        for (int i = 0; i < MAX_RANKS; i++) {
            if (p->pid[i] && waitpid(p->pid[i], &status, WNOHANG) == p->pid[i]) {
                p->status[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                p->pid[i] = 0;
            }
            running += p->pid[i] != 0;
        }
        if (!running && !ended) ended = now;
        reap_strays(p->pid);
        n = children(left, 64);
        if (!running && !n) break;
        if (now - begun > LATE || (ended && now - ended > patience(0.5))) {
            if (ended)
                wrong(r, LEAKED, "%d processes are left, the first is %d (%c)", n, (int)left[0], state_of(left[0]));
            else
                wrong(r, OTHER, "it has not ended within %g s", LATE);
            end_all(r, p);
            break;
        }
        pause_ms(4);
    }
    *all = r->hung ? empty : seconds();
    if (!*others) *others = *all;
    bool beside = kinds[r->kind].way == SHARED; /* 1 and 2 are other runs */
    r->status = p->status[0];
    for (int i = 1; i < MAX_RANKS && !beside && !r->status; i++) r->status = p->status[i];
    for (int i = 0; i < 2; i++) r->others_status[i] = p->status[1 + i];
}

/* ---- what is checked ---- */

static void read_text(const trial *r, const char *name, char *text, size_t size)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

/* One of "a|b|c". */
static bool contains_one(const char *text, const char *causes)
{
    char part[64];
    for (const char *at = causes; *at; at += *at == '|') {
        size_t n = strcspn(at, "|");
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        if (strstr(text, part)) return true;
        at += n;
    }
    return false;
}

/* The message names rank, host, step and cause. */
static void check_message(trial *r, long long step)
{
    const kind *k = &kinds[r->kind];
    char want[1200];
    int on = breaks("blamed") ? (r->on + 1) % r->ranks : r->on;
    bool init = !strcmp(r->phase, "init"), link = !strcmp(k->fault, "link");
    if (!strcmp(r->phase, "loader") && step == 0) init = true; /* it may be asked for samples before the first step */
    bool left = !strcmp(r->phase, "end") && r->at == 2;
    /* To lightc the run was over, or had not begun; mpirun says it in its own words. */
    if (!strcmp(r->backend, "mpi") && (left || (!strcmp(r->phase, "init") && r->at == 0))) return;
    const char *line = NULL;
    for (const char *at = r->err; at && *at; at = strchr(at, '\n'), at += at != NULL) {
        const char *error = strncmp(at, "error: ", 7) == 0 ? at : NULL;
        if (r->restarts && strncmp(at, "rank ", 5) == 0 && strstr(at, "starting again")) error = at;
        if (!error) continue;
        snprintf(want, sizeof want, "%.*s", (int)strcspn(at, "\n"), at);
        char host[64], of[64];
        snprintf(host, sizeof host, "rank %d (host", on);
        snprintf(of, sizeof of, "rank %d of", on);
        if (!line || ((strstr(want, host) || strstr(want, of)) && contains_one(want, k->cause))) line = at;
    }
    if (!line) {
        wrong(r, BLAMED, "there is no message");
        return;
    }
    char text[1200], rank_host[300];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    snprintf(rank_host, sizeof rank_host, "rank %d (host %s)", on, link ? "machine1" : the.host);
    snprintf(want, sizeof want, "rank %d of %d (host %s)", on, r->ranks, the.host);
    if (!strstr(text, rank_host) && !strstr(text, want))
        wrong(r, BLAMED, "the message does not name rank %d and its host: %s", on, text);
    if (link && !strstr(r->err, "the process that coordinates the run (host machine0) is gone: nothing was heard"))
        wrong(r, BLAMED, "the other machine has no message");
    if (!contains_one(text, k->cause)) wrong(r, BLAMED, "the message has none of the causes %s: %s", k->cause, text);
    const char *at = strstr(text, ", step ");
    bool coordinates = strstr(text, "which coordinates the run"); /* whoever hears nothing of it knows no step */
    if (!init && !link && !left && !coordinates && !at) wrong(r, BLAMED, "the message names no step: %s", text);
    if (at && atoll(at + 7) > step + 1) wrong(r, BLAMED, "the message names a step behind step %lld: %s", step, text);
    if (at && !strcmp(k->fault, "error") && strcmp(r->phase, "loader") != 0 && atoll(at + 7) + 1 < step)
        wrong(r, BLAMED, "the message names a step before step %lld: %s", step, text);
}

static void check_empty(trial *r, const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) wrong(r, LEAKED, "%s/%s is left", path, e->d_name);
    if (d) closedir(d);
}

/* Open MPI leaves a directory of its own when it is killed; it is none of ours. */
static void check_nothing_left(trial *r)
{
    char path[400], port[16], line[512];
    life l[64];
    snprintf(path, sizeof path, "%s/tmp", r->dir);
    if (strcmp(r->backend, "mpi") != 0) check_empty(r, path);
    if (the.own_mounts && strcmp(r->backend, "mpi") != 0) check_empty(r, "/dev/shm");
    int n = lives_of(r, 0, l, 64);
    FILE *f = fopen("/proc/net/tcp", "r");
    while (f && n && fgets(line, sizeof line, f)) {
        snprintf(port, sizeof port, ":%04X ", (unsigned)l[0].port);
        char *at = strstr(line, port);
        /* "sl local remote state": 0A listens */
        if (l[0].port && at && at - line < 24 && strstr(line, " 0A ")) wrong(r, LEAKED, "port %d is left", l[0].port);
    }
    if (f) fclose(f);
}

/* Every checkpoint that has its name is whole. Returns whether there is one. */
static bool check_checkpoints(trial *r, bool clean)
{
    char dir[400];
    bool some = false;
    snprintf(dir, sizeof dir, "%s", dirpath_of(r));
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.') {
            if (clean && strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) wrong(r, LEAKED, "%s is left", path);
            continue;
        }
        if (lc_checkpoint_verify(path) < 0)
            wrong(r, LOST, "a torn checkpoint: %s", lc_error_message());
        else
            some = true;
    }
    if (d) closedir(d);
    return some;
}

/* Whether `path` is a line of DIR/NAME. */
static bool is_listed(const trial *r, const char *name, const char *path)
{
    char text[16384], line[800];
    read_text(r, name, text, sizeof text);
    snprintf(line, sizeof line, "%s\n", path);
    const char *at = strstr(text, line);
    return at && (at == text || at[-1] == '\n');
}

/* All that FOLDER's run reported as saved, and not as removed, is there. *newest: the last of them. */
static void check_saved(trial *r, const char *folder, char newest[700])
{
    char name[100], removed[100], text[16384], path[700];
    snprintf(name, sizeof name, "%ssaved", folder);
    snprintf(removed, sizeof removed, "%sremoved", folder);
    read_text(r, name, text, sizeof text);
    newest[0] = 0;
    for (char *at = text, *end; *at && (end = strchr(at, '\n')); at = end + 1) {
        snprintf(path, sizeof path, "%.*s", (int)(end - at), at);
        if (is_listed(r, removed, path)) continue;
        the.saved++;
        if (lc_checkpoint_verify(path) < 0)
            wrong(r, LOST, "reported as saved, and lost: %s: %s", path, lc_error_message());
        else
            snprintf(newest, 700, "%s", path);
    }
}

/* What messages name as the newest is there. */
static void check_named(trial *r)
{
    static const char says[] = "the newest that is saved is ";
    char path[700];
    for (const char *at = r->err; (at = strstr(at, says));) {
        at += strlen(says);
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, ")\n"), at);
        if (lc_checkpoint_verify(path) < 0) wrong(r, LOST, "named as the newest, and lost: %s", path);
    }
}

/* Nothing has happened to the run. */
static void check_untouched(trial *r)
{
    if (r->status) wrong(r, OTHER, "it was undisturbed, and ended with status %d", r->status);
    if (strstr(r->err, "error: ")) wrong(r, BLAMED, "it was undisturbed, and has an error");
    for (const char *at = r->err; *at; at++)
        if ((unsigned char)*at < 32 && *at != '\n' && *at != '\t') {
            wrong(r, BLAMED, "byte %d of a stranger was printed", *at);
            break;
        }
}

/* Each rank has found the node that it was started on. */
static void check_places(trial *r)
{
    char name[32], text[128], want[128];
    surroundings way = kinds[r->kind].way;
    int each = r->ranks / r->nodes;
    for (int i = 0; i < r->ranks && (way == NODES || way == TWICE_NODE); i++) {
        snprintf(name, sizeof name, "place-%d", i);
        read_text(r, name, text, sizeof text);
        snprintf(want, sizeof want, "size=%d local=%d node=%d nodes=%d\n", r->ranks, i % each, i / each, r->nodes);
        if (strcmp(text, want) != 0) wrong(r, OTHER, "rank %d was at %s, and should be at %s", i, text, want);
    }
}

static void check_result(trial *r)
{
    char text[128];
    read_text(r, "result", text, sizeof text);
    if (breaks("bits") && *text) text[strlen(text) - 2] ^= 1;
    const char *want = the.reference[r->restarts][r->ranks];
    if (strcmp(text, want) != 0)
        wrong(r, BITS, "it ended with %.100s, undisturbed with %s", *text ? text : "nothing", want);
}

/* ---- one round ---- */

/* Runs with a disk of their own that has room for all. */
static bool make_disk(const trial *r)
{
    const char *path = dirpath_of(r);
    return mkdir(path, 0777) == 0 && mount("tmpfs", path, "tmpfs", 0, "size=32m") == 0;
}

static bool fill_disk(const trial *r, bool full)
{
    char path[400], size[32];
    snprintf(path, sizeof path, "%s/run", r->dir);
    if (!the.own_mounts) return true;
    if (!full) return mount("tmpfs", path, "tmpfs", MS_REMOUNT, "size=64m") == 0;
    snprintf(size, sizeof size, "size=%lldk", (long long)r->disk);
    return mkdir(path, 0777) == 0 && mount("tmpfs", path, "tmpfs", 0, size) == 0;
}

static void cut_link(const trial *r, bool down)
{
    (void)machines_do(&the.two, (int)(r->at % 2), down ? "ip link set eth0 down" : "ip link set eth0 up");
}

static bool ended(pid_t pid, int *status)
{
    return waitpid(pid, status, WNOHANG) == pid;
}

static int count_training(const trial *r)
{
    int n = 0;
    DIR *d = opendir(r->dir);
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, "trains-", 7) == 0;
    if (d) closedir(d);
    return n;
}

/* One of its parts, once all train: it is turned away. */
static void start_second(trial *r, const run *p)
{
    char *argv[64], path[400], text[4096];
    int status = 0, part = (int)(r->on % parts_of(r));
    life l[64];
    for (double until = seconds() + LATE / 2; count_training(r) < r->ranks && seconds() < until;) pause_ms(5);
    pause_ms((int)(r->delay_us / 200));
    snprintf(path, sizeof path, "%s/second", r->dir);
    make_dir(path);
    trial second = *r;
    snprintf(second.dir, sizeof second.dir, "%.*s", (int)sizeof second.dir - 1, path);
    command(&second, part, NULL, true, argv);
    pid_t pid = start_part(r, part, argv, path, true);
    for (int k = 0; argv[k]; k++) free(argv[k]);
    if (breaks("twice") && lives_of(r, 0, l, 64)) kill(l[0].pid, SIGKILL);
    bool gone = false;
    double until = seconds() + patience(3);
    while (!(gone = ended(pid, &status)) && seconds() < until) pause_ms(2);
    bool over = state_of(p->pid[0]) == 'Z'; /* the run, before the second could be turned away */
    if (!gone) kill(-pid, SIGKILL), waitpid(pid, &status, 0);
    read_text(r, "second/err", text, sizeof text);
    bool refused =
        strstr(text, "refused node ") || strstr(text, "refused rank ") || strstr(text, " cannot coordinate the run: ");
    if (gone && refused && WIFEXITED(status) && WEXITSTATUS(status)) {
        the.refused++;
        return;
    }
    if (over) return;
    if (!gone)
        wrong(r, OTHER, "the second start of part %d was not turned away: %s", part, text);
    else
        wrong(r, OTHER, "the second start of part %d ended with status %d: %s", part, status, text);
}

/* What they see of the start depends on who is quicker: they are there before it. */
static void invite_strangers(trial *r)
{
    char mark[400];
    snprintf(mark, sizeof mark, "TMPDIR=%s/tmp", r->dir);
    strangers_start(&r->strangers, mark, breaks("strangers"));
    the.guest = r->strangers.pid;
}

static void dismiss_strangers(trial *r)
{
    life l[64];
    int coordinator = lives_of(r, 0, l, 64) ? l[0].port : 0;
    strangers_end(&r->strangers);
    the.guest = 0;
    for (int i = 0; i < PORTS; i++) {
        int port = r->strangers.came->port[i];
        if (port) the.came[port == coordinator ? 0 : 1] += r->strangers.came->times[i];
        if (port == coordinator && r->strangers.came->times[i]) r->met = true;
    }
    the.came[2] += r->strangers.came->secrets;
    munmap(r->strangers.came, sizeof *r->strangers.came);
}

static void healthy_run(trial *r)
{
    surroundings way = kinds[r->kind].way;
    double others, all, begun = seconds();
    run p;
    start(r, &p, NULL, true);
    if (way == STRANGERS) invite_strangers(r);
    if (way == TWICE_NODE || way == TWICE_RANK) start_second(r, &p);
    await_end(r, &p, begun, &others, &all);
    if (way == STRANGERS) dismiss_strangers(r);
    read_text(r, "err", r->err, sizeof r->err);
    if (way != FILLS) {
        check_untouched(r);
        return;
    }
    int64_t steps = EPOCHS * steps_of(r->ranks), room = r->at + r->call; /* from step `room` on */
    bool missed = strstr(r->err, "its last checkpoint was not saved");
    if (room < steps ? r->status || missed : !r->status || !missed)
        wrong(r, OTHER, "status %d, its disk had room again at step %lld of %lld", r->status, (long long)room,
              (long long)steps);
    if (room <= steps && r->call > 3 && !strstr(r->err, "the training goes on and saves again"))
        wrong(r, BLAMED, "no save is said to have failed");
    if (strstr(r->err, "not saved") && !strstr(r->err, "No space left"))
        wrong(r, BLAMED, "the disk is not said to be full");
    char steps_text[32], newest[700];
    snprintf(steps_text, sizeof steps_text, "step=%lld.", (long long)steps);
    check_saved(r, "", newest);
    if (room < steps && !strstr(newest, steps_text)) wrong(r, LOST, "its newest checkpoint is %s", newest);
}

static void disturbed_run(trial *r)
{
    const kind *k = &kinds[r->kind];
    bool link = !strcmp(k->fault, "link"), full = !strcmp(k->fault, "full");
    double begun = seconds(), when = 0, others, all;
    long long step = 0;
    run p;
    start(r, &p, NULL, true);
    if (k->way == STRANGERS) invite_strangers(r);
    if (link) {
        char path[400];
        snprintf(path, sizeof path, "%s/run/checkpoints", r->dir); /* until it trains, and some time longer */
        while (access(path, F_OK) != 0 && seconds() - begun < LATE / 2) pause_ms(5);
        pause_ms((int)(r->delay_us / 1000) * 5);
        when = seconds();
        cut_link(r, true);
    }
    await_end(r, &p, begun, &others, &all);
    if (k->way == STRANGERS) dismiss_strangers(r);
    if (k->way == SHARED) all = others;
    read_text(r, "err", r->err, sizeof r->err);
    if (link) cut_link(r, false);
    bool happened = struck(r, &when, &step);
    if (full) happened = true, when = all, step = INT_MAX; /* nobody knows when */
    if (link) happened = true, step = INT_MAX;
    if (!happened && *r->phase) {
        /* Such as a call that no checkpoint needed. */
        if (r->status != 0) wrong(r, OTHER, "it failed with status %d before anything was disturbed", r->status);
        return;
    }
    check_message(r, step);
    if (r->restarts) {
        life l[64];
        int n = lives_of(r, 0, l, 64);
        double again = 0;
        for (int i = 0; i < n; i++)
            if (l[i].begun > when && (!again || l[i].begun < again)) again = l[i].begun;
        if (!again) wrong(r, OTHER, "it was not started again");
        others = all = again;
        if (r->status != 0) wrong(r, OTHER, "it ended with status %d though it was started again", r->status);
    } else if (r->status == 0 || (link && (!p.status[0] || !p.status[1]))) {
        wrong(r, OTHER, "its status is 0");
    }
    r->others = others - when;
    r->all = all - when;
    double limit = k->silent ? SILENCE + patience(1) : patience(DEATH), grace = GRACE + patience(0.5);
    if (!full && r->others > limit + (r->restarts ? grace : 0))
        wrong(r, OTHER, "the others were gone after %.2f s, promised are %.2f", r->others, limit);
    if (!full && r->all > limit + grace + patience(1)) wrong(r, OTHER, "it was gone after %.2f s", r->all);
}

/* Runs that saved into the same directory: nothing has happened to them. */
static void check_beside(trial *r)
{
    char text[128], name[64], newest[700];
    for (int i = 1; i <= 2; i++) {
        snprintf(name, sizeof name, "other-%d/", i);
        check_saved(r, name, newest);
        if (r->others_status[i - 1])
            wrong(r, OTHER, "run %d beside it ended with status %d", i, r->others_status[i - 1]);
        if (!*newest) wrong(r, LOST, "run %d beside it has no checkpoint", i);
        strcat(name, "result");
        read_text(r, name, text, sizeof text);
        if (strcmp(text, the.reference[0][r->ranks]) != 0) wrong(r, BITS, "run %d beside it ended with %s", i, text);
    }
}

/* What the checks are there to find. */
static void break_it(trial *r)
{
    char path[700], newest[700];
    the.saved -= 1000000; /* it does not count */
    check_saved(r, breaks("shared") ? "other-1/" : "", newest);
    the.saved += 1000000;
    if ((breaks("lost") || breaks("shared")) && *newest) {
        snprintf(path, sizeof path, "%s/gone", r->dir);
        (void)rename(newest, path);
    }
    if (!breaks("leaked")) return;
    snprintf(path, sizeof path, "%s/tmp/left", r->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) close(fd);
}

/* Goes on from where it has stopped. */
static void second_run(trial *r, const char *from)
{
    char path[700];
    double others, all;
    run p;
    snprintf(path, sizeof path, "%s/result", r->dir);
    unlink(path);
    r->status = 0;
    table[r->kind].hung += r->hung;
    r->hung = false;
    start(r, &p, from, false);
    await_end(r, &p, seconds(), &others, &all);
    if (r->status && !r->hung) {
        read_text(r, "err", r->err, sizeof r->err);
        wrong(r, OTHER, "the second run ended with status %d", r->status);
    }
    check_nothing_left(r);
    (void)check_checkpoints(r, true);
}

static void one_round(trial *r)
{
    char path[700], newest[700];
    snprintf(r->dir, sizeof r->dir, "%s", fresh_dir("round"));
    surroundings way = kinds[r->kind].way;
    bool full = !strcmp(kinds[r->kind].fault, "full"), healthy = is_healthy(r);
    if ((full && !fill_disk(r, true)) || (way == FILLS && !make_disk(r)))
        wrong(r, OTHER, "a small file system cannot be made: %s", strerror(errno));
    if (healthy)
        healthy_run(r);
    else
        disturbed_run(r);
    if (way == STRANGERS && !r->met) wrong(r, OTHER, "no stranger has found its coordinator");
    break_it(r);
    check_nothing_left(r);
    bool some = check_checkpoints(r, false);
    check_saved(r, "", newest);
    check_named(r);
    if (way == SHARED) check_beside(r);
    if (full) (void)fill_disk(r, false);
    if (way == FILLS) {
        snprintf(path, sizeof path, "%s/.ballast", dirpath_of(r));
        unlink(path);
    }
    bool goes_on = healthy ? way == FILLS && r->status : !r->restarts;
    if (goes_on) second_run(r, way == SHARED ? (*newest ? newest : NULL) : some ? "last" : NULL);
    check_result(r);
    if (!*r->wrong) check_places(r);
    if (goes_on) check_saved(r, "", newest);
    if (!strcmp(r->backend, "mpi") && the.own_mounts) (void)!system("rm -f /dev/shm/*"); /* of Open MPI */
    if ((full || way == FILLS) && the.own_mounts) {
        snprintf(path, sizeof path, "%s/run", r->dir);
        (void)umount(full ? path : dirpath_of(r));
    }
}

/* ---- the table ---- */

static void note(numbers *l, double v)
{
    l->v = realloc(l->v, (size_t)(l->n + 1) * sizeof *l->v);
    if (!l->v) abort();
    int i = l->n++;
    for (; i > 0 && l->v[i - 1] > v; i--) l->v[i] = l->v[i - 1];
    l->v[i] = v;
}

static double quantile(const numbers *l, double q)
{
    int i = (int)ceil(q * l->n) - 1;
    return l->n ? l->v[i < 0 ? 0 : i] : NAN;
}

static const char *why_skipped(const trial *r)
{
    if (!strcmp(kinds[r->kind].fault, "link")) return the.no_machines;
    if (kinds[r->kind].way == FILLS && !the.own_mounts) return "no mounts of its own";
    return NULL;
}

static bool perform(int number)
{
    trial r;
    char text[400];
    plan(&r, number);
    describe(&r, text, sizeof text);
    table[r.kind].rounds++;
    const char *why = why_skipped(&r);
    if (why) {
        table[r.kind].skipped++;
        table[r.kind].why = why;
        return true;
    }
    one_round(&r);
    if (r.all > 0) note(&table[r.kind].others, r.others), note(&table[r.kind].all, r.all);
    table[r.kind].hung += r.hung;
    if (!*r.wrong) return true;
    table[r.kind].failed++;
    printf("FAIL seed %llu, %s\n%s", (unsigned long long)the.seed, text, r.wrong);
    printf("    it printed:\n%s\n", r.err);
    return false;
}

static void print_table(void)
{
    printf("\n%-18s %7s %7s %8s   %-17s %-17s\n", "", "", "", "", "others gone, s", "all gone, s");
    printf("%-18s %7s %7s %8s   %8s %8s %8s %8s\n", "fault", "rounds", "failed", "skipped", "median", "p99", "median",
           "p99");
    for (int i = 0; i < KINDS; i++) {
        if (!table[i].rounds) continue;
        printf("%-18s %7d %7d %8d   ", kinds[i].name, table[i].rounds, table[i].failed, table[i].skipped);
        if (table[i].all.n && strcmp(kinds[i].fault, "full") != 0)
            printf("%8.2f %8.2f %8.2f %8.2f", quantile(&table[i].others, 0.5), quantile(&table[i].others, 0.99),
                   quantile(&table[i].all, 0.5), quantile(&table[i].all, 0.99));
        if (table[i].skipped) printf("  %s", table[i].why);
        if (table[i].hung) printf("  mpirun hung %d times behind its ranks", table[i].hung);
        printf("\n");
    }
}

/* ---- all of it ---- */

static void find_backends(const char *list)
{
    bool mpi = system("command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'") == 0 &&
               access(the.plugin, R_OK) == 0;
    for (const char *at = list; *at && the.n_backends < 3; at += *at == ',') {
        size_t n = strcspn(at, ",");
        char *name = the.backends[the.n_backends];
        snprintf(name, sizeof *the.backends, "%.*s", (int)n, at);
        at += n;
        if (strcmp(name, "shm") && strcmp(name, "tcp") && strcmp(name, "mpi")) {
            fprintf(stderr, "there is no backend \"%s\"; there are shm, tcp and mpi\n", name);
            exit(2);
        }
        if (strcmp(name, "mpi") || mpi)
            the.n_backends++;
        else
            printf("SKIP mpi: there is no Open MPI, or lightc was built without it\n");
    }
    if (!the.n_backends) exit(77);
}

static bool undisturbed(int ranks, bool restarts)
{
    trial r = {.ranks = ranks, .nodes = 1, .backend = "tcp", .phase = "", .strategy = "ddp", .restarts = restarts};
    char *reference = the.reference[restarts][ranks];
    run p;
    double others, all;
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("reference"));
    start(&r, &p, NULL, false);
    await_end(&r, &p, seconds(), &others, &all);
    read_text(&r, "result", reference, sizeof **the.reference);
    read_text(&r, "err", r.err, sizeof r.err);
    if (r.status == 0 && *reference && !*r.wrong) return true;
    printf("FAIL: %d ranks that nobody disturbs end with status %d\n%s%s\n", ranks, r.status, r.wrong, r.err);
    return false;
}

int main(int argc, char **argv)
{
    int rounds = 12, only = -1, failed = 0;
    const char *bin = getenv("LIGHTC_TEST_BIN"), *backends = "shm,tcp,mpi", *kind_asked = "";
    char dir[PATH_MAX];
    the.seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--round")) only = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--seed")) the.seed = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--backends")) backends = argv[i + 1];
        if (!strcmp(argv[i], "--kind")) kind_asked = argv[i + 1];
        if (!strcmp(argv[i], "--break")) the.breaks = argv[i + 1];
    }
    if (argc % 2 == 0 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: %s [--rounds N] [--seed N] [--backends shm,tcp,mpi] [--round N]\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!realpath(bin ? bin : "build/bin", dir)) return 2;
    snprintf(the.program, sizeof the.program, "%s/fault_program", dir);
    snprintf(the.plugin, sizeof the.plugin, "%s/../lib/liblightc_mpi.so", dir);
    gethostname(the.host, sizeof the.host - 1);
    static const char *const variables[][2] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                               {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                               {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                               {"OMPI_MCA_pml", "ob1"},
                                               {"OMPI_MCA_btl", "vader,self"},
                                               {"OMP_WAIT_POLICY", "passive"}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) setenv(variables[i][0], variables[i][1], 1);
    find_backends(backends);
    lc__coordinator *c;
    if (lc__coordinator_start(NULL, &the.port, 1, "a port that is free", NULL, &c) < 0) return 2;
    lc__coordinator_stop(c);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    the.own_mounts = machines_own_mounts();
    if (!the.own_mounts)
        printf("no mounts of its own: /dev/shm is not looked at, and a limit stands for a full disk\n");
    the.no_machines = machines_make(&the.two);
    for (int n = 2; n <= MAX_RANKS && !failed; n++) failed += !undisturbed(n, false) || !undisturbed(n, true);
    bool failed_before = failed;
    for (int i = 0; i < rounds && !failed_before; i++)
        if ((only < 0 || i == only) && !strncmp(kinds[i % KINDS].name, kind_asked, strlen(kind_asked)))
            failed += !perform(i);
    if (only < 0) print_table();
    machines_end(&the.two);
    int skipped = 0;
    for (int i = 0; i < KINDS; i++) {
        skipped += table[i].skipped;
        free(table[i].others.v);
        free(table[i].all.v);
    }
    int ran = 0, of_way[SHARED + 1] = {0};
    for (int i = 0; i < KINDS; i++)
        ran += table[i].rounds - table[i].skipped, of_way[kinds[i].way] += table[i].rounds - table[i].skipped;
    printf(
        "%d rounds: %d alone, %d on nodes, %d started twice (%d turned away), %d with strangers (%d came to "
        "coordinators, %d to ports for data, %d had another secret), %d on disks that fill and empty, %d in a shared "
        "directory\n",
        ran, of_way[ALONE], of_way[NODES], of_way[TWICE_NODE] + of_way[TWICE_RANK], the.refused, of_way[STRANGERS],
        the.came[0], the.came[1], the.came[2], of_way[FILLS], of_way[SHARED]);
    printf("%d checkpoints looked at, %d lost, %d leaked, %d blamed wrongly, %d with other bits, %d wrong otherwise\n",
           the.saved, failures[LOST], failures[LEAKED], failures[BLAMED], failures[BITS], failures[OTHER]);
    printf("%d failed, %d skipped\n", failed, skipped);
    return failed ? 1 : 0;
}

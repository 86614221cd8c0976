/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a round: starting, waiting for, and killing them. */
#ifndef LC_TESTS_FAULT_RUN_H
#define LC_TESTS_FAULT_RUN_H

#include "fault_round.h"

/* ---- processes ---- This process inherits orphaned descendants, so nothing is left once it has no children. */

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

/* Children of this process, except the holders. */
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

/* Except those that are waited for elsewhere. */
static void reap_strays(const pid_t keep[MAX_RANKS])
{
    pid_t list[64];
    int n = children(list, 64);
    for (int i = 0; i < n; i++)
        if (is_gone(list[i]) && !memmem(keep, MAX_RANKS * sizeof *keep, &list[i], sizeof *list))
            waitpid(list[i], NULL, WNOHANG);
}

/* The report of a rank when it began. */
typedef struct life {
    pid_t pid;
    double begun;
    int rank, port;
} life;

/* Ranks that began at `since` or later. */
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
    pid_t pid[MAX_RANKS]; /* processes started by hand */
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

/* The command line of process number `part`. */
static void command(const trial *r, int part, const char *ckpt, bool fault, char **argv)
{
    const kind *k = &kinds[r->kind];
    int n = 0;
    bool other_run = k->way == SHARED && part > 0, slow = k->way == TWICE_NODE || k->way == TWICE_RANK;
    char other[64] = "";
    if (other_run) snprintf(other, sizeof other, "/other-%d", part), fault = false;
    bool mpi = !strcmp(r->backend, "mpi");
    if (mpi) add(argv, &n, "mpirun"), add(argv, &n, "-np"), add(argv, &n, "%d", r->ranks);
    add(argv, &n, "%s", the.program);
    add(argv, &n, "--dir=%s%s", r->dir, other);
    add(argv, &n, "--default_root_dir=%s%s/run", r->dir, other);
    add(argv, &n, "--dirpath=%s", dirpath_of(r));
    if (k->way == FILLS && !breaks("disk")) add(argv, &n, "--on_save_error=continue");
    if (slow && fault) add(argv, &n, "--pace_us=60000");
    add(argv, &n, "--every_n_train_steps=2");
    add(argv, &n, "--save_top_k=%d", other_run ? 1 : -1);
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
    if (r->restarts) /* with one rank less, and the same bits */
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

/* Starts process number `part`, with its output in FILES/out and FILES/err. */
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
    if (!strcmp(r->backend, "mpi")) setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* for leaks of MPI */
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
    if (kinds[r->kind].way == SHARED && !fault) n = 1; /* the other runs have ended */
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

/* Except rank `but`. */
static bool are_gone(const life *l, int n, int but)
{
    for (int i = 0; i < n; i++)
        if (l[i].rank != but && !is_gone(l[i].pid)) return false;
    return true;
}

/* Open MPI 4.1 with PMIx 4.2 sometimes waits for itself in PMIx_server_finalize when several ranks have failed at once.
 * This is counted, but is not a failure. */
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

/* Waits until everything has ended; returns when that was, and when the ranks other than the culprit had ended. */
static void await_end(trial *r, run *p, double begun, double *others, double *all)
{
    life l[64];
    pid_t left[64];
    double ended = 0, empty = 0; /* when the last of our processes, and the last rank, had ended */
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
    bool shared = kinds[r->kind].way == SHARED; /* 1 and 2 are other runs */
    r->status = p->status[0];
    for (int i = 1; i < MAX_RANKS && !shared && !r->status; i++) r->status = p->status[i];
    for (int i = 0; i < 2; i++) r->others_status[i] = p->status[1 + i];
}

#endif

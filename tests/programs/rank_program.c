/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that test_launch*.c start. Each writes DIR/rank-N with its process and what it found out about itself, and
 * does WHAT: rank_program --dir DIR [--act WHAT] [--on RANK] [options of the trainer].
 *
 * WHAT: end; exit (with status 3); kill (itself); hang; print (60 lines, then status 1); term (waits for SIGTERM,
 * then exits with 0); once (dies in its first life); meet (waits for the others, then until the run ends); late
 * (never meets); go (fails when DIR/go exists); absent (ends, and the others meet); await (ends when rank --on has
 * written its file); tardy (fails when the others have ended, and the supervisor knows); train (four epochs; a rank
 * with --on dies in its first life in the third); slow (the same, forever); stuck (the same, but a step lasts a
 * minute); after (slow, and rank --on sends itself SIGTERM when its training has ended); usr1 (the same as train,
 * but it sends itself SIGUSR1); given (slow, over a communicator of MPI that it passes to the trainer); hold (trains
 * a large model, and writes the memory it took to DIR/memory-N). rank_program silent ...: it does not parse options,
 * but asks for one restart in the struct, and dies in its first life. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <glob.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/ranks/ranks.h"
#include "comm/control/control.h"
#include "comm/world/world.h"
#include "core/hooks/trainer_internal.h"
#include "trainer_world.h"

typedef struct settings {
    const char *dir, *act;
    int64_t on;
} settings;

static const lc_option table[] = {
    LC_FIELD(settings, dir, "where to report"),
    LC_FIELD(settings, act, "what to do"),
    LC_FIELD(settings, on, "on this rank; -1: on all"),
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "-";
}

static int report(const settings *s)
{
    static const char *const names[] = {"LIGHTC_RANK",       "LIGHTC_WORLD_SIZE", "LIGHTC_LOCAL_RANK",
                                        "LIGHTC_LOCAL_SIZE", "LIGHTC_NODE_RANK",  "LIGHTC_NUM_NODES",
                                        "OMP_NUM_THREADS",   "MASTER_ADDR"};
    char path[4200], temporary[4300];
    cpu_set_t cores;
    snprintf(path, sizeof path, "%s/rank-%s", s->dir, variable("LIGHTC_RANK"));
    snprintf(temporary, sizeof temporary, "%s.new.%d", path, (int)getpid()); /* without ranks, two write one report */
    FILE *f = fopen(temporary, "w");
    if (!f) return 1;
    fprintf(f, "pid=%d parent=%d", (int)getpid(), (int)getppid());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) fprintf(f, " %s=%s", names[i], variable(names[i]));
    fprintf(f, " secret=%zu port=%d", strlen(variable("LIGHTC_SECRET")), atoi(variable("MASTER_PORT")) > 0);
    sched_getaffinity(0, sizeof cores, &cores);
    fprintf(f, " cores=%d first=", CPU_COUNT(&cores));
    for (int i = 0, more = 1; more && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cores)) more = fprintf(f, "%d", i) < 0;
    fprintf(f, "\n");
    fclose(f);
    return rename(temporary, path);
}

static void say(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "%s\n", text);
}

static int meet(void)
{
    lc__control *c;
    char why[512];
    int n = 0, all[16], one = 1;
    LC_MAIN_TRY(lc__control_open(&(lc__control_args){.rank = atoi(variable("LIGHTC_RANK")),
                                                     .size = atoi(variable("LIGHTC_WORLD_SIZE")),
                                                     .address = variable("MASTER_ADDR"),
                                                     .port = atoi(variable("MASTER_PORT")),
                                                     .secret = variable("LIGHTC_SECRET"),
                                                     .identity = strtoull(variable("LIGHTC_RUN"), NULL, 16),
                                                     .supervisor_reports = getenv("LIGHTC_COORDINATED") != NULL,
                                                     .say = say},
                                 &c));
    lc__control_last_resort(c, true);
    lc__control_progress(c, 7, "the middle");
    LC_MAIN_TRY(lc__control_all_gather(c, &one, all, sizeof one));
    for (int i = 0; i < atoi(variable("LIGHTC_WORLD_SIZE")); i++) n += all[i];
    usleep(700000); /* until a heartbeat has carried the step */
    printf("rank %s has met %d\n", variable("LIGHTC_RANK"), n);
    fflush(stdout);
    while (!lc__control_ended(c, why, sizeof why)) usleep(10000);
    fprintf(stderr, "rank %s hears: %s\n", variable("LIGHTC_RANK"), why);
    lc__control_close(c);
    return 1;
}

/* The cores that it may use after it has met the others. */
static int share(const settings *s)
{
    char path[4200];
    lc_comm *all;
    cpu_set_t cores;
    LC_MAIN_TRY(lc_comm_world(&all));
    sched_getaffinity(0, sizeof cores, &cores);
    snprintf(path, sizeof path, "%s/share-%d", s->dir, lc_comm_rank(all));
    FILE *f = fopen(path, "w");
    if (!f) return 1;
    fprintf(f, "threads=%d cores=", lc__world_threads());
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cores)) fprintf(f, "%d,", i);
    fclose(f);
    lc_comm_free(all);
    return 0;
}

static int await_report(const settings *s, int64_t rank)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/rank-%lld", s->dir, (long long)rank);
    while (access(path, F_OK) != 0) usleep(10000);
    return 0;
}

/* Waits for the file DIR/go. */
static void dawdle(const settings *s)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/go", s->dir);
    while (access(path, F_OK) != 0) usleep(10000);
}

/* Waits until the supervisor has reaped all other ranks. */
static void await_ends(const settings *s)
{
    for (int i = 0; i < atoi(variable("LIGHTC_WORLD_SIZE")); i++) {
        char path[4200];
        int pid = 0;
        if (i == s->on) continue;
        await_report(s, i);
        snprintf(path, sizeof path, "%s/rank-%d", s->dir, i);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "pid=%d", &pid) != 1) pid = 0;
        if (f) fclose(f);
        while (pid && kill(pid, 0) == 0) usleep(10000);
    }
}

/* Waits until the checkpoint of the second epoch, which is written in the background, has its name. */
static void await_checkpoint(const lc_trainer *t)
{
    char pattern[4200];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/checkpoints/epoch=1-*.ckpt", lc_trainer_run_dir(t));
    for (int i = 0; i < 6000 && glob(pattern, 0, NULL, &found) != 0; i++) {
        globfree(&found);
        usleep(10000);
    }
    globfree(&found);
}

/* *deadly: the signal; 0: none. */
static lc_status maybe_die(void *deadly, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b;
    int signal_number = *(int *)deadly;
    if (signal_number && lc_trainer_current_epoch(t) == 2 && i == 1) {
        if (signal_number == SIGKILL && lc_trainer_checkpoint_callback(t, 0).ops) await_checkpoint(t);
        kill(getpid(), signal_number); /* to any thread: one of them reads signals, and may need a moment */
        while (!atomic_load(&t->ranks->save_requested)) usleep(1000);
    }
    return LC_OK;
}

static lc_status report_step(void *ms, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)t, (void)o, (void)b, (void)i;
    printf("a step\n");
    fflush(stdout);
    usleep(*(unsigned *)ms * 1000);
    return LC_OK;
}

/* Writes DIR/result: the step it began with, and the weight. */
static int train(lc_trainer_options *opt, const settings *s)
{
    bool first_life = s->on >= 0 && s->on == atoi(variable("LIGHTC_RANK")) && !getenv("LIGHTC_RESTARTED");
    bool stuck = !strcmp(s->act, "stuck"), given = !strcmp(s->act, "given");
    bool after = !strcmp(s->act, "after"), slow = stuck || given || after || !strcmp(s->act, "slow");
    unsigned ms = stuck ? 60000 : 20;
    int deadly = !first_life ? 0 : !strcmp(s->act, "usr1") ? SIGUSR1 : SIGKILL;
    char path[4200];
    world m;
    lc_trainer *t;
    lc_callback cb;
    world_init(&m, &world_ops_without_val, 4, 0);
    m.lr = 0.01;
    LC_MAIN_TRY(lc_lambda_callback(&cb, .context = slow ? (void *)&ms : &deadly,
                                   .on_train_batch_end = slow ? report_step : maybe_die));
    opt->callbacks = &cb;
    opt->n_callbacks = 1;
    opt->max_epochs = slow ? 100000 : 4;
    opt->enable_progress_bar = opt->enable_model_summary = LC_OFF;
    if (given) LC_MAIN_TRY(lc_comm_mpi(&opt->comm));
    LC_MAIN_TRY(lc_trainer_new(opt, &t));
    lc_status status = lc_trainer_fit(t, &m.base);
    if (after && first_life) kill(getpid(), SIGTERM);
    snprintf(path, sizeof path, "%s/result%s", s->dir, lc_trainer_global_rank(t) ? "-1" : "");
    FILE *f = status >= 0 ? fopen(path, "w") : NULL;
    int batches = 0;
    for (const char *at = m.tr.text; at && (at = strstr(at, "m.training_step")); at++) batches++;
    if (f) fprintf(f, "batches=%d steps=%d w=%.9g\n", batches, (int)lc_trainer_global_step(t), world_weight(&m));
    if (f) fclose(f);
    lc_trainer_free(t);
    world_release(&m);
    LC_MAIN_TRY(status);
    return f ? 0 : 1;
}

/* ---- hold ---- */

enum { HOLD_LAYERS = 40, HOLD_WIDTH = 512, HOLD_SAMPLES = 64 };

typedef struct stack {
    lc_module base;
    lc_linear layers[HOLD_LAYERS];
    int n;
    int64_t own;    /* bytes, after the last step */
    int64_t peak;   /* of the process, from its setup to the end of a test after the fit */
    int64_t set_up; /* the same, before the first step */
    lc_device_memory memory;
} stack;

/* A line of a file with a number of kB, in bytes; -1: not found. */
static int64_t line_of(const char *path, const char *name)
{
    char line[256];
    long long n = -1;
    FILE *f = fopen(path, "r");
    while (f && n < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':') n = atoll(line + strlen(name) + 1) * 1024;
    if (f) fclose(f);
    return n;
}

/* The memory of this process only, and its share of what it shares with others. */
static int64_t own_memory(void)
{
    const char *rollup = "/proc/self/smaps_rollup";
    int64_t alone = line_of(rollup, "Pss_Anon"), shared = line_of(rollup, "Pss_Shmem");
    return alone < 0 || shared < 0 ? -1 : alone + shared;
}

/* Restarts the measurement of this process's peak memory. */
static bool reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool done = f && fputs("5", f) >= 0;
    return f && fclose(f) == 0 && done;
}

static lc_tensor *stack_step(lc_module *self, const lc_batch *b, int64_t i)
{
    stack *m = (stack *)self;
    lc_tensor *x = b->x;
    (void)i;
    for (int k = 0; k < m->n; k++) x = lc_relu(lc_linear_forward(&m->layers[k], x));
    return lc_mean(lc_square(x));
}

static lc_status stack_test(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)loader;
    lc_log(self, "loss", stack_step(self, b, i), .sync_dist = true);
    return LC_OK;
}

static lc_status stack_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b;
    if (i == 0) ((stack *)self)->set_up = line_of("/proc/self/status", "VmHWM");
    return LC_OK;
}

static lc_status stack_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    stack *m = (stack *)self;
    (void)o, (void)b, (void)i;
    m->own = own_memory();
    return lc_trainer_memory(self->trainer, &m->memory);
}

static lc_status stack_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-3));
}

static const lc_module_ops stack_ops = {LC_MODULE_OPS_INIT("stack"),
                                        .training_step = stack_step,
                                        .test_step = stack_test,
                                        .on_train_batch_start = stack_batch_start,
                                        .on_train_batch_end = stack_batch_end,
                                        .configure_optimizers = stack_optimizers};

/* Trains `n` layers for some steps. */
static int hold_layers(const lc_trainer_options *of, int n, stack *m, int *rank, int *ranks)
{
    static float x[HOLD_SAMPLES][HOLD_WIDTH];
    lc_trainer_options opt = *of;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {HOLD_WIDTH}}, .data = x}};
    lc_dataset *d;
    lc_dataloader *l;
    lc_trainer *t;
    for (int i = 0; i < HOLD_SAMPLES; i++) x[i][i] = 1;
    *m = (stack){.n = n};
    bool measured = reset_peak();
    opt.storage = NULL; /* the caller's; it makes several trainers */
    opt.max_steps = 4;
    opt.logger = "none";
    opt.enable_progress_bar = opt.enable_model_summary = opt.enable_checkpointing = LC_OFF;
    LC_MAIN_TRY(lc_array_dataset_new(HOLD_SAMPLES, 1, arrays, &d));
    LC_MAIN_TRY(lc_dataloader_new(&l, .dataset = d, .batch_size = 4));
    lc_module_init(&m->base, &stack_ops, 1);
    for (int k = 0; k < n; k++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", k);
        lc_linear_init(&m->layers[k], m, name, HOLD_WIDTH, HOLD_WIDTH);
    }
    LC_MAIN_TRY(lc_trainer_new(&opt, &t));
    LC_MAIN_TRY(lc_trainer_fit(t, &m->base, .train_dataloader = l));
    LC_MAIN_TRY(lc_trainer_test(t, &m->base, .dataloaders = &l, .n_dataloaders = 1));
    m->peak = measured ? line_of("/proc/self/status", "VmHWM") : -1;
    *rank = lc_trainer_global_rank(t);
    *ranks = lc_trainer_world_size(t);
    lc_trainer_free(t);
    lc_module_release(&m->base);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    return 0;
}

/* The memory that steps take from the process: an arena of whole large pages, and the kernels' memory. */
static int64_t step_memory(const lc_device_memory *m)
{
    const int64_t page = 2 << 20;
    return (m->activations + page - 1) / page * page + m->workspace;
}

/* The memory that a few layers take is needed by every program: kernels, windows between ranks, threads. */
static int hold(lc_trainer_options *opt, const settings *s)
{
    enum { FEW = 4 };
    stack few, all;
    int rank, ranks;
    char path[4200];
    if (hold_layers(opt, FEW, &few, &rank, &ranks) || hold_layers(opt, HOLD_LAYERS, &all, &rank, &ranks)) return 1;
    lc_trainer_options_release(opt);
    double states = 4.0 * (HOLD_LAYERS - FEW) * (HOLD_WIDTH * HOLD_WIDTH + HOLD_WIDTH) * sizeof(float);
    snprintf(path, sizeof path, "%s/memory-%d", s->dir, rank);
    FILE *f = fopen(path, "w");
    if (!f) return 1;
    fprintf(f, "ranks=%d states=%.0f own=%lld steps=%lld peak=%lld set_up=%lld\n", ranks, states,
            (long long)(few.own < 0 ? -1 : all.own - few.own),
            (long long)(step_memory(&all.memory) - step_memory(&few.memory)),
            (long long)(few.peak < 0 ? -1 : all.peak - few.peak),
            (long long)(few.peak < 0 ? -1 : all.set_up - few.set_up));
    return fclose(f) ? 1 : 0;
}

static int silent(const char *dir)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    lc_trainer *t;
    opt.default_root_dir = dir;
    opt.max_restarts = 1;
    LC_MAIN_TRY(lc_trainer_new(&opt, &t));
    lc_trainer_free(t);
    if (!getenv("LIGHTC_RESTARTED")) raise(SIGKILL);
    char name[16];
    prctl(PR_GET_NAME, name);
    printf("rank %s speaks\n%s\n", variable("LIGHTC_RANK"), name);
    return 0;
}

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    settings s = {.dir = ".", .act = "end", .on = -1};
    const char *rank = getenv("LIGHTC_RANK");
    sigset_t term;
    if (argc > 3 && !strcmp(argv[1], "silent")) return silent(argv[3]);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    if (rank) sigprocmask(SIG_BLOCK, &term, NULL); /* before the supervisor can know that it is alive */
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, table, sizeof table / sizeof *table, &s, argc, argv));
    if (!strcmp(s.act, "hang")) signal(SIGTERM, SIG_IGN);
    if (report(&s) != 0) return 4;
    printf("rank %s speaks\n", variable("LIGHTC_RANK"));
    fflush(stdout);
    bool slow = !strcmp(s.act, "slow") || !strcmp(s.act, "stuck") || !strcmp(s.act, "after") || !strcmp(s.act, "given");
    if (slow) sigprocmask(SIG_UNBLOCK, &term, NULL);
    if (slow || !strcmp(s.act, "train") || !strcmp(s.act, "usr1")) return train(&opt, &s);
    if (!strcmp(s.act, "hold")) return hold(&opt, &s);
    lc_trainer_options_release(&opt);
    bool act = s.on < 0 || (rank && atoi(rank) == s.on);
    if (!strcmp(s.act, "term")) {
        int got;
        if (sigwait(&term, &got) != 0 || got != SIGTERM) return 5;
        fprintf(stderr, "rank %s was told to end\n", variable("LIGHTC_RANK"));
        return 0;
    }
    sigprocmask(SIG_UNBLOCK, &term, NULL);
    if (!strcmp(s.act, "share")) return share(&s);
    if (!strcmp(s.act, "await")) return await_report(&s, s.on);
    if (!strcmp(s.act, "absent") && act) return 0;
    if (!strcmp(s.act, "tardy") && !act) return 0;
    if (!strcmp(s.act, "tardy")) return await_ends(&s), 3;
    if (!strcmp(s.act, "dawdle")) dawdle(&s);
    if (!strcmp(s.act, "meet") || !strcmp(s.act, "absent") || !strcmp(s.act, "dawdle") ||
        ((!strcmp(s.act, "late") || !strcmp(s.act, "fail") || !strcmp(s.act, "go")) && !act))
        return meet();
    if (!strcmp(s.act, "go")) dawdle(&s);
    if (!strcmp(s.act, "fail") || !strcmp(s.act, "go")) LC_MAIN_TRY(lc_fail(LC_ERR_IO, "the disk of a rank is gone"));
    if (!strcmp(s.act, "hang") || !strcmp(s.act, "late"))
        for (;;) pause();
    if (!act) { /* others wait, and will be ended */
        if (!strcmp(s.act, "end")) return 0;
        if (!strcmp(s.act, "once") && getenv("LIGHTC_RESTARTED")) return 0;
        for (;;) pause();
    }
    if (!strcmp(s.act, "exit")) return 3;
    if (!strcmp(s.act, "kill")) raise(SIGKILL);
    if (!strcmp(s.act, "once") && !getenv("LIGHTC_RESTARTED")) raise(SIGSEGV);
    if (!strcmp(s.act, "print")) {
        for (int i = 1; i <= 60; i++) fprintf(stderr, "line %d of the output\n", i);
        return 1;
    }
    return 0;
}

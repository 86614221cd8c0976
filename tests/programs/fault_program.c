/* SPDX-License-Identifier: Apache-2.0 */
/* The training that fault_rounds.c disturbs: a small network with any options of the trainer. It writes
 *
 *   DIR/life-PID   when a rank began (seconds of CLOCK_MONOTONIC), its number, its port
 *   DIR/trains-PID of a rank that has reached its first step
 *   DIR/struck     when the fault happened, and in which step
 *   DIR/result     of a completed training: its steps, a hash of all parameters, and their sum
 *   DIR/result-K   the same of fit number K of several (--fits), from 1
 *   DIR/saved, DIR/removed   what was reported as saved, and as removed, a path a line
 *   DIR/place-N    of rank N then: the number of ranks, its node and the number of nodes
 *
 * fault_program --dir DIR [--fault kill|stop|exit|error|abort|fill --phase WHERE --on RANK --at N --call N --delay_us N
 * --in_fit N] [options of the trainer]. A fault happens once: not again if DIR/struck exists. WHERE:
 *
 *   init         before the trainer (at 0), after it (1), in setup (2), in configure_optimizers (3)
 *   forward      in the training step `at`
 *   collective   delay_us after the rank began to wait for the gradients of the others, in step `at`
 *   checkpoint   in the call number `call` that writes the first checkpoint from step `at` on; if this rank writes
 *                none, delay_us after it began
 *   hook         (error only) in on_train_batch_end, on_train_epoch_end, on_validation_epoch_end or on_save_checkpoint
 *                (call 0 to 3), from step `at` on
 *   loader       (error only) when the data set is asked for the sample number `at`
 *   forward      (fill) the disk with the checkpoints is full, from step `at` on, for `call` steps
 *   end          in on_fit_end (at 0), after fit (1), after the trainer's end (2) */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lightc/lightc.h>

enum { FEATURES = 32, WIDTH = 256, CLASSES = 8, SAMPLES = 96, VAL = 20, BATCH = 4, PACE_US = 10000 };

typedef struct settings {
    const char *dir, *fault, *phase;
    int64_t on, at, call, delay_us, batch, fits, in_fit, pace_us;
    bool keep_going;
} settings;

static const lc_option table[] = {
    LC_FIELD(settings, dir, "where to report"),
    LC_FIELD(settings, fault, "what goes wrong"),
    LC_FIELD(settings, phase, "where"),
    LC_FIELD(settings, on, "on which rank"),
    LC_FIELD(settings, at, "when"),
    LC_FIELD(settings, call, "which call of that"),
    LC_FIELD(settings, delay_us, "how much later"),
    LC_FIELD(settings, batch, "samples in a rank's batch"),
    LC_FIELD(settings, pace_us, "how long a step takes at least"),
    LC_FIELD(settings, fits, "how many networks it trains, one after the other"),
    LC_FIELD(settings, in_fit, "in which of these something goes wrong, from 0; -1: in the first that comes to it"),
    LC_FIELD(settings, keep_going, "a fit that fails does not keep it from the next one"),
};

static settings s = {
    .dir = ".", .fault = "", .phase = "", .on = -1, .batch = BATCH, .fits = 1, .in_fit = -1, .pace_us = PACE_US};
static const char *dirpath;
static int rank, fit;
static bool writes_parts; /* every rank, of a checkpoint */
static atomic_llong step;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the fault ---- */

static bool planned(const char *phase)
{
    return rank == s.on && *s.fault && !strcmp(s.phase, phase) && (s.in_fit < 0 || s.in_fit == fit);
}

/* Whether it happens now; if so, records it. */
static bool first_time(void)
{
    char path[4200], text[128];
    snprintf(path, sizeof path, "%s/struck", s.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    int n = snprintf(text, sizeof text, "%.6f %lld\n", seconds(), (long long)atomic_load(&step));
    (void)!write(fd, text, (size_t)n);
    close(fd);
    return true;
}

/* No rank is lost, and none gets further than its next call. */
static lc_status call_off(void)
{
    lc_comm *world;
    LC_TRY(lc_comm_world(&world));
    lc_comm_abort(world, "the training was called off");
    lc_comm_free(world);
    return LC_OK;
}

/* Takes all free space, or gives it back. */
static void fill(bool full)
{
    static char block[65536];
    char path[4200];
    snprintf(path, sizeof path, "%s/.ballast", dirpath);
    if (!full) {
        unlink(path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    for (size_t n = sizeof block; fd >= 0 && n > 0;)
        if (write(fd, block, n) <= 0) n /= 2;
    if (fd >= 0) close(fd);
}

static lc_status strike(void)
{
    if (!first_time()) return LC_OK;
    if (!strcmp(s.fault, "error")) return lc_fail(LC_ERR_USER, "the sensor of rank %d is unplugged", rank);
    if (!strcmp(s.fault, "exit")) _exit(7);
    if (!strcmp(s.fault, "abort")) return call_off();
    if (!strcmp(s.fault, "fill")) {
        fill(true);
        return LC_OK;
    }
    raise(!strcmp(s.fault, "stop") ? SIGSTOP : SIGKILL);
    return LC_OK;
}

static lc_status strike_at(const char *phase, int64_t at)
{
    return planned(phase) && at == s.at ? strike() : LC_OK;
}

static void *strike_later(void *unused)
{
    usleep((useconds_t)s.delay_us);
    (void)!strike();
    return unused;
}

static void strike_soon(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, strike_later, NULL) == 0) pthread_detach(thread);
}

/* ---- system calls that write a checkpoint ---- */

static atomic_int calls = -1; /* since one began; -1: none has */

static void count_call(void)
{
    if (atomic_load(&calls) >= 0 && atomic_fetch_add(&calls, 1) == s.call) (void)!strike();
}

#define NEXT(function)                                                                                                 \
    static __typeof__(&function) next;                                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #function)

/* Makes the library call these instead of the C library's: it does not find hidden symbols, as all of a program's
 * are. */
#define SEEN __attribute__((visibility("default")))

SEEN ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    NEXT(pwrite);
    count_call();
    return next(fd, data, n, offset);
}

SEEN int fsync(int fd)
{
    NEXT(fsync);
    count_call();
    return next(fd);
}

SEEN int rename(const char *from, const char *to)
{
    NEXT(rename);
    count_call();
    return next(from, to);
}

/* ---- the data ---- */

static atomic_llong samples;

static int64_t data_length(void *self)
{
    (void)self;
    return SAMPLES;
}

static lc_status data_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    spec->n = 2;
    spec->fields[0] = (lc_field){.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}};
    spec->fields[1] = (lc_field){.name = "y", .dtype = LC_I64};
    return LC_OK;
}

static lc_status data_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    float *x = out[0];
    int64_t y = index % CLASSES;
    (void)self, (void)key, (void)scratch;
    LC_TRY(strike_at("loader", atomic_fetch_add(&samples, 1)));
    for (int k = 0; k < FEATURES; k++) x[k] = (float)((index * 37 + k * 11) % 29) / 29 - 0.5f;
    memcpy(out[1], &y, sizeof y);
    return LC_OK;
}

static const lc_dataset_ops data_ops = {LC_DATASET_OPS_INIT, .name = "numbers", .length = data_length,
                                        .describe = data_describe, .get = data_get};

static lc_status loader_of(bool train, lc_dataloader **out)
{
    lc_dataset *all, *part = NULL;
    int64_t some[VAL];
    LC_TRY(lc_dataset_new(&data_ops, NULL, &all));
    for (int i = 0; i < VAL; i++) some[i] = i;
    lc_status status = train ? LC_OK : lc_dataset_subset(all, some, VAL, &part);
    if (status >= 0)
        status =
            lc_dataloader_new(out, .dataset = train ? all : part, .batch_size = s.batch, .shuffle = train, .seed = 4);
    lc_dataset_unref(part);
    lc_dataset_unref(all);
    return status;
}

/* ---- the network ---- */

typedef struct net {
    lc_module base;
    lc_linear l1, l2, l3;
} net;

static lc_tensor *forward(net *m, lc_tensor *x)
{
    x = lc_relu(lc_linear_forward(&m->l1, x));
    return lc_linear_forward(&m->l3, lc_relu(lc_linear_forward(&m->l2, x)));
}

static lc_status setup(lc_module *self, lc_stage stage)
{
    (void)self, (void)stage;
    return strike_at("init", 2);
}

static lc_status write_file(const char *name, const char *text)
{
    char path[4200], temporary[4300];
    snprintf(path, sizeof path, "%s/%s", s.dir, name);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *f = fopen(temporary, "w");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f) != 0) ok = false;
    return ok && !renameat(AT_FDCWD, temporary, AT_FDCWD, path) ? LC_OK : lc_fail(LC_ERR_IO, "cannot write %s", path);
}

static lc_status note_first_step(void)
{
    static bool noted;
    char name[64];
    if (noted) return LC_OK;
    noted = true;
    snprintf(name, sizeof name, "trains-%d", (int)getpid());
    return write_file(name, "");
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    int64_t now = lc_trainer_global_step(self->trainer);
    atomic_store(&step, now);
    if (note_first_step() < 0) return NULL;
    usleep((useconds_t)s.pace_us);
    if (strike_at("forward", now) < 0) return NULL;
    if (rank == s.on && !strcmp(s.fault, "fill") && now == s.at + s.call) fill(false);
    if (!strcmp(s.phase, "collective") && now == s.at) {
        if (planned("collective"))
            strike_soon();
        else
            usleep((useconds_t)s.delay_us + 30000);
    }
    lc_tensor *loss = lc_cross_entropy(forward((net *)self, b->x), b->y);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON);
    return loss;
}

static lc_status hook(lc_module *self, int64_t which)
{
    bool now = planned("hook") && s.call == which && lc_trainer_global_step(self->trainer) >= s.at;
    return now ? strike() : LC_OK;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    return hook(self, 0);
}

static lc_status on_train_epoch_end(lc_module *self)
{
    return hook(self, 1);
}

static lc_status on_validation_epoch_end(lc_module *self)
{
    return hook(self, 2);
}

static lc_status on_save_checkpoint(lc_module *self, lc_state *state)
{
    (void)state;
    LC_TRY(hook(self, 3));
    if (!planned("checkpoint") || lc_trainer_global_step(self->trainer) < s.at) return LC_OK;
    if (rank == 0 || writes_parts)
        atomic_store(&calls, 0);
    else
        strike_soon();
    return LC_OK;
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log(self, "val_loss", lc_cross_entropy(forward((net *)self, b->x), b->y));
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    LC_TRY(strike_at("init", 3));
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.05, .momentum = 0.9));
}

static lc_status on_fit_end(lc_module *self)
{
    (void)self;
    return strike_at("end", 0);
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .setup = setup,
    .training_step = training_step,
    .validation_step = validation_step,
    .configure_optimizers = configure_optimizers,
    .on_train_batch_end = on_train_batch_end,
    .on_train_epoch_end = on_train_epoch_end,
    .on_validation_epoch_end = on_validation_epoch_end,
    .on_save_checkpoint = on_save_checkpoint,
    .on_fit_end = on_fit_end,
};

/* ---- reports of checkpoints ---- */

static lc_status note_path(const char *name, const char *path)
{
    char file[4200];
    snprintf(file, sizeof file, "%s/%s", s.dir, name);
    FILE *f = fopen(file, "a");
    bool ok = f && fprintf(f, "%s\n", path) > 0;
    if (f && fclose(f) != 0) ok = false;
    return ok ? LC_OK : lc_fail(LC_ERR_IO, "cannot write %s", file);
}

static lc_status begin_log(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}

static lc_status log_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}

static lc_status log_checkpoint(void *self, const char *path, int64_t at, double score, bool has_score)
{
    (void)self, (void)at, (void)score, (void)has_score;
    return note_path("saved", path);
}

static lc_status log_removed(void *self, const char *path)
{
    (void)self;
    return note_path("removed", path);
}

static const lc_logger_ops reports = {LC_LOGGER_OPS_INIT,
                                      .name = "reports",
                                      .start = begin_log,
                                      .log_row = log_row,
                                      .log_checkpoint = log_checkpoint,
                                      .log_checkpoint_removed = log_removed};

/* ---- the run ---- */

static lc_status hash_of(net *m, uint64_t *h, double *sum)
{
    lc_tensor *all[] = {m->l1.weight, m->l1.bias, m->l2.weight, m->l2.bias, m->l3.weight, m->l3.bias};
    static unsigned char bytes[WIDTH * WIDTH * sizeof(float)];
    *h = UINT64_C(0xcbf29ce484222325);
    *sum = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = (size_t)lc_tensor_numel(all[i]) * sizeof(float);
        LC_TRY(lc_tensor_read(all[i], bytes, n));
        for (size_t k = 0; k < n; k++) *h = (*h ^ bytes[k]) * UINT64_C(0x100000001b3); /* FNV-1a */
        for (size_t k = 0; k < n; k += sizeof(float)) {
            float value;
            memcpy(&value, bytes + k, sizeof value);
            *sum += (double)value;
        }
    }
    return LC_OK;
}

static lc_status report(net *m, lc_trainer *t)
{
    char name[64], text[128];
    uint64_t h;
    double sum;
    LC_TRY(hash_of(m, &h, &sum));
    snprintf(name, sizeof name, "place-%d", lc_trainer_global_rank(t));
    snprintf(text, sizeof text, "size=%d local=%d node=%d nodes=%d\n", lc_trainer_world_size(t),
             lc_trainer_local_rank(t), lc_trainer_node_rank(t), lc_trainer_num_nodes(t));
    LC_TRY(write_file(name, text));
    snprintf(text, sizeof text, "steps=%lld hash=%016llx sum=%.9g\n", (long long)lc_trainer_global_step(t),
             (unsigned long long)h, sum);
    snprintf(name, sizeof name, fit ? "result-%d" : "result", fit);
    return lc_trainer_global_rank(t) == 0 ? write_file(name, text) : LC_OK;
}

static lc_status train(const lc_trainer_options *of)
{
    lc_status status = LC_OK;
    lc_trainer_options opt = *of;
    lc_trainer *t = NULL;
    lc_dataloader *train = NULL, *val = NULL;
    net m = {0};
    opt.loggers = &(lc_logger){&reports, NULL};
    opt.n_loggers = 1;
    opt.storage = NULL; /* the caller's; it makes several trainers */
    LC_TRY(strike_at("init", 0));
    lc_module_init(&m.base, &net_ops, 1 + (uint64_t)fit);
    lc_linear_init(&m.l1, &m, "l1", FEATURES, WIDTH);
    lc_linear_init(&m.l2, &m, "l2", WIDTH, WIDTH);
    lc_linear_init(&m.l3, &m, "l3", WIDTH, CLASSES);
    LC_TRY_GOTO(status, done, lc_trainer_new(&opt, &t));
    LC_TRY_GOTO(status, done, strike_at("init", 1));
    LC_TRY_GOTO(status, done, loader_of(true, &train));
    LC_TRY_GOTO(status, done, loader_of(false, &val));
    LC_TRY_GOTO(status, done, lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val));
    LC_TRY_GOTO(status, done, strike_at("end", 1));
    LC_TRY_GOTO(status, done, report(&m, t));
done:
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    lc_module_release(&m.base);
    return status;
}

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    const char *own = getenv("LIGHTC_RANK"), *mpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *slurm = getenv("SLURM_PROCID"), *port = getenv("MASTER_PORT");
    const char *by_hand = getenv("RANK");
    double begun = seconds();
    char name[64], text[128];
    opt.max_epochs = 3;
    opt.enable_progress_bar = opt.enable_model_summary = LC_OFF;
    opt.logger = "csv";
    opt.on_save_error = "stop"; /* a disk that stays full ends the training */
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, table, sizeof table / sizeof *table, &s, argc, argv));
    writes_parts = opt.strategy && !strncmp(opt.strategy, "sharded", 7);
    rank = own ? atoi(own) : mpi ? atoi(mpi) : slurm ? atoi(slurm) : by_hand ? atoi(by_hand) : 0;
    dirpath = opt.dirpath ? opt.dirpath : s.dir;
    snprintf(name, sizeof name, "life-%d", (int)getpid());
    snprintf(text, sizeof text, "%.6f %d %s\n", begun, rank, port ? port : "0");
    LC_MAIN_TRY(write_file(name, text));
    lc_status status = LC_OK;
    for (; fit < s.fits && (status >= 0 || s.keep_going); fit++) status = train(&opt);
    lc_trainer_options_release(&opt);
    LC_MAIN_TRY(status);
    LC_MAIN_TRY(strike_at("end", 2));
    return 0;
}

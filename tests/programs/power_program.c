/* SPDX-License-Identifier: Apache-2.0 */
/* The training that test_power_loss.c interrupts. `power_program DIR KIND JOURNAL` trains below DIR, continues from the
 * newest checkpoint there, and writes a line to descriptor 3 for each event:
 *
 *   from STEP          it continues from this step
 *   saved STEP PATH    the checkpoint is durable, as loggers are notified
 *   row PATH           its row was written: the database was flushed
 *   result HASH        the training is complete, with these parameters
 *   closed             the trainer has been freed, and the database closed
 *
 * KIND: `all` keeps every checkpoint, each run in a folder of its own; `newest` keeps one in a common folder; `same`
 * replaces one of the same name. JOURNAL: `wal`, as on a local disk, or `rollback`, as on FUSE. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
enum { SAMPLES = 56, WIDTH = 64, REPORT = 3 };

#include "small_data.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool is_local;

/* Replaces the C library's. With `wal` the file system claims to be ext4. */
__attribute__((visibility("default"))) int statfs(const char *path, struct statfs *st)
{
    int r = (int)syscall(SYS_statfs, path, st);
    if (r == 0 && is_local) st->f_type = 0xef53;
    return r;
}

static void report(const char *format, ...) LC_PRINTF(1, 2);
static void report(const char *format, ...)
{
    char line[4400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    (void)!write(REPORT, line, (size_t)n);
}

/* ---- a logger that reports what was written to the run database ---- */

typedef struct witness {
    lc_logger db;
} witness;

static witness only;

static lc_status start(void *self, const lc_run_info *run)
{
    witness *w = self;
    if (run->resumed) report("from %lld\n", (long long)run->resumed_step);
    return w->db.ops->start(w->db.self, run);
}

static lc_status log_row(void *self, const lc_log_row *row)
{
    witness *w = self;
    return w->db.ops->log_row(w->db.self, row);
}

static lc_status log_checkpoint(void *self, const char *path, int64_t step, double score, bool has_score)
{
    witness *w = self;
    report("saved %lld %s\n", (long long)step, path);
    LC_TRY(w->db.ops->log_checkpoint(w->db.self, path, step, score, has_score));
    LC_TRY(w->db.ops->flush(w->db.self));
    report("row %s\n", path);
    return LC_OK;
}

static lc_status log_removed(void *self, const char *path)
{
    witness *w = self;
    return w->db.ops->log_checkpoint_removed(w->db.self, path);
}

static lc_status log_message(void *self, lc_level level, const char *text)
{
    witness *w = self;
    return w->db.ops->log_message(w->db.self, level, text);
}

static lc_status log_status(void *self, const char *status)
{
    witness *w = self;
    return w->db.ops->log_status(w->db.self, status);
}

static lc_status flush(void *self)
{
    witness *w = self;
    return w->db.ops->flush(w->db.self);
}

static lc_status finish(void *self, const char *status)
{
    witness *w = self;
    LC_TRY(w->db.ops->finish(w->db.self, status));
    report("closed\n");
    return LC_OK;
}

static void release(void *self)
{
    witness *w = self;
    w->db.ops->free(w->db.self);
}

static const lc_logger_ops witness_ops = {LC_LOGGER_OPS_INIT,
                                          .name = "witness",
                                          .start = start,
                                          .log_row = log_row,
                                          .log_checkpoint = log_checkpoint,
                                          .log_checkpoint_removed = log_removed,
                                          .log_message = log_message,
                                          .log_status = log_status,
                                          .flush = flush,
                                          .finish = finish,
                                          .free = release};

/* ---- the training ---- */

typedef struct net {
    lc_module base;
    lc_linear l1, l2, l3;
} net;

static lc_tensor *forward(net *m, lc_tensor *x)
{
    x = lc_relu(lc_linear_forward(&m->l1, x));
    if (m->base.training) x = lc_dropout(x, 0.2);
    return lc_linear_forward(&m->l3, lc_relu(lc_linear_forward(&m->l2, x)));
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    lc_tensor *loss = lc_cross_entropy(forward((net *)self, b->x), b->y);
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON);
    return loss;
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log(self, "val_loss", lc_cross_entropy(forward((net *)self, b->x), b->y));
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.05, .momentum = 0.9));
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .validation_step = validation_step,
    .configure_optimizers = configure_optimizers,
};

static lc_status hash_of(net *m, uint64_t *h)
{
    lc_tensor *const all[] = {m->l1.weight, m->l1.bias, m->l2.weight, m->l2.bias, m->l3.weight, m->l3.bias};
    static unsigned char bytes[WIDTH * WIDTH * sizeof(float)];
    *h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = (size_t)lc_tensor_numel(all[i]) * sizeof(float);
        LC_TRY(lc_tensor_read(all[i], bytes, n));
        for (size_t k = 0; k < n; k++) *h = (*h ^ bytes[k]) * UINT64_C(0x100000001b3); /* FNV-1a */
    }
    return LC_OK;
}

static lc_status train(const char *dir, const char *kind)
{
    char folder[4200];
    bool all = !strcmp(kind, "all"), same = !strcmp(kind, "same");
    lc_status status;
    lc_trainer *t = NULL;
    lc_dataloader *train = NULL, *val = NULL;
    net m = {0};
    uint64_t hash;
    lc_callback saver;
    lc_logger logger = {&witness_ops, &only};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    snprintf(folder, sizeof folder, "%s/saved", dir);
    lc_module_init(&m.base, &net_ops, 1);
    lc_linear_init(&m.l1, &m, "l1", FEATURES, WIDTH);
    lc_linear_init(&m.l2, &m, "l2", WIDTH, WIDTH);
    lc_linear_init(&m.l3, &m, "l3", WIDTH, CLASSES);
    LC_TRY_GOTO(status, done, lc_sqlite_logger_new(&only.db));
    LC_TRY_GOTO(status, done,
                lc_model_checkpoint(&saver, .dirpath = all ? NULL : folder, .filename = same ? "state" : NULL,
                                    .save_top_k = all ? -1 : 1, .save_last = same ? LC_OFF : LC_ON,
                                    .every_n_train_steps = 3, .enable_version_counter = same ? LC_OFF : LC_ON));
    opt.default_root_dir = dir;
    opt.max_epochs = 3;
    opt.log_every_n_steps = 1;
    opt.enable_progress_bar = opt.enable_model_summary = LC_OFF;
    opt.callbacks = &saver, opt.n_callbacks = 1;
    opt.loggers = &logger, opt.n_loggers = 1;
    LC_TRY_GOTO(status, done, lc_trainer_new(&opt, &t));
    LC_TRY_GOTO(status, done, loader_of(0, 48, 8, true, &train));
    LC_TRY_GOTO(status, done, loader_of(48, 8, 8, false, &val));
    LC_TRY_GOTO(status, done,
                lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val, .ckpt_path = "last"));
    LC_TRY_GOTO(status, done, hash_of(&m, &hash));
    report("result %016llx\n", (unsigned long long)hash);
done:
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    lc_module_release(&m.base);
    return status;
}

int main(int argc, char **argv)
{
    char go;
    if (argc != 4) return fprintf(stderr, "power_program DIR all|newest|same wal|rollback\n"), 2;
    is_local = !strcmp(argv[3], "wal");
    if (read(STDIN_FILENO, &go, 1) < 0) return 2; /* until the power loss is armed */
    LC_MAIN_TRY(train(argv[1], argv[2]));
    return 0;
}

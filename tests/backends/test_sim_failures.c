/* SPDX-License-Identifier: Apache-2.0 */
/* A training on the simulated device (backends/sim/sim.h) in which the n-th allocation, copy, fill, launch or creation
 * fails. The training ends with that error, which is reported once; it leaves nothing behind, and the process can train
 * again. With LIGHTC_TEST_ALL each n is tried. */
#define _GNU_SOURCE
#include "file_text.h"
#include "test.h"

#include "quiet_options.h"
#include "scratch.h"
#include "sim_device.h"
#include "small_net.h"

#include <fcntl.h>
#include <lightc/callbacks.h>
#include <sys/wait.h>

enum { ALL_WELL = 40, FAILED_WELL = 41, SAID = 4096 };

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = lc_cross_entropy(logits_of((small_net *)self, b->x), b->y);
    (void)i;
    lc_log(self, "loss", loss, .on_step = true, .on_epoch = true);
    return loss;
}
static lc_status adamw(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adamw(self, .lr = 0.01));
}
static const lc_module_ops ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .validation_step = small_net_validation_step,
    .predict_step = small_net_predict_step,
    .configure_optimizers = adamw,
};

/* An error that is also a message would be said twice. That a checkpoint is not saved is another one. */
static void show_error(void *ctx, lc_trainer *t, lc_level level, const char *text)
{
    (void)ctx, (void)t, (void)level;
    if (strstr(text, "as asked for") && strncmp(text, "the checkpoint ", 15) != 0) fprintf(stderr, "%s\n", text);
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status < 0) goto done;                                                                                     \
    } while (0)

/* Trains, validates, saves, averages and predicts. */
static lc_status train(const char *dir, const char *from)
{
    small_net m = {.dropout = 0.2};
    lc_dataloader *train = NULL, *val = NULL;
    lc_trainer *t = NULL;
    lc_callback callbacks[3];
    lc_status status;
    lc_trainer_options o = quiet_options(NULL);
    bool made = false;
    MUST(lc_model_checkpoint(&callbacks[0], .dirpath = dir, .monitor = "val_loss", .every_n_train_steps = 3,
                             .save_last = true));
    o.callbacks = callbacks;
    o.n_callbacks = 1;
    MUST(lc_ema_weight_averaging(&callbacks[1], .decay = 0.9));
    o.n_callbacks = 2;
    MUST(lc_lambda_callback(&callbacks[2], .on_message = show_error));
    o.n_callbacks = 3;
    o.enable_checkpointing = LC_ON;
    o.default_root_dir = dir;
    o.logger = "csv";
    o.log_every_n_steps = 2;
    o.max_epochs = 2;
    o.val_check_interval = LC_FRACTION(0.5);
    o.num_sanity_val_steps = 1;
    o.accumulate_grad_batches = 2;
    o.gradient_clip_val = 0.5;
    o.precision = "16-mixed";
    MUST(lc_trainer_new(&o, &t));
    MUST(small_net_init(&m, &ops, 3));
    made = true;
    MUST(loader_of(0, SAMPLES, 16, true, &train));
    MUST(loader_of(0, VAL, 16, false, &val));
    MUST(lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val, .ckpt_path = from));
    MUST(lc_trainer_predict(t, &m.base, .dataloaders = &val, .n_dataloaders = 1));
done:
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    if (made) small_net_release(&m);
    return status;
}

/* The training that fails, then one on the CPU, which goes on from its last checkpoint. Exits, so that a sanitizer
 * looks for leaks. */
static void child(const char *dir)
{
    char first[400], again[300], *message;
    use("sim", "lazy");
    if (train(dir, NULL) >= 0) exit(ALL_WELL);
    snprintf(first, sizeof first, "%s", lc_error_message());
    message = strstr(first, "as asked for");
    if (!message || strstr(message + 1, "as asked for") || strchr(first, '\n')) {
        fprintf(stderr, "the error is \"%s\"\n", first);
        exit(1);
    }
    use(NULL, NULL);
    snprintf(again, sizeof again, "%s/last.ckpt", dir);
    bool saved = access(again, F_OK) == 0;
    if (train(dir, saved ? again : NULL) < 0) {
        fprintf(stderr, "after \"%s\", on the CPU%s: %s\n", first, saved ? " from a checkpoint" : "",
                lc_error_message());
        exit(1);
    }
    exit(FAILED_WELL);
}

/* Whether the n-th of them failed; false: there are fewer. */
static bool run(const char *what, int n)
{
    char text[32], said[SAID];
    const char *dir = fresh_dir("run");
    int status = 0;
    snprintf(text, sizeof text, "%s:%d", what, n);
    setenv("LIGHTC_SIM_FAIL", text, 1);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        char path[400];
        snprintf(path, sizeof path, "%s/said", scratch_root);
        int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (file < 0 || dup2(file, 2) < 0) exit(2);
        child(dir);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    file_text(scratch_root, "said", said, SAID);
    bool well = WIFEXITED(status) && (WEXITSTATUS(status) == ALL_WELL || WEXITSTATUS(status) == FAILED_WELL);
    if (!well || *said) TEST_FAIL("%s: 0x%x\n%s", text, (unsigned)status, said);
    return WEXITSTATUS(status) == FAILED_WELL;
}

static void check_all(const char *what)
{
    int n = 1, failed = 0;
    find_plugin();
    for (; run(what, n); n += getenv("LIGHTC_TEST_ALL") ? 1 : 1 + n / ROUNDS(4, 1)) failed++;
    unsetenv("LIGHTC_SIM_FAIL");
    CHECK(failed > 4);
}

TEST(allocations)
{
    check_all("alloc");
}
TEST(copies)
{
    check_all("copy");
}
TEST(fills)
{
    check_all("fill");
}
TEST(launches)
{
    check_all("launch");
}
TEST(creations)
{
    check_all("create");
}

TEST_MAIN

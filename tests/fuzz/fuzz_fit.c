/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer with a checkpoint that was tampered with: it refuses it with a message, or succeeds. The first byte of the
 * input selects a resumed training, a validation, a test or a prediction; the rest lists the changes
 * (changed_checkpoint.h). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "scratch.h"
#include "changed_checkpoint.h"
#include "trainer_world.h"

#include <lightc/callbacks.h>

#include <fcntl.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIT, VALIDATE, TEST_IT, PREDICT, JOURNEYS };

static char dir[256], good[300], bad[300];

static lc_status go(lc_trainer *t, lc_module *m, int journey, const char *from)
{
    lc_run_args args = LC_ARGS(lc_run, .ckpt_path = from);
    switch (journey) {
    case FIT:
        return lc_trainer_fit(t, m);
    case VALIDATE:
        return lc_trainer_validate_with(t, m, &args);
    case TEST_IT:
        return lc_trainer_test_with(t, m, &args);
    default:
        return lc_trainer_predict_with(t, m, &args);
    }
}

static lc_status travel(int journey, const char *from, const char *save)
{
    world w;
    lc_trainer *t;
    lc_callback callbacks[4];
    static const lc_accumulation factors[] = {{0, 1}};
    if (lc_early_stopping(&callbacks[0], .monitor = "val_loss", .patience = 9) < 0 ||
        lc_ema_weight_averaging_new(NULL, &callbacks[1]) < 0 ||
        lc_model_checkpoint(&callbacks[2], .monitor = "val_loss") < 0 ||
        lc_gradient_accumulation_scheduler(&callbacks[3], .scheduling = factors, .n_scheduling = 1) < 0)
        abort();
    world_init(&w, &world_ops, 3, 1);
    lc_trainer_options o = world_options(dir);
    o.callbacks = callbacks, o.n_callbacks = 4;
    o.max_epochs = save ? 1 : 3;
    o.max_steps = 20; /* whatever epoch the checkpoint claims */
    o.handle_signals = false;
    if (journey == FIT) o.ckpt_path = from;
    if (lc_trainer_new(&o, &t) < 0) abort();
    lc_status s = go(t, &w.base, journey, from);
    if (s >= 0 && save) s = lc_trainer_save_checkpoint(t, save, false);
    if (s < 0 && !lc_error_message()[0]) abort(); /* it failed without a message */
    lc_trainer_free(t);
    world_release(&w);
    return s;
}

static void begin(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (!world_dir(dir, sizeof dir)) abort();
    snprintf(good, sizeof good, "%s/good.ckpt", dir);
    snprintf(bad, sizeof bad, "%s/bad.ckpt", dir);
    if (travel(FIT, NULL, good) < 0) abort();
    if (null >= 0) (void)dup2(null, 1), close(null); /* hides the warnings of each training */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*dir) begin();
    if (size && write_changed(good, bad, data + 1, size - 1) >= 0) (void)travel(data[0] % JOURNEYS, bad, NULL);
    return 0;
}

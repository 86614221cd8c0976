/* SPDX-License-Identifier: Apache-2.0 */
/* A loop of the program's own that starts its two ranks through lc_fabric_new: fabric_program WHAT --dir DIR. It saves
 * DIR/half.ckpt after step 2, and in its first life rank 1 does WHAT in step 4: kill (itself; the program asks for one
 * restart), hang, or abort (all communication). With `memory` it sets a limit below what its model needs; WHAT's second
 * word is the strategy. */
#include <lightc/lightc.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 6, SAVED = 2, FATAL = 4, WIDTH = 256, BATCH = 4 };

static lc_status step(lc_fabric *f, lc_linear *l, lc_optimizer *opt, lc_tensor *x)
{
    LC_TRY(lc_fabric_begin(f));
    lc_tensor *loss = lc_mean(lc_square(lc_linear_forward(l, x)));
    lc_fabric_zero_grad(f);
    lc_fabric_backward(f, loss);
    lc_fabric_step(f, opt);
    return lc_fabric_end(f);
}

/* After FATAL steps, when the other ranks have received all that was sent before. */
static void come_to_grief(const char *what)
{
    usleep(700000);
    if (!strcmp(what, "kill")) raise(SIGKILL);
    if (!strcmp(what, "hang"))
        for (;;) pause();
    lc_comm *world;
    if (strcmp(what, "abort") != 0 || lc_comm_world(&world) < 0) return;
    lc_comm_abort(world, "the loop was called off");
    lc_comm_free(world);
}

static lc_status loop(lc_fabric *f, lc_linear *l, lc_optimizer *opt, const char *what, const char *dir)
{
    static float zeros[BATCH * WIDTH];
    char half[4200], last[4200];
    lc_tensor *x;
    snprintf(half, sizeof half, "%s/half.ckpt", dir);
    bool again = getenv("LIGHTC_RESTARTED"), grief = !again && lc_fabric_global_rank(f) == 1;
    if (again) {
        LC_TRY(lc_checkpoint_find_last_good(dir, last, sizeof last));
        LC_TRY(lc_fabric_load(f, last, NULL));
    }
    int64_t begin = lc_fabric_steps(f);
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){BATCH, WIDTH}, LC_ROW_MAJOR, zeros, &x));
    lc_status status = LC_OK;
    while (status >= 0 && lc_fabric_steps(f) < STEPS) {
        status = step(f, l, opt, x);
        if (status >= 0 && !again && lc_fabric_steps(f) == SAVED) status = lc_fabric_save(f, half, NULL);
        if (grief && lc_fabric_steps(f) == FATAL + 1) come_to_grief(what);
    }
    lc_tensor_unref(x);
    if (status >= 0 && lc_fabric_global_rank(f) == 0)
        printf("steps %d to %d, ranks %d\n", (int)begin, (int)lc_fabric_steps(f), lc_fabric_world_size(f));
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    const char *what = argv[1], *strategy = argv[2], *dir = argv[4];
    lc_module m;
    lc_linear l;
    lc_fabric *f;
    LC_MAIN_TRY(lc_fabric_new(&f, .devices = "2", .strategy = strategy, .default_root_dir = dir, .threads = 1,
                              .max_restarts = !strcmp(what, "kill"), .progress_timeout = !strcmp(what, "hang") ? 2 : 0,
                              .memory_limit = !strcmp(what, "memory") ? "900KiB" : NULL));
    lc_module_init(&m, NULL, 1);
    lc_linear_init(&l, &m, "l", WIDTH, WIDTH);
    lc_optimizer *opt = lc_adam(&m, .lr = 1e-3);
    lc_status status = lc_fabric_setup(f, &m, &opt, 1);
    if (status >= 0) status = loop(f, &l, opt, what, dir);
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m);
    LC_MAIN_TRY(status);
    return 0;
}

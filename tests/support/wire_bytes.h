/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a rank sends in a step, over any communicator: the formulas of docs/trainer.md, which are those of the
 * papers on ZeRO. Uses only the public interface. For P bytes of parameters, N ranks and a window of k batches:
 *
 *   ddp, sharded_1   2P (N-1)/N, once a window
 *   sharded_2        (1 + k)P (N-1)/N: gradients of each batch, and the parameters
 *   sharded_3        3kP (N-1)/N: parameters for the forward and the backward pass, and gradients; less what need
 *                    not be gathered twice */
#ifndef LC_TESTS_WIRE_BYTES_H
#define LC_TESTS_WIRE_BYTES_H

#include "comm_world.h"

#include <lightc/lightc.h>

enum { DEEP = 8, BROAD = 512 }; /* a layer is more than the default bucket, and so a unit */

typedef struct deep {
    lc_module base;
    lc_linear l[DEEP];
} deep;

static const lc_module_ops deep_ops = {LC_MODULE_OPS_INIT("deep")};

static lc_status train_deep(lc_fabric *f, deep *m, lc_optimizer *opt, lc_tensor *x, int window)
{
    for (int k = 0; k < window; k++) {
        LC_TRY(lc_fabric_begin(f));
        lc_tensor *y = x;
        for (int i = 0; i < DEEP; i++) y = lc_linear_forward(&m->l[i], y);
        if (k == 0) lc_fabric_zero_grad(f);
        lc_fabric_no_backward_sync(f, k < window - 1);
        lc_fabric_backward(f, lc_mean(y));
        if (k == window - 1) lc_fabric_step(f, opt);
        LC_TRY(lc_fabric_end(f));
    }
    return LC_OK;
}

static lc_status count_bytes(lc_comm *comm, int stage, int window)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    int n = lc_comm_size(comm);
    float data[BROAD] = {1};
    deep m;
    lc_fabric *f;
    lc_tensor *x;
    lc_comm_stats before, after;
    lc_module_init(&m.base, &deep_ops, 3);
    for (int i = 0; i < DEEP; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        lc_linear_init(&m.l[i], &m, name, BROAD, BROAD);
    }
    LC_TRY(lc_module_status(&m.base));
    lc_optimizer *opt = lc_sgd(&m.base, .lr = 1e-3);
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, BROAD}, LC_ROW_MAJOR, data, &x));
    LC_TRY(lc_fabric_new(&f, .strategy = strategies[stage], .comm = comm, .threads = 1));
    LC_TRY(lc_fabric_setup(f, &m.base, &opt, 1));
    lc_comm_get_stats(comm, &before);
    LC_TRY(train_deep(f, &m, opt, x, window));
    lc_comm_get_stats(comm, &after);
    /* In stage 3 the last two layers are kept from the forward to the backward pass, which does not need the first. */
    double p = 4.0 * DEEP * (BROAD * BROAD + BROAD), sent = (double)(after.sent - before.sent);
    double times = stage == 3 ? window * (3 - 3.0 / DEEP) : stage == 2 ? 1 + window : 2;
    double want = times * p * (n - 1) / n;
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_tensor_unref(x);
    lc_module_release(&m.base);
    if (fabs(sent - want) <= 0.02 * want) return LC_OK;
    return lc_fail(LC_ERR_INTERNAL, "%s sends %.0f bytes in a window of %d on each of %d ranks, not %.0f",
                   strategies[stage], sent, window, n, want);
}

static lc_status wire_bytes(lc_comm *comm, void *ctx)
{
    (void)ctx;
    for (int stage = 0; stage <= 3; stage++)
        for (int window = 1; window <= (lc_comm_size(comm) == 4 ? 1 : 3); window += 2)
            LC_TRY(count_bytes(comm, stage, window));
    return LC_OK;
}

#endif

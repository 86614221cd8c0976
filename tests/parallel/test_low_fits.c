/* SPDX-License-Identifier: Apache-2.0 */
/* Fits of a module one after the other, by strategies that place its parameters differently: low copies of parameters
 * are those of the last placement. */
#include "comm_world.h"
#include "quiet_options.h"
#include "small_net.h"

/* So many products read each matrix that none of them rounds it itself. */
enum { RANKS = 2, BROAD = 40, READERS = 5 };

typedef struct net {
    lc_module base;
    lc_linear in, middle, out;
} net;

static lc_tensor *train(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *loss = NULL;
    (void)i;
    for (int k = 1; k <= READERS; k++) {
        lc_tensor *h = lc_tanh(lc_linear_forward(&m->in, lc_mul_scalar(b->x, k)));
        lc_tensor *y = lc_linear_forward(&m->out, lc_tanh(lc_linear_forward(&m->middle, h)));
        loss = loss ? lc_add(loss, lc_cross_entropy(y, b->y)) : lc_cross_entropy(y, b->y);
    }
    return loss;
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = train,
                                      .configure_optimizers = small_net_sgd};

static void net_init(net *m)
{
    lc_module_init(&m->base, &net_ops, 3);
    lc_linear_init(&m->in, m, "in", FEATURES, BROAD);
    lc_linear_init(&m->middle, m, "middle", BROAD, BROAD);
    lc_linear_init(&m->out, m, "out", BROAD, CLASSES);
}

static lc_status fit(net *m, lc_comm *comm, const char *strategy)
{
    lc_dataloader *loader;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = strategy;
    opt.precision = "bf16-mixed";
    opt.bucket_cap_mb = 100.0 / (1 << 20); /* each parameter has a unit, and so another place in each strategy */
    opt.max_epochs = 3;
    LC_TRY(loader_of(0, 24, 4, false, &loader));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status status = lc_trainer_fit(t, &m->base, .train_dataloader = loader);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    return status;
}

/* A new module with the same parameters. */
static lc_status same(const net *m, net *out)
{
    lc_tensor *const from[] = {m->in.weight, m->in.bias, m->middle.weight, m->middle.bias, m->out.weight, m->out.bias};
    net_init(out);
    lc_tensor *const to[] = {out->in.weight,   out->in.bias,    out->middle.weight,
                             out->middle.bias, out->out.weight, out->out.bias};
    for (int i = 0; i < 6; i++) {
        float values[BROAD * BROAD];
        const size_t bytes = (size_t)lc_tensor_numel(from[i]) * sizeof *values;
        LC_TRY(lc_tensor_read(from[i], values, bytes));
        LC_TRY(lc_tensor_write(to[i], values, bytes));
    }
    return LC_OK;
}

static lc_status follow_each_other(lc_comm *comm, void *ctx)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    const char *between = strategies[*(const int *)ctx];
    float got[BROAD * BROAD], want[BROAD * BROAD];
    net m = {0}, fresh = {0};
    net_init(&m);
    LC_TRY(fit(&m, comm, "ddp"));
    LC_TRY(fit(&m, comm, between));
    LC_TRY(same(&m, &fresh));
    LC_TRY(fit(&m, comm, "ddp"));
    LC_TRY(fit(&fresh, comm, "ddp"));
    LC_TRY(lc_tensor_read(m.middle.weight, got, sizeof got));
    LC_TRY(lc_tensor_read(fresh.middle.weight, want, sizeof want));
    lc_module_release(&m.base);
    lc_module_release(&fresh.base);
    if (memcmp(got, want, sizeof got) != 0)
        return lc_fail(LC_ERR_USER, "ddp after %s trains otherwise than a new module", between);
    return LC_OK;
}

TEST(fits_follow_each_other)
{
    for (int between = 0; between < 4; between++) CHECK_RANKS("threads", RANKS, follow_each_other, &between);
}

TEST_MAIN

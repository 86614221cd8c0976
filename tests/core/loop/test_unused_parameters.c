/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter that no rank ever gives a gradient is named once. A parameter that some rank or some step uses is not
 * named. */
#include "comm_world.h"
#include "quiet_options.h"

#include <lightc/lightc.h>

enum { SAMPLES = 48 };

typedef struct unused_job {
    bool frozen;       /* freezes the one that is never used */
    int64_t max_steps; /* of 12 in an epoch */
    char said[WORLD_RANKS][2048];
    int warnings[WORLD_RANKS];
} unused_job;

typedef struct net {
    lc_module base;
    lc_linear all, of_last_rank, late, never;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *y = lc_linear_forward(&m->all, b->x);
    bool last = lc_trainer_global_rank(self->trainer) == lc_trainer_world_size(self->trainer) - 1;
    if (last) y = lc_add(y, lc_linear_forward(&m->of_last_rank, b->x));
    if (i == 7) y = lc_add(y, lc_linear_forward(&m->late, b->x));
    return lc_mean(lc_square(y));
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers};

typedef struct listener {
    unused_job *j;
    int rank;
} listener;

static void hear(void *context, lc_trainer *t, lc_level level, const char *text)
{
    listener *l = context;
    (void)t;
    if (level != LC_WARNING || !strstr(text, "gradient")) return;
    l->j->warnings[l->rank]++;
    snprintf(l->j->said[l->rank], sizeof l->j->said[0], "%s", text);
}

static lc_status train(lc_comm *comm, void *ctx)
{
    static float x[SAMPLES][3];
    unused_job *j = ctx;
    listener l = {j, comm ? lc_comm_rank(comm) : 0};
    net m;
    lc_array array = {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {3}}, .data = x};
    lc_dataset *d;
    lc_dataloader *loader;
    lc_trainer *t;
    lc_callback cb;
    lc_trainer_options o = quiet_options(comm);
    LC_TRY(lc_lambda_callback(&cb, .context = &l, .on_message = hear));
    o.strategy = comm ? "ddp" : NULL;
    o.max_epochs = 2;
    o.max_steps = j->max_steps;
    o.callbacks = &cb;
    o.n_callbacks = 1;
    LC_TRY(lc_array_dataset_new(SAMPLES, 1, &array, &d));
    LC_TRY(lc_dataloader_new(&loader, .dataset = d, .batch_size = 4 / (comm ? lc_comm_size(comm) : 1)));
    lc_dataset_unref(d);
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.all, &m, "all", 3, 2);
    lc_linear_init(&m.of_last_rank, &m, "of_last_rank", 3, 2);
    lc_linear_init(&m.late, &m, "late", 3, 2);
    lc_linear_init(&m.never, &m, "never", 3, 2);
    if (j->frozen) lc_tensor_set_requires_grad(m.never.weight, false);
    if (j->frozen) lc_tensor_set_requires_grad(m.never.bias, false);
    LC_TRY(lc_trainer_new(&o, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return LC_OK;
}

static void check(unused_job j, const char *want)
{
    for (int n = 0; n <= 4; n += n ? n : 1) {
        static unused_job job;
        char text[512];
        job = j;
        if (n)
            CHECK_RANKS("threads", n, train, &job);
        else
            CHECK_OK(train(NULL, &job));
        for (int r = 1; r < n; r++) CHECK_EQ(job.warnings[r], 0); /* rank 0 warns */
        CHECK_EQ(job.warnings[0], want != NULL);
        if (!want) continue;
        snprintf(text, sizeof text, want, n > 1 ? " on any rank" : "");
        CHECK_STR(job.said[0], text);
    }
}

TEST(parameters_without_a_gradient_are_named_once)
{
    check((unused_job){.max_steps = -1},
          "no gradient%s in the first 10 steps, so nothing trains these parameters: never.weight, never.bias; use them "
          "in the loss, or freeze them (lc_tensor_set_requires_grad)");
}
TEST(frozen_parameters_are_not_named)
{
    check((unused_job){.max_steps = -1, .frozen = true}, NULL);
}
TEST(a_short_fit_warns_at_its_end)
{
    check(
        (unused_job){.max_steps = 2},
        "no gradient%s in the first 2 steps, so nothing trains these parameters: late.weight, late.bias, never.weight, "
        "never.bias; use them in the loss, or freeze them (lc_tensor_set_requires_grad)");
    check((unused_job){.max_steps = 1},
          "no gradient%s in the first step, so nothing trains these parameters: late.weight, late.bias, never.weight, "
          "never.bias; use them in the loss, or freeze them (lc_tensor_set_requires_grad)");
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that a step begins and does not end, or ends and has not begun: the error names the call and its line. */
#include "quiet_options.h"
#include "scratch.h"

enum { SAMPLES = 8 };
#include "small_data.h"

#define HERE(call) (line = __LINE__, (call))

static int line;

static void no_grad_begin(void)
{
    HERE(lc_no_grad_begin());
    lc_no_grad_begin();
    lc_no_grad_end();
}
static void autocast_begin(void)
{
    HERE(lc_autocast_begin(true));
}
static void checkpoint_begin(void)
{
    HERE(lc_checkpoint_begin());
}
static void no_grad_end(void)
{
    lc_no_grad_begin();
    lc_no_grad_end();
    HERE(lc_no_grad_end());
}
static void autocast_end(void)
{
    HERE(lc_autocast_end());
}
static void checkpoint_end(void)
{
    HERE(lc_checkpoint_end());
}
static void checkpoint_inside(void)
{
    lc_checkpoint_begin();
    HERE(lc_checkpoint_begin());
}

static const struct {
    void (*call)(void);
    const char *name, *text;
} mistakes[] = {
    {no_grad_begin, "lc_no_grad_begin: ", "call lc_no_grad_end"},
    {autocast_begin, "lc_autocast_begin: ", "call lc_autocast_end"},
    {checkpoint_begin, "lc_checkpoint_begin: ", "call lc_checkpoint_end"},
    {no_grad_end, "lc_no_grad_end: ", "call lc_no_grad_begin"},
    {autocast_end, "lc_autocast_end: ", "call lc_autocast_begin"},
    {checkpoint_end, "lc_checkpoint_end: ", "call lc_checkpoint_begin"},
    {checkpoint_inside, "lc_checkpoint_begin: ", "regions do not nest"},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

static void check_error(lc_status s, int i)
{
    char at[64];
    snprintf(at, sizeof at, "test_regions.c:%d", line);
    CHECK_STATUS(s, LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), mistakes[i].name);
    CHECK_CONTAINS(lc_error_message(), mistakes[i].text);
    CHECK_CONTAINS(lc_error_message(), at);
}

/* Nothing of the step runs, and the next one begins without regions. */
TEST(a_step_says_which_region)
{
    for (int i = 0; i < 2 * MISTAKES; i++) {
        bool runs = i & 1;
        lc_graph *g;
        lc_tensor *x;
        float value = 0;
        CHECK_OK(lc_graph_new(&g, .threads = 1));
        CHECK_OK(lc_tensor_new(LC_F32, 0, NULL, &x));
        CHECK_OK(lc_tensor_write(x, &value, sizeof value));
        CHECK_OK(lc_step_begin(g, 0, 0));
        mistakes[i / 2].call();
        lc_assign(x, lc_add_scalar(x, 1));
        if (runs) check_error(lc_step_run(g), i / 2);
        check_error(lc_step_end(g), i / 2);
        CHECK_OK(lc_tensor_read(x, &value, sizeof value));
        CHECK_EQ(value, 0);
        CHECK_OK(lc_step_begin(g, 1, 0));
        lc_assign(x, lc_add_scalar(x, 1));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
        lc_graph_free(g);
        lc_tensor_unref(x);
    }
}

/* ---- in a trainer, also on two devices ---- */

typedef struct net {
    lc_module base;
    lc_tensor *w;
    int mistake;
    bool evaluates;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    if (!m->evaluates) mistakes[m->mistake].call();
    return lc_mean(lc_mul(b->x, m->w));
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i, (void)loader;
    if (m->evaluates) mistakes[m->mistake].call();
    lc_log(self, "val_loss", lc_mean(lc_mul(b->x, m->w)));
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 1));
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("regions"), .training_step = training_step,
                                  .validation_step = validation_step, .configure_optimizers = configure_optimizers};

static void fit(int mistake, bool evaluates, const char *strategy)
{
    net m = {.mistake = mistake, .evaluates = evaluates};
    lc_trainer *t;
    lc_dataloader *train, *val;
    float w;
    lc_trainer_options o = quiet_options(NULL);
    o.max_epochs = 1;
    o.num_sanity_val_steps = 0;
    o.strategy = strategy;
    o.devices = strategy ? "2" : NULL;
    o.default_root_dir = fresh_dir("regions");
    lc_module_init(&m.base, &ops, 1);
    m.w = lc_module_add_parameter(&m.base, "w", LC_F32, LC_ROW_MAJOR, 0, NULL, (lc_init){0});
    CHECK_OK(loader_of(0, SAMPLES, SAMPLES, false, &train));
    CHECK_OK(loader_of(0, SAMPLES, SAMPLES, false, &val));
    CHECK_OK(lc_trainer_new(&o, &t));
    check_error(lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val), mistake);
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK_EQ(w == 0, !evaluates); /* no update of a step with a mistake */
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    lc_module_release(&m.base);
}

TEST(a_run_ends_with_that_error)
{
    for (int i = 0; i < 4 * MISTAKES; i++) fit(i / 4, i & 1, i & 2 ? "data_parallel" : NULL);
}

TEST_MAIN

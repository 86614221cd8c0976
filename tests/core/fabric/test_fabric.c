/* SPDX-License-Identifier: Apache-2.0 */
/* Fabric computes the same numbers as the trainer, its checkpoints resume bit for bit, and errors wait for the end of
 * the step. */
#include "test.h"
#include "trainer_world.h"
#include "wave.h"

#include "core/fabric/fabric_internal.h"
#include "record/graph_impl.h"

typedef struct loop {
    lc_fabric *f;
    lc_module *m;
    lc_optimizer *opt;
    lc_loaders loaders;
    double loss;
} loop;

static void open_loop(loop *l)
{
    memset(l, 0, sizeof *l);
    CHECK_OK(lc_fabric_new(&l->f, .threads = 1, .seed = 5));
    CHECK_OK(lc_module_new(&wave_class, NULL, 5, &l->m));
    l->opt = lc_adam(l->m, .lr = 0.01);
    CHECK_OK(lc_fabric_setup(l->f, l->m, &l->opt, 1));
    CHECK_OK(wave_train_dataloader(l->m, &l->loaders));
}

static void close_loop(loop *l)
{
    lc_dataloader_free(l->loaders.loaders[0]);
    lc_fabric_free(l->f);
    lc_optimizer_free(l->opt);
    lc_module_free(l->m);
}

static lc_tensor *wave_loss(wave *m, const lc_batch *batch)
{
    lc_tensor *x = lc_tanh(lc_linear_forward(&m->l1, batch->x));
    return lc_mse_loss(lc_linear_forward(&m->l2, x), batch->y);
}

/* Steps `from` to `to`, with an optimizer step every `window` batches. */
static void train(loop *l, int64_t from, int64_t to, int window, double max_norm)
{
    lc_dataloader *loader = l->loaders.loaders[0];
    CHECK_OK(lc_dataloader_begin(loader, 0, from));
    for (int64_t i = from; i < to; i++) {
        lc_batch *batch;
        CHECK_OK(lc_dataloader_next(loader, &batch));
        bool last = (i + 1) % window == 0;
        lc_fabric_no_backward_sync(l->f, !last);
        CHECK_OK(lc_fabric_begin(l->f));
        lc_tensor *loss = wave_loss((wave *)l->m, batch);
        if (i % window == 0) lc_fabric_zero_grad(l->f);
        lc_fabric_backward(l->f, loss);
        if (last && max_norm > 0) lc_fabric_clip_gradients(l->f, l->opt, .max_norm = max_norm);
        if (last) lc_fabric_step(l->f, l->opt);
        CHECK_OK(lc_fabric_end(l->f));
        CHECK_OK(lc_item(loss, &l->loss));
    }
    lc_dataloader_end(loader);
}

static void weights(lc_module *m, float *out)
{
    const char *const paths[] = {"l1.weight", "l1.bias", "l2.weight", "l2.bias"};
    for (int i = 0; i < 4; i++) {
        lc_tensor *p = lc_module_find(m, paths[i]);
        size_t n = (size_t)lc_tensor_numel(p);
        CHECK_OK(lc_tensor_read(p, out, n * sizeof *out));
        out += n;
    }
}
enum { WEIGHTS = 16 + 16 + 16 + 1 };

static lc_status adam(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 0.01));
}

/* A loop written by hand computes what the trainer computes, bit for bit. */
TEST(same_as_the_trainer)
{
    float a[WEIGHTS], b[WEIGHTS];
    lc_trainer *t;
    lc_module *m;
    loop l;
    lc_module_ops ops = wave_ops;
    ops.configure_optimizers = adam;
    lc_trainer_options o = wave_options(NULL);
    o.max_steps = 5;
    o.accumulate_grad_batches = 2;
    o.gradient_clip_val = 0.5;
    o.seed = 5;
    CHECK_OK(lc_module_new(&wave_class, NULL, 5, &m));
    m->ops = &ops;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    weights(m, a);
    lc_trainer_free(t);
    lc_module_free(m);

    open_loop(&l);
    train(&l, 0, 10, 2, 0.5);
    weights(l.m, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    CHECK_EQ(lc_fabric_steps(l.f), 10);
    close_loop(&l);
}

TEST(a_loaded_loop_continues_bit_for_bit)
{
    char dir[256], path[300];
    float a[WEIGHTS], b[WEIGHTS];
    loop l;
    lc_state *mine, *back = NULL;
    int64_t seven = 0;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    open_loop(&l);
    train(&l, 0, 4, 1, 0);
    CHECK_OK(lc_state_new(&mine));
    CHECK_OK(lc_state_set_int(mine, "simulated", 7));
    CHECK_OK(lc_fabric_save(l.f, path, mine));
    train(&l, 4, 9, 1, 0);
    weights(l.m, a);
    close_loop(&l);

    open_loop(&l);
    train(&l, 0, 2, 1, 0); /* starts from another state */
    CHECK_OK(lc_fabric_load(l.f, path, &back));
    CHECK_OK(lc_state_get_int(back, "simulated", &seven));
    CHECK_EQ(seven, 7);
    CHECK_EQ(lc_fabric_steps(l.f), 4);
    train(&l, 4, 9, 1, 0);
    weights(l.m, b);
    CHECK(memcmp(a, b, sizeof a) == 0);

    /* Its weights and hyperparameters are those of any checkpoint; the trainer cannot resume from it. */
    lc_module *m;
    CHECK_OK(lc_module_load_from_checkpoint(&wave_class, path, true, &m));
    lc_trainer *t;
    lc_trainer_options o = wave_options(NULL);
    o.ckpt_path = path;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, m), LC_ERR_CONFIG);
    lc_trainer_free(t);
    lc_module_free(m);
    lc_state_free(back);
    close_loop(&l);
    world_remove(dir);
}

/* A checkpoint from before the first step has no state of the optimizer: it begins again. */
TEST(a_loop_begins_again_from_its_first_checkpoint)
{
    char dir[256], path[300];
    float a[WEIGHTS], b[WEIGHTS];
    loop l;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    open_loop(&l);
    CHECK_OK(lc_fabric_save(l.f, path, NULL));
    train(&l, 0, 3, 1, 0);
    weights(l.m, a);
    CHECK_OK(lc_fabric_load(l.f, path, NULL));
    train(&l, 0, 3, 1, 0);
    weights(l.m, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    close_loop(&l);
    world_remove(dir);
}

static lc_status evaluate(void *ctx, double *loss)
{
    loop *l = ctx;
    lc_batch *batch;
    LC_TRY(lc_dataloader_next(l->loaders.loaders[0], &batch));
    lc_tensor *of = wave_loss((wave *)l->m, batch);
    lc_fabric_zero_grad(l->f);
    lc_fabric_backward(l->f, of);
    return lc_item(of, loss);
}

static void step_with_closure(loop *l, float *after)
{
    CHECK_OK(lc_dataloader_begin(l->loaders.loaders[0], 0, 0));
    CHECK_OK(lc_fabric_begin(l->f));
    CHECK_OK(lc_optimizer_step_closure(l->opt, evaluate, l));
    CHECK_OK(lc_fabric_end(l->f));
    lc_dataloader_end(l->loaders.loaders[0]);
    weights(l->m, after);
}

/* LBFGS makes its vectors in its first step. `prepared`: it has counted its steps, and made none. */
TEST(lbfgs_begins_again_from_its_first_checkpoint)
{
    for (int prepared = 0; prepared < 2; prepared++) {
        char dir[256], path[300];
        float a[WEIGHTS], b[WEIGHTS];
        loop l;
        CHECK(world_dir(dir, sizeof dir));
        snprintf(path, sizeof path, "%s/a.ckpt", dir);
        open_loop(&l);
        lc_optimizer_free(l.opt);
        lc_fabric_free(l.f);
        CHECK_OK(lc_fabric_new(&l.f, .threads = 1, .seed = 5));
        l.opt = lc_lbfgs(l.m, .max_iter = 3, .lr = 0.1);
        CHECK_OK(lc_fabric_setup(l.f, l.m, &l.opt, 1));
        if (prepared) lc_optimizer_zero_grad(l.opt);
        CHECK_OK(lc_fabric_save(l.f, path, NULL));
        step_with_closure(&l, a);
        CHECK_OK(lc_fabric_load(l.f, path, NULL));
        step_with_closure(&l, b);
        CHECK(memcmp(a, b, sizeof a) == 0);
        close_loop(&l);
        world_remove(dir);
    }
}

TEST(errors_are_returned_at_the_end_of_the_step)
{
    char dir[256], path[300];
    loop l;
    float data[6] = {0}, a[WEIGHTS], b[WEIGHTS];
    lc_tensor *x;
    CHECK(world_dir(dir, sizeof dir));
    open_loop(&l);
    weights(l.m, a);
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){2, 3}, LC_ROW_MAJOR, data, &x));

    CHECK_OK(lc_fabric_begin(l.f));
    lc_tensor *loss = lc_mean(lc_linear_forward(&((wave *)l.m)->l1, x)); /* 3 features where there is 1 */
    lc_fabric_backward(l.f, loss);
    lc_fabric_step(l.f, l.opt);
    CHECK_STATUS(lc_fabric_end(l.f), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "test_fabric.c");

    CHECK_OK(lc_fabric_begin(l.f));
    lc_fabric_clip_gradients(l.f, l.opt, .clip_val = 1, .max_norm = 1);
    lc_fabric_step(l.f, NULL); /* a later error does not hide the first */
    CHECK_STATUS(lc_fabric_end(l.f), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "one of .clip_val and .max_norm");

    lc_fabric_backward(l.f, NULL);
    CHECK_STATUS(lc_fabric_end(l.f), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "lc_fabric_backward: call lc_fabric_begin first");
    snprintf(path, sizeof path, "%s/a.ckpt", dir);
    CHECK_OK(lc_fabric_begin(l.f));
    CHECK_STATUS(lc_fabric_save(l.f, path, NULL), LC_ERR_STATE);
    CHECK_OK(lc_fabric_end(l.f));
    CHECK_STATUS(lc_fabric_setup(l.f, l.m, &l.opt, 1), LC_ERR_STATE);
    CHECK_STATUS(lc_fabric_load(l.f, path, NULL), LC_ERR_NOT_FOUND);
    weights(l.m, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    train(&l, 0, 3, 1, 0); /* training continues after the errors */
    lc_tensor_unref(x);
    close_loop(&l);

    lc_fabric *f;
    lc_trainer *t;
    CHECK_STATUS(lc_fabric_new(&f, .accelerator = "tpu"), LC_ERR_UNSUPPORTED);
    CHECK(lc_fabric_new(&f, .strategy = "single_device", .devices = "7") < 0);
    static const double bad_caps[] = {-1, 1e-7, 1e7, NAN};
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(lc_fabric_new(&f, .bucket_cap_mb = bad_caps[i]), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), "but must be between 1e-06 and 1000000");
        lc_trainer_options as = LC_TRAINER_OPTIONS_INIT; /* a trainer whose options are set in C says the same */
        as.bucket_cap_mb = bad_caps[i];
        CHECK_STATUS(lc_trainer_new(&as, &t), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), "but must be between 1e-06 and 1000000");
    }
    CHECK_STATUS(lc_fabric_new(&f, .grace_period = -1), LC_ERR_CONFIG);
    CHECK_STATUS(lc_fabric_new(&f, .memory_limit = "much"), LC_ERR_CONFIG);
    CHECK_STATUS(lc_fabric_new(&f, .nodes_file = "hosts"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "nodes_file=hosts");
    CHECK_OK(lc_fabric_new(&f));
    CHECK_STATUS(lc_fabric_begin(f), LC_ERR_STATE);
    CHECK_STATUS(lc_fabric_save(f, path, NULL), LC_ERR_STATE);
    lc_fabric_free(f);
    world_remove(dir);
}

static int looked;
static lc_status overflow_once(void *self, lc_optimizer *opt)
{
    (void)self, (void)opt;
    return looked++ == 1 ? LC_SKIP : LC_OK;
}
static const lc_precision_ops overflowing = {LC_PRECISION_OPS_INIT("overflowing"),
                                             .before_optimizer_step = overflow_once};

/* The calls in the wrong order: an error of the next step, also if the clipping's handle has another use by then. */
TEST(clipping_after_the_update)
{
    for (int i = 0; i < 12; i++) {
        const int pause = i / 2;
        const bool by_value = i % 2;
        loop l;
        lc_batch *batch;
        open_loop(&l);
        CHECK_OK(lc_dataloader_begin(l.loaders.loaders[0], 0, 0));
        CHECK_OK(lc_dataloader_next(l.loaders.loaders[0], &batch));
        for (int k = 0; k < pause + 2; k++) {
            bool first = k == 0, updates = first || k == pause + 1;
            CHECK_OK(lc_fabric_begin(l.f));
            lc_tensor *loss = wave_loss((wave *)l.m, batch);
            lc_fabric_zero_grad(l.f);
            lc_fabric_backward(l.f, loss);
            if (updates) lc_fabric_step(l.f, l.opt);
            if (first && by_value) lc_fabric_clip_gradients(l.f, l.opt, .clip_val = 1);
            if (first && !by_value) lc_fabric_clip_gradients(l.f, l.opt, .max_norm = 1);
            lc_status s = lc_fabric_end(l.f);
            CHECK_STATUS(s, updates && !first ? LC_ERR_STATE : LC_OK);
        }
        CHECK_CONTAINS(lc_error_message(), "the gradients were clipped in an earlier step, after its update; clip them "
                                           "between the backward pass and the update at test_fabric.c:");
        train(&l, 0, 1, 1, 0); /* the error was that of one step */
        close_loop(&l);
    }
}

TEST(a_clipping_by_value_between_steps_is_for_the_next_update)
{
    loop l;
    float before[WEIGHTS], after[WEIGHTS];
    open_loop(&l);
    weights(l.m, before);
    lc_clip_grad_value(l.opt, 0);
    train(&l, 0, 1, 1, 0);
    weights(l.m, after);
    CHECK(memcmp(before, after, sizeof before) == 0); /* no gradient is left */
    train(&l, 1, 2, 1, 0);
    weights(l.m, after);
    CHECK(memcmp(before, after, sizeof before) != 0);
    close_loop(&l);
}

/* An update that is left out because its optimizer is gone must not pass as one. */
TEST(a_step_of_what_is_no_optimizer_fails)
{
    for (int i = 0; i < 3; i++) {
        loop l;
        open_loop(&l);
        CHECK_OK(lc_fabric_begin(l.f));
        if (i == 0) lc_fabric_step(l.f, (lc_optimizer *)l.m);
        if (i == 1) lc_fabric_clip_gradients(l.f, (lc_optimizer *)l.m, .max_norm = 1);
        if (i == 2) lc_fabric_backward(l.f, (lc_tensor *)l.m);
        CHECK_STATUS(lc_fabric_end(l.f), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), i < 2 ? "this is not an optimizer" : "this is not a tensor");
        close_loop(&l);
    }
}

static int freed;
static lc_status full(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return lc_fail(LC_ERR_IO, "the disk of the test is full");
}
static void count_free(void *self)
{
    (void)self;
    freed++;
}
static const lc_logger_ops full_ops = {LC_LOGGER_OPS_INIT, .name = "full", .start = memory_start, .log_row = full,
                                       .free = count_free};

TEST(a_number_of_loggers_without_a_list)
{
    lc_fabric *f = NULL;
    CHECK_STATUS(lc_fabric_new(&f, .n_loggers = 2), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_loggers is 2, but loggers is NULL");
    CHECK_STATUS(lc_fabric_new(&f, .n_loggers = -1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_loggers is -1; it must not be negative");
}

static int torn_down;
static void count_teardown(void *self)
{
    (void)self;
    torn_down++;
}

/* A fabric frees its loggers and its precision once, also if it cannot be made. */
TEST(what_a_fabric_that_is_not_made_has_taken_over)
{
    static const lc_precision_ops ops = {LC_PRECISION_OPS_INIT("mine"), .teardown = count_teardown};
    const lc_precision precision = {&ops, &torn_down};
    const lc_logger logger = {&full_ops, &freed}, both[] = {{0}, logger};
    lc_fabric *f = NULL;
    freed = torn_down = 0;
    CHECK_STATUS(
        lc_fabric_new(&f, .precision = "other", .precision_plugin = &precision, .loggers = &logger, .n_loggers = 1),
        LC_ERR_CONFIG);
    CHECK_EQ(torn_down, 1);
    CHECK_EQ(freed, 1);
    CHECK_STATUS(lc_fabric_new(&f, .precision_plugin = &precision, .loggers = both, .n_loggers = 2), LC_ERR_ARGUMENT);
    CHECK_EQ(torn_down, 2);
    CHECK_EQ(freed, 2);
    CHECK_STATUS(lc_fabric_new(&f, .precision_plugin = &precision, .n_loggers = 2), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "n_loggers is 2, but loggers is NULL");
    CHECK_EQ(torn_down, 3);
    CHECK_STATUS(lc_fabric_new(NULL, .precision_plugin = &precision, .loggers = &logger, .n_loggers = 1),
                 LC_ERR_ARGUMENT);
    CHECK_EQ(torn_down, 4);
    CHECK_EQ(freed, 3);
}

TEST(a_precision_that_sees_an_overflow_skips_the_update)
{
    float all[3][WEIGHTS];
    loop l;
    open_loop(&l);
    l.f->precision = overflowing;
    looked = 0;
    for (int i = 0; i < 3; i++) {
        train(&l, i, i + 1, 1, 0.5);
        weights(l.m, all[i]);
    }
    CHECK(memcmp(all[0], all[1], sizeof *all) == 0);
    CHECK(memcmp(all[1], all[2], sizeof *all) != 0);
    CHECK(!l.opt->clip_factor); /* the clip factor of the skipped update does not reach the next one */
    close_loop(&l);
}

static bool fails_to_start;
static lc_status wordless_start(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return fails_to_start ? LC_ERR_IO : LC_OK;
}
static lc_status wordless_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_ERR_IO;
}

/* A message from before is about another matter. */
TEST(a_logger_that_fails_without_a_message)
{
    static const lc_logger_ops ops = {LC_LOGGER_OPS_INIT, .name = "mine", .start = wordless_start,
                                      .log_row = wordless_row};
    const lc_logger logger = {&ops, NULL};
    for (int starts = 0; starts < 2; starts++) {
        char dir[256];
        lc_fabric *f;
        CHECK(world_dir(dir, sizeof dir));
        fails_to_start = !starts;
        CHECK_OK(lc_fabric_new(&f, .loggers = &logger, .n_loggers = 1, .default_root_dir = dir));
        (void)lc_fail(LC_ERR_IO, "another matter");
        CHECK_STATUS(lc_fabric_log(f, "loss", 0.5, -1), LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), "it returned an error (input or output failed) without a message");
        lc_fabric_free(f);
        world_remove(dir);
    }
}

static bool fails_to_visit, fails_the_check;
static lc_status wordless_visit(lc_optimizer *opt, bool load, lc_status (*fn)(void *, const char *, lc_tensor *),
                                void *ctx)
{
    (void)opt, (void)load, (void)fn, (void)ctx;
    return fails_to_visit ? LC_ERR_IO : LC_OK;
}
static lc_status wordless_check(const lc_optimizer *opt)
{
    (void)opt;
    return fails_the_check ? LC_ERR_IO : LC_OK;
}

TEST(an_optimizer_that_fails_without_a_message)
{
    char dir[256], path[300];
    lc_fabric *f;
    lc_module *m;
    lc_optimizer *opt, *sgd;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/own.ckpt", dir);
    CHECK_OK(lc_fabric_new(&f, .threads = 1));
    CHECK_OK(lc_module_new(&wave_class, NULL, 5, &m));
    sgd = lc_sgd(m, .lr = 0.1);
    lc_optimizer_ops ops = *sgd->ops;
    ops.visit_own = wordless_visit;
    ops.check = wordless_check;
    CHECK_OK(lc_optimizer_new(&ops, m, 0, &opt));
    lc_tensor *weight = ((wave *)m)->l1.weight;
    CHECK_EQ(lc_optimizer_add_group(opt, "all", &weight, 1), 0);
    CHECK_OK(lc_fabric_setup(f, m, &opt, 1));
    fails_to_visit = true;
    (void)lc_fail(LC_ERR_IO, "another matter");
    CHECK_STATUS(lc_fabric_save(f, path, NULL), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "it returned an error (input or output failed) without a message");
    fails_to_visit = false;
    CHECK_OK(lc_fabric_save(f, path, NULL));
    fails_the_check = true;
    (void)lc_fail(LC_ERR_IO, "another matter");
    CHECK_STATUS(lc_fabric_load(f, path, NULL), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "optimizer 0: it returned an error (input or output failed) without a message");
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_optimizer_free(sgd);
    lc_module_free(m);
    world_remove(dir);
}

TEST(rows_go_to_every_logger)
{
    char dir[256], path[600], text[256] = "";
    memory_logger rows = {0};
    lc_logger loggers[3] = {{&full_ops, NULL}, {&memory_ops, &rows}};
    lc_fabric_args o = LC_ARGS(lc_fabric, .loggers = loggers, .n_loggers = 3, .default_root_dir = dir);
    lc_fabric *f;
    CHECK(world_dir(dir, sizeof dir));
    for (int run = 0; run < 2; run++) {
        CHECK_OK(lc_logger_new("csv", &loggers[2]));
        freed = 0;
        CHECK_OK(lc_fabric_new_with(&f, &o));
        CHECK_STR(lc_fabric_run_dir(f), "");
        /* A logger that fails does not keep rows from the others. */
        CHECK_STATUS(lc_fabric_log(f, "loss", 0.5, -1), LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), "the disk of the test is full");
        snprintf(path, sizeof path, "%s/lightning_logs/version_%d", dir, run);
        CHECK_STR(lc_fabric_run_dir(f), path);
        lc_metric_value two[] = {{"loss", 0.25}, {"acc", 1}};
        CHECK_STATUS(lc_fabric_log_dict(f, two, 2, 7), LC_ERR_IO);
        CHECK_STATUS(lc_fabric_log(f, NULL, 0, -1), LC_ERR_ARGUMENT);
        lc_fabric_free(f);
        CHECK_EQ(freed, 1);
    }
    CHECK_STR(rows.text, "step=0 loss=0.5|step=7 acc=1 loss=0.25|step=0 loss=0.5|step=7 acc=1 loss=0.25|");
    strcat(path, "/metrics.csv");
    FILE *csv = fopen(path, "r");
    CHECK(csv && fread(text, 1, sizeof text - 1, csv) > 0);
    fclose(csv);
    CHECK_STR(text, "acc,loss,step\n,0.5,0\n1.0,0.25,7\n");

    /* The loggers are freed even if there is no fabric; without loggers nothing is written. */
    freed = 0;
    CHECK_STATUS(lc_fabric_new(&f, .accelerator = "tpu", .loggers = loggers, .n_loggers = 1), LC_ERR_UNSUPPORTED);
    CHECK_EQ(freed, 1);
    CHECK_OK(lc_fabric_new(&f));
    CHECK_OK(lc_fabric_log(f, "loss", 1, -1));
    CHECK_STR(lc_fabric_run_dir(f), "");
    lc_fabric_free(f);
    world_remove(dir);
}

TEST(anomalies_are_found_and_kernels_timed)
{
    float data[2] = {1, -1};
    lc_tensor *x;
    loop l;
    open_loop(&l);
    lc_fabric_free(l.f);
    lc_optimizer_free(l.opt);
    l.opt = lc_adam(l.m, .lr = 0.01);
    CHECK_OK(lc_fabric_new(&l.f, .threads = 1, .detect_anomaly = true, .tune = true));
    CHECK(lc_fabric_graph(l.f)->options.tune);
    CHECK_OK(lc_fabric_setup(l.f, l.m, &l.opt, 1));
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){2, 1}, LC_ROW_MAJOR, data, &x));
    CHECK_OK(lc_fabric_begin(l.f));
    lc_fabric_backward(l.f, lc_mean(lc_sqrt(lc_linear_forward(&((wave *)l.m)->l1, x))));
    CHECK(lc_fabric_end(l.f) < 0);
    CHECK_CONTAINS(lc_error_message(), "test_fabric.c");
    lc_tensor_unref(x);
    close_loop(&l);
}

TEST(logged_steps_are_those_of_the_loop)
{
    char dir[256];
    memory_logger rows = {0};
    lc_logger logger = {&memory_ops, &rows};
    loop l;
    CHECK(world_dir(dir, sizeof dir));
    open_loop(&l);
    lc_fabric_free(l.f);
    lc_optimizer_free(l.opt);
    l.opt = lc_adam(l.m, .lr = 0.01);
    CHECK_OK(lc_fabric_new(&l.f, .threads = 1, .loggers = &logger, .n_loggers = 1, .default_root_dir = dir));
    CHECK_OK(lc_fabric_setup(l.f, l.m, &l.opt, 1));
    for (int64_t i = 0; i < 3; i++) {
        train(&l, i, i + 1, 1, 0);
        CHECK_OK(lc_fabric_log(l.f, "i", (double)i, -1));
    }
    CHECK_STR(rows.text, "step=1 i=0|step=2 i=1|step=3 i=2|");
    close_loop(&l);
    world_remove(dir);
}

TEST(collectives_of_one_rank)
{
    lc_fabric *f;
    double v[] = {1, 2, 3}, all[3] = {0};
    CHECK_OK(lc_fabric_new(&f));
    CHECK_EQ(lc_fabric_world_size(f), 1);
    CHECK_EQ(lc_fabric_global_rank(f), 0);
    CHECK_OK(lc_fabric_all_reduce(f, v, 3, LC_LOG_SUM));
    CHECK_OK(lc_fabric_broadcast(f, v, 3, 0));
    CHECK_OK(lc_fabric_all_gather(f, v, 3, all));
    CHECK_OK(lc_fabric_barrier(f));
    CHECK(v[0] == 1 && v[2] == 3 && all[0] == 1 && all[2] == 3);
    CHECK_STATUS(lc_fabric_broadcast(f, v, 3, 1), LC_ERR_ARGUMENT);
    lc_fabric_free(f);
}

TEST_MAIN

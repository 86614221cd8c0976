/* SPDX-License-Identifier: Apache-2.0 */
/* Messages for what users forget: an error without a message, an operation without the size of its struct, a file of
 * torch.save in place of a checkpoint. */
#include "scratch.h"
#include "trainer_world.h"

#include <lightc/callbacks.h>
#include <lightc/safetensors.h>

static lc_status wordless(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)context, (void)t, (void)o, (void)b, (void)i;
    return LC_ERR_IO;
}

TEST(an_error_without_a_message_names_the_hook)
{
    world w;
    lc_trainer *t;
    lc_callback cb;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(lc_lambda_callback(&cb, .on_train_batch_end = wordless));
    world_init(&w, &world_ops_without_val, 4, 0);
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb, o.n_callbacks = 1;
    CHECK_OK(lc_trainer_new(&o, &t));
    (void)lc_fail(LC_ERR_IO, "another matter");
    CHECK_STATUS(lc_trainer_fit(t, &w.base), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "on_train_batch_end of ");
    CHECK_CONTAINS(lc_error_message(), "it returned an error (");
    CHECK_CONTAINS(lc_error_message(), "without a message");
    CHECK(!strstr(lc_error_message(), "another matter"));
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

static lc_status add_null(lc_module *self, lc_optimizers *out)
{
    (void)self;
    return lc_optimizers_add(out, NULL);
}

static lc_status add_bad(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = -1));
}

static lc_status add_no_module(lc_module *self, lc_optimizers *out)
{
    (void)self;
    return lc_optimizers_add(out, lc_sgd(NULL, .lr = 1));
}

static lc_status add_null_scheduler(lc_module *self, lc_optimizers *out)
{
    LC_TRY(lc_optimizers_add(out, lc_sgd(self, .lr = 1)));
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){0});
}

/* A constructor that failed has said why. If nobody has, the message calls the last error no more than that. */
TEST(an_optimizer_that_is_null)
{
    static const struct {
        lc_status (*configure)(lc_module *self, lc_optimizers *out);
        const char *says;
    } cases[] = {{add_null, "the optimizer to add is NULL (the last error of this thread: another matter)"},
                 {add_bad, "configure_optimizers of world: SGD: lr is -1"},
                 {add_no_module, "(the last error of this thread: SGD needs the module whose parameters it trains"},
                 {add_null_scheduler, "the scheduler to add is NULL (the last error of this thread: another matter)"}};
    for (int i = 0; i < 4; i++) {
        world w;
        lc_trainer *t;
        lc_module_ops ops = world_ops_without_val;
        char dir[256];
        CHECK(world_dir(dir, sizeof dir));
        ops.configure_optimizers = cases[i].configure;
        world_init(&w, &ops, 4, 0);
        lc_trainer_options o = world_options(dir);
        CHECK_OK(lc_trainer_new(&o, &t));
        (void)lc_fail(LC_ERR_IO, "another matter");
        CHECK_STATUS(lc_trainer_fit(t, &w.base), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), cases[i].says);
        lc_trainer_free(t);
        world_release(&w);
        world_remove(dir);
    }
}

static lc_status wordless_save(void *self, lc_trainer *t, lc_state *state)
{
    (void)self, (void)t, (void)state;
    return LC_ERR_IO;
}

static lc_status wordless_load(void *self, lc_trainer *t, const lc_state *state)
{
    (void)self, (void)t, (void)state;
    return LC_ERR_IO;
}

static lc_status wordless_visit(void *self, lc_trainer *t, lc_status (*fn)(void *, const char *, lc_tensor *),
                                void *ctx)
{
    (void)self, (void)t, (void)fn, (void)ctx;
    return LC_ERR_IO;
}

static lc_status save_nothing(void *self, lc_trainer *t, lc_state *state)
{
    (void)self, (void)t, (void)state;
    return LC_OK;
}

TEST(a_state_without_a_message_names_the_function)
{
    static const char *const says[] = {"save_state of mine: it returned an error",
                                       "load_state of mine: it returned an error",
                                       "visit_tensors of mine: it returned an error"};
    for (int i = 0; i < 3; i++) {
        const bool loads = i == 1;
        const lc_callback_ops ops = {LC_CALLBACK_OPS_INIT("mine"), .save_state = i == 0 ? wordless_save : save_nothing,
                                     .load_state = wordless_load, .visit_tensors = i == 2 ? wordless_visit : NULL};
        const lc_callback cb = {&ops, NULL};
        world w;
        lc_trainer *t;
        char dir[256], path[300];
        CHECK(world_dir(dir, sizeof dir));
        snprintf(path, sizeof path, "%s/own.ckpt", dir);
        world_init(&w, &world_ops_without_val, 4, 0);
        lc_trainer_options o = world_options(dir);
        o.callbacks = &cb, o.n_callbacks = 1;
        o.max_epochs = 1;
        o.enable_checkpointing = LC_OFF;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_OK(lc_trainer_fit(t, &w.base));
        (void)lc_fail(LC_ERR_IO, "another matter");
        lc_status s = lc_trainer_save_checkpoint(t, path, false);
        if (loads) {
            CHECK_OK(s);
            s = lc_trainer_fit(t, &w.base, .ckpt_path = path);
        }
        CHECK_STATUS(s, LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), says[i]);
        CHECK(!strstr(lc_error_message(), "another matter"));
        lc_trainer_free(t);
        world_release(&w);
        world_remove(dir);
    }
}

/* An empty message counts as none. */
static lc_status taciturn(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)context, (void)t, (void)o, (void)b, (void)i;
    return lc_fail(LC_ERR_IO, "%s", "");
}

static lc_tensor *taciturn_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)self, (void)b, (void)i;
    (void)!lc_fail(LC_ERR_IO, "%s", "");
    return NULL;
}

TEST(an_error_with_an_empty_message_names_the_hook)
{
    for (int in_step = 0; in_step < 2; in_step++) {
        world w;
        lc_trainer *t;
        lc_callback cb;
        char dir[256];
        CHECK(world_dir(dir, sizeof dir));
        CHECK_OK(lc_lambda_callback(&cb, .on_train_batch_end = taciturn));
        lc_module_ops ops = world_ops_without_val;
        if (in_step) ops.training_step = taciturn_step;
        world_init(&w, &ops, 4, 0);
        lc_trainer_options o = world_options(dir);
        o.callbacks = &cb, o.n_callbacks = 1;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_STATUS(lc_trainer_fit(t, &w.base), LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), in_step ? "training_step of " : "on_train_batch_end of ");
        CHECK_CONTAINS(lc_error_message(), "batch 0: it returned an error (");
        CHECK_CONTAINS(lc_error_message(), "without a message");
        lc_trainer_free(t);
        world_release(&w);
        world_remove(dir);
    }
}

/* A hook that has failed saves a checkpoint, which runs other hooks inside this one, and then reports the failure.
 */
static lc_status saves_first(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    char path[300];
    (void)o, (void)b, (void)i;
    lc_status s = lc_fail(LC_ERR_IO, "the sensor is gone");
    snprintf(path, sizeof path, "%s/rescued.ckpt", (const char *)context);
    CHECK_OK(lc_trainer_save_checkpoint(t, path, false));
    return s;
}

TEST(a_message_outlives_hooks_run_by_the_failed_hook)
{
    world w;
    lc_trainer *t;
    lc_callback cb;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(lc_lambda_callback(&cb, .context = dir, .on_train_batch_end = saves_first));
    world_init(&w, &world_ops_without_val, 4, 0);
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb, o.n_callbacks = 1;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &w.base), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "on_train_batch_end of ");
    CHECK_CONTAINS(lc_error_message(), "the sensor is gone");
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

static lc_status returns_77(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)context, (void)t, (void)o, (void)b, (void)i;
    return (lc_status)77;
}

static lc_status frees_its_trainer(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)context, (void)o, (void)b, (void)i;
    lc_trainer_free(t);
    return LC_OK;
}

static lc_status releases_its_module(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)context, (void)o, (void)b, (void)i;
    lc_module_release(lc_trainer_module(t));
    return LC_OK;
}

TEST(what_a_hook_must_not_do_ends_the_run)
{
    const struct {
        lc_status (*hook)(void *, lc_trainer *, const lc_outputs *, const lc_batch *, int64_t);
        lc_status status;
        const char *message;
    } rows[] = {{returns_77, LC_ERR_USER, "it returned 77, which is not a status"},
                {frees_its_trainer, LC_ERR_STATE, "lc_trainer_free: the trainer is running; free it after the run"},
                {releases_its_module, LC_ERR_STATE, "lc_module_release: the module is in a run; release it after"}};
    for (int i = 0; i < 5; i++) {
        world w;
        lc_trainer *t;
        lc_callback cb;
        char dir[256];
        CHECK(world_dir(dir, sizeof dir));
        CHECK_OK(lc_lambda_callback(&cb, .on_train_batch_end = rows[i / 2].hook));
        world_init(&w, &world_ops_without_val, 4, 0);
        lc_trainer_options o = world_options(dir);
        o.callbacks = &cb, o.n_callbacks = 1;
        CHECK_OK(lc_trainer_new(&o, &t));
        if (i % 2) {
            lc_dataloader *loader = numbers_new(2, 1, false);
            lc_batch *batch;
            CHECK_OK(lc_trainer_begin(t, &w.base));
            CHECK_OK(lc_dataloader_begin(loader, 0, 0));
            CHECK_OK(lc_dataloader_next(loader, &batch));
            CHECK_STATUS(lc_trainer_step(t, batch, NULL), rows[i / 2].status);
            lc_dataloader_free(loader);
        } else {
            CHECK_STATUS(lc_trainer_fit(t, &w.base), rows[i / 2].status);
        }
        CHECK_CONTAINS(lc_error_message(), i < 4 ? "on_train_batch_end of " : "world");
        CHECK_CONTAINS(lc_error_message(), rows[i / 2].message);
        lc_trainer_free(t);
        world_release(&w);
        world_remove(dir);
    }
}

TEST(a_callback_or_a_logger_cannot_be_twice_in_the_options)
{
    lc_callback cb;
    lc_logger logger;
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = world_options(dir);
    CHECK_OK(lc_early_stopping(&cb, .monitor = "loss"));
    o.callbacks = (lc_callback[]){cb, cb}, o.n_callbacks = 2;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "the same callback (EarlyStopping) is added twice");
    o = world_options(dir);
    CHECK_OK(lc_logger_new("csv", &logger));
    o.loggers = (lc_logger[]){logger, logger}, o.n_loggers = 2;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "is in the list twice");
    world_remove(dir);
}

TEST(a_loader_under_the_wrong_name_is_an_error_that_has_the_right_one)
{
    world w;
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    lc_module_ops ops = world_ops;
    ops.train_dataloader = ops.val_dataloader = NULL;
    world_init(&w, &ops, 4, 2);
    lc_trainer_options o = world_options(dir);
    lc_dataloader *loader = numbers_new(2, 1, false);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_validate(t, &w.base, .train_dataloader = loader), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "no val_dataloader, and validate was given no .dataloaders with .n_dataloaders");
    CHECK_STATUS(lc_trainer_fit(t, &w.base, .val_dataloader = loader), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "no train_dataloader, and fit was given no .train_dataloader");
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    world_release(&w);
    world_remove(dir);
}

TEST(invalid_loaders_are_refused)
{
    static uint64_t freed[64];
    lc_dataloader *loader = (void *)freed;
    const lc_run_args fits[] = {LC_ARGS(lc_run, .train_dataloader = loader), LC_ARGS(lc_run, .val_dataloader = loader),
                                LC_ARGS(lc_run, .dataloaders = &loader, .n_dataloaders = 1)};
    world w;
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    world_init(&w, &world_ops, 4, 2);
    lc_trainer_options o = world_options(dir);
    CHECK_OK(lc_trainer_new(&o, &t));
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        CHECK_STATUS(lc_trainer_fit_with(t, &w.base, &fits[i]), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), "_dataloader: this is not a data loader");
    }
    CHECK_STATUS(lc_trainer_validate_with(t, &w.base, &fits[2]), LC_ERR_ARGUMENT);
    CHECK_OK(lc_trainer_fit(t, &w.base));
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

TEST(operations_without_a_size_are_reported)
{
    static const lc_module_ops none = {0};
    world w;
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    world_init(&w, &world_ops_without_val, 4, 0);
    w.base.ops = &none;
    lc_trainer_options o = world_options(dir);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &w.base), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "LC_MODULE_OPS_INIT");
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

TEST(a_file_of_torch_save_is_recognized)
{
    static const char *const begins[] = {"PK\3\4 an archive", "\200\2\212\12l\374\234F\371 j\250P\31."};
    char dir[256], path[300];
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/model.pt", dir);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        lc_safetensors *f;
        FILE *out = fopen(path, "w");
        CHECK(out && fwrite(begins[i], 1, 14, out) == 14 && fclose(out) == 0);
        CHECK_STATUS(lc_safetensors_open(path, &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "torch.save");
        CHECK_CONTAINS(lc_error_message(), "safetensors.torch.save_file");
        /* also if a checkpoint is expected */
        lc_checkpoint *c;
        world w;
        lc_trainer *t;
        CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "torch.save");
        world_init(&w, &world_ops_without_val, 4, 0);
        lc_trainer_options o = world_options(dir);
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_STATUS(lc_trainer_fit(t, &w.base, .ckpt_path = path), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), path);
        CHECK_CONTAINS(lc_error_message(), "torch.save");
        CHECK_CONTAINS(lc_error_message(), "safetensors.torch.save_file");
        CHECK_CONTAINS(lc_error_message(), "lc_module_load_weights");
        lc_trainer_free(t);
        world_release(&w);
    }
    world_remove(dir);
}

/* Calls that return no status: the step's error names the line of the program that made them. */
static void step_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    lc_optimizer_step(opt);
}

static void zero_grad_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    lc_optimizer_zero_grad(opt);
}

static void clip_norm_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    (void)lc_clip_grad_norm(opt, 1);
}

static void clip_value_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    lc_clip_grad_value(opt, 1);
}

static void gradient_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)opt;
    (void)lc_gradient(x);
}

static lc_linear late;

static lc_tensor *makes_a_layer(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_linear_init(&late, self, "late", 1, 1);
    return lc_mean(lc_linear_forward(&late, lc_reshape(batch->x, -1, 1)));
}

TEST(a_layer_that_each_step_makes_again)
{
    world w;
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    lc_module_ops ops = world_ops_without_val;
    ops.training_step = makes_a_layer;
    world_init(&w, &ops, 4, 0);
    lc_trainer_options o = world_options(dir);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &w.base), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "building world: the struct of \"late\" is in the model already");
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

TEST(an_error_of_a_call_without_a_status_names_its_line)
{
    void (*const calls[])(lc_optimizer *, lc_tensor *) = {step_of, zero_grad_of, clip_norm_of, clip_value_of,
                                                          gradient_of};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        lc_graph *g;
        CHECK_OK(lc_graph_new(&g));
        CHECK_OK(lc_step_begin(g, 0, 0));
        calls[i](NULL, lc_zeros(LC_F32, 2));
        CHECK(lc_step_run(g) < 0);
        CHECK_CONTAINS(lc_error_message(), " at test_hook_errors.c:");
        CHECK(lc_step_end(g) < 0);
        lc_graph_free(g);
    }
}

/* Numbers that an optimizer does not accept: the error names the line of its constructor. */
TEST(a_bad_number_of_an_optimizer_names_its_line)
{
    for (int i = 0; i < 14; i++) {
        lc_module m = {0};
        int line = 0;
        char want[64];
        lc_optimizer *made = NULL;
        const int64_t shape[] = {2, 2};
        lc_module_init(&m, NULL, 0);
        (void)lc_module_add_parameter(&m, "w", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){.kind = LC_INIT_ONES});
#define BAD(k, call)                                                                                                   \
    if (i == (k)) line = __LINE__, made = (call)
        BAD(0, lc_sgd(&m, .lr = -1));
        BAD(1, lc_adam(&m, .beta1 = 1));
        BAD(2, lc_adamw(&m, .weight_decay = -1));
        BAD(3, lc_rmsprop(&m, .eps = -1));
        BAD(4, lc_adagrad(&m, .lr_decay = -1));
        BAD(5, lc_adadelta(&m, .rho = 2));
        BAD(6, lc_adamax(&m, .beta2 = 1));
        BAD(7, lc_nadam(&m, .lr = NAN));
        BAD(8, lc_radam(&m, .lr = -1));
        BAD(9, lc_rprop(&m, .eta_minus = 2));
        BAD(10, lc_lbfgs(&m, .history_size = -1));
        BAD(11, lc_muon(&m, .momentum = -1));
        BAD(12, lc_sgd(&m, .nesterov = true));
        BAD(13, lc_sgd(NULL, .lr = 1));
#undef BAD
        CHECK(!made);
        snprintf(want, sizeof want, " at test_hook_errors.c:%d", line);
        CHECK_CONTAINS(lc_error_message(), want);
        lc_module_release(&m);
    }
}

/* Reading a tensor with the wrong size: the error names the line that made the tensor. */
TEST(a_read_of_the_wrong_size_names_the_line_of_the_tensor)
{
    lc_graph *g;
    double value;
    float data[4];
    char want[64];
    CHECK_OK(lc_graph_new(&g));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *x = lc_zeros(LC_F32, 2, 2);
    snprintf(want, sizeof want, " at test_hook_errors.c:%d", __LINE__ - 1);
    CHECK_STATUS(lc_item(x, &value), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), want);
    CHECK_STATUS(lc_tensor_read(x, data, 8), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), want);
    CHECK_OK(lc_tensor_read(x, data, sizeof data));
    CHECK_OK(lc_step_end(g));
    lc_graph_free(g);
}

/* The same for a fabric, manual optimization and a loss, wherever the error is found. */
typedef struct hasty {
    lc_module base;
    lc_tensor *w;
    lc_tensor *(*step)(lc_module *self, lc_tensor *x);
} hasty;

static lc_tensor *one_weight(lc_module *m)
{
    const int64_t shape[] = {1};
    return lc_module_add_parameter(m, "w", LC_F32, LC_ROW_MAJOR, 1, shape, (lc_init){.kind = LC_INIT_ONES});
}

static lc_tensor *hasty_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return ((hasty *)self)->step(self, b->x);
}

static lc_status hasty_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static const lc_module_ops automatic_ops = {
    LC_MODULE_OPS_INIT("hasty"),
    .training_step = hasty_step,
    .configure_optimizers = hasty_optimizers,
};
static const lc_module_ops manual_ops = {
    LC_MODULE_OPS_INIT("hasty"),
    .training_step = hasty_step,
    .configure_optimizers = hasty_optimizers,
    .manual_optimization = true,
};

static lc_tensor *loss_of_no_parameter(lc_module *self, lc_tensor *x)
{
    (void)self;
    return lc_mean(x);
}

static lc_tensor *loss_of_many(lc_module *self, lc_tensor *x)
{
    return lc_mul(((hasty *)self)->w, x);
}

static lc_tensor *loss_of_integers(lc_module *self, lc_tensor *x)
{
    (void)self;
    return lc_cast(lc_mean(x), LC_I64);
}

static lc_tensor *by_hand(lc_module *self, lc_tensor *x, lc_status s)
{
    (void)self;
    return s < 0 ? NULL : lc_mean(x);
}

static lc_tensor *backward_of_nothing(lc_module *self, lc_tensor *x)
{
    return by_hand(self, x, lc_manual_backward(self, NULL));
}

static lc_tensor *backward_of_many(lc_module *self, lc_tensor *x)
{
    return by_hand(self, x, lc_manual_backward(self, x));
}

static lc_tensor *backward_of_no_parameter(lc_module *self, lc_tensor *x)
{
    return by_hand(self, x, lc_manual_backward(self, lc_mean(x)));
}

static lc_tensor *step_of_nothing(lc_module *self, lc_tensor *x)
{
    return by_hand(self, x, lc_manual_step(self, lc_manual_optimizer(self, 3)));
}

static lc_tensor *backward_of_automatic(lc_module *self, lc_tensor *x)
{
    return by_hand(self, x, lc_manual_backward(self, lc_mean(x)));
}

static lc_tensor *zero_grad_of_automatic(lc_module *self, lc_tensor *x)
{
    return by_hand(self, x, lc_manual_zero_grad(self, NULL));
}

static lc_tensor *step_of_automatic(lc_module *self, lc_tensor *x)
{
    return by_hand(self, x, lc_manual_step(self, lc_manual_optimizer(self, 0)));
}

TEST(an_error_of_a_loss_names_its_line)
{
    const struct {
        const lc_module_ops *ops;
        lc_tensor *(*step)(lc_module *self, lc_tensor *x);
    } cases[] = {
        {&automatic_ops, loss_of_no_parameter},  {&automatic_ops, loss_of_many},
        {&automatic_ops, loss_of_integers},      {&automatic_ops, backward_of_automatic},
        {&automatic_ops, step_of_automatic},     {&automatic_ops, zero_grad_of_automatic},
        {&manual_ops, backward_of_nothing},      {&manual_ops, backward_of_many},
        {&manual_ops, backward_of_no_parameter}, {&manual_ops, step_of_nothing},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hasty m = {.step = cases[i].step};
        lc_trainer *t;
        char dir[256];
        CHECK(world_dir(dir, sizeof dir));
        lc_module_init(&m.base, cases[i].ops, 1);
        m.w = one_weight(&m.base);
        lc_trainer_options o = world_options(dir);
        lc_dataloader *loader = numbers_new(4, 2, false);
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK(lc_trainer_fit(t, &m.base, .train_dataloader = loader) < 0);
        const char *message = lc_error_message(), *place = strstr(message, " at test_hook_errors.c:");
        CHECK_CONTAINS(message, " at test_hook_errors.c:");
        CHECK(!strstr(message, "optimization.c"));
        CHECK(place && !strstr(place + 1, " at test_hook_errors.c:")); /* once */
        lc_trainer_free(t);
        lc_dataloader_free(loader);
        lc_module_release(&m.base);
        world_remove(dir);
    }
}

TEST(an_error_of_a_fabric_names_its_line)
{
    enum { BACKWARD, BACKWARD_NOTHING, BACKWARD_MANY, STEP_NOTHING, CLIP_TWICE, ZERO_GRAD, CASES };
    for (int i = 0; i < CASES; i++) {
        hasty m = {0};
        lc_fabric *f;
        lc_module_init(&m.base, &automatic_ops, 1);
        m.w = one_weight(&m.base);
        lc_optimizer *opt = lc_sgd(&m, .lr = 0.1);
        CHECK_OK(lc_fabric_new(&f));
        CHECK_OK(lc_fabric_setup(f, &m.base, &opt, 1));
        if (i != ZERO_GRAD) CHECK_OK(lc_fabric_begin(f));
        if (i == BACKWARD) lc_fabric_backward(f, lc_sum(lc_zeros(LC_F32, 2)));
        if (i == BACKWARD_NOTHING) lc_fabric_backward(f, NULL);
        if (i == BACKWARD_MANY) lc_fabric_backward(f, lc_zeros(LC_F32, 2));
        if (i == STEP_NOTHING) lc_fabric_step(f, NULL);
        if (i == CLIP_TWICE) (void)lc_fabric_clip_gradients(f, opt, .clip_val = 1, .max_norm = 1);
        if (i == ZERO_GRAD) lc_fabric_zero_grad(f);
        CHECK(lc_fabric_end(f) < 0);
        CHECK_CONTAINS(lc_error_message(), " at test_hook_errors.c:");
        lc_fabric_free(f);
        lc_optimizer_free(opt);
        lc_module_release(&m.base);
    }
}

TEST(a_tensor_that_is_missing_is_not_one_that_failed)
{
    double value;
    float number;
    CHECK_STATUS(lc_item(NULL, &value), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "lc_item: the tensor is NULL");
    CHECK_STATUS(lc_tensor_read(NULL, &number, sizeof number), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "lc_tensor_read: the tensor is NULL");
}

/* A wrong shape of a piece says that it is one: the program knows only the batch. */
typedef struct normed {
    world w;
    lc_batch_norm1d norm;
} normed;

static lc_tensor *normed_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mean(lc_batch_norm1d_forward(&((normed *)self)->norm, lc_unsqueeze(b->x, 1)));
}

TEST(a_shape_of_a_piece_names_the_piece)
{
    static const char *const wanted[] = {
        "training_step of normed, epoch 0, batch 0, in a chunk of 1 sample (deterministic_chunk): batch_norm: ",
        "training_step of normed, epoch 0, batch 0, in a device's part of 1 sample (data_parallel): batch_norm: ",
        "training_step of normed, epoch 0, batch 0: batch_norm: "};
    for (int k = 0; k < 3; k++) {
        normed m = {0};
        lc_trainer *t;
        char dir[256];
        lc_module_ops ops = world_ops_without_val;
        ops.name = "normed";
        ops.training_step = normed_step;
        CHECK(world_dir(dir, sizeof dir));
        world_init(&m.w, &ops, 4, 0);
        lc_batch_norm1d_init(&m.norm, &m, "norm", 1);
        m.w.batch_size = k < 2 ? 2 : 1;
        lc_trainer_options o = world_options(dir);
        o.deterministic = k == 0;
        o.deterministic_chunk = k == 0;
        o.strategy = k == 1 ? "data_parallel" : NULL;
        o.devices = k == 1 ? "2" : NULL;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_STATUS(lc_trainer_fit(t, &m.w.base), LC_ERR_SHAPE);
        CHECK_CONTAINS(lc_error_message(), wanted[k]);
        lc_trainer_free(t);
        world_release(&m.w);
        world_remove(dir);
    }
}

TEST_MAIN

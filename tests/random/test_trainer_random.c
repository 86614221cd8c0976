/* SPDX-License-Identifier: Apache-2.0 */
/* Random configurations never crash and never hang: they run, or are refused with a message. Options, callbacks with
 * random arguments, and loggers are drawn.
 *
 * To add a callback: a function that makes it, and its name in `callbacks`. */
#include "test.h"
#include "trainer_world.h"

#include <fcntl.h>

static void log_all(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "train_loss", loss, .on_step = true, .on_epoch = true, .prog_bar = true);
}

static uint64_t counter;
static uint64_t below(uint64_t n)
{
    return lc_random_below(5, counter++, n);
}
static const char *one_of(const char *const *list)
{
    uint64_t n = 0;
    while (list[n]) n++;
    return list[below(n)];
}

static const struct {
    const char *option;
    const char *values[10];
} space[] = {
    {"max_epochs", {"1", "2", "3", "0"}},
    {"min_epochs", {"none", "1", "2"}},
    {"max_steps", {"-1", "0", "1", "3", "7"}},
    {"min_steps", {"none", "1", "4"}},
    {"max_time", {"none", "10s", "2ep", "3st", "0s", "5"}},
    {"limit_train_batches", {"none", "0", "1", "2", "0.5", "1.0", "0.01"}},
    {"limit_val_batches", {"none", "0", "1", "0.5", "0.0"}},
    {"overfit_batches", {"none", "0.0", "2"}},
    {"fast_dev_run", {"false", "0", "0", "0", "0", "2"}},
    {"val_check_interval", {"none", "1", "2", "0.25", "0.5", "100", "0s", "1ep", "2st"}},
    {"check_val_every_n_epoch", {"1", "1", "2", "none"}},
    {"num_sanity_val_steps", {"0", "2", "-1"}},
    {"accumulate_grad_batches", {"1", "1", "2", "3"}},
    {"gradient_clip_val", {"none", "0", "0.5"}},
    {"gradient_clip_algorithm", {"none", "norm", "value"}},
    {"log_every_n_steps", {"1", "2", "50", "0"}},
    {"barebones", {"false", "false", "false", "true"}},
    {"enable_checkpointing", {"auto", "true", "false"}},
    {"save_top_k", {"1", "0", "-1", "2"}},
    {"save_last", {"auto", "true", "false"}},
    {"monitor", {"none", "val_loss", "train_loss", "nope"}},
    {"every_n_train_steps", {"none", "0", "1", "3"}},
    {"every_n_epochs", {"none", "0", "1", "2"}},
    {"early_stopping", {"none", "none", "val_loss", "train_loss_epoch", "nope"}},
    {"patience", {"0", "1", "3"}},
    {"reload_dataloaders_every_n_epochs", {"0", "1", "2"}},
    {"inference_mode", {"true", "false"}},
    {"detect_anomaly", {"false", "true"}},
    {"save_on_train_epoch_end", {"auto", "true", "false"}},
    {"filename", {"none", "x", "{epoch}-{train_loss:.3f}", "{step", "a/{val_loss}"}},
    {"logger", {"none", "csv", "csv,sqlite", "tensorboard,stream", "csv,csv", "nope"}},
    {"profiler", {"none", "none", "trace", "nope"}},
};

/* ---- callbacks ---- */

static int nowhere; /* a file descriptor of /dev/null */
static char where[300];

static unsigned char choice(void)
{
    return (unsigned char)below(3); /* LC_AUTO, LC_ON, LC_OFF in some order */
}
static const char *metric(void)
{
    static const char *const names[] = {"train_loss", "val_loss", "train_loss_epoch", "nope", NULL};
    return one_of(names);
}
static lc_status checkpoints(lc_callback *out)
{
    lc_model_checkpoint_args a = lc_model_checkpoint_defaults();
    a.dirpath = below(2) ? where : NULL;
    a.monitor = below(2) ? metric() : NULL;
    a.save_last = choice();
    a.save_top_k = (int64_t)below(4) - 1;
    a.save_on_exception = below(2);
    a.save_weights_only = below(2);
    a.save_on_train_epoch_end = choice();
    a.enable_version_counter = choice();
    a.wait = below(2);
    if (below(2))
        a.every_n_train_steps = 1 + (int64_t)below(3);
    else
        a.every_n_epochs = (int64_t)below(3);
    return lc_model_checkpoint_new(&a, out);
}
static lc_status on_exception(lc_callback *out)
{
    return lc_on_exception_checkpoint(out, .dirpath = where);
}
static lc_status stopping(lc_callback *out)
{
    return lc_early_stopping(out, .monitor = metric(), .patience = (int64_t)below(3), .strict = choice(),
                             .check_finite = choice(), .stopping_threshold = below(2) ? 0 : LC_NOT_GIVEN,
                             .divergence_threshold = below(4) == 0 ? 1e6 : LC_NOT_GIVEN,
                             .check_on_train_epoch_end = choice());
}
static lc_status timer(lc_callback *out)
{
    return lc_timer_new(below(4) ? 100 : 0, below(2), out);
}
static lc_status rates(lc_callback *out)
{
    static const char *const how[] = {"step", "epoch", NULL};
    return lc_learning_rate_monitor(out, .logging_interval = below(2) ? one_of(how) : NULL, .log_momentum = below(2));
}
static lc_status device_stats(lc_callback *out)
{
    return lc_device_stats_monitor_new(NULL, out);
}
static lc_status throughput(lc_callback *out)
{
    return lc_throughput_monitor(out, .available_flops = 1e9, .window_size = 2 + (int64_t)below(3));
}
static lc_status summary(lc_callback *out)
{
    return lc_model_summary(out, .max_depth = (int)below(3) - 1, .fd = nowhere);
}
static lc_status bar(lc_callback *out)
{
    return lc_progress_bar(out, .fd = nowhere, .style = (unsigned char)below(3));
}
static lc_status rich_bar(lc_callback *out)
{
    return lc_rich_progress_bar(out, .fd = nowhere, .style = (unsigned char)below(3), .leave = below(2));
}
static lc_status windows(lc_callback *out)
{
    const lc_accumulation list[] = {{(int64_t)below(3), 1 + (int64_t)below(3)}};
    return lc_gradient_accumulation_scheduler(out, .scheduling = list, .n_scheduling = 1);
}
static lc_status averaging(lc_callback *out)
{
    return lc_weight_averaging(out, .use_buffers = choice());
}
static lc_status ema(lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.5, .update_every_n_steps = (int64_t)below(3));
}
static lc_status swa(lc_callback *out)
{
    static const double lr = 0.01;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1,
                                          .swa_epoch_start = below(2) ? LC_EPOCHS(1) : LC_FRACTION(0.5));
}
static lc_status backbone(lc_callback *out)
{
    return lc_backbone_finetuning(out, .unfreeze_backbone_at_epoch = 1);
}
static lc_status pruning(lc_callback *out)
{
    return lc_model_pruning(out, .pruning_fn = below(2) ? "l1_unstructured" : "random_unstructured",
                            .prune_on_train_epoch_end = choice());
}
static lc_status spikes(lc_callback *out)
{
    return lc_spike_detection(out, .skip = true, .window = (int64_t)below(4), .rtol = 0.5,
                              .exclude_batches_path = where);
}
static lc_status norms(lc_callback *out)
{
    return lc_gradient_norm_monitor(out, .norm_type = below(2) ? INFINITY : 0, .every_step = below(2));
}
static lc_status histograms(lc_callback *out)
{
    return lc_weight_histogram(out, .every_n_train_steps = (int64_t)below(3), .gradients = below(2));
}
static lc_status rate_finder(lc_callback *out)
{
    return lc_learning_rate_finder(out, .num_training = 3);
}
static lc_status size_finder(lc_callback *out)
{
    return lc_batch_size_finder_new(NULL, out); /* the module has no such hyperparameter */
}
static lc_status lambda(lc_callback *out)
{
    return lc_lambda_callback_new(NULL, out);
}

static lc_status (*const callbacks[])(lc_callback *out) = {
    checkpoints, on_exception, stopping,   timer,       rates,       device_stats, throughput, summary,
    bar,         rich_bar,     windows,    averaging,   ema,         swa,          backbone,   pruning,
    spikes,      norms,        histograms, rate_finder, size_finder, lambda,
};
enum { CALLBACKS = sizeof callbacks / sizeof *callbacks };

/* None, or some in random order, possibly with duplicates. */
static lc_status add_callbacks(lc_trainer *t)
{
    uint64_t n = below(3) ? below(5) : 0;
    for (uint64_t i = 0; i < n; i++) {
        lc_callback cb;
        LC_TRY(callbacks[below(CALLBACKS)](&cb));
        LC_TRY(lc_trainer_add_callback(t, cb));
    }
    return LC_OK;
}

TEST(configurations)
{
    int n, ran = 0, refused = 0;
    const lc_option *table = lc_trainer_option_table(&n);
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    snprintf(where, sizeof where, "%s/where", dir);
    CHECK_EQ(mkdir((const char *)where, 0777), 0);
    nowhere = open("/dev/null", O_WRONLY);
    for (int k = 0; k < 400; k++) {
        static memory_logger rows;
        world m;
        lc_trainer *t = NULL;
        lc_trainer_options o = world_options(dir);
        lc_logger logger = {&memory_ops, &rows};
        memset(&rows, 0, sizeof rows);
        if (below(2)) {
            o.loggers = &logger;
            o.n_loggers = 1;
        }
        o.handle_signals = false;
        for (size_t i = 0; i < sizeof space / sizeof *space; i++) {
            if (below(3) != 0) continue;
            for (int j = 0; j < n; j++)
                if (!strcmp(table[j].name, space[i].option))
                    CHECK_OK(lc_option_set_text(&table[j], &o, one_of(space[i].values)));
        }
        if (o.max_epochs == LC_UNSET) o.max_epochs = 2;
        world_init(&m, &world_ops, (int64_t)below(6), 1 + (int64_t)below(3));
        m.log_train = log_all;
        m.unsized = below(4) == 0;
        m.n_val2 = (int64_t)below(3);
        m.lr = 0.1;
        lc_status s = lc_trainer_new(&o, &t);
        if (s >= 0) s = add_callbacks(t);
        if (s >= 0) s = lc_trainer_fit(t, &m.base);
        if (s >= 0 && below(2)) s = lc_trainer_validate(t, &m.base);
        if (s >= 0 && below(2)) s = lc_trainer_fit(t, &m.base);
        if (getenv("LIGHTC_TEST_SHOW")) printf("  %d: %s\n", k, s < 0 ? lc_error_message() : "ran");
        if (s < 0) {
            refused++;
            CHECK(lc_error_message()[0]);
            if (s != LC_ERR_CONFIG && s != LC_ERR_STATE)
                TEST_FAIL("configuration %d: %s: %s", k, lc_status_text(s), lc_error_message());
        } else {
            ran++;
        }
        lc_trainer_free(t);
        world_release(&m);
    }
    world_remove(dir);
    close(nowhere);
    CHECK(ran > 20 && refused > 20);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that was started with another model, other options or other data is found, and the difference is named. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

typedef enum difference { SHAPE, NAME, MORE, FEWER, FROZEN, DTYPE, DIFFERENCES } difference;

typedef lc_status run_fn(lc_trainer *t, lc_module *m, const lc_run_args *args);

typedef struct odd_model {
    difference how;
    const char *strategy;
    run_fn *run;
} odd_model;

static lc_status another_model(lc_comm *comm, void *ctx)
{
    const odd_model *odd = ctx;
    small_net m = {0};
    lc_linear more;
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    difference how = lc_comm_rank(comm) ? odd->how : DIFFERENCES;
    int64_t width = 8 + (how == SHAPE);
    opt.strategy = odd->strategy;
    lc_module_init(&m.base, &small_net_ops, 1);
    lc_linear_init(&m.l1, &m, how == NAME ? "first" : "l1", FEATURES, width, .no_bias = how == FEWER);
    lc_linear_init(&m.l2, &m, "l2", width, CLASSES, .dtype = how == DTYPE ? LC_F64 : LC_F32);
    if (how == MORE) lc_linear_init(&more, &m, "l3", 2, 2);
    if (how == FROZEN) lc_module_requires_grad(&m.l2.base, false);
    LC_TRY(lc_metric_new("Accuracy", &m.accuracy, .num_classes = CLASSES));
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_run_args args = LC_ARGS(lc_run, .train_dataloader = train);
    if (odd->run != lc_trainer_fit_with) args = LC_ARGS(lc_run, .dataloaders = &train, .n_dataloaders = 1);
    lc_status s = odd->run(t, &m.base, &args);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return lc_fail(s, "%s", message);
}

static void check_models(run_fn *run)
{
    static const char *const differ[DIFFERENCES] = {
        [SHAPE] = "rank 1 has l1.weight f32 [9,6] but rank 0 has l1.weight f32 [8,6]",
        [NAME] = "rank 1 has first.weight f32 [8,6] but rank 0 has l1.weight f32 [8,6]",
        [MORE] = "rank 1 has l3.weight f32 [2,2] but rank 0 has end",
        [FEWER] = "rank 1 has l2.weight f32 [3,8] but rank 0 has l1.bias f32 [8]",
        [FROZEN] = "rank 1 has l2.weight f32 [3,8] frozen but rank 0 has l2.weight f32 [3,8]",
        [DTYPE] = "rank 1 has l2.weight f64 [3,8] but rank 0 has l2.weight f32 [3,8]",
    };
    for (int how = 0; how < DIFFERENCES; how++)
        for (int sharded = 0; sharded < 2; sharded++) {
            odd_model odd = {(difference)how, sharded ? "sharded" : "ddp", run};
            world *w = world_run("threads", 2, another_model, &odd);
            for (int i = 0; i < 2; i++)
                if (w->ranks[i].status >= 0 || !strstr(w->ranks[i].message, differ[how]))
                    TEST_FAIL("%s, rank %d: %s", odd.strategy, i, w->ranks[i].message);
            world_free(w);
        }
}

TEST(different_models_are_named)
{
    check_models(lc_trainer_fit_with);
}

TEST(different_models_are_named_if_nothing_is_trained)
{
    check_models(lc_trainer_validate_with);
    check_models(lc_trainer_predict_with);
}

/* Rank 2 differs from the others in these. */
typedef struct odd {
    int64_t max_epochs, samples, batch;
    uint64_t seed;
    const char *root;
    bool validates;
    const char *option; /* on the command line */
    bool combines;      /* all ranks: the loader is one of two of a combined one */
} odd;

static lc_status another_run(lc_comm *comm, void *ctx)
{
    bool is_odd = lc_comm_rank(comm) == 2;
    odd usual = {.max_epochs = 1, .samples = 60, .batch = 4, .seed = 4}, mine = is_odd ? *(odd *)ctx : usual;
    small_net m = {0};
    lc_dataloader *train, *val, *parts[2];
    lc_dataset *d;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    opt.strategy = "ddp";
    opt.max_epochs = mine.max_epochs;
    opt.default_root_dir = mine.root;
    opt.threads = is_odd ? 1 : 2;
    char option[64], *argv[] = {(char *)"test", option};
    snprintf(option, sizeof option, "%s", mine.option ? mine.option : "");
    if (mine.option) LC_TRY(lc_trainer_options_parse(&opt, 2, argv));
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    LC_TRY(lc_array_dataset_new(mine.samples, 2, arrays, &d));
    LC_TRY(lc_dataloader_new(&train, .dataset = d, .batch_size = mine.batch, .shuffle = true, .seed = mine.seed));
    lc_dataset_unref(d);
    if (((odd *)ctx)->combines) {
        LC_TRY(loader_of(0, SAMPLES, 4, false, &parts[0]));
        parts[1] = train;
        LC_TRY(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, parts, &train));
    }
    LC_TRY(loader_of(SAMPLES - VAL, VAL, 4, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_run_args args = LC_ARGS(lc_run, .train_dataloader = train, .val_dataloader = mine.validates ? val : NULL);
    lc_status s = lc_trainer_fit_with(t, &m.base, &args);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

#define OPTION(text)                                                                                                   \
    {                                                                                                                  \
        .max_epochs = 1, .samples = 60, .batch = 4, .seed = 4, .option = (text)                                        \
    }

TEST(different_options_and_data_are_named)
{
    static const struct {
        odd odd;
        const char *message; /* "": this may differ */
    } cases[] = {
        {{1, 60, 4, 4, "/elsewhere", false}, ""},
        {{2, 60, 4, 4, NULL, false}, "rank 2 has --max_epochs 2 but rank 0 has --max_epochs 1"},
        {{1, 60, 4, 4, NULL, true}, "rank 2 has a validation but rank 0 has no validation"},
        {{1, 59, 4, 4, NULL, false}, "rank 2 has train loader 0: 5 batches: 59 samples of "},
        {{1, 60, 5, 4, NULL, false}, "rank 2 has train loader 0: 4 batches: "},
        {{1, 60, 2, 4, NULL, false}, "rank 2 has train loader 0: 10 batches: "}, /* not the minimum over ranks */
        {{1, 60, 4, 5, NULL, false}, "random (seed 5) but rank 0 has train loader 0: "},
        {{1, 60, 4, 5, NULL, false, NULL, true}, "random (seed 5)) but rank 0 has train loader 0: "},
        {.odd = OPTION("--bucket_cap_mb=3"), "rank 2 has --bucket_cap_mb 3 but rank 0 has --bucket_cap_mb 0.5"},
        {.odd = OPTION("--max_steps=3"), "rank 2 has --max_steps 3 but rank 0 has --max_steps "},
        {.odd = OPTION("--limit_train_batches=2"), "rank 2 has --limit_train_batches 2 but rank 0 has "},
        {.odd = OPTION("--accumulate_grad_batches=2"), "rank 2 has --accumulate_grad_batches 2 but rank 0 has "},
        {.odd = OPTION("--gradient_clip_val=0.5"), "rank 2 has --gradient_clip_val 0.5 but rank 0 has "},
        {.odd = OPTION("--seed=7"), "rank 2 has --seed 7 but rank 0 has --seed "},
        {.odd = OPTION("--strategy=sharded"), "rank 2 has --strategy sharded but rank 0 has --strategy ddp"},
        {.odd = OPTION("--deterministic=true"), "rank 2 has --deterministic true but rank 0 has "},
        {.odd = OPTION("--sync_batchnorm=true"), "rank 2 has --sync_batchnorm true but rank 0 has "},
        {.odd = OPTION("--state_dict_type=sharded"), "rank 2 has --state_dict_type sharded but rank 0 has "},
        {.odd = OPTION("--monitor=val/acc"), "rank 2 has --monitor val/acc but rank 0 has --monitor "},
        {.odd = OPTION("--threads=3"), ""},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        odd o = cases[k].odd;
        world *w = world_run("threads", 3, another_run, &o);
        for (int i = 0; i < 3; i++) {
            if (*cases[k].message ? w->ranks[i].status >= 0 : w->ranks[i].status < 0)
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
            if (!strstr(w->ranks[i].message, cases[k].message))
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
        }
        world_free(w);
    }
}

/* ---- loggers ---- */

/* One rank has loggers, the other none. */
typedef struct logging_rank {
    int rank;
    const char *root;
    char run_dir[2][400];
} logging_rank;

static lc_status one_logs(lc_comm *comm, void *ctx)
{
    logging_rank *j = ctx;
    int rank = lc_comm_rank(comm);
    small_net m = {0};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_callback rates;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "ddp";
    opt.max_epochs = 1;
    opt.default_root_dir = j->root;
    opt.logger = rank == j->rank ? "csv" : "none";
    opt.callbacks = &rates;
    opt.n_callbacks = j->rank == 0; /* needs a logger if it logs */
    if (opt.n_callbacks) LC_TRY(lc_learning_rate_monitor_new(NULL, &rates));
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, 4, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_run_args args = LC_ARGS(lc_run, .train_dataloader = train, .val_dataloader = val);
    lc_status s = lc_trainer_fit_with(t, &m.base, &args);
    if (s >= 0) s = lc_trainer_validate_with(t, &m.base, &args);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    snprintf(j->run_dir[rank], sizeof j->run_dir[rank], "%s", lc_trainer_run_dir(t));
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

TEST(loggers_are_those_of_rank_0)
{
    for (int rank = 0; rank < 2; rank++) {
        logging_rank j = {.rank = rank, .root = fresh_dir("loggers")};
        char want[400] = "";
        if (rank == 0) snprintf(want, sizeof want, "%s/lightning_logs/version_0", j.root);
        CHECK_RANKS("threads", 2, one_logs, &j);
        for (int i = 0; i < 2; i++) CHECK_STR(j.run_dir[i], want);
    }
}

/* ---- logged names ---- */

/* Rank 1 logs another name, or in another order, in training or in validation. */
typedef struct odd_log {
    const char *names[2]; /* of rank 1; the others log "a", then "b" */
    bool validates;
} odd_log;

typedef struct logging_net {
    small_net base;
    const odd_log *odd;
    bool is_odd;
} logging_net;

static void log_both(logging_net *m)
{
    for (int i = 0; i < 2; i++) {
        const char *name = m->is_odd ? m->odd->names[i] : i ? "b" : "a";
        if (name) lc_log_value(&m->base.base, name, i, .on_epoch = LC_ON, .on_step = LC_OFF);
    }
}

static lc_tensor *logging_step(lc_module *self, const lc_batch *b, int64_t i)
{
    logging_net *m = (logging_net *)self;
    if (!m->odd->validates) log_both(m);
    return small_net_training_step(self, b, i);
}

static lc_status logging_validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    logging_net *m = (logging_net *)self;
    (void)b, (void)i, (void)loader;
    if (m->odd->validates) log_both(m);
    return LC_OK;
}

static const lc_module_ops logging_ops = {
    LC_MODULE_OPS_INIT("logging_net"),
    .training_step = logging_step,
    .validation_step = logging_validation_step,
    .configure_optimizers = small_net_sgd,
};

static lc_status logs_something_else(lc_comm *comm, void *ctx)
{
    logging_net m = {.odd = ctx, .is_odd = lc_comm_rank(comm) == 1};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "ddp";
    opt.max_epochs = 1;
    LC_TRY(small_net_init(&m.base, &logging_ops, 1));
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(loader_of(0, SAMPLES, 4, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train, .val_dataloader = val);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m.base);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

TEST(different_logged_names_are_named)
{
    static const struct {
        odd_log logs;
        const char *message;
    } cases[] = {
        {{{"a", "b"}, false}, ""},
        {{{"a", "c"}, false}, "rank 1 has c (mean) but rank 0 has b (mean)"},
        {{{"b", "a"}, false}, "rank 1 has b (mean) but rank 0 has a (mean)"},
        {{{"a", NULL}, false}, "rank 1 has no more but rank 0 has b (mean)"},
        {{{"b", "a"}, true}, "rank 1 has b (mean) but rank 0 has a (mean)"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        odd_log rank_1 = cases[k].logs;
        world *w = world_run("threads", 3, logs_something_else, &rank_1);
        for (int i = 0; i < 3; i++)
            if ((w->ranks[i].status < 0) != (*cases[k].message != 0) || !strstr(w->ranks[i].message, cases[k].message))
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
        world_free(w);
    }
}

/* ---- optimizers and schedules ---- */

typedef enum odd_training { LR, KIND, FLAGS, GROUPS, SCHEDULE, EVERY, ODD_TRAININGS } odd_training;

typedef struct odd_net {
    small_net base;
    odd_training how; /* ODD_TRAININGS: no difference */
} odd_net;

static lc_status odd_optimizers(lc_module *self, lc_optimizers *out)
{
    const odd_net *m = (odd_net *)self;
    lc_tensor *weights[] = {m->base.l1.weight, m->base.l2.weight}, *rest[] = {m->base.l1.bias, m->base.l2.bias};
    lc_tensor *other[] = {m->base.l1.bias, m->base.l2.weight}, *other_rest[] = {m->base.l1.weight, m->base.l2.bias};
    bool swapped = m->how == GROUPS;
    lc_optimizer *o = m->how == KIND ? lc_rmsprop(self, .no_parameters = true, .lr = 0.1)
                                     : lc_sgd(self, .no_parameters = true, .lr = m->how == LR ? 0.2 : 0.1,
                                              .maximize = m->how == FLAGS, .master_weights = m->how == FLAGS);
    if (lc_optimizer_add_group(o, "weights", swapped ? other : weights, 2) < 0) return LC_ERR_USER;
    if (lc_optimizer_add_group(o, "rest", swapped ? other_rest : rest, 2) < 0) return LC_ERR_USER;
    LC_TRY(lc_optimizers_add(out, o));
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_step_lr(o, .step_size = m->how == SCHEDULE ? 3 : 2, .gamma = 0.5),
                                   .frequency = m->how == EVERY ? 2 : 1});
}

static const lc_module_ops odd_ops = {
    LC_MODULE_OPS_INIT("odd_net"),
    .training_step = small_net_training_step,
    .configure_optimizers = odd_optimizers,
};

static lc_status another_training(lc_comm *comm, void *ctx)
{
    odd_net m = {.how = lc_comm_rank(comm) == 1 ? *(odd_training *)ctx : ODD_TRAININGS};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "sharded";
    opt.max_epochs = 1;
    LC_TRY(small_net_init(&m.base, &odd_ops, 1));
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

TEST(different_optimizers_are_named)
{
    static const char *const differ[ODD_TRAININGS] = {
        [LR] = "rank 1 has optimizer 0, group 0: SGD lr=0.2 ",
        [KIND] = "rank 1 has optimizer 0, group 0: RMSprop lr=0.1 ",
        [FLAGS] = "dampening=0 maximize master_weights but rank 0 has",
        [GROUPS] = "rank 1 has l1.weight in group 1 of optimizer 0 but rank 0 has l1.weight in group 0 of optimizer 0",
        [SCHEDULE] = "StepLR step_size=3 gamma=0.5 but rank 0 has",
        [EVERY] = "rank 1 has scheduler 0 of optimizer 0, each 2 epoch",
    };
    for (odd_training how = 0; how <= ODD_TRAININGS; how++) {
        world *w = world_run("threads", 2, another_training, &how);
        for (int i = 0; i < 2; i++)
            if (how == ODD_TRAININGS ? w->ranks[i].status < 0 : !strstr(w->ranks[i].message, differ[how]))
                TEST_FAIL("case %d, rank %d: %s", (int)how, i, w->ranks[i].message);
        world_free(w);
    }
}

/* ---- the number of ranks ---- */

static lc_status asks_for(lc_comm *comm, void *ctx)
{
    const lc_trainer_options *wanted = ctx;
    lc_trainer_options opt = quiet_options(comm);
    lc_trainer *t;
    opt.strategy = "ddp";
    opt.devices = wanted->devices;
    opt.num_nodes = wanted->num_nodes;
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_trainer_free(t);
    return LC_OK;
}

/* A number of devices that is not that of the program's own communicator is an error, not ignored. */
TEST(another_number_of_ranks_is_named)
{
    static const struct {
        const char *devices;
        int64_t nodes;
        const char *message;
    } cases[] = {
        {"4", 1, NULL},
        {"2", 2, NULL},
        {"auto", 1, NULL},
        {"2", 1, "devices=2 and num_nodes=1, but the program's own communicator has 4 ranks; drop --devices"},
        {"4", 2, "devices=4 and num_nodes=2, but the program's own communicator has 4 ranks"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        lc_trainer_options opt = {.devices = cases[k].devices, .num_nodes = cases[k].nodes};
        world *w = world_run("threads", 4, asks_for, &opt);
        for (int i = 0; i < 4; i++)
            if (w->ranks[i].status != (cases[k].message ? LC_ERR_CONFIG : LC_OK) ||
                (cases[k].message && !strstr(w->ranks[i].message, cases[k].message)))
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
        world_free(w);
    }
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Datamodules: their hooks in order, their state, errors, and hooks of transfer. */
#include "data_run.h"

/* ---- a datamodule that writes its hooks into the module's trace ---- */
typedef struct numbers_data {
    trace *tr;
    int64_t n_train, n_val, saved, loaded;
    lc_trainer *t; /* the only way for a hook to get it */
} numbers_data;

#define DATA_TRACE(self, t, name) trace_add(((numbers_data *)(self))->tr, (t), "d." name)

static lc_status d_prepare_data(void *self)
{
    DATA_TRACE(self, NULL, "prepare_data");
    return LC_OK;
}
static lc_status d_setup(void *self, lc_trainer *t, lc_stage stage)
{
    (void)stage;
    DATA_TRACE(self, t, "setup");
    return LC_OK;
}
static lc_status d_train_dataloader(void *self, lc_trainer *t, lc_loaders *out)
{
    DATA_TRACE(self, t, "train_dataloader");
    return lc_loaders_add(out, numbers_new(((numbers_data *)self)->n_train, 1, false));
}
static lc_status d_val_dataloader(void *self, lc_trainer *t, lc_loaders *out)
{
    DATA_TRACE(self, t, "val_dataloader");
    return lc_loaders_add(out, numbers_new(((numbers_data *)self)->n_val, 1, false));
}
static lc_status d_on_after_batch_transfer(void *self, lc_trainer *t, lc_batch *batch, int d)
{
    (void)d;
    DATA_TRACE(self, t, "on_after_batch_transfer");
    batch->x = batch->tensors[0] = lc_add_scalar(batch->x, 10); /* recorded as part of the step */
    return LC_OK;
}
static lc_status d_save_state(void *self, lc_trainer *t, lc_state *state)
{
    (void)t;
    return lc_state_set_int(state, "saved", ++((numbers_data *)self)->saved);
}
static lc_status d_load_state(void *self, lc_trainer *t, const lc_state *state)
{
    (void)t;
    return lc_state_get_int(state, "saved", &((numbers_data *)self)->loaded);
}
static lc_status d_on_exception(void *self, lc_trainer *t, lc_status s, const char *message)
{
    (void)s, (void)message;
    DATA_TRACE(self, t, "on_exception");
    return LC_OK;
}
static lc_status d_teardown(void *self, lc_trainer *t, lc_stage stage)
{
    (void)stage;
    DATA_TRACE(self, t, "teardown");
    return LC_OK;
}
static const lc_datamodule_ops data_ops = {LC_DATAMODULE_OPS_INIT("numbers"),
                                           .prepare_data = d_prepare_data,
                                           .setup = d_setup,
                                           .load_state = d_load_state,
                                           .train_dataloader = d_train_dataloader,
                                           .val_dataloader = d_val_dataloader,
                                           .test_dataloader = d_val_dataloader,
                                           .predict_dataloader = d_val_dataloader,
                                           .on_after_batch_transfer = d_on_after_batch_transfer,
                                           .save_state = d_save_state,
                                           .on_exception = d_on_exception,
                                           .teardown = d_teardown};

TEST(datamodule_in_order)
{
    static setting s;
    char got[4096];
    begin(&s, &world_ops, 7, 7);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    s.o.enable_checkpointing = LC_ON;
    numbers_data d = {.tr = &s.m.tr, .n_train = 2, .n_val = 1};
    lc_datamodule dm = {&data_ops, &d};
    lc_run_args args = LC_ARGS(lc_run, .datamodule = &dm);
    s.m.lr = 1;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit_with(s.t, &s.m.base, &args));
    CHECK_STR(only(&s.m.tr,
                   " d.prepare_data d.setup cb.setup m.setup m.configure_optimizers d.train_dataloader "
                   "d.val_dataloader d.on_after_batch_transfer cb.on_train_start cb.on_train_batch_start "
                   "cb.on_validation_start cb.on_validation_batch_start cb.on_save_checkpoint cb.on_fit_end d.teardown "
                   "cb.teardown m.teardown ",
                   got, sizeof got),
              "d.prepare_data d.setup cb.setup m.setup m.configure_optimizers d.train_dataloader d.val_dataloader "
              "cb.on_train_start d.on_after_batch_transfer cb.on_train_batch_start d.on_after_batch_transfer "
              "cb.on_train_batch_start cb.on_validation_start d.on_after_batch_transfer cb.on_validation_batch_start "
              "cb.on_save_checkpoint cb.on_fit_end d.teardown cb.teardown m.teardown ");
    CHECK_NEAR(world_weight(&s.m), 1 - 10 - 11, 1e-5);  /* the batches are 10 and 11 after the transfer */
    CHECK_EQ(lc_trainer_num_training_batches(s.t), -1); /* its loaders were dropped at the end of the run */
    CHECK(lc_trainer_datamodule(s.t) && lc_trainer_datamodule(s.t)->self == &d);
    CHECK_EQ(d.saved, 1);

    /* Its state is restored when the run resumes. */
    lc_trainer_free(s.t);
    s.o.n_callbacks = 0;
    s.o.max_epochs = 2;
    s.o.ckpt_path = "last";
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit_with(s.t, &s.m.base, &args));
    CHECK_EQ(d.loaded, 1);
    CHECK_EQ(lc_trainer_global_step(s.t), 4);

    CHECK_OK(lc_trainer_validate_with(s.t, &s.m.base, &args));
    CHECK_EQ(lc_trainer_results(s.t, 0).n, 1);
    CHECK_NEAR(lc_trainer_results(s.t, 0).values[0].value, 10, 1e-6);
    CHECK_OK(lc_trainer_test_with(s.t, &s.m.base, &args));
    CHECK_OK(lc_trainer_predict_with(s.t, &s.m.base, &args));
    CHECK_EQ(lc_trainer_prediction_count(s.t, 0), 1);
    end(&s);
}

TEST(datamodule_and_errors)
{
    static setting s;
    char got[1024];
    begin(&s, &world_ops, 4, 1);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    s.m.raise_at[0] = 0;
    s.m.raise_at[1] = 1;
    numbers_data d = {.tr = &s.m.tr, .n_train = 2, .n_val = 1};
    lc_datamodule dm = {&data_ops, &d};
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base, .datamodule = &dm), LC_ERR_USER);
    CHECK_STR(only(&s.m.tr, " cb.on_exception d.on_exception d.teardown cb.teardown m.teardown ", got, sizeof got),
              "cb.on_exception d.on_exception d.teardown cb.teardown m.teardown ");
    lc_dataloader *l = numbers_new(2, 1, false);
    CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base, .datamodule = &dm, .train_dataloader = l), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "one of the two");
    lc_dataloader_free(l);
    /* With a datamodule the module's loaders are not used. */
    lc_datamodule_ops none = data_ops;
    none.train_dataloader = NULL;
    lc_datamodule empty = {&none, &d};
    CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base, .datamodule = &empty), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "numbers has no train_dataloader");
    end(&s);
}

static lc_status m_before(lc_module *self, lc_batch *batch, int d)
{
    (void)batch, (void)d;
    WORLD_TRACE(self, "on_before_batch_transfer");
    return LC_OK;
}
static lc_status m_transfer(lc_module *self, lc_batch *batch, int d)
{
    (void)batch, (void)d;
    WORLD_TRACE(self, "transfer_batch_to_device");
    return LC_OK;
}
static lc_status m_after(lc_module *self, lc_batch *batch, int d)
{
    (void)batch, (void)d;
    WORLD_TRACE(self, "on_after_batch_transfer");
    return LC_OK;
}

TEST(the_datamodules_transfer_hooks_win)
{
    static setting s;
    char got[1024];
    lc_module_ops ops = world_ops;
    ops.on_before_batch_transfer = m_before;
    ops.transfer_batch_to_device = m_transfer;
    ops.on_after_batch_transfer = m_after;
    ops.val_dataloader = NULL;
    ops.validation_step = NULL;
    begin(&s, &ops, 1, 0);
    numbers_data d = {.tr = &s.m.tr, .n_train = 1, .n_val = 1};
    lc_datamodule_ops trains = data_ops;
    trains.val_dataloader = NULL;
    lc_datamodule dm = {&trains, &d};
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base, .datamodule = &dm));
    CHECK_STR(
        only(&s.m.tr,
             " m.on_before_batch_transfer m.transfer_batch_to_device m.on_after_batch_transfer "
             "d.on_after_batch_transfer m.on_train_batch_start ",
             got, sizeof got),
        "m.on_before_batch_transfer m.transfer_batch_to_device d.on_after_batch_transfer m.on_train_batch_start ");
    end(&s);
}

static void count_free(void *self)
{
    ++*(int *)self;
}

TEST(datamodule_from_datasets)
{
    static setting s;
    float x[6] = {0, 1, 2, 3, 4, 5};
    lc_dataset *train, *val;
    lc_datamodule dm;
    lc_array a = {.field = {.name = "x", .dtype = LC_F32}, .data = x};
    CHECK_OK(lc_array_dataset_new(6, 1, &a, &train));
    CHECK_OK(lc_array_dataset_new(3, 1, &a, &val));
    CHECK_OK(lc_datamodule_from_datasets(&(lc_datasets){.train = train, .val = val, .batch_size = 2}, &dm));
    lc_dataset_unref(train);
    lc_dataset_unref(val);
    begin(&s, &world_ops, 1, 1);
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base, .datamodule = &dm));
    CHECK_EQ(lc_trainer_global_step(s.t), 3);
    CHECK_STATUS(lc_trainer_test(s.t, &s.m.base, .datamodule = &dm), LC_ERR_CONFIG);
    lc_datamodule_release(&dm);
    end(&s);
    /* The ops of a program that was built before the last slot was added. */
    int freed = 0;
    lc_datamodule_ops old = {LC_DATAMODULE_OPS_INIT("old"), .free = count_free};
    old.size = offsetof(lc_datamodule_ops, hyperparameters);
    dm = (lc_datamodule){&old, &freed};
    lc_datamodule_release(&dm);
    CHECK_EQ(freed, 1);
}

TEST_MAIN

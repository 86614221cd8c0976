/* SPDX-License-Identifier: Apache-2.0 */
/* A run's loaders: combined loaders, loaders with a state of their own, options that change loaders, errors of worker
 * threads, and a rank's part. */
#include "data_run.h"

/* ---- combined loaders ---- */

static char order[1024];

static const char *batches_of(lc_combine mode, int64_t a, int64_t b, bool unsized, int64_t start, int64_t *length)
{
    lc_dataloader *parts[] = {numbers_new(a, 1, unsized), numbers_new(b, 1, false)}, *l;
    lc_batch *batch;
    size_t n = 0;
    order[0] = 0;
    if (lc_combined_loader_new(mode, 2, parts, &l) < 0) return lc_error_message();
    *length = lc_dataloader_length(l, 0);
    if (lc_dataloader_begin(l, 0, start) < 0) return lc_error_message();
    while (lc_dataloader_next(l, &batch) >= 0 && batch) {
        for (int i = 0; i < batch->n_parts; i++)
            n += batch->parts[i] ? (size_t)snprintf(order + n, sizeof order - n, "%g", batch_mean(batch->parts[i]))
                                 : (size_t)snprintf(order + n, sizeof order - n, "-");
        if (!batch->n_parts) n += (size_t)snprintf(order + n, sizeof order - n, "%g", batch_mean(batch));
        n += (size_t)snprintf(order + n, sizeof order - n, " ");
    }
    lc_dataloader_free(l);
    return order;
}

TEST(combined_modes)
{
    int64_t n;
    CHECK_STR(batches_of(LC_MAX_SIZE_CYCLE, 2, 3, false, 0, &n), "00 11 02 ");
    CHECK_EQ(n, 3);
    CHECK_STR(batches_of(LC_MIN_SIZE, 2, 3, false, 0, &n), "00 11 ");
    CHECK_EQ(n, 2);
    CHECK_STR(batches_of(LC_MAX_SIZE, 2, 3, false, 0, &n), "00 11 -2 ");
    CHECK_EQ(n, 3);
    CHECK_STR(batches_of(LC_SEQUENTIAL, 2, 3, false, 0, &n), "0 1 0 1 2 ");
    CHECK_EQ(n, 5);
    CHECK_STR(batches_of(LC_MAX_SIZE_CYCLE, 2, 5, true, 0, &n), "00 11 02 13 04 ");
    CHECK_EQ(n, -1);
    CHECK_STR(batches_of(LC_MAX_SIZE_CYCLE, 0, 2, false, 0, &n), "");
    CHECK_EQ(n, 0);
    /* starts in the middle */
    CHECK_STR(batches_of(LC_MAX_SIZE_CYCLE, 2, 5, false, 3, &n), "13 04 ");
    CHECK_STR(batches_of(LC_MAX_SIZE_CYCLE, 2, 5, false, 4, &n), "04 ");
    CHECK_STR(batches_of(LC_MAX_SIZE, 2, 3, false, 2, &n), "-2 ");
    CHECK_STR(batches_of(LC_SEQUENTIAL, 2, 3, false, 3, &n), "1 2 ");
    CHECK_STR(batches_of(LC_SEQUENTIAL, 2, 3, false, 2, &n), "0 1 2 ");
}

TEST(a_loader_cannot_be_twice_in_a_list)
{
    lc_dataloader *one = numbers_new(2, 1, false), *both[] = {one, one}, *combined;
    lc_loaders list = {0};
    CHECK_OK(lc_loaders_add(&list, one));
    CHECK_STATUS(lc_loaders_add(&list, one), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "the same loader is added twice");
    CHECK_STATUS(lc_combined_loader_new(LC_MAX_SIZE, 2, both, &combined), LC_ERR_ARGUMENT); /* and frees it */
    CHECK_CONTAINS(lc_error_message(), "loader 1 of a combined loader is in the list twice");
}

static lc_tensor *sum_of_parts(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)i;
    lc_tensor *sum = lc_mean(batch->parts[0]->x);
    for (int k = 1; k < batch->n_parts; k++) sum = lc_add(sum, lc_mul_scalar(lc_mean(batch->parts[k]->x), 10));
    return lc_mul(((world *)self)->w, sum);
}
static lc_status two_train_loaders(lc_module *self, lc_loaders *out)
{
    world *m = (world *)self;
    LC_TRY(lc_loaders_add(out, numbers_new(m->n_train, 1, m->unsized)));
    return lc_loaders_add(out, numbers_new(3, 1, m->unsized));
}

TEST(several_train_loaders)
{
    static setting s;
    lc_module_ops ops = world_ops_without_val;
    ops.training_step = sum_of_parts;
    ops.train_dataloader = two_train_loaders;
    for (int unsized = 0; unsized < 2; unsized++) { /* unsized: a batch, with its parts, is read ahead */
        begin(&s, &ops, 2, 0);
        s.m.lr = 1;
        s.m.unsized = unsized;
        CHECK_OK(lc_trainer_new(&s.o, &s.t));
        CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
        CHECK_EQ(lc_trainer_global_step(s.t), 3);
        CHECK_NEAR(world_weight(&s.m), 1 - (0 + 0) - (1 + 10) - (0 + 20), 1e-4);
        end(&s);
    }
}

static int64_t val_check_batch(lc_duration interval, bool unsized)
{
    static setting s;
    begin(&s, &world_ops, 4, 1);
    s.m.unsized = unsized;
    s.o.val_check_interval = interval;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    int64_t batches = lc_trainer_val_check_batch(s.t);
    end(&s);
    return batches;
}

/* At the end of an epoch the loader is free. */
TEST(validation_inside_an_epoch_needs_its_own_loader)
{
    static setting s;
    for (int inside = 0; inside < 2; inside++) {
        lc_dataloader *one = numbers_new(4, 1, false);
        begin(&s, &world_ops, 4, 1);
        s.o.val_check_interval = inside ? LC_BATCHES(2) : LC_FRACTION(1);
        CHECK_OK(lc_trainer_new(&s.o, &s.t));
        lc_status status = lc_trainer_fit(s.t, &s.m.base, .train_dataloader = one, .val_dataloader = one);
        CHECK_EQ(status, inside ? LC_ERR_CONFIG : LC_OK);
        if (inside) CHECK_CONTAINS(lc_error_message(), "make a second one over the same dataset");
        end(&s);
        lc_dataloader_free(one);
    }
}

TEST(batches_between_validations)
{
    CHECK_EQ(val_check_batch(LC_BATCHES(3), false), 3);
    CHECK_EQ(val_check_batch(LC_FRACTION(0.5), false), 2);
    CHECK_EQ(val_check_batch(LC_FRACTION(1), true), LC_VAL_EPOCH_END);
    CHECK_EQ(val_check_batch(LC_SECONDS(100), false), LC_VAL_TIME);
    CHECK_EQ(val_check_batch(LC_STEPS(2), false), LC_VAL_STEPS);
}

static lc_status no_loader(lc_module *self, lc_loaders *out)
{
    (void)self, (void)out;
    return lc_fail(LC_ERR_USER, "a loader was asked for");
}

TEST(a_limit_of_0_needs_no_loader)
{
    static setting s;
    lc_module_ops without = world_ops, failing = world_ops;
    without.train_dataloader = without.val_dataloader = without.test_dataloader = without.predict_dataloader = NULL;
    failing.train_dataloader = failing.val_dataloader = failing.test_dataloader = failing.predict_dataloader =
        no_loader;
    for (int fraction = 0; fraction < 4; fraction++) {
        begin(&s, fraction < 2 ? &failing : &without, 2, 1);
        s.o.limit_train_batches = s.o.limit_val_batches = s.o.limit_test_batches = s.o.limit_predict_batches =
            fraction % 2 ? LC_FRACTION(0) : LC_BATCHES(0);
        CHECK_OK(lc_trainer_new(&s.o, &s.t));
        CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
        CHECK(!strstr(s.m.tr.text, "on_train_start") && strstr(s.m.tr.text, "on_fit_end"));
        CHECK_OK(lc_trainer_validate(s.t, &s.m.base));
        CHECK_OK(lc_trainer_test(s.t, &s.m.base));
        CHECK_OK(lc_trainer_predict(s.t, &s.m.base));
        CHECK(!strstr(s.m.tr.text, "on_validation_start"));
        end(&s);
    }
}

/* Although there is nothing to train. */
TEST(an_impossible_interval_is_an_error)
{
    static setting s;
    for (int steps = 0; steps < 2; steps++) {
        begin(&s, &world_ops, 2, 1);
        if (steps)
            s.o.max_steps = 0;
        else
            s.o.max_epochs = 0;
        s.o.val_check_interval = LC_BATCHES(3);
        CHECK_OK(lc_trainer_new(&s.o, &s.t));
        CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), "val_check_interval");
        end(&s);
    }
}

TEST(a_training_without_batches_or_limit_is_an_error)
{
    static setting s;
    begin(&s, &world_ops_without_val, 0, 0);
    s.m.unsized = true;
    s.o.max_epochs = -1;
    s.o.max_steps = 5;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "gave no batch in epoch 0");
    end(&s);
}

/* Lightning 2.6.5 does the same: a limit is the length of a loader that has none, and a window that the end of the data
 * cuts off before the limit makes no step. */
TEST(steps_of_a_loader_without_length)
{
    static const struct {
        int64_t limit, steps;
    } cases[] = {{-1, 4}, {5, 2}, {3, 4}, {2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static setting s;
        begin(&s, &world_ops_without_val, 3, 0);
        s.m.unsized = true;
        if (cases[i].limit > 0) s.o.limit_train_batches = LC_BATCHES(cases[i].limit);
        s.o.accumulate_grad_batches = 2;
        s.o.max_epochs = 2;
        CHECK_OK(lc_trainer_new(&s.o, &s.t));
        CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
        CHECK_EQ(lc_trainer_global_step(s.t), cases[i].steps);
        end(&s);
    }
}

static lc_status ever_more_parts(lc_module *self, lc_loaders *out)
{
    lc_dataloader *two[2], *eight[8], *both[2], *all;
    (void)self;
    for (int i = 0; i < 2; i++) two[i] = numbers_new(2, 1, true);
    for (int i = 0; i < 8; i++) eight[i] = numbers_new(2, 1, true);
    LC_TRY(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, two, &both[0]));
    LC_TRY(lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 8, eight, &both[1]));
    LC_TRY(lc_combined_loader_new(LC_SEQUENTIAL, 2, both, &all));
    return lc_loaders_add(out, all);
}

TEST(combined_loaders_in_sequence)
{
    static setting s;
    lc_module_ops ops = world_ops_without_val;
    ops.training_step = sum_of_parts;
    ops.train_dataloader = ever_more_parts;
    begin(&s, &ops, 0, 0);
    s.m.lr = 1;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    CHECK_EQ(lc_trainer_global_step(s.t), 4);
    CHECK_NEAR(world_weight(&s.m), 1 - (1 + 10) - (1 + 70), 1e-4);
    end(&s);
}

/* ---- a loader with a state: a stream of numbers that never ends ---- */
typedef struct stream {
    int64_t at, n; /* `at` continues across epochs */
    int64_t done;
    float value;
    lc_tensor *x;
    lc_batch batch;
    bool sized;
} stream;
static lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    (void)epoch;
    ((stream *)self)->done = start;
    return LC_OK;
}
static lc_status stream_next(void *self, lc_batch **out)
{
    stream *s = self;
    *out = NULL;
    if (s->done >= s->n) return LC_OK;
    s->value = (float)s->at;
    lc_input_set(s->x, &s->value, 1);
    s->batch = (lc_batch){.x = s->x, .n = 1, .tensors = {s->x}, .names = {"x"}, .size = 1};
    s->at++;
    s->done++;
    *out = &s->batch;
    return LC_OK;
}
static int64_t stream_length(void *self, int64_t epoch)
{
    (void)epoch;
    return ((stream *)self)->sized ? ((stream *)self)->n : -1;
}
static lc_status stream_save(void *self, void *data, size_t *size)
{
    stream *s = self;
    if (data) memcpy(data, &s->at, sizeof s->at);
    *size = sizeof s->at;
    return LC_OK;
}
static lc_status stream_load(void *self, const void *data, size_t size)
{
    if (size != sizeof(int64_t)) return lc_fail(LC_ERR_FORMAT, "not a stream's state");
    memcpy(&((stream *)self)->at, data, size);
    return LC_OK;
}
static void stream_free(void *self)
{
    lc_tensor_unref(((stream *)self)->x);
    free(self);
}
static const lc_dataloader_ops stream_ops = {LC_DATALOADER_OPS_INIT, .name = "stream",        .begin = stream_begin,
                                             .next = stream_next,    .length = stream_length, .save = stream_save,
                                             .load = stream_load,    .free = stream_free};

static bool stream_sized, stream_combined;
static char seen[512];

static lc_status stream_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    stream *s = calloc(1, sizeof *s);
    int64_t shape[] = {1};
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory");
    s->n = ((world *)self)->n_train;
    s->sized = stream_sized;
    LC_TRY(lc_input_new(LC_F32, 1, shape, LC_ROW_MAJOR, &s->value, &s->x));
    LC_TRY(lc_dataloader_from_ops(&stream_ops, s, &l));
    LC_TRY(lc_loaders_add(out, l));
    return stream_combined ? lc_loaders_add(out, numbers_new(2, 1, !stream_sized)) : LC_OK;
}
static lc_tensor *see(lc_module *self, const lc_batch *batch, int64_t i)
{
    world *m = (world *)self;
    double value = batch_mean(batch);
    if (batch->n_parts) value += 100 * batch_mean(batch->parts[1]);
    size_t n = strlen(seen);
    snprintf(seen + n, sizeof seen - n, "%g ", value);
    if (world_at(m, m->stop_at, i)) {
        lc_fail(LC_ERR_USER, "as if the machine had died");
        return NULL;
    }
    return lc_mul(m->w, lc_mean(batch->x));
}

static void check_stream(bool sized, bool combined, const char *want)
{
    static setting s;
    lc_module_ops ops = world_ops_without_val;
    ops.training_step = see;
    ops.train_dataloader = stream_dataloader;
    stream_sized = sized;
    stream_combined = combined;
    for (int64_t k = 0; k < 8; k++) { /* fails in batch k, resumes from the checkpoint before it */
        seen[0] = 0;
        begin(&s, &ops, 4, 0);
        s.o.max_epochs = 2;
        s.o.enable_checkpointing = LC_ON;
        s.o.every_n_train_steps = 1;
        s.m.stop_at[0] = k / 4;
        s.m.stop_at[1] = k % 4;
        CHECK_OK(lc_trainer_new(&s.o, &s.t));
        CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base), LC_ERR_USER);
        lc_trainer_free(s.t);
        if (k) { /* the batch it failed in is seen again */
            char *last = seen + strlen(seen) - 1;
            while (last > seen && last[-1] != ' ') last--;
            *last = 0;
        } else {
            seen[0] = 0;
        }
        s.m.stop_at[0] = -1;
        lc_trainer_options o = s.o;
        o.ckpt_path = "last";
        CHECK_OK(lc_trainer_new(&o, &s.t));
        CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
        CHECK_STR(seen, want);
        end(&s);
    }
}

TEST(a_loaders_state_is_in_the_checkpoint)
{
    check_stream(true, false, "0 1 2 3 4 5 6 7 ");
    check_stream(false, false, "0 1 2 3 4 5 6 7 "); /* although one batch is read ahead */
    check_stream(true, true, "0 101 2 103 4 105 6 107 ");
    check_stream(false, true, "0 101 2 103 4 105 6 107 ");
}

/* ---- options ---- */

static float eight[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static lc_status shuffled_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataset *d;
    lc_dataloader *l;
    lc_array a = {.field = {.name = "x", .dtype = LC_F32}, .data = eight};
    (void)self;
    LC_TRY(lc_array_dataset_new(8, 1, &a, &d));
    lc_status s = lc_dataloader_new(&l, .dataset = d, .batch_size = 1, .shuffle = true);
    lc_dataset_unref(d);
    return s < 0 ? s : lc_loaders_add(out, l);
}
static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)t;
    if (level == LC_WARNING && strstr(text, "in order")) ++*(int *)self;
}

TEST(overfit_batches_turns_shuffling_off)
{
    static setting s;
    int warnings = 0;
    lc_module_ops ops = world_ops;
    lc_callback_ops hears = {LC_CALLBACK_OPS_INIT("hears"), .on_message = hear};
    ops.training_step = see;
    ops.train_dataloader = ops.val_dataloader = shuffled_dataloader;
    begin(&s, &ops, 0, 0);
    s.cb[s.o.n_callbacks++] = (lc_callback){&hears, &warnings};
    s.o.max_epochs = 2;
    s.o.overfit_batches = LC_BATCHES(3);
    seen[0] = 0;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    CHECK_STR(seen, "0 1 2 0 1 2 ");
    CHECK_EQ(warnings, 2);
    double v;
    CHECK_OK(lc_trainer_metric(s.t, "val_loss", &v));
    CHECK_NEAR(v, 1, 1e-6);
    end(&s);
}

static lc_status asked(lc_module *self, const char *what, lc_loaders *out)
{
    char text[64];
    snprintf(text, sizeof text, "%s%lld", what, (long long)lc_trainer_current_epoch(self->trainer));
    trace_add(&((world *)self)->tr, NULL, text);
    return lc_loaders_add(out, numbers_new(1, 1, false));
}
static lc_status asked_train(lc_module *self, lc_loaders *out)
{
    return asked(self, "TD", out);
}
static lc_status asked_val(lc_module *self, lc_loaders *out)
{
    return asked(self, "VD", out);
}

TEST(loaders_are_reloaded)
{
    static setting s;
    char got[256];
    lc_module_ops ops = world_ops;
    ops.train_dataloader = asked_train;
    ops.val_dataloader = asked_val;
    begin(&s, &ops, 1, 1);
    s.o.max_epochs = 5;
    s.o.reload_dataloaders_every_n_epochs = 2;
    s.o.num_sanity_val_steps = 1;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base));
    CHECK_STR(only(&s.m.tr, " TD0 TD2 TD4 VD0 VD2 VD4 m.on_train_epoch_end ", got, sizeof got),
              "VD0 TD0 m.on_train_epoch_end m.on_train_epoch_end TD2 VD2 m.on_train_epoch_end m.on_train_epoch_end TD4 "
              "VD4 m.on_train_epoch_end ");
    end(&s);
}

/* ---- a sample that cannot be read, on a worker thread ---- */

static int64_t broken_length(void *self)
{
    (void)self;
    return 8;
}
static lc_status broken_describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){.n = 1, .fields = {{.name = "x", .dtype = LC_F32}}};
    return LC_OK;
}
static lc_status broken_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)key, (void)scratch;
    *(float *)out[0] = (float)index;
    return index == 5 ? lc_fail(LC_ERR_IO, "sample %lld is torn", (long long)index) : LC_OK;
}
static const lc_dataset_ops broken_ops = {LC_DATASET_OPS_INIT, .name = "broken", .length = broken_length,
                                          .describe = broken_describe, .get = broken_get};
static lc_status broken_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataset *d;
    lc_dataloader *l;
    (void)self;
    LC_TRY(lc_dataset_new(&broken_ops, NULL, &d));
    lc_status s = lc_dataloader_new(&l, .dataset = d, .batch_size = 2, .num_workers = 2);
    lc_dataset_unref(d);
    return s < 0 ? s : lc_loaders_add(out, l);
}

TEST(an_error_on_a_loaders_thread)
{
    static setting s;
    char got[1024];
    lc_module_ops ops = world_ops;
    ops.train_dataloader = broken_dataloader;
    begin(&s, &ops, 0, 1);
    s.cb[s.o.n_callbacks++] = (lc_callback){&traced_ops, &s.m.tr};
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_STATUS(lc_trainer_fit(s.t, &s.m.base), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "train_dataloader, epoch 0, batch 2");
    CHECK_CONTAINS(lc_error_message(), "sample 5 is torn");
    CHECK_STR(only(&s.m.tr, " m.training_step cb.on_exception cb.teardown m.teardown ", got, sizeof got),
              "m.training_step m.training_step cb.on_exception cb.teardown m.teardown ");
    CHECK_EQ(lc_trainer_state(s.t), LC_RUN_INTERRUPTED);
    CHECK(lc_trainer_interrupted(s.t));
    end(&s);
}

TEST(sample_numbers_come_with_a_batch)
{
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *b;
    lc_array a = {.field = {.name = "x", .dtype = LC_F32}, .data = eight};
    CHECK_OK(lc_array_dataset_new(8, 1, &a, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 3, .shuffle = true, .num_workers = 2));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    for (int64_t i = 0; i < 3; i++) {
        float x[3];
        CHECK_OK(lc_dataloader_next(l, &b));
        CHECK_OK(lc_tensor_read(b->x, x, (size_t)b->size * sizeof *x));
        for (int64_t k = 0; k < b->size; k++) CHECK_EQ(b->indices[k], x[k]);
    }
    lc_dataloader_free(l);
    lc_dataset_unref(d);
}

/* ---- a rank's part of the loaders: rank 1 of 2, whose rank 0 does not exist ---- */

static void see_all(const lc_batch *batch)
{
    float v[16];
    size_t n = strlen(seen);
    if (lc_tensor_read(batch->x, v, (size_t)batch->size * sizeof *v) != LC_OK) return;
    for (int64_t i = 0; i < batch->size; i++) n += (size_t)snprintf(seen + n, sizeof seen - n, "%g ", (double)v[i]);
    snprintf(seen + n, sizeof seen - n, "of %lld, ", (long long)batch->global_size);
}
static lc_tensor *two_training_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)i;
    see_all(batch);
    return lc_mul(((world *)self)->w, lc_mean(batch->x));
}
static lc_status two_validation_step(lc_module *self, const lc_batch *batch, int64_t i, int d)
{
    (void)self, (void)i, (void)d;
    see_all(batch);
    return LC_OK;
}
static lc_status two_test_loader(lc_module *self, lc_loaders *out)
{
    (void)self;
    return lc_loaders_add(out, numbers_new(2, 1, false)); /* a loader of the program's own */
}

TEST(each_rank_reads_its_part_of_the_loaders)
{
    static setting s;
    static float ten[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const char *const want[] = {"2 3 of 4, 6 7 of 4, 9 of 2, 2 3 of 4, ", /* and validation, with its limit */
                                       "0 1 of 0, 2 3 of 0, 4 5 of 0, 6 7 of 0, 8 9 of 0, 0 1 of 0, "};
    lc_module_ops ops = world_ops;
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *b;
    lc_comm *second_of_two;
    ops.training_step = two_training_step;
    ops.validation_step = two_validation_step;
    ops.test_dataloader = two_test_loader;
    CHECK_OK(lc_array_dataset_new(10, 1, &(lc_array){.field = {.name = "x", .dtype = LC_F32}, .data = ten}, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 2));
    for (int off = 0; off < 2; off++) {
        begin(&s, &ops, 0, 0);
        CHECK_OK(lc_comm_fake(1, 2, &second_of_two));
        s.o.strategy = "ddp";
        s.o.comm = second_of_two;
        s.o.use_distributed_sampler = !off;
        s.o.limit_val_batches = LC_BATCHES(1);
        seen[0] = 0;
        CHECK_OK(lc_trainer_new(&s.o, &s.t));
        CHECK_OK(lc_trainer_fit(s.t, &s.m.base, .train_dataloader = l, .val_dataloader = l));
        CHECK_STR(seen, want[off]);
        CHECK_OK(lc_dataloader_begin(l, 0, 0)); /* the program has the loader back, and whole */
        CHECK_OK(lc_dataloader_next(l, &b));
        CHECK_EQ(b->first, 0);
        CHECK_EQ(lc_dataloader_length(l, 0), 5);
        lc_dataloader_end(l);

        lc_status status = lc_trainer_test(s.t, &s.m.base);
        CHECK_EQ(status, off ? LC_OK : LC_ERR_UNSUPPORTED);
        if (!off) CHECK_CONTAINS(lc_error_message(), "--use_distributed_sampler false");
        end(&s);
        lc_comm_free(second_of_two); /* the communicator cannot be used after an error */
    }

    /* A loader that the program has shared out itself stays as it is. */
    begin(&s, &ops, 0, 0);
    CHECK_OK(lc_comm_fake(1, 2, &second_of_two));
    s.o.strategy = "ddp";
    s.o.comm = second_of_two;
    s.o.limit_val_batches = LC_BATCHES(0);
    seen[0] = 0;
    CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = 0, .size = 2}));
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &s.m.base, .train_dataloader = l));
    CHECK_STR(seen, "0 1 of 4, 4 5 of 4, 8 of 2, ");
    CHECK_EQ(lc_dataloader_get_share(l)->size, 2);
    end(&s);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    lc_comm_free(second_of_two);
}

TEST_MAIN

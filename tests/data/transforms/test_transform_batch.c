/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms as operators of a step give, with the same keys, what apply gives for each sample, in both layouts. The
 * keys of a dataset are the same for any number of workers and ranks, and others in each epoch. */
#include "data/mix.h"
#include "data/data_internal.h"
#include "test.h"
#include "trainer_world.h"
#include <lightc/lightc.h>

#include <math.h>
#include <stdlib.h>

enum { B = 5, C = 3, H = 13, W = 17, SIZE = C * H * W, MOST = 4 * SIZE * (int)sizeof(float), SCRATCH = 1 << 20 };

static const double mean[C] = {0.4, 0.5, 0.6}, deviation[C] = {0.2, 0.25, 0.3};
static _Alignas(64) uint8_t bytes[B][SIZE], scratch[SCRATCH];
static float floats[B][SIZE];
static int64_t keys[B];
static unsigned char want[B][MOST], got[B][MOST];

static void draw(void)
{
    for (int b = 0; b < B; b++) {
        keys[b] = (int64_t)lc_random_key(7, (uint64_t)b);
        for (int i = 0; i < SIZE; i++) {
            bytes[b][i] = (uint8_t)lc_random_below((uint64_t)b, (uint64_t)i, 256);
            floats[b][i] = (float)lc_random_uniform((uint64_t)b, (uint64_t)i);
        }
    }
}

/* ---- transforms ---- */

/* In memory of this layout. Takes t over. */
static void check(lc_transform t, lc_dtype dtype, lc_layout layout)
{
    const lc_field in = {.name = "x", .dtype = dtype, .layout = layout, .ndim = 3, .shape = {C, H, W}};
    const char *const name = t.ops->name;
    const int64_t shape[4] = {B, C, H, W}, n = B;
    lc_field out = {0};
    lc_graph *g;
    lc_tensor *x, *k;
    CHECK_OK(t.ops->describe(t.self, &in, &out));
    const size_t size = lc_field_bytes(&out);
    CHECK(size <= MOST && lc__transform_scratch(&t, &in) <= SCRATCH);
    const char *const memory = dtype == LC_U8 ? (const char *)bytes : (const char *)floats;
    for (int b = 0; b < B; b++)
        CHECK_OK(lc__transform_apply(&t, &in, memory + (size_t)b * lc_field_bytes(&in), &out, want[b],
                                     (uint64_t)keys[b], scratch));
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_input_new(dtype, 4, shape, layout, (void *)(uintptr_t)memory, &x));
    CHECK_OK(lc_input_new(LC_I64, 1, &n, LC_ROW_MAJOR, keys, &k));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *y = lc_transform_batch(&t, x, k);
    if (out.ndim == 3) y = lc_permute(y, 0, 2, 3, 1); /* read in the order of channels-last */
    y = lc_keep(lc_contiguous(y));
    lc_transform_release(&t);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(y, got, B * size));
    CHECK_OK(lc_step_end(g));
    const size_t element = lc_dtype_size(out.dtype);
    const int64_t channels = out.shape[0], pixels = out.shape[1] * out.shape[2];
    for (int b = 0; b < B; b++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < pixels; i++) {
                const int64_t last = i * channels + c, at = layout == LC_CHANNELS_LAST ? last : c * pixels + i;
                if (memcmp((char *)got + ((size_t)b * (size_t)(channels * pixels) + (size_t)last) * element,
                           want[b] + (size_t)at * element, element) != 0)
                    TEST_FAIL("%s: sample %d, channel %d, pixel %d", name, b, (int)c, (int)i);
            }
    lc_tensor_unref(x), lc_tensor_unref(k);
    lc_graph_free(g);
}

static lc_transform chain(void)
{
    lc_transform parts[4], inner[2], all;
    CHECK_OK(lc_transform_horizontal_flip(0.5, &inner[0]));
    CHECK_OK(lc_transform_vertical_flip(0.5, &inner[1]));
    CHECK_OK(lc_transform_random_crop(12, 16, &parts[0], .padding = LC_DIMS(2), .fill = 3));
    CHECK_OK(lc_transform_compose(2, inner, &parts[1]));
    CHECK_OK(lc_transform_normalize(C, mean, deviation, &parts[2]));
    CHECK_OK(lc_transform_random_erasing(&parts[3], .p = 0.9, .random = true));
    CHECK_OK(lc_transform_compose(4, parts, &all));
    return all;
}

TEST(what_the_loader_does_is_what_the_device_does)
{
    draw();
    for (int i = 0; i < 2; i++) {
        const lc_layout layout = i ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
        lc_transform t;
        check(chain(), LC_U8, layout);
        CHECK_OK(lc_transform_center_crop(20, 9, &t));
        check(t, LC_F32, layout);
        CHECK_OK(lc_transform_horizontal_flip(0.5, &t));
        check(t, LC_F32, layout);
        CHECK_OK(lc_transform_normalize(C, mean, deviation, &t));
        check(t, LC_F32, layout);
        CHECK_OK(lc_transform_random_erasing(&t, .value = 2));
        check(t, LC_F32, layout);
        CHECK_OK(lc_transform_random_resized_crop(9, 11, &t));
        check(t, LC_U8, layout);
        CHECK_OK(lc_transform_color_jitter(&t, .brightness = LC_RANGE(0.5, 1.5), .hue = LC_RANGE(-0.1, 0.1)));
        check(t, LC_U8, layout);
        CHECK_OK(lc_transform_random_affine(LC_RANGE(-20, 20), &t, .translate_x = 0.2));
        check(t, LC_U8, layout);
        CHECK_OK(lc_transform_trivial_augment_wide(&t));
        check(t, LC_U8, layout);
    }
}

/* ---- what cannot be ---- */

static lc_status refused(const lc_transform *t, int64_t n_keys, lc_dtype of_keys)
{
    const int64_t shape[4] = {B, C, H, W};
    lc_graph *g;
    lc_tensor *x, *k;
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_input_new(LC_U8, 4, shape, LC_ROW_MAJOR, bytes, &x));
    CHECK_OK(lc_input_new(of_keys, 1, &n_keys, LC_ROW_MAJOR, keys, &k));
    CHECK_OK(lc_step_begin(g, 0, 0));
    CHECK(lc_tensor_is_error(lc_transform_batch(t, x, k)));
    lc_status s = lc_step_run(g);
    CHECK_CONTAINS(lc_error_message(), "transform_batch");
    CHECK_CONTAINS(lc_error_message(), "test_transform_batch.c:");
    (void)!lc_step_end(g);
    lc_tensor_unref(x), lc_tensor_unref(k);
    lc_graph_free(g);
    return s;
}

TEST(what_cannot_be_recorded_is_an_error)
{
    lc_transform t, layout;
    CHECK_OK(lc_transform_random_crop(50, 50, &t));
    CHECK_STATUS(refused(&t, B, LC_I64), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "does not fit");
    lc_transform_release(&t);
    CHECK_OK(lc_transform_horizontal_flip(0.5, &t));
    CHECK_STATUS(refused(&t, B - 1, LC_I64), LC_ERR_SHAPE);
    CHECK_STATUS(refused(&t, B, LC_I32), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "lc_dataset_keys");
    CHECK_OK(lc_transform_to_layout(LC_CHANNELS_LAST, &layout));
    CHECK_STATUS(refused(&layout, B, LC_I64), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "to_layout");
    CHECK_STATUS(refused(&(lc_transform){0}, B, LC_I64), LC_ERR_ARGUMENT);
    lc_transform_release(&t);
    lc_transform_release(&layout);
}

/* ---- MixUp and CutMix ---- */

static void check_mix(lc_mix mix, lc_layout layout, int64_t first_key)
{
    enum { CLASSES = 4 };
    const int64_t shape[4] = {B, C, H, W}, of_y[2] = {B, CLASSES}, n = B;
    lc_sample_spec spec = {.n = 2,
                           .fields = {{.name = "x", .layout = layout, .ndim = 3, .shape = {C, H, W}},
                                      {.name = "y", .ndim = 1, .shape = {CLASSES}}}};
    float labels[B][CLASSES] = {{0}}, x_want[B][SIZE], y_want[B][CLASSES], y_got[B][CLASSES];
    lc_graph *g;
    lc_tensor *x, *y, *k;
    for (int b = 0; b < B; b++) labels[b][b % CLASSES] = 1;
    keys[0] = first_key;
    lc__mixture m = lc__mix_draw(&spec, mix, 0.7, lc_random_key_name((uint64_t)first_key, "mix"));
    memcpy(x_want, floats, sizeof x_want);
    memcpy(y_want, labels, sizeof y_want);
    for (int b = 0; b < B; b++) {
        const int other = (b + B - 1) % B;
        lc__mix_run(&spec, &m, x_want[b], floats[other], y_want[b], labels[other]);
    }
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    CHECK_OK(lc_input_new(LC_F32, 4, shape, layout, floats, &x));
    CHECK_OK(lc_input_new(LC_F32, 2, of_y, LC_ROW_MAJOR, labels, &y));
    CHECK_OK(lc_input_new(LC_I64, 1, &n, LC_ROW_MAJOR, keys, &k));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *mixed = x, *of = y;
    lc_mix_batch(&mixed, &of, k, mix, 0.7);
    mixed = lc_keep(layout == LC_CHANNELS_LAST ? lc_contiguous(lc_permute(mixed, 0, 2, 3, 1)) : mixed);
    lc_keep(of);
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(mixed, got, sizeof x_want));
    CHECK_OK(lc_tensor_read(of, y_got, sizeof y_got));
    CHECK(!memcmp(got, x_want, sizeof x_want));
    CHECK(!memcmp(y_got, y_want, sizeof y_want));
    CHECK_OK(lc_step_end(g));
    lc_tensor_unref(x), lc_tensor_unref(y), lc_tensor_unref(k);
    lc_graph_free(g);
}

TEST(a_batch_is_mixed_on_the_device_as_by_the_loader)
{
    draw();
    for (int64_t key = 1; key <= 4; key++)
        for (int i = 0; i < 2; i++)
            for (int mix = LC_MIXUP; mix <= LC_MIXUP_OR_CUTMIX; mix++)
                check_mix((lc_mix)mix, i ? LC_CHANNELS_LAST : LC_ROW_MAJOR, key);
}

TEST(a_batch_is_not_mixed_with_the_keys_of_another)
{
    const int64_t of_x[2] = {B, 4}, n[2] = {B - 1, 0};
    for (int i = 0; i < 2; i++) {
        lc_graph *g;
        lc_tensor *x, *k, *mixed, *of;
        CHECK_OK(lc_graph_new(&g, .threads = 1));
        CHECK_OK(lc_input_new(LC_F32, 2, of_x, LC_ROW_MAJOR, floats, &x));
        CHECK_OK(lc_input_new(LC_I64, 1, &n[i], LC_ROW_MAJOR, keys, &k));
        CHECK_OK(lc_step_begin(g, 0, 0));
        mixed = of = x;
        lc_mix_batch(&mixed, &of, k, LC_MIXUP, 1);
        CHECK_STATUS(lc_step_run(g), LC_ERR_SHAPE);
        CHECK_CONTAINS(lc_error_message(), "for each key");
        CHECK(lc_tensor_is_error(mixed) && lc_tensor_is_error(of));
        (void)!lc_step_end(g);
        lc_tensor_unref(x), lc_tensor_unref(k);
        lc_graph_free(g);
    }
}

/* ---- keys ---- */

enum { N = 23, BATCH = 4 };

/* The keys of all samples of an epoch. */
static void read_keys(int workers, int rank, int size, int64_t epoch, int64_t out[N])
{
    static float values[N];
    lc_array a = {.field = {.name = "x", .dtype = LC_F32}, .data = values};
    lc_dataset *d, *with_keys;
    lc_dataloader *l;
    lc_batch *b;
    CHECK_OK(lc_array_dataset_new(N, 1, &a, &d));
    CHECK_OK(lc_dataset_keys(d, &with_keys));
    CHECK_OK(lc_dataloader_new(&l, .dataset = with_keys, .batch_size = BATCH, .shuffle = true, .seed = 5,
                               .num_workers = workers));
    if (size > 1) CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = rank, .size = size}));
    CHECK_OK(lc_dataloader_begin(l, epoch, 0));
    while (lc_dataloader_next(l, &b) == LC_OK && b) {
        int64_t some[BATCH];
        if (!b->size) continue;
        CHECK_EQ(b->n, 2);
        CHECK_OK(lc_tensor_read(b->tensors[1], some, (size_t)b->size * sizeof *some));
        for (int64_t i = 0; i < b->size; i++) out[b->indices[i]] = some[i];
    }
    lc_dataloader_free(l);
    lc_dataset_unref(d), lc_dataset_unref(with_keys);
}

TEST(a_sample_has_the_same_key_wherever_it_is_read)
{
    int64_t alone[N] = {0}, workers[N] = {0}, ranks[N] = {0}, later[N] = {0};
    read_keys(0, 0, 1, 2, alone);
    read_keys(2, 0, 1, 2, workers);
    for (int r = 0; r < 3; r++) read_keys(0, r, 3, 2, ranks);
    read_keys(0, 0, 1, 3, later);
    CHECK(!memcmp(alone, workers, sizeof alone));
    CHECK(!memcmp(alone, ranks, sizeof alone));
    for (int i = 0; i < N; i++) {
        CHECK(alone[i] && alone[i] != later[i]);
        for (int j = 0; j < i; j++) CHECK(alone[i] != alone[j]);
    }
}

/* ---- a training ---- */

enum { SIDE = 6, CROP = 4, PICTURES = 24 };

typedef struct net {
    lc_module base;
    lc_linear out;
    lc_transform augment;
} net;

static lc_status augment(lc_module *self, lc_batch *batch, int loader)
{
    net *m = (net *)self;
    (void)loader;
    batch->x = batch->tensors[0] = lc_transform_batch(&m->augment, batch->x, batch->tensors[2]);
    return LC_OK;
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    net *m = (net *)self;
    (void)batch_idx;
    return lc_cross_entropy(lc_linear_forward(&m->out, lc_flatten(batch->x, 1)), batch->y);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static lc_dataloader *pictures(void)
{
    static uint8_t pixels[PICTURES][SIDE * SIDE];
    static int64_t classes[PICTURES];
    for (int i = 0; i < PICTURES; i++) {
        classes[i] = i % 2;
        for (int k = 0; k < SIDE * SIDE; k++) pixels[i][k] = (uint8_t)lc_random_below(1, (uint64_t)(i * 100 + k), 256);
    }
    lc_array a[2] = {{.field = {.name = "x", .dtype = LC_U8, .ndim = 3, .shape = {1, SIDE, SIDE}}, .data = pixels},
                     {.field = {.name = "y", .dtype = LC_I64}, .data = classes}};
    lc_dataset *d, *with_keys;
    lc_dataloader *l;
    CHECK_OK(lc_array_dataset_new(PICTURES, 2, a, &d));
    CHECK_OK(lc_dataset_keys(d, &with_keys));
    CHECK_OK(lc_dataloader_new(&l, .dataset = with_keys, .batch_size = 8, .shuffle = true));
    lc_dataset_unref(d), lc_dataset_unref(with_keys);
    return l;
}

static void train(const char *devices, const char *precision, float weights[2][CROP * CROP])
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .configure_optimizers = configure_optimizers, .on_after_batch_transfer = augment};
    const double half = 0.5;
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    lc_transform parts[3];
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    o.default_root_dir = dir;
    o.max_epochs = 2;
    o.deterministic = true;
    o.precision = precision;
    o.logger = "none";
    o.enable_checkpointing = o.enable_progress_bar = o.enable_model_summary = LC_OFF;
    if (devices) o.strategy = "data_parallel", o.devices = devices;
    net m;
    lc_dataloader *loader = pictures();
    CHECK_OK(lc_transform_random_crop(CROP, CROP, &parts[0], .padding = LC_DIMS(1)));
    CHECK_OK(lc_transform_horizontal_flip(0.5, &parts[1]));
    CHECK_OK(lc_transform_normalize(1, &half, &half, &parts[2]));
    CHECK_OK(lc_transform_compose(3, parts, &m.augment));
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.out, &m, "out", CROP * CROP, 2);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    CHECK_OK(lc_tensor_read(m.out.weight, weights, 2 * CROP * CROP * sizeof(float)));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    lc_transform_release(&m.augment);
    world_remove(dir);
}

TEST(devices_train_as_one_with_transforms_of_their_own)
{
    static const char *const precisions[] = {"32-true", "bf16-mixed", "16-true", "64-true"};
    float one[2][CROP * CROP], two[2][CROP * CROP];
    for (int i = 0; i < 4; i++) {
        train(NULL, precisions[i], one);
        train("2", precisions[i], two);
        if (memcmp(one, two, sizeof one) != 0) TEST_FAIL("%s", precisions[i]);
        for (int k = 0; k < CROP * CROP; k++) CHECK(isfinite(one[0][k]) && isfinite(one[1][k]));
    }
}

TEST_MAIN

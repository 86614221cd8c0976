/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning: choices are made once and kept, they are used wherever they come from, and a cache can hold anything without
 * harm. Measured times are not tested: choices are put into the cache by hand. */
#include "test.h"
#include "engine/plan/tune.h"
#include "record/graph_impl.h"
#include "trainer_world.h"

#include <dirent.h>

enum { SAMPLES = 48, BATCH = 8, IMAGE = 16 * 12 * 12 };

typedef struct net {
    lc_module base;
    lc_conv2d conv;
    lc_linear l1;
    lc_dataset *data;
    int64_t stop_after, batches;
} net;

static float images[SAMPLES * IMAGE];
static int64_t labels[SAMPLES];
static char cache[256];

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *x = lc_flatten(lc_relu(lc_conv2d_forward(&m->conv, b->x)), 1);
    return lc_cross_entropy(lc_linear_forward(&m->l1, lc_dropout(x, 0.2)), b->y);
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-2));
}
static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = ((net *)self)->data, .batch_size = BATCH, .shuffle = true));
    return lc_loaders_add(out, l);
}
static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    char path[600];
    (void)o, (void)b, (void)i;
    if (++m->batches != m->stop_after) return LC_OK;
    snprintf(path, sizeof path, "%s/stop.ckpt", cache);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}
static const lc_module_ops ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader,
    .on_train_batch_end = on_train_batch_end,
};

typedef struct result {
    float weight[32 * 16 * 25];
    char kernel[64]; /* of the gradient of the weight */
} result;

/* Trains two epochs from the start or from stop.ckpt, or until stop.ckpt is written. */
static void train(bool tune, bool deterministic, int64_t stop_after, bool resume, result *r)
{
    net m = {.stop_after = stop_after};
    lc_trainer *t;
    lc_trainer_options o = world_options(cache);
    char path[600];
    o.threads = 2;
    o.tune = tune;
    o.deterministic = deterministic;
    o.max_epochs = 2;
    o.seed = 5;
    o.logger = "none";
    o.enable_checkpointing = LC_OFF;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < SAMPLES * IMAGE; i++) images[i] = (float)lc_random_normal(1, (uint64_t)i);
    for (int i = 0; i < SAMPLES; i++) labels[i] = i % 5;
    lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_F32, .ndim = 3, .shape = {16, 12, 12}}, .data = images},
        {.field = {.name = "y", .dtype = LC_I64}, .data = labels},
    };
    CHECK_OK(lc_array_dataset_new(SAMPLES, 2, arrays, &m.data));
    lc_module_init(&m.base, &ops, 3);
    lc_conv2d_init(&m.conv, &m, "conv", 16, 32, 5); /* oneDNN has two kernels for its gradient */
    lc_linear_init(&m.l1, &m, "l1", 32 * 8 * 8, 5);
    CHECK_OK(lc_trainer_new(&o, &t));
    snprintf(path, sizeof path, "%s/stop.ckpt", cache);
    lc_status status = lc_trainer_fit(t, &m.base, .ckpt_path = resume ? path : NULL);
    CHECK(stop_after ? status == LC_ERR_USER : status == LC_OK);
    const lc_graph *g = lc_trainer_graph(t);
    for (int p = 0; p < g->n_plans; p++)
        for (int i = 0; i < g->plans[p]->n_calls; i++) {
            const lc_call *c = &g->plans[p]->calls[i].call;
            if (!strcmp(c->op->name, "conv_weight_grad"))
                snprintf(r->kernel, sizeof r->kernel, "%s %d", c->kernel->name, c->threads);
        }
    CHECK_OK(lc_tensor_read(m.conv.weight, r->weight, sizeof r->weight));
    lc_trainer_free(t);
    lc_module_release(&m.base);
    lc_dataset_unref(m.data);
}

/* The only tuning file in the cache. */
static bool tuning_file(char *path, size_t size)
{
    DIR *d = opendir(cache);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, "tuning-", 7)) {
            snprintf(path, size, "%s/%s", cache, e->d_name);
            n++;
        }
    if (d) closedir(d);
    CHECK(n <= 1);
    return n == 1;
}

static size_t read_file(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    CHECK(f);
    size_t n = fread(text, 1, size - 1, f);
    fclose(f);
    text[n] = 0;
    return n;
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(text, 1, n, f) == n);
    fclose(f);
}

static void begin(void)
{
    CHECK(world_dir(cache, sizeof cache));
    setenv("LIGHTC_CACHE", cache, 1);
}

static void end(void)
{
    world_remove(cache);
    setenv("LIGHTC_CACHE", "off", 1);
}

/* Puts this kernel into the cache for the gradient of the convolution. False if there was no choice (a build without
 * oneDNN). */
static bool prescribe(const char *kernel)
{
    static char text[1 << 16], changed[1 << 16];
    char path[600];
    if (!tuning_file(path, sizeof path)) return false;
    read_file(path, text, sizeof text);
    char *key = strstr(text, "\"conv_weight_grad f32["), *value = key ? strstr(key, "onednn_conv_weight_grad") : NULL,
         *last;
    if (!value) return false;
    last = value + strcspn(value, " ");
    int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(value - text), text, kernel, last);
    write_file(path, changed, (size_t)n);
    return true;
}

TEST(choices_are_made_once_and_kept)
{
    static char first[1 << 16], second[1 << 16];
    static result a, b;
    char path[600];
    begin();
    train(false, false, 0, false, &a);
    CHECK(!tuning_file(path, sizeof path)); /* no measurement unless asked for */
    train(true, true, 0, false, &a);
    CHECK(!tuning_file(path, sizeof path)); /* with deterministic the choice is fixed */
    train(true, false, 0, false, &a);
    if (!tuning_file(path, sizeof path)) {
        end();
        SKIP("there is nothing to choose from");
    }
    read_file(path, first, sizeof first);
    CHECK(strstr(first, "2 threads") && strstr(first, "\"conv_weight_grad f32[8,32,8,8"));
    train(true, false, 0, false, &b);
    read_file(path, second, sizeof second);
    CHECK_STR(first, second);
    CHECK_STR(a.kernel, b.kernel);
    CHECK(memcmp(a.weight, b.weight, sizeof a.weight) == 0);
    setenv("LIGHTC_CACHE", "off", 1);
    remove(path);
    train(true, false, 0, false, &a);
    CHECK(!tuning_file(path, sizeof path));
    end();
}

TEST(a_resumed_run_uses_the_choices_of_its_checkpoint)
{
    static result whole, part, resumed, other;
    begin();
    train(true, false, 0, false, &whole); /* fills the cache */
    if (!prescribe("onednn_conv_weight_grad_gemm")) {
        end();
        SKIP("there is nothing to choose from");
    }
    train(true, false, 0, false, &whole);
    CHECK_STR(whole.kernel, "onednn_conv_weight_grad_gemm 2");
    train(true, false, 5, false, &part);
    CHECK(prescribe("onednn_conv_weight_grad"));
    train(true, false, 0, false, &other);
    CHECK_STR(other.kernel, "onednn_conv_weight_grad 2");
    for (int tune = 0; tune < 2; tune++) {
        train(tune, false, 0, true, &resumed);
        CHECK_STR(resumed.kernel, "onednn_conv_weight_grad_gemm 2");
        CHECK(memcmp(resumed.weight, whole.weight, sizeof whole.weight) == 0);
    }
    CHECK(memcmp(other.weight, whole.weight, sizeof whole.weight) != 0); /* otherwise this would test nothing */
    end();
}

/* A choice that was not measured goes into checkpoints, which must restore it, and not into the cache. */
TEST(unmeasured_choices_are_not_cached)
{
    static char text[1 << 16];
    lc_graph *from, *to;
    lc_state *root;
    char path[600];
    begin();
    CHECK_OK(lc_graph_new(&from, .threads = 2));
    CHECK_OK(lc_graph_new(&to, .threads = 2, .tune = true));
    CHECK_OK(lc__tuning_add(from->tuning, "a call", "a_kernel", 2, false));
    CHECK_OK(lc__tuning_add(from->tuning, "another call", "a_kernel", 1, true));
    CHECK_OK(lc_state_new(&root));
    CHECK_OK(lc__tuning_save(from->tuning, root));
    CHECK_OK(lc__graph_load_tuning(to, root));
    const lc__choice *guess = lc__tuning_find(to->tuning, "a call"), *measured;
    measured = lc__tuning_find(to->tuning, "another call");
    CHECK(guess && !guess->measured && guess->threads == 2 && !strcmp(guess->kernel, "a_kernel"));
    CHECK(measured && measured->measured && measured->threads == 1);
    lc__tuning_keep(to->tuning);
    CHECK(tuning_file(path, sizeof path));
    read_file(path, text, sizeof text);
    CHECK_CONTAINS(text, "\"another call\"");
    CHECK(!strstr(text, "\"a call\""));
    lc_state_free(root);
    lc_graph_free(from);
    lc_graph_free(to);
    end();
}

TEST(a_cache_may_hold_anything)
{
    static char good[1 << 16], bad[1 << 16];
    static const char *const texts[] = {
        "",
        "{",
        "null",
        "[]",
        "{\"tuning\": 3}",
        "{\"tuning\": {\"machine\": 4, \"choices\": {}}}",
        "{\"tuning\": {\"machine\": \"abacus\", \"choices\": {\"conv\": \"x 1\"}}}",
        "\x00\xff\x7f garbage",
    };
    static const char *const values[] = {"nonsense 2",
                                         "onednn_conv_weight_grad",
                                         "onednn_conv_weight_grad 0",
                                         "onednn_conv_weight_grad 99999999999",
                                         "onednn_conv_weight_grad -1",
                                         "onednn_matmul 2",
                                         "",
                                         "onednn_conv_weight_grad_gemm 1 1"};
    static result want, got;
    char path[600];
    begin();
    train(true, false, 0, false, &want);
    if (!prescribe("onednn_conv_weight_grad")) {
        end();
        SKIP("there is nothing to choose from");
    }
    CHECK(tuning_file(path, sizeof path));
    size_t n = read_file(path, good, sizeof good);
    train(true, false, 0, false, &want);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(path, texts[i], strlen(texts[i]));
        train(true, false, 0, false, &got);
    }
    /* An invalid value is ignored: the first kernel is used, or the call is measured again. */
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        write_file(path, good, n);
        CHECK(prescribe("onednn_conv_weight_grad"));
        read_file(path, bad, sizeof bad);
        char *key = strstr(bad, "\"conv_weight_grad f32["), *value = strstr(key, "onednn_conv_weight_grad"),
             *last = strchr(value, '"');
        char text[1 << 16];
        int length = snprintf(text, sizeof text, "%.*s%s%s", (int)(value - bad), bad, values[i], last);
        write_file(path, text, (size_t)length);
        train(true, false, 0, false, &got);
        CHECK(!strncmp(got.kernel, "onednn_conv", 11));
    }
    /* Damaged anywhere, or cut off. */
    for (size_t i = 0; i < n; i += 1 + n / 400) {
        lc_graph *g;
        memcpy(bad, good, n);
        bad[i] ^= (char)(1 << (i % 7));
        write_file(path, bad, i % 2 ? n : i);
        CHECK_OK(lc_graph_new(&g, .threads = 2, .tune = true));
        for (int k = 0; k < g->tuning->n; k++) CHECK(g->tuning->choices[k].threads >= 1);
        lc_graph_free(g);
    }
    end();
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing a device: by --accelerator, for a fabric, for a graph; and what is on another one. */
#include "test.h"

#include "scratch.h"
#include "sim_device.h"
#include "small_net.h"

#include "quiet_options.h"
#include "record/graph_impl.h"

enum { PARAMETERS = 4, MOST = 64 };

typedef struct values {
    float of[PARAMETERS][MOST];
} values;

static void read_net(small_net *m, values *v)
{
    lc_tensor *all[PARAMETERS] = {m->l1.weight, m->l1.bias, m->l2.weight, m->l2.bias};
    memset(v, 0, sizeof *v);
    for (int i = 0; i < PARAMETERS; i++) {
        CHECK(lc_tensor_numel(all[i]) <= MOST);
        CHECK_OK(lc_tensor_read(all[i], v->of[i], (size_t)lc_tensor_numel(all[i]) * sizeof(float)));
    }
}

static lc_trainer *trainer_on(const char *accelerator)
{
    lc_trainer *t;
    lc_trainer_options o = quiet_options(NULL);
    o.accelerator = accelerator;
    o.max_epochs = 2;
    CHECK_OK(lc_trainer_new(&o, &t));
    return t;
}

static void fit(small_net *m, const char *accelerator)
{
    lc_dataloader *train, *val;
    lc_trainer *t = trainer_on(accelerator);
    CHECK_STR(lc_trainer_accelerator(t), accelerator);
    CHECK_OK(loader_of(0, SAMPLES - VAL, 16, true, &train));
    CHECK_OK(loader_of(SAMPLES - VAL, VAL, 16, false, &val));
    CHECK_OK(lc_trainer_fit(t, &m->base, .train_dataloader = train, .val_dataloader = val));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_dataloader_free(val);
}

static void predict(small_net *m, const char *accelerator, float (*out)[CLASSES])
{
    lc_dataloader *l;
    lc_trainer *t = trainer_on(accelerator);
    CHECK_OK(loader_of(0, SAMPLES, 16, false, &l));
    CHECK_OK(lc_trainer_predict(t, &m->base, .dataloaders = &l, .n_dataloaders = 1));
    CHECK_OK(read_predictions(t, SAMPLES, out));
    lc_trainer_free(t);
    lc_dataloader_free(l);
}

static bool is_on(const lc_tensor *t, const char *device)
{
    char name[LC__DEVICE_NAME];
    return !strcmp(lc__device_name(t->on, name), device);
}

TEST(the_option_moves_a_training)
{
    static float on_sim[SAMPLES][CLASSES], on_cpu[SAMPLES][CLASSES];
    small_net cpu = {0}, sim = {0};
    values want, got;
    find_plugin();
    CHECK_OK(small_net_init(&cpu, &small_net_ops, 3));
    CHECK_OK(small_net_init(&sim, &small_net_ops, 3));
    fit(&cpu, "cpu");
    fit(&sim, "sim:1");
    CHECK(is_on(sim.l1.weight, "sim:1") && counters(1).launches > 0);
    read_net(&cpu, &want);
    read_net(&sim, &got);
    CHECK(!memcmp(&want, &got, sizeof want));
    predict(&sim, "sim:2", on_sim);
    CHECK(is_on(sim.l1.weight, "sim:2"));
    predict(&sim, "cpu", on_cpu);
    CHECK(is_on(sim.l2.bias, "cpu") && !memcmp(on_sim, on_cpu, sizeof on_cpu));
    fit(&cpu, "cpu");
    fit(&sim, "sim:1"); /* its parameters are in flat buffers by now */
    read_net(&cpu, &want);
    read_net(&sim, &got);
    CHECK(!memcmp(&want, &got, sizeof want));
    lc_tensor *t;
    CHECK_OK(lc_tensor_new(LC_F32, 0, NULL, &t));
    CHECK(is_on(t, "cpu")); /* after a run it is as before */
    lc_tensor_unref(t);
    small_net_release(&cpu);
    small_net_release(&sim);
}

/* ---- checkpoints ---- */

static lc_status adamw(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adamw(self, .lr = 0.02));
}

/* Trains up to epoch `epochs`, from the checkpoint `from` (NULL: from the start), and saves the checkpoint `to`. */
static void train_and_save(const char *accelerator, int epochs, const char *from, const char *to)
{
    lc_module_ops ops = small_net_ops;
    small_net m = {.dropout = 0.3};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options o = quiet_options(NULL);
    o.accelerator = accelerator;
    o.max_epochs = epochs;
    o.gradient_clip_val = 0.5;
    ops.configure_optimizers = adamw;
    ops.validation_step = NULL;
    CHECK_OK(small_net_init(&m, &ops, 3));
    CHECK_OK(loader_of(0, SAMPLES, 16, true, &train));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = train, .ckpt_path = from));
    CHECK_OK(lc_trainer_save_checkpoint(t, to, false));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
}

typedef struct saved {
    char bytes[2][1 << 16];
    size_t n[2];
} saved;

static void read_saved(const char *dir, saved *s)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    for (int i = 0; i < 2; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        FILE *f = fopen(path, "rb");
        CHECK(f != NULL);
        s->n[i] = fread(s->bytes[i], 1, sizeof s->bytes[i], f);
        fclose(f);
        CHECK(s->n[i] > 500 && s->n[i] < sizeof s->bytes[i]);
    }
}

/* Two epochs, a checkpoint, and two epochs more, on these devices. */
static void train_twice(const char *first, const char *second, saved *half, saved *whole)
{
    char begun[400], ended[400];
    snprintf(begun, sizeof begun, "%s/half.ckpt", fresh_dir("run"));
    snprintf(ended, sizeof ended, "%s/run/whole.ckpt", scratch_root);
    train_and_save(first, 2, NULL, begun);
    train_and_save(second, 4, begun, ended);
    read_saved(begun, half);
    read_saved(ended, whole);
}

static void check_same(const saved *want, const saved *got, const char *what)
{
    for (int i = 0; i < 2; i++)
        if (want->n[i] != got->n[i] || memcmp(want->bytes[i], got->bytes[i], want->n[i]) != 0)
            TEST_FAIL("%s: the file of the %s is another one", what, i ? "optimizer" : "model");
}

TEST(checkpoints_are_those_of_the_cpu)
{
    static const char *const runs[][2] = {{"sim:4", "sim:4"}, {"sim:4", "cpu"}, {"cpu", "sim:4"}};
    static saved want[2], got[2];
    find_plugin();
    train_twice("cpu", "cpu", &want[0], &want[1]);
    CHECK(memcmp(&want[0], &want[1], sizeof want[0]) != 0);
    for (int i = 0; i < 3; i++) {
        train_twice(runs[i][0], runs[i][1], &got[0], &got[1]);
        check_same(&want[0], &got[0], runs[i][0]);
        check_same(&want[1], &got[1], runs[i][1]);
    }
}

TEST(buffers_move_too)
{
    small_net m = {0};
    find_plugin();
    CHECK_OK(small_net_init(&m, &small_net_ops, 3));
    lc_tensor *b = lc_module_add_buffer(&m.base, "b", LC_I64, 1, (int64_t[]){2}, (lc_init){0}, true);
    CHECK_OK(lc_tensor_write(b, (int64_t[]){7, -9}, 2 * sizeof(int64_t)));
    fit(&m, "sim");
    int64_t read[2];
    CHECK(is_on(b, "sim"));
    CHECK_OK(lc_tensor_read(b, read, sizeof read));
    CHECK(read[0] == 7 && read[1] == -9);
    small_net_release(&m);
}

TEST(a_fabric_makes_what_follows_on_its_device)
{
    small_net late = {0}, early = {0};
    lc_fabric *f;
    lc_tensor *x, *y;
    find_plugin();
    CHECK_OK(small_net_init(&early, &small_net_ops, 3));
    CHECK_OK(lc_fabric_new(&f, .accelerator = "sim:3"));
    CHECK_OK(small_net_init(&late, &small_net_ops, 3));
    CHECK(is_on(late.l1.weight, "sim:3"));
    lc_optimizer *opt = lc_adamw(&late.base, .lr = 0.01);
    CHECK_OK(lc_fabric_setup(f, &late.base, &opt, 1));
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){16, FEATURES}, LC_ROW_MAJOR, inputs, &x));
    CHECK_OK(lc_input_new(LC_I64, 1, (int64_t[]){16}, LC_ROW_MAJOR, labels, &y));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(lc_fabric_begin(f));
        lc_fabric_backward(f, lc_cross_entropy(logits_of(&late, x), y));
        lc_fabric_step(f, opt);
        CHECK_OK(lc_fabric_end(f));
    }
    lc_fabric_free(f);
    CHECK_OK(lc_fabric_new(&f, .accelerator = "sim:3"));
    CHECK_OK(lc_fabric_setup(f, &early.base, NULL, 0));
    CHECK(is_on(early.l1.weight, "sim:3"));
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_tensor_unref(x), lc_tensor_unref(y);
    small_net_release(&late);
    small_net_release(&early);
}

/* assign(t, t + 1) in a step on `device`. */
static lc_status count_up(const char *device, lc_tensor *t)
{
    lc_graph *g;
    LC_TRY(lc_graph_new(&g, .threads = 1, .device = device));
    lc_status status = lc_step_begin(g, 0, 0);
    lc_assign(t, lc_add_scalar(t, 1));
    if (status >= 0) status = lc_step_run(g);
    lc_status ended = lc_step_end(g);
    lc_graph_free(g);
    return status < 0 ? status : ended;
}

TEST(tensors_of_another_device_are_named)
{
    lc_tensor *host, *device;
    lc_graph *g;
    find_plugin();
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &host));
    CHECK_OK(lc_graph_new(&g, .device = "cpu"));
    lc_graph_free(g);
    setenv("LIGHTC_ACCELERATOR", "sim", 1);
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){2}, &device));
    unsetenv("LIGHTC_ACCELERATOR");
    CHECK_OK(count_up("cpu", host));
    CHECK_OK(count_up("sim", device));
    CHECK_STATUS(count_up("sim", host), LC_ERR_STATE);
    CHECK(strstr(lc_error_message(), "assign: ") && strstr(lc_error_message(), "is on cpu, but the step runs on sim"));
    CHECK_STATUS(count_up("cpu", device), LC_ERR_STATE);
    CHECK(strstr(lc_error_message(), "add_scalar: ") && strstr(lc_error_message(), "is on sim, but"));
    CHECK_STATUS(count_up("sim:1", device), LC_ERR_STATE);
    CHECK(strstr(lc_error_message(), "is on sim, but the step runs on sim:1"));
    CHECK_STATUS(lc_graph_new(&g, .device = "sim:9"), LC_ERR_CONFIG);
    lc_tensor_unref(host);
    lc_tensor_unref(device);
}

TEST_MAIN

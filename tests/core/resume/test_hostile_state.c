/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that lightc never writes: counters that no run reaches, a FIFO or a folder in place of a file, a manifest
 * that names a file thousands of times, a time in the future. Each is refused at once, with the file and the value, or
 * does no harm. */
#include "no_file.h"
#include "scratch.h"
#include "trainer_world.h"
#include "base/clock.h"
#include "core/checkpoint/checkpoint.h"
#include "device/device.h"
#include "launch/launch.h"

#include <lightc/array_file.h>
#include <lightc/callbacks.h>
#include <lightc/fabric.h>
#include <lightc/image.h>
#include <lightc/safetensors.h>
#include <lightc/weights.h>
#include <signal.h>

/* A member of a member of `callbacks`, or of the member named `in`. */
static lc_state *member(lc_state *root, const char *in, const char *callback)
{
    const lc_state *o;
    CHECK_OK(lc_state_get_object(root, in, &o));
    if (!callback) return (lc_state *)(uintptr_t)o;
    for (int64_t i = 0; i < lc_state_length(o); i++)
        if (!strncmp(lc_state_key_at(o, i), callback, strlen(callback)))
            return (lc_state *)(uintptr_t)lc_state_at(o, i);
    TEST_FAIL("there is no state of %s", callback);
}

/* Copies the checkpoint with another number. */
static void change(const char *from, const char *to, const char *in, const char *callback, const char *key, int64_t v)
{
    lc_checkpoint *c;
    lc_ckpt_writer *w;
    const lc_state *root;
    CHECK_OK(lc_checkpoint_open(from, &c));
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(lc_ckpt_begin(w, to));
    root = lc_checkpoint_state(c);
    for (int64_t i = 0; i < lc_state_length(root); i++) {
        lc_state *copy;
        CHECK_OK(lc_state_copy(lc_state_at(root, i), &copy));
        CHECK_OK(lc_state_set_tree(lc_ckpt_state(w), lc_state_key_at(root, i), copy));
    }
    CHECK_OK(lc_state_set_int(member(lc_ckpt_state(w), in, callback), key, v));
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc_safetensors *f = lc_checkpoint_tensors(c, (lc_ckpt_kind)k);
        for (int64_t i = 0; f && i < lc_safetensors_count(f); i++)
            CHECK_OK(lc_ckpt_add_stored(w, (lc_ckpt_kind)k, f, i));
    }
    CHECK_OK(lc_ckpt_commit(w, true));
    lc_ckpt_writer_free(w);
    lc_checkpoint_close(c);
}

static lc_status train(const char *dir, const char *from, const char *save)
{
    world w;
    lc_trainer *t;
    lc_callback callbacks[4];
    static const lc_accumulation factors[] = {{0, 1}};
    CHECK_OK(lc_early_stopping(&callbacks[0], .monitor = "val_loss", .patience = 9));
    CHECK_OK(lc_ema_weight_averaging_new(NULL, &callbacks[1]));
    CHECK_OK(lc_model_checkpoint_new(NULL, &callbacks[2]));
    CHECK_OK(lc_gradient_accumulation_scheduler(&callbacks[3], .scheduling = factors, .n_scheduling = 1));
    world_init(&w, &world_ops, 3, 1);
    lc_trainer_options o = world_options(dir);
    o.callbacks = callbacks, o.n_callbacks = 4;
    o.max_epochs = save ? 1 : 3;
    o.logger = "none";
    o.ckpt_path = from;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &w.base);
    if (s >= 0 && save) s = lc_trainer_save_checkpoint(t, save, false);
    char why[1024];
    snprintf(why, sizeof why, "%s", lc_error_message());
    lc_trainer_free(t);
    world_release(&w);
    return s < 0 ? lc_fail(s, "%s", why) : s;
}

TEST(counters_that_no_run_reaches)
{
    static const struct {
        const char *in, *callback, *key;
    } cases[] = {
        {"loop", NULL, "epoch"},
        {"loop", NULL, "global_step"},
        {"loop", NULL, "batches_that_stepped"},
        {"loop", NULL, "total_batches"},
        {"loop", NULL, "optimizer_steps"},
        {"loop", NULL, "batches_done"},
        {"loop", NULL, "window_backwards"},
        {"loop", NULL, "accumulate_grad_batches"},
        {"loop", NULL, "next_accumulate_grad_batches"},
        {"loop", NULL, "window_begin"},
        {"loop", NULL, "global_batch"},
        {"callbacks", "EarlyStopping", "wait_count"},
        {"callbacks", "EarlyStopping", "stopped_epoch"},
        {"callbacks", "EMAWeightAveraging", "latest_update_step"},
        {"callbacks", "EMAWeightAveraging", "latest_update_epoch"},
        {"callbacks", "EMAWeightAveraging", "n_averaged"},
        {"callbacks", "ModelCheckpoint", "last_step_saved"},
        {"callbacks", "GradientAccumulationScheduler", "factor"},
    };
    char dir[256], good[300], bad[300], value[64], key[80];
    CHECK(world_dir(dir, sizeof dir));
    snprintf(good, sizeof good, "%s/good.ckpt", dir);
    snprintf(bad, sizeof bad, "%s/bad.ckpt", dir);
    CHECK_OK(train(dir, NULL, good));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int low = 0; low < 2; low++) {
            int64_t v = low ? INT64_MIN : INT64_MAX;
            change(good, bad, cases[i].in, cases[i].callback, cases[i].key, v);
            lc_status s = train(dir, bad, NULL);
            if (s != LC_ERR_FORMAT) TEST_FAIL("%s %lld: %s", cases[i].key, (long long)v, lc_error_message());
            snprintf(value, sizeof value, "%lld", (long long)v);
            snprintf(key, sizeof key, "\"%s\"", cases[i].key);
            CHECK_CONTAINS(lc_error_message(), key);
            CHECK_CONTAINS(lc_error_message(), value);
            CHECK_CONTAINS(lc_error_message(), "bad.ckpt");
        }
    change(good, bad, "loop", NULL, "epoch", 2); /* the rewriting itself does no harm */
    CHECK_OK(train(dir, bad, NULL));
    world_remove(dir);
}

/* The updates that an optimizer has counted are in a tensor. */
TEST(updates_that_no_optimizer_counts)
{
    static const double values[] = {1e300, -5, 0.5, NAN, INFINITY};
    char dir[256], path[300];
    lc_module m;
    lc_fabric *f;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/bad.ckpt", dir);
    CHECK_OK(lc_fabric_new(&f, .threads = 1));
    lc_module_init(&m, NULL, 1);
    lc_module_add_parameter(&m, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){.kind = LC_INIT_ONES});
    lc_optimizer *opt = lc_adam(&m);
    CHECK_OK(lc_fabric_setup(f, &m, &opt, 1));
    lc_optimizer_zero_grad(opt);
    CHECK_OK(lc_fabric_save(f, path, NULL));
    CHECK_OK(lc_fabric_load(f, path, NULL));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK_OK(lc_tensor_write(opt->steps, &values[i], sizeof values[i]));
        CHECK_OK(lc_fabric_save(f, path, NULL));
        CHECK_STATUS(lc_fabric_load(f, path, NULL), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "bad.ckpt: optimizers.0.step is ");
    }
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m);
    world_remove(dir);
}

static lc_status set_epoch(void *ctx, const char *name, double *value)
{
    if (strstr(name, "last_epoch")) *value = *(const double *)ctx;
    return LC_OK;
}

TEST(a_scheduler_far_in_the_future)
{
    static const double values[] = {1e300, -5, 0.5, NAN, INFINITY};
    lc_module m;
    lc_module_ops ops = {LC_MODULE_OPS_INIT("m")};
    int64_t shape[] = {1};
    lc_module_init(&m, &ops, 1);
    lc_module_add_parameter(&m, "w", LC_F32, LC_ROW_MAJOR, 1, shape, (lc_init){.kind = LC_INIT_ONES});
    lc_optimizer *opt = lc_sgd(&m, .lr = 1);
    lc_scheduler *s = lc_step_lr(opt, .step_size = 1);
    CHECK(s);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK_STATUS(lc_scheduler_visit_state(s, set_epoch, (void *)(uintptr_t)&values[i]), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "\"last_epoch\" is ");
    }
    lc_scheduler_free(s);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* ---- files that are not regular files ---- */

static void make_ckpt(const char *path)
{
    lc_ckpt_writer *w;
    static const float data[4] = {1, 2, 3, 4};
    const lc_type type = {.dtype = LC_F32, .ndim = 1, .shape = {4}};
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(lc_ckpt_begin(w, path));
    CHECK_OK(lc_ckpt_add_data(w, LC_CKPT_MODEL, "w", &type, data));
    CHECK_OK(lc_ckpt_commit(w, true));
    lc_ckpt_writer_free(w);
}

TEST(irregular_files_in_a_checkpoint)
{
    static const char *const files[] = {"manifest.json", "state.json", "model.safetensors"};
    for (int kind = 0; kind < NO_FILES; kind++) {
        char dir[300], path[400], file[500];
        snprintf(dir, sizeof dir, "%s", fresh_dir("none"));
        alarm(20); /* a FIFO opened like a file would block forever */
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            lc_checkpoint *c;
            snprintf(path, sizeof path, "%s/%zu.ckpt", dir, i);
            make_ckpt(path);
            snprintf(file, sizeof file, "%s/%s", path, files[i]);
            make_no_file(kind, file);
            CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
            CHECK_CONTAINS(lc_error_message(), files[i]);
            CHECK_CONTAINS(lc_error_message(), "is not a file: it is ");
        }
        snprintf(file, sizeof file, "%s/other", dir);
        make_no_file(kind, file);
        lc_safetensors *f;
        lc_idx idx;
        lc_plugin *plugin;
        CHECK_STATUS(lc_safetensors_open(file, &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "is not a file: it is ");
        CHECK_STATUS(lc_idx_read(file, &idx), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "is not a file: it is ");
        CHECK_STATUS(lc_plugin_open(file, &plugin), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "/other is not a file");
        alarm(0);
    }
}

static lc_status parse_config(const char *path)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    char *argv[] = {(char *)"program", (char *)"--config", (char *)(uintptr_t)path};
    lc_status s = lc_trainer_options_parse(&o, 3, argv);
    lc_options_free(o.storage);
    return s;
}

static lc_status read_text(const char *path)
{
    lc_text *text = NULL;
    lc_status s = lc_text_read(path, &text);
    lc_text_free(text);
    return s;
}

/* The folder that the path is in. */
static const char *dir_of(const char *path)
{
    static char dir[400];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    return dir;
}

/* The other three files of the data set are links to this one. */
static lc_status read_mnist(const char *path)
{
    static const char *const others[] = {"train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    lc_dataset *train = NULL, *test = NULL;
    for (int i = 0; i < 3; i++) {
        char other[500];
        snprintf(other, sizeof other, "%s/%s", dir_of(path), others[i]);
        CHECK(symlink(path, other) == 0);
    }
    return lc_mnist_load(dir_of(path), &train, &test);
}

static lc_status load_weights(const char *path)
{
    world w;
    lc_load_result r = LC_LOAD_RESULT_INIT;
    world_init(&w, &world_ops, 3, 1);
    lc_status s = lc_module_load_weights(&w.base, path, &r);
    world_release(&w);
    return s;
}

static lc_status resume_from(const char *path)
{
    return train(fresh_dir("run"), path, NULL);
}

static lc_status load_by_fabric(const char *path)
{
    lc_fabric *f;
    world w;
    world_init(&w, &world_ops, 3, 1);
    CHECK_OK(lc_fabric_new(&f));
    CHECK_OK(lc_fabric_setup(f, &w.base, NULL, 0));
    lc_status s = lc_fabric_load(f, path, NULL);
    lc_fabric_free(f);
    world_release(&w);
    return s;
}

static lc_status open_arrays(const char *path)
{
    lc_array_file *f = NULL;
    return lc_array_file_open(path, &f);
}

static lc_status name_picture(void *path, int64_t index, const char **file, int64_t *target)
{
    (void)index;
    *file = path, *target = 0;
    return LC_OK;
}

static lc_status read_picture(const char *path)
{
    lc_dataset *d;
    uint8_t x[3];
    int64_t y;
    CHECK_OK(lc_image_list_from(1, name_picture, (void *)(uintptr_t)path, &d, .height = 1, .width = 1));
    lc_status s = lc_dataset_get(d, 0, 0, (void *[]){x, &y}, NULL);
    lc_dataset_unref(d);
    return s;
}

static lc_status list_pictures(const char *path)
{
    lc_dataset *d = NULL;
    return lc_image_list_new(path, &d, .height = 1, .width = 1);
}

static lc_status index_shard(const char *path)
{
    return lc_image_shards_index(path, NULL);
}

static lc_status read_shards(const char *path)
{
    lc_dataset *d = NULL;
    return lc_image_shards_new(path, &d, .height = 1, .width = 1);
}

/* `path` is the index of an empty shard. */
static lc_status read_index(const char *path)
{
    static const char end[1024];
    char shard[400];
    snprintf(shard, sizeof shard, "%.*s", (int)(strlen(path) - strlen(".idx")), path);
    FILE *f = fopen(shard, "w");
    CHECK(f && fwrite(end, 1, sizeof end, f) == sizeof end && fclose(f) == 0);
    return read_shards(shard);
}

static lc_status read_hosts(const char *path)
{
    lc__hosts hosts = {0};
    lc_status s = lc__hosts_of_file(path, 2, &hosts);
    lc__hosts_release(&hosts);
    return s;
}

/* `path` is that of liblightc_none.so. */
static lc_status load_backend(const char *path)
{
    const lc_backend_ops *ops;
    setenv("LIGHTC_BACKEND_PATH", dir_of(path), 1);
    lc_status s = lc__device_plugin("none", &ops);
    unsetenv("LIGHTC_BACKEND_PATH");
    return s;
}

static lc_status load_mpi(const char *path)
{
    lc_comm *c;
    setenv("LIGHTC_MPI_PLUGIN", path, 1);
    lc_status s = lc_comm_mpi(&c);
    unsetenv("LIGHTC_MPI_PLUGIN");
    return s;
}

TEST(irregular_files_elsewhere)
{
    static const struct {
        const char *name;
        lc_status (*use)(const char *path);
        lc_status status; /* 0: LC_ERR_FORMAT or LC_ERR_NOT_FOUND */
    } uses[] = {
        {"config", parse_config, 0},
        {"text", read_text, 0},
        {"train-images-idx3-ubyte", read_mnist, 0},
        {"weights", load_weights, 0},
        {"ckpt_path.ckpt", resume_from, 0},
        {"fabric.ckpt", load_by_fabric, 0},
        {"x.npy", open_arrays, 0},
        {"x.npz", open_arrays, 0},
        {"x.csv", open_arrays, 0},
        {"x.safetensors", open_arrays, 0},
        {"x.h5", open_arrays, 0},
        {"x.bin", open_arrays, 0},
        {"x.png", read_picture, 0},
        {"list.csv", list_pictures, 0},
        {"x.tar", index_shard, 0},
        {"y.tar", read_shards, 0},
        {"z.tar.idx", read_index, 0},
        {"hosts", read_hosts, 0},
        {"liblightc_none.so", load_backend, LC_ERR_CONFIG},
        {"liblightc_mpi.so", load_mpi, LC_ERR_UNSUPPORTED},
    };
    for (int kind = 0; kind < NO_FILES; kind++)
        for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
            char dir[300], path[400];
            snprintf(dir, sizeof dir, "%s", fresh_dir("elsewhere"));
            snprintf(path, sizeof path, "%s/%s", dir, uses[i].name);
            make_no_file(kind, path);
            double began = seconds();
            alarm(20);
            lc_status s = uses[i].use(path);
            alarm(0);
            if (uses[i].status ? s != uses[i].status : s != LC_ERR_FORMAT && s != LC_ERR_NOT_FOUND)
                TEST_FAIL("%s of kind %d: %s", uses[i].name, kind, lc_error_message());
            if (kind != NO_FILE_FOLDER) CHECK_CONTAINS(lc_error_message(), "not a file"); /* a folder may be right */
            CHECK(seconds() - began < patience(1));
        }
}

/* ---- manifests ---- */

static void rewrite(const char *ckpt, const lc__manifest *m)
{
    char path[600], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/manifest.json", ckpt);
    CHECK_OK(lc__manifest_print(m, &text, &n));
    CHECK_OK(lc__replace_file(&lc__io_system, path, text, n));
    free(text);
}

TEST(a_file_listed_thousands_of_times)
{
    char path[400];
    lc__manifest m;
    lc_checkpoint *c;
    snprintf(path, sizeof path, "%s/a.ckpt", fresh_dir("often"));
    make_ckpt(path);
    CHECK_OK(lc__manifest_read(&lc__io_system, path, &m));
    lc__manifest_file file = m.files[0];
    for (int i = 0; i < 9000; i++) CHECK_OK(lc__manifest_add(&m, file.name, file.size, file.crc));
    rewrite(path, &m);
    lc__manifest_release(&m);
    double began = seconds();
    CHECK_STATUS(lc_checkpoint_open(path, &c), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "manifest.json\" cannot be read: \"files\" names \"model.safetensors\" twice");
    CHECK(seconds() - began < patience(0.5));
}

TEST(a_time_in_the_future)
{
    char dir[300], old[400], new[400], found[400];
    lc__manifest m;
    snprintf(dir, sizeof dir, "%s", fresh_dir("future"));
    snprintf(old, sizeof old, "%s/old.ckpt", dir);
    snprintf(new, sizeof new, "%s/new.ckpt", dir);
    make_ckpt(old);
    CHECK_OK(lc__manifest_read(&lc__io_system, old, &m));
    m.saved_ns = INT64_MAX;
    rewrite(old, &m);
    pause_ms(20);
    make_ckpt(new);
    CHECK_OK(lc_checkpoint_find_last_good(dir, found, sizeof found));
    CHECK_STR(found, new);
    m.saved_ns = -1;
    rewrite(old, &m);
    lc__manifest_release(&m);
    CHECK_STATUS(lc_checkpoint_verify(old), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "\"saved_ns\" is -1");
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that programs write as literals, and that have no size: a library that does not know what is in their
 * reserved members refuses it. And the list of the structs that cannot grow. */
#include "sources.h"

#include <lightc/lightc.h>

static const float two[] = {1, 2};

static lc_status new_dataset(void *reserved, lc_dataset **out)
{
    const lc_array a = {.field = {.name = "x", .dtype = LC_F32}, .data = two, .reserved = {NULL, reserved}};
    return lc_array_dataset_new(2, 1, &a, out);
}

static lc_status use_array(void *reserved)
{
    lc_dataset *d;
    LC_TRY(new_dataset(reserved, &d));
    lc_dataset_unref(d);
    return LC_OK;
}

static lc_status use_share(void *reserved)
{
    lc_dataset *d;
    lc_dataloader *l;
    CHECK_OK(new_dataset(NULL, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d));
    lc_status s = lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2, .reserved = {reserved, NULL}});
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_option(void *reserved)
{
    struct {
        int64_t width;
    } v = {1};
    lc_option row = LC_OPTION(__typeof__(v), width, LC_OPTION_INT, 0, 9, "of a layer");
    const lc_option_set set = {"own", &row, 1, &v};
    char *argv[] = {(char *)(uintptr_t) "program", NULL};
    void *storage = NULL;
    row.reserved[0] = reserved;
    lc_status s = lc_options_parse(&set, 1, NULL, 1, argv, &storage);
    lc_options_free(storage);
    return s;
}

static lc_status use_option_set(void *reserved)
{
    const lc_option_set set = {.title = "own", .reserved = {NULL, reserved}};
    char *argv[] = {(char *)(uintptr_t) "program", NULL};
    void *storage = NULL;
    lc_status s = lc_options_parse(&set, 1, NULL, 1, argv, &storage);
    lc_options_free(storage);
    return s;
}

static lc_status use_datasets(void *reserved)
{
    lc_datamodule made = {0};
    lc_dataset *d;
    CHECK_OK(new_dataset(NULL, &d));
    lc_status s =
        lc_datamodule_from_datasets(&(lc_datasets){.train = d, .batch_size = 1, .reserved = {reserved, NULL}}, &made);
    lc_datamodule_release(&made);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_metric_batch(void *reserved)
{
    const float score = 1;
    lc_metric *m = NULL;
    CHECK_OK(lc_metric_new("MeanMetric", &m));
    lc_status s =
        lc_metric_update(m, &(lc_metric_batch){.n = 1, .columns = 1, .scores = &score, .reserved = {reserved, NULL}});
    lc_metric_free(m);
    return s;
}

static lc_status use_comm_call(void *reserved)
{
    lc_comm *c;
    CHECK_OK(lc_comm_self(&c));
    lc_status s = lc_comm_start(c, &(lc_comm_call){.op = LC_COMM_BARRIER, .reserved = {NULL, reserved}}, NULL);
    lc_comm_free(c);
    return s;
}

static lc_status use_series(void *reserved)
{
    static const double numbers[] = {1, 2};
    lc_plot *p = NULL;
    lc_plot_series s = {.n = 2, .y = numbers, .reserved = {NULL, reserved}};
    lc_status status = lc_plot_lines(1, &s, &p);
    lc_plot_free(p);
    return status;
}

static lc_status use_hyperparameters(void *reserved)
{
    struct {
        int64_t width;
    } v = {1};
    lc_option row = LC_OPTION(__typeof__(v), width, LC_OPTION_INT, 0, 9, "of a layer");
    lc_module m;
    row.reserved[0] = reserved;
    lc_module_init(&m, NULL, 1);
    lc_module_save_hyperparameters(&m, &row, 1, &v);
    lc_status s = lc_module_status(&m);
    lc_module_release(&m);
    return s;
}

static lc_status use_scheduler_config(void *reserved)
{
    static lc_optimizers list;
    memset(&list, 0, sizeof list);
    lc_module m;
    lc_module_init(&m, NULL, 1);
    lc_module_add_parameter(&m, "weight", LC_F32, LC_ROW_MAJOR, 1, (const int64_t[]){2}, (lc_init){0});
    lc_optimizer *opt = lc_sgd(&m);
    lc_scheduler *made = lc_exponential_lr(opt, .gamma = 0.5);
    lc_status s =
        lc_optimizers_add_scheduler(&list, (lc_scheduler_config){.scheduler = made, .reserved = {reserved, NULL}});
    if (s >= 0) lc_scheduler_free(list.schedulers[0].scheduler); /* taken over in both cases */
    lc_optimizer_free(opt);
    lc_module_release(&m);
    return s;
}

static lc_status use_file_field(void *reserved)
{
    lc_array_file *file;
    lc_dataset *d = NULL;
    char path[PATH_MAX + 100];
    snprintf(path, sizeof path, "%s/tests/data/files/fixtures/vector.npy", source_root());
    CHECK_OK(lc_array_file_open(path, &file));
    lc_status s = lc_file_dataset_new(1, &(lc_file_field){.name = "x", .file = file, .reserved = {reserved}}, &d);
    lc_dataset_unref(d);
    lc_array_file_close(file);
    return s;
}

/* An operator of the program with its own kernel: y = x, and a call of it. */
static lc_status infer_like_x(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

static void run_copy(const lc_call *call)
{
    memcpy(call->out[0].data, call->in[0].data, sizeof(float));
}

static lc_status call_operator(void *reserved, void *of_kernel)
{
    static lc_kernel kernel = {.name = "own", .layout = LC_WANT_ROW_MAJOR, .run = run_copy};
    static lc_op op = {.name = "own", .flags = LC_OP_NO_GRAD, .n_out = 1, .infer = infer_like_x, .kernel = &kernel};
    float value = 2;
    double read = 0;
    op.reserved[0] = reserved, kernel.reserved[1] = of_kernel;
    lc_graph *graph;
    lc_tensor *in;
    CHECK_OK(lc_graph_new(&graph));
    CHECK_OK(lc_input_new(LC_F32, 0, NULL, LC_ROW_MAJOR, &value, &in));
    CHECK_OK(lc_step_begin(graph, 0, 0));
    lc_status s = lc_item(lc_op_call(&op, 1, &in, 0, NULL, 0, NULL, LC_HERE), &read);
    if (s >= 0) CHECK_EQ(read, 2);
    (void)!lc_step_end(graph);
    lc_tensor_unref(in);
    lc_graph_free(graph);
    return s;
}

static lc_status use_operator(void *reserved)
{
    return call_operator(reserved, NULL);
}

static lc_status use_kernel(void *reserved)
{
    return call_operator(NULL, reserved);
}

static lc_status use_added_kernel(void *reserved)
{
    static lc_op op = {.name = "own", .n_out = 1, .infer = infer_like_x};
    static lc_kernel kernel = {.name = "own", .run = run_copy};
    kernel.reserved[0] = reserved;
    return lc_op_add_kernel(&op, "none", &kernel);
}

TEST(reserved_members)
{
    static const struct {
        const char *name;
        lc_status (*use)(void *reserved);
    } rows[] = {{"lc_array", use_array},
                {"lc_share", use_share},
                {"lc_file_field", use_file_field},
                {"lc_op", use_operator},
                {"lc_kernel", use_kernel},
                {"lc_kernel", use_added_kernel},
                {"lc_option", use_option},
                {"lc_option", use_hyperparameters},
                {"lc_option_set", use_option_set},
                {"lc_datasets", use_datasets},
                {"lc_metric_batch", use_metric_batch},
                {"lc_comm_call", use_comm_call},
                {"lc_plot_series", use_series},
                {"lc_scheduler_config", use_scheduler_config}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].use(NULL) < 0) TEST_FAIL("%s: %s", rows[i].name, lc_error_message());
        CHECK_STATUS(rows[i].use(&(int){1}), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), rows[i].name);
        CHECK_CONTAINS(lc_error_message(), "newer");
    }
}

/* ---- each public struct has a size or reserved members, or is in this list ---- */

/* Public structs with neither a size nor reserved members. */
static const char *const fixed[] = {
    /* a vtable and its object, which grow through the vtable */
    "callback", "datamodule", "logger", "precision", "profiler", "sampler", "transform",
    /* values, which are whole: a place, a type, a range, a name and what it names, ... */
    "accumulation", "bad_index", "box", "color", "dims", "duration", "field", "hparam", "init", "metric_value",
    "named_number", "named_tensor", "named_text", "range", "rng_key", "sample_spec", "site", "text_pair", "type",
    /* filled by functions: lc_optimizers_add, lc_loaders_add */
    "loaders", "optimizer_config", "optimizers",
    /* made by the library, or by LC_PLUGIN */
    "backend_host", "batch", "call", "grad", "infer", "log_histogram", "log_image", "log_row", "log_text",
    "module_tensor", "outputs", "param_group", "plugin_info", "run_info", "segment", "span", "strategy_request",
    "update",
    /* what functions return, or write where the program says */
    "array_info", "checkpoint_file", "comm_stats", "device_info", "device_memory", "early_stopping_info", "graph_stats",
    "idx", "loader_times", "lr_find_result", "metrics", "model_checkpoint_info", "precision_times", "safetensor_info",
    "safetensor_piece", "scale_batch_size_result", "sparsity", NULL};

static int n_structs;

static void check_grows(const char *header, char *text)
{
    blank_out(text);
    for (char *at = text; (at = strstr(at, "struct lc_")); at++) {
        char kind[80];
        int n = 0;
        if (sscanf(at, "struct lc_%79[a-z0-9_] {%n", kind, &n) != 1 || !n) continue;
        char *end = strstr(at, "\n}");
        CHECK(end != NULL);
        *end = 0;
        const char *first = at + n + strspn(at + n, " \n");
        bool sized = !strncmp(first, "size_t size;", 12) || !strncmp(first, "LC_OPTIMIZER_ARGS", 17);
        bool grows = sized || strstr(first, "void *reserved[");
        if (grows == is_one_of(kind, fixed))
            TEST_FAIL("lc_%s of %s %s", kind, header,
                      grows ? "is among those that cannot grow" : "has neither a size nor reserved members");
        *end = '\n';
        n_structs++;
    }
}

TEST(each_struct_that_a_program_fills_can_grow)
{
    n_structs = 0;
    each_source("include/lightc", c_files, check_grows);
    CHECK(n_structs > 150);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Profilers: what is reported, that nested times are consistent, and the three reports. */
#include "comma_locale.h"
#include "test.h"
#include "trainer_world.h"
#include "wave.h"

#include "base/json.h"
#include "engine/run/run.h"

#include <cjson/cJSON.h>
#include <pthread.h>

/* ---- a profiler of the test's own that keeps everything ---- */
typedef struct seen {
    lc_span spans[20000];
    int n, reports, freed;
    double seconds;
    pthread_mutex_t lock;
} seen;

static void seen_span(void *self, const lc_span *s)
{
    seen *p = self;
    pthread_mutex_lock(&p->lock);
    if (p->n < 20000) p->spans[p->n++] = *s;
    pthread_mutex_unlock(&p->lock);
}
static lc_status seen_report(void *self, const char *stage, double seconds, FILE *out)
{
    seen *p = self;
    p->reports++;
    p->seconds = seconds;
    fprintf(out, "seen %s\n", stage);
    return LC_OK;
}
static void seen_free(void *self)
{
    ((seen *)self)->freed++;
}
static const lc_profiler_ops seen_ops = {
    LC_PROFILER_OPS_INIT("seen"),
    .wants = LC_SPAN_ACTION | LC_SPAN_OP | LC_SPAN_LOADER,
    .span = seen_span,
    .report = seen_report,
    .free = seen_free,
};

static int count(const seen *p, const char *name, const char *owner)
{
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += !strcmp(p->spans[i].name, name) && (!owner || !strcmp(p->spans[i].owner, owner));
    return n;
}

static double total(const seen *p, const char *name)
{
    double ns = 0;
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->spans[i].name, name)) ns += (double)(p->spans[i].end_ns - p->spans[i].start_ns);
    return 1e-9 * ns;
}

static lc_status cb_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)self, (void)t, (void)o, (void)b, (void)i;
    return LC_OK;
}
static const lc_callback_ops quiet_ops = {LC_CALLBACK_OPS_INIT("Quiet"), .on_train_batch_end = cb_batch_end};

TEST(everything_is_reported)
{
    char dir[256], path[400], line[64] = "";
    lc_trainer *t;
    lc_module *m;
    seen *p = calloc(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    lc_profiler mine = {&seen_ops, p};
    lc_callback cb = {&quiet_ops, NULL};
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = wave_options(dir);
    o.profilers = &mine;
    o.n_profilers = 1;
    o.callbacks = &cb;
    o.n_callbacks = 1;
    o.max_steps = 40; /* an epoch of 32 steps, and 8 more */
    CHECK_OK(lc_module_new(&wave_class, NULL, 1, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    CHECK_EQ(p->reports, 1);
    CHECK_EQ(count(p, "training_step", "[Module]wave"), 40);
    CHECK_EQ(count(p, "on_train_batch_end", "[Callback]Quiet"), 40);
    CHECK_EQ(count(p, "run_training_batch", "[Trainer]"), 40);
    CHECK_EQ(count(p, "train_dataloader_next", "[Trainer]"), 40);
    CHECK_EQ(count(p, "run_step", "[Trainer]"), 40);
    CHECK_EQ(count(p, "run_training_epoch", "[Trainer]"), 2);
    CHECK_EQ(count(p, "gather", NULL), 40);
    CHECK(count(p, "save_checkpoint", "[Trainer]") >= 1);
    CHECK_EQ(count(p, "linear", NULL) % 40, 0);
    CHECK(count(p, "linear", NULL) >= 80);
    /* A nested span takes no longer than the span around it. */
    double ops = 0;
    for (int i = 0; i < p->n; i++) {
        const lc_span *s = &p->spans[i];
        CHECK(s->end_ns >= s->start_ns);
        if (s->kind == LC_SPAN_OP) ops += 1e-9 * (double)(s->end_ns - s->start_ns);
    }
    CHECK(ops > 0 && ops <= total(p, "run_step"));
    CHECK(total(p, "run_step") + total(p, "training_step") <= total(p, "run_training_batch"));
    CHECK(total(p, "run_training_batch") <= total(p, "run_training_epoch"));
    CHECK(total(p, "run_training_epoch") <= p->seconds);
    snprintf(path, sizeof path, "%s/fit-seen.txt", lc_trainer_run_dir(t));
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(line, sizeof line, f));
    fclose(f);
    CHECK_STR(line, "seen fit\n");
    lc_trainer_free(t);
    CHECK_EQ(p->freed, 1);
    lc_module_free(m);
    free(p);
    world_remove(dir);
}

static char *text_of(const char *dir, const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    char *text = calloc(1, 1 << 22);
    size_t n = fread(text, 1, (1 << 22) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

/* Loader threads and the training on a single time line. */
static double mib_of(const char *text, const char *kind)
{
    char row[40];
    double mib = -1;
    snprintf(row, sizeof row, "\n| %-15s |", kind);
    const char *at = strstr(text, row);
    CHECK(at != NULL && sscanf(at + strlen(row), "%lf", &mib) == 1);
    return mib;
}

/* The kinds of memory add up to what was planned, and with the rest to what the process has had. */
static void check_memory(const char *text)
{
    static const char *const kinds[] = {"parameters",  "gradients", "optimizer state", "buffers",
                                        "activations", "workspace", "loader"};
    double sum = 0;
    const char *table = strstr(text, "\nmemory of fit\n| Kind");
    CHECK(table != NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) sum += mib_of(table, kinds[i]);
    CHECK_NEAR(mib_of(table, "planned"), sum, 0.05);
    if (!strstr(table, "| rest ")) return; /* the run was on a device with memory of its own */
    CHECK_NEAR(mib_of(table, "process"), sum + mib_of(table, "rest"), 0.05);
}

TEST(reports)
{
    char dir[256];
    lc_trainer *t;
    lc_module *m;
    lc_loaders loaders = {0};
    lc_dataloader *threaded;
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = wave_options(dir);
    o.profiler = "simple,ops,trace";
    o.max_steps = 32;
    CHECK_OK(lc_module_new(&wave_class, NULL, 1, &m));
    CHECK_OK(wave_train_dataloader(m, &loaders)); /* creates the data */
    lc_dataloader_free(loaders.loaders[0]);
    CHECK_OK(lc_dataloader_new(&threaded, .dataset = ((wave *)m)->data, .batch_size = 16, .num_workers = 2));
    CHECK_OK(lc_trainer_new(&o, &t));
    (void)use_decimal_comma(); /* the trace is JSON all the same */
    CHECK_OK(lc_trainer_fit(t, m, .train_dataloader = threaded));
    setlocale(LC_ALL, "C");

    char *text = text_of(lc_trainer_run_dir(t), "fit-simple.txt");
    CHECK(text);
    CHECK_CONTAINS(text, "| Action ");
    CHECK_CONTAINS(text, "[Module]wave.training_step ");
    CHECK_CONTAINS(text, "[Trainer].run_training_batch ");
    CHECK_CONTAINS(text, "[Loader].copy ");
    CHECK_CONTAINS(text, "[Callback]ModelCheckpoint.");
    check_memory(text);
    free(text);

    text = text_of(lc_trainer_run_dir(t), "fit-ops.txt");
    CHECK(text);
    double all = 0, of = 0, gflop = 0;
    CHECK(sscanf(text, "operators of fit: %lf s of %lf s, %lf GFLOP", &all, &of, &gflop) == 3);
    CHECK(all > 0 && all < of);
    /* Per batch: forward 2*16*16 twice, gradients of both weights and of one input the same. */
    CHECK_NEAR(gflop, 1e-9 * 32 * 5 * 2 * 16 * 16, 1e-5 * gflop);
    CHECK_CONTAINS(text, "wave.h:");
    CHECK_CONTAINS(text, "\nlinear ");
    int plans = 0;
    CHECK(sscanf(strstr(text, "\nplans made: "), "\nplans made: %d, in ", &plans) == 1 && plans >= 1 && plans < 32);
    free(text);

    text = text_of(lc_trainer_run_dir(t), "fit-trace.json");
    CHECK(text);
    cJSON *json = cJSON_Parse(text), *e;
    CHECK(json);
    int actions = 0, ops = 0, gathers = 0, threads = 0, made = 0;
    bool others = false;
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(json, "traceEvents"))
    {
        const char *ph = cJSON_GetObjectItem(e, "ph")->valuestring;
        if (!strcmp(ph, "M")) {
            threads += !strcmp(cJSON_GetObjectItem(e, "name")->valuestring, "thread_name");
            continue;
        }
        CHECK_STR(ph, "X");
        const char *cat = cJSON_GetObjectItem(e, "cat")->valuestring;
        CHECK(cJSON_GetObjectItem(e, "ts")->valuedouble >= 0 && cJSON_GetObjectItem(e, "dur")->valuedouble >= 0);
        int tid = cJSON_GetObjectItem(e, "tid")->valueint;
        actions += !strcmp(cat, "action");
        ops += !strcmp(cat, "op");
        made += !strcmp(cat, "plan");
        if (!strcmp(cat, "loader")) {
            CHECK_EQ(cJSON_GetObjectItem(cJSON_GetObjectItem(e, "args"), "batch")->valueint % 1, 0);
            CHECK(tid == 1 || tid == 2);
            gathers++;
        } else {
            others |= tid != 0;
        }
    }
    CHECK(!others && actions > 32 * 4 && ops > 32 * 4);
    CHECK(gathers == 32);
    CHECK_EQ(made, plans);
    CHECK(threads == 2 || threads == 3); /* one of the two loader threads may have had nothing to do */
    cJSON_Delete(json);
    free(text);
    lc_trainer_free(t);
    /* The loader reports to no profiler any more. */
    lc_batch *batch;
    CHECK_OK(lc_dataloader_begin(threaded, 0, 0));
    CHECK_OK(lc_dataloader_next(threaded, &batch));
    lc_dataloader_end(threaded);
    lc_dataloader_free(threaded);
    lc_module_free(m);
    world_remove(dir);
}

/* ---- names from plug-ins and files ---- */
#define EVIL "a\033[2Jb\nc\xff"

static lc_status evil_infer(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}
static void evil_run(const lc_call *c)
{
    memcpy(c->out[0].data, c->in[0].data, 16 * sizeof(float));
}
static const lc_kernel evil_kernel = {.name = "k" EVIL, .layout = LC_WANT_ROW_MAJOR, .run = evil_run};
static const lc_op evil_op = {.name = "o" EVIL, .n_out = 1, .infer = evil_infer, .kernel = &evil_kernel};

static lc_tensor *evil_training_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    lc_tensor *x = batch->x;
    (void)lc_keep(lc_op_call(&evil_op, 1, &x, 0, NULL, 0, NULL, (lc_site){.file = "/f" EVIL, .line = 1}));
    return wave_training_step(self, batch, i);
}

/* Whether a terminal would show the text and do nothing else. */
static bool is_plain(const char *text)
{
    char *again = malloc(4 * strlen(text) + 1);
    bool plain = !strcmp(lc_printable(text, true, again, 4 * strlen(text) + 1), text);
    free(again);
    return plain;
}

TEST(names_cannot_write_to_the_terminal)
{
    static const struct {
        const char *file, *names[4];
    } rows[] = {
        {"fit-simple.txt", {"[Module]m", "[Callback]c"}},
        {"fit-ops.txt", {"\no", "k", "f"}},
        {"plans", {" o", " k", " f"}},
        {"plans.dot", {" o", "k"}},
    };
    char dir[256], path[400];
    lc_trainer *t;
    lc_module *m;
    CHECK(world_dir(dir, sizeof dir));
    lc_module_ops evil_ops = wave_ops;
    lc_callback_ops evil_callback = quiet_ops;
    lc_callback cb = {&evil_callback, NULL};
    evil_ops.name = "m" EVIL, evil_ops.training_step = evil_training_step;
    evil_callback.name = "c" EVIL;
    lc_trainer_options o = wave_options(dir);
    o.profiler = "simple,ops,trace";
    o.callbacks = &cb, o.n_callbacks = 1;
    o.enable_checkpointing = LC_OFF; /* names in checkpoints are UTF-8 */
    o.max_steps = 2;
    snprintf(path, sizeof path, "%s/plans", dir);
    setenv("LIGHTC_PLAN_DUMP", path, 1);
    CHECK_OK(lc_module_new(&wave_class, NULL, 1, &m));
    m->ops = &evil_ops;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status status = lc_trainer_fit(t, m);
    unsetenv("LIGHTC_PLAN_DUMP");
    CHECK_OK(status);
    char *run = strdup(lc_trainer_run_dir(t));
    lc_trainer_free(t);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = text_of(i < 2 ? run : dir, rows[i].file);
        CHECK(text);
        for (int k = 0; k < 4 && rows[i].names[k]; k++) {
            char shown[80];
            snprintf(shown, sizeof shown, "%sa\\x1b[2Jb\\x0ac\\xff", rows[i].names[k]);
            CHECK_CONTAINS(text, shown);
        }
        if (!is_plain(text)) TEST_FAIL("%s: %s", rows[i].file, text);
        free(text);
    }
    char *text = text_of(run, "fit-trace.json");
    CHECK(text && !lc__utf8_first_bad(text, strlen(text)));
    cJSON *json = cJSON_Parse(text);
    CHECK(json);
    cJSON_Delete(json);
    free(text);
    free(run);
    lc_module_free(m);
    world_remove(dir);
}

/* The report of a program's own profiler is shown as well. */
static lc_status loud_report(void *self, const char *stage, double seconds, FILE *out)
{
    (void)self, (void)stage, (void)seconds;
    fprintf(out, "one" EVIL "\ttwo\n");
    return LC_OK;
}

TEST(a_report_is_shown_without_control_characters)
{
    char dir[256], text[4096];
    lc_trainer *t;
    lc_module *m;
    CHECK(world_dir(dir, sizeof dir));
    lc_profiler_ops loud_ops = seen_ops;
    seen *p = calloc(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    loud_ops.report = loud_report, loud_ops.shown = true;
    lc_profiler loud = {&loud_ops, p};
    lc_trainer_options o = wave_options(dir);
    o.enable_progress_bar = LC_ON;
    o.profilers = &loud, o.n_profilers = 1;
    o.max_steps = 1;
    CHECK_OK(lc_module_new(&wave_class, NULL, 1, &m));
    int ends[2], screen = dup(2);
    CHECK(pipe(ends) == 0 && screen >= 0 && dup2(ends[1], 2) == 2);
    lc_status status = lc_trainer_new(&o, &t);
    if (status >= 0) status = lc_trainer_fit(t, m);
    dup2(screen, 2), close(screen), close(ends[1]);
    CHECK_OK(status);
    size_t n = 0;
    for (ssize_t k; n < sizeof text - 1 && (k = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)k;
    text[n] = 0;
    close(ends[0]);
    CHECK_CONTAINS(text, "onea\\x1b[2Jb\nc\\xff\ttwo\n");
    lc_trainer_free(t);
    lc_module_free(m);
    free(p);
    world_remove(dir);
}

/* ---- paths that are not regular files ---- */

TEST(plans_are_written_only_to_regular_files)
{
    char dir[256], path[400], dot[410];
    lc_graph *g;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/plans", dir), snprintf(dot, sizeof dot, "%s.dot", path);
    for (int kind = 0; kind < 4; kind++) {
        const char *other = kind % 2 ? dot : path;
        CHECK((kind < 2 ? mkfifo(other, 0666) : mkdir(other, 0777)) == 0);
        setenv("LIGHTC_PLAN_DUMP", path, 1);
        alarm(20);
        lc_status status = lc_graph_new(&g);
        alarm(0);
        unsetenv("LIGHTC_PLAN_DUMP");
        CHECK_STATUS(status, LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), "LIGHTC_PLAN_DUMP: cannot ");
        CHECK_CONTAINS(lc_error_message(), other);
        CHECK(remove(other) == 0 && (other == path || remove(path) == 0));
    }
    world_remove(dir);
}

/* Nothing else makes the folder. */
TEST(the_folder_of_a_report_is_made)
{
    char dir[256], root[270];
    lc_trainer *t;
    lc_module *m;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(root, sizeof root, "%s/new", dir);
    lc_trainer_options o = wave_options(root);
    o.logger = "none";
    o.enable_checkpointing = LC_OFF;
    o.profiler = "simple";
    o.max_steps = 2;
    CHECK_OK(lc_module_new(&wave_class, NULL, 1, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, m));
    char *text = text_of(root, "fit-simple.txt");
    CHECK(text);
    free(text);
    lc_trainer_free(t);
    lc_module_free(m);
    world_remove(dir);
}

TEST(errors)
{
    lc_trainer *t;
    lc_trainer_options o = wave_options(NULL);
    o.profiler = "simple,fast";
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "simple, ops, trace");
    o.profiler = "simple";
    o.barebones = true;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "profiler");
}

static lc_status wordless_report(void *self, const char *stage, double seconds, FILE *out)
{
    (void)self, (void)stage, (void)seconds, (void)out;
    return LC_ERR_IO;
}

static char warned[400];

static void keep_warning(void *context, lc_trainer *t, lc_level level, const char *text)
{
    (void)context, (void)t;
    if (level == LC_WARNING) snprintf(warned, sizeof warned, "%s", text);
}

TEST(a_report_that_fails_without_a_message)
{
    const lc_profiler_ops ops = {LC_PROFILER_OPS_INIT("mine"), .span = seen_span, .report = wordless_report};
    const lc_profiler mine = {&ops, NULL};
    lc_trainer *t;
    lc_module *m;
    lc_callback cb;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    lc_trainer_options o = wave_options(dir);
    CHECK_OK(lc_lambda_callback(&cb, .on_message = keep_warning));
    o.callbacks = &cb, o.n_callbacks = 1;
    o.profilers = &mine, o.n_profilers = 1;
    o.max_steps = 1;
    CHECK_OK(lc_module_new(&wave_class, NULL, 1, &m));
    CHECK_OK(lc_trainer_new(&o, &t));
    (void)lc_fail(LC_ERR_IO, "another matter");
    CHECK_OK(lc_trainer_fit(t, m));
    CHECK_CONTAINS(warned, "report returned an error (input or output failed) without a message");
    lc_trainer_free(t);
    lc_module_free(m);
    world_remove(dir);
}

/* ---- a loader that outlives the run ---- */

static lc_span_fn *observer;

static lc_status cannot_begin(void *self, int64_t epoch, int64_t start)
{
    (void)self, (void)epoch, (void)start;
    return lc_fail(LC_ERR_IO, "no such shard");
}
static lc_status no_batch(void *self, lc_batch **out)
{
    (void)self;
    *out = NULL;
    return LC_OK;
}
static void note_observer(void *self, lc_span_fn *fn, void *ctx)
{
    (void)self, (void)ctx;
    observer = fn;
}
static lc_status validate_nothing(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return LC_OK;
}

/* The program may use it after the trainer, whose profiler is then gone. */
TEST(a_loader_that_cannot_begin_is_no_longer_observed)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .validation_step = validate_nothing};
    static const lc_dataloader_ops loader_ops = {LC_DATALOADER_OPS_INIT, .begin = cannot_begin, .next = no_batch,
                                                 .observe = note_observer};
    seen *p = calloc(1, sizeof *p);
    const lc_profiler mine = {&seen_ops, p};
    lc_dataloader *loader;
    lc_trainer *t;
    lc_module m;
    CHECK(p);
    pthread_mutex_init(&p->lock, NULL);
    lc_trainer_options o = wave_options(NULL);
    o.profilers = &mine, o.n_profilers = 1;
    lc_module_init(&m, &ops, 1);
    CHECK_OK(lc_dataloader_from_ops(&loader_ops, NULL, &loader));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_validate(t, &m, .dataloaders = &loader, .n_dataloaders = 1), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "no such shard");
    CHECK(!observer);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m);
    free(p);
}

/* ---- operations counted ---- */
static double counted;
static void count_flop(void *ctx, const lc_span *s)
{
    (void)ctx;
    counted += s->flop;
}

static lc_tensor *input(int ndim, const int64_t *shape)
{
    static float zeros[1 << 16];
    lc_tensor *t = NULL;
    CHECK_OK(lc_input_new(LC_F32, ndim, shape, LC_ROW_MAJOR, zeros, &t));
    return t;
}

static double flop_of(lc_graph *g, lc_tensor *(*f)(lc_tensor **in), lc_tensor **in)
{
    counted = 0;
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_keep(f(in));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    return counted;
}
static lc_tensor *product(lc_tensor **in)
{
    return lc_matmul(in[0], in[1]);
}
static lc_tensor *convolved(lc_tensor **in)
{
    return lc_conv2d(in[0], in[1], NULL, .stride = LC_DIMS(2, 2), .padding = LC_DIMS(1, 1));
}
static lc_tensor *attended(lc_tensor **in)
{
    return lc_sdpa(in[0], in[1], in[2]);
}

TEST(products_are_counted)
{
    lc_graph *g;
    lc_tensor *a[3];
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    lc__graph_observe(g, count_flop, NULL);
    a[0] = input(3, (int64_t[]){2, 3, 5});
    a[1] = input(3, (int64_t[]){2, 5, 7});
    CHECK(flop_of(g, product, a) == 2 * 2 * 3 * 5 * 7);
    lc_tensor_unref(a[0]), lc_tensor_unref(a[1]);
    a[0] = input(4, (int64_t[]){2, 3, 8, 8});
    a[1] = input(4, (int64_t[]){4, 3, 3, 3});
    CHECK(flop_of(g, convolved, a) == 2.0 * 2 * 4 * 4 * 4 * 3 * 3 * 3);
    lc_tensor_unref(a[0]), lc_tensor_unref(a[1]);
    a[0] = input(4, (int64_t[]){2, 3, 5, 8});
    a[1] = input(4, (int64_t[]){2, 3, 6, 8});
    a[2] = input(4, (int64_t[]){2, 3, 6, 8});
    CHECK(flop_of(g, attended, a) == 2.0 * 2 * 2 * 3 * 5 * 6 * 8);
    for (int i = 0; i < 3; i++) lc_tensor_unref(a[i]);
    lc_graph_free(g);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out, in every allocation: a scenario is run once to count its allocations, then once for each of
 * them with that one failing, and once more with all from there on failing. Each run must end in success or in an error
 * that reports the lack of memory; nothing crashes and, under AddressSanitizer, nothing leaks.
 *
 * The linker puts the functions below before the C library's for all of lightc (--wrap in extra.cmake), so this works
 * with sanitizers too, and allocations of libraries below lightc are not affected. To add a scenario: a function that
 * releases all it made, and a TEST that calls exhaust. */
#include "test.h"
#include "trainer_world.h"
#include "wave.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

static atomic_long allocations, fail_at; /* fail_at 0: never */
static atomic_bool keep_failing;         /* also all after it */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

static bool fails(void)
{
    long at = atomic_load(&fail_at), now = atomic_fetch_add(&allocations, 1) + 1;
    if (!at || now < at || (now > at && !atomic_load(&keep_failing))) return false;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}
char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}
char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}

static char directory[256];

/* Returns the number of allocations whose failure was an error. */
static int exhaust(lc_status (*scenario)(void), long at_most)
{
    CHECK_OK(scenario()); /* allocates what is made once per process */
    atomic_store(&allocations, 0);
    CHECK_OK(scenario());
    long n = atomic_load(&allocations), stride = n > at_most ? n / at_most + 1 : 1;
    int refused = 0;
    if (getenv("LIGHTC_TEST_VERBOSE")) printf("  %ld allocations, every %ld\n", n, stride);
    for (int kept = 0; kept < 2; kept++)
        for (long k = 1 + (kept ? stride / 2 : 0); k <= n; k += stride) {
            lc_fail(LC_OK, "%s", "");
            atomic_store(&keep_failing, kept);
            atomic_store(&allocations, 0);
            atomic_store(&fail_at, k);
            if (getenv("LIGHTC_TEST_VERBOSE")) printf("  %s %ld\n", kept ? "all from" : "only", k);
            lc_status status = scenario();
            atomic_store(&fail_at, 0);
            refused += status < 0;
            if (status < 0 && !*lc_error_message()) TEST_FAIL("no message when allocation %ld of %ld fails", k, n);
            if (status < 0 && status != LC_ERR_MEMORY && !strstr(lc_error_message(), "memory"))
                TEST_FAIL("allocation %ld of %ld (%s): %s, not a lack of memory: %s", k, n,
                          kept ? "and all after" : "it", lc_status_text(status), lc_error_message());
        }
    CHECK_OK(scenario()); /* and afterwards everything works as before */
    return refused;
}

/* ---- graph, step and plan ---- */

typedef struct net {
    lc_module base;
    lc_conv2d conv;
    lc_batch_norm2d norm;
    lc_linear l1, l2;
    lc_dataset *data;
} net;

static void net_init(net *m, const lc_module_ops *ops)
{
    lc_module_init(&m->base, ops, 1);
    lc_conv2d_init(&m->conv, m, "conv", 1, 4, 3);
    lc_batch_norm2d_init(&m->norm, m, "norm", 4);
    lc_linear_init(&m->l1, m, "l1", 4 * 6 * 6, 8);
    lc_linear_init(&m->l2, m, "l2", 8, 3);
}

static lc_tensor *net_loss(net *m, lc_tensor *x, lc_tensor *y) /* x [B,1,8,8], y [B] */
{
    x = lc_relu(lc_batch_norm2d_forward(&m->norm, lc_conv2d_forward(&m->conv, x)));
    x = lc_dropout(lc_relu(lc_linear_forward(&m->l1, lc_flatten(x, 1))), 0.1);
    return lc_cross_entropy(lc_linear_forward(&m->l2, x), y);
}

static float pixels[12 * 64];
static int64_t labels[12];

static lc_status train_by_hand(void)
{
    lc_status status = LC_OK;
    lc_graph *g = NULL;
    lc_tensor *x = NULL, *y = NULL;
    lc_optimizer *opt = NULL;
    net m = {0};
    double loss;
    net_init(&m, NULL);
    LC_TRY_GOTO(status, done, lc_module_status(&m.base));
    if (!(opt = lc_adam(&m, .lr = 1e-2))) LC_TRY_GOTO(status, done, LC_ERR_MEMORY);
    LC_TRY_GOTO(status, done, lc_graph_new(&g, .threads = 1));
    LC_TRY_GOTO(status, done, lc_input_new(LC_F32, 4, (int64_t[]){4, 1, 8, 8}, LC_ROW_MAJOR, pixels, &x));
    LC_TRY_GOTO(status, done, lc_input_new(LC_I64, 1, (int64_t[]){4}, LC_ROW_MAJOR, labels, &y));
    for (int step = 0; step < 3; step++) {
        LC_TRY_GOTO(status, done, lc_step_begin(g, (uint64_t)step, 0));
        lc_tensor *l = lc_keep(net_loss(&m, x, y));
        lc_zero_grad(g);
        lc_backward(l);
        lc_optimizer_step(opt);
        LC_TRY_GOTO(status, done, lc_step_run(g));
        LC_TRY_GOTO(status, done, lc_item(l, &loss));
        LC_TRY_GOTO(status, done, lc_step_end(g));
    }
done:
    lc_optimizer_free(opt);
    lc_module_release(&m.base);
    lc_tensor_unref(x);
    lc_tensor_unref(y);
    lc_graph_free(g);
    return status;
}

#ifndef SANITIZED
/* ---- the first step when addresses run out, which the libraries below notice too ---- */

/* Two steps, the first of which has `spare` bytes of address space left (0: all). Returns the last loss, or minus the
 * status. */
static double train_within(size_t spare)
{
    net m = {0};
    lc_graph *g;
    lc_tensor *x, *y;
    double loss = 0;
    net_init(&m, NULL);
    lc_optimizer *opt = lc_adam(&m, .lr = 1e-2);
    lc_status status = lc_graph_new(&g, .threads = 1);
    if (status == LC_OK) status = lc_input_new(LC_F32, 4, (int64_t[]){4, 1, 8, 8}, LC_ROW_MAJOR, pixels, &x);
    if (status == LC_OK) status = lc_input_new(LC_I64, 1, (int64_t[]){4}, LC_ROW_MAJOR, labels, &y);
    for (int step = 0; step < 2 && status == LC_OK; step++) {
        status = lc_step_begin(g, (uint64_t)step, 0);
        lc_tensor *l = lc_keep(net_loss(&m, x, y));
        lc_zero_grad(g);
        lc_backward(l);
        lc_optimizer_step(opt);
        struct rlimit limit, all;
        unsigned long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, &all) != 0) return 1e9;
        fclose(f);
        limit = all;
        limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + spare;
        if (step == 0 && spare && setrlimit(RLIMIT_AS, &limit) != 0) return 1e9;
        if (status == LC_OK) status = lc_step_run(g);
        if (step == 0 && spare && setrlimit(RLIMIT_AS, &all) != 0) return 1e9;
        if (status == LC_OK) status = lc_item(l, &loss);
        if (status == LC_OK) status = lc_step_end(g);
    }
    return status == LC_OK ? loss : status;
}

/* The same in a process of its own, in which nothing has been set up yet. */
static double train_apart(size_t spare)
{
    int ends[2], state;
    double result = 1e9;
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        result = train_within(spare);
        _exit(write(ends[1], &result, sizeof result) != sizeof result);
    }
    close(ends[1]);
    bool got = read(ends[0], &result, sizeof result) == sizeof result;
    close(ends[0]);
    CHECK(waitpid(child, &state, 0) == child);
    if (!got || !WIFEXITED(state) || WEXITSTATUS(state))
        TEST_FAIL("with %zu KiB to spare the process ended with state %d", spare >> 10, state);
    return result;
}

TEST(a_first_step_within_limits)
{
    int refused = 0, done = 0;
    double want = train_apart(0);
    CHECK(want > 0 && want < 1e9);
    for (size_t spare = (size_t)64 << 10; spare < (size_t)96 << 20; spare += spare / 4) {
        double got = train_apart(spare);
        if (got != want && got != LC_ERR_MEMORY)
            TEST_FAIL("with %zu KiB to spare: %.9g; undisturbed %.9g", spare >> 10, got, want);
        refused += got != want;
        done += got == want;
    }
    if (!(refused > 3 && done > 1)) TEST_FAIL("%d steps were refused, and %d done", refused, done);
}
#endif

TEST(engine)
{
    CHECK(exhaust(train_by_hand, 1500) > 50);
}

/* ---- the first step, and the same step again ---- */

static double first_losses[2]; /* losses of the two steps when nothing fails */
static long step_allocations;

/* Two steps with both threads, the first of which fails in its `fail`th allocation and is then repeated. Returns the
 * status of the first attempt; the numbers are always those of an undisturbed run, since the lack of memory never
 * changes the choice of a kernel. */
static lc_status train_again(long fail, double *losses)
{
    net m = {0};
    lc_graph *g = NULL;
    lc_tensor *x = NULL, *y = NULL;
    net_init(&m, NULL);
    CHECK_OK(lc_module_status(&m.base));
    lc_optimizer *opt = lc_adam(&m, .lr = 1e-2);
    CHECK(opt);
    CHECK_OK(lc_graph_new(&g, .threads = 2));
    CHECK_OK(lc_input_new(LC_F32, 4, (int64_t[]){4, 1, 8, 8}, LC_ROW_MAJOR, pixels, &x));
    CHECK_OK(lc_input_new(LC_I64, 1, (int64_t[]){4}, LC_ROW_MAJOR, labels, &y));
    lc_status first = LC_OK;
    for (int step = 0, attempt = 0; step < 2; attempt++) {
        atomic_store(&keep_failing, false);
        atomic_store(&allocations, 0);
        atomic_store(&fail_at, attempt == 0 ? fail : 0);
        lc_status status = lc_step_begin(g, (uint64_t)step, 0);
        if (status == LC_OK) {
            lc_tensor *l = lc_keep(net_loss(&m, x, y));
            lc_zero_grad(g);
            lc_backward(l);
            lc_optimizer_step(opt);
            status = lc_step_run(g);
            if (!fail && attempt == 0) step_allocations = atomic_load(&allocations);
            atomic_store(&fail_at, 0);
            if (status == LC_OK) CHECK_OK(lc_item(l, &losses[step]));
            CHECK(lc_step_end(g) == status);
        }
        atomic_store(&fail_at, 0);
        if (attempt == 0) first = status;
        if (attempt > 0) CHECK_OK(status);
        step += status == LC_OK;
    }
    lc_optimizer_free(opt);
    lc_module_release(&m.base);
    lc_tensor_unref(x);
    lc_tensor_unref(y);
    lc_graph_free(g);
    return first;
}

TEST(a_first_step_fails_or_gives_the_same_numbers)
{
    int refused = 0;
    for (int i = 0; i < 64 * 12; i++) pixels[i] = (float)(i * 37 % 101) / 101;
    CHECK_OK(train_again(0, first_losses));
    CHECK_OK(train_again(0, first_losses)); /* allocates what is made once per process */
    CHECK(step_allocations > 20);           /* without oneDNN far fewer than with it */
    for (long k = 1; k <= step_allocations; k++) {
        double losses[2];
        lc_status status = train_again(k, losses);
        if (status != LC_OK && status != LC_ERR_MEMORY)
            TEST_FAIL("allocation %ld of %ld: %s: %s", k, step_allocations, lc_status_text(status), lc_error_message());
        if (memcmp(losses, first_losses, sizeof losses) != 0)
            TEST_FAIL("allocation %ld of %ld: losses %.9g, %.9g; undisturbed %.9g, %.9g", k, step_allocations,
                      losses[0], losses[1], first_losses[0], first_losses[1]);
        refused += status == LC_ERR_MEMORY;
    }
    CHECK(refused > step_allocations / 2);
}

/* ---- modules ---- */

static lc_status build_modules(void)
{
    struct {
        lc_module base;
        lc_embedding tok;
        lc_multihead_attention attention;
        lc_layer_norm norm;
        lc_lstm lstm;
        lc_sequential seq;
    } m = {0};
    lc_module_init(&m.base, NULL, 1);
    lc_embedding_init(&m.tok, &m, "tok", 10, 8);
    lc_multihead_attention_init(&m.attention, &m, "attention", 8, 2);
    lc_layer_norm_init(&m.norm, &m, "norm", 8);
    lc_lstm_init(&m.lstm, &m, "lstm", 8, 8);
    lc_sequential_init(&m.seq, &m, "seq");
    lc_status status = lc_module_status(&m.base);
    lc_module_release(&m.base);
    return status;
}

TEST(modules)
{
    CHECK(exhaust(build_modules, 2000) > 20);
}

/* ---- the loader, with workers and without ---- */

static int workers;

static lc_status make_data(lc_dataset **out)
{
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 3, .shape = {1, 8, 8}}, .data = pixels},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    return lc_array_dataset_new(12, 2, arrays, out);
}

static lc_status load(void)
{
    lc_status status = LC_OK;
    lc_dataset *data = NULL, *parts[2] = {NULL, NULL}, *flipped = NULL;
    lc_dataloader *l = NULL;
    lc_transform t;
    LC_TRY_GOTO(status, done, make_data(&data));
    LC_TRY_GOTO(status, done, lc_dataset_split(data, 1, 2, (int64_t[]){9, 3}, parts));
    LC_TRY_GOTO(status, done, lc_transform_horizontal_flip(0.5, &t));
    LC_TRY_GOTO(status, done, lc_dataset_transform(parts[0], 0, t, &flipped));
    LC_TRY_GOTO(status, done,
                lc_dataloader_new(&l, .dataset = flipped, .batch_size = 2, .shuffle = true, .num_workers = workers));
    for (int epoch = 0; epoch < 2; epoch++) {
        lc_batch *batch;
        LC_TRY_GOTO(status, done, lc_dataloader_begin(l, epoch, 0));
        do LC_TRY_GOTO(status, done, lc_dataloader_next(l, &batch));
        while (batch);
    }
done:
    lc_dataloader_free(l);
    lc_dataset_unref(flipped);
    lc_dataset_unref(parts[0]);
    lc_dataset_unref(parts[1]);
    lc_dataset_unref(data);
    return status;
}

TEST(loader)
{
    for (workers = 0; workers < 3; workers += 2) CHECK(exhaust(load, 300) > 10);
}

/* ---- a whole run: loops, logged values, loggers, checkpoints, resumption ---- */

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    lc_tensor *loss = net_loss((net *)self, b->x, b->y);
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON);
    return loss;
}
static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int k)
{
    (void)i, (void)k;
    lc_log(self, "val_loss", net_loss((net *)self, b->x, b->y));
    return LC_OK;
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *opt = lc_sgd(self, .lr = 0.1, .momentum = 0.9);
    LC_TRY(lc_optimizers_add(out, opt));
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_step_lr(opt, .step_size = 1)});
}
static lc_status add_loader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = ((net *)self)->data, .batch_size = 4));
    return lc_loaders_add(out, l);
}
static const lc_module_ops ops = {
    LC_MODULE_OPS_INIT("net"),      .training_step = training_step,
    .train_dataloader = add_loader, .configure_optimizers = configure_optimizers,
    .val_dataloader = add_loader,   .validation_step = validation_step,
};

static const char *logger;
static int64_t dev_run;

static lc_status fit(const char *resume)
{
    lc_status status = LC_OK;
    net m = {0};
    lc_trainer *t = NULL;
    lc_trainer_options o = world_options(directory);
    o.logger = logger;
    o.fast_dev_run = dev_run;
    o.max_epochs = resume ? 2 : 1;
    o.log_every_n_steps = 1;
    o.threads = 1;
    o.enable_checkpointing = LC_ON;
    o.early_stopping = "val_loss";
    LC_TRY_GOTO(status, done, make_data(&m.data));
    net_init(&m, &ops);
    LC_TRY_GOTO(status, done, lc_trainer_new(&o, &t));
    status = lc_trainer_fit(t, &m.base, .ckpt_path = resume);
done:
    lc_trainer_free(t);
    if (m.base.ops) lc_module_release(&m.base);
    lc_dataset_unref(m.data);
    return status;
}

static lc_status fit_new(void)
{
    lc_status status = fit(NULL);
    if (!dev_run) {
        long at = atomic_exchange(&fail_at, 0); /* the runs of a scenario must not differ in what they find */
        world_remove(directory);
        if (mkdir(directory, 0700) != 0) printf("  cannot make %s again\n", directory);
        atomic_store(&fail_at, at);
    }
    return status;
}

TEST(fast_dev_run)
{
    CHECK(world_dir(directory, sizeof directory));
    dev_run = 1;
    logger = "none";
    CHECK(exhaust(fit_new, 400) > 100);
    world_remove(directory);
}

TEST(fit_with_loggers_and_checkpoints)
{
    CHECK(world_dir(directory, sizeof directory));
    dev_run = 0;
    logger = "csv,sqlite";
    CHECK(exhaust(fit_new, 60) > 20);
    world_remove(directory);
}

static char saved[600];

static lc_status fit_on(void)
{
    return fit(saved);
}

TEST(resumption)
{
    CHECK(world_dir(directory, sizeof directory));
    dev_run = 0;
    logger = "none";
    CHECK_OK(fit(NULL));
    snprintf(saved, sizeof saved, "find '%s' -name '*.ckpt' | head -1", directory);
    FILE *f = popen(saved, "r");
    CHECK(f && fgets(saved, sizeof saved, f));
    pclose(f);
    saved[strcspn(saved, "\n")] = 0;
    CHECK(exhaust(fit_on, 100) > 30);
    world_remove(directory);
}

/* ---- options and state ---- */

static lc_status parse(void)
{
    char *argv[] = {(char *)"p", (char *)"--max_epochs", (char *)"3", (char *)"--monitor=loss", (char *)"--lr",
                    (char *)"2"};
    struct mine {
        double lr;
        const char *text;
    } mine = {0};
    const lc_option table[] = {LC_OPTION(struct mine, lr, LC_OPTION_FLOAT, 0, 10, "learning rate"),
                               LC_OPTION(struct mine, text, LC_OPTION_TEXT, 0, 0, "text")};
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    lc_state *state = NULL, *child, *again = NULL;
    char *text = NULL;
    size_t length;
    lc_status status = lc_trainer_options_parse_with(&o, table, 2, &mine, 6, argv);
    LC_TRY_GOTO(status, done, status);
    LC_TRY_GOTO(status, done, lc_state_new(&state));
    LC_TRY_GOTO(status, done, lc_state_set_text(state, "name", "value"));
    LC_TRY_GOTO(status, done, lc_state_set_array(state, "list", &child));
    for (int i = 0; i < 40; i++) LC_TRY_GOTO(status, done, lc_state_set_int(child, NULL, i));
    LC_TRY_GOTO(status, done, lc_state_print(state, &text, &length));
    LC_TRY_GOTO(status, done, lc_state_parse(text, length, &again));
done:
    lc_state_free(state);
    lc_state_free(again);
    free(text);
    lc_trainer_options_release(&o);
    return status;
}

TEST(options_and_state)
{
    CHECK(exhaust(parse, 2000) > 20);
}

/* ---- metrics ---- */

static lc_status measure(void)
{
    lc_status status = LC_OK;
    lc_metric *m = NULL;
    static const float scores[] = {0.1f, 0.9f, 0.4f, 0.6f};
    static const int64_t targets[] = {0, 1, 0, 1};
    static const char *const names[] = {"Accuracy", "AUROC", "F1Score", "ConfusionMatrix"};
    for (int i = 0; i < 4; i++) {
        double values[4];
        LC_TRY_GOTO(status, done, lc_metric_new(names[i], &m));
        for (int k = 0; k < 5; k++) LC_TRY_GOTO(status, done, lc_metric_update_scores(m, 4, 1, scores, targets));
        LC_TRY_GOTO(status, done, lc_metric_compute_all(m, values, lc_metric_outputs(m)));
        lc_metric_free(m);
        m = NULL;
    }
done:
    lc_metric_free(m);
    return status;
}

TEST(metrics)
{
    CHECK(exhaust(measure, 2000) > 5);
}

/* ---- hyperparameters, Fabric, the tuner, profilers ---- */

static lc_status remodel(void)
{
    lc_module *m = NULL;
    LC_TRY(lc_module_load_from_checkpoint(&wave_class, saved, true, &m));
    lc_module_free(m);
    return LC_OK;
}

static lc_status own_loop(void)
{
    static float xs[4], ys[4];
    lc_status status = LC_OK;
    lc_fabric *f = NULL;
    lc_module *m = NULL;
    lc_optimizer *opt = NULL;
    lc_tensor *x = NULL, *y = NULL;
    lc_logger csv;
    LC_TRY_GOTO(status, done, lc_logger_new("csv", &csv));
    LC_TRY_GOTO(status, done, lc_fabric_new(&f, .loggers = &csv, .n_loggers = 1, .default_root_dir = directory));
    LC_TRY_GOTO(status, done, lc_module_new(&wave_class, NULL, 1, &m));
    opt = lc_adam(m, .lr = 0.01);
    LC_TRY_GOTO(status, done, lc_module_status(m));
    LC_TRY_GOTO(status, done, lc_fabric_setup(f, m, &opt, 1));
    LC_TRY_GOTO(status, done, lc_input_new(LC_F32, 2, (int64_t[]){4, 1}, LC_ROW_MAJOR, xs, &x));
    LC_TRY_GOTO(status, done, lc_input_new(LC_F32, 2, (int64_t[]){4, 1}, LC_ROW_MAJOR, ys, &y));
    for (int i = 0; i < 2; i++) {
        LC_TRY_GOTO(status, done, lc_fabric_begin(f));
        lc_batch batch = {.x = x, .y = y};
        wave *w = (wave *)m;
        lc_tensor *loss = lc_mse_loss(lc_linear_forward(&w->l2, lc_linear_forward(&w->l1, batch.x)), batch.y);
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, loss);
        lc_fabric_clip_gradients(f, opt, .max_norm = 1);
        lc_fabric_step(f, opt);
        LC_TRY_GOTO(status, done, lc_fabric_end(f));
        LC_TRY_GOTO(status, done, lc_fabric_log(f, "i", i, -1));
    }
    lc_state *mine = NULL;
    LC_TRY_GOTO(status, done, lc_state_new(&mine));
    LC_TRY_GOTO(status, done, lc_fabric_save(f, saved, mine));
    LC_TRY_GOTO(status, done, lc_fabric_load(f, saved, NULL));
done:
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_free(m);
    lc_tensor_unref(x), lc_tensor_unref(y);
    return status;
}

/* Names, lists of them, and values that are converted. */
static lc_status reweigh(void)
{
    static const lc_text_pair rename[] = {{"l1.*", "l3.*"}};
    static const char *const transpose[] = {"l2.weight"};
    lc_status status = LC_OK;
    lc_module *m = NULL;
    lc_load_args o = lc_load_defaults();
    lc_load_result r = LC_LOAD_RESULT_INIT;
    o.rename = rename;
    o.n_rename = 1;
    o.transpose = transpose;
    o.n_transpose = 1;
    o.not_strict = o.skip_mismatched = true;
    LC_TRY_GOTO(status, done, lc_module_new(&wave_class, NULL, 1, &m));
    LC_TRY_GOTO(status, done, lc_module_load_weights_with(m, saved, &r, &o));
done:
    lc_load_result_release(&r);
    lc_module_free(m);
    return status;
}

TEST(fabric_and_classes)
{
    CHECK(world_dir(directory, sizeof directory));
    snprintf(saved, sizeof saved, "%s/a.ckpt", directory);
    CHECK(exhaust(own_loop, 80) > 30);
    CHECK(exhaust(remodel, 200) > 20);
    CHECK(exhaust(reweigh, 200) > 20);
    world_remove(directory);
}

static const char *profiler;

static lc_status tune(void)
{
    lc_status status = LC_OK;
    lc_trainer *t = NULL;
    lc_module *m = NULL;
    lc_lr_find_result r = {0};
    lc_scale_batch_size_result size;
    lc_trainer_options o = wave_options(NULL);
    o.default_root_dir = directory;
    o.profiler = profiler;
    o.max_steps = 2;
    LC_TRY_GOTO(status, done, lc_module_new(&wave_class, NULL, 1, &m));
    LC_TRY_GOTO(status, done, lc_trainer_new(&o, &t));
    if (profiler) {
        status = lc_trainer_fit(t, m);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc_tuner_lr_find(t, m, NULL, &r, .num_training = 12));
    /* Here a lack of memory is a valid answer. */
    LC_TRY_GOTO(status, done, lc_tuner_scale_batch_size(t, m, NULL, &size, .max_val = 4));
done:
    lc_lr_find_release(&r);
    lc_trainer_free(t);
    lc_module_free(m);
    return status;
}

TEST(tuner_and_profilers)
{
    CHECK(world_dir(directory, sizeof directory));
    profiler = NULL;
    CHECK(exhaust(tune, 150) > 50);
    profiler = "simple,ops,trace";
    CHECK(exhaust(tune, 100) > 50);
    world_remove(directory);
}

/* A trainer that could not be made has freed what it was given, or has left the options as they were. */
static lc_status give(void)
{
    lc_status status = LC_OK;
    lc_trainer *t = NULL;
    lc_logger loggers[2] = {{0}};
    lc_profiler given = {0};
    lc_trainer_options o = world_options(directory);
    LC_TRY_GOTO(status, done, lc_csv_logger_new(&loggers[0]));
    LC_TRY_GOTO(status, done, lc_csv_logger_new(&loggers[1]));
    LC_TRY_GOTO(status, done, lc_profiler_new("simple", &given));
    o.logger = NULL;
    o.loggers = loggers, o.n_loggers = 2;
    o.profilers = &given, o.n_profilers = 1;
    status = lc_trainer_new(&o, &t);
    lc_trainer_free(t);
    if (o.loggers != loggers) return status;
done:
    for (int i = 0; i < 2; i++)
        if (loggers[i].ops) loggers[i].ops->free(loggers[i].self);
    if (given.ops) given.ops->free(given.self);
    return status;
}

TEST(plug_ins_of_a_trainer)
{
    CHECK(world_dir(directory, sizeof directory));
    CHECK(exhaust(give, 200) > 10);
    world_remove(directory);
}

TEST_MAIN

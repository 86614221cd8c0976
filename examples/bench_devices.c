/* SPDX-License-Identifier: Apache-2.0 */
/* Does a second device pay? Measures the same training, and inference, for several batch sizes on one device and on
 * more, with data_parallel (one process) and ddp (a process a device), and says where the time went.
 *
 *   bench_devices                                  1 and 2 devices; writes bench_devices.svg
 *   bench_devices --most 6 --threads_each 2        1, 2, 4 and 6 devices of 2 threads each
 *
 * A device is `threads_each` threads of the CPU, so that N devices have N times as many as one. The batch is always
 * that of all devices together: the results are those of one device, and what is measured is the time. Every
 * measurement is a run of this program of its own, which --measure tells apart. */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 1024, SIDE = 28, CLASSES = 10, MOST_REPEATS = 32, MOST_SIZES = 16, MOST_SETUPS = 16 };

typedef struct arguments {
    const char *batch_sizes, *svg, *measure;
    int64_t most, threads_each, repeats, batch_size;
    double seconds;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, batch_sizes, LC_OPTION_TEXT, 0, 0, "of all devices together, with commas"),
    LC_OPTION(arguments, most, LC_OPTION_INT, 1, 64, "devices; 1, 2, 4, ... up to this, and this, are measured"),
    LC_OPTION(arguments, threads_each, LC_OPTION_INT, 1, 256, "threads of a device"),
    LC_OPTION(arguments, repeats, LC_OPTION_INT, 2, MOST_REPEATS, "measurements of each number"),
    LC_OPTION(arguments, seconds, LC_OPTION_FLOAT, 0.001, 1000,
              "that a measurement of training lasts at least; one of inference is a pass over the data"),
    LC_OPTION(arguments, svg, LC_OPTION_TEXT, 0, 0, "file of the plot"),
    LC_OPTION(arguments, measure, LC_OPTION_TEXT, 0, 0, "train or infer: one measurement, printed as numbers"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, SAMPLES, "with measure: of one rank"),
};
enum { OPTIONS = sizeof options / sizeof *options };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the model, and a clock in its hooks ---- */

enum { DATA, RECORD, COMPUTE, WAIT, UPDATE, PLACES };
static const char *const places[PLACES] = {"data", "recording", "computing", "waiting", "update"};

typedef struct network {
    lc_module base;
    lc_conv2d conv1, conv2;
    lc_max_pool2d pool;
    lc_linear fc;
    const arguments *a;
    lc_comm *ranks;
    double waited;                     /* seconds, for them, up to the last mark */
    double begun, mark, spent[PLACES]; /* of the measurement that runs */
    double speed[MOST_REPEATS];        /* samples of all devices a second */
    double total[PLACES];              /* seconds, over all measurements */
    int64_t samples, running;          /* samples and batches of the measurement that runs */
    int64_t batches, n;                /* of all; measurements */
    bool warm;
} network;

/* Seconds, so far. */
static double waited_for_ranks(const network *m)
{
    lc_comm_stats stats;
    lc_comm_get_stats(m->ranks, &stats);
    return 1e-9 * (double)stats.waited_ns;
}

/* The time since the last mark went there, but for what was spent on waiting for other ranks. */
static void spend(network *m, int place)
{
    double t = now(), all = waited_for_ranks(m), waited = all - m->waited;
    m->spent[place] += t - m->mark - waited;
    m->spent[WAIT] += waited;
    m->waited = all;
    m->mark = t;
}

static void begin_measurement(network *m)
{
    memset(m->spent, 0, sizeof m->spent);
    m->samples = m->running = 0;
    m->waited = waited_for_ranks(m);
    m->begun = m->mark = now();
}

static void end_measurement(network *m)
{
    if (m->warm && m->n < m->a->repeats) { /* the first one made plans, and is dropped */
        m->speed[m->n++] = (double)m->samples / (m->mark - m->begun);
        for (int i = 0; i < PLACES; i++) m->total[i] += m->spent[i];
        m->batches += m->running;
    }
    m->warm = true;
    begin_measurement(m);
}

static void count(network *m, const lc_batch *batch)
{
    m->samples += batch->global_size > 0 ? batch->global_size : batch->size;
    m->running++;
}

static lc_tensor *forward(network *m, lc_tensor *x) /* x [B,1,28,28] */
{
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv1, x))); /* [B,16,14,14] */
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv2, x))); /* [B,32,7,7] */
    return lc_linear_forward(&m->fc, lc_flatten(x, 1));                            /* [B,10] */
}

static lc_status on_train_batch_start(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch, (void)batch_idx;
    spend((network *)self, DATA);
    return LC_OK;
}

/* Once for each part; what lies between two of them is part of recording. */
static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(forward((network *)self, batch->x), batch->y);
    spend((network *)self, RECORD);
    return loss;
}

/* With several devices or ranks the step has run up to here, and gradients are summed. With one device it runs at once,
 * with the update, behind this hook. */
static lc_status on_after_backward(lc_module *self)
{
    spend((network *)self, COMPUTE);
    return LC_OK;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx)
{
    network *m = (network *)self;
    (void)outputs, (void)batch_idx;
    spend(m, UPDATE);
    count(m, batch);
    if (m->mark - m->begun >= m->a->seconds) end_measurement(m);
    /* Rank 0's numbers are those that are shown. */
    if (m->n == m->a->repeats && lc_trainer_is_global_zero(self->trainer)) lc_trainer_stop(self->trainer);
    return LC_OK;
}

static lc_status on_predict_batch_start(lc_module *self, const lc_batch *batch, int64_t batch_idx, int loader)
{
    (void)loader;
    if (batch_idx == 0) begin_measurement((network *)self);
    return on_train_batch_start(self, batch, batch_idx);
}

static lc_tensor *predict_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_tensor *logits = forward((network *)self, batch->x);
    spend((network *)self, RECORD);
    return logits;
}

static lc_status on_predict_batch_end(lc_module *self, const lc_outputs *outputs, const lc_batch *batch,
                                      int64_t batch_idx, int dataloader_idx)
{
    network *m = (network *)self;
    (void)outputs, (void)batch_idx, (void)dataloader_idx;
    spend(m, COMPUTE);
    count(m, batch);
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static const lc_module_ops network_ops = {
    LC_MODULE_OPS_INIT("network"),
    .training_step = training_step,
    .predict_step = predict_step,
    .configure_optimizers = configure_optimizers,
    .on_train_batch_start = on_train_batch_start,
    .on_after_backward = on_after_backward,
    .on_train_batch_end = on_train_batch_end,
    .on_predict_batch_start = on_predict_batch_start,
    .on_predict_batch_end = on_predict_batch_end,
};

/* ---- one measurement: in a run of its own ---- */

static lc_status make_loader(int64_t batch_size, lc_dataloader **out)
{
    static float images[SAMPLES][SIDE * SIDE];
    static int64_t labels[SAMPLES];
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 3, .shape = {1, SIDE, SIDE}}, .data = images},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    lc_dataset *data;
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < SIDE * SIDE; k++)
            images[i][k] = (float)lc_random_normal(1, (uint64_t)(i * SIDE * SIDE + k)) + (float)(k % 10 == i % 10);
    }
    LC_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &data));
    lc_status s =
        lc_dataloader_new(&(lc_dataloader_options){.dataset = data, .batch_size = batch_size, .drop_last = true}, out);
    lc_dataset_unref(data);
    return s;
}

static lc_status measure(lc_trainer_options *opt, const arguments *a)
{
    network m = {.a = a};
    lc_dataloader *loader;
    lc_trainer *trainer;
    bool train = !strcmp(a->measure, "train");
    opt->barebones = true;
    opt->max_epochs = -1;
    LC_TRY(make_loader(a->batch_size, &loader));
    lc_module_init(&m.base, &network_ops, 1);
    lc_conv2d_init(&m.conv1, &m, "conv1", 1, 16, 5, .padding = 2);
    lc_conv2d_init(&m.conv2, &m, "conv2", 16, 32, 5, .padding = 2);
    lc_max_pool2d_init(&m.pool, &m, "pool", 2);
    lc_linear_init(&m.fc, &m, "fc", 32 * 7 * 7, CLASSES);
    LC_TRY(lc_trainer_new(opt, &trainer));
    LC_TRY(lc_comm_world(&m.ranks)); /* that of ddp; else this process alone */
    begin_measurement(&m);
    if (train) LC_TRY(lc_trainer_fit(trainer, &m.base, &(lc_run_args){.train_dataloader = loader}));
    /* A pass over the data is a measurement. */
    for (int64_t i = 0; !train && i <= a->repeats; i++) {
        LC_TRY(lc_trainer_predict(
            trainer, &m.base, &(lc_run_args){.dataloaders = &loader, .n_dataloaders = 1, .discard_predictions = true}));
        end_measurement(&m);
    }
    if (lc_trainer_is_global_zero(trainer)) {
        for (int64_t i = 0; i < a->repeats; i++) printf("speed %.6g\n", m.speed[i]);
        for (int i = 0; i < PLACES; i++) printf("place %d %.9g\n", i, m.batches ? m.total[i] / (double)m.batches : 0);
    }
    lc_comm_free(m.ranks);
    lc_trainer_free(trainer);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return LC_OK;
}

/* ---- all of them ---- */

typedef struct setup {
    const char *strategy;
    int devices;
} setup;

typedef struct result {
    double mean, deviation, place[PLACES]; /* samples a second; seconds a batch */
    bool there;
} result;

typedef struct results {
    setup setups[MOST_SETUPS];
    int64_t sizes[MOST_SIZES];
    int n_setups, n_sizes;
    result of[2][MOST_SETUPS][MOST_SIZES]; /* training, inference */
} results;

static const char *const kinds[2] = {"train", "infer"}, *const titles[2] = {"training", "inference"};

static lc_status run_one(const arguments *a, const setup *s, int kind, int64_t size, result *r)
{
    char self[1024], command[2048], line[256];
    double speed[MOST_REPEATS];
    int64_t n = 0, per_loader = !strcmp(s->strategy, "ddp") ? size / s->devices : size;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return lc_fail(LC_ERR_IO, "the name of this program is not known");
    self[length] = 0;
    int64_t threads = a->threads_each * (!strcmp(s->strategy, "ddp") ? 1 : s->devices);
    snprintf(
        command, sizeof command,
        "'%s' --measure %s --strategy %s --devices %d --threads %lld --batch_size %lld --repeats %lld --seconds %g",
        self, kinds[kind], s->strategy, s->devices, (long long)threads, (long long)per_loader, (long long)a->repeats,
        a->seconds);
    FILE *f = popen(command, "r");
    if (!f) return lc_fail(LC_ERR_IO, "%s could not be started", command);
    while (fgets(line, sizeof line, f)) {
        double value;
        int place;
        if (sscanf(line, "speed %lf", &value) == 1 && n < a->repeats) speed[n++] = value;
        if (sscanf(line, "place %d %lf", &place, &value) == 2 && place >= 0 && place < PLACES) r->place[place] = value;
    }
    if (pclose(f) != 0 || n < a->repeats) return lc_fail(LC_ERR_USER, "this failed: %s", command);
    for (int64_t i = 0; i < n; i++) r->mean += speed[i] / (double)n;
    for (int64_t i = 0; i < n; i++) r->deviation += (speed[i] - r->mean) * (speed[i] - r->mean) / (double)(n - 1);
    r->deviation = sqrt(r->deviation);
    r->there = true;
    return LC_OK;
}

/* 2, 4, 8, ..., and the last. */
static int next_number(int n, int most)
{
    return n < most && 2 * n > most ? most : 2 * n;
}

static lc_status plan(const arguments *a, results *all)
{
    for (const char *at = a->batch_sizes; *at;) {
        char *end;
        long long size = strtoll(at, &end, 10);
        if (end == at || size < 1 || size > SAMPLES || all->n_sizes == MOST_SIZES)
            return lc_fail(LC_ERR_CONFIG, "batch_sizes=%.100s: up to %d numbers from 1 to %d", a->batch_sizes,
                           (int)MOST_SIZES, (int)SAMPLES);
        all->sizes[all->n_sizes++] = size;
        at = *end == ',' ? end + 1 : end;
    }
    all->setups[all->n_setups++] = (setup){"single_device", 1};
    for (int n = 2; n <= a->most && all->n_setups + 2 <= MOST_SETUPS; n = next_number(n, (int)a->most)) {
        all->setups[all->n_setups++] = (setup){"data_parallel", n};
        all->setups[all->n_setups++] = (setup){"ddp", n};
    }
    return LC_OK;
}

static lc_status run_all(const arguments *a, results *all)
{
    for (int k = 0; k < 2; k++)
        for (int j = 0; j < all->n_sizes; j++)
            for (int i = 0; i < all->n_setups; i++) {
                if (all->sizes[j] % all->setups[i].devices) continue;
                LC_TRY(run_one(a, &all->setups[i], k, all->sizes[j], &all->of[k][i][j]));
                fprintf(stderr, "%s, %s on %d, batch %lld\n", titles[k], all->setups[i].strategy,
                        all->setups[i].devices, (long long)all->sizes[j]);
            }
    return LC_OK;
}

/* ---- telling ---- */

static void print_table(const results *all, int k)
{
    printf("\n%s: samples a second (and their standard deviation), and how many times those of one device\n\n"
           "| batch |",
           titles[k]);
    for (int i = 0; i < all->n_setups; i++) printf(" %s, %d |", all->setups[i].strategy, all->setups[i].devices);
    printf("\n|---|");
    for (int i = 0; i < all->n_setups; i++) printf("---|");
    for (int j = 0; j < all->n_sizes; j++) {
        printf("\n| %lld |", (long long)all->sizes[j]);
        for (int i = 0; i < all->n_setups; i++) {
            const result *r = &all->of[k][i][j];
            if (r->there)
                printf(" %.0f (%.0f), %.2fx |", r->mean, r->deviation, r->mean / all->of[k][0][j].mean);
            else
                printf(" - |");
        }
    }
    printf("\n");
}

/* Ideally N devices need an N-th of what one does. What they need longer is lost in three ways: batches are gathered
 * and steps recorded once for all devices of a process, one after the other; ranks wait for gradients that are under
 * way, and for the slowest rank (devices of one process do so within the next); and computing a part takes longer than
 * an N-th, since kernels do less well on fewer samples, devices share caches and memory, and gradients are summed. */
static void print_losses(const results *all, int k)
{
    printf("\n%s: where the time of a batch goes, in ms\n\n| batch | devices |", titles[k]);
    for (int p = 0; p < PLACES; p++) printf(" %s |", places[p]);
    printf(" ideal | lost: data, recording | lost: waiting | lost: computing |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int j = 0; j < all->n_sizes; j++)
        for (int i = 0; i < all->n_setups; i++) {
            const result *r = &all->of[k][i][j], *one = &all->of[k][0][j];
            if (!r->there) continue;
            double total = 0, first = 0, apart = r->place[DATA] + r->place[RECORD];
            for (int p = 0; p < PLACES; p++) total += r->place[p], first += one->place[p];
            double ideal = first / all->setups[i].devices;
            double apart_ideal = (one->place[DATA] + one->place[RECORD]) / all->setups[i].devices;
            printf("| %lld | %s, %d |", (long long)all->sizes[j], all->setups[i].strategy, all->setups[i].devices);
            for (int p = 0; p < PLACES; p++) printf(" %.3f |", 1e3 * r->place[p]);
            printf(" %.3f | %.3f | %.3f | %.3f |\n", 1e3 * ideal, 1e3 * (apart - apart_ideal), 1e3 * r->place[WAIT],
                   1e3 * (total - ideal - (apart - apart_ideal) - r->place[WAIT]));
        }
}

/* From where on more devices are faster than one by more than both numbers scatter. */
static void print_answer(const results *all, int k)
{
    for (int i = 1; i < all->n_setups; i++) {
        int64_t from = -1;
        bool any = false;
        for (int j = 0; j < all->n_sizes; j++) {
            const result *r = &all->of[k][i][j], *one = &all->of[k][0][j];
            if (!r->there) continue;
            any = true;
            bool pays = r->mean - r->deviation > one->mean + one->deviation;
            from = !pays ? -1 : from < 0 ? all->sizes[j] : from;
        }
        printf("%s on %d devices, %s: ", all->setups[i].strategy, all->setups[i].devices, titles[k]);
        if (!any)
            printf("not measured, since it divides none of these batches\n");
        else if (from < 0)
            printf("does not pay with any of these batches\n");
        else
            printf("pays from a batch of %lld on\n", (long long)from);
    }
}

enum { WIDTH = 460, HEIGHT = 360, LEFT = 70, BOTTOM = 50, TOP = 40, RIGHT = 20 };
static const char *const colors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2"};

static double across(const results *all, int64_t size)
{
    double a = log2((double)all->sizes[0]), b = log2((double)all->sizes[all->n_sizes - 1]);
    return LEFT + (b > a ? (log2((double)size) - a) / (b - a) : 0.5) * (WIDTH - LEFT - RIGHT);
}

static double down(double speed, double most)
{
    return HEIGHT - BOTTOM - speed / most * (HEIGHT - TOP - BOTTOM);
}

static void draw_panel(FILE *f, const results *all, int k)
{
    double most = 0;
    for (int i = 0; i < all->n_setups; i++)
        for (int j = 0; j < all->n_sizes; j++)
            most = fmax(most, 1.05 * (all->of[k][i][j].mean + all->of[k][i][j].deviation));
    fprintf(f, "<g transform=\"translate(%d 0)\">\n<text x=\"%d\" y=\"20\" text-anchor=\"middle\">%s</text>\n",
            k * WIDTH, (WIDTH + LEFT) / 2, titles[k]);
    for (int i = 0; i <= 4; i++)
        fprintf(f,
                "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.3g</text>\n",
                LEFT, down(most * i / 4, most), WIDTH - RIGHT, down(most * i / 4, most), LEFT - 6,
                down(most * i / 4, most) + 4, most * i / 4);
    for (int j = 0; j < all->n_sizes; j++)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>\n", across(all, all->sizes[j]),
                HEIGHT - BOTTOM + 18, (long long)all->sizes[j]);
    for (int i = 0; i < all->n_setups; i++) {
        const char *color = colors[(size_t)i % (sizeof colors / sizeof *colors)];
        fprintf(f, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"", color);
        for (int j = 0; j < all->n_sizes; j++)
            if (all->of[k][i][j].there)
                fprintf(f, "%.1f,%.1f ", across(all, all->sizes[j]), down(all->of[k][i][j].mean, most));
        fprintf(f, "\"/>\n");
        for (int j = 0; j < all->n_sizes; j++) { /* error bars */
            const result *r = &all->of[k][i][j];
            if (r->there)
                fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"4\"/>\n",
                        across(all, all->sizes[j]), across(all, all->sizes[j]), down(r->mean - r->deviation, most),
                        down(r->mean + r->deviation, most), color);
        }
        fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s, %d</text>\n", LEFT + 10, TOP + 16 + 16 * i, color,
                all->setups[i].strategy, all->setups[i].devices);
    }
    fprintf(f,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">batch of all devices</text>"
            "<text transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">samples a second</text>\n</g>\n",
            (WIDTH + LEFT) / 2, HEIGHT - 10, HEIGHT / 2);
}

static lc_status draw(const results *all, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return lc_fail(LC_ERR_IO, "%s cannot be written", path);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            2 * WIDTH, HEIGHT);
    for (int k = 0; k < 2; k++) draw_panel(f, all, k);
    fprintf(f, "</svg>\n");
    return fclose(f) == 0 ? LC_OK : lc_fail(LC_ERR_IO, "%s could not be written", path);
}

int main(int argc, char **argv)
{
    static results all;
    arguments a = {.batch_sizes = "16,64,256,1024",
                   .most = 2,
                   .threads_each = 1,
                   .repeats = 5,
                   .seconds = 0.3,
                   .svg = "bench_devices.svg",
                   .batch_size = 64};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    const lc_strategy_ops *here;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, options, OPTIONS, &a, argc, argv));
    if (a.measure) {
        if (strcmp(a.measure, kinds[0]) != 0 && strcmp(a.measure, kinds[1]) != 0)
            LC_MAIN_TRY(lc_fail(LC_ERR_CONFIG, "measure=%.60s: it must be train or infer", a.measure));
        LC_MAIN_TRY(measure(&opt, &a));
        LC_MAIN_TRY(lc_stdout_flush());
        return 0;
    }
    LC_MAIN_TRY(lc_strategy_find(NULL, &here));
    if (opt.devices || opt.strategy || here->launches) /* launches: this is one of several ranks */
        LC_MAIN_TRY(lc_fail(LC_ERR_CONFIG,
                            "bench_devices starts all that it measures itself: run it alone, with --most in "
                            "place of --devices, and without --strategy"));
    LC_MAIN_TRY(plan(&a, &all));
    LC_MAIN_TRY(run_all(&a, &all));
    for (int k = 0; k < 2; k++) {
        print_table(&all, k);
        print_losses(&all, k);
        printf("\n");
        print_answer(&all, k);
    }
    LC_MAIN_TRY(draw(&all, a.svg));
    printf("\nplot: %s\n", a.svg);
    lc_trainer_options_release(&opt);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}

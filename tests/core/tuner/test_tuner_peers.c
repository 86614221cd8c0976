/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner finds what Lightning's finds, as recorded in tests/conformance/tuner.json by tests/peers/record_tuner.py.
 * Where lightc differs on purpose (docs/trainer.md), the rule is written here. */
#include "test.h"
#include "peer_python.h"
#include "quiet_options.h"

enum { SAMPLES = 100 };
#include "small_data.h"

#define SMOOTHING 0.98

/* ---- the recording ---- */

static lc_state *recorded(void)
{
    char path[4200];
    static char text[1 << 18];
    lc_state *s;
    snprintf(path, sizeof path, "%s/tests/conformance/tuner.json", test_source_dir());
    FILE *f = fopen(path, "r");
    if (!f) TEST_FAIL("%s cannot be read", path);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    CHECK(n < sizeof text);
    CHECK_OK(lc_state_parse(text, n, &s));
    return s;
}

static int64_t whole(const lc_state *s, const char *key)
{
    int64_t v;
    CHECK_OK(lc_state_get_int(s, key, &v));
    return v;
}

/* A number, or the text "nan", "inf", "-inf", "none". */
static double number(const lc_state *s, const char *key)
{
    const lc_state *at = key ? lc_state_find(s, key) : s;
    double v = 0;
    const char *text;
    if (lc_state_kind_of(at) != LC_STATE_TEXT) {
        CHECK_OK(lc_state_get_double(at, NULL, &v));
        return v;
    }
    CHECK_OK(lc_state_get_text(at, NULL, &text));
    return !strcmp(text, "none") || !strcmp(text, "inf") ? INFINITY : !strcmp(text, "nan") ? NAN : -INFINITY;
}

static const char *word(const lc_state *s, const char *key)
{
    const char *v;
    CHECK_OK(lc_state_get_text(s, key, &v));
    return v;
}

static const lc_state *list(const lc_state *s, const char *key)
{
    const lc_state *v;
    CHECK_OK(lc_state_get_array(s, key, &v));
    return v;
}

static bool contains(const lc_state *values, int64_t wanted)
{
    for (int64_t i = 0; i < lc_state_length(values); i++)
        if (whole(lc_state_at(values, i), NULL) == wanted) return true;
    return false;
}

/* ---- the model ---- */

typedef struct line {
    lc_module base;
    lc_tensor *w;
    lc_dataset *data;
    float *x, *y;
    const lc_state *none, *nan; /* number of steps; NULL: never */
    int64_t batch_size, step, fits;
} line;

static lc_tensor *line_step(lc_module *self, const lc_batch *b, int64_t i)
{
    line *m = (line *)self;
    int64_t step = m->step++;
    (void)i;
    if (m->fits && b->size > m->fits) {
        lc_fail(LC_ERR_MEMORY, "out of simulated memory");
        return NULL;
    }
    if (m->none && contains(m->none, step)) return NULL;
    lc_tensor *loss = lc_mse_loss(lc_mul(m->w, b->x), b->y);
    return m->nan && contains(m->nan, step) ? lc_mul_scalar(loss, NAN) : loss;
}

static lc_status line_sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static lc_status line_loader(lc_module *self, lc_loaders *out)
{
    line *m = (line *)self;
    lc_dataloader *l = NULL;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->data, .batch_size = m->batch_size));
    return lc_loaders_add(out, l);
}

static const lc_module_ops line_ops = {LC_MODULE_OPS_INIT("line"), .training_step = line_step,
                                       .configure_optimizers = line_sgd, .train_dataloader = line_loader};
static const lc_option line_fields[] = {LC_FIELD(line, batch_size, "")};

static void line_open(line *m, int64_t samples, double noise)
{
    memset(m, 0, sizeof *m);
    lc_module_init(&m->base, &line_ops, 1);
    m->w = lc_module_add_parameter(&m->base, "w", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1},
                                   (lc_init){LC_INIT_CONSTANT, .a = 1});
    m->batch_size = 16;
    lc_module_save_hyperparameters(&m->base, line_fields, 1, m);
    m->x = malloc((size_t)samples * sizeof *m->x);
    m->y = malloc((size_t)samples * sizeof *m->y);
    CHECK(m->x && m->y);
    for (int64_t k = 0; k < samples; k++) {
        double x = sin(0.37 * (double)k) + 0.2;
        m->x[k] = (float)x;
        m->y[k] = (float)(sin(1.3 * x) + noise * sin(7.7 * (double)k));
    }
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = m->x},
                         {.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = m->y}};
    CHECK_OK(lc_array_dataset_new(samples, 2, arrays, &m->data));
}

static void line_close(line *m)
{
    lc_dataset_unref(m->data);
    lc_module_release(&m->base);
    free(m->x);
    free(m->y);
}

/* ---- lr_find ---- */

/* Lightning corrects its smoothed losses for one step too many. Computes the correctly corrected ones, and the first
 * point at which a search with that threshold stops, by Lightning's losses and by these; n: it does not. */
static void right_losses(const lc_state *c, int64_t n, const double *lightning, double *right, int64_t stops[2])
{
    double best[2] = {0}, threshold = number(c, "early_stop_threshold");
    int64_t counted = 0;
    stops[0] = stops[1] = n;
    for (int64_t i = 0; i < n; i++) {
        right[i] = NAN;
        if (contains(list(c, "none"), i)) continue;
        counted++;
        right[i] = lightning[i] * (1 - pow(SMOOTHING, (double)(i + 2))) / (1 - pow(SMOOTHING, (double)counted));
        const double loss[] = {lightning[i], right[i]};
        for (int k = 0; k < 2; k++) {
            if (i > 0 && loss[k] > threshold * best[k] && stops[k] == n) stops[k] = i + 1;
            if (counted == 1 || loss[k] < best[k]) best[k] = loss[k];
        }
    }
}

static void check_lr_find(const lc_state *c)
{
    enum { MOST = 200 };
    double lr[MOST], lightning[MOST], right[MOST];
    int64_t skip[2], stops[2], n = lc_state_length(list(c, "lr")), accumulate = whole(c, "accumulate");
    line m;
    lc_trainer *t;
    lc_lr_find_result r;
    lc_trainer_options o = quiet_options(NULL);
    const char *name = word(c, "name");
    CHECK(n <= MOST && lc_state_length(list(c, "loss")) == n);
    for (int64_t i = 0; i < n; i++) {
        lr[i] = number(lc_state_at(list(c, "lr"), i), NULL);
        lightning[i] = number(lc_state_at(list(c, "loss"), i), NULL);
    }
    for (int k = 0; k < 2; k++) skip[k] = whole(lc_state_at(list(c, "skip"), k), NULL);

    /* The suggestion on the recorded curve. */
    lc_lr_find_result curve = {.n = n, .lr = lr, .loss = lightning};
    CHECK_EQ(lc_lr_find_suggest(&curve, skip[0], skip[1]), whole(c, "suggested"));
    curve.over_log10 = true;
    CHECK_EQ(lc_lr_find_suggest(&curve, skip[0], skip[1]), whole(c, "log10"));

    /* The same search. */
    right_losses(c, n, lightning, right, stops);
    if (stops[0] != whole(c, "stops_after")) TEST_FAIL("%s: Lightning stops by another rule", name);
    line_open(&m, whole(c, "samples"), number(c, "noise"));
    m.batch_size = whole(c, "batch");
    m.none = list(c, "none");
    m.nan = list(c, "nan");
    o.accumulate_grad_batches = accumulate;
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_lr_find_args a = LC_ARGS(lc_lr_find, .mode = word(c, "mode"), .min_lr = number(c, "min_lr"),
                                .max_lr = number(c, "max_lr"), .num_training = whole(c, "num_training"),
                                .early_stop_threshold = number(c, "early_stop_threshold"), .update_attr = false);
    CHECK_OK(lc_tuner_lr_find_with(t, &m.base, NULL, &r, &a));
    if (r.n != stops[1]) TEST_FAIL("%s: %lld points, expected %lld", name, (long long)r.n, (long long)stops[1]);
    for (int64_t i = 0; i < r.n; i++) {
        CHECK_NEAR(r.lr[i], lr[i], 1e-9 * lr[i]);
        double expected = right[i] * (double)accumulate; /* Lightning's loss of a window is divided by its length */
        if (isnan(expected) ? !isnan(r.loss[i]) : !(fabs(r.loss[i] - expected) <= 2e-5 * expected))
            TEST_FAIL("%s, point %lld: %.9g, expected %.9g", name, (long long)i, r.loss[i], expected);
    }
    curve = (lc_lr_find_result){.n = r.n, .lr = lr, .loss = right, .over_log10 = !strcmp(a.mode, "exponential")};
    CHECK_EQ(r.suggested, lc_lr_find_suggest(&curve, 10, 1));
    lc_lr_find_release(&r);
    lc_trainer_free(t);
    line_close(&m);
}

TEST(rates_losses_and_suggestions_follow_lightning)
{
    lc_state *all = recorded();
    const lc_state *cases = list(all, "lr_find");
    CHECK(lc_state_length(cases) >= 13);
    for (int64_t i = 0; i < lc_state_length(cases); i++) check_lr_find(lc_state_at(cases, i));
    lc_state_free(all);
}

/* ---- scale_batch_size ---- */

/* Lightning's first trial uses the earlier loader, and its result may exceed the data set or the sizes it tried. */
static int64_t expected_size(const lc_state *c)
{
    int64_t found = whole(c, "found"), fits = whole(c, "fits"), size = whole(c, "init_val");
    int64_t samples = whole(c, "samples");
    bool bisects = !strcmp(word(c, "mode"), "binsearch");
    double margin = bisects ? number(c, "margin") : 0;
    if (fits >= samples) return (int64_t)((double)samples * (1 - margin));
    if (size <= fits) return found;
    while (size > fits) size /= 2;
    return bisects ? fits : size;
}

TEST(batch_sizes_follow_lightning)
{
    lc_state *all = recorded();
    const lc_state *cases = list(all, "scale_batch_size");
    CHECK(lc_state_length(cases) >= 13);
    for (int64_t i = 0; i < lc_state_length(cases); i++) {
        const lc_state *c = lc_state_at(cases, i);
        line m;
        lc_trainer *t;
        lc_scale_batch_size_result r;
        lc_trainer_options o = quiet_options(NULL);
        double margin = number(c, "margin");
        line_open(&m, whole(c, "samples"), 0);
        m.fits = whole(c, "fits");
        o.max_epochs = 1;
        CHECK_OK(lc_trainer_new(&o, &t));
        lc_scale_batch_size_args a =
            LC_ARGS(lc_scale_batch_size, .mode = word(c, "mode"), .steps_per_trial = whole(c, "steps_per_trial"),
                    .init_val = whole(c, "init_val"), .max_trials = whole(c, "max_trials"), .margin = margin,
                    .max_val = whole(c, "max_val"));
        CHECK_OK(lc_tuner_scale_batch_size_with(t, &m.base, NULL, &r, &a));
        if (r.batch_size != expected_size(c))
            TEST_FAIL("%s: %lld, expected %lld", word(c, "name"), (long long)r.batch_size, (long long)expected_size(c));
        CHECK_EQ(m.batch_size, r.batch_size);
        lc_trainer_free(t);
        line_close(&m);
    }
    lc_state_free(all);
}

/* ---- a suggestion is useful ---- */

typedef struct classes {
    lc_module base;
    lc_linear l1, l2;
} classes;

static lc_tensor *classes_step(lc_module *self, const lc_batch *b, int64_t i)
{
    classes *m = (classes *)self;
    (void)i;
    return lc_cross_entropy(lc_linear_forward(&m->l2, lc_relu(lc_linear_forward(&m->l1, b->x))), b->y);
}
static lc_status classes_adam(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-3));
}
static const lc_module_ops classes_ops = {LC_MODULE_OPS_INIT("classes"), .training_step = classes_step,
                                          .configure_optimizers = classes_adam};

TEST(noisy_losses_give_a_useful_suggestion)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        classes m;
        lc_dataloader *data;
        lc_trainer *t;
        lc_lr_find_result r;
        lc_trainer_options o = quiet_options(NULL);
        lc_module_init(&m.base, &classes_ops, seed);
        lc_linear_init(&m.l1, &m, "l1", FEATURES, 32);
        lc_linear_init(&m.l2, &m, "l2", 32, CLASSES);
        CHECK_OK(loader_of(0, SAMPLES, 8, true, &data));
        CHECK_OK(lc_trainer_new(&o, &t));
        lc_lr_find_args a = LC_ARGS(lc_lr_find, .update_attr = false);
        lc_run_args run = LC_ARGS(lc_run, .train_dataloader = data);
        CHECK_OK(lc_tuner_lr_find_with(t, &m.base, &run, &r, &a));
        if (!(r.suggestion >= 1e-3 && r.suggestion <= 0.5))
            TEST_FAIL("seed %d: the suggestion is %g", (int)seed, r.suggestion);
        lc_lr_find_release(&r);
        lc_trainer_free(t);
        lc_dataloader_free(data);
        lc_module_release(&m.base);
    }
}

TEST_MAIN

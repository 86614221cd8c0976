/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever fails in a run, its message says where and why, each once: no prefix appears twice ("error: error:"), no
 * hook is named twice, and messages shown before it do not repeat it. */
#include "scratch.h"
#include "trainer_world.h"

#include <lightc/callbacks.h>
#include <lightc/tuner.h>

#define WHY "the lamp is broken"

typedef enum place {
    SETUP,
    OPTIMIZERS,
    TRAIN_LOADER,
    TRAINING_STEP,
    VALIDATION_STEP,
    TEST_STEP,
    PREDICT_STEP,
    FIT_START,
    EPOCH_END,
    BATCH_END,
    CALLBACK_START,
    CALLBACK_BATCH_END,
    LOADER_BEGIN,
    LOADER_NEXT,
    OPERATOR,
    LOGGER_START,
    LOGGER_ROW,
    NO_CHECKPOINT,
    TEARDOWN,
    PLACES
} place;
static place now;

static lc_status broken(place at)
{
    return now == at ? lc_fail(LC_ERR_USER, WHY) : LC_OK;
}

/* ---- a module, a callback, a loader and a logger that fail on request ---- */

#define STAGE_HOOK(name, at)                                                                                           \
    static lc_status name(lc_module *self, lc_stage stage)                                                             \
    {                                                                                                                  \
        (void)self, (void)stage;                                                                                       \
        return broken(at);                                                                                             \
    }
#define HOOK(name, at)                                                                                                 \
    static lc_status name(lc_module *self)                                                                             \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        return broken(at);                                                                                             \
    }
STAGE_HOOK(setup, SETUP)
STAGE_HOOK(teardown, TEARDOWN)
HOOK(on_fit_start, FIT_START)
HOOK(on_train_epoch_end, EPOCH_END)

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)self, (void)o, (void)b, (void)i;
    return broken(BATCH_END);
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *w = ((world *)self)->w;
    (void)i;
    if (broken(TRAINING_STEP) < 0) return NULL;
    if (now == OPERATOR) return lc_mean(lc_matmul(b->x, lc_zeros(LC_F32, 3, 4)));
    return lc_mean(lc_mul(w, b->x));
}
static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return broken(VALIDATION_STEP);
}
static lc_status test_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return broken(TEST_STEP);
}
static lc_tensor *predict_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)i, (void)d;
    return broken(PREDICT_STEP) < 0 ? NULL : b->x;
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    LC_TRY(broken(OPTIMIZERS));
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static lc_status loader_begin(void *self, int64_t epoch, int64_t start)
{
    LC_TRY(broken(LOADER_BEGIN));
    return numbers_begin(self, epoch, start);
}
static lc_status loader_next(void *self, lc_batch **out)
{
    LC_TRY(broken(LOADER_NEXT));
    return numbers_next(self, out);
}

static lc_status add_loader(lc_loaders *out)
{
    static lc_dataloader_ops ops;
    numbers *d = calloc(1, sizeof *d);
    lc_dataloader *loader = NULL;
    const int64_t shape[] = {2};
    ops = numbers_ops, ops.begin = loader_begin, ops.next = loader_next;
    d->n = 3, d->batch_size = 2;
    d->data = aligned_alloc(64, 64);
    LC_TRY(lc_input_new(LC_F32, 1, shape, LC_ROW_MAJOR, d->data, &d->x));
    LC_TRY(lc_dataloader_from_ops(&ops, d, &loader));
    return lc_loaders_add(out, loader);
}
static lc_status train_loader(lc_module *self, lc_loaders *out)
{
    (void)self;
    LC_TRY(broken(TRAIN_LOADER));
    return add_loader(out);
}
static lc_status other_loader(lc_module *self, lc_loaders *out)
{
    (void)self;
    return add_loader(out);
}

static const lc_module_ops lamp_ops = {
    LC_MODULE_OPS_INIT("lamp"),
    .setup = setup,
    .teardown = teardown,
    .on_fit_start = on_fit_start,
    .on_train_epoch_end = on_train_epoch_end,
    .on_train_batch_end = on_train_batch_end,
    .training_step = training_step,
    .validation_step = validation_step,
    .test_step = test_step,
    .predict_step = predict_step,
    .configure_optimizers = configure_optimizers,
    .train_dataloader = train_loader,
    .val_dataloader = other_loader,
    .test_dataloader = other_loader,
    .predict_dataloader = other_loader,
};

static lc_status cb_start(void *self, lc_trainer *t)
{
    (void)self, (void)t;
    return broken(CALLBACK_START);
}
static lc_status cb_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)self, (void)t, (void)o, (void)b, (void)i;
    return broken(CALLBACK_BATCH_END);
}
static const lc_callback_ops switch_ops = {LC_CALLBACK_OPS_INIT("Switch"), .on_train_start = cb_start,
                                           .on_train_batch_end = cb_batch_end};

static lc_status log_start(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return broken(LOGGER_START);
}
static lc_status log_row(void *self, const lc_log_row *r)
{
    (void)self, (void)r;
    return broken(LOGGER_ROW);
}
static const lc_logger_ops meter_ops = {LC_LOGGER_OPS_INIT, .name = "meter", .start = log_start, .log_row = log_row};

/* ---- the message ---- */

/* Pieces of a line between ": "; neither a piece nor the reason may occur twice. */
static void check_line(const char *what, const char *line)
{
    char copy[4096], *pieces[64], *at = copy;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *end; at && n < 64; at = end ? end + 2 : NULL) {
        pieces[n++] = at;
        end = strstr(at, ": ");
        if (end) *end = 0;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(pieces[i], pieces[k])) TEST_FAIL("%s: \"%s\" is there twice: %s", what, pieces[i], line);
    const char *first = strstr(line, WHY);
    if (first && strstr(first + 1, WHY)) TEST_FAIL("%s: the reason is there twice: %s", what, line);
    for (const char *of = strstr(line, " of lamp"); of; of = strstr(of + 1, " of lamp"))
        if (strstr(of + 1, " of lamp")) TEST_FAIL("%s: the module is named twice: %s", what, line);
}

static lc_status run(int how, lc_trainer *t, lc_module *m)
{
    lc_lr_find_result found = {0};
    lc_status s;
    switch (how) {
    case 1:
        return lc_trainer_validate(t, m);
    case 2:
        return lc_trainer_test(t, m);
    case 3:
        return lc_trainer_predict(t, m);
    case 4:
        s = lc_tuner_lr_find(t, m, NULL, &found, .update_attr = false, .num_training = 3);
        lc_lr_find_release(&found);
        return s;
    default:
        return lc_trainer_fit(t, m, .ckpt_path = now == NO_CHECKPOINT ? "/nowhere/at.ckpt" : NULL);
    }
}

/* Whether the run failed; `shown` gets its output. */
static bool fails(int how, char *shown, size_t size)
{
    world w;
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    world_init(&w, &lamp_ops, 3, 0);
    lc_callback cb = {&switch_ops, NULL};
    lc_logger meter = {&meter_ops, NULL};
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb, o.n_callbacks = 1;
    o.loggers = &meter, o.n_loggers = 1;
    o.max_epochs = 1, o.log_every_n_steps = 1;
    o.enable_progress_bar = LC_ON;
    int ends[2], screen = dup(2);
    CHECK(pipe(ends) == 0 && screen >= 0 && dup2(ends[1], 2) == 2);
    lc_status status = lc_trainer_new(&o, &t);
    if (status >= 0) status = run(how, t, &w.base);
    if (status < 0) fprintf(stderr, "error: %s\n", lc_error_message());
    lc_trainer_free(t);
    dup2(screen, 2), close(screen), close(ends[1]);
    size_t n = 0;
    for (ssize_t k; n < size - 1 && (k = read(ends[0], shown + n, size - 1 - n)) > 0;) n += (size_t)k;
    shown[n] = 0;
    close(ends[0]);
    world_release(&w);
    world_remove(dir);
    return status < 0;
}

TEST(each_failure_is_reported_once)
{
    static const char *const journeys[] = {"fit", "validate", "test", "predict", "lr_find"};
    int failed = 0;
    for (int how = 0; how < 5; how++)
        for (now = 0; now < PLACES; now++) {
            char shown[16384], what[64], *at = shown;
            if (!fails(how, shown, sizeof shown)) continue;
            failed++;
            snprintf(what, sizeof what, "%s, place %d", journeys[how], (int)now);
            int reasons = 0;
            for (char *line; (line = strsep(&at, "\n"));) {
                check_line(what, line);
                reasons += strstr(line, WHY) != NULL;
            }
            if (reasons > 1) TEST_FAIL("%s: the reason was reported %d times", what, reasons);
        }
    printf("  %d failures\n", failed);
    CHECK(failed > 30);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* docs/hooks.md agrees with real runs and the table of hooks: runs are traced (trace_hooks), and the text made from
 * both must equal the document (LIGHTC_WRITE_DOCS=1 writes it). */
#include "sources.h"
#include "trainer_world.h"

#include "core/logging/logging.h"
#include "base/str.h"
#include "core/hooks/hooks.h"

#include <fcntl.h>

/* ---- a program that has all hooks ---- */

static lc_status d_plain(void *self)
{
    (void)self;
    return LC_OK;
}
static lc_status d_stage(void *self, lc_trainer *t, lc_stage stage)
{
    (void)self, (void)t, (void)stage;
    return LC_OK;
}
static lc_status d_loader(void *self, lc_trainer *t, lc_loaders *out)
{
    (void)self, (void)t;
    return lc_loaders_add(out, numbers_new(1, 1, false));
}
static lc_status d_transfer(void *self, lc_trainer *t, lc_batch *batch, int d)
{
    (void)self, (void)t, (void)batch, (void)d;
    return LC_OK;
}
static lc_status d_exception(void *self, lc_trainer *t, lc_status s, const char *message)
{
    (void)self, (void)t, (void)s, (void)message;
    return LC_OK;
}
static const lc_datamodule_ops data_ops = {LC_DATAMODULE_OPS_INIT("data"),
                                           .prepare_data = d_plain,
                                           .setup = d_stage,
                                           .train_dataloader = d_loader,
                                           .val_dataloader = d_loader,
                                           .test_dataloader = d_loader,
                                           .predict_dataloader = d_loader,
                                           .on_before_batch_transfer = d_transfer,
                                           .transfer_batch_to_device = d_transfer,
                                           .on_after_batch_transfer = d_transfer,
                                           .on_exception = d_exception,
                                           .teardown = d_stage};

static lc_status m_model_train(lc_module *self)
{
    lc_module_train(self, true);
    return LC_OK;
}
static lc_scheduler *schedule(lc_optimizer *opt)
{
    return lc_step_lr(opt, .step_size = 1);
}

enum { FIT, ERROR, VALIDATE, TEST_RUN, PREDICT };

/* Traces a run of that kind. */
static void trace_run(int kind, lc__str *out)
{
    char dir[256], path[300], buffer[4096];
    world m;
    lc_trainer *t;
    lc_module_ops ops = world_ops;
    CHECK(world_dir(dir, sizeof dir));
    ops.on_validation_model_train = ops.on_test_model_train = m_model_train;
    world_init(&m, &ops, 1, 1);
    m.scheduler = schedule;
    if (kind == ERROR) m.raise_at[0] = m.raise_at[1] = 0;
    lc_trainer_options o = world_options(dir);
    lc_callback cb = {&traced_ops, &m.tr};
    lc_datamodule data = {&data_ops, NULL};
    o.callbacks = &cb;
    o.n_callbacks = 1;
    o.max_epochs = 1;
    o.num_sanity_val_steps = kind == FIT;
    o.trace_hooks = true;
    CHECK_OK(lc_trainer_new(&o, &t));
    snprintf(path, sizeof path, "%s/trace", dir);
    fflush(stderr);
    int saved = dup(2), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(saved >= 0 && file >= 0 && dup2(file, 2) == 2);
    lc_run_args args = LC_ARGS(lc_run, .datamodule = &data);
    lc_status s = kind == VALIDATE   ? lc_trainer_validate_with(t, &m.base, &args)
                  : kind == TEST_RUN ? lc_trainer_test_with(t, &m.base, &args)
                  : kind == PREDICT  ? lc_trainer_predict_with(t, &m.base, &args)
                                     : lc_trainer_fit_with(t, &m.base, &args);
    dup2(saved, 2);
    close(saved);
    CHECK_EQ(s, kind == ERROR ? LC_ERR_USER : LC_OK);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    for (ssize_t n; (n = read(file, buffer, sizeof buffer)) > 0;) lc__str_add_bytes(out, buffer, (size_t)n);
    close(file);
    lc_trainer_free(t);
    world_release(&m);
    world_remove(dir);
    CHECK(!out->failed && out->n > 0);
}

/* ---- one line of a trace ---- */

typedef struct line {
    int indent;
    char hook[64];
    bool callbacks;
} line;

/* "fit  epoch 0  batch 0  step 0   optimizer_step  (EarlyStopping)"; NULL at the end. */
static const char *next_line(const char *p, line *out)
{
    const char *end = strchr(p, '\n'), *step = strstr(p, " step ");
    if (!end || !step || step > end) return NULL;
    const char *at = step + 6;
    while (*at != ' ') at++;
    const char *column = step + 6 + 6 + 1; /* "%-6lld " */
    if (at < column) at = column;
    out->indent = 0;
    while (*at == ' ') at++, out->indent++;
    out->indent /= 2;
    size_t n = strcspn(at, " \n");
    CHECK(n < sizeof out->hook);
    memcpy(out->hook, at, n);
    out->hook[n] = 0;
    const char *paren = memchr(at, '(', (size_t)(end - at));
    out->callbacks = paren != NULL;
    return end + 1;
}

static lc_hook hook_of(const char *name)
{
    for (int h = 0; h < LC_HOOKS; h++)
        if (!strcmp(lc_hook_name((lc_hook)h), name)) return (lc_hook)h;
    TEST_FAIL("the trace shows a hook %s, which does not exist", name);
}

static const struct {
    const char *hook, *note;
} notes[] = {
    {"configure_callbacks", "the module may add callbacks"},
    {"prepare_data", "once a machine"},
    {"setup", "on_load_checkpoint follows where a run continues"},
    {"on_fit_start", "counters and optimizers of a checkpoint are restored after it"},
    {"on_sanity_check_start", "num_sanity_val_steps batches of validation"},
    {"on_train_epoch_start", "each epoch"},
    {"on_before_batch_transfer", "each batch; the datamodule's, or else the module's"},
    {"on_train_batch_start", "LC_SKIP ends the epoch here"},
    {"optimizer_step", "where a window of accumulation ends; its default does what is indented"},
    {"on_before_zero_grad", "at the first batch of a window"},
    {"configure_gradient_clipping", "without a clip value too"},
    {"lr_scheduler_step", "interval step: each optimizer step; epoch: the last batch; a plateau: after validation"},
    {"on_train_batch_end", "the step has run: values can be read"},
    {"on_validation_model_zero_grad", "where validation is due"},
    {"on_save_checkpoint", "with every checkpoint; of only weights: the module's"},
    {"on_exception", "the run failed, or was interrupted"},
    {"teardown", "always"},
};

static void picture(lc__str *out, const char *title, const char *lines)
{
    line l;
    char last[64] = "", shown[LC_HOOKS] = {0};
    lc__str_add(out, "## %s\n\n```\n", title);
    for (const char *p = lines; (p = next_line(p, &l));) {
        bool again = !strcmp(l.hook, last);
        /* The callbacks' part and the module's part of one hook are traced separately. */
        if (again && strcmp(l.hook, "on_train_epoch_end") != 0) continue;
        char text[128], who[4] = "   ";
        const char *note = "";
        int h = hook_of(l.hook);
        if (lc__hooks[h].in_datamodule) who[0] = 'D';
        if (l.callbacks) who[1] = 'C';
        if (lc__hooks[h].in_module && !again) who[2] = 'M';
        for (size_t i = 0; i < sizeof notes / sizeof *notes && !shown[h]; i++)
            if (!strcmp(notes[i].hook, l.hook)) note = notes[i].note;
        if (again) note = "callbacks that monitor: early stopping, checkpoints";
        shown[h] = 1;
        snprintf(text, sizeof text, "%*s%s", 2 * l.indent, "", l.hook);
        snprintf(last, sizeof last, "%s", l.hook);
        if (*note)
            lc__str_add(out, "%-36s %s  %s\n", text, who, note);
        else if (who[2] == ' ')
            lc__str_add(out, "%-36s %.*s\n", text, who[1] == ' ' ? 1 : 2, who);
        else
            lc__str_add(out, "%-36s %s\n", text, who);
    }
    lc__str_add(out, "```\n\n");
}

static void table(lc__str *out, char traces[5][1 << 16])
{
    static const char *const runs[] = {"fit", "fit, after an error", "validate", "test", "predict"};
    lc__str_add(out, "## Every hook\n\n| hook | datamodule | callbacks | module | runs in | `lc_log` there |\n"
                     "|---|---|---|---|---|---|\n");
    for (int h = 0; h < LC_HOOKS; h++) {
        const char *name = lc_hook_name((lc_hook)h);
        bool first = true;
        char where[128] = "";
        for (int k = 0; k < 5; k++) {
            line l;
            bool found = false;
            for (const char *p = traces[k]; (p = next_line(p, &l));)
                if (!strcmp(l.hook, name)) found = true;
            if (!found || (k == ERROR && strcmp(name, "on_exception") != 0)) continue;
            snprintf(where + strlen(where), sizeof where - strlen(where), "%s%s", first ? "" : ", ", runs[k]);
            first = false;
        }
        if (first) snprintf(where, sizeof where, "a run that continues"); /* on_load_checkpoint */
        lc__str_add(out, "| `%s` | %s | %s | %s | %s | %s |\n", name, lc__hooks[h].in_datamodule ? "yes" : "",
                    lc__hooks[h].in_callback ? "yes" : "", lc__hooks[h].in_module ? "yes" : "", where,
                    lc__log_rule((lc_hook)h));
    }
}

TEST(document)
{
    static char traces[5][1 << 16];
    static const char *const titles[] = {"fit", "fit, where training_step fails", "validate", "test", "predict"};
    lc__str doc = {0};
    char path[4200];
    const char *source = source_root();
    lc__str_add(
        &doc,
        "# Hooks, in the order they run\n\n"
        "<!-- Written by `LIGHTC_WRITE_DOCS=1 build/bin/test_hooks`; the test of that name checks it. -->\n\n"
        "What follows was traced in runs of one epoch with one batch each for training and validation, and a\n"
        "`ModelCheckpoint`. `--trace_hooks true` shows the same of any program, live, with counters and the "
        "names of\nthe callbacks.\n\n"
        "D: the datamodule has this hook, C: callbacks, M: the module; they run in this order, within one letter "
        "in the\norder of their list. What is indented runs inside of the hook above it. The loaders are asked for "
        "once, or\nevery `reload_dataloaders_every_n_epochs`.\n\n");
    for (int k = 0; k < 5; k++) {
        lc__str text = {0};
        trace_run(k, &text);
        CHECK(text.n < sizeof traces[k]);
        memcpy(traces[k], text.s, text.n + 1);
        lc__str_free(&text);
        picture(&doc, titles[k], traces[k]);
    }
    table(&doc, traces);
    CHECK(!doc.failed);
    snprintf(path, sizeof path, "%s/docs/hooks.md", source);
    if (getenv("LIGHTC_WRITE_DOCS")) {
        FILE *f = fopen(path, "w");
        CHECK(f && fwrite(doc.s, 1, doc.n, f) == doc.n);
        fclose(f);
    }
    static char have[1 << 17];
    FILE *f = fopen(path, "rb");
    if (!f) SKIP("the sources are not here");
    have[fread(have, 1, sizeof have - 1, f)] = 0;
    fclose(f);
    size_t at = 0, number = 1;
    while (have[at] && have[at] == doc.s[at]) number += have[at++] == '\n';
    bool same = have[at] == doc.s[at];
    lc__str_free(&doc);
    if (!same)
        TEST_FAIL("docs/hooks.md differs from real runs in line %zu; run LIGHTC_WRITE_DOCS=1 test_hooks", number);
}

TEST(names)
{
    for (int h = 0; h < LC_HOOKS; h++) CHECK(lc_hook_name((lc_hook)h) != NULL);
    CHECK_STR(lc_hook_name(LC_HOOK_ON_TRAIN_BATCH_END), "on_train_batch_end");
    CHECK(lc_hook_name(LC_HOOKS) == NULL);
}

TEST_MAIN

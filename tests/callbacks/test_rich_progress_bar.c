/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bars: the rich one on a small emulated terminal, the plain one in terminals of many widths. */
#include "callback_run.h"

enum { ROWS = 200, COLUMNS = 100 };
typedef struct screen {
    char cell[ROWS][COLUMNS + 1];
    int row, column;
    bool wrapped;
} screen;

static void screen_put(screen *s, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\r') {
            s->column = 0;
        } else if (*c == '\n') {
            s->row++;
            s->column = 0;
        } else if (*c == '\033') {
            int n = (int)strtol(c + 2, (char **)(uintptr_t)&c, 10);
            while (*c == ';') (void)strtol(c + 1, (char **)(uintptr_t)&c, 10);
            if (*c == 'A') s->row -= n ? n : 1;
            if (*c == 'K') memset(&s->cell[s->row][s->column], 0, (size_t)(COLUMNS - s->column));
            if (*c == 'J') {
                memset(&s->cell[s->row][s->column], 0, (size_t)(COLUMNS - s->column));
                memset(s->cell[s->row + 1], 0, sizeof s->cell[0] * (size_t)(ROWS - s->row - 1));
            }
        } else if (s->column < COLUMNS) {
            s->cell[s->row][s->column++] = *c;
        } else {
            s->wrapped = true;
        }
        CHECK(s->row >= 0 && s->row < ROWS - 1);
    }
}

static lc_status say_something(void *context, lc_trainer *t)
{
    (void)context;
    if (lc_trainer_current_epoch(t) == 1) lc_trainer_message(t, LC_WARNING, "something odd");
    return LC_OK;
}

TEST(bars_are_redrawn_in_place)
{
    run r;
    lc_callback cb[2];
    char path[300];
    size_t n;
    screen *s = calloc(1, sizeof *s);
    setenv("COLUMNS", "100", 1);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("LIGHTC_PROGRESS");
    run_init(&r);
    snprintf(path, sizeof path, "%s/bars", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f && s);
    CHECK_OK(lc_rich_progress_bar(&cb[0], .fd = fileno(f), .refresh_rate = 1e9, .style = LC_PROGRESS_BAR));
    CHECK_OK(lc_lambda_callback(&cb[1], .on_train_epoch_end = say_something));
    r.o.enable_progress_bar = LC_AUTO;
    CHECK_OK(run_fit(&r, cb, 2));
    fclose(f);
    char *text = slurp(path, &n);
    CHECK_CONTAINS(text, "\033[35m"); /* colors */
    CHECK_CONTAINS(text, "Validation");
    screen_put(s, text);
    CHECK(!s->wrapped);
    /* Messages come first, once each; below them the final bars, and nothing of earlier ones. */
    int warnings = 0, epochs = 0, runs = 0, validations = 0;
    for (int i = 0; i < ROWS; i++) {
        warnings += strstr(s->cell[i], "warning: something odd") != NULL;
        runs += !strncmp(s->cell[i], "Training ", 9);
        epochs += !strncmp(s->cell[i], "Epoch ", 6);
        validations += !strncmp(s->cell[i], "Validation", 10);
        if (!strncmp(s->cell[i], "Training ", 9)) {
            CHECK_CONTAINS(s->cell[i], "======================================== 2/2 ");
            CHECK_CONTAINS(s->cell[i + 1], "Epoch 1/1      ======================================== 6/6 ");
        }
    }
    CHECK_EQ(warnings, 1);
    CHECK_EQ(runs, 1);
    CHECK_EQ(epochs, 1);
    CHECK_EQ(validations, 0);
    free(text);
    free(s);
    run_release(&r);
}

/* With `leave` the bars of both epochs are there in the end, once each. */
TEST(bars_of_epochs_may_stay)
{
    run r;
    lc_callback cb;
    char path[300];
    size_t n;
    int epochs[2] = {0};
    screen *s = calloc(1, sizeof *s);
    setenv("COLUMNS", "100", 1);
    setenv("TERM", "xterm", 1);
    unsetenv("LIGHTC_PROGRESS");
    run_init(&r);
    snprintf(path, sizeof path, "%s/bars", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f && s);
    CHECK_OK(lc_rich_progress_bar(&cb, .fd = fileno(f), .refresh_rate = 1e9, .style = LC_PROGRESS_BAR, .leave = true));
    r.o.enable_progress_bar = LC_AUTO;
    CHECK_OK(run_fit(&r, &cb, 1));
    fclose(f);
    char *text = slurp(path, &n);
    screen_put(s, text);
    for (int i = 0; i < ROWS; i++) {
        epochs[0] += !strncmp(s->cell[i], "Epoch 0/1", 9);
        epochs[1] += !strncmp(s->cell[i], "Epoch 1/1", 9);
    }
    CHECK(epochs[0] == 1 && epochs[1] == 1);
    free(text);
    free(s);
    run_release(&r);
}

TEST(a_log_file_gets_plain_lines)
{
    run r;
    lc_callback cb;
    char path[300];
    size_t n;
    run_init(&r);
    snprintf(path, sizeof path, "%s/bars", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_OK(lc_rich_progress_bar(&cb, .fd = fileno(f)));
    r.o.enable_progress_bar = LC_AUTO;
    CHECK_OK(run_fit(&r, &cb, 1));
    fclose(f);
    char *text = slurp(path, &n);
    CHECK_CONTAINS(text, "Epoch 1: 100% 6/6 [");
    CHECK(!strchr(text, '\033') && !strchr(text, '\r'));
    free(text);
    run_release(&r);
}

static lc_status log_long_names(void *context, lc_trainer *t)
{
    (void)context;
    lc_trainer_log(t, "a_loss_with_a_long_name_step", 0.123, .prog_bar = true);
    lc_trainer_log(t, "a_loss_with_a_long_name_epoch", 0.456, .prog_bar = true);
    lc_trainer_log(t, "accuracy", 0.789, .prog_bar = true);
    return LC_OK;
}

/* The frames of a bar in a terminal with this many columns: each is whole, ends on its line, and has whole numbers.
 * `last` gets the last one. */
static void check_frames(int columns, char *last, size_t size)
{
    run r;
    lc_callback cb[2];
    char path[300], width[16];
    size_t n;
    snprintf(width, sizeof width, "%d", columns);
    setenv("COLUMNS", width, 1);
    setenv("TERM", "dumb", 1); /* no colors */
    setenv("LC_ALL", "C", 1);
    run_init(&r);
    snprintf(path, sizeof path, "%s/bars", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_OK(lc_progress_bar(&cb[0], .fd = fileno(f), .refresh_rate = 1e9, .style = LC_PROGRESS_BAR));
    CHECK_OK(lc_lambda_callback(&cb[1], .on_train_epoch_start = log_long_names));
    r.o.enable_progress_bar = LC_AUTO;
    CHECK_OK(run_fit(&r, cb, 2));
    fclose(f);
    char *text = slurp(path, &n), *save = NULL;
    for (char *frame = strtok_r(text, "\r\n", &save); frame; frame = strtok_r(NULL, "\r\n", &save)) {
        char *end = strstr(frame, "\033[K"), *value = strstr(frame, "_epoch=");
        if (!end || end == frame) continue;
        *end = 0;
        CHECK(end[-1] == ']');
        CHECK(end - frame < columns);
        CHECK(!value || !strncmp(value, "_epoch=0.456", 12));
        CHECK(!strstr(frame, "accuracy=") || strstr(frame, "accuracy=0.789"));
        if (!strncmp(frame, "Epoch", 5)) snprintf(last, size, "%s", frame);
    }
    free(text);
    run_release(&r);
}

TEST(a_bar_drops_parts_that_do_not_fit)
{
    char last[512] = "";
    for (int columns = 40; columns <= 120; columns += 8) {
        check_frames(columns, last, sizeof last);
    }
    CHECK_CONTAINS(last, "a_loss_with_a_long_name_step=0.123");
    check_frames(80, last, sizeof last);
    CHECK_CONTAINS(last, "a_loss_with_a_long_name_epoch=0.456"); /* the one of the two that stays */
    CHECK(!strstr(last, "_step="));
}

TEST_MAIN

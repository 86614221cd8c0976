/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a training fits its terminal: fit, validate and test with either bar and the summary, on a
 * pseudo-terminal of each width from 20 columns up, whose output is checked character by character. */
#define _GNU_SOURCE
#include "callback_run.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>

/* ---- a pseudo-terminal, and what was written to it ---- */
typedef struct pseudo {
    int master, slave;
    pthread_t reader;
    char text[1 << 20];
    size_t n;
} pseudo;

static void *read_all(void *arg)
{
    pseudo *p = arg;
    ssize_t n;
    while (p->n < sizeof p->text - 1 && (n = read(p->master, p->text + p->n, sizeof p->text - 1 - p->n)) > 0)
        p->n += (size_t)n;
    return NULL; /* EIO: the other end is closed */
}

static pseudo *pseudo_open(int columns)
{
    pseudo *p = calloc(1, sizeof *p);
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    char name[100];
    CHECK(p && (p->master = posix_openpt(O_RDWR | O_NOCTTY)) >= 0);
    CHECK(grantpt(p->master) == 0 && unlockpt(p->master) == 0 && ptsname_r(p->master, name, sizeof name) == 0);
    CHECK((p->slave = open(name, O_RDWR | O_NOCTTY)) >= 0);
    CHECK(ioctl(p->slave, TIOCSWINSZ, &size) == 0);
    CHECK(pthread_create(&p->reader, NULL, read_all, p) == 0);
    return p;
}

static void pseudo_finish(pseudo *p)
{
    close(p->slave);
    pthread_join(p->reader, NULL);
    close(p->master);
}

/* Every character is text, a line end or one of the sequences that the bars use; no column is beyond the last. `lines`
 * gets the content of each line when the cursor leaves or overwrites it. Sentences may be longer: a terminal wraps
 * them, and a path copied from them is whole. */
static bool looks_right(const char *text, size_t n, int columns, char *lines)
{
    int column = 0;
    const char *begin = text;
    for (const char *c = text; c < text + n; c++) {
        unsigned char u = (unsigned char)*c;
        if (u == '\033') {
            if (*++c != '[') return false;
            while (isdigit((unsigned char)c[1]) || c[1] == ';') c++;
            if (!*++c || !strchr("mAKJ", *c)) return false;
        } else if (u == '\r' || u == '\n') {
            column = 0, *lines++ = '\n';
            begin = c + 1;
        } else if (u < ' ' || u == 127) {
            return false;
        } else {
            *lines++ = *c;
            bool sentence = !strncmp(begin, "fit stopped: ", 13) || !strncmp(begin, "metrics: ", 9);
            if ((u & 0xc0) != 0x80) column += u >= 0xe3 ? 2 : 1; /* of those here, only Chinese begins so high */
            if ((u & 0xc0) != 0x80 && column > columns && !sentence) {
                printf("  wider than %d: %.*s\n", columns, (int)(c - begin) + 1, begin);
                return false;
            }
        }
    }
    *lines = 0;
    return true;
}

static lc_tensor *narrow_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = lc_mse_loss(net_forward((net *)self, b->x), b->y);
    (void)i;
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .prog_bar = true);
    lc_log(self, "an_error_with_quite_a_long_name", loss, .on_step = LC_ON, .prog_bar = true);
    lc_log(self, "验证集上的准确率", loss, .on_step = LC_ON, .prog_bar = true); /* each character has two columns */
    return loss;
}

static lc_status narrow_test_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)i, (void)d;
    lc_log(self, "an_error_with_quite_a_long_name_over_all_of_the_test",
           lc_mse_loss(net_forward((net *)self, b->x), b->y));
    lc_log(self, "测试集上的准确率测试集上的准确率测试集上的准确率", lc_mse_loss(net_forward((net *)self, b->x), b->y));
    return LC_OK;
}

/* All lines that a run shows in a terminal with this many columns. */
static char *shown(int columns, bool rich)
{
    run r;
    lc_callback cb[2];
    lc_module_ops ops = net_ops;
    pseudo *p = pseudo_open(columns);
    ops.training_step = narrow_training_step;
    ops.test_step = narrow_test_step;
    ops.test_dataloader = net_val_dataloader;
    run_init(&r);
    r.m.base.ops = &ops;
    if (rich)
        CHECK_OK(lc_rich_progress_bar(&cb[0], .fd = p->slave, .refresh_rate = 1e9));
    else
        CHECK_OK(lc_progress_bar(&cb[0], .fd = p->slave, .refresh_rate = 1e9));
    const lc_type example = {.dtype = LC_F32, .ndim = 2, .shape = {4, NET_FEATURES}};
    CHECK_OK(
        lc_model_summary(&cb[1], .max_depth = 2, .fd = p->slave, .example_inputs = &example, .n_example_inputs = 1));
    r.o.enable_progress_bar = LC_AUTO;
    CHECK_OK(run_fit(&r, cb, 2));
    CHECK_OK(lc_trainer_validate(r.t, &r.m.base));
    CHECK_OK(lc_trainer_test(r.t, &r.m.base));
    run_release(&r);
    pseudo_finish(p);
    char *lines = calloc(1, sizeof p->text + 1);
    CHECK(lines && looks_right(p->text, p->n, columns, lines));
    free(p);
    return lines;
}

static void each_width(bool rich, const char *locale, void (*check)(int columns, const char *lines))
{
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", locale, 1);
    unsetenv("COLUMNS");
    unsetenv("LIGHTC_PROGRESS");
    for (int columns = 20; columns <= 200; columns += columns < 45 ? 1 : columns == 45 ? 35 : 120) {
        char *lines = shown(columns, rich);
        check(columns, lines);
        /* Results, with shortened names, and all of the model's layers. */
        CHECK_CONTAINS(lines, "val_l");
        CHECK_CONTAINS(lines, columns < 80 ? "an_e" : "an_error_with_quite_a_long_name_over_all_of_the_test ");
        CHECK_CONTAINS(lines, columns < 80 ? "head" : "backbone.norm | BatchNorm1d");
        CHECK_CONTAINS(lines, "trainable");
        free(lines);
    }
}

static void check_plain(int columns, const char *lines)
{
    CHECK_CONTAINS(lines, "Epoch 1: 100%");
    CHECK_CONTAINS(lines, " 6/6");
    if (columns >= 40) CHECK_CONTAINS(lines, "train_loss=");
    if (columns >= 34 && columns < 80) CHECK_CONTAINS(lines, "[t"); /* the first metric, with a shortened name */
    CHECK(!strstr(lines, "[, "));
    if (columns > 80) CHECK_CONTAINS(lines, "it/s");
}

TEST(the_plain_bar_fits_every_width)
{
    each_width(false, "C", check_plain);
    each_width(false, "C.UTF-8", check_plain);
}

static void check_rich(int columns, const char *lines)
{
    CHECK_CONTAINS(lines, "Epoch 1/1");
    CHECK_CONTAINS(lines, " 6/6");
    CHECK_CONTAINS(lines, " 2/2");
    CHECK_CONTAINS(lines, "train_loss: ");
    if (columns >= 80) CHECK_CONTAINS(lines, "it/s");
}

TEST(the_rich_bar_fits_every_width)
{
    each_width(true, "C", check_rich);
    each_width(true, "C.UTF-8", check_rich);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The formats in names of checkpoints: those of Python, and what is refused before the training. */
#include "checkpoint_runs.h"
#include "comma_locale.h"

static double script[] = {0.1, 1234.5678};

/* The name of the checkpoint after the second epoch, without ".ckpt ". */
static const char *name_of(const char *filename)
{
    static char name[4000];
    const char *dir = fresh_dir("names");
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .filename = filename), .epochs = 2, .script = script};
    r.n_script = 2;
    CHECK_OK(train(dir, r));
    snprintf(name, sizeof name, "%s", kept(dir));
    CHECK(strlen(name) > 6 && !strcmp(name + strlen(name) - 6, ".ckpt "));
    name[strlen(name) - 6] = 0;
    return name;
}

/* As Python's str.format writes 1, 4 and torch.tensor(1234.5678). */
TEST(formats_of_python)
{
    static const char *const rows[][2] = {
        {"", "epoch=1-step=4"},
        {"{epoch:>4}", "epoch=   1"},
        {"{epoch:<4}x", "epoch=1   x"},
        {"{epoch:^5}x", "epoch=  1  x"},
        {"{epoch:03}", "epoch=001"},
        {"{epoch:+}", "epoch=+1"},
        {"{epoch:=+4}", "epoch=+  1"},
        {"{epoch:.2f}", "epoch=1.00"},
        {"{epoch:x}", "epoch=1"},
        {"{step:,}", "step=4"},
        {"{step:e}", "step=4.000000e+00"},
        {"{val_loss}", "val_loss=1234.5677490234375"},
        {"{val_loss:_}", "val_loss=1_234.5677490234375"},
        {"{val_loss:,.1f}", "val_loss=1,234.6"},
        {"{val_loss:+.1f}", "val_loss=+1234.6"},
        {"{val_loss:+09.1f}", "val_loss=+001234.6"},
        {"{val_loss:.1%}", "val_loss=123456.8%"},
        {"{val_loss:*^12.2f}", "val_loss=**1234.57***"},
        {"{val_loss:n}", "val_loss=1234.57"},
        {"{val_loss:G}", "val_loss=1234.57"},
        {"{val_loss:.0}", "val_loss=1e+03"},
        {"{val_loss:.2}", "val_loss=1.2e+03"},
        {"{val_loss:.4}", "val_loss=1.235e+03"},
        {"{val_loss:.5}", "val_loss=1234.6"},
        {"a}}b", "a}b"},
        {"{nope:d}", "nope=0"},
    };
    const int n = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < n; i++) CHECK_STR(name_of(rows[i][0]), rows[i][1]);
    /* As Python, which does not ask the locale. */
    for (int i = 0; i < n && use_decimal_comma(); i++) CHECK_STR(name_of(rows[i][0]), rows[i][1]);
    setlocale(LC_ALL, "C");
}

/* Digits without a type. */
TEST(a_number_with_a_point)
{
    static const struct {
        double value;
        const char *filename, *want;
    } rows[] = {{2, "{val_loss:.2}", "val_loss=2.0"},
                {2, "{val_loss:.1}", "val_loss=2e+00"},
                {10, "{val_loss:.2}", "val_loss=1e+01"},
                {0, "{val_loss:.3}", "val_loss=0.0"},
                {-0.00012, "{val_loss:10.2}", "val_loss=  -0.00012"}};
    const double before = script[1];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        script[1] = rows[i].value;
        CHECK_STR(name_of(rows[i].filename), rows[i].want);
    }
    script[1] = before;
}

/* They could not be stored. */
TEST(names_that_are_not_utf8)
{
    char dir[300], root[310];
    snprintf(dir, sizeof dir, "%s", fresh_dir("utf8"));
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .filename = "caf\xe9"), .epochs = 1};
    CHECK_STATUS(train(dir, r), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "filename \"caf\\xe9\" is not UTF-8");
    CHECK(!*kept(dir));
    snprintf(root, sizeof root, "%s/\xe9", dir);
    r.keep = LC_ARGS(lc_model_checkpoint, .filename = NULL);
    CHECK_STATUS(train(root, r), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "\\xe9\" is not UTF-8");
}

TEST(refused_before_the_training)
{
    static const char *const rows[][2] = {
        {"{epoch", "has a { without its }"},
        {"epoch}", "has a } without its {"},
        {"{{epoch}}", "has a { within {}"},
        {"a{{b}}{epoch}", "has a { within {}"},
        {"{}", "{} without a metric's name"},
        {"{epoch:{step}}", "has a { within {}"},
        {"{epoch:q}", "\"q\" in a checkpoint's filename is not known;"},
        {"{epoch:.2}", "\".2\" in a checkpoint's filename is not known for whole numbers"},
        {"{epoch:.2d}", "\".2d\" in a checkpoint's filename is not known for whole numbers"},
        {"{val_loss:.}", "\".\" in a checkpoint's filename is not known;"},
        {"{val_loss:.2fx}", "\".2fx\" in a checkpoint's filename is not known;"},
        {"{val_loss:9999f}", "\"9999f\" in a checkpoint's filename is not known;"},
        {"{val_loss:.999f}", "\".999f\" in a checkpoint's filename is not known;"},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        lc_callback cb;
        CHECK_STATUS(lc_model_checkpoint(&cb, .filename = rows[i][0]), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), rows[i][1]);
    }
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .filename = "{val_loss:d}"), .epochs = 2, .script = script};
    r.n_script = 2;
    CHECK_STATUS(train(fresh_dir("whole"), r), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "is for whole numbers, which \"val_loss\" is not");
}
TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokens, and windows over them: in order and at random, over ranks, and after a resume. */
#include "fixtures.h"

enum { TOKENS = 1000, WINDOW = 16 };

/* Token i of each fixture. */
static int64_t token(int64_t i)
{
    return i * 7 % 50257;
}

static void check_files(void)
{
    static const struct {
        const char *file, *type;
    } rows[] = {{"nanogpt.bin", "u16"}, {"llmc.bin", "u16"}, {"llama3.bin", "u32"}};
    for (int k = 0; k < 3; k++) {
        lc_array_file *f = open_fixture(rows[k].file);
        CHECK_EQ(lc_array_file_count(f), 1);
        const lc_array_info *info = lc_array_file_info(f, 0);
        CHECK_STR(info->name, "tokens");
        CHECK_STR(info->type, rows[k].type);
        CHECK(info->ndim == 1 && info->shape[0] == TOKENS);
        int64_t values[TOKENS];
        CHECK_OK(lc_array_file_read(f, 0, 0, TOKENS, LC_I64, values, sizeof values));
        for (int i = 0; i < TOKENS; i++) CHECK_EQ(values[i], token(i));
        lc_array_file_close(f);
    }
}

TEST(formats)
{
    check_files();
}

TEST(live_numpy)
{
    with_live_files("numpy", check_files);
}

static void check_window(lc_dataset *d, int64_t i, int64_t from)
{
    int64_t x[WINDOW + 1], y[WINDOW + 1];
    void *out[] = {x, y};
    x[WINDOW] = y[WINDOW] = -9;
    CHECK_OK(lc_dataset_read(d, i, 0, out));
    for (int k = 0; k < WINDOW; k++) {
        CHECK_EQ(x[k], token(from + k));
        CHECK_EQ(y[k], token(from + k + 1));
    }
    CHECK(x[WINDOW] == -9 && y[WINDOW] == -9);
}

/* Every number of tokens, from every place in a line of the cache. */
TEST(windows_of_any_length)
{
    lc_array_file *f = open_fixture("nanogpt.bin");
    int64_t out[2][128], *x = out[0], *y = out[1];
    for (int64_t window = 1; window <= 100; window++)
        for (int64_t i = 0; i < 9; i++) {
            lc_dataset *d;
            CHECK_OK(lc_file_windows_new(f, &d, .window = window, .begin = i, .end = i + window + 1));
            memset(out, 0xff, sizeof out);
            CHECK_OK(lc_dataset_read(d, 0, 0, (void *[]){x + i, y + 8 - i}));
            for (int64_t k = 0; k < window; k++) CHECK(x[i + k] == token(i + k) && y[8 - i + k] == token(i + k + 1));
            CHECK(x[i + window] == -1 && y[8 - i + window] == -1);
            lc_dataset_unref(d);
        }
    lc_array_file_close(f);
}

TEST(windows_in_order)
{
    static const char *const files[] = {"nanogpt.bin", "llama3.bin", "tokens.npy"};
    for (int k = 0; k < 3; k++) {
        lc_array_file *f = open_fixture(files[k]);
        lc_dataset *d;
        CHECK_OK(lc_file_windows_new(f, &d, .window = WINDOW));
        CHECK_EQ(lc_dataset_length(d), (TOKENS - 1) / WINDOW);
        for (int64_t i = 0; i < lc_dataset_length(d); i++) check_window(d, i, i * WINDOW);
        lc_dataset_unref(d);
        CHECK_OK(lc_file_windows_new(f, &d, .window = WINDOW, .begin = 100, .end = 217, .stride = 50));
        CHECK_EQ(lc_dataset_length(d), 3); /* at 100, 150, 200: the last target is token 216 */
        lc_array_file_close(f);
        check_window(d, 2, 200);
        lc_dataset_unref(d);
    }
}

TEST(windows_over_a_column)
{
    lc_array_file *f = open_fixture("stored.npz");
    lc_dataset *d;
    CHECK_OK(lc_file_windows_new(f, &d, .array = "a,b", .window = 2));
    CHECK_EQ(lc_dataset_length(d), 1);
    lc_dataset_unref(d);
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "images", .window = 2), LC_ERR_SHAPE);
    CHECK_STATUS(lc_file_windows_new(f, &d, .window = 2), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "labels", .window = 4), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "too few");
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "labels", .window = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "labels", .window = 1, .stride = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "labels", .window = 1, .end = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "labels", .window = 1, .end = 5), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "labels", .window = 1, .random = -1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_file_windows_new(f, &d, .array = "labels", .window = 1, .random = 9, .stride = 1), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "random places have no stride");
    lc_array_file_close(f);
}

/* ---- with a loader ---- */

enum { SAMPLES = 40, BATCH = 8 };

static lc_dataset *random_windows(void)
{
    lc_array_file *f = open_fixture("llmc.bin");
    lc_dataset *d;
    CHECK_OK(lc_file_windows_new(f, &d, .window = WINDOW, .random = SAMPLES));
    lc_array_file_close(f);
    CHECK_EQ(lc_dataset_length(d), SAMPLES);
    return d;
}

/* The first tokens of the samples of an epoch, from batch `start` on, of rank `rank` of `ranks`. */
static int first_tokens(lc_dataset *d, int64_t epoch, int64_t start, int workers, int rank, int ranks, int64_t *to)
{
    lc_dataloader *l;
    lc_batch *b;
    int n = 0;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = BATCH / ranks, .shuffle = true, .seed = 3,
                               .num_workers = workers));
    lc_share share = {.rank = rank, .size = ranks, .batches = ranks};
    CHECK_OK(lc_dataloader_share(l, &share));
    CHECK_OK(lc_dataloader_begin(l, epoch, start));
    for (;;) {
        CHECK_OK(lc_dataloader_next(l, &b));
        if (!b) break;
        int64_t x[BATCH * WINDOW], y[BATCH * WINDOW];
        size_t bytes = (size_t)b->size * WINDOW * sizeof *x;
        CHECK_OK(lc_tensor_read(b->x, x, bytes));
        CHECK_OK(lc_tensor_read(b->y, y, bytes));
        for (int64_t i = 0; i < b->size * WINDOW; i++) {
            CHECK_EQ(y[i], token(x[i] / 7 + 1));
            if (i % WINDOW == 0) to[n++] = x[i];
        }
    }
    lc_dataloader_free(l);
    return n;
}

TEST(random_windows_repeat)
{
    lc_dataset *d = random_windows();
    int64_t one[SAMPLES], other[SAMPLES];
    CHECK_EQ(first_tokens(d, 0, 0, 0, 0, 1, one), SAMPLES);
    /* Any number of workers, and after a resume. */
    CHECK_EQ(first_tokens(d, 0, 0, 3, 0, 1, other), SAMPLES);
    CHECK(!memcmp(one, other, sizeof one));
    CHECK_EQ(first_tokens(d, 0, 2, 0, 0, 1, other), SAMPLES - 2 * BATCH);
    CHECK(!memcmp(one + 2 * BATCH, other, (SAMPLES - 2 * BATCH) * sizeof *one));
    /* Ranks have parts of the same batches. */
    int64_t part[2][SAMPLES];
    for (int r = 0; r < 2; r++) CHECK_EQ(first_tokens(d, 0, 0, 0, r, 2, part[r]), SAMPLES / 2);
    for (int i = 0; i < SAMPLES; i++)
        CHECK_EQ(one[i], part[i % BATCH / (BATCH / 2)][i / BATCH * (BATCH / 2) + i % (BATCH / 2)]);
    /* Another epoch has other places, which are spread over the file. */
    CHECK_EQ(first_tokens(d, 1, 0, 0, 0, 1, other), SAMPLES);
    int same = 0, late = 0;
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < SAMPLES; k++) same += one[i] == other[k];
        late += one[i] >= token(TOKENS / 2);
    }
    CHECK(same < SAMPLES / 2);
    CHECK(late > SAMPLES / 5 && late < SAMPLES * 4 / 5);
    lc_dataset_unref(d);
}

/* ---- broken files ---- */

TEST(files_that_end_early_or_are_changed)
{
    size_t size;
    unsigned char *bytes = fixture_bytes("llmc.bin", &size);
    for (size_t cut = 12; cut < size; cut += cut < 1024 ? 7 : 201)
        CHECK_STATUS(try_bytes("cut.bin", bytes, cut), LC_ERR_FORMAT);
    bytes[8]++;
    CHECK_STATUS(try_bytes("long.bin", bytes, size), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "1001 tokens");
    memset(bytes + 8, 0xff, 4);
    CHECK_STATUS(try_bytes("huge.bin", bytes, size), LC_ERR_FORMAT);
    bytes[4] = 2;
    CHECK_STATUS(try_bytes("new.bin", bytes, size), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "version 2");
    /* Multiple-choice questions begin with another magic. */
    bytes[0] += 2, bytes[4] = 1;
    CHECK_STATUS(try_bytes("eval.bin", bytes, size), LC_ERR_UNSUPPORTED);
    CHECK_CONTAINS(lc_error_message(), "multiple-choice");
    free(bytes);
    CHECK_STATUS(try_bytes("odd.bin", "abc", 3), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "odd");
    CHECK_OK(try_bytes("none.bin", "", 0));
}

TEST_MAIN

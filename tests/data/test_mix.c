/* SPDX-License-Identifier: Apache-2.0 */
/* MixUp and CutMix: the sums and rectangles that torchvision's v2 transforms make of a batch, in a proportion of the
 * right distribution, the same for any number of workers and ranks. */
#include "data/mix.h"
#include "test.h"
#include <lightc/transforms.h>

enum { N = 11, C = 3, H = 6, W = 8, IMAGE = C * H * W, CLASSES = 4, BATCH = 4, BATCHES = 3, EPOCHS = 3 };

static float images[N][IMAGE];
static int64_t labels[N];

static lc_dataset *data_in(lc_layout layout)
{
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < IMAGE; k++) images[i][k] = (float)(100 * i + k);
        labels[i] = i % CLASSES;
    }
    lc_array a[2] = {
        {.field = {.name = "x", .dtype = LC_F32, .layout = layout, .ndim = 3, .shape = {C, H, W}}, .data = images},
        {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    lc_dataset *d, *out;
    lc_transform t;
    CHECK_OK(lc_array_dataset_new(N, 2, a, &d));
    CHECK_OK(lc_transform_one_hot(CLASSES, &t));
    CHECK_OK(lc_dataset_transform(d, 1, t, &out));
    lc_dataset_unref(d);
    return out;
}

typedef struct mixed {
    float x[EPOCHS][BATCHES][BATCH][IMAGE], y[EPOCHS][BATCHES][BATCH][CLASSES];
    int64_t indices[EPOCHS][BATCHES][BATCH], n[EPOCHS][BATCHES];
} mixed;

/* What `size` ranks give of all batches, each with `batch` samples of its own. */
static void read_all(lc_mix mix, lc_layout layout, int64_t batch, int size, int workers, mixed *out)
{
    memset(out, 0, sizeof *out);
    for (int rank = 0; rank < size; rank++) {
        lc_dataset *d = data_in(layout);
        lc_dataloader *l;
        lc_batch *b;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = batch, .shuffle = true, .seed = 5, .mix = mix,
                                   .num_workers = workers));
        lc_dataset_unref(d);
        if (size > 1) CHECK_OK(lc_dataloader_share(l, &(lc_share){.rank = rank, .size = size}));
        for (int e = 0; e < EPOCHS; e++) {
            CHECK_OK(lc_dataloader_begin(l, e, 0));
            for (int k = 0;; k++) {
                CHECK_OK(lc_dataloader_next(l, &b));
                if (!b) break;
                const int64_t at = b->global_offset;
                CHECK(k < BATCHES && at + b->size <= BATCH);
                if (!b->size) continue;
                CHECK_OK(lc_tensor_read(b->x, out->x[e][k][at], (size_t)b->size * sizeof out->x[0][0][0]));
                CHECK_OK(lc_tensor_read(b->y, out->y[e][k][at], (size_t)b->size * sizeof out->y[0][0][0]));
                memcpy(&out->indices[e][k][at], b->indices, (size_t)b->size * sizeof *b->indices);
                out->n[e][k] += b->size;
            }
        }
        lc_dataloader_free(l);
    }
}

/* The place in memory of number i of a sample, which is read as [C,H,W]. */
static int place_of(lc_layout layout, int i)
{
    return layout == LC_CHANNELS_LAST ? i % (H * W) * C + i / (H * W) : i;
}

/* The share of its own label, if it has another label than its partner; else -1. */
static double own_share(const mixed *m, int e, int k, int64_t j, int64_t partner)
{
    const int64_t own = labels[m->indices[e][k][j]], other = labels[m->indices[e][k][partner]];
    double sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += (double)m->y[e][k][j][c];
    CHECK_NEAR(sum, 1, 1e-5);
    return own == other ? -1 : (double)m->y[e][k][j][own];
}

static void check_sample(const mixed *m, lc_layout layout, int e, int k, int64_t j, double lambda, bool cuts)
{
    const int64_t n = m->n[e][k], partner = (j + n - 1) % n;
    const double share = own_share(m, e, k, j, partner);
    const float *own = images[m->indices[e][k][j]], *other = images[m->indices[e][k][partner]], *x = m->x[e][k][j];
    if (share >= 0) CHECK_NEAR(share, lambda, 1e-5);
    int kept = 0;
    for (int i = 0; i < IMAGE; i++) {
        const int at = place_of(layout, i);
        if (cuts) CHECK(x[i] == own[at] || x[i] == other[at]);
        if (!cuts) CHECK_NEAR(x[i], lambda * (double)own[at] + (1 - lambda) * (double)other[at], 1e-2);
        kept += x[i] == own[at];
    }
    if (cuts) CHECK_NEAR((double)kept / IMAGE, lambda, 1e-5);
}

static void check_kind(lc_mix kind, lc_layout layout, int *cut_batches)
{
    static mixed m;
    read_all(kind, layout, BATCH, 1, 0, &m);
    for (int e = 0; e < EPOCHS; e++)
        for (int k = 0; k < BATCHES; k++) {
            CHECK_EQ(m.n[e][k], k == 2 ? 3 : 4);
            double lambda = -1;
            int exact = 0;
            for (int64_t j = 0; j < m.n[e][k]; j++) {
                const double share = own_share(&m, e, k, j, (j + m.n[e][k] - 1) % m.n[e][k]);
                if (share >= 0) lambda = share;
                for (int i = 0; i < IMAGE; i++)
                    exact += m.x[e][k][j][i] == images[m.indices[e][k][j]][place_of(layout, i)];
            }
            CHECK(lambda >= 0);
            const bool cuts = kind == LC_CUTMIX || (kind == LC_MIXUP_OR_CUTMIX && exact > 0);
            *cut_batches += cuts;
            for (int64_t j = 0; j < m.n[e][k]; j++) check_sample(&m, layout, e, k, j, lambda, cuts);
        }
}

TEST(samples_are_mixed_with_the_one_before)
{
    int cuts[3] = {0};
    for (lc_layout layout = LC_ROW_MAJOR; layout <= LC_CHANNELS_LAST; layout++)
        for (int i = 0; i < 3; i++) check_kind((lc_mix)(LC_MIXUP + i), layout, &cuts[i]);
    CHECK(cuts[0] == 0 && cuts[1] == 18 && cuts[2] > 0 && cuts[2] < 18);
}

TEST(the_same_for_any_number_of_workers_and_ranks)
{
    static mixed want, got;
    for (int kind = LC_MIXUP; kind <= LC_MIXUP_OR_CUTMIX; kind++) {
        read_all((lc_mix)kind, LC_ROW_MAJOR, BATCH, 1, 0, &want);
        read_all((lc_mix)kind, LC_ROW_MAJOR, BATCH, 1, 3, &got);
        CHECK(!memcmp(&want, &got, sizeof want));
        read_all((lc_mix)kind, LC_ROW_MAJOR, BATCH / 2, 2, 1, &got);
        CHECK(!memcmp(&want, &got, sizeof want));
        read_all((lc_mix)kind, LC_ROW_MAJOR, BATCH / 4, 4, 0, &got);
        CHECK(!memcmp(&want, &got, sizeof want));
    }
}

TEST(proportions_are_of_the_beta_distribution)
{
    static const double alphas[] = {0.05, 0.2, 1, 4, 100};
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
        enum { DRAWS = 20000 };
        const double a = alphas[i], variance = 1 / (4 * (2 * a + 1));
        double sum = 0, squares = 0;
        for (uint64_t k = 0; k < DRAWS; k++) {
            const double v = lc__beta(a, lc_random_key(9, k));
            CHECK(v >= 0 && v <= 1);
            sum += v;
            squares += (v - 0.5) * (v - 0.5);
        }
        CHECK_NEAR(sum / DRAWS, 0.5, 4 * sqrt(variance / DRAWS));
        CHECK_NEAR(squares / DRAWS / variance, 1, 0.05);
    }
}

TEST(samples_that_cannot_be_mixed)
{
    lc_dataset *d = data_in(LC_ROW_MAJOR), *plain;
    lc_dataloader *l;
    lc_array a[2] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {8}}, .data = images},
                     {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .mix = LC_MIXUP, .mix_alpha = 0), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "mix_alpha is 0; it must be positive");
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = d, .mix = (lc_mix)4), LC_ERR_ARGUMENT);
    CHECK_OK(lc_array_dataset_new(2, 2, a, &plain));
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = plain, .mix = LC_MIXUP), LC_ERR_DTYPE);
    CHECK_CONTAINS(lc_error_message(), "lc_transform_one_hot on field 1");
    lc_dataset_unref(plain);
    a[1] = (lc_array){.field = {.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {2}}, .data = images};
    CHECK_OK(lc_array_dataset_new(2, 2, a, &plain));
    CHECK_STATUS(lc_dataloader_new(&l, .dataset = plain, .mix = LC_CUTMIX), LC_ERR_SHAPE);
    CHECK_OK(lc_dataloader_new(&l, .dataset = plain, .mix = LC_MIXUP));
    lc_dataloader_free(l);
    /* A batch of one sample stays as it is. */
    lc_batch *b;
    float x[8];
    CHECK_OK(lc_dataloader_new(&l, .dataset = plain, .mix = LC_MIXUP));
    CHECK_OK(lc_dataloader_begin(l, 0, 0));
    CHECK_OK(lc_dataloader_next(l, &b));
    CHECK_OK(lc_tensor_read(b->x, x, sizeof x));
    CHECK(!memcmp(x, images, sizeof x));
    lc_dataloader_free(l);
    lc_dataset_unref(plain);
    lc_dataset_unref(d);
}

TEST_MAIN

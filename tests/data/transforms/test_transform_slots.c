/* SPDX-License-Identifier: Apache-2.0 */
/* The optional slots of a transform: `reads`, which part of a picture it reads, `cuts`, that it only cuts this part
 * out, `by_rows`, that it may get some rows at a time, and `apply_streaming`, which writes a large sample past the
 * caches. */
#include "test.h"
#include <lightc/image.h>
#include <lightc/transforms.h>

#include <math.h>

enum { H = 40, W = 52, C = 3, N = C * H * W, MOST = 4 * 4 * N, SCRATCH = 1 << 20 };

static _Alignas(64) uint8_t picture[N], part_only[N], want[MOST], got[MOST + 64], scratch[SCRATCH];

static lc_field field(int64_t height, int64_t width)
{
    return (lc_field){.name = "x", .dtype = LC_U8, .layout = LC_CHANNELS_LAST, .ndim = 3, .shape = {C, height, width}};
}

static void draw(void)
{
    for (int i = 0; i < N; i++) picture[i] = (uint8_t)lc_random_below(3, (uint64_t)i, 256);
}

/* ---- reads ---- */

static void keep_only(const lc_box *p)
{
    memset(part_only, 0xE7, N);
    for (int64_t y = p->top; y < p->top + p->height; y++) {
        const int64_t at = C * (y * W + p->left);
        memcpy(part_only + at, picture + at, (size_t)(C * p->width));
    }
}

/* Returns the share of the picture that is read, for many keys. */
static double share_read(lc_transform t)
{
    enum { KEYS = 300 };
    const lc_field in = field(H, W);
    lc_field out = {0};
    double share = 0;
    CHECK_OK(t.ops->describe(t.self, &in, &out));
    CHECK(lc_field_bytes(&out) <= MOST && t.ops->reads);
    CHECK(!t.ops->scratch_size || t.ops->scratch_size(t.self, &in) <= SCRATCH);
    for (uint64_t key = 0; key < KEYS; key++) {
        lc_box p = {0, 0, H, W};
        t.ops->reads(t.self, &in, key, &p);
        CHECK(p.top >= 0 && p.left >= 0 && p.height > 0 && p.width > 0 && p.top + p.height <= H &&
              p.left + p.width <= W);
        keep_only(&p);
        CHECK_OK(t.ops->apply(t.self, &in, picture, &out, want, key, scratch));
        CHECK_OK(t.ops->apply(t.self, &in, part_only, &out, got, key, scratch));
        CHECK(!memcmp(want, got, lc_field_bytes(&out)));
        share += (double)(p.height * p.width) / (H * W) / KEYS;
    }
    lc_transform_release(&t);
    return share;
}

TEST(crops_read_no_more_than_they_say)
{
    lc_transform t;
    draw();
    CHECK_OK(lc_transform_random_crop(20, 26, &t));
    CHECK_NEAR(share_read(t), 0.25, 1e-9);
    CHECK_OK(lc_transform_center_crop(20, 26, &t));
    CHECK_NEAR(share_read(t), 0.25, 1e-9);
    CHECK_OK(lc_transform_center_crop(20, 70, &t));
    CHECK_NEAR(share_read(t), 0.5, 1e-9);
    CHECK_OK(lc_transform_random_resized_crop(15, 17, &t));
    CHECK_NEAR(share_read(t), 0.42, 0.05);
    CHECK_OK(lc_transform_random_resized_crop(60, 70, &t, .interpolation = LC_RESAMPLE_BICUBIC, .antialias = false));
    CHECK_NEAR(share_read(t), 0.42, 0.05);
    CHECK_OK(lc_transform_random_crop(H, W, &t, .padding = LC_DIMS(8)));
    CHECK(share_read(t) < 0.9);
    CHECK_OK(lc_transform_random_crop(60, 20, &t, .pad_if_needed = true, .fill = 7));
    CHECK(share_read(t) < 0.5);
}

/* Windows that are next to the picture, and edges and mirrors, whose pixels are from elsewhere. */
TEST(crops_beyond_the_picture)
{
    lc_transform t;
    draw();
    for (int mode = LC_PAD_CONSTANT; mode <= LC_PAD_SYMMETRIC; mode++)
        for (int padding = 3; padding < 38; padding += 5) {
            CHECK_OK(
                lc_transform_random_crop(9, 7, &t, .padding = LC_DIMS(padding), .padding_mode = (lc_padding_mode)mode));
            CHECK(share_read(t) < 1);
        }
}

TEST(a_chain_reads_what_its_first_part_reads)
{
    lc_transform steps[3], all;
    const double half[] = {0.5, 0.5, 0.5};
    draw();
    CHECK_OK(lc_transform_random_crop(20, 26, &steps[0]));
    CHECK_OK(lc_transform_random_erasing(&steps[1]));
    CHECK_OK(lc_transform_normalize(3, half, half, &steps[2]));
    CHECK_OK(lc_transform_compose(3, steps, &all));
    CHECK_NEAR(share_read(all), 0.25, 1e-9);
    CHECK_OK(lc_transform_horizontal_flip(0.5, &steps[0]));
    CHECK_OK(lc_transform_random_crop(20, 26, &steps[1]));
    CHECK_OK(lc_transform_compose(2, steps, &all));
    CHECK_NEAR(share_read(all), 1, 1e-9);
    CHECK_OK(lc_transform_compose(0, steps, &all));
    CHECK_NEAR(share_read(all), 1, 1e-9);
}

/* ---- rows ---- */

static int64_t asked, cuts;

/* Counts in how many cases the part is as large as the result, and that it is the result then. */
static void count_cuts(lc_transform t)
{
    const lc_field in = field(H, W);
    lc_field out = {0};
    CHECK(t.ops->cuts);
    CHECK_OK(t.ops->describe(t.self, &in, &out));
    for (uint64_t key = 0; key < 300; key++) {
        lc_box p = {0, 0, H, W};
        t.ops->reads(t.self, &in, key, &p);
        asked++;
        if (p.height != out.shape[1] || p.width != out.shape[2]) continue;
        cuts++;
        CHECK_OK(t.ops->apply(t.self, &in, picture, &out, got, key, scratch));
        for (int64_t y = 0; y < p.height; y++)
            CHECK(!memcmp(got + C * y * p.width, picture + C * ((p.top + y) * W + p.left), (size_t)(C * p.width)));
    }
    lc_transform_release(&t);
}

TEST(crops_cut)
{
    lc_transform t;
    draw();
    CHECK_OK(lc_transform_random_crop(20, 26, &t));
    count_cuts(t);
    CHECK_OK(lc_transform_center_crop(20, 26, &t));
    count_cuts(t);
    CHECK_EQ(cuts, asked);
    for (int mode = LC_PAD_CONSTANT; mode <= LC_PAD_SYMMETRIC; mode++) {
        const int64_t before = cuts;
        CHECK_OK(
            lc_transform_random_crop(H - 4, W - 4, &t, .padding = LC_DIMS(4), .padding_mode = (lc_padding_mode)mode));
        count_cuts(t);
        CHECK(cuts > before && cuts < before + 300);
    }
    cuts = 0;
    CHECK_OK(lc_transform_center_crop(20, W + 2, &t));
    count_cuts(t);
    CHECK_EQ(cuts, 0);
}

static void same_rows(lc_transform t, const lc_field *in)
{
    lc_field out = {0};
    CHECK(t.ops->by_rows);
    CHECK_OK(t.ops->describe(t.self, in, &out));
    const size_t row = lc_field_bytes(&out) / H;
    for (uint64_t key = 0; key < 8; key++) {
        CHECK_OK(t.ops->apply(t.self, in, picture, &out, want, key, scratch));
        for (int64_t y = 0, n = 1; y < H; y += n, n = n + 1 < H - y ? n + 1 : H - y) {
            lc_field rows = *in, made = out;
            rows.shape[1] = made.shape[1] = n;
            CHECK_OK(t.ops->apply(t.self, &rows, picture + C * W * y, &made, got + row * (size_t)y, key, scratch));
        }
        CHECK(!memcmp(want, got, row * H));
    }
    lc_transform_release(&t);
}

TEST(some_rows_at_a_time)
{
    static const double mean[] = {0.4, 0.5, 0.6}, std[] = {0.2, 0.3, 0.4};
    const lc_field in = field(H, W);
    lc_transform t;
    draw();
    CHECK_OK(lc_transform_horizontal_flip(0.5, &t));
    same_rows(t, &in);
    CHECK_OK(lc_transform_normalize(3, mean, std, &t));
    same_rows(t, &in);
    CHECK_OK(lc_transform_normalize(1, mean, std, &t));
    same_rows(t, &in);
    CHECK_OK(lc_transform_to_tensor(&t));
    same_rows(t, &in);
}

/* ---- streaming ---- */

/* The same sample, at addresses that vectors may be stored to and at others. */
static void same_sample(lc_transform t, const lc_field *in)
{
    lc_field out = {0};
    CHECK_OK(t.ops->describe(t.self, in, &out));
    const size_t bytes = lc_field_bytes(&out);
    CHECK(t.ops->apply_streaming && bytes <= MOST);
    for (size_t at = 0; at < 64; at += 4) {
        CHECK_OK(t.ops->apply(t.self, in, picture, &out, want, 5, scratch));
        memset(got, 0, sizeof got);
        CHECK_OK(t.ops->apply_streaming(t.self, in, picture, &out, got + at, 5, scratch));
        CHECK(!memcmp(want, got + at, bytes));
    }
    lc_transform_release(&t);
}

TEST(large_samples_are_the_same)
{
    static const double mean[] = {0.4, 0.5, 0.6}, std[] = {0.2, 0.3, 0.4};
    lc_transform steps[2], t;
    draw();
    for (int64_t width = W - 9; width <= W; width++)
        for (int layout = 0; layout < 2; layout++) {
            lc_field in = field(H - 1, width);
            in.layout = layout ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
            CHECK_OK(lc_transform_normalize(3, mean, std, &t));
            same_sample(t, &in);
            CHECK_OK(lc_transform_normalize(1, mean, std, &t));
            same_sample(t, &in);
            CHECK_OK(lc_transform_horizontal_flip(1, &steps[0]));
            CHECK_OK(lc_transform_normalize(3, mean, std, &steps[1]));
            CHECK_OK(lc_transform_compose(2, steps, &t));
            same_sample(t, &in);
            CHECK_OK(lc_transform_normalize(3, mean, std, &steps[0]));
            CHECK_OK(lc_transform_horizontal_flip(1, &steps[1]));
            CHECK_OK(lc_transform_compose(2, steps, &t));
            same_sample(t, &in);
        }
}
TEST_MAIN

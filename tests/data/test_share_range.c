/* SPDX-License-Identifier: Apache-2.0 */
/* The share of a batch that each rank gets: where it begins and ends (lc_share_range), and how it is cut out of a batch
 * (data/batch_slice.h). */
#include "test.h"
#include <lightc/data.h>
#include "data/batch_slice.h"

#include <limits.h>

TEST(slices_cover_a_batch_without_gaps)
{
    for (int size = 1; size < 10; size++)
        for (int64_t samples = 0; samples < 80; samples++) {
            int64_t at = 0, least = INT64_MAX, most = 0;
            for (int rank = 0; rank < size; rank++) {
                int64_t begin, n;
                lc_share_range(&(lc_share){.rank = rank, .size = size}, 80, samples, &begin, &n);
                CHECK_EQ(begin, at);
                CHECK(n >= 0);
                at += n;
                if (n < least) least = n;
                if (n > most) most = n;
            }
            CHECK_EQ(at, samples);
            CHECK(most - least <= 1);
        }
}

/* Slices consist of whole pieces, which begin at the same samples and belong to the same rank whatever the size of the
 * batch. */
TEST(slices_in_pieces_cut_none)
{
    for (int size = 1; size < 10; size++)
        for (int64_t full = 1; full < 40; full += 3)
            for (int64_t pieces = 1; pieces < 12; pieces++)
                for (int64_t samples = 0; samples <= full; samples++) {
                    int64_t at = 0, piece = (full + pieces - 1) / pieces, each = (pieces + size - 1) / size;
                    for (int rank = 0; rank < size; rank++) {
                        int64_t begin, n;
                        lc_share s = {.rank = rank, .size = size, .pieces = pieces};
                        lc_share_range(&s, full, samples, &begin, &n);
                        CHECK_EQ(lc_share_piece(&s, full), piece);
                        CHECK_EQ(begin, at);
                        CHECK_EQ(begin, rank * each * piece < samples ? rank * each * piece : samples);
                        CHECK(n >= 0 && n <= each * piece);
                        at += n;
                    }
                    CHECK_EQ(at, samples);
                }
}

TEST(slices_of_very_many_samples)
{
    const int64_t samples = (int64_t)INT_MAX * INT_MAX;
    int64_t begin, n;
    lc_share_range(&(lc_share){.rank = INT_MAX - 1, .size = INT_MAX}, samples, samples, &begin, &n);
    CHECK_EQ(begin, samples - INT_MAX);
    CHECK_EQ(n, INT_MAX);
    lc_share_range(&(lc_share){.rank = 2, .size = 3, .pieces = INT_MAX}, samples, samples, &begin, &n);
    CHECK_EQ(begin, (int64_t)INT_MAX * (2 * (((int64_t)INT_MAX + 2) / 3)));
    CHECK_EQ(n, samples - begin);
}

/* ---- slices of one batch ---- */

static lc_tensor *input_of(void *data, int64_t n, int64_t columns)
{
    lc_tensor *t = NULL;
    CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){n, columns}, LC_ROW_MAJOR, data, &t));
    return t;
}

static float first_of(lc_tensor *t)
{
    float v[64];
    CHECK_OK(lc_tensor_read(t, v, (size_t)lc_tensor_numel(t) * sizeof *v));
    return v[0];
}

TEST(a_slice_of_a_batch_has_its_samples)
{
    _Alignas(64) float x[10][3], y[10][1], mask[3][3] = {{0}};
    int64_t indices[10];
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 3; k++) x[i][k] = (float)(10 * i + k);
        y[i][0] = (float)i;
        indices[i] = 100 + i;
    }
    lc_batch b = {.n = 3, .size = 10, .indices = indices, .global_size = 30, .global_offset = 10, .first = 50};
    b.tensors[0] = b.x = input_of(x, 10, 3);
    b.tensors[1] = b.y = input_of(y, 10, 1);
    b.tensors[2] = input_of(mask, 3, 3);
    lc__batch_slice s = {0};
    lc_tensor *kept = NULL;
    const lc_batch *part;
    for (int64_t begin = 0; begin < 10; begin += 4) {
        int64_t n = begin + 4 < 10 ? 4 : 10 - begin;
        CHECK_OK(lc__batch_cut(&s, &b, begin, n, &part));
        CHECK_EQ(part->size, n);
        CHECK_EQ(part->indices[0], 100 + begin);
        CHECK_EQ(part->first, 50 + begin);
        CHECK_EQ(part->global_offset, 10 + begin);
        CHECK_EQ(part->global_size, 30);
        CHECK(part->x == part->tensors[0] && part->y == part->tensors[1] && part->tensors[2] == b.tensors[2]);
        CHECK_EQ(lc_tensor_dim(part->x, 0), n);
        CHECK_EQ(first_of(part->x), 10 * begin);
        CHECK_EQ(first_of(part->y), begin);
        CHECK(!kept || kept == part->x); /* no new tensors in the steady step */
        kept = part->x;
    }
    CHECK_STATUS(lc__batch_cut(&s, &b, 8, 3, &part), LC_ERR_ARGUMENT);
    lc__batch_slice_release(&s);
    for (int i = 0; i < 3; i++) lc_tensor_unref(b.tensors[i]);
}

TEST(slices_of_a_batch_in_parts)
{
    _Alignas(64) float x[12][1], z[7][1];
    for (int i = 0; i < 12; i++) x[i][0] = (float)i;
    for (int i = 0; i < 7; i++) z[i][0] = (float)-i;
    lc_batch a = {.n = 1, .size = 12}, c = {.n = 1, .size = 7};
    a.tensors[0] = a.x = input_of(x, 12, 1);
    c.tensors[0] = c.x = input_of(z, 7, 1);
    const lc_batch *parts[] = {NULL, &a, &c}, *part;
    lc_batch whole = a;
    whole.n_parts = 3;
    whole.parts = parts;
    lc__batch_slice s = {0};
    int64_t seen = 0;
    for (int64_t begin = 0; begin < 12; begin += 5) {
        int64_t n = begin + 5 < 12 ? 5 : 12 - begin;
        CHECK_OK(lc__batch_cut(&s, &whole, begin, n, &part));
        CHECK(part->n_parts == 3 && !part->parts[0] && part->x == part->parts[1]->x);
        CHECK_EQ(part->size, n);
        CHECK_EQ(first_of(part->parts[1]->x), begin);
        CHECK_EQ(first_of(part->parts[2]->x), -seen);
        seen += part->parts[2]->size;
    }
    CHECK_EQ(seen, 7);
    lc__batch_slice_release(&s);
    lc_tensor_unref(a.x), lc_tensor_unref(c.x);
}

TEST_MAIN

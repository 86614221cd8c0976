/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of resizing for vector units give the same bytes as the plain ones. */
#include "test.h"
#include "image/resize.h"
#include <lightc/random.h>

enum { ROWS = 3 };

static uint8_t *noise(size_t n)
{
    uint8_t *bytes = malloc(n); /* no byte more, for the sanitizer */
    CHECK(bytes);
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)lc_random_below(1, i, 256);
    return bytes;
}

/* A row of 0 pixels has only a rest, for the plain loop. */
static void compare_along_x(const lc__resize_sizes *s)
{
    const size_t from = (size_t)(s->width * s->channels), to = (size_t)(s->to_width * s->channels);
    uint8_t *picture = noise(ROWS * from), *got = malloc(ROWS * to), *plain = malloc(to), *row = malloc(to);
    void *room = malloc(lc__resize_room(s));
    lc__resize_plan plan;
    CHECK(got && plain && row && room);
    lc__resize_prepare(&plan, s, room);
    lc__resize_run(&plan, picture, from, got);
    const lc__resize_axis *a = &plan.x;
    const lc__resize_weights x = {s->to_width, a->taps, s->channels, a->bits, a->first, a->n, a->weights};
    for (int i = 0; i < ROWS; i++) {
        lc__resize_along_x(&x, picture + (size_t)i * from, 0, plain);
        lc__resize_along_x(&x, picture + (size_t)i * from, s->width, row);
        if (memcmp(plain, row, to) != 0 || memcmp(plain, got + (size_t)i * to, to) != 0)
            TEST_FAIL("%d channels, %d to %d, filter %d", s->channels, (int)s->width, (int)s->to_width, s->filter);
    }
    free(room);
    free(row);
    free(plain);
    free(got);
    free(picture);
}

TEST(along_x_with_vectors)
{
    static const int64_t sizes[] = {1, 5, 6, 16, 37, 43, 61, 128, 224, 500, 1500};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int from = 0; from < N; from++)
        for (int to = 0; to < N; to++)
            for (int k = 0; k < 12 && from != to; k++)
                compare_along_x(&(lc__resize_sizes){ROWS, sizes[from], ROWS, sizes[to],
                                                    k % 3 == 2 ? 4 : 1 + 2 * (k % 3),
                                                    k / 3 % 2 ? LC__FILTER_BICUBIC : LC__FILTER_BILINEAR, k < 6});
}

/* Rows of 15 bytes have only a rest. */
TEST(along_y_with_vectors)
{
    enum { WIDTH = 183, MOST = 9 };
    uint8_t *rows = noise(MOST * WIDTH), all[WIDTH], part[MOST * 15], out[15];
    for (int n = 1; n <= MOST; n++) {
        int16_t w[MOST];
        for (int k = 0; k < n; k++) w[k] = (int16_t)((1 << 14) / n - (k == 1 ? 1 << 12 : 0));
        lc__resize_along_y(rows, WIDTH, WIDTH, n, w, 14, all);
        for (int at = 0; at < WIDTH; at += 15) {
            const size_t width = WIDTH - at < 15 ? WIDTH - at : 15;
            for (int k = 0; k < n; k++) memcpy(part + (size_t)k * width, rows + k * WIDTH + at, width);
            lc__resize_along_y(part, width, width, n, w, 14, out);
            CHECK(!memcmp(out, all + at, width));
        }
    }
    free(rows);
}
TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes small class folders of pictures, for tests if no real data is available: stripes across, stripes along, and
 * plain ones, in random colors and sizes, as PNG. A network learns them within a few dozen steps.
 *
 *     make_pictures DIR      DIR/train has 60 of each class, DIR/test 20; the same bytes each time */
#include "base/io.h"
#include "base/png.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const classes[] = {"across", "along", "plain"};

static uint64_t random_state = 1;

static int random_below(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)(random_state >> 33) % n;
}

static void draw(int kind, uint8_t *pixels, int width, int height)
{
    int color[2][3], period = 3 + random_below(4);
    for (int c = 0; c < 3; c++) color[0][c] = 20 + random_below(90), color[1][c] = 140 + random_below(90);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) {
                int at = kind == 0 ? y : kind == 1 ? x : 0;
                *pixels++ = (uint8_t)(color[at / period % 2][c] + random_below(20));
            }
}

static lc_status write_picture(const char *path, int kind)
{
    static uint8_t pixels[40 * 40 * 3];
    int width = 24 + random_below(17), height = 24 + random_below(17);
    lc__str file = {0};
    draw(kind, pixels, width, height);
    lc_status status = lc__png_add(&file, pixels, width, height, 3);
    if (status == LC_OK) status = lc__create_file(&lc__io_system, path, file.s, file.n);
    lc__str_free(&file);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_pictures DIR\n");
        return 2;
    }
    for (int part = 0; part < 2; part++)
        for (int kind = 0; kind < 3; kind++) {
            char folder[3000], path[3100];
            snprintf(folder, sizeof folder, "%s/%s/%s", argv[1], part ? "test" : "train", classes[kind]);
            LC_MAIN_TRY(lc__make_dirs(&lc__io_system, folder));
            for (int i = 0; i < (part ? 20 : 60); i++) {
                snprintf(path, sizeof path, "%s/%02d.png", folder, i);
                LC_MAIN_TRY(write_picture(path, kind));
            }
        }
    return 0;
}

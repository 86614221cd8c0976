/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels for terminals that show them: kitty's protocol, which takes a PNG in pieces of base64, and sixel, which takes
 * bands of six rows, color after color. */
#include "plot/plot_internal.h"
#include "base/base64.h"

#include <stdlib.h>
#include <string.h>

lc_status lc__plot_kitty(const lc_plot *p, lc__str *out)
{
    enum { PIECE = 4096 };
    lc__str png = {0}, text = {0};
    lc_status s = lc__plot_png(p, &png);
    if (s >= 0) lc__base64_add(&text, png.s, png.n);
    if (s >= 0 && text.failed) s = lc_fail(LC_ERR_MEMORY, "out of memory: a plot as text");
    for (size_t at = 0; s >= 0 && at < text.n; at += PIECE) {
        size_t n = text.n - at < PIECE ? text.n - at : PIECE;
        lc__str_add(out, "\033_G%sm=%d;", at ? "" : "f=100,a=T,", at + n < text.n);
        lc__str_add_bytes(out, text.s + at, n);
        lc__str_add(out, "\033\\");
    }
    lc__str_add(out, "\n");
    lc__str_free(&png);
    lc__str_free(&text);
    return s;
}

enum { LEVELS = 6, COLORS = LEVELS * LEVELS * LEVELS };

static int level(uint8_t v)
{
    return (v * (LEVELS - 1) + 127) / 255;
}

static int color_of(const uint8_t *rgb)
{
    return (level(rgb[0]) * LEVELS + level(rgb[1])) * LEVELS + level(rgb[2]);
}

static void add_run(lc__str *out, int bits, int64_t n)
{
    if (n > 3)
        lc__str_add(out, "!%lld%c", (long long)n, 63 + bits);
    else
        while (n-- > 0) lc__str_add(out, "%c", 63 + bits);
}

/* The rows from `top` on of one color. */
static void add_band_color(const lc__raster *r, int64_t top, int color, lc__str *out)
{
    int last = -1;
    int64_t n = 0;
    lc__str_add(out, "#%d", color);
    for (int64_t x = 0; x < r->w; x++) {
        int bits = 0;
        for (int64_t y = top; y < top + 6 && y < r->h; y++)
            bits |= (color_of(r->pixels + 3 * (y * r->w + x)) == color) << (y - top);
        if (bits != last && n) add_run(out, last, n);
        n = bits == last ? n + 1 : 1;
        last = bits;
    }
    add_run(out, last, n);
    lc__str_add(out, "$");
}

lc_status lc__plot_sixel(const lc_plot *p, lc__str *out)
{
    lc__raster r;
    LC_TRY(lc__plot_raster(p, &r));
    lc__str_add(out, "\033Pq\"1;1;%lld;%lld", (long long)r.w, (long long)r.h);
    for (int c = 0; c < COLORS; c++)
        lc__str_add(out, "#%d;2;%d;%d;%d", c, c / LEVELS / LEVELS * 20, c / LEVELS % LEVELS * 20, c % LEVELS * 20);
    for (int64_t top = 0; top < r.h; top += 6) {
        bool used[COLORS] = {false};
        for (int64_t i = top * r.w; i < (top + 6 < r.h ? top + 6 : r.h) * r.w; i++)
            used[color_of(r.pixels + 3 * i)] = true;
        for (int c = 0; c < COLORS; c++)
            if (used[c]) add_band_color(&r, top, c, out);
        lc__str_add(out, "-\n");
    }
    lc__str_add(out, "\033\\\n");
    free(r.pixels);
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* SVG: lines, boxes and texts; a grid of pictures is a PNG in it. */
#include "plot/plot_internal.h"
#include "base/base64.h"
#include "base/png.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct svg {
    lc__canvas canvas;
    lc__str *out;
} svg;

static void add_line(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color, double thickness)
{
    lc__str_add(((svg *)c)->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#%06x\" stroke-width=\"%.0f\" "
                "stroke-linecap=\"round\"/>\n",
                x0, y0, x1, y1, color, thickness);
}

static void add_box(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color)
{
    lc__str_add(((svg *)c)->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#%06x\" stroke=\"white\"/>\n",
                fmin(x0, x1), fmin(y0, y1), fabs(x1 - x0), fabs(y1 - y0), color);
}

static void add_text(lc__canvas *c, double x, double y, int anchor, uint32_t color, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    lc__str *out = ((svg *)c)->out;
    lc__str_add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"#%06x\">", x, y + 4, anchors[anchor + 1],
                color);
    for (; *text; text++) {
        const char *entity = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : NULL;
        const bool none = !strncmp(text, "\xEF\xBF\xBE", 3) || !strncmp(text, "\xEF\xBF\xBF", 3);
        if (entity)
            lc__str_add(out, "%s", entity);
        else if (none) /* U+FFFE and U+FFFF, which XML has not */
            lc__str_add(out, "\xEF\xBF\xBD"), text += 2;
        else
            lc__str_add_bytes(out, text, 1);
    }
    lc__str_add(out, "</text>\n");
}

static void begin(lc__str *out, int64_t width, int64_t height)
{
    lc__str_add(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%lld\" viewBox=\"0 0 %lld %lld\" "
                "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
                "fill=\"white\"/>\n",
                (long long)width, (long long)height, (long long)width, (long long)height);
}

static lc_status add_pictures(const lc_plot *p, lc__str *out)
{
    lc__raster r;
    lc__str png = {0};
    LC_TRY(lc__plot_raster(p, &r));
    lc_status s = lc__png_add(&png, r.pixels, (int)r.w, (int)r.h, 3);
    free(r.pixels);
    if (s >= 0) {
        begin(out, r.w, r.h);
        lc__str_add(out, "<image width=\"%lld\" height=\"%lld\" href=\"data:image/png;base64,", (long long)r.w,
                    (long long)r.h);
        lc__base64_add(out, png.s, png.n);
        lc__str_add(out, "\"/>\n");
    }
    lc__str_free(&png);
    return s;
}

lc_status lc__plot_svg(const lc_plot *p, lc__str *out)
{
    svg s = {.canvas = {(double)p->width, (double)p->height, 7, 18, add_line, add_box, add_text}, .out = out};
    if (p->kind == LC__PLOT_PICTURES) {
        LC_TRY(add_pictures(p, out));
    } else {
        begin(out, p->width, p->height);
        lc__plot_draw(p, &s.canvas);
    }
    lc__str_add(out, "</svg>\n");
    return out->failed ? lc_fail(LC_ERR_MEMORY, "out of memory: a plot as SVG") : LC_OK;
}

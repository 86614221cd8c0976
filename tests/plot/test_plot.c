/* SPDX-License-Identifier: Apache-2.0 */
/* Plots: texts compared character by character, SVG parsed, PNG decoded by the library's own reader. */
#include "scratch.h"
#include "test.h"
#include "file_text.h"

#include <lightc/lightc.h>

/* clang-format off */
#define LINES_TEXT \
    "                        Speed & size\n" \
    " samples a second\n" \
    " 80 ▄\n" \
    "    █                                         ▄▄ ▀▀ first\n" \
    "    █                                         █  ▀▀ a < b\n" \
    " 60 ██                                  ▄▄▄▄▀▀█\n" \
    "    █ ▀▄                       ▄▄▄▄▄▀▀▀▀      █▄\n" \
    "    █  ▀▄               ▄▄▄▀▀▀▀\n" \
    " 40 █    ▀▄        ▄▄▀▀▀\n" \
    "    █      ▀   ▄▄▀▀\n" \
    " 20 █     ██▄▀▀\n" \
    "    █▄▄▄▀▀▀▀\n" \
    "    █▀                                        ▄\n" \
    "  0 █▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄\n" \
    "           2           4          6           8\n" \
    "                       workers\n"
#define BINS_TEXT \
    " 3 ▄       ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄\n" \
    "   █       █████████████████\n" \
    "   █       █████████████████\n" \
    " 2 █▄▄▄▄▄▄▄█████████████████▄▄▄▄▄▄▄▄▄\n" \
    "   ██████████████████████████████████\n" \
    "   ██████████████████████████████████\n" \
    " 1 ██████████████████████████████████\n" \
    "   ██████████████████████████████████\n" \
    "   ██████████████████████████████████\n" \
    " 0 ██████████████████████████████████▄\n" \
    "   0                2                4\n" \
    "                  value\n"
/* clang-format on */

static const double x4[] = {1, 2, 4, 8}, y4[] = {10, 20, 40, 60}, error4[] = {2, 4, 0, 10};
static const lc_plot_series series[] = {{.name = "first", .n = 4, .x = x4, .y = y4, .error = error4},
                                        {.name = "a < b", .n = 4, .x = x4, .y = (const double[]){60, 30, NAN, 5}}};

static lc_plot *lines(void)
{
    lc_plot *p;
    CHECK_OK(lc_plot_lines(2, series, &p, .title = "Speed & size", .x_label = "workers", .y_label = "samples a second",
                           .from_zero = true));
    return p;
}

static char *text_of(const lc_plot *p, int64_t columns, int64_t rows, bool color)
{
    char *text;
    CHECK_OK(lc_plot_text(p, &text, .columns = columns, .rows = rows, .color = color));
    return text;
}

/* ---- text ---- */

TEST(lines_as_text)
{
    lc_plot *p = lines();
    char *text = text_of(p, 60, 16, false);
    CHECK_STR(text, LINES_TEXT);
    free(text);
    text = text_of(p, 60, 16, true);
    CHECK_CONTAINS(text, "\033[38;2;31;119;180m");
    CHECK(!strstr(text, "2;51;51;51m")); /* axes have the terminal's color, which is light on a dark one */
    CHECK_CONTAINS(text, "\n    \033[48;2;31;119;180m▀"); /* the axis above a line, */
    CHECK_CONTAINS(text, "\n    \033[48;2;31;119;180m▄"); /* and below it */
    free(text);
    lc_plot_free(p);
}

TEST(a_histogram_as_text)
{
    const double values[] = {0, 0.5, 1, 1, 1.5, 2, 2, 2, 3, NAN, 4, INFINITY};
    lc_plot *p;
    CHECK_OK(lc_plot_histogram(12, values, &p, .bins = 4, .x_label = "value"));
    char *text = text_of(p, 40, 12, false);
    CHECK_STR(text, BINS_TEXT);
    free(text);
    lc_plot_free(p);
}

/* Two pictures of 2 x 4: a ramp of gray, and red over blue. */
static lc_tensor *two_pictures(void)
{
    lc_tensor *t;
    uint8_t v[2][3][2][4] = {0};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 8; i++) v[0][k][i / 4][i % 4] = (uint8_t)(i % 4 * 85);
    for (int i = 0; i < 4; i++) v[1][0][0][i] = v[1][2][1][i] = 255;
    CHECK_OK(lc_tensor_new_layout(LC_U8, 4, (const int64_t[]){2, 3, 2, 4}, LC_CHANNELS_LAST, &t));
    CHECK_OK(lc_tensor_write(t, v, sizeof v));
    return t;
}

TEST(pictures_as_text)
{
    const char *const labels[] = {"gray", "red and blue"};
    lc_tensor *t = two_pictures();
    lc_plot *p;
    CHECK_OK(lc_plot_pictures(t, &p, .labels = labels));
    char *text = text_of(p, 40, 24, true);
    CHECK_STR(text, "\033[38;2;0;0;0m\033[48;2;0;0;0m▀\033[38;2;85;85;85m\033[48;2;85;85;85m▀\033[38;2;170;170;170m"
                    "\033[48;2;170;170;170m▀\033[38;2;255;255;255m\033[48;2;255;255;255m▀\033[49m "
                    "\033[38;2;255;0;0m\033[48;2;0;0;255m▀▀▀▀\033[0m\ngray red \n");
    free(text);
    text = text_of(p, 40, 24, false);
    CHECK_STR(text, " ░▓█ ░░░░\ngray red \n");
    free(text);
    lc_plot_free(p);
    lc_tensor_unref(t);
}

TEST(a_picture_of_one_column_as_text)
{
    const uint8_t v[2] = {0, 255};
    lc_tensor *t;
    lc_plot *p;
    CHECK_OK(lc_tensor_new(LC_U8, 3, (const int64_t[]){1, 2, 1}, &t));
    CHECK_OK(lc_tensor_write(t, v, sizeof v));
    CHECK_OK(lc_plot_pictures(t, &p));
    char *text = text_of(p, 40, 24, true);
    CHECK_STR(text, "\033[38;2;0;0;0m\033[48;2;255;255;255m▀\033[0m\n\n");
    free(text);
    lc_plot_free(p);
    lc_tensor_unref(t);
}

/* ---- PNG ---- */

/* The pixels [3,h,w] of a file. */
static uint8_t *decode(const char *path, int64_t *h, int64_t *w)
{
    static uint8_t pixels[3 * 1024 * 1024];
    lc_dataset *d;
    int64_t y;
    if (!LIGHTC_HAVE_PNG) SKIP("this build lacks libpng, which decodes");
    FILE *f = fopen(path, "rb");
    uint8_t head[24];
    CHECK(f && fread(head, 1, 24, f) == 24);
    fclose(f);
    *w = head[18] * 256 + head[19], *h = head[22] * 256 + head[23];
    char csv[400];
    snprintf(csv, sizeof csv, "%s/list.csv", scratch_root);
    f = fopen(csv, "w");
    CHECK(f && fprintf(f, "%s,0\n", strrchr(path, '/') + 1) > 0 && !fclose(f));
    CHECK_OK(lc_image_list_new(csv, &d, .root = scratch_root));
    CHECK_OK(lc_dataset_read(d, 0, 0, (void *const[]){pixels, &y}));
    lc_dataset_unref(d);
    return pixels; /* channels-last in memory */
}

static const char *path_of(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", scratch_root, name);
    return path;
}

static bool is_color(const uint8_t *p, int r, int g, int b)
{
    return p[0] == r && p[1] == g && p[2] == b;
}

TEST(pictures_as_png)
{
    lc_tensor *t = two_pictures();
    lc_plot *p;
    int64_t h, w;
    CHECK_OK(lc_plot_pictures(t, &p, .columns = 1));
    CHECK_OK(lc_plot_save(p, path_of("grid.png")));
    const uint8_t *pixels = decode(path_of("grid.png"), &h, &w);
    CHECK_EQ(w, 4 + 64 + 4); /* enlarged 16 times */
    CHECK_EQ(h, 4 + 2 * (32 + 4));
    CHECK(is_color(pixels, 255, 255, 255));
    CHECK(is_color(pixels + 3 * (4 * w + 4), 0, 0, 0));
    CHECK(is_color(pixels + 3 * (35 * w + 67), 255, 255, 255));
    CHECK(is_color(pixels + 3 * (35 * w + 4 + 16), 85, 85, 85));
    CHECK(is_color(pixels + 3 * (40 * w + 10), 255, 0, 0));
    CHECK(is_color(pixels + 3 * ((40 + 16) * w + 10), 0, 0, 255));
    lc_plot_free(p);
    lc_tensor_unref(t);
}

TEST(floats_between_low_and_high)
{
    lc_tensor *t;
    lc_plot *p;
    int64_t h, w;
    const float v[64 * 64] = {-3, -1, 0, 1, 3, NAN};
    CHECK_OK(lc_tensor_new(LC_F32, 3, (const int64_t[]){1, 64, 64}, &t));
    CHECK_OK(lc_tensor_write(t, v, sizeof v));
    CHECK_OK(lc_plot_pictures(t, &p, .low = -1, .high = 1));
    CHECK_OK(lc_plot_save(p, path_of("floats.png")));
    const uint8_t *row = decode(path_of("floats.png"), &h, &w) + 3 * (4 * 72 + 4);
    CHECK_EQ(w, 72);
    CHECK(is_color(row, 0, 0, 0) && is_color(row + 3, 0, 0, 0) && is_color(row + 6, 128, 128, 128));
    CHECK(is_color(row + 9, 255, 255, 255) && is_color(row + 12, 255, 255, 255) && is_color(row + 15, 0, 0, 0));
    lc_plot_free(p);
    lc_tensor_unref(t);
}

TEST(lines_as_png)
{
    lc_plot *p = lines();
    int64_t h, w, blue = 0, red = 0, white = 0;
    CHECK_OK(lc_plot_save(p, path_of("lines.png")));
    const uint8_t *pixels = decode(path_of("lines.png"), &h, &w);
    CHECK_EQ(w, 640);
    CHECK_EQ(h, 400);
    for (int64_t i = 0; i < w * h; i++) {
        blue += is_color(pixels + 3 * i, 0x1F, 0x77, 0xB4);
        red += is_color(pixels + 3 * i, 0xD6, 0x27, 0x28);
        white += is_color(pixels + 3 * i, 255, 255, 255);
    }
    CHECK(blue > 300 && red > 100 && white > w * h * 8 / 10);
    lc_plot_free(p);
}

/* ---- SVG ---- */

/* How many elements of that name there are; tags must be closed in order. */
static int count_elements(const char *xml, const char *name)
{
    char open[16][16];
    int depth = 0, n = 0;
    for (const char *s = xml; (s = strchr(s, '<')); s++) {
        size_t length = strcspn(s + 1, " />");
        const char *end = strchr(s, '>');
        CHECK(end && length < 16);
        if (s[1] == '/') {
            length = strcspn(s + 2, ">");
            CHECK(depth > 0 && strlen(open[depth - 1]) == length && !strncmp(open[depth - 1], s + 2, length));
            depth--;
            continue;
        }
        n += strlen(name) == length && !strncmp(s + 1, name, length);
        if (end[-1] == '/') continue;
        CHECK(depth < 16);
        snprintf(open[depth++], sizeof *open, "%.*s", (int)length, s + 1);
    }
    CHECK_EQ(depth, 0);
    return n;
}

TEST(svg)
{
    lc_plot *p = lines();
    CHECK_OK(lc_plot_save(p, path_of("lines.svg")));
    static char xml[1 << 16];
    file_text(scratch_root, "lines.svg", xml, sizeof xml);
    CHECK_CONTAINS(xml, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\"");
    CHECK_CONTAINS(xml, ">Speed &amp; size</text>");
    CHECK_CONTAINS(xml, ">a &lt; b</text>");
    CHECK_EQ(count_elements(xml, "svg"), 1);
    CHECK(count_elements(xml, "line") > 20);
    CHECK(!strstr(xml, "nan"));
    lc_plot_free(p);
    lc_tensor *t = two_pictures();
    CHECK_OK(lc_plot_pictures(t, &p));
    CHECK_OK(lc_plot_save(p, path_of("grid.svg")));
    file_text(scratch_root, "grid.svg", xml, sizeof xml);
    CHECK_EQ(count_elements(xml, "image"), 1);
    CHECK_CONTAINS(xml, "href=\"data:image/png;base64,iVBORw0KGgo");
    lc_plot_free(p);
    lc_tensor_unref(t);
}

/* ---- terminals with pixels ---- */

TEST(kitty_and_sixel)
{
    lc_tensor *t = two_pictures();
    lc_plot *p;
    char *text;
    CHECK_OK(lc_plot_pictures(t, &p));
    CHECK_OK(lc_plot_text(p, &text, .graphics = LC_PLOT_KITTY));
    CHECK_CONTAINS(text, "\033_Gf=100,a=T,m=0;iVBORw0KGgo");
    CHECK_STR(text + strlen(text) - 3, "\033\\\n");
    free(text);
    CHECK_OK(lc_plot_text(p, &text, .graphics = LC_PLOT_SIXEL));
    CHECK_CONTAINS(text, "\033Pq\"1;1;140;40#0;2;0;0;0");
    CHECK_CONTAINS(text, "#180!72?!64~!4?$"); /* red, only in the second picture */
    CHECK_STR(text + strlen(text) - 4, "\n\033\\\n");
    free(text);
    lc_plot_free(p);
    lc_tensor_unref(t);
}

/* ---- errors, and odd data ---- */

TEST(errors)
{
    lc_plot *p = NULL;
    lc_tensor *t;
    char *text = NULL;
    const double nothing[] = {NAN, INFINITY};
    CHECK_STATUS(lc_plot_lines(1, (&(lc_plot_series){.n = 2, .y = nothing}), &p), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "nothing to plot");
    CHECK_STATUS(lc_plot_lines(1, (&(lc_plot_series){.n = 2}), &p), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_lines(0, series, &p), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_lines(1, series, &p, .width = 100), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_histogram(2, nothing, &p), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_lines(1, series, &p, .width = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_lines(1, series, &p, .height = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_histogram(4, y4, &p, .bins = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_histogram(4, y4, &p, .width = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_histogram(4, y4, &p, .height = 0), LC_ERR_ARGUMENT);
    CHECK_OK(lc_tensor_new(LC_F32, 4, (const int64_t[]){1, 2, 4, 4}, &t));
    CHECK_STATUS(lc_plot_pictures(t, &p), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "not f32[");
    CHECK_CONTAINS(lc_error_message(), "1 or 3 channels");
    lc_tensor_unref(t);
    t = two_pictures();
    CHECK_STATUS(lc_plot_pictures(t, &p, .low = 3, .high = 3), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_pictures(t, &p, .columns = 0), LC_ERR_ARGUMENT);
    CHECK(p == NULL);
    CHECK_OK(lc_plot_pictures(t, &p));
    CHECK_STATUS(lc_plot_save(p, path_of("plot.gif")), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "must end in .svg or .png");
    CHECK_STATUS(lc_plot_save(p, "/nowhere/at/all/plot.png"), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_plot_text(p, &text, .columns = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_text(p, &text, .rows = 0), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_text(p, &text, .graphics = LC_PLOT_SIXEL + 1), LC_ERR_ARGUMENT);
    CHECK(text == NULL);
    lc_plot_free(p);
    lc_tensor_unref(t);
}

TEST(titles_and_labels)
{
    static char xml[1 << 16];
    lc_tensor *t = two_pictures();
    lc_plot *p;
    CHECK_OK(lc_plot_histogram(4, y4, &p, .title = "Bins", .y_label = "how many", .width = 320, .height = 200));
    CHECK_OK(lc_plot_save(p, path_of("bins.svg")));
    file_text(scratch_root, "bins.svg", xml, sizeof xml);
    CHECK_CONTAINS(xml, "width=\"320\" height=\"200\"");
    CHECK_CONTAINS(xml, ">Bins</text>");
    CHECK_CONTAINS(xml, ">how many</text>");
    lc_plot_free(p);
    CHECK_OK(lc_plot_pictures(t, &p, .title = "Two"));
    char *text = text_of(p, 40, 24, false);
    CHECK(!strncmp(text, "Two\n", 4));
    free(text);
    lc_plot_free(p);
    lc_tensor_unref(t);
}

TEST(odd_values)
{
    const double odd[][4] = {
        {0, 0, 0, 0}, {1e300, -1e300, 0, 1}, {1e-300, 2e-300, 0, 0}, {5, 5, 5, 5}, {-1e9, 1e9, 3, NAN}};
    for (int i = 0; i < 5; i++) {
        lc_plot *p;
        CHECK_OK(
            lc_plot_lines(1, (&(lc_plot_series){.name = "\033[31m", .n = 4, .y = odd[i], .error = odd[4 - i]}), &p));
        char *text = text_of(p, 20, 8, false);
        CHECK(!strchr(text, '\033'));
        free(text);
        CHECK_OK(lc_plot_save(p, path_of("odd.png")));
        lc_plot_free(p);
        CHECK_OK(lc_plot_histogram(4, odd[i], &p, .bins = 3));
        free(text_of(p, 1000, 8, true));
        lc_plot_free(p);
    }
}

/* Values that differ by less than a double can hold next to them, or by as little as there is. */
TEST(a_histogram_of_odd_values)
{
    const double odd[][2] = {{1e17, 1e17}, {1e17, 1e17 + 16}, {-1e300, 1e300}, {5e-324, 0}, {-1e300, NAN}, {0, 1e308}};
    const double beyond[] = {-1.7e308, 1.7e308}, x[] = {0, 1, 2}, y[] = {0, 5e-324, 1.7e308};
    static char xml[1 << 16];
    lc_plot *p;
    for (int i = 0; i < 7; i++) {
        if (i < 6)
            CHECK_OK(lc_plot_histogram(2, odd[i], &p, .bins = 3));
        else
            CHECK_OK(lc_plot_lines(1, (&(lc_plot_series){.n = 3, .x = x, .y = y, .error = y}), &p));
        CHECK_OK(lc_plot_save(p, path_of("odd.svg")));
        file_text(scratch_root, "odd.svg", xml, sizeof xml);
        CHECK(!strstr(xml, "nan") && !strstr(xml, "inf"));
        free(text_of(p, 40, 12, false));
        lc_plot_free(p);
    }
    CHECK_STATUS(lc_plot_histogram(2, beyond, &p), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_plot_lines(1, (&(lc_plot_series){.n = 2, .y = beyond}), &p), LC_ERR_ARGUMENT);
}

/* Ticks of a narrow range far from zero have different texts. */
TEST(ticks_of_a_narrow_range)
{
    const double y[] = {1234567.1, 1234567.9}, zero[] = {0.1, 0.3, 0.2};
    lc_plot *p;
    CHECK_OK(lc_plot_lines(1, (&(lc_plot_series){.n = 2, .y = y}), &p));
    char *text = text_of(p, 60, 12, false);
    CHECK_CONTAINS(text, " 1234567.2 ");
    CHECK_CONTAINS(text, " 1234567.4 ");
    free(text);
    lc_plot_free(p);
    const double seconds[] = {1.7e9, 1.7e9 + 350};
    CHECK_OK(lc_plot_lines(1, (&(lc_plot_series){.n = 2, .x = seconds, .y = zero}), &p));
    text = text_of(p, 80, 12, false);
    CHECK_CONTAINS(text, " 1700000000 ");
    CHECK_CONTAINS(text, " 1700000100 ");
    free(text);
    lc_plot_free(p);
    CHECK_OK(lc_plot_lines(1, (&(lc_plot_series){.n = 3, .y = zero}), &p, .from_zero = true));
    text = text_of(p, 60, 12, false);
    CHECK_CONTAINS(text, " 0.3 ");
    CHECK_CONTAINS(text, " 0 ");
    free(text);
    lc_plot_free(p);
}

TEST(axes_have_no_gaps)
{
    const double y[] = {0, 1};
    lc_plot *p;
    CHECK_OK(lc_plot_lines(1, (&(lc_plot_series){.n = 2, .y = y}), &p));
    for (int64_t columns = 20; columns < 120; columns++) {
        char *text = text_of(p, columns, 12, false), *axis = strstr(text, "  0 █");
        CHECK(axis && strcspn(axis + 4, " ") > strcspn(axis + 4, "\n"));
        free(text);
    }
    lc_plot_free(p);
}

/* A title that is wider than the plot has its beginning there. */
TEST(a_long_title)
{
    static char xml[1 << 16];
    lc_plot *p;
    CHECK_OK(lc_plot_lines(1, series, &p, .title = "Beginning of a title that is wider than the plot is", .width = 160,
                           .x_label = "a label that is wider, too", .height = 160));
    char *text = text_of(p, 20, 12, false);
    CHECK(!strncmp(text, "Beginning of a title", 20));
    CHECK_CONTAINS(text, "\na label that is wide");
    free(text);
    CHECK_OK(lc_plot_save(p, path_of("long.svg")));
    file_text(scratch_root, "long.svg", xml, sizeof xml);
    CHECK_CONTAINS(xml, "<text x=\"0.0\" y=\"13.0\" text-anchor=\"start\"");
    lc_plot_free(p);
}

/* XML has neither U+FFFE nor U+FFFF. */
TEST(characters_that_xml_has_not)
{
    static char xml[1 << 16];
    lc_plot *p;
    CHECK_OK(lc_plot_lines(1, series, &p,
                           .title = "a\xEF\xBF\xBE"
                                    "b\xEF\xBF\xBF"
                                    "c\xEF\xBF\xBD\xEF\xBF"));
    CHECK_OK(lc_plot_save(p, path_of("xml.svg")));
    file_text(scratch_root, "xml.svg", xml, sizeof xml);
    CHECK_CONTAINS(xml, ">a\xEF\xBF\xBD"
                        "b\xEF\xBF\xBD"
                        "c\xEF\xBF\xBD\\xef\\xbf</text>");
    lc_plot_free(p);
}

TEST_MAIN

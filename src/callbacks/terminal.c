/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by progress bars. */
#include "base/c_locale.h"
#include "callbacks/terminal.h"

#include "base/printable.h"
#include "core/input/input.h"
#include "core/logging/logging.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool says_utf8(void)
{
    const char *l = getenv("LC_ALL");
    if (!l || !*l) l = getenv("LC_CTYPE");
    if (!l || !*l) l = getenv("LANG");
    return l && (strstr(l, "UTF-8") || strstr(l, "utf8") || strstr(l, "UTF8"));
}

lc__terminal lc__terminal_find(int fd, lc_progress_style style)
{
    const char *term = getenv("TERM"), *how = getenv("LIGHTC_PROGRESS"), *no_color = getenv("NO_COLOR");
    bool dumb = !term || !*term || !strcmp(term, "dumb");
    lc__terminal t = {.fd = fd};
    t.live = style == LC_PROGRESS_BAR || (style == LC_PROGRESS_AUTO && isatty(t.fd) && !dumb);
    if (how && !strcmp(how, "bar")) t.live = true;
    if (how && !strcmp(how, "lines")) t.live = false;
    t.off = how && !strcmp(how, "off");
    t.color = t.live && !dumb && !(no_color && *no_color);
    t.unicode = says_utf8();
    return t;
}

int lc__terminal_width(const lc__terminal *t)
{
    struct winsize w;
    const char *columns = getenv("COLUMNS");
    int n = columns ? atoi(columns) : 0;
    if (n <= 0 && ioctl(t->fd, TIOCGWINSZ, &w) == 0) n = w.ws_col;
    return n <= 0 ? 80 : n < 20 ? 20 : n > 400 ? 400 : n;
}

void lc__terminal_show(const lc__terminal *t, lc__str *text)
{
    if (!text->failed && text->n) lc__show(t->fd, text->s, text->n);
    lc__str_clear(text);
}

/* ---- evaluation ---- */

const char *lc__eval_name(const lc_trainer *t)
{
    return t->sanity                      ? "Sanity check"
           : t->stage == LC_STAGE_TEST    ? "Testing"
           : t->stage == LC_STAGE_PREDICT ? "Predicting"
                                          : "Validation";
}

int64_t lc__eval_batches(const lc_trainer *t)
{
    int64_t total = 0;
    for (int k = 0; k < t->input->eval.n && total >= 0; k++) {
        int64_t n = t->sanity ? lc_trainer_num_sanity_val_batches(t, k) : lc_trainer_num_val_batches(t, k);
        total = n < 0 ? -1 : total + n;
    }
    return total;
}

void lc__add_results(lc__str *out, const lc__terminal *term, const lc_trainer *t, const char *color)
{
    enum { STAGE = 10, NAME = 32, NAME_LEAST = 8 };
    char name[256], value[32];
    int longest = 0;
    for (int i = 0; i < t->logging->n_results; i++)
        for (int k = 0; k < t->logging->n_result_values[i]; k++) {
            int n = lc__snprintf(value, sizeof value, "%.6g", t->logging->result_values[i][k].value);
            if (n > longest) longest = n;
        }
    /* A log file takes names of any length. */
    int room = term->live ? lc__terminal_width(term) - 1 - (STAGE + 1) - (1 + longest) : (int)sizeof name;
    bool stage = room >= NAME_LEAST;
    if (!stage) room += STAGE + 1;
    for (int i = 0; i < t->logging->n_results; i++)
        for (int k = 0; k < t->logging->n_result_values[i]; k++) {
            const lc_metric_value *v = &t->logging->result_values[i][k];
            if (stage && term->color && color)
                lc__str_add(out, "\033[%sm%-*s \033[0m", color, STAGE, lc_stage_name(t->stage));
            else if (stage)
                lc__str_add(out, "%-*s ", STAGE, lc_stage_name(t->stage));
            lc_printable(v->name, false, name, sizeof name - 3);
            lc__cut_name(name, (size_t)room, term->unicode);
            lc__add_padded(out, name, room < NAME ? room : NAME);
            lc__str_add(out, " %.6g\n", v->value);
        }
}

/* ---- pieces of text ---- */

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* The code point of the character that begins at text, which is UTF-8 (printable.h). */
static uint32_t code_point(const char *text)
{
    unsigned char c = (unsigned char)*text;
    uint32_t code = c < 0x80 ? c : c < 0xe0 ? c & 0x1fu : c < 0xf0 ? c & 0x0fu : c & 0x07u;
    for (text++; *text && !begins_character(*text); text++) code = code << 6 | ((unsigned char)*text & 0x3fu);
    return code;
}

/* 2 for characters of East Asia and emoji, 0 for accents that join the character before. wcwidth needs a locale, which
 * is the program's. */
static int columns_of(const char *character)
{
    static const struct {
        uint32_t first, last;
        int columns;
    } ranges[] = {{0x300, 0x36f, 0},     {0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},  {0x2e80, 0x303e, 2},
                  {0x3041, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},  {0xfe00, 0xfe0f, 0},
                  {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2},  {0x1f300, 0x1f64f, 2},
                  {0x1f680, 0x1f6ff, 2}, {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2}};
    uint32_t code = code_point(character);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last) return ranges[i].columns;
    return 1;
}

int lc__columns(const char *text)
{
    int n = 0;
    for (; *text; text++) n += begins_character(*text) ? columns_of(text) : 0;
    return n;
}

void lc__cut_name(char *name, size_t room, bool unicode)
{
    size_t keep = room - (unicode ? 1 : 2), i = 0, n = 0;
    if ((size_t)lc__columns(name) <= room || keep == 0 || keep > room) return;
    while (!begins_character(name[i]) || n + (size_t)columns_of(name + i) <= keep) {
        n += begins_character(name[i]) ? (size_t)columns_of(name + i) : 0;
        i++;
    }
    strcpy(name + i, unicode ? "…" : "..");
}

void lc__add_padded(lc__str *out, const char *name, int width)
{
    lc__str_add(out, "%s%*s", name, width > lc__columns(name) ? width - lc__columns(name) : 0, "");
}

void lc__add_wrapped(lc__str *out, int columns, const char *text)
{
    size_t room = columns > 1 ? (size_t)columns - 1 : 1;
    while (strlen(text) > room) {
        size_t n = room;
        while (n > 0 && text[n] != ' ') n--;
        if (!n) break; /* a word that fits no line */
        lc__str_add(out, "%.*s\n", (int)n, text);
        text += n + 1;
    }
    lc__str_add(out, "%s\n", text);
}

void lc__add_time(lc__str *out, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e8)) {
        lc__str_add(out, "?");
        return;
    }
    long s = (long)(seconds + 0.5);
    if (s >= 3600)
        lc__str_add(out, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        lc__str_add(out, "%02ld:%02ld", s / 60, s % 60);
}

void lc__add_remaining(lc__str *out, int64_t done, int64_t total, double rate)
{
    lc__add_time(out, rate > 0 ? (double)(total - done) / rate : INFINITY);
}

void lc__add_rate(lc__str *out, double rate)
{
    if (!(rate > 0) || !isfinite(rate))
        lc__str_add(out, "?it/s");
    else
        lc__str_add(out, rate >= 100 ? "%.0fit/s" : "%.2fit/s", rate);
}

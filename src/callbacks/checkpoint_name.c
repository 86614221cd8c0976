/* SPDX-License-Identifier: Apache-2.0 */
/* Names of checkpoints: "{epoch:02d}-{val_loss:.2f}" with Python's number formats. The text between the fields and the
 * formats are checked when the callback is made; only whether a metric is a whole number is known when it is filled
 * in. */
#include "base/c_locale.h"
#include "base/io.h"
#include "core/logging/logging.h"
#include "callbacks/callbacks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WIDTH = 200, MOST_DIGITS = 99, MOST_TEXT = 512 };

/* [[fill]align][sign][0][width][group][.digits][type] */
typedef struct number_format {
    char fill, align;  /* of < > ^, or = for padding after the sign */
    char sign;         /* of + - and the space */
    char group;        /* of , and _; 0: none */
    char type;         /* 0: not given */
    int width, digits; /* digits -1: not given */
} number_format;

/* {name:format} */
typedef struct field {
    const char *name, *format; /* in the filename */
    size_t n_name, n_format;
} field;

/* ---- numbers ---- */

/* The digits at *p, at most `most`; -1: more, or none. */
static int read_count(const char **p, int most)
{
    int n = **p >= '0' && **p <= '9' ? 0 : -1;
    for (; **p >= '0' && **p <= '9' && n <= most; (*p)++) n = 10 * n + (**p - '0');
    return n <= most ? n : -1;
}

static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

static bool read_format(const char *p, number_format *f)
{
    *f = (number_format){.fill = ' ', .align = '>', .sign = '-', .digits = -1};
    bool aligned = true;
    if (*p && is_one_of(p[1], "<>^="))
        f->fill = p[0], f->align = p[1], p += 2;
    else if (is_one_of(*p, "<>^="))
        f->align = *p++;
    else
        aligned = false;
    if (is_one_of(*p, "+- ")) f->sign = *p++;
    if (*p == '0' && !aligned) f->fill = '0', f->align = '=';
    if (*p >= '0' && *p <= '9' && (f->width = read_count(&p, MOST_WIDTH)) < 0) return false;
    if (is_one_of(*p, ",_")) f->group = *p++;
    if (*p == '.' && (p++, f->digits = read_count(&p, MOST_DIGITS)) < 0) return false;
    if (is_one_of(*p, "dnxXoeEfFgG%")) f->type = *p++;
    return !*p && !(f->group && f->fill == '0'); /* Python would group the padding */
}

static bool is_whole_type(char type)
{
    return is_one_of(type, "dxXo");
}

/* The format of a field; an error if it is not one, or not one for a number of this kind. */
static lc_status format_of(const field *at, bool is_int, number_format *f)
{
    char text[64];
    bool known = at->n_format < sizeof text;
    if (known) {
        memcpy(text, at->format, at->n_format);
        text[at->n_format] = 0;
        known = read_format(text, f);
    }
    bool whole = known && is_int && (!f->type || f->type == 'n' || is_whole_type(f->type));
    if (known && !(whole && f->digits >= 0)) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "the format \"%.*s\" in a checkpoint's filename is not known%s; use for instance 02d, .2f or .3e",
                   (int)(at->n_format < 100 ? at->n_format : 100), at->format, known ? " for whole numbers" : "");
}

/* As Python writes a metric: the shortest decimal of the single-precision number as a double. */
static void write_shortest(double metric, char *text)
{
    double v = (double)(float)metric;
    int digits = 1;
    if (!isfinite(v)) {
        snprintf(text, MOST_TEXT, "%s", isnan(v) ? "nan" : "inf");
        return;
    }
    do lc__snprintf(text, MOST_TEXT, "%.*e", digits - 1, v);
    while (lc__strtod(text, NULL) != v && digits++ < 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16)
        lc__snprintf(text, MOST_TEXT, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, v);
}

static void write_whole(unsigned long long v, char type, char *text)
{
    const char *format = type == 'x' ? "%llx" : type == 'X' ? "%llX" : type == 'o' ? "%llo" : "%llu";
    snprintf(text, MOST_TEXT, format, v);
}

/* `digits` of v, as g writes them, but with a digit after the point: 2.0, 1.2e+01. */
static void write_digits(double v, int digits, char *text)
{
    lc__snprintf(text, MOST_TEXT, "%.*e", digits - 1, v);
    char *power = strchr(text, 'e'), *end = power;
    if (power && atoi(power + 1) < digits - 1) {
        lc__snprintf(text, MOST_TEXT - 2, "%.*g", digits, v);
        if (!strpbrk(text, ".e")) strcat(text, ".0");
        return;
    }
    while (power && digits > 1 && is_one_of(end[-1], "0.") && *(end--) != '.') continue;
    if (power) memmove(end, power, strlen(power) + 1);
}

static void write_float(double v, const number_format *f, char *text)
{
    char format[] = "%.*g";
    bool percent = f->type == '%';
    if (!f->type) {
        if (f->digits < 0)
            write_shortest(v, text);
        else
            write_digits(v, f->digits ? f->digits : 1, text);
        return;
    }
    if (f->type && f->type != 'n') format[3] = percent ? 'f' : f->type;
    lc__snprintf(text, MOST_TEXT - 1, format, f->digits < 0 ? 6 : f->digits, percent ? 100 * v : v);
    if (percent) strcat(text, "%");
}

/* The length of `text` with a separator before every third (in hexadecimal, fourth) digit before its point. */
static size_t add_groups(lc__str *out, const char *text, const number_format *f)
{
    size_t every = is_one_of(f->type, "xXo") ? 4 : 3, n = strlen(text), groups = 0;
    size_t digits = strspn(text, every == 4 ? "0123456789abcdefABCDEF" : "0123456789");
    for (size_t i = 0; i < n; i++) {
        bool begins = f->group && i && i < digits && (digits - i) % every == 0;
        if (out && begins) lc__str_add_bytes(out, &f->group, 1);
        if (out) lc__str_add_bytes(out, text + i, 1);
        groups += begins;
    }
    return n + groups;
}

static void add_fill(lc__str *out, char fill, int n)
{
    for (int i = 0; i < n; i++) lc__str_add_bytes(out, &fill, 1);
}

static void add_number(lc__str *out, double v, bool is_int, const number_format *f)
{
    char text[MOST_TEXT];
    bool negative = signbit(v) && !isnan(v), whole = is_int && (!f->type || f->type == 'n' || is_whole_type(f->type));
    const char sign = negative ? '-' : f->sign;
    int n_sign = sign != '-' || negative;
    if (whole)
        write_whole((unsigned long long)fabs(v), f->type, text);
    else
        write_float(fabs(v), f, text);
    int pad = f->width - n_sign - (int)add_groups(NULL, text, f);
    int before = pad <= 0 || f->align == '<' ? 0 : f->align == '^' ? pad / 2 : pad;
    if (f->align != '=') add_fill(out, f->fill, before);
    if (n_sign) lc__str_add_bytes(out, &sign, 1);
    if (f->align == '=') add_fill(out, f->fill, before);
    add_groups(out, text, f);
    add_fill(out, f->fill, pad - before);
}

/* ---- names ---- */

/* The field that begins at *p, and moves *p past it. */
static lc_status read_field(const char *filename, const char **p, field *f)
{
    const char *at = *p + 1;
    *f = (field){.name = at, .n_name = strcspn(at, ":{}"), .format = ""};
    at += f->n_name;
    if (*at == ':') {
        f->format = at + 1;
        f->n_format = strcspn(f->format, "{}");
        at = f->format + f->n_format;
    }
    if (*at == '{') return lc_fail(LC_ERR_CONFIG, "the filename \"%.100s\" of checkpoints has a { within {}", filename);
    if (*at != '}')
        return lc_fail(LC_ERR_CONFIG, "the filename \"%.100s\" of checkpoints has a { without its }", filename);
    if (!f->n_name)
        return lc_fail(LC_ERR_CONFIG, "the filename \"%.100s\" of checkpoints has {} without a metric's name",
                       filename);
    *p = at + 1;
    return LC_OK;
}

/* A byte between the fields; "}}" stands for one. */
static lc_status read_text(const char *filename, const char **p, lc__str *out)
{
    if (**p == '}' && (*p)[1] != '}')
        return lc_fail(LC_ERR_CONFIG, "the filename \"%.100s\" of checkpoints has a } without its {", filename);
    if (out) lc__str_add_bytes(out, *p, 1);
    *p += **p == '}' ? 2 : 1;
    return LC_OK;
}

static bool is_named(const field *f, const char *name)
{
    return strlen(name) == f->n_name && !memcmp(name, f->name, f->n_name);
}

static lc_status fill_in(lc_trainer *t, int64_t epoch, const field *f, lc__str *out)
{
    bool is_epoch = is_named(f, "epoch"), is_step = is_named(f, "step"), is_int = true;
    double v = is_epoch ? (double)epoch : is_step ? (double)t->global_step : 0;
    const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
    number_format format;
    for (int i = 0; i < m->n; i++)
        if (is_named(f, m->v[i].name)) {
            is_int = is_epoch || is_step;
            v = is_int ? trunc(m->v[i].value) + 0.0 : m->v[i].value; /* a program may log an epoch of its own */
        }
    is_int = is_int && fabs(v) < 1e18;
    LC_TRY(format_of(f, is_int, &format));
    if (!is_int && is_whole_type(format.type))
        return lc_fail(LC_ERR_CONFIG,
                       "the format \"%.*s\" in a checkpoint's filename is for whole numbers, which \"%.*s\" is not",
                       (int)f->n_format, f->format, (int)f->n_name, f->name);
    add_number(out, v, is_int, &format);
    return LC_OK;
}

/* t NULL: only checks. */
static lc_status walk(lc_trainer *t, int64_t epoch, const char *filename, bool insert_names, lc__str *out)
{
    field f;
    number_format format;
    for (const char *p = filename; *p;) {
        if (*p != '{') {
            LC_TRY(read_text(filename, &p, out));
            continue;
        }
        LC_TRY(read_field(filename, &p, &f));
        if (insert_names) lc__str_add(out, "%.*s=", (int)f.n_name, f.name);
        LC_TRY(t ? fill_in(t, epoch, &f, out) : format_of(&f, is_named(&f, "epoch") || is_named(&f, "step"), &format));
    }
    return LC_OK;
}

lc_status lc__checkpoint_name_check(const char *filename)
{
    LC_TRY(walk(NULL, 0, filename, false, NULL));
    const char *slash = strrchr(filename, '/'), *last = slash ? slash + 1 : filename;
    if (lc__path_goes_up(filename))
        return lc_fail(LC_ERR_CONFIG,
                       "the filename \"%.100s\" of checkpoints leads out of dirpath; choose another dirpath", filename);
    if (*last == '.' || (slash && !*last)) /* NAME/ is NAME/.ckpt */
        return lc_fail(
            LC_ERR_CONFIG,
            "the filename \"%.100s\" makes checkpoints whose name begins with a dot, which ckpt_path=last does "
            "not look for; choose another name",
            filename);
    return LC_OK;
}

lc_status lc__checkpoint_name(lc_trainer *t, int64_t epoch, const char *filename, bool insert_names, lc__str *out)
{
    LC_TRY(walk(t, epoch, filename, insert_names, out));
    return out->failed ? lc_fail(LC_ERR_MEMORY, "out of memory: a checkpoint's name") : LC_OK;
}

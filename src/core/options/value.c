/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options: text to value and back. Each kind reads back what it writes. */
#include "base/c_locale.h"
#include "core/options/options.h"
#include "base/handle.h"

#include <lightc/data.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(text, *words)) return true;
    return false;
}

static const char *const yes[] = {"true", "True", "TRUE", "yes", "on", "1", NULL};
static const char *const no[] = {"false", "False", "FALSE", "no", "off", "0", NULL};
static const char *const none[] = {"none", "None", "null", NULL};

/* A whole number in plain digits, or as 1e6. */
static bool read_int(const char *text, int64_t *out)
{
    char *end;
    if (!*text || *text == ' ') return false;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (!*end && !errno) {
        *out = v;
        return true;
    }
    errno = 0;
    double d = lc__strtod(text, &end);
    if (*end || errno || !(fabs(d) <= 9e15) || d != floor(d) || !strpbrk(text, "eE")) return false;
    *out = (int64_t)d;
    return true;
}

static bool read_double(const char *text, double *out)
{
    char *end;
    if (!*text || *text == ' ') return false;
    errno = 0;
    double d = lc__strtod(text, &end);
    if (*end || isnan(d) || (errno == ERANGE && fabs(d) > 1)) return false;
    *out = d;
    return true;
}

/* DD:HH:MM:SS, as Lightning takes it: any number of days, and two digits of each of the others. */
static bool read_clock(const char *text, double *seconds)
{
    static const double scale[] = {86400, 3600, 60, 1};
    const char *p = text;
    *seconds = 0;
    for (int i = 0; i < 4; i++) {
        char *end;
        if (*p < '0' || *p > '9') return false;
        *seconds += (double)strtoull(p, &end, 10) * scale[i];
        if ((i && end - p != 2) || *end != (i < 3 ? ':' : 0)) return false;
        p = end + 1;
    }
    return *seconds <= 1e15;
}

lc_status lc_duration_parse(const char *text, lc_duration *out)
{
    LC__NEEDS(text, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    static const struct {
        const char *suffix;
        lc_unit unit;
        double scale;
        bool whole;
    } units[] = {
        {"ep", LC_UNIT_EPOCHS, 1, true},  {"st", LC_UNIT_STEPS, 1, true},       {"ba", LC_UNIT_BATCHES, 1, true},
        {"ms", LC_UNIT_SECONDS, 1e-3, 0}, {"s", LC_UNIT_SECONDS, 1, false},     {"m", LC_UNIT_SECONDS, 60, false},
        {"h", LC_UNIT_SECONDS, 3600, 0},  {"d", LC_UNIT_SECONDS, 86400, false},
    };
    int64_t i;
    double d;
    if (is_one_of(text, none)) {
        *out = (lc_duration){0};
        return LC_OK;
    }
    if (read_int(text, &i)) {
        if (i < 0) return lc_fail(LC_ERR_CONFIG, "%s is negative", text);
        *out = (lc_duration){(double)i, LC_UNIT_BATCHES};
        return LC_OK;
    }
    if (read_double(text, &d)) {
        if (d > 1 && d <= 1e15 && d == floor(d)) { /* 2.0 is two, as in Lightning; 1.0 is all */
            *out = (lc_duration){d, LC_UNIT_BATCHES};
            return LC_OK;
        }
        if (!(d >= 0 && d <= 1))
            return lc_fail(LC_ERR_CONFIG,
                           "%s is neither a whole number nor a fraction between 0 and 1 (any number is allowed with a "
                           "unit: 3ep, 500st, 100ba, 30s, 10m, 2h)",
                           text);
        *out = (lc_duration){d, LC_UNIT_FRACTION};
        return LC_OK;
    }
    if (strchr(text, ':')) {
        if (!read_clock(text, &d))
            return lc_fail(LC_ERR_CONFIG,
                           "\"%.60s\" is not a time; with colons it is DD:HH:MM:SS (00:02:30:00 is 2.5h)", text);
        *out = (lc_duration){d, LC_UNIT_SECONDS};
        return LC_OK;
    }
    size_t length = strlen(text);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t s = strlen(units[u].suffix);
        char number[64];
        if (length <= s || length - s >= sizeof number || strcmp(text + length - s, units[u].suffix) != 0) continue;
        memcpy(number, text, length - s);
        number[length - s] = 0;
        if (!read_double(number, &d) || d < 0 || d > 1e15 || (units[u].whole && d != floor(d))) continue;
        *out = (lc_duration){d * units[u].scale, units[u].unit};
        return LC_OK;
    }
    return lc_fail(LC_ERR_CONFIG,
                   "\"%.60s\" is not an amount; write a whole number, a fraction between 0 and 1, or a number with a "
                   "unit: 3ep (epochs), 500st (steps), 100ba (batches), 30s, 10m, 2h, 1d, 00:02:30:00",
                   text);
}

static lc_status not_a_number(const lc_option *o, const char *text, const char *kind)
{
    return lc_fail(LC_ERR_CONFIG, "%s must be a %s, not \"%.60s\" (%s)", o->name, kind, text, o->help ? o->help : "");
}

static lc_status out_of_range(const lc_option *o, const char *text)
{
    return lc_fail(LC_ERR_CONFIG, "%s is %s, but must be between %.10g and %.10g (%s)", o->name, text, o->minimum,
                   o->maximum, o->help ? o->help : "");
}

lc_status lc__option_check(const char *name, double value)
{
    char text[32];
    lc_option_set all = {0};
    all.options = lc_trainer_option_table(&all.n);
    const lc_option *o = lc__option_find(&all, 1, name, strlen(name), &(void *){NULL});
    if (!o) return lc_fail(LC_ERR_INTERNAL, "the trainer has no option %s", name);
    if (value >= o->minimum && value <= o->maximum) return LC_OK;
    lc__snprintf(text, sizeof text, "%.10g", value);
    return out_of_range(o, text);
}

bool lc__option_is_given(const char *name, const lc_trainer_options *o)
{
    static const lc_trainer_options defaults = LC_TRAINER_OPTIONS_INIT;
    char text[LC__OPTION_SPACE], usual[LC__OPTION_SPACE];
    lc_option_set all = {0};
    all.options = lc_trainer_option_table(&all.n);
    const lc_option *row = lc__option_find(&all, 1, name, strlen(name), &(void *){NULL});
    const char *value = row ? lc__option_text(row, o, text) : "";
    return *value && strcmp(value, lc__option_text(row, &defaults, usual)) != 0;
}

/* The option's number; false: it has none, or its default, which may be "none". */
static bool number_of(const lc_option *option, const lc_trainer_options *o, double *value)
{
    static const lc_trainer_options defaults = LC_TRAINER_OPTIONS_INIT;
    const void *field = (const char *)o + option->offset, *usual = (const char *)&defaults + option->offset;
    switch (option->kind) {
    case LC_OPTION_FLOAT:
        *value = *(const double *)field;
        return !(isnan(*value) && isnan(*(const double *)usual));
    case LC_OPTION_INT:
    case LC_OPTION_COUNT:
        *value = (double)*(const int64_t *)field;
        return *(const int64_t *)field != *(const int64_t *)usual;
    default:
        return false;
    }
}

lc_status lc__trainer_options_check(const lc_trainer_options *o)
{
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    for (int i = 0; i < n; i++) {
        double value;
        bool across = table[i].offset == offsetof(lc_trainer_options, check_val_every_n_epoch) &&
                      o->check_val_every_n_epoch == LC_UNSET; /* "none" has a meaning, and is not the default */
        if (!across && number_of(&table[i], o, &value)) LC_TRY(lc__option_check(table[i].name, value));
    }
    return LC_OK;
}

static lc_status set_int(const lc_option *o, char *field, const char *text)
{
    int64_t v;
    if (is_one_of(text, none) && o->kind == LC_OPTION_INT) {
        v = LC_UNSET;
    } else if (is_one_of(text, yes) && o->kind == LC_OPTION_COUNT) {
        v = 1;
    } else if (is_one_of(text, no) && o->kind == LC_OPTION_COUNT) {
        v = 0;
    } else if (!read_int(text, &v)) {
        return not_a_number(o, text, "whole number");
    } else if (o->minimum < o->maximum && ((double)v < o->minimum || (double)v > o->maximum)) {
        return out_of_range(o, text);
    }
    memcpy(field, &v, sizeof v);
    return LC_OK;
}

static lc_status set_float(const lc_option *o, char *field, const char *text)
{
    double v;
    if (is_one_of(text, none))
        v = LC_NOT_GIVEN;
    else if (!read_double(text, &v))
        return not_a_number(o, text, "number");
    else if (o->minimum < o->maximum && !(v >= o->minimum && v <= o->maximum))
        return out_of_range(o, text);
    memcpy(field, &v, sizeof v);
    return LC_OK;
}

static lc_status set_size(const lc_option *o, char *field, const char *text)
{
    int64_t v = 0;
    if (!is_one_of(text, none) && !lc__size_read(text, &v))
        return not_a_number(o, text, "size, such as 512MiB or 1.5GiB, or a number of bytes");
    if (o->minimum < o->maximum && !((double)v >= o->minimum && (double)v <= o->maximum)) return out_of_range(o, text);
    memcpy(field, &v, sizeof v);
    return LC_OK;
}

static lc_status set_int32(const lc_option *o, char *field, const char *text)
{
    const bool workers = o->kind == LC_OPTION_WORKERS, automatic = workers && strcmp(text, "auto") == 0;
    int64_t v = LC_WORKERS_AUTO;
    if (!automatic) {
        if (!read_int(text, &v) || v < (workers ? 0 : INT32_MIN) || v > INT32_MAX)
            return not_a_number(o, text, workers ? "whole number, 0 or more, or auto" : "whole number");
        if (o->minimum < o->maximum && ((double)v < o->minimum || (double)v > o->maximum)) return out_of_range(o, text);
    }
    int small = (int)v;
    memcpy(field, &small, sizeof small);
    return LC_OK;
}

lc_status lc_option_set_text(const lc_option *o, void *target, const char *text)
{
    LC__NEEDS(o, LC_ERR_ARGUMENT);
    LC__NEEDS(target, LC_ERR_ARGUMENT);
    LC__NEEDS(text, LC_ERR_ARGUMENT);
    char *field = (char *)target + o->offset;
    bool ranged = o->minimum < o->maximum;
    switch (o->kind) {
    case LC_OPTION_COUNT:
    case LC_OPTION_INT:
        return set_int(o, field, text);
    case LC_OPTION_FLOAT:
        return set_float(o, field, text);
    case LC_OPTION_SIZE:
        return set_size(o, field, text);
    case LC_OPTION_INT32:
    case LC_OPTION_WORKERS:
        return set_int32(o, field, text);
    case LC_OPTION_FLOAT32: {
        double v;
        if (!read_double(text, &v)) return not_a_number(o, text, "number");
        if (ranged && !(v >= o->minimum && v <= o->maximum)) return out_of_range(o, text);
        float single = (float)v;
        memcpy(field, &single, sizeof single);
        return LC_OK;
    }
    case LC_OPTION_BOOL: {
        bool v = is_one_of(text, yes);
        if (!v && !is_one_of(text, no))
            return lc_fail(LC_ERR_CONFIG, "%s must be true or false, not \"%.60s\"", o->name, text);
        memcpy(field, &v, sizeof v);
        return LC_OK;
    }
    case LC_OPTION_CHOICE: {
        lc_choice v = is_one_of(text, yes) ? LC_ON : is_one_of(text, no) ? LC_OFF : LC_AUTO;
        if (v == LC_AUTO && strcmp(text, "auto") != 0 && !is_one_of(text, none))
            return lc_fail(LC_ERR_CONFIG, "%s must be true, false or auto, not \"%.60s\"", o->name, text);
        memcpy(field, &v, sizeof v);
        return LC_OK;
    }
    case LC_OPTION_TEXT: {
        const char *v = is_one_of(text, none) && strcmp(o->name, "logger") != 0 ? NULL : text;
        memcpy(field, &v, sizeof v);
        return LC_OK;
    }
    case LC_OPTION_DURATION: {
        lc_duration v;
        lc_status s = lc_duration_parse(text, &v);
        if (s < 0) return lc_fail_context(s, "%s", o->name);
        memcpy(field, &v, sizeof v);
        return LC_OK;
    }
    }
    return lc_fail(LC_ERR_INTERNAL, "option %s has no kind", o->name);
}

/* -0 would be a whole number in JSON, which has no sign then. */
static bool is_negative_zero(double v)
{
    return v == 0 && signbit(v);
}

/* The shortest text that reads back as the same number. */
static int print_double(char *text, size_t size, double v)
{
    char buffer[40];
    for (int digits = 6; digits <= 17; digits++) {
        lc__snprintf(buffer, sizeof buffer, "%.*g", digits, v);
        if (lc__strtod(buffer, NULL) == v) break;
    }
    return snprintf(text, size, "%s%s", buffer, is_negative_zero(v) ? ".0" : "");
}

static int print_int(const lc_option *o, char *text, size_t size, int v)
{
    if (o->kind == LC_OPTION_WORKERS && v == LC_WORKERS_AUTO) return snprintf(text, size, "auto");
    return snprintf(text, size, "%d", v);
}

static int print_float(char *text, size_t size, float v)
{
    char buffer[40];
    for (int digits = 6; digits <= 9; digits++) {
        lc__snprintf(buffer, sizeof buffer, "%.*g", digits, (double)v);
        if ((float)lc__strtod(buffer, NULL) == v) break;
    }
    return snprintf(text, size, "%s%s", buffer, is_negative_zero((double)v) ? ".0" : "");
}

static int print_duration(char *text, size_t size, lc_duration v)
{
    char number[40];
    print_double(number, sizeof number, v.value);
    switch (v.unit) {
    case LC_UNIT_NONE:
        return snprintf(text, size, "none");
    case LC_UNIT_FRACTION:
        return snprintf(text, size, "%s%s", number, strpbrk(number, ".e") ? "" : ".0");
    case LC_UNIT_EPOCHS:
        return snprintf(text, size, "%.0fep", v.value);
    case LC_UNIT_STEPS:
        return snprintf(text, size, "%.0fst", v.value);
    case LC_UNIT_SECONDS:
        return snprintf(text, size, "%ss", number);
    case LC_UNIT_BATCHES:
        return snprintf(text, size, "%.0f", v.value);
    }
    return snprintf(text, size, "%s", "");
}

int lc_option_get_text(const lc_option *o, const void *target, char *text, size_t size)
{
    LC__NEEDS(o, 0);
    LC__NEEDS(target, 0);
    LC__NEEDS(text, 0);
    const char *field = (const char *)target + o->offset;
    switch (o->kind) {
    case LC_OPTION_COUNT:
    case LC_OPTION_INT: {
        int64_t v;
        memcpy(&v, field, sizeof v);
        if (v == LC_UNSET) return snprintf(text, size, "none");
        return snprintf(text, size, "%lld", (long long)v);
    }
    case LC_OPTION_FLOAT: {
        double v;
        memcpy(&v, field, sizeof v);
        if (isnan(v)) return snprintf(text, size, "none");
        return print_double(text, size, v);
    }
    case LC_OPTION_SIZE: {
        int64_t v;
        memcpy(&v, field, sizeof v);
        return lc__size_print(text, size, v);
    }
    case LC_OPTION_WORKERS:
    case LC_OPTION_INT32: {
        int v;
        memcpy(&v, field, sizeof v);
        return print_int(o, text, size, v);
    }
    case LC_OPTION_FLOAT32: {
        float v;
        memcpy(&v, field, sizeof v);
        return print_float(text, size, v);
    }
    case LC_OPTION_BOOL: {
        bool v;
        memcpy(&v, field, sizeof v);
        return snprintf(text, size, "%s", v ? "true" : "false");
    }
    case LC_OPTION_CHOICE: {
        lc_choice v;
        memcpy(&v, field, sizeof v);
        return snprintf(text, size, "%s", v == LC_ON ? "true" : v == LC_OFF ? "false" : "auto");
    }
    case LC_OPTION_TEXT: {
        const char *v;
        memcpy(&v, field, sizeof v);
        return snprintf(text, size, "%s", v ? v : "none");
    }
    case LC_OPTION_DURATION: {
        lc_duration v;
        memcpy(&v, field, sizeof v);
        return print_duration(text, size, v);
    }
    }
    return snprintf(text, size, "%s", "");
}

const char *lc__option_text(const lc_option *o, const void *target, char space[LC__OPTION_SPACE])
{
    const char *text = NULL;
    if (o->kind == LC_OPTION_TEXT) memcpy(&text, (const char *)target + o->offset, sizeof text);
    if (!text) lc_option_get_text(o, target, space, LC__OPTION_SPACE);
    return text ? text : space;
}

static lc_status write_value(const lc_option *o, const char *field, lc_state *out)
{
    char text[64];
    int64_t i;
    int small;
    double d;
    float single;
    bool b;
    const char *s;
    switch (o->kind) {
    case LC_OPTION_COUNT:
    case LC_OPTION_INT:
        memcpy(&i, field, sizeof i);
        return i == LC_UNSET ? lc_state_set_text(out, o->name, NULL) : lc_state_set_int(out, o->name, i);
    case LC_OPTION_WORKERS:
        memcpy(&small, field, sizeof small);
        return small == LC_WORKERS_AUTO ? lc_state_set_text(out, o->name, "auto")
                                        : lc_state_set_int(out, o->name, small);
    case LC_OPTION_INT32:
        memcpy(&small, field, sizeof small);
        return lc_state_set_int(out, o->name, small);
    case LC_OPTION_FLOAT:
        memcpy(&d, field, sizeof d);
        return isnan(d) ? lc_state_set_text(out, o->name, NULL) : lc_state_set_double(out, o->name, d);
    case LC_OPTION_FLOAT32:
        memcpy(&single, field, sizeof single);
        return lc_state_set_double(out, o->name, (double)single);
    case LC_OPTION_BOOL:
        memcpy(&b, field, sizeof b);
        return lc_state_set_bool(out, o->name, b);
    case LC_OPTION_TEXT:
        memcpy(&s, field, sizeof s);
        return lc_state_set_text(out, o->name, s);
    case LC_OPTION_CHOICE:
    case LC_OPTION_DURATION:
    case LC_OPTION_SIZE:
        lc_option_get_text(o, field - o->offset, text, sizeof text);
        return lc_state_set_text(out, o->name, text);
    }
    return lc_fail(LC_ERR_INTERNAL, "option %s has no kind", o->name);
}

lc_status lc__options_write(const lc_option_set *set, lc_state *out)
{
    LC_TRY(lc__option_set_check(set));
    for (int i = 0; i < set->n; i++)
        LC_TRY(write_value(&set->options[i], (const char *)set->target + set->options[i].offset, out));
    return LC_OK;
}

lc_status lc__devices_parse(const char *text, int most, const char *what, int *n)
{
    int64_t value = 0;
    *n = 0;
    if (!text || !strcmp(text, "auto")) return LC_OK;
    if (!read_int(text, &value) || value < 1 || value > most)
        return lc_fail(LC_ERR_CONFIG, "devices is \"%.60s\"; on CPUs it must be auto or a number of %s, 1 to %d", text,
                       what, most);
    *n = (int)value;
    return LC_OK;
}

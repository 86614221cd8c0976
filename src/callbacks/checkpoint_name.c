/* SPDX-License-Identifier: Apache-2.0 */
/* Names of checkpoints: "{epoch:02d}-{val_loss:.2f}" with Python's number formats. */
#include "core/logging/logging.h"
#include "callbacks/callbacks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As Python writes a metric: the shortest decimal of the single-precision number as a double. */
static void add_shortest(lc__str *out, double metric)
{
    double v = (double)(float)metric;
    char text[48];
    int digits = 1;
    if (!isfinite(v)) {
        lc__str_add(out, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    do snprintf(text, sizeof text, "%.*e", digits - 1, v);
    while (strtod(text, NULL) != v && digits++ < 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16)
        snprintf(text, sizeof text, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, v);
    lc__str_add(out, "%s", text);
}

/* [0][width][.digits][type] of Python's format specifications. */
static lc_status add_number(lc__str *out, double v, bool is_int, const char *spec, size_t n)
{
    char format[48], all[32];
    const char *p = all;
    char zero = 0;
    int width = 0, digits = -1;
    if (n >= sizeof all)
        return lc_fail(LC_ERR_CONFIG, "the format \"%.*s\" in a checkpoint's filename is too long", (int)n, spec);
    memcpy(all, spec, n);
    all[n] = 0;
    if (!*p) {
        if (is_int)
            lc__str_add(out, "%lld", (long long)v);
        else
            add_shortest(out, v);
        return LC_OK;
    }
    if (*p == '0') zero = *p++;
    while (*p >= '0' && *p <= '9' && width < 100) width = 10 * width + (*p++ - '0');
    if (*p == '.') {
        digits = 0;
        for (p++; *p >= '0' && *p <= '9' && digits < 20; p++) digits = 10 * digits + (*p - '0');
    }
    char type = *p ? *p++ : is_int ? 'd' : 'g';
    if (*p || !strchr("dfFeEgG", type))
        return lc_fail(LC_ERR_CONFIG,
                       "the format \"%s\" in a checkpoint's filename is not known; use for instance 02d, .2f or .3e",
                       all);
    if (type == 'd') {
        snprintf(format, sizeof format, zero ? "%%0%dlld" : "%%%dlld", width);
        if (!width) memcpy(format, "%lld", 5);
        char text[160];
        snprintf(text, sizeof text, format, (long long)v);
        lc__str_add(out, "%s", text);
    } else {
        char text[400];
        if (zero)
            snprintf(format, sizeof format, "%%0%d.%d%c", width, digits < 0 ? 6 : digits, type);
        else if (width)
            snprintf(format, sizeof format, "%%%d.%d%c", width, digits < 0 ? 6 : digits, type);
        else
            snprintf(format, sizeof format, "%%.%d%c", digits < 0 ? 6 : digits, type);
        snprintf(text, sizeof text, format, v);
        lc__str_add(out, "%s", text);
    }
    return LC_OK;
}

lc_status lc__checkpoint_name(lc_trainer *t, const char *format, bool insert_names, lc__str *out)
{
    for (const char *p = format; *p;) {
        if (*p != '{') {
            lc__str_add_bytes(out, p++, 1);
            continue;
        }
        size_t name = strcspn(p + 1, ":}"), spec = 0;
        const char *after = p + 1 + name, *spec_at = after;
        if (*after == ':') {
            spec_at = after + 1;
            spec = strcspn(spec_at, "}");
            after = spec_at + spec;
        }
        if (*after != '}')
            return lc_fail(LC_ERR_CONFIG, "the filename \"%.100s\" of checkpoints has a { without its }", format);
        if (!name)
            return lc_fail(LC_ERR_CONFIG, "the filename \"%.100s\" of checkpoints has {} without a metric's name",
                           format);
        double v = 0;
        bool is_int = true;
        bool is_epoch = name == 5 && !memcmp(p + 1, "epoch", 5), is_step = name == 4 && !memcmp(p + 1, "step", 4);
        if (is_epoch) v = (double)t->current_epoch;
        if (is_step) v = (double)t->global_step;
        const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
        for (int i = 0; i < m->n; i++)
            if (strlen(m->v[i].name) == name && !memcmp(m->v[i].name, p + 1, name)) {
                v = m->v[i].value; /* a program may log an epoch of its own */
                is_int = is_epoch || is_step;
            }
        if (insert_names) lc__str_add(out, "%.*s=", (int)name, p + 1);
        LC_TRY(add_number(out, v, is_int, spec_at, spec));
        p = after + 1;
    }
    return out->failed ? lc_fail(LC_ERR_MEMORY, "out of memory: a checkpoint's name") : LC_OK;
}

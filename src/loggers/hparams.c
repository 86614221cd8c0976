/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters on the writer's thread, and hparams.yaml: a mapping sorted by name, from which PyYAML (Lightning's
 * load_hparams_from_yaml) reads every value back unchanged. */
#include "loggers/hparams.h"
#include "base/grow.h"

#include "base/io.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lc__hparams_release(lc__hparams *h)
{
    for (int i = 0; i < h->n; i++) {
        free((char *)h->p[i].name);
        free((char *)h->p[i].text);
    }
    free(h->p);
    *h = (lc__hparams){0};
}

static lc_status put(lc__hparams *h, lc_hparam p)
{
    char *name = NULL, *text = NULL;
    LC_TRY(lc__grow(&h->p, &h->capacity, h->n, 1, "hyperparameters"));
    LC_TRY(lc__format(&name, "%s", p.name));
    lc_status status = p.text ? lc__format(&text, "%s", p.text) : LC_OK;
    if (status < 0) {
        free(name);
        return status;
    }
    p.name = name, p.text = text;
    int at = 0;
    while (at < h->n && strcmp(h->p[at].name, name) < 0) at++;
    if (at < h->n && !strcmp(h->p[at].name, name)) {
        free((char *)h->p[at].name);
        free((char *)h->p[at].text);
    } else {
        memmove(&h->p[at + 1], &h->p[at], (size_t)(h->n - at) * sizeof *h->p);
        h->n++;
    }
    h->p[at] = p;
    return LC_OK;
}

lc_status lc__hparams_merge(lc__hparams *h, lc__log_record *record)
{
    for (int i = 0; i < record->n; i++) LC_TRY(put(h, lc__log_hparam(record)));
    return LC_OK;
}

const char *lc__hparam_text(const lc_hparam *p, char number[LC__DOUBLE_SIZE])
{
    switch (p->kind) {
    case LC_HPARAM_NONE:
        return NULL;
    case LC_HPARAM_BOOL:
        return p->integer ? "True" : "False";
    case LC_HPARAM_INT:
        snprintf(number, LC__DOUBLE_SIZE, "%" PRId64, p->integer);
        return number;
    case LC_HPARAM_FLOAT:
        lc__print_double(number, p->number);
        return number;
    case LC_HPARAM_TEXT:
        return p->text;
    }
    return NULL;
}

/* ---- YAML ---- */

/* Whether YAML reads a text without quotes as the same text. Conservative: quotes more than necessary. */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"};
    if (!*text || !((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || *text == '_' || *text == '/'))
        return false; /* numbers, dates, signs */
    if (text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")]) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *a = text, *b = words[i];
        while (*a && *b && (*a | 0x20) == *b) a++, b++;
        if (!*a && !*b) return false;
    }
    return true;
}

static lc_status add_text(lc__text *t, const char *text)
{
    return is_plain(text) ? lc__text_puts(t, text) : lc__text_quoted(t, text); /* JSON's quotes are YAML's too */
}

static lc_status add_value(lc__text *t, const lc_hparam *p)
{
    char number[LC__DOUBLE_SIZE];
    switch (p->kind) {
    case LC_HPARAM_NONE:
        return lc__text_puts(t, "null");
    case LC_HPARAM_BOOL:
        return lc__text_puts(t, p->integer ? "true" : "false");
    case LC_HPARAM_TEXT:
        return add_text(t, p->text);
    case LC_HPARAM_INT:
        return lc__text_puts(t, lc__hparam_text(p, number));
    case LC_HPARAM_FLOAT:
        break;
    }
    if (isnan(p->number)) return lc__text_puts(t, ".nan");
    if (isinf(p->number)) return lc__text_puts(t, p->number > 0 ? ".inf" : "-.inf");
    lc__print_double(number, p->number);
    char *e = strchr(number, 'e');
    if (!e || strchr(number, '.')) return lc__text_puts(t, number);
    /* "1e-05" is a text in YAML 1.1; "1.0e-05" is a number. */
    LC_TRY(lc__text_add(t, number, (size_t)(e - number)));
    LC_TRY(lc__text_puts(t, ".0"));
    return lc__text_puts(t, e);
}

lc_status lc__hparams_write_yaml(const lc__hparams *h, const char *path)
{
    lc__text t = {0};
    lc_status status = h->n ? LC_OK : lc__text_puts(&t, "{}\n");
    for (int i = 0; i < h->n && status >= 0; i++) {
        status = add_text(&t, h->p[i].name);
        if (status >= 0) status = lc__text_puts(&t, ": ");
        if (status >= 0) status = add_value(&t, &h->p[i]);
        if (status >= 0) status = lc__text_puts(&t, "\n");
    }
    if (status >= 0) status = lc__replace_file(&lc__io_system, path, t.data, t.length);
    lc__text_release(&t);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "data/csv_reader.h"

#include <string.h>

const char *lc__csv_begin(lc__csv *r)
{
    if (r->end - r->p >= 3 && !memcmp(r->p, "\xEF\xBB\xBF", 3)) r->p += 3;
    const bool wide = r->end - r->p >= 2 && (!memcmp(r->p, "\xFF\xFE", 2) || !memcmp(r->p, "\xFE\xFF", 2));
    return wide ? "the text is UTF-16; save it as UTF-8" : NULL;
}

const char *lc__csv_next(lc__csv *r, lc__csv_value *v)
{
    const char *end;
    *v = (lc__csv_value){.text = r->p, .line = r->line};
    if (r->p < r->end && *r->p == '"') {
        v->quoted = true;
        v->text = r->p + 1;
        for (end = v->text; (end = memchr(end, '"', (size_t)(r->end - end))) && end + 1 < r->end && end[1] == '"';)
            end += 2;
        if (!end) return "a quote has no end";
        for (const char *p = v->text; (p = memchr(p, '\n', (size_t)(end - p))); p++) r->line++;
        r->p = end + 1;
        if (r->end - r->p > 1 && r->p[0] == '\r' && r->p[1] == '\n') r->p++;
    } else {
        while (r->p < r->end && *r->p != r->delimiter && *r->p != '\n') r->p++;
        end = r->p;
        if (end > v->text && end[-1] == '\r' && (end == r->end || *end == '\n')) end--;
        if (memchr(v->text, '\r', (size_t)(end - v->text)))
            return "a carriage return by itself ends no line; save the file with the line ends of Unix or Windows";
    }
    v->n = (size_t)(end - v->text);
    v->last = r->p == r->end || *r->p == '\n';
    if (r->p == r->end) return NULL;
    if (*r->p != r->delimiter && !v->last) return "a field goes on after its quotes";
    r->line += *r->p++ == '\n';
    return NULL;
}

bool lc__csv_next_row(lc__csv *r)
{
    while (r->p < r->end) {
        size_t n = r->p[0] == '\n' ? 1 : r->end - r->p > 1 && r->p[0] == '\r' && r->p[1] == '\n' ? 2 : 0;
        if (!n) return true;
        r->p += n, r->line++;
    }
    return false;
}

char *lc__csv_copy(const lc__csv_value *v, char *to)
{
    for (size_t i = 0; i < v->n; i++) {
        *to++ = v->text[i];
        if (v->quoted && v->text[i] == '"') i++;
    }
    *to++ = 0;
    return to;
}

const char *lc__csv_next_text(lc__csv *r, lc__csv_value *v)
{
    const char *wrong = lc__csv_next(r, v);
    if (wrong) return wrong;
    if (memchr(v->text, 0, v->n)) return "a field has a zero byte in it";
    lc__csv_copy(v, (char *)(uintptr_t)v->text);
    return NULL;
}

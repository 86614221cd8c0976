/* SPDX-License-Identifier: Apache-2.0 */
/* CSV files. A column is an array of one dimension: of i64 if all values are whole numbers, of f64 if all are numbers,
 * of class indices (i64) if all are texts. The file is read twice: for its shape and types, then for its values, which
 * are kept in a table of 8 bytes a value. */
#define _GNU_SOURCE
#include "data/csv_reader.h"
#include "data/files/file.h"
#include "data/files/names.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_COLUMNS 1000000

/* ---- values ---- */

typedef enum meaning { MISSING, NOT_AVAILABLE, WHOLE, REAL, TEXT } meaning;

typedef union number {
    int64_t whole;
    double real;
} number;

/* Digits are a whole number of 64 bits, and up to 15 with a point in them the quotient of two exact doubles. */
static bool read_digits(const char *p, const char *end, meaning *what, number *out)
{
    static const double tens[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    bool minus = *p == '-';
    int64_t m = 0;
    int digits = 0, after = -1;
    if (*p == '-' || *p == '+') p++;
    for (; p < end; p++) {
        if (*p == '.' && after < 0) {
            after = 0;
            continue;
        }
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(m, 10, &m) ||
            __builtin_add_overflow(m, minus ? '0' - *p : *p - '0', &m))
            return false;
        digits++;
        after += after >= 0;
    }
    if (!digits || (after >= 0 && digits > 15)) return false;
    *what = after < 0 ? WHOLE : REAL;
    if (after < 0)
        out->whole = m;
    else
        out->real = (minus ? -(double)-m : (double)m) / tens[after]; /* -0.0 keeps its sign */
    return true;
}

/* From *p to *end a value without the blanks around it. */
static void find_text(const lc__csv_value *v, const char **p, const char **end)
{
    *p = v->text;
    *end = *p + v->n;
    while (*p < *end && (**p == ' ' || **p == '\t')) ++*p;
    while (*p < *end && ((*end)[-1] == ' ' || (*end)[-1] == '\t')) --*end;
}

static bool is_minus(const lc__csv_value *v)
{
    const char *p, *end;
    find_text(v, &p, &end);
    return p < end && *p == '-';
}

static meaning meaning_of(const lc__csv_value *v, locale_t c, number *out)
{
    const char *p, *end;
    find_text(v, &p, &end);
    size_t n = (size_t)(end - p);
    meaning what;
    if (!n) return MISSING;
    if ((n == 2 && !strncasecmp(p, "na", 2)) || (n == 3 && !strncasecmp(p, "nan", 3))) return NOT_AVAILABLE;
    if (read_digits(p, end, &what, out)) return what;
    char copy[128], *stop;
    if (n >= sizeof copy || memchr(p, 'x', n) || memchr(p, 'X', n) || memchr(p, '(', n)) return TEXT;
    memcpy(copy, p, n);
    copy[n] = 0;
    out->real = strtod_l(copy, &stop, c);
    return stop == copy + n && out->real == out->real ? REAL : TEXT;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_sign(char c)
{
    return c == '-' || c == '+';
}

/* Whether a text is a number of another language, with a comma as its point or between thousands. */
static bool has_comma_in_number(const lc__csv_value *v)
{
    const char *p, *end;
    int digits = 0, commas = 0;
    find_text(v, &p, &end);
    if (p < end && is_sign(*p)) p++;
    for (; p < end && (is_digit(*p) || *p == ',' || *p == '.'); p++) digits += is_digit(*p), commas += *p == ',';
    if (p < end && (*p == 'e' || *p == 'E'))
        for (p++; p < end && (is_digit(*p) || is_sign(*p));) p++;
    return p == end && digits && commas;
}

/* Whether a text begins with two numbers that have blanks between them, as lines of other tables do. */
static bool has_numbers_apart(const lc__csv_value *v, locale_t c)
{
    const char *p, *end;
    number unused;
    find_text(v, &p, &end);
    for (int i = 0; i < 2; i++) {
        lc__csv_value word = {0};
        while (p < end && (*p == ' ' || *p == '\t')) p++;
        for (word.text = p; p < end && *p != ' ' && *p != '\t'; p++) word.n++;
        meaning what = meaning_of(&word, c, &unused);
        if (what != WHOLE && what != REAL) return false;
    }
    return true;
}

/* ---- the table ---- */

typedef struct column {
    bool named;                     /* in .text */
    bool text;                      /* the first value that is not missing is one, or it is named */
    bool known;                     /* there was such a value */
    bool real;                      /* there are numbers that are not whole */
    int64_t missing, not_available; /* the lines of the first ones; 0: none */
} column;

typedef struct table {
    lc_array_file *f;
    const lc_array_file_args *args;
    locale_t c;
    lc__csv first; /* of the rows, without the header */
    bool header;
    int64_t rows, n;
    column *columns;
    uint64_t *values;  /* [rows, n] */
    char *texts, *end; /* the values of columns of text, at the offsets in `values` */
} table;

static lc_status fail_at(const table *t, int64_t line, int64_t k, const char *what, const lc__csv_value *v)
{
    char text[64] = "";
    for (size_t i = 0; v && i < v->n && i < sizeof text - 1; i++) text[i] = v->text[i];
    return lc_fail(LC_ERR_FORMAT, "%s, line %lld, column '%.200s': %s%s%s", t->f->path, (long long)line,
                   t->f->arrays[k].info.name, v ? text : "", v ? " " : "", what);
}

static lc_status fail_row(const table *t, int64_t line, const char *what)
{
    return lc_fail(LC_ERR_FORMAT, "%s, line %lld: %s", t->f->path, (long long)line, what);
}

/* How often `c` is in each line, if in all as often and the delimiter is not in the first; else 0. */
static int64_t in_each_line(const lc__csv *r, char c)
{
    int64_t each = 0;
    for (const char *p = r->p, *stop; p < r->end; p = stop + 1) {
        const char *found = memchr(p, '\n', (size_t)(r->end - p));
        stop = found ? found : r->end;
        int64_t n = 0;
        for (const char *q = p; q < stop; q++) {
            if (!each && *q == r->delimiter) return 0;
            n += *q == c;
        }
        if (stop == p || (stop == p + 1 && *p == '\r')) continue;
        if (!n || (each && n != each)) return 0;
        each = n;
    }
    return each;
}

/* A file with another delimiter would be one column of texts. */
static lc_status check_delimiter(const table *t)
{
    static const char others[][3] = {";", "\t", "|"};
    const char *const own = t->first.delimiter == '\t' ? "\\t" : (const char[]){t->first.delimiter, 0};
    for (size_t i = 0; i < sizeof others / sizeof *others && !t->args->delimiter; i++)
        if (*others[i] != t->first.delimiter && in_each_line(&t->first, *others[i]))
            return lc_fail(LC_ERR_FORMAT,
                           "%s: its lines have '%s', and no '%s'; if it is between values, give .delimiter = '%s', and "
                           "if not, .delimiter = '%s'",
                           t->f->path, i == 1 ? "\\t" : others[i], own, i == 1 ? "\\t" : others[i], own);
    return LC_OK;
}

/* The values of the first row are the names of the columns, or else these are numbers. */
static lc_status name_columns(table *t)
{
    lc__csv r = t->first;
    bool all_texts = true;
    lc__csv_value v = {0};
    number unused;
    for (t->n = 0; !v.last; t->n++) {
        const char *wrong = lc__csv_next(&r, &v);
        if (wrong) return fail_row(t, v.line, wrong);
        if (t->n == MOST_COLUMNS) return fail_row(t, v.line, "there are more than 1000000 columns");
        all_texts &= meaning_of(&v, t->c, &unused) == TEXT;
    }
    t->header = t->args->header == LC_AUTO ? all_texts : t->args->header == LC_ON;
    lc__csv names = t->first;
    char *name = malloc((size_t)(r.p - names.p) + 24);
    if (!name) return lc_fail(LC_ERR_MEMORY, "out of memory for the names in %s", t->f->path);
    lc_status status = LC_OK;
    for (int64_t k = 0; k < t->n && status == LC_OK; k++) {
        lc__file_array *a;
        (void)lc__csv_next(&names, &v);
        if (t->header)
            lc__csv_copy(&v, name);
        else
            snprintf(name, 24, "%lld", (long long)k);
        status = lc__file_add(t->f, name, strlen(name), &a);
    }
    free(name);
    if (t->header) t->first = r;
    return status;
}

static lc_status name_texts(table *t)
{
    if (!t->args->text) return LC_OK;
    int64_t *which = NULL, n = 0;
    lc_file_field field = {.name = "text", .file = t->f, .arrays = t->args->text};
    LC_TRY(lc__arrays_of_field(1, &field, &field, &which, &n));
    for (int64_t i = 0; i < n; i++) t->columns[which[i]] = (column){.named = true, .text = true, .known = true};
    free(which);
    return LC_OK;
}

static lc_status learn(table *t, column *c, int64_t k, const lc__csv_value *v)
{
    number unused;
    meaning what = meaning_of(v, t->c, &unused);
    bool text = what == TEXT || (what == NOT_AVAILABLE && c->text) || (what > MISSING && c->named);
    if (memchr(v->text, 0, v->n)) return fail_at(t, v->line, k, "there is a zero character", NULL);
    if (what == MISSING && !c->missing) c->missing = v->line;
    if (what == NOT_AVAILABLE && !c->not_available) c->not_available = v->line;
    if (what < WHOLE) return LC_OK;
    if (what == TEXT && !c->named && has_comma_in_number(v))
        return fail_at(t, v->line, k,
                       "has a comma in a number; write it as in 1234.5, or, if the column is one of texts, name it in "
                       ".text",
                       v);
    if (what == TEXT && !c->named && t->n == 1 && !t->args->delimiter && !v->quoted && has_numbers_apart(v, t->c))
        return fail_at(t, v->line, k,
                       "has blanks between numbers; if each is a value, write commas between them, or give .delimiter "
                       "= ' ' if they are one blank apart; if the column is one of texts, name it in .text",
                       v);
    if (!c->known) c->known = true, c->text = text;
    if (c->text != text)
        return fail_at(t, v->line, k,
                       text ? "is not a number, as earlier values are; if the column is one of texts, name it in .text"
                       : t->header
                           ? "is a number, but earlier values are texts; if all are texts, name the column in .text"
                           : "is a number, but earlier values are texts; if the first line names the columns, give "
                             ".header = LC_ON, and if all are texts, name the column in .text",
                       v);
    c->real |= what == REAL;
    return LC_OK;
}

/* Counts the rows, and learns what the columns hold. */
static lc_status learn_all(table *t)
{
    lc__csv r = t->first;
    for (; lc__csv_next_row(&r); t->rows++) {
        lc__csv_value v = {0};
        int64_t k = 0;
        for (; !v.last; k++) {
            const char *wrong = lc__csv_next(&r, &v);
            if (wrong) return fail_row(t, v.line, wrong);
            if (k < t->n) LC_TRY(learn(t, &t->columns[k], k, &v));
        }
        if (k != t->n)
            return lc_fail(LC_ERR_FORMAT, "%s, line %lld: %lld values, but there are %lld columns", t->f->path,
                           (long long)v.line, (long long)k, (long long)t->n);
    }
    for (int64_t k = 0; k < t->n && t->args->missing != t->args->missing; k++) {
        const column *c = &t->columns[k];
        int64_t line = c->missing;
        if (!c->text && c->not_available && (!line || c->not_available < line)) line = c->not_available;
        if (line)
            return fail_at(t, line, k, "a value is missing; .missing = 0, or another number, stands for such values",
                           NULL);
    }
    return LC_OK;
}

static bool is_real(const column *c)
{
    return !c->text && (c->real || c->missing || c->not_available || !c->known);
}

static void fill(table *t)
{
    lc__csv r = t->first;
    uint64_t *to = t->values;
    while (lc__csv_next_row(&r))
        for (int64_t k = 0; k < t->n; k++, to++) {
            const column *c = &t->columns[k];
            lc__csv_value v;
            number n;
            (void)lc__csv_next(&r, &v);
            if (c->text) {
                *to = (uint64_t)(t->end - t->texts);
                t->end = lc__csv_copy(&v, t->end);
                continue;
            }
            meaning what = meaning_of(&v, t->c, &n);
            if (what < WHOLE) n.real = t->args->missing;
            int64_t whole = n.whole;
            if (what == WHOLE && is_real(c)) n.real = whole || !is_minus(&v) ? (double)whole : -0.0;
            memcpy(to, &n, sizeof n);
        }
}

static int by_text(const void *a, const void *b, void *texts)
{
    return strcmp((const char *)texts + **(uint64_t *const *)a, (const char *)texts + **(uint64_t *const *)b);
}

/* Texts become their places among the different texts of the column, sorted by bytes. */
static lc_status number_classes(table *t, int64_t k)
{
    lc__file_array *a = &t->f->arrays[k];
    uint64_t **cells = malloc((size_t)(t->rows ? t->rows : 1) * sizeof *cells);
    const char **classes = cells ? malloc((size_t)(t->rows ? t->rows : 1) * sizeof *classes) : NULL;
    if (!classes) {
        free(cells);
        return lc_fail(LC_ERR_MEMORY, "out of memory for the texts in %s", t->f->path);
    }
    for (int64_t i = 0; i < t->rows; i++) cells[i] = &t->values[i * t->n + k];
    qsort_r(cells, (size_t)t->rows, sizeof *cells, by_text, t->texts);
    int64_t n = 0;
    for (int64_t i = 0; i < t->rows; i++) {
        const char *text = t->texts + *cells[i];
        if (!n || strcmp(classes[n - 1], text) != 0) classes[n++] = text;
        *cells[i] = (uint64_t)(n - 1);
    }
    free(cells);
    a->owned = a->classes = classes;
    a->info.classes = n;
    return LC_OK;
}

static lc_status make_table(table *t)
{
    size_t cells = (size_t)t->rows * (size_t)t->n; /* at most one for each byte of the file, and one */
    t->values = lc__data_alloc(cells * sizeof *t->values, t->f->path);
    t->texts = t->end = t->values ? malloc(t->f->size + cells + 1) : NULL;
    t->f->state = t->texts;
    t->f->arrays[0].data = (const char *)t->values;
    if (!t->texts) return lc_fail(LC_ERR_MEMORY, "out of memory for the values of %s", t->f->path);
    fill(t);
    for (int64_t k = 0; k < t->n; k++) {
        lc__file_array *a = &t->f->arrays[k];
        if (t->columns[k].text) LC_TRY(number_classes(t, k));
        a->number = is_real(&t->columns[k]) ? LC__F64 : LC__I64;
        a->info.ndim = 1;
        a->info.shape[0] = t->rows;
        a->data = (const char *)(t->values + k);
        a->stride[0] = t->n * 8;
    }
    return LC_OK;
}

/* ---- files ---- */

static bool ends(const lc_array_file *f, const char *with)
{
    size_t n = strlen(f->path), k = strlen(with);
    return n > k && !strcasecmp(f->path + n - k, with);
}

static bool matches(const lc_array_file *f)
{
    return ends(f, ".csv") || ends(f, ".tsv");
}

static lc_status read_header(lc_array_file *f)
{
    const char *begin = (const char *)f->bytes, *end = begin + f->size;
    table t = {.f = f, .args = f->args};
    char delimiter = f->args->delimiter ? f->args->delimiter : ends(f, ".tsv") ? '\t' : ',';
    if (delimiter == '"' || delimiter == '\n' || delimiter == '\r')
        return lc_fail(LC_ERR_ARGUMENT, "%s: a quote or the end of a line cannot be the delimiter", f->path);
    t.first = (lc__csv){begin, end, 1, delimiter};
    const char *wrong = lc__csv_begin(&t.first);
    if (wrong) return lc_fail(LC_ERR_FORMAT, "%s: %s", f->path, wrong);
    if (!f->size || !lc__csv_next_row(&t.first)) return lc__file_fail(f, LC_ERR_FORMAT, NULL, "is empty");
    t.c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!t.c) return lc_fail(LC_ERR_MEMORY, "out of memory: the C locale");
    lc_status status = check_delimiter(&t);
    if (status == LC_OK) status = name_columns(&t);
    if (status == LC_OK && !(t.columns = calloc((size_t)t.n, sizeof *t.columns)))
        status = lc_fail(LC_ERR_MEMORY, "out of memory for the columns of %s", f->path);
    if (status == LC_OK) status = name_texts(&t);
    if (status == LC_OK) status = learn_all(&t);
    if (status == LC_OK) status = make_table(&t);
    freelocale(t.c);
    free(t.columns);
    return status;
}

static void csv_free(lc_array_file *f)
{
    free(f->state);
    if (f->n) free((void *)(uintptr_t)f->arrays[0].data); /* the table begins with the first column */
}

const lc__file_kind lc__csv_kind = {.matches = matches, .read_header = read_header, .free = csv_free};

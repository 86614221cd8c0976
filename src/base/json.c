/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON tokenizer and what writers need. state.c makes a tree of the tokens. */
#define _GNU_SOURCE
#include "base/c_locale.h"
#include "base/json.h"
#include "base/grow.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 ---- */

/* The length of the valid sequence at p, or 0. Refuses overlong forms, surrogates and what is beyond U+10FFFF. */
static int utf8_length(const unsigned char *p, const unsigned char *end)
{
    if (p[0] < 0x80) return 1;
    int n = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
    if (!n || end - p < n) return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

const char *lc__utf8_first_bad(const char *text, size_t length)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + length;
    while (p < end) {
        int n = utf8_length(p, end);
        if (!n) return (const char *)p;
        p += n;
    }
    return NULL;
}

void lc__utf8_repair(char *text, size_t length)
{
    for (const char *bad; (bad = lc__utf8_first_bad(text, length));) text[bad - text] = '?';
}

/* ---- reading ---- */

lc_status lc__json_fail(const lc__json_reader *r, const char *message)
{
    size_t line = 1, column = 1;
    for (const char *p = r->start; p < r->p; p++) {
        column++;
        if (*p == '\n') line++, column = 1;
    }
    return lc_fail(LC_ERR_FORMAT, "line %zu, column %zu: %s", line, column, message);
}

lc_status lc__json_begin(lc__json_reader *r, const char *text, size_t length)
{
    *r = (lc__json_reader){.start = text, .p = text, .end = text + length, .line = 1};
    const char *bad = lc__utf8_first_bad(text, length);
    if (bad) {
        r->p = bad;
        return lc__json_fail(r, "not valid UTF-8");
    }
    return LC_OK;
}

void lc__json_release(lc__json_reader *r)
{
    free(r->scratch);
    r->scratch = NULL;
}

static int hex4(const char *p, const char *end)
{
    if (end - p < 4) return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static int utf8_encode(char *out, unsigned code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | code); /* 0xc0, 0xe0, 0xf0 */
    return n;
}

/* Decodes the escapes of the text between from and to (without its quotes) into the scratch memory. */
static lc_status decode(lc__json_reader *r, const char *from, const char *to)
{
    size_t need = (size_t)(to - from) + 1; /* decoding never makes a text longer */
    LC_TRY(lc__grow(&r->scratch, &r->scratch_size, 0, need, "a text with escapes"));
    char *out = r->scratch;
    for (const char *p = from; p < to; p++) {
        if (*p != '\\') {
            *out++ = *p;
            continue;
        }
        r->p = p++;
        switch (*p) {
        case '"':
        case '\\':
        case '/':
            *out++ = *p;
            break;
        case 'b':
            *out++ = '\b';
            break;
        case 'f':
            *out++ = '\f';
            break;
        case 'n':
            *out++ = '\n';
            break;
        case 'r':
            *out++ = '\r';
            break;
        case 't':
            *out++ = '\t';
            break;
        case 'u': {
            int code = hex4(p + 1, to);
            if (code < 0) return lc__json_fail(r, "\\u must be followed by four hexadecimal digits");
            p += 4;
            if (code >= 0xd800 && code < 0xdc00) {
                int low = to - p > 6 && p[1] == '\\' && p[2] == 'u' ? hex4(p + 3, to) : -1;
                if (low < 0xdc00 || low > 0xdfff) return lc__json_fail(r, "half of a surrogate pair");
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                p += 6;
            } else if (code >= 0xdc00 && code < 0xe000) {
                return lc__json_fail(r, "half of a surrogate pair");
            }
            out += utf8_encode(out, (unsigned)code);
            break;
        }
        default:
            return lc__json_fail(r, "unknown escape in a string");
        }
    }
    r->text = r->scratch, r->text_length = (size_t)(out - r->scratch);
    return LC_OK;
}

static lc_status read_text(lc__json_reader *r)
{
    const char *from = r->p + 1, *p = from;
    bool escapes = false;
    for (; p < r->end && *p != '"'; p++) {
        if ((unsigned char)*p < 0x20) {
            r->p = p;
            return lc__json_fail(r, "control character in a string");
        }
        if (*p == '\\') {
            escapes = true;
            if (++p >= r->end) break;
        }
    }
    if (p >= r->end) return lc__json_fail(r, "string without a closing quote");
    r->text = from, r->text_length = (size_t)(p - from);
    if (escapes) LC_TRY(decode(r, from, p));
    r->p = p + 1;
    return LC_OK;
}

static lc_status read_number(lc__json_reader *r, lc__json_token *token)
{
    const char *from = r->p, *p = from, *end = r->end;
    bool real = false;
    if (p < end && *p == '-') p++;
    if (p >= end || *p < '0' || *p > '9') return lc__json_fail(r, "missing or malformed value");
    if (*p == '0' && p + 1 < end && p[1] >= '0' && p[1] <= '9') return lc__json_fail(r, "number with a leading zero");
    while (p < end && *p >= '0' && *p <= '9') p++;
    if (p < end && *p == '.') {
        real = true, p++;
        if (p >= end || *p < '0' || *p > '9') return lc__json_fail(r, "number that ends with a decimal point");
        while (p < end && *p >= '0' && *p <= '9') p++;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        real = true, p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        if (p >= end || *p < '0' || *p > '9') return lc__json_fail(r, "number without an exponent after e");
        while (p < end && *p >= '0' && *p <= '9') p++;
    }
    /* A copy, because strtod needs a terminator, and would read on into what follows. */
    char copy[512];
    size_t n = (size_t)(p - from);
    if (n >= sizeof copy) return lc__json_fail(r, "number of more than 500 digits");
    memcpy(copy, from, n);
    copy[n] = 0;
    errno = 0;
    if (!real) {
        r->integer = strtoll(copy, NULL, 10);
        if (errno) return lc__json_fail(r, "integer that does not fit into 64 bits");
        r->number = (double)r->integer;
        *token = LC__JSON_INT;
    } else {
        r->number = lc__strtod(copy, NULL);
        if (!isfinite(r->number)) return lc__json_fail(r, "number outside the range of a double");
        *token = LC__JSON_DOUBLE;
    }
    r->p = p;
    return LC_OK;
}

static bool read_word(lc__json_reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n)) return false;
    r->p += n;
    return true;
}

static void skip_space(lc__json_reader *r)
{
    for (; r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'); r->p++)
        r->line += *r->p == '\n';
}

/* A value that contains no others; `c` is its first character. */
static lc_status read_scalar(lc__json_reader *r, char c, lc__json_token *token)
{
    if (c == '"') {
        LC_TRY(read_text(r));
        *token = LC__JSON_TEXT;
    } else if (c == 't' && read_word(r, "true")) {
        r->boolean = true;
        *token = LC__JSON_BOOL;
    } else if (c == 'f' && read_word(r, "false")) {
        r->boolean = false;
        *token = LC__JSON_BOOL;
    } else if (c == 'n' && read_word(r, "null")) {
        *token = LC__JSON_NULL;
    } else {
        LC_TRY(read_number(r, token));
    }
    return LC_OK;
}

lc_status lc__json_next(lc__json_reader *r, lc__json_token *token)
{
    skip_space(r);
    if (r->finished) {
        if (r->p < r->end) return lc__json_fail(r, "text after the end of the value");
        *token = LC__JSON_END;
        return LC_OK;
    }
    if (r->p >= r->end) return lc__json_fail(r, "the text ends too early");
    bool in_object = r->depth && (r->is_object >> (r->depth - 1) & 1), first = !r->after_value;
    char c = *r->p;
    if (r->depth && !r->after_key) {
        if (c == (in_object ? '}' : ']')) {
            r->p++, r->depth--;
            r->after_value = true;
            r->finished = !r->depth;
            *token = in_object ? LC__JSON_OBJECT_END : LC__JSON_ARRAY_END;
            return LC_OK;
        }
        if (!first) {
            if (c != ',') return lc__json_fail(r, in_object ? "missing \",\" or \"}\"" : "missing \",\" or \"]\"");
            r->p++;
            skip_space(r);
            if (r->p >= r->end) return lc__json_fail(r, "the text ends too early");
            c = *r->p;
        }
        if (in_object) {
            if (c != '"') return lc__json_fail(r, "missing key in quotes");
            LC_TRY(read_text(r));
            skip_space(r);
            if (r->p >= r->end || *r->p != ':') return lc__json_fail(r, "\":\" is missing");
            r->p++;
            r->after_key = true;
            *token = LC__JSON_KEY;
            return LC_OK;
        }
    }
    r->after_key = false;
    if (c == '{' || c == '[') {
        if (r->depth == LC__JSON_DEPTH) return lc__json_fail(r, "nested more than 64 levels deep");
        r->p++;
        r->is_object &= ~((uint64_t)1 << r->depth);
        r->is_object |= (uint64_t)(c == '{') << r->depth;
        r->depth++;
        r->after_value = false;
        *token = c == '{' ? LC__JSON_OBJECT : LC__JSON_ARRAY;
        return LC_OK;
    }
    LC_TRY(read_scalar(r, c, token));
    r->after_value = true;
    r->finished = !r->depth;
    return LC_OK;
}

/* ---- writing ---- */

lc_status lc__text_add(lc__text *t, const char *data, size_t n)
{
    size_t more;
    if (__builtin_add_overflow(n, 1, &more)) return lc_fail(LC_ERR_MEMORY, "a text is too long");
    LC_TRY(lc__grow(&t->data, &t->capacity, t->length, more, "a text"));
    memcpy(t->data + t->length, data, n);
    t->length += n;
    t->data[t->length] = 0;
    return LC_OK;
}

lc_status lc__text_puts(lc__text *t, const char *text)
{
    return lc__text_add(t, text, strlen(text));
}

lc_status lc__text_int(lc__text *t, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, v);
    return lc__text_puts(t, text);
}

lc_status lc__text_quoted(lc__text *t, const char *text)
{
    size_t n = strlen(text);
    if (lc__utf8_first_bad(text, n)) return lc_fail(LC_ERR_ARGUMENT, "the text \"%s\" is not UTF-8", text);
    LC_TRY(lc__text_puts(t, "\""));
    const char *from = text;
    for (const char *p = text; *p; p++) {
        bool wide = (unsigned char)*p == 0xc2 && (unsigned char)p[1] < 0xa0; /* U+0080 to U+009F: control characters */
        if ((unsigned char)*p >= 0x20 && *p != '"' && *p != '\\' && *p != 0x7f && !wide) continue;
        LC_TRY(lc__text_add(t, from, (size_t)(p - from)));
        char escape[8];
        if (*p == '"' || *p == '\\')
            snprintf(escape, sizeof escape, "\\%c", *p);
        else if (*p == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)p[wide]);
        LC_TRY(lc__text_puts(t, escape));
        p += wide;
        from = p + 1;
    }
    LC_TRY(lc__text_puts(t, from));
    return lc__text_puts(t, "\"");
}

void lc__text_release(lc__text *t)
{
    free(t->data);
    *t = (lc__text){0};
}

/* The decimal digits and exponent of a finite positive number: d.ddd * 10^exponent. */
static int shortest_digits(double value, char digits[20], int *exponent)
{
    for (int precision = value < 0x1p-1022 ? 0 : 14; precision <= 16; precision++) {
        char text[48];
        snprintf(text, sizeof text, "%.*e", precision, value);
        /* Whatever this locale's decimal point is, reading it back with the same locale is right. */
        if (precision < 16 && strtod(text, NULL) != value) continue;
        int n = 0;
        const char *p = text;
        for (; *p && *p != 'e'; p++)
            if (*p >= '0' && *p <= '9' && n < 18) digits[n++] = *p;
        *exponent = *p ? atoi(p + 1) : 0;
        while (n > 1 && digits[n - 1] == '0') n--;
        return n;
    }
    return 0;
}

int lc__print_double(char text[LC__DOUBLE_SIZE], double value)
{
    if (isnan(value)) return snprintf(text, LC__DOUBLE_SIZE, "nan");
    if (isinf(value)) return snprintf(text, LC__DOUBLE_SIZE, value < 0 ? "-inf" : "inf");
    char *out = text;
    if (signbit(value)) *out++ = '-';
    value = fabs(value);
    if (value < 1e15 && value == (double)(int64_t)value) /* the most frequent case, made fast */
        return (int)(out - text) + snprintf(out, LC__DOUBLE_SIZE - 1, "%lld.0", (long long)value);
    char digits[20];
    int exponent, n = shortest_digits(value, digits, &exponent);
    if (exponent >= -4 && exponent < 16) {
        if (exponent < 0) {
            *out++ = '0';
            *out++ = '.';
            for (int i = -1; i > exponent; i--) *out++ = '0';
            memcpy(out, digits, (size_t)n);
            out += n;
        } else {
            for (int i = 0; i < n || i <= exponent; i++) {
                if (i == exponent + 1) *out++ = '.';
                *out++ = i < n ? digits[i] : '0';
            }
            if (n <= exponent + 1) {
                *out++ = '.';
                *out++ = '0';
            }
        }
        *out = 0;
        return (int)(out - text);
    }
    *out++ = digits[0];
    if (n > 1) {
        *out++ = '.';
        memcpy(out, digits + 1, (size_t)n - 1);
        out += n - 1;
    }
    return (int)(out - text) +
           snprintf(out, (size_t)(LC__DOUBLE_SIZE - (out - text)), "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

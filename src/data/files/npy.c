/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's .npy: "\x93NUMPY", version, length of the header, and the header, a Python dictionary with 'descr' (type of
 * the numbers), 'fortran_order' and 'shape'; then the elements. */
#include "data/files/file.h"

#include <string.h>

/* NumPy writes some hundred bytes, and reads at most 10,000. */
#define MOST_HEADER 65536

static const bool little_host = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

/* ---- the dictionary ---- */

typedef struct reader {
    const char *p, *end;
} reader;

static void skip_space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r')) r->p++;
}

static bool take(reader *r, char c)
{
    skip_space(r);
    if (r->p >= r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool take_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    skip_space(r);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n)) return false;
    r->p += n;
    return true;
}

/* A text in quotes, without escapes. */
static bool take_text(reader *r, const char **text, size_t *n)
{
    skip_space(r);
    if (r->p >= r->end || (*r->p != '\'' && *r->p != '"')) return false;
    const char *end = memchr(r->p + 1, *r->p, (size_t)(r->end - r->p - 1));
    if (!end) return false;
    *text = r->p + 1, *n = (size_t)(end - r->p - 1);
    r->p = end + 1;
    return !memchr(*text, '\\', *n);
}

/* A whole number; Python 2 wrote some with an L. */
static bool take_size(reader *r, int64_t *out)
{
    skip_space(r);
    const char *from = r->p;
    *out = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *r->p - '0', out)) return false;
    if (r->p == from) return false;
    if (r->p < r->end && *r->p == 'L') r->p++;
    return true;
}

/* Skips a list or tuple, which may have others in it; texts in it may contain brackets. */
static bool skip_list(reader *r)
{
    int depth = 0;
    do {
        const char *text;
        size_t n;
        skip_space(r);
        if (r->p >= r->end) return false;
        if (*r->p == '\'' || *r->p == '"') {
            if (!take_text(r, &text, &n)) return false;
            continue;
        }
        depth += (*r->p == '[' || *r->p == '(') - (*r->p == ']' || *r->p == ')');
        r->p++;
    } while (depth > 0);
    return true;
}

typedef struct header {
    const char *descr; /* NULL: structured */
    size_t n_descr;
    bool fortran;
    int ndim; /* may be more than LC_MAX_DIMS */
    int64_t shape[LC_MAX_DIMS];
} header;

static bool take_shape(reader *r, header *h)
{
    if (!take(r, '(')) return false;
    while (!take(r, ')')) {
        int64_t size;
        if (!take_size(r, &size)) return false;
        if (h->ndim < LC_MAX_DIMS) h->shape[h->ndim] = size;
        h->ndim++;
        if (take(r, ')')) return h->ndim > 1; /* (3) is a number */
        if (!take(r, ',')) return false;
    }
    return true;
}

static bool take_entry(reader *r, header *h, unsigned *seen)
{
    const char *key;
    size_t n;
    if (!take_text(r, &key, &n) || !take(r, ':')) return false;
    unsigned which = n == 5 && !memcmp(key, "descr", 5)             ? 1
                     : n == 13 && !memcmp(key, "fortran_order", 13) ? 2
                     : n == 5 && !memcmp(key, "shape", 5)           ? 4
                                                                    : 0;
    if (!which || *seen & which) return false;
    *seen |= which;
    skip_space(r);
    if (which == 1 && r->p < r->end && *r->p == '[') return skip_list(r);
    if (which == 1) return take_text(r, &h->descr, &h->n_descr);
    if (which == 4) return take_shape(r, h);
    h->fortran = take_word(r, "True");
    return h->fortran || take_word(r, "False");
}

static bool take_header(reader *r, header *h)
{
    unsigned seen = 0;
    if (!take(r, '{')) return false;
    while (!take(r, '}')) {
        if (!take_entry(r, h, &seen)) return false;
        if (!take(r, ',')) {
            if (!take(r, '}')) return false;
            break;
        }
    }
    skip_space(r);
    return seen == 7 && r->p == r->end;
}

/* ---- types of numbers ---- */

static const struct {
    const char *descr; /* after the byte order */
    lc__number number;
} types[] = {{"f4", LC__F32},  {"f8", LC__F64}, {"f2", LC__F16}, {"i8", LC__I64}, {"i4", LC__I32}, {"u1", LC__U8},
             {"b1", LC__BOOL}, {"i1", LC__I8},  {"u2", LC__U16}, {"i2", LC__I16}, {"u4", LC__U32}, {"u8", LC__U64}};

static lc_status set_type(lc__file_array *a, const header *h)
{
    if (h->ndim > LC_MAX_DIMS)
        return lc__file_refuse(a, "has %d dimensions, and lightc's have at most %d", h->ndim, LC_MAX_DIMS);
    if (!h->descr)
        return lc__file_refuse(a, "has a structured type; save each of its fields as an array, as in "
                                  "np.savez(file, **{n: a[n] for n in a.dtype.names})");
    for (size_t k = 0; h->n_descr == 3 && strchr("<>|=", h->descr[0]) && k < sizeof types / sizeof *types; k++)
        if (!memcmp(h->descr + 1, types[k].descr, 2)) {
            a->number = types[k].number;
            a->swapped = h->descr[0] == (little_host ? '>' : '<');
            return LC_OK;
        }
    char kind = h->n_descr > 1 ? h->descr[1] : '?';
    const char *why = kind == 'O' ? "Python objects, which lightc does not load; save an array of numbers"
                      : kind == 'U' || kind == 'S' ? "texts; save class indices (np.unique with return_inverse=True)"
                      : kind == 'M' || kind == 'm' ? "times; convert them, as in a.astype('i8')"
                      : kind == 'c'                ? "complex numbers; save a.real and a.imag"
                      : kind == 'V'
                          ? "a type that is not NumPy's, perhaps bfloat16; save a.astype('f4'), or safetensors"
                          : "numbers that lightc does not have; convert them, as in a.astype('f4')";
    return lc__file_refuse(a, "has the type '%.*s': %s", (int)(h->n_descr < 20 ? h->n_descr : 20), h->descr, why);
}

/* ---- files ---- */

lc_status lc__npy_header(const lc_array_file *f, const unsigned char *bytes, size_t n, uint64_t whole,
                         lc__file_array *a, uint64_t *begin, uint64_t *data_bytes)
{
    const char *name = a->info.name;
    if (n < 10 || memcmp(bytes, "\x93NUMPY", 6))
        return lc__file_fail(f, LC_ERR_FORMAT, name, "is not a NumPy array: it %s",
                             n < 10 ? "has fewer than 10 bytes" : "does not begin with \\x93NUMPY");
    if (bytes[6] < 1 || bytes[6] > 3)
        return lc__file_fail(f, LC_ERR_UNSUPPORTED, name, "has version %d.%d of the format; 1 to 3 are known", bytes[6],
                             bytes[7]);
    uint64_t length = bytes[8] | (uint64_t)bytes[9] << 8, at = 10;
    if (bytes[6] > 1) {
        if (n < 12) return lc__file_fail(f, LC_ERR_FORMAT, name, "ends inside its header");
        length |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
        at = 12;
    }
    if (length > whole - at)
        return lc__file_fail(f, LC_ERR_FORMAT, name,
                             "is truncated: its header alone would have %llu bytes, but there are %llu",
                             (unsigned long long)length, (unsigned long long)(whole - at));
    if (length > MOST_HEADER || length > n - at)
        return lc__file_fail(f, LC_ERR_FORMAT, name, "has a header of %llu bytes; at most %d are read",
                             (unsigned long long)length, MOST_HEADER);
    reader r = {(const char *)bytes + at, (const char *)bytes + at + length};
    header h = {0};
    if (!take_header(&r, &h))
        return lc__file_fail(f, LC_ERR_FORMAT, name,
                             "has an invalid header: it must be a dictionary of 'descr', "
                             "'fortran_order' and 'shape'");
    *begin = at + length;
    *data_bytes = 0;
    LC_TRY(set_type(a, &h));
    if (a->refused) return LC_OK;
    a->info.ndim = h.ndim;
    memcpy(a->info.shape, h.shape, sizeof h.shape);
    if (!lc__file_strides(a, h.fortran, data_bytes))
        return lc__file_fail(f, LC_ERR_FORMAT, name, "has an invalid header: its shape is larger than any memory");
    if (*data_bytes > whole - *begin)
        return lc__file_fail(f, LC_ERR_FORMAT, name, "is truncated: its header describes %llu bytes, but it has %llu",
                             (unsigned long long)*data_bytes, (unsigned long long)(whole - *begin));
    if (*data_bytes < whole - *begin)
        return lc__file_fail(f, LC_ERR_FORMAT, name,
                             "has %llu bytes after its elements; several arrays in one file are saved with np.savez",
                             (unsigned long long)(whole - *begin - *data_bytes));
    return LC_OK;
}

static bool matches(const lc_array_file *f)
{
    return f->size >= 6 && !memcmp(f->bytes, "\x93NUMPY", 6);
}

static lc_status read_header(lc_array_file *f)
{
    lc__file_array *a;
    uint64_t begin, bytes;
    LC_TRY(lc__file_add(f, "", 0, &a));
    LC_TRY(lc__npy_header(f, f->bytes, f->size, f->size, a, &begin, &bytes));
    a->data = (const char *)f->bytes + begin;
    return LC_OK;
}

const lc__file_kind lc__npy_kind = {.matches = matches, .read_header = read_header};

/* SPDX-License-Identifier: Apache-2.0 */
/* `lightc ckpt diff A B`: tensor by tensor and value by value, whatever their layouts. Holds a megabyte of each tensor
 * in memory at a time. */
#include "ckpt.h"
#include "tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 20, PATH = 1024 };

typedef struct diff {
    const char *path[2];
    lc_checkpoint *c[2];
    char *block[2];
    lc_state *tensors, *state; /* arrays of differences, for JSON; NULL: print */
    int64_t compared, differences;
} diff;

/* How much two tensors differ. */
typedef struct distance {
    int64_t elements; /* number of elements that differ */
    double abs, rel;  /* the largest differences; rel: relative to the larger value */
    bool numbers;     /* abs and rel are valid */
} distance;

/* ---- values ---- */

static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return h >> 15 ? -value : value;
}

static double value_at(lc_dtype dtype, const char *data, int64_t i)
{
    union {
        uint32_t bits;
        float value;
    } f32;
    uint16_t u16;
    double f64;
    int64_t i64;
    int32_t i32;
    switch (dtype) {
    case LC_F32:
        memcpy(&f32.value, data + 4 * i, 4);
        return (double)f32.value;
    case LC_F64:
        memcpy(&f64, data + 8 * i, 8);
        return f64;
    case LC_F16:
        memcpy(&u16, data + 2 * i, 2);
        return half_value(u16);
    case LC_BF16:
        memcpy(&u16, data + 2 * i, 2);
        f32.bits = (uint32_t)u16 << 16;
        return (double)f32.value;
    case LC_I64:
        memcpy(&i64, data + 8 * i, 8);
        return (double)i64;
    case LC_I32:
        memcpy(&i32, data + 4 * i, 4);
        return i32;
    case LC_U8:
    case LC_BOOL:
        return (unsigned char)data[i];
    case LC_DTYPE_DEFAULT:
        break;
    }
    return NAN;
}

static void measure(const lc_safetensor_info *info, const char *a, const char *b, size_t bytes, distance *out)
{
    size_t size = lc_dtype_size(info->type.dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        if (!memcmp(a + i * size, b + i * size, size)) continue;
        double x = value_at(info->type.dtype, a, (int64_t)i), y = value_at(info->type.dtype, b, (int64_t)i);
        double larger = fmax(fabs(x), fabs(y)), difference = x == y ? 0 : fabs(x - y);
        double rel = difference == 0 ? 0 : difference / larger;
        out->elements++;
        /* NaN on one side only counts as infinite. */
        if (isnan(difference)) difference = rel = INFINITY;
        if (isnan(rel)) rel = INFINITY;
        out->abs = fmax(out->abs, difference);
        out->rel = fmax(out->rel, rel);
    }
}

static lc_status compare_values(diff *d, lc_safetensors *const f[2], const int64_t at[2], distance *out)
{
    const lc_safetensor_info *info = lc_safetensors_info(f[0], at[0]);
    *out = (distance){.numbers = info->type.dtype != LC_DTYPE_DEFAULT};
    for (uint64_t done = 0; done < info->bytes;) {
        size_t n = info->bytes - done < BLOCK ? (size_t)(info->bytes - done) : BLOCK;
        for (int k = 0; k < 2; k++) LC_TRY(lc_safetensors_read_range(f[k], at[k], done, d->block[k], n));
        if (memcmp(d->block[0], d->block[1], n) != 0) {
            if (out->numbers)
                measure(info, d->block[0], d->block[1], n, out);
            else
                out->elements = 1;
        }
        done += n;
    }
    return LC_OK;
}

/* ---- reporting ---- */

static lc_status report_only(diff *d, int part, const char *name, int where)
{
    lc_state *o;
    d->differences++;
    if (!d->tensors) {
        printf("%s  %s: only in %s\n", ckpt_part_name(part), SHOWN(name), SHOWN(d->path[where]));
        return LC_OK;
    }
    LC_TRY(lc_state_set_object(d->tensors, NULL, &o));
    LC_TRY(lc_state_set_text(o, "name", name));
    LC_TRY(lc_state_set_text(o, "part", ckpt_part_name(part)));
    return lc_state_set_text(o, "only_in", d->path[where]);
}

static lc_status report_types(diff *d, int part, const lc_safetensor_info *const info[2])
{
    char shape[2][256], text[2][600];
    lc_state *o;
    d->differences++;
    for (int k = 0; k < 2; k++) {
        ckpt_shape_text(&info[k]->type, shape[k], sizeof shape[k]);
        snprintf(text[k], sizeof text[k], "%s %s", info[k]->dtype, shape[k]);
    }
    if (!d->tensors) {
        printf("%s  %s: %s | %s\n", ckpt_part_name(part), SHOWN(info[0]->name), SHOWN(text[0]), SHOWN(text[1]));
        return LC_OK;
    }
    LC_TRY(lc_state_set_object(d->tensors, NULL, &o));
    LC_TRY(lc_state_set_text(o, "name", info[0]->name));
    LC_TRY(lc_state_set_text(o, "part", ckpt_part_name(part)));
    LC_TRY(lc_state_set_text(o, "type_a", text[0]));
    return lc_state_set_text(o, "type_b", text[1]);
}

static lc_status report_values(diff *d, int part, const lc_safetensor_info *info, const distance *far)
{
    lc_state *o;
    d->differences++;
    if (!d->tensors && far->numbers)
        printf("%s  %s: %lld of %llu elements differ, by up to %.6g (relative %.3g)\n", ckpt_part_name(part),
               SHOWN(info->name), (long long)far->elements,
               (unsigned long long)(info->bytes / lc_dtype_size(info->type.dtype)), far->abs, far->rel);
    else if (!d->tensors)
        printf("%s  %s: the bytes differ (%s)\n", ckpt_part_name(part), SHOWN(info->name), SHOWN(info->dtype));
    if (!d->tensors) return LC_OK;
    LC_TRY(lc_state_set_object(d->tensors, NULL, &o));
    LC_TRY(lc_state_set_text(o, "name", info->name));
    LC_TRY(lc_state_set_text(o, "part", ckpt_part_name(part)));
    if (!far->numbers) return LC_OK;
    LC_TRY(lc_state_set_int(o, "elements_that_differ", far->elements));
    LC_TRY(lc_state_set_double(o, "max_abs", far->abs));
    return lc_state_set_double(o, "max_rel", far->rel);
}

/* ---- tensors ---- */

static lc_status compare_tensor(diff *d, int part, lc_safetensors *const f[2], int64_t i)
{
    const lc_safetensor_info *info[2] = {lc_safetensors_info(f[0], i), NULL};
    int64_t at[2] = {i, f[1] ? lc_safetensors_find(f[1], info[0]->name) : -1};
    distance far;
    if (at[1] < 0) return report_only(d, part, info[0]->name, 0);
    info[1] = lc_safetensors_info(f[1], at[1]);
    bool same = !strcmp(info[0]->dtype, info[1]->dtype) && info[0]->type.ndim == info[1]->type.ndim;
    for (int k = 0; same && k < info[0]->type.ndim; k++) same = info[0]->type.shape[k] == info[1]->type.shape[k];
    if (!same) return report_types(d, part, info);
    LC_TRY(compare_values(d, f, at, &far));
    d->compared++;
    return far.elements ? report_values(d, part, info[0], &far) : LC_OK;
}

static lc_status compare_part(diff *d, int part)
{
    lc_safetensors *f[2];
    for (int k = 0; k < 2; k++) f[k] = lc_checkpoint_tensors(d->c[k], (lc_ckpt_kind)part);
    for (int64_t i = 0; f[0] && i < lc_safetensors_count(f[0]); i++) LC_TRY(compare_tensor(d, part, f, i));
    for (int64_t i = 0; f[1] && i < lc_safetensors_count(f[1]); i++) {
        const char *name = lc_safetensors_info(f[1], i)->name;
        if (!f[0] || lc_safetensors_find(f[0], name) < 0) LC_TRY(report_only(d, part, name, 1));
    }
    return LC_OK;
}

/* ---- state.json ---- */

static lc_status report_state(diff *d, const char *where, const lc_state *const values[2])
{
    char *text[2];
    lc_state *o;
    lc_status status = LC_OK;
    d->differences++;
    for (int k = 0; k < 2; k++) text[k] = values[k] ? ckpt_value_text(values[k]) : strdup("(nothing)");
    if (!text[0] || !text[1]) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: values of state.json");
    } else if (!d->state) {
        printf("state.json  %s: %s | %s\n", SHOWN(where), text[0], text[1]);
    } else {
        LC_TRY_GOTO(status, done, lc_state_set_object(d->state, NULL, &o));
        LC_TRY_GOTO(status, done, lc_state_set_text(o, "key", where));
        for (int k = 0; k < 2; k++)
            if (values[k]) LC_TRY_GOTO(status, done, lc_state_set_text(o, k ? "b" : "a", text[k]));
    }
done:
    free(text[0]);
    free(text[1]);
    return status;
}

static lc_status compare_state(diff *d, const char *where, const lc_state *a, const lc_state *b)
{
    const lc_state *both[2] = {a, b};
    lc_state_kind kind = lc_state_kind_of(a);
    char *text[2], inner[PATH];
    if (kind != lc_state_kind_of(b)) return report_state(d, where, both);
    bool object = kind == LC_STATE_OBJECT;
    if (!object && kind != LC_STATE_ARRAY) {
        for (int k = 0; k < 2; k++) text[k] = ckpt_value_text(both[k]);
        bool same = text[0] && text[1] && !strcmp(text[0], text[1]);
        free(text[0]);
        free(text[1]);
        return same ? LC_OK : report_state(d, where, both);
    }
    /* Members of the first, then those only in the second. */
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < lc_state_length(both[k]); i++) {
            const char *key = lc_state_key_at(both[k], i);
            const lc_state *mine = lc_state_at(both[k], i);
            const lc_state *other = object ? lc_state_find(both[1 - k], key) : lc_state_at(both[1 - k], i);
            if (k && other) continue;
            if (object)
                snprintf(inner, sizeof inner, "%s%s%s", where, *where ? "." : "", key);
            else
                snprintf(inner, sizeof inner, "%s[%lld]", where, (long long)i);
            const lc_state *pair[2] = {k ? NULL : mine, k ? mine : NULL};
            LC_TRY(other ? compare_state(d, inner, mine, other) : report_state(d, inner, pair));
        }
    return LC_OK;
}

/* ---- the command ---- */

static lc_status run(diff *d, bool only_tensors)
{
    for (int k = 0; k < 2; k++) {
        LC_TRY(lc_checkpoint_open(d->path[k], &d->c[k]));
        d->block[k] = malloc(BLOCK);
        if (!d->block[k]) return lc_fail(LC_ERR_MEMORY, "out of memory: a block of a tensor");
    }
    for (int part = 0; part < LC_CKPT_KINDS; part++) LC_TRY(compare_part(d, part));
    if (only_tensors) return LC_OK;
    return compare_state(d, "", lc_checkpoint_state(d->c[0]), lc_checkpoint_state(d->c[1]));
}

int ckpt_diff(const char *a, const char *b, bool only_tensors, bool json)
{
    diff d = {.path = {a, b}};
    lc_state *root = NULL;
    lc_status status = LC_OK;
    if (json) {
        LC_TRY_GOTO(status, done, lc_state_new(&root));
        LC_TRY_GOTO(status, done, lc_state_set_text(root, "a", a));
        LC_TRY_GOTO(status, done, lc_state_set_text(root, "b", b));
        LC_TRY_GOTO(status, done, lc_state_set_array(root, "tensors", &d.tensors));
        LC_TRY_GOTO(status, done, lc_state_set_array(root, "state", &d.state));
    }
    LC_TRY_GOTO(status, done, run(&d, only_tensors));
    if (json) {
        LC_TRY_GOTO(status, done, lc_state_set_int(root, "tensors_compared", d.compared));
        LC_TRY_GOTO(status, done, lc_state_set_int(root, "differences", d.differences));
        status = ckpt_print_tree(root);
        root = NULL;
    } else if (!d.differences) {
        printf("%lld tensors%s are bit-identical\n", (long long)d.compared,
               only_tensors ? "" : " and all of state.json");
    } else {
        printf("%lld difference%s in %lld tensor%s\n", (long long)d.differences, d.differences == 1 ? "" : "s",
               (long long)d.compared, d.compared == 1 ? "" : "s");
    }
    if (status >= 0) status = lc_stdout_flush(); /* here, since exit status 1 means that they differ */
done:
    if (status < 0) fprintf(stderr, "error: %s\n", lc_error_message());
    lc_state_free(root);
    for (int k = 0; k < 2; k++) {
        lc_checkpoint_close(d.c[k]);
        free(d.block[k]);
    }
    return status < 0 ? 2 : d.differences > 0;
}

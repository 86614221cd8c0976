/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of ops.json. Pass: |got - ref| <= tol max(1, max|ref|). What a precision of 16 bits rounds may differ
 * by more: by what docs/precision.md allows, and by what rounding the operands changes in f64. */
#include "op_case.h"

#include "base/number.h"
#include "rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct recorded {
    lc_safetensors *file;
    const cJSON *json;
    const char *name;
    op_fn *op;
} recorded;

/* ---- numbers ---- */

typedef struct numbers {
    double *x; /* NULL: none */
    int64_t n;
} numbers;

static lc_status numbers_new(int64_t n, numbers *out)
{
    *out = (numbers){calloc((size_t)n + 1, sizeof *out->x), n};
    return out->x ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory");
}

/* `part` of the recording, and its type. */
static lc_status read_recorded(const recorded *c, const char *part, const lc_type **type, numbers *out)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", c->name, part);
    int64_t i = lc_safetensors_find(c->file, full);
    if (i < 0) return lc_fail(LC_ERR_NOT_FOUND, "%s is not in the recording", part);
    const lc_safetensor_info *info = lc_safetensors_info(c->file, i);
    *type = &info->type;
    size_t bytes = (size_t)info->bytes, size = lc_dtype_size(info->type.dtype);
    LC_TRY(numbers_new((int64_t)(bytes / size), out));
    char *raw = malloc(bytes + 1);
    lc_status status = raw ? lc_safetensors_read(c->file, i, raw, bytes) : lc_fail(LC_ERR_MEMORY, "out of memory");
    for (int64_t k = 0; status == LC_OK && k < out->n; k++)
        out->x[k] = lc__load_number(raw + (size_t)k * size, info->type.dtype);
    free(raw);
    return status;
}

static lc_status read_tensor(lc_tensor *t, numbers *out)
{
    size_t size = lc_dtype_size(lc_tensor_dtype(t));
    LC_TRY(numbers_new(lc_tensor_numel(t), out));
    char *raw = malloc((size_t)out->n * size + 1);
    lc_status status = raw ? lc_tensor_read(t, raw, (size_t)out->n * size) : lc_fail(LC_ERR_MEMORY, "out of memory");
    for (int64_t k = 0; status == LC_OK && k < out->n; k++)
        out->x[k] = lc__load_number(raw + (size_t)k * size, lc_tensor_dtype(t));
    free(raw);
    return status;
}

/* ---- running a case ---- */

enum { RESULT, RESULT_1, RESULT_2, GRADIENT, PARTS = GRADIENT + MAX_INPUTS };

/* What the recording calls a result, or the gradient of an operand. */
static const char *part_name(const op_case *c, int part, char room[128])
{
    if (part < GRADIENT)
        snprintf(room, 128, "out%d", part);
    else
        snprintf(room, 128, "grad.%s", c->names[part - GRADIENT]);
    return room;
}

/* With which numbers, and in what, a case runs. */
typedef struct how {
    const lc_graph_args *graph;
    lc_dtype dtype;   /* of the operands */
    lc_dtype rounded; /* to which they are rounded before */
    enum { AS_RECORDED, ABSOLUTE, ONES } values;
    bool fed; /* operands come from a product, so that in mixed precision they are low */
} how;

static lc_status load(const recorded *c, const how *h, const char *part, lc_tensor **out)
{
    const lc_type *type;
    numbers v = {0};
    char *raw = NULL;
    lc_status status;
    LC_TRY_GOTO(status, done, read_recorded(c, part, &type, &v));
    bool is_float = lc_dtype_is_float(type->dtype);
    lc_dtype dtype = is_float ? h->dtype : type->dtype;
    size_t size = lc_dtype_size(dtype);
    if (!(raw = malloc((size_t)v.n * size + 1))) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory"));
    for (int64_t k = 0; k < v.n; k++) {
        double x = is_float ? check_rounded(h->rounded, v.x[k]) : v.x[k];
        if (is_float && h->values) x = h->values == ONES ? 1 : fabs(x);
        lc__store_number(raw + (size_t)k * size, dtype, x);
    }
    /* Images are channels-last in lightc, as from a loader. */
    lc_layout layout = type->ndim == 4 ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
    LC_TRY_GOTO(status, done, lc_tensor_new_layout(dtype, type->ndim, type->shape, layout, out));
    status = lc_tensor_write(*out, raw, (size_t)v.n * size);
done:
    free(raw);
    free(v.x);
    return status;
}

/* The same numbers, as the result of a product. */
static lc_tensor *feed(lc_tensor *x)
{
    const lc_type *type = lc_tensor_type(x);
    lc_tensor *one = lc_ones(type->dtype, 1, 1);
    return lc_reshape_at(lc_matmul(lc_reshape(x, -1, 1), one), type->ndim, type->shape, LC_HERE);
}

static bool wanted(const cJSON *list, const char *name)
{
    const cJSON *e;
    cJSON_ArrayForEach(e, list) if (cJSON_IsString(e) && !strcmp(e->valuestring, name)) return true;
    return false;
}

/* The shape of the recording; a gradient that is NULL is zeros. */
static lc_status check_shape(const lc_type *want, lc_tensor *t, const char *part)
{
    bool same = !t || lc_tensor_ndim(t) == want->ndim;
    for (int d = 0; t && same && d < want->ndim; d++) same = lc_tensor_shape(t)[d] == want->shape[d];
    return same ? LC_OK : lc_fail(LC_ERR_SHAPE, "%s has another shape", part);
}

/* The step: `c` has the operands, and gets more; `parts` gets all that the recording has. */
static lc_status run_step(const recorded *r, const how *h, lc_graph *g, op_case *c, lc_tensor *cotangent,
                          numbers *parts)
{
    lc_tensor *operands[MAX_INPUTS], *tensors[PARTS] = {NULL};
    memcpy(operands, c->tensors, sizeof operands);
    for (int i = 0; i < c->n; i++)
        if (h->fed && lc_dtype_is_float(lc_tensor_dtype(operands[i])) && strncmp(c->names[i], "running_", 8) != 0)
            c->tensors[i] = feed(operands[i]);
    tensors[RESULT] = lc_keep(r->op(c));
    memcpy(c->tensors, operands, sizeof operands);
    if (cotangent) {
        lc_zero_grad(g);
        lc_backward(lc_sum(lc_mul(tensors[RESULT], cotangent)));
        for (int i = 0; i < c->n; i++)
            if (lc_tensor_requires_grad(operands[i]) && (tensors[GRADIENT + i] = lc_gradient(operands[i])))
                lc_keep(tensors[GRADIENT + i]);
    }
    LC_TRY(lc_step_run(g));
    LC_TRY(lc_step_status(g));
    memcpy(&tensors[RESULT_1], c->more, sizeof c->more);
    int results = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(r->json, "out"));
    for (int part = 0; part < GRADIENT + c->n; part++) {
        const lc_type *type;
        numbers want = {0};
        char room[128];
        if (part < GRADIENT ? part >= results : !lc_tensor_requires_grad(operands[part - GRADIENT])) continue;
        const char *name = part_name(c, part, room);
        lc_status status = read_recorded(r, name, &type, &want);
        free(want.x);
        LC_TRY(status);
        LC_TRY(check_shape(type, tensors[part], name));
        LC_TRY(tensors[part] ? read_tensor(tensors[part], &parts[part]) : numbers_new(want.n, &parts[part]));
    }
    return LC_OK;
}

static void free_parts(numbers *parts)
{
    for (int i = 0; i < PARTS; i++) free(parts[i].x);
    memset(parts, 0, PARTS * sizeof *parts);
}

static lc_status run_case(const recorded *r, const how *h, op_case *c, numbers *parts)
{
    lc_graph *g = NULL;
    lc_tensor *cotangent = NULL;
    char part[128];
    lc_status status;
    const cJSON *wrt = cJSON_GetObjectItemCaseSensitive(r->json, "wrt"), *e;
    *c = (op_case){.name = r->name, .attrs = cJSON_GetObjectItemCaseSensitive(r->json, "attrs")};
    memset(parts, 0, PARTS * sizeof *parts);
    LC_TRY_GOTO(status, done, lc_graph_new_with(&g, h->graph));
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(r->json, "in"))
    {
        if (c->n == MAX_INPUTS) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_UNSUPPORTED, "too many operands"));
        c->names[c->n] = e->valuestring;
        snprintf(part, sizeof part, "in.%s", e->valuestring);
        LC_TRY_GOTO(status, done, load(r, h, part, &c->tensors[c->n]));
        lc_tensor_set_requires_grad(c->tensors[c->n++], wanted(wrt, e->valuestring));
    }
    if (cJSON_GetArraySize(wrt) > 0) LC_TRY_GOTO(status, done, load(r, h, "cotangent", &cotangent));
    LC_TRY_GOTO(status, done, lc_step_begin(g, 0, 0));
    status = run_step(r, h, g, c, cotangent, parts);
    lc_status ended = lc_step_end(g);
    if (status == LC_OK) status = ended;
done:
    lc_graph_free(g);
    for (int i = 0; i < c->n; i++) lc_tensor_unref(c->tensors[i]);
    lc_tensor_unref(cotangent);
    if (status < 0) free_parts(parts);
    return status;
}

/* ---- comparing ---- */

/* Operators that round their operands in mixed precision: the products of recurrent networks do, too. And those that
 * add up products. */
static const char *const low_ops[] = {"matmul", "linear",           "bmm_nt", "conv1d", "conv2d",
                                      "conv3d", "conv_transpose2d", "sdpa",   "lstm",   "gru"};
static const char *const sums[] = {"matmul", "linear",           "bmm_nt", "conv1d", "conv2d",
                                   "conv3d", "conv_transpose2d", "sum",    "cumsum"};

static bool is_in(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}
#define IS_IN(list, name) is_in(list, sizeof list / sizeof *list, name)

/* What the allowed errors of a case in 16 bits are computed from: it in f64, with operands that are rounded, absolute,
 * or 1, of which sums are their lengths. */
typedef struct exact {
    numbers rounded[PARTS], absolute[PARTS], lengths[PARTS];
} exact;

/* The allowed error of one number. u: of the type; largest: of the tensor's numbers, or 1. */
static double allowed(const exact *x, bool is_sum, int part, int64_t k, double want, double largest, double u, bool fed)
{
    if (!is_sum) return fabs(x->rounded[part].x[k] - want) + (part < GRADIENT ? RESULTS : GRADIENTS) * u * largest;
    /* Both operands are rounded. A gradient that no operator reads is not. */
    double absolute = x->absolute[part].x[k], rounded = (2 * u + u * u) * absolute;
    return rounded +
           sum_error(fabs(want) + rounded, x->lengths[part].x[k], absolute + rounded, part < GRADIENT || fed ? u : 0);
}

/* x: NULL if nothing is rounded to 16 bits. */
static lc_status compare_part(const recorded *r, const op_case *c, int part, const numbers *got, const exact *x,
                              double tol, lc_dtype low, bool fed)
{
    const lc_type *type;
    numbers want = {0};
    char room[128];
    lc_status status;
    bool is_sum = IS_IN(sums, json_text(r->json, "op", "?"));
    LC_TRY_GOTO(status, done, read_recorded(r, part_name(c, part, room), &type, &want));
    double largest = 1;
    for (int64_t k = 0; k < want.n; k++) largest = fmax(largest, isfinite(want.x[k]) ? fabs(want.x[k]) : 0);
    for (int64_t k = 0; k < want.n; k++) {
        double w = want.x[k], g = got->x[k], most = tol * largest;
        if (x) most += allowed(x, is_sum, part, k, w, largest, roundoff(low), fed);
        if (fabs(g - w) <= most || g == w || (g != g && w != w)) continue;
        status = lc_fail(LC_ERR_NUMERIC, "%s%s, element %lld: got %.9g, wanted %.9g, off by %.2g of %.2g", room,
                         fed ? " of low operands" : "", (long long)k, g, w, fabs(g - w), most);
        goto done;
    }
done:
    free(want.x);
    return status;
}

static lc_status compute_exact(const recorded *r, lc_dtype low, exact *x)
{
    op_case c;
    const lc_graph_args args = lc_graph_defaults();
    LC_TRY(run_case(r, &(how){&args, LC_F64, .rounded = low}, &c, x->rounded));
    if (!IS_IN(sums, json_text(r->json, "op", "?"))) return LC_OK;
    LC_TRY(run_case(r, &(how){&args, LC_F64, .rounded = LC_F32, .values = ABSOLUTE}, &c, x->absolute));
    return run_case(r, &(how){&args, LC_F64, .rounded = LC_F32, .values = ONES}, &c, x->lengths);
}

static lc_status check_case(const recorded *r, const check_precision *p, bool fed)
{
    op_case c;
    numbers got[PARTS] = {{0}};
    exact x = {.rounded = {{0}}};
    lc_dtype low = check_low_type(p);
    bool rounds = low && (p->graph.storage || fed || IS_IN(low_ops, json_text(r->json, "op", "?")));
    lc_status status;
    LC_TRY_GOTO(status, done, run_case(r, &(how){&p->graph, LC_F32, .rounded = LC_F32, .fed = fed}, &c, got));
    if (rounds) LC_TRY_GOTO(status, done, compute_exact(r, low, &x));
    for (int part = 0; part < PARTS; part++)
        if (got[part].x)
            LC_TRY_GOTO(
                status, done,
                compare_part(r, &c, part, &got[part], rounds ? &x : NULL, json_number(r->json, "tol", 2e-6), low, fed));
done:
    free_parts(got);
    free_parts(x.rounded), free_parts(x.absolute), free_parts(x.lengths);
    return status;
}

void check_ops(const char *dir, const cJSON *cases, check_result *r)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ops.safetensors", dir);
    lc_safetensors *f = NULL;
    check_precision p;
    lc_status status = check_precision_begin(r->precision, &p);
    if (status == LC_OK) status = lc_safetensors_open(path, &f);
    if (status < 0) check_fail(r, "ops", "ops.safetensors", "%s", lc_error_message());
    const cJSON *json;
    for (json = status < 0 ? NULL : cases->child; json; json = json->next) {
        const char *op = json_text(json, "op", "?");
        recorded c = {f, json, json_text(json, "name", "?"), op_named(op)};
        status = c.op ? check_case(&c, &p, false) : lc_fail(LC_ERR_UNSUPPORTED, "unknown operator \"%s\"", op);
        if (status == LC_OK && p.graph.autocast) status = check_case(&c, &p, true);
        if (status == LC_OK)
            check_pass(r);
        else
            check_fail(r, "ops", c.name, "%s", lc_error_message());
    }
    lc_safetensors_close(f);
    check_precision_end(&p);
}

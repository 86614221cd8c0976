/* SPDX-License-Identifier: Apache-2.0 */
/* Loads weights whose names, data types and shapes may come from another program (weights.h). All names are matched and
 * checked first, then the tensors are read one after the other. */
#include "base/args.h"
#include "base/status.h"
#include "base/grow.h"
#include "base/handle.h"
#include "base/io.h"
#include "base/str.h"
#include "base/pattern.h"
#include "core/options/hyperparameters.h"
#include "module/module_class.h"
#include "core/resume/run_state.h"
#include "tensor/initial.h"
#include "base/number.h"
#include "tensor/tensor_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SHOWN = 5 }; /* most names of each kind in a message */

typedef struct load {
    lc_module *m;
    lc_safetensors *f;
    const char *options; /* what messages put in front of the names of arguments: "weights_" for options */
    lc_load_args o;
    lc_load_result r;
    lc__tensor_list model;
    const lc_named_tensor **sorted; /* tensors of the model, by name */
    int64_t *from;                  /* for each tensor of the model, its index in the file; -1: none */
    bool *transposed;               /* for each tensor of the model */
    bool bad_dtype;                 /* some mismatch is of the data type */
} load;

/* ---- lists of names ---- */

static lc_status add_name(char ***list, int64_t *n, const char *name)
{
    char *copy;
    LC_TRY(lc__grow_one(list, *n, "names of weights"));
    LC_TRY(lc__copy_text(name, &copy));
    (*list)[(*n)++] = copy;
    return LC_OK;
}

static void free_names(char **list, int64_t n)
{
    for (int64_t i = 0; i < n; i++) free(list[i]);
    free(list);
}

void lc_load_result_release(lc_load_result *r)
{
    if (!r) return;
    size_t size = r->size;
    lc_load_result all = {0};
    memcpy(&all, r, size < sizeof all ? size : sizeof all);
    free(all.message);
    free_names(all.missing, all.n_missing);
    free_names(all.unexpected, all.n_unexpected);
    free_names(all.mismatched, all.n_mismatched);
    free_names(all.skipped, all.n_skipped);
    all = (lc_load_result){.size = size};
    memcpy(r, &all, size < sizeof all ? size : sizeof all);
}

/* ---- names ---- */

static bool any_fits(const char *const *patterns, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (lc__pattern_fits(patterns[i], name)) return true;
    return false;
}

/* The module's name for a tensor of the file. */
static lc_status module_name(const load *l, const char *name, char **out)
{
    const lc_load_args *o = &l->o;
    char *renamed = NULL;
    lc__str text = {0};
    size_t strip = o->strip_prefix ? strlen(o->strip_prefix) : 0;
    if (strip && !strncmp(name, o->strip_prefix, strip)) name += strip;
    for (int64_t i = 0; i < o->n_rename && !renamed; i++)
        if (lc__pattern_fits(o->rename[i].key, name))
            LC_TRY(lc__pattern_replace(o->rename[i].key, name, o->rename[i].value, &renamed));
    lc__str_add(&text, "%s%s", o->add_prefix ? o->add_prefix : "", renamed ? renamed : name);
    free(renamed);
    if (text.failed) {
        lc__str_free(&text);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a name of a weight");
    }
    *out = text.s;
    return LC_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const lc_named_tensor *const *)a)->name, (*(const lc_named_tensor *const *)b)->name);
}

/* The index of a tensor of the model; -1: none. */
static int64_t find(const load *l, const char *name)
{
    const lc_named_tensor wanted = {.name = name}, *key = &wanted;
    const lc_named_tensor *const *found = NULL;
    if (l->model.n) found = bsearch(&key, l->sorted, (size_t)l->model.n, sizeof key, by_name);
    return found ? *found - l->model.v : -1;
}

/* ---- types ---- */

static bool converts(lc_dtype from, lc_dtype to)
{
    bool whole = (from == LC_I32 || from == LC_I64) && (to == LC_I32 || to == LC_I64);
    return from == to || whole || (lc_dtype_is_float(from) && lc_dtype_is_float(to));
}

static bool same_shape(const lc_type *file, const lc_type *model, bool transposed)
{
    int n = model->ndim;
    if (file->ndim != n || (transposed && n < 2)) return false;
    for (int d = 0; d < n; d++) {
        int other = !transposed || d < n - 2 ? d : d == n - 1 ? n - 2 : n - 1;
        if (file->shape[other] != model->shape[d]) return false;
    }
    return true;
}

static lc_status compare(load *l, int64_t k, int64_t i)
{
    const lc_safetensor_info *info = lc_safetensors_info(l->f, i);
    const lc_type *model = lc_tensor_type(l->model.v[k].tensor);
    bool dtype = info->type.dtype && converts(info->type.dtype, model->dtype);
    if (dtype && same_shape(&info->type, model, l->transposed[k])) return LC_OK;
    char a[128], b[128];
    lc__str text = {0};
    if (dtype)
        lc__str_add(&text, "%s: %s in the file%s, %s in the module", l->model.v[k].name,
                    lc__shape_text(&info->type, a, sizeof a), l->transposed[k] ? ", to be transposed" : "",
                    lc__shape_text(model, b, sizeof b));
    else
        lc__str_add(&text, "%s: %s in the file, %s in the module; there is no conversion", l->model.v[k].name,
                    info->dtype, lc_dtype_name(model->dtype));
    lc_status s = text.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: names of weights")
                              : add_name(&l->r.mismatched, &l->r.n_mismatched, text.s);
    lc__str_free(&text);
    l->from[k] = -1;
    l->bad_dtype |= !dtype;
    return s;
}

/* ---- matching ---- */

/* Files that PyTorch wrote before 0.4.1 lack the counters of batch norm, which then stay as they are. */
static bool may_be_missing(const char *name)
{
    static const char counter[] = "num_batches_tracked";
    const char *dot = strrchr(name, '.');
    return !strcmp(dot ? dot + 1 : name, counter);
}

/* The tensor of the model with this further name (lc_module_share_parameter); -1: none. */
static int64_t find_shared(const load *l, const char *name)
{
    const lc_tensor *t = lc_module_find(l->m, name);
    int64_t k = t ? 0 : l->model.n;
    while (k < l->model.n && l->model.v[k].tensor != t) k++;
    return k < l->model.n ? k : -1;
}

static lc_status same_bytes(const load *l, int64_t i, int64_t j, bool *same)
{
    enum { PART = 4096 };
    char a[PART], b[PART];
    const lc_safetensor_info *x = lc_safetensors_info(l->f, i), *y = lc_safetensors_info(l->f, j);
    *same = !strcmp(x->dtype, y->dtype) && lc__type_equal(&x->type, &y->type);
    for (uint64_t at = 0; *same && at < x->bytes; at += PART) {
        size_t n = x->bytes - at < PART ? (size_t)(x->bytes - at) : PART;
        LC_TRY(lc_safetensors_read_range(l->f, i, at, a, n));
        LC_TRY(lc_safetensors_read_range(l->f, j, at, b, n));
        *same = !memcmp(a, b, n);
    }
    return LC_OK;
}

/* Tensor i of the file has the module's name `here`, that of tensor k (-1: of none). */
static lc_status take(load *l, int64_t i, int64_t k, const char *here)
{
    const char *name = lc_safetensors_info(l->f, i)->name;
    if (k < 0) return add_name(&l->r.unexpected, &l->r.n_unexpected, name);
    if (l->from[k] >= 0)
        return lc_fail(LC_ERR_ARGUMENT, "\"%s\" and \"%s\" of %s both become \"%s\"",
                       lc_safetensors_info(l->f, l->from[k])->name, name, lc_safetensors_path(l->f), here);
    l->from[k] = i;
    return LC_OK;
}

/* The same with a further name of tensor k, under which the file has it again, or only under this one. */
static lc_status take_shared(load *l, int64_t i, int64_t k)
{
    bool same = true;
    if (l->from[k] >= 0) LC_TRY(same_bytes(l, l->from[k], i, &same));
    if (!same)
        return lc_fail(LC_ERR_ARGUMENT,
                       "\"%s\" and \"%s\" are one parameter of this module, but differ in %s; leave one out (%sskip)",
                       lc_safetensors_info(l->f, l->from[k])->name, lc_safetensors_info(l->f, i)->name,
                       lc_safetensors_path(l->f), l->options);
    if (l->from[k] < 0) l->from[k] = i;
    return LC_OK;
}

static lc_status match_one(load *l, int64_t i, bool shared)
{
    char *here = NULL;
    LC_TRY(module_name(l, lc_safetensors_info(l->f, i)->name, &here));
    int64_t k = find(l, here), further = k < 0 ? find_shared(l, here) : -1;
    lc_status s = LC_OK;
    if ((further >= 0) == shared && !any_fits(l->o.skip, l->o.n_skip, here))
        s = shared ? take_shared(l, i, further) : take(l, i, k, here);
    free(here);
    return s;
}

static lc_status match(load *l)
{
    LC_TRY(lc__list_model(&l->model, l->m));
    size_t n = (size_t)l->model.n;
    l->from = malloc((n + 1) * sizeof *l->from);
    l->transposed = calloc(n + 1, sizeof *l->transposed);
    l->sorted = malloc((n + 1) * sizeof *l->sorted);
    if (!l->from || !l->transposed || !l->sorted) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu weights", n);
    for (size_t k = 0; k < n; k++) {
        l->from[k] = -1;
        l->sorted[k] = &l->model.v[k];
        l->transposed[k] = any_fits(l->o.transpose, l->o.n_transpose, l->model.v[k].name);
    }
    if (n) qsort(l->sorted, n, sizeof *l->sorted, by_name);
    for (int shared = 0; shared < 2; shared++) /* first names first */
        for (int64_t i = 0; i < lc_safetensors_count(l->f); i++) LC_TRY(match_one(l, i, shared));
    for (size_t k = 0; k < n; k++) {
        int64_t i = l->from[k];
        const char *name = l->model.v[k].name;
        if (i >= 0)
            LC_TRY(compare(l, (int64_t)k, i));
        else if (any_fits(l->o.skip, l->o.n_skip, name))
            LC_TRY(add_name(&l->r.skipped, &l->r.n_skipped, name));
        else if (!may_be_missing(name))
            LC_TRY(add_name(&l->r.missing, &l->r.n_missing, name));
    }
    return LC_OK;
}

/* ---- messages ---- */

static void add_list(lc__str *text, const char *what, char *const *list, int64_t n)
{
    if (!n) return;
    lc__str_add(text, "%s%s: ", text->n ? "; " : "", what);
    for (int64_t i = 0; i < n && i < SHOWN; i++) lc__str_add(text, "%s%s", i ? ", " : "", list[i]);
    if (n > SHOWN) lc__str_add(text, " and %lld more", (long long)(n - SHOWN));
}

/* Suggests a prefix that the names of the file have and the module's lack, or the reverse. False: there is none. */
static bool add_prefix_advice(const load *l, lc__str *text)
{
    for (int64_t i = 0; i < l->r.n_unexpected; i++)
        for (int64_t k = 0; k < l->r.n_missing; k++) {
            const char *file = l->r.unexpected[i], *here = l->r.missing[k];
            size_t a = strlen(file), b = strlen(here);
            if (a > b && file[a - b - 1] == '.' && !strcmp(file + a - b, here)) {
                lc__str_add(text, "; %sstrip_prefix \"%.*s\" may help", l->options, (int)(a - b), file);
                return true;
            }
            if (b > a && here[b - a - 1] == '.' && !strcmp(here + b - a, file)) {
                lc__str_add(text, "; %sadd_prefix \"%.*s\" may help", l->options, (int)(b - a), here);
                return true;
            }
        }
    return false;
}

/* How to load the rest. */
static void add_advice(const load *l, lc__str *text)
{
    const lc_load_result *r = &l->r;
    bool option = *l->options != 0;
    if (!add_prefix_advice(l, text) && !l->o.not_strict && (r->n_missing || r->n_unexpected))
        lc__str_add(text, "; %s loads those that both have", option ? "weights_strict off" : "not_strict");
    if (r->n_mismatched && !l->bad_dtype && !l->o.skip_mismatched)
        lc__str_add(text, "; %sskip_mismatched leaves out those of another shape", l->options);
}

static lc_status describe(load *l)
{
    lc__str text = {0};
    lc_load_result *r = &l->r;
    add_list(&text, "missing in the file", r->missing, r->n_missing);
    add_list(&text, "not in the module", r->unexpected, r->n_unexpected);
    add_list(&text, l->bad_dtype ? "of another type" : "of another shape", r->mismatched, r->n_mismatched);
    if (text.n) add_advice(l, &text);
    if (text.failed) {
        lc__str_free(&text);
        return lc_fail(LC_ERR_MEMORY, "out of memory: names of weights");
    }
    r->message = text.s;
    return LC_OK;
}

static lc_status judge(const load *l)
{
    const lc_load_result *r = &l->r;
    int64_t found = 0;
    for (int64_t k = 0; k < l->model.n; k++) found += l->from[k] >= 0;
    lc_status s = LC_OK;
    if (r->n_mismatched && !l->o.skip_mismatched) s = l->bad_dtype ? LC_ERR_DTYPE : LC_ERR_SHAPE;
    if (!l->o.not_strict && (r->n_missing || r->n_unexpected)) s = LC_ERR_NOT_FOUND;
    if (s < 0)
        return lc_fail(s, "the weights in %s do not match this model: %s", lc_safetensors_path(l->f), r->message);
    if (found || !l->model.n) return LC_OK;
    return lc_fail(LC_ERR_NOT_FOUND, "none of the %lld tensors of this model is in %s%s%s", (long long)l->model.n,
                   lc_safetensors_path(l->f), r->message ? ": " : "", r->message ? r->message : "");
}

/* ---- values ---- */

static void convert_one(void *to, lc_dtype dtype, const void *from, lc_dtype other)
{
    if (lc_dtype_is_float(dtype))
        lc__store_number(to, dtype, lc__load_number(from, other));
    else
        lc__store_integer(to, dtype, lc__load_integer(from, other));
}

/* Converts a row-major tensor to the module's type; `transposed` exchanges the last two dimensions. */
static void convert(const lc_type *model, lc_dtype other, bool transposed, const char *from, char *to)
{
    size_t a = lc_dtype_size(other), b = lc_dtype_size(model->dtype);
    int64_t n = lc__numel(model), rows = 1, columns = n;
    if (transposed) {
        rows = model->shape[model->ndim - 2];
        columns = model->shape[model->ndim - 1];
    }
    int64_t matrix = rows * columns;
    for (int64_t at = 0; at < n; at += matrix)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                int64_t source = transposed ? j * rows + i : i * columns + j;
                convert_one(to + (size_t)(at + i * columns + j) * b, model->dtype, from + (size_t)(at + source) * a,
                            other);
            }
}

static lc_status read_one(load *l, int64_t k)
{
    const lc_safetensor_info *info = lc_safetensors_info(l->f, l->from[k]);
    lc_tensor *t = l->model.v[k].tensor;
    const lc_type *model = &t->type;
    size_t bytes = (size_t)lc__numel(model) * lc_dtype_size(model->dtype);
    bool converted = info->type.dtype != model->dtype;
    l->r.n_converted += converted;
    if (!converted && !l->transposed[k]) return lc_safetensors_load(l->f, info->name, t);
    char *from = malloc(info->bytes + 1), *to = malloc(bytes + 1);
    lc_status s = from && to ? lc_safetensors_read(l->f, l->from[k], from, info->bytes)
                             : lc_fail(LC_ERR_MEMORY, "out of memory: %s of %s, to convert it", info->name,
                                       lc_safetensors_path(l->f));
    if (s >= 0 && bytes) convert(model, info->type.dtype, l->transposed[k], from, to);
    if (s >= 0) lc__tensor_forget_initial(t);
    if (s >= 0) s = lc_tensor_write(t, to, bytes);
    free(from);
    free(to);
    return s;
}

/* lc_module_load_weights for an open file. */
static lc_status load_weights(lc_module *m, lc_safetensors *f, lc_load_result *result, const lc_load_args *how,
                              const char *options)
{
    if (result && !result->size) return lc_fail(LC_ERR_ARGUMENT, "begin with lc_load_result r = LC_LOAD_RESULT_INIT");
    load l = {.m = m, .f = f, .options = options, .o = *how, .r = LC_LOAD_RESULT_INIT};
    lc_status s = LC_OK;
    LC_TRY_GOTO(s, done, match(&l));
    LC_TRY_GOTO(s, done, describe(&l));
    LC_TRY_GOTO(s, done, judge(&l));
    for (int64_t k = 0; k < l.model.n; k++) {
        if (l.from[k] < 0) continue;
        LC_TRY_GOTO(s, done, read_one(&l, k));
        l.r.n_loaded++;
    }
done:
    if (result) {
        size_t size = result->size;
        l.r.size = size;
        memcpy(result, &l.r, size < sizeof l.r ? size : sizeof l.r);
    } else {
        lc_load_result_release(&l.r);
    }
    lc__list_free(&l.model);
    free(l.sorted);
    free(l.from);
    free(l.transposed);
    return s;
}

lc_status lc__load_weights(lc_module *m, const char *path, const char *options, const lc_load_args *how,
                           lc_load_result *result)
{
    lc_checkpoint *c = NULL;
    lc_safetensors *f = NULL;
    struct stat st;
    lc_status s = LC_OK;
    if (stat(path, &st) < 0) return lc__io_fail(errno, "read", path);
    if (S_ISREG(st.st_mode)) {
        LC_TRY(lc_safetensors_open(path, &f));
        s = load_weights(m, f, result, how, options);
        lc_safetensors_close(f);
        return s;
    }
    LC_TRY(lc_checkpoint_open(path, &c));
    f = lc_checkpoint_tensors(c, LC_CKPT_MODEL);
    s = f ? load_weights(m, f, result, how, options)
          : lc_fail(LC_ERR_FORMAT, "the checkpoint %s contains no model", lc_checkpoint_path(c));
    lc_checkpoint_close(c);
    return s;
}

lc_status lc_module_load_weights_with(lc_module *m, const char *path, lc_load_result *result, const lc_load_args *args)
{
    LC__TAKE_IF_GIVEN(how, lc_load, lc_load_args, args);
    if (!m || !path) return lc_fail(LC_ERR_ARGUMENT, "lc_module_load_weights needs a module and a path");
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("rename", how.n_rename, how.rename));
    for (int64_t i = 0; i < how.n_rename; i++)
        if (!how.rename[i].key || !how.rename[i].value)
            return lc_fail(LC_ERR_ARGUMENT, "lc_module_load_weights: rename[%lld] has a NULL", (long long)i);
    return lc__load_weights(m, path, "", &how, result);
}

lc_status lc_module_load_checkpoint(lc_module *m, const char *path, bool strict)
{
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    lc_load_args o = lc_load_defaults();
    o.not_strict = !strict;
    return lc_module_load_weights_with(m, path, NULL, &o);
}

lc_status lc_module_load_from_checkpoint(const lc_module_class *c, const char *checkpoint, bool strict, lc_module **out)
{
    lc_status status = LC_OK;
    lc_checkpoint *ckpt = NULL;
    void *storage = NULL, *values = NULL;
    lc_module *m = NULL;
    LC__NEEDS(checkpoint, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_TRY(lc__module_class_check(c));
    *out = NULL;
    values = calloc(1, c->values_size ? c->values_size : 1);
    if (!values) return lc_fail(LC_ERR_MEMORY, "out of memory: hyperparameters of a %s", c->name);
    if (c->defaults && c->values_size) memcpy(values, c->defaults, c->values_size);
    lc_option_set set = {"hyperparameters", c->fields, c->n_fields, values};
    LC_TRY_GOTO(status, done, lc_checkpoint_open(checkpoint, &ckpt));
    LC_TRY_GOTO(status, done, lc__hyperparameters_read(ckpt, &set, &storage));
    LC_TRY_GOTO(status, done, lc_module_new(c, values, 0, &m));
    lc_load_args how = lc_load_defaults();
    how.not_strict = !strict;
    LC_TRY_GOTO(status, done, load_weights(m, lc_checkpoint_tensors(ckpt, LC_CKPT_MODEL), NULL, &how, ""));
    m->hyperparameters->storage = storage;
    *out = m;
    m = NULL;
    storage = NULL;
done:
    lc_module_free(m);
    lc_options_free(storage);
    lc_checkpoint_close(ckpt);
    free(values);
    return status;
}

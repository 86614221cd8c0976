/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of modules: registration, paths, initial values, visiting (include/lightc/module.h).
 *
 * Names may contain dots ("blocks.3"): so arrays of layers get the same paths as in PyTorch's ModuleList. */
#include <lightc/module.h>
#include <lightc/random.h>

#include "base/grow.h"
#include "base/handle.h"
#include "module/register.h"
#include "record/graph_impl.h"
#include "tensor/initial.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths ---- */

lc_module *lc_module_root(lc_module *m)
{
    LC__IS(m, MODULE, NULL);
    while (m->parent) m = m->parent;
    return m;
}

/* Returns the length of m's path; writes it in front of `end` if that is not NULL. */
static size_t path_put(const lc_module *m, char *end)
{
    size_t total = 0;
    for (; m && m->parent; m = m->parent) {
        size_t n = m->name ? strlen(m->name) : 0;
        if (total) {
            total++;
            if (end) *(end - total) = '.';
        }
        total += n;
        if (end && n) memcpy(end - total, m->name, n);
    }
    return total;
}

/* The path of m (or of the tensor `name` in it) from the root, allocated; NULL if out of memory. "" for the root. */
static char *path_of(const lc_module *m, const char *name)
{
    size_t n = path_put(m, NULL), extra = name ? strlen(name) : 0, dot = n && extra;
    char *path = malloc(n + dot + extra + 1);
    if (!path) return NULL;
    path_put(m, path + n);
    if (dot) path[n] = '.';
    if (extra) memcpy(path + n + dot, name, extra);
    path[n + dot + extra] = '\0';
    return path;
}

/* ---- errors ---- */

lc_status lc_module_fail(lc_module *m, lc_status status, const char *format, ...)
{
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    LC__NEEDS(format, LC_ERR_ARGUMENT);
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *path = path_of(m, NULL);
    if (path && *path) {
        lc_fail(status, "%s (%s): %s", path, m->type ? m->type : "module", text);
    } else {
        lc_fail(status, "%s", text);
    }
    free(path);
    lc_module *root = lc_module_root(m);
    if (root->status == LC_OK) {
        root->status = status;
        root->error = strdup(lc_error_message());
    }
    return status;
}

lc_status lc_module_status(const lc_module *m)
{
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    while (m->parent) m = m->parent;
    if (m->status == LC_OK) return LC_OK;
    return lc_fail(m->status, "%s", m->error ? m->error : "out of memory while the module was built");
}

/* ---- registration ---- */

void lc_module_init(lc_module *m, const lc_module_ops *ops, uint64_t seed)
{
    LC__NEEDS(m, );
    memset(m, 0, sizeof *m);
    m->mark = LC__MARK_OF(MODULE);
    m->ops = ops;
    m->seed = seed;
    m->training = true;
}

/* Whether a module or a tensor below m has that path. Names may have dots. */
static bool path_taken(const lc_module *m, const char *path)
{
    for (int i = 0; i < m->n_children; i++) {
        const char *name = m->children[i]->name;
        size_t n = name ? strlen(name) : 0;
        if (!n || strncmp(path, name, n) != 0) continue;
        if (!path[n] || (path[n] == '.' && path_taken(m->children[i], path + n + 1))) return true;
    }
    for (int i = 0; i < m->n_tensors; i++) {
        if (!strcmp(m->tensors[i].name, path)) return true;
    }
    return false;
}

static lc_status check_name(lc_module *m, const char *name)
{
    if (!name || !*name) return lc_module_fail(m, LC_ERR_ARGUMENT, "a name must not be empty");
    if (name[0] == '.' || name[strlen(name) - 1] == '.' || strstr(name, "..")) {
        return lc_module_fail(m, LC_ERR_ARGUMENT, "the name \"%s\" has an empty part between dots", name);
    }
    char *path = path_of(m, name);
    if (!path) return lc_module_fail(m, LC_ERR_MEMORY, "out of memory while registering \"%s\"", name);
    lc_status status = LC_OK;
    if (path_taken(m, name))
        status = lc_module_fail(m, LC_ERR_ARGUMENT,
                                "the name \"%s\" is used twice; names within a module must be unique", name);
    else if (path_taken(lc_module_root(m), path))
        status = lc_module_fail(m, LC_ERR_ARGUMENT,
                                "the path \"%s\" is used twice: it is also that of a name with dots; rename one", path);
    free(path);
    return status;
}

/* Children that could not be registered for lack of memory are chained, so that what they own is still freed: FIRST in
 * the parent, NEXT in the child. */
enum { FIRST_UNREGISTERED, NEXT_UNREGISTERED };

static bool is_within(const lc_module *top, const lc_module *m)
{
    if (top == m) return true;
    for (int i = 0; i < top->n_children; i++) {
        const lc_module *child = top->children[i];
        if (child->parent == top && is_within(child, m)) return true;
    }
    return false;
}

bool lc__module_in_use(const lc_module *m, void *parent, const char *name)
{
    lc_module *p = parent;
    if (!lc__has_mark(p, LC__MARK_OF(MODULE)) || !is_within(lc_module_root(p), m)) return false;
    char *path = path_of(m, NULL);
    lc_module_fail(p, LC_ERR_ARGUMENT,
                   "the struct of \"%s\" is in the model already, as \"%s\"; give each part a struct of its own, or "
                   "call lc_module_release before you make it again",
                   name ? name : "",
                   !path   ? ""
                   : *path ? path
                           : "the root");
    free(path);
    return true;
}

void lc_module_init_child(lc_module *m, void *parent, const char *name, const char *type)
{
    lc_module *p = parent;
    LC__NEEDS(m, );
    if (lc__module_in_use(m, parent, name)) return;
    memset(m, 0, sizeof *m);
    LC__IS(p, MODULE, ); /* m stays uninitialized, which its functions report */
    m->mark = LC__MARK_OF(MODULE);
    m->type = type;
    m->training = p->training;
    /* Register even a refused name (the root keeps the error): what m will own must be freed. */
    (void)check_name(p, name);
    m->parent = p;
    m->name = strdup(name ? name : "");
    if (!m->name || lc__grow_one(&p->children, p->n_children, "modules") < 0) {
        lc_module_fail(p, LC_ERR_MEMORY, "out of memory while registering \"%s\"", m->name ? m->name : "");
        m->reserved[NEXT_UNREGISTERED] = p->reserved[FIRST_UNREGISTERED];
        p->reserved[FIRST_UNREGISTERED] = m;
        return;
    }
    p->children[p->n_children++] = m;
}

void lc_module_release(lc_module *m)
{
    if (!m || !m->mark) return; /* zeroed, or released */
    LC__IS(m, MODULE, );
    if (m->trainer) {
        (void)lc_module_fail(m, LC_ERR_STATE, "lc_module_release: the module is in a run; release it after the run");
        return;
    }
    while (m->n_children) {
        lc_module *child = m->children[--m->n_children];
        if (child->parent == m) { /* otherwise its struct was reused for another parent */
            child->parent = NULL;
            lc_module_release(child);
        }
    }
    for (lc_module *child; (child = m->reserved[FIRST_UNREGISTERED]);) {
        m->reserved[FIRST_UNREGISTERED] = child->reserved[NEXT_UNREGISTERED];
        child->parent = NULL;
        lc_module_release(child);
    }
    if (m->release) m->release(m);
    for (int i = 0; i < m->n_tensors; i++) {
        m->tensors[i].tensor->modules--;
        lc_tensor_unref(m->tensors[i].tensor);
        free((char *)m->tensors[i].name);
    }
    free(m->tensors);
    free(m->children);
    free(m->name);
    free(m->error);
    free(m->hyperparameters);
    lc_module *p = m->parent;
    for (int i = 0; p && i < p->n_children; i++) {
        if (p->children[i] != m) continue;
        memmove(&p->children[i], &p->children[i + 1], sizeof *p->children * (size_t)(p->n_children - i - 1));
        p->n_children--;
        break;
    }
    for (lc_module *c = p; c; c = c->reserved[c == p ? FIRST_UNREGISTERED : NEXT_UNREGISTERED]) {
        void **link = &c->reserved[c == p ? FIRST_UNREGISTERED : NEXT_UNREGISTERED];
        if (*link == m) *link = m->reserved[NEXT_UNREGISTERED];
    }
    memset(m, 0, sizeof *m);
}

/* ---- registration of tensors ---- */

/* Appends an entry; takes the reference to `t` (dropped on error). */
static lc_tensor *add_entry(lc_module *m, const char *name, lc_tensor *t, bool is_parameter, bool persistent)
{
    char *copy = strdup(name);
    if (!copy || lc__grow_one(&m->tensors, m->n_tensors, "tensors of a module") < 0) {
        lc_module_fail(m, LC_ERR_MEMORY, "out of memory while registering \"%s\"", name);
        free(copy);
        lc_tensor_unref(t);
        return lc__error_tensor();
    }
    m->tensors[m->n_tensors++] = (lc_module_tensor){copy, t, is_parameter, persistent};
    t->modules++;
    return t;
}

static lc_tensor *add_tensor(lc_module *m, const char *name, lc_dtype dtype, lc_layout layout, int ndim,
                             const int64_t *shape, lc_init init, bool is_parameter, bool persistent)
{
    lc_tensor *t = NULL;
    if (check_name(m, name) < 0) return lc__error_tensor();
    char *path = path_of(m, name);
    lc_status status = path ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory");
    if (status == LC_OK && ndim < 3) layout = LC_ROW_MAJOR;
    if (status == LC_OK) status = lc__tensor_reserve(dtype ? dtype : LC_F32, ndim, shape, layout, &t);
    if (status == LC_OK && init.kind != LC_INIT_ZEROS) { /* new tensors are zero */
        status = lc__tensor_start_as(t, init, lc_random_key_name(lc_module_root(m)->seed, path));
    }
    free(path);
    if (status < 0) {
        lc_tensor_unref(t);
        char why[640];
        snprintf(why, sizeof why, "%s", lc_error_message());
        lc_module_fail(m, status, "\"%s\": %s", name, why);
        return lc__error_tensor();
    }
    if (is_parameter) lc_tensor_set_requires_grad(t, true);
    return add_entry(m, name, t, is_parameter, persistent);
}

lc_tensor *lc_module_add_parameter(lc_module *m, const char *name, lc_dtype dtype, lc_layout layout, int ndim,
                                   const int64_t *shape, lc_init init)
{
    LC__IS(m, MODULE, lc__error_tensor());
    if (dtype != LC_DTYPE_DEFAULT && !lc_dtype_is_float(dtype)) {
        lc_module_fail(m, LC_ERR_DTYPE, "parameter \"%s\": %s cannot be trained; use f32 or f64, or a buffer", name,
                       lc_dtype_name(dtype));
        return lc__error_tensor();
    }
    return add_tensor(m, name, dtype, layout, ndim, shape, init, true, true);
}

lc_tensor *lc_module_share_parameter(lc_module *m, const char *name, lc_tensor *parameter)
{
    LC__IS(m, MODULE, lc__error_tensor());
    LC__IS_TENSOR(parameter, lc__error_tensor());
    if (!lc__is_tensor(parameter)) {
        lc_module_fail(m, LC_ERR_ARGUMENT, "\"%s\": the parameter to share is %s", name ? name : "",
                       parameter ? "not a tensor" : "NULL");
        return lc__error_tensor();
    }
    if (lc_tensor_is_error(parameter)) return parameter; /* its own error has been kept already */
    if (check_name(m, name) < 0) return lc__error_tensor();
    if (!lc_tensor_is_persistent(parameter)) {
        lc_module_fail(m, LC_ERR_ARGUMENT, "\"%s\": only a parameter of another module can be shared", name);
        return lc__error_tensor();
    }
    return add_entry(m, name, lc_tensor_ref(parameter), true, true);
}

lc_tensor *lc_module_add_buffer(lc_module *m, const char *name, lc_dtype dtype, int ndim, const int64_t *shape,
                                lc_init init, bool persistent)
{
    LC__IS(m, MODULE, lc__error_tensor());
    return add_tensor(m, name, dtype, LC_ROW_MAJOR, ndim, shape, init, false, persistent);
}

void lc_module_reset_parameter(lc_module *m, const char *name, lc_init init)
{
    LC__IS(m, MODULE, );
    LC__NEEDS(name, );
    for (int i = 0; i < m->n_tensors; i++) {
        if (strcmp(m->tensors[i].name, name)) continue;
        char *path = path_of(m, name);
        lc_status status =
            path ? lc__tensor_start_as(m->tensors[i].tensor, init, lc_random_key_name(lc_module_root(m)->seed, path))
                 : lc_fail(LC_ERR_MEMORY, "out of memory");
        free(path);
        if (status < 0) lc_module_fail(m, status, "the values of \"%s\" could not be set", name);
        return;
    }
    lc_module_fail(m, LC_ERR_NOT_FOUND, "no parameter \"%s\"", name);
}

/* ---- walking the tree ---- */

void lc_module_train(lc_module *m, bool training)
{
    LC__IS(m, MODULE, );
    m->training = training;
    for (int i = 0; i < m->n_children; i++) lc_module_train(m->children[i], training);
}

/* State of a visit: the path so far, and the tensors seen (tied ones are visited once). */
typedef struct visitor {
    lc_module_visit_fn *fn;
    void *ctx;
    char *path;
    size_t capacity;
    lc_tensor **seen;
    int n_seen;
} visitor;

static bool seen_before(visitor *v, lc_tensor *t, lc_status *status)
{
    for (int i = 0; i < v->n_seen; i++) {
        if (v->seen[i] == t) return true;
    }
    *status = lc__grow_one(&v->seen, v->n_seen, "a visit of parameters");
    if (*status < 0) return true;
    v->seen[v->n_seen++] = t;
    return false;
}

static lc_status path_append(visitor *v, size_t length, const char *name, size_t *new_length)
{
    size_t n = strlen(name);
    LC_TRY(lc__grow(&v->path, &v->capacity, length, n + 2, "a path of a module"));
    if (length) v->path[length++] = '.';
    memcpy(v->path + length, name, n + 1);
    *new_length = length + n;
    return LC_OK;
}

static lc_status visit(visitor *v, lc_module *m, size_t length)
{
    size_t end;
    for (int i = 0; i < m->n_tensors; i++) {
        lc_status status = LC_OK;
        if (seen_before(v, m->tensors[i].tensor, &status)) {
            if (status != LC_OK) return status;
            continue;
        }
        LC_TRY(path_append(v, length, m->tensors[i].name, &end));
        status = v->fn(v->ctx, v->path, m, &m->tensors[i]);
        if (status != LC_OK) return status;
    }
    for (int i = 0; i < m->n_children; i++) {
        LC_TRY(path_append(v, length, m->children[i]->name, &end));
        lc_status status = visit(v, m->children[i], end);
        if (status != LC_OK) return status;
    }
    return LC_OK;
}

lc_status lc_module_visit(lc_module *m, lc_module_visit_fn *fn, void *ctx)
{
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    LC__NEEDS(fn, LC_ERR_ARGUMENT);
    visitor v = {.fn = fn, .ctx = ctx};
    lc_status status = visit(&v, m, 0);
    free(v.path);
    free(v.seen);
    return status;
}

lc_tensor *lc_module_find(lc_module *m, const char *path)
{
    LC__IS(m, MODULE, NULL);
    LC__NEEDS(path, NULL);
    for (int i = 0; i < m->n_tensors; i++) {
        if (!strcmp(m->tensors[i].name, path)) return m->tensors[i].tensor;
    }
    for (int i = 0; i < m->n_children; i++) {
        size_t n = strlen(m->children[i]->name);
        if (strncmp(m->children[i]->name, path, n) || path[n] != '.') continue;
        lc_tensor *t = lc_module_find(m->children[i], path + n + 1);
        if (t) return t;
    }
    return NULL;
}

typedef struct counter {
    bool trainable_only;
    int64_t n;
} counter;

static lc_status count_one(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    counter *c = ctx;
    if (t->is_parameter && (!c->trainable_only || lc_tensor_requires_grad(t->tensor)))
        c->n += lc_tensor_numel(t->tensor);
    return LC_OK;
}

int64_t lc_module_parameter_count(lc_module *m, bool trainable_only)
{
    LC__IS(m, MODULE, 0);
    counter c = {trainable_only, 0};
    return lc_module_visit(m, count_one, &c) < 0 ? -1 : c.n;
}

typedef struct collector {
    lc_parameter_filter *filter;
    void *ctx;
    lc_tensor **list;
    int n;
} collector;

static lc_status collect_one(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    collector *c = ctx;
    if (!t->is_parameter || (c->filter && !c->filter(c->ctx, path, owner, t->tensor))) return LC_OK;
    LC_TRY(lc__grow_one(&c->list, c->n, "a list of parameters"));
    c->list[c->n++] = t->tensor;
    return LC_OK;
}

lc_status lc_module_parameters(lc_module *m, lc_parameter_filter *filter, void *ctx, lc_tensor ***list, int *n)
{
    LC__IS(m, MODULE, LC_ERR_ARGUMENT);
    LC__NEEDS(list, LC_ERR_ARGUMENT);
    LC__NEEDS(n, LC_ERR_ARGUMENT);
    collector c = {filter, ctx, NULL, 0};
    *list = NULL;
    *n = 0;
    lc_status status = lc_module_visit(m, collect_one, &c);
    if (status < 0) {
        free(c.list);
        return status;
    }
    *list = c.list;
    *n = c.n;
    return LC_OK;
}

void lc_module_requires_grad(lc_module *m, bool requires_grad)
{
    LC__IS(m, MODULE, );
    for (int i = 0; i < m->n_tensors; i++) {
        if (m->tensors[i].is_parameter) lc_tensor_set_requires_grad(m->tensors[i].tensor, requires_grad);
    }
    for (int i = 0; i < m->n_children; i++) lc_module_requires_grad(m->children[i], requires_grad);
}

lc_tensor *lc_forward_at(void *module, lc_tensor *x, lc_site site)
{
    lc_module *m = module;
    if (!lc__has_mark(m, LC__MARK_OF(MODULE))) {
        lc_fail(LC_ERR_ARGUMENT, m ? "this is not a module, or was not initialized (lc_module_init, lc_NAME_init)"
                                   : "the module is NULL");
    } else if (m->forward) {
        return m->forward(m, x, site);
    } else {
        char *path = path_of(m, NULL);
        lc_fail(LC_ERR_ARGUMENT,
                "%s%s%s has no forward with one input: set its member `forward`, or call its own function",
                m->type ? m->type : "this module", path && *path ? " " : "", path ? path : "");
        free(path);
    }
    lc__refuse_call(LC_ERR_ARGUMENT, "lc_forward", site);
    return lc__error_tensor();
}

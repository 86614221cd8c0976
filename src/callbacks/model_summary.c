/* SPDX-License-Identifier: Apache-2.0 */
/* ModelSummary: the table of layers before training: name, type, parameters, their shapes, memory; and, if the types of
 * a batch are known, each layer's inputs, outputs and cost. */
#include "base/c_locale.h"
#include "callbacks/model_cost.h"
#include "callbacks/terminal.h"
#include "base/handle.h"
#include "base/number.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/tensor_impl.h"

typedef struct model_summary {
    int max_depth, fd;
    lc_type inputs[LC_MAX_BATCH_TENSORS];
    int n_inputs;
    lc__module_cost *cost; /* while it is shown */
    int n_cost;
} model_summary;

typedef struct counts {
    int64_t trainable, frozen, bytes, buffers;
    int64_t gradients, state, copies; /* bytes: of gradients, one state of an optimizer, its master weights */
} counts;

static void count_trained(const lc_tensor *x, int64_t n, counts *c)
{
    const lc_dtype dtype = lc_tensor_storage(x), wide = lc__wide_dtype(dtype);
    c->gradients += n * (int64_t)lc_dtype_size(dtype);
    c->state += n * (int64_t)lc_dtype_size(wide);
    if (dtype != wide) c->copies += n * (int64_t)lc_dtype_size(wide);
}

/* A tensor that has several names counts once. */
static lc_status count_tensor(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    counts *c = ctx;
    const lc_tensor *x = t->tensor;
    int64_t n = lc_tensor_numel(x);
    (void)path, (void)owner;
    if (t->is_parameter)
        *(lc_tensor_requires_grad(x) ? &c->trainable : &c->frozen) += n;
    else
        c->buffers += n;
    if (t->is_parameter && lc_tensor_requires_grad(x)) count_trained(x, n, c);
    c->bytes += n * (int64_t)lc_dtype_size(lc_tensor_storage(x));
    return LC_OK;
}

/* 1234567 -> "1.2 M" */
static const char *human(int64_t n, char *text, size_t size)
{
    static const char *const units[] = {"", " K", " M", " B", " T"};
    double v = (double)n;
    int u = 0;
    while (v >= 1000 && u < 4) v /= 1000, u++;
    lc__snprintf(text, size, u ? "%.1f%s" : "%.0f%s", v, units[u]);
    return text;
}

static const char *human_bytes(double bytes, char *text, size_t size)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int u = 0;
    while (bytes >= 1000 && u < 4) bytes /= 1000, u++;
    lc__snprintf(text, size, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return text;
}

static lc_status stop_at(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    return t->tensor == ctx ? LC_STOP : LC_OK;
}

/* Whether a layer below m has the parameter, too. */
static bool is_below(const lc_module *m, lc_tensor *x)
{
    bool found = false;
    for (int i = 0; i < m->n_children && !found; i++) found = lc_module_visit(m->children[i], stop_at, x) == LC_STOP;
    return found;
}

/* The shapes of m's own parameters, or only of those that no layer below has, and how many elements they have. */
static void shapes(const lc_module *m, bool only_own, char *text, size_t size, int64_t *elements)
{
    size_t n = 0;
    text[0] = 0;
    *elements = 0;
    for (int i = 0; i < m->n_tensors; i++) {
        lc_tensor *x = m->tensors[i].tensor;
        if (!m->tensors[i].is_parameter || (only_own && is_below(m, x))) continue;
        *elements += lc_tensor_numel(x);
        if (n + 1 < size) n += (size_t)snprintf(text + n, size - n, "%s[", n ? " " : "");
        for (int d = 0; d < lc_tensor_ndim(x) && n + 1 < size; d++)
            n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? "," : "", (long long)lc_tensor_dim(x, d));
        if (n + 1 < size) n += (size_t)snprintf(text + n, size - n, "]");
    }
}

/* Widths of the columns with text, and which other columns are shown. */
typedef struct columns {
    int name, type, shapes, in, out; /* 0: left out, except for shapes */
    bool number, mode, cost, with_shapes, unicode;
} columns;

static int width_of(const columns *w)
{
    return (w->number ? 6 : 0) + w->name + (w->type ? 3 + w->type : 0) + 3 + 7 + (w->mode ? 3 + 5 : 0) +
           (w->cost ? 3 + 7 + 3 + w->in + 3 + w->out : 0) + (w->with_shapes ? 3 + w->shapes : 0);
}

/* Drops columns, the least useful first, until the table fits; long names are cut before that, and once more at the
 * end. */
static void fit(columns *w, int room)
{
    int fair = room / 3 > 16 ? room / 3 : 16;
    if (width_of(w) > room && w->name > fair) w->name = fair;
    if (width_of(w) > room) w->with_shapes = false;
    if (width_of(w) > room) w->cost = false;
    if (width_of(w) > room) w->mode = false;
    if (width_of(w) > room) w->type = 0;
    if (width_of(w) > room) w->number = false;
    if (width_of(w) > room) w->name -= width_of(w) - room;
}

typedef struct row_text {
    char path[256], params[32], shape[64], flops[32], in[96], out[96];
    char type[96];
} row_text;

static void add_cost(const model_summary *s, const lc_module *m, row_text *r)
{
    for (int i = 0; i < s->n_cost; i++) {
        const lc__module_cost *c = &s->cost[i];
        if (c->m != m || !c->seen) continue;
        human((int64_t)c->flops, r->flops, sizeof r->flops);
        lc__shape_text(&c->in, r->in, sizeof r->in);
        lc__shape_text(&c->out, r->out, sizeof r->out);
    }
}

static row_text row_of(const model_summary *s, lc_module *c, const char *prefix)
{
    row_text r = {.flops = "?", .in = "?", .out = "?"};
    counts n = {0};
    int64_t own;
    (void)!lc_module_visit(c, count_tensor, &n);
    add_cost(s, c, &r);
    char name[sizeof r.path];
    snprintf(r.path, sizeof r.path, "%s%s%s", prefix, *prefix ? "." : "",
             lc_printable(c->name ? c->name : "?", false, name, sizeof name));
    shapes(c, false, r.shape, sizeof r.shape, &own);
    human(n.trainable + n.frozen, r.params, sizeof r.params);
    lc_printable(c->type ? c->type : "Module", false, r.type, sizeof r.type);
    return r;
}

/* The model's parameters that belong to no layer. *any: whether there are some. */
static row_text others(const lc_module *m, bool *any)
{
    row_text r = {.path = "other params", .type = "n/a", .flops = "?", .in = "?", .out = "?"};
    int64_t n;
    shapes(m, true, r.shape, sizeof r.shape, &n);
    human(n, r.params, sizeof r.params);
    *any = n > 0;
    return r;
}

static int longer(int width, const char *text)
{
    int n = (int)strlen(text);
    return n > width ? n : width;
}

static void measure_row(columns *w, const row_text *r)
{
    w->in = longer(w->in, r->in);
    w->out = longer(w->out, r->out);
    w->name = longer(w->name, r->path);
    w->type = longer(w->type, r->type);
    w->shapes = longer(w->shapes, r->shape);
}

static void measure(const model_summary *s, columns *w, const lc_module *m, const char *prefix, int depth)
{
    for (int i = 0; i < m->n_children; i++) {
        row_text r = row_of(s, m->children[i], prefix);
        measure_row(w, &r);
        if (s->max_depth < 0 || depth + 1 < s->max_depth) measure(s, w, m->children[i], r.path, depth + 1);
    }
}

static void add_row(lc__str *out, const columns *w, const row_text *r, const char *mode, int *number)
{
    char name[sizeof r->path + 3];
    snprintf(name, sizeof name, "%s", r->path);
    lc__cut_name(name, (size_t)w->name, w->unicode);
    if (w->number) lc__str_add(out, "%3d | ", *number);
    ++*number;
    lc__add_padded(out, name, w->name);
    if (w->type) lc__str_add(out, " | %-*s", w->type, r->type);
    lc__str_add(out, " | %7s", r->params);
    if (w->mode) lc__str_add(out, " | %-5s", mode);
    if (w->cost) lc__str_add(out, " | %7s | %*s | %*s", r->flops, w->in, r->in, w->out, r->out);
    if (w->with_shapes) lc__str_add(out, " |%s%s", r->shape[0] ? " " : "", r->shape);
    lc__str_add(out, "\n");
}

static void rows(const model_summary *s, lc__str *out, const columns *w, const lc_module *m, const char *prefix,
                 int depth, int *number)
{
    for (int i = 0; i < m->n_children; i++) {
        lc_module *c = m->children[i];
        row_text r = row_of(s, c, prefix);
        add_row(out, w, &r, c->training ? "train" : "eval", number);
        if (s->max_depth < 0 || depth + 1 < s->max_depth) rows(s, out, w, c, r.path, depth + 1, number);
    }
}

static void rule(lc__str *out, const columns *w)
{
    for (int i = width_of(w); i > 0; i--) lc__str_add(out, "-");
    lc__str_add(out, "\n");
}

static void title(lc__str *out, const columns *w)
{
    lc__str_add(out, "\n%s%-*s", w->number ? "    | " : "", w->name, "Name");
    if (w->type) lc__str_add(out, " | %-*s", w->type, "Type");
    lc__str_add(out, " | %7s", "Params");
    if (w->mode) lc__str_add(out, " | %-5s", "Mode");
    if (w->cost) lc__str_add(out, " | %7s | %*s | %*s", "FLOPs", w->in, "In sizes", w->out, "Out sizes");
    lc__str_add(out, w->with_shapes ? " | Shapes\n" : "\n");
}

static void table(const model_summary *s, const lc_module *m, int width, bool unicode, lc__str *out)
{
    int number = 0;
    bool any;
    row_text rest = others(m, &any);
    columns w = {.name = 4,
                 .type = 4,
                 .shapes = 6,
                 .in = 8,
                 .out = 9,
                 .number = true,
                 .mode = true,
                 .cost = s->cost != NULL,
                 .with_shapes = true,
                 .unicode = unicode};
    measure(s, &w, m, "", 0);
    if (any) measure_row(&w, &rest);
    fit(&w, width - 1);
    title(out, &w);
    rule(out, &w);
    rows(s, out, &w, m, "", 0, &number);
    if (any) add_row(out, &w, &rest, "n/a", &number);
    rule(out, &w);
}

/* Bytes that the optimizers keep for parameters: n.state for each of their states that is not a scalar. */
static double state_bytes(const lc_optimizers *all, const counts *n)
{
    double bytes = 0;
    for (int i = 0; i < all->n; i++) {
        const lc_optimizer *opt = all->optimizers[i].optimizer;
        const lc_optimizer_ops *ops = opt->ops;
        for (int k = 0; ops->state_names && ops->state_names[k]; k++)
            bytes += ops->scalar_state >> k & 1 ? 0 : (double)n->state;
        if (opt->flags & LC_OPT_MASTER_WEIGHTS) bytes += (double)n->copies;
    }
    return bytes;
}

static void totals(const model_summary *s, const counts *n, double state, int width, lc__str *out)
{
    char text[200], a[32], b[32], c[32];
    if (n->frozen)
        snprintf(text, sizeof text, "%s parameters, %s of them trainable", human(n->trainable + n->frozen, c, sizeof c),
                 human(n->trainable, a, sizeof a));
    else
        snprintf(text, sizeof text, "%s parameters, all trainable", human(n->trainable, a, sizeof a));
    lc__add_wrapped(out, width, text);
    snprintf(text, sizeof text, "%s of model, %s of gradients, %s of optimizer state",
             human_bytes((double)n->bytes, a, sizeof a), human_bytes((double)n->gradients, b, sizeof b),
             human_bytes(state, c, sizeof c));
    lc__add_wrapped(out, width, text);
    if (s->cost) {
        snprintf(text, sizeof text, "%s floating-point operations in a forward pass of the example",
                 human((int64_t)s->cost[0].flops, a, sizeof a));
        lc__add_wrapped(out, width, text);
    }
    lc__str_add(out, "\n");
}

static lc_status ms_fit_start(void *self, lc_trainer *t)
{
    model_summary *s = self;
    lc__str out = {0};
    counts n = {0};
    LC_TRY(lc_module_visit(t->m, count_tensor, &n));
    if (s->n_inputs && lc__model_cost(t, s->inputs, s->n_inputs, &s->cost, &s->n_cost) < 0)
        lc_trainer_message(t, LC_WARNING, "%s", lc_error_message()); /* the table is shown without costs */
    lc__terminal term = lc__terminal_find(s->fd, LC_PROGRESS_AUTO);
    int width = isatty(s->fd) ? lc__terminal_width(&term) : INT_MAX; /* a file takes lines of any length */
    if (s->max_depth != 0) table(s, t->m, width, term.unicode, &out);
    totals(s, &n, state_bytes(&t->optimizers, &n), width, &out);
    lc__terminal_show(&term, &out);
    lc__str_free(&out);
    free(s->cost);
    s->cost = NULL;
    s->n_cost = 0;
    return LC_OK;
}

const lc_callback_ops lc__model_summary_ops = {
    LC_CALLBACK_OPS_INIT("ModelSummary"),
    .ranks = LC_RANK_ZERO,
    .on_fit_start = ms_fit_start,
    .free = lc__owned_free,
};

lc_status lc_model_summary_new(const lc_model_summary_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_model_summary, given);
    if (args->max_depth < -1)
        return lc_fail(LC_ERR_CONFIG, "ModelSummary: max_depth is %d; it must be -1 (all levels), 0 or more",
                       args->max_depth);
    if (args->n_example_inputs < 0 || args->n_example_inputs > LC_MAX_BATCH_TENSORS)
        return lc_fail(LC_ERR_CONFIG, "ModelSummary: a batch has at most %d tensors, not %d", LC_MAX_BATCH_TENSORS,
                       args->n_example_inputs);
    LC_TRY(lc__list_check("example_inputs", args->n_example_inputs, args->example_inputs));
    model_summary *s = lc__owned_new(sizeof *s, NULL);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: ModelSummary");
    s->max_depth = args->max_depth;
    s->fd = args->fd;
    s->n_inputs = args->n_example_inputs;
    if (s->n_inputs) memcpy(s->inputs, args->example_inputs, (size_t)s->n_inputs * sizeof *s->inputs);
    *out = (lc_callback){&lc__model_summary_ops, s};
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* ModelSummary: the table of layers before training: name, type, parameters, their shapes, memory. */
#include "callbacks/callbacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct model_summary {
    int max_depth;
} model_summary;

typedef struct counts {
    int64_t trainable, frozen, bytes, buffers;
} counts;

static void count(const lc_module *m, counts *c)
{
    for (int i = 0; i < m->n_tensors; i++) {
        const lc_tensor *x = m->tensors[i].tensor;
        int64_t n = lc_tensor_numel(x);
        if (m->tensors[i].is_parameter)
            *(lc_tensor_requires_grad(x) ? &c->trainable : &c->frozen) += n;
        else
            c->buffers += n;
        c->bytes += n * (int64_t)lc_dtype_size(lc_tensor_dtype(x));
    }
    for (int i = 0; i < m->n_children; i++) count(m->children[i], c);
}

/* 1234567 -> "1.2 M" */
static const char *human(int64_t n, char *text, size_t size)
{
    static const char *const units[] = {"", " K", " M", " B", " T"};
    double v = (double)n;
    int u = 0;
    while (v >= 1000 && u < 4) v /= 1000, u++;
    snprintf(text, size, u ? "%.1f%s" : "%.0f%s", v, units[u]);
    return text;
}

static void shapes(const lc_module *m, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < m->n_tensors && n + 1 < size; i++) {
        const lc_tensor *x = m->tensors[i].tensor;
        if (!m->tensors[i].is_parameter) continue;
        n += (size_t)snprintf(text + n, size - n, "%s[", n ? " " : "");
        for (int d = 0; d < lc_tensor_ndim(x) && n + 1 < size; d++)
            n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? "," : "", (long long)lc_tensor_dim(x, d));
        if (n + 1 < size) n += (size_t)snprintf(text + n, size - n, "]");
    }
}

static void rows(lc__str *out, const lc_module *m, const char *prefix, int depth, int max_depth, int *number)
{
    for (int i = 0; i < m->n_children; i++) {
        const lc_module *c = m->children[i];
        char path[256], params[32], shape[64];
        counts n = {0};
        count(c, &n);
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", c->name ? c->name : "?");
        shapes(c, shape, sizeof shape);
        lc__str_add(out, "%3d | %-20s | %-14s | %8s | %-5s | %s\n", (*number)++, path, c->type ? c->type : "Module",
                    human(n.trainable + n.frozen, params, sizeof params), c->training ? "train" : "eval", shape);
        if (max_depth < 0 || depth + 1 < max_depth) rows(out, c, path, depth + 1, max_depth, number);
    }
}

static lc_status ms_fit_start(void *self, lc_trainer *t)
{
    model_summary *s = self;
    lc__str out = {0};
    counts n = {0};
    char a[32], b[32], c[32];
    int number = 0, states = 0;
    count(t->m, &n);
    lc__str_add(&out, "\n    | %-20s | %-14s | %8s | %-5s | %s\n", "Name", "Type", "Params", "Mode", "Shapes");
    lc__str_add(&out, "%.*s\n", 86,
                "--------------------------------------------------------------------------------------");
    rows(&out, t->m, "", 0, s->max_depth, &number);
    lc__str_add(&out, "%.*s\n", 86,
                "--------------------------------------------------------------------------------------");
    for (int i = 0; i < t->optimizers.n; i++) {
        const lc_optimizer_ops *ops = t->optimizers.optimizers[i].optimizer->ops;
        for (int k = 0; ops->state_names && ops->state_names[k]; k++) states++;
    }
    lc__str_add(&out, "%-10s trainable parameters\n%-10s other parameters\n%-10s parameters in all\n",
                human(n.trainable, a, sizeof a), human(n.frozen, b, sizeof b),
                human(n.trainable + n.frozen, c, sizeof c));
    double mb = (double)n.bytes / 1e6, train = (double)n.trainable * 4 / 1e6;
    lc__str_add(&out, "%-10.3f MB of model, %.3f MB of gradients, %.3f MB of optimizer state\n\n", mb, train,
                train * states);
    if (!out.failed) lc__show(2, out.s, out.n);
    lc__str_free(&out);
    return LC_OK;
}

const lc_callback_ops lc__model_summary_ops = {
    LC_CALLBACK_OPS_INIT("ModelSummary"),
    .ranks = LC_RANK_ZERO,
    .on_fit_start = ms_fit_start,
    .free = free,
};

lc_status lc_model_summary_new(int max_depth, lc_callback *out)
{
    model_summary *s = calloc(1, sizeof *s);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: ModelSummary");
    s->max_depth = max_depth == 0 ? 1 : max_depth;
    *out = (lc_callback){&lc__model_summary_ops, s};
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* LIGHTC_PLAN_DUMP=FILE: when a graph is freed, its plans are written to FILE as text and to FILE.dot for Graphviz
 * (dot -Tsvg FILE.dot > plan.svg): calls in order with kernel, shapes, offsets, bytes, threads and measured time.
 * missed.c writes why each plan is made. */
#include "base/io.h"
#include "ops/fused.h"
#include "engine/plan/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

/* A name given by a program or a plug-in, made safe for a terminal and for quoting. */
static const char *shown(const char *name, char text[96])
{
    lc_printable(name, false, text, 96);
    for (char *c = text; (c = strchr(c, '"')); c++) *c = '\'';
    return text;
}

static size_t view_bytes(const lc_view *v)
{
    size_t n = lc_dtype_size(v->dtype);
    for (int i = 0; i < v->ndim; i++) n *= (size_t)v->shape[i];
    return v->ndim < 0 ? 0 : n;
}

static void print_view(FILE *f, const lc_graph *g, const lc_view *v, const char *rounded_to)
{
    if (v->ndim < 0) {
        fprintf(f, " -");
        return;
    }
    lc_type type = lc__view_type(v);
    char text[128];
    const char *data = v->data, *arena = g->arena;
    bool inside = data >= arena && data < arena + g->arena_reserved;
    fprintf(f, " %s%s%s%s", lc_dtype_name(v->dtype), *rounded_to ? "~" : "", rounded_to,
            lc__shape_text(&type, text, sizeof text));
    bool row = lc__is_dense(v->ndim, v->shape, v->stride, LC_ROW_MAJOR);
    if (!row) fprintf(f, lc__is_dense(v->ndim, v->shape, v->stride, LC_CHANNELS_LAST) ? ":cl" : ":strided");
    if (inside)
        fprintf(f, "@%zu", (size_t)(data - arena));
    else
        fprintf(f, "@ext");
}

static void print_fused(FILE *f, const lc_call *c)
{
    if (c->op != &lc__op_fused) return;
    fprintf(f, " {");
    for (int64_t i = 0; i < c->ints[0]; i++)
        fprintf(f, "%s%s", i ? " " : "",
                lc__elementwise_table[LC_FUSED_OP_INDEX(c->ints[1 + i * LC_FUSED_INSTRUCTION_INTS])]->name);
    fprintf(f, "}");
}

static void dump_text(FILE *f, const lc_graph *g, const lc_plan *p)
{
    double total = 0;
    for (int i = 0; i < p->n_calls; i++) total += p->calls[i].seconds;
    fprintf(f,
            "plan %llu (after %llu): %u recorded, %d calls, arena %zu bytes at %zu (lower bound %zu, ratio %.3f), "
            "scratch %zu bytes, %.1f us\n",
            (unsigned long long)p->uid, (unsigned long long)p->previous, p->n_nodes, p->n_calls, p->arena_bytes,
            p->arena_0, p->lower_bound, p->lower_bound ? (double)p->arena_bytes / (double)p->lower_bound : 1.0,
            p->scratch_bytes, total * 1e6);
    for (int i = 0; i < p->n_calls; i++) {
        const lc_plan_call *pc = &p->calls[i];
        const lc_call *c = &pc->call;
        size_t bytes = 0;
        char a[96], b[96];
        for (int k = 0; k < c->n_out; k++) bytes += view_bytes(&c->out[k]);
        fprintf(f, "%4d %9.1f us  %d thr  %-22s %-24s", i, pc->seconds * 1e6, c->threads, shown(c->op->name, a),
                shown(c->kernel->name, b));
        print_fused(f, c);
        for (int k = 0; k < c->n_in && k < 8; k++)
            print_view(f, g, &c->in[k], c->rounded >> k & 1 ? lc_dtype_name(c->rounded_to) : "");
        fprintf(f, " ->");
        for (int k = 0; k < c->n_out; k++) print_view(f, g, &c->out[k], "");
        fprintf(f, "%s  %zu bytes, scratch %zu  %s:%d\n", c->accumulate ? " +=" : "", bytes, c->scratch_bytes,
                shown(base_name(pc->site.file), a), pc->site.line);
    }
    fprintf(f, "\n");
}

static bool overlaps(const lc_view *a, const lc_view *b)
{
    return a->data && b->data && a->data == b->data && a->ndim >= 0 && b->ndim >= 0;
}

static void dump_dot(FILE *f, const lc_plan *p)
{
    fprintf(f, "subgraph cluster_%llu { label=\"plan %llu\";\n", (unsigned long long)p->uid,
            (unsigned long long)p->uid);
    for (int i = 0; i < p->n_calls; i++) {
        const lc_plan_call *pc = &p->calls[i];
        const lc_call *c = &pc->call;
        char name[96];
        fprintf(f, "p%llu_%d [shape=box,label=\"%d %s", (unsigned long long)p->uid, i, i, shown(c->op->name, name));
        print_fused(f, c);
        fprintf(f, "\\n%s, %d thr, %.1f us\"];\n", shown(c->kernel->name, name), c->threads, pc->seconds * 1e6);
        /* An edge from the last call that wrote what this one reads. */
        for (int k = 0; k < c->n_in; k++) {
            for (int j = i - 1; j >= 0; j--) {
                const lc_call *w = &p->calls[j].call;
                bool wrote = false;
                for (int o = 0; o < w->n_out; o++) wrote |= overlaps(&w->out[o], &c->in[k]);
                if (!wrote) continue;
                fprintf(f, "p%llu_%d -> p%llu_%d [label=\"%zu\"];\n", (unsigned long long)p->uid, j,
                        (unsigned long long)p->uid, i, view_bytes(&c->in[k]));
                break;
            }
        }
    }
    fprintf(f, "}\n");
}

static lc_status open_dumps(const lc_graph *g, int how_dot, FILE **text, FILE **dot)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.dot", g->dump_path);
    *text = *dot = NULL;
    lc_status status = lc__open_stream(g->dump_path, O_APPEND, text);
    return status < 0 ? status : lc__open_stream(path, how_dot, dot);
}

lc_status lc__dump_check(const lc_graph *g)
{
    FILE *text, *dot;
    if (!g->dump_path) return LC_OK;
    lc_status status = open_dumps(g, O_APPEND, &text, &dot);
    if (text) fclose(text);
    if (dot) fclose(dot);
    return status < 0 ? lc_fail_context(status, "LIGHTC_PLAN_DUMP") : LC_OK;
}

void lc__dump_plans(const lc_graph *g)
{
    FILE *text, *dot;
    (void)!open_dumps(g, O_TRUNC, &text, &dot); /* the files could be written when the graph was made */
    if (text)
        for (int i = 0; i < g->n_plans; i++) dump_text(text, g, g->plans[i]);
    if (dot) {
        fprintf(dot, "digraph lightc {\n");
        for (int i = 0; i < g->n_plans; i++) dump_dot(dot, g->plans[i]);
        fprintf(dot, "}\n");
    }
    if (text) fclose(text);
    if (dot) fclose(dot);
}

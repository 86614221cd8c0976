/* SPDX-License-Identifier: Apache-2.0 */
/* The message of a step's first error, which is kept: the call, its operands and its place in the program. */
#include "record/graph_impl.h"

#include <stdio.h>
#include <string.h>

void lc__input_title(const char *names, int i, char *out, size_t size)
{
    static const char *const by_position[] = {"x", "y", "z"};
    for (int k = 0; names && k < i; k++) {
        names = strchr(names, ' ');
        if (names) names++;
    }
    if (names && *names)
        snprintf(out, size, "%.*s", (int)strcspn(names, " "), names);
    else if (i < 3)
        snprintf(out, size, "%s", by_position[i]);
    else
        snprintf(out, size, "input %d", i);
}

/* Takes the next of the names, which are separated by spaces; without names: x, y, z, ... by position. */
static void input_name(const char **names, int i, char *out, size_t size)
{
    static const char *const by_position[] = {"x", "y", "z"};
    if (*names && **names) {
        size_t n = strcspn(*names, " ");
        snprintf(out, size, "%.*s ", (int)n, *names);
        *names += n + ((*names)[n] == ' ');
    } else {
        snprintf(out, size, "%s", i < 3 ? by_position[i] : "");
        if (*out) strncat(out, " ", size - strlen(out) - 1);
    }
}

/* Appends ", x [64,10]" to `shapes`. */
static void add_operand(char shapes[512], const char **names, int i, int n_in, const lc_type *type)
{
    char one[128], name[64];
    size_t at = strlen(shapes);
    bool named = n_in > 1 || *names;
    input_name(names, i, name, sizeof name);
    if (!type) return;
    snprintf(shapes + at, 512 - at, "%s%s%s%s", at ? ", " : "", named ? name : "x ",
             type->dtype == LC_F32 ? "" : lc_dtype_name(type->dtype), lc__shape_text(type, one, sizeof one));
}

/* The current message becomes "title: message (shapes) at file:line". */
static lc_status fail_at(lc_status status, const char *title, const char *shapes, lc_site site)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s: %s", title, lc_error_message());
    if (n < 0 || (size_t)n >= sizeof text) n = (int)sizeof text - 1;
    if (*shapes) n += snprintf(text + n, sizeof text - (size_t)n, " (%s)", shapes);
    if ((size_t)n < sizeof text) snprintf(text + n, sizeof text - (size_t)n, "%s", lc__at_site(site).text);
    return lc_fail(status, "%s", text);
}

void lc__record_error(lc_graph *g, lc_status status, const char *title, lc_site site, const char *names,
                      lc_tensor *const *in, int n_in)
{
    if (!g || g->status != LC_OK) return;
    char shapes[512] = "";
    for (int i = 0; i < n_in; i++) add_operand(shapes, &names, i, n_in, lc__is_tensor(in[i]) ? &in[i]->type : NULL);
    g->status = fail_at(status, title, shapes, site);
    snprintf(g->error, sizeof g->error, "%s", lc_error_message());
}

const char *lc__op_title(const lc_op *op, int n_int, const int64_t *ints)
{
    return op->title ? op->title(n_int, ints) : op->name;
}

lc_status lc__call_error(const lc_call *call, lc_status status, lc_site site)
{
    const char *names = call->op->inputs;
    char shapes[512] = "";
    for (int i = 0; i < call->n_in; i++) {
        const lc_view *v = &call->in[i];
        lc_type type = lc__view_type(v);
        add_operand(shapes, &names, i, call->n_in, v->ndim < 0 ? NULL : &type);
    }
    return fail_at(status, lc__op_title(call->op, call->n_int, call->ints), shapes, site);
}

void lc__operand_name(const lc_op *op, int i, char *out, size_t size)
{
    const char *names = op->inputs;
    for (int k = 0; k <= i; k++) input_name(&names, k, out, size);
    size_t n = strlen(out);
    if (n) out[n - 1] = '\0';
}

void lc__refuse_call(lc_status status, const char *title, lc_site site)
{
    lc_graph *g = lc__current;
    if (g && g->recording)
        lc__record_error(g, status, title, site, NULL, NULL, 0);
    else
        (void)lc_fail_context(status, "%s", title);
}

lc_status lc__no_tensor(const lc_tensor *t, const char *what)
{
    return lc_fail(LC_ERR_ARGUMENT,
                   t ? "%s is not a tensor; it was never made, has been freed, or is another object" : "%s is NULL",
                   what);
}

void lc__refuse_tensor(const lc_tensor *t, const char *what, const char *title, lc_site site)
{
    lc__refuse_call(lc__no_tensor(t, what), title, site);
}

lc_site lc__site_of(const lc_tensor *t)
{
    const lc_graph *g = lc__current;
    if (!g || t->graph != g || t->generation != g->generation) return LC__NO_SITE;
    for (uint32_t k = g->tape.n_nodes; k-- > 0;)
        if (t->value - g->tape.nodes[k].first_out < g->tape.nodes[k].n_out) return g->tape.sites[k];
    return LC__NO_SITE;
}

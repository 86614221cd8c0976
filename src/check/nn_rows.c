/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of lightc/ops_nn.h. */
#include "check/form.h"
#include "check/rows_nn.h"

#include <stdlib.h>
#include <string.h>

static lc_tensor *build(const void *of, lc_tensor *const *in)
{
    const row *r = of;
    return r->build(in);
}

static void parse(const char *text, form *f, int k)
{
    char *end;
    f->grad[k] = !strchr(text, '!') && *text != 'i';
    f->kind[k] = *text++;
    if (f->kind[k] == 'i') {
        f->below[k] = strtol(text, &end, 10);
        text = end + 1;
    }
    for (; *text && *text != '!'; text = *end == ',' ? end + 1 : end) f->in[k].d[f->in[k].n++] = strtol(text, &end, 10);
}

lc_status check_nn_rows(check *c)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        form f = {.row = &rows[i], .build = build};
        for (; f.n_in < MAX_IN && rows[i].in[f.n_in]; f.n_in++) parse(rows[i].in[f.n_in], &f, f.n_in);
        LC_TRY(check_form(c, &f));
    }
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of lightc/ops_math.h. */
#include "check/form.h"
#include "check/rows_math.h"

#include <string.h>

static lc_tensor *build(const void *of, lc_tensor *const *in)
{
    const row *r = of;
    return r->build(in[0], in[1], in[2]);
}

/* From each type to each other. */
static lc_tensor *build_cast(const void *of, lc_tensor *const *in)
{
    const lc_dtype *types = of;
    return lc_cast(lc_cast(in[0], types[0]), types[1]);
}

static lc_status check_casts(check *c)
{
    static const lc_dtype all[] = {LC_F32, LC_F64, LC_F16, LC_BF16, LC_I64, LC_I32, LC_U8, LC_BOOL};
    enum { N = sizeof all / sizeof *all };
    for (int i = 0; i < N * N; i++) {
        lc_dtype types[] = {all[i / N], all[i % N]};
        form f = {.n_in = 1, .in = {{3, {2, 3, 4}}}, .kind = {'p'}, .row = types, .build = build_cast};
        LC_TRY(check_form(c, &f));
    }
    return LC_OK;
}

lc_status check_math_rows(check *c)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        form f = {.n_in = (int)strlen(r->domain), .row = r, .build = build};
        for (int k = 0; k < f.n_in; k++) {
            f.in[k] = r->in[k];
            f.kind[k] = r->domain[k];
            f.below[k] = 3;
            f.grad[k] = !(r->flags & NO_GRAD);
        }
        LC_TRY(check_form(c, &f));
    }
    return check_casts(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* accumulate_grad: stores or adds a gradient in its place. in: gradient range (persistent), value of the same type;
 * ints: 0 overwrite, 1 add. */
#include "base/number.h"
#include "ops/infer.h"
#include "ops/ops.h"

static lc_status infer_accumulate(lc_infer *call)
{
    call->n_out = 0;
    if (lc__type_equal(call->in[0], call->in[1])) return LC_OK;
    char place[128], value[128];
    return lc_fail(LC_ERR_INTERNAL, "a gradient of %s %s was given %s %s", lc_dtype_name(call->in[0]->dtype),
                   lc__shape_text(call->in[0], place, sizeof place), lc_dtype_name(call->in[1]->dtype),
                   lc__shape_text(call->in[1], value, sizeof value));
}

static void add_dims(const lc_view *to, const lc_view *from, int dim, int64_t t, int64_t f)
{
    if (dim == to->ndim) {
        if (to->dtype == LC_F32)
            ((float *)to->data)[t] += ((const float *)from->data)[f];
        else
            lc__set_number(to->data, to->dtype, t,
                           lc__number_at(to->data, to->dtype, t) + lc__number_at(from->data, from->dtype, f));
        return;
    }
    for (int64_t i = 0; i < to->shape[dim]; i++)
        add_dims(to, from, dim + 1, t + i * to->stride[dim], f + i * from->stride[dim]);
}

static void run_accumulate(const lc_call *c)
{
    if (!c->ints[0]) {
        lc__copy_strided(&c->in[1], &c->in[0]);
        return;
    }
    int64_t n = 1;
    bool same = true;
    for (int i = 0; i < c->in[0].ndim; i++) {
        n *= c->in[0].shape[i];
        same &= c->in[0].shape[i] == 1 || c->in[0].stride[i] == c->in[1].stride[i];
    }
    if (same)
        lc__add_numbers(c->in[0].data, c->in[1].data, c->in[0].dtype, n);
    else
        add_dims(&c->in[0], &c->in[1], 0, 0, 0);
}

static const lc_kernel accumulate_kernel = {.name = "accumulate", .layout = LC_WANT_STRIDED, .run = run_accumulate};
const lc_op lc__op_accumulate = {.name = "accumulate_grad",
                                 .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                                 .infer = infer_accumulate,
                                 .mutated_inputs = 1,
                                 .kernel = &accumulate_kernel};

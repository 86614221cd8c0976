/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a call's operands. */
#include "check/values.h"

#include <stdlib.h>

const lc_view *values_operand(const lc_call *call, int i)
{
    return i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
}

bool values_is_written(const lc_call *call, int i)
{
    return i >= call->n_in || (call->op->mutated_inputs >> i & 1);
}

lc_status values_copy(const lc_view *v, lc_view *out)
{
    lc_type type = lc__view_type(v);
    lc__view_of(&type, LC_ROW_MAJOR, malloc((size_t)lc__numel(&type) * lc_dtype_size(v->dtype) + 1), out);
    if (!out->data) return lc_fail(LC_ERR_MEMORY, "out of memory for operands");
    lc__copy_strided(v, out);
    return LC_OK;
}

/* The call's result remains what it was. */
static lc_status keep_twice(lc_call *call, values *v)
{
    LC_TRY(values_copy(&v->after[call->n_in], &v->twice));
    call->accumulate = true;
    call->kernel->run(call);
    call->accumulate = false;
    lc__copy_strided(&call->out[0], &v->twice);
    lc__copy_strided(&v->after[call->n_in], &call->out[0]);
    return LC_OK;
}

lc_status values_keep(lc_call *call, bool after, values *v)
{
    v->twice = (lc_view){.ndim = -1};
    for (int i = 0; i < v->n; i++) {
        const lc_view *from = values_operand(call, i);
        lc_view *to = after ? &v->after[i] : &v->before[i];
        *to = (lc_view){.ndim = -1};
        if (from->ndim < 0 || (after && !values_is_written(call, i)) || (!after && i >= call->n_in)) continue;
        LC_TRY(values_copy(from, to));
    }
    return after && call->n_out && call->kernel->flags & LC_KERNEL_ACCUMULATES ? keep_twice(call, v) : LC_OK;
}

void values_forget(values *v)
{
    for (int i = 0; i < v->n; i++) {
        free(v->before[i].data);
        free(v->after[i].data);
    }
    free(v->twice.data);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The reference kernel of cast: any data type to any other. Numbers too large for an integer become its largest, NaN
 * becomes 0; to bool, everything except 0 is true. */

#include "ops/elementwise.h"
#include "base/half.h"
#include "base/number.h"
#include "ops/walk.h"

void lc__cast_run(const lc_call *call)
{
    const lc_view *to = &call->out[0], *from = &call->in[0];
    if (to->dtype == from->dtype) {
        lc__copy_view(to, from);
        return;
    }
    bool whole = !lc_dtype_is_float(from->dtype) && !lc_dtype_is_float(to->dtype); /* i64 does not fit a double */
    lc__walk w;
    const lc_view *v[] = {to, from};
    lc__walk_start(&w, to->ndim, to->shape, 2, v);
    while (lc__walk_next(&w))
        for (int64_t i = 0; i < w.length; i++) {
            char *out = w.data[0] + i * w.step[0];
            const char *in = w.data[1] + i * w.step[1];
            if (whole)
                lc__store_integer(out, to->dtype, lc__load_integer(in, from->dtype));
            else
                lc__store_number(out, to->dtype, lc__load_number(in, from->dtype));
        }
}

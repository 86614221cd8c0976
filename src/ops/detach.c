/* SPDX-License-Identifier: Apache-2.0 */
/* detach: x without its history. */
#include "ops/infer.h"
#include "ops/ops.h"
#include "record/graph_impl.h"

#include <string.h>

static bool view_same(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset)
{
    (void)call;
    memcpy(out->stride, in->stride, sizeof out->stride);
    *offset = 0;
    return true;
}

const lc_op lc__op_detach = {
    .name = "detach", .flags = LC_OP_VIEW | LC_OP_NO_GRAD, .n_out = 1, .infer = lc__infer_same, .view = view_same};

lc_tensor *lc_detach_at(lc_tensor *x, lc_site site)
{
    if (!lc__check_tensor(x, "x", "detach", site)) return lc__error_tensor();
    return lc_op_call(&lc__op_detach, 1, &x, 0, NULL, 0, NULL, site);
}

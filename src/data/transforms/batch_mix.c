/* SPDX-License-Identifier: Apache-2.0 */
/* MixUp and CutMix as operators of a step.
 *
 *   mix_batch  keys[B] | mix H W | alpha -> blend[] own[] box[4]
 *
 * draws for a batch: the share of a sample's own numbers, that of its own label, and the rectangle that comes from the
 * other sample. What follows are operators that there are. */
#include "data/mix.h"
#include "data/transforms/batch.h"
#include "base/handle.h"
#include "ops/infer.h"
#include "ops/nn_util.h"
#include "record/graph_impl.h"

#include <lightc/op.h>
#include <lightc/ops.h>
#include <lightc/transforms.h>

static lc_status mix_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__check_keys(call, 0));
    for (int i = 0; i < 3; i++) lc__set_type(&call->out[i], i < 2 ? LC_F32 : LC_I64, i < 2 ? 0 : 1, (int64_t[]){4});
    return LC_OK;
}

/* One draw for the batch, by the key of its first sample. */
static void mix_run(const lc_call *c)
{
    const lc_view *keys = &c->in[0], *box = &c->out[2];
    lc_sample_spec spec = {.n = 2};
    lc__mixture m = {.own = 1};
    spec.fields[0] = (lc_field){.ndim = 2, .shape = {c->ints[1], c->ints[2]}};
    if (keys->shape[0])
        m = lc__mix_draw(&spec, (lc_mix)c->ints[0], c->floats[0],
                         lc_random_key_name(*(const uint64_t *)keys->data, "mix"));
    const int64_t sides[4] = {m.top, m.bottom, m.left, m.right};
    *(float *)c->out[0].data = m.cuts ? 1 : (float)m.own;
    *(float *)c->out[1].data = (float)m.own;
    for (int i = 0; i < 4; i++) ((int64_t *)box->data)[i * box->stride[0]] = sides[i];
}

static bool mix_supports(const lc_call *c)
{
    return c->out[0].dtype == LC_F32 && c->out[1].dtype == LC_F32;
}

static const lc_kernel mix_kernel = {.name = "reference",
                                     .layout = LC_WANT_STRIDED,
                                     .flags = LC_KERNEL_SERIAL,
                                     .supports = mix_supports,
                                     .run = mix_run};
const lc_op lc__op_mix_batch = {.name = "mix_batch",
                                .inputs = "keys",
                                .flags = LC_OP_NO_GRAD,
                                .n_out = 3,
                                .infer = mix_infer,
                                .kernel = &mix_kernel};

/* Whether each of the n places is in the box, along one of its sides. */
static lc_tensor *between(lc_tensor *box, int side, int64_t n)
{
    lc_tensor *places = lc_arange(0, 1, n, LC_I64);
    return lc_logical_and(lc_ge(places, lc_slice(box, 0, side, 1)), lc_lt(places, lc_slice(box, 0, side + 1, 1)));
}

/* The sample before each one; before the first is the last. */
static lc_tensor *before(lc_tensor *x)
{
    const int64_t n = lc_tensor_shape(x)[0];
    return n < 2 ? x : lc_cat(0, lc_slice(x, 0, n - 1, 1), lc_slice(x, 0, 0, n - 1));
}

static lc_tensor *blend(lc_tensor *x, lc_tensor *other, lc_tensor *own)
{
    return lc_add(lc_mul(x, own), lc_mul(other, lc_sub(lc_ones_like(own), own)));
}

static lc_status check_mix(lc_tensor *x, lc_tensor *y, lc_mix mix, double alpha)
{
    lc_sample_spec spec = {.n = 2};
    lc_tensor *const both[2] = {x, y};
    for (int i = 0; i < 2; i++) {
        if (lc_tensor_ndim(both[i]) < 1) return lc_fail(LC_ERR_SHAPE, "mix: x and y need a dimension for samples");
        spec.fields[i] =
            lc__sample_of(lc_tensor_dtype(both[i]), lc_tensor_ndim(both[i]), lc_tensor_shape(both[i]), LC_ROW_MAJOR);
        spec.fields[i].name = i ? "y" : "x";
    }
    return lc__mix_check(&spec, mix, alpha);
}

void lc_mix_batch_at(lc_tensor **x, lc_tensor **y, lc_tensor *keys, lc_mix mix, double alpha, lc_site site)
{
    const char *const who = "mix_batch";
    lc_tensor *own[3], *failed = lc__error_tensor();
    if (!x || !y) {
        (void)lc__refuse(lc__is_null("lc_mix_batch", x ? "y" : "x"), who, NULL, site);
        return;
    }
    lc_tensor *const from = *x, *const labels = *y;
    *x = *y = failed;
    if (!lc__check_tensor(from, "x", who, site) || !lc__check_tensor(labels, "y", who, site) ||
        !lc__check_tensor(keys, "keys", who, site))
        return;
    if (lc_tensor_is_error(from) || lc_tensor_is_error(labels) || lc_tensor_is_error(keys)) return;
    lc_status status = check_mix(from, labels, mix, alpha);
    if (status == LC_OK && (lc_tensor_ndim(keys) != 1 || lc_tensor_shape(keys)[0] != lc_tensor_shape(from)[0]))
        status = lc_fail(LC_ERR_SHAPE, "x needs a sample for each key, and keys must be i64 [B]");
    if (status < 0) {
        (void)lc__refuse(status, who, from, site);
        return;
    }
    *x = from, *y = labels;
    if (mix == LC_MIX_NONE) return;
    const int64_t *shape = lc_tensor_shape(from);
    const int ndim = lc_tensor_ndim(from);
    const int64_t height = ndim < 3 ? 1 : shape[ndim - 2], width = ndim < 3 ? 1 : shape[ndim - 1];
    lc_op_call_n(&lc__op_mix_batch, LC_IN(keys), LC_ATTRS(mix, height, width), LC_FLOATS(alpha), own, site);
    if (lc_tensor_is_error(own[0])) {
        *x = *y = failed;
        return;
    }
    lc_tensor *mixed = blend(from, before(from), own[0]);
    if (mix != LC_MIXUP) {
        lc_tensor *inside = lc_logical_and(lc_unsqueeze(between(own[2], 0, height), 1), between(own[2], 2, width));
        mixed = lc_where(inside, before(from), mixed);
    }
    *x = mixed;
    *y = blend(labels, before(labels), own[1]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* update_scale: the scale of the loss after an update, as one operator: a step records and runs it in no time worth
 * noting. */
#include "precision/update_scale.h"

#include "base/number.h"

#include <float.h>
#include <math.h>

/* in: scale, its reciprocal, the count of updates since the scale last changed, a copy of the former two (all f32,
 * written), and the factor of the gradients, which is not finite if they overflowed; ints: growth_interval, whether the
 * scale and its reciprocal are copied before they change; floats: growth_factor, backoff_factor.
 * The scale stays at least 2^-126, so that its reciprocal is a number. PyTorch's amp_update_scale:
 * https://github.com/pytorch/pytorch, aten/src/ATen/native/cuda/AmpKernels.cu */
static void run_update_scale(const lc_call *c)
{
    float *scale = c->in[0].data, *unscale = c->in[1].data, *count = c->in[2].data;
    bool fits = isfinite(lc__load_number(c->in[5].data, c->in[5].dtype));
    bool grows = fits && *count + 1 >= (float)c->ints[0];
    if (c->ints[1]) *(float *)c->in[3].data = *scale, *(float *)c->in[4].data = *unscale;
    float changed = (float)(*scale * c->floats[fits ? 0 : 1]);
    if (!fits)
        *scale = fmaxf(changed, FLT_MIN);
    else if (grows && isfinite(changed))
        *scale = changed;
    *unscale = 1 / *scale;
    *count = fits && !grows ? *count + 1 : 0;
}

static lc_status infer_update_scale(lc_infer *call)
{
    call->n_out = 0;
    return LC_OK;
}

static const lc_kernel kernel = {
    .name = "reference", .layout = LC_WANT_ROW_MAJOR, .flags = LC_KERNEL_SERIAL, .run = run_update_scale};

const lc_op lc__op_update_scale = {
    .name = "update_scale",
    .inputs = "scale unscale count held held_unscale factor",
    .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
    .infer = infer_update_scale,
    .mutated_inputs = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
    .kernel = &kernel,
};

void lc__update_scale(const lc__scale *s, bool holds, lc_tensor *factor, int64_t interval, double growth,
                      double backoff)
{
    lc_op_call(&lc__op_update_scale, 6,
               (lc_tensor *[]){s->scale, s->unscale, s->count, s->held, s->held_unscale, factor}, 2,
               (int64_t[]){interval, holds}, 2, (double[]){growth, backoff}, LC_HERE);
}

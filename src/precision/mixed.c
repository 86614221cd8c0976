/* SPDX-License-Identifier: Apache-2.0 */
/* "16-mixed", and mixed precision of the program: autocast, with a dynamic scale of the loss.
 *
 * Scale, its reciprocal and the count of updates since it last changed are numbers on the run's device, changed by
 * operators of the step: no step waits for the device. Several optimizers may apply gradients of one backward pass, or
 * of one window of accumulation: so within a step losses and gradients keep the scale that the first ones had, which
 * the first update holds. The norm of the gradients, which is the same on all ranks, shows whether they are finite: so
 * all ranks have the same scale without an exchange. */
#include "base/owned.h"
#include "base/args.h"
#include "base/handle.h"
#include "module/tensors.h"
#include "precision/precisions.h"
#include "precision/update_scale.h"
#include "record/graph_impl.h"

#include <float.h>
#include <lightc/lightc.h>
#include <stdlib.h>

#define SCALE_NEEDS                                                                                                    \
    "it must be from 2^-126 to below 2^128, growth_factor above 1, backoff_factor between 0 and 1, and "               \
    "growth_interval from 1 to 2^24"

typedef struct scaler {
    lc_dtype dtype;
    double growth_factor, backoff_factor;
    int64_t growth_interval;
    double first_scale, first_count; /* until the numbers below exist */
    lc__scale now;
    bool holds;    /* the step `step` has updated: its scale is the held one */
    uint64_t step; /* as lc_step_begin got it */
} scaler;

/* Its reciprocal is finite, too. */
static bool is_scale(double v)
{
    return v >= (double)FLT_MIN && v <= (double)FLT_MAX;
}

static bool can_change(double growth_factor, double backoff_factor, int64_t growth_interval)
{
    return growth_factor > 1 && growth_factor <= (double)FLT_MAX && backoff_factor > 0 && backoff_factor < 1 &&
           growth_interval >= 1 && growth_interval <= 1 << 24;
}

static lc_status set_number(double value, lc_tensor **number)
{
    float f = (float)value;
    if (!*number) LC_TRY(lc_tensor_new(LC_F32, 0, NULL, number));
    return lc_tensor_write(*number, &f, sizeof f);
}

static lc_status set_numbers(scaler *s)
{
    s->holds = false;
    LC_TRY(set_number(s->first_scale, &s->now.scale));
    LC_TRY(set_number(1 / s->first_scale, &s->now.unscale));
    LC_TRY(set_number(s->first_scale, &s->now.held));
    LC_TRY(set_number(1 / s->first_scale, &s->now.held_unscale));
    return set_number(s->first_count, &s->now.count);
}

static void release(void *self)
{
    scaler *s = self;
    lc_tensor *const all[] = {s->now.scale, s->now.unscale, s->now.count, s->now.held, s->now.held_unscale};
    for (int i = 0; i < 5; i++) lc_tensor_unref(all[i]);
}

static lc_status new_scaler(const lc_mixed_precision_args *a, scaler **out)
{
    scaler *s = lc__owned_new(sizeof *s, release);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: a precision");
    s->dtype = a->dtype;
    s->growth_factor = a->growth_factor;
    s->backoff_factor = a->backoff_factor;
    s->growth_interval = a->growth_interval;
    s->first_scale = a->init_scale;
    *out = s;
    return LC_OK;
}

static lc_status copy(const void *self, void **out)
{
    const scaler *s = self;
    lc_mixed_precision_args a =
        LC_ARGS(lc_mixed_precision, .dtype = s->dtype, .init_scale = s->first_scale, .growth_factor = s->growth_factor,
                .backoff_factor = s->backoff_factor, .growth_interval = s->growth_interval);
    return new_scaler(&a, (scaler **)out);
}

static lc_status configure_graph(void **self, lc_graph_args *graph)
{
    lc_mixed_precision_args defaults = lc_mixed_precision_defaults();
    if (!*self) LC_TRY(new_scaler(&defaults, (scaler **)self));
    graph->autocast = ((scaler *)*self)->dtype;
    return LC_OK;
}

/* The numbers are made on the device of the run. */
static lc_status convert_module(void **self, lc_module *m)
{
    scaler *s = *self;
    LC_TRY(lc__module_store(m, LC_F32));
    s->holds = false;
    return s->now.scale ? LC_OK : set_numbers(s);
}

static void after_update(void *self, lc_optimizer *optimizer)
{
    scaler *s = self;
    lc_graph *g = lc_current_graph();
    if (!optimizer->factor) return;
    lc__update_scale(&s->now, !s->holds, optimizer->factor, s->growth_interval, s->growth_factor, s->backoff_factor);
    if (s->holds) return;
    s->holds = true;
    s->step = g->rng.step;
    lc_graph_set_unscale(g, s->now.held_unscale, after_update, s);
}

static int tensors(void *self, lc_tensor **out)
{
    const scaler *s = self;
    out[0] = s->now.scale;
    out[1] = s->now.held;
    return 2;
}

static lc_tensor *scale_loss(void *self, lc_tensor *loss)
{
    scaler *s = self;
    lc_graph *g = lc_current_graph();
    s->holds &= s->step == g->rng.step;
    lc_graph_set_unscale(g, s->holds ? s->now.held_unscale : s->now.unscale, after_update, s);
    return lc_mul_at(loss, s->holds ? s->now.held : s->now.scale, lc__site_of(loss)); /* errors name the loss's line */
}

/* ---- state: as Lightning's, the scale after the last update and the updates since it last changed ---- */

static lc_status read_numbers(const scaler *s, double *scale, double *count)
{
    *scale = s->first_scale;
    *count = s->first_count;
    if (!s->now.scale) return LC_OK;
    LC_TRY(lc_item(s->now.scale, scale));
    return lc_item(s->now.count, count);
}

static lc_status save_state(void *self, lc_state *state)
{
    const scaler *s = self;
    double scale, count;
    LC_TRY(read_numbers(s, &scale, &count));
    LC_TRY(lc_state_set_double(state, "scale", scale));
    LC_TRY(lc_state_set_double(state, "growth_factor", s->growth_factor));
    LC_TRY(lc_state_set_double(state, "backoff_factor", s->backoff_factor));
    LC_TRY(lc_state_set_int(state, "growth_interval", s->growth_interval));
    return lc_state_set_int(state, "_growth_tracker", (int64_t)count);
}

/* A state of another precision has no scale: the first one is used. */
static lc_status load_state(void *self, const lc_state *state)
{
    scaler *s = self;
    int64_t count, interval;
    double scale, growth, backoff;
    if (!lc_state_find(state, "scale")) return LC_OK;
    LC_TRY(lc_state_get_double(state, "scale", &scale));
    LC_TRY(lc_state_get_int(state, "_growth_tracker", &count));
    LC_TRY(lc_state_get_double(state, "growth_factor", &growth));
    LC_TRY(lc_state_get_double(state, "backoff_factor", &backoff));
    LC_TRY(lc_state_get_int(state, "growth_interval", &interval));
    if (!is_scale(scale) || count < 0 || count > 1 << 24 || !can_change(growth, backoff, interval))
        return lc_fail(LC_ERR_FORMAT,
                       "the scale of the loss is %g after %lld updates, with growth_factor %g, backoff_factor %g and "
                       "growth_interval %lld: " SCALE_NEEDS,
                       scale, (long long)count, growth, backoff, (long long)interval);
    s->growth_factor = growth;
    s->backoff_factor = backoff;
    s->growth_interval = interval;
    s->first_scale = scale;
    s->first_count = (double)count;
    return s->now.scale ? set_numbers(s) : LC_OK;
}

const lc_precision_ops lc__precision_16_mixed = {
    LC_PRECISION_OPS_INIT("16-mixed"),
    .scale_changes = true,
    .copy = copy,
    .configure_graph = configure_graph,
    .convert_module = convert_module,
    .tensors = tensors,
    .scale_loss = scale_loss,
    .save_state = save_state,
    .load_state = load_state,
    .teardown = lc__owned_free,
};

/* ---- of the program ---- */

/* Whether anything about the scale is not as by default. */
static bool sets_scale(const lc_mixed_precision_args *a)
{
    const lc_mixed_precision_args d = lc_mixed_precision_defaults();
    return a->init_scale != d.init_scale || a->growth_factor != d.growth_factor ||
           a->backoff_factor != d.backoff_factor || a->growth_interval != d.growth_interval;
}

lc_status lc_mixed_precision_with(lc_precision *out, const lc_mixed_precision_args *args)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_precision){0};
    LC__TAKE_IF_GIVEN(a, lc_mixed_precision, lc_mixed_precision_args, args);
    if (a.dtype == LC_BF16 && sets_scale(&a))
        return lc_fail(LC_ERR_ARGUMENT, "mixed precision of bf16 has no scale of the loss: leave out init_scale, "
                                        "growth_factor, backoff_factor and growth_interval, or give LC_F16");
    if (a.dtype == LC_BF16) {
        *out = (lc_precision){&lc__precision_bf16_mixed, NULL};
        return LC_OK;
    }
    if (a.dtype != LC_F16)
        return lc_fail(LC_ERR_ARGUMENT, "mixed precision: dtype is %s; it must be LC_F16 or LC_BF16",
                       lc_dtype_name(a.dtype));
    if (!is_scale(a.init_scale) || !can_change(a.growth_factor, a.backoff_factor, a.growth_interval))
        return lc_fail(LC_ERR_ARGUMENT,
                       "the scale of the loss is to begin with init_scale %g, growth_factor %g, backoff_factor %g and "
                       "growth_interval %lld: " SCALE_NEEDS,
                       a.init_scale, a.growth_factor, a.backoff_factor, (long long)a.growth_interval);
    scaler *s = NULL;
    LC_TRY(new_scaler(&a, &s));
    *out = (lc_precision){&lc__precision_16_mixed, s};
    return LC_OK;
}

/* A trainer has a copy of the ops. */
lc_status lc_precision_scale(lc_precision precision, double *scale)
{
    double count;
    LC__NEEDS(scale, LC_ERR_ARGUMENT);
    LC__NEEDS(precision.ops, LC_ERR_ARGUMENT);
    if (precision.ops->scale_loss != scale_loss)
        return lc_fail(LC_ERR_STATE, "the precision %s has no scale that lc_precision_scale could read",
                       precision.ops->name);
    if (!precision.self) return lc_fail(LC_ERR_STATE, "no run has begun, so the loss has no scale yet");
    return read_numbers(precision.self, scale, &count);
}

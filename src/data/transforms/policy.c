/* SPDX-License-Identifier: Apache-2.0 */
/* AutoAugment (Cubuk et al., 2019), RandAugment (Cubuk et al., 2019) and TrivialAugment (Müller and Hutter, 2021), with
 * torchvision's tables. */
#include "data/transforms/policy.h"
#include "data/transforms/transform.h"
#include "data/transforms/warp.h"

#include <stdlib.h>
#include <string.h>

typedef lc_transform_policy_args args;

/* An operation with a chance, and which of ten magnitudes it has. */
typedef struct step {
    lc__augment op;
    double p;
    int magnitude;
} step;

#define I(op, p)    LC__##op, p, 0 /* without a magnitude */
#define M(op, p, m) LC__##op, p, m

static const step imagenet[25][2] = {
    {{M(POSTERIZE, 0.4, 8)}, {M(ROTATE, 0.6, 9)}}, {{M(SOLARIZE, 0.6, 5)}, {I(AUTOCONTRAST, 0.6)}},
    {{I(EQUALIZE, 0.8)}, {I(EQUALIZE, 0.6)}},      {{M(POSTERIZE, 0.6, 7)}, {M(POSTERIZE, 0.6, 6)}},
    {{I(EQUALIZE, 0.4)}, {M(SOLARIZE, 0.2, 4)}},   {{I(EQUALIZE, 0.4)}, {M(ROTATE, 0.8, 8)}},
    {{M(SOLARIZE, 0.6, 3)}, {I(EQUALIZE, 0.6)}},   {{M(POSTERIZE, 0.8, 5)}, {I(EQUALIZE, 1.0)}},
    {{M(ROTATE, 0.2, 3)}, {M(SOLARIZE, 0.6, 8)}},  {{I(EQUALIZE, 0.6)}, {M(POSTERIZE, 0.4, 6)}},
    {{M(ROTATE, 0.8, 8)}, {M(COLOR, 0.4, 0)}},     {{M(ROTATE, 0.4, 9)}, {I(EQUALIZE, 0.6)}},
    {{I(EQUALIZE, 0.0)}, {I(EQUALIZE, 0.8)}},      {{I(INVERT, 0.6)}, {I(EQUALIZE, 1.0)}},
    {{M(COLOR, 0.6, 4)}, {M(CONTRAST, 1.0, 8)}},   {{M(ROTATE, 0.8, 8)}, {M(COLOR, 1.0, 2)}},
    {{M(COLOR, 0.8, 8)}, {M(SOLARIZE, 0.8, 7)}},   {{M(SHARPNESS, 0.4, 7)}, {I(INVERT, 0.6)}},
    {{M(SHEAR_X, 0.6, 5)}, {I(EQUALIZE, 1.0)}},    {{M(COLOR, 0.4, 0)}, {I(EQUALIZE, 0.6)}},
    {{I(EQUALIZE, 0.4)}, {M(SOLARIZE, 0.2, 4)}},   {{M(SOLARIZE, 0.6, 5)}, {I(AUTOCONTRAST, 0.6)}},
    {{I(INVERT, 0.6)}, {I(EQUALIZE, 1.0)}},        {{M(COLOR, 0.6, 4)}, {M(CONTRAST, 1.0, 8)}},
    {{I(EQUALIZE, 0.8)}, {I(EQUALIZE, 0.6)}},
};

static const step cifar10[25][2] = {
    {{I(INVERT, 0.1)}, {M(CONTRAST, 0.2, 6)}},          {{M(ROTATE, 0.7, 2)}, {M(TRANSLATE_X, 0.3, 9)}},
    {{M(SHARPNESS, 0.8, 1)}, {M(SHARPNESS, 0.9, 3)}},   {{M(SHEAR_Y, 0.5, 8)}, {M(TRANSLATE_Y, 0.7, 9)}},
    {{I(AUTOCONTRAST, 0.5)}, {I(EQUALIZE, 0.9)}},       {{M(SHEAR_Y, 0.2, 7)}, {M(POSTERIZE, 0.3, 7)}},
    {{M(COLOR, 0.4, 3)}, {M(BRIGHTNESS, 0.6, 7)}},      {{M(SHARPNESS, 0.3, 9)}, {M(BRIGHTNESS, 0.7, 9)}},
    {{I(EQUALIZE, 0.6)}, {I(EQUALIZE, 0.5)}},           {{M(CONTRAST, 0.6, 7)}, {M(SHARPNESS, 0.6, 5)}},
    {{M(COLOR, 0.7, 7)}, {M(TRANSLATE_X, 0.5, 8)}},     {{I(EQUALIZE, 0.3)}, {I(AUTOCONTRAST, 0.4)}},
    {{M(TRANSLATE_Y, 0.4, 3)}, {M(SHARPNESS, 0.2, 6)}}, {{M(BRIGHTNESS, 0.9, 6)}, {M(COLOR, 0.2, 8)}},
    {{M(SOLARIZE, 0.5, 2)}, {I(INVERT, 0.0)}},          {{I(EQUALIZE, 0.2)}, {I(AUTOCONTRAST, 0.6)}},
    {{I(EQUALIZE, 0.2)}, {I(EQUALIZE, 0.6)}},           {{M(COLOR, 0.9, 9)}, {I(EQUALIZE, 0.6)}},
    {{I(AUTOCONTRAST, 0.8)}, {M(SOLARIZE, 0.2, 8)}},    {{M(BRIGHTNESS, 0.1, 3)}, {M(COLOR, 0.7, 0)}},
    {{M(SOLARIZE, 0.4, 5)}, {I(AUTOCONTRAST, 0.9)}},    {{M(TRANSLATE_Y, 0.9, 9)}, {M(TRANSLATE_Y, 0.7, 9)}},
    {{I(AUTOCONTRAST, 0.9)}, {M(SOLARIZE, 0.8, 3)}},    {{I(EQUALIZE, 0.8)}, {I(INVERT, 0.1)}},
    {{M(TRANSLATE_Y, 0.7, 9)}, {I(AUTOCONTRAST, 0.9)}},
};

static const step svhn[25][2] = {
    {{M(SHEAR_X, 0.9, 4)}, {I(INVERT, 0.2)}},          {{M(SHEAR_Y, 0.9, 8)}, {I(INVERT, 0.7)}},
    {{I(EQUALIZE, 0.6)}, {M(SOLARIZE, 0.6, 6)}},       {{I(INVERT, 0.9)}, {I(EQUALIZE, 0.6)}},
    {{I(EQUALIZE, 0.6)}, {M(ROTATE, 0.9, 3)}},         {{M(SHEAR_X, 0.9, 4)}, {I(AUTOCONTRAST, 0.8)}},
    {{M(SHEAR_Y, 0.9, 8)}, {I(INVERT, 0.4)}},          {{M(SHEAR_Y, 0.9, 5)}, {M(SOLARIZE, 0.2, 6)}},
    {{I(INVERT, 0.9)}, {I(AUTOCONTRAST, 0.8)}},        {{I(EQUALIZE, 0.6)}, {M(ROTATE, 0.9, 3)}},
    {{M(SHEAR_X, 0.9, 4)}, {M(SOLARIZE, 0.3, 3)}},     {{M(SHEAR_Y, 0.8, 8)}, {I(INVERT, 0.7)}},
    {{I(EQUALIZE, 0.9)}, {M(TRANSLATE_Y, 0.6, 6)}},    {{I(INVERT, 0.9)}, {I(EQUALIZE, 0.6)}},
    {{M(CONTRAST, 0.3, 3)}, {M(ROTATE, 0.8, 4)}},      {{I(INVERT, 0.8)}, {M(TRANSLATE_Y, 0.0, 2)}},
    {{M(SHEAR_Y, 0.7, 6)}, {M(SOLARIZE, 0.4, 8)}},     {{I(INVERT, 0.6)}, {M(ROTATE, 0.8, 4)}},
    {{M(SHEAR_Y, 0.3, 7)}, {M(TRANSLATE_X, 0.9, 3)}},  {{M(SHEAR_X, 0.1, 6)}, {I(INVERT, 0.6)}},
    {{M(SOLARIZE, 0.7, 2)}, {M(TRANSLATE_Y, 0.6, 7)}}, {{M(SHEAR_Y, 0.8, 4)}, {I(INVERT, 0.8)}},
    {{M(SHEAR_X, 0.7, 9)}, {M(TRANSLATE_Y, 0.8, 3)}},  {{M(SHEAR_Y, 0.8, 5)}, {I(AUTOCONTRAST, 0.7)}},
    {{M(SHEAR_X, 0.7, 2)}, {I(INVERT, 0.1)}},
};
#undef I
#undef M

static bool has_sign(lc__augment op)
{
    return op >= LC__SHEAR_X && op <= LC__SHARPNESS;
}

/* ---- the transforms ---- */

typedef struct chain {
    const args *a;
    lc__warp how;
    lc__pixels at, turn[2]; /* the picture so far, and two places in turn */
    int n;
} chain;

static void chain_run(chain *c, lc__augment op, double magnitude)
{
    const lc__pixels *to = &c->turn[c->n++ % 2];
    lc__augment_run(op, magnitude, &c->how, &c->at, to);
    c->at = *to;
}

typedef void run_fn(chain *c, uint64_t key);

static void run_auto(chain *c, uint64_t key)
{
    const step(*const table)[2] = c->a->policy == LC_AUTO_AUGMENT_IMAGENET  ? imagenet
                                  : c->a->policy == LC_AUTO_AUGMENT_CIFAR10 ? cifar10
                                                                            : svhn;
    const step *steps = table[lc_random_below(key, 0, 25)];
    const lc__strength s = lc__strength_usual(c->at.height, c->at.width);
    for (uint64_t i = 0; i < 2; i++) {
        if (!(lc_random_uniform(key, 1 + 2 * i) <= steps[i].p)) continue;
        double magnitude = lc__magnitude(steps[i].op, &s, steps[i].magnitude, 10);
        if (has_sign(steps[i].op) && lc_random_uniform(key, 2 + 2 * i) <= 0.5) magnitude = -magnitude;
        chain_run(c, steps[i].op, magnitude);
    }
}

/* All operations except LC__INVERT. */
#define OPERATIONS 14

static void run_rand(chain *c, uint64_t key)
{
    const lc__strength s = lc__strength_usual(c->at.height, c->at.width);
    for (int i = 0; i < c->a->num_ops; i++) {
        const uint64_t own = lc_random_key(key, (uint64_t)i);
        const lc__augment op = (lc__augment)lc_random_below(own, 0, OPERATIONS);
        double magnitude = lc__magnitude(op, &s, c->a->magnitude, c->a->num_magnitude_bins);
        if (has_sign(op) && lc_random_uniform(own, 1) <= 0.5) magnitude = -magnitude;
        chain_run(c, op, magnitude);
    }
}

static void run_trivial(chain *c, uint64_t key)
{
    const lc__augment op = (lc__augment)lc_random_below(key, 0, OPERATIONS);
    const int bins = c->a->num_magnitude_bins, i = (int)lc_random_below(key, 1, (uint64_t)bins);
    double magnitude = lc__magnitude(op, &lc__strength_wide, i, bins);
    if (has_sign(op) && lc_random_uniform(key, 2) <= 0.5) magnitude = -magnitude;
    chain_run(c, op, magnitude);
}

static lc_status policy_describe(void *self, const lc_field *in, lc_field *out)
{
    const args *a = self;
    lc__picture m;
    *out = *in;
    LC_TRY(lc__byte_picture_of("a policy of augmentation", in, 3, &m));
    return lc__check_channels("a policy of augmentation", in, &a->fill_color);
}

static size_t policy_scratch(void *self, const lc_field *in)
{
    (void)self;
    return lc_field_bytes(in);
}

static lc_status policy_run(run_fn *run, const args *a, const lc_field *in, const void *src, void *dst, uint64_t key,
                            void *scratch)
{
    chain c = {.a = a,
               .how = lc__warp_of(a->interpolation, a->fill, &a->fill_color),
               .at = lc__pixels_of(in, src),
               .turn = {lc__pixels_of(in, dst), lc__pixels_of(in, scratch)}};
    run(&c, key);
    if (c.at.at != dst) memcpy(dst, c.at.at, lc_field_bytes(in));
    return LC_OK;
}

#define POLICY(name)                                                                                                   \
    static lc_status name##_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,     \
                                  uint64_t key, void *scratch)                                                         \
    {                                                                                                                  \
        (void)out;                                                                                                     \
        return policy_run(run_##name, self, in, src, dst, key, scratch);                                               \
    }
POLICY(auto)
POLICY(rand)
POLICY(trivial)

static const lc_transform_ops auto_ops = {
    LC_TRANSFORM_OPS_INIT,          .name = "auto_augment", .describe = policy_describe, .apply = auto_apply,
    .scratch_size = policy_scratch, .free = lc__owned_free, .self_size = sizeof(args),
};

static const lc_transform_ops rand_ops = {
    LC_TRANSFORM_OPS_INIT,          .name = "rand_augment", .describe = policy_describe, .apply = rand_apply,
    .scratch_size = policy_scratch, .free = lc__owned_free, .self_size = sizeof(args),
};

static const lc_transform_ops trivial_ops = {
    LC_TRANSFORM_OPS_INIT,          .name = "trivial_augment_wide", .describe = policy_describe, .apply = trivial_apply,
    .scratch_size = policy_scratch, .free = lc__owned_free,         .self_size = sizeof(args),
};

/* The policies share a struct of arguments: the name of one that is given to a policy without it, or NULL. */
static const char *foreign(const lc_transform_ops *ops, const args *a)
{
    const args usual = lc_transform_policy_defaults();
    if (ops != &auto_ops && a->policy != usual.policy) return "policy";
    if (ops != &rand_ops && a->num_ops != usual.num_ops) return "num_ops";
    if (ops != &rand_ops && a->magnitude != usual.magnitude) return "magnitude";
    if (ops == &auto_ops && a->num_magnitude_bins != usual.num_magnitude_bins) return "num_magnitude_bins";
    return NULL;
}

static lc_status make(const lc_transform_ops *ops, const args *a, lc_transform *out)
{
    *out = (lc_transform){0};
    if ((unsigned)a->policy > LC_AUTO_AUGMENT_SVHN)
        return lc_fail(LC_ERR_ARGUMENT, "%s: unknown lc_auto_augment_policy %d", ops->name, (int)a->policy);
    if (a->num_ops < 0 || a->num_ops > 100)
        return lc_fail(LC_ERR_ARGUMENT, "%s: num_ops is %d; it must be from 0 to 100", ops->name, a->num_ops);
    if (a->num_magnitude_bins < 2)
        return lc_fail(LC_ERR_ARGUMENT, "%s: num_magnitude_bins is %d; it must be at least 2", ops->name,
                       a->num_magnitude_bins);
    if (ops == &rand_ops && (a->magnitude < 0 || a->magnitude >= a->num_magnitude_bins))
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: magnitude is %d; it must be from 0 to %d, one less than num_magnitude_bins", ops->name,
                       a->magnitude, a->num_magnitude_bins - 1);
    const char *other = foreign(ops, a);
    if (other) return lc_fail(LC_ERR_ARGUMENT, "%s has no %s", ops->name, other);
    LC_TRY(lc__check_warp(ops->name, a->interpolation, a->fill, &a->fill_color, true));
    return lc__transform_make(ops, a, sizeof *a, out);
}

lc_status lc_transform_auto_augment_with(lc_transform *out, const lc_transform_policy_args *given)
{
    LC__TAKE(a, lc_transform_policy, lc_transform_policy_args, given, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return make(&auto_ops, &a, out);
}

lc_status lc_transform_rand_augment_with(lc_transform *out, const lc_transform_policy_args *given)
{
    LC__TAKE(a, lc_transform_policy, lc_transform_policy_args, given, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return make(&rand_ops, &a, out);
}

lc_status lc_transform_trivial_augment_wide_with(lc_transform *out, const lc_transform_policy_args *given)
{
    LC__TAKE(a, lc_transform_policy, lc_transform_policy_args, given, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return make(&trivial_ops, &a, out);
}

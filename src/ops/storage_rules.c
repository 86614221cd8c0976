/* SPDX-License-Identifier: Apache-2.0 */
/* The classes of lc_autocast_class_of. What is not listed: this room's elementwise operators, and views, follow their
 * operands; all others, those of a program among them, compute and store f32. */
#include "ops/storage_rules.h"

#include "ops/ops.h"

#define ALL    UINT32_MAX
#define BIT(i) ((uint32_t)1 << (i))

typedef struct row {
    const lc_op *op;
    lc__storage_rule rule;
} row;

#define LOW(name, operands, results)    {&lc__op_##name, {LC_AUTOCAST_LOW, operands, results}},
#define FOLLOW(name, operands, results) {&lc__op_##name, {LC_AUTOCAST_FOLLOW, operands, results}},
#define F32(name, operands, results)    {&lc__op_##name, {LC_AUTOCAST_F32, operands, results}},

/* Operands and results of F32 rows matter only if everything is stored low (lc_graph_args.storage). */
/* clang-format off */
static const row rows[] = {
    LOW(matmul, ALL, ALL)
    LOW(linear, ALL, ALL)
    LOW(conv, ALL, ALL)
    LOW(conv_input_grad, ALL, ALL)
    LOW(conv_weight_grad, ALL, ALL)
    LOW(sdpa, BIT(0) | BIT(1) | BIT(2), BIT(0))
    LOW(sdpa_backward, BIT(0) | BIT(1) | BIT(2) | BIT(3) | BIT(5), ALL)

    FOLLOW(contiguous, ALL, ALL)
    FOLLOW(cat, ALL, ALL)
    FOLLOW(pad, ALL, ALL)
    FOLLOW(tril, ALL, ALL)
    FOLLOW(triu, ALL, ALL)
    FOLLOW(flip, ALL, ALL)
    FOLLOW(gather, ALL, ALL)
    FOLLOW(index_select, ALL, ALL)
    FOLLOW(scatter_add, ALL, ALL)
    FOLLOW(index_add, ALL, ALL)
    FOLLOW(amax, ALL, ALL)
    FOLLOW(amin, ALL, ALL)
    FOLLOW(topk, ALL, ALL)
    FOLLOW(max_pool2d, ALL, ALL)
    FOLLOW(max_pool2d_backward, ALL, ALL)
    FOLLOW(avg_pool2d, ALL, ALL)
    FOLLOW(avg_pool2d_backward, ALL, ALL)
    FOLLOW(adaptive_avg_pool2d, ALL, ALL)
    FOLLOW(adaptive_avg_pool2d_backward, ALL, ALL)
    FOLLOW(interpolate, ALL, ALL)
    FOLLOW(interpolate_backward, ALL, ALL)
    FOLLOW(dropout, ALL, ALL)
    FOLLOW(embedding, ALL, ALL)
    FOLLOW(prelu, BIT(0), ALL)
    FOLLOW(prelu_backward, BIT(0) | BIT(1), ALL)
    FOLLOW(batch_norm, BIT(0), BIT(0))
    FOLLOW(batch_norm_backward, BIT(0) | BIT(1), BIT(0))
    FOLLOW(batch_norm_inference, BIT(0), BIT(0))
    FOLLOW(layer_norm, BIT(0), BIT(0))
    FOLLOW(layer_norm_backward, BIT(0) | BIT(1), BIT(0))
    FOLLOW(rms_norm, BIT(0), BIT(0))
    FOLLOW(rms_norm_backward, BIT(0) | BIT(1), BIT(0))
    FOLLOW(group_norm, BIT(0), BIT(0))
    FOLLOW(group_norm_backward, BIT(0) | BIT(1), BIT(0))

    F32(cross_entropy, BIT(0), BIT(0))
    F32(cross_entropy_backward, BIT(0) | BIT(1), BIT(0))
    F32(nll_loss, BIT(0), BIT(0))
    F32(nll_loss_backward, BIT(0), BIT(0))
    F32(exp, ALL, ALL)
    F32(expm1, ALL, ALL)
    F32(log, ALL, ALL)
    F32(log1p, ALL, ALL)
    F32(pow, ALL, ALL)
    F32(pow_scalar, ALL, ALL)
    F32(xlogy, ALL, ALL)
    F32(rsqrt, ALL, ALL)
    F32(reciprocal, ALL, ALL)
    F32(softplus, ALL, ALL)
    F32(mse, ALL, ALL)
    F32(l1, ALL, ALL)
    F32(smooth_l1, ALL, ALL)
    F32(huber, ALL, ALL)
    F32(bce_with_logits, ALL, ALL)
    F32(kl_div, ALL, ALL)
    F32(kl_div_log, ALL, ALL)
};
/* clang-format on */

lc__storage_rule lc__storage_rule_of(const lc_op *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].op == op) return rows[i].rule;
    bool follows = op->flags & LC_OP_VIEW || (op->flags & LC_OP_ELEMENTWISE && lc__is_math_op(op));
    return (lc__storage_rule){follows ? LC_AUTOCAST_FOLLOW : LC_AUTOCAST_F32, ALL, ALL};
}

lc_autocast_class lc_autocast_class_of(const lc_op *op)
{
    return op ? lc__storage_rule_of(op).class : LC_AUTOCAST_F32;
}

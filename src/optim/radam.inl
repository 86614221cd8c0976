/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of RAdam. Hyperparameters: lr, weight_decay, beta1, beta2, eps. State: exp_avg, exp_avg_sq. */

static void LOOP(radam)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict m = r->s[0], *restrict v = r->s[1];
    const double lr = r->h[LC_H_LR], decay = r->h[LC_H_WEIGHT_DECAY], b1 = r->h[2], b2 = r->h[3], t = r->step + 1;
    const double bias2 = 1 - pow(b2, t), rho_inf = 2 / (1 - b2) - 1, rho = rho_inf - 2 * t * pow(b2, t) / bias2;
    /* The adaptive rate has a finite variance from rho = 5 on; below that the update is plain momentum. */
    const bool adaptive = rho > 5;
    const double rect =
        adaptive ? sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)) * sqrt(bias2) : 0;
    const bool decoupled = r->flags & LC_OPT_DECOUPLED_WEIGHT_DECAY;
    const REAL shrink = decoupled ? (REAL)(1 - lr * decay) : 1, add = decoupled ? 0 : (REAL)decay;
    const REAL size = (REAL)(lr / (1 - pow(b1, t)) * (adaptive ? rect : 1)), eps = (REAL)r->h[4];
    const REAL c1 = (REAL)(1 - b1), k2 = (REAL)b2, c2 = (REAL)(1 - b2);
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, add);
        m[i] += c1 * (d - m[i]);
        v[i] = k2 * v[i] + c2 * d * d;
        const REAL denominator = adaptive ? SQRT(v[i]) + eps : 1;
        p[i] = shrink * p[i] - size * m[i] / denominator;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of Adadelta. Hyperparameters: lr, weight_decay, rho, eps. State: square_avg, acc_delta. */

static void LOOP(adadelta)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict v = r->s[0], *restrict acc = r->s[1];
    const REAL lr = (REAL)r->h[LC_H_LR], decay = (REAL)r->h[LC_H_WEIGHT_DECAY], rho = (REAL)r->h[2];
    const REAL c = (REAL)(1 - r->h[2]), eps = (REAL)r->h[3];
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, decay);
        v[i] = rho * v[i] + c * d * d;
        const REAL delta = SQRT(acc[i] + eps) / SQRT(v[i] + eps) * d;
        acc[i] = rho * acc[i] + c * delta * delta;
        p[i] -= lr * delta;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of Adamax. Hyperparameters: lr, weight_decay, beta1, beta2, eps. State: exp_avg, exp_inf. */

static void LOOP(adamax)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict m = r->s[0], *restrict inf = r->s[1];
    const REAL size = (REAL)(r->h[LC_H_LR] / (1 - pow(r->h[2], r->step + 1))), decay = (REAL)r->h[LC_H_WEIGHT_DECAY];
    const REAL c1 = (REAL)(1 - r->h[2]), k2 = (REAL)r->h[3], eps = (REAL)r->h[4];
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, decay), a = (d < 0 ? -d : d) + eps, old = k2 * inf[i];
        m[i] += c1 * (d - m[i]);
        inf[i] = old > a ? old : a;
        p[i] -= size * m[i] / inf[i];
    }
}

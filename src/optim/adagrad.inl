/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of Adagrad. Hyperparameters: lr, weight_decay, lr_decay, initial_accumulator_value, eps. State: sum. */

static void LOOP(adagrad)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict sum = r->s[0];
    const REAL lr = (REAL)(r->h[LC_H_LR] / (1 + r->step * r->h[2])), decay = (REAL)r->h[LC_H_WEIGHT_DECAY];
    const REAL eps = (REAL)r->h[4];
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, decay);
        sum[i] += d * d;
        p[i] -= lr * (d / (SQRT(sum[i]) + eps));
    }
}

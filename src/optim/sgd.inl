/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of SGD. Hyperparameters: lr, weight_decay, momentum, dampening. */

static void LOOP(sgd)(const lc__range *r)
{
    LOOP_BEGIN(r);
    const REAL lr = (REAL)r->h[LC_H_LR], decay = (REAL)r->h[LC_H_WEIGHT_DECAY];
    for (int64_t i = 0; i < n; i++) p[i] -= lr * DECAYED(i, decay);
}

static void LOOP(sgd_momentum)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict buf = r->s[0];
    const REAL lr = (REAL)r->h[LC_H_LR], decay = (REAL)r->h[LC_H_WEIGHT_DECAY], momentum = (REAL)r->h[2];
    /* The buffer starts as the first gradient, without dampening. */
    const REAL keep = r->step == 0 ? 0 : momentum, add = r->step == 0 ? 1 : (REAL)(1 - r->h[3]);
    if (r->flags & LC_OPT_NESTEROV) {
        for (int64_t i = 0; i < n; i++) {
            const REAL d = DECAYED(i, decay);
            buf[i] = keep * buf[i] + add * d;
            p[i] -= lr * (d + momentum * buf[i]);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            const REAL d = DECAYED(i, decay);
            buf[i] = keep * buf[i] + add * d;
            p[i] -= lr * buf[i];
        }
    }
}

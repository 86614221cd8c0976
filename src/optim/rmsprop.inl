/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of RMSprop. Hyperparameters: lr, weight_decay, momentum, alpha, eps. State: square_avg, then
 * momentum_buffer and grad_avg if used. */

#define RMSPROP_BEGIN(r)                                                                                               \
    LOOP_BEGIN(r);                                                                                                     \
    REAL *restrict v = (r)->s[0];                                                                                      \
    const REAL lr = (REAL)(r)->h[LC_H_LR], decay = (REAL)(r)->h[LC_H_WEIGHT_DECAY], alpha = (REAL)(r)->h[3],           \
               c = (REAL)(1 - (r)->h[3]), eps = (REAL)(r)->h[4]

static void LOOP(rmsprop)(const lc__range *r)
{
    RMSPROP_BEGIN(r);
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, decay);
        v[i] = alpha * v[i] + c * d * d;
        p[i] -= lr * (d / (SQRT(v[i]) + eps));
    }
}

static void LOOP(rmsprop_momentum)(const lc__range *r)
{
    RMSPROP_BEGIN(r);
    REAL *restrict buf = r->s[1];
    const REAL momentum = (REAL)r->h[2];
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, decay);
        v[i] = alpha * v[i] + c * d * d;
        buf[i] = momentum * buf[i] + d / (SQRT(v[i]) + eps);
        p[i] -= lr * buf[i];
    }
}

static void LOOP(rmsprop_centered)(const lc__range *r)
{
    RMSPROP_BEGIN(r);
    REAL *restrict mean = r->s[1];
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, decay);
        v[i] = alpha * v[i] + c * d * d;
        mean[i] += c * (d - mean[i]);
        p[i] -= lr * (d / (SQRT(v[i] - mean[i] * mean[i]) + eps));
    }
}

static void LOOP(rmsprop_centered_momentum)(const lc__range *r)
{
    RMSPROP_BEGIN(r);
    REAL *restrict buf = r->s[1], *restrict mean = r->s[2];
    const REAL momentum = (REAL)r->h[2];
    for (int64_t i = 0; i < n; i++) {
        const REAL d = DECAYED(i, decay);
        v[i] = alpha * v[i] + c * d * d;
        mean[i] += c * (d - mean[i]);
        buf[i] = momentum * buf[i] + d / (SQRT(v[i] - mean[i] * mean[i]) + eps);
        p[i] -= lr * buf[i];
    }
}

#undef RMSPROP_BEGIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of Rprop. Hyperparameters: lr, weight_decay (always 0), eta_minus, eta_plus, step_size_min, step_size_max.
 * State: prev, step_size, which is lr at a parameter's first update. */

static void LOOP(rprop)(const lc__range *r)
{
    LOOP_BEGIN(r);
    REAL *restrict prev = r->s[0], *restrict size = r->s[1];
    const REAL minus = (REAL)r->h[2], plus = (REAL)r->h[3], low = (REAL)r->h[4], high = (REAL)r->h[5];
    if (r->step == 0)
        for (int64_t i = 0; i < n; i++) size[i] = (REAL)r->h[0];
    for (int64_t i = 0; i < n; i++) {
        REAL d = GRADIENT(i);
        const REAL agree = d * prev[i], factor = agree > 0 ? plus : agree < 0 ? minus : 1, s = size[i] * factor;
        size[i] = CLAMP(s, low, high);
        d = agree < 0 ? 0 : d; /* after a change of sign this step is skipped, and the next one compares no signs */
        p[i] -= d > 0 ? size[i] : d < 0 ? -size[i] : 0;
        prev[i] = d;
    }
}

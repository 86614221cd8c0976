/* SPDX-License-Identifier: Apache-2.0 */
/* Every result element reads (backward: adds to) up to four source elements. */

static void FN(interpolate)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0];
    int64_t planes = y->shape[0] * y->shape[1];
    for (int64_t p = 0; p < planes; p++) {
        const T *from = (const T *)x->data + lc__offset(x, 0, 2, p);
        T *to = (T *)y->data + lc__offset(y, 0, 2, p);
        for (int64_t h = 0; h < y->shape[2]; h++) {
            taps a = taps_of(c, 0, x->shape[2], y->shape[2], h);
            for (int64_t w = 0; w < y->shape[3]; w++) {
                taps b = taps_of(c, 1, x->shape[3], y->shape[3], w);
                double sum = 0;
                for (int i = 0; i < 2; i++)
                    for (int j = 0; j < 2; j++)
                        if (a.weight[i] != 0 && b.weight[j] != 0)
                            sum += a.weight[i] * b.weight[j] *
                                   (double)from[a.at[i] * x->stride[2] + b.at[j] * x->stride[3]];
                to[h * y->stride[2] + w * y->stride[3]] = (T)sum;
            }
        }
    }
}

static void FN(interpolate_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *dx = &c->out[0];
    int64_t planes = dy->shape[0] * dy->shape[1];
    for (int64_t p = 0; p < planes; p++) {
        const T *from = (const T *)dy->data + lc__offset(dy, 0, 2, p);
        T *to = (T *)dx->data + lc__offset(dx, 0, 2, p);
        for (int64_t h = 0; h < dx->shape[2]; h++)
            for (int64_t w = 0; w < dx->shape[3]; w++) to[h * dx->stride[2] + w * dx->stride[3]] = 0;
        for (int64_t h = 0; h < dy->shape[2]; h++) {
            taps a = taps_of(c, 0, dx->shape[2], dy->shape[2], h);
            for (int64_t w = 0; w < dy->shape[3]; w++) {
                taps b = taps_of(c, 1, dx->shape[3], dy->shape[3], w);
                double v = (double)from[h * dy->stride[2] + w * dy->stride[3]];
                for (int i = 0; i < 2; i++)
                    for (int j = 0; j < 2; j++)
                        if (a.weight[i] != 0 && b.weight[j] != 0)
                            to[a.at[i] * dx->stride[2] + b.at[j] * dx->stride[3]] += (T)(a.weight[i] * b.weight[j] * v);
            }
        }
    }
}

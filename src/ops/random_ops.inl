/* SPDX-License-Identifier: Apache-2.0 */
/* Element e of the logical row-major order uses word e & 3 of Philox block e >> 2, whatever the strides are. */

/* Runs `body` for every element e, with offsets `a` into view A and `b` into view B, and words w[4] of its block. */
#define EACH_ELEMENT(A, B, body)                                                                                       \
    do {                                                                                                               \
        lc__rng_stream stream = lc__rng_stream_of(c);                                                                  \
        int last = (B)->ndim - 1;                                                                                      \
        int64_t length = last < 0 ? 1 : (B)->shape[last], rows = last < 0 ? 1 : lc__view_extent(B, 0, last), e = 0;    \
        uint32_t w[4] = {0};                                                                                           \
        for (int64_t r = 0; r < rows; r++) {                                                                           \
            int64_t a = last < 0 ? 0 : lc__offset(A, 0, last, r), b = last < 0 ? 0 : lc__offset(B, 0, last, r);        \
            for (int64_t i = 0; i < length; i++, e++) {                                                                \
                if ((e & 3) == 0) lc__philox(stream.key, (uint64_t)e >> 2, stream.hi, w);                              \
                body;                                                                                                  \
                if (last >= 0) a += (A)->stride[last], b += (B)->stride[last];                                         \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

static void FN(dropout)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0];
    double p = c->floats[0];
    T scale = (T)(p < 1 ? 1 / (1 - p) : 0);
    EACH_ELEMENT(x, y, {
        bool keep = lc__word_uniform(w[e & 3]) >= p;
        ((T *)y->data)[b] = keep ? ((const T *)x->data)[a] * scale : 0;
    });
}

static void FN(bernoulli)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *y = &c->out[0];
    EACH_ELEMENT(x, y, { ((T *)y->data)[b] = lc__word_uniform(w[e & 3]) < (double)((const T *)x->data)[a]; });
}

static void FN(uniform)(const lc_call *c)
{
    const lc_view *y = &c->out[0];
    double low = c->floats[0], high = c->floats[1];
    EACH_ELEMENT(y, y, {
        (void)a;
        /* f32 holds 24 bits; f64 takes as many more from a second block. */
        double u = lc__word_uniform(w[e & 3]);
        if (sizeof(T) == 8) {
            uint32_t more[4];
            lc__philox(stream.key, (uint64_t)e >> 2, ~stream.hi, more);
            u += lc__word_uniform(more[e & 3]) * 0x1p-24;
        }
        T v = (T)(low + (high - low) * u);
        ((T *)y->data)[b] = (double)v < high ? v : (T)low;
    });
}

static void FN(normal)(const lc_call *c)
{
    const lc_view *y = &c->out[0];
    double mean = c->floats[0], std = c->floats[1];
    EACH_ELEMENT(y, y, {
        (void)a;
        /* Box-Muller: words 0, 1 give elements 0, 1 of the block, words 2, 3 the others. */
        double u = ((double)w[e & 2] + 1) * 0x1p-32;
        double v = 6.283185307179586477 * 0x1p-32 * (double)w[(e & 2) + 1];
        double z = sqrt(-2 * log(u)) * ((e & 1) ? sin(v) : cos(v));
        ((T *)y->data)[b] = (T)(mean + std * z);
    });
}
#undef EACH_ELEMENT

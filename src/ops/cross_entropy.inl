/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over classes: x[N,C,*], one place after the other, in double. */

/* Whether a label that is not ignore_index is one of C classes; if not, the step fails. */
static bool FN(is_class)(const lc_call *c, int input, int64_t at, int64_t label, int64_t C)
{
    if (label >= 0 && label < C) return true;
    lc_call_bad_index(
        c, &(lc_bad_index){
               .input = input, .at = at, .index = label, .size = C, .or_name = "ignore_index", .or_index = c->ints[0]});
    return false;
}

static void FN(cross_entropy)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *t = &c->in[1], *w = &c->in[2], *loss = &c->out[0], *lse = &c->out[1];
    int nd = x->ndim;
    int64_t C = x->shape[1], S = lc__view_extent(x, 2, nd), cs = x->stride[1];
    double smoothing = c->floats[0], sum = 0, total = 0;
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t s = 0; s < S; s++) {
            const T *row = (const T *)x->data + n * x->stride[0] + lc__offset(x, 2, nd, s);
            double top = -INFINITY, exps = 0, each = 0;
            for (int64_t k = 0; k < C; k++)
                if ((double)row[k * cs] > top) top = (double)row[k * cs];
            for (int64_t k = 0; k < C; k++) exps += exp((double)row[k * cs] - top);
            double norm = top + log(exps);
            ((T *)lse->data)[n * lse->stride[0] + lc__offset(lse, 1, nd - 1, s)] = (T)norm;
            int64_t label = lc__index_at(t, n * t->stride[0] + lc__offset(t, 1, nd - 1, s));
            if (label != c->ints[0]) {
                if (!FN(is_class)(c, 1, n * S + s, label, C)) {
                    each = NAN;
                    total += 1;
                } else {
                    double weight = LC_VEC(T, w, label, 1.0);
                    each = (1 - smoothing) * weight * (norm - (double)row[label * cs]);
                    if (smoothing != 0)
                        for (int64_t k = 0; k < C; k++)
                            each += smoothing / (double)C * LC_VEC(T, w, k, 1.0) * (norm - (double)row[k * cs]);
                    total += weight;
                }
            }
            sum += each;
            if (c->ints[1] == LC_REDUCE_NONE)
                ((T *)loss->data)[n * loss->stride[0] + lc__offset(loss, 1, nd - 1, s)] = (T)each;
        }
    if (c->ints[1] != LC_REDUCE_NONE) *(T *)loss->data = (T)(c->ints[1] == LC_REDUCE_MEAN ? sum / total : sum);
    *(T *)c->out[2].data = (T)total;
}

static void FN(cross_entropy_backward)(const lc_call *c)
{
    const lc_view *dloss = &c->in[0], *x = &c->in[1], *t = &c->in[2], *w = &c->in[3], *lse = &c->in[4];
    const lc_view *dx = &c->out[0];
    int nd = x->ndim;
    int64_t C = x->shape[1], S = lc__view_extent(x, 2, nd), cs = x->stride[1];
    double smoothing = c->floats[0], total = (double)*(const T *)c->in[5].data, all = 0;
    for (int64_t k = 0; k < C; k++) all += LC_VEC(T, w, k, 1.0);
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t s = 0; s < S; s++) {
            const T *row = (const T *)x->data + n * x->stride[0] + lc__offset(x, 2, nd, s);
            T *out = (T *)dx->data + n * dx->stride[0] + lc__offset(dx, 2, nd, s);
            int64_t label = lc__index_at(t, n * t->stride[0] + lc__offset(t, 1, nd - 1, s));
            double norm = (double)((const T *)lse->data)[n * lse->stride[0] + lc__offset(lse, 1, nd - 1, s)];
            double scale;
            if (c->ints[1] == LC_REDUCE_NONE)
                scale = (double)((const T *)dloss->data)[n * dloss->stride[0] + lc__offset(dloss, 1, nd - 1, s)];
            else
                scale = (double)*(const T *)dloss->data / (c->ints[1] == LC_REDUCE_MEAN ? total : 1);
            bool inside = label != c->ints[0] && FN(is_class)(c, 2, n * S + s, label, C);
            double weight = inside ? LC_VEC(T, w, label, 1.0) : NAN;
            for (int64_t k = 0; k < C; k++) {
                double p = exp((double)row[k * cs] - norm);
                double v = (1 - smoothing) * weight * (p - (k == label ? 1 : 0));
                if (smoothing != 0) v += smoothing / (double)C * (all * p - LC_VEC(T, w, k, 1.0));
                out[k * dx->stride[1]] = label == c->ints[0] ? 0 : (T)(scale * v);
            }
        }
}

static void FN(nll_loss)(const lc_call *c)
{
    const lc_view *x = &c->in[0], *t = &c->in[1], *w = &c->in[2], *loss = &c->out[0];
    int nd = x->ndim;
    int64_t C = x->shape[1], S = lc__view_extent(x, 2, nd);
    double sum = 0, total = 0;
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t s = 0; s < S; s++) {
            const T *row = (const T *)x->data + n * x->stride[0] + lc__offset(x, 2, nd, s);
            int64_t label = lc__index_at(t, n * t->stride[0] + lc__offset(t, 1, nd - 1, s));
            double each = 0;
            if (label != c->ints[0]) {
                bool inside = FN(is_class)(c, 1, n * S + s, label, C);
                double weight = inside ? LC_VEC(T, w, label, 1.0) : 1;
                each = inside ? -weight * (double)row[label * x->stride[1]] : NAN;
                total += weight;
            }
            sum += each;
            if (c->ints[1] == LC_REDUCE_NONE)
                ((T *)loss->data)[n * loss->stride[0] + lc__offset(loss, 1, nd - 1, s)] = (T)each;
        }
    if (c->ints[1] != LC_REDUCE_NONE) *(T *)loss->data = (T)(c->ints[1] == LC_REDUCE_MEAN ? sum / total : sum);
    *(T *)c->out[1].data = (T)total;
}

static void FN(nll_loss_backward)(const lc_call *c)
{
    const lc_view *dloss = &c->in[0], *t = &c->in[1], *w = &c->in[2], *dx = &c->out[0];
    int nd = dx->ndim;
    int64_t C = dx->shape[1], S = lc__view_extent(dx, 2, nd);
    double total = (double)*(const T *)c->in[3].data;
    for (int64_t n = 0; n < dx->shape[0]; n++)
        for (int64_t s = 0; s < S; s++) {
            T *out = (T *)dx->data + n * dx->stride[0] + lc__offset(dx, 2, nd, s);
            int64_t label = lc__index_at(t, n * t->stride[0] + lc__offset(t, 1, nd - 1, s));
            double scale;
            if (c->ints[1] == LC_REDUCE_NONE)
                scale = (double)((const T *)dloss->data)[n * dloss->stride[0] + lc__offset(dloss, 1, nd - 1, s)];
            else
                scale = (double)*(const T *)dloss->data / (c->ints[1] == LC_REDUCE_MEAN ? total : 1);
            bool counts = label != c->ints[0] && FN(is_class)(c, 1, n * S + s, label, C);
            for (int64_t k = 0; k < C; k++)
                out[k * dx->stride[1]] = k == label && counts ? (T)(-scale * LC_VEC(T, w, label, 1.0)) : 0;
        }
}

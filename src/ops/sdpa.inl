/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, one query after the other. Scratch holds one row of scores, and in backward the sums of dk and dv. */

/* The scores of query s of batch b, in double; keys it may not see get -inf. */
static void FN(scores)(const lc_call *c, const attention *a, const lc_view *mask, const T *q, const T *k, int64_t b,
                       int64_t s, double *score)
{
    int64_t shape[LC_MAX_DIMS];
    memcpy(shape, a->q->shape, sizeof shape);
    for (int64_t j = 0; j < a->Sk; j++) {
        double sum = 0;
        if (c->ints[0] && j > s) {
            score[j] = -INFINITY;
            continue;
        }
        for (int64_t d = 0; d < a->D; d++) sum += (double)q[d * a->qd] * (double)k[j * a->ks + d * a->kd];
        score[j] = sum * a->scale;
        if (lc__given(mask)) {
            int last = mask->ndim - 2;
            int64_t at = last > 0 ? lc__offset_broadcast(mask, last, shape, a->q->ndim - 2, b) : 0;
            at += (last >= 0 && mask->shape[last] != 1 ? s * mask->stride[last] : 0);
            at += mask->ndim > 0 && mask->shape[last + 1] != 1 ? j * mask->stride[last + 1] : 0;
            if (mask->dtype == LC_BOOL || mask->dtype == LC_U8)
                score[j] = ((const uint8_t *)mask->data)[at] ? score[j] : -INFINITY;
            else
                score[j] += (double)((const T *)mask->data)[at];
        }
    }
}

static void FN(sdpa)(const lc_call *c)
{
    const lc_view *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *y = &c->out[0], *lse = &c->out[1];
    attention a = attention_of(c, q, k, v);
    double *score = c->scratch;
    int nd = q->ndim;
    for (int64_t b = 0; b < a.B; b++)
        for (int64_t s = 0; s < a.S; s++) {
            const T *query = (const T *)q->data + lc__offset(q, 0, nd - 2, b) + s * q->stride[nd - 2];
            const T *keys = (const T *)k->data + lc__offset(k, 0, nd - 2, b);
            const T *values = (const T *)v->data + lc__offset(v, 0, nd - 2, b);
            T *out = (T *)y->data + lc__offset(y, 0, nd - 2, b) + s * y->stride[nd - 2];
            FN(scores)(c, &a, &c->in[3], query, keys, b, s, score);
            double top = -INFINITY, sum = 0;
            for (int64_t j = 0; j < a.Sk; j++)
                if (!(score[j] <= top)) top = score[j];
            double norm = -INFINITY;
            if (top != -INFINITY) {
                for (int64_t j = 0; j < a.Sk; j++) sum += score[j] = exp(score[j] - top);
                norm = top + log(sum);
            } else {
                memset(score, 0, (size_t)a.Sk * sizeof *score);
                sum = 1;
            }
            for (int64_t d = 0; d < a.Dv; d++) {
                double total = 0;
                for (int64_t j = 0; j < a.Sk; j++)
                    if (score[j] != 0) total += score[j] * (double)values[j * a.vs + d * a.vd];
                out[d * y->stride[nd - 1]] = (T)(total / sum);
            }
            ((T *)lse->data)[lc__offset(lse, 0, nd - 2, b) + s * lse->stride[nd - 2]] = (T)norm;
        }
}

static void FN(sdpa_backward)(const lc_call *c)
{
    const lc_view *dy = &c->in[0], *q = &c->in[1], *k = &c->in[2], *v = &c->in[3], *y = &c->in[5];
    const lc_view *dq = &c->out[0], *dk = &c->out[1], *dv = &c->out[2];
    attention a = attention_of(c, q, k, v);
    double *score = c->scratch, *dks = score + a.Sk, *dvs = dks + a.Sk * a.D;
    int nd = q->ndim;
    for (int64_t b = 0; b < a.B; b++) {
        const T *keys = (const T *)k->data + lc__offset(k, 0, nd - 2, b);
        const T *values = (const T *)v->data + lc__offset(v, 0, nd - 2, b);
        memset(dks, 0, (size_t)(a.Sk * (a.D + a.Dv)) * sizeof *dks);
        for (int64_t s = 0; s < a.S; s++) {
            const T *query = (const T *)q->data + lc__offset(q, 0, nd - 2, b) + s * q->stride[nd - 2];
            const T *in = (const T *)dy->data + lc__offset(dy, 0, nd - 2, b) + s * dy->stride[nd - 2];
            const T *result = (const T *)y->data + lc__offset(y, 0, nd - 2, b) + s * y->stride[nd - 2];
            T *out = (T *)dq->data + lc__offset(dq, 0, nd - 2, b) + s * dq->stride[nd - 2];
            FN(scores)(c, &a, &c->in[4], query, keys, b, s, score);
            /* Normalized again: lse is rounded, and its error would be in every probability. */
            double top = -INFINITY, sum = 0, delta = 0;
            for (int64_t j = 0; j < a.Sk; j++)
                if (!(score[j] <= top)) top = score[j];
            for (int64_t j = 0; j < a.Sk; j++) sum += score[j] = top != -INFINITY ? exp(score[j] - top) : 0;
            for (int64_t d = 0; d < a.Dv; d++)
                delta += (double)in[d * dy->stride[nd - 1]] * (double)result[d * y->stride[nd - 1]];
            for (int64_t j = 0; j < a.Sk; j++) {
                if (score[j] == 0) continue;
                double p = score[j] / sum, dp = 0;
                for (int64_t d = 0; d < a.Dv; d++) {
                    double g = (double)in[d * dy->stride[nd - 1]];
                    dp += g * (double)values[j * a.vs + d * a.vd];
                    dvs[j * a.Dv + d] += p * g;
                }
                score[j] = p * (dp - delta) * a.scale;
                for (int64_t d = 0; d < a.D; d++) dks[j * a.D + d] += score[j] * (double)query[d * a.qd];
            }
            for (int64_t d = 0; d < a.D; d++) {
                double total = 0;
                for (int64_t j = 0; j < a.Sk; j++)
                    if (score[j] != 0) total += score[j] * (double)keys[j * a.ks + d * a.kd];
                out[d * dq->stride[nd - 1]] = (T)total;
            }
        }
        T *kout = (T *)dk->data + lc__offset(dk, 0, nd - 2, b), *vout = (T *)dv->data + lc__offset(dv, 0, nd - 2, b);
        for (int64_t j = 0; j < a.Sk; j++) {
            for (int64_t d = 0; d < a.D; d++)
                kout[j * dk->stride[nd - 2] + d * dk->stride[nd - 1]] = (T)dks[j * a.D + d];
            for (int64_t d = 0; d < a.Dv; d++)
                vout[j * dv->stride[nd - 2] + d * dv->stride[nd - 1]] = (T)dvs[j * a.Dv + d];
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* clip_coefficient: the norm of gradients, or only whether they are finite, and the factor that clips them. */
#include "optim/clip.h"

#include "base/number.h"

#include <math.h>
#include <string.h>

/* in: gradients, 1-D, and lc_graph.unscale, or nothing; ints: dtype, peer or 0, whether there is unscale, whether it
 * only matters that the norm is finite (then it is 0 if it is), then (input, offset, count) per parameter; floats:
 * max_norm, window. out: total norm of gradients * window * unscale, and the factor window * unscale * min(1, max_norm
 * / (norm + 1e-6)). With unscale the factor of a norm that is not finite is NaN, by which updates are skipped;
 * otherwise it is what this formula gives, as in PyTorch. Squares are added in blocks of 256 bytes from the start of a
 * parameter, and the sums of blocks exactly: the result does not depend on threads, buckets, or which rank has which
 * block. With a peer the norm is that of all ranks' blocks. */
static void add_squares(const void *data, lc_dtype dtype, int64_t n, lc__exact_sum *sum)
{
    int64_t block = (int64_t)(LC__NORM_BLOCK_BYTES / lc_dtype_size(dtype));
    for (int64_t at = 0; at < n; at += block) {
        int64_t end = at + block < n ? at + block : n;
        double s[8] = {0};
        for (int64_t i = at; i < end; i++) {
            double x = lc__number_at(data, dtype, i);
            s[i % 8] += x * x;
        }
        lc__exact_add(sum, ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
    }
}

/* Zeros, but for infinities and NaNs. */
static void add_if_not_finite(const void *data, lc_dtype dtype, int64_t n, lc__exact_sum *sum)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += 0 * lc__number_at(data, dtype, i);
    lc__exact_add(sum, s);
}

static void add_over_ranks(lc_peer *peer, lc__exact_sum *sum)
{
    int64_t words[LC__EXACT_DIGITS + 2];
    lc__exact_tidy(sum);
    memcpy(words, sum->digit, sizeof sum->digit);
    words[LC__EXACT_DIGITS] = isinf(sum->special);
    words[LC__EXACT_DIGITS + 1] = isnan(sum->special);
    peer->ops->add_up(peer, words, LC__EXACT_DIGITS + 2);
    memcpy(sum->digit, words, sizeof sum->digit);
    sum->special = words[LC__EXACT_DIGITS + 1] ? NAN : words[LC__EXACT_DIGITS] ? INFINITY : 0;
}

void lc__clip_finish(const lc_call *c, lc__exact_sum *sum)
{
    lc_peer *peer = (lc_peer *)(uintptr_t)c->ints[LC__CLIP_PEER];
    if (peer) add_over_ranks(peer, sum);
    double window = c->floats[1];
    const lc_view *unscale = c->ints[LC__CLIP_UNSCALE] ? &c->in[c->n_in - 1] : NULL;
    if (unscale) window *= lc__load_number(unscale->data, unscale->dtype);
    double norm = sqrt(lc__exact_value(sum)) * window;
    double factor = c->floats[0] / (norm + 1e-6);
    if (!(factor < 1)) factor = isnan(factor) ? factor : 1;
    if (unscale && !isfinite(norm)) factor = NAN;
    factor *= window;
    lc__store_number(c->out[0].data, c->out[0].dtype, norm);
    lc__store_number(c->out[1].data, c->out[1].dtype, factor);
}

static void run_clip_coefficient(const lc_call *c)
{
    lc__exact_sum sum = {0};
    for (int i = LC__CLIP_FIRST; i + 2 < c->n_int; i += 3) {
        const lc_view *in = &c->in[c->ints[i]];
        const char *data = (const char *)in->data + (size_t)c->ints[i + 1] * lc_dtype_size(in->dtype);
        (c->ints[LC__CLIP_ONLY_FINITE] ? add_if_not_finite : add_squares)(data, in->dtype, c->ints[i + 2], &sum);
    }
    lc__clip_finish(c, &sum);
}

static lc_status infer_clip(lc_infer *call)
{
    call->out[0] = call->out[1] = (lc_type){.dtype = (lc_dtype)call->ints[0]};
    return LC_OK;
}

static const lc_kernel clip_kernel = {
    .name = "clip_coefficient", .layout = LC_WANT_ROW_MAJOR, .flags = LC_KERNEL_SERIAL, .run = run_clip_coefficient};
#define CLIP_OP(id, host)                                                                                              \
    const lc_op lc__op_##id = {.name = #id,                                                                            \
                               .flags = LC_OP_NO_GRAD | LC_OP_SIDE_EFFECT | (host),                                    \
                               .n_out = 2,                                                                             \
                               .infer = infer_clip,                                                                    \
                               .kernel = &clip_kernel};
CLIP_OP(clip_coefficient, 0)
CLIP_OP(clip_over_ranks, LC_OP_HOST)

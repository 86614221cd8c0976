/* SPDX-License-Identifier: Apache-2.0 */
/* matmul and linear on oneDNN's matmul primitive: y = activation(x * w^T + b), batches broadcast as in numpy.
 *
 * Operands come with strides (a gradient's transposed matrix is not copied). Batch dimensions that lie one after the
 * other are merged, and folded into the rows where the second operand has no batch: [16,256,384] x [384,1152] is one
 * product of 4096 rows. To add a variant: write a build function and a kernel for it at the end of the file. */
#include "backends/cpu/onednn/kernels.h"
#include "backends/cpu/onednn/prepared.h"
#include "tensor/ops/ops.h"

#include <string.h>

#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        dnnl_status_t try_ = (expr);                                                                                   \
        if (try_ != dnnl_success) return try_;                                                                         \
    } while (0)

/* Below this many multiply-adds a deterministic product is not cut into chunks (and so runs on one thread). */
#define CHUNK_MIN_WORK ((int64_t)1 << 20)

/* out[b][m][n] = x[b][m][k] * y[b][k][n]; strides in elements, a broadcast batch has stride 0, out is dense. */
typedef struct gemm {
    int nb;
    int64_t batch[LC_MAX_DIMS], xb[LC_MAX_DIMS], yb[LC_MAX_DIMS], ob[LC_MAX_DIMS];
    int64_t m, n, k;
    int64_t xm, xk, yk, yn;
    bool bias;
    int activation;
} gemm;

static bool absent(const lc_call *call, int i)
{
    return i >= call->n_in || call->in[i].ndim < 0;
}

/* Makes the strides of an r x c matrix such that one is 1 and the other is a leading dimension; strides of dimensions
 * of size 1 are free. False if it does not lie so (an expanded row, say). */
static bool normalise(int64_t rows, int64_t cols, int64_t *row_stride, int64_t *col_stride)
{
    if (cols == 1) *col_stride = 1;
    if (rows == 1) *row_stride = *col_stride == 1 ? cols : 1;
    if (*col_stride == 1 && (rows == 1 || *row_stride >= cols)) return true;
    return *row_stride == 1 && *col_stride >= rows;
}

/* The strides of an operand as the planner will give them: as they are if they fit the kernel's layout, dense
 * otherwise (a copy is made then). */
static void take_strides(const lc_view *v, int64_t *stride)
{
    int n = v->ndim;
    int64_t row = n > 1 ? v->stride[n - 2] : 0, col = n > 0 ? v->stride[n - 1] : 1, dense = 1;
    bool fits =
        n < 1 || (n == 1 ? v->shape[0] == 1 || col == 1 : normalise(v->shape[n - 2], v->shape[n - 1], &row, &col));
    for (int i = n - 1; i >= 0; i--) {
        stride[i] = fits ? v->stride[i] : dense;
        dense *= v->shape[i];
    }
}

static void drop_batch(gemm *g, int i)
{
    g->nb--;
    size_t bytes = (size_t)(g->nb - i) * sizeof *g->batch;
    memmove(g->batch + i, g->batch + i + 1, bytes);
    memmove(g->xb + i, g->xb + i + 1, bytes);
    memmove(g->yb + i, g->yb + i + 1, bytes);
}

static bool describe(const lc_call *call, gemm *g)
{
    const lc_view *x = &call->in[0], *y = &call->in[1], *out = &call->out[0];
    bool linear = call->op == &lc__op_linear;
    int64_t xs[LC_MAX_DIMS], ys[LC_MAX_DIMS];
    memset(g, 0, sizeof *g);
    if (x->dtype != LC_F32 || y->dtype != LC_F32 || out->dtype != LC_F32) return false;
    if (x->ndim < (linear ? 1 : 2) || y->ndim < 2) return false;
    for (int i = 0; i < out->ndim; i++)
        if (out->shape[i] < 1) return false;
    take_strides(x, xs);
    take_strides(y, ys);
    g->m = x->ndim > 1 ? x->shape[x->ndim - 2] : 1;
    g->k = x->shape[x->ndim - 1];
    g->xm = x->ndim > 1 ? xs[x->ndim - 2] : g->k;
    g->xk = xs[x->ndim - 1];
    if (g->k < 1) return false;
    int x_batch = x->ndim > 2 ? x->ndim - 2 : 0, y_batch = 0;
    if (linear) {
        g->n = y->shape[0], g->yn = ys[0], g->yk = ys[1];
        g->bias = !absent(call, 2);
        if (g->bias && call->in[2].dtype != LC_F32) return false;
        g->activation = call->n_int > 0 ? (int)call->ints[0] : 0;
        if (g->activation < 0 || g->activation > 3) return false;
    } else {
        g->n = y->shape[y->ndim - 1], g->yk = ys[y->ndim - 2], g->yn = ys[y->ndim - 1];
        y_batch = y->ndim - 2;
    }
    g->nb = x_batch > y_batch ? x_batch : y_batch;
    for (int i = 0; i < g->nb; i++) {
        int xi = i - (g->nb - x_batch), yi = i - (g->nb - y_batch);
        g->batch[i] = out->shape[i];
        g->xb[i] = xi < 0 || x->shape[xi] == 1 ? 0 : xs[xi];
        g->yb[i] = yi < 0 || y->shape[yi] == 1 ? 0 : ys[yi];
    }
    for (int i = g->nb - 1; i >= 0; i--) {
        if (g->batch[i] == 1) {
            drop_batch(g, i);
        } else if (i + 1 < g->nb && g->xb[i] == g->xb[i + 1] * g->batch[i + 1] &&
                   g->yb[i] == g->yb[i + 1] * g->batch[i + 1]) {
            g->batch[i] *= g->batch[i + 1];
            g->xb[i] = g->xb[i + 1];
            g->yb[i] = g->yb[i + 1];
            drop_batch(g, i + 1);
        }
    }
    while (g->nb && g->yb[g->nb - 1] == 0 && g->xb[g->nb - 1] && (g->m == 1 || g->xb[g->nb - 1] == g->m * g->xm)) {
        if (g->m == 1) g->xm = g->xb[g->nb - 1];
        g->m *= g->batch[--g->nb];
    }
    int64_t ob = g->m * g->n;
    for (int i = g->nb - 1; i >= 0; i--) {
        g->ob[i] = ob;
        ob *= g->batch[i];
    }
    return normalise(g->m, g->k, &g->xm, &g->xk) && normalise(g->k, g->n, &g->yk, &g->yn);
}

/* Into how many row blocks a deterministic product is cut: depends on its shape alone. */
static int64_t row_chunks(const gemm *g)
{
    if (g->m * g->n < CHUNK_MIN_WORK / g->k) return 1;
    for (int64_t chunks = 16; chunks > 1; chunks--)
        if (g->m % chunks == 0 && g->m / chunks >= 32) return chunks;
    return 1;
}

/* The memory descriptors of one primitive: `nb` batch dimensions, `m` rows. */
typedef struct mds {
    lc__md x, y, bias, out;
} mds;

static dnnl_status_t make_mds(mds *d, const gemm *g, int nb, int64_t m, bool packed)
{
    int64_t xd[LC_MAX_DIMS + 2], yd[LC_MAX_DIMS + 2], od[LC_MAX_DIMS + 2], bd[LC_MAX_DIMS + 2];
    int64_t xs[LC_MAX_DIMS + 2], ys[LC_MAX_DIMS + 2], os[LC_MAX_DIMS + 2], bs[LC_MAX_DIMS + 2];
    /* A broadcast batch dimension is one of size 1, whose stride only has to look dense. */
    int64_t x_dense = g->xk == 1 ? m * g->xm : g->k * g->xk, y_dense = g->yn == 1 ? g->k * g->yk : g->n * g->yn;
    for (int i = nb - 1; i >= 0; i--) {
        xd[i] = g->xb[i] ? g->batch[i] : 1;
        yd[i] = g->yb[i] ? g->batch[i] : 1;
        xs[i] = g->xb[i] ? g->xb[i] : x_dense;
        ys[i] = g->yb[i] ? g->yb[i] : y_dense;
        x_dense = xs[i] * xd[i];
        y_dense = ys[i] * yd[i];
        od[i] = g->batch[i];
        os[i] = g->ob[i];
        bd[i] = 1;
        bs[i] = g->n;
    }
    xd[nb] = m, xd[nb + 1] = g->k, xs[nb] = g->xm, xs[nb + 1] = g->xk;
    yd[nb] = g->k, yd[nb + 1] = g->n, ys[nb] = g->yk, ys[nb + 1] = g->yn;
    od[nb] = m, od[nb + 1] = g->n, os[nb] = g->n, os[nb + 1] = 1;
    bd[nb] = 1, bd[nb + 1] = g->n, bs[nb] = g->n, bs[nb + 1] = 1;
    TRY(lc__dnnl_md_strided(&d->x, nb + 2, xd, xs));
    TRY(lc__dnnl_md_strided(&d->y, nb + 2, yd, packed ? NULL : ys));
    TRY(lc__dnnl_md_strided(&d->out, nb + 2, od, os));
    if (g->bias) TRY(lc__dnnl_md_strided(&d->bias, nb + 2, bd, bs));
    return dnnl_success;
}

static void free_mds(mds *d)
{
    lc__dnnl_md_free(d->x);
    lc__dnnl_md_free(d->y);
    lc__dnnl_md_free(d->bias);
    lc__dnnl_md_free(d->out);
}

/* The product as the step appended last; what accumulates does so in the primitive if that can, else at the end. */
static dnnl_status_t add_product(lc__dnnl_plan *plan, const lc_call *call, const gemm *g, const mds *d, bool chunked,
                                 lc__md plain_y)
{
    lc__dnnl_post post = {g->activation, call->accumulate};
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = lc__dnnl_matmul(&pd, plan->engine, d->x, d->y, d->bias, d->out, &post);
    if (status == dnnl_unimplemented && post.sum) {
        post.sum = false;
        status = lc__dnnl_matmul(&pd, plan->engine, d->x, d->y, d->bias, d->out, &post);
    }
    if (status != dnnl_success) return status;
    lc__dnnl_operand x = {LC_DNNL_IN, 0, 0, 0, 0}, y = {LC_DNNL_IN, 1, 0, 0, 1};
    lc__dnnl_operand bias = {LC_DNNL_IN, 2, 0, 0, LC_DNNL_NO_CHUNKS}, out = {LC_DNNL_OUT, 0, 0, 0, 2};
    lc__cmd y_md = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (plain_y) {
        /* Nothing to gain if the library likes the operand as it is. */
        if (dnnl_memory_desc_equal(y_md, plain_y)) status = dnnl_unimplemented;
        lc__dnnl_operand packed = {LC_DNNL_SCRATCH, 0, 0, 0, LC_DNNL_NO_CHUNKS};
        packed.offset = lc__dnnl_scratch(plan, dnnl_memory_desc_get_size(y_md));
        y.column = LC_DNNL_NO_CHUNKS;
        if (status == dnnl_success) status = lc__dnnl_add_reorder(plan, plain_y, y, y_md, packed, false);
        y = packed;
    }
    if (call->accumulate && !post.sum) {
        int64_t count = g->m * g->n;
        for (int i = 0; i < g->nb; i++) count *= g->batch[i];
        out = (lc__dnnl_operand){LC_DNNL_SCRATCH, 0, lc__dnnl_scratch(plan, (size_t)count * sizeof(float)), 0, 2};
        plan->add_scratch = true;
        plan->add_offset = out.offset;
        plan->add_count = count;
    }
    if (status != dnnl_success) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    /* Adding the step takes `pd`, and with it what was queried. */
    lc__md owned_y = NULL;
    status = lc__dnnl_md_copy(&owned_y, y_md);
    if (status == dnnl_success)
        status = lc__dnnl_add(plan, pd, chunked, true);
    else
        dnnl_primitive_desc_destroy(pd);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_SRC, d->x, x);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_WEIGHTS, owned_y, y);
    if (status == dnnl_success && g->bias) status = lc__dnnl_bind(plan, DNNL_ARG_BIAS, d->bias, bias);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_DST, d->out, out);
    lc__dnnl_md_free(owned_y);
    return status;
}

static dnnl_status_t build(const lc_call *call, bool probe, bool packed, bool batched, lc__dnnl_plan **out)
{
    gemm g;
    mds d = {0}, plain = {0};
    if (!describe(call, &g)) return dnnl_unimplemented;
    int64_t chunks = 1;
    if (batched) {
        if (!g.nb) return dnnl_unimplemented;
        for (int i = 0; i < g.nb; i++) chunks *= g.batch[i];
        if (chunks > (1 << 20)) return dnnl_unimplemented;
    } else if (call->deterministic) {
        /* A batch is cut into its matrices, which is the other kernel's work. */
        if (g.nb) return dnnl_unimplemented;
        chunks = row_chunks(&g);
    }
    int threads = call->threads < 1 ? 1 : call->threads;
    bool own_threads = batched || call->deterministic;
    int before = lc__dnnl_set_threads(own_threads ? 1 : threads);
    dnnl_status_t status = lc__dnnl_new(out, probe, own_threads ? 1 : threads, own_threads ? threads : 1, chunks);
    lc__dnnl_plan *plan = *out;
    for (int64_t c = 0; status == dnnl_success && chunks > 1 && c < chunks; c++) {
        int64_t *offset = plan->chunk_offset[c];
        if (batched) {
            int64_t rest = c;
            for (int i = g.nb - 1; i >= 0; i--) {
                int64_t at = rest % g.batch[i];
                rest /= g.batch[i];
                offset[0] += at * g.xb[i];
                offset[1] += at * g.yb[i];
                offset[2] += at * g.ob[i];
            }
        } else {
            offset[0] = c * (g.m / chunks) * g.xm;
            offset[2] = c * (g.m / chunks) * g.n;
        }
    }
    int nb = batched ? 0 : g.nb;
    int64_t m = batched ? g.m : g.m / chunks;
    if (status == dnnl_success) status = make_mds(&d, &g, nb, m, packed);
    if (status == dnnl_success && packed) status = make_mds(&plain, &g, nb, m, false);
    if (status == dnnl_success) status = add_product(plan, call, &g, &d, chunks > 1, plain.y);
    lc__dnnl_set_threads(before);
    free_mds(&d);
    free_mds(&plain);
    return status;
}

static dnnl_status_t build_plain(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    return build(call, probe, false, false, out);
}

static dnnl_status_t build_packed(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    return build(call, probe, true, false, out);
}

static dnnl_status_t build_batched(const lc_call *call, bool probe, lc__dnnl_plan **out)
{
    return build(call, probe, false, true, out);
}

#define KERNEL(variant)                                                                                                \
    static bool supports_##variant(const lc_call *call)                                                                \
    {                                                                                                                  \
        return lc__dnnl_supports(call, build_##variant);                                                               \
    }                                                                                                                  \
    static lc_status prepare_##variant(lc_call *call)                                                                  \
    {                                                                                                                  \
        return lc__dnnl_prepare(call, build_##variant);                                                                \
    }
KERNEL(plain)
KERNEL(packed)
KERNEL(batched)

const lc_kernel lc__onednn_matmul = {"onednn_matmul", LC_WANT_MATRIX, LC_KERNEL_ACCUMULATES, supports_plain,
                                     prepare_plain,   lc__dnnl_run,   lc__dnnl_release};
const lc_kernel lc__onednn_matmul_packed = {"onednn_matmul_packed", LC_WANT_MATRIX, LC_KERNEL_ACCUMULATES,
                                            supports_packed,        prepare_packed, lc__dnnl_run,
                                            lc__dnnl_release};
const lc_kernel lc__onednn_matmul_batched = {"onednn_matmul_batched", LC_WANT_MATRIX,  LC_KERNEL_ACCUMULATES,
                                             supports_batched,        prepare_batched, lc__dnnl_run,
                                             lc__dnnl_release};

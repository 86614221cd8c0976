/* SPDX-License-Identifier: Apache-2.0 */
/* matmul and linear in f32 and bf16 on oneDNN's matmul primitive: y = activation(x * w^T + b), batches broadcast as in
 * numpy.
 *
 * Operands come with strides (a gradient's transposed matrix is not copied). Most single products are computed by
 * lightc's own kernel (isa/product.c); these kernels are for batches, and for matrices of a few rows or columns. They
 * are cut into matrices, rows or columns, depending only on the shape. To add a variant: write a build function and a
 * kernel for it at the end of the file. */
#include "backends/cpu/onednn/kernels.h"
#include "backends/cpu/onednn/prepared.h"
#include "backends/cpu/product.h"

#include <string.h>

#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        dnnl_status_t try_ = (expr);                                                                                   \
        if (try_ != dnnl_success) return try_;                                                                         \
    } while (0)

/* Below this many multiply-adds a product is not cut into chunks (and so runs on one thread). */
#define CHUNK_MIN_WORK ((int64_t)1 << 20)
/* More matrices than this are left to one primitive: chunks would cost more than they gain. */
#define MAX_MATRICES 4096

/* The number of equal parts of a product, which depends only on its shape. Parts are rows, or columns if there are more
 * of these. */
static int64_t parts_of(const lc__product *g, bool *columns)
{
    int64_t n = g->m >= g->n ? g->m : g->n;
    *columns = g->m < g->n;
    if (g->m * g->n < CHUNK_MIN_WORK / g->k) return 1;
    for (int64_t parts = 16; parts > 1; parts--)
        if (n % parts == 0 && n / parts >= 32) return parts;
    return 1;
}

/* The memory descriptors of one primitive: `nb` batch dimensions, `m` rows. */
typedef struct mds {
    lc__md x, y, bias, out;
} mds;

static dnnl_status_t make_mds(mds *d, const lc_call *call, const lc__product *g, int nb, int64_t m, int64_t n,
                              bool packed)
{
    dnnl_data_type_t operands = lc__dnnl_type(call->in[0].dtype), result = lc__dnnl_type(call->out[0].dtype);
    int64_t xd[LC_MAX_DIMS + 2], yd[LC_MAX_DIMS + 2], od[LC_MAX_DIMS + 2], bd[LC_MAX_DIMS + 2];
    int64_t xs[LC_MAX_DIMS + 2], ys[LC_MAX_DIMS + 2], os[LC_MAX_DIMS + 2], bs[LC_MAX_DIMS + 2];
    /* A broadcast batch dimension has size 1, and a stride that only has to look dense. */
    int64_t x_dense = g->xk == 1 ? m * g->xm : g->k * g->xk, y_dense = g->yn == 1 ? g->k * g->yk : n * g->yn;
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
    yd[nb] = g->k, yd[nb + 1] = n, ys[nb] = g->yk, ys[nb + 1] = g->yn;
    od[nb] = m, od[nb + 1] = n, os[nb] = g->n, os[nb + 1] = 1;
    bd[nb] = 1, bd[nb + 1] = n, bs[nb] = g->n, bs[nb + 1] = 1;
    TRY(lc__dnnl_md_strided(&d->x, operands, nb + 2, xd, xs));
    TRY(lc__dnnl_md_strided(&d->y, operands, nb + 2, yd, packed ? NULL : ys));
    TRY(lc__dnnl_md_strided(&d->out, result, nb + 2, od, os));
    if (g->bias) TRY(lc__dnnl_md_strided(&d->bias, lc__dnnl_type(call->in[2].dtype), nb + 2, bd, bs));
    return dnnl_success;
}

static void free_mds(mds *d)
{
    lc__dnnl_md_free(d->x);
    lc__dnnl_md_free(d->y);
    lc__dnnl_md_free(d->bias);
    lc__dnnl_md_free(d->out);
}

/* Appends the product as the last step; accumulates in the primitive if that is possible, else at the end. */
static dnnl_status_t add_product(lc__dnnl_plan *plan, const lc_call *call, const lc__product *g, const mds *d,
                                 bool chunked, lc__md plain_y)
{
    const bool relu = g->activation == 1;
    int64_t count = g->m * g->n; /* results */
    for (int i = 0; i < g->nb; i++) count *= g->batch[i];
    lc__dnnl_post post = {relu ? 0 : g->activation, call->accumulate && !relu};
    dnnl_primitive_desc_t pd;
    if (relu && call->accumulate && call->out[0].dtype != LC_F32) return dnnl_unimplemented;
    dnnl_status_t status = lc__dnnl_matmul(&pd, plan->engine, d->x, d->y, d->bias, d->out, &post);
    if (status == dnnl_unimplemented && post.sum && call->out[0].dtype == LC_F32) {
        post.sum = false;
        status = lc__dnnl_matmul(&pd, plan->engine, d->x, d->y, d->bias, d->out, &post);
    }
    if (status != dnnl_success) return status;
    lc__dnnl_operand x = {LC_DNNL_IN, 0, 0, 0, 0}, y = {LC_DNNL_IN, 1, 0, 0, 1};
    lc__dnnl_operand bias = {LC_DNNL_IN, 2, 0, 0, 3}, out = {LC_DNNL_OUT, 0, 0, 0, 2};
    lc__cmd y_md = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (plain_y) {
        /* Nothing to gain if the library prefers the operand's own layout. */
        if (dnnl_memory_desc_equal(y_md, plain_y)) status = dnnl_unimplemented;
        lc__dnnl_operand packed = {LC_DNNL_SCRATCH, 0, 0, 0, LC_DNNL_NO_CHUNKS};
        packed.offset = lc__dnnl_scratch(plan, dnnl_memory_desc_get_size(y_md));
        y.column = LC_DNNL_NO_CHUNKS;
        if (status == dnnl_success) status = lc__dnnl_add_reorder(plan, plain_y, y, y_md, packed, false);
        y = packed;
    }
    if (call->accumulate && !post.sum) {
        out = (lc__dnnl_operand){LC_DNNL_SCRATCH, 0, lc__dnnl_scratch(plan, (size_t)count * sizeof(float)), 0, 2};
        plan->add_scratch = true;
        plan->add_offset = out.offset;
        plan->add_count = count;
    }
    if (status != dnnl_success) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    /* Adding the step takes `pd`, and with it the descriptors queried from it. */
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
    if (status == dnnl_success && relu) lc__dnnl_relu(plan, count / plan->n_chunks);
    lc__dnnl_md_free(owned_y);
    return status;
}

static dnnl_status_t build(const lc_call *call, bool probe, bool packed, bool batched, lc__dnnl_plan **out)
{
    lc__product g;
    mds d = {0}, plain = {0};
    if (!lc__dnnl_takes_types(call) || !lc__product_shape(call, &g)) return dnnl_unimplemented;
    int64_t matrices = 1, chunks = 1;
    bool columns = false;
    for (int i = 0; i < g.nb && matrices <= MAX_MATRICES; i++) matrices *= g.batch[i];
    /* Which of the two kernels takes a batch must not depend on the number of threads. */
    if (g.nb ? batched != (matrices <= MAX_MATRICES) : batched) return dnnl_unimplemented;
    if (packed && g.nb) return dnnl_unimplemented;
    chunks = batched ? matrices : g.nb ? 1 : parts_of(&g, &columns);
    if (columns && g.activation == 1) chunks = 1, columns = false; /* a relu needs dense results */
    if (packed && columns) return dnnl_unimplemented;
    int before = lc__dnnl_set_threads(1);
    dnnl_status_t status = lc__dnnl_new(out, probe, 1, call->threads, chunks);
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
        } else if (columns) {
            offset[1] = c * (g.n / chunks) * g.yn;
            offset[2] = offset[3] = c * (g.n / chunks);
        } else {
            offset[0] = c * (g.m / chunks) * g.xm;
            offset[2] = c * (g.m / chunks) * g.n;
        }
    }
    int nb = batched ? 0 : g.nb;
    int64_t m = batched || columns ? g.m : g.m / chunks, n = columns ? g.n / chunks : g.n;
    if (status == dnnl_success) status = make_mds(&d, call, &g, nb, m, n, packed);
    if (status == dnnl_success && packed) status = make_mds(&plain, call, &g, nb, m, n, false);
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

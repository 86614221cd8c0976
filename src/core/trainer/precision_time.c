/* SPDX-License-Identifier: Apache-2.0 */
/* Times of a product and of a chain of operators in several precisions, measured in turns, so that what else the
 * machine does slows down all of them. The shortest counts. */
#include "base/c_locale.h"
#include "core/trainer/precision_time.h"

#include "base/clock.h"
#include "base/handle.h"
#include "record/graph_impl.h"

#include <lightc/lightc.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, MOST_TYPES = 4, INNER = 16, SMALL = 256 };

/* [n,n]; and [4n,INNER] times [INNER,n], whose product is what a chain begins with. */
typedef struct operands {
    lc_tensor *square, *tall, *wide;
} operands;

static lc_status filled(int64_t rows, int64_t columns, lc_tensor **out)
{
    const int64_t shape[] = {rows, columns}, n = rows * columns;
    float *v = malloc((size_t)n * sizeof *v);
    if (!v) return lc_fail(LC_ERR_MEMORY, "out of memory: operands of a measurement");
    for (int64_t i = 0; i < n; i++) v[i] = (float)(i % 7 - 3) / 8;
    lc_status s = lc_tensor_new(LC_F32, 2, shape, out);
    if (s >= 0) s = lc_tensor_write(*out, v, (size_t)n * sizeof *v);
    free(v);
    return s;
}

static lc_status make_operands(int64_t n, operands *o)
{
    LC_TRY(filled(n, n, &o->square));
    LC_TRY(filled(4 * n, INNER, &o->tall));
    return filled(INNER, n, &o->wide);
}

static lc_tensor *chain_of(const operands *o)
{
    lc_tensor *x = lc_matmul(o->tall, o->wide);
    return lc_add(lc_mul(lc_gelu(lc_mul_scalar(x, 0.5)), x), x);
}

/* A step of one of the two; only running it takes time that counts. */
static lc_status time_step(lc_graph *g, const operands *o, bool chain, uint64_t step, double *least_ms)
{
    LC_TRY(lc_step_begin(g, step, 0));
    lc_no_grad_begin();
    lc_keep(lc_sum(chain ? chain_of(o) : lc_matmul(lc_matmul(o->square, o->square), o->square)));
    lc_no_grad_end();
    const int64_t start = lc__now_ns();
    lc_status s = lc_step_run(g);
    const double ms = 1e-6 * (double)(lc__now_ns() - start);
    lc_status ended = lc_step_end(g);
    LC_TRY(s);
    LC_TRY(ended);
    if (step && (step == 1 || ms < *least_ms)) *least_ms = ms; /* the first step makes the plan */
    return LC_OK;
}

static lc_status measure(lc_graph *const *graphs, int n, const operands *o, lc_precision_times *out)
{
    for (uint64_t step = 0; step <= ROUNDS; step++)
        for (int i = 0; i < n; i++) {
            LC_TRY(time_step(graphs[i], o, false, step, &out[i].product_ms));
            LC_TRY(time_step(graphs[i], o, true, step, &out[i].chain_ms));
        }
    return LC_OK;
}

lc_status lc_precision_measure(const lc_dtype *types, int n, int64_t size, int threads, lc_precision_times *out)
{
    LC__NEEDS(types, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (n < 1 || n > MOST_TYPES || size < 1 || size > 1 << 14 || threads < 0)
        return lc_fail(LC_ERR_ARGUMENT, "lc_precision_measure takes 1 to %d types and a size of 1 to %d", MOST_TYPES,
                       1 << 14);
    lc_graph *graphs[MOST_TYPES] = {0};
    operands o = {0};
    const lc_device *before = lc__device_use(lc__host_device());
    lc_status s = make_operands(size, &o);
    for (int i = 0; i < n && s >= 0; i++)
        s = lc_graph_new(&graphs[i], .threads = threads, .autocast = types[i] == LC_F32 ? 0 : types[i],
                         .device = "cpu");
    if (s >= 0) s = measure(graphs, n, &o, out);
    for (int i = 0; i < n; i++) lc_graph_free(graphs[i]);
    lc_tensor_unref(o.square);
    lc_tensor_unref(o.tall);
    lc_tensor_unref(o.wide);
    lc__device_use(before);
    return s;
}

/* ---- at the start of a run ---- */

atomic_int lc__product_ratios[2];

static lc_status ratio_of(lc_dtype dtype, int threads, double *ratio)
{
    atomic_int *known = &lc__product_ratios[dtype == LC_BF16];
    if (!atomic_load(known)) {
        lc_precision_times t[2];
        LC_TRY(lc_precision_measure((const lc_dtype[]){LC_F32, dtype}, 2, SMALL, threads, t));
        atomic_store(known, 1 + (int)(1000 * t[1].product_ms / t[0].product_ms));
    }
    *ratio = 1e-3 * atomic_load(known);
    return LC_OK;
}

lc_status lc__precision_slower(const lc_graph *g, const char *name, char text[LC__SLOWER_SIZE])
{
    const lc_dtype dtype = g->options.autocast ? g->options.autocast : g->options.storage;
    const lc_backend_ops *ops = g->on->ops;
    double ratio;
    text[0] = 0;
    if ((dtype != LC_BF16 && dtype != LC_F16) || !lc__on_host(g->on)) return LC_OK;
    LC_TRY(ratio_of(dtype, lc_graph_threads(g), &ratio));
    if (ratio < 1.05) return LC_OK;
    bool units = !ops->has_units || ops->has_units(g->kernel_set, dtype);
    lc__snprintf(text, LC__SLOWER_SIZE, "%.40s runs %s: products take %.1f times as long as in f32", name,
                 units              ? "slower than f32 on this CPU"
                 : dtype == LC_BF16 ? "without bf16 units on this CPU"
                                    : "without f16 units on this CPU",
                 ratio);
    return LC_OK;
}

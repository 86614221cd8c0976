/* SPDX-License-Identifier: Apache-2.0 */
/* The result of each collective as an operator, and its gradient, on one rank of any communicator: compared with what
 * follows from all ranks' x, and with finite differences of the sum of all ranks' losses. */
#ifndef LC_COLLECTIVE_ROWS_H
#define LC_COLLECTIVE_ROWS_H

#include "comm_world.h"

#include <lightc/lightc.h>
#include <math.h>

enum { ROWS = 2, COLS = 3, MOST = 4 * ROWS * COLS }; /* of one rank's part, of at most 4 ranks */

typedef lc_tensor *op_fn(lc_tensor *x, lc_comm *comm);

static lc_tensor *sum_of_all(lc_tensor *x, lc_comm *c)
{
    return lc_all_reduce(x, c, LC_COMM_SUM);
}
static lc_tensor *largest_of_all(lc_tensor *x, lc_comm *c)
{
    return lc_all_reduce(x, c, LC_COMM_MAX);
}
static lc_tensor *sum_to_last(lc_tensor *x, lc_comm *c)
{
    return lc_reduce(x, c, lc_comm_size(c) - 1);
}
static lc_tensor *from_last(lc_tensor *x, lc_comm *c)
{
    return lc_broadcast(x, c, lc_comm_size(c) - 1);
}
static lc_tensor *gathered(lc_tensor *x, lc_comm *c)
{
    return lc_all_gather(x, c);
}
static lc_tensor *scattered(lc_tensor *x, lc_comm *c)
{
    return lc_reduce_scatter(x, c);
}
static lc_tensor *gathered_on_last(lc_tensor *x, lc_comm *c)
{
    return lc_gather_to(x, c, lc_comm_size(c) - 1);
}
static lc_tensor *parts_of_last(lc_tensor *x, lc_comm *c)
{
    return lc_scatter_from(x, c, lc_comm_size(c) - 1);
}
static lc_tensor *parts_of_first(lc_tensor *x, lc_comm *c)
{
    return lc_scatter_from(x, c, 0);
}
static lc_tensor *exchanged(lc_tensor *x, lc_comm *c)
{
    return lc_all_to_all(x, c);
}

/* One row for each operator: the expected y[i], from all ranks' x (each of n numbers, one after the other). */
typedef double want_fn(const double *x, int64_t n, int rank, int size, int64_t i);

static double want_sum(const double *x, int64_t n, int rank, int size, int64_t i)
{
    double s = 0;
    (void)rank;
    for (int r = 0; r < size; r++) s += x[r * n + i];
    return s;
}
static double want_max(const double *x, int64_t n, int rank, int size, int64_t i)
{
    double s = x[i];
    (void)rank;
    for (int r = 1; r < size; r++) s = fmax(s, x[r * n + i]);
    return s;
}
static double want_sum_on_last(const double *x, int64_t n, int rank, int size, int64_t i)
{
    return rank == size - 1 ? want_sum(x, n, rank, size, i) : 0;
}
static double want_last(const double *x, int64_t n, int rank, int size, int64_t i)
{
    (void)rank;
    return x[(size - 1) * n + i];
}
static double want_gathered(const double *x, int64_t n, int rank, int size, int64_t i)
{
    (void)n, (void)rank, (void)size;
    return x[i];
}
static double want_part(const double *x, int64_t n, int rank, int size, int64_t i)
{
    return want_sum(x, n, rank, size, rank * (n / size) + i);
}
static double want_gathered_on_last(const double *x, int64_t n, int rank, int size, int64_t i)
{
    (void)n;
    return rank == size - 1 ? x[i] : 0;
}
static double want_part_of_last(const double *x, int64_t n, int rank, int size, int64_t i)
{
    return x[(size - 1) * n + rank * (n / size) + i];
}
static double want_part_of_first(const double *x, int64_t n, int rank, int size, int64_t i)
{
    return x[rank * (n / size) + i];
}
static double want_exchanged(const double *x, int64_t n, int rank, int size, int64_t i)
{
    int64_t part = n / size;
    return x[i / part * n + rank * part + i % part];
}

typedef struct row {
    const char *name;
    op_fn *op;
    want_fn *want;
    bool of_parts, gives_parts, smooth; /* x, or y, has a part for each rank; has a gradient */
} row;

static const row rows[] = {
    {"all_reduce", sum_of_all, want_sum, false, false, true},
    {"all_reduce max", largest_of_all, want_max, false, false, false},
    {"reduce", sum_to_last, want_sum_on_last, false, false, true},
    {"broadcast", from_last, want_last, false, false, true},
    {"all_gather", gathered, want_gathered, false, true, true},
    {"reduce_scatter", scattered, want_part, true, false, true},
    {"gather_to", gathered_on_last, want_gathered_on_last, false, true, true},
    {"scatter_from", parts_of_last, want_part_of_last, true, false, true},
    {"scatter_from 0", parts_of_first, want_part_of_first, true, false, true},
    {"all_to_all", exchanged, want_exchanged, true, true, true},
};

static double value(int rank, int64_t i)
{
    return lc_random_normal(31 + (uint64_t)rank, (uint64_t)i);
}

/* This rank's part of the loss: the sum of w y^2 with weights of its own. */
static lc_tensor *loss_of(const row *r, lc_tensor *x, lc_comm *comm)
{
    lc_tensor *y = r->op(x, comm);
    double step = 0.25 + 0.5 * lc_comm_rank(comm);
    lc_tensor *w = lc_reshape(lc_arange(0.5, step, lc_tensor_numel(y), LC_F64), -1, COLS);
    return lc_sum(lc_mul(w, lc_square(y)));
}

/* The sum of all ranks' losses if this rank has x. */
static lc_status total(const row *r, lc_graph *g, lc_tensor *x, lc_comm *comm, double *out)
{
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_tensor *l = lc_keep(loss_of(r, x, comm));
    LC_TRY(lc_step_run(g));
    LC_TRY(lc_item(l, out));
    LC_TRY(lc_step_end(g));
    return lc_comm_all_reduce(comm, out, out, 1, LC_F64, LC_COMM_SUM, NULL);
}

static lc_status check_row(const row *r, lc_comm *comm)
{
    int n = lc_comm_size(comm), me = lc_comm_rank(comm);
    int64_t part = ROWS * COLS, nx = r->of_parts ? n * part : part, ny;
    double all[4 * MOST], y[MOST], dx[MOST], mine[MOST];
    lc_graph *g;
    lc_tensor *x;
    LC_TRY(lc_graph_new(&g, .threads = 1));
    LC_TRY(lc_tensor_new(LC_F64, 2, (int64_t[]){nx / COLS, COLS}, &x));
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < nx; i++) all[k * nx + i] = value(k, i);
    memcpy(mine, all + me * nx, (size_t)nx * sizeof *mine);
    LC_TRY(lc_tensor_write(x, mine, (size_t)nx * sizeof *mine));
    lc_tensor_set_requires_grad(x, r->smooth);
    for (int pass = 0; pass < 3; pass++) { /* planned, and from the cache */
        LC_TRY(lc_step_begin(g, 0, 0));
        lc_tensor *t = lc_keep(r->op(x, comm));
        LC_TRY(lc_step_status(g));
        ny = lc_tensor_numel(t);
        RANK_CHECK(ny == (r->gives_parts ? n : 1) * part);
        LC_TRY(lc_step_run(g));
        LC_TRY(lc_tensor_read(t, y, (size_t)ny * sizeof *y));
        LC_TRY(lc_step_end(g));
        for (int64_t i = 0; i < ny; i++)
            if (!(fabs(y[i] - r->want(all, nx, me, n, i)) < 1e-12))
                return lc_fail(LC_ERR_INTERNAL, "%s, pass %d: element %d is %g, not %g", r->name, pass, (int)i, y[i],
                               r->want(all, nx, me, n, i));
    }
    if (r->smooth) {
        LC_TRY(lc_step_begin(g, 0, 0));
        lc_zero_grad(g);
        lc_backward(loss_of(r, x, comm));
        lc_tensor *d = lc_keep(lc_gradient(x));
        LC_TRY(lc_step_run(g));
        LC_TRY(lc_tensor_read(d, dx, (size_t)nx * sizeof *dx));
        LC_TRY(lc_step_end(g));
        for (int who = 0; who < n; who++)
            for (int64_t i = 0; i < nx; i++) {
                double h = 1e-4, up, down;
                for (int side = 0; side < 2; side++) {
                    double moved = mine[i];
                    if (me == who) mine[i] = moved + (side ? -h : h);
                    LC_TRY(lc_tensor_write(x, mine, (size_t)nx * sizeof *mine));
                    LC_TRY(total(r, g, x, comm, side ? &down : &up));
                    mine[i] = moved;
                }
                double slope = (up - down) / (2 * h);
                if (me == who && !(fabs(dx[i] - slope) < 1e-6 * (1 + fabs(slope))))
                    return lc_fail(LC_ERR_INTERNAL, "%s: the gradient of element %d is %g, not %g", r->name, (int)i,
                                   dx[i], slope);
            }
    }
    lc_tensor_unref(x);
    lc_graph_free(g);
    return LC_OK;
}

static lc_status check_rows(lc_comm *comm, void *ctx)
{
    (void)ctx;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) LC_TRY(check_row(&rows[i], comm));
    return LC_OK;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives as operators: what they give is what lc_comm gives, their gradients are those of the sum of all ranks'
 * losses, they run on every rank in the order of recording, and they fail as a step fails. */
#include "comm_world.h"

#include <lightc/lightc.h>
#include <math.h>
#include <stdlib.h>

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
static lc_tensor *exchanged(lc_tensor *x, lc_comm *c)
{
    return lc_all_to_all(x, c);
}

/* One row for each operator: what y has at i, from all ranks' x (each of n numbers, one after the other). */
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
static double want_exchanged(const double *x, int64_t n, int rank, int size, int64_t i)
{
    int64_t part = n / size;
    return x[i / part * n + rank * part + i % part];
}

typedef struct row {
    const char *name;
    op_fn *op;
    want_fn *want;
    bool of_parts, smooth; /* x has a part for each rank; has a gradient */
} row;

static const row rows[] = {
    {"all_reduce", sum_of_all, want_sum, false, true},      {"all_reduce max", largest_of_all, want_max, false, false},
    {"reduce", sum_to_last, want_sum_on_last, false, true}, {"broadcast", from_last, want_last, false, true},
    {"all_gather", gathered, want_gathered, false, true},   {"reduce_scatter", scattered, want_part, true, true},
    {"all_to_all", exchanged, want_exchanged, true, true},
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

/* The sum of all ranks' losses where this rank has x. */
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
    LC_TRY(lc_graph_new(&(lc_graph_options){.threads = 1}, &g));
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
        RANK_CHECK(ny == (!strcmp(r->name, "all_gather") ? n * nx : !strcmp(r->name, "reduce_scatter") ? nx / n : nx));
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

static void over_all_backends(rank_fn *fn, void *ctx)
{
    for (int n = 1; n <= 4; n++) CHECK_RANKS("threads", n, fn, ctx);
    CHECK_RANKS("shm", 2, fn, ctx);
    CHECK_RANKS("shm", 3, fn, ctx);
    CHECK_RANKS("tcp", 2, fn, ctx);
}

TEST(values_and_gradients)
{
    over_all_backends(check_rows, NULL);
}
TEST(values_and_gradients_without_a_plan)
{
    setenv("LIGHTC_PLAN", "off", 1);
    over_all_backends(check_rows, NULL);
    unsetenv("LIGHTC_PLAN");
}
TEST(what_is_in_flight_is_no_invalid_number)
{
    setenv("LIGHTC_NAN_CHECK", "1", 1);
    over_all_backends(check_rows, NULL);
    unsetenv("LIGHTC_NAN_CHECK");
}

/* ---- data types ---- */

static lc_status whole_numbers(lc_comm *comm, void *ctx)
{
    int n = lc_comm_size(comm), me = lc_comm_rank(comm);
    lc_graph *g;
    lc_tensor *x, *b;
    int64_t got[8];
    uint8_t truth[2];
    (void)ctx;
    LC_TRY(lc_graph_new(&(lc_graph_options){.threads = 1}, &g));
    LC_TRY(lc_tensor_new(LC_I64, 1, (int64_t[]){2}, &x));
    LC_TRY(lc_tensor_new(LC_BOOL, 1, (int64_t[]){2}, &b));
    LC_TRY(lc_tensor_write(x, (int64_t[]){me, 1L << 40}, 16));
    LC_TRY(lc_tensor_write(b, (uint8_t[]){me == 0, 1}, 2));
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_tensor *all = lc_keep(lc_all_gather(x, comm)), *and = lc_keep(lc_all_reduce(b, comm, LC_COMM_MIN));
    LC_TRY(lc_step_run(g));
    LC_TRY(lc_tensor_read(all, got, (size_t)n * 16));
    LC_TRY(lc_tensor_read(and, truth, 2));
    for (int r = 0; r < n; r++) RANK_CHECK(got[2 * r] == r && got[2 * r + 1] == 1L << 40);
    RANK_CHECK(truth[0] == (n == 1) && truth[1] == 1);
    LC_TRY(lc_step_end(g));
    lc_tensor_unref(x), lc_tensor_unref(b);
    lc_graph_free(g);
    return LC_OK;
}

TEST(numbers_of_every_type)
{
    over_all_backends(whole_numbers, NULL);
}

/* ---- order ---- */

/* Several are in flight while a product is computed; x changes behind the call; rank 0 never looks at a result that the
 * others use. */
static lc_status in_order(lc_comm *comm, void *ctx)
{
    enum { N = 48 };
    int n = lc_comm_size(comm), me = lc_comm_rank(comm);
    static const int64_t shape[] = {N, N};
    float *ones = malloc(N * N * sizeof *ones), *got = malloc((size_t)n * N * N * sizeof *got);
    lc_graph *g;
    lc_tensor *x, *w;
    lc_comm_stats before, after;
    lc_graph_stats stats;
    (void)ctx;
    LC_TRY(lc_graph_new(&(lc_graph_options){.threads = 1}, &g));
    LC_TRY(lc_tensor_new(LC_F32, 2, shape, &x));
    LC_TRY(lc_tensor_new(LC_F32, 2, shape, &w));
    for (int i = 0; i < N * N; i++) ones[i] = 1;
    LC_TRY(lc_tensor_write(w, ones, N * N * sizeof *ones));
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < N * N; i++) ones[i] = (float)(me + 1);
        LC_TRY(lc_tensor_write(x, ones, N * N * sizeof *ones));
        lc_comm_get_stats(comm, &before);
        LC_TRY(lc_step_begin(g, (uint64_t)s, 0));
        lc_tensor *sum = lc_all_reduce(x, comm, LC_COMM_SUM);
        lc_tensor *all = lc_all_gather(lc_add_scalar(x, 1), comm);
        lc_tensor *unread = lc_all_reduce(lc_mul_scalar(x, 2), comm, LC_COMM_MAX);
        lc_assign(x, lc_mul_scalar(x, 0));
        lc_tensor *product = lc_matmul(lc_matmul(w, w), w);
        lc_tensor *y = lc_keep(lc_add(sum, product)), *most = me ? lc_keep(lc_neg(unread)) : NULL;
        lc_keep(all);
        LC_TRY(lc_step_run(g));
        LC_TRY(lc_tensor_read(y, got, N * N * sizeof *got));
        for (int i = 0; i < N * N; i++) RANK_CHECK(got[i] == (float)(n * (n + 1) / 2 + N * N));
        LC_TRY(lc_tensor_read(all, got, (size_t)n * N * N * sizeof *got));
        for (int i = 0; i < n * N * N; i++) RANK_CHECK(got[i] == (float)(i / (N * N) + 2));
        if (most) LC_TRY(lc_tensor_read(most, got, N * N * sizeof *got));
        for (int i = 0; most && i < N * N; i++) RANK_CHECK(got[i] == (float)(-2 * n));
        LC_TRY(lc_step_end(g));
        lc_comm_get_stats(comm, &after);
        RANK_CHECK(after.calls[LC_COMM_ALL_REDUCE] - before.calls[LC_COMM_ALL_REDUCE] == 2);
        RANK_CHECK(after.calls[LC_COMM_ALL_GATHER] - before.calls[LC_COMM_ALL_GATHER] == 1);
    }
    lc_graph_get_stats(g, &stats);
    RANK_CHECK(stats.misses == 1 && stats.hits == 3);
    lc_tensor_unref(x), lc_tensor_unref(w);
    lc_graph_free(g);
    free(ones), free(got);
    return LC_OK;
}

TEST(every_rank_runs_them_in_order)
{
    over_all_backends(in_order, NULL);
}

/* A recomputed region communicates once; images lie in whatever layout. */
static lc_status in_a_region(lc_comm *comm, void *ctx)
{
    int n = lc_comm_size(comm);
    lc_comm_stats before, after;
    lc_graph *g;
    lc_tensor *x, *w;
    float data[2 * 3 * 4 * 4], d[2][3 * 3 * 3 * 3];
    (void)ctx;
    LC_TRY(lc_graph_new(&(lc_graph_options){.threads = 1}, &g));
    LC_TRY(lc_tensor_new(LC_F32, 4, (int64_t[]){2, 3, 4, 4}, &x));
    LC_TRY(lc_tensor_new(LC_F32, 4, (int64_t[]){3, 3, 3, 3}, &w));
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = (float)value(7 + lc_comm_rank(comm), (int64_t)i);
    LC_TRY(lc_tensor_write(x, data, sizeof data));
    for (int i = 0; i < 81; i++) d[0][i] = (float)value(3, i);
    LC_TRY(lc_tensor_write(w, d[0], sizeof d[0]));
    lc_tensor_set_requires_grad(w, true);
    for (int again = 0; again < 2; again++) {
        lc_comm_get_stats(comm, &before);
        LC_TRY(lc_step_begin(g, 0, 0));
        lc_zero_grad(g);
        if (again) lc_checkpoint_begin();
        lc_tensor *images = lc_tanh(lc_conv2d(x, w, NULL, .padding = {1}));
        lc_tensor *y = lc_square(lc_all_gather(images, comm));
        if (again) lc_checkpoint_end();
        lc_backward(lc_mean(y));
        lc_tensor *dw = lc_keep(lc_gradient(w));
        LC_TRY(lc_step_run(g));
        LC_TRY(lc_tensor_read(dw, d[again], sizeof d[again]));
        LC_TRY(lc_step_end(g));
        lc_comm_get_stats(comm, &after);
        RANK_CHECK(after.calls[LC_COMM_ALL_GATHER] - before.calls[LC_COMM_ALL_GATHER] == 1);
        RANK_CHECK(after.calls[LC_COMM_REDUCE_SCATTER] - before.calls[LC_COMM_REDUCE_SCATTER] == 1);
    }
    for (int i = 0; i < 81; i++) RANK_CHECK(fabsf(d[0][i] - d[1][i]) <= 1e-6f);
    /* without communication: each image is seen by all, in the mean over n times as many */
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_zero_grad(g);
    lc_backward(lc_mean(lc_square(lc_tanh(lc_conv2d(x, w, NULL, .padding = {1})))));
    lc_tensor *dw = lc_keep(lc_gradient(w));
    LC_TRY(lc_step_run(g));
    LC_TRY(lc_tensor_read(dw, d[1], sizeof d[1]));
    LC_TRY(lc_step_end(g));
    for (int i = 0; i < 81; i++) RANK_CHECK(fabsf(d[0][i] - d[1][i]) <= 1e-6f);
    RANK_CHECK(n >= 1);
    lc_tensor_unref(x), lc_tensor_unref(w);
    lc_graph_free(g);
    return LC_OK;
}

TEST(a_recomputed_region_communicates_once)
{
    over_all_backends(in_a_region, NULL);
}

/* ---- errors ---- */

static lc_status bad_calls(lc_comm *comm, void *ctx)
{
    lc_graph *g;
    lc_tensor *x, *s;
    (void)ctx;
    LC_TRY(lc_graph_new(&(lc_graph_options){.threads = 1}, &g));
    LC_TRY(lc_tensor_new(LC_F32, 1, (int64_t[]){5}, &x));
    LC_TRY(lc_tensor_new(LC_BOOL, 0, NULL, &s));
    lc_tensor_set_requires_grad(x, true);
    for (int what = 0; what < 7; what++) {
        static const char *const said[] = {"there is no communicator",
                                           "there is no rank 2; there are 0 to 1",
                                           "the first dimension of x, 5, is no multiple of the 2 ranks",
                                           "x has no dimension to put ranks into",
                                           "there is no sum of bool",
                                           "is no multiple",
                                           "no gradient flows through the max over ranks, only through the sum"};
        LC_TRY(lc_step_begin(g, 0, 0));
        what == 0   ? lc_all_reduce(x, NULL, LC_COMM_SUM)
        : what == 1 ? lc_broadcast(x, comm, 2)
        : what == 2 ? lc_reduce_scatter(x, comm)
        : what == 3 ? lc_all_gather(s, comm)
        : what == 4 ? lc_all_reduce(s, comm, LC_COMM_SUM)
        : what == 5 ? lc_all_to_all(x, comm)
                    : (lc_backward(lc_sum(lc_all_reduce(x, comm, LC_COMM_MAX))), x);
        RANK_CHECK(lc_step_run(g) < 0);
        if (!strstr(lc_error_message(), said[what]))
            return lc_fail(LC_ERR_INTERNAL, "call %d says: %s", what, lc_error_message());
        RANK_CHECK(lc_step_end(g) < 0);
    }
    lc_tensor_unref(x), lc_tensor_unref(s);
    lc_graph_free(g);
    return LC_OK;
}

TEST(what_cannot_be_called_is_said_before_anything_is_sent)
{
    CHECK_RANKS("threads", 2, bad_calls, NULL);
}

/* Rank 1 makes another call than the others, or is gone: the step ends on every rank, and the next one, over another
 * group, works. */
static lc_status fails(lc_comm *comm, void *ctx)
{
    bool leaves = *(bool *)ctx;
    int me = lc_comm_rank(comm);
    lc_comm *spare;
    lc_graph *g;
    lc_tensor *x;
    double v;
    LC_TRY(lc_comm_split(comm, 0, me, &spare));
    LC_TRY(lc_graph_new(&(lc_graph_options){.threads = 1}, &g));
    LC_TRY(lc_tensor_new(LC_F32, 1, (int64_t[]){4}, &x));
    LC_TRY(lc_tensor_write(x, (float[]){1, 2, 3, 4}, 16));
    for (int s = 0; s < 2; s++) {
        bool odd = s == 1 && me == 1;
        LC_TRY(lc_comm_barrier(comm, NULL));
        LC_TRY(lc_step_begin(g, (uint64_t)s, 0));
        if (odd && leaves) lc_comm_abort(spare, "rank 1 has left");
        lc_tensor *y = lc_keep(lc_sum(odd && !leaves ? lc_all_gather(x, spare) : lc_all_reduce(x, spare, LC_COMM_SUM)));
        lc_status status = lc_step_run(g);
        if (s == 0) {
            LC_TRY(status);
            LC_TRY(lc_item(y, &v));
            RANK_CHECK(v == 10 * lc_comm_size(comm));
            LC_TRY(lc_step_end(g));
            continue;
        }
        RANK_CHECK(status < 0);
        const char *said = lc_error_message();
        if (leaves ? !strstr(said, "rank 1 has left") : !strstr(said, "all_gather") || !strstr(said, "all_reduce"))
            return lc_fail(LC_ERR_INTERNAL, "it says: %s", said);
        RANK_CHECK(lc_step_end(g) == status);
    }
    LC_TRY(lc_step_begin(g, 2, 0));
    lc_tensor *y = lc_keep(lc_sum(lc_all_reduce(x, comm, LC_COMM_SUM)));
    LC_TRY(lc_step_run(g));
    LC_TRY(lc_item(y, &v));
    RANK_CHECK(v == 10 * lc_comm_size(comm));
    LC_TRY(lc_step_end(g));
    lc_comm_free(spare);
    lc_tensor_unref(x);
    lc_graph_free(g);
    return LC_OK;
}

TEST(an_error_of_the_communicator_ends_the_step)
{
    for (int leaves = 0; leaves < 2; leaves++) {
        bool how = leaves;
        CHECK_RANKS("threads", 3, fails, &how);
        CHECK_RANKS("shm", 2, fails, &how);
        CHECK_RANKS("tcp", 2, fails, &how);
    }
}

/* A step that fails on one rank while a call is in flight: nothing writes into the memory of later steps, and the
 * others are told. */
static lc_status fails_in_flight(lc_comm *comm, void *ctx)
{
    int me = lc_comm_rank(comm);
    lc_graph *g;
    lc_tensor *x;
    lc_comm *spare;
    (void)ctx;
    LC_TRY(lc_comm_split(comm, 0, me, &spare));
    LC_TRY(lc_graph_new(&(lc_graph_options){.threads = 1, .nan_check = true}, &g));
    LC_TRY(lc_tensor_new(LC_F32, 1, (int64_t[]){1000}, &x));
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_tensor *sum = lc_all_reduce(x, spare, LC_COMM_SUM);
    if (me == 0) lc_keep(lc_ln(lc_add_scalar(x, -1)));
    lc_tensor *second = lc_keep(lc_all_reduce(sum, spare, LC_COMM_SUM));
    (void)second;
    RANK_CHECK(lc_step_run(g) < 0);
    if (!strstr(lc_error_message(), "NaN")) return lc_fail(LC_ERR_INTERNAL, "it says: %s", lc_error_message());
    RANK_CHECK(lc_step_end(g) < 0);
    lc_comm_free(spare);
    lc_tensor_unref(x);
    lc_graph_free(g);
    return LC_OK;
}

TEST(a_step_that_fails_with_calls_in_flight_tells_the_others)
{
    CHECK_RANKS("threads", 3, fails_in_flight, NULL);
    CHECK_RANKS("shm", 2, fails_in_flight, NULL);
    CHECK_RANKS("tcp", 2, fails_in_flight, NULL);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives as operators: their results are those of lc_comm, their gradients are those of the sum of all ranks'
 * losses, every rank runs them in the order of recording, and their errors are errors of the step. */
#include "collective_rows.h"

#include <stdlib.h>

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
TEST(buffers_in_flight_are_not_checked_for_nan)
{
    setenv("LIGHTC_NAN_CHECK", "1", 1);
    over_all_backends(check_rows, NULL);
    unsetenv("LIGHTC_NAN_CHECK");
}

/* Ranks of a group are numbered within it. */
static lc_status in_groups(lc_comm *comm, void *ctx)
{
    int me = lc_comm_rank(comm);
    lc_comm *group;
    LC_TRY(lc_comm_split(comm, me % 2, -me, &group));
    LC_TRY(check_rows(group, ctx));
    lc_comm_free(group);
    return LC_OK;
}

TEST(values_and_gradients_in_groups)
{
    CHECK_RANKS("threads", 4, in_groups, NULL);
    CHECK_RANKS("shm", 3, in_groups, NULL);
}

/* ---- data types ---- */

static lc_status whole_numbers(lc_comm *comm, void *ctx)
{
    int n = lc_comm_size(comm), me = lc_comm_rank(comm);
    lc_graph *g;
    lc_tensor *x, *b, *many;
    int64_t got[8], at_root[8], part[2];
    uint8_t truth[2];
    (void)ctx;
    LC_TRY(lc_graph_new(&g, .threads = 1));
    LC_TRY(lc_tensor_new(LC_I64, 1, (int64_t[]){2}, &x));
    LC_TRY(lc_tensor_new(LC_BOOL, 1, (int64_t[]){2}, &b));
    LC_TRY(lc_tensor_new(LC_I64, 1, (int64_t[]){2 * n}, &many));
    LC_TRY(lc_tensor_write(x, (int64_t[]){me, 1L << 40}, 16));
    for (int i = 0; i < 2 * n; i++) got[i] = me ? -1 : i + (1L << 40);
    LC_TRY(lc_tensor_write(many, got, (size_t)n * 16));
    LC_TRY(lc_tensor_write(b, (uint8_t[]){me == 0, 1}, 2));
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_tensor *all = lc_keep(lc_all_gather(x, comm)), *and = lc_keep(lc_all_reduce(b, comm, LC_COMM_MIN));
    lc_tensor *root = lc_keep(lc_gather_to(x, comm, 0)), *own = lc_keep(lc_scatter_from(many, comm, 0));
    LC_TRY(lc_step_run(g));
    LC_TRY(lc_tensor_read(all, got, (size_t)n * 16));
    LC_TRY(lc_tensor_read(and, truth, 2));
    LC_TRY(lc_tensor_read(root, at_root, (size_t)n * 16));
    LC_TRY(lc_tensor_read(own, part, 16));
    for (int r = 0; r < n; r++) RANK_CHECK(got[2 * r] == r && got[2 * r + 1] == 1L << 40);
    RANK_CHECK(truth[0] == (n == 1) && truth[1] == 1);
    for (int i = 0; i < 2 * n; i++) RANK_CHECK(at_root[i] == (me ? 0 : got[i]));
    for (int i = 0; i < 2; i++) RANK_CHECK(part[i] == 2 * me + i + (1L << 40));
    LC_TRY(lc_step_end(g));
    lc_tensor_unref(x), lc_tensor_unref(b), lc_tensor_unref(many);
    lc_graph_free(g);
    return LC_OK;
}

TEST(every_data_type)
{
    over_all_backends(whole_numbers, NULL);
}

/* ---- order ---- */

/* Several calls are in flight while a product is computed; x changes after the call; rank 0 does not use a result that
 * the others use. */
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
    LC_TRY(lc_graph_new(&g, .threads = 1));
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

/* A recomputed region communicates once; images have any layout. */
static lc_status in_a_region(lc_comm *comm, void *ctx)
{
    int n = lc_comm_size(comm);
    lc_comm_stats before, after;
    lc_graph *g;
    lc_tensor *x, *w;
    float data[2 * 3 * 4 * 4], d[2][3 * 3 * 3 * 3];
    (void)ctx;
    LC_TRY(lc_graph_new(&g, .threads = 1));
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
        lc_tensor *images = lc_tanh(lc_conv2d(x, w, NULL, .padding = LC_DIMS(1, 0)));
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
    /* without communication: the mean over n times as many images, so that every image is seen */
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_zero_grad(g);
    lc_backward(lc_mean(lc_square(lc_tanh(lc_conv2d(x, w, NULL, .padding = LC_DIMS(1, 0))))));
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
    LC_TRY(lc_graph_new(&g, .threads = 1));
    LC_TRY(lc_tensor_new(LC_F32, 1, (int64_t[]){5}, &x));
    LC_TRY(lc_tensor_new(LC_BOOL, 0, NULL, &s));
    lc_tensor_set_requires_grad(x, true);
    for (int what = 0; what < 12; what++) {
        static const char *const said[] = {
            "the communicator is missing",
            "there is no rank 2; there are 0 to 1",
            "the first dimension of x, 5, is not a multiple of the 2 ranks",
            "x has no dimension along which ranks can be placed",
            "sum is not defined for bool",
            "is not a multiple",
            "the max over ranks has no gradient; only the sum has",
            "gather_to: there is no rank -1; there are 0 to 1",
            "x has no dimension along which ranks can be placed; reshape it to [1]",
            "scatter_from: there is no rank 2; there are 0 to 1",
            "x has no dimension along which ranks can be placed; reshape it to [1]",
            "scatter_from: the first dimension of x, 5, is not a multiple of the 2 ranks; pad"};
        LC_TRY(lc_step_begin(g, 0, 0));
        what == 0    ? lc_all_reduce(x, NULL, LC_COMM_SUM)
        : what == 1  ? lc_broadcast(x, comm, 2)
        : what == 2  ? lc_reduce_scatter(x, comm)
        : what == 3  ? lc_all_gather(s, comm)
        : what == 4  ? lc_all_reduce(s, comm, LC_COMM_SUM)
        : what == 5  ? lc_all_to_all(x, comm)
        : what == 7  ? lc_gather_to(x, comm, -1)
        : what == 8  ? lc_gather_to(s, comm, 0)
        : what == 9  ? lc_scatter_from(x, comm, 2)
        : what == 10 ? lc_scatter_from(s, comm, 0)
        : what == 11 ? lc_scatter_from(x, comm, 0)
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

TEST(invalid_calls_are_refused_before_anything_is_sent)
{
    CHECK_RANKS("threads", 2, bad_calls, NULL);
}

/* Rank 1 makes a different call, or is gone: the step ends on every rank, and the next one, over another group, works.
 */
static lc_status fails(lc_comm *comm, void *ctx)
{
    bool leaves = *(bool *)ctx;
    int me = lc_comm_rank(comm);
    lc_comm *spare;
    lc_graph *g;
    lc_tensor *x;
    double v;
    LC_TRY(lc_comm_split(comm, 0, me, &spare));
    LC_TRY(lc_graph_new(&g, .threads = 1));
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

/* Each rank's call is valid by itself, but they do not match. */
static lc_status does_not_fit(lc_comm *comm, void *ctx)
{
    static const char *const said[][2] = {{"gather of 4 f32 to rank 0", "gather of 8 f32 to rank 0"},
                                          {"gather of 4 f32 to rank 0", "gather of 4 i32 to rank 0"},
                                          {"scatter of 4 f32 from rank 0", "scatter of 8 f32 from rank 0"},
                                          {"gather of 4 f32 to rank 0", "scatter of 4 f32 from rank 1"}};
    int what = *(int *)ctx, me = lc_comm_rank(comm);
    bool scatters = what == 2 || (what == 3 && me);
    int64_t n = (me && (what == 0 || what == 2) ? 8 : 4) * (scatters ? 2 : 1);
    lc_graph *g;
    lc_tensor *x;
    LC_TRY(lc_graph_new(&g, .threads = 1));
    LC_TRY(lc_tensor_new(me && what == 1 ? LC_I32 : LC_F32, 1, &n, &x));
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_keep(scatters ? lc_scatter_from(x, comm, what == 3) : lc_gather_to(x, comm, 0));
    lc_keep(lc_all_reduce(x, comm, LC_COMM_MAX)); /* a rank that only sends waits for the others as well */
    RANK_CHECK(lc_step_run(g) < 0);
    if (!strstr(lc_error_message(), said[what][0]) || !strstr(lc_error_message(), said[what][1]))
        return lc_fail(LC_ERR_INTERNAL, "call %d says: %s", what, lc_error_message());
    RANK_CHECK(lc_step_end(g) < 0);
    lc_tensor_unref(x);
    lc_graph_free(g);
    return LC_OK;
}

TEST(different_shapes_are_reported)
{
    for (int what = 0; what < 4; what++) {
        CHECK_RANKS("threads", 2, does_not_fit, &what);
        CHECK_RANKS("shm", 2, does_not_fit, &what);
        CHECK_RANKS("tcp", 2, does_not_fit, &what);
    }
}

/* A step that fails on one rank while a call is in flight: nothing writes into the memory of later steps, and the
 * others are notified. */
static lc_status fails_in_flight(lc_comm *comm, void *ctx)
{
    int me = lc_comm_rank(comm);
    lc_graph *g;
    lc_tensor *x;
    lc_comm *spare;
    (void)ctx;
    LC_TRY(lc_comm_split(comm, 0, me, &spare));
    LC_TRY(lc_graph_new(&g, .threads = 1, .nan_check = true));
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

TEST(a_step_that_fails_with_calls_in_flight_notifies_the_others)
{
    CHECK_RANKS("threads", 3, fails_in_flight, NULL);
    CHECK_RANKS("shm", 2, fails_in_flight, NULL);
    CHECK_RANKS("tcp", 2, fails_in_flight, NULL);
}

TEST_MAIN

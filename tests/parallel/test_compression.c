/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients sent as bf16 or fp16: half the bytes, the same bits on all ranks, sums that do not overflow and are rounded
 * once on each side, and a training that ends close to one without compression. */
#include "comm_world.h"
#include "model_values.h"

#include "base/half.h"
#include "parallel/reduce/reducer.h"

#include <lightc/lightc.h>
#include <lightc/random.h>
#include <math.h>

enum { LARGE = 1000 };

typedef struct wire_job {
    lc_dtype wire, dtype; /* dtype: of the parameters */
    double scale;         /* of the gradients */
} wire_job;

static double gradient_of(int rank, int64_t i)
{
    return lc_random_normal(60 + (uint64_t)rank, (uint64_t)i);
}

static double rounded(lc_dtype wire, double v)
{
    return wire == LC_BF16 ? lc__bf16_to_f32(lc__f32_to_bf16((float)v)) : lc__f16_to_f32(lc__f32_to_f16((float)v));
}

/* One parameter whose gradient is known: ranks must get the rounded tree sum of what each of them rounded. */
static lc_status known_gradients(lc_comm *comm, void *ctx)
{
    const wire_job *j = ctx;
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("one")};
    int n = lc_comm_size(comm), me = lc_comm_rank(comm);
    size_t width = lc_dtype_size(j->dtype);
    lc_module m;
    lc_graph *g;
    lc__reducer *r;
    lc__reducer_stats stats;
    lc_comm_stats before, after;
    char data[LARGE * 8];
    lc_module_init(&m, &ops, 1);
    lc_tensor *w = lc_module_add_parameter(&m, "w", j->dtype, LC_ROW_MAJOR, 1, (int64_t[]){LARGE},
                                           (lc_init){.kind = LC_INIT_ZEROS});
    LC_TRY(lc_module_status(&m));
    LC_TRY(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_sgd(&m, .lr = 1);
    LC_TRY(lc__reducer_new(g, comm, 0, &r));
    LC_TRY(lc__reducer_compress(r, j->wire));
    LC_TRY(lc__reducer_add(r, opt));
    lc_tensor *c;
    LC_TRY(lc_tensor_new(j->dtype, 1, (int64_t[]){LARGE}, &c));
    for (int i = 0; i < LARGE; i++) {
        double v = j->scale * gradient_of(me, i);
        if (j->dtype == LC_F64)
            ((double *)data)[i] = v;
        else
            ((float *)data)[i] = (float)v;
    }
    LC_TRY(lc_tensor_write(c, data, LARGE * width));
    lc_comm_get_stats(comm, &before);
    for (int step = 0; step < 2; step++) {
        uint8_t flags[LC__SYNC_FLAGS] = {0};
        LC_TRY(lc_step_begin(g, (uint64_t)step, 0));
        lc_zero_grad(g);
        lc_backward(lc_sum(lc_mul(w, c)));
        LC_TRY(lc__reducer_sync(r, flags));
        lc_optimizer_step(opt); /* w -= the mean over ranks */
        LC_TRY(lc_step_run(g));
        LC_TRY(lc_step_end(g));
    }
    lc_comm_get_stats(comm, &after);
    lc__reducer_get_stats(r, &stats);
    int64_t bytes = LARGE * (int64_t)(j->wire == LC_F32 ? width : 2);
    RANK_CHECK(stats.bytes == 2 * bytes);
    /* plus the bytes of parameters with gradients, of flags, and of hashes of what ranks must have in common */
    RANK_CHECK(after.bytes[LC_COMM_ALL_REDUCE] - before.bytes[LC_COMM_ALL_REDUCE] ==
               2 * (bytes + 1 + LC__SYNC_FLAGS + 16));
    LC_TRY(lc_tensor_read(w, data, LARGE * width));
    for (int i = 0; i < LARGE; i++) {
        float part[4];
        double v = j->dtype == LC_F64 ? ((double *)data)[i] : ((float *)data)[i];
        for (int k = 0; k < n; k++) {
            double one = j->scale * gradient_of(k, i);
            part[k] = (float)rounded(j->wire, (j->dtype == LC_F64 ? one : (double)(float)one) / n);
        }
        float sum = n == 1 ? part[0] : n == 2 ? part[0] + part[1] : part[0] + part[1] + part[2];
        double want = -2 * rounded(j->wire, sum);
        if (!(fabs(v - want) <= 1e-6 * fabs(want)))
            return lc_fail(LC_ERR_INTERNAL, "element %d is %.9g, not %.9g", i, v, want);
    }
    lc__reducer_free(r);
    lc_optimizer_free(opt);
    lc_tensor_unref(c);
    lc_graph_free(g);
    lc_module_release(&m);
    return LC_OK;
}

TEST(sums_are_rounded_once_on_each_side)
{
    static const lc_dtype wires[] = {LC_BF16, LC_F16}, dtypes[] = {LC_F32, LC_F64};
    for (int i = 0; i < 4; i++) {
        wire_job j = {wires[i / 2], dtypes[i % 2], 1};
        for (int n = 1; n <= 3; n++) CHECK_RANKS("threads", n, known_gradients, &j);
        CHECK_RANKS("shm", 2, known_gradients, &j);
        CHECK_RANKS("tcp", 2, known_gradients, &j);
    }
}
/* Gradients up to 50,000 on each rank: their sum is out of fp16's range, their mean is not. */
TEST(a_sum_stays_in_the_range_of_fp16)
{
    wire_job j = {LC_F16, LC_F32, 12000};
    for (int n = 1; n <= 3; n++) CHECK_RANKS("threads", n, known_gradients, &j);
}

/* ---- training ---- */

typedef struct fit_job {
    const char *compression;
    double tolerance; /* relative to the largest parameter, against the training without compression */
    float *want;
    int64_t n;
    double want_loss;
} fit_job;

typedef struct mlp {
    lc_module base;
    lc_linear l1, l2;
} mlp;

static const lc_module_ops mlp_ops = {LC_MODULE_OPS_INIT("mlp")};

/* The same small task for every number of ranks, with Fabric. */
static lc_status learn(const char *compression, lc_comm *comm, values *out, double *loss)
{
    enum { BATCH = 12, STEPS = 60, IN = 16, CLASSES = 4 };
    int n = comm ? lc_comm_size(comm) : 1, me = comm ? lc_comm_rank(comm) : 0;
    float xs[BATCH * IN];
    int64_t ys[BATCH];
    lc_fabric *f;
    mlp m;
    lc_module_init(&m.base, &mlp_ops, 7);
    lc_linear_init(&m.l1, &m, "l1", IN, 32);
    lc_linear_init(&m.l2, &m, "l2", 32, CLASSES);
    LC_TRY(lc_module_status(&m.base));
    lc_optimizer *opt = lc_sgd(&m, .lr = 0.02, .momentum = 0.9);
    lc_tensor *x, *y;
    LC_TRY(lc_fabric_new(&f, .strategy = comm ? "ddp" : NULL, .comm = comm, .threads = 1,
                         .gradient_compression = compression));
    LC_TRY(lc_fabric_setup(f, &m.base, &opt, 1));
    int64_t count = BATCH / n;
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){count, IN}, LC_ROW_MAJOR, xs, &x));
    LC_TRY(lc_input_new(LC_I64, 1, &count, LC_ROW_MAJOR, ys, &y));
    for (int s = 0; s < STEPS; s++) {
        for (int64_t i = 0; i < count; i++) {
            int64_t sample = (s * BATCH + me * count + i) % 60;
            ys[i] = sample % CLASSES;
            for (int64_t k = 0; k < IN; k++) xs[i * IN + k] = (float)lc_random_normal(5, (uint64_t)(sample * IN + k));
        }
        LC_TRY(lc_fabric_begin(f));
        lc_tensor *l = lc_keep(lc_cross_entropy(lc_linear_forward(&m.l2, lc_relu(lc_linear_forward(&m.l1, x))), y));
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, l);
        lc_fabric_step(f, opt);
        LC_TRY(lc_fabric_end(f));
        LC_TRY(lc_item(l, loss));
    }
    if (comm) LC_TRY(lc_comm_all_reduce(comm, loss, loss, 1, LC_F64, LC_COMM_SUM, NULL));
    *loss /= n;
    LC_TRY(lc_module_visit(&m.base, copy_out, out));
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_tensor_unref(x), lc_tensor_unref(y);
    lc_module_release(&m.base);
    return LC_OK;
}

static lc_status learns_as_well(lc_comm *comm, void *ctx)
{
    const fit_job *j = ctx;
    values got = {0};
    double loss, worst = 0, largest = 0;
    LC_TRY(learn(j->compression, comm, &got, &loss));
    RANK_CHECK(got.n == j->n);
    for (int64_t i = 0; i < got.n; i++) {
        worst = fmax(worst, fabs((double)got.v[i] - j->want[i]));
        largest = fmax(largest, fabs(j->want[i]));
    }
    if (!(worst <= j->tolerance * largest) || !(fabs(loss - j->want_loss) < 10 * j->tolerance))
        return lc_fail(LC_ERR_INTERNAL, "%s: parameters differ by %g of %g, the loss is %g, not %g", j->compression,
                       worst, largest, loss, j->want_loss);
    RANK_CHECK(worst > 0 || lc_comm_size(comm) == 1); /* compression makes a difference */
    float *first = malloc((size_t)got.n * sizeof *first);
    memcpy(first, got.v, (size_t)got.n * sizeof *first);
    LC_TRY(lc_comm_broadcast(comm, first, got.n, LC_F32, 0, NULL));
    RANK_CHECK(!memcmp(first, got.v, (size_t)got.n * sizeof *first));
    free(first);
    free(got.v);
    return LC_OK;
}

TEST(training_ends_close_to_one_without_compression)
{
    values one = {0};
    fit_job jobs[] = {{"none", 1e-5}, {"fp16", 2e-3}, {"bf16", 1e-2}};
    double loss;
    CHECK_OK(learn(NULL, NULL, &one, &loss));
    for (int k = 0; k < 3; k++) {
        jobs[k].want = one.v, jobs[k].n = one.n, jobs[k].want_loss = loss;
        for (int n = 1; n <= 4; n++) CHECK_RANKS("threads", n, learns_as_well, &jobs[k]);
    }
    CHECK_RANKS("shm", 2, learns_as_well, &jobs[2]);
    free(one.v);
}

/* ---- options that exclude each other ---- */

static lc_status refused(lc_comm *comm, void *ctx)
{
    (void)ctx;
    for (int k = 0; k < 3; k++) {
        lc_trainer *t;
        lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
        o.strategy = k == 2 ? "data_parallel" : "ddp";
        o.devices = k == 2 ? "2" : NULL;
        o.comm = k == 2 ? NULL : comm;
        o.deterministic = k == 1;
        o.gradient_compression = k == 0 ? "fp8" : "bf16";
        o.handle_signals = false;
        lc_status s = lc_trainer_new(&o, &t);
        static const char *const said[] = {"it must be none, bf16 or fp16", "drop one of the two",
                                           "use --strategy ddp"};
        if (s >= 0 || !strstr(lc_error_message(), said[k]))
            return lc_fail(LC_ERR_INTERNAL, "case %d: %s", k, s < 0 ? lc_error_message() : "it is accepted");
    }
    return LC_OK;
}

TEST(contradictory_options_are_refused)
{
    CHECK_RANKS("threads", 2, refused, NULL);
}

TEST_MAIN

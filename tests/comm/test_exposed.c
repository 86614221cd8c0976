/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce in memory that the processes of a host have exposed to each other: it has the bits, errors and byte counts
 * of the same call on other memory; and memory that cannot be exposed, or is no longer exposed. */
#include "comm_world.h"
#include "quiet_options.h"

#include "backends/backends.h"
#include "comm/exchange/exposed.h"

#include <lightc/random.h>
#include <sys/resource.h>

enum { BYTES = 1 << 20, SAMPLES = 24, WIDE = 256 };

#include "small_data.h"

/* A rank's memory, exposed if the rank can. */
typedef struct piece {
    char *data;
    size_t bytes;
} piece;

static lc_status piece_new(lc_comm *c, size_t bytes, bool can, piece *out)
{
    int fd = -1;
    void *data;
    LC_TRY(lc__cpu_backend.alloc(NULL, bytes, &data));
    *out = (piece){data, bytes};
    strcpy(data, "as it was");
    if (can) {
        lc__cpu_backend.share(NULL, data, bytes, &fd);
        RANK_CHECK(fd >= 0 && !strcmp(data, "as it was"));
    }
    RANK_CHECK(lc__comm_can_expose(c));
    LC_TRY(lc__comm_expose(c, data, bytes, fd));
    if (fd >= 0) close(fd);
    return LC_OK;
}

static void piece_free(lc_comm *c, piece *p)
{
    lc__comm_conceal(c, p->data);
    lc__cpu_backend.free(NULL, p->data, p->bytes);
}

/* The number of files with this name that this process has mapped. */
static int mapped_as(const char *name)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) n += strstr(line, name) != NULL;
    if (f) fclose(f);
    return n;
}

/* The number of pieces mapped, those of other ranks and of this one. */
static int mapped(void)
{
    return mapped_as("memfd:lightc-storage");
}

static void fill(void *data, lc_dtype dtype, int64_t count, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t small = lc_random_below(seed, (uint64_t)i, 1024);
        switch (dtype) {
        case LC_F32:
            ((float *)data)[i] = (float)lc_random_uniform(seed, (uint64_t)i) - 0.5f;
            break;
        case LC_F64:
            ((double *)data)[i] = lc_random_uniform(seed, (uint64_t)i) - 0.5;
            break;
        case LC_F16:
            ((uint16_t *)data)[i] = (uint16_t)(0x3800 | small); /* 0.5 to 1 */
            break;
        case LC_BF16:
            ((uint16_t *)data)[i] = (uint16_t)(0x3f00 | (small & 0xff));
            break;
        case LC_I32:
            ((int32_t *)data)[i] = (int32_t)(small % 8) - 4;
            break;
        case LC_I64:
            ((int64_t *)data)[i] = (int64_t)(small % 8) - 4;
            break;
        default:
            ((uint8_t *)data)[i] = (uint8_t)(small % 3);
        }
    }
}

/* The call in exposed memory has the same bits as elsewhere, and the same counts. */
static lc_status same(lc_comm *c, const piece *p, size_t offset, lc_dtype dtype, lc_reduce_op op, int64_t count)
{
    size_t bytes = (size_t)count * lc_dtype_size(dtype);
    char *here = p->data + offset, *elsewhere = malloc(bytes);
    lc_comm_stats stats[3];
    RANK_CHECK(offset + bytes <= p->bytes && elsewhere);
    fill(here, dtype, count, (uint64_t)(count * 64 + lc_comm_rank(c)));
    memcpy(elsewhere, here, bytes);
    lc_comm_get_stats(c, &stats[0]);
    LC_TRY(lc_comm_all_reduce(c, elsewhere, elsewhere, count, dtype, op, NULL));
    lc_comm_get_stats(c, &stats[1]);
    LC_TRY(lc_comm_all_reduce(c, here, here, count, dtype, op, NULL));
    lc_comm_get_stats(c, &stats[2]);
    bool equal = !memcmp(here, elsewhere, bytes);
    free(elsewhere);
    RANK_CHECK(equal);
    int64_t want = stats[1].sent - stats[0].sent, got = stats[2].sent - stats[1].sent;
    RANK_CHECK(llabs(got - want) <= 64 * lc_comm_size(c));
    return LC_OK;
}

static lc_status all_kinds(lc_comm *c, void *ctx)
{
    static const lc_dtype dtypes[] = {LC_F32, LC_F64, LC_F16, LC_BF16, LC_I32, LC_I64, LC_U8};
    static const lc_reduce_op ops[] = {LC_COMM_SUM, LC_COMM_PROD, LC_COMM_MIN, LC_COMM_MAX};
    static const int64_t bytes[] = {LC__EXPOSED_LEAST - 64, LC__EXPOSED_LEAST, LC__EXPOSED_LEAST + 8, 100008,
                                    BYTES / 2};
    const bool *can = ctx;
    piece p, q;
    LC_TRY(piece_new(c, BYTES, can[lc_comm_rank(c)], &p));
    LC_TRY(piece_new(c, BYTES + 4096, can[lc_comm_rank(c)], &q));
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++) {
                int64_t count = bytes[b] / (int64_t)lc_dtype_size(dtypes[d]);
                LC_TRY(same(c, b % 2 ? &p : &q, 0, dtypes[d], ops[o], count));
                /* The address need not be the same on all ranks. */
                LC_TRY(same(c, &q, 4096 + 256 * (size_t)lc_comm_rank(c), dtypes[d], ops[o], count));
            }
    piece_free(c, &p);
    piece_free(c, &q);
    return lc_comm_barrier(c, NULL);
}

TEST(exposed_memory_has_the_bits_of_any_other)
{
    bool can[] = {true, true, true, true, true};
    for (int n = 2; n <= 5; n += ROUNDS(1, 3)) CHECK_RANKS("shm", n, all_kinds, can);
}

TEST(a_rank_that_cannot_expose_makes_all_use_rings)
{
    bool can[] = {true, false, true};
    CHECK_RANKS("shm", 2, all_kinds, can);
    CHECK_RANKS("shm", 3, all_kinds, can);
}

/* ---- calls in which only some ranks' data is exposed ---- */

static lc_status some_elsewhere(lc_comm *c, void *ctx)
{
    enum { COUNT = 50000 };
    int n = lc_comm_size(c), rank = lc_comm_rank(c);
    float *other = malloc(COUNT * sizeof *other);
    piece p;
    (void)ctx;
    RANK_CHECK(other);
    LC_TRY(piece_new(c, BYTES, true, &p));
    for (int who = 0; who <= n; who++) {
        float *data = (float *)p.data, *out = data;
        for (int64_t i = 0; i < COUNT; i++) data[i] = (float)(rank + 1) + (float)i;
        if (who == rank) memcpy(other, data, sizeof(float) * COUNT), data = out = other; /* not in exposed memory */
        if (who == n && rank == 0) out = other;                                          /* or not in place */
        LC_TRY(lc_comm_all_reduce(c, data, out, COUNT, LC_F32, LC_COMM_SUM, NULL));
        for (int64_t i = 0; i < COUNT; i++) RANK_CHECK(out[i] == (float)(n * (n + 1) / 2) + (float)n * (float)i);
    }
    piece_free(c, &p);
    free(other);
    return LC_OK;
}

TEST(a_rank_with_other_memory_makes_all_use_rings)
{
    CHECK_RANKS("shm", 2, some_elsewhere, NULL);
    CHECK_RANKS("shm", 3, some_elsewhere, NULL);
}

/* ---- many calls at once ---- */

static lc_status in_a_row(lc_comm *c, void *ctx)
{
    enum { CALLS = 12, COUNT = 20000 };
    int n = lc_comm_size(c), rank = lc_comm_rank(c);
    lc_request *r[CALLS];
    piece p;
    (void)ctx;
    LC_TRY(piece_new(c, CALLS * COUNT * sizeof(float), true, &p));
    float *all = (float *)p.data, small = 0;
    for (int round = 0; round < 20; round++) {
        for (int64_t i = 0; i < CALLS * COUNT; i++) all[i] = (float)(rank + round) + (float)(i % 1000);
        for (int k = 0; k < CALLS; k++) {
            LC_TRY(lc_comm_all_reduce(c, all + k * COUNT, all + k * COUNT, COUNT, LC_F32, LC_COMM_SUM, &r[k]));
            if (k % 3 == rank % 3) LC_TRY(lc_comm_progress(c));
        }
        for (int k = 0; k < CALLS; k++) LC_TRY(lc_comm_wait(r[k]));
        /* Once a call has completed, its memory belongs to this rank only. */
        for (int64_t i = 0; i < CALLS * COUNT; i++)
            RANK_CHECK(all[i] == (float)(n * (n - 1) / 2 + n * round) + (float)n * (float)(i % 1000));
        small = 1;
        LC_TRY(lc_comm_all_reduce(c, &small, &small, 1, LC_F32, LC_COMM_SUM, NULL));
        RANK_CHECK(small == (float)n);
    }
    piece_free(c, &p);
    return LC_OK;
}

TEST(many_calls_run_at_once)
{
    for (int n = 2; n <= 4; n++) CHECK_RANKS("shm", n, in_a_row, NULL);
}

/* ---- exposing and releasing ---- */

static lc_status come_and_go(lc_comm *c, void *ctx)
{
    enum { COUNT = 60000 };
    piece p[LC__EXPOSED + 2];
    (void)ctx;
    for (int round = 0; round < 3; round++) {
        RANK_CHECK(mapped() == 0);
        /* If there are more pieces than places, the last ones are not exposed. */
        for (int k = 0; k < LC__EXPOSED + 2; k++) LC_TRY(piece_new(c, COUNT * sizeof(float), true, &p[k]));
        RANK_CHECK(mapped() == LC__EXPOSED * lc_comm_size(c) + 2);
        for (int k = 0; k < LC__EXPOSED + 2; k++) LC_TRY(same(c, &p[k], 0, LC_F32, LC_COMM_SUM, COUNT));
        for (int k = 0; k < LC__EXPOSED + 2; k++) piece_free(c, &p[k]);
    }
    /* Freeing the communicator also releases what a rank has still exposed. */
    return piece_new(c, BYTES, true, &p[0]);
}

TEST(pieces_come_and_go)
{
    CHECK_RANKS("shm", 3, come_and_go, NULL);
}

/* Ranks release memory at different times, and expose other memory afterwards: no rank confuses the two. */
static lc_status at_different_times(lc_comm *c, void *ctx)
{
    enum { COUNT = 60000, PIECES = 6 };
    piece p[PIECES], old = {0};
    (void)ctx;
    for (int k = 0; k < PIECES; k++) {
        LC_TRY(piece_new(c, COUNT * sizeof(float), true, &p[k]));
        if (k % lc_comm_size(c) == lc_comm_rank(c)) piece_free(c, &p[k]), p[k] = old;
        for (int i = 0; i <= k; i++) {
            /* Exposed only on the other ranks. */
            piece here = p[i];
            if (!here.data) here = (piece){malloc(COUNT * sizeof(float)), COUNT * sizeof(float)};
            LC_TRY(same(c, &here, 0, LC_F32, LC_COMM_SUM, COUNT));
            if (!p[i].data) free(here.data);
        }
        piece q;
        LC_TRY(piece_new(c, COUNT * sizeof(float), true, &q));
        LC_TRY(same(c, &q, 0, LC_F32, LC_COMM_SUM, COUNT));
        piece_free(c, &q);
    }
    for (int k = 0; k < PIECES; k++)
        if (p[k].data) piece_free(c, &p[k]);
    return lc_comm_barrier(c, NULL);
}

TEST(ranks_release_memory_at_different_times)
{
    for (int n = 2; n <= 3; n++) CHECK_RANKS("shm", n, at_different_times, NULL);
}

/* ---- errors ---- */

static lc_status differ(lc_comm *c, void *ctx)
{
    enum { COUNT = 30000 };
    piece p;
    (void)ctx;
    LC_TRY(piece_new(c, BYTES, true, &p));
    lc_status s = lc_comm_all_reduce(c, p.data, p.data, COUNT - lc_comm_rank(c), LC_F32, LC_COMM_SUM, NULL);
    if (s >= 0) s = lc_comm_barrier(c, NULL);
    RANK_CHECK(s < 0 && strstr(lc_error_message(), "the ranks make different calls") &&
               strstr(lc_error_message(), "all_reduce of 30000 f32, sum") &&
               strstr(lc_error_message(), "all_reduce of 29999 f32, sum"));
    piece_free(c, &p);
    return LC_OK;
}

TEST(different_calls_are_named)
{
    CHECK_RANKS("shm", 2, differ, NULL);
}

/* A rank leaves in the middle of a call: the others can still use the memory that it freed. */
static lc_status leave(lc_comm *c, void *ctx)
{
    enum { COUNT = 250000 };
    piece p;
    (void)ctx;
    LC_TRY(piece_new(c, BYTES, true, &p));
    for (int round = 0;; round++) {
        lc_request *r;
        lc_status s = lc_comm_all_reduce(c, p.data, p.data, COUNT, LC_F32, LC_COMM_SUM, &r);
        if (s >= 0 && round == 5 && lc_comm_rank(c) == 1) {
            LC_TRY(lc_comm_progress(c));
            lc_comm_abort(c, "it has enough");
            piece_free(c, &p);
            return LC_OK;
        }
        if (s >= 0) s = lc_comm_wait(r);
        if (s >= 0) continue;
        RANK_CHECK(round >= 4 && strstr(lc_error_message(), "it has enough"));
        piece_free(c, &p);
        return LC_OK;
    }
}

TEST(a_rank_may_leave_in_the_middle)
{
    for (int i = 0; i < 20; i++) CHECK_RANKS("shm", 3, leave, NULL);
}

/* ---- a training ---- */

typedef struct net {
    lc_module base;
    lc_linear a, b;
    int mapped;
} net;

static lc_tensor *net_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *x = lc_relu(lc_linear_forward(&m->a, lc_pad(b->x, 0, WIDE - FEATURES)));
    return lc_cross_entropy(lc_linear_forward(&m->b, x), b->y);
}

static lc_status net_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    ((net *)self)->mapped = mapped();
    return LC_OK;
}

static lc_status net_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1, .momentum = 0.9));
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = net_step,
                                      .on_train_batch_end = net_batch_end, .configure_optimizers = net_optimizers};

enum { FITS = 3 };

typedef struct job {
    const char *strategy;
    int pieces;         /* pieces of each rank that are exposed during a fit */
    float (*sum)[FITS]; /* of the parameters after each fit, in memory shared by all ranks */
    bool first;         /* the sums are recorded, not compared */
} job;

/* Two trainers of one module take turns: each exposes its gradients, without disturbing the other. */
static lc_status train(lc_comm *c, void *ctx)
{
    const job *j = ctx;
    lc_trainer_options opt = quiet_options(c);
    lc_dataloader *l;
    lc_trainer *t[2];
    net m = {0};
    int others = lc_comm_size(c) - 1;
    opt.strategy = j->strategy;
    opt.max_epochs = 2;
    opt.bucket_cap_mb = 0.1;
    LC_TRY(loader_of(0, SAMPLES, 4, false, &l));
    lc_module_init(&m.base, &net_ops, 1);
    lc_linear_init(&m.a, &m, "a", WIDE, WIDE);
    lc_linear_init(&m.b, &m, "b", WIDE, CLASSES);
    for (int i = 0; i < 2; i++) LC_TRY(lc_trainer_new(&opt, &t[i]));
    for (int fit = 0; fit < FITS; fit++) {
        float values[WIDE * WIDE], sum = 0;
        LC_TRY(lc_trainer_fit(t[fit % 2], &m.base, .train_dataloader = l));
        RANK_CHECK(m.mapped == j->pieces * (1 + (fit ? 2 : 1) * others));
        LC_TRY(lc_tensor_read(m.a.weight, values, sizeof values));
        for (int i = 0; i < WIDE * WIDE; i++) sum += values[i];
        if (j->first) (*j->sum)[fit] = sum;
        RANK_CHECK((*j->sum)[fit] == sum);
    }
    lc_trainer_free(t[0]);
    RANK_CHECK(mapped() == j->pieces * (1 + others));
    lc_trainer_free(t[1]);
    RANK_CHECK(mapped() == j->pieces); /* a gradient lives as long as its parameter */
    lc_dataloader_free(l);
    lc_module_release(&m.base);
    RANK_CHECK(mapped() == 0);
    return LC_OK;
}

TEST(ddp_exposes_its_gradients)
{
    float(*sum)[FITS] = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    job j = {.strategy = "ddp", .sum = sum};
    CHECK(sum != MAP_FAILED);
    for (int n = 2; n <= 3; n++) {
        j.pieces = 0, j.first = true;
        CHECK_RANKS("tcp", n, train, &j);
        j.first = false;
        CHECK_RANKS("threads", n, train, &j);
        j.pieces = 1;
        CHECK_RANKS("shm", n, train, &j);
    }
    j = (job){.strategy = "sharded_1", .sum = sum};
    CHECK_RANKS("shm", 3, train, &j);
    munmap(sum, sizeof *sum);
}

/* ---- memory of a communicator ---- */

typedef struct asked {
    bool shown; /* exposed to other processes */
} asked;

static lc_status use_memory(lc_comm *c, void *ctx)
{
    const asked *a = ctx;
    enum { N = 100003, PIECES = LC__EXPOSED + 2 };
    float *x[PIECES];
    void *none;
    int me = lc_comm_rank(c), n = lc_comm_size(c);
    LC_TRY(lc_comm_alloc_mem(c, N * sizeof(float), (void **)&x[0]));
    RANK_CHECK((uintptr_t)x[0] % 4096 == 0 && x[0][0] == 0 && x[0][N - 1] == 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) x[0][i] = (float)((me + 1) * (i % 100 + round));
        LC_TRY(lc_comm_all_reduce(c, x[0], x[0], N, LC_F32, LC_COMM_SUM, NULL));
        for (int i = 0; i < N; i++) RANK_CHECK(x[0][i] == (float)(n * (n + 1) / 2 * (i % 100 + round)));
    }
    RANK_CHECK(mapped_as("lightc-memory") == (a->shown ? n : 0));
    if (me != 1 % n) lc_comm_free_mem(c, x[0]); /* ranks free it at different times */
    LC_TRY(lc_comm_barrier(c, NULL));
    if (me == 1 % n) lc_comm_free_mem(c, x[0]);
    RANK_CHECK(mapped_as("lightc-memory") == 0);
    /* More than can be exposed: the rest is ordinary memory. The communicator frees the last ones. */
    for (int k = 0; k < PIECES; k++) {
        LC_TRY(lc_comm_alloc_mem(c, N * sizeof(float), (void **)&x[k]));
        for (int i = 0; i < N; i++) x[k][i] = (float)k;
        LC_TRY(lc_comm_all_reduce(c, x[k], x[k], N, LC_F32, LC_COMM_SUM, NULL));
        RANK_CHECK(x[k][0] == (float)(n * k) && x[k][N - 1] == (float)(n * k));
    }
    lc_comm_free_mem(c, NULL);
    RANK_CHECK(lc_comm_alloc_mem(c, 0, &none) == LC_ERR_ARGUMENT && !none);
    RANK_CHECK(lc_comm_alloc_mem(c, (size_t)1 << 62, &none) == LC_ERR_MEMORY && !none);
    return lc_comm_barrier(c, NULL);
}

static lc_status use_memory_of_a_group(lc_comm *c, void *ctx)
{
    lc_comm *group;
    LC_TRY(lc_comm_split(c, lc_comm_rank(c) % 2, lc_comm_rank(c), &group));
    lc_status s = use_memory(group, ctx);
    lc_comm_free(group);
    return s;
}

TEST(memory_of_a_group)
{
    CHECK_RANKS("shm", 4, use_memory_of_a_group, &(asked){.shown = true});
    CHECK_RANKS("threads", 4, use_memory_of_a_group, &(asked){0});
}

TEST(memory_of_a_communicator)
{
    for (int n = 1; n <= 4; n++) {
        CHECK_RANKS("shm", n, use_memory, &(asked){.shown = n > 1});
        CHECK_RANKS("threads", n, use_memory, &(asked){0});
        CHECK_RANKS("tcp", n, use_memory, &(asked){0});
    }
}

/* Rank 0 uses x and the others y, after freeing x: a rank may free a piece, and use another one than the others. */
static lc_status use_different_pieces(lc_comm *c, void *ctx)
{
    enum { N = 60000 };
    float *x, *y;
    int rank = lc_comm_rank(c), n = lc_comm_size(c);
    (void)ctx;
    LC_TRY(lc_comm_alloc_mem(c, N * sizeof *x, (void **)&x));
    LC_TRY(lc_comm_alloc_mem(c, N * sizeof *y, (void **)&y));
    float *mine = rank == 0 ? x : y;
    if (rank > 0) lc_comm_free_mem(c, x);
    for (int i = 0; i < N; i++) mine[i] = (float)(rank + 1);
    LC_TRY(lc_comm_all_reduce(c, mine, mine, N, LC_F32, LC_COMM_SUM, NULL));
    for (int i = 0; i < N; i++) RANK_CHECK(mine[i] == (float)(n * (n + 1) / 2));
    return LC_OK;
}

TEST(ranks_may_use_different_pieces)
{
    CHECK_RANKS("shm", 2, use_different_pieces, NULL);
    CHECK_RANKS("shm", 3, use_different_pieces, NULL);
}

static lc_status ask_for_different_sizes(lc_comm *c, void *ctx)
{
    void *x;
    (void)ctx;
    RANK_CHECK(lc_comm_alloc_mem(c, lc_comm_rank(c) ? 1 << 20 : 1 << 16, &x) == LC_ERR_ARGUMENT && !x);
    RANK_CHECK(strstr(lc_error_message(), "65536 to 1048576 bytes"));
    LC_TRY(lc_comm_alloc_mem(c, 1 << 16, &x)); /* nothing has leaked */
    return LC_OK;
}

TEST(different_sizes_are_an_error)
{
    CHECK_RANKS("shm", 2, ask_for_different_sizes, NULL);
    CHECK_RANKS("threads", 3, ask_for_different_sizes, NULL);
}

/* With ulimit -f the kernel kills a process that makes a larger file. */
static lc_status use_memory_with_small_files(lc_comm *c, void *ctx)
{
    void *data;
    int fd;
    asked plain = {0};
    const struct rlimit small = {64 << 10, 64 << 10};
    (void)ctx;
    RANK_CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    LC_TRY(lc__cpu_backend.alloc(NULL, 8 << 20, &data));
    lc__cpu_backend.share(NULL, data, 8 << 20, &fd);
    RANK_CHECK(fd == -1);
    lc__cpu_backend.free(NULL, data, 8 << 20);
    return use_memory(c, &plain);
}

TEST(files_may_be_too_small_for_memory)
{
    CHECK_RANKS("shm", 2, use_memory_with_small_files, NULL);
}

/* Calls in flight are abandoned; until they end they use memory that the communicator owns. */
static lc_status leave_calls_behind(lc_comm *c, void *ctx)
{
    enum { N = 8 << 20 };
    lc_request *r;
    float *x;
    LC_TRY(lc_comm_alloc_mem(c, N * sizeof *x, (void **)&x));
    memset(x, 0, N * sizeof *x);
    LC_TRY(lc_comm_barrier(c, NULL));
    LC_TRY(lc_comm_all_reduce(c, x, x, N, LC_F32, LC_COMM_SUM, &r));
    LC_TRY(lc_comm_progress(c));
    usleep((useconds_t)(2000 + *(int *)ctx * 1500));
    return LC_OK; /* the communicator is freed after this */
}

TEST(memory_is_there_until_nothing_uses_it)
{
    for (int i = 0; i < 8; i++) {
        CHECK_RANKS("tcp", 2, leave_calls_behind, &i);
        CHECK_RANKS("shm", 2, leave_calls_behind, &i);
    }
}

/* ---- the storage ---- */

TEST(small_storage_is_not_shared)
{
    void *data;
    int fd;
    CHECK_OK(lc__cpu_backend.alloc(NULL, 4096, &data));
    lc__cpu_backend.share(NULL, data, 4096, &fd);
    CHECK_EQ(fd, -1);
    lc__cpu_backend.free(NULL, data, 4096);
}

TEST_MAIN

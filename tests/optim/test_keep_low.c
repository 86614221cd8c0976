/* SPDX-License-Identifier: Apache-2.0 */
/* Low copies of parameters: a step of mixed precision sees what was written last, and rounds a parameter only if
 * something other than an update has. A product of the identity and a weight is the rounded weight. */
#include "test.h"

#include "base/number.h"
#include "record/graph_impl.h"
#include "tensor/host_access.h"
#include "tensor/low.h"

#include <lightc/lightc.h>
#include <lightc/random.h>

enum { N = 8, READERS = 5, SIZE = N * N };

typedef struct world {
    lc_module m;
    lc_tensor *w[2], *x, *y; /* w[1]: another parameter */
    lc_graph *bf16, *f16, *f32;
    lc_optimizer *adam, *muon;
    uint64_t seed, draws;
} world;

static const int64_t shape[] = {N, N};

static lc_graph *graph(lc_dtype low)
{
    lc_graph *g;
    lc_graph_args args = lc_graph_defaults();
    args.threads = 2;
    args.autocast = low;
    CHECK_OK(lc_graph_new_with(&g, &args));
    return g;
}

static int64_t draw(world *w, int64_t below)
{
    return (int64_t)lc_random_below(w->seed, w->draws++, (uint64_t)below);
}

static void draw_values(world *w, float *values)
{
    for (int i = 0; i < SIZE; i++) values[i] = (float)draw(w, 1 << 24) * 0x1p-22f - 2;
}

static void put(world *w, lc_tensor *t)
{
    float values[SIZE];
    draw_values(w, values);
    CHECK_OK(lc_tensor_write(t, values, sizeof values));
}

static void begin(world *w, uint64_t seed)
{
    float eye[SIZE] = {0};
    memset(w, 0, sizeof *w);
    w->seed = seed;
    for (int i = 0; i < N; i++) eye[i * N + i] = 1;
    lc_module_init(&w->m, NULL, 1);
    for (int k = 0; k < 2; k++) {
        w->w[k] = lc_module_add_parameter(&w->m, k ? "b" : "a", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0});
        put(w, w->w[k]);
    }
    CHECK_OK(lc_tensor_new(LC_F32, 2, shape, &w->x));
    CHECK_OK(lc_tensor_new(LC_F32, 2, shape, &w->y));
    CHECK_OK(lc_tensor_write(w->x, eye, sizeof eye));
    put(w, w->y);
    w->bf16 = graph(LC_BF16), w->f16 = graph(LC_F16), w->f32 = graph(0);
    w->adam = lc_adam(&w->m, .lr = 0.01);
    w->muon = lc_muon(&w->m, .lr = 0.01);
}

static void end(world *w)
{
    lc_optimizer_free(w->adam);
    lc_optimizer_free(w->muon);
    lc_graph_free(w->bf16);
    lc_graph_free(w->f16);
    lc_graph_free(w->f32);
    lc_tensor_unref(w->x);
    lc_tensor_unref(w->y);
    lc_module_release(&w->m);
}

/* So many products read w that none of them rounds it itself. */
static void products(world *w, lc_tensor *of, lc_tensor **y)
{
    for (int i = 0; i < READERS; i++) y[i] = lc_keep(lc_matmul(w->x, of));
}

/* They are w[k], which is `now`, rounded to `low`. */
static void check(lc_tensor *const *y, const float *now, lc_dtype low, const char *what)
{
    for (int i = 0; i < READERS; i++) {
        float got[SIZE];
        CHECK_OK(lc_tensor_read(y[i], got, sizeof got));
        for (int e = 0; e < SIZE; e++) {
            uint64_t bits = 0;
            lc__store_number(&bits, low, (double)now[e]);
            const double want = lc__load_number(&bits, low);
            if ((double)got[e] != want)
                TEST_FAIL("%s: product %d has %.9g at %d, not %.9g", what, i, (double)got[e], e, want);
        }
    }
}

static void read_of(lc_tensor *t, float *values)
{
    CHECK_OK(lc_tensor_read(t, values, SIZE * sizeof *values));
}

static void train(lc_tensor *loss, lc_optimizer *opt)
{
    lc_backward(lc_sum(loss));
    lc_optimizer_step(opt);
    lc_optimizer_zero_grad(opt);
}

typedef enum deed {
    READS,
    TRAINS,
    TRAINS_OTHER_IN_F32, /* of which the step makes no copy */
    TRAINS_WITH_MUON,
    ASSIGNS_BEFORE,
    ASSIGNS_BETWEEN,
    ASSIGNS_AFTER,
    KINDS
} deed;

/* A step that reads parameter k, and does something else. */
static void step(world *w, lc_graph *g, lc_dtype low, int k, deed what)
{
    static const char *const titles[] = {
        "reads",           "trains",       "trains the other in f32", "trains with muon", "assigns before",
        "assigns between", "assigns after"};
    lc_tensor *y[READERS], *more[READERS], *other = w->w[1 - k];
    float before[SIZE], assigned[SIZE];
    read_of(w->w[k], before);
    read_of(w->y, assigned);
    CHECK_OK(lc_step_begin(g, w->draws, 0));
    if (what == ASSIGNS_BEFORE) lc_assign(w->w[k], w->y);
    products(w, w->w[k], y);
    if (what == TRAINS) train(lc_mul(y[0], lc_matmul(w->y, other)), w->adam);
    if (what == TRAINS_OTHER_IN_F32) train(lc_mul(y[0], other), w->adam);
    if (what == TRAINS_WITH_MUON) train(lc_mul(y[0], lc_matmul(w->y, other)), w->muon);
    if (what == ASSIGNS_BETWEEN || what == ASSIGNS_AFTER) lc_assign(w->w[k], w->y);
    if (what == ASSIGNS_BETWEEN) products(w, w->w[k], more);
    CHECK_OK(lc_step_run(g));
    check(y, what == ASSIGNS_BEFORE ? assigned : before, low, titles[what]);
    if (what == ASSIGNS_BETWEEN) check(more, assigned, low, titles[what]);
    CHECK_OK(lc_step_end(g));
    if (what >= ASSIGNS_BEFORE) put(w, w->y);
}

/* A step of f32 trains. */
static void train_in_f32(world *w)
{
    CHECK_OK(lc_step_begin(w->f32, w->draws, 0));
    train(lc_mul(lc_matmul(w->x, w->w[0]), lc_matmul(w->y, w->w[1])), w->adam);
    CHECK_OK(lc_step_run(w->f32));
    CHECK_OK(lc_step_end(w->f32));
}

static void write_half(world *w, lc_tensor *t)
{
    lc_view v;
    CHECK_OK(lc__tensor_map(t, LC__READ_WRITE, &v));
    for (int i = 0; i < SIZE; i += 2) ((float *)v.data)[i] = (float)draw(w, 1000);
    lc__tensor_unmap(t, LC__READ_WRITE);
}

static void one_of_all(world *w)
{
    enum { WRITE = KINDS, WRITE_HALF, TRAIN_IN_F32, FREEZE, ALL };
    const int k = (int)draw(w, 2), what = (int)draw(w, ALL);
    const bool f16 = draw(w, 3) == 0;
    if (what < KINDS) step(w, f16 ? w->f16 : w->bf16, f16 ? LC_F16 : LC_BF16, k, what);
    if (what == WRITE) put(w, w->w[k]);
    if (what == WRITE_HALF) write_half(w, w->w[k]);
    if (what == TRAIN_IN_F32) train_in_f32(w);
    if (what == FREEZE) lc_tensor_set_requires_grad(w->w[0], draw(w, 2)); /* or thaw */
}

TEST(steps_see_what_was_written_last)
{
    world w;
    for (uint64_t seed = 0; seed < 40; seed++) {
        begin(&w, seed);
        for (int i = 0; i < 60; i++) one_of_all(&w);
        end(&w);
    }
}

static bool is_current(const lc_tensor *t)
{
    return lc__low_is_current(t->flat, t->flat_index, lc__low_kind(LC_BF16));
}

TEST(updates_write_both)
{
    world w;
    begin(&w, 1);
    for (int i = 0; i < 4; i++) {
        float now[SIZE];
        uint16_t copy[SIZE];
        step(&w, w.bf16, LC_BF16, 0, TRAINS);
        CHECK(is_current(w.w[0]));
        read_of(w.w[0], now);
        CHECK_OK(lc_tensor_read(w.w[0]->flat->low[0]->copies[w.w[0]->flat_index], copy, sizeof copy));
        for (int e = 0; e < SIZE; e++) {
            uint16_t want;
            lc__store_number(&want, LC_BF16, (double)now[e]);
            CHECK(copy[e] == want);
        }
    }
    /* A step reads the copy without making it again. */
    lc_tensor *y[READERS], *copy = w.w[0]->flat->low[0]->copies[w.w[0]->flat_index];
    const uint16_t ones[SIZE] = {[0 ... SIZE - 1] = 0x3f80};
    CHECK_OK(lc_tensor_write(copy, ones, sizeof ones));
    CHECK_OK(lc_step_begin(w.bf16, 9, 0));
    products(&w, w.w[0], y);
    CHECK_OK(lc_step_run(w.bf16));
    for (int i = 0; i < READERS; i++) {
        float got[SIZE];
        CHECK_OK(lc_tensor_read(y[i], got, sizeof got));
        for (int e = 0; e < SIZE; e++) CHECK(got[e] == 1);
    }
    CHECK_OK(lc_step_end(w.bf16));
    end(&w);
}

TEST(other_writes_make_copies_old)
{
    world w;
    begin(&w, 2);
    step(&w, w.bf16, LC_BF16, 0, READS);
    CHECK(is_current(w.w[0]));
    put(&w, w.w[0]);
    CHECK(!is_current(w.w[0]));
    step(&w, w.bf16, LC_BF16, 0, READS);
    CHECK(is_current(w.w[0]));
    step(&w, w.bf16, LC_BF16, 0, ASSIGNS_AFTER);
    CHECK(!is_current(w.w[0]));
    step(&w, w.bf16, LC_BF16, 0, TRAINS_WITH_MUON);
    CHECK(!is_current(w.w[0]));
    step(&w, w.bf16, LC_BF16, 0, READS);
    train_in_f32(&w);
    CHECK(is_current(w.w[0])); /* an update, too */
    step(&w, w.f16, LC_F16, 0, TRAINS);
    CHECK(!is_current(w.w[0]));
    end(&w);
}

/* A step before there is an optimizer leaves the parameter where it is. */
TEST(a_single_parameter_is_updated_in_place)
{
    world w;
    begin(&w, 3);
    lc_module m;
    lc_module_init(&m, NULL, 1);
    lc_tensor *t = lc_module_add_parameter(&m, "a", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0}), *y[READERS];
    lc_optimizer *muon = NULL;
    put(&w, t);
    for (int i = 0; i < 4; i++) {
        float now[SIZE];
        read_of(t, now);
        CHECK_OK(lc_step_begin(w.bf16, 100 + (uint64_t)i, 0));
        products(&w, t, y);
        lc_backward(lc_sum(lc_square(y[0])));
        if (muon) lc_optimizer_step(muon);
        CHECK_OK(lc_step_run(w.bf16));
        check(y, now, LC_BF16, "trains the only parameter");
        lc_zero_grad(w.bf16);
        CHECK_OK(lc_step_end(w.bf16));
        if (!muon) muon = lc_muon(&m, .lr = 0.1);
    }
    lc_optimizer_free(muon);
    lc_module_release(&m);
    end(&w);
}

/* Else gradients were divided by the number of all backward passes so far. */
TEST(reading_a_frozen_parameter_does_not_train_its_neighbor)
{
    world w;
    begin(&w, 4);
    lc_module m;
    lc_module_init(&m, NULL, 1);
    const int64_t one[] = {1};
    lc_tensor *t = lc_module_add_parameter(&m, "t", LC_F32, LC_ROW_MAJOR, 1, one, (lc_init){0}), *y[READERS];
    lc_optimizer *sgd = lc_sgd(&m, .lr = 0.5);
    lc_tensor_set_requires_grad(w.w[0], false);
    for (uint64_t i = 0; i < 4; i++) {
        CHECK_OK(lc_step_begin(w.bf16, 100 + i, 0));
        products(&w, w.w[0], y);
        lc_backward(lc_sum(t));
        lc_optimizer_step(sgd);
        lc_optimizer_zero_grad(sgd);
        CHECK_OK(lc_step_run(w.bf16));
        CHECK_OK(lc_step_end(w.bf16));
    }
    float got;
    CHECK_OK(lc_tensor_read(t, &got, sizeof got));
    CHECK_NEAR(got, -2, 0);
    lc_optimizer_free(sgd);
    lc_module_release(&m);
    end(&w);
}

/* A step before there is an optimizer, whose parameters then move to a buffer of their own. */
TEST(parameters_move_while_a_graph_trains_them)
{
    float values[SIZE];
    world w;
    begin(&w, 5);
    lc_module m;
    lc_module_init(&m, NULL, 1);
    lc_tensor *a = lc_module_add_parameter(&m, "a", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0}), *y[READERS];
    lc_tensor *b = lc_module_add_parameter(&m, "b", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0});
    lc_optimizer *sgd = NULL;
    put(&w, a);
    put(&w, b);
    for (uint64_t i = 0; i < 4; i++) {
        read_of(a, values);
        CHECK_OK(lc_step_begin(w.bf16, 100 + i, 0));
        products(&w, a, y);
        lc_backward(lc_sum(lc_mul(y[0], b)));
        if (sgd) lc_optimizer_step(sgd);
        if (sgd) lc_optimizer_zero_grad(sgd);
        CHECK_OK(lc_step_run(w.bf16));
        check(y, values, LC_BF16, "trains what has moved");
        CHECK_OK(lc_step_end(w.bf16));
        if (!sgd) sgd = lc_sgd(&m, .lr = 0.1);
    }
    lc_optimizer_free(sgd);
    lc_module_release(&m);
    end(&w);
}

/* ---- memory ---- */

/* A step that reads a parameter, with `most` bytes for its results; *needed: for those. */
static lc_status step_within(int64_t most, int64_t *needed)
{
    world w;
    lc_graph *g;
    lc_graph_stats stats;
    lc_tensor *y[READERS];
    lc_graph_args args = lc_graph_defaults();
    begin(&w, 3);
    args.autocast = LC_BF16;
    args.max_bytes = most;
    CHECK_OK(lc_graph_new_with(&g, &args));
    CHECK_OK(lc_step_begin(g, 0, 0));
    products(&w, w.w[0], y);
    lc_status status = lc_step_run(g);
    lc_graph_get_stats(g, &stats);
    *needed = stats.planned_bytes;
    (void)!lc_step_end(g); /* the same error */
    lc_graph_free(g);
    end(&w);
    return status;
}

TEST(copies_count_as_memory_of_steps)
{
    int64_t needed, unused;
    const int64_t copy = SIZE * (int64_t)sizeof(uint16_t);
    CHECK_OK(step_within(0, &needed));
    CHECK_OK(step_within(needed + copy, &unused));
    CHECK_STATUS(step_within(needed + copy - 1, &unused), LC_ERR_MEMORY);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Planned = unplanned over random programs: views, broadcasts, reductions, normalisations, convolutions, assignments,
 * tied parameters, host reads in the middle, kept values, checkpointed regions. Each program is run for three steps
 * with and without plans; every value kept and every gradient and buffer must agree. */
#include "test.h"

#include <lightc/lightc.h>

#define MAX_VALUES 64
#define MAX_KEPT   16

typedef struct source {
    uint64_t key, n;
} source;

static int64_t pick(source *s, int64_t n)
{
    return (int64_t)lc_random_below(s->key, s->n++, (uint64_t)n);
}

typedef struct world {
    lc_tensor *parameters[6]; /* [4,6] [6] [6,6] [3,4,3,3] [4,4] [1] */
    lc_tensor *buffers[2];    /* [4,6] [6] */
    lc_tensor *inputs[3];     /* [4,6] [2,4,5,6] [4,1] */
} world;

typedef struct record {
    float values[200000];
    int64_t n;
} record;

static lc_tensor *make(int ndim, const int64_t *shape, uint64_t key, bool grad, lc_layout layout)
{
    lc_tensor *t;
    float data[512];
    CHECK_OK(lc_tensor_new_layout(LC_F32, ndim, shape, layout, &t));
    int64_t n = lc_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) data[i] = (float)(0.5 * lc_random_normal(key, (uint64_t)i));
    CHECK_OK(lc_tensor_write(t, data, (size_t)n * sizeof *data));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

static void world_new(world *w)
{
    w->parameters[0] = make(2, (int64_t[]){4, 6}, 1, true, LC_ROW_MAJOR);
    w->parameters[1] = make(1, (int64_t[]){6}, 2, true, LC_ROW_MAJOR);
    w->parameters[2] = make(2, (int64_t[]){6, 6}, 3, true, LC_ROW_MAJOR);
    w->parameters[3] = make(4, (int64_t[]){3, 4, 3, 3}, 4, true, LC_CHANNELS_LAST);
    w->parameters[4] = make(2, (int64_t[]){4, 4}, 5, true, LC_ROW_MAJOR);
    w->parameters[5] = make(1, (int64_t[]){1}, 6, true, LC_ROW_MAJOR);
    w->buffers[0] = make(2, (int64_t[]){4, 6}, 7, false, LC_ROW_MAJOR);
    w->buffers[1] = make(1, (int64_t[]){6}, 8, false, LC_ROW_MAJOR);
    w->inputs[0] = make(2, (int64_t[]){4, 6}, 9, false, LC_ROW_MAJOR);
    w->inputs[1] = make(4, (int64_t[]){2, 4, 5, 6}, 10, false, LC_CHANNELS_LAST);
    w->inputs[2] = make(2, (int64_t[]){4, 1}, 11, false, LC_ROW_MAJOR);
}

static void world_free(world *w)
{
    for (int i = 0; i < 6; i++) lc_tensor_unref(w->parameters[i]);
    for (int i = 0; i < 2; i++) lc_tensor_unref(w->buffers[i]);
    for (int i = 0; i < 3; i++) lc_tensor_unref(w->inputs[i]);
}

static void note(record *r, lc_tensor *t)
{
    int64_t n = lc_tensor_numel(t);
    CHECK(r->n + n <= (int64_t)(sizeof r->values / sizeof r->values[0]));
    CHECK_OK(lc_tensor_read(t, r->values + r->n, (size_t)n * sizeof(float)));
    r->n += n;
}

static bool is_shape(lc_tensor *t, int ndim, int64_t a, int64_t b)
{
    return lc_tensor_ndim(t) == ndim && lc_tensor_dim(t, 0) == a && (ndim < 2 || lc_tensor_dim(t, 1) == b);
}

/* One more value from those there are. Results stay of moderate size and range. */
static lc_tensor *grow(source *s, const world *w, lc_tensor **v, int n)
{
    lc_tensor *x = v[pick(s, n)], *y = v[pick(s, n)];
    int nd = lc_tensor_ndim(x);
    switch (pick(s, 28)) {
    case 0:
        return lc_relu(x);
    case 1:
        return lc_tanh(x);
    case 2:
        return lc_gelu(x, .tanh = pick(s, 2));
    case 3:
        return lc_mul_scalar(x, 0.5 + 0.1 * (double)pick(s, 5));
    case 4:
        return lc_sigmoid(lc_neg(x));
    case 5:
    case 6:
        if (!is_shape(x, 2, 4, 6)) return lc_square(lc_tanh(x));
        return lc_add(x, pick(s, 2) ? w->parameters[1] : w->inputs[2]);
    case 7:
        if (nd == lc_tensor_ndim(y) && lc_tensor_numel(x) == lc_tensor_numel(y) &&
            memcmp(lc_tensor_shape(x), lc_tensor_shape(y), (size_t)nd * sizeof(int64_t)) == 0)
            return pick(s, 2) ? lc_add(x, y) : lc_mul(lc_tanh(x), y);
        return lc_clamp(x, .min = LC_SOME(-0.7), .max = LC_SOME(1.1));
    case 8:
        return is_shape(x, 2, 4, 6) ? lc_linear(x, w->parameters[2], w->parameters[1]) : lc_abs(x);
    case 9:
        return is_shape(x, 2, 4, 6) ? lc_tanh(lc_linear(x, w->parameters[2], NULL)) : lc_silu(x);
    case 10:
        return is_shape(x, 2, 4, 6) ? lc_matmul(w->parameters[4], x) : lc_softplus(x);
    case 11:
        return nd == 2 ? lc_softmax(x, (int)pick(s, 2)) : lc_sin(x);
    case 12:
        return is_shape(x, 2, 4, 6) ? lc_layer_norm(x, w->parameters[1], w->parameters[1]) : lc_cos(x);
    case 13:
        return is_shape(x, 2, 4, 6) ? lc_mul(x, w->parameters[0]) : lc_mul_scalar(x, 0.9);
    case 14:
        return lc_dropout(x, 0.25);
    case 15:
        return nd == 2 ? lc_transpose(lc_transpose(x, 0, 1), 0, 1) : lc_mul_scalar(x, 1.1);
    case 16:
        if (nd == 2 && lc_tensor_dim(x, 1) >= 2) {
            int64_t half = lc_tensor_dim(x, 1) / 2;
            return lc_cat(1, lc_slice(x, 1, half, lc_tensor_dim(x, 1) - half), lc_slice(x, 1, 0, half));
        }
        return lc_neg(x);
    case 17:
        return nd == 2 ? lc_add(x, lc_mean(x, .dims = LC_DIMS(1), .keepdim = true)) : lc_tanh(x);
    case 18:
        return nd == 2 ? lc_mul(x, lc_sigmoid(lc_sum(x, .dims = LC_DIMS(0), .keepdim = true))) : lc_relu(x);
    case 19: /* images */
        if (nd == 4 && lc_tensor_dim(x, 1) == 4)
            return lc_relu(lc_conv2d(x, w->parameters[3], NULL, .padding = {1, 1}));
        return lc_tanh(lc_conv2d(w->inputs[1], w->parameters[3], NULL, .padding = {1, 1}));
    case 20:
        return nd == 4 && lc_tensor_dim(x, 2) >= 2 ? lc_max_pool2d(x, 2) : lc_relu(x);
    case 21:
        return nd == 4 ? lc_permute(x, 0, 2, 3, 1) : lc_sigmoid(x);
    case 22:
        return nd == 4 ? lc_mul_scalar(lc_flatten(x, 1), 0.3) : lc_gelu(x, .tanh = true);
    case 23:
        return nd == 4 ? lc_mul(x, lc_mean(x, .dims = LC_DIMS(0, 2, 3), .keepdim = true)) : lc_detach(x);
    case 24:
        if (!is_shape(x, 2, 4, 6)) return lc_add_scalar(x, 0.1);
        lc_no_grad_begin();
        lc_assign(w->buffers[0], lc_add(lc_mul_scalar(w->buffers[0], 0.5), lc_detach(x)));
        lc_no_grad_end();
        return lc_mul(x, lc_contiguous(w->buffers[0])); /* a copy: the buffer may be assigned again */
    case 25:
        return lc_add(x, w->parameters[5]);
    case 26:
        return is_shape(x, 2, 4, 6) ? lc_add(x, w->buffers[1]) : lc_tanh(x);
    default:
        return nd == 4 ? lc_batch_norm(x, NULL, NULL, .training = true) : lc_where(lc_gt(x, lc_neg(x)), x, lc_tanh(x));
    }
}

static void run(uint64_t seed, record *r)
{
    lc_graph *g;
    world w;
    r->n = 0;
    world_new(&w);
    CHECK_OK(lc_graph_new(&(lc_graph_options){.threads = 2, .seed = seed}, &g));
    for (uint64_t step = 0; step < 3; step++) {
        source s = {.key = seed};
        lc_tensor *v[MAX_VALUES] = {w.inputs[0], w.parameters[0], w.inputs[1]}, *kept[MAX_KEPT];
        int n = 3, n_kept = 0, length = 4 + (int)pick(&s, 22);
        int read_at = pick(&s, 3) == 0 ? 3 + (int)pick(&s, length) : -1;
        int region_at = pick(&s, 3) == 0 ? 3 + (int)pick(&s, length) : -1;
        CHECK_OK(lc_step_begin(g, step, 0));
        if (step != 1) lc_zero_grad(g); /* the second step adds to the first one's gradients */
        for (int i = 0; i < length; i++) {
            if (n == region_at) lc_checkpoint_begin();
            if (n == region_at + 4) lc_checkpoint_end();
            lc_tensor *x = grow(&s, &w, v, n);
            if (lc_tensor_is_error(x)) TEST_FAIL("seed %llu: %s", (unsigned long long)seed, lc_error_message());
            v[n++] = x;
            if (pick(&s, 5) == 0 && n_kept < MAX_KEPT) kept[n_kept++] = lc_keep(x);
            if (n == read_at) note(r, x);
        }
        lc_checkpoint_end();
        lc_tensor *loss = lc_mul_scalar(lc_sum(lc_square(lc_linear(w.inputs[0], w.parameters[2], NULL))), 1e-3);
        for (int i = n - 1; i >= 3 && i > n - 6; i--) loss = lc_add(loss, lc_mean(lc_square(v[i])));
        lc_keep(loss);
        lc_backward(loss);
        lc_tensor *gradients[6];
        for (int i = 0; i < 6; i++) gradients[i] = lc_keep(lc_gradient(w.parameters[i]));
        lc_status status = lc_step_run(g);
        if (status != LC_OK) TEST_FAIL("seed %llu: %s", (unsigned long long)seed, lc_error_message());
        note(r, loss);
        for (int i = 0; i < n_kept; i++) note(r, kept[i]);
        for (int i = 0; i < 6; i++) note(r, gradients[i]);
        CHECK_OK(lc_step_end(g));
        for (int i = 0; i < 2; i++) note(r, w.buffers[i]);
    }
    world_free(&w);
    lc_graph_free(g);
}

static record on, off;

static void programs(uint64_t first, uint64_t last)
{
    if (getenv("LIGHTC_PLAN")) SKIP("LIGHTC_PLAN is set");
    const char *only = getenv("LIGHTC_TEST_SEED");
    for (uint64_t seed = first; seed < last; seed++) {
        if (only && seed != strtoull(only, NULL, 10)) continue;
        run(seed, &on);
        setenv("LIGHTC_PLAN", "off", 1);
        run(seed, &off);
        unsetenv("LIGHTC_PLAN");
        CHECK_EQ(on.n, off.n);
        for (int64_t i = 0; i < on.n; i++) {
            double a = on.values[i], b = off.values[i];
            if (isnan(a) && isnan(b)) continue;
            if (!(fabs(a - b) <= 1e-4 * (1 + fabs(b))))
                TEST_FAIL("seed %llu: number %lld is %g with plans, %g without", (unsigned long long)seed, (long long)i,
                          a, b);
        }
    }
}

TEST(random_programs_1)
{
    programs(0, 150);
}
TEST(random_programs_2)
{
    programs(150, 300);
}
TEST(random_programs_3)
{
    programs(300, 450);
}

TEST_MAIN

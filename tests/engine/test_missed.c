/* SPDX-License-Identifier: Apache-2.0 */
/* LIGHTC_PLAN_DUMP says of each plan why it was made: the first difference from the nearest plan. */
#include "test.h"
#include "scratch.h"

#include <lightc/lightc.h>
#include "engine/run/run.h"

typedef struct world {
    lc_tensor *x, *w, *v; /* x: an input of 4 rows at most */
    float data[12];
} world;

static lc_tensor *ones(int ndim, const int64_t *shape, bool grad)
{
    lc_tensor *t;
    static const float one[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    CHECK_OK(lc_tensor_new(LC_F32, ndim, shape, &t));
    CHECK_OK(lc_tensor_write(t, one, (size_t)lc_tensor_numel(t) * sizeof *one));
    lc_tensor_set_requires_grad(t, grad);
    return t;
}

/* Steps; `second` is what is done the second time. */
static void rows(world *s, bool second)
{
    lc_input_set(s->x, s->data, second ? 2 : 4);
    lc_keep(lc_linear(lc_relu(s->x), s->w, NULL));
}
static void other_op(world *s, bool second)
{
    lc_tensor *h = lc_relu(s->x);
    lc_keep(second ? lc_tanh(h) : lc_gelu(h));
}
static void other_result(world *s, bool second)
{
    lc_tensor *h = lc_relu(s->x), *k = lc_tanh(s->x);
    lc_keep(lc_add(h, second ? k : h));
}
static void other_tensor(world *s, bool second)
{
    lc_keep(lc_linear(s->x, second ? s->v : s->w, NULL));
}
static void frozen(world *s, bool second)
{
    lc_tensor_set_requires_grad(s->w, !second);
    lc_keep(lc_linear(s->x, s->w, NULL));
}
static void other_int(world *s, bool second)
{
    lc_keep(lc_softmax(s->x, second ? 1 : 0));
}
static void no_grad(world *s, bool second)
{
    if (second) lc_no_grad_begin();
    lc_keep(lc_relu(s->x));
    if (second) lc_no_grad_end();
}
static void longer(world *s, bool second)
{
    lc_tensor *h = lc_relu(s->x);
    if (second) lc_tanh(h);
}
static void shorter(world *s, bool second)
{
    lc_tensor *h = lc_relu(s->x);
    if (!second) lc_tanh(h);
}
static void another_input(world *s, bool second)
{
    lc_tensor *h = lc_relu(s->x);
    lc_keep(second ? lc_cat(0, h, h, h) : lc_cat(0, h, h));
}
static void accumulates(world *s, bool second)
{
    (void)second;
    lc_backward(lc_sum(lc_linear(s->x, s->w, NULL)));
}

static const struct {
    const char *name;
    void (*step)(world *s, bool second);
    const char *why;
} cases[] = {
    {"rows", rows, "differs in node 0, relu at test_missed.c:@: x is [2,3], was [4,3]\n"},
    {"other_op", other_op, "differs in node 1, tanh at test_missed.c:@: was gelu\n"},
    {"other_result", other_result,
     "differs in node 2, add at test_missed.c:@: y is the result of node 1, tanh at test_missed.c:@, was the result of "
     "node 0, relu at test_missed.c:@\n"},
    {"other_tensor", other_tensor,
     "differs in node 0, linear at test_missed.c:@: weight is another tensor, or has moved to other memory\n"},
    {"frozen", frozen,
     "differs in node 0, linear at test_missed.c:@: weight is the same tensor, but its requires_grad has changed\n"},
    {"other_int", other_int, "differs in node 0, softmax at test_missed.c:@: its integer 0 is 1, was 0\n"},
    {"no_grad", no_grad,
     "differs in node 0, relu at test_missed.c:@: is now between lc_no_grad_begin and lc_no_grad_end\n"},
    {"longer", longer, "differs in node 1, tanh at test_missed.c:@: the plan ends before it\n"},
    {"shorter", shorter, "differs in the end before node 1: the plan goes on with tanh\n"},
    {"another_input", another_input, "differs in node 1, cat at test_missed.c:@: has 3 inputs, had 2\n"},
    {"accumulates", accumulates, "differs in parameter 0 of 1, [2,3] has a gradient already, had none\n"},
};

static char *dump_path(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/plans", scratch_root);
    return path;
}

static char *text_of(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    CHECK(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static lc_graph *watched(int max_plans)
{
    lc_graph *g;
    remove(dump_path());
    setenv("LIGHTC_PLAN_DUMP", dump_path(), 1);
    lc_status status = lc_graph_new(&g, .threads = 1, .max_plans = max_plans);
    unsetenv("LIGHTC_PLAN_DUMP");
    CHECK_OK(status);
    return g;
}

/* "@" in `want` is any line number. */
static bool begins_with(const char *text, const char *want)
{
    for (; *want; want++) {
        if (*want == '@')
            text += strspn(text, "0123456789");
        else if (*text++ != *want)
            return false;
    }
    return true;
}

TEST(the_first_difference_is_named)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world s = {.x = NULL};
        lc_graph *g = watched(8);
        lc_graph_stats stats;
        CHECK_OK(lc_input_new(LC_F32, 2, (int64_t[]){4, 3}, LC_ROW_MAJOR, s.data, &s.x));
        s.w = ones(2, (int64_t[]){2, 3}, true), s.v = ones(2, (int64_t[]){2, 3}, true);
        for (uint64_t step = 0; step < 3; step++) { /* the third is as the second */
            if (step == 2 && cases[i].step == accumulates) continue;
            CHECK_OK(lc_step_begin(g, step + 10, 0));
            cases[i].step(&s, step > 0);
            CHECK_OK(lc_step_run(g));
            CHECK_OK(lc_step_end(g));
        }
        lc_graph_get_stats(g, &stats);
        CHECK_EQ(stats.misses, 2);
        char *text = text_of(dump_path()), *second = strchr(text, '\n');
        if (!second || !begins_with(text, "step 10: plan 1 is made: no other comes first in a step\n"))
            TEST_FAIL("%s: %s", cases[i].name, text);
        if (!begins_with(second + 1, "step 11: plan 2 is made; plan 1 ") || !begins_with(second + 33, cases[i].why))
            TEST_FAIL("%s: %s", cases[i].name, text);
        lc_graph_free(g);
        lc_tensor_unref(s.x), lc_tensor_unref(s.w), lc_tensor_unref(s.v);
    }
}

/* A host read in the middle of a step: its second part is compared with what came after the same first part. */
TEST(parts_of_a_step)
{
    lc_graph *g = watched(8);
    lc_tensor *w = ones(1, (int64_t[]){3}, false);
    for (uint64_t step = 0; step < 3; step++) {
        double value;
        CHECK_OK(lc_step_begin(g, step, 0));
        lc_tensor *sum = lc_sum(w);
        CHECK_OK(lc_item(sum, &value));
        lc_keep(step == 1 ? lc_tanh(sum) : lc_relu(sum));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
    }
    char *text = text_of(dump_path());
    CHECK_CONTAINS(text, "step 0: plan 2 is made: no other comes after plan 1\n");
    CHECK_CONTAINS(text, "step 1: plan 3 is made; plan 2 differs in node 1, tanh at test_missed.c:");
    CHECK(!strstr(text, "step 2:"));
    lc_graph_free(g);
    lc_tensor_unref(w);
}

/* The plan with most in common is named; and that a plan is missing since it had to go. */
TEST(the_nearest_plan_and_evictions)
{
    lc_graph *g = watched(2);
    lc_tensor *w = ones(1, (int64_t[]){3}, false);
    for (uint64_t step = 0; step < 4; step++) {
        CHECK_OK(lc_step_begin(g, step, 0));
        lc_tensor *h = step == 1 ? lc_tanh(w) : lc_relu(w);
        for (uint64_t i = 0; i < step; i++) h = lc_gelu(h);
        lc_keep(h);
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
    }
    char *text = text_of(dump_path());
    CHECK_CONTAINS(text, "step 2: plan 3 is made; plan 1 differs in node 1, gelu ");
    CHECK_CONTAINS(text, "; evicted so far: 1 (max_plans is 2)\n");
    lc_graph_free(g);
    lc_tensor_unref(w);
}

static int spans_of[16];
static void count_span(void *ctx, const lc_span *s)
{
    (void)ctx;
    spans_of[s->kind & 15]++;
    if (s->kind == LC_SPAN_PLAN) CHECK(s->end_ns >= s->start_ns && !strcmp(s->name, "plan"));
}

/* Profilers count the plans that are made. */
TEST(plans_that_are_made_are_reported)
{
    lc_graph *g;
    lc_tensor *w = ones(1, (int64_t[]){3}, false);
    CHECK_OK(lc_graph_new(&g, .threads = 1));
    lc__graph_observe(g, count_span, NULL);
    for (uint64_t step = 0; step < 6; step++) {
        CHECK_OK(lc_step_begin(g, step, 0));
        lc_keep(step % 3 ? lc_relu(w) : lc_tanh(w));
        CHECK_OK(lc_step_run(g));
        CHECK_OK(lc_step_end(g));
    }
    CHECK_EQ(spans_of[LC_SPAN_PLAN], 2);
    CHECK_EQ(spans_of[LC_SPAN_OP], 6);
    lc_graph_free(g);
    lc_tensor_unref(w);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The module tree: names and paths, initial values, tied parameters, errors, freeing. */
#include "test.h"

#include <lightc/lightc.h>

static lc_tensor *parameter(lc_module *m, const char *name, int64_t n)
{
    return lc_module_add_parameter(m, name, 0, LC_ROW_MAJOR, 1, &n, (lc_init){.kind = LC_INIT_NORMAL, .b = 1});
}

static lc_status join_paths(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    char *text = ctx;
    snprintf(text + strlen(text), 500 - strlen(text), "%s%s ", path, t->is_parameter ? "" : "*");
    return LC_OK;
}

static lc_status stop_at_b(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner, (void)t;
    ++*(int *)ctx;
    return strcmp(path, "b") ? LC_OK : LC_STOP;
}

TEST(paths_in_order_of_registration)
{
    lc_module root, block, inner;
    char text[512] = "";
    lc_module_init(&root, NULL, 1);
    parameter(&root, "a", 3);
    lc_module_init_child(&block, &root, "blocks.0", "Block");
    parameter(&block, "weight", 4);
    lc_module_init_child(&inner, &block, "fc", "Linear");
    parameter(&inner, "weight", 5);
    lc_module_add_buffer(&block, "mean", 0, 1, (int64_t[]){2}, (lc_init){.kind = LC_INIT_ONES}, true);
    parameter(&root, "b", 2);
    CHECK_OK(lc_module_status(&root));
    CHECK_OK(lc_module_visit(&root, join_paths, text));
    CHECK_STR(text, "a b blocks.0.weight blocks.0.mean* blocks.0.fc.weight ");
    text[0] = '\0';
    CHECK_OK(lc_module_visit(&block, join_paths, text));
    CHECK_STR(text, "weight mean* fc.weight ");
    int visited = 0;
    CHECK_EQ(lc_module_visit(&root, stop_at_b, &visited), LC_STOP);
    CHECK_EQ(visited, 2);
    CHECK(lc_module_find(&root, "blocks.0.fc.weight") == inner.tensors[0].tensor);
    CHECK(lc_module_find(&root, "blocks.0.mean") == block.tensors[1].tensor);
    CHECK(lc_module_find(&root, "blocks.0.fc") == NULL);
    CHECK(lc_module_find(&root, "blocks") == NULL);
    CHECK(lc_module_root(&inner) == &root);
    CHECK_EQ(lc_module_parameter_count(&root, false), 14);
    lc_module_requires_grad(&block, false);
    CHECK_EQ(lc_module_parameter_count(&root, true), 5);
    lc_module_train(&root, false);
    CHECK(!inner.training);
    lc_module_train(&block, true);
    CHECK(inner.training && !root.training);
    lc_module_release(&root);
}

TEST(tied_parameters_are_visited_once)
{
    lc_module root, head;
    char text[512] = "";
    lc_module_init(&root, NULL, 1);
    lc_tensor *w = parameter(&root, "wte", 6);
    lc_module_init_child(&head, &root, "head", "Linear");
    lc_module_share_parameter(&head, "weight", w);
    CHECK_OK(lc_module_visit(&root, join_paths, text));
    CHECK_STR(text, "wte ");
    text[0] = '\0';
    CHECK_OK(lc_module_visit(&head, join_paths, text));
    CHECK_STR(text, "weight ");
    CHECK_EQ(lc_module_parameter_count(&root, false), 6);
    CHECK(lc_module_find(&root, "head.weight") == w);
    lc_module_release(&root);
}

static void read_all(lc_tensor *t, float *out)
{
    CHECK_OK(lc_tensor_read(t, out, (size_t)lc_tensor_numel(t) * sizeof *out));
}

/* The value depends on the seed and the path, not on what was registered before. */
TEST(initial_values_depend_on_seed_and_path)
{
    float first[8], again[8], other[8], seeded[8];
    lc_module a, b, c, ax, bx, cx;
    lc_module_init(&a, NULL, 7);
    lc_module_init_child(&ax, &a, "x", "Part");
    read_all(parameter(&ax, "w", 8), first);
    lc_module_init(&b, NULL, 7);
    parameter(&b, "before", 100);
    lc_module_init_child(&bx, &b, "x", "Part");
    parameter(&bx, "v", 3);
    read_all(parameter(&bx, "w", 8), again);
    read_all(lc_module_find(&b, "x.v"), other);
    lc_module_init(&c, NULL, 8);
    lc_module_init_child(&cx, &c, "x", "Part");
    read_all(parameter(&cx, "w", 8), seeded);
    CHECK(!memcmp(first, again, sizeof first));
    CHECK(memcmp(first, seeded, sizeof first));
    CHECK(memcmp(first, other, 3 * sizeof(float)));
    lc_module_release(&a);
    lc_module_release(&b);
    lc_module_release(&c);
}

static void moments(lc_init init, int ndim, const int64_t *shape, double *mean, double *sd, double *low, double *high)
{
    lc_module root;
    lc_module_init(&root, NULL, 3);
    lc_tensor *t = lc_module_add_parameter(&root, "w", LC_F64, LC_ROW_MAJOR, ndim, shape, init);
    CHECK_OK(lc_module_status(&root));
    int64_t n = lc_tensor_numel(t);
    double *x = malloc((size_t)n * sizeof *x), sum = 0, square = 0;
    CHECK_OK(lc_tensor_read(t, x, (size_t)n * sizeof *x));
    *low = INFINITY;
    *high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        square += x[i] * x[i];
        *low = fmin(*low, x[i]);
        *high = fmax(*high, x[i]);
    }
    *mean = sum / (double)n;
    *sd = sqrt(square / (double)n - *mean * *mean);
    free(x);
    lc_module_release(&root);
}

TEST(distributions)
{
    static const int64_t shape[] = {200, 50, 4}; /* fan in 200, fan out 800 */
    static const struct {
        lc_init init;
        double mean, sd, bound;
    } cases[] = {
        {{LC_INIT_ZEROS, 0, 0, 0}, 0, 0, 0},
        {{LC_INIT_ONES, 0, 0, 0}, 1, 0, 1},
        {{LC_INIT_CONSTANT, 0.25, 0, 0}, 0.25, 0, 0.25},
        {{LC_INIT_UNIFORM, -1, 3, 0}, 1, 1.154700538379252, 3},
        {{LC_INIT_NORMAL, 2, 0.5, 0}, 2, 0.5, INFINITY},
        {{LC_INIT_KAIMING_UNIFORM, 2.2360679774997896964, 0, 0}, 0, 0.04082482904638630, 0.07071067811865475},
        {{LC_INIT_KAIMING_UNIFORM, 0, 0, 600}, 0, 0.05773502691896258, 0.1},
        {{LC_INIT_KAIMING_NORMAL, 0, 0, 0}, 0, 0.1, INFINITY},
        {{LC_INIT_XAVIER_UNIFORM, 0, 0, 0}, 0, 0.04472135954999579, 0.07745966692414834},
        {{LC_INIT_XAVIER_NORMAL, 2, 0, 0}, 0, 0.08944271909999159, INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double mean, sd, low, high;
        moments(cases[i].init, 3, shape, &mean, &sd, &low, &high);
        double spread = cases[i].sd / 200; /* of the mean of 40,000 numbers */
        if (!(fabs(mean - cases[i].mean) <= 4 * spread && fabs(sd - cases[i].sd) <= 0.02 * cases[i].sd &&
              high <= cases[i].bound && (!isfinite(cases[i].bound) || high >= 0.99 * cases[i].bound))) {
            TEST_FAIL("case %zu: mean %g, sd %g, from %g to %g", i, mean, sd, low, high);
        }
    }
}

TEST(initial_values_can_be_drawn_again)
{
    lc_module root;
    float x[1000];
    double square = 0;
    lc_module_init(&root, NULL, 3);
    lc_tensor *w = parameter(&root, "w", 1000);
    lc_module_reset_parameter(&root, "w", (lc_init){.kind = LC_INIT_NORMAL, .b = 0.02});
    read_all(w, x);
    for (int i = 0; i < 1000; i++) square += (double)(x[i] * x[i]);
    CHECK_NEAR(sqrt(square / 1000), 0.02, 0.002);
    lc_module_reset_parameter(&root, "w", (lc_init){.kind = LC_INIT_ZEROS});
    read_all(w, x);
    CHECK(x[0] == 0 && x[999] == 0);
    CHECK_OK(lc_module_status(&root));
    lc_module_reset_parameter(&root, "v", (lc_init){.kind = LC_INIT_ZEROS});
    CHECK_STATUS(lc_module_status(&root), LC_ERR_NOT_FOUND);
    lc_module_release(&root);
}

/* A name with dots is a path like that of a module in a module. */
TEST(paths_are_unique)
{
    lc_module root, outer, inner;
    for (int i = 0; i < 2; i++) {
        lc_module_init(&root, NULL, 1);
        if (i == 0) parameter(&root, "outer.inner.weight", 2);
        lc_module_init_child(&outer, &root, "outer", "Outer");
        lc_module_init_child(&inner, &outer, "inner", "Inner");
        CHECK_OK(lc_module_status(&root));
        parameter(&inner, "weight", 2);
        if (i == 1) parameter(&outer, "inner.weight", 2);
        CHECK_STATUS(lc_module_status(&root), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(),
                       i ? "the name \"inner.weight\" is used twice" : "the path \"outer.inner.weight\" is used twice");
        lc_module_release(&root);
    }
}

TEST(the_first_error_is_kept)
{
    lc_module root, child, second;
    lc_module_init(&root, NULL, 1);
    lc_module_init_child(&child, &root, "l1", "Linear");
    parameter(&child, "weight", 2);
    CHECK(lc_tensor_is_error(parameter(&child, "weight", 3)));
    lc_module_init_child(&second, &root, "l1", "Linear"); /* a second error, which must not hide the first */
    parameter(&second, "weight", 4);
    CHECK_STATUS(lc_module_status(&child), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "l1 (Linear)");
    CHECK_CONTAINS(lc_error_message(), "\"weight\" is used twice");
    lc_module_release(&root);

    lc_module_init(&root, NULL, 1);
    CHECK(
        lc_tensor_is_error(lc_module_add_parameter(&root, "n", LC_I64, LC_ROW_MAJOR, 1, (int64_t[]){2}, (lc_init){0})));
    CHECK_STATUS(lc_module_status(&root), LC_ERR_DTYPE);
    lc_module_release(&root);

    lc_module_init(&root, NULL, 1);
    parameter(&root, "a..b", 1);
    CHECK_STATUS(lc_module_status(&root), LC_ERR_ARGUMENT);
    lc_module_release(&root);
}

TEST(a_child_can_be_released_by_itself)
{
    lc_module root, child;
    lc_module_init(&root, NULL, 1);
    lc_module_init_child(&child, &root, "x", "Part");
    parameter(&child, "w", 2);
    lc_module_release(&child);
    CHECK_EQ(root.n_children, 0);
    lc_module_init_child(&child, &root, "x", "Part"); /* the name is free again */
    CHECK_OK(lc_module_status(&root));
    lc_module_release(&root);
}

TEST(a_struct_is_only_one_part)
{
    for (int i = 0; i < 4; i++) {
        lc_module root, child;
        lc_linear layer;
        lc_module_init(&root, NULL, 1);
        lc_module_init_child(&child, &root, "part", "Part");
        lc_linear_init(&layer, &child, "l1", 2, 2);
        CHECK_OK(lc_module_status(&root));
        if (i == 0) lc_linear_init(&layer, &root, "l2", 2, 2);
        if (i == 1) lc_linear_init(&layer, &layer, "l2", 2, 2);
        if (i == 2) lc_module_init_child(&child, &root, "part", "Part");
        if (i == 3) lc_module_init_child(&root, &child, "l2", "Part");
        CHECK_STATUS(lc_module_status(&root), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), i < 2    ? "the struct of \"l2\" is in the model already, as \"part.l1\""
                                           : i == 2 ? "the struct of \"part\" is in the model already, as \"part\""
                                                    : "as \"the root\"");
        CHECK(lc_module_find(&root, "part.l1.weight") == layer.weight);
        lc_module_release(&root); /* nothing is lost */
    }
}

static bool only_weights(void *ctx, const char *path, lc_module *owner, lc_tensor *t)
{
    (void)ctx, (void)owner, (void)t;
    return strstr(path, "weight") != NULL;
}

/* The module has the last reference, of a parameter that two modules share each its own. */
TEST(a_program_cannot_drop_what_a_module_has)
{
    lc_module m, other;
    const int64_t shape[] = {3};
    float value[3];
    lc_module_init(&m, NULL, 1);
    lc_module_init(&other, NULL, 1);
    lc_tensor *p = lc_module_add_parameter(&m, "p", LC_F32, LC_ROW_MAJOR, 1, shape, (lc_init){.kind = LC_INIT_ONES});
    CHECK(lc_module_share_parameter(&other, "p", p) == p);
    lc_tensor_ref(p);
    lc_tensor_unref(p);
    for (int i = 0; i < 3; i++) {
        (void)lc_fail(LC_ERR_IO, "another matter");
        lc_tensor_unref(p);
        CHECK_CONTAINS(lc_error_message(), "lc_tensor_unref: the tensor belongs to a module");
    }
    lc_module_release(&m);
    lc_tensor_unref(p);
    CHECK_OK(lc_tensor_read(p, value, sizeof value));
    CHECK(value[0] == 1);
    lc_tensor_ref(p);
    lc_module_release(&other);
    (void)lc_fail(LC_ERR_IO, "another matter");
    lc_tensor_unref(p); /* no module has it any more */
    CHECK_CONTAINS(lc_error_message(), "another matter");
}

TEST(lists_of_parameters)
{
    lc_module root;
    lc_tensor **list;
    int n;
    lc_module_init(&root, NULL, 1);
    parameter(&root, "weight", 2);
    parameter(&root, "bias", 2);
    lc_module_add_buffer(&root, "weight_mask", 0, 0, NULL, (lc_init){0}, true);
    CHECK_OK(lc_module_parameters(&root, NULL, NULL, &list, &n));
    CHECK_EQ(n, 2);
    free(list);
    CHECK_OK(lc_module_parameters(&root, only_weights, NULL, &list, &n));
    CHECK_EQ(n, 1);
    CHECK(list[0] == lc_module_find(&root, "weight"));
    free(list);
    lc_module_release(&root);
}

TEST_MAIN

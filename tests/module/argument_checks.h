/* SPDX-License-Identifier: Apache-2.0 */
/* What test_arguments.c and test_zeros.c check arguments with. C and C++. */
#ifndef LC_TESTS_ARGUMENT_CHECKS_H
#define LC_TESTS_ARGUMENT_CHECKS_H

#include "test.h"

#include <lightc/lightc.h>

static const int64_t one[] = {1};

static void module_new(lc_module *m)
{
    const int64_t shape[] = {2, 3};
    lc_init zeros;
    memset(&zeros, 0, sizeof zeros);
    lc_module_init(m, NULL, 1);
    lc_module_add_parameter(m, "weight", LC_F32, LC_ROW_MAJOR, 2, shape, zeros);
}

/* What a schedule has as its own argument of that name. */
static double argument_of(const lc_scheduler *s, const char *name)
{
    for (int i = 0; s->ops->args[i]; i++)
        if (!strcmp(s->ops->args[i], name)) return s->args[i];
    TEST_FAIL("%s has no argument %s", s->ops->name, name);
}

/* The first number of what is built of x [1,2], which is 1, 3. */
static lc_status first_number(lc_tensor *(*build)(lc_tensor *x), double *first)
{
    const int64_t shape[] = {1, 2};
    float data[] = {1, 3};
    float values[32] = {0};
    lc_graph *g = NULL;
    lc_tensor *x = NULL;
    CHECK_OK(lc_graph_new(&g));
    CHECK_OK(lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, data, &x));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *y = lc_keep(build(x));
    lc_status status = lc_step_run(g);
    if (status == LC_OK) CHECK_OK(lc_tensor_read(y, values, (size_t)lc_tensor_numel(y) * sizeof(float)));
    *first = (double)values[0];
    CHECK(lc_step_end(g) <= LC_OK);
    lc_tensor_unref(x);
    lc_graph_free(g);
    return status;
}

static void check_number(const char *name, lc_tensor *(*build)(lc_tensor *x), double want)
{
    double got;
    CHECK_OK(first_number(build, &got));
    if (!(fabs(got - want) <= 1e-6)) TEST_FAIL("%s: %.9g, not %.9g", name, got, want);
}

#define BUILD_NUMBER(id, expression)                                                                                   \
    static lc_tensor *id(lc_tensor *x)                                                                                 \
    {                                                                                                                  \
        (void)x;                                                                                                       \
        return expression;                                                                                             \
    }

/* A layer whose making `init` fails, with a message that names the argument. */
#define CHECK_REFUSED_LAYER(kind, argument, init)                                                                      \
    {                                                                                                                  \
        lc_module m;                                                                                                   \
        module_new(&m);                                                                                                \
        init;                                                                                                          \
        CHECK_STATUS(lc_module_status(&m), LC_ERR_ARGUMENT);                                                           \
        CHECK_CONTAINS(lc_error_message(), #argument);                                                                 \
        lc_module_release(&m);                                                                                         \
    }

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of a program that are not complete, or that write what they must not: an error names what is wrong, in
 * place of a crash or of a result that is silently wrong. */
#include "test.h"

#include <lightc/lightc.h>

static lc_status infer(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

static void run(const lc_call *call)
{
    (void)call;
}

static const lc_kernel kernel = {.name = "own", .layout = LC_WANT_ROW_MAJOR, .run = run};
static const lc_kernel empty = {.name = "own", .layout = LC_WANT_ROW_MAJOR};

/* The message of a step that calls `op` with a tensor that it makes, or with a persistent one. */
static void check_step(const lc_op *op, lc_dtype storage, bool persistent, const char *message)
{
    lc_graph *g;
    lc_tensor *own;
    CHECK_OK(lc_graph_new(&g, .threads = 1, .storage = storage));
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){3}, &own));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *x = persistent ? own : lc_ones(LC_F32, 3);
    CHECK(lc_tensor_is_error(lc_op_call(op, 1, &x, 0, NULL, 0, NULL, LC_HERE)) == (message != NULL));
    lc_status s = lc_step_run(g);
    if (message ? s != LC_ERR_ARGUMENT || !strstr(lc_error_message(), message) : s != LC_OK)
        TEST_FAIL("%d: %s", s, lc_error_message());
    (void)!lc_step_end(g);
    lc_graph_free(g);
    lc_tensor_unref(own);
}

TEST(what_is_missing_is_named)
{
    static const struct {
        lc_op op;
        const char *message;
    } cases[] = {
        {{.name = "own", .n_out = 1, .kernel = &kernel}, "own: an operator must have a name and infer"},
        {{.name = "own", .n_out = 1, .infer = infer, .kernel = &empty}, "own: its kernel has no function run"},
        {{.name = "own", .n_out = 1, .infer = infer, .flags = LC_OP_VIEW}, "must have the function view"},
        {{.name = "own", .n_out = -1, .infer = infer, .kernel = &kernel}, "n_out must be from 0 to LC_MAX_OUTPUTS"},
        {{.name = "own", .n_out = 9, .infer = infer, .kernel = &kernel}, "n_out must be from 0 to LC_MAX_OUTPUTS"},
        {{.name = "own", .n_out = 1, .infer = infer, .kernel = &kernel, .flags = LC_OP_MUTATES},
         "own: an operator with the flag LC_OP_MUTATES must say in mutated_inputs what it writes"},
        {{.name = "own", .n_out = 1, .infer = infer, .kernel = &kernel, .mutated_inputs = 1},
         "own: an operator with mutated_inputs must have the flag LC_OP_MUTATES"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check_step(&cases[k].op, 0, true, cases[k].message);
}

/* A result of the step may share its memory with others, so that a write would change these. */
TEST(only_persistent_tensors_are_written)
{
    static const lc_op op = {.name = "own",
                             .n_out = 1,
                             .infer = infer,
                             .kernel = &kernel,
                             .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,
                             .mutated_inputs = 1,
                             .inputs = "counts"};
    static const lc_dtype storages[] = {LC_DTYPE_DEFAULT, LC_F64, LC_BF16, LC_F16};
    for (int k = 0; k < 4; k++) {
        check_step(&op, storages[k], true, NULL);
        check_step(&op, storages[k], false, "own: it writes counts, which is a result of this step");
    }
}

TEST_MAIN

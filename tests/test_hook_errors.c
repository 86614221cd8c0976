/* SPDX-License-Identifier: Apache-2.0 */
/* What users read when they forget something: a message for an error, the size of their operations; and when they give
 * a file of torch.save. */
#include "scratch.h"
#include "trainer_world.h"

#include <lightc/callbacks.h>
#include <lightc/safetensors.h>

static lc_status wordless(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)context, (void)t, (void)o, (void)b, (void)i;
    return LC_ERR_IO;
}

TEST(an_error_without_a_message_names_the_hook)
{
    world w;
    lc_trainer *t;
    lc_callback cb;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(lc_lambda_callback_new(&(lc_lambda_args){.on_train_batch_end = wordless}, &cb));
    world_init(&w, &world_ops_without_val, 4, 0);
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb, o.n_callbacks = 1;
    CHECK_OK(lc_trainer_new(&o, &t));
    (void)lc_fail(LC_ERR_IO, "another matter");
    CHECK_STATUS(lc_trainer_fit(t, &w.base, NULL), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "on_train_batch_end of ");
    CHECK_CONTAINS(lc_error_message(), "it returned an error (");
    CHECK_CONTAINS(lc_error_message(), "without a message");
    CHECK(!strstr(lc_error_message(), "another matter"));
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

TEST(operations_without_a_size_are_to_blame)
{
    static const lc_module_ops none = {0};
    world w;
    lc_trainer *t;
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    world_init(&w, &world_ops_without_val, 4, 0);
    w.base.ops = &none;
    lc_trainer_options o = world_options(dir);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &w.base, NULL), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "LC_MODULE_OPS_INIT");
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

TEST(a_file_of_torch_save_is_known)
{
    static const char *const begins[] = {"PK\3\4 an archive", "\200\2\212\12l\374\234F\371 j\250P\31."};
    char dir[256], path[300];
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/model.pt", dir);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        lc_safetensors *f;
        FILE *out = fopen(path, "w");
        CHECK(out && fwrite(begins[i], 1, 14, out) == 14 && fclose(out) == 0);
        CHECK_STATUS(lc_safetensors_open(path, &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "torch.save");
        CHECK_CONTAINS(lc_error_message(), "safetensors.torch.save_file");
    }
    world_remove(dir);
}

/* Calls that return no status: the step's error says where the program made them. */
static void step_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    lc_optimizer_step(opt);
}

static void zero_grad_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    lc_optimizer_zero_grad(opt);
}

static void clip_norm_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    (void)lc_clip_grad_norm(opt, 1);
}

static void clip_value_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)x;
    lc_clip_grad_value(opt, 1);
}

static void gradient_of(lc_optimizer *opt, lc_tensor *x)
{
    (void)opt;
    (void)lc_gradient(x);
}

TEST(an_error_of_a_call_without_a_status_names_its_line)
{
    void (*const calls[])(lc_optimizer *, lc_tensor *) = {step_of, zero_grad_of, clip_norm_of, clip_value_of,
                                                          gradient_of};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        lc_graph *g;
        CHECK_OK(lc_graph_new(NULL, &g));
        CHECK_OK(lc_step_begin(g, 0, 0));
        calls[i](NULL, lc_zeros(LC_F32, 2));
        CHECK(lc_step_run(g) < 0);
        CHECK_CONTAINS(lc_error_message(), " at test_hook_errors.c:");
        CHECK(lc_step_end(g) < 0);
        lc_graph_free(g);
    }
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* lc_backend_check: it finds nothing wrong with the CPU and the simulated device, and what is wrong otherwise. That it
 * finds kernels and queues that are wrong is shown by tests/scripts/mutations.sh. */
#include "test.h"

#include "said.h"
#include "sim_device.h"

/* Runs it with the variables and arguments; returns its exit status. */
static int run(const char *variables, const char *arguments)
{
    return run_command("%s '%s/lc_backend_check' %s 2>&1", variables, programs(), arguments);
}

/* It may lack a kernel. */
TEST(a_good_backend)
{
    find_plugin();
    if (!takes_all()) SKIP("the reference kernels take minutes with a sanitizer");
    if (run("LIGHTC_SIM=lazy LIGHTC_SIM_WITHOUT=gelu", "--exact sim:1")) TEST_FAIL("%s", said);
    check_says("\n0 failures");
    check_says("gelu                                      0");
    check_says("  not there");
    check_says("\nfused  ");
    check_says("\nupdate_adam  ");
    check_says("\nmuon_momentum  ");
    check_says("\nbatch_norm_relu_pool_backward  ");
    check_says("\naccumulate_grad  ");
    check_says("\nclip_coefficient  ");
    CHECK(!strstr(said, "not checked")); /* every operator was called */
}

/* How many calls of f32 were checked whose operands are stored in 16 bits. */
static long long low_calls(const char *op)
{
    char line[80];
    long long calls, low = 0;
    snprintf(line, sizeof line, "\n%s ", op);
    const char *at = strstr(said, line);
    CHECK(at && sscanf(at + strlen(line), "%lld %lld", &calls, &low) == 2);
    return low;
}

TEST(kernels_of_the_cpu)
{
    static const char *const low[] = {
        "matmul", "linear", "conv", "conv_weight_grad", "batch_norm", "layer_norm_backward", "cross_entropy_backward"};
    find_plugin();
    if (run("", "cpu")) TEST_FAIL("%s", said);
    check_says("\n0 failures");
    for (size_t i = 0; i < sizeof low / sizeof *low; i++)
        if (!low_calls(low[i])) TEST_FAIL("%s: no call with operands of 16 bits was checked", low[i]);
}

TEST(a_device_that_fails)
{
    find_plugin();
    CHECK_EQ(run("LIGHTC_SIM_FAIL=launch:100", "sim"), 1);
    check_says("fails, as asked for");
    check_says("the check ends here: ");
    CHECK_EQ(run("LIGHTC_SIM_FAIL=alloc:1", "sim"), 1);
    CHECK_EQ(run("LIGHTC_SIM_FAIL=alloc:2", "sim"), 1); /* the kernels have their memory, the queue does not get it */
    check_says("memory for the checks            FAILED: ");
    check_says("\n1 failures");
}

TEST(arguments)
{
    find_plugin();
    CHECK_EQ(run("", ""), 2);
    CHECK_EQ(run("", "--exact"), 2);
    CHECK_EQ(run("", "sim --exact"), 2);
    CHECK_EQ(run("", "--help"), 0);
    check_says("usage: lc_backend_check [--exact] NAME");
    CHECK_EQ(run("", "sim:9"), 1);
    check_says("error: there is no sim:9");
    CHECK_EQ(run("", "nobody"), 1);
    check_says("error: accelerator is \"nobody\"");
}

TEST_MAIN

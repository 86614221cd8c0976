/* SPDX-License-Identifier: Apache-2.0 */
/* Backends in shared objects: which file a name opens, and the messages about files that cannot be backends. */
#include "test.h"

#include "core/options/options.h"
#include "device/device.h"
#include "scratch.h"
#include "sim_device.h"

#include <lightc/lightc.h>

static const char *library(const char *name)
{
    static char path[4200];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    snprintf(path, sizeof path, "%s/../lib/%s", bin ? bin : "build/bin", name);
    if (access(path, R_OK) != 0) SKIP("the plug-ins of the tests are not built");
    return path;
}

/* A folder of backends that has only liblightc_NAME.so: a copy of `from`, or a file without contents (NULL). */
static void give(const char *name, const char *from)
{
    char to[600], byte[4096];
    const char *dir = fresh_dir("backends");
    setenv("LIGHTC_BACKEND_PATH", dir, 1);
    unsetenv("LIGHTC_TEST_BACKEND");
    snprintf(to, sizeof to, "%s/liblightc_%s.so", dir, name);
    FILE *in = from ? fopen(from, "rb") : NULL, *out = fopen(to, "wb");
    CHECK(out && (in || !from));
    for (size_t n; in && (n = fread(byte, 1, sizeof byte, in)) > 0;) CHECK(fwrite(byte, 1, n, out) == n);
    if (in) fclose(in);
    CHECK(fclose(out) == 0);
}

/* LIGHTC_ACCELERATOR and the option `accelerator` are refused with the same message. */
static void check_refused(const char *name, const char *why)
{
    lc_tensor *t;
    setenv("LIGHTC_ACCELERATOR", name, 1);
    CHECK_STATUS(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), why);
    unsetenv("LIGHTC_ACCELERATOR");
    CHECK_STATUS(lc__accelerator_check(name), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), why);
}

TEST(what_is_not_a_backend_is_refused)
{
    give("cuda", library("no_backend.so"));
    check_refused("cuda", "accelerator=cuda: liblightc_cuda.so is not a backend of lightc: it has no lc_backend_entry");
    give("cuda", NULL);
    check_refused("cuda", "and that backend cannot be loaded: ");
    CHECK_CONTAINS(lc_error_message(), "/liblightc_cuda.so: ");
}

TEST(a_backend_with_another_name_is_refused)
{
    give("tpu", library("other_backend.so"));
    check_refused("tpu", "accelerator=tpu: liblightc_tpu.so has a backend with another name, cuda");
    give("hpu", library("liblightc_sim.so"));
    check_refused("hpu", "accelerator=hpu: liblightc_hpu.so has a backend with another name, sim");
    give("cuda", library("other_backend.so"));
    setenv("LIGHTC_TEST_BACKEND", "unnamed", 1);
    check_refused("cuda", "accelerator=cuda: liblightc_cuda.so has a backend with another name, none");
}

TEST(a_backend_for_another_version_is_refused)
{
    give("cuda", library("other_backend.so"));
    setenv("LIGHTC_TEST_BACKEND", "old", 1);
    check_refused("cuda", "accelerator=cuda: this backend was built for another version of lightc");
}

/* The plug-in is loaded again for each, since it was refused. */
static void check_mode(const char *mode, const char *why)
{
    char message[300];
    give("cuda", library("other_backend.so"));
    setenv("LIGHTC_TEST_BACKEND", mode, 1);
    snprintf(message, sizeof message, "accelerator=cuda: liblightc_cuda.so %s", why);
    (void)lc_fail(LC_ERR_IO, "an earlier error");
    check_refused("cuda", message);
}

TEST(a_backend_that_lacks_functions_is_refused)
{
    check_mode("without memory", "has a backend without alloc");
    check_mode("without copies", "has a backend without copy");
    check_mode("half a program", "has a backend without program_end");
}

TEST(a_plug_in_that_says_nothing_is_refused)
{
    check_mode("silent", "brings no backend, and does not say why");
}

static lc_status kept;
static char message[200];
static lc_status keep_failure(lc_status status, const char *format, ...)
{
    kept = status;
    snprintf(message, sizeof message, "%s", format);
    return status;
}

TEST(the_simulated_device_refuses_another_version)
{
    find_plugin();
    lc_backend_host host = {.abi = LC_BACKEND_ABI + 1, .fail = keep_failure};
    lc_backend_entry_fn *entry;
    *(void **)&entry = symbol_of_plugin(LC_BACKEND_SYMBOL);
    CHECK(entry(&host) == NULL);
    CHECK_EQ(kept, LC_ERR_CONFIG);
    CHECK_STR(message, "the simulated device was built for another version of lightc");
}

TEST(accelerators_that_lightc_lacks)
{
    static const char *const names[] = {"gpu", "cuda", "mps", "tpu", "ipu", "hpu"};
    give("nothing", NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_STATUS(lc__accelerator_check(names[i]), LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(lc_error_message(), "use --accelerator cpu");
    }
    CHECK_STATUS(lc__accelerator_check("nobody"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "accelerator is \"nobody\"");
}

/* This case is the last one, since the backend stays loaded. */
TEST(a_backend_may_have_the_name_of_one_that_lightc_lacks)
{
    const lc_device *on;
    give("cuda", library("other_backend.so"));
    CHECK_OK(lc__accelerator_check("cuda"));
    CHECK_OK(lc__device_find("cuda", &on));
    CHECK_STR(on->ops->name, "cuda");
    CHECK_STATUS(lc__device_find("cuda:1", &on), LC_ERR_CONFIG);
}

TEST_MAIN

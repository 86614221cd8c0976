/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in for test_backend_plugin.c: a backend that is called "cuda", has no kernels, and runs on the host. If
 * LIGHTC_TEST_BACKEND is "old", it refuses this version of lightc; if that is "unnamed", the backend has no name. */
#include <lightc/backend.h>

#include <stdlib.h>
#include <string.h>

static lc_backend_ops ops = {LC_BACKEND_OPS_INIT("cuda"), .host_memory = true};

LC_API const lc_backend_ops *lc_backend_entry(const lc_backend_host *host);
const lc_backend_ops *lc_backend_entry(const lc_backend_host *host)
{
    const char *is = getenv("LIGHTC_TEST_BACKEND");
    if (is && !strcmp(is, "unnamed")) ops.name = NULL;
    if (!is || strcmp(is, "old") != 0) return &ops;
    host->fail(LC_ERR_CONFIG, "this backend was built for another version of lightc");
    return NULL;
}

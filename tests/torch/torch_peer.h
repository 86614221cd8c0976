/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by comparisons with the real PyTorch: finding a Python that has it, running scripts in tests/torch/, and files
 * of tensors that both sides read. */
#ifndef LC_TESTS_TORCH_PEER_H
#define LC_TESTS_TORCH_PEER_H

#include "peer_python.h"
#include "scratch.h"

#include <lightc/lightc.h>
#include <math.h>
#include <stdarg.h>

/* ---- the other side ---- */

/* The path of that Python; skips the test if there is none. */
static inline const char *python(void)
{
    static const char *found; /* looked up once: importing torch takes a second */
    if (!found) found = peer_python("torch, safetensors");
    if (!found) SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with torch and safetensors");
    return found;
}

/* Runs tests/torch/SCRIPT DIR ARGUMENT, which reports differences itself. */
static inline void run_script(const char *script, const char *dir, const char *argument)
{
    char command[2048];
    snprintf(command, sizeof command, "'%s' '%s/tests/torch/%s' '%s' %s", python(), test_source_dir(), script, dir,
             argument);
    int code = system(command);
    if (code) TEST_FAIL("%s failed (%d)", command, code);
}

/* ---- writing a file of tensors ---- */

typedef struct tensors {
    lc_named_tensor v[1024];
    int64_t n;
} tensors;

static inline void tensors_add(tensors *l, lc_tensor *t, const char *format, ...) LC_PRINTF(3, 4);
static inline void tensors_add(tensors *l, lc_tensor *t, const char *format, ...)
{
    va_list args;
    char *name;
    size_t bytes = (size_t)lc_tensor_numel(t) * lc_dtype_size(lc_tensor_dtype(t));
    void *data = malloc(bytes + 1);
    va_start(args, format);
    CHECK(vasprintf(&name, format, args) > 0);
    va_end(args);
    CHECK_OK(lc_tensor_read(t, data, bytes));
    CHECK(l->n < 1024);
    l->v[l->n++] = (lc_named_tensor){.name = name, .type = *lc_tensor_type(t), .data = data};
}

static inline void tensors_save(tensors *l, const char *dir, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    CHECK_OK(lc_safetensors_save(path, l->n, l->v, 0, NULL));
    for (int64_t i = 0; i < l->n; i++) free((char *)l->v[i].name), free((void *)l->v[i].data);
    l->n = 0;
}

static inline lc_status add_state(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    tensors_add(ctx, t->tensor, "%s", path);
    return LC_OK;
}

#endif

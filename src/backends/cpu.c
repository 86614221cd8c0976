/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: host memory, kernels compiled per instruction set, and oneDNN's for matrices and convolutions. */
#include "backends/backends.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/memory.h"
#include "backends/cpu/onednn/onednn.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu_units.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

static lc_status kernel_set(void *device, const void **set)
{
    (void)device;
    const lc__isa *isa;
    LC_TRY(lc__isa_choose(&isa));
    *set = isa;
    return LC_OK;
}

static bool is_set(const void *set, const char *name)
{
    return !strcmp(((const lc__isa *)set)->name, name);
}

/* A set that LIGHTC_ISA has chosen uses no units beyond it. */
static bool has_units(const void *set, lc_dtype dtype)
{
    bool amx = is_set(set, "amx");
    if (!amx && !is_set(set, "avx512_bf16") && !is_set(set, "avx512")) return false;
    if (dtype == LC_BF16) return amx || lc__units_have_bf16();
    return dtype == LC_F16 && lc__units_find().avx512_fp16;
}

static bool is_low(const lc_call *call)
{
    if (call->rounded) return call->rounded_to == LC_BF16;
    return call->n_in > 1 && (call->in[0].dtype == LC_BF16 || call->in[1].dtype == LC_BF16);
}

/* Whether images are read without copies of patches (isa/conv_units.h); each is a piece of work by itself. */
static bool is_plain_conv(const lc_call *call)
{
    const int64_t *k = call->ints;
    return k[0] == 2 && k[1] == 1 && k[2] == 1 && k[7] == 1 && call->in[0].shape[0] >= 16;
}

/* Whether an own kernel for units for matrices is faster than oneDNN's (measured on a Xeon with AMX, oneDNN 2.6.3).
 * Gradients are where images are read without copies of patches; results are if there are few channels. Other own
 * convolutions copy patches, and oneDNN's compute a row of pixels at a time: theirs lose where rows are short or, of a
 * weight gradient, where each patch is used for many channels. */
static bool units_prefer_own(const lc_call *call)
{
    const lc_view *x = &call->in[0]; /* of a gradient: dy */
    if (call->op == &lc__op_conv) {
        bool few = x->shape[1] == 1 || (x->shape[1] > 8 && x->shape[1] <= 32);
        return call->out[0].shape[call->out[0].ndim - 1] <= 4 || (few && is_plain_conv(call));
    }
    if (call->op == &lc__op_conv_weight_grad) return x->shape[1] >= 256 || is_plain_conv(call);
    if (call->op == &lc__op_conv_input_grad) return x->shape[x->ndim - 1] <= 4 || is_plain_conv(call);
    return true;
}

/* The same for vectors that multiply pairs (measured on Zen 5, oneDNN 2.6.3). Winograd's algorithm is taken where it
 * needs less time than they do (isa/winograd.c). Other own convolutions copy patches, which pays where each of them is
 * used for many channels: in gradients of weights, and in those of inputs with a stride. */
static bool vectors_prefer_own(const lc_call *call, const lc_kernel *own)
{
    if (!strncmp(own->name, "winograd", 8)) return true;
    if (call->op == &lc__op_conv_weight_grad) return call->in[0].shape[1] >= (call->out[0].shape[2] > 1 ? 128 : 256);
    if (call->op == &lc__op_conv_input_grad)
        return call->ints[1] > 1 && call->in[1].shape[1] >= 256 && call->in[1].shape[2] > 1;
    return call->op != &lc__op_conv;
}

static bool prefers_own(const void *set, const lc_call *call, const lc_kernel *own)
{
    if (is_set(set, "amx")) return units_prefer_own(call);
    return is_set(set, "avx512_bf16") && vectors_prefer_own(call, own);
}

/* bf16: oneDNN's kernels come first where they are faster, and are not used elsewhere. */
static lc_status find_low_kernels(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n)
{
    bool fast = has_units(set, LC_BF16) && lc__onednn_bf16_is_fast(lc__units_bf16_is_fast());
    const lc_kernel *own = lc__isa_kernel(set, call);
    bool own_first = own && prefers_own(set, call, own);
    if (own_first) out[(*n)++] = own;
    if (fast && *n < max) {
        int more = 0;
        LC_TRY(lc__onednn_candidates(call, max - *n, out + *n, &more));
        *n += more;
    }
    if (own && !own_first && *n < max) out[(*n)++] = own;
    return LC_OK;
}

/* Own kernels support a call in f32 only if they are faster than oneDNN's. */
static lc_status find_kernels(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n)
{
    *n = 0;
    if (max < 1) return LC_OK;
    if (is_low(call)) return find_low_kernels(set, call, max, out, n);
    /* Sums of rows are of f32, which no kernel for units has: the product is left alone, and computes in bf16. */
    if (call->matmul_precision != LC_MATMUL_HIGHEST && call->op == &lc__op_linear_weight_grad) return LC_OK;
    out[0] = lc__isa_kernel(set, call);
    int own = out[0] != NULL;
    if (own < max) LC_TRY(lc__onednn_candidates(call, max - own, out + own, n));
    *n += own;
    return LC_OK;
}

/* Three products of bf16 take less time than one of f32 in units for matrices only. */
static bool lowers_products(const void *set)
{
    return is_set(set, "amx");
}

static void describe(const void *set, char *text, size_t size)
{
    char library[32];
    lc__onednn_version(library, sizeof library);
    snprintf(text, size, "%s, %s", ((const lc__isa *)set)->name, library);
}

const lc_backend_ops lc__cpu_backend = {
    LC_BACKEND_OPS_INIT("cpu"),
    .host_memory = true,
    .arena_reserve = lc__cpu_arena_reserve,
    .arena_commit = lc__cpu_arena_commit,
    .arena_drop = lc__cpu_arena_drop,
    .arena_release = lc__cpu_arena_release,
    .alloc = lc__cpu_alloc,
    .reserve = lc__cpu_reserve,
    .free = lc__cpu_free,
    .share = lc__cpu_share,
    .available = lc__cpu_available,
    .kernel_set = kernel_set,
    .find_kernels = find_kernels,
    .describe = describe,
    .features = lc__units_names,
    .has_units = has_units,
    .lowers_products = lowers_products,
    .max_threads = lc__parallel_max,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* gelu's gradient, and gelu itself once more: both need the same exponential. */
#include "backends/cpu/isa/epilogue.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

enum { RUN = 256 };

LC_INLINE void both(const lc_dtype t, const lc_call *call, int64_t begin, int64_t end)
{
    float dx[RUN], x[RUN];
    for (int64_t i = begin; i < end; i += RUN) {
        int64_t n = end - i < RUN ? end - i : RUN;
        get_run_of(t, call->in[0].data, i, n, dx);
        get_run_of(t, call->in[1].data, i, n, x);
        epilogue_slope(call->ints[0] != 0, dx, x, x, n, 0);
        put_run_of(t, call->out[0].data, i, n, dx);
        put_run_of(t, call->out[1].data, i, n, x);
    }
}

static void some(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    (void)thread;
    STORED(call->in[1].dtype, both, call, begin, end);
}

static bool supports(const lc_call *call)
{
    lc_dtype t = call->in[1].dtype;
    return is_stored(t) && call->in[0].dtype == t && call->out[0].dtype == t && call->out[1].dtype == t;
}

static void run(const lc_call *call)
{
    lc__parallel_for(call->threads, numel(&call->in[1]), 4096, some, call);
}

static const lc_kernel kernel = {
    .name = "gelu_backward_gelu_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .flags = LC_KERNEL_INPLACE_0,
    .supports = supports,
    .run = run,
};

const lc__kernel_entry LC_ISA_NAME(lc__gelu_kernels)[] = {
    {&lc__op_gelu_backward_gelu, &kernel},
    {NULL, NULL},
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Prepared oneDNN calls; see prepared.h. */
#include "backends/cpu/onednn/prepared.h"
#include "backends/cpu/memory.h"
#include "backends/cpu/parallel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#else
/* oneDNN loads the OpenMP runtime even if this build does not use it; then these two functions exist. */
__attribute__((weak)) void omp_set_num_threads(int threads);
__attribute__((weak)) int omp_get_max_threads(void);
#endif

int lc__dnnl_set_threads(int threads)
{
#ifndef _OPENMP
    if (!omp_set_num_threads || !omp_get_max_threads) return threads;
#endif
    int before = omp_get_max_threads();
    if (before != threads) omp_set_num_threads(threads);
    return before;
}

dnnl_status_t lc__dnnl_new(lc__dnnl_plan **out, bool probe, int threads, int lanes, int64_t n_chunks)
{
    lc__dnnl_plan *plan = calloc(1, sizeof *plan);
    *out = plan;
    if (!plan) return dnnl_out_of_memory;
    if (lanes < 1) lanes = 1;
    if (lanes > n_chunks) lanes = (int)n_chunks;
    plan->probe = probe;
    plan->threads = threads < 1 ? 1 : threads;
    plan->lanes = lanes;
    plan->n_chunks = n_chunks;
    plan->stream = calloc((size_t)lanes, sizeof *plan->stream);
    if (!plan->stream) return dnnl_out_of_memory;
    if (n_chunks > 1) {
        plan->chunk_offset = calloc((size_t)n_chunks + 1, sizeof *plan->chunk_offset);
        if (!plan->chunk_offset) return dnnl_out_of_memory;
    }
    dnnl_status_t status = dnnl_engine_create(&plan->engine, dnnl_cpu, 0);
    for (int i = 0; status == dnnl_success && i < lanes && !probe; i++)
        status = dnnl_stream_create(&plan->stream[i], plan->engine, dnnl_stream_default_flags);
    return status;
}

void lc__dnnl_free(lc__dnnl_plan *plan)
{
    if (!plan) return;
    for (int i = 0; i < plan->n_steps; i++) {
        lc__dnnl_step *step = &plan->step[i];
        for (int j = 0; step->exec && j < plan->lanes * LC_DNNL_MAX_ARGS; j++)
            if (step->exec[j].memory) dnnl_memory_destroy(step->exec[j].memory);
        free(step->exec);
        free(step->last);
        if (step->primitive) dnnl_primitive_destroy(step->primitive);
    }
    for (int i = 0; plan->stream && i < plan->lanes; i++)
        if (plan->stream[i]) dnnl_stream_destroy(plan->stream[i]);
    free(plan->stream);
    free(plan->chunk_offset);
    if (plan->engine) dnnl_engine_destroy(plan->engine);
    free(plan);
}

size_t lc__dnnl_scratch(lc__dnnl_plan *plan, size_t bytes)
{
    size_t offset = plan->scratch_bytes;
    plan->scratch_bytes += (bytes + 63) & ~(size_t)63;
    return offset;
}

dnnl_status_t lc__dnnl_add(lc__dnnl_plan *plan, dnnl_primitive_desc_t pd, bool chunked, bool main)
{
    if (plan->n_steps == LC_DNNL_MAX_STEPS) return dnnl_runtime_error;
    lc__dnnl_step *step = &plan->step[plan->n_steps++];
    dnnl_status_t status = dnnl_success;
    step->chunked = chunked && plan->n_chunks > 1;
    if (main) snprintf(plan->impl, sizeof plan->impl, "%s", lc__dnnl_impl_name(pd));
    lc__cmd scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    size_t bytes = scratchpad ? dnnl_memory_desc_get_size(scratchpad) : 0;
    if (!plan->probe) {
        size_t n = (size_t)plan->lanes * LC_DNNL_MAX_ARGS;
        step->exec = calloc(n, sizeof *step->exec);
        step->last = calloc(n, sizeof *step->last);
        status = step->exec && step->last ? dnnl_primitive_create(&step->primitive, pd) : dnnl_out_of_memory;
    }
    if (status == dnnl_success && bytes) {
        size_t each = (bytes + 63) & ~(size_t)63;
        lc__dnnl_operand operand = {LC_DNNL_SCRATCH, 0, 0, each, LC_DNNL_NO_CHUNKS};
        operand.offset = lc__dnnl_scratch(plan, each * (size_t)(step->chunked ? plan->lanes : 1));
        status = lc__dnnl_bind(plan, DNNL_ARG_SCRATCHPAD, scratchpad, operand);
    }
    dnnl_primitive_desc_destroy(pd);
    return status;
}

dnnl_status_t lc__dnnl_bind(lc__dnnl_plan *plan, int arg, lc__cmd md, lc__dnnl_operand operand)
{
    lc__dnnl_step *step = &plan->step[plan->n_steps - 1];
    int slot = step->n_args;
    if (slot == LC_DNNL_MAX_ARGS) return dnnl_runtime_error;
    step->n_args++;
    step->operand[slot] = operand;
    step->element[slot] = lc__dnnl_md_element(md);
    for (int lane = 0; !plan->probe && lane < (step->chunked ? plan->lanes : 1); lane++) {
        dnnl_exec_arg_t *exec = &step->exec[lane * LC_DNNL_MAX_ARGS + slot];
        exec->arg = arg;
        dnnl_status_t status = dnnl_memory_create(&exec->memory, md, plan->engine, DNNL_MEMORY_NONE);
        if (status != dnnl_success) return status;
    }
    return dnnl_success;
}

void lc__dnnl_relu(lc__dnnl_plan *plan, int64_t count)
{
    lc__dnnl_step *step = &plan->step[plan->n_steps - 1];
    step->relu = count;
    step->results = step->n_args - 1;
}

dnnl_status_t lc__dnnl_add_reorder(lc__dnnl_plan *plan, lc__cmd from, lc__dnnl_operand source, lc__cmd to,
                                   lc__dnnl_operand target, bool sum)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = lc__dnnl_reorder(&pd, plan->engine, from, to, sum);
    if (status == dnnl_success) status = lc__dnnl_add(plan, pd, false, false);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_FROM, from, source);
    if (status == dnnl_success) status = lc__dnnl_bind(plan, DNNL_ARG_TO, to, target);
    return status;
}

dnnl_data_type_t lc__dnnl_type(lc_dtype dtype)
{
    return dtype == LC_F32 ? dnnl_f32 : dtype == LC_BF16 ? dnnl_bf16 : dnnl_data_type_undef;
}

bool lc__dnnl_takes_types(const lc_call *call)
{
    lc_dtype operands = call->in[0].dtype;
    if ((operands != LC_F32 && operands != LC_BF16) || call->in[1].dtype != operands) return false;
    for (int i = 0; i < 2; i++) {
        const lc_view *v = i ? &call->out[0] : &call->in[2];
        if (!i && (call->n_in < 3 || v->ndim < 0)) continue;
        if (v->dtype != LC_F32 && v->dtype != operands) return false;
    }
    return true;
}

/* More memory than creating a primitive takes: descriptors, buffers for generated code. */
#define RESERVE ((size_t)16 << 20)

dnnl_status_t lc__dnnl_enter(void)
{
    void *reserve;
    if (lc__cpu_alloc(NULL, RESERVE, &reserve) < 0) return dnnl_out_of_memory;
    lc__cpu_free(NULL, reserve, RESERVE);
    errno = 0;
    return dnnl_success;
}

dnnl_status_t lc__dnnl_leave(dnnl_status_t status)
{
    return errno == ENOMEM ? dnnl_out_of_memory : status;
}

bool lc__dnnl_supported(dnnl_status_t status)
{
    if (status == dnnl_out_of_memory) errno = ENOMEM; /* lc_kernel.supports */
    return status == dnnl_success;
}

lc_status lc__dnnl_failed(const lc_call *call, dnnl_status_t status)
{
    if (status == dnnl_out_of_memory) return lc_fail(LC_ERR_MEMORY, "out of memory while preparing oneDNN");
    return lc_fail(LC_ERR_UNSUPPORTED, "oneDNN cannot prepare %s (status %d)", call->op->name, (int)status);
}

static dnnl_status_t run_build(const lc_call *call, lc__dnnl_build_fn *build, bool probe, lc__dnnl_plan **plan)
{
    *plan = NULL;
    dnnl_status_t status = lc__dnnl_enter();
    if (status == dnnl_success) status = lc__dnnl_leave(build(call, probe, plan));
    if (status == dnnl_success && !probe) return status;
    lc__dnnl_free(*plan);
    *plan = NULL;
    return status;
}

bool lc__dnnl_supports(const lc_call *call, lc__dnnl_build_fn *build)
{
    lc__dnnl_plan *plan;
    return lc__dnnl_supported(run_build(call, build, true, &plan));
}

lc_status lc__dnnl_prepare(lc_call *call, lc__dnnl_build_fn *build)
{
    lc__dnnl_plan *plan;
    dnnl_status_t status = run_build(call, build, false, &plan);
    if (status != dnnl_success) return lc__dnnl_failed(call, status);
    call->state = plan;
    call->scratch_bytes = plan->scratch_bytes;
    return LC_OK;
}

/* Here the library can only fail because of bugs in the bindings above, which the tests would show; a kernel cannot
 * report errors. */
void lc__dnnl_execute(const lc__dnnl_plan *plan, const lc__dnnl_step *step, const lc_call *call, int lane,
                      int64_t chunk)
{
    dnnl_exec_arg_t *exec = step->exec + lane * LC_DNNL_MAX_ARGS;
    void **last = step->last + lane * LC_DNNL_MAX_ARGS;
    for (int i = 0; i < step->n_args; i++) {
        const lc__dnnl_operand *operand = &step->operand[i];
        char *data = operand->where == LC_DNNL_IN    ? call->in[operand->index].data
                     : operand->where == LC_DNNL_OUT ? call->out[operand->index].data
                                                     : call->scratch;
        data += operand->offset + (size_t)lane * operand->lane_stride;
        if (operand->column >= 0 && plan->chunk_offset)
            data += plan->chunk_offset[chunk][operand->column] * (int64_t)step->element[i];
        /* Setting a handle makes oneDNN 2.x clear the padding of blocked layouts, so it is done only if it changes. */
        if (data == last[i]) continue;
        dnnl_memory_set_data_handle(exec[i].memory, data);
        last[i] = data;
    }
    dnnl_primitive_execute(step->primitive, plan->stream[lane], step->n_args, exec);
}

typedef struct relu_job {
    void *data;
    size_t element; /* bytes: 4 of f32, 2 of bf16 */
} relu_job;

/* As integers with a sign, -0 to -infinity are the smallest numbers, below those of NaN. The blocks are for compilers
 * that make vectors of loops only if they know the number of rounds. */
#define RELU(T, minus_infinity)                                                                                        \
    do {                                                                                                               \
        T *x = j->data;                                                                                                \
        int64_t i = begin;                                                                                             \
        for (; i + BLOCK <= end; i += BLOCK)                                                                           \
            for (int k = 0; k < BLOCK; k++) x[i + k] = x[i + k] <= (minus_infinity) ? 0 : x[i + k];                    \
        for (; i < end; i++) x[i] = x[i] <= (minus_infinity) ? 0 : x[i];                                               \
    } while (0)

static void relu(const void *context, int64_t begin, int64_t end, int thread)
{
    enum { BLOCK = 64 };
    const relu_job *j = context;
    (void)thread;
    if (j->element == 4)
        RELU(int32_t, -0x800000);
    else
        RELU(int16_t, -0x80);
}

static void run_relu(const lc__dnnl_step *step, int lane, int threads)
{
    relu_job j = {step->last[lane * LC_DNNL_MAX_ARGS + step->results], step->element[step->results]};
    if (threads > 1)
        lc__parallel_for(threads, step->relu, 16384, relu, &j);
    else
        relu(&j, 0, step->relu, 0);
}

typedef struct chunk_job {
    const lc_call *call;
    const lc__dnnl_plan *plan;
    const lc__dnnl_step *step;
} chunk_job;

static void run_chunks(const void *context, int64_t begin, int64_t end, int lane)
{
    const chunk_job *j = context;
    int before = lc__dnnl_set_threads(1); /* for this thread, which may be one of the pool */
    for (int64_t c = begin; c < end; c++) {
        const lc__dnnl_step *step = c < j->plan->n_chunks ? j->step : j->step + 1;
        lc__dnnl_execute(j->plan, step, j->call, lane, c);
        if (step->relu) run_relu(step, lane, 1);
    }
    lc__dnnl_set_threads(before);
}

typedef struct add_job {
    float *out;
    const float *from;
} add_job;

static void add(const void *context, int64_t begin, int64_t end, int thread)
{
    const add_job *j = context;
    float *restrict out = j->out;
    const float *restrict from = j->from;
    (void)thread;
    for (int64_t i = begin; i < end; i++) out[i] += from[i];
}

void lc__dnnl_run(const lc_call *call)
{
    const lc__dnnl_plan *plan = call->state;
    for (int i = 0; i < plan->n_steps; i++) {
        const lc__dnnl_step *step = &plan->step[i];
        if (!step->chunked) {
            int before = lc__dnnl_set_threads(plan->threads);
            lc__dnnl_execute(plan, step, call, 0, 0);
            lc__dnnl_set_threads(before);
            if (step->relu) run_relu(step, 0, call->threads);
            continue;
        }
        bool rest = i + 1 < plan->n_steps && step[1].rest;
        chunk_job j = {call, plan, step};
        lc__parallel_for(plan->lanes, plan->n_chunks + rest, 1, run_chunks, &j);
        i += rest;
    }
    if (plan->add_scratch) {
        add_job j = {call->out[0].data, (const float *)((const char *)call->scratch + plan->add_offset)};
        lc__parallel_for(call->threads, plan->add_count, 16384, add, &j);
    }
}

void lc__dnnl_release(lc_call *call)
{
    lc__dnnl_free(call->state);
    call->state = NULL;
}

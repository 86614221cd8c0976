/* SPDX-License-Identifier: Apache-2.0 */
/* Flat buffers: parameters, gradients and optimizer state of a module, each in one piece of memory.
 *
 * Parameters are in reverse order of registration, roughly the order in which backward finishes their gradients, so
 * that buckets for communication are contiguous ranges that fill from the front. */
#include "tensor/low.h"
#include "tensor/slice.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN_BYTES 256

void lc__flat_unref(lc_flat *flat)
{
    if (!flat || __atomic_sub_fetch(&flat->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    (void)!lc__flat_forget_sharding(flat);
    for (int i = 0; i < flat->n; i++)
        if (flat->gradients && flat->gradients[i]) lc_tensor_unref(flat->gradients[i]);
    lc__low_free(flat);
    lc_tensor_unref(flat->parameter);
    lc_tensor_unref(flat->gradient);
    free(flat->parameters);
    free(flat->gradients);
    free(flat->offset);
    free(flat->has_gradient);
    free(flat->trained);
    free(flat);
}

void lc__flat_leave(lc_tensor *p)
{
    if (!p->flat) return;
    p->flat->parameters[p->flat_index] = NULL;
    p->flat->trained[p->flat_index] = false;
    lc__flat_unref(p->flat);
    p->flat = NULL;
}

lc_status lc__flat_new(lc_tensor **parameters, int n, bool move, lc_flat **out)
{
    lc_status status = LC_OK;
    *out = NULL;
    lc_flat *flat = calloc(1, sizeof *flat);
    if (!flat) return lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
    flat->refs = 1;
    flat->n = n;
    flat->parameters = calloc((size_t)n, sizeof *flat->parameters);
    flat->gradients = calloc((size_t)n, sizeof *flat->gradients);
    flat->offset = calloc((size_t)n, sizeof *flat->offset);
    flat->has_gradient = calloc((size_t)n, 1);
    flat->trained = calloc((size_t)n, 1);
    if (!flat->parameters || !flat->gradients || !flat->offset || !flat->has_gradient || !flat->trained) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
        goto done;
    }
    lc_dtype dtype = parameters[0]->type.dtype;
    int64_t align = (int64_t)(ALIGN_BYTES / lc_dtype_size(dtype));
    for (int i = 0; i < n; i++) {
        flat->parameters[i] = parameters[n - 1 - i];
        flat->offset[i] = flat->count;
        int64_t count = lc__numel(&flat->parameters[i]->type);
        flat->count += move ? (count + align - 1) / align * align : count;
    }
    int64_t shape[] = {flat->count};
    LC_TRY_GOTO(status, done, lc__tensor_reserve(dtype, 1, shape, LC_ROW_MAJOR, &flat->gradient));
    if (move) {
        LC_TRY_GOTO(status, done, lc__tensor_reserve(dtype, 1, shape, LC_ROW_MAJOR, &flat->parameter));
    } else {
        lc_type type = {.dtype = dtype, .ndim = 1, .shape = {flat->count}};
        lc_tensor *p = parameters[0];
        /* Not through lc__tensor_range: a reference to the parameter would keep it alive forever. */
        LC_TRY_GOTO(status, done, lc_input_new(dtype, 1, type.shape, LC_ROW_MAJOR, p->device_data, &flat->parameter));
        flat->parameter->kind = LC_TENSOR_PERSISTENT;
        flat->parameter->on = p->on;
        flat->parameter->base = lc_tensor_ref(flat->gradient); /* owns nothing itself */
    }
    for (int i = 0; i < n; i++) {
        lc_tensor *p = flat->parameters[i];
        size_t offset = (size_t)flat->offset[i] * lc_dtype_size(dtype);
        LC_TRY_GOTO(status, done, lc__tensor_range(flat->gradient, offset, &p->type, p->layout, &flat->gradients[i]));
    }
    for (int i = 0; i < n; i++) {
        lc_tensor *p = flat->parameters[i];
        if (move) lc__tensor_move(p, flat->parameter, (size_t)flat->offset[i] * lc_dtype_size(dtype));
        lc__flat_leave(p);
        p->flat = flat;
        p->flat_index = i;
        flat->trained[i] = p->requires_grad;
        flat->refs++;
    }
    *out = flat;
done:
    if (status < 0) flat->refs = 1;
    lc__flat_unref(flat); /* from now on the parameters hold it */
    return status;
}

lc_status lc__flat_replica(const lc_flat *of, const lc_device *on, lc_flat **out)
{
    lc_status status = LC_OK;
    size_t n = (size_t)of->n, width = lc_dtype_size(of->gradient->type.dtype);
    lc_flat *flat = *out = calloc(1, sizeof *flat);
    if (!flat) return lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
    flat->refs = 1;
    flat->n = of->n;
    flat->count = of->count;
    flat->parameter = lc_tensor_ref(of->parameter);
    flat->parameters = calloc(n, sizeof *flat->parameters);
    flat->gradients = calloc(n, sizeof *flat->gradients);
    flat->offset = calloc(n, sizeof *flat->offset);
    flat->has_gradient = calloc(n, 1);
    flat->trained = calloc(n, 1);
    if (!flat->parameters || !flat->gradients || !flat->offset || !flat->has_gradient || !flat->trained) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
        goto done;
    }
    memcpy(flat->offset, of->offset, n * sizeof *flat->offset);
    lc_dtype dtype = of->gradient->type.dtype;
    LC_TRY_GOTO(status, done, lc__tensor_new_on(on, dtype, 1, &of->count, LC_ROW_MAJOR, &flat->gradient));
    for (int i = 0; i < of->n; i++) {
        const lc_tensor *g = of->gradients[i];
        LC_TRY_GOTO(
            status, done,
            lc__tensor_range(flat->gradient, (size_t)of->offset[i] * width, &g->type, g->layout, &flat->gradients[i]));
    }
done:
    if (status < 0) {
        lc__flat_unref(flat);
        *out = NULL;
    }
    return status;
}

lc_status lc__flat_of(lc_tensor *parameter, lc_flat **out)
{
    if (!parameter->flat) {
        lc_flat *flat;
        LC_TRY(lc__flat_new(&parameter, 1, false, &flat));
    }
    *out = parameter->flat;
    return LC_OK;
}

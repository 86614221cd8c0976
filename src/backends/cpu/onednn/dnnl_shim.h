/* SPDX-License-Identifier: Apache-2.0 */
/* One C interface to oneDNN 2.x and 3.x: memory descriptors are owned pointers, and primitive descriptors never use a
 * reference implementation.
 *
 * To use another primitive: add one lc__dnnl_X function here with a branch for each version. */
#ifndef LC_ONEDNN_DNNL_SHIM_H
#define LC_ONEDNN_DNNL_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t lc__md;        /* owned; NULL: none */
typedef const_dnnl_memory_desc_t lc__cmd; /* borrowed */
#else
typedef dnnl_memory_desc_t *lc__md;
typedef const dnnl_memory_desc_t *lc__cmd;
#endif

/* A dense or strided block of f32 or bf16; `strides` (elements) NULL lets the implementation choose. */
dnnl_status_t lc__dnnl_md_strided(lc__md *out, dnnl_data_type_t type, int ndim, const int64_t *dims,
                                  const int64_t *strides);
/* The same for a named layout, which is recognized even if dimensions of size 1 make the strides ambiguous (an image
 * with one channel). */
dnnl_status_t lc__dnnl_md_tag(lc__md *out, dnnl_data_type_t type, int ndim, const int64_t *dims, dnnl_format_tag_t tag);
/* Bytes of an element. */
size_t lc__dnnl_md_element(lc__cmd md);
dnnl_status_t lc__dnnl_md_copy(lc__md *out, lc__cmd from);
void lc__dnnl_md_free(lc__md md); /* NULL is fine */

/* Post-operations of a primitive, in this order. */
typedef struct lc__dnnl_post {
    int activation; /* 0 none, 2 tanh, 3 sigmoid; 1, relu: lc__dnnl_relu instead */
    bool sum;       /* add to what the destination holds */
} lc__dnnl_post;

/* Dilation as PyTorch counts (1 = none); padding is the same on both sides. */
typedef struct lc__dnnl_window {
    int nd;
    int64_t stride[3], padding[3], dilation[3];
} lc__dnnl_window;

/* Primitive descriptors of the library's first implementation that is not a reference one, in user-scratchpad mode;
 * dnnl_unimplemented if there is none. `bias` may be NULL. `avoid`: skips implementations whose name contains it; NULL:
 * none. */
dnnl_status_t lc__dnnl_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd x, lc__cmd y, lc__cmd bias,
                              lc__cmd out, const lc__dnnl_post *post);
dnnl_status_t lc__dnnl_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd x, lc__cmd w, lc__cmd bias,
                            lc__cmd out, const lc__dnnl_window *window, const lc__dnnl_post *post, const char *avoid);
dnnl_status_t lc__dnnl_conv_input_grad(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd dx, lc__cmd w,
                                       lc__cmd dy, const lc__dnnl_window *window);
dnnl_status_t lc__dnnl_conv_weight_grad(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd x, lc__cmd dw,
                                        lc__cmd dy, const lc__dnnl_window *window, const char *avoid);
/* `sum`: adds to the contents of `to`. */
dnnl_status_t lc__dnnl_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd from, lc__cmd to, bool sum);

/* Whether the library multiplies bf16 faster than f32 on this machine: in tiles (AMX), or with vectors that do (AMD's).
 * ONEDNN_MAX_CPU_ISA may forbid it. */
bool lc__dnnl_bf16_is_fast(bool vectors_are);

/* The implementation's name; "" if unknown. Borrowed from the descriptor. */
const char *lc__dnnl_impl_name(const_dnnl_primitive_desc_t pd);

#endif

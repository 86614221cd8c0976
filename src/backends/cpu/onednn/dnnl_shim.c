/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between oneDNN 2.x and 3.x; see dnnl_shim.h. */
#include "backends/cpu/onednn/dnnl_shim.h"

#include <stdlib.h>
#include <string.h>

#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        dnnl_status_t try_ = (expr);                                                                                   \
        if (try_ != dnnl_success) return try_;                                                                         \
    } while (0)

/* oneDNN takes arrays of its own fixed size and gcc checks that. */
static void copy_dims(dnnl_dims_t to, int ndim, const int64_t *from)
{
    memset(to, 0, sizeof(dnnl_dims_t));
    for (int i = 0; i < ndim; i++) to[i] = from[i];
}

dnnl_status_t lc__dnnl_md_strided(lc__md *out, dnnl_data_type_t type, int ndim, const int64_t *dims,
                                  const int64_t *strides)
{
    if (!strides) return lc__dnnl_md_tag(out, type, ndim, dims, dnnl_format_tag_any);
    dnnl_dims_t d, s;
    copy_dims(d, ndim, dims);
    copy_dims(s, ndim, strides);
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(out, ndim, d, type, s);
#else
    *out = calloc(1, sizeof **out);
    if (!*out) return dnnl_out_of_memory;
    return dnnl_memory_desc_init_by_strides(*out, ndim, d, type, s);
#endif
}

dnnl_status_t lc__dnnl_md_tag(lc__md *out, dnnl_data_type_t type, int ndim, const int64_t *dims, dnnl_format_tag_t tag)
{
    dnnl_dims_t d;
    copy_dims(d, ndim, dims);
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(out, ndim, d, type, tag);
#else
    *out = calloc(1, sizeof **out);
    if (!*out) return dnnl_out_of_memory;
    return dnnl_memory_desc_init_by_tag(*out, ndim, d, type, tag);
#endif
}

size_t lc__dnnl_md_element(lc__cmd md)
{
#if DNNL_VERSION_MAJOR >= 3
    dnnl_data_type_t type = dnnl_data_type_undef;
    dnnl_memory_desc_query(md, dnnl_query_data_type, &type);
#else
    dnnl_data_type_t type = md->data_type;
#endif
    return type == dnnl_bf16 ? 2 : type == dnnl_f32 ? 4 : 1;
}

bool lc__dnnl_bf16_is_fast(bool vectors_are)
{
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    unsigned amx = dnnl_cpu_isa_avx512_core_amx, vectors = dnnl_cpu_isa_avx512_core_bf16;
    return (isa & amx) == amx || ((isa & vectors) == vectors && vectors_are);
}

dnnl_status_t lc__dnnl_md_copy(lc__md *out, lc__cmd from)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_clone(out, from);
#else
    *out = malloc(sizeof **out);
    if (!*out) return dnnl_out_of_memory;
    **out = *from;
    return dnnl_success;
#endif
}

void lc__dnnl_md_free(lc__md md)
{
    if (!md) return;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_destroy(md);
#else
    free(md);
#endif
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *out, const lc__dnnl_post *post)
{
    static const dnnl_alg_kind_t kinds[] = {dnnl_alg_kind_undef, dnnl_alg_kind_undef, dnnl_eltwise_tanh,
                                            dnnl_eltwise_logistic};
    *out = NULL;
    if (post && post->activation == 1) return dnnl_unimplemented;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && post && (post->activation || post->sum)) {
        status = dnnl_post_ops_create(&ops);
#if DNNL_VERSION_MAJOR >= 3
        if (status == dnnl_success && post->activation)
            status = dnnl_post_ops_append_eltwise(ops, kinds[post->activation], 0.0f, 0.0f);
        if (status == dnnl_success && post->sum) status = dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
        if (status == dnnl_success && post->activation)
            status = dnnl_post_ops_append_eltwise(ops, 1.0f, kinds[post->activation], 0.0f, 0.0f);
        if (status == dnnl_success && post->sum) status = dnnl_post_ops_append_sum(ops, 1.0f);
#endif
        if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    if (ops) dnnl_post_ops_destroy(ops);
    if (status != dnnl_success && attr) {
        dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    *out = attr;
    return status;
}

const char *lc__dnnl_impl_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name) return "";
    return name;
}

/* Implementations that are never accepted, in addition to `avoid`. ANY accepts everything. */
#define REFERENCE "ref"
#define ANY       ""

static bool is_named(const_dnnl_primitive_desc_t pd, const char *avoid)
{
    const char *name = lc__dnnl_impl_name(pd);
    return *avoid && (strstr(name, avoid) || strstr(name, REFERENCE));
}

#if DNNL_VERSION_MAJOR >= 3
/* Advances a new descriptor to the first acceptable implementation. Takes `attr`. */
static dnnl_status_t accept(dnnl_status_t status, dnnl_primitive_desc_t *pd, dnnl_primitive_attr_t attr,
                            const char *avoid)
{
    while (status == dnnl_success && is_named(*pd, avoid)) {
        status = dnnl_primitive_desc_next_impl(*pd);
        if (status != dnnl_success) {
            dnnl_primitive_desc_destroy(*pd);
            *pd = NULL;
            status = dnnl_unimplemented;
        }
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}
#else
/* The first acceptable implementation of an operation. Takes `attr`. */
static dnnl_status_t find(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const_dnnl_op_desc_t op,
                          dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t hint, const char *avoid)
{
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_status_t status = dnnl_primitive_desc_iterator_create(&it, op, attr, engine, hint);
    while (status == dnnl_success) {
        dnnl_primitive_desc_t found = dnnl_primitive_desc_iterator_fetch(it);
        if (!found) {
            status = dnnl_out_of_memory;
        } else if (is_named(found, avoid)) {
            dnnl_primitive_desc_destroy(found);
            status = dnnl_primitive_desc_iterator_next(it);
            if (status != dnnl_success) status = dnnl_unimplemented;
        } else {
            *pd = found;
            break;
        }
    }
    if (it) dnnl_primitive_desc_iterator_destroy(it);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}
#endif

dnnl_status_t lc__dnnl_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd x, lc__cmd y, lc__cmd bias,
                              lc__cmd out, const lc__dnnl_post *post)
{
    dnnl_primitive_attr_t attr;
    *pd = NULL;
    TRY(make_attr(&attr, post));
#if DNNL_VERSION_MAJOR >= 3
    return accept(dnnl_matmul_primitive_desc_create(pd, engine, x, y, bias, out, attr), pd, attr, REFERENCE);
#else
    dnnl_matmul_desc_t d;
    dnnl_status_t status = dnnl_matmul_desc_init(&d, x, y, bias, out);
    if (status == dnnl_success) return find(pd, engine, &d, attr, NULL, REFERENCE);
    dnnl_primitive_attr_destroy(attr);
    return status;
#endif
}

typedef struct window_dims {
    dnnl_dims_t stride, padding, dilation;
} window_dims;

static void copy_window(window_dims *to, const lc__dnnl_window *from)
{
    copy_dims(to->stride, from->nd, from->stride);
    copy_dims(to->padding, from->nd, from->padding);
    copy_dims(to->dilation, from->nd, from->dilation);
    for (int i = 0; i < from->nd; i++) to->dilation[i]--; /* oneDNN counts the gaps */
}

static dnnl_status_t conv_forward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd x, lc__cmd w, lc__cmd bias,
                                  lc__cmd out, const lc__dnnl_window *window, const lc__dnnl_post *post,
                                  const char *avoid)
{
    dnnl_primitive_attr_t attr;
    window_dims g = {.stride = {0}};
    *pd = NULL;
    copy_window(&g, window);
    TRY(make_attr(&attr, post));
#if DNNL_VERSION_MAJOR >= 3
    return accept(dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training,
                                                                 dnnl_convolution_direct, x, w, bias, out, g.stride,
                                                                 g.dilation, g.padding, g.padding, attr),
                  pd, attr, avoid);
#else
    dnnl_convolution_desc_t d;
    dnnl_status_t status =
        dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, x, w, bias, out,
                                                   g.stride, g.dilation, g.padding, g.padding);
    if (status == dnnl_success) return find(pd, engine, &d, attr, NULL, avoid);
    dnnl_primitive_attr_destroy(attr);
    return status;
#endif
}

dnnl_status_t lc__dnnl_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd x, lc__cmd w, lc__cmd bias,
                            lc__cmd out, const lc__dnnl_window *window, const lc__dnnl_post *post, const char *avoid)
{
    return conv_forward(pd, engine, x, w, bias, out, window, post, avoid ? avoid : REFERENCE);
}

dnnl_status_t lc__dnnl_conv_input_grad(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd dx, lc__cmd w,
                                       lc__cmd dy, const lc__dnnl_window *window)
{
    dnnl_primitive_desc_t hint;
    dnnl_primitive_attr_t attr;
    window_dims g = {.stride = {0}};
    *pd = NULL;
    copy_window(&g, window);
    TRY(conv_forward(&hint, engine, dx, w, NULL, dy, window, NULL, ANY));
    dnnl_status_t status = make_attr(&attr, NULL);
    if (status == dnnl_success) {
#if DNNL_VERSION_MAJOR >= 3
        status = accept(dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, dx, w,
                                                                             dy, g.stride, g.dilation, g.padding,
                                                                             g.padding, hint, attr),
                        pd, attr, REFERENCE);
#else
        dnnl_convolution_desc_t d;
        status = dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, dx, w, dy, g.stride,
                                                                  g.dilation, g.padding, g.padding);
        if (status == dnnl_success)
            status = find(pd, engine, &d, attr, hint, REFERENCE);
        else
            dnnl_primitive_attr_destroy(attr);
#endif
    }
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* The dimensions of `from` in whatever layout, with the type of `typed`. */
static dnnl_status_t in_any_layout(lc__md *out, lc__cmd from, lc__cmd typed)
{
#if DNNL_VERSION_MAJOR >= 3
    dnnl_data_type_t type;
    dnnl_dims_t *dims;
    int ndim;
    TRY(dnnl_memory_desc_query(typed, dnnl_query_data_type, &type));
    TRY(dnnl_memory_desc_query(from, dnnl_query_ndims_s32, &ndim));
    TRY(dnnl_memory_desc_query(from, dnnl_query_dims, &dims));
    return lc__dnnl_md_tag(out, type, ndim, *dims, dnnl_format_tag_any);
#else
    return lc__dnnl_md_tag(out, typed->data_type, from->ndims, from->dims, dnnl_format_tag_any);
#endif
}

/* The forward convolution that oneDNN asks for has weights of the images' type: there is none of bf16 images and f32
 * weights, which is what the gradient of bf16 images is. */
dnnl_status_t lc__dnnl_conv_weight_grad(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd x, lc__cmd dw,
                                        lc__cmd dy, const lc__dnnl_window *window, const char *avoid)
{
    dnnl_primitive_desc_t hint;
    dnnl_primitive_attr_t attr;
    window_dims g = {.stride = {0}};
    lc__md w;
    *pd = NULL;
    copy_window(&g, window);
    TRY(in_any_layout(&w, dw, x));
    dnnl_status_t status = conv_forward(&hint, engine, x, w, NULL, dy, window, NULL, ANY);
    lc__dnnl_md_free(w);
    if (status != dnnl_success) return status;
    status = make_attr(&attr, NULL);
    if (status == dnnl_success) {
#if DNNL_VERSION_MAJOR >= 3
        status = accept(dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, x,
                                                                                dw, NULL, dy, g.stride, g.dilation,
                                                                                g.padding, g.padding, hint, attr),
                        pd, attr, avoid ? avoid : REFERENCE);
#else
        dnnl_convolution_desc_t d;
        status = dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, x, dw, NULL, dy,
                                                                     g.stride, g.dilation, g.padding, g.padding);
        if (status == dnnl_success)
            status = find(pd, engine, &d, attr, hint, avoid ? avoid : REFERENCE);
        else
            dnnl_primitive_attr_destroy(attr);
#endif
    }
    dnnl_primitive_desc_destroy(hint);
    return status;
}

dnnl_status_t lc__dnnl_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, lc__cmd from, lc__cmd to, bool sum)
{
    const lc__dnnl_post post = {0, sum};
    dnnl_primitive_attr_t attr;
    *pd = NULL;
    TRY(make_attr(&attr, &post));
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(pd, from, engine, to, engine, attr);
    dnnl_primitive_attr_destroy(attr);
    if (status == dnnl_success && is_named(*pd, REFERENCE)) {
        /* The library chooses reorders itself: there is no next implementation to try. */
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
        return dnnl_unimplemented;
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Weak stand-ins for the few tensor functions that loaders use, for as long as the engine is not there. */
#include <lightc/batch.h>
struct lc_tensor {
    lc_type type;
    void *data;
};
__attribute__((weak)) size_t lc_dtype_size(lc_dtype d)
{
    switch (d) {
#define SIZE(id, value, name, bytes, st)                                                                               \
    case id:                                                                                                           \
        return bytes;
        LC_DTYPE_LIST(SIZE)
    default:
        return 0;
    }
}
__attribute__((weak)) const char *lc_dtype_name(lc_dtype d)
{
    switch (d) {
#define NAME(id, value, name, bytes, st)                                                                               \
    case id:                                                                                                           \
        return name;
        LC_DTYPE_LIST(NAME)
    default:
        return "?";
    }
}
__attribute__((weak)) lc_status lc_input_new(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout,
                                             void *data, lc_tensor **out)
{
    (void)layout;
    lc_tensor *t = calloc(1, sizeof *t);
    t->type.dtype = dtype;
    t->type.ndim = ndim;
    memcpy(t->type.shape, shape, (size_t)ndim * sizeof *shape);
    t->data = data;
    *out = t;
    return LC_OK;
}
__attribute__((weak)) void lc_input_set(lc_tensor *t, void *data, int64_t samples)
{
    t->data = data;
    t->type.shape[0] = samples;
}
__attribute__((weak)) void lc_tensor_unref(lc_tensor *t)
{
    free(t);
}
__attribute__((weak)) const lc_type *lc_tensor_type(const lc_tensor *t)
{
    return &t->type;
}
__attribute__((weak)) lc_status lc_tensor_read(lc_tensor *t, void *data, size_t bytes)
{
    size_t n = lc_dtype_size(t->type.dtype);
    for (int i = 0; i < t->type.ndim; i++) n *= (size_t)t->type.shape[i];
    if (n != bytes) return lc_fail(LC_ERR_SHAPE, "read of %zu bytes, %zu expected", bytes, n);
    memcpy(data, t->data, n);
    return LC_OK;
}

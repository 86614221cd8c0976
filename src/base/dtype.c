/* SPDX-License-Identifier: Apache-2.0 */
/* Data types, which tensor files, messages between ranks and datasets have in common. */
#include <lightc/tensor.h>

size_t lc_dtype_size(lc_dtype dtype)
{
    switch (dtype) {
#define LC_DTYPE_CASE(id, value, name, bytes, st)                                                                      \
    case id:                                                                                                           \
        return bytes;
        LC_DTYPE_LIST(LC_DTYPE_CASE)
#undef LC_DTYPE_CASE
    default:
        return 0;
    }
}

const char *lc_dtype_name(lc_dtype dtype)
{
    switch (dtype) {
#define LC_DTYPE_CASE(id, value, name, bytes, st)                                                                      \
    case id:                                                                                                           \
        return name;
        LC_DTYPE_LIST(LC_DTYPE_CASE)
#undef LC_DTYPE_CASE
    default:
        return "invalid";
    }
}

bool lc_dtype_is_float(lc_dtype dtype)
{
    return dtype == LC_F32 || dtype == LC_F64 || dtype == LC_F16 || dtype == LC_BF16;
}

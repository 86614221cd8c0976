/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files, plain and gzip, from memory: for any bytes the parser returns a status and a consistent result. */
#include <lightc/data.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lc_idx idx;
    if (lc_idx_parse(data, size, "input", &idx) == LC_OK) {
        size_t bytes = lc_dtype_size(idx.dtype);
        for (int i = 0; i < idx.ndim; i++) bytes *= (size_t)idx.shape[i];
        if (bytes != idx.bytes) abort();
        /* Every byte can be read. */
        unsigned char sum = 0;
        for (size_t i = 0; i < idx.bytes; i++) sum ^= ((const unsigned char *)idx.data)[i];
        if (sum == 1 && idx.bytes == 0) abort();
        lc_idx_release(&idx);
    } else if (idx.data || !*lc_error_message()) {
        abort();
    }
    return 0;
}

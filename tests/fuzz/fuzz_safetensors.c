/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files: the tensors of one that is accepted must be within the file, without holes or
 * overlaps. */
#include "safetensors/safetensors_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The first two bytes are the amount of data after the header. */
    if (size < 2) return 0;
    uint64_t n = size - 2, file_bytes = 8 + n + data[0] + 256u * data[1];
    lc_safetensors *f;
    if (lc__st_parse("fuzz", (const char *)data + 2, n, file_bytes, &f) < 0) return 0;
    uint64_t at = 8 + n;
    for (int64_t i = 0; i < lc_safetensors_count(f); i++) {
        const lc_safetensor_info *info = lc_safetensors_info(f, i);
        if (info->offset != at || info->bytes > file_bytes - at) abort();
        at += info->bytes;
        if (lc_safetensors_find(f, info->name) != i) abort();
    }
    if (at != file_bytes) abort();
    lc_safetensors_close(f);
    return 0;
}

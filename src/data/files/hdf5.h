/* SPDX-License-Identifier: Apache-2.0 */
/* What HDF5 files begin with, in builds with HDF5 and without. */
#ifndef LC_DATA_FILES_HDF5_H
#define LC_DATA_FILES_HDF5_H

#include "data/files/file.h"

#include <string.h>

/* The mark is at byte 0, or 512, 1024, 2048, ..., after a block of the user's. */
static inline bool lc__is_hdf5(const lc_array_file *f)
{
    for (size_t at = 0; f->size >= 8 && at <= f->size - 8; at = at ? 2 * at : 512)
        if (!memcmp(f->bytes + at, "\x89HDF\r\n\x1a\n", 8)) return true;
    return false;
}

#endif

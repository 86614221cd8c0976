/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 in a build without it. */
#include "data/files/hdf5.h"

static lc_status read_header(lc_array_file *f)
{
    return lc__file_fail(f, LC_ERR_UNSUPPORTED, NULL,
                         "is an HDF5 file, and lightc was built without HDF5's headers (Debian and Ubuntu: apt install "
                         "libhdf5-dev, and build again)");
}

const lc__file_kind lc__hdf5_kind = {.matches = lc__is_hdf5, .read_header = read_header};

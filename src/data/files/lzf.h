/* SPDX-License-Identifier: Apache-2.0 */
/* LZF, by which h5py compresses: runs of bytes, and copies of earlier ones. */
#ifndef LC_DATA_FILES_LZF_H
#define LC_DATA_FILES_LZF_H

#include <stddef.h>
#include <stdint.h>

/* Decompresses n bytes into `to`, which has room for `room`; NULL: only counts. Returns how many bytes there are, or 0
 * if the data is damaged or has no room. */
size_t lc__lzf_decode(const uint8_t *from, size_t n, uint8_t *to, size_t room);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), the checksum of checkpoints and of TensorBoard records. */
#ifndef LC_BASE_CRC32C_H
#define LC_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `n` bytes that follow bytes whose checksum is `crc` (0 at the start). 32 zero bytes: 0x8a9136aa. */
uint32_t lc__crc32c(uint32_t crc, const void *data, size_t n);
/* The checksum of A followed by B, from theirs and the length of B. */
uint32_t lc__crc32c_combine(uint32_t a, uint32_t b, uint64_t b_bytes);
/* The portable form, against which tests check the fast one. */
uint32_t lc__crc32c_plain(uint32_t crc, const void *data, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/net/proof.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

lc_status lc__proof_nonce(uint8_t nonce[LC__NONCE])
{
    if (getrandom(nonce, LC__NONCE, 0) == LC__NONCE) return LC_OK;
    return lc_fail(LC_ERR_IO, "cannot get random numbers: %s", strerror(errno));
}

bool lc__proof_is(const void *key, size_t key_bytes, const lc__proof_ask *ask, const uint8_t proof[LC__PROOF])
{
    uint8_t right[LC__PROOF];
    volatile uint8_t differs = 0;
    if (lc__proof_make(key, key_bytes, ask, right) < 0) return false;
    for (size_t i = 0; i < sizeof right; i++) differs = (uint8_t)(differs | (right[i] ^ proof[i]));
    return !differs;
}

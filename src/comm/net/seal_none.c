/* SPDX-License-Identifier: Apache-2.0 */
/* A build without OpenSSL's headers. */
#include "comm/net/seal.h"
#include "comm/net/proof.h"

lc_status lc__seal_new(const uint8_t key[LC__SEAL_KEY], bool opens, bool encrypts, lc__seal **out)
{
    (void)key, (void)opens, (void)encrypts;
    *out = NULL;
    return lc_fail(LC_ERR_UNSUPPORTED, "messages cannot be sealed: %s", lc__proof_why_not());
}

void lc__seal_free(lc__seal *s)
{
    (void)s;
}

bool lc__seal_close(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                    uint8_t tag[LC__SEAL_TAG])
{
    (void)s, (void)head, (void)head_bytes, (void)data, (void)n, (void)tag;
    return false;
}

bool lc__seal_open(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                   const uint8_t tag[LC__SEAL_TAG])
{
    (void)s, (void)head, (void)head_bytes, (void)data, (void)n, (void)tag;
    return false;
}

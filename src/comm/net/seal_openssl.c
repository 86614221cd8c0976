/* SPDX-License-Identifier: Apache-2.0 */
/* AES-256-GCM of OpenSSL's libcrypto, opened as proof_openssl.c does. Data that is only authenticated is passed as
 * additional data, which makes it GMAC. */
#include "comm/net/seal.h"
#include "comm/net/proof.h"

#include <dlfcn.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER = 12 };

/* The same in all versions from 1.1 on. */
#define FUNCTIONS(X)                                                                                                   \
    X(EVP_CIPHER_CTX_new)                                                                                              \
    X(EVP_CIPHER_CTX_free)                                                                                             \
    X(EVP_CIPHER_CTX_ctrl) X(EVP_aes_256_gcm) X(EVP_CipherInit_ex) X(EVP_CipherUpdate) X(EVP_CipherFinal_ex)

struct lc__seal {
#define DECLARE(name) __typeof__(&name) name;
    struct {
        FUNCTIONS(DECLARE)
    } f;
#undef DECLARE
    EVP_CIPHER_CTX *context;
    bool opens, encrypts;
    uint64_t number; /* of the next message */
};

static bool load(lc__seal *s)
{
    void *library = lc__proof_library();
    bool all = library;
#define LOAD(name)                                                                                                     \
    *(void **)&s->f.name = library ? dlsym(library, #name) : NULL;                                                     \
    all = all && s->f.name;
    FUNCTIONS(LOAD)
#undef LOAD
    return all;
}

lc_status lc__seal_new(const uint8_t key[LC__SEAL_KEY], bool opens, bool encrypts, lc__seal **out)
{
    *out = NULL;
    lc__seal *s = calloc(1, sizeof *s);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory: sealing messages");
    s->opens = opens;
    s->encrypts = encrypts;
    if (!load(s)) {
        free(s);
        return lc_fail(LC_ERR_UNSUPPORTED, "messages cannot be sealed: %s", lc__proof_why_not());
    }
    s->context = s->f.EVP_CIPHER_CTX_new();
    if (s->context && s->f.EVP_CipherInit_ex(s->context, s->f.EVP_aes_256_gcm(), NULL, key, NULL, !opens) == 1) {
        *out = s;
        return LC_OK;
    }
    lc__seal_free(s);
    return lc_fail(LC_ERR_INTERNAL, "OpenSSL cannot compute AES-256-GCM");
}

void lc__seal_free(lc__seal *s)
{
    if (!s) return;
    if (s->context) s->f.EVP_CIPHER_CTX_free(s->context);
    free(s);
}

/* Each number is used once under a key: there are more than can be sent. */
static bool begin(lc__seal *s)
{
    uint8_t number[NUMBER] = {0};
    for (int i = 0; i < 8; i++) number[i] = (uint8_t)(s->number >> 8 * i);
    s->number++;
    return s->f.EVP_CipherInit_ex(s->context, NULL, NULL, NULL, number, -1) == 1;
}

static bool update(lc__seal *s, uint8_t *out, const void *data, size_t n)
{
    int unused;
    return n <= INT_MAX && (!n || s->f.EVP_CipherUpdate(s->context, out, &unused, data, (int)n) == 1);
}

bool lc__seal_close(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                    uint8_t tag[LC__SEAL_TAG])
{
    uint8_t rest[16];
    int unused;
    return begin(s) && update(s, NULL, head, head_bytes) && update(s, s->encrypts ? data : NULL, data, n) &&
           s->f.EVP_CipherFinal_ex(s->context, rest, &unused) == 1 &&
           s->f.EVP_CIPHER_CTX_ctrl(s->context, EVP_CTRL_AEAD_GET_TAG, LC__SEAL_TAG, tag) == 1;
}

bool lc__seal_open(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                   const uint8_t tag[LC__SEAL_TAG])
{
    uint8_t rest[16], copy[LC__SEAL_TAG];
    int unused;
    memcpy(copy, tag, sizeof copy);
    return begin(s) && update(s, NULL, head, head_bytes) && update(s, s->encrypts ? data : NULL, data, n) &&
           s->f.EVP_CIPHER_CTX_ctrl(s->context, EVP_CTRL_AEAD_SET_TAG, LC__SEAL_TAG, copy) == 1 &&
           s->f.EVP_CipherFinal_ex(s->context, rest, &unused) == 1;
}

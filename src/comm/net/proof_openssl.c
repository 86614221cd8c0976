/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA-256 of OpenSSL's libcrypto, which is opened when the first connection is made: a program of one rank does
 * not load it. It is never closed: it registers handlers whose code must stay mapped. */
#include "comm/net/proof.h"

#include <dlfcn.h>
#include <openssl/hmac.h>
#include <string.h>

typedef struct functions {
    __typeof__(&HMAC) hmac;
    __typeof__(&EVP_sha256) sha256;
} functions;

void *lc__proof_library(void)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

/* Both functions are the same in all versions from 1.0 on. */
static bool load(functions *f)
{
    void *library = lc__proof_library();
    *(void **)&f->hmac = library ? dlsym(library, "HMAC") : NULL;
    *(void **)&f->sha256 = library ? dlsym(library, "EVP_sha256") : NULL;
    return f->hmac && f->sha256;
}

bool lc__proof_reveals(void)
{
    functions f;
    return !load(&f);
}

const char *lc__proof_why_not(void)
{
    return "OpenSSL's libcrypto is not installed (Debian and Ubuntu: apt install libssl3)";
}

lc_status lc__proof_make(const void *key, size_t key_bytes, const lc__proof_ask *ask, uint8_t proof[LC__PROOF])
{
    uint8_t text[1 + 2 * LC__NONCE + sizeof ask->about];
    functions f;
    memset(proof, 0, LC__PROOF);
    if (!load(&f)) { /* as proof_none.c does */
        memcpy(proof, key, key_bytes < LC__PROOF ? key_bytes : LC__PROOF);
        return LC_OK;
    }
    text[0] = (uint8_t)ask->role;
    memcpy(text + 1, ask->asked, LC__NONCE);
    memcpy(text + 1 + LC__NONCE, ask->answered, LC__NONCE);
    memcpy(text + 1 + 2 * LC__NONCE, ask->about, sizeof ask->about);
    if (f.hmac(f.sha256(), key, (int)key_bytes, text, sizeof text, proof, NULL)) return LC_OK;
    return lc_fail(LC_ERR_INTERNAL, "OpenSSL cannot compute HMAC-SHA-256");
}

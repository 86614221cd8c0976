/* SPDX-License-Identifier: Apache-2.0 */
/* The secret by which the ranks of a run know each other. */
#include "launch/supervisor/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

lc_status lc__secret_make(char secret[LC__SECRET_SIZE])
{
    unsigned char bytes[(LC__SECRET_SIZE - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return lc_fail(LC_ERR_IO, "cannot make a secret for the run: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
    return LC_OK;
}

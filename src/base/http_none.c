/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP in a build without libcurl's headers. */
#include "base/http.h"

lc_status lc__http_new(lc__http **out)
{
    *out = NULL;
    return lc_fail(LC_ERR_UNSUPPORTED, "this lightc was built without libcurl, which HTTP requests need; install "
                                       "libcurl4-openssl-dev and build it again");
}

void lc__http_free(lc__http *h)
{
    (void)h;
}

lc_status lc__http_call(lc__http *h, const lc__http_request *request, int *code, lc__str *answer)
{
    (void)h, (void)request, (void)code, (void)answer;
    return lc_fail(LC_ERR_UNSUPPORTED, "this lightc was built without libcurl");
}

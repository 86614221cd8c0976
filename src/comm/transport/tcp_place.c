/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank is reached over TCP, and how its connections are sealed. */
#include "comm/comm_internal.h"
#include "comm/control/control_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const securities[] = {"none", "auth", "encrypt"};

lc_status lc__security_find(const char *name, lc__security *out)
{
    *out = LC__SECURITY_NONE;
    if (!name || !*name) return LC_OK;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, securities[i])) {
            *out = (lc__security)i;
            return LC_OK;
        }
    return lc_fail(LC_ERR_CONFIG, "comm_security is \"%s\"; it must be none, auth or encrypt", name);
}

const char *lc__security_name(lc__security s)
{
    return s >= LC__SECURITY_NONE && s <= LC__SECURITY_ENCRYPT ? securities[s] : "unknown";
}

lc_status lc__tcp_place_set(lc__tcp_place *p, const char *address, const char *secret, double silence)
{
    if (!address) address = "127.0.0.1";
    if (strlen(address) >= sizeof p->address)
        return lc_fail(LC_ERR_ARGUMENT, "the address \"%s\" is too long", address);
    snprintf(p->address, sizeof p->address, "%s", address);
    snprintf(p->secret, sizeof p->secret, "%s", secret);
    LC_TRY(lc__security_find(getenv("LIGHTC_COMM_SECURITY"), &p->security));
    p->silence = lc__control_default_times(&(lc__control_times){.silence = silence}).silence;
    return LC_OK;
}

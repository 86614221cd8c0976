/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648). */
#ifndef LC_BASE_BASE64_H
#define LC_BASE_BASE64_H

#include "base/str.h"

void lc__base64_add(lc__str *out, const void *bytes, size_t n);
/* The bytes of a base64 text into new memory (free); LC_ERR_FORMAT if it is not base64. */
lc_status lc__base64_decode(const char *text, char **out, size_t *n) LC_MUST_USE;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP requests, through libcurl, which is opened (dlopen) when the first client is made: a program that sends nothing
 * neither loads it nor needs it installed. Without its headers at build time there are no clients. */
#ifndef LC_BASE_HTTP_H
#define LC_BASE_HTTP_H

#include "base/str.h"

typedef struct lc__http lc__http;

typedef struct lc__http_request {
    const char *method; /* "GET", "POST", "PUT", ... */
    const char *url;
    const char *content_type; /* NULL: none */
    const void *body;         /* or: */
    const char *body_file;    /* the path of a file; NULL: none */
    size_t body_bytes;        /* of body */
    const char *bearer;       /* a token; NULL: none */
    const char *user;         /* "name:password"; NULL: none */
    bool insecure;            /* accept any certificate */
    int timeout_s;            /* for the whole exchange; with body_file, for a time without progress */
} lc__http_request;

/* LC_ERR_UNSUPPORTED if libcurl is missing. */
lc_status lc__http_new(lc__http **out) LC_MUST_USE;
void lc__http_free(lc__http *h); /* NULL is fine */
/* LC_OK if there was an answer, whatever it says: *code is its status, `answer` its body (at most 16 MB). One thread at
 * a time. Signals are neither used nor changed. */
lc_status lc__http_call(lc__http *h, const lc__http_request *request, int *code, lc__str *answer) LC_MUST_USE;

#endif

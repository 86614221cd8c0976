/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP through libcurl's easy interface. The library is never closed: OpenSSL, which it uses, registers handlers whose
 * code must stay mapped. */
#define _GNU_SOURCE
#include "base/http.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_ANSWER ((size_t)16 << 20)
#define CONNECT_S   5
#define CURL_FUNCTIONS(X)                                                                                              \
    X(global_init)                                                                                                     \
    X(easy_init)                                                                                                       \
    X(easy_setopt)                                                                                                     \
    X(easy_perform) X(easy_getinfo) X(easy_reset) X(easy_cleanup) X(easy_strerror) X(slist_append) X(slist_free_all)

struct lc__http {
    CURL *easy;
#define CURL_MEMBER(name) __typeof__(&curl_##name) name;
    CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
};

lc_status lc__http_new(lc__http **out)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
    void *library = NULL;
    *out = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return lc_fail(LC_ERR_UNSUPPORTED, "HTTP requests need libcurl, which is not installed (Debian and Ubuntu: "
                                           "apt install libcurl4)");
    lc__http *h = calloc(1, sizeof *h);
    if (!h) return lc_fail(LC_ERR_MEMORY, "out of memory: an HTTP client");
    bool whole = true;
#define CURL_LOAD(name) whole = whole && (*(void **)&h->name = dlsym(library, "curl_" #name)) != NULL;
    CURL_FUNCTIONS(CURL_LOAD)
#undef CURL_LOAD
    if (!whole || h->global_init(CURL_GLOBAL_DEFAULT) || !(h->easy = h->easy_init())) {
        free(h);
        return lc_fail(LC_ERR_UNSUPPORTED, "libcurl cannot be used");
    }
    *out = h;
    return LC_OK;
}

void lc__http_free(lc__http *h)
{
    if (!h) return;
    h->easy_cleanup(h->easy);
    free(h);
}

static size_t receive(char *data, size_t size, size_t n, void *answer)
{
    lc__str *t = answer;
    if (t->n + size * n > MOST_ANSWER) return 0;
    lc__str_add_bytes(t, data, size * n);
    return t->failed ? 0 : size * n;
}

/* Appends "name: value"; frees the list and returns NULL if out of memory. */
static struct curl_slist *add_header(lc__http *h, struct curl_slist *list, const char *name, const char *value)
{
    lc__str line = {0};
    lc__str_add(&line, "%s%s", name, value);
    struct curl_slist *longer = line.failed ? NULL : h->slist_append(list, line.s);
    lc__str_free(&line);
    if (!longer) h->slist_free_all(list);
    return longer;
}

static lc_status set_body(lc__http *h, const lc__http_request *r, FILE **file)
{
    struct stat st;
    if (!r->body_file) {
        if (!r->body) return LC_OK;
        h->easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_bytes);
        h->easy_setopt(h->easy, CURLOPT_POSTFIELDS, r->body);
        return LC_OK;
    }
    *file = fopen(r->body_file, "rbe");
    if (!*file || fstat(fileno(*file), &st) < 0)
        return lc_fail(errno == ENOENT ? LC_ERR_NOT_FOUND : LC_ERR_IO, "cannot open \"%s\": %s", r->body_file,
                       strerror(errno));
    h->easy_setopt(h->easy, CURLOPT_UPLOAD, 1L);
    h->easy_setopt(h->easy, CURLOPT_READDATA, *file);
    h->easy_setopt(h->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)st.st_size);
    h->easy_setopt(h->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    h->easy_setopt(h->easy, CURLOPT_LOW_SPEED_TIME, (long)r->timeout_s);
    return LC_OK;
}

lc_status lc__http_call(lc__http *h, const lc__http_request *r, int *code, lc__str *answer)
{
    FILE *file = NULL;
    struct curl_slist *headers = NULL;
    char error[CURL_ERROR_SIZE] = "";
    long answered = 0;
    lc__str_clear(answer);
    h->easy_reset(h->easy);
    lc_status status = set_body(h, r, &file);
    if (status < 0) goto done;
    /* Drops "Expect:", which costs a second with a server that does not know it. */
    headers = add_header(h, headers, "Expect:", "");
    if (headers && r->content_type) headers = add_header(h, headers, "Content-Type: ", r->content_type);
    if (headers && r->bearer) headers = add_header(h, headers, "Authorization: Bearer ", r->bearer);
    if (!headers) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: a request to %s", r->url);
        goto done;
    }
    h->easy_setopt(h->easy, CURLOPT_URL, r->url);
    h->easy_setopt(h->easy, CURLOPT_CUSTOMREQUEST, r->method);
    h->easy_setopt(h->easy, CURLOPT_HTTPHEADER, headers);
    h->easy_setopt(h->easy, CURLOPT_NOSIGNAL, 1L);
    h->easy_setopt(h->easy, CURLOPT_ERRORBUFFER, error);
    h->easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, receive);
    h->easy_setopt(h->easy, CURLOPT_WRITEDATA, answer);
    h->easy_setopt(h->easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    if (!file) h->easy_setopt(h->easy, CURLOPT_TIMEOUT, (long)r->timeout_s);
    if (r->user) h->easy_setopt(h->easy, CURLOPT_USERPWD, r->user);
    if (r->insecure) {
        h->easy_setopt(h->easy, CURLOPT_SSL_VERIFYPEER, 0L);
        h->easy_setopt(h->easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    CURLcode result = h->easy_perform(h->easy);
    if (result != CURLE_OK)
        status = lc_fail(LC_ERR_IO, "%s cannot be reached: %s", r->url, *error ? error : h->easy_strerror(result));
    else
        h->easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &answered);
    *code = (int)answered;
done:
    h->slist_free_all(headers);
    if (file) fclose(file);
    return status;
}

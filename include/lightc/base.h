/* SPDX-License-Identifier: Apache-2.0 */
/* What every header of lightc needs: visibility, compiler attributes, the call site. */
#ifndef LIGHTC_BASE_H
#define LIGHTC_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define LC_BEGIN_DECLS extern "C" {
#define LC_END_DECLS   }
#define LC_LITERAL(type, ...)                                                                                          \
    type                                                                                                               \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#else
#define LC_BEGIN_DECLS
#define LC_END_DECLS
#define LC_LITERAL(type, ...) ((type){__VA_ARGS__})
#endif

#define LC_API               __attribute__((visibility("default")))
#define LC_MUST_USE          __attribute__((warn_unused_result))
#define LC_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#define LC_VERSION_MAJOR  0
#define LC_VERSION_MINOR  1
#define LC_VERSION_PATCH  0
#define LC_VERSION_STRING "0.1.0"

/* Where the user called an operation: named in errors, in plan dumps, and part of the key of random operations. */
typedef struct lc_site {
    const char *file; /* static string */
    int line;
} lc_site;

#define LC_HERE LC_LITERAL(lc_site, __FILE__, __LINE__)

LC_BEGIN_DECLS
/* The version of the library that is loaded, "0.1.0" (LC_VERSION_STRING is that of the headers). */
LC_API const char *lc_version(void);
LC_END_DECLS

#endif

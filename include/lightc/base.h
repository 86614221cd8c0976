/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions that every header of lightc needs: visibility, compiler attributes, the call site.
 *
 * How every function of the library treats wrong arguments (tests/faults/test_misuse.c calls them all):
 * - A pointer that is NULL is an error, never a crash: a status with a message, or NULL, 0, -1, "" or an error tensor,
 * and lc_error_message says which argument it was. Inside a step it is an error of the step. If NULL means something (a
 * default, "none", nothing to free) the function's comment says so; an array of no elements may always be NULL.
 * - Objects of lightc (lc_trainer, lc_tensor, lc_dataset: whatever a function made) know their type. A freed object, or
 * an object of another type that was cast, is the same kind of error. A pointer to freed memory that is already used
 * for something else cannot always be distinguished from a valid one: do not keep pointers to freed objects.
 * - Structs of the program (lc_module and the layers, lc_transform, lc_sampler, lc_idx, ...): releasing one that is
 * zeroed, or was already released, does nothing. Using such a struct is an error that says what initializes it. A
 * struct that is neither zeroed nor initialized must not be released.
 * - Vtables and options that begin with their size: a missing INIT macro is an error that says so. */
#ifndef LIGHTC_BASE_H
#define LIGHTC_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define LC_BEGIN_DECLS        extern "C" {
#define LC_END_DECLS          }
#define LC_LITERAL(type, ...) (type{__VA_ARGS__})
#define LC_CAST_(type, x)     (static_cast<type>(x))
#else
#define LC_BEGIN_DECLS
#define LC_END_DECLS
#define LC_LITERAL(type, ...) ((type){__VA_ARGS__})
#define LC_CAST_(type, x)     ((type)(x))
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Weights from elsewhere: parameters and buffers of a module from a checkpoint, or from a safetensors file that
 * another program has written (PyTorch's state_dict), whose names, data types and shapes may differ.
 *
 *     lc_load_result r = LC_LOAD_RESULT_INIT;
 *     LC_TRY(lc_module_load_weights(&net.base, "encoder.safetensors", &r, .not_strict = true, .n_rename = 1,
 *                                   .rename = ((lc_text_pair[]){{"enc.*", "encoder.*"}})));
 *     if (r.message) puts(r.message);            the differences
 *     lc_load_result_release(&r); */
#ifndef LIGHTC_WEIGHTS_H
#define LIGHTC_WEIGHTS_H

#include <lightc/module.h>
#include <lightc/safetensors.h>

/* By default every member is off, and the names must be the same on both sides. A parameter with several names
 * (lc_module_share_parameter) may have any of them in the file, or several, if their values are equal.
 *
 * A name of the file is mapped to one of the module in this order: strip_prefix, rename, add_prefix. In patterns "*"
 * matches any number of characters, "?" exactly one. Everything is borrowed for the call. */
typedef struct lc_load_args {
    size_t size;
    bool not_strict;      /* names on one side only are reported instead of ending the call (PyTorch's strict=False) */
    bool skip_mismatched; /* a tensor of another shape is left out, and reported, instead of ending the call */
    const char *strip_prefix;   /* removed from the names of the file that begin with it: "module." */
    const char *add_prefix;     /* added in front of all names: "encoder." */
    const lc_text_pair *rename; /* key: a pattern, value: the new name, in which the n-th "*" is what the n-th "*" or
                                   "?" of the key matched; if several keys match, the first one counts */
    int64_t n_rename;
    const char *const *skip; /* patterns of names of the module: left as they are, whatever the file has */
    int64_t n_skip;
    const char *const *transpose; /* patterns of names of the module: the file has the last two dimensions exchanged */
    int64_t n_transpose;
} lc_load_args;
LC_DEFAULTS(lc_load, lc_load_args, )

/* The outcome, also of a call that failed because names or shapes differ. */
typedef struct lc_load_result {
    size_t size;                   /* LC_LOAD_RESULT_INIT */
    char *message;                 /* all differences, in one sentence; NULL: none */
    int64_t n_loaded, n_converted; /* tensors; those that the file stores in another data type */
    char **missing;                /* names of the module that the file does not have */
    char **unexpected;             /* names of the file that the module does not have, as the file has them */
    char **mismatched;             /* "l1.weight: [8,6] in the file, [8,4] in the module" */
    char **skipped;                /* names of the module that a pattern of `skip` left out */
    int64_t n_missing, n_unexpected, n_mismatched, n_skipped;
} lc_load_result;

#ifdef __cplusplus
static inline lc_load_result lc_load_result_init_()
{
    lc_load_result r = {};
    r.size = sizeof(r);
    return r;
}
#define LC_LOAD_RESULT_INIT lc_load_result_init_()
#else
#define LC_LOAD_RESULT_INIT                                                                                            \
    {                                                                                                                  \
        .size = sizeof(lc_load_result)                                                                                 \
    }
#endif

LC_BEGIN_DECLS

/* Copies the parameters and buffers of `path`, a checkpoint or a safetensors file, into a module. f16, bf16, f32 and
 * f64 are converted to the module's type, and so are i32 and i64. Everything is checked before the first value is
 * written. result (may be NULL) must be initialized with LC_LOAD_RESULT_INIT, and is filled in any case.
 *
 * LC_ERR_NOT_FOUND: a name is only on one side (unless not_strict), or no tensor at all was found, which is always an
 * error. As in PyTorch, batch norm's num_batches_tracked may be missing in the file. LC_ERR_SHAPE: a shape differs
 * (unless skip_mismatched). LC_ERR_DTYPE: a data type that is not converted. LC_ERR_ARGUMENT: two names of the file map
 * to the same name, or to one parameter with different values. */
#define lc_module_load_weights(m, path, ...) LC_CALL_NEW_(lc_module_load_weights, lc_load, (m, path, ), __VA_ARGS__, )
LC_API lc_status lc_module_load_weights_with(lc_module *m, const char *path, lc_load_result *result,
                                             const lc_load_args *args) LC_MUST_USE;
/* Frees the texts and resets *r. */
LC_API void lc_load_result_release(lc_load_result *r);

LC_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by layers. In a layer file, LAYER_init_with clears the struct, registers it with LC_LAYER_BEGIN and adds its
 * parameters; LAYER_forward_at records its operators at the user's call site. */
#ifndef LC_NN_NN_INTERNAL_H
#define LC_NN_NN_INTERNAL_H

#include <lightc/nn.h>
#include <lightc/ops.h>

#include "base/args.h"
#include "base/handle.h"
#include "module/register.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* LC__TAKE for LAYER_init_with. Options that were not initialized with their defaults are reported as an error of the
 * parent, since there is no layer yet. */
#define LC_LAYER_OPTIONS(o, function, type, given, parent)                                                             \
    type o = function##_defaults();                                                                                    \
    do {                                                                                                               \
        if (lc__args_take(&o, sizeof(o), given, #function, #function) < 0) {                                           \
            (void)!lc_module_fail(parent, LC_ERR_ARGUMENT, "%s", lc_error_message());                                  \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Sets out[i], for each of nd dimensions, from `list`, or to `all` if it is empty. A list of another length is an error
 * of the layer. */
void lc__layer_dims(lc_module *layer, int nd, int64_t all, const lc_dims *list, const char *name, int64_t *out);

/* Clears `l` and registers it in its parent; `fn` is the function that lc_forward calls. Without memory (`l` is NULL,
 * from lc_sequential_slot), or if `l` is a part of the model already, the caller returns: the error has been kept. */
#define LC_LAYER_BEGIN(l, parent, name, type, fn)                                                                      \
    do {                                                                                                               \
        if (!(l) || lc__module_in_use(&(l)->base, (parent), (name))) return;                                           \
        memset((l), 0, sizeof *(l));                                                                                   \
        lc_module_init_child(&(l)->base, (parent), (name), (type));                                                    \
        (l)->base.forward = (fn);                                                                                      \
    } while (0)

/* At the start of LAYER_forward_at, with the layer's name for users ("linear") and the functions of theirs that make it
 * ("lc_linear_init"): if `l` is not an initialized layer, records an error in the step, with the user's call site. */
lc_tensor *lc__no_layer(const void *l, const char *name, const char *init, lc_site site);
#define LC_LAYER_FORWARD(l, name, init, site)                                                                          \
    do {                                                                                                               \
        if (__builtin_expect(!lc__has_mark(l, LC__MARK_OF(MODULE)), 0)) return lc__no_layer(l, name, init, site);      \
    } while (0)

/* The same for the arguments of LAYER_forward_at, on top of their defaults. */
lc_tensor *lc__no_arguments(const char *name, lc_site site);
#define LC_LAYER_TAKE(a, function, given, name, site)                                                                  \
    do {                                                                                                               \
        if (lc__args_take(&(a), sizeof(a), given, name, #function) < 0) return lc__no_arguments(name, site);           \
    } while (0)

/* m as a BatchNorm layer, or NULL if it is none. */
lc_batch_norm_layer *lc__as_batch_norm(lc_module *m);

/* Uniform in [-1/sqrt(n), 1/sqrt(n)): for the biases of Linear and Conv, and for everything in LSTM and GRU. */
static inline lc_init lc__init_inverse_sqrt(int64_t n)
{
    double bound = n > 0 ? 1 / sqrt((double)n) : 0;
    return (lc_init){.kind = LC_INIT_UNIFORM, .a = -bound, .b = bound};
}

/* reset_parameters of Linear and Conv: kaiming_uniform_(a=sqrt(5)). */
static inline lc_init lc__init_default_weight(void)
{
    return (lc_init){.kind = LC_INIT_KAIMING_UNIFORM, .a = 2.2360679774997896964};
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* LambdaCallback: a callback made of functions. */
#include "callbacks/callbacks.h"

#include <stdlib.h>

/* A hook that passes its call on to the function of the same name, if there is one. */
#define PASS(hook)                                                                                                     \
    static lc_status la_##hook(void *self, lc_trainer *t)                                                              \
    {                                                                                                                  \
        lc_lambda_args *a = self;                                                                                      \
        return a->hook ? a->hook(a->context, t) : LC_OK;                                                               \
    }
PASS(on_fit_start)
PASS(on_train_start)
PASS(on_train_epoch_start)
PASS(on_validation_end)
PASS(on_train_epoch_end)
PASS(on_train_end)
PASS(on_fit_end)
#undef PASS

static lc_status la_on_train_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    lc_lambda_args *a = self;
    return a->on_train_batch_end ? a->on_train_batch_end(a->context, t, o, b, i) : LC_OK;
}

static lc_status la_on_exception(void *self, lc_trainer *t, lc_status status, const char *message)
{
    lc_lambda_args *a = self;
    return a->on_exception ? a->on_exception(a->context, t, status, message) : LC_OK;
}

const lc_callback_ops lc__lambda_ops = {
    LC_CALLBACK_OPS_INIT("LambdaCallback"),
    .on_fit_start = la_on_fit_start,
    .on_train_start = la_on_train_start,
    .on_train_epoch_start = la_on_train_epoch_start,
    .on_train_batch_end = la_on_train_batch_end,
    .on_validation_end = la_on_validation_end,
    .on_train_epoch_end = la_on_train_epoch_end,
    .on_train_end = la_on_train_end,
    .on_fit_end = la_on_fit_end,
    .on_exception = la_on_exception,
    .free = free,
};

lc_status lc_lambda_callback_new(const lc_lambda_args *args, lc_callback *out)
{
    lc_lambda_args *a = malloc(sizeof *a);
    if (!a) return lc_fail(LC_ERR_MEMORY, "out of memory: LambdaCallback");
    *a = *args;
    *out = (lc_callback){&lc__lambda_ops, a};
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* LambdaCallback: a callback made of functions. Only the given hooks are in its vtable, so the others cost nothing. */
#include "callbacks/callbacks.h"
#include "base/handle.h"

typedef struct lambda {
    lc_lambda_args a;
    lc_callback_ops ops;
} lambda;

/* For each hook, a function that calls the user's: X(name, parameters, arguments). */
#define LAMBDA_HOOKS(X)                                                                                                \
    X(setup, (void *self, lc_trainer *t, lc_stage stage), (t, stage))                                                  \
    LC_LAMBDA_PLAIN(X)                                                                                                 \
    X(on_train_batch_start, (void *self, lc_trainer *t, const lc_batch *b, int64_t i), (t, b, i))                      \
    X(on_before_zero_grad, (void *self, lc_trainer *t, lc_optimizer *opt), (t, opt))                                   \
    X(on_before_backward, (void *self, lc_trainer *t, lc_tensor *loss), (t, loss))                                     \
    X(on_before_optimizer_step, (void *self, lc_trainer *t, lc_optimizer *opt), (t, opt))                              \
    X(on_train_batch_end, (void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i),              \
      (t, o, b, i))                                                                                                    \
    LAMBDA_EVAL(X, validation)                                                                                         \
    LAMBDA_EVAL(X, test)                                                                                               \
    LAMBDA_EVAL(X, predict)                                                                                            \
    X(on_exception, (void *self, lc_trainer *t, lc_status status, const char *message), (t, status, message))          \
    X(teardown, (void *self, lc_trainer *t, lc_stage stage), (t, stage))                                               \
    X(on_save_checkpoint, (void *self, lc_trainer *t, lc_state *state), (t, state))                                    \
    X(on_load_checkpoint, (void *self, lc_trainer *t, const lc_state *state), (t, state))
#define LAMBDA_EVAL(X, stage)                                                                                          \
    X(on_##stage##_batch_start, (void *self, lc_trainer *t, const lc_batch *b, int64_t i, int d), (t, b, i, d))        \
    X(on_##stage##_batch_end, (void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i, int d),   \
      (t, o, b, i, d))
#define PLAIN_HOOK(X, name) X(name, (void *self, lc_trainer *t), (t))
#define LC_LAMBDA_PLAIN(X)                                                                                             \
    PLAIN_HOOK(X, on_fit_start)                                                                                        \
    PLAIN_HOOK(X, on_sanity_check_start)                                                                               \
    PLAIN_HOOK(X, on_sanity_check_end)                                                                                 \
    PLAIN_HOOK(X, on_train_start)                                                                                      \
    PLAIN_HOOK(X, on_train_epoch_start)                                                                                \
    PLAIN_HOOK(X, on_after_backward)                                                                                   \
    PLAIN_HOOK(X, on_validation_start)                                                                                 \
    PLAIN_HOOK(X, on_validation_epoch_start)                                                                           \
    PLAIN_HOOK(X, on_validation_epoch_end)                                                                             \
    PLAIN_HOOK(X, on_validation_end)                                                                                   \
    PLAIN_HOOK(X, on_train_epoch_end)                                                                                  \
    PLAIN_HOOK(X, on_train_end)                                                                                        \
    PLAIN_HOOK(X, on_fit_end)                                                                                          \
    PLAIN_HOOK(X, on_test_start)                                                                                       \
    PLAIN_HOOK(X, on_test_epoch_start)                                                                                 \
    PLAIN_HOOK(X, on_test_epoch_end)                                                                                   \
    PLAIN_HOOK(X, on_test_end)                                                                                         \
    PLAIN_HOOK(X, on_predict_start)                                                                                    \
    PLAIN_HOOK(X, on_predict_epoch_start)                                                                              \
    PLAIN_HOOK(X, on_predict_epoch_end)                                                                                \
    PLAIN_HOOK(X, on_predict_end)

#define UNWRAP(...) __VA_ARGS__
#define PASS(name, parameters, arguments)                                                                              \
    static lc_status la_##name parameters                                                                              \
    {                                                                                                                  \
        const lc_lambda_args *a = &((lambda *)self)->a;                                                                \
        return a->name(a->context, UNWRAP arguments);                                                                  \
    }
LAMBDA_HOOKS(PASS)

static void la_message(void *self, lc_trainer *t, lc_level level, const char *text)
{
    const lc_lambda_args *a = &((lambda *)self)->a;
    a->on_message(a->context, t, level, text);
}

lc_status lc_lambda_callback_new(const lc_lambda_args *args, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_lambda, lc_lambda_args, args);
    lambda *l = lc__owned_new(sizeof *l, NULL);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: LambdaCallback");
    l->a = a;
    l->ops = (lc_callback_ops){LC_CALLBACK_OPS_INIT("LambdaCallback"), .free = lc__owned_free};
#define SET(name, parameters, arguments)                                                                               \
    if (l->a.name) l->ops.name = la_##name;
    LAMBDA_HOOKS(SET)
#undef SET
    if (l->a.on_message) l->ops.on_message = la_message;
    *out = (lc_callback){&l->ops, l};
    return LC_OK;
}

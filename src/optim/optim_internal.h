/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all optimizers: the table of classes for constructors, and the frame of all elementwise update operators.
 *
 * An optimizer NAME is two files. NAME.inl has the loop over one range of elements, written once for both data types
 * and compiled here and, per instruction set, in the backends. NAME.c has class, vtables and constructor. */
#ifndef LC_OPTIM_OPTIM_INTERNAL_H
#define LC_OPTIM_OPTIM_INTERNAL_H

#include "base/args.h"

#include <lightc/optim.h>

/* Hyperparameters that every optimizer has. */
enum { LC_H_LR = 0, LC_H_WEIGHT_DECAY = 1 };

/* ---- classes ---- */

typedef struct lc__optimizer_class {
    const char *name;               /* as in torch.optim */
    const char *const *hyper_names; /* as in lc_optimizer_ops */
    const double *defaults;
    unsigned flags;   /* on by default; always on if not in allowed */
    unsigned allowed; /* flags that can be chosen */
    /* The vtable for these options; optimizers differ in which state they need. */
    const lc_optimizer_ops *(*variant)(const double *hyper, unsigned flags);
} lc__optimizer_class;

extern const lc__optimizer_class lc__class_sgd, lc__class_adam, lc__class_adamw, lc__class_rmsprop, lc__class_adagrad,
    lc__class_adadelta, lc__class_adamax, lc__class_nadam, lc__class_radam, lc__class_rprop, lc__class_muon,
    lc__class_lbfgs;

/* LC_OPT_*, by the names of arguments; the last name is NULL. */
typedef struct lc__optimizer_flag {
    const char *name;
    unsigned flag;
} lc__optimizer_flag;
extern const lc__optimizer_flag lc__optimizer_flags[];

/* Ends with NULL. */
extern const lc__optimizer_class *const lc__optimizer_classes[];

/* The first members of all constructor arguments. */
typedef struct lc__optimizer_common {
    LC_OPTIMIZER_ARGS;
} lc__optimizer_common;

/* The body of constructors: `values` are the arguments from hyper_names[2] on. NULL after an error, which the module
 * keeps. */
lc_optimizer *lc__optimizer_construct(const lc__optimizer_class *c, const lc__optimizer_common *common,
                                      const double *values, int n_values, unsigned flags);
#define LC_OPTIMIZER_COMMON(a)                                                                                         \
    (&(lc__optimizer_common){.site = (a).site,                                                                         \
                             .module = (a).module,                                                                     \
                             .parameters = (a).parameters,                                                             \
                             .n_parameters = (a).n_parameters,                                                         \
                             .no_parameters = (a).no_parameters,                                                       \
                             .maximize = (a).maximize,                                                                 \
                             .master_weights = (a).master_weights,                                                     \
                             .stochastic_rounding = (a).stochastic_rounding,                                           \
                             .lr = (a).lr,                                                                             \
                             .weight_decay = (a).weight_decay})

/* The factor that turns stored gradients, which are sums over backward passes and ranks, into means, with
 * lc_graph.unscale, which it reads on the host. g may be NULL. */
lc_status lc__gradient_factor_now(const lc_graph *g, double *factor) LC_MUST_USE;
/* Whether a step of opt evaluates the loss several times. */
bool lc__evaluates(const lc_optimizer *opt);
/* Parameter p's number in opt->steps, or -1 if it is in none of its groups. */
int64_t lc__optimizer_index(const lc_optimizer *opt, const lc_tensor *p);
/* The vtable's check of a group's numbers, except its rate, which schedules may round to below zero. */
lc_status lc__optimizer_check(lc_optimizer *opt, int group) LC_MUST_USE;
/* Whether p is in one of opt's groups. */
bool lc__optimizer_owns(const lc_optimizer *opt, const lc_tensor *p);
/* `updated` is called after every update of an optimizer that has it: right after the update was recorded, or, if the
 * update needs a closure, has been done. Borrowed. */
typedef struct lc__follower {
    lc_status (*updated)(void *self, lc_optimizer *opt);
    void *self;
} lc__follower;
static inline lc_status lc__optimizer_updated(lc_optimizer *opt)
{
    return opt->follower ? opt->follower->updated(opt->follower->self, opt) : LC_OK;
}
/* Whether a schedule was ever made for opt: then the initial rates of its groups are final, except for OneCycleLR's. */
bool lc__optimizer_scheduled(const lc_optimizer *opt);
void lc__optimizer_set_scheduled(lc_optimizer *opt);
/* Call before hyperparameters change: updates read them when they run. If the step has recorded one of opt that has not
 * run yet, this runs what was recorded. */
lc_status lc__optimizer_settle(const lc_optimizer *opt) LC_MUST_USE;
/* Whether opt has tensors of its own for checkpoints. */
bool lc__has_own(const lc_optimizer *opt);

/* Helpers for ops->check. */
lc_status lc__check_at_least(const lc_optimizer *opt, const char *name, double low);
lc_status lc__check_below(const lc_optimizer *opt, const char *name, double low, double high); /* [low, high) */
/* lr, weight_decay, beta1, beta2 and eps, which optimizers with running means of gradients and their squares have. */
lc_status lc__check_moments(const lc_optimizer *opt);

/* ---- update operators ---- */

/* Some elements of one parameter, and everything that applies to them. */
typedef struct lc__range {
    void *p;
    const void *g;
    void *s[LC_MAX_OPTIM_STATE];
    int64_t n;
    const double *h; /* hyperparameters */
    unsigned flags;
    double scale;  /* multiplies gradients, before clipping */
    double clip;   /* bound of their absolute value; INFINITY: none */
    double sign;   /* multiplies gradients after clipping; -1 to maximize */
    double step;   /* updates done before this one */
    double number; /* scalar state: its value before this update (NAdam) */
} lc__range;

typedef void lc__range_fn(const lc__range *r);

/* The operator's inputs: parameters, gradients, state..., steps, grad_scale, master or nothing (master.h), low copies
 * of the parameters or nothing (keep_low.h). The state of halves is f32, since a running mean of 16 bits would soon
 * stand still; their gradients are of either type. Its ints: */
enum {
    LC_U_SEGMENTS = 0,
    LC_U_CLIP = 1,
    LC_U_FLAGS = 2,
    LC_U_SCALAR = 3, /* ops->scalar_state */
    LC_U_SKIPS = 4,  /* lc_update.skips */
    LC_U_FIRST = 5   /* LC_S_INTS per segment */
};
/* lc_segment, and whether its low copy is written, too */
enum { LC_S_OFFSET, LC_S_COUNT, LC_S_INDEX, LC_S_FIRST, LC_S_LOW, LC_S_INTS };
static inline const int64_t *lc__update_segment(const lc_call *call, int64_t i)
{
    return call->ints + LC_U_FIRST + LC_S_INTS * i;
}
enum { LC__UPDATE_INPUTS = 6 }; /* besides the state */

/* ops->update of elementwise optimizers: records `op` over the group. */
lc_status lc__record_update(const lc_op *op, lc_optimizer *opt, const lc_update *u, int n_state);
lc_status lc__infer_update(lc_infer *call);
/* Whether it is one of the operators below. */
bool lc__is_update(const lc_op *op);
/* Where the low copy of segment i's element `begin` is; NULL: it has none. */
uint16_t *lc__update_low(const lc_call *call, int64_t i, int64_t begin);
/* Whether the update is left out: its factor is not finite, and a loss scale makes that no error. */
bool lc__update_skipped(const lc_call *call);
/* Fills r for elements [begin, begin + n) of segment i. */
void lc__update_range(const lc_call *call, int64_t i, int64_t begin, int64_t n, lc__range *r);
/* Counts one update for every segment. Call it once, after all ranges are done. */
void lc__update_finish(const lc_call *call);
/* A complete reference kernel: one thread, segment by segment. */
void lc__update_run(const lc_call *call, lc__range_fn *f32, lc__range_fn *f64);

/* The operators, in the order of the list; the backends look for them. X(name, number of state buffers) */
#define LC_UPDATE_LIST(X)                                                                                              \
    X(sgd, 0)                                                                                                          \
    X(sgd_momentum, 1)                                                                                                 \
    X(adam, 2)                                                                                                         \
    X(adam_amsgrad, 3)                                                                                                 \
    X(rmsprop, 1)                                                                                                      \
    X(rmsprop_momentum, 2)                                                                                             \
    X(rmsprop_centered, 2)                                                                                             \
    X(rmsprop_centered_momentum, 3)                                                                                    \
    X(adagrad, 1)                                                                                                      \
    X(adadelta, 2)                                                                                                     \
    X(adamax, 2)                                                                                                       \
    X(nadam, 3)                                                                                                        \
    X(radam, 2)                                                                                                        \
    X(rprop, 2)
#define LC_UPDATE_DECLARE(name, n_state) extern const lc_op lc__op_update_##name;
LC_UPDATE_LIST(LC_UPDATE_DECLARE)
#undef LC_UPDATE_DECLARE
extern const lc_op lc__op_muon_momentum, lc__op_muon_combine, lc__op_muon_apply;
/* The operators of this room; ends with NULL. */
extern const lc_op *const lc__optim_ops[];

/* Defines the operator `update_NAME` and `record_NAME` for vtables, from the loops NAME_f32 and NAME_f64. */
#define LC_DEFINE_UPDATE(id, n_state)                                                                                  \
    static void run_##id(const lc_call *call)                                                                          \
    {                                                                                                                  \
        lc__update_run(call, id##_f32, id##_f64);                                                                      \
    }                                                                                                                  \
    static const lc_kernel kernel_##id = {                                                                             \
        .name = "reference", .layout = LC_WANT_ROW_MAJOR, .flags = LC_KERNEL_SERIAL, .run = run_##id};                 \
    const lc_op lc__op_update_##id = {                                                                                 \
        .name = "update_" #id,                                                                                         \
        .flags = LC_OP_MUTATES | LC_OP_NO_GRAD,                                                                        \
        .n_out = 0,                                                                                                    \
        .infer = lc__infer_update, /* not gradients (bit 1) and grad_scale */                                          \
        .mutated_inputs = (((1u << (2 + (n_state) + 1)) - 1) & ~2u) | 3u << (2 + (n_state) + 2),                       \
        .kernel = &kernel_##id,                                                                                        \
    };                                                                                                                 \
    static lc_status record_##id(lc_optimizer *opt, const lc_update *u)                                                \
    {                                                                                                                  \
        return lc__record_update(&lc__op_update_##id, opt, u, n_state);                                                \
    }

#define LC_COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

#endif

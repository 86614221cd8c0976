/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers (their learning-rate schedules are in sched.h). Formulas are those of torch.optim's documentation.
 *
 * Parameters, gradients and optimizer state are each in one flat buffer per data type; an optimizer's update is one
 * operator over ranges of these buffers ("segments", one per parameter). An optimizer is a vtable plus parameter
 * groups, whose hyperparameters are plain doubles that may change every step without planning again.
 *
 * Parameters of f16 and bf16 have gradients of their own type. Updates compute them in f32 and round once; their state
 * is f32. One optimizer may train f32, f16 and bf16 at once, also of several modules; f64 needs one of its own.
 *
 * To add an optimizer: one file in src/optim/ with an lc_optimizer_ops and its update operator, and a line in
 * registry.c; or, in a program, lc_optimizer_new. */
#ifndef LIGHTC_OPTIM_H
#define LIGHTC_OPTIM_H

#include <lightc/args.h>
#include <lightc/module.h>
#include <lightc/op.h>

#define LC_MAX_HYPER        12
#define LC_MAX_OPTIM_STATE  4
#define LC_MAX_PARAM_GROUPS 64
/* The last hyperparameter of every group is the bound of clipping by value (set by lc_clip_grad_value), so that an
 * update reads everything that may change from one array. */
#define LC_HYPER_CLIP_VALUE (LC_MAX_HYPER - 1)

/* One parameter's place in the flat buffers. */
typedef struct lc_segment {
    lc_tensor *parameter;
    int64_t offset, count; /* elements, in the flat buffers */
    int64_t index;         /* index of the parameter in `steps` */
    int64_t first;         /* element of the parameter with which the segment begins, in the order of its memory */
} lc_segment;

typedef struct lc_param_group {
    char name[32]; /* "" or the user's */
    lc_tensor **parameters;
    int n_parameters;
    double hyper[LC_MAX_HYPER]; /* in the order of ops->hyper_names; [0] is always lr; then LC_HYPER_CLIP_VALUE */
    double initial_lr;          /* schedulers compute from it */
} lc_param_group;

/* Everything an update operator needs; made by the engine when a step is planned. */
typedef struct lc_update {
    const lc_param_group *group;
    lc_tensor *parameters; /* flat, 1-D, persistent: written */
    lc_tensor *gradients;  /* flat, 1-D, persistent; of the parameters' type, or f32 for parameters of 16 bits */
    /* One element, f32 (f64 for f64 parameters): multiply gradients by it (accumulation, clipping). */
    lc_tensor *grad_scale;
    lc_tensor *steps;        /* [parameters of the optimizer] f64, persistent: updates done; written by the update */
    lc_tensor *const *state; /* flat or as `steps`, 1-D, persistent, one per ops->state_names: written */
    int n_segments;          /* parameters of this group that have a gradient in this window */
    const lc_segment *segments;
    const double *clip_value; /* NULL, or the bound of clipping by value (after scaling) */
    bool skips;               /* the loss is scaled: if grad_scale is not finite, the update must write nothing */
    /* f32, as long as `parameters`, persistent: written. Parameters of 16 bits are what it rounds to, except for those
     * that it has not taken over yet (LC_OPTIMIZER_ARGS, master_weights). NULL: no such copy was asked for, or is
     * needed. */
    lc_tensor *master;
} lc_update;

/* See lc_optimizer_step_closure. */
typedef lc_status lc_evaluate_fn(void *ctx, double *loss);

typedef struct lc_optimizer_ops {
    size_t size;      /* LC_OPTIMIZER_OPS_INIT */
    const char *name; /* "Adam", as in torch.optim */
    /* REQUIRED */
    const char *const *hyper_names; /* NULL-terminated: "lr", "weight_decay", ... */
    const double *hyper_defaults;
    const char *const *state_names; /* NULL-terminated, as in PyTorch's state dict: "exp_avg", ... */
    /* Records the update operator(s). Called when a step is planned. Hyperparameters are passed on with
     * lc_op_call_live, so that they are read again at every step. */
    lc_status (*update)(lc_optimizer *opt, const lc_update *u);
    /* OPTIONAL (zeros): the value state buffer k starts with. */
    double (*initial_state)(const lc_optimizer *opt, const lc_param_group *group, int k);
    /* OPTIONAL (accept): check options; a clear error names the option and its range. */
    lc_status (*check)(const lc_optimizer *opt);
    /* Bit k: state k is one number per parameter, stored like `steps`, and complete on every rank. */
    unsigned scalar_state;
    /* OPTIONAL (accept): whether the optimizer can train this parameter; asked when it is added to a group. */
    lc_status (*accept)(const lc_optimizer *opt, const lc_tensor *parameter);
    /* OPTIONAL (evaluate once, then update): a step that evaluates the loss as often as it wants. */
    lc_status (*step_closure)(lc_optimizer *opt, lc_evaluate_fn *evaluate, void *ctx);
    /* OPTIONAL (none): visits the optimizer's own tensors, for checkpoints. Calls fn for each, always in the same
     * order; with `load` fn fills the tensor, so later ones may depend on its value. */
    lc_status (*visit_own)(lc_optimizer *opt, bool load, lc_status (*fn)(void *ctx, const char *name, lc_tensor *t),
                           void *ctx);
    /* OPTIONAL: frees opt->own. */
    void (*release)(lc_optimizer *opt);
    /* OPTIONAL (no): the update of an element depends only on that element's parameter, gradient and state, so each
     * rank may update a slice of a parameter (strategy sharded). Segments are then such slices, possibly empty. */
    bool elementwise;
} lc_optimizer_ops;

#define LC_OPTIMIZER_OPS_INIT .size = sizeof(lc_optimizer_ops)

enum {
    LC_OPT_NESTEROV = 1,
    LC_OPT_MAXIMIZE = 2,
    LC_OPT_AMSGRAD = 4,
    LC_OPT_CENTERED = 8,
    LC_OPT_DECOUPLED_WEIGHT_DECAY = 16,
    LC_OPT_MATCH_RMS_ADAMW = 32, /* Muon */
    LC_OPT_MASTER_WEIGHTS = 64,
    LC_OPT_STOCHASTIC_ROUNDING = 128,
};

struct lc_optimizer {
    uint64_t mark; /* set by the library while this is an optimizer (base.h) */
    const lc_optimizer_ops *ops;
    unsigned flags; /* LC_OPT_* */
    lc_param_group *groups;
    int n_groups;
    lc_module *root;                      /* the module that has the parameters */
    lc_tensor *steps;                     /* [parameters] f64: updates done, per parameter */
    lc_tensor *state[LC_MAX_OPTIM_STATE]; /* in the order of state_names: of all parameters, or as scalar_state says */
    lc_tensor *clip_factor;               /* for the next update: lc_clip_grad_norm */
    /* The last recorded update multiplies gradients with this number: NaN if they overflowed, and the update is
     * skipped. It is valid until the end of its step; NULL: no gradient was clipped or unscaled. */
    lc_tensor *factor;
    bool clip_by_value;             /* for the next update: lc_clip_grad_value */
    uint64_t clip_step;             /* the step that asked for it; 0: none, it was called between steps */
    void *own;                      /* private data of its ops */
    struct lc__state_range *ranges; /* of the state: one for each flat buffer of parameters */
    int n_ranges;
    const struct lc__follower *follower; /* what follows its updates; NULL: nothing */
    void *reserved[1];
};

LC_BEGIN_DECLS

/* Like lc_op_call for operators whose floats are read again from `floats` at every replay of the plan; the array must
 * outlive the graph's plans (it does when it is a group's `hyper`). Only while a step is being planned. */
LC_API lc_tensor *lc_op_call_live(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints,
                                  int n_float, const double *floats, lc_site site);

/* Records clipping of all gradients of `opt`'s parameters to a total norm (returns the norm before clipping, a step
 * tensor of one element; lc_keep it to read it) or to an absolute value; applies to the next lc_optimizer_step of opt.
 * torch.nn.utils.clip_grad_norm_: coefficient min(1, max_norm / (norm + 1e-6)). */
LC_API lc_tensor *lc_clip_grad_norm_at(lc_optimizer *opt, double max_norm, lc_site site);
LC_API void lc_clip_grad_value_at(lc_optimizer *opt, double clip_value, lc_site site);
#define lc_clip_grad_norm(opt, max_norm)    lc_clip_grad_norm_at(opt, max_norm, LC_HERE)
#define lc_clip_grad_value(opt, clip_value) lc_clip_grad_value_at(opt, clip_value, LC_HERE)

/* Records the update of every parameter of `opt` that got a gradient since the last lc_zero_grad; gradients are
 * divided by the number of backward passes since then unless lc_graph_set_window gave another number. */
LC_API void lc_optimizer_step_at(lc_optimizer *opt, lc_site site);
#define lc_optimizer_step(opt) lc_optimizer_step_at(opt, LC_HERE)
/* The next backward overwrites the gradients of opt's parameters (lc_zero_grad: those of all). If opt has all
 * parameters that the graph trains, the two are the same. */
LC_API void lc_optimizer_zero_grad_at(lc_optimizer *opt, lc_site site);
#define lc_optimizer_zero_grad(opt) lc_optimizer_zero_grad_at(opt, LC_HERE)
/* One step of any optimizer with a closure. `evaluate` records forward and backward, runs them (lc_step_run, or by
 * reading the loss) and gives the loss; LC_SKIP: there is no loss, and nothing is updated. LBFGS calls it several
 * times, each time at different parameters; other optimizers call it once, before lc_optimizer_step. Gradients are
 * divided as in lc_optimizer_step, and clipped if `evaluate` calls lc_clip_grad_norm or lc_clip_grad_value. */
LC_API lc_status lc_optimizer_step_closure(lc_optimizer *opt, lc_evaluate_fn *evaluate, void *ctx) LC_MUST_USE;
/* The divisor of accumulated gradients from the next update on (0: the number of backward passes). A fit of the trainer
 * begins with 0. */
LC_API void lc_graph_set_window(lc_graph *g, double window);

/* ---- making one ----
 *
 *     lc_optimizer *opt = lc_adam(self, .lr = 1e-3, .weight_decay = 1e-2);
 *
 * `module` is any module (a struct that starts with lc_module); the optimizer gets one group with all its parameters.
 * Other arguments are those of torch.optim, with the same names and defaults; a zero is a zero (args.h).
 *
 * Several groups: .no_parameters = true, then lc_optimizer_add_group for each. On an error the constructor returns NULL
 * and the module's status says why (lc_module_status, lc_trainer_fit). */
/* The first members of every constructor's arguments. `site`: named in errors; `parameters`: only these instead of
 * all.
 *
 * master_weights: of parameters of f16 and bf16 the optimizer keeps an f32 copy in its state ("master_weight"), which
 * it updates; the parameter is the copy rounded, so that updates too small for 16 bits add up. Off by default, as in
 * Lightning's precisions "16-true" and "bf16-true"; parameters of f32 and f64 need none. An element of the copy that
 * does not round to its parameter is out of date and starts again from the parameter: so do all at the first update,
 * and those that anything except the optimizer has written. A run that continues from a checkpoint without copies
 * starts them as the checkpoint's parameters, before these are rounded to 16 bits.
 *
 * stochastic_rounding: parameters of f16 and bf16 are rounded at random to one of both neighbors, such that the mean is
 * the exact value: updates too small for 16 bits then add up on average, without the memory of master weights. The
 * random numbers depend on the graph's seed, the parameter's index in the optimizer and its number of updates, so not
 * on the number of ranks, or on how often a run was resumed. Without effect on parameters of f32 and f64. Off by
 * default; LBFGS, and an optimizer with master_weights, refuse it. */
#define LC_OPTIMIZER_ARGS                                                                                              \
    size_t size;                                                                                                       \
    lc_site site;                                                                                                      \
    void *module;                                                                                                      \
    lc_tensor *const *parameters;                                                                                      \
    int n_parameters;                                                                                                  \
    bool no_parameters;                                                                                                \
    bool maximize;                                                                                                     \
    bool master_weights;                                                                                               \
    bool stochastic_rounding;                                                                                          \
    double lr, weight_decay

typedef struct lc_sgd_args {
    LC_OPTIMIZER_ARGS;
    double momentum, dampening;
    bool nesterov;
} lc_sgd_args;
LC_DEFAULTS(lc_sgd, lc_sgd_args, .lr = 1e-3)

typedef struct lc_adam_args {
    LC_OPTIMIZER_ARGS;
    double beta1, beta2, eps;
    bool amsgrad;
    bool decoupled_weight_decay; /* lc_adam only: Adam(decoupled_weight_decay=True); AdamW always does */
} lc_adam_args;
LC_DEFAULTS(lc_adam, lc_adam_args, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8)
LC_DEFAULTS(lc_adamw, lc_adam_args, .lr = 1e-3, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8)

typedef struct lc_rmsprop_args {
    LC_OPTIMIZER_ARGS;
    double alpha, eps, momentum;
    bool centered;
} lc_rmsprop_args;
LC_DEFAULTS(lc_rmsprop, lc_rmsprop_args, .lr = 1e-2, .alpha = 0.99, .eps = 1e-8)

typedef struct lc_adagrad_args {
    LC_OPTIMIZER_ARGS;
    double lr_decay, initial_accumulator_value, eps;
} lc_adagrad_args;
LC_DEFAULTS(lc_adagrad, lc_adagrad_args, .lr = 1e-2, .eps = 1e-10)

typedef struct lc_adadelta_args {
    LC_OPTIMIZER_ARGS;
    double rho, eps;
} lc_adadelta_args;
LC_DEFAULTS(lc_adadelta, lc_adadelta_args, .lr = 1, .rho = 0.9, .eps = 1e-6)

typedef struct lc_adamax_args {
    LC_OPTIMIZER_ARGS;
    double beta1, beta2, eps;
} lc_adamax_args;
LC_DEFAULTS(lc_adamax, lc_adamax_args, .lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8)

typedef struct lc_nadam_args {
    LC_OPTIMIZER_ARGS;
    double beta1, beta2, eps, momentum_decay;
    bool decoupled_weight_decay;
} lc_nadam_args;
LC_DEFAULTS(lc_nadam, lc_nadam_args, .lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .momentum_decay = 4e-3)

typedef struct lc_radam_args {
    LC_OPTIMIZER_ARGS;
    double beta1, beta2, eps;
    bool decoupled_weight_decay;
} lc_radam_args;
LC_DEFAULTS(lc_radam, lc_radam_args, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8)

typedef struct lc_rprop_args {
    LC_OPTIMIZER_ARGS;
    double eta_minus, eta_plus, step_size_min, step_size_max;
} lc_rprop_args;
LC_DEFAULTS(lc_rprop, lc_rprop_args, .lr = 1e-2, .eta_minus = 0.5, .eta_plus = 1.2, .step_size_min = 1e-6,
            .step_size_max = 50)

/* One group. max_eval bounds the evaluations of a step, including those of line searches except the first try of the
 * last one; 0: 1.25 max_iter. Needs a closure: automatic optimization makes one, lc_manual_step_closure and
 * lc_optimizer_step_closure take one. */
typedef struct lc_lbfgs_args {
    LC_OPTIMIZER_ARGS; /* weight_decay and maximize are not supported */
    double max_iter, max_eval, tolerance_grad, tolerance_change, history_size;
    bool strong_wolfe; /* line_search_fn="strong_wolfe"; default: steps of lr */
} lc_lbfgs_args;
LC_DEFAULTS(lc_lbfgs, lc_lbfgs_args, .lr = 1, .max_iter = 20, .tolerance_grad = 1e-7, .tolerance_change = 1e-9,
            .history_size = 100)

typedef struct lc_muon_args { /* 2-D parameters only */
    LC_OPTIMIZER_ARGS;
    double momentum, eps;
    bool no_nesterov; /* nesterov is on by default, as in PyTorch */
    int ns_steps;
    bool match_rms_adamw; /* adjust_lr_fn="match_rms_adamw"; default: "original" */
} lc_muon_args;
LC_DEFAULTS(lc_muon, lc_muon_args, .lr = 1e-3, .weight_decay = 0.1, .momentum = 0.95, .eps = 1e-7, .ns_steps = 5)

#define lc_sgd(...)      LC_CALL(lc_sgd, lc_sgd_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_adam(...)     LC_CALL(lc_adam, lc_adam_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_adamw(...)    LC_CALL(lc_adamw, lc_adam_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_rmsprop(...)  LC_CALL(lc_rmsprop, lc_rmsprop_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_adagrad(...)  LC_CALL(lc_adagrad, lc_adagrad_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_adadelta(...) LC_CALL(lc_adadelta, lc_adadelta_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_adamax(...)   LC_CALL(lc_adamax, lc_adamax_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_nadam(...)    LC_CALL(lc_nadam, lc_nadam_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_radam(...)    LC_CALL(lc_radam, lc_radam_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_rprop(...)    LC_CALL(lc_rprop, lc_rprop_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_lbfgs(...)    LC_CALL(lc_lbfgs, lc_lbfgs_args, .site = LC_HERE, .module = __VA_ARGS__)
#define lc_muon(...)     LC_CALL(lc_muon, lc_muon_args, .site = LC_HERE, .module = __VA_ARGS__)

LC_API lc_optimizer *lc_sgd_with(const lc_sgd_args *args);
LC_API lc_optimizer *lc_adam_with(const lc_adam_args *args);
LC_API lc_optimizer *lc_adamw_with(const lc_adam_args *args);
LC_API lc_optimizer *lc_rmsprop_with(const lc_rmsprop_args *args);
LC_API lc_optimizer *lc_adagrad_with(const lc_adagrad_args *args);
LC_API lc_optimizer *lc_adadelta_with(const lc_adadelta_args *args);
LC_API lc_optimizer *lc_adamax_with(const lc_adamax_args *args);
LC_API lc_optimizer *lc_nadam_with(const lc_nadam_args *args);
LC_API lc_optimizer *lc_radam_with(const lc_radam_args *args);
LC_API lc_optimizer *lc_rprop_with(const lc_rprop_args *args);
LC_API lc_optimizer *lc_lbfgs_with(const lc_lbfgs_args *args);
LC_API lc_optimizer *lc_muon_with(const lc_muon_args *args);

/* A name and a number: arguments of the by-name constructors, taken literally (0 is zero). */
typedef struct lc_named_number {
    const char *name;
    double value;
} lc_named_number;

/* Makes an optimizer by the name of torch.optim's class; arguments under PyTorch's names, pairs as beta1/beta2 (betas),
 * eta_minus/eta_plus (etas), step_size_min/step_size_max (step_sizes); flags as 0 or 1. For options and files. The
 * error for an unknown name lists the available ones. All parameters of `module` are in one group; with NULL
 * there are no groups yet. */
LC_API lc_status lc_optimizer_by_name(const char *name, void *module, const lc_named_number *args, int n_args,
                                      lc_optimizer **out) LC_MUST_USE;
/* Makes an optimizer of your own from the vtable `ops` (examples/custom_optimizer.c). It has no groups; add them. Its
 * update operator refuses, in infer, the data types that its kernel does not compute; updates only the segments, counts
 * each in `steps`, multiplies gradients by grad_scale, and honors clip_value and `skips` (lc_update). */
LC_API lc_status lc_optimizer_new(const lc_optimizer_ops *ops, void *module, unsigned flags,
                                  lc_optimizer **out) LC_MUST_USE;
LC_API void lc_optimizer_free(lc_optimizer *opt); /* NULL is fine */

/* Adds a group with the hyperparameters the constructor got (change them with lc_optimizer_set), also after the first
 * step; a parameter that is in the optimizer already is an error. Returns its index, or an error (negative). At most
 * LC_MAX_PARAM_GROUPS. */
LC_API int lc_optimizer_add_group(lc_optimizer *opt, const char *name, lc_tensor *const *parameters, int n);

/* Sets a hyperparameter by name ("lr", "momentum"); group -1: of all groups. May be called at any time; no new plan. An
 * update that the step has recorded runs first, with the old value; so it does before lc_scheduler_step. */
LC_API lc_status lc_optimizer_set(lc_optimizer *opt, int group, const char *name, double value) LC_MUST_USE;
LC_API lc_status lc_optimizer_get(const lc_optimizer *opt, int group, const char *name, double *value) LC_MUST_USE;
LC_API bool lc_optimizer_has(const lc_optimizer *opt, const char *name);

/* Visits the optimizer's state, for checkpoints: for every parameter and state name ("exp_avg") the 1-D tensor that
 * holds it and where; and, as state name "step", the count of updates in opt->steps. Paths are relative to the root.
 * State that does not exist yet (before the first step) is made. */
typedef lc_status lc_optimizer_state_fn(void *ctx, const char *state, const char *path, lc_tensor *parameter,
                                        lc_tensor *flat, int64_t offset, int64_t count);
LC_API lc_status lc_optimizer_visit_state(lc_optimizer *opt, lc_optimizer_state_fn *fn, void *ctx) LC_MUST_USE;

LC_END_DECLS

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules: the classes of torch.optim.lr_scheduler under the same names and arguments.
 *
 *     lc_scheduler *s = lc_cosine_annealing_lr(opt, .T_max = 50);
 *
 * A schedule sets its optimizer's learning rates when it is made and at every lc_scheduler_step. Values follow the
 * recursive forms of PyTorch (each new rate comes from the current one), so that schedules can be chained and a rate
 * changed by hand stays changed. Defaults are PyTorch's, and a zero is a zero (args.h). On an error a constructor
 * returns NULL and the status of the optimizer's module says why.
 *
 * To add one: a file in src/optim/sched/ with an lc_scheduler_ops, and a line in its registry.c. */
#ifndef LIGHTC_SCHED_H
#define LIGHTC_SCHED_H

#include <lightc/optim.h>

#define LC_MAX_SCHED_ARGS  12
#define LC_MAX_SCHED_STATE 8

typedef struct lc_scheduler lc_scheduler;

typedef struct lc_scheduler_ops {
    size_t size;              /* LC_SCHEDULER_OPS_INIT */
    const char *name;         /* "StepLR", as in torch.optim.lr_scheduler */
    const char *const *args;  /* NULL-terminated: the names that lc_scheduler_by_name takes */
    const double *defaults;   /* one per argument; NaN: must be given */
    const char *const *state; /* NULL-terminated: names of s->state, saved with last_epoch; NULL: none */
    /* REQUIRED: sets the rates for s->last_epoch (already counted up; 0 when the schedule is made). */
    lc_status (*apply)(lc_scheduler *s);
    /* OPTIONAL (accept): checks the arguments; runs before the first apply. */
    lc_status (*check)(lc_scheduler *s);
    /* OPTIONAL: the rate of group g at s->last_epoch computed only from base_lrs (SequentialLR restarts schedules with
     * it). */
    double (*closed_form)(const lc_scheduler *s, int g);
    /* OPTIONAL: takes the place of counting up and apply; `metric` is NaN if none was given. */
    lc_status (*step)(lc_scheduler *s, double metric);
    bool needs_metric; /* lc_scheduler_step without one is an error */
} lc_scheduler_ops;

#define LC_SCHEDULER_OPS_INIT .size = sizeof(lc_scheduler_ops)

typedef double lc_lambda_fn(void *ctx, int64_t epoch);

struct lc_scheduler {
    uint64_t mark; /* set by the library while this is a scheduler (base.h) */
    const lc_scheduler_ops *ops;
    lc_optimizer *optimizer;
    int64_t last_epoch;
    bool initial;                   /* during the first apply */
    int n_groups;                   /* of the optimizer; follows it when groups are added */
    double *base_lrs;               /* [LC_MAX_PARAM_GROUPS]; owned */
    double args[LC_MAX_SCHED_ARGS]; /* in the order of ops->args */
    double state[LC_MAX_SCHED_STATE];
    int64_t *milestones; /* sorted; owned */
    int n_milestones;
    lc_scheduler **children; /* SequentialLR, ChainedScheduler; owned */
    int n_children;
    lc_lambda_fn *lambda;
    void *lambda_ctx;
    lc_scheduler *parent; /* the schedule that this one is a child of; NULL: none */
    void *reserved[6];
};

typedef struct lc_step_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    int64_t step_size;
    double gamma;
} lc_step_lr_args;
LC_DEFAULTS(lc_step_lr, lc_step_lr_args, .gamma = 0.1)
typedef struct lc_multi_step_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    const int64_t *milestones; /* copied; a repeated one counts twice */
    int n_milestones;
    double gamma;
} lc_multi_step_lr_args;
LC_DEFAULTS(lc_multi_step_lr, lc_multi_step_lr_args, .gamma = 0.1)
typedef struct lc_exponential_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    double gamma; /* REQUIRED */
} lc_exponential_lr_args;
LC_DEFAULTS(lc_exponential_lr, lc_exponential_lr_args, .gamma = LC_NOT_GIVEN)
typedef struct lc_constant_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    double factor;
    int64_t total_iters;
} lc_constant_lr_args;
LC_DEFAULTS(lc_constant_lr, lc_constant_lr_args, .factor = 1.0 / 3, .total_iters = 5)
typedef struct lc_linear_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    double start_factor, end_factor;
    int64_t total_iters;
} lc_linear_lr_args;
LC_DEFAULTS(lc_linear_lr, lc_linear_lr_args, .start_factor = 1.0 / 3, .end_factor = 1, .total_iters = 5)
typedef struct lc_cosine_annealing_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    int64_t T_max; /* REQUIRED */
    double eta_min;
} lc_cosine_annealing_lr_args;
LC_DEFAULTS(lc_cosine_annealing_lr, lc_cosine_annealing_lr_args, )
typedef struct lc_cosine_annealing_warm_restarts_args {
    size_t size;
    lc_optimizer *optimizer;
    int64_t T_0; /* REQUIRED */
    int64_t T_mult;
    double eta_min;
} lc_cosine_annealing_warm_restarts_args;
LC_DEFAULTS(lc_cosine_annealing_warm_restarts, lc_cosine_annealing_warm_restarts_args, .T_mult = 1)
typedef struct lc_polynomial_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    int64_t total_iters;
    double power;
} lc_polynomial_lr_args;
LC_DEFAULTS(lc_polynomial_lr, lc_polynomial_lr_args, .total_iters = 5, .power = 1)
/* Momentum (or beta1) goes from max_momentum to base_momentum and back. */
typedef struct lc_one_cycle_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    double max_lr;       /* REQUIRED */
    int64_t total_steps; /* REQUIRED, unless epochs and steps_per_epoch are given */
    int64_t epochs, steps_per_epoch;
    double pct_start;
    bool linear; /* anneal_strategy="linear" */
    bool no_cycle_momentum;
    double base_momentum, max_momentum, div_factor, final_div_factor;
    bool three_phase;
} lc_one_cycle_lr_args;
LC_DEFAULTS(lc_one_cycle_lr, lc_one_cycle_lr_args, .max_lr = LC_NOT_GIVEN, .pct_start = 0.3, .base_momentum = 0.85,
            .max_momentum = 0.95, .div_factor = 25, .final_div_factor = 1e4)
typedef enum lc_cyclic_mode { LC_TRIANGULAR = 0, LC_TRIANGULAR2 = 1, LC_EXP_RANGE = 2 } lc_cyclic_mode;
/* Momentum (or beta1) goes from max_momentum to base_momentum and back. */
typedef struct lc_cyclic_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    double base_lr, max_lr;               /* REQUIRED */
    int64_t step_size_up, step_size_down; /* step_size_down -1: as step_size_up */
    lc_cyclic_mode mode;
    double gamma;
    bool no_cycle_momentum;
    double base_momentum, max_momentum;
} lc_cyclic_lr_args;
LC_DEFAULTS(lc_cyclic_lr, lc_cyclic_lr_args, .base_lr = LC_NOT_GIVEN, .max_lr = LC_NOT_GIVEN, .step_size_up = 2000,
            .step_size_down = -1, .gamma = 1, .base_momentum = 0.8, .max_momentum = 0.9)
/* Stepped with lc_scheduler_step_metric. */
typedef struct lc_reduce_lr_on_plateau_args {
    size_t size;
    lc_optimizer *optimizer;
    bool max; /* mode="max": a larger metric is better */
    double factor;
    int64_t patience;
    double threshold; /* relative to the best, unless absolute */
    bool absolute;    /* threshold_mode="abs" */
    int64_t cooldown;
    double min_lr, eps;
} lc_reduce_lr_on_plateau_args;
LC_DEFAULTS(lc_reduce_lr_on_plateau, lc_reduce_lr_on_plateau_args, .factor = 0.1, .patience = 10, .threshold = 1e-4,
            .eps = 1e-8)
/* Runs one schedule after another; milestones[i] is the step at which schedule i + 1 takes over. Owns the schedules,
 * and frees them if it fails. */
typedef struct lc_sequential_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    lc_scheduler *const *schedulers;
    int n_schedulers;
    const int64_t *milestones; /* n_schedulers - 1 */
} lc_sequential_lr_args;
LC_DEFAULTS(lc_sequential_lr, lc_sequential_lr_args, )
/* Steps several schedules at once; their factors multiply. Owns the schedules, and frees them if it fails. */
typedef struct lc_chained_scheduler_args {
    size_t size;
    lc_optimizer *optimizer;
    lc_scheduler *const *schedulers;
    int n_schedulers;
} lc_chained_scheduler_args;
LC_DEFAULTS(lc_chained_scheduler, lc_chained_scheduler_args, )
/* From each group's rate to swa_lr (-1: the group's initial rate) in anneal_epochs (0: at once), along a cosine. */
typedef struct lc_swa_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    double swa_lr;
    int64_t anneal_epochs;
    bool linear;
} lc_swa_lr_args;
LC_DEFAULTS(lc_swa_lr, lc_swa_lr_args, .swa_lr = -1, .anneal_epochs = 10)
/* base_lr times fn(ctx, epoch). */
typedef struct lc_lambda_lr_args {
    size_t size;
    lc_optimizer *optimizer;
    lc_lambda_fn *fn;
    void *ctx;
} lc_lambda_lr_args;
LC_DEFAULTS(lc_lambda_lr, lc_lambda_lr_args, )

#define lc_step_lr(...)        LC_CALL(lc_step_lr, lc_step_lr_args, .optimizer = __VA_ARGS__)
#define lc_multi_step_lr(...)  LC_CALL(lc_multi_step_lr, lc_multi_step_lr_args, .optimizer = __VA_ARGS__)
#define lc_swa_lr(...)         LC_CALL(lc_swa_lr, lc_swa_lr_args, .optimizer = __VA_ARGS__)
#define lc_exponential_lr(...) LC_CALL(lc_exponential_lr, lc_exponential_lr_args, .optimizer = __VA_ARGS__)
#define lc_constant_lr(...)    LC_CALL(lc_constant_lr, lc_constant_lr_args, .optimizer = __VA_ARGS__)
#define lc_linear_lr(...)      LC_CALL(lc_linear_lr, lc_linear_lr_args, .optimizer = __VA_ARGS__)
#define lc_cosine_annealing_lr(...)                                                                                    \
    LC_CALL(lc_cosine_annealing_lr, lc_cosine_annealing_lr_args, .optimizer = __VA_ARGS__)
#define lc_cosine_annealing_warm_restarts(...)                                                                         \
    LC_CALL(lc_cosine_annealing_warm_restarts, lc_cosine_annealing_warm_restarts_args, .optimizer = __VA_ARGS__)
#define lc_polynomial_lr(...) LC_CALL(lc_polynomial_lr, lc_polynomial_lr_args, .optimizer = __VA_ARGS__)
#define lc_one_cycle_lr(...)  LC_CALL(lc_one_cycle_lr, lc_one_cycle_lr_args, .optimizer = __VA_ARGS__)
#define lc_cyclic_lr(...)     LC_CALL(lc_cyclic_lr, lc_cyclic_lr_args, .optimizer = __VA_ARGS__)
#define lc_reduce_lr_on_plateau(...)                                                                                   \
    LC_CALL(lc_reduce_lr_on_plateau, lc_reduce_lr_on_plateau_args, .optimizer = __VA_ARGS__)
#define lc_sequential_lr(...)     LC_CALL(lc_sequential_lr, lc_sequential_lr_args, .optimizer = __VA_ARGS__)
#define lc_chained_scheduler(...) LC_CALL(lc_chained_scheduler, lc_chained_scheduler_args, .optimizer = __VA_ARGS__)
#define lc_lambda_lr(...)         LC_CALL(lc_lambda_lr, lc_lambda_lr_args, .optimizer = __VA_ARGS__)

LC_BEGIN_DECLS

LC_API lc_scheduler *lc_step_lr_with(const lc_step_lr_args *args);
LC_API lc_scheduler *lc_multi_step_lr_with(const lc_multi_step_lr_args *args);
LC_API lc_scheduler *lc_swa_lr_with(const lc_swa_lr_args *args);
LC_API lc_scheduler *lc_exponential_lr_with(const lc_exponential_lr_args *args);
LC_API lc_scheduler *lc_constant_lr_with(const lc_constant_lr_args *args);
LC_API lc_scheduler *lc_linear_lr_with(const lc_linear_lr_args *args);
LC_API lc_scheduler *lc_cosine_annealing_lr_with(const lc_cosine_annealing_lr_args *args);
LC_API lc_scheduler *lc_cosine_annealing_warm_restarts_with(const lc_cosine_annealing_warm_restarts_args *args);
LC_API lc_scheduler *lc_polynomial_lr_with(const lc_polynomial_lr_args *args);
LC_API lc_scheduler *lc_one_cycle_lr_with(const lc_one_cycle_lr_args *args);
LC_API lc_scheduler *lc_cyclic_lr_with(const lc_cyclic_lr_args *args);
LC_API lc_scheduler *lc_reduce_lr_on_plateau_with(const lc_reduce_lr_on_plateau_args *args);
LC_API lc_scheduler *lc_sequential_lr_with(const lc_sequential_lr_args *args);
LC_API lc_scheduler *lc_chained_scheduler_with(const lc_chained_scheduler_args *args);
LC_API lc_scheduler *lc_lambda_lr_with(const lc_lambda_lr_args *args);

/* Makes a schedule by the name of PyTorch's class, with numbers under the names of ops->args, taken literally.
 * `milestones` is for MultiStepLR (the list) and SequentialLR; `children` for SequentialLR and ChainedScheduler, which
 * own them then; if it fails, they remain the caller's. On success the schedule has already been applied (last_epoch
 * 0). */
LC_API lc_status lc_scheduler_by_name(const char *name, lc_optimizer *opt, const lc_named_number *args, int n_args,
                                      const int64_t *milestones, int n_milestones, lc_scheduler *const *children,
                                      int n_children, lc_scheduler **out) LC_MUST_USE;
/* Frees the schedule and those it owns; NULL is fine. */
LC_API void lc_scheduler_free(lc_scheduler *s);

/* Advances by one step. Schedules that need a metric return an error that says so. */
LC_API lc_status lc_scheduler_step(lc_scheduler *s) LC_MUST_USE;
/* The same with a metric's value, which only ReduceLROnPlateau uses. */
LC_API lc_status lc_scheduler_step_metric(lc_scheduler *s, double metric) LC_MUST_USE;
LC_API bool lc_scheduler_needs_metric(const lc_scheduler *s);
LC_API const char *lc_scheduler_name(const lc_scheduler *s);

/* The state as named doubles ("last_epoch", "base_lrs.0", "1.last_epoch" of a child), for checkpoints: fn reads
 * *value to save and writes it to load. The learning rates themselves are hyperparameters of the optimizer's groups. */
typedef lc_status lc_scheduler_state_fn(void *ctx, const char *name, double *value);
LC_API lc_status lc_scheduler_visit_state(lc_scheduler *s, lc_scheduler_state_fn *fn, void *ctx) LC_MUST_USE;

LC_END_DECLS

#endif

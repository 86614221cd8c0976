/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers and learning-rate schedules.
 *
 * Parameters, gradients and optimizer state each lie in one flat buffer per data type; an optimizer's update is one
 * operator over ranges of them ("segments", one per parameter). An optimizer is its operators' vtable plus parameter
 * groups whose hyperparameters are plain doubles that may change every step without planning anew.
 *
 * To add an optimizer: one file in src/optim/ with an lc_optimizer_ops and its update operator, and a line in
 * registry.c. */
#ifndef LIGHTC_OPTIM_H
#define LIGHTC_OPTIM_H

#include <lightc/module.h>
#include <lightc/op.h>

#define LC_MAX_HYPER 12
#define LC_MAX_OPTIM_STATE 4

/* One parameter's place in the flat buffers. */
typedef struct lc_segment {
    lc_tensor *parameter;
    int64_t offset, count; /* elements, in the flat buffers */
    int64_t index;         /* of the parameter in `steps` */
} lc_segment;

typedef struct lc_param_group {
    char name[32]; /* "" or the user's */
    lc_tensor **parameters;
    int n_parameters;
    double hyper[LC_MAX_HYPER];   /* in the order of ops->hyper_names; [0] is always lr */
    double initial_lr;            /* schedulers compute from it */
} lc_param_group;

/* Everything an update operator needs; made by the engine when a step is planned. */
typedef struct lc_update {
    const lc_param_group *group;
    lc_tensor *parameters;  /* flat, 1-D, persistent: written */
    lc_tensor *gradients;   /* flat, 1-D, persistent */
    lc_tensor *grad_scale;  /* one element f32 (f64 for f64 parameters): multiply gradients by it (accumulation, clipping) */
    lc_tensor *steps;       /* [parameters of the optimizer] f64, persistent: updates done; written by the update */
    lc_tensor *const *state; /* flat, 1-D, persistent, one per ops->state_names: written */
    int n_segments;          /* parameters of this group that have a gradient in this window */
    const lc_segment *segments;
    const double *clip_value; /* NULL, or where the bound of clipping by value lives (after scaling) */
} lc_update;

typedef struct lc_optimizer_ops {
    size_t size; /* LC_OPTIMIZER_OPS_INIT */
    const char *name; /* "Adam", as in torch.optim */
    /* REQUIRED */
    const char *const *hyper_names; /* NULL-terminated: "lr", "weight_decay", ... */
    const double *hyper_defaults;
    const char *const *state_names; /* NULL-terminated, as in PyTorch's state dict: "exp_avg", ... */
    /* Records the update operator(s). Called when a step is planned. Hyperparameters are passed on with
     * lc_op_call_live, so that they are read anew at every step. */
    lc_status (*update)(lc_optimizer *opt, const lc_update *u);
    /* OPTIONAL (zeros): the value state buffer k starts with. */
    double (*initial_state)(const lc_optimizer *opt, const lc_param_group *group, int k);
    /* OPTIONAL (accept): check options; a clear error names the option and its range. */
    lc_status (*check)(const lc_optimizer *opt);
} lc_optimizer_ops;

#define LC_OPTIMIZER_OPS_INIT .size = sizeof(lc_optimizer_ops)

enum {
    LC_OPT_NESTEROV = 1,
    LC_OPT_MAXIMIZE = 2,
    LC_OPT_AMSGRAD = 4,
    LC_OPT_CENTERED = 8,
    LC_OPT_DECOUPLED_WEIGHT_DECAY = 16,
};

struct lc_optimizer {
    const lc_optimizer_ops *ops;
    unsigned flags; /* LC_OPT_* */
    lc_param_group *groups;
    int n_groups;
    lc_module *root;   /* whose parameters these are */
    lc_tensor *steps;  /* [parameters] f64: updates done, per parameter */
    lc_tensor *state[LC_MAX_OPTIM_STATE]; /* flat buffers, in the order of state_names */
    void *reserved[8];
};

LC_BEGIN_DECLS

/* Like lc_op_call for operators whose floats are read again from `floats` at every replay of the plan; the array must
 * outlive the graph's plans (it does when it is a group's `hyper`). Only while a step is being planned. */
LC_API lc_tensor *lc_op_call_live(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints,
                                  int n_float, const double *floats, lc_site site);

/* Records clipping of all gradients of `opt`'s parameters to a total norm (returned: the norm before clipping, a step
 * tensor of one element; keep it to read it) or to an absolute value; applies to the next lc_optimizer_step of opt.
 * torch.nn.utils.clip_grad_norm_: coefficient min(1, max_norm / (norm + 1e-6)). */
LC_API lc_tensor *lc_clip_grad_norm(lc_optimizer *opt, double max_norm);
LC_API void lc_clip_grad_value(lc_optimizer *opt, double clip_value);

/* Records the update of every parameter of `opt` that got a gradient since the last lc_zero_grad; gradients are
 * divided by the number of backward passes since then unless lc_graph_set_window gave another number. */
LC_API void lc_optimizer_step(lc_optimizer *opt);
/* The divisor of accumulated gradients for the next update (0: the number of backward passes). */
LC_API void lc_graph_set_window(lc_graph *g, double window);

LC_END_DECLS

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: a tree of named parts that own parameters and buffers, and (at its root) say what one step computes.
 *
 * A user's model is a struct whose first member is `lc_module base`. Layers (lc_linear, ...) are modules too; they
 * register themselves under a name in their parent, so that a parameter's name is its path: "l1.weight". Errors while
 * building (out of memory, a name used twice) are kept in the root; lc_module_status and lc_trainer_fit report the
 * first. */
#ifndef LIGHTC_MODULE_H
#define LIGHTC_MODULE_H

#include <lightc/graph.h>

typedef struct lc_module lc_module;
typedef struct lc_module_ops lc_module_ops;
typedef struct lc_trainer lc_trainer;

/* A named parameter or buffer of a module. */
typedef struct lc_module_tensor {
    const char *name;  /* within the module: "weight" */
    lc_tensor *tensor; /* owned reference */
    bool is_parameter; /* else a buffer (running statistics): saved, not trained */
    bool persistent;   /* saved in checkpoints (buffers may say no) */
} lc_module_tensor;

/* Embedded by users and layers; treat the fields as read-only. */
struct lc_module {
    uint64_t mark;            /* set by the library while this is a module (base.h) */
    const lc_module_ops *ops; /* root and user modules; NULL for plain layers */
    const char *type;         /* "Linear", shown in summaries; static */
    char *name;               /* within the parent; NULL at the root */
    lc_module *parent;
    lc_module **children;
    int n_children;
    lc_module_tensor *tensors;
    int n_tensors;
    bool training;
    uint64_t seed; /* root: of the initializers */
    lc_status status;
    char *error;
    lc_trainer *trainer; /* while attached */
    /* Modules with one input and one output (Linear, Sequential, yours if you set it): what lc_forward calls. */
    lc_tensor *(*forward)(lc_module *self, lc_tensor *x, lc_site site);
    void (*release)(lc_module *self);            /* frees a layer's memory besides parameters; NULL for most */
    struct lc__hyperparameters *hyperparameters; /* root: hyperparameters.h; NULL: none */
    void *reserved[4];
};

/* How a parameter starts. Formulas are those of torch.nn.init. */
typedef enum lc_init_kind {
    LC_INIT_ZEROS = 0,
    LC_INIT_ONES,
    LC_INIT_CONSTANT,        /* a */
    LC_INIT_UNIFORM,         /* [a, b) */
    LC_INIT_NORMAL,          /* mean a, standard deviation b */
    LC_INIT_KAIMING_UNIFORM, /* bound sqrt(6 / ((1 + a^2) fan_in)); a = sqrt(5) is nn.Linear's default */
    LC_INIT_KAIMING_NORMAL,
    LC_INIT_XAVIER_UNIFORM, /* gain a (0 = 1) */
    LC_INIT_XAVIER_NORMAL,
} lc_init_kind;

typedef struct lc_init {
    lc_init_kind kind;
    double a, b;
    int64_t fan_in; /* 0: from the shape (dim 1 times the rest) */
} lc_init;

LC_BEGIN_DECLS

/* Makes `m` a root module: `ops` says what it computes, `seed` keys its initial parameters. */
LC_API void lc_module_init(lc_module *m, const lc_module_ops *ops, uint64_t seed);
/* Makes `m` a part named `name` of `parent` (any struct that starts with an lc_module). `type` is static. */
LC_API void lc_module_init_child(lc_module *m, void *parent, const char *name, const char *type);
/* Frees parameters, buffers and bookkeeping of `m` and everything registered below it. */
LC_API void lc_module_release(lc_module *m);

/* Registers a trainable parameter; the initial value depends only on the root's seed, and the parameter's path and
 * data type. Returns a borrowed tensor (an error tensor after an error, so that callers need not check). */
LC_API lc_tensor *lc_module_add_parameter(lc_module *m, const char *name, lc_dtype dtype, lc_layout layout, int ndim,
                                          const int64_t *shape, lc_init init);
/* Registers a tensor of another module as a parameter of this one as well, under a name that is not used here yet. It
 * is trained and saved once, under its first name. To use another layer's weight none of this is needed: lc_linear(x,
 * m->tok.weight, NULL). */
LC_API lc_tensor *lc_module_share_parameter(lc_module *m, const char *name, lc_tensor *parameter);
/* Initializes a parameter or buffer of m in another way than its layer's default (torch.nn.init). */
LC_API void lc_module_reset_parameter(lc_module *m, const char *name, lc_init init);
LC_API lc_tensor *lc_module_add_buffer(lc_module *m, const char *name, lc_dtype dtype, int ndim, const int64_t *shape,
                                       lc_init init, bool persistent);

/* The first error while building, or LC_OK. */
LC_API lc_status lc_module_status(const lc_module *m) LC_MUST_USE;

/* Training or evaluation mode, for m and everything below. */
LC_API void lc_module_train(lc_module *m, bool training);

/* Visits every parameter and buffer in registration order, depth first; tied ones once, under their first name.
 * `path` is borrowed during the call. Stops at the first status that is not LC_OK and returns it. */
typedef lc_status lc_module_visit_fn(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t);
LC_API lc_status lc_module_visit(lc_module *m, lc_module_visit_fn *fn, void *ctx) LC_MUST_USE;
/* The parameter or buffer at that path, or NULL. */
LC_API lc_tensor *lc_module_find(lc_module *m, const char *path);
LC_API int64_t lc_module_parameter_count(lc_module *m, bool trainable_only);
LC_API lc_module *lc_module_root(lc_module *m);

/* Keeps the first error in m's root (and gives it the path of m): for layers and constructors that return nothing. */
LC_API lc_status lc_module_fail(lc_module *m, lc_status status, const char *format, ...) LC_PRINTF(3, 4);

/* A list of parameters, for optimizer groups: those of `m` for which `filter` says yes (NULL: all), each once. The
 * list is freed with free(). */
typedef bool lc_parameter_filter(void *ctx, const char *path, lc_module *owner, lc_tensor *parameter);
LC_API lc_status lc_module_parameters(lc_module *m, lc_parameter_filter *filter, void *ctx, lc_tensor ***list,
                                      int *n) LC_MUST_USE;

/* Whether gradients are computed for the parameters of m and everything below (freezing). */
LC_API void lc_module_requires_grad(lc_module *m, bool requires_grad);

/* module->forward: lc_forward(&m->net, x) for any module with one input. */
LC_API lc_tensor *lc_forward_at(void *module, lc_tensor *x, lc_site site);
#define lc_forward(module, x) lc_forward_at(module, x, LC_HERE)

LC_END_DECLS

#endif

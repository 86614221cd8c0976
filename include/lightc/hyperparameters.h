/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters: a struct of the program's own and the table that describes it (lc_option in options.h), kept with a
 * module. They are saved with every checkpoint, handed to the loggers when a run begins, and read back from a
 * checkpoint before there is a model, so that it can be built from them (Lightning's save_hyperparameters and
 * load_from_checkpoint):
 *
 *     typedef struct { int64_t width; double lr; } settings;
 *     static const lc_option fields[] = {LC_FIELD(settings, width, "of the hidden layer"), LC_FIELD(settings, lr, "")};
 *
 *     settings s = {.width = 64, .lr = 1e-3};
 *     LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, fields, 2, &s, argc, argv));
 *     lc_module_init(&m.base, &ops, seed);
 *     lc_module_save_hyperparameters(&m.base, fields, 2, &s);
 *
 *     LC_MAIN_TRY(lc_hyperparameters_load("best.ckpt", fields, 2, &s, &storage));      elsewhere, later
 *     ... build m from s ...
 *     LC_MAIN_TRY(lc_module_load_checkpoint(&m.base, "best.ckpt", true));
 *
 * With a module class, which says how a module is made from its hyperparameters, one call does all of this, and `lightc
 * run` can train the module from a shared object (plugin.h). */
#ifndef LIGHTC_HYPERPARAMETERS_H
#define LIGHTC_HYPERPARAMETERS_H

#include <lightc/options.h>

typedef struct lc_module_class {
    size_t size; /* LC_MODULE_CLASS_INIT(name); in C++ LC_OPS */
    const char *name;
    /* ---- REQUIRED ---- */
    size_t module_size; /* of the struct that begins with an lc_module */
    /* Makes the module: lc_module_init(self, &ops, seed), then its parts. `values` are the hyperparameters, which
     * belong to the module and live as long as it. Errors of layers may stay in the module (lc_module_status). */
    lc_status (*init)(lc_module *self, const void *values, uint64_t seed);
    /* ---- OPTIONAL ---- */
    const lc_option *fields;
    int n_fields;
    size_t values_size;
    const void *defaults;             /* a struct of values_size; NULL: zeros */
    void (*release)(lc_module *self); /* frees what init allocated besides parameters and submodules; also called after
                                         init failed */
} lc_module_class;

#define LC_MODULE_CLASS_INIT(text) .size = sizeof(lc_module_class), .name = (text)

LC_BEGIN_DECLS

/* Says which struct holds the hyperparameters of a root module. The table and the values stay the program's and outlive
 * the module; the values are read when a run begins and at every checkpoint, and a tuner may change them. An error is
 * kept in the module. */
LC_API void lc_module_save_hyperparameters(lc_module *m, const lc_option *fields, int n, void *values);
/* Returns that struct; n is 0 if there is none. */
LC_API lc_option_set lc_module_hyperparameters(const lc_module *m);
/* Sets the fields of `values` that the checkpoint has; the others keep what they hold. A hyperparameter that is not
 * among the fields is an error that names it. Texts are stored in *storage (lc_options_free). */
LC_API lc_status lc_hyperparameters_load(const char *checkpoint, const lc_option *fields, int n, void *values,
                                         void **storage) LC_MUST_USE;

/* Makes a module of that class with a copy of `values` (NULL: the defaults); texts in them must outlive it. */
LC_API lc_status lc_module_new(const lc_module_class *c, const void *values, uint64_t seed,
                               lc_module **out) LC_MUST_USE;
/* Makes a module with the hyperparameters and the weights of a checkpoint (strict: exactly the same names; see
 * lc_module_load_checkpoint). */
LC_API lc_status lc_module_load_from_checkpoint(const lc_module_class *c, const char *checkpoint, bool strict,
                                                lc_module **out) LC_MUST_USE;
/* Frees a module that lc_module_new or lc_module_load_from_checkpoint made. NULL is fine. */
LC_API void lc_module_free(lc_module *m);

LC_END_DECLS
#endif

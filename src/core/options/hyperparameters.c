/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters of a module and in checkpoints; modules made from a class (hyperparameters.h); and config.json, the
 * file that keeps all options of a run. */
#include "core/options/hyperparameters.h"

#include "base/args.h"
#include "base/handle.h"
#include "module/module_class.h"
#include "base/io.h"
#include "core/options/options.h"

#include <stdlib.h>
#include <string.h>

#define KEY "hyper_parameters"

static lc_status attach(lc_module *m, const lc_option *fields, int n, void *values)
{
    if (m->parent) return lc_module_fail(m, LC_ERR_ARGUMENT, "hyperparameters belong to the root module");
    if (n < 0 || (n > 0 && (!fields || !values)))
        return lc_module_fail(m, LC_ERR_ARGUMENT, "hyperparameters need a table of fields and a struct of values");
    lc_status status = lc__option_rows_check(fields, n);
    if (status < 0) return lc_module_fail(m, status, "%s", lc_error_message());
    if (!m->hyperparameters) m->hyperparameters = calloc(1, sizeof *m->hyperparameters);
    if (!m->hyperparameters) return lc_module_fail(m, LC_ERR_MEMORY, "out of memory: hyperparameters");
    m->hyperparameters->set = (lc_option_set){"hyperparameters", fields, n, values};
    return LC_OK;
}

void lc_module_save_hyperparameters(lc_module *m, const lc_option *fields, int n, void *values)
{
    LC__IS(m, MODULE, );
    (void)attach(m, fields, n, values); /* the module keeps the error */
}

lc_option_set lc_module_hyperparameters(const lc_module *m)
{
    LC__IS(m, MODULE, (lc_option_set){0});
    return m && m->hyperparameters ? m->hyperparameters->set : (lc_option_set){0};
}

lc_option_set lc__datamodule_hyperparameters(const lc_datamodule *d)
{
    if (!d || !d->ops || !LC__SLOT(d->ops, hyperparameters)) return (lc_option_set){0};
    return d->ops->hyperparameters(d->self);
}

lc_status lc__hyperparameters_write(const lc_module *m, const lc_datamodule *d, lc_state *root)
{
    lc_option_set set = lc_module_hyperparameters(m), data = lc__datamodule_hyperparameters(d);
    lc_state *o;
    if (set.n) {
        LC_TRY(lc_state_set_object(root, KEY, &o));
        LC_TRY(lc__options_write(&set, o));
    }
    if (data.n) {
        LC_TRY(lc_state_set_object(root, "datamodule_" KEY, &o));
        LC_TRY(lc__options_write(&data, o));
    }
    return LC_OK;
}

lc_status lc__hyperparameters_read(const lc_checkpoint *c, const lc_option_set *set, void **storage)
{
    const lc_state *o = lc_state_find(lc_checkpoint_state(c), KEY);
    if (!o && set->n)
        return lc_fail(LC_ERR_NOT_FOUND,
                       "the checkpoint %s has no hyperparameters; its module was trained without "
                       "lc_module_save_hyperparameters",
                       lc_checkpoint_path(c));
    return o ? lc__options_read(set, 1, o, "hyperparameters of the checkpoint: ", storage) : LC_OK;
}

lc_status lc_hyperparameters_load(const char *checkpoint, const lc_option *fields, int n, void *values, void **storage)
{
    LC__NEEDS(checkpoint, LC_ERR_ARGUMENT);
    LC__NEEDS(values, LC_ERR_ARGUMENT);
    LC__NEEDS(storage, LC_ERR_ARGUMENT);
    lc_option_set set = {"hyperparameters", fields, n, values};
    lc_checkpoint *c;
    LC_TRY(lc__option_rows_check(fields, n));
    LC_TRY(lc_checkpoint_open(checkpoint, &c));
    lc_status s = lc__hyperparameters_read(c, &set, storage);
    lc_checkpoint_close(c);
    return s;
}

/* ---- classes ---- */

static lc_status make(const lc_module_class *c, const void *values, uint64_t seed, lc_module **out)
{
    lc_status status = LC_OK;
    lc_module *m = calloc(1, c->module_size);
    void *copy = calloc(1, c->values_size ? c->values_size : 1);
    bool began = false;
    *out = NULL;
    if (!m || !copy) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: a %s", c->name);
        goto done;
    }
    if (!values) values = c->defaults;
    if (values && c->values_size) memcpy(copy, values, c->values_size);
    began = true;
    LC_TRY_GOTO(status, done, c->init(m, copy, seed));
    if (!m->ops) {
        status = lc_fail(LC_ERR_CONFIG, "init of %s did not call lc_module_init", c->name);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc_module_status(m));
    LC_TRY_GOTO(status, done, attach(m, c->fields, c->n_fields, copy));
    m->hyperparameters->c = c;
    m->hyperparameters->values = copy;
    *out = m;
    return LC_OK;
done:
    if (began) {
        if (LC__SLOT(c, release)) c->release(m);
        lc_module_release(m);
    }
    free(copy);
    free(m);
    return lc_fail_context(status, "making %s", c->name);
}

lc_status lc_module_new(const lc_module_class *c, const void *values, uint64_t seed, lc_module **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_TRY(lc__module_class_check(c));
    return make(c, values, seed, out);
}

void lc_module_free(lc_module *m)
{
    if (!m) return;
    LC__IS(m, MODULE, );
    if (!m->hyperparameters || !m->hyperparameters->c) {
        (void)lc_fail(LC_ERR_ARGUMENT, "lc_module_free: this module was not made by lc_module_new; release it with "
                                       "lc_module_release");
        return;
    }
    struct lc__hyperparameters h = *m->hyperparameters;
    if (LC__SLOT(h.c, release)) h.c->release(m);
    lc_module_release(m);
    lc_options_free(h.storage);
    free(h.values);
    free(m);
}

/* ---- config.json ---- */

lc_status lc__config_write(const lc_trainer_options *opt, const char *run_dir)
{
    lc_status status = LC_OK;
    lc_option_set set = {.target = (void *)(uintptr_t)opt};
    lc__str trainer = {0}, all = {0};
    char *path = NULL;
    set.options = lc_trainer_option_table(&set.n);
    lc__options_json(&set, 1, &trainer);
    lc__str_add(&all, "{%s%s%s\n}\n", opt->own_config ? opt->own_config : "", opt->own_config ? "," : "",
                trainer.s ? trainer.s : "");
    if (trainer.failed || all.failed) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: the configuration of the run");
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__path_join(run_dir, "config.json", &path));
    status = lc__replace_file(&lc__io_system, path, all.s, all.n);
done:
    free(path);
    lc__str_free(&trainer);
    lc__str_free(&all);
    return status;
}

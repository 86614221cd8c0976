/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters with their module, in checkpoints, for loggers; modules made from a class (hyperparameters.h), and
 * the file that keeps all options of a run. */
#include "core/resume/hyperparameters.h"
#include "base/handle.h"

#include "base/io.h"
#include "core/options/options.h"
#include "core/resume/run_state.h"

#include <lightc/checkpoint.h>

#include <stdlib.h>
#include <string.h>

#define KEY "hyper_parameters"

static lc_status attach(lc_module *m, const lc_option *fields, int n, void *values)
{
    if (m->parent) return lc_module_fail(m, LC_ERR_ARGUMENT, "hyperparameters belong to the root module");
    if (n < 0 || (n > 0 && (!fields || !values)))
        return lc_module_fail(m, LC_ERR_ARGUMENT, "hyperparameters need a table of fields and a struct of values");
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
    size_t end = offsetof(lc_datamodule_ops, hyperparameters) + sizeof d->ops->hyperparameters;
    if (!d || !d->ops || d->ops->size < end || !d->ops->hyperparameters) return (lc_option_set){0};
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

static lc_status load(const lc_checkpoint *c, const lc_option_set *set, void **storage)
{
    const lc_state *o = lc_state_find(lc_checkpoint_state(c), KEY);
    if (!o && set->n)
        return lc_fail(LC_ERR_NOT_FOUND,
                       "the checkpoint %s holds no hyperparameters; its module was trained without "
                       "lc_module_save_hyperparameters",
                       lc_checkpoint_path(c));
    return o ? lc__options_read(set, 1, o, "hyperparameters of the checkpoint: ", storage) : LC_OK;
}

lc_status lc_hyperparameters_load(const char *checkpoint, const lc_option *fields, int n, void *values, void **storage)
{
    LC__NEEDS(checkpoint, LC_ERR_ARGUMENT);
    lc_option_set set = {"hyperparameters", fields, n, values};
    lc_checkpoint *c;
    LC_TRY(lc_checkpoint_open(checkpoint, &c));
    lc_status s = load(c, &set, storage);
    lc_checkpoint_close(c);
    return s;
}

/* ---- loggers ---- */

static lc_hparam hparam(const char *name, const lc_state *node)
{
    lc_hparam p = {.name = name};
    bool b = false;
    lc_status s = LC_OK;
    switch (lc_state_kind_of(node)) {
    case LC_STATE_BOOL:
        s = lc_state_get_bool(node, NULL, &b);
        p.kind = LC_HPARAM_BOOL, p.integer = b;
        break;
    case LC_STATE_INT:
        s = lc_state_get_int(node, NULL, &p.integer);
        p.kind = LC_HPARAM_INT;
        break;
    case LC_STATE_DOUBLE:
        s = lc_state_get_double(node, NULL, &p.number);
        p.kind = LC_HPARAM_FLOAT;
        break;
    case LC_STATE_TEXT:
        s = lc_state_get_text(node, NULL, &p.text);
        p.kind = LC_HPARAM_TEXT;
        break;
    default:
        break;
    }
    if (s < 0) p.kind = LC_HPARAM_NONE;
    return p;
}

/* A hyperparameter that module and datamodule both have must be the same in both. */
static lc_status check_same(const lc_option_set *module, const lc_option_set *data)
{
    for (int i = 0; i < module->n; i++)
        for (int k = 0; k < data->n; k++) {
            const lc_option *a = &module->options[i], *b = &data->options[k];
            char x[256], y[256];
            if (strcmp(a->name, b->name) != 0) continue;
            lc_option_get_text(a, module->target, x, sizeof x);
            lc_option_get_text(b, data->target, y, sizeof y);
            if (strcmp(x, y) != 0)
                return lc_fail(LC_ERR_CONFIG,
                               "the hyperparameter %s is %.60s in the module and %.60s in the datamodule", a->name, x,
                               y);
        }
    return LC_OK;
}

lc_status lc__hyperparameters_log(lc_trainer *t, const lc_module *m)
{
    lc_option_set sets[] = {lc_module_hyperparameters(m), lc__datamodule_hyperparameters(lc_trainer_datamodule(t))};
    lc_status status = LC_OK;
    lc_state *root = NULL;
    lc_hparam *list = NULL;
    char *names = NULL;
    size_t bytes = 0;
    int n = 0;
    if ((!sets[0].n && !sets[1].n) || !lc_trainer_get_options(t)->enable_autolog_hparams) return LC_OK;
    LC_TRY(check_same(&sets[0], &sets[1]));
    LC_TRY(lc_state_new(&root));
    for (int k = 0; k < 2; k++) LC_TRY_GOTO(status, done, lc__options_write(&sets[k], root));
    for (int64_t i = 0; i < lc_state_length(root); i++) bytes += strlen(lc_state_key_at(root, i)) + 1;
    list = malloc((size_t)lc_state_length(root) * sizeof *list);
    names = malloc(bytes);
    if (!list || !names) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: hyperparameters for loggers");
        goto done;
    }
    for (char *name = names; n < lc_state_length(root); name++) {
        list[n] = hparam(strcpy(name, lc_state_key_at(root, n)), lc_state_at(root, n));
        for (; *name; name++)
            if (*name == '.') *name = '/';
        n++;
    }
    status = lc_trainer_log_hyperparameters(t, list, n);
done:
    lc_state_free(root);
    free(list);
    free(names);
    return status;
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
        if (c->release) c->release(m);
        lc_module_release(m);
    }
    free(copy);
    free(m);
    return lc_fail_context(status, "making %s", c->name);
}

static lc_status check_class(const lc_module_class *c)
{
    if (c && c->size == sizeof *c && c->name && c->init && c->module_size >= sizeof(lc_module)) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "a module class starts with LC_MODULE_CLASS_INIT(name), and has an init and the "
                                    "size of a struct that begins with an lc_module");
}

lc_status lc_module_new(const lc_module_class *c, const void *values, uint64_t seed, lc_module **out)
{
    LC_TRY(check_class(c));
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return make(c, values, seed, out);
}

lc_status lc_module_load_from_checkpoint(const lc_module_class *c, const char *checkpoint, bool strict, lc_module **out)
{
    lc_status status = LC_OK;
    lc_checkpoint *ckpt = NULL;
    void *storage = NULL, *values = NULL;
    lc_module *m = NULL;
    LC_TRY(check_class(c));
    LC__NEEDS(checkpoint, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    values = calloc(1, c->values_size ? c->values_size : 1);
    if (!values) return lc_fail(LC_ERR_MEMORY, "out of memory: hyperparameters of a %s", c->name);
    if (c->defaults && c->values_size) memcpy(values, c->defaults, c->values_size);
    lc_option_set set = {"hyperparameters", c->fields, c->n_fields, values};
    LC_TRY_GOTO(status, done, lc_checkpoint_open(checkpoint, &ckpt));
    LC_TRY_GOTO(status, done, load(ckpt, &set, &storage));
    LC_TRY_GOTO(status, done, make(c, values, 0, &m));
    lc_load_options how = LC_LOAD_OPTIONS_INIT;
    how.not_strict = !strict;
    LC_TRY_GOTO(status, done, lc__load_weights(m, lc_checkpoint_part(ckpt, LC_CKPT_MODEL), &how, NULL));
    m->hyperparameters->storage = storage;
    *out = m;
    m = NULL;
    storage = NULL;
done:
    lc_module_free(m);
    lc_options_free(storage);
    lc_checkpoint_close(ckpt);
    free(values);
    return status;
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
    if (h.c->release) h.c->release(m);
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

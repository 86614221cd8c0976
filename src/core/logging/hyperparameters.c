/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the hyperparameters of module and datamodule to loggers. */
#include "core/logging/logging.h"
#include "core/options/hyperparameters.h"
#include "core/options/options.h"

#include "core/hooks/trainer_internal.h"

#include <stdlib.h>
#include <string.h>

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
            char space[2][LC__OPTION_SPACE];
            if (strcmp(a->name, b->name) != 0) continue;
            const char *x = lc__option_text(a, module->target, space[0]);
            const char *y = lc__option_text(b, data->target, space[1]);
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

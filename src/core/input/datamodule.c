/* SPDX-License-Identifier: Apache-2.0 */
/* Datamodules in a run, and the data hooks that a datamodule and a module share. */
#include "base/args.h"
#include "core/input/input.h"
#include "core/hooks/hooks.h"
#include "core/hooks/trainer_internal.h"
#include "base/handle.h"

#include <stdlib.h>
#include <string.h>

lc_status lc__datamodule_attach(lc_trainer *t, const lc_datamodule *d)
{
    lc__datamodule *own = &t->datamodule;
    memset(own, 0, sizeof *own);
    if (d) {
        LC_TRY(lc__ops_take(&own->ops, sizeof own->ops, d->ops, offsetof(lc_datamodule_ops, name) + sizeof(char *),
                            "a datamodule", "LC_DATAMODULE_OPS_INIT(\"name\")"));
        if (!own->ops.name)
            return lc_fail(LC_ERR_ARGUMENT, "a datamodule needs ops that start with LC_DATAMODULE_OPS_INIT(\"name\")");
        own->given = *d;
        if (t->args->train_dataloader || t->args->val_dataloader || t->args->n_dataloaders)
            return lc_fail(LC_ERR_CONFIG, "%s was given both a datamodule (%s) and loaders; pass one of the two",
                           lc_stage_name(t->stage), own->ops.name);
    }
    const lc_datamodule_ops *o = &own->ops;
    const lc_module_ops *m = &t->mo;
    t->input->transfers = o->on_before_batch_transfer || o->transfer_batch_to_device || o->on_after_batch_transfer ||
                          m->on_before_batch_transfer || m->transfer_batch_to_device || m->on_after_batch_transfer;
    return LC_OK;
}

/* ---- loaders ---- */

typedef lc_status data_loaders(void *self, lc_trainer *t, lc_loaders *out);
typedef lc_status module_loaders(lc_module *self, lc_loaders *out);

static void find(const lc_trainer *t, lc_hook hook, data_loaders **data, module_loaders **module)
{
    const lc_datamodule_ops *d = &t->datamodule.ops;
    const lc_module_ops *m = &t->mo;
    switch (hook) {
    case LC_HOOK_TRAIN_DATALOADER:
        *data = d->train_dataloader, *module = m->train_dataloader;
        break;
    case LC_HOOK_TEST_DATALOADER:
        *data = d->test_dataloader, *module = m->test_dataloader;
        break;
    case LC_HOOK_PREDICT_DATALOADER:
        *data = d->predict_dataloader, *module = m->predict_dataloader;
        break;
    default:
        *data = d->val_dataloader, *module = m->val_dataloader;
    }
    if (d->size) *module = NULL;
}

bool lc__has_loaders(const lc_trainer *t, lc_stage stage)
{
    data_loaders *data;
    module_loaders *module;
    find(t,
         stage == LC_STAGE_FIT       ? LC_HOOK_TRAIN_DATALOADER
         : stage == LC_STAGE_TEST    ? LC_HOOK_TEST_DATALOADER
         : stage == LC_STAGE_PREDICT ? LC_HOOK_PREDICT_DATALOADER
                                     : LC_HOOK_VAL_DATALOADER,
         &data, &module);
    return data || module;
}

lc_status lc__ask_loaders(lc_trainer *t, lc_hook hook, lc_loaders *out)
{
    data_loaders *data;
    module_loaders *module;
    find(t, hook, &data, &module);
    const char *whose = t->datamodule.ops.size ? t->datamodule.ops.name : t->mo.name;
    if (!data && !module)
        return lc_fail(LC_ERR_CONFIG, "%s has no %s, and %s was given no %s", whose, lc_hook_name(hook),
                       lc_stage_name(t->stage),
                       hook == LC_HOOK_TRAIN_DATALOADER ? ".train_dataloader" : ".dataloaders with .n_dataloaders");
    lc__outer_hook outer = lc__hook_enter(t, hook);
    lc_status s = data ? data(t->datamodule.given.self, t, out) : module(t->m, out);
    if (s != LC_OK || t->deferred) s = lc__hook_result(t, s, data ? whose : NULL);
    lc__hook_leave(t, outer);
    if (s >= 0 && !out->n && hook == LC_HOOK_TRAIN_DATALOADER)
        s = lc_fail(LC_ERR_CONFIG, "train_dataloader of %s added no loader", whose);
    if (s >= 0) return LC_OK;
    for (int i = 0; i < out->n; i++) lc_dataloader_free(out->loaders[i]);
    out->n = 0;
    return s;
}

/* ---- transfer ---- */

lc_status lc__transfer(lc_trainer *t, const lc_batch **batch, int dataloader_idx)
{
    if (!t->input->transfers) return LC_OK;
    t->input->arrived = **batch;
    t->batch = &t->input->arrived;
    const lc__hook_args args = {.arrived = &t->input->arrived, .dataloader_idx = dataloader_idx};
    static const lc_hook hooks[] = {LC_HOOK_ON_BEFORE_BATCH_TRANSFER, LC_HOOK_TRANSFER_BATCH_TO_DEVICE,
                                    LC_HOOK_ON_AFTER_BATCH_TRANSFER};
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (lc__hook_is_there(t, hooks[i])) LC_TRY(lc__hook(t, hooks[i], &args));
    *batch = &t->input->arrived;
    return lc_step_status(t->graph);
}

/* ---- in checkpoints ---- */

lc_status lc__datamodule_save(lc_trainer *t, lc_state *root)
{
    const lc_datamodule_ops *d = &t->datamodule.ops;
    lc_state *o, *own;
    if (!d->save_state) return LC_OK;
    LC_TRY(lc_state_set_object(root, "datamodule", &o));
    LC_TRY(lc_state_set_object(o, d->name, &own));
    lc_status s = d->save_state(t->datamodule.given.self, t, own);
    return s < 0 ? lc_fail_context(s, "save_state of %s", d->name) : LC_OK;
}

lc_status lc__datamodule_load(lc_trainer *t, const lc_state *root)
{
    const lc_datamodule_ops *d = &t->datamodule.ops;
    const lc_state *o, *own;
    if (!d->load_state || !lc_state_find(root, "datamodule")) return LC_OK;
    LC_TRY(lc__name_checkpoint(t->ckpt_path, lc_state_get_object(root, "datamodule", &o)));
    if (!lc_state_find(o, d->name)) return LC_OK;
    LC_TRY(lc__name_checkpoint(t->ckpt_path, lc_state_get_object(o, d->name, &own)));
    lc_status s = d->load_state(t->datamodule.given.self, t, own);
    return s < 0 ? lc_fail_context(s, "load_state of %s", d->name) : LC_OK;
}

/* ---- from datasets ---- */

typedef struct dataset_module {
    lc_datamodule_ops ops; /* with slots for the loaders that have a dataset */
    lc_datasets d;
} dataset_module;

static lc_status add_loader(const lc_datasets *d, lc_dataset *dataset, bool shuffle, lc_loaders *out)
{
    lc_dataloader *l;
    lc_dataloader_args o = LC_ARGS(lc_dataloader, .dataset = dataset, .batch_size = d->batch_size,
                                   .num_workers = d->num_workers, .shuffle = shuffle, .seed = d->seed);
    LC_TRY(lc_dataloader_new_with(&l, &o));
    return lc_loaders_add(out, l);
}

#define LOADER(which, shuffle)                                                                                         \
    static lc_status which##_loader(void *self, lc_trainer *t, lc_loaders *out)                                        \
    {                                                                                                                  \
        const lc_datasets *d = &((dataset_module *)self)->d;                                                           \
        (void)t;                                                                                                       \
        return add_loader(d, d->which, shuffle, out);                                                                  \
    }
LOADER(train, true)
LOADER(val, false)
LOADER(test, false)
LOADER(predict, false)

static void dataset_module_free(void *self)
{
    dataset_module *m = self;
    lc_dataset_unref(m->d.train);
    lc_dataset_unref(m->d.val);
    lc_dataset_unref(m->d.test);
    lc_dataset_unref(m->d.predict);
    free(m);
}

static lc_dataset *ref(lc_dataset *d)
{
    return d ? lc_dataset_ref(d) : NULL;
}

lc_status lc_datamodule_from_datasets(const lc_datasets *datasets, lc_datamodule *out)
{
    LC__NEEDS(datasets, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_datamodule){0};
    LC_TRY(lc__reserved_check(datasets->reserved, "lc_datasets"));
    dataset_module *m = calloc(1, sizeof *m);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory: a datamodule");
    m->d = *datasets;
    m->d.train = ref(datasets->train);
    m->d.val = ref(datasets->val);
    m->d.test = ref(datasets->test);
    m->d.predict = ref(datasets->predict);
    m->ops = (lc_datamodule_ops){LC_DATAMODULE_OPS_INIT("datasets"),
                                 .train_dataloader = datasets->train ? train_loader : NULL,
                                 .val_dataloader = datasets->val ? val_loader : NULL,
                                 .test_dataloader = datasets->test ? test_loader : NULL,
                                 .predict_dataloader = datasets->predict ? predict_loader : NULL,
                                 .free = dataset_module_free};
    *out = (lc_datamodule){&m->ops, m};
    return LC_OK;
}

void lc_datamodule_release(lc_datamodule *d)
{
    if (!d) return;
    if (d->ops && LC__SLOT(d->ops, free)) d->ops->free(d->self);
    *d = (lc_datamodule){0};
}

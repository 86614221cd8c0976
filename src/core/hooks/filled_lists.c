/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that a module's hooks fill: optimizers and schedulers, loaders. */
#include "base/args.h"
#include "base/handle.h"
#include "base/status.h"
#include "data/data_internal.h"
#include "optim/sched/sched_internal.h"

#include <lightc/data.h>
#include <lightc/sched.h>
#include <lightc/trainer.h>

/* A constructor that fails returns NULL and leaves its message; a NULL may have other reasons. */
static lc_status absent(const char *what)
{
    const char *last = lc_error_message();
    return lc_fail(LC_ERR_ARGUMENT, "the %s to add is NULL%s%s%s", what,
                   *last ? " (the last error of this thread: " : "", last, *last ? ")" : "");
}

static lc_status added_before(const char *what)
{
    return lc_fail(LC_ERR_ARGUMENT, "the same %s is added twice; make another, or add it once", what);
}

lc_status lc_optimizers_add_step(lc_optimizers *out, lc_optimizer *optimizer, lc_training_step_fn *step)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    if (!optimizer) return absent("optimizer");
    for (int i = 0; i < out->n; i++)
        if (out->optimizers[i].optimizer == optimizer) return added_before("optimizer");
    if (out->n == LC_MAX_OPTIMIZERS) {
        lc_optimizer_free(optimizer);
        return lc_fail(LC_ERR_CONFIG, "more than %d optimizers", LC_MAX_OPTIMIZERS);
    }
    out->optimizers[out->n++] = (lc_optimizer_config){optimizer, step};
    return LC_OK;
}

lc_status lc_optimizers_add(lc_optimizers *out, lc_optimizer *optimizer)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    return lc_optimizers_add_step(out, optimizer, NULL);
}

static lc_status check_scheduler(const lc_optimizers *out, const lc_scheduler_config *config)
{
    LC_TRY(lc__reserved_check(config->reserved, "lc_scheduler_config"));
    if (out->n_schedulers == LC_MAX_OPTIMIZERS)
        return lc_fail(LC_ERR_CONFIG, "more than %d schedulers", LC_MAX_OPTIMIZERS);
    if (config->frequency < 0)
        return lc_fail(LC_ERR_CONFIG, "frequency of a scheduler is %lld; it must be at least 1",
                       (long long)config->frequency);
    return LC_OK;
}

lc_status lc_optimizers_add_scheduler(lc_optimizers *out, lc_scheduler_config config)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!config.scheduler) return absent("scheduler");
    LC__IS(config.scheduler, SCHEDULER, LC_ERR_ARGUMENT);
    if (config.scheduler->parent) return lc__scheduler_is_child(config.scheduler);
    for (int i = 0; i < out->n_schedulers; i++)
        if (out->schedulers[i].scheduler == config.scheduler) return added_before("scheduler");
    if (lc_scheduler_needs_metric(config.scheduler)) config.reduce_on_plateau = true;
    if (!config.frequency) config.frequency = 1;
    lc_status status = check_scheduler(out, &config);
    if (status < 0)
        lc_scheduler_free(config.scheduler);
    else
        out->schedulers[out->n_schedulers++] = config;
    return status;
}

lc_status lc_loaders_add(lc_loaders *out, lc_dataloader *loader)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(loader, LOADER, LC_ERR_ARGUMENT);
    if (!loader) return lc_fail(LC_ERR_ARGUMENT, "the loader to add is NULL");
    if (lc__dataloader_is_part(loader))
        return lc_fail(LC_ERR_ARGUMENT, "the loader to add belongs to a combined loader; add that one");
    for (int i = 0; i < out->n; i++)
        if (out->loaders[i] == loader) return added_before("loader");
    if (out->n == LC_MAX_LOADERS) {
        lc_dataloader_free(loader);
        return lc_fail(LC_ERR_CONFIG, "more than %d loaders", LC_MAX_LOADERS);
    }
    out->loaders[out->n++] = loader;
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A dataset whose samples have their random key as a field. */
#include "base/handle.h"
#include "data_internal.h"

#include <stdlib.h>
#include <string.h>

static lc_dataset *parent_of(void *self)
{
    return self;
}

static int64_t keys_length(void *self)
{
    return parent_of(self)->length;
}

static lc_status keys_describe(void *self, lc_sample_spec *spec)
{
    *spec = parent_of(self)->spec;
    spec->fields[spec->n++] = (lc_field){.name = "key", .dtype = LC_I64};
    return LC_OK;
}

static lc_status keys_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    lc_dataset *d = parent_of(self);
    const uint64_t own = lc_random_key_name(key, "key");
    memcpy(out[d->spec.n], &own, sizeof own);
    return lc_dataset_get(d, index, key, out, scratch);
}

static size_t keys_scratch(void *self)
{
    return parent_of(self)->scratch;
}

static const char *keys_replaced(void *self, int64_t index)
{
    return lc_dataset_replaced(parent_of(self), index);
}

static lc_status keys_sizes(void *self, int64_t index, int field, int64_t *sizes)
{
    return lc_dataset_sizes(parent_of(self), index, field, sizes);
}

static void keys_times(void *self, lc_loader_times *add)
{
    lc__dataset_times(parent_of(self), add);
}

static const char *keys_source(void *self, int64_t index)
{
    return lc__dataset_source(parent_of(self), index);
}

static void keys_free(void *self)
{
    lc_dataset_unref(self);
}

static const lc_dataset_ops keys_ops = {
    LC_DATASET_OPS_INIT,   .name = "keys",
    .length = keys_length, .describe = keys_describe,
    .get = keys_get,       .scratch_size = keys_scratch,
    .free = keys_free,     .replaced = keys_replaced,
    .sizes = keys_sizes,   .times = keys_times,
    .source = keys_source,
};

lc_status lc_dataset_keys(lc_dataset *d, lc_dataset **out)
{
    LC__IS(d, DATASET, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    if (d->spec.n == LC_MAX_BATCH_TENSORS)
        return lc_fail(LC_ERR_ARGUMENT, "keys: the dataset has %d fields, and no more are possible", d->spec.n);
    lc_dataset_ops ops = keys_ops;
    if (!d->ops.replaced) ops.replaced = NULL;
    LC_TRY(lc_dataset_new(&ops, lc_dataset_ref(d), out));
    lc__dataset_made_of(*out, d);
    return LC_OK;
}

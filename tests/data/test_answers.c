/* SPDX-License-Identifier: Apache-2.0 */
/* A loader calls functions of a program: of datasets, samplers, lists and loaders. If one returns an error without a
 * message, or a request (stop, skip), which none of them can make, the error names that function, and never shows the
 * message of an earlier error. */
#include "test.h"

#include <lightc/image.h>
#include <string.h>

static struct {
    const char *function; /* returns `status`; all others LC_OK */
    lc_status status;
} asked;

static lc_status answer(const char *function)
{
    return !strcmp(function, asked.function) ? asked.status : LC_OK;
}

/* ---- a dataset of samples with one and two numbers ---- */

static int64_t length(void *self)
{
    (void)self;
    return 4;
}
static lc_status describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){.n = 1, .fields = {{.name = "x", .dtype = LC_I64, .ndim = 1}}};
    return answer("describe");
}
static lc_status sizes(void *self, int64_t index, int field, int64_t *size)
{
    (void)self, (void)field;
    *size = index % 2 + 1;
    return answer("sizes");
}
static lc_status get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)key, (void)scratch;
    for (int64_t i = 0; i <= index % 2; i++) ((int64_t *)out[0])[i] = index;
    return answer("get");
}
static const lc_dataset_ops mine = {LC_DATASET_OPS_INIT,  .name = "mine", .length = length,
                                    .describe = describe, .sizes = sizes, .get = get};

static int64_t samples(void *self, int64_t epoch)
{
    (void)self, (void)epoch;
    return 4;
}
static lc_status order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    (void)self, (void)epoch;
    for (int64_t i = 0; i < n; i++) indices[i] = i;
    return answer("order");
}
static const lc_sampler_ops in_order = {LC_SAMPLER_OPS_INIT, .name = "in order", .length = samples, .order = order};

static lc_status collate_sizes(void *ctx, lc_field *batch)
{
    (void)ctx, (void)batch;
    return answer("collate_sizes");
}
static lc_status collate(void *ctx, const lc_field *sample, const void *data, const lc_field *batch, void *place)
{
    (void)ctx, (void)sample, (void)data;
    memset(place, 0, lc_field_bytes(batch));
    return answer("collate");
}

static lc_status run_dataset(void)
{
    lc_dataset *d;
    lc_dataloader *l;
    lc_batch *b;
    lc_sampler s = {&in_order, NULL};
    LC_TRY(lc_dataset_new(&mine, NULL, &d));
    CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 2, .sampler = &s, .collate_sizes = collate_sizes,
                               .collate = collate));
    lc_dataset_unref(d);
    lc_status status = lc_dataloader_begin(l, 0, 0);
    if (status == LC_OK) status = lc_dataloader_next(l, &b);
    lc_dataloader_free(l);
    return status;
}

/* ---- a loader ---- */

static lc_status begin(void *self, int64_t epoch, int64_t start)
{
    (void)self, (void)epoch, (void)start;
    return answer("begin");
}
static lc_status next(void *self, lc_batch **out)
{
    (void)self;
    *out = NULL;
    return answer("next");
}
static lc_status save(void *self, void *data, size_t *size)
{
    (void)self, (void)data;
    *size = 0;
    return answer("save");
}
static lc_status load(void *self, const void *data, size_t size)
{
    (void)self, (void)data, (void)size;
    return answer("load");
}
static lc_status share(void *self, const lc_share *given)
{
    (void)self, (void)given;
    return answer("share");
}
static const lc_dataloader_ops my_loader = {
    LC_DATALOADER_OPS_INIT, .name = "mine", .begin = begin, .next = next, .save = save, .load = load, .share = share,
};

static lc_status run_loader(void)
{
    lc_dataloader *l;
    lc_batch *b;
    size_t size = 0;
    CHECK_OK(lc_dataloader_from_ops(&my_loader, NULL, &l));
    lc_status status = lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2});
    if (status == LC_OK) status = lc_dataloader_load(l, NULL, 0);
    if (status == LC_OK) status = lc_dataloader_begin(l, 0, 0);
    if (status == LC_OK) status = lc_dataloader_next(l, &b);
    if (status == LC_OK) status = lc_dataloader_save(l, NULL, &size);
    lc_dataloader_free(l);
    return status;
}

/* ---- a transform ---- */

static lc_status describe_field(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    return answer("describe_field");
}
static lc_status apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst, uint64_t key,
                       void *scratch)
{
    (void)self, (void)out, (void)key, (void)scratch;
    memcpy(dst, src, lc_field_bytes(in));
    return answer("apply");
}
static const lc_transform_ops as_is = {LC_TRANSFORM_OPS_INIT, .name = "as is", .describe = describe_field,
                                       .apply = apply};

static lc_status run_transform(bool composed)
{
    static const int64_t numbers[2] = {1, 2};
    const lc_array array = {.field = {.name = "x", .dtype = LC_I64}, .data = numbers};
    lc_transform t = {&as_is, NULL};
    lc_dataset *d, *transformed;
    lc_dataloader *l;
    lc_batch *b;
    CHECK_OK(lc_array_dataset_new(2, 1, &array, &d));
    const lc_transform part = t;
    if (composed) CHECK_OK(lc_transform_compose(1, &part, &t));
    lc_status status = lc_dataset_transform(d, 0, t, &transformed);
    lc_dataset_unref(d);
    if (status < 0) return status;
    CHECK_OK(lc_dataloader_new(&l, .dataset = transformed, .batch_size = 2));
    lc_dataset_unref(transformed);
    status = lc_dataloader_begin(l, 0, 0);
    if (status == LC_OK) status = lc_dataloader_next(l, &b);
    lc_dataloader_free(l);
    return status;
}
static lc_status run_alone(void)
{
    return run_transform(false);
}
static lc_status run_composed(void)
{
    return run_transform(true);
}

/* ---- a list ---- */

static lc_status the_function(void *ctx, int64_t index, const char **file, int64_t *target)
{
    (void)ctx, (void)index;
    *file = "a.png";
    *target = 0;
    return answer("the function");
}

static lc_status run_list(void)
{
    lc_dataset *d;
    LC_TRY(lc_image_list_from(2, the_function, NULL, &d, .height = 8, .width = 8));
    lc_dataset_unref(d);
    return LC_OK;
}

TEST(an_error_names_the_function)
{
    static const struct {
        const char *function;
        lc_status (*run)(void);
        const char *whose, *says; /* `says` is before the reason */
    } cases[] = {
        {"describe", run_dataset, "dataset 'mine': ", "describe"},
        {"sizes", run_dataset, "sample 0 of dataset 'mine': ", "sizes"},
        {"get", run_dataset, "sample 0 of dataset 'mine': ", "get"},
        {"order", run_dataset, "sampler 'in order': ", "order"},
        {"collate_sizes", run_dataset, "collate_sizes: ", "it"},
        {"collate", run_dataset, "collate: ", "it"},
        {"begin", run_loader, "loader 'mine', epoch 0: ", "begin"},
        {"next", run_loader, "loader 'mine', batch 0: ", "next"},
        {"save", run_loader, "", "save"},
        {"load", run_loader, "", "load"},
        {"share", run_loader, "loader 'mine': ", "share"},
        {"describe_field", run_alone, "transform 'as is': ", "describe"},
        {"describe_field", run_composed, "transform 'as is': ", "describe"},
        {"apply", run_alone, "transform 'as is': ", "apply"},
        {"the function", run_list, "sample 0 of a list of pictures: ", "the function"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int request = 0; request < 2; request++) {
            char text[200];
            asked.function = "";
            CHECK_OK(cases[i].run());
            asked.function = cases[i].function;
            asked.status = request ? LC_SKIP : LC_ERR_IO;
            (void)lc_fail(LC_ERR_ARGUMENT, "an earlier error");
            CHECK_STATUS(cases[i].run(), request ? LC_ERR_USER : LC_ERR_IO);
            snprintf(text, sizeof text, "%s%s returned %s", cases[i].whose, cases[i].says,
                     request ? "\"skip\", which " : "an error (input or output failed) without a message");
            CHECK_CONTAINS(lc_error_message(), text);
            CHECK(!strstr(lc_error_message(), "an earlier error"));
        }
}

TEST_MAIN

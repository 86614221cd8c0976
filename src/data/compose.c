/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms one after the other, and a dataset with a transform applied to one field. */
#include "base/args.h"
#include "base/clock.h"
#include "base/status.h"
#include "data_internal.h"

#include <stdlib.h>
#include <string.h>

size_t lc__transform_scratch(const lc_transform *t, const lc_field *in)
{
    return LC__SLOT(t->ops, scratch_size) ? lc__align64(t->ops->scratch_size(t->self, in)) : 0;
}

/* A program built against an older header may have made the transform. */
lc_status lc__transform_check(const lc_transform *t)
{
    if (!t->ops)
        return lc_fail(LC_ERR_ARGUMENT, "the transform is empty: it was never made, or has been taken over; make "
                                        "another");
    LC_TRY(lc__ops_check(sizeof *t->ops, t->ops, offsetof(lc_transform_ops, scratch_size), "a transform",
                         "LC_TRANSFORM_OPS_INIT"));
    return t->ops->describe && t->ops->apply ? LC_OK
                                             : lc_fail(LC_ERR_ARGUMENT, "transform: the ops lack describe or apply");
}

/* An error (reported since `before`) names the transform, and a request (stop, skip) is one: every sample exists. */
static lc_status result_of(const lc_transform_ops *ops, lc_status status, unsigned before)
{
    status = lc__answered(status, before, "apply", "a transform");
    return status < 0 ? lc_fail_context(status, "transform '%s'", ops->name) : LC_OK;
}

lc_status lc__transform_describe(const lc_transform *t, const lc_field *in, lc_field *out)
{
    unsigned before = lc__error_count();
    lc_status status = t->ops->describe(t->self, in, out);
    if (status == LC_OK || (status < 0 && lc__error_count() != before)) return status;
    status = lc__answered(status, before, "describe", "a transform");
    return lc_fail_context(status, "transform '%s'", t->ops->name);
}

/* A batch of samples that are as large does not stay in a second-level cache. */
enum { STREAMED = 1 << 17 };

bool lc__transform_streams(const lc_field *out)
{
    return lc_field_bytes(out) >= STREAMED;
}

lc_status lc__transform_apply(const lc_transform *t, const lc_field *in, const void *src, const lc_field *out,
                              void *dst, uint64_t key, void *scratch)
{
    const bool streams = LC__SLOT(t->ops, apply_streaming) && lc__transform_streams(out);
    unsigned before = lc__error_count();
    lc_status status = (streams ? t->ops->apply_streaming : t->ops->apply)(t->self, in, src, out, dst, key, scratch);
    if (streams) lc__stores_arrive();
    return result_of(t->ops, status, before);
}

/* ---- compose ---- */

typedef struct compose {
    int n;
    lc_transform parts[];
} compose;

/* Sizes that are not known yet are 0 between parts. */
static lc_status check_between(const lc_field *f, const char *part)
{
    lc_field known = *f;
    for (int i = f->ndim - 2; i >= 0 && i < f->ndim; i++)
        if (!known.shape[i]) known.shape[i] = 1;
    return lc__field_check(&known, part);
}

static lc_status compose_describe(void *self, const lc_field *in, lc_field *out)
{
    compose *c = self;
    lc_field at = *in;
    for (int i = 0; i < c->n; i++) {
        lc_field next = {0};
        LC_TRY(lc__transform_describe(&c->parts[i], &at, &next));
        LC_TRY(check_between(&next, c->parts[i].ops->name));
        at = next;
    }
    *out = at;
    return LC_OK;
}

/* Room for two values in turn, each as large as the largest between two parts, and for the parts' own scratch: of all
 * parts from `begin` on. */
static void compose_sizes(const compose *c, int begin, const lc_field *in, size_t *value, size_t *scratch)
{
    lc_field at = *in;
    *value = *scratch = 0;
    for (int i = begin; i < c->n; i++) {
        size_t own = lc__transform_scratch(&c->parts[i], &at);
        if (own > *scratch) *scratch = own;
        lc_field next = {0};
        if (lc__transform_describe(&c->parts[i], &at, &next) < 0) return; /* describe has reported it */
        at = next;
        size_t bytes = lc__align64(lc_field_bytes(&at));
        if (bytes > *value && i + 1 < c->n) *value = bytes;
    }
}

static size_t compose_scratch(void *self, const lc_field *in)
{
    size_t value, scratch;
    compose_sizes(self, 0, in, &value, &scratch);
    return 2 * value + scratch;
}

static lc_status run_parts(const compose *c, int begin, const lc_field *in, const void *src, const lc_field *out,
                           void *dst, uint64_t key, void *scratch, bool streams)
{
    size_t value, own;
    if (c->n == 0) {
        memcpy(dst, src, lc_field_bytes(out));
        return LC_OK;
    }
    compose_sizes(c, begin, in, &value, &own);
    char *turn[2] = {scratch, (char *)scratch + value};
    char *rest = (char *)scratch + 2 * value;
    lc_field at = *in;
    for (int i = begin; i < c->n; i++) {
        lc_field next = {0};
        LC_TRY(lc__transform_describe(&c->parts[i], &at, &next));
        const lc_transform_ops *ops = c->parts[i].ops;
        const bool last = i + 1 == c->n, past = last && streams && LC__SLOT(ops, apply_streaming);
        void *to = last ? dst : turn[i & 1];
        const uint64_t mine = lc_random_key(key, (uint64_t)i);
        unsigned before = lc__error_count();
        lc_status status =
            (past ? ops->apply_streaming : ops->apply)(c->parts[i].self, &at, src, &next, to, mine, rest);
        LC_TRY(result_of(ops, status, before));
        src = to;
        at = next;
    }
    return LC_OK;
}

static lc_status compose_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                               uint64_t key, void *scratch)
{
    return run_parts(self, 0, in, src, out, dst, key, scratch, false);
}

static lc_status compose_apply_streaming(void *self, const lc_field *in, const void *src, const lc_field *out,
                                         void *dst, uint64_t key, void *scratch)
{
    return run_parts(self, 0, in, src, out, dst, key, scratch, true);
}

static double compose_least_scale(void *self, const lc_field *in, uint64_t key)
{
    compose *c = self;
    if (!c->n || !LC__SLOT(c->parts[0].ops, least_scale)) return 1;
    return c->parts[0].ops->least_scale(c->parts[0].self, in, lc_random_key(key, 0));
}

static void compose_reads(void *self, const lc_field *in, uint64_t key, lc_box *part)
{
    compose *c = self;
    if (c->n && LC__SLOT(c->parts[0].ops, reads))
        c->parts[0].ops->reads(c->parts[0].self, in, lc_random_key(key, 0), part);
}

static void compose_release(void *self)
{
    compose *c = self;
    for (int i = 0; i < c->n; i++) lc__transform_free(&c->parts[i]);
}

static const lc_transform_ops compose_ops = {
    LC_TRANSFORM_OPS_INIT,
    .name = "compose",
    .describe = compose_describe,
    .apply = compose_apply,
    .scratch_size = compose_scratch,
    .free = lc__owned_free,
    .least_scale = compose_least_scale,
    .reads = compose_reads,
    .apply_streaming = compose_apply_streaming,
};

const lc_transform *lc__compose_parts(const lc_transform *t, int *n)
{
    const compose *c = t->ops == &compose_ops ? t->self : NULL;
    *n = c ? c->n : 0;
    return c ? c->parts : NULL;
}

/* ---- some rows at a time ---- */

bool lc__transform_takes_rows(const lc_transform *t, const lc_field *out, const lc_box *part)
{
    const compose *c = t->ops == &compose_ops ? t->self : NULL;
    if (!c || c->n < 2 || out->layout != LC_CHANNELS_LAST || out->ndim != 3) return false;
    if (out->shape[1] != part->height || out->shape[2] != part->width) return false;
    for (int i = 0; i < c->n; i++)
        if (!(i ? LC__SLOT(c->parts[i].ops, by_rows) : LC__SLOT(c->parts[i].ops, cuts))) return false;
    return true;
}

size_t lc__transform_rows_scratch(const lc_transform *t, const lc_field *in)
{
    size_t value, scratch;
    compose_sizes(t->self, 1, in, &value, &scratch);
    return 2 * value + scratch;
}

lc_status lc__transform_rows(const lc_transform *t, const lc_field *in, const void *src, const lc_field *out, void *dst,
                             uint64_t key, void *scratch, bool streams)
{
    const unsigned before = lc__error_count();
    return result_of(t->ops, run_parts(t->self, 1, in, src, out, dst, key, scratch, streams), before);
}

/* Whether two parts are one object, which would be freed twice. */
static bool is_among(const lc_transform *parts, int n, const lc_transform *t)
{
    for (int i = 0; i < n; i++)
        if (t->self && LC__SLOT(t->ops, free) && parts[i].self == t->self && parts[i].ops == t->ops) return true;
    return false;
}

static lc_status own_all(int n, const lc_transform *parts)
{
    for (int i = 0; i < n; i++) {
        lc_status status = lc__transform_own(&parts[i]);
        if (status == LC_OK) continue;
        while (i--) lc__transform_disown(&parts[i]);
        return status;
    }
    return LC_OK;
}

lc_status lc_transform_compose(int n, const lc_transform *parts, lc_transform *out)
{
    lc_status status = LC_OK;
    if (out) *out = (lc_transform){0};
    if (n < 0) return lc_fail(LC_ERR_ARGUMENT, "cannot compose %d transforms", n);
    if (n > 0) LC__NEEDS(parts, LC_ERR_ARGUMENT);
    if (!out) status = lc__is_null(__func__, "out");
    for (int i = 0; status == LC_OK && i < n; i++) {
        status = lc__transform_check(&parts[i]);
        if (status == LC_OK && is_among(parts, i, &parts[i]))
            status = lc_fail(LC_ERR_ARGUMENT, "transform %d ('%s') is in the list twice; make another", i,
                             parts[i].ops->name);
    }
    compose *c = status == LC_OK ? lc__owned_new(sizeof *c + (size_t)n * sizeof *parts, compose_release) : NULL;
    if (!c && status == LC_OK) status = lc_fail(LC_ERR_MEMORY, "out of memory for transform 'compose'");
    if (status == LC_OK) status = own_all(n, parts);
    if (status < 0) {
        if (c) lc__owned_free(c);
        for (int i = 0; i < n; i++) {
            lc_transform part = parts[i];
            if (!part.ops || !is_among(parts, i, &part)) lc_transform_release(&part);
        }
        return status;
    }
    c->n = n;
    if (n) memcpy(c->parts, parts, (size_t)n * sizeof *parts);
    *out = (lc_transform){&compose_ops, c};
    return LC_OK;
}

/* ---- the dataset ---- */

enum { MEASURED = 1 << 14 }; /* bytes of samples whose transforms take 10 us and more */

typedef struct transformed {
    lc_dataset *parent;
    int field;
    int below; /* transforms of the field before this one */
    lc_transform t;
    lc_sample_spec spec;
    bool measures;     /* samples are large, so that a look at the clock does not count */
    size_t value, own; /* scratch: the untransformed field, the transform's own; the parent's follows */
} transformed;

static int64_t transformed_length(void *self)
{
    return ((transformed *)self)->parent->length;
}

static lc_status transformed_describe(void *self, lc_sample_spec *spec)
{
    *spec = ((transformed *)self)->spec;
    return LC_OK;
}

static size_t transformed_scratch(void *self)
{
    transformed *d = self;
    return d->value + d->own + d->parent->scratch;
}

/* The transforms of a field draw different numbers; the first ones of two fields draw the same, as for a picture and a
 * mask. */
static uint64_t key_of(const transformed *d, uint64_t key)
{
    if (!d->below) return lc_random_key_name(key, "transform");
    return lc_random_key(lc_random_key_name(key, "transforms"), (uint64_t)d->below);
}

static lc_status transformed_get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    transformed *d = self;
    void *to[LC_MAX_BATCH_TENSORS];
    for (int f = 0; f < d->spec.n; f++) to[f] = out[f];
    to[d->field] = scratch;
    LC_TRY(lc_dataset_get(d->parent, index, key, to, (char *)scratch + d->value + d->own));
    const int64_t start = d->measures ? lc__now_ns() : 0;
    lc_status status = lc__transform_apply(&d->t, &d->parent->spec.fields[d->field], scratch, &d->spec.fields[d->field],
                                           out[d->field], key_of(d, key), (char *)scratch + d->value);
    if (start) lc__spent.transform_ns += lc__now_ns() - start;
    const char *source = status < 0 ? lc__dataset_source(d->parent, index) : NULL;
    return source ? lc_fail_context(status, "%s", source) : status;
}

static const char *transformed_replaced(void *self, int64_t index)
{
    return lc_dataset_replaced(((transformed *)self)->parent, index);
}

static void transformed_times(void *self, lc_loader_times *add)
{
    lc__dataset_times(((transformed *)self)->parent, add);
}

static const char *transformed_source(void *self, int64_t index)
{
    return lc__dataset_source(((transformed *)self)->parent, index);
}

static lc_status transformed_sizes(void *self, int64_t index, int field, int64_t *sizes)
{
    return lc_dataset_sizes(((transformed *)self)->parent, index, field, sizes);
}

static void transformed_free(void *self)
{
    transformed *d = self;
    lc__transform_free(&d->t);
    lc_dataset_unref(d->parent);
    free(d);
}

static const lc_dataset_ops transformed_ops = {
    LC_DATASET_OPS_INIT,          .name = "a transform",
    .length = transformed_length, .describe = transformed_describe,
    .get = transformed_get,       .scratch_size = transformed_scratch,
    .free = transformed_free,     .replaced = transformed_replaced,
    .sizes = transformed_sizes,   .times = transformed_times,
    .source = transformed_source,
};

lc_status lc_dataset_transform(lc_dataset *parent, int field, lc_transform t, lc_dataset **out)
{
    lc_status status;
    transformed *d = NULL;
    if (out) *out = NULL;
    status = !out                                          ? lc__is_null(__func__, "out")
             : !lc__has_mark(parent, LC__MARK_OF(DATASET)) ? lc__not_a(parent, LC__MARK_OF(DATASET), __func__)
                                                           : lc__transform_check(&t);
    if (status < 0) goto done;
    if (field < 0 || field >= parent->spec.n) {
        status = lc_fail(LC_ERR_ARGUMENT, "transform '%s': the dataset has %d fields; there is no field %d",
                         t.ops->name, parent->spec.n, field);
        goto done;
    }
    if (lc__field_differs(&parent->spec.fields[field])) {
        status = lc_fail(LC_ERR_UNSUPPORTED,
                         "transform '%s': field '%s' has another size in each sample; transform it where the dataset "
                         "makes it",
                         t.ops->name, parent->spec.fields[field].name);
        goto done;
    }
    d = calloc(1, sizeof *d);
    if (!d) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory for a dataset");
        goto done;
    }
    const lc_field *in = &parent->spec.fields[field];
    d->spec = parent->spec;
    LC_TRY_GOTO(status, done, lc__transform_describe(&t, in, &d->spec.fields[field]));
    LC_TRY_GOTO(status, done, lc__transform_own(&t));
    d->parent = lc_dataset_ref(parent);
    d->field = field;
    d->below = parent->transforms[field];
    d->t = t;
    d->value = lc__align64(parent->bytes[field]);
    d->own = lc__transform_scratch(&t, in);
    d->measures = d->value >= MEASURED;
    lc_dataset_ops ops = transformed_ops;
    if (!parent->ops.replaced) ops.replaced = NULL;
    LC_TRY(lc_dataset_new(&ops, d, out));
    lc__dataset_made_of(*out, parent);
    (*out)->transforms[field]++;
    return LC_OK;
done:
    lc_transform_release(&t);
    free(d);
    return status;
}

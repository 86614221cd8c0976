/* SPDX-License-Identifier: Apache-2.0 */
/* A batch has the largest sizes of its samples, of all ranks, so that a rank's share is the same as in one process. A
 * sample is read in its place if it is a piece of that, and copied there otherwise. */
#include "data/collate.h"
#include "base/number.h"
#include "data_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a loader is made with ---- */

static lc_status find_value(const lc_field *f, double value, uint64_t *out)
{
    *out = 0;
    lc__store_number(out, f->dtype, value);
    const bool whole = f->dtype == LC_I64 || f->dtype == LC_I32 || f->dtype == LC_U8 || f->dtype == LC_BOOL;
    if (!whole || lc__load_number(out, f->dtype) == value) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "field '%s' is of type %s, and cannot be padded with %g", f->name,
                   lc_dtype_name(f->dtype), value);
}

static int sizes_that_differ(const lc_field *f)
{
    int n = 0;
    for (int i = 0; i < f->ndim; i++) n += !f->shape[i];
    return n;
}

lc_status lc__padding_init(lc__padding *p, const lc_dataset *d, const lc_dataloader_args *args)
{
    *p = (lc__padding){.n = d->spec.n,
                       .side = args->pad_side,
                       .multiple = args->pad_multiple,
                       .sizes = args->collate_sizes,
                       .collate = args->collate,
                       .ctx = args->collate_ctx};
    const bool target_value = args->target_pad_value == args->target_pad_value; /* not NaN: it was given */
    if (target_value && (d->spec.n < 2 || !lc__field_differs(&d->spec.fields[1])))
        return lc_fail(LC_ERR_ARGUMENT, "target_pad_value: dataset '%s' has no second field that differs in size",
                       lc_dataset_name(d));
    for (int f = 0; f < d->spec.n; f++) {
        const lc_field *field = &d->spec.fields[f];
        if (!lc__field_differs(field)) continue;
        if (p->n == LC_MAX_BATCH_TENSORS)
            return lc_fail(LC_ERR_ARGUMENT, "a batch has at most %d tensors, and the lengths of '%s' are one more",
                           LC_MAX_BATCH_TENSORS, field->name);
        LC_TRY(find_value(field, f == 1 && target_value ? args->target_pad_value : args->pad_value, &p->values[f]));
        p->lengths_of[p->n] = f;
        snprintf(p->names[p->n], sizeof p->names[0], "%s_lengths", field->name);
        for (int k = 0; k < d->spec.n; k++)
            if (!strcmp(d->spec.fields[k].name, p->names[p->n]))
                return lc_fail(LC_ERR_ARGUMENT,
                               "field '%s' has the name that a batch gives to the lengths of '%s'; give it another one",
                               p->names[p->n], field->name);
        p->n++;
    }
    return LC_OK;
}

lc_field lc__padding_field(const lc__padding *p, const lc_dataset *d, int t)
{
    if (t < d->spec.n) return d->spec.fields[t];
    const int k = sizes_that_differ(&d->spec.fields[p->lengths_of[t]]);
    return (lc_field){.name = p->names[t], .dtype = LC_I64, .ndim = k > 1, .shape = {k}};
}

/* ---- sizes ---- */

lc_status lc__padding_sizes(const lc__padding *p, const lc_dataset *d, int f, int64_t *sizes)
{
    lc_field batch = d->spec.fields[f];
    for (int i = 0; i < batch.ndim; i++) {
        if (batch.shape[i]) continue;
        int64_t units = sizes[i] / p->multiple + (sizes[i] % p->multiple != 0);
        if (__builtin_mul_overflow(units ? units : 1, p->multiple, &batch.shape[i]))
            return lc_fail(LC_ERR_ARGUMENT, "pad_multiple %lld is too large", (long long)p->multiple);
    }
    unsigned before = lc__error_count();
    lc_status status = p->sizes ? lc__answered(p->sizes(p->ctx, &batch), before, "it", "it") : LC_OK;
    if (status != LC_OK) return lc_fail_context(status, "collate_sizes");
    for (int i = 0; i < batch.ndim; i++)
        if (batch.shape[i] < 1 || (d->spec.fields[f].shape[i] && batch.shape[i] != d->spec.fields[f].shape[i]))
            return lc_fail(LC_ERR_USER, "collate_sizes: field '%s' cannot have the size %lld in dimension %d",
                           batch.name, (long long)batch.shape[i], i);
    memcpy(sizes, batch.shape, sizeof batch.shape);
    return LC_OK;
}

/* The shape of field f in a batch of which `share` is a share; *sample: bytes of its largest sample. */
static lc_status batch_sizes(const lc__padding *p, const lc__epoch *e, lc__rank_share share, int f, int64_t *sizes,
                             size_t *sample)
{
    lc_field own = e->dataset->spec.fields[f];
    int64_t one[LC_MAX_DIMS - 1], first = share.begin - share.offset;
    memcpy(sizes, own.shape, sizeof own.shape);
    if (!lc__field_differs(&own)) return LC_OK;
    for (int64_t i = first; i < first + share.global_size; i++) {
        LC_TRY(lc_dataset_sizes(e->dataset, e->order[i], f, one));
        for (int k = 0; k < own.ndim; k++)
            if (one[k] > sizes[k]) sizes[k] = one[k];
        if (!sample) continue;
        memcpy(own.shape, one, sizeof one);
        size_t bytes = lc_field_bytes(&own);
        if (bytes > *sample) *sample = bytes;
    }
    return lc__padding_sizes(p, e->dataset, f, sizes);
}

static void raise_to(size_t *most, size_t now, bool *grown)
{
    if (now <= *most) return;
    *most = now;
    *grown = true;
}

lc_status lc__padding_measure(lc__padding *p, const lc__epoch *e, bool *grown)
{
    *grown = false;
    for (int64_t b = 0; b < e->n_batches; b++) {
        const lc__rank_share share = lc__epoch_share(e, b);
        for (int t = 0; t < p->n; t++) {
            lc_field field = lc__padding_field(p, e->dataset, t);
            size_t sample = 0, bytes;
            if (t < e->dataset->spec.n) LC_TRY(batch_sizes(p, e, share, t, field.shape, &sample));
            LC_TRY(lc__field_check(&field, lc_dataset_name(e->dataset)));
            if (__builtin_mul_overflow(lc_field_bytes(&field), (size_t)share.n, &bytes))
                return lc_fail(LC_ERR_SHAPE, "batch %lld would be larger than memory", (long long)b);
            raise_to(&p->bytes[t], bytes, grown);
            raise_to(&p->row[t], lc_field_bytes(&field), grown);
            raise_to(&p->sample[t], sample, grown);
        }
    }
    return LC_OK;
}

/* ---- padding ---- */

static void fill(char *to, size_t n, size_t size, uint64_t value)
{
    if (!value)
        memset(to, 0, n * size);
    else if (size == 8)
        for (size_t i = 0; i < n; i++) memcpy(to + 8 * i, &value, 8);
    else
        for (size_t i = 0; i < n; i++) memcpy(to + i * size, &value, size);
}

/* Sizes in the order of memory. */
static void in_memory(const lc_field *f, int64_t *sizes)
{
    const bool last = f->layout == LC_CHANNELS_LAST;
    for (int i = 0; i < f->ndim; i++) sizes[i] = f->shape[last ? (i + 1) % f->ndim : i];
}

/* Copies what fits of a sample into its place; from the end if that is what counts. */
static void copy_block(const lc_field *from, const char *data, const lc_field *to, char *place, bool left)
{
    int64_t have[LC_MAX_DIMS], room[LC_MAX_DIMS], n[LC_MAX_DIMS], index[LC_MAX_DIMS] = {0}, rows = 1;
    const int last = from->ndim - 1;
    const size_t size = lc_dtype_size(from->dtype);
    in_memory(from, have);
    in_memory(to, room);
    for (int k = 0; k <= last; k++) n[k] = have[k] < room[k] ? have[k] : room[k];
    for (int k = 0; k < last; k++) rows *= n[k];
    for (int64_t row = 0; row < rows; row++) {
        int64_t source = 0, target = 0;
        for (int k = 0; k <= last; k++) {
            const int64_t at = k < last ? index[k] : 0;
            source = source * have[k] + at + (left ? have[k] - n[k] : 0);
            target = target * room[k] + at + (left ? room[k] - n[k] : 0);
        }
        memcpy(place + (size_t)target * size, data + (size_t)source * size, (size_t)n[last] * size);
        for (int k = last - 1; k >= 0 && ++index[k] == n[k]; k--) index[k] = 0;
    }
}

/* Whether a sample in its place is one piece of memory, which may be filled up before or after it. */
static bool is_one_piece(const lc__padding *p, const lc_field *sample, const lc_field *batch)
{
    if (p->collate || sample->layout != LC_ROW_MAJOR || sample->shape[0] > batch->shape[0]) return false;
    return !memcmp(sample->shape + 1, batch->shape + 1, (size_t)(sample->ndim - 1) * sizeof *sample->shape);
}

/* Where a sample is read to: `before` elements after its place in the batch, or a buffer of the thread. */
typedef struct placed {
    lc_field sample, batch;
    char *place;
    size_t before, after; /* bytes to fill, if it is one piece */
    bool in_place;
} placed;

static lc_status place(const lc__padding *p, const lc__epoch *e, const lc__slot *s, int64_t index, int64_t j, int f,
                       placed *out)
{
    const lc_field *field = &e->dataset->spec.fields[f];
    out->sample = out->batch = *field;
    memcpy(out->batch.shape, s->sizes[f], sizeof field->shape);
    LC_TRY(lc_dataset_sizes(e->dataset, index, f, out->sample.shape));
    const size_t room = lc_field_bytes(&out->batch), own = lc_field_bytes(&out->sample);
    out->place = (char *)s->data[f] + (size_t)j * room;
    out->in_place = !lc__field_differs(field) || is_one_piece(p, &out->sample, &out->batch);
    out->before = out->in_place && p->side == LC_PAD_LEFT ? room - own : 0;
    out->after = out->in_place ? room - own - out->before : 0;
    return LC_OK;
}

static lc_status finish(const lc__padding *p, const placed *at, int f, const void *data)
{
    const size_t size = lc_dtype_size(at->batch.dtype), room = lc_field_bytes(&at->batch);
    if (at->in_place) {
        fill(at->place, at->before / size, size, p->values[f]);
        fill(at->place + room - at->after, at->after / size, size, p->values[f]);
        return LC_OK;
    }
    if (p->collate) {
        unsigned before = lc__error_count();
        lc_status status =
            lc__answered(p->collate(p->ctx, &at->sample, data, &at->batch, at->place), before, "it", "it");
        return status == LC_OK ? LC_OK : lc_fail_context(status, "collate");
    }
    fill(at->place, room / size, size, p->values[f]);
    copy_block(&at->sample, data, &at->batch, at->place, p->side == LC_PAD_LEFT);
    return LC_OK;
}

/* Writes the lengths of sample j, which are at most those of the batch. */
static void write_lengths(const lc__padding *p, const lc_dataset *d, const lc__slot *s, const placed *at, int64_t j)
{
    for (int t = d->spec.n; t < p->n; t++) {
        const int f = p->lengths_of[t], n = sizes_that_differ(&d->spec.fields[f]);
        int64_t *to = (int64_t *)s->data[t] + j * n;
        for (int k = 0; k < d->spec.fields[f].ndim; k++) {
            if (d->spec.fields[f].shape[k]) continue;
            const int64_t own = at[f].sample.shape[k], room = at[f].batch.shape[k];
            *to++ = own < room ? own : room;
        }
    }
}

static lc_status gather_sample(const lc__padding *p, const lc__epoch *e, lc__slot *s, lc__gatherer *w, int64_t index,
                               int64_t j)
{
    lc_dataset *d = e->dataset;
    placed at[LC_MAX_BATCH_TENSORS];
    void *to[LC_MAX_BATCH_TENSORS];
    for (int f = 0; f < d->spec.n; f++) {
        LC_TRY(place(p, e, s, index, j, f, &at[f]));
        to[f] = at[f].in_place ? (void *)(at[f].place + at[f].before) : w->before[f];
    }
    LC_TRY(lc_dataset_get(d, index, w->keys[j], to, w->scratch));
    for (int f = 0; f < d->spec.n; f++) LC_TRY(finish(p, &at[f], f, to[f]));
    write_lengths(p, d, s, at, j);
    return LC_OK;
}

lc_status lc__padding_gather(const lc__padding *p, const lc__epoch *e, lc__rank_share share, lc__slot *s,
                             lc__gatherer *w)
{
    for (int t = 0; t < p->n; t++) {
        const lc_field field = lc__padding_field(p, e->dataset, t);
        memcpy(s->sizes[t], field.shape, sizeof field.shape);
        if (t < e->dataset->spec.n) LC_TRY(batch_sizes(p, e, share, t, s->sizes[t], NULL));
    }
    for (int64_t j = 0; j < share.n; j++) LC_TRY(gather_sample(p, e, s, w, e->order[share.begin + j], j));
    return LC_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a checkpoint's files: the tensors added, this rank's part of them, the place of each value, and the
 * values, copied into a snapshot or left in place. */
#define _GNU_SOURCE /* madvise */
#include "core/checkpoint/joint.h"
#include "base/chunks.h"
#include "base/grow.h"
#include "base/handle.h"
#include "base/io.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- entries ---- */

void lc__ckpt_clear_entries(lc_ckpt_writer *w)
{
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        lc__ckpt_file *p = &w->files[k];
        for (int64_t i = 0; i < p->n; i++) {
            if (p->entries[i].mapped) lc__tensor_unmap(p->entries[i].named.tensor, LC__READ);
            free((char *)p->entries[i].named.name);
        }
        p->n = 0;
    }
}

static lc_status add(lc_ckpt_writer *w, lc_ckpt_kind k, const char *name, lc__ckpt_entry entry)
{
    if (!w->state) return lc_fail(LC_ERR_STATE, "tensor \"%s\" cannot be added: no checkpoint was begun", name);
    if ((unsigned)k >= LC_CKPT_KINDS)
        return lc_fail(LC_ERR_ARGUMENT, "there is no kind %d of tensors in a checkpoint", (int)k);
    lc__ckpt_file *p = &w->files[k];
    LC_TRY(lc__grow(&p->entries, &p->capacity, p->n, 1, "the tensors of a checkpoint"));
    char *copy;
    LC_TRY(lc__format(&copy, "%s", name));
    entry.named.name = copy;
    p->entries[p->n++] = entry;
    return LC_OK;
}

lc_status lc_ckpt_add_tensor(lc_ckpt_writer *w, lc_ckpt_kind k, const char *name, lc_tensor *t)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    if (!t || !lc_tensor_is_persistent(t))
        return lc_fail(LC_ERR_ARGUMENT, "checkpoint: \"%s\" is not a persistent tensor", name);
    return add(w, k, name, (lc__ckpt_entry){.named.tensor = t});
}

lc_status lc_ckpt_add_data(lc_ckpt_writer *w, lc_ckpt_kind k, const char *name, const lc_type *type, const void *data)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(type, LC_ERR_ARGUMENT);
    return add(w, k, name, (lc__ckpt_entry){.named = {.type = *type, .data = data}});
}

lc_status lc_ckpt_add_stored(lc_ckpt_writer *w, lc_ckpt_kind k, lc_safetensors *from, int64_t i)
{
    LC__IS(w, WRITER, LC_ERR_ARGUMENT);
    LC__IS(from, SAFETENSORS, LC_ERR_ARGUMENT);
    const lc_safetensor_info *info = lc_safetensors_info(from, i);
    if (!info) return lc_fail(LC_ERR_ARGUMENT, "\"%s\" has no tensor number %" PRId64, lc_safetensors_path(from), i);
    if (info->type.dtype == LC_DTYPE_DEFAULT)
        return lc_fail(LC_ERR_DTYPE, "\"%s\": tensor \"%s\" is %s, which lightc does not write",
                       lc_safetensors_path(from), info->name, info->dtype);
    return add(w, k, info->name, (lc__ckpt_entry){.named.type = info->type, .from = from, .from_index = i});
}

lc_status lc__ckpt_add_own(lc_ckpt_writer *w, lc_ckpt_kind k, const char *name, lc_tensor *t)
{
    return add(w, k, name, (lc__ckpt_entry){.named.tensor = t, .mine = true});
}

lc_status lc__ckpt_add_range(lc_ckpt_writer *w, lc_ckpt_kind k, const char *name, const lc_type *whole,
                             lc_layout layout, int64_t first, int64_t count, const void *data)
{
    lc__ckpt_entry e = {.named = {.type = {.dtype = whole->dtype, .ndim = 1, .shape = {count}}, .data = data},
                        .mine = true,
                        .ranged = true,
                        .whole = *whole,
                        .layout = layout,
                        .first = first};
    return count ? add(w, k, name, e) : LC_OK;
}

/* ---- values ---- */

static lc_status reserve_image(lc__ckpt_file *p, const char *what)
{
    if (p->size <= p->image_capacity) return LC_OK;
    if (p->image) munmap(p->image, p->image_capacity);
    p->image = NULL, p->image_capacity = 0;
    uint64_t capacity = (p->size + 4095) / 4096 * 4096;
    void *image = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (image == MAP_FAILED)
        return lc_fail(LC_ERR_MEMORY, "out of memory: the snapshot of \"%s\" (%" PRIu64 " bytes)", what, p->size);
    madvise(image, capacity, MADV_HUGEPAGE);
    p->image = image, p->image_capacity = capacity;
    return LC_OK;
}

static void set_ready(lc_ckpt_writer *w, lc__ckpt_file *p, uint64_t ready)
{
    pthread_mutex_lock(&w->lock);
    p->ready = ready;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static const char *value_of(lc__ckpt_entry *e)
{
    if (!e->named.tensor) return e->named.data;
    if (!e->mapped) e->mapped = lc__st_map(e->named.tensor, LC__READ);
    return e->mapped;
}

lc_status lc__ckpt_copy_file(lc_ckpt_writer *w, lc__ckpt_file *p)
{
    const lc__st_layout *layout = &p->layout;
    memcpy(p->image, layout->header, layout->header_bytes);
    uint64_t signalled = 0;
    for (int64_t i = 0; i < p->n; i++) {
        lc__ckpt_entry *e = &p->entries[layout->order[i]];
        uint64_t at = layout->offset[layout->order[i]], bytes;
        lc__type_bytes(lc__st_type(&e->named), &bytes);
        const char *data = value_of(e);
        if (!data && bytes && e->from)
            LC_TRY(lc_safetensors_read(e->from, e->from_index, p->image + at, (size_t)bytes));
        else if (!data && bytes)
            LC_TRY(lc_tensor_read(e->named.tensor, p->image + at, (size_t)bytes));
        for (uint64_t done = 0; data && done < bytes;) {
            uint64_t n = bytes - done < LC__CHUNK ? bytes - done : LC__CHUNK;
            memcpy(p->image + at + done, data + done, (size_t)n);
            done += n;
            if (done < bytes) set_ready(w, p, signalled = at + done);
        }
        if (at + bytes >= signalled + LC__CHUNK) set_ready(w, p, signalled = at + bytes);
    }
    set_ready(w, p, p->size);
    return LC_OK;
}

/* If the caller waits, a file whose values are all row-major in memory, or in other files, is written from there,
 * without a snapshot; otherwise p->sources stays NULL. */
static lc_status find_sources(lc__ckpt_file *p)
{
    const lc__st_layout *layout = &p->layout;
    p->sources = calloc((size_t)p->n + 1, sizeof *p->sources);
    if (!p->sources) return lc_fail(LC_ERR_MEMORY, "out of memory: writing %" PRId64 " tensors", p->n);
    p->sources[0] = (lc__ckpt_source){layout->header, 0, layout->header_bytes, NULL, 0};
    for (int64_t i = 0; i < p->n; i++) {
        lc__ckpt_entry *e = &p->entries[layout->order[i]];
        lc__ckpt_source *s = &p->sources[i + 1];
        *s = (lc__ckpt_source){value_of(e), layout->offset[layout->order[i]], 0, e->from, e->from_index};
        lc__type_bytes(lc__st_type(&e->named), &s->bytes);
        if (s->data || s->from || !s->bytes) continue;
        free(p->sources);
        p->sources = NULL;
        return LC_OK;
    }
    p->n_sources = p->n + 1;
    return LC_OK;
}

/* ---- the parts of several ranks ---- */

typedef struct candidate {
    const lc__ckpt_entry *entry;
    uint64_t bytes;
    int64_t i;
} candidate;

static int largest_first(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return strcmp(a->entry->named.name, b->entry->named.name);
}

/* Distributes the tensors that all ranks have, about the same number of bytes to each: the largest remaining tensor
 * goes to the rank with the fewest. All ranks compute the same result. `load`: bytes of each rank so far. */
static lc_status keep_own(lc_ckpt_writer *w, lc__ckpt_file *p, uint64_t *load)
{
    int64_t n = 0, kept = 0;
    candidate *all = calloc((size_t)p->n + 1, sizeof *all);
    int *owner = calloc((size_t)p->n + 1, sizeof *owner);
    if (!all || !owner) {
        free(all);
        free(owner);
        return lc_fail(LC_ERR_MEMORY, "out of memory: distributing %" PRId64 " tensors", p->n);
    }
    for (int64_t i = 0; i < p->n; i++) {
        owner[i] = w->joint.rank;
        if (p->entries[i].mine) continue;
        all[n] = (candidate){&p->entries[i], 0, i};
        lc__type_bytes(lc__st_type(&p->entries[i].named), &all[n++].bytes);
    }
    if (n) qsort(all, (size_t)n, sizeof *all, largest_first);
    for (int64_t i = 0; i < n; i++) {
        int least = 0;
        for (int rank = 1; rank < w->joint.size; rank++)
            if (load[rank] < load[least]) least = rank;
        owner[all[i].i] = least;
        load[least] += all[i].bytes;
    }
    for (int64_t i = 0; i < p->n; i++) {
        if (owner[i] == w->joint.rank)
            p->entries[kept++] = p->entries[i];
        else
            free((char *)p->entries[i].named.name);
    }
    p->n = kept;
    free(all);
    free(owner);
    return LC_OK;
}

/* The ranges of tensors that the file contains only in part, as JSON; NULL: none. */
static lc_status print_ranges(const lc__ckpt_file *p, char **out)
{
    lc_state *root = NULL, *list, *one, *shape;
    lc_status status;
    bool any = false;
    *out = NULL;
    for (int64_t i = 0; i < p->n; i++) any |= p->entries[i].ranged;
    if (!any) return LC_OK;
    LC_TRY(lc_state_new(&root));
    LC_TRY_GOTO(status, done, lc_state_set_array(root, "ranges", &list));
    for (int64_t i = 0; i < p->n; i++) {
        const lc__ckpt_entry *e = &p->entries[i];
        if (!e->ranged) continue;
        LC_TRY_GOTO(status, done, lc_state_set_object(list, NULL, &one));
        LC_TRY_GOTO(status, done, lc_state_set_text(one, "name", e->named.name));
        LC_TRY_GOTO(status, done, lc_state_set_array(one, "shape", &shape));
        for (int d = 0; d < e->whole.ndim; d++)
            LC_TRY_GOTO(status, done, lc_state_set_int(shape, NULL, e->whole.shape[d]));
        LC_TRY_GOTO(status, done, lc_state_set_int(one, "first", e->first));
        LC_TRY_GOTO(status, done,
                    lc_state_set_text(one, "layout", e->layout == LC_CHANNELS_LAST ? "channels_last" : "row_major"));
    }
    status = lc_state_print(list, out, NULL);
done:
    lc_state_free(root);
    return status;
}

/* ---- the header and the offsets of values ---- */

/* Lays out the header and the values. `all`: only whole tensors, as a list of those that must exist in the end. */
static lc_status lay_out(const lc_ckpt_writer *w, const lc__ckpt_file *p, const char *name, bool all,
                         lc__st_layout *out)
{
    char *ranges = NULL;
    int64_t n = 0;
    lc_status status = LC_OK;
    lc_named_tensor *named = calloc((size_t)p->n + 1, sizeof *named);
    if (!named) return lc_fail(LC_ERR_MEMORY, "out of memory: the layout of %" PRId64 " tensors", p->n);
    for (int64_t i = 0; i < p->n; i++) {
        const lc__ckpt_entry *e = &p->entries[i];
        uint64_t bytes;
        if (all && e->ranged) continue;
        named[n++] = e->named;
        if (!e->named.tensor && !e->named.data && !e->from && lc__type_bytes(&e->named.type, &bytes) && bytes)
            LC_TRY_GOTO(status, done,
                        lc_fail(LC_ERR_ARGUMENT, "\"%s\": tensor \"%s\" has no data", name, e->named.name));
    }
    if (!all) LC_TRY_GOTO(status, done, print_ranges(p, &ranges));
    const char *number = w->joint.size ? strrchr(w->joint.dir, '-') : NULL;
    const lc_text_pair metadata[] = {{"format", "pt"}, /* by this, other tools recognize PyTorch's names and layouts */
                                     {LC__ST_CHECKPOINT, number ? number + 1 : "0"},
                                     {LC__ST_RANGES, ranges}};
    status = lc__st_layout_make(name, n, named, !w->joint.size ? 1 : !ranges ? 2 : 3, metadata, out);
done:
    free(ranges);
    free(named);
    return status;
}

lc_status lc__ckpt_prepare(lc_ckpt_writer *w, int k, bool wait, uint64_t *load)
{
    lc__ckpt_file *p = &w->files[k];
    const char *name = lc__kind_name((lc_ckpt_kind)k);
    p->size = p->ready = 0;
    if (w->joint.size && w->joint.rank == 0) LC_TRY(lay_out(w, p, name, true, &p->all));
    if (w->joint.size) LC_TRY(keep_own(w, p, load));
    if (!p->n && (k != LC_CKPT_MODEL || w->joint.rank > 0)) return LC_OK;
    LC_TRY(lay_out(w, p, name, false, &p->layout));
    p->size = p->layout.total;
    if (wait) LC_TRY(find_sources(p));
    if (p->sources)
        p->ready = p->size;
    else
        LC_TRY(reserve_image(p, name));
    return LC_OK;
}

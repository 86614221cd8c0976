/* SPDX-License-Identifier: Apache-2.0 */
/* A second set of the values of a module's parameters and buffers. Averages are operators on the trainer's graph, so
 * they run where the parameters are and as fast as an update; exchanges go through the host. */
#include "callbacks/shadow.h"

#include "base/number.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#include <lightc/ops.h>
#include "ops/infer.h"
#include "record/graph_impl.h"
#include "tensor/slice.h"

void lc__shadow_free(lc__shadow *s)
{
    for (int i = 0; i < s->n; i++) {
        lc_tensor_unref(s->copy[i]);
        lc_tensor_unref(s->views[i][0]);
        lc_tensor_unref(s->views[i][1]);
        free(s->paths[i]);
    }
    free(s->of);
    free(s->views);
    free(s->copy);
    free(s->paths);
    free(s->copied);
    for (int i = 0; i < 2; i++) free(s->scratch[i]);
    *s = (lc__shadow){0};
}

static size_t bytes_of(const lc_tensor *t)
{
    return (size_t)lc_tensor_numel(t) * lc_dtype_size(lc_tensor_storage(t));
}

static lc_status grow(lc__shadow *s)
{
    static const char what[] = "a copy of the model";
    LC_TRY(lc__grow_one(&s->of, s->n, what));
    LC_TRY(lc__grow_one(&s->copy, s->n, what));
    LC_TRY(lc__grow_one(&s->paths, s->n, what));
    LC_TRY(lc__grow_one(&s->copied, s->n, what));
    return lc__grow_one(&s->views, s->n, what);
}

typedef struct shadow_walk {
    lc__shadow *s;
    lc__shadow_buffers buffers;
} shadow_walk;

static lc_status add(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    shadow_walk *w = ctx;
    lc__shadow *s = w->s;
    const lc_tensor *of = mt->tensor;
    char *copy = NULL;
    lc_tensor *tensor;
    (void)owner;
    if (!mt->is_parameter && !(w->buffers != LC__NO_BUFFERS && mt->persistent)) return LC_OK;
    LC_TRY(grow(s));
    LC_TRY(lc__tensor_like(of, &tensor));
    lc_status status = lc__copy_text(path, &copy);
    if (status < 0) {
        lc_tensor_unref(tensor);
        return status;
    }
    s->of[s->n] = mt->tensor;
    s->copy[s->n] = tensor;
    s->views[s->n][0] = s->views[s->n][1] = NULL;
    s->copied[s->n] = !mt->is_parameter && w->buffers == LC__COPY_BUFFERS;
    s->paths[s->n++] = copy;
    if (bytes_of(of) > s->scratch_bytes) s->scratch_bytes = bytes_of(of);
    return LC_OK;
}

static lc_status move(lc__shadow *s, bool take, bool give);

lc_status lc__shadow_new(lc_module *m, lc__shadow_buffers buffers, lc__shadow *out)
{
    lc_status status;
    *out = (lc__shadow){0};
    LC_TRY_GOTO(status, done, lc_module_visit(m, add, &(shadow_walk){out, buffers}));
    for (int i = 0; i < 2; i++)
        if (!(out->scratch[i] = malloc(out->scratch_bytes + 1))) {
            status = lc_fail(LC_ERR_MEMORY, "out of memory: a copy of the model");
            goto done;
        }
    status = move(out, true, false);
done:
    if (status < 0) lc__shadow_free(out);
    return status;
}

/* ---- slices ---- */

/* The other slices of a copy are on the same ranks as those of its tensor, which may have been sliced again. */
static void name_ranks(const lc__shadow *s, int i)
{
    if (s->copy[i]->is_slice) s->copy[i]->slices = s->of[i]->flat ? s->of[i]->flat->sharding : NULL;
}

/* `next` is a slice of the whole value that `copy` has. */
static lc_status copy_slice(lc_tensor *copy, lc_tensor *next, int64_t begin, int64_t count)
{
    size_t width = lc_dtype_size(copy->type.dtype);
    lc_view from, to;
    LC_TRY(lc__tensor_map(copy, LC__READ, &from));
    lc_status status = lc__tensor_map(next, LC__WRITE, &to);
    if (status >= 0) memcpy(to.data, (char *)from.data + (size_t)begin * width, (size_t)count * width);
    if (status >= 0) lc__tensor_unmap(next, LC__WRITE);
    lc__tensor_unmap(copy, LC__READ);
    return status;
}

/* A sharding strategy slices parameters when a fit begins, after restoring, and gathers them at its end (or has them in
 * slices all the time); the copy follows. */
static lc_status follow(lc__shadow *s, int i)
{
    lc_tensor *of = s->of[i], *copy = s->copy[i], *next = NULL;
    name_ranks(s, i);
    if (copy->is_slice == of->is_slice) return LC_OK;
    lc_status status = lc__tensor_like(of, &next);
    if (of->is_slice) {
        if (status >= 0) status = copy_slice(copy, next, of->slice_begin, of->slice_count);
    } else {
        status = lc__tensor_gather(copy, status, -1, s->scratch[0]);
        if (status >= 0) status = lc_tensor_write(next, s->scratch[0], bytes_of(of));
    }
    if (status < 0) {
        lc_tensor_unref(next);
        return status;
    }
    lc_tensor_unref(copy);
    s->copy[i] = next;
    return LC_OK;
}

/* ---- averages ---- */

/* Tensor and copy for operators; *of NULL: this rank holds nothing of them. */
static lc_status operands(lc__shadow *s, int i, lc_tensor **of, lc_tensor **copy)
{
    *of = s->of[i], *copy = s->copy[i];
    if ((*of)->seen && !(*of)->is_slice) {
        LC_TRY(lc__tensor_raw(*of, &s->views[i][0]));
        *of = s->views[i][0];
    }
    if (!s->of[i]->is_slice) return LC_OK;
    *of = *copy = NULL;
    if (!s->of[i]->slice_count) return LC_OK;
    LC_TRY(lc__tensor_slice_view(s->of[i], &s->views[i][0]));
    LC_TRY(lc__tensor_slice_view(s->copy[i], &s->views[i][1]));
    *of = s->views[i][0], *copy = s->views[i][1];
    return LC_OK;
}

static lc_tensor *average(lc_tensor *copy, lc_tensor *of, double weight)
{
    lc_dtype dtype = lc_tensor_dtype(of), wide = lc__wide_dtype(dtype);
    lc_tensor *old = lc__as(copy, wide);
    return lc__as(lc_add(old, lc_mul_scalar(lc_sub(lc__as(of, wide), old), weight)), dtype);
}

static lc_status record(lc__shadow *s, double weight)
{
    lc_status status = LC_OK;
    lc_no_grad_begin();
    lc__exact_begin();
    for (int i = 0; i < s->n && status >= 0; i++) {
        lc_tensor *of, *copy;
        status = operands(s, i, &of, &copy);
        if (status < 0 || !of) continue;
        lc_tensor *value = of;
        if (weight < 1 && !s->copied[i] && lc_dtype_is_float(lc_tensor_dtype(of))) value = average(copy, of, weight);
        lc_assign(copy, value);
    }
    lc__exact_end();
    lc_no_grad_end();
    return status;
}

lc_status lc__shadow_update(lc__shadow *s, lc_trainer *t, double weight)
{
    bool open = lc_current_graph() == t->graph;
    if (weight >= 1) return move(s, true, false);
    for (int i = 0; i < s->n; i++) LC_TRY(follow(s, i));
    if (!open) LC_TRY(lc_step_begin(t->graph, (uint64_t)t->total_batches, 0));
    lc_status status = record(s, weight);
    if (status >= 0) status = lc_step_status(t->graph);
    if (status >= 0) status = lc_step_run(t->graph);
    if (!open) {
        lc_status ended = lc_step_end(t->graph);
        if (status >= 0) status = ended;
    }
    return status;
}

/* ---- exchanges ---- */

static lc_status move_slice(lc__shadow *s, int i, bool take, bool give)
{
    lc_tensor *of = s->of[i], *copy = s->copy[i];
    size_t bytes = (size_t)of->slice_count * lc_dtype_size(of->type.dtype);
    lc__access access = give ? LC__READ_WRITE : LC__READ, copy_access = take ? LC__READ_WRITE : LC__READ;
    lc_view v, c;
    LC_TRY(lc__tensor_map(of, access, &v));
    lc_status status = lc__tensor_map(copy, copy_access, &c);
    if (status >= 0) {
        memcpy(s->scratch[0], v.data, bytes);
        if (give) memcpy(v.data, c.data, bytes);
        if (take) memcpy(c.data, s->scratch[0], bytes);
        lc__tensor_unmap(copy, copy_access);
    }
    lc__tensor_unmap(of, access);
    return status;
}

/* take: copy = tensor; give: tensor = copy; both: they are exchanged. */
static lc_status move(lc__shadow *s, bool take, bool give)
{
    for (int i = 0; i < s->n; i++) LC_TRY(follow(s, i)); /* if ranks are lost here, nothing has been exchanged yet */
    for (int i = 0; i < s->n; i++) {
        size_t bytes = bytes_of(s->of[i]);
        if (s->of[i]->is_slice) {
            LC_TRY(move_slice(s, i, take, give));
            continue;
        }
        if (take) LC_TRY(lc_tensor_read(s->of[i], s->scratch[0], bytes));
        if (give) LC_TRY(lc_tensor_read(s->copy[i], s->scratch[1], bytes));
        if (take) LC_TRY(lc_tensor_write(s->copy[i], s->scratch[0], bytes));
        if (give) LC_TRY(lc_tensor_write(s->of[i], s->scratch[1], bytes));
    }
    return LC_OK;
}

lc_status lc__shadow_swap(lc__shadow *s)
{
    return move(s, true, true);
}

lc_status lc__shadow_give(lc__shadow *s)
{
    return move(s, false, true);
}

/* ---- checkpoints ---- */

lc_tensor *lc__shadow_of(const lc__shadow *s, const lc_tensor *of)
{
    for (int i = 0; i < s->n; i++)
        if (s->of[i] == of) {
            name_ranks(s, i);
            return s->copy[i];
        }
    return NULL;
}

lc_status lc__shadow_visit(lc__shadow *s, const char *prefix, bool of, lc_callback_tensor_fn *fn, void *ctx)
{
    lc__str name = {0};
    lc_status status = LC_OK;
    for (int i = 0; i < s->n && status >= 0; i++) {
        lc__str_clear(&name);
        name_ranks(s, i);
        lc__str_add(&name, "%s.%s", prefix, s->paths[i]);
        status = name.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: a copy of the model")
                             : fn(ctx, name.s, of ? s->of[i] : s->copy[i]);
    }
    lc__str_free(&name);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Opens checkpoints. Nothing is returned before every byte has been checked against the manifest. */
#define _GNU_SOURCE
#include "core/checkpoint/find_newest.h"
#include "base/handle.h"

#include "safetensors/safetensors_impl.h"
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATE ((size_t)1 << 30)

struct lc_checkpoint {
    lc__mark mark;
    char *path;
    int64_t saved_ns;
    lc__ckpt_origin origin;
    lc_state *state;
    lc_safetensors *files[LC_CKPT_KINDS];
};

lc_status lc_checkpoint_verify(const char *path)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    lc__manifest m;
    lc_status status = lc__manifest_read(&lc__io_system, path, &m);
    if (status >= 0) status = lc__manifest_check(&lc__io_system, path, &m);
    lc__manifest_release(&m);
    return status;
}

lc_status lc_checkpoint_visit_files(const char *path, lc_checkpoint_file_fn *fn, void *ctx)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC__NEEDS(fn, LC_ERR_ARGUMENT);
    lc__manifest m;
    lc__first_error damage = {0};
    lc_status status = lc__manifest_read(&lc__io_system, path, &m);
    for (int i = 0; i < m.n && status >= 0; i++) {
        lc_checkpoint_file file = {m.files[i].name, m.files[i].size, m.files[i].crc, NULL};
        lc_status whole = lc__manifest_check_file(&lc__io_system, path, &m, i);
        lc__first_error_note(&damage, whole);
        char why[1024];
        if (whole < 0) {
            lc__copy_message(why, sizeof why);
            file.damage = why;
        }
        status = fn(ctx, &file);
    }
    lc__manifest_release(&m);
    return status < 0 ? status : lc__first_error_status(&damage);
}

static lc_status read_state(const char *path, lc_state **out)
{
    char *file = NULL, *text = NULL;
    size_t length;
    lc_status status;
    *out = NULL;
    LC_TRY_GOTO(status, done, lc__path_join(path, LC__STATE, &file));
    LC_TRY_GOTO(status, done, lc__io_read_file(&lc__io_system, file, MAX_STATE, &text, &length));
    status = lc_state_parse(text, length, out);
    if (status < 0) lc_fail_context(status, "\"%s\" cannot be read", file);
done:
    free(text);
    free(file);
    return status;
}

/* For reader number `reader` of n, which verifies some of the files. */
static lc_status open_verified(const char *path, int reader, int n, lc_checkpoint *c)
{
    const lc__io *io = &lc__io_system;
    char resolved[PATH_MAX];
    lc__manifest m = {0};
    lc_status status;
    if (!realpath(path, resolved)) return lc__io_fail(errno, "open checkpoint", path);
    LC_TRY_GOTO(status, done, lc__format(&c->path, "%s", resolved));
    LC_TRY_GOTO(status, done, lc__manifest_read(io, c->path, &m));
    c->saved_ns = m.saved_ns;
    c->origin = m.origin;
    bool has_state = false;
    for (int i = 0; i < m.n; i++) {
        if (i % n == reader) LC_TRY_GOTO(status, done, lc__manifest_check_file(io, c->path, &m, i));
        has_state |= !strcmp(m.files[i].name, LC__STATE);
    }
    for (int k = 0; k < LC_CKPT_KINDS; k++)
        LC_TRY_GOTO(status, done, lc__manifest_open_kind(io, c->path, &m, (lc_ckpt_kind)k, &c->files[k]));
    if (!c->files[LC_CKPT_MODEL] || !has_state) {
        status = lc_fail(LC_ERR_FORMAT, "checkpoint \"%s\" is incomplete: its manifest lists no %s", c->path,
                         has_state ? lc__kind_name(LC_CKPT_MODEL) : LC__STATE);
        goto done;
    }
    status = read_state(c->path, &c->state);
done:
    lc__manifest_release(&m);
    return status;
}

static lc_status open_one(const char *path, int reader, int n, lc_checkpoint **out)
{
    *out = NULL;
    lc_checkpoint *c = calloc(1, sizeof *c);
    if (!c) return lc_fail(LC_ERR_MEMORY, "out of memory: opening checkpoint \"%s\"", path);
    c->mark = LC__MARK_OF(CHECKPOINT);
    lc_status status = open_verified(path, reader, n, c);
    if (status >= 0)
        *out = c;
    else
        lc_checkpoint_close(c);
    return status;
}

bool lc__checkpoint_opens(const char *path, bool to_continue)
{
    lc_checkpoint *c;
    bool weights_only = false;
    if (open_one(path, 0, 1, &c) < 0) return false;
    if (lc_state_get_bool(c->state, "weights_only", &weights_only) < 0) weights_only = false;
    lc_checkpoint_close(c);
    return !to_continue || !weights_only;
}

lc_status lc__checkpoint_open_together(const char *path, int reader, int n, lc_checkpoint **out)
{
    lc_status status = open_one(path, reader, n, out);
    if (status >= 0) return LC_OK;
    /* Name the newest valid checkpoint instead. */
    char message[1024], good[PATH_MAX];
    lc__copy_message(message, sizeof message);
    char *dir = NULL;
    if (lc__path_dir(path, &dir) >= 0 && lc__ckpt_find_good(dir, good, sizeof good) >= 0)
        lc_fail(status, "%s. The newest valid checkpoint there is \"%s\"", message, good);
    else
        lc_fail(status, "%s", message);
    free(dir);
    return status;
}

lc_status lc_checkpoint_open(const char *path, lc_checkpoint **out)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return lc__checkpoint_open_together(path, 0, 1, out);
}

void lc_checkpoint_close(lc_checkpoint *c)
{
    if (!c) return;
    LC__IS_OR_NULL(c, CHECKPOINT, );
    for (int k = 0; k < LC_CKPT_KINDS; k++) lc_safetensors_close(c->files[k]);
    lc_state_free(c->state);
    free(c->path);
    lc__mark_clear(&c->mark);
    free(c);
}

const char *lc_checkpoint_path(const lc_checkpoint *c)
{
    LC__IS(c, CHECKPOINT, "");
    return c->path;
}

int64_t lc_checkpoint_saved_ns(const lc_checkpoint *c)
{
    LC__IS(c, CHECKPOINT, 0);
    return c->saved_ns;
}

const lc__ckpt_origin *lc__checkpoint_origin(const lc_checkpoint *c)
{
    return &c->origin;
}

const lc_state *lc_checkpoint_state(const lc_checkpoint *c)
{
    LC__IS(c, CHECKPOINT, NULL);
    return c->state;
}

lc_safetensors *lc_checkpoint_tensors(lc_checkpoint *c, lc_ckpt_kind kind)
{
    LC__IS(c, CHECKPOINT, NULL);
    return (unsigned)kind < LC_CKPT_KINDS ? c->files[kind] : NULL;
}

lc_status lc__name_checkpoint(const char *path, lc_status s)
{
    bool named = s >= 0 || s == LC_ERR_PEER || strstr(lc_error_message(), path);
    return named ? s : lc_fail_context(s, "the checkpoint %s", path);
}

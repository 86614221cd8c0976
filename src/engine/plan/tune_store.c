/* SPDX-License-Identifier: Apache-2.0 */
/* The choices of a graph, and their file; see tune.h.
 *
 * As state, which checkpoints and the file hold:
 *   "tuning": {"machine": "avx512, oneDNN 2.6.0, lightc 0.1.0, 2 threads",
 *              "choices": {"linear f32[64,784] f32[128,784] ... ": "onednn_matmul_packed 2", ...}}
 * A choice that there was no time to measure ends in " unmeasured"; it is not written to the file. */
#include "engine/plan/tune.h"
#include "base/grow.h"
#include "base/remove.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILE_BYTES  (1 << 20)
#define MAX_CHOICES     4096
#define MAX_THREADS     (1 << 16)
#define MAX_KERNEL_NAME 80
#define UNMEASURED      " unmeasured" /* after a choice */

/* ---- keys ---- */

static void add_operand(lc__str *key, const lc_view *v)
{
    if (v->ndim < 0) {
        lc__str_add(key, " -");
        return;
    }
    lc__str_add(key, " %s[", lc_dtype_name(v->dtype));
    bool dense = true;
    int64_t expected = 1;
    for (int d = v->ndim - 1; d >= 0; d--) {
        dense &= v->shape[d] == 1 || v->stride[d] == expected;
        expected *= v->shape[d];
    }
    for (int d = 0; d < v->ndim; d++) lc__str_add(key, d ? ",%lld" : "%lld", (long long)v->shape[d]);
    for (int d = 0; d < v->ndim && !dense; d++) lc__str_add(key, d ? ",%lld" : ":%lld", (long long)v->stride[d]);
    lc__str_add(key, "]");
}

lc_status lc__tuning_key(const lc_call *call, char **key)
{
    lc__str s = {0};
    lc__str_add(&s, "%s", call->op->name);
    for (int i = 0; i < call->n_in; i++) {
        add_operand(&s, &call->in[i]);
        if (call->rounded >> i & 1) lc__str_add(&s, "~%s", lc_dtype_name(call->rounded_to));
    }
    lc__str_add(&s, " >");
    for (int i = 0; i < call->n_out; i++) add_operand(&s, &call->out[i]);
    lc__str_add(&s, " (");
    /* The place of a random operator in the program does not matter. */
    for (int i = call->op->flags & LC_OP_RANDOM ? 2 : 0; i < call->n_int; i++)
        lc__str_add(&s, "%lld ", (long long)call->ints[i]);
    lc__str_add(&s, ")%s", call->accumulate ? " +" : "");
    *key = s.s;
    if (!s.failed) return LC_OK;
    lc__str_free(&s);
    *key = NULL;
    return lc_fail(LC_ERR_MEMORY, "out of memory: tuning %s", call->op->name);
}

/* ---- the list ---- */

const lc__choice *lc__tuning_find(const lc__tuning *t, const char *key)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->choices[i].key, key)) return &t->choices[i];
    return NULL;
}

lc_status lc__tuning_add(lc__tuning *t, const char *key, const char *kernel, int threads, bool measured)
{
    lc__choice *c = (lc__choice *)lc__tuning_find(t, key);
    char *copy = strdup(kernel), *own_key = c ? c->key : strdup(key);
    if (!copy || !own_key) goto fail;
    if (!c) {
        if (lc__grow(&t->choices, &t->cap, t->n, 1, "the choice of a kernel") < 0) goto fail;
        c = &t->choices[t->n++];
        *c = (lc__choice){.key = own_key};
    }
    free(c->kernel);
    c->kernel = copy;
    c->threads = threads;
    c->measured = measured;
    t->changed = true;
    return LC_OK;
fail:
    free(copy);
    if (!c) free(own_key);
    return lc_fail(LC_ERR_MEMORY, "out of memory: the choice of a kernel");
}

/* ---- as state ---- */

static lc_status write_choices(const lc__tuning *t, bool only_measured, lc_state *root)
{
    lc_state *o, *list;
    LC_TRY(lc_state_set_object(root, "tuning", &o));
    LC_TRY(lc_state_set_text(o, "machine", t->machine));
    LC_TRY(lc_state_set_object(o, "choices", &list));
    for (int i = 0; i < t->n; i++) {
        const lc__choice *c = &t->choices[i];
        char value[MAX_KERNEL_NAME + 32];
        if (only_measured && !c->measured) continue;
        int n = snprintf(value, sizeof value, "%s %d%s", c->kernel, c->threads, c->measured ? "" : UNMEASURED);
        if (n < 0 || (size_t)n >= sizeof value) return lc_fail(LC_ERR_INTERNAL, "the kernel %s", c->kernel);
        LC_TRY(lc_state_set_text(list, c->key, value));
    }
    return LC_OK;
}

lc_status lc__tuning_save(const lc__tuning *t, lc_state *root)
{
    return t->n ? write_choices(t, false, root) : LC_OK;
}

lc_status lc__tuning_load(lc__tuning *t, const lc_state *root)
{
    const lc_state *o, *list;
    const char *machine, *value;
    if (lc_state_get_object(root, "tuning", &o) < 0 || lc_state_get_text(o, "machine", &machine) < 0 ||
        strcmp(machine, t->machine) != 0 || lc_state_get_object(o, "choices", &list) < 0)
        return LC_OK;
    for (int64_t i = 0; i < lc_state_length(list) && i < MAX_CHOICES; i++) {
        char kernel[MAX_KERNEL_NAME], *rest;
        if (lc_state_get_text(lc_state_at(list, i), NULL, &value) < 0) continue;
        size_t length = strcspn(value, " ");
        long threads = strtol(value + length, &rest, 10);
        bool known = !*rest || !strcmp(rest, UNMEASURED);
        if (length < 1 || length >= sizeof kernel || threads < 1 || threads > MAX_THREADS || !known) continue;
        memcpy(kernel, value, length);
        kernel[length] = 0;
        LC_TRY(lc__tuning_add(t, lc_state_key_at(list, i), kernel, (int)threads, !*rest));
    }
    return LC_OK;
}

/* ---- the file ---- */

/* $LIGHTC_CACHE, $XDG_CACHE_HOME/lightc or ~/.cache/lightc; NULL: there is none, or LIGHTC_CACHE=off. */
static lc_status cache_dir(char **out)
{
    const char *own = getenv("LIGHTC_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *out = NULL;
    if (own && *own) return strcmp(own, "off") == 0 ? LC_OK : lc__copy_text(own, out);
    if (xdg && *xdg == '/') return lc__path_join(xdg, "lightc", out);
    return home && *home == '/' ? lc__path_join(home, ".cache/lightc", out) : LC_OK;
}

/* One file for each kind of machine that sees the directory. */
static lc_status cache_file(lc__tuning *t)
{
    lc_status status = LC_OK;
    char *dir, name[32];
    uint64_t h = 14695981039346656037u;
    LC_TRY(cache_dir(&dir));
    if (!dir) return LC_OK;
    for (const char *c = t->machine; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
    snprintf(name, sizeof name, "tuning-%016llx.json", (unsigned long long)h);
    status = lc__path_join(dir, name, &t->cache);
    free(dir);
    return status;
}

/* A cache that cannot be used is not an error. */
static void read_cache(lc__tuning *t)
{
    lc_state *root = NULL;
    char *text = NULL;
    size_t n;
    if (access(t->cache, R_OK) == 0 && lc__io_read_file(&lc__io_system, t->cache, MAX_FILE_BYTES, &text, &n) == LC_OK &&
        lc_state_parse(text, n, &root) == LC_OK && lc_state_kind_of(root) == LC_STATE_OBJECT)
        (void)!lc__tuning_load(t, root);
    t->changed = false;
    lc_state_free(root);
    free(text);
}

void lc__tuning_keep(lc__tuning *t)
{
    lc_state *root = NULL;
    char *text = NULL, *dir = NULL, *temporary = NULL;
    size_t n;
    if (!t->changed || !t->cache || lc_state_new(&root) < 0) return;
    t->changed = false;
    if (write_choices(t, true, root) == LC_OK && lc_state_print(root, &text, &n) == LC_OK && n <= MAX_FILE_BYTES &&
        lc__path_dir(t->cache, &dir) == LC_OK && lc__make_dirs(&lc__io_system, dir) == LC_OK &&
        lc__temp_name(dir, "tmp", lc__path_base(t->cache), &temporary) == LC_OK) {
        /* Not worth a sync: after a crash the file is either readable or ignored. */
        FILE *f = fopen(temporary, "wx");
        bool written = f && fwrite(text, 1, n, f) == n;
        if (f && fclose(f) != 0) written = false;
        if (written)
            (void)!lc__replace_by(&lc__io_system, temporary, t->cache);
        else if (f)
            lc__remove_made(&lc__io_system, temporary);
    }
    lc_state_free(root);
    free(text);
    free(dir);
    free(temporary);
}

/* ---- life ---- */

lc_status lc__tuning_new(bool on, const lc_backend_ops *backend, const void *kernel_set, int threads, lc__tuning **out)
{
    char kernels[64];
    lc__tuning *t = *out = calloc(1, sizeof *t);
    if (!t) return lc_fail(LC_ERR_MEMORY, "out of memory for a graph");
    backend->describe(kernel_set, kernels, sizeof kernels);
    snprintf(t->machine, sizeof t->machine, "%s, lightc %s, %d threads", kernels, lc_version(), threads);
    t->on = on;
    if (!on) return LC_OK;
    LC_TRY(cache_file(t));
    if (t->cache) read_cache(t);
    return LC_OK;
}

void lc__tuning_free(lc__tuning *t)
{
    if (!t) return;
    for (int i = 0; i < t->n; i++) {
        free(t->choices[i].key);
        free(t->choices[i].kernel);
    }
    free(t->choices);
    free(t->cache);
    free(t);
}

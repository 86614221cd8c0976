/* SPDX-License-Identifier: Apache-2.0 */
/* Removes checkpoints: only directories that contain nothing except a checkpoint of lightc. */
#define _GNU_SOURCE
#include "core/checkpoint/removal.h"
#include "base/handle.h"

#include "base/status.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names of entries ---- */

/* "model.safetensors", "model-00001-of-00004.safetensors", "state.json". */
static bool is_content(const char *name)
{
    if (!strcmp(name, LC__STATE)) return true;
    for (int k = 0; k < LC_CKPT_KINDS; k++) {
        char want[64];
        const char *number = strchr(name, '-'), *of = number ? strstr(number, "-of-") : NULL;
        lc__kind_file((lc_ckpt_kind)k, number ? atoi(number + 1) - 1 : 0, of ? atoi(of + 4) : 0, want);
        if (!strcmp(name, want)) return true;
    }
    return false;
}

/* ".part-00001", ".failed-00001", and either with ".new": notes of the other ranks for rank 0 (joint.c). */
static bool is_note(const char *name)
{
    const char *p = !strncmp(name, ".part-", 6) ? name + 6 : !strncmp(name, ".failed-", 8) ? name + 8 : NULL;
    size_t digits = 0;
    while (p && isdigit((unsigned char)p[digits])) digits++;
    return digits >= 5 && (!p[digits] || !strcmp(p + digits, ".new"));
}

static bool is_listed(const lc__manifest *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->files[i].name, name)) return true;
    return false;
}

static lc__verdict entry(void *ctx, const char *name, const struct stat *st)
{
    const lc__ckpt_removal *p = ctx;
    bool unfinished = p->what == LC__CKPT_LEFTOVER || p->what == LC__CKPT_OWN;
    if (S_ISLNK(st->st_mode) && unfinished && !strcmp(name, LC__NEW_LINK)) return LC__GOES;
    if (!S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode)) return LC__STAYS;
    if (!strcmp(name, LC__MANIFEST) || !strcmp(name, LC__MARK)) return LC__GOES_LAST;
    if (is_note(name)) return LC__GOES;
    return is_content(name) && (unfinished || !p->readable || is_listed(&p->m, name)) ? LC__GOES : LC__STAYS;
}

/* ---- contents ---- */

static bool holds(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static bool is_empty(int dir, bool except_notes)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    bool empty = d != NULL;
    while (empty && (e = readdir(d)))
        empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || (except_notes && is_note(e->d_name));
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return empty;
}

/* Damage usually leaves the first lines of a manifest intact. */
static bool begins_like_ours(const char *text, size_t n)
{
    static const char head[] = "{\n  \"format\": \"" LC__FORMAT "\",\n";
    return n >= sizeof head - 1 && !memcmp(text, head, sizeof head - 1);
}

/* Reads manifest.json of an open directory; *ours: lightc wrote it, though it may be damaged. */
static lc_status read_manifest(lc__ckpt_removal *p, int dir, const char *path, bool *ours)
{
    struct stat st;
    char *text = NULL;
    lc_status status = LC_OK;
    *ours = false;
    lc__manifest_release(&p->m);
    p->readable = false;
    int fd = openat(dir, LC__MANIFEST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return LC_OK;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > LC__MAX_MANIFEST) goto done;
    size_t n = (size_t)st.st_size;
    text = malloc(n + 1);
    if (!text) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: the manifest of \"%s\"", path));
    LC_TRY_GOTO(status, done, lc__read_all(&lc__io_system, fd, path, text, n, 0));
    text[n] = 0;
    lc_status parsed = lc__manifest_parse(text, n, path, &p->m);
    if (parsed == LC_ERR_MEMORY) status = parsed;
    p->readable = parsed >= 0;
    *ours = p->readable || begins_like_ours(text, n);
done:
    free(text);
    close(fd);
    return status;
}

static lc_status is_ours(void *ctx, int dir, const char *path)
{
    lc__ckpt_removal *p = ctx;
    bool ours;
    if (p->what == LC__CKPT_OWN) return LC_OK;
    LC_TRY(read_manifest(p, dir, path, &ours));
    /* A rank may leave a note after rank 0 has removed the mark and before the directory is gone. */
    if (!ours && p->what == LC__CKPT_LEFTOVER) ours = holds(dir, LC__MARK) || is_empty(dir, true);
    if (!ours && p->what == LC__CKPT_REPLACED)
        ours = is_empty(dir, false);
    else if (ours && p->owner && strcmp(p->m.origin.training, p->owner) != 0)
        return lc_fail(LC_ERR_STATE, "the checkpoint \"%s\" belongs to another training, so it is not %s", path,
                       p->rules.done);
    if (ours) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT,
                   "\"%s\" is not a checkpoint of lightc (it has no " LC__MANIFEST " of one); it was not %s", path,
                   p->rules.done);
}

void lc__ckpt_removal_init(lc__ckpt_removal *p, lc__ckpt_what what, const char *owner)
{
    *p = (lc__ckpt_removal){.what = what, .owner = owner};
    p->rules =
        (lc__removal_rules){.is_ours = is_ours,
                            .entry = entry,
                            .ctx = p,
                            .done = what == LC__CKPT_REPLACED ? "replaced" : "removed",
                            .hint = what == LC__CKPT_REPLACED ? "move that away, or give the checkpoint another name"
                                                              : "move that away, or remove the directory yourself"};
}

void lc__ckpt_removal_release(lc__ckpt_removal *p)
{
    lc__manifest_release(&p->m);
}

bool lc__ckpt_training_of(const char *path, char training[48])
{
    lc__ckpt_removal p;
    bool ours = false;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return false;
    lc__ckpt_removal_init(&p, LC__CKPT_WHOLE, NULL);
    if (read_manifest(&p, dir, path, &ours) < 0) ours = false;
    memcpy(training, p.m.origin.training, sizeof p.m.origin.training);
    lc__ckpt_removal_release(&p);
    close(dir);
    return ours;
}

/* ---- removing ---- */

lc_status lc__ckpt_remove_own(const lc__io *io, const char *dir)
{
    lc__ckpt_removal p;
    lc__ckpt_removal_init(&p, LC__CKPT_OWN, NULL);
    return lc__remove(io, AT_FDCWD, dir, dir, &p.rules);
}

lc_status lc__ckpt_remove(const char *path, size_t trusted, const char *owner)
{
    char *clean = NULL, *aside = NULL;
    const char *name;
    int dir = -1;
    struct stat st;
    lc__ckpt_removal p;
    lc_status status;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    lc__ckpt_removal_init(&p, LC__CKPT_WHOLE, owner);
    LC_TRY_GOTO(status, done, lc__format(&clean, "%.*s", (int)n, path));
    LC_TRY_GOTO(status, done, lc__open_parent(clean, trusted, &dir, &name));
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        status = lc__io_fail(errno, "remove checkpoint", clean);
        goto done;
    }
    if (!S_ISDIR(st.st_mode)) {
        status = lc_fail(LC_ERR_ARGUMENT, "\"%s\" is not a checkpoint of lightc; it was not removed", clean);
        goto done;
    }
    LC_TRY_GOTO(status, done, lc__temp_name("", "del", name, &aside));
    p.rules.aside = aside + 1; /* after the slash */
    status = lc__remove(&lc__io_system, dir, name, clean, &p.rules);
done:
    lc__ckpt_removal_release(&p);
    if (dir >= 0) close(dir);
    free(aside);
    free(clean);
    return status;
}

lc_status lc_checkpoint_remove(const char *path)
{
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    return lc__ckpt_remove(path, 0, NULL);
}

lc_status lc__ckpt_may_replace(const char *path, const char *owner)
{
    struct stat st;
    lc__ckpt_removal p;
    if (lstat(path, &st) < 0 || S_ISLNK(st.st_mode)) return LC_OK;
    if (!S_ISDIR(st.st_mode))
        return lc_fail(LC_ERR_STATE, "a file of that name already exists and is not a checkpoint, so it is not "
                                     "replaced; remove it, or give the checkpoint another name");
    lc__ckpt_removal_init(&p, LC__CKPT_REPLACED, owner);
    lc_status status = lc__may_remove(AT_FDCWD, path, path, &p.rules);
    lc__ckpt_removal_release(&p);
    if (status != LC_ERR_ARGUMENT) return status == LC_ERR_NOT_FOUND ? LC_OK : status;
    return lc_fail(LC_ERR_STATE, "it already exists and is not a checkpoint, so it is not replaced; remove it, or give "
                                 "the checkpoint another name");
}

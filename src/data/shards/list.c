/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of a tar file, as WebDataset has them: members one after the other whose names are equal up to the first
 * dot after the last slash. What follows the dot says what a member is. */
#include "data/shards/shards.h"
#include "base/io.h"
#include "data/tar.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_TARGET 4096 /* bytes */

/* The sample whose members are read. */
typedef struct sample {
    char *key, *picture; /* names; NULL: none so far */
    char target[MOST_TARGET + 1];
    bool has_target;
    lc__image_place place;
} sample;

typedef struct lister {
    lc__tar tar;
    const char *extensions, *target; /* of members */
    int64_t archive;
    lc__image_list *list;
    lc__names *targets;
    sample now;
} lister;

/* Whether `list`, separated by commas, has a word, in any case. */
static bool lists(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list, *end; *p; p = *end ? end + 1 : end) {
        end = p + strcspn(p, ",");
        if ((size_t)(end - p) == n && !strncasecmp(p, word, n)) return true;
    }
    return false;
}

static lc_status lacks(const lister *l, const char *what, const char *extensions)
{
    return lc_fail(LC_ERR_FORMAT, "%s: sample %s has no %s (%s)", l->tar.path, l->now.key, what, extensions);
}

static lc_status end_sample(lister *l)
{
    sample *s = &l->now;
    lc_status status = LC_OK;
    if (s->key && !s->picture) status = lacks(l, "picture", l->extensions);
    if (s->key && s->picture && !s->has_target) status = lacks(l, "target", l->target);
    if (s->key && status == LC_OK) {
        status = lc__image_list_add_place(l->list, s->picture, &s->place);
        if (status == LC_OK) status = lc__names_add(l->targets, s->target);
    }
    free(s->key);
    free(s->picture);
    *s = (sample){0};
    return status;
}

static lc_status take_target(lister *l, const lc__tar_member *m)
{
    sample *s = &l->now;
    size_t n = (size_t)m->size, begin = 0;
    if (s->has_target) return lc_fail(LC_ERR_FORMAT, "%s: sample %s has two targets", l->tar.path, s->key);
    if (m->size > MOST_TARGET)
        return lc_fail(LC_ERR_FORMAT, "%s: %s has %llu bytes; a target has at most %d", l->tar.path, m->name,
                       (unsigned long long)m->size, MOST_TARGET);
    LC_TRY(lc__tar_read(&l->tar, m, s->target, n));
    if (memchr(s->target, 0, n))
        return lc_fail(LC_ERR_FORMAT, "%s: %s is not text; a target is an integer or the name of a class", l->tar.path,
                       m->name);
    while (n && isspace((unsigned char)s->target[n - 1])) n--;
    while (begin < n && isspace((unsigned char)s->target[begin])) begin++;
    memmove(s->target, s->target + begin, n - begin);
    s->target[n - begin] = 0;
    if (!*s->target)
        return lc_fail(LC_ERR_FORMAT, "%s: %s is empty; a target is an integer or the name of a class", l->tar.path,
                       m->name);
    s->has_target = true;
    return LC_OK;
}

static lc_status take_picture(lister *l, const lc__tar_member *m)
{
    sample *s = &l->now;
    if (s->picture)
        return lc_fail(LC_ERR_FORMAT, "%s: sample %s has two pictures, %s and %s; .extensions says which is meant",
                       l->tar.path, s->key, s->picture, m->name);
    s->place = (lc__image_place){l->archive, m->offset, m->size};
    return lc__format(&s->picture, "%s", m->name);
}

/* WebDataset keeps what describes a shard in folders at the top whose names are like __this__. */
static bool describes_shard(const char *name)
{
    const size_t n = strcspn(name, "/");
    return n >= 4 && !memcmp(name, "__", 2) && !memcmp(name + n - 2, "__", 2);
}

static lc_status take_member(lister *l, const lc__tar_member *m)
{
    if (describes_shard(m->name)) return LC_OK;
    const char *base = lc__path_base(m->name), *dot = strchr(base, '.');
    if (!dot || dot == base) return LC_OK;
    const size_t n = (size_t)(dot - m->name);
    if (!l->now.key || strlen(l->now.key) != n || memcmp(l->now.key, m->name, n) != 0) {
        LC_TRY(end_sample(l));
        LC_TRY(lc__format(&l->now.key, "%.*s", (int)n, m->name));
    }
    if (lists(l->target, dot + 1)) return take_target(l, m);
    return lists(l->extensions, dot + 1) ? take_picture(l, m) : LC_OK;
}

lc_status lc__shard_list(const char *path, int64_t archive, const lc_image_args *a, lc__image_list *list,
                         lc__names *targets)
{
    lister l = {.archive = archive,
                .list = list,
                .targets = targets,
                .extensions = a->extensions ? a->extensions : LC__IMAGE_EXTENSIONS,
                .target = a->target_extension ? a->target_extension : LC__SHARD_TARGET};
    lc__tar_member m;
    LC_TRY(lc__tar_open(&l.tar, path));
    lc_status status;
    while ((status = lc__tar_next(&l.tar, &m)) == LC_OK && m.name)
        if ((status = take_member(&l, &m)) < 0) break;
    if (status == LC_OK) status = end_sample(&l);
    free(l.now.key);
    free(l.now.picture);
    lc__tar_close(&l.tar);
    return status;
}

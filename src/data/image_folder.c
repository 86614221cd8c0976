/* SPDX-License-Identifier: Apache-2.0 */
/* Class folders as lists of pictures: torchvision's find_classes and make_dataset. Classes are the folders of a folder,
 * sorted; the files of a class are those of all folders within, which are sorted by their paths, and in each by name.
 */
#include "data/image_dataset.h"
#include "base/args.h"
#include "base/handle.h"
#include "base/io.h"
#include "base/str.h"
#include "data_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* The entries of a folder, sorted as bytes. */
typedef struct entries {
    lc__names folders, files;
} entries;

static bool has_extension(const char *name, const char *extensions)
{
    size_t n = strlen(name);
    for (const char *e = extensions, *end; *e; e = *end ? end + 1 : end) {
        size_t k = strcspn(e, ",");
        end = e + k;
        if (k && n > k && name[n - k - 1] == '.' && !strncasecmp(name + n - k, e, k)) return true;
    }
    return false;
}

/* Whether a path is a folder, also through links. What is gone, or a link to nothing, is not. */
static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* extensions NULL: files are not wanted. */
static lc_status read_folder(const char *path, const char *extensions, entries *out)
{
    DIR *dir = opendir(path);
    lc_status status = LC_OK;
    *out = (entries){0};
    if (!dir) return lc__io_fail(errno, "read the folder", path);
    for (struct dirent *e; status == LC_OK && (errno = 0, e = readdir(dir));) {
        char *inner = NULL;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        bool folder = e->d_type == DT_DIR;
        if (e->d_type == DT_LNK || e->d_type == DT_UNKNOWN) {
            LC_TRY_GOTO(status, done, lc__path_join(path, e->d_name, &inner));
            folder = is_folder(inner);
            free(inner);
        }
        if (folder)
            status = lc__names_add(&out->folders, e->d_name);
        else if (extensions && has_extension(e->d_name, extensions))
            status = lc__names_add(&out->files, e->d_name);
    }
    if (status == LC_OK && errno) status = lc__io_fail(errno, "read the folder", path);
    if (status == LC_OK) status = lc__names_sort(&out->folders);
    if (status == LC_OK) status = lc__names_sort(&out->files);
done:
    closedir(dir);
    if (status < 0) {
        lc__names_free(&out->folders);
        lc__names_free(&out->files);
    }
    return status;
}

/* ---- a class: its folders, then their files ---- */

/* A folder that is being read, in those that hold it. */
typedef struct place {
    const struct place *outer;
    dev_t device;
    ino_t inode;
} place;

static lc_status check_circle(const char *path, const place *outer, place *here)
{
    struct stat st;
    if (stat(path, &st) != 0) return lc__io_fail(errno, "read the folder", path);
    *here = (place){outer, st.st_dev, st.st_ino};
    for (const place *p = outer; p; p = p->outer)
        if (p->device == here->device && p->inode == here->inode)
            return lc_fail(LC_ERR_FORMAT, "%s is a link to a folder that it is in; remove it", path);
    return LC_OK;
}

/* Adds `path`, relative to the root, and all folders within. */
static lc_status find_folders(const char *root, const char *path, const place *outer, lc__names *folders)
{
    char *full = NULL, *inner = NULL;
    entries found = {0};
    place here;
    lc_status status;
    LC_TRY(lc__path_join(root, path, &full));
    LC_TRY_GOTO(status, done, check_circle(full, outer, &here));
    LC_TRY_GOTO(status, done, lc__names_add(folders, path));
    LC_TRY_GOTO(status, done, read_folder(full, NULL, &found));
    for (int64_t i = 0; i < found.folders.n; i++) {
        LC_TRY_GOTO(status, done, lc__path_join(path, lc__names_at(&found.folders, i), &inner));
        status = find_folders(root, inner, &here, folders);
        free(inner);
        if (status < 0) goto done;
    }
done:
    lc__names_free(&found.folders);
    lc__names_free(&found.files);
    free(full);
    return status;
}

static lc_status add_files(lc__image_list *list, const char *folder, const char *extensions, int64_t target)
{
    char *full = NULL, *file = NULL;
    entries found = {0};
    lc_status status;
    LC_TRY(lc__path_join(list->root, folder, &full));
    LC_TRY_GOTO(status, done, read_folder(full, extensions, &found));
    for (int64_t i = 0; i < found.files.n; i++) {
        LC_TRY_GOTO(status, done, lc__path_join(folder, lc__names_at(&found.files, i), &file));
        status = lc__image_list_add(list, file, target);
        free(file);
        if (status < 0) goto done;
    }
done:
    lc__names_free(&found.folders);
    lc__names_free(&found.files);
    free(full);
    return status;
}

static lc_status add_class(lc__image_list *list, const char *name, const char *extensions, int64_t target)
{
    lc__names folders = {0};
    lc_status status = find_folders(list->root, name, NULL, &folders);
    if (status == LC_OK) status = lc__names_sort(&folders);
    for (int64_t i = 0; status == LC_OK && i < folders.n; i++)
        status = add_files(list, lc__names_at(&folders, i), extensions, target);
    lc__names_free(&folders);
    return status;
}

/* ---- the dataset ---- */

/* The error that names the classes from `empty` on which have no files. */
static lc_status empty_classes(const char *dir, const lc__names *empty, const char *extensions)
{
    lc__str text = {0};
    for (int64_t i = 0; i < empty->n && i < 5; i++) lc__str_add(&text, "%s%s", i ? ", " : "", lc__names_at(empty, i));
    if (empty->n > 5) lc__str_add(&text, " and %lld more", (long long)empty->n - 5);
    lc_status status = lc_fail(LC_ERR_NOT_FOUND,
                               "%s: %s without a picture: %s; files ending in %s count (extensions), and allow_empty "
                               "permits empty classes",
                               dir, empty->n == 1 ? "a class" : "classes", text.failed ? "?" : text.s, extensions);
    lc__str_free(&text);
    return status;
}

static lc_status list_folder(const char *dir, const lc_image_args *a, lc__image_list *list)
{
    const char *extensions = a->extensions ? a->extensions : LC__IMAGE_EXTENSIONS;
    lc__names empty = {0};
    entries found;
    LC_TRY(lc__image_list_root(list, dir));
    LC_TRY(read_folder(dir, NULL, &found));
    list->classes = found.folders;
    if (!list->classes.n)
        return lc_fail(LC_ERR_NOT_FOUND, "%s has no folders: each class of pictures is a folder in it", dir);
    lc_status status = LC_OK;
    for (int64_t i = 0; status == LC_OK && i < list->classes.n; i++) {
        int64_t before = list->files.n;
        status = add_class(list, lc__names_at(&list->classes, i), extensions, i);
        if (status == LC_OK && list->files.n == before) status = lc__names_add(&empty, lc__names_at(&list->classes, i));
    }
    if (status == LC_OK && !list->files.n)
        status = lc_fail(LC_ERR_NOT_FOUND,
                         "%s has not one picture in its %lld folders; files ending in %s count (extensions)", dir,
                         (long long)empty.n, extensions);
    else if (status == LC_OK && empty.n && !a->allow_empty)
        status = empty_classes(dir, &empty, extensions);
    lc__names_free(&empty);
    return status;
}

static lc_status folder_new(const char *dir, const lc_image_args *a, lc_dataset **out)
{
    lc__image_list list = {0};
    LC_TRY(lc__image_args_check(a));
    if (a->root || a->file_column || a->target_column || a->target_extension)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: root, file_column and target_column are for lists of pictures, and target_extension is for "
                       "shards, not for a folder",
                       dir);
    lc_status status = list_folder(dir, a, &list);
    if (status == LC_OK) return lc__image_dataset_new(&list, a, out);
    lc__image_list_free(&list);
    return status;
}

lc_status lc_image_folder_new_with(const char *dir, lc_dataset **out, const lc_image_args *args)
{
    LC__TAKE_IF_GIVEN(a, lc_image, lc_image_args, args);
    if (out) *out = NULL;
    lc_status status = !dir ? lc__is_null(__func__, "dir") : !out ? lc__is_null(__func__, "out") : LC_OK;
    if (status == LC_OK) status = folder_new(dir, &a, out);
    return lc__image_args_taken(status, &a);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of src/ stand in layers, and no file includes what stands above its own (docs/design.md has the same table).
 */
#include "test.h"

#include <dirent.h>
#include <sys/stat.h>

static const struct {
    const char *folder;
    int layer;
} layers[] = {
    {"base", 0},      {"comm", 1},      {"tensor", 2},  {"record", 2},      {"ops", 2},    {"engine", 2},
    {"parallel", 2},  {"backends", 2},  {"optim", 2},   {"safetensors", 2}, {"module", 2}, {"nn", 3},
    {"data", 3},      {"metrics", 3},   {"core", 4},    {"launch", 4},      {"tools", 5},  {"strategies", 5},
    {"precision", 5}, {"callbacks", 5}, {"loggers", 5}, {"profilers", 5},
};

static int layer_of(const char *folder, size_t n)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (strlen(layers[i].folder) == n && !strncmp(layers[i].folder, folder, n)) return layers[i].layer;
    return -1;
}

typedef struct found {
    int files, includes, wrong;
} found;

static void look_at_file(const char *path, int layer, found *f)
{
    FILE *file = fopen(path, "r");
    char line[1024];
    if (!file) return;
    f->files++;
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        const char *name = line + strlen("#include \"");
        size_t n = strncmp(line, "#include \"", strlen("#include \"")) ? 0 : strcspn(name, "/\"");
        if (!n || name[n] != '/' || !strncmp(name, "lightc/", 7)) continue;
        int other = layer_of(name, n);
        if (other < 0) continue; /* a folder of its own folder */
        f->includes++;
        f->wrong += other > layer;
        if (other > layer) printf("  %s:%d includes what stands above it: %s", path, number, line);
    }
    fclose(file);
}

static void look_at_folder(const char *path, int layer, found *f)
{
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char at[4096];
        struct stat st;
        if (e->d_name[0] == '.') continue;
        snprintf(at, sizeof at, "%s/%s", path, e->d_name);
        if (stat(at, &st) < 0) continue;
        if (S_ISDIR(st.st_mode))
            look_at_folder(at, layer, f);
        else
            look_at_file(at, layer, f);
    }
    closedir(d);
}

TEST(nothing_includes_what_stands_above_it)
{
    const char *root = getenv("LIGHTC_TEST_SOURCE");
    char path[4096];
    found f = {0};
    snprintf(path, sizeof path, "%s/src", root ? root : ".");
    DIR *d = opendir(path);
    if (!d) SKIP("the sources are not here");
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strchr(e->d_name, '.')) continue; /* builtin.c names what is in every folder */
        int layer = layer_of(e->d_name, strlen(e->d_name));
        if (layer < 0) printf("  src/%s has no layer\n", e->d_name);
        CHECK(layer >= 0);
        snprintf(path, sizeof path, "%s/src/%s", root ? root : ".", e->d_name);
        look_at_folder(path, layer, &f);
    }
    closedir(d);
    CHECK(f.files > 300 && f.includes > 300); /* they were read */
    CHECK_EQ(f.wrong, 0);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The host reaches the memory of tensors through lc__tensor_map and lc__tensor_unmap (tensor/host_access.h) everywhere
 * but in the rooms of the table (docs/design.md, "Host access"). */
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

/* The member of lc_tensor, and the function that tells its value. */
#define MEMBER  "device_data"
#define ADDRESS "lc__tensor_address"

/* A folder ends with a slash. `seen`: the sources have it. */
static struct {
    const char *file, *word, *why;
    bool seen;
} allowed[] = {
    {"tensor/", MEMBER, "it is theirs", false},
    {"tensor/", ADDRESS, "it is theirs", false},
    {"engine/plan/", MEMBER, "a plan has addresses in it", false},
    {"engine/run/", MEMBER, "runs kernels", false},
    {"parallel/devices/devices.c", MEMBER, "copies from device to device, and adds up what they have", false},
    {"parallel/reduce/reducer.c", MEMBER, "memory that other processes map", false},
    {"parallel/reduce/reducer_uneven.c", MEMBER, "what an operator of other ranks gathers", false},
    {"parallel/reduce/reducer_sums.c", MEMBER, "the kernel that shares out sums", false},
    {"data/batch_slice.c", ADDRESS, "an input over part of another's memory, which is the loader's", false},
    {"callbacks/model_pruning.c", ADDRESS, "whether a view is still where its tensor is", false},
};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

static int files, wrong;

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Blanks out comments. */
static void strip(char *text)
{
    for (char *p = text; (p = strstr(p, "/*"));) {
        char *end = strstr(p, "*/");
        end = end ? end + 2 : p + strlen(p);
        for (; p < end; p++)
            if (*p != '\n') *p = ' ';
    }
}

static int count(const char *text, const char *word)
{
    int n = 0;
    size_t length = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += length)
        n += (p == text || !is_word(p[-1])) && !is_word(p[length]);
    return n;
}

static void look_for(const char *file, const char *text, const char *word)
{
    int n = count(text, word);
    for (int i = 0; n && i < ALLOWED; i++) {
        size_t length = strlen(allowed[i].file);
        bool folder = allowed[i].file[length - 1] == '/';
        if (strcmp(allowed[i].word, word) != 0) continue;
        if (folder ? strncmp(file, allowed[i].file, length) != 0 : strcmp(file, allowed[i].file) != 0) continue;
        allowed[i].seen = true;
        return;
    }
    if (!n) return;
    wrong++;
    printf("  src/%s has %s: map the tensor (tensor/host_access.h)\n", file, word);
}

static void look_at_text(const char *file, char *text)
{
    strip(text);
    look_for(file, text, MEMBER);
    look_for(file, text, ADDRESS);
    int maps = count(text, "lc__tensor_map") + count(text, "lc__st_map"), unmaps = count(text, "lc__tensor_unmap");
    if (!strncmp(file, "safetensors/write.c", 19)) maps--; /* lc__st_map itself: its callers unmap */
    if (maps <= unmaps || strstr(file, ".h")) return;
    wrong++;
    printf("  src/%s maps tensors in %d places, and unmaps them in %d\n", file, maps, unmaps);
}

static void look_at_file(const char *path, const char *file)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    CHECK(f && text);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    CHECK(n && n < (1 << 20) - 1);
    fclose(f);
    files++;
    look_at_text(file, text);
    free(text);
}

static bool is_source(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && (!strcmp(end, ".c") || !strcmp(end, ".h") || !strcmp(end, ".inl"));
}

static void look_at_folder(const char *root, const char *below)
{
    char path[4096], inner[2048];
    snprintf(path, sizeof path, "%s/%s", root, below);
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        if (e->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s%s%s", below, *below ? "/" : "", e->d_name);
        snprintf(path, sizeof path, "%s/%s", root, inner);
        if (stat(path, &st) < 0) continue;
        if (S_ISDIR(st.st_mode))
            look_at_folder(root, inner);
        else if (is_source(e->d_name))
            look_at_file(path, inner);
    }
    closedir(d);
}

TEST(the_host_maps_tensors)
{
    const char *source = getenv("LIGHTC_TEST_SOURCE");
    char root[1024];
    snprintf(root, sizeof root, "%s/src", source ? source : ".");
    look_at_folder(root, "");
    if (!files) SKIP("the sources are not here");
    CHECK(files > 300);
    for (int i = 0; i < ALLOWED; i++)
        if (!allowed[i].seen) {
            wrong++;
            printf("  src/%s has no %s any more (%s): take it from the table\n", allowed[i].file, allowed[i].word,
                   allowed[i].why);
        }
    CHECK_EQ(wrong, 0);
}

/* What is looked for is found, but not in comments. */
TEST(an_access_is_seen)
{
    char direct[] = "/* t->device_data */ memcpy(a, t->device_data, n); s->my_device_data = b;";
    char address[] = "p = lc__tensor_address(t);";
    char map[] = "lc__tensor_map(t, LC__READ, &v);\nlc__tensor_map(u, LC__READ, &v); lc__tensor_unmap(t, LC__READ);";
    char fine[] = "lc__tensor_map(t, LC__READ, &v); /* lc__tensor_map */ lc__tensor_unmap(t, LC__READ);";
    int before = wrong;
    look_at_text("core/x.c", direct);
    look_at_text("core/x.c", address);
    look_at_text("core/x.c", map);
    look_at_text("core/x.c", fine);
    int seen = wrong - before;
    wrong = before;
    CHECK_EQ(seen, 3);
}

TEST_MAIN

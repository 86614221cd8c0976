/* SPDX-License-Identifier: Apache-2.0 */
/* The host reaches the memory of tensors only through lc__tensor_map and lc__tensor_unmap (tensor/host_access.h),
 * except in the rooms of the table (docs/design.md, "Host access"). */
#include "sources.h"

/* The member of lc_tensor, and the function that returns its value. */
#define MEMBER  "device_data"
#define ADDRESS "lc__tensor_address"

/* A folder ends with a slash. `seen`: found in the sources. */
static struct {
    const char *file, *word, *why;
    bool seen;
} allowed[] = {
    {"tensor/", MEMBER, "tensors own it", false},
    {"tensor/", ADDRESS, "tensors own it", false},
    {"engine/plan/", MEMBER, "plans contain addresses", false},
    {"engine/run/", MEMBER, "runs kernels", false},
    {"parallel/devices/", MEMBER, "copies from device to device, and adds up", false},
    {"parallel/reduce/reducer.c", MEMBER, "memory that other processes map", false},
    {"parallel/reduce/reducer_uneven.c", MEMBER, "gathers for an operator of other ranks", false},
    {"parallel/reduce/reducer_sums.c", MEMBER, "the kernel that distributes sums", false},
    {"data/batch_slice.c", ADDRESS, "an input in a part of the loader's memory", false},
    {"callbacks/model_pruning.c", ADDRESS, "checks whether a view still points into its tensor", false},
};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

static int files, wrong;

static int count(const char *text, const char *word)
{
    int n = 0;
    size_t length = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += length)
        n += (p == text || !in_name(p[-1])) && !in_name(p[length]);
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
    blank_out(text);
    look_for(file, text, MEMBER);
    look_for(file, text, ADDRESS);
    int maps = count(text, "lc__tensor_map") + count(text, "lc__st_map"), unmaps = count(text, "lc__tensor_unmap");
    if (!strncmp(file, "safetensors/write.c", 19)) maps--; /* lc__st_map itself: its callers unmap */
    if (maps <= unmaps || strstr(file, ".h")) return;
    wrong++;
    printf("  src/%s maps tensors in %d places, and unmaps them in %d\n", file, maps, unmaps);
}

static void look_at_file(const char *name, char *text)
{
    files++;
    look_at_text(name + strlen("src/"), text);
}

TEST(the_host_maps_tensors)
{
    each_source("src", c_files, look_at_file);
    CHECK(files > 300);
    for (int i = 0; i < ALLOWED; i++)
        if (!allowed[i].seen) {
            wrong++;
            printf("  src/%s has no %s any more (%s): remove it from the table\n", allowed[i].file, allowed[i].word,
                   allowed[i].why);
        }
    CHECK_EQ(wrong, 0);
}

/* Accesses are found, but not in comments. */
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

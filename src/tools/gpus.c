/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this machine as the kernel lists them, whether or not anything can compute on them. */
#include "tools.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* A file of a device in hexadecimal, "0x030200"; 0 if it cannot be read. */
static unsigned long read_hex(const char *folder, const char *device, const char *file)
{
    char path[1024], text[32] = "";
    snprintf(path, sizeof path, "%s/%.200s/%s", folder, device, file);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    if (!fgets(text, sizeof text, f)) text[0] = 0;
    fclose(f);
    return strtoul(text, NULL, 16);
}

static int count_entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

void gpus_list(const char *root, char *text, size_t size)
{
    static const struct {
        unsigned long id;
        const char *name;
    } vendors[] = {{0x10de, "NVIDIA"}, {0x1002, "AMD"}, {0x8086, "Intel"}, {0, "of another vendor"}};
    enum { VENDORS = sizeof vendors / sizeof *vendors };
    char folder[512];
    int n[VENDORS] = {0};
    snprintf(folder, sizeof folder, "%.400s/sys/bus/pci/devices", root);
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        const unsigned long class = read_hex(folder, e->d_name, "class") >> 16,
                            id = read_hex(folder, e->d_name, "vendor");
        int v = 0;
        while (vendors[v].id && vendors[v].id != id) v++;
        n[v] += class == 0x03 || class == 0x12; /* displays, which GPUs without one are too; accelerators */
    }
    if (d) closedir(d);
    /* A container may see the driver, and not the bus. */
    snprintf(folder, sizeof folder, "%.400s/proc/driver/nvidia/gpus", root);
    const int driven = count_entries(folder);
    n[0] = driven > n[0] ? driven : n[0];
    text[0] = 0;
    for (int v = 0; v < VENDORS; v++) {
        const size_t used = strlen(text);
        if (n[v]) snprintf(text + used, size - used, "%s%d %s", used ? ", " : "", n[v], vendors[v].name);
    }
}

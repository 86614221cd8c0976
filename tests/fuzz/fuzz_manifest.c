/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of checkpoints, of one rank and of several, with their own correct checksum: one that is accepted must name
 * no file outside its folder, and print and read back as the same. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/checkpoint/checkpoint.h"
#include "base/crc32c.h"
#include "base/io.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static lc_status read_text(const void *text, size_t n, lc__manifest *out)
{
    static int fd = -1;
    char path[64];
    if (fd < 0) fd = memfd_create("manifest", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, text, n, 0) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return lc__manifest_read_file(&lc__io_system, path, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* If the first byte is even, the input follows the beginning of a manifest of three ranks. */
    static const char begin[] = "{\"format\":\"lightc checkpoint\",\"version\":2,\"lightc\":\"0.1.0\",\"saved_ns\":1,"
                                "\"ranks\":3,\"id\":\"a\",\"files\":[";
    char tail[64], *text = malloc(sizeof begin + size + sizeof tail);
    size_t n = 0;
    if (!text) return 0;
    if (size && data[0] % 2 == 0) memcpy(text, begin, n = sizeof begin - 1);
    if (size > 1) memcpy(text + n, data + 1, size - 1), n += size - 1;
    snprintf(tail, sizeof tail, "  \"crc32c\": \"%08" PRIx32 "\"\n}\n", lc__crc32c(0, text, n));
    memcpy(text + n, tail, strlen(tail));
    lc__manifest m = {0}, again = {0};
    if (read_text(text, n + strlen(tail), &m) >= 0) {
        char *printed;
        size_t length;
        for (int i = 0; i < m.n; i++)
            if (!*m.files[i].name || *m.files[i].name == '.' || strchr(m.files[i].name, '/')) abort();
        if (lc__manifest_print(&m, &printed, &length) < 0 || read_text(printed, length, &again) < 0) abort();
        if (again.n != m.n || again.ranks != m.ranks || again.saved_ns != m.saved_ns) abort();
        for (int i = 0; i < m.n; i++)
            if (strcmp(m.files[i].name, again.files[i].name) || m.files[i].size != again.files[i].size ||
                m.files[i].crc != again.files[i].crc)
                abort();
        free(printed);
    }
    lc__manifest_release(&m);
    lc__manifest_release(&again);
    free(text);
    return 0;
}

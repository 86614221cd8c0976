/* SPDX-License-Identifier: Apache-2.0 */
/* Shards: for any bytes as a tar file, or as its index, there is a message or a dataset whose samples can be asked for.
 * The first byte says which of the two the others are. */
#include <lightc/image.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/lightc-fuzz-shards-XXXXXX", tar[64], idx[64];

static void put(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    close(fd);
}

static void clean(void)
{
    (void)remove(idx);
    (void)remove(tar);
    (void)rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char zeros[2048];
    if (!*tar) {
        if (!mkdtemp(folder)) abort();
        snprintf(tar, sizeof tar, "%s/t.tar", folder);
        snprintf(idx, sizeof idx, "%s.idx", tar);
        atexit(clean);
    }
    const bool index = size && data[0] % 2;
    if (size) data++, size--;
    (void)remove(idx);
    put(tar, index ? (const void *)zeros : data, index ? sizeof zeros : size);
    if (index) put(idx, data, size);
    lc_dataset *d;
    if (lc_image_shards_new(tar, &d, .height = 3, .width = 2) < 0) {
        if (!*lc_error_message()) abort();
        return 0;
    }
    uint8_t x[18];
    int64_t y;
    for (int64_t i = 0; i < lc_dataset_length(d) && i < 4; i++) {
        if (!*lc_image_file(d, i)) abort();
        if (lc_dataset_read(d, i, 0, (void *[]){x, &y}) < 0 && !*lc_error_message()) abort();
    }
    lc_dataset_unref(d);
    return 0;
}

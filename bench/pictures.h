/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LC_BENCH_PICTURES_H
#define LC_BENCH_PICTURES_H
#include "bench.h"

#define BENCH_CLASSES 4 /* picture i is FOLDER/(i % BENCH_CLASSES)/(six digits of i).jpg */

typedef struct bench_bytes {
    uint8_t *bytes;
    size_t n;
} bench_bytes;

/* Does nothing if the folder exists. */
lc_status bench_pictures_write(const char *folder, int width, int height, int n);
/* The files as they are; the caller frees their bytes. */
lc_status bench_pictures_read(const char *folder, int n, bench_bytes *files);
/* Room for a decoded picture. */
size_t bench_picture_room(int width, int height);
/* By libjpeg with its defaults, one after the other into the same memory. */
void bench_pictures_decode(int n, const bench_bytes *files, uint8_t *pixels);
#endif

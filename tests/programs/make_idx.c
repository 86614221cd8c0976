/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a small set of images in the format of MNIST, for tests if no real data is available: ten classes, each a
 * bright bar of its own height and width in noise, or its mirror image; a network learns them within a few dozen steps.
 *
 *     make_idx DIR [TRAIN [TEST]]      600 and 120 images by default; the same bytes each time */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t random_state = 1;

static unsigned random_byte(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 56);
}

static void put_be32(FILE *f, long value)
{
    for (int shift = 24; shift >= 0; shift -= 8) fputc((int)(value >> shift & 255), f);
}

static FILE *start(const char *dir, const char *name, int magic, long n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f) {
        perror(path);
        exit(1);
    }
    put_be32(f, magic);
    put_be32(f, n);
    return f;
}

static void finish(FILE *f)
{
    if (ferror(f) | fclose(f)) {
        perror("make_idx");
        exit(1);
    }
}

static void write_set(const char *dir, const char *images_name, const char *labels_name, long n)
{
    FILE *images = start(dir, images_name, 0x803, n), *labels = start(dir, labels_name, 0x801, n);
    put_be32(images, 28);
    put_be32(images, 28);
    for (long i = 0; i < n; i++) {
        int label = (int)(i % 10), top = 2 + 5 * (label % 5), left = label / 5 ? 11 : 2;
        for (int y = 0; y < 28; y++)
            for (int x = 0; x < 28; x++) {
                unsigned noise = random_byte() / 4;
                fputc((int)(y >= top && y < top + 4 && x >= left && x < 28 - left ? 190 + noise : noise), images);
            }
        fputc(label, labels);
    }
    finish(images);
    finish(labels);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: make_idx DIR [TRAIN [TEST]]\n");
        return 2;
    }
    write_set(argv[1], "train-images-idx3-ubyte", "train-labels-idx1-ubyte", argc > 2 ? atol(argv[2]) : 600);
    write_set(argv[1], "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", argc > 3 ? atol(argv[3]) : 120);
    return 0;
}

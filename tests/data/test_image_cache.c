/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures kept in memory: which are read again, how many there is room for, and threads. Run under ThreadSanitizer
 * too. */
#include "test.h"
#include "scratch.h"
#include "base/png.h"
#include <lightc/data.h>
#include <lightc/image.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

enum { SIDE = 8, N = 12 };

static char root[300];
static time_t now; /* when a test began */

/* A picture of one color in a file that was written `age` seconds ago; its size does not depend on the color. */
static void put_picture(int i, int color, int age)
{
    char path[400];
    unsigned char pixels[SIDE * SIDE * 3], zeros[4000] = {0};
    lc__str png = {0};
    memset(pixels, color, sizeof pixels);
    CHECK_OK(lc__png_add(&png, pixels, SIDE, SIDE, 3));
    CHECK(png.n < sizeof zeros);
    snprintf(path, sizeof path, "%s/c/%02d.png", root, i);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(png.s, 1, png.n, f) == png.n && fwrite(zeros, 1, sizeof zeros - png.n, f) && !fclose(f));
    struct timespec times[2] = {{.tv_sec = now - age}, {.tv_sec = now - age}};
    CHECK(!utimensat(AT_FDCWD, path, times, 0));
    lc__str_free(&png);
}

static void begin(const char *name)
{
    char path[400];
    snprintf(root, sizeof root, "%s", fresh_dir(name));
    now = time(NULL);
    snprintf(path, sizeof path, "%s/c", root);
    CHECK(!mkdir(path, 0777));
    for (int i = 0; i < N; i++) put_picture(i, 10 * i, 10000);
}

static int color_of(lc_dataset *d, int64_t i)
{
    unsigned char pixels[SIDE * SIDE * 3];
    int64_t target;
    CHECK_OK(lc_dataset_read(d, i, 0, (void *[]){pixels, &target}));
    for (size_t k = 1; k < sizeof pixels; k++) CHECK(pixels[k] == pixels[0]);
    return pixels[0];
}

static lc_dataset *dataset_of(int64_t bytes)
{
    lc_dataset *d;
    CHECK_OK(lc_image_folder_new(root, &d, .height = SIDE, .width = SIDE, .cache_bytes = bytes));
    return d;
}

/* A file whose time and size are set back shows what is kept. */
TEST(files_are_kept_and_changed_ones_are_read)
{
    begin("image_cache");
    lc_dataset *d = dataset_of(1 << 20), *none = dataset_of(0);
    for (int i = 0; i < N; i++) CHECK(color_of(d, i) == 10 * i && color_of(none, i) == 10 * i);
    put_picture(3, 200, 10000);
    CHECK(color_of(d, 3) == 30 && color_of(none, 3) == 200);
    put_picture(3, 201, 5000);
    put_picture(4, 202, 10000);
    for (int k = 0; k < 2; k++) CHECK(color_of(d, 3) == 201 && color_of(d, 4) == 40);
    lc_dataset_unref(d);
    lc_dataset_unref(none);
}

TEST(files_that_are_being_written_are_not_kept)
{
    begin("image_cache_young");
    put_picture(0, 5, 0);
    lc_dataset *d = dataset_of(1 << 20);
    CHECK_EQ(color_of(d, 0), 5);
    put_picture(0, 6, 0);
    CHECK_EQ(color_of(d, 0), 6);
    lc_dataset_unref(d);
}

TEST(there_is_room_for_some)
{
    begin("image_cache_room");
    lc_dataset *d = dataset_of(5 * 4096);
    int kept = 0;
    for (int i = 0; i < N; i++) CHECK_EQ(color_of(d, i), 10 * i);
    for (int i = 0; i < N; i++) put_picture(i, 200, 10000);
    for (int i = 0; i < N; i++) kept += color_of(d, i) != 200;
    CHECK(kept >= 4 && kept <= 5);
    lc_dataset_unref(d);
    CHECK_STATUS(lc_image_folder_new(root, &d, .height = SIDE, .width = SIDE, .cache_bytes = -1), LC_ERR_ARGUMENT);
}

TEST(threads_share_it)
{
    begin("image_cache_threads");
    lc_dataset *d = dataset_of(7 * 4096);
    for (int workers = 0; workers <= 4; workers += 2) {
        lc_dataloader *l;
        lc_loader_times times;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d, .batch_size = 3, .shuffle = true, .num_workers = workers));
        for (int epoch = 0; epoch < 5; epoch++) {
            CHECK_OK(lc_dataloader_begin(l, epoch, 0));
            for (lc_batch *b;;) {
                unsigned char pixels[3][SIDE * SIDE * 3];
                CHECK_OK(lc_dataloader_next(l, &b));
                if (!b) break;
                CHECK_OK(lc_tensor_read(b->x, pixels, sizeof pixels));
                for (int j = 0; j < 3; j++) CHECK_EQ(pixels[j][0], 10 * b->indices[j]);
            }
        }
        lc_dataloader_times(l, &times);
        CHECK(times.batches == 20 && times.workers == workers && times.decoded > 0 && times.read > 0);
        CHECK(times.gathered > 0 && (workers || times.waited == times.gathered));
        CHECK(times.read + times.decoded + times.transformed <= times.gathered);
        lc_dataloader_free(l);
    }
    lc_dataset_unref(d);
}

TEST_MAIN

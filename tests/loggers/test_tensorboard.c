/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard's files, read with this test's own reader (records, checksums, messages, pictures) and, if a Python has
 * it, with TensorBoard's. */
#include "test.h"
#include "log_everything.h"
#include "peer_python.h"
#include "scratch.h"
#include <lightc/logger.h>
#include "base/io.h"
#include "base/png.h"
#include "loggers/writer.h"

#include <dirent.h>
#include <sys/stat.h>
#include <zlib.h>

/* ---- a strict reader ---- */

/* Bit by bit, from the definition: reflected, polynomial 0x1edc6f41. */
static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static uint32_t masked(const unsigned char *p, size_t n)
{
    uint32_t crc = crc32c(p, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static uint64_t little(const unsigned char *p, int n)
{
    uint64_t v = 0;
    while (n--) v = v << 8 | p[n];
    return v;
}

/* A varint in its shortest form. */
static uint64_t varint(const unsigned char **p, const unsigned char *end)
{
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        CHECK(*p < end && shift < 64);
        unsigned char byte = *(*p)++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        CHECK(byte || !shift);
        return v;
    }
}

static char dump[1 << 16];
static size_t dumped;

#define SAY(...) (dumped += (size_t)snprintf(dump + dumped, sizeof dump - dumped, __VA_ARGS__))

/* The kind of a field's bytes; `path` is its field numbers from the event down. */
static char kind_of(const char *path)
{
    static const char *const messages[] = {
        "5",           "5.1",           "5.1.4",         "5.1.5",           "5.1.8",         "5.1.8.2",
        "5.1.8.2.2",   "5.1.9",         "5.1.9.1",       "5.1.9.1.2",       "5.1.9.1.2.2",   "5.1.9.1.2.3",
        "5.1.9.1.2.4", "5.1.9.1.2.2.4", "5.1.9.1.2.2.5", "5.1.9.1.2.2.5.1", "5.1.9.1.2.3.1", "5.1.9.1.2.3.1.2",
    };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (!strcmp(path, messages[i])) return 'm';
    if (!strcmp(path, "5.1.5.6") || !strcmp(path, "5.1.5.7")) return 'd';
    if (!strcmp(path, "5.1.4.4")) return 'b';
    return 't';
}

/* A picture's pixels as numbers. */
static void read_png(const unsigned char *p, size_t n)
{
    static const int channels_of[] = {1, 0, 3, 0, 2, 0, 4};
    const unsigned char *end = p + n;
    CHECK(n > 8 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8));
    unsigned char raw[4096], packed[4096];
    size_t n_packed = 0, width = 0, height = 0, channels = 0;
    bool ended = false;
    for (p += 8; p < end;) {
        CHECK(!ended && end - p >= 12);
        size_t length = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        CHECK(length <= (size_t)(end - p) - 12);
        const unsigned char *data = p + 8, *sum = data + length;
        CHECK_EQ((uint32_t)crc32(0, p + 4, (uInt)length + 4),
                 (uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3]);
        if (!memcmp(p + 4, "IHDR", 4)) {
            CHECK_EQ(length, 13);
            width = data[3], height = data[7];
            CHECK(data[8] == 8 && data[9] <= 6 && !data[10] && !data[11] && !data[12]);
            channels = (size_t)channels_of[data[9]];
        } else if (!memcmp(p + 4, "IDAT", 4)) {
            CHECK(n_packed + length <= sizeof packed);
            memcpy(packed + n_packed, data, length);
            n_packed += length;
        } else {
            CHECK(!memcmp(p + 4, "IEND", 4) && !length);
            ended = true;
        }
        p = sum + 4;
    }
    CHECK(ended && channels);
    uLongf got = sizeof raw;
    CHECK(uncompress(raw, &got, packed, (uLong)n_packed) == Z_OK);
    size_t row = width * channels;
    CHECK_EQ(got, (row + 1) * height);
    SAY("%zux%zux%zu:", height, width, channels);
    unsigned char above[256] = {0};
    for (size_t y = 0; y < height; y++) {
        CHECK_EQ(raw[y * (row + 1)], 2);
        for (size_t x = 0; x < row; x++) {
            above[x] = (unsigned char)(above[x] + raw[y * (row + 1) + 1 + x]);
            SAY("%s%d", x || y ? "," : "", above[x]);
        }
    }
    SAY("\n");
}

static void read_message(const unsigned char *p, const unsigned char *end, const char *path)
{
    while (p < end) {
        char here[64];
        uint64_t key = varint(&p, end), n;
        double d;
        float f;
        snprintf(here, sizeof here, "%s%s%d", path, *path ? "." : "", (int)(key >> 3));
        switch (key & 7) {
        case 0:
            SAY("%s=%lld\n", here, (long long)varint(&p, end));
            break;
        case 1:
            CHECK(end - p >= 8);
            n = little(p, 8), p += 8;
            memcpy(&d, &n, 8);
            if (!strcmp(here, "5.1.9.1.2.3.5") || !strcmp(here, "5.1.9.1.2.4.2"))
                SAY("%s=<%s>\n", here, d > 1.7e9 && d < 1e11 ? "now" : "another time");
            else
                SAY("%s=%.17g\n", here, d);
            break;
        case 5:
            CHECK(end - p >= 4);
            n = little(p, 4), p += 4;
            memcpy(&f, &n, 4);
            SAY("%s=%.9g\n", here, (double)f);
            break;
        case 2:
            n = varint(&p, end);
            CHECK(n <= (uint64_t)(end - p));
            if (kind_of(here) == 'm') {
                read_message(p, p + n, here);
            } else if (kind_of(here) == 'd') {
                CHECK(n % 8 == 0);
                SAY("%s=", here);
                for (uint64_t i = 0; i < n; i += 8) {
                    uint64_t bits = little(p + i, 8);
                    memcpy(&d, &bits, 8);
                    SAY("%s%g", i ? "," : "", d);
                }
                SAY("\n");
            } else if (kind_of(here) == 'b') {
                SAY("%s=", here);
                read_png(p, n);
            } else {
                SAY("%s=%.*s\n", here, (int)n, (const char *)p);
            }
            p += n;
            break;
        default:
            TEST_FAIL("wire type %d", (int)(key & 7));
        }
    }
    CHECK(p == end);
}

/* The only event file in a directory. */
static unsigned char *read_file(const char *dir, size_t *n)
{
    static unsigned char bytes[1 << 20];
    char path[600] = "", host[256] = "?";
    DIR *d = opendir(dir);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, "events.out.tfevents.", 20)) {
            CHECK(!*path);
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            /* events.out.tfevents.<10 digits>.<host>.<pid>.<n> */
            char tail[400];
            gethostname(host, sizeof host - 1);
            CHECK_EQ(strspn(e->d_name + 20, "0123456789"), 10);
            snprintf(tail, sizeof tail, ".%s.%ld.0", host, (long)getpid());
            CHECK_STR(e->d_name + 30, tail);
        }
    closedir(d);
    FILE *f = fopen(path, "rb");
    CHECK(f);
    *n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return bytes;
}

/* All records of the file as text, without the times of events except that of the first row. */
static int read_events(const char *dir)
{
    size_t n;
    const unsigned char *p = read_file(dir, &n), *end = p + n;
    int records = 0;
    dumped = 0;
    for (; p < end; records++) {
        CHECK(end - p >= 12);
        uint64_t length = little(p, 8);
        CHECK_EQ(little(p + 8, 4), masked(p, 8));
        CHECK(length <= (uint64_t)(end - p) - 16);
        CHECK_EQ(little(p + 12 + length, 4), masked(p + 12, length));
        CHECK_EQ(p[12], 0x09); /* the time is the first field */
        SAY("event\n");
        read_message(p + 12 + 9, p + 12 + length, "");
        p += length + 16;
    }
    return records;
}

TEST(checksums_are_those_of_the_definition)
{
    CHECK_EQ(crc32c((const unsigned char *)"123456789", 9), 0xe3069283u);
    const unsigned char zeros[32] = {0};
    CHECK_EQ(crc32c(zeros, 32), 0x8a9136aau);
    /* The length 24 of the first record, which begins every file that TensorFlow writes. */
    const unsigned char length[8] = {24};
    CHECK_EQ(masked(length, 8), 0x224b7fa3u);
}

/* ---- the contents ---- */

static const lc_hparam *const hparams = everything_hparams;

static lc_logger start(const char *dir)
{
    lc_logger l;
    lc_run_info run = {.root_dir = dir, .name = "lightning_logs", .run_dir = dir, .run_id = "run-1"};
    CHECK_OK(lc_logger_new("tensorboard", &l));
    CHECK_OK(l.ops->start(l.self, &run));
    return l;
}

static void finish(lc_logger l, const char *status)
{
    CHECK_OK(l.ops->finish(l.self, status));
    l.ops->free(l.self);
}

static void write_all(const char *dir)
{
    lc_logger l = start(dir);
    log_everything(l);
    finish(l, "success");
}

TEST(every_message)
{
    const char *dir = fresh_dir("all");
    write_all(dir);
    CHECK_EQ(read_events(dir), 15);
    CHECK_STR(dump, "event\n"
                    "3=brain.Event:2\n"
                    "event\n"
                    "5.1.1=hp_metric\n"
                    "5.1.2=-1\n"
                    "event\n"
                    "5.1.1=_hparams_/experiment\n"
                    "5.1.9.1.1=hparams\n"
                    "5.1.9.1.2.2.4.1=bias\n"
                    "5.1.9.1.2.2.4.4=2\n"
                    "5.1.9.1.2.2.4.1=clip\n"
                    "5.1.9.1.2.2.4.4=1\n"
                    "5.1.9.1.2.2.4.1=layers\n"
                    "5.1.9.1.2.2.4.4=3\n"
                    "5.1.9.1.2.2.4.1=lr\n"
                    "5.1.9.1.2.2.4.4=3\n"
                    "5.1.9.1.2.2.4.1=name\n"
                    "5.1.9.1.2.2.4.4=1\n"
                    "5.1.9.1.2.2.5.1.2=hp_metric\n"
                    "event\n"
                    "5.1.1=_hparams_/session_start_info\n"
                    "5.1.9.1.1=hparams\n"
                    "5.1.9.1.2.3.1.1=bias\n"
                    "5.1.9.1.2.3.1.2.4=1\n"
                    "5.1.9.1.2.3.1.1=clip\n"
                    "5.1.9.1.2.3.1.2.3=None\n"
                    "5.1.9.1.2.3.1.1=layers\n"
                    "5.1.9.1.2.3.1.2.2=4\n"
                    "5.1.9.1.2.3.1.1=lr\n"
                    "5.1.9.1.2.3.1.2.2=0.001\n"
                    "5.1.9.1.2.3.1.1=name\n"
                    "5.1.9.1.2.3.1.2.3=résnet\n"
                    "5.1.9.1.2.3.4=run-1\n"
                    "5.1.9.1.2.3.5=<now>\n"
                    "event\n"
                    "5.1.1=train_loss\n"
                    "5.1.2=0.5\n"
                    "event\n"
                    "5.1.1=val/acc\n"
                    "5.1.2=1\n"
                    "event\n"
                    "5.1.1=epoch\n"
                    "5.1.2=0\n"
                    "event\n"
                    "2=1\n"
                    "5.1.1=train_loss\n"
                    "5.1.2=0.25\n"
                    "event\n"
                    "2=1\n"
                    "5.1.1=epoch\n"
                    "5.1.2=0\n"
                    "event\n"
                    "2=1099511627776\n"
                    "5.1.1=train_loss\n"
                    "5.1.2=nan\n"
                    "event\n"
                    "2=7\n"
                    "5.1.1=weights\n"
                    "5.1.5.1=-2\n"
                    "5.1.5.2=3\n"
                    "5.1.5.3=6\n"
                    "5.1.5.4=4\n"
                    "5.1.5.5=14.5\n"
                    "5.1.5.6=-2,0,1,3\n"
                    "5.1.5.7=0,1,2,3\n"
                    "event\n"
                    "2=8\n"
                    "5.1.1=picture\n"
                    "5.1.4.1=2\n"
                    "5.1.4.2=3\n"
                    "5.1.4.3=3\n"
                    "5.1.4.4=2x3x3:0,13,26,39,52,65,78,91,104,117,130,143,156,169,182,195,208,221\n"
                    "event\n"
                    "2=8\n"
                    "5.1.1=gray\n"
                    "5.1.4.1=1\n"
                    "5.1.4.2=2\n"
                    "5.1.4.3=1\n"
                    "5.1.4.4=1x2x1:0,255\n"
                    "event\n"
                    "2=9\n"
                    "5.1.1=note/text_summary\n"
                    "5.1.9.1.1=text\n"
                    "5.1.8.1=7\n"
                    "5.1.8.2.2.1=1\n"
                    "5.1.8.8=**größer** than\n"
                    "this\n"
                    "event\n"
                    "5.1.1=_hparams_/session_end_info\n"
                    "5.1.9.1.1=hparams\n"
                    "5.1.9.1.2.4.1=1\n"
                    "5.1.9.1.2.4.2=<now>\n");
}

TEST(tensorboard_reads_it)
{
    const char *python = peer_python("tensorboard, PIL");
    if (!python)
        SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with tensorboard and pillow");
    const char *dir = fresh_dir("peer");
    char command[2048];
    write_all(dir);
    snprintf(command, sizeof command,
             "'%s' '%s/tests/peers/read_tensorboard.py' '%s' >'%s/said' 2>&1 || { cat '%s/said'; false; }", python,
             test_source_dir(), dir, dir, dir);
    CHECK_EQ(system(command), 0);
}

/* Each session of a run is a file; without hyperparameters it has no records of the plugin; a failed session is marked
 * as such. */
TEST(how_a_run_ends)
{
    static const char *const ends[] = {"success", "failed", "interrupted"};
    for (int k = 0; k < 3; k++) {
        const char *dir = fresh_dir("ends");
        lc_logger l = start(dir);
        if (k) CHECK_OK(l.ops->log_hyperparameters(l.self, hparams + k, 1));
        finish(l, ends[k]);
        read_events(dir);
        if (k) CHECK_CONTAINS(dump, "5.1.9.1.2.4.1=2\n");
        if (!k) CHECK_STR(dump, "event\n3=brain.Event:2\n");
        char path[400], *yaml;
        size_t n;
        snprintf(path, sizeof path, "%s/hparams.yaml", dir);
        CHECK_OK(lc__io_read_file(&lc__io_system, path, 1000, &yaml, &n));
        CHECK_STR(yaml, k == 0 ? "{}\n" : k == 1 ? "layers: 4\n" : "bias: true\n");
        free(yaml);
    }
}

/* For TensorBoard only the first hyperparameters of a file count; hparams.yaml has them all. */
TEST(hyperparameters_that_come_later)
{
    const char *dir = fresh_dir("later");
    lc_logger l = start(dir);
    CHECK_OK(l.ops->log_hyperparameters(l.self, hparams, 1));
    CHECK_OK(l.ops->flush(l.self));
    CHECK_OK(l.ops->log_hyperparameters(l.self, hparams + 1, 1));
    finish(l, "success");
    CHECK_EQ(read_events(dir), 5);
    char path[400], *yaml;
    size_t n;
    snprintf(path, sizeof path, "%s/hparams.yaml", dir);
    CHECK_OK(lc__io_read_file(&lc__io_system, path, 1000, &yaml, &n));
    CHECK_STR(yaml, "layers: 4\nlr: 0.001\n");
    free(yaml);
}

static void path_of_events(const char *dir, char *path, size_t size)
{
    DIR *d = opendir(dir);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, "events.out.", 11)) snprintf(path, size, "%s/%s", dir, e->d_name);
    closedir(d);
}

static void log_loss(lc_logger l, int64_t step)
{
    lc_metric_value v = {"loss", (double)step};
    CHECK_OK(l.ops->log_row(l.self, &(lc_log_row){&v, 1, step, 0, EVERYTHING_NS}));
}

/* Removed: a new file, complete in itself. Replaced: not written, since records cannot follow something else. */
TEST(a_file_that_somebody_removes_or_replaces)
{
    for (int replaced = 0; replaced < 2; replaced++) {
        const char *dir = fresh_dir("gone");
        lc_logger l = start(dir);
        char path[600];
        path_of_events(dir, path, sizeof path);
        CHECK_OK(l.ops->log_hyperparameters(l.self, hparams, 1));
        log_loss(l, 1);
        CHECK_OK(l.ops->flush(l.self));
        CHECK(!unlink(path));
        if (replaced) CHECK_OK(lc__create_file(&lc__io_system, path, "mine", 4));
        log_loss(l, 2);
        lc_status status = l.ops->flush(l.self);
        if (replaced) {
            CHECK_STATUS(status, LC_ERR_IO);
            CHECK_CONTAINS(lc_error_message(), "was replaced or cut during the run; move it away");
            CHECK(!unlink(path));
        } else {
            CHECK_OK(status);
        }
        finish(l, "success");
        CHECK(read_events(dir) >= 4); /* version, hyperparameters, row, end */
        CHECK_CONTAINS(dump, "brain.Event:2");
        CHECK_CONTAINS(dump, "_hparams_/session_start_info");
        CHECK_CONTAINS(dump, "loss");
    }
}

TEST(impossible_pictures)
{
    lc__str out = {0};
    const uint8_t pixel[8] = {1, 2};
    CHECK_STATUS(lc__png_add(&out, pixel, 0, 1, 1), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc__png_add(&out, pixel, 1, 1, 5), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc__png_add(&out, pixel, 1 << 30, 1 << 30, 4), LC_ERR_ARGUMENT);
    CHECK_EQ(out.n, 0);
    CHECK_OK(lc__png_add(&out, pixel, 1, 1, 2));
    dumped = 0;
    read_png((const unsigned char *)out.s, out.n);
    CHECK_STR(dump, "1x1x2:1,2\n");
    lc__str_free(&out);
}

TEST_MAIN

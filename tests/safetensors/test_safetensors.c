/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files: files of lightc are read back, also by the real package if it is installed; malformed files are
 * refused. */
#include "peer_python.h"
#include "remove_tree.h"
#include "test.h"
#include <lightc/safetensors.h>
#include "base/io.h"
#include "safetensors/safetensors_impl.h"

#include <dirent.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[256];

__attribute__((constructor)) static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lightc-test-st-XXXXXX");
    if (!mkdtemp(dir)) abort();
}

__attribute__((destructor)) static void remove_dir(void)
{
    if (!remove_tree(dir)) fprintf(stderr, "%s is left behind\n", dir);
}

static const char *in_dir(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f);
    CHECK(fwrite(data, 1, n, f) == n);
    CHECK(!fclose(f));
}

static const float f_data[6] = {1, -2, 3.5f, 4, 5, 6};
static const int64_t i_data[2] = {INT64_MIN, 7};
static const uint8_t b_data[3] = {1, 0, 1};

static const lc_named_tensor entries[] = {
    {"z.weight", NULL, {LC_F32, 2, {2, 3}}, f_data},
    {"flags", NULL, {LC_BOOL, 1, {3}}, b_data},
    {"a.weight", NULL, {LC_F32, 2, {3, 2}}, f_data},
    {"step", NULL, {LC_I64, 1, {2}}, i_data},
    {"scalar \"\xc3\xa4\"", NULL, {LC_F32, 0, {0}}, f_data + 2},
    {"empty", NULL, {LC_F64, 2, {0, 5}}, NULL},
};
#define N ((int64_t)(sizeof entries / sizeof *entries))

TEST(written_and_read)
{
    const char *path = in_dir("a.safetensors");
    const lc_text_pair metadata[] = {{"format", "pt"}, {"note", "line\nbreak"}};
    CHECK_OK(lc_safetensors_save(path, N, entries, 2, metadata));
    lc_safetensors *f;
    CHECK_OK(lc_safetensors_open(path, &f));
    CHECK_EQ(lc_safetensors_count(f), N);
    CHECK_STR(lc_safetensors_metadata(f, "note"), "line\nbreak");
    CHECK(!lc_safetensors_metadata(f, "no"));
    const lc_text_pair *first = lc_safetensors_metadata_at(f, 0), *second = lc_safetensors_metadata_at(f, 1);
    CHECK(first && !strcmp(first->key, "format") && !strcmp(first->value, "pt"));
    CHECK(second && !strcmp(second->key, "note") && !strcmp(second->value, "line\nbreak"));
    CHECK(!lc_safetensors_metadata_at(f, 2) && !lc_safetensors_metadata_at(f, -1));
    /* Wide types first, then by name; the first tensor's data is aligned. */
    static const char *const order[] = {"step", "empty", "a.weight", "scalar \"\xc3\xa4\"", "z.weight", "flags"};
    const char *const *want = order;
    for (int64_t i = 0; i < N; i++) CHECK_STR(lc_safetensors_info(f, i)->name, want[i]);
    CHECK_EQ(lc_safetensors_info(f, 0)->offset % 8, 0);
    for (int64_t k = 0; k < N; k++) {
        int64_t i = lc_safetensors_find(f, entries[k].name);
        CHECK(i >= 0);
        const lc_safetensor_info *info = lc_safetensors_info(f, i);
        CHECK_EQ(info->type.dtype, entries[k].type.dtype);
        CHECK_EQ(info->type.ndim, entries[k].type.ndim);
        char value[64];
        CHECK(info->bytes <= sizeof value);
        CHECK_OK(lc_safetensors_read(f, i, value, info->bytes));
        CHECK(!info->bytes || !memcmp(value, entries[k].data, info->bytes));
        CHECK_STATUS(lc_safetensors_read(f, i, value, info->bytes + 1), LC_ERR_SHAPE);
    }
    CHECK_EQ(lc_safetensors_find(f, "zzz"), -1);
    float two[2];
    CHECK_OK(lc_safetensors_read_range(f, lc_safetensors_find(f, "z.weight"), 8, two, 8));
    CHECK(two[0] == 3.5f && two[1] == 4);
    CHECK_STATUS(lc_safetensors_read_range(f, lc_safetensors_find(f, "z.weight"), 20, two, 8), LC_ERR_ARGUMENT);
    lc_safetensors_close(f);
    /* Nothing else is left in the directory. */
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));) CHECK(strncmp(e->d_name, ".tmp", 4));
    closedir(d);
    struct stat st;
    CHECK(!stat(path, &st));
    mode_t mask = umask(0);
    umask(mask);
    CHECK_EQ(st.st_mode & 0777, 0666 & ~mask);
}

TEST(tensors)
{
    const char *path = in_dir("t.safetensors");
    float w[2 * 3 * 2 * 2], back[24];
    for (int i = 0; i < 24; i++) w[i] = (float)i;
    lc_tensor *plain, *conv;
    CHECK_OK(lc_tensor_new(LC_F32, 2, (int64_t[]){2, 3}, &plain));
    CHECK_OK(lc_tensor_new_layout(LC_F32, 4, (int64_t[]){2, 3, 2, 2}, LC_CHANNELS_LAST, &conv));
    CHECK_OK(lc_tensor_write(plain, f_data, sizeof f_data));
    CHECK_OK(lc_tensor_write(conv, w, sizeof w));
    lc_named_tensor both[] = {{.name = "plain", .tensor = plain}, {.name = "conv", .tensor = conv}};
    CHECK_OK(lc_safetensors_save(path, 2, both, 0, NULL));
    lc_safetensors *f;
    CHECK_OK(lc_safetensors_open(path, &f));
    CHECK_OK(lc_safetensors_read(f, lc_safetensors_find(f, "conv"), back, sizeof back));
    CHECK(!memcmp(w, back, sizeof w)); /* row-major in the file, whatever the layout in memory */
    memset(back, 0, sizeof back);
    CHECK_OK(lc_tensor_write(conv, back, sizeof back));
    CHECK_OK(lc_safetensors_load_all(f, 2, both, true));
    CHECK_OK(lc_tensor_read(conv, back, sizeof back));
    CHECK(!memcmp(w, back, sizeof w));
    CHECK_STATUS(lc_safetensors_load_all(f, 1, both, true), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "\"conv\"");
    CHECK_STATUS(lc_safetensors_load(f, "conv", plain), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(),
                   "t.safetensors\": tensor \"conv\" is F32 [2,3,2,2], but the model's is f32 [2,3]");
    CHECK_STATUS(lc_safetensors_load(f, "none", plain), LC_ERR_NOT_FOUND);
    lc_safetensors_close(f);
    lc_tensor_unref(plain);
    lc_tensor_unref(conv);
}

TEST(bad_arguments)
{
    const char *path = in_dir("bad.safetensors");
    lc_named_tensor twice[] = {entries[0], entries[0]};
    CHECK_STATUS(lc_safetensors_save(path, 2, twice, 0, NULL), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "two tensors are named \"z.weight\"");
    lc_named_tensor reserved = entries[0];
    reserved.name = "__metadata__";
    CHECK_STATUS(lc_safetensors_save(path, 1, &reserved, 0, NULL), LC_ERR_ARGUMENT);
    lc_named_tensor huge = entries[0];
    huge.type.shape[0] = INT64_MAX;
    CHECK_STATUS(lc_safetensors_save(path, 1, &huge, 0, NULL), LC_ERR_ARGUMENT);
    CHECK(access(path, F_OK) < 0);
    CHECK_STATUS(lc_safetensors_save("/nonexistent/x.safetensors", N, entries, 0, NULL), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "/nonexistent/");
    lc_safetensors *f;
    CHECK_STATUS(lc_safetensors_open(path, &f), LC_ERR_NOT_FOUND);
    CHECK_STATUS(lc_safetensors_open(dir, &f), LC_ERR_FORMAT);
}

/* A file with a header and `data` bytes of zeros. */
static lc_status open_header(const char *header, size_t length, size_t data)
{
    const char *path = in_dir("hostile.safetensors");
    size_t n = 8 + length + data;
    char *bytes = calloc(1, n);
    for (int k = 0; k < 8; k++) bytes[k] = (char)((uint64_t)length >> (8 * k));
    memcpy(bytes + 8, header, length);
    write_file(path, bytes, n);
    free(bytes);
    lc_safetensors *f = NULL;
    lc_status status = lc_safetensors_open(path, &f);
    if (status >= 0)
        lc_safetensors_close(f);
    else if (!strstr(lc_error_message(), "hostile.safetensors"))
        TEST_FAIL("no file name in: %s", lc_error_message());
    return status;
}

TEST(malformed_files)
{
    static const struct {
        const char *header;
        size_t data;
        const char *why;
    } bad[] = {
        {"", 0, "the text ends too early"},
        {"[]", 0, "must be an object"},
        {"{}", 4, "describes only 0"},
        {"{}x", 0, "text after the end of the value"},
        {"{\"a\":1}", 0, "not described by an object"},
        {"{\"a\":{}}", 0, "lacks its dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, "the text ends too early"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "describes only 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "4 bytes by its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "data_offsets say [4, 0]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "leaves a gap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "no valid data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "no valid data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4, "no valid data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "whole numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "whole numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "must be an array"},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown data type"},
        {"{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown data type"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "unknown field"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "duplicate field"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[4,8]}}",
         8, "appears twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[0,4]}}",
         4, "overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[4,8]}}",
         8, "overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 4, "overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,9223372036854775807],\"data_offsets\":[0,4]}}", 4,
         "overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]}}", 4, "64 bits"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "byte boundary"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, "8 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775804,9223372036854775807]}}", 4,
         "data_offsets say"},
        {"{\"__metadata__\":1}", 0, "must be an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "must be strings"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "appears twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "appears twice"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "zero character"},
        {"{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lc_status status = open_header(bad[i].header, strlen(bad[i].header), bad[i].data);
        if (status != LC_ERR_FORMAT) TEST_FAIL("%s: %s", bad[i].header, lc_status_text(status));
        CHECK_CONTAINS(lc_error_message(), bad[i].why);
    }
    static const struct {
        const char *header;
        size_t data;
    } good[] = {
        {"{}", 0},
        {"{}      ", 0},
        {"  {}", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2},
        {"{\"a\":{\"shape\":[0,9],\"data_offsets\":[0,0],\"dtype\":\"F32\"}}", 0},
        {"{\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[1,3]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
         "\"data_offsets\":[0,1]}}",
         3},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_OK(open_header(good[i].header, strlen(good[i].header), good[i].data));
    /* Wrong header lengths. */
    static const unsigned char lengths[][8] = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
                                               {0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
                                               {0, 0xe1, 0xf5, 0x05},
                                               {3}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char file[10] = "01234567{}";
        memcpy(file, lengths[i], 8);
        write_file(in_dir("hostile.safetensors"), file, 10);
        lc_safetensors *f;
        CHECK_STATUS(lc_safetensors_open(in_dir("hostile.safetensors"), &f), LC_ERR_FORMAT);
    }
    for (size_t n = 0; n < 10; n++) {
        write_file(in_dir("hostile.safetensors"), "\2\0\0\0\0\0\0\0{}", n);
        lc_safetensors *f;
        CHECK_STATUS(lc_safetensors_open(in_dir("hostile.safetensors"), &f), LC_ERR_FORMAT);
    }
}

/* Every truncation and every bit flip of a header gives an error or a consistent file, never a crash. */
TEST(damaged_headers)
{
    char path[512], *bytes;
    size_t n;
    snprintf(path, sizeof path, "%s", in_dir("d.safetensors"));
    CHECK_OK(lc_safetensors_save(path, N, entries, 0, NULL));
    CHECK_OK(lc__io_read_file(&lc__io_system, path, 1 << 20, &bytes, &n));
    lc_safetensors *f;
    size_t header = 8 + (unsigned char)bytes[0] + 256u * (unsigned char)bytes[1];
    for (size_t i = 0; i < header * 8; i++) {
        bytes[i / 8] ^= (char)(1 << i % 8);
        uint64_t length = 0;
        for (int k = 7; k >= 0; k--) length = length << 8 | (unsigned char)bytes[k];
        if (length <= n - 8) {
            lc_status status = lc__st_parse("memory", bytes + 8, length, n, &f);
            if (status >= 0)
                lc_safetensors_close(f);
            else
                CHECK_EQ(status, LC_ERR_FORMAT);
        }
        bytes[i / 8] ^= (char)(1 << i % 8);
    }
    for (size_t k = n - 1; k > header; k--) {
        CHECK(!truncate(path, (off_t)k));
        CHECK_STATUS(lc_safetensors_open(path, &f), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "truncated");
    }
    free(bytes);
}

TEST(python_package)
{
    const char *python = peer_python("safetensors, torch");
    if (!python)
        SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with safetensors and torch");
    const lc_text_pair metadata[] = {{"format", "pt"}};
    CHECK_OK(lc_safetensors_save(in_dir("ours.safetensors"), N, entries, 1, metadata));
    run_python(python, dir,
               "import torch\nfrom safetensors.torch import load_file, save_file\nfrom safetensors import safe_open\n"
               "d = '%s/'\nt = load_file(d + 'ours.safetensors')\n"
               "assert len(t) == 6, len(t)\n"
               "assert t['z.weight'].tolist() == [[1, -2, 3.5], [4, 5, 6]]\n"
               "assert t['a.weight'].shape == (3, 2)\n"
               "assert t['flags'].tolist() == [True, False, True] and t['flags'].dtype == torch.bool\n"
               "assert t['step'].tolist() == [-2**63, 7]\n"
               "assert t['scalar \"\\u00e4\"'].item() == 3.5\n"
               "assert t['empty'].shape == (0, 5) and t['empty'].dtype == torch.float64\n"
               "save_file(t, d + 'theirs.safetensors', metadata={'format': 'pt'})\n"
               "save_file({'h': torch.ones(3, dtype=torch.bfloat16), 'i8': torch.ones(2, dtype=torch.int8)}, d + "
               "'other.safetensors')\n",
               dir);
    /* In the same order, so the bytes after the header are the same. */
    lc_safetensors *f;
    CHECK_OK(lc_safetensors_open(in_dir("theirs.safetensors"), &f));
    CHECK_EQ(lc_safetensors_count(f), N);
    CHECK_STR(lc_safetensors_info(f, 0)->name, "step");
    CHECK_STR(lc_safetensors_info(f, 5)->name, "flags");
    float z[6];
    CHECK_OK(lc_safetensors_read(f, lc_safetensors_find(f, "z.weight"), z, sizeof z));
    CHECK(!memcmp(z, f_data, sizeof z));
    lc_safetensors_close(f);
    CHECK_OK(lc_safetensors_open(in_dir("other.safetensors"), &f));
    CHECK_EQ(lc_safetensors_info(f, lc_safetensors_find(f, "h"))->type.dtype, LC_BF16);
    CHECK_EQ(lc_safetensors_info(f, lc_safetensors_find(f, "i8"))->type.dtype, 0);
    CHECK_STR(lc_safetensors_info(f, lc_safetensors_find(f, "i8"))->dtype, "I8");
    lc_safetensors_close(f);
}

TEST_MAIN

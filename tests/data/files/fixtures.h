/* SPDX-License-Identifier: Apache-2.0 */
/* Files that other libraries wrote (make_fixtures.py), and copies of them that are changed. */
#ifndef LC_TESTS_FIXTURES_H
#define LC_TESTS_FIXTURES_H

#include "data/files/file.h"
#include "peer_python.h"
#include "scratch.h"

/* The folder that fixture() takes its files from: the repository's, or the one that live files were written to. */
static const char *fixtures_at;

__attribute__((unused)) static const char *fixture(const char *name)
{
    static char path[4][4300];
    static int turn;
    char *p = path[turn++ & 3];
    if (fixtures_at)
        snprintf(p, sizeof path[0], "%s/%s", fixtures_at, name);
    else
        snprintf(p, sizeof path[0], "%s/tests/data/files/fixtures/%s", test_source_dir(), name);
    return p;
}

/* Its bytes, in memory of exactly their size, so that a sanitizer sees what is read past them. */
__attribute__((unused)) static unsigned char *fixture_bytes(const char *name, size_t *size)
{
    char *text;
    CHECK_OK(lc__io_read_file(&lc__io_system, fixture(name), 1 << 24, &text, size));
    unsigned char *bytes = malloc(*size ? *size : 1);
    CHECK(bytes);
    memcpy(bytes, text, *size);
    free(text);
    return bytes;
}

__attribute__((unused)) static lc_array_file *open_fixture(const char *name)
{
    lc_array_file *f;
    CHECK_OK(lc_array_file_open(fixture(name), &f));
    CHECK_STR(lc_array_file_path(f), fixture(name));
    return f;
}

/* Whatever the bytes are, opening and reading give a status, and an error that names the file. */
__attribute__((unused)) static lc_status try_bytes(const char *name, const void *bytes, size_t size)
{
    lc_array_file *f;
    static double sink[4096];
    lc_status status =
        lc__array_file_of(name, bytes, size, &(lc_array_file_args){.header = LC_AUTO, .missing = LC_NOT_GIVEN}, &f);
    if (status < 0) {
        CHECK(!f);
        CHECK_CONTAINS(lc_error_message(), name);
        return status;
    }
    for (int64_t i = 0; i < lc_array_file_count(f); i++) {
        const lc_array_info *info = lc_array_file_info(f, i);
        int64_t n = info->ndim ? info->shape[0] : 1, numel = n;
        for (int d = 1; d < info->ndim; d++) numel *= info->shape[d];
        if (info->type && (numel < 0 || numel > 4096)) continue;
        lc_status one =
            lc_array_file_read(f, i, 0, info->type ? n : 0, LC_F64, sink, info->type ? (size_t)numel * 8 : 0);
        if (one < 0) {
            CHECK_CONTAINS(lc_error_message(), name);
            status = one;
            break;
        }
    }
    lc_array_file_close(f);
    return status;
}

/* Files that end early, in any place, and files of which any byte is changed. */
__attribute__((unused)) static void try_broken(const char *name, bool cut_is_error)
{
    size_t size;
    unsigned char *bytes = fixture_bytes(name, &size);
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *part = malloc(cut ? cut : 1);
        CHECK(part);
        memcpy(part, bytes, cut);
        lc_status status = try_bytes(name, part, cut);
        if (cut_is_error) CHECK(status < 0);
        free(part);
    }
    for (size_t at = 0; at < size; at++)
        for (int k = 0; k < 3; k++) {
            unsigned char kept = bytes[at];
            bytes[at] = k == 0 ? 0xff : k == 1 ? 0 : (unsigned char)(kept ^ 1);
            (void)!try_bytes(name, bytes, size);
            bytes[at] = kept;
        }
    free(bytes);
}

/* Writes the fixtures again, with a Python that has the module, and runs `check` on them. */
__attribute__((unused)) static void with_live_files(const char *module, void (*check)(void))
{
    const char *python = peer_python(module);
    static char folder[300], command[9000];
    if (!python) SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with the package");
    snprintf(folder, sizeof folder, "%s", fresh_dir("live"));
    snprintf(command, sizeof command, "'%s' '%s/tests/data/files/make_fixtures.py' '%s'", python, test_source_dir(),
             folder);
    CHECK_EQ(system(command), 0);
    fixtures_at = folder;
    check();
    fixtures_at = NULL;
}

#endif

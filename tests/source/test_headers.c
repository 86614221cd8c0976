/* SPDX-License-Identifier: Apache-2.0 */
/* The public headers in C11 and C++17 and C++20, with gcc and clang, warnings being errors: each header alone, and
 * every macro with no, one and all options (headers.c). test_zeros.c runs as C++ too. A compiler that is not there is a
 * case that is skipped. */
#define _GNU_SOURCE
#include "test.h"

#include <dirent.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where things are ---- */

static const char *source(void)
{
    const char *dir = getenv("LIGHTC_TEST_SOURCE");
    return dir ? dir : ".";
}

static char work[] = "/tmp/lightc_headers_XXXXXX";

/* One file for each header, that includes it and nothing else. comm_mpi.h needs MPI's. */
static int write_files(void)
{
    char path[4096];
    int n = 0;
    snprintf(path, sizeof path, "%s/include/lightc", source());
    DIR *d = opendir(path);
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        if (length < 3 || strcmp(e->d_name + length - 2, ".h") || !strcmp(e->d_name, "comm_mpi.h")) continue;
        snprintf(path, sizeof path, "%s/alone_%.*s.c", work, (int)length - 2, e->d_name);
        FILE *f = fopen(path, "w");
        CHECK(f != NULL);
        fprintf(f, "#include <lightc/%s>\n", e->d_name);
        CHECK(fclose(f) == 0);
        n++;
    }
    closedir(d);
    return n;
}

__attribute__((format(printf, 1, 2))) static int run(const char *format, ...)
{
    char command[16384];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

static void compile(const char *compiler, const char *standard)
{
    char flags[4096];
    if (run("command -v %s >/dev/null", compiler) != 0) SKIP("there is no such compiler");
    if (run("echo 'int x;' | %s -std=%s -x %s -fsyntax-only - 2>/dev/null", compiler, standard,
            strstr(standard, "++") ? "c++" : "c") != 0)
        SKIP("the compiler does not know this standard");
    snprintf(work, sizeof work, "/tmp/lightc_headers_XXXXXX");
    CHECK(mkdtemp(work) != NULL);
    int n = write_files();
    snprintf(flags, sizeof flags, "-std=%s -x %s -Wall -Wextra -Wpedantic -Wshadow -Werror -I%s/include -fsyntax-only",
             standard, strstr(standard, "++") ? "c++" : "c", source());
    int alone = run("cd %s && %s %s alone_*.c", work, compiler, flags);
    int macros = run("%s %s %s/tests/source/headers.c", compiler, flags, source());
    run("rm -r %s", work);
    CHECK(n > 30);
    CHECK(alone == 0);
    CHECK(macros == 0);
}

TEST(gcc_c11)
{
    compile("gcc", "c11");
}
TEST(clang_c11)
{
    compile("clang", "c11");
}
TEST(gcc_cxx17)
{
    compile("g++", "c++17");
}
TEST(gcc_cxx20)
{
    compile("g++", "c++20");
}
TEST(clang_cxx17)
{
    compile("clang++", "c++17");
}
TEST(clang_cxx20)
{
    compile("clang++", "c++20");
}

/* An argument without its name: the compiler's message says so. */
TEST(an_argument_without_a_name)
{
    if (run("command -v gcc >/dev/null") != 0) SKIP("there is no gcc");
    CHECK(run("printf '#include <lightc/lightc.h>\\nlc_tensor *f(lc_tensor *x) { return lc_sum(x, LC_DIMS(1)); }\\n' | "
              "LC_ALL=C gcc -std=c11 -I%s/include -x c -fsyntax-only - 2>&1 | grep -q lc_argument_needs_its_name_",
              source()) == 0);
}

/* ---- nothing was forgotten ---- */

static char *contents(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) TEST_FAIL("%s cannot be read", path);
    char *text = calloc(1, 1 << 20);
    CHECK(text != NULL);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || !(at[-1] == '_' || (at[-1] >= 'a' && at[-1] <= 'z'))) &&
            !(at[n] == '_' || (at[n] >= 'a' && at[n] <= 'z') || (at[n] >= '0' && at[n] <= '9')))
            return true;
    return false;
}

TEST(every_macro_is_used)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/source/headers.c", source());
    char *used = contents(path);
    int n = 0;
    snprintf(path, sizeof path, "%s/include/lightc", source());
    DIR *d = opendir(path);
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        if (!strstr(e->d_name, ".h")) continue;
        snprintf(path, sizeof path, "%s/include/lightc/%s", source(), e->d_name);
        char *text = contents(path);
        for (char *at = text; (at = strstr(at, "\n#define lc_")); at++) {
            char name[128];
            if (sscanf(at, "\n#define %127[a-z0-9_](", name) != 1 || at[strlen("\n#define ") + strlen(name)] != '(')
                continue;
            if (!has_word(used, name)) TEST_FAIL("%s of %s is not in headers.c", name, e->d_name);
            n++;
        }
        free(text);
    }
    closedir(d);
    free(used);
    CHECK(n > 200);
}

/* ---- a C++ program ---- */

TEST(zeros_in_cxx)
{
    const char *bin = getenv("LIGHTC_TEST_BIN");
    struct stat st;
    char path[4096];
    if (run("command -v g++ >/dev/null") != 0) SKIP("there is no g++");
    snprintf(path, sizeof path, "%s/../lib/liblightc.so", bin ? bin : ".");
    if (stat(path, &st)) SKIP("the shared library is not where it is built");
#ifdef SANITIZED
    SKIP("a sanitizer's library does not link here");
#endif
    snprintf(work, sizeof work, "/tmp/lightc_headers_XXXXXX");
    CHECK(mkdtemp(work) != NULL);
    int status = run("g++ -std=c++17 -x c++ -I%s/include -I%s/tests/support %s/tests/module/test_zeros.c -x none -o "
                     "%s/zeros -L%s/../lib -llightc -Wl,-rpath,%s/../lib && %s/zeros",
                     source(), source(), source(), work, bin, bin, work);
    run("rm -r %s", work);
    CHECK(status == 0);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The public headers in C11, C++17 and C++20, with gcc and clang and warnings as errors: each header by itself, and
 * every macro with no, one and all options (headers.c). test_zeros.c and the two files that continue it run as C++ too.
 * The cases of a missing compiler are skipped. */
#define _GNU_SOURCE
#include "sources.h"

#include <stdarg.h>

static char work[] = "/tmp/lightc_headers_XXXXXX";
static int headers; /* that compile() includes */

/* A file that includes only this header. comm_mpi.h needs MPI's. */
static void write_file(const char *name, char *text)
{
    char path[400];
    const char *header = strrchr(name, '/') + 1;
    (void)text;
    if (!strcmp(header, "comm_mpi.h")) return;
    snprintf(path, sizeof path, "%s/alone_%s.c", work, header);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f, "#include <lightc/%s>\n", header);
    CHECK(fclose(f) == 0);
    headers++;
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
    char flags[PATH_MAX + 200];
    const char *root = source_root();
    if (run("command -v %s >/dev/null", compiler) != 0) SKIP("there is no such compiler");
    if (run("echo 'int x;' | %s -std=%s -x %s -fsyntax-only - 2>/dev/null", compiler, standard,
            strstr(standard, "++") ? "c++" : "c") != 0)
        SKIP("the compiler does not know this standard");
    snprintf(work, sizeof work, "/tmp/lightc_headers_XXXXXX");
    CHECK(mkdtemp(work) != NULL);
    headers = 0;
    each_source("include/lightc", c_files, write_file);
    bool cxx = strstr(standard, "++") != NULL;
    snprintf(flags, sizeof flags, "-std=%s -x %s -Wall -Wextra -Wpedantic -Wshadow -Werror -I%s/include -fsyntax-only",
             standard, cxx ? "c++" : "c", root);
    int alone = run("cd %s && %s %s -Wconversion %s alone_*.c", work, compiler, flags, cxx ? "-Wold-style-cast" : "");
    int macros = run("%s %s %s/tests/source/headers.c", compiler, flags, root);
    run("rm -r %s", work);
    CHECK(headers > 30);
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

/* Macros expand to no C casts: many C++ programs are compiled with a warning about those. */
TEST(no_old_casts)
{
    static const char program[] = "#include <lightc/lightc.h>\n"
                                  "struct settings { double lr; };\n"
                                  "lc_option f(lc_sequential *s, lc_tensor **x, lc_duration *d)\n"
                                  "{\n"
                                  "    lc_sequential_add(s, lc_linear, 3, 4, .no_bias = true);\n"
                                  "    *x = lc_sum(lc_reshape(*x, 2, -1), .dims = LC_DIMS(0, 1));\n"
                                  "    *x = lc_cat(0, *x, lc_clamp(*x, .min = 0));\n"
                                  "    d[0] = LC_FRACTION(0.5), d[1] = LC_EPOCHS(3), d[2] = LC_BATCHES(d[0].unit);\n"
                                  "    return LC_FIELD(settings, lr, \"\");\n"
                                  "}\n";
    if (run("command -v g++ >/dev/null") != 0) SKIP("there is no g++");
    CHECK(run("printf '%%s' '%s' | g++ -std=c++17 -I%s/include -x c++ -Wall -Wextra -Wconversion -Wold-style-cast "
              "-Werror -fsyntax-only -",
              program, source_root()) == 0);
}

/* An argument without its name: the compiler's message explains it. */
TEST(an_argument_without_a_name)
{
    if (run("command -v gcc >/dev/null") != 0) SKIP("there is no gcc");
    CHECK(run("printf '#include <lightc/lightc.h>\\nlc_tensor *f(lc_tensor *x) { return lc_sum(x, LC_DIMS(1)); }\\n' | "
              "LC_ALL=C gcc -std=c11 -I%s/include -x c -fsyntax-only - 2>&1 | grep -q lc_argument_needs_its_name_",
              source_root()) == 0);
}

/* ---- completeness ---- */

static bool in_word(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || !in_word(at[-1])) && !in_word(at[n])) return true;
    return false;
}

static char *used;
static int macros, capitals;

/* Macros of which other macros of the headers are made, the lists of their names, and attributes. */
static const char *const parts[] = {"LC_CALL",
                                    "LC_CALL_AT",
                                    "LC_CALL_INIT",
                                    "LC_CALL_INTS",
                                    "LC_CALL_TENSORS",
                                    "LC_DEFAULTS",
                                    "LC_LITERAL",
                                    "LC_OPTIMIZER_ARGS",
                                    "LC_COLLECTIVE_LIST",
                                    "LC_COLLECTIVE_ENUM",
                                    "LC_HOOK_LIST",
                                    "LC_HOOK_ENUM",
                                    "LC_ACTIVATION_LIST",
                                    "LC_ACTIVATION_ENUM",
                                    "LC_STATUS_LIST",
                                    "LC_STATUS_ENUM",
                                    "LC_DTYPE_LIST",
                                    "LC_DTYPE_ENUM",
                                    "LC_TRAINER_OPTION_LIST",
                                    "LC_TRAINER_OPTION_FIELD",
                                    "LC_TRAINER_OPTION_DEFAULT",
                                    "LC_BEGIN_DECLS",
                                    "LC_END_DECLS",
                                    "LC_API",
                                    "LC_MUST_USE",
                                    "LC_PRINTF",
                                    NULL};

static bool is_part(const char *name)
{
    return is_one_of(name, parts) || name[strlen(name) - 1] == '_';
}

/* In capitals: of any form. */
static void look_for_capitals(const char *header, char *text)
{
    for (char *at = text; (at = strstr(at, "\n#define LC_")); at++) {
        char name[128];
        CHECK(sscanf(at, "\n#define %127[A-Za-z0-9_]", name) == 1);
        if (is_part(name)) continue;
        if (!has_word(used, name)) TEST_FAIL("%s of %s is not in headers.c", name, header);
        capitals++;
    }
}

static void look_for_macros(const char *header, char *text)
{
    look_for_capitals(header, text);
    for (char *at = text; (at = strstr(at, "\n#define lc_")); at++) {
        char name[128];
        if (sscanf(at, "\n#define %127[a-z0-9_](", name) != 1 || at[strlen("\n#define ") + strlen(name)] != '(')
            continue;
        if (!has_word(used, name)) TEST_FAIL("%s of %s is not in headers.c", name, header);
        macros++;
    }
}

TEST(every_macro_is_used)
{
    used = read_source("tests/source/headers.c");
    each_source("include/lightc", c_files, look_for_macros);
    free(used);
    CHECK(macros > 200);
    CHECK(capitals > 60);
}

/* ---- a C++ program ---- */

TEST(zeros_in_cxx)
{
    const char *bin = getenv("LIGHTC_TEST_BIN");
    const char *root = source_root();
    struct stat st;
    char path[4096];
    if (run("command -v g++ >/dev/null") != 0) SKIP("there is no g++");
    snprintf(path, sizeof path, "%s/../lib/liblightc.so", bin ? bin : ".");
    if (stat(path, &st)) SKIP("the shared library is not where it is built");
#ifdef INSTRUMENTED
    SKIP("a sanitizer's library does not link here");
#endif
    snprintf(work, sizeof work, "/tmp/lightc_headers_XXXXXX");
    CHECK(mkdtemp(work) != NULL);
    int status = run("for f in zeros zeros_data zeros_runs; do g++ -std=c++17 -x c++ -I%s/include -I%s/tests/support "
                     "-DLIGHTC_HAVE_JPEG=%d -DLIGHTC_HAVE_PNG=%d -DLIGHTC_HAVE_WEBP=%d %s/tests/module/test_$f.c "
                     "-x none -o %s/$f -L%s/../lib -llightc -Wl,-rpath,%s/../lib && %s/$f || exit 1; done",
                     root, root, LIGHTC_HAVE_JPEG, LIGHTC_HAVE_PNG, LIGHTC_HAVE_WEBP, root, work, bin, bin, work);
    run("rm -r %s", work);
    CHECK(status == 0);
}

TEST_MAIN

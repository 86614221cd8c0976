/* SPDX-License-Identifier: Apache-2.0 */
/* What a header in src/ declares is defined, and used by another file or by a macro of the header: readers would take
 * an unused declaration for an interface. */
#include "sources.h"

enum { FILES = 4096, WORDS = 1 << 21, ROOM = 1 << 24 };

typedef struct word {
    const char *text; /* interned in `pool`, NUL-terminated */
    int file;
    bool defines; /* what follows it is a function's body */
    bool pasted;  /* with ##: names that begin with it are alive */
} word;

static char *pool, *paths[FILES];
static word *words;
static size_t n_pool, n_words;
static int n_files;

/* "name(...) {" at the beginning of a line, possibly after its type. */
static bool is_definition(const char *begin, const char *name, const char *end)
{
    const char *line = name;
    while (line > begin && line[-1] != '\n') line--;
    if (!isalpha((unsigned char)*line) || *end != '(') return false;
    const char *stop = strpbrk(end, ";{");
    return stop && *stop == '{';
}

static void take_words(const char *text, int file)
{
    for (const char *p = text; *p;) {
        const char *end = p;
        while (in_name(*end)) end++;
        if (end == p) {
            p++;
            continue;
        }
        if (!strncmp(p, "lc__", 4) || !strncmp(p, "place_", 6)) {
            if (n_words == WORDS || n_pool + (size_t)(end - p) + 1 > ROOM) TEST_FAIL("the sources have grown");
            const char *next = end + strspn(end, " ");
            words[n_words++] = (word){pool + n_pool, file, is_definition(text, p, end), !strncmp(next, "##", 2)};
            memcpy(pool + n_pool, p, (size_t)(end - p));
            n_pool += (size_t)(end - p);
            pool[n_pool++] = 0;
        }
        p = end;
    }
}

static void look_at_file(const char *name, char *text)
{
    CHECK(n_files < FILES);
    blank_out(text);
    take_words(text, n_files);
    paths[n_files++] = strdup(name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const word *)a)->text, ((const word *)b)->text);
}

static bool is_header(int file)
{
    const char *path = paths[file];
    return !strncmp(path, "src/", 4) && !strcmp(path + strlen(path) - 2, ".h");
}

/* Whether a macro makes it: from a beginning followed by ##, or with the name of a data type at its end. */
static bool is_made(const char *name)
{
    size_t n = strlen(name);
    bool typed = n > 4 && (!strcmp(name + n - 4, "_f32") || !strcmp(name + n - 4, "_f64"));
    for (size_t i = 0; i < n_words; i++) {
        size_t length = strlen(words[i].text);
        if (words[i].pasted && length > 4 && !strncmp(name, words[i].text, length)) return true;
        if (typed && length == n - 4 && !strncmp(name, words[i].text, length)) return true;
    }
    return false;
}

/* One name in all files; false: its declaration is dead. */
static bool is_alive(const word *w, size_t n)
{
    int header = -1, in_header = 0, definitions = 0;
    bool elsewhere = false;
    for (size_t i = 0; i < n; i++) {
        definitions += w[i].defines;
        if (is_header(w[i].file) && header < 0) header = w[i].file;
    }
    for (size_t i = 0; i < n; i++) {
        bool defined_there = false;
        for (size_t k = 0; k < n; k++) defined_there |= w[k].defines && w[k].file == w[i].file;
        in_header += w[i].file == header;
        elsewhere |= w[i].file != header && !defined_there;
    }
    if (header < 0 || elsewhere || in_header > 1 || is_made(w->text)) return true;
    printf("  %s: %s %s\n", paths[header], w->text,
           definitions ? "is used only by the file that defines it" : "is not defined");
    return false;
}

TEST(no_declaration_is_dead)
{
    static const char *const folders[] = {"src", "tests", "bench"};
    int dead = 0;
    size_t names = 0;
    (void)source_root();
    pool = malloc(ROOM);
    words = malloc(WORDS * sizeof *words);
    CHECK(pool && words);
    for (int i = 0; i < 3; i++) each_source(folders[i], c_files, look_at_file);
    CHECK(n_files > 700); /* all files were read */
    qsort(words, n_words, sizeof *words, by_text);
    for (size_t i = 0, end; i < n_words; i = end, names++) {
        for (end = i + 1; end < n_words && !strcmp(words[i].text, words[end].text);) end++;
        dead += !is_alive(&words[i], end - i);
    }
    CHECK(names > 1500);
    CHECK_EQ(dead, 0);
    for (int i = 0; i < n_files; i++) free(paths[i]);
    free(pool);
    free(words);
}

TEST_MAIN

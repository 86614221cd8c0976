/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of docs/design.md that are cheap to make are those of the tree, and every long file has its reason there.
 * "about N" may differ from the count by 2 %, so that not every change moves it. */
#include "sources.h"

enum { LONG_FILE = 500, LONG_FUNCTION = 60 };

static struct {
    int files, long_files, longest, functions, long_functions, header;
    int direct[3]; /* in src/core, src/tensor, src/comm */
} count;
static char *design;
static int wrong;

static int lines_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* A function begins with a line "{" and ends with a line "}". */
static void count_functions(const char *text)
{
    int begin = -1, line = 0;
    for (const char *p = text; *p; line++) {
        size_t n = strcspn(p, "\n");
        if (n == 1 && *p == '{') {
            begin = line;
        } else if (n == 1 && *p == '}' && begin >= 0) {
            count.functions++;
            count.long_functions += line - begin + 1 > LONG_FUNCTION;
            begin = -1;
        }
        p += n + (p[n] != 0);
    }
}

static void look_at_file(const char *name, char *text)
{
    static const char *const folders[] = {"src/core/", "src/tensor/", "src/comm/"};
    int lines = lines_of(text);
    const char *dot = strrchr(name, '.');
    count.files++;
    if (lines > count.longest) count.longest = lines;
    if (!strcmp(dot, ".h") && lines > count.header) count.header = lines;
    if (!strcmp(dot, ".c")) count_functions(text);
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(folders[i]);
        count.direct[i] += !strncmp(name, folders[i], n) && !strchr(name + n, '/');
    }
    char row[600];
    snprintf(row, sizeof row, "\n| `%s` |", name + strlen("src/"));
    bool has_row = strstr(design, row) != NULL;
    if (lines > LONG_FILE) count.long_files++;
    if ((lines > LONG_FILE) == has_row) return;
    wrong++;
    printf("  %s has %d lines: it %s\n", name, lines,
           has_row ? "is not long, so its row must go" : "needs a row that says why it stays whole");
}

/* The numbers in the last cell of the row that begins with `title`, and whether "about" precedes each. */
static int read_row(const char *title, int *numbers, bool *about, int most)
{
    char begin[200];
    snprintf(begin, sizeof begin, "\n| %s |", title);
    const char *row = strstr(design, begin);
    if (!row) TEST_FAIL("docs/design.md has no row \"%s\"", title);
    const char *end = row + 1 + strcspn(row + 1, "\n"), *p = end - 1;
    while (p > row && p[-1] != '|') p--;
    int n = 0;
    for (bool near = false; p < end && n < most; p++) {
        if (!strncmp(p, "about ", 6)) near = true;
        if (!isdigit((unsigned char)*p)) continue;
        for (numbers[n] = 0; isdigit((unsigned char)*p) || *p == ','; p++)
            if (*p != ',')
                numbers[n] = 10 * numbers[n] + (*p - '0');
            else if (!isdigit((unsigned char)p[1]))
                break;
        about[n++] = near;
        near = false;
    }
    return n;
}

static void compare(const char *title, const int *want, int n)
{
    int got[4];
    bool about[4];
    bool same = read_row(title, got, about, 4) == n;
    for (int i = 0; same && i < n; i++) {
        int off = got[i] > want[i] ? got[i] - want[i] : want[i] - got[i];
        same = about[i] ? off <= want[i] / 50 : off == 0;
    }
    if (same) return;
    wrong++;
    printf("  docs/design.md, \"%s\": now", title);
    for (int i = 0; i < n; i++) printf("%s %d", i ? "," : "", want[i]);
    printf("\n");
}

TEST(counts_are_those_of_the_tree)
{
    design = read_source("docs/design.md");
    each_source("src", c_files, look_at_file);
    CHECK(count.files > 500 && count.functions > 4000);
    compare("files in `src`; over 500 lines; the longest", (int[]){count.files, count.long_files, count.longest}, 3);
    compare("functions over 60 lines", (int[]){count.long_functions, count.functions}, 2);
    compare("the largest internal header", (int[]){count.header}, 1);
    compare("files directly in `src/core`, `src/tensor`, `src/comm`", count.direct, 3);
    free(design);
    CHECK_EQ(wrong, 0);
}

TEST(rows_are_read)
{
    int n[4];
    bool about[4];
    design = "a\n| x | 1 | about 1,234; 5 of 6 |\n| y | 2 | 3 lines |\n";
    CHECK_EQ(read_row("x", n, about, 4), 3);
    CHECK(n[0] == 1234 && n[1] == 5 && n[2] == 6 && about[0] && !about[1]);
    CHECK(read_row("y", n, about, 4) == 1 && n[0] == 3);
    count.functions = 0;
    count_functions("int f(void)\n{\n}\nint a[] = {\n};\n");
    CHECK_EQ(count.functions, 1);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The rooms of src/, according to the table of docs/design.md, which gives each a layer.
 *
 * No file includes or calls anything in a higher layer than its own: the calls are those that nm finds in the object
 * files of this build, to public functions and the library's own. No rooms depend on each other in a circle, nor do the
 * folders of src/ itself. What is private to some rooms is used by no other. src/builtin.c is in no room, and above
 * all: it names everything that is built in, and no other file needs it. */
#define _GNU_SOURCE
#include "sources.h"

enum { ROOMS = 128, FILES = 2048, SYMBOLS = 1 << 17, TEXT = 512 };

/* Files whose names begin with `what` are used, by calls and includes, only by files whose names begin the same, and by
 * those of `by`. */
static const struct {
    const char *what, *by[5];
} private[] = {
    {"builtin.c", {NULL}},
    {"backends/", {"builtin.c"}},
    {"strategies/", {"builtin.c"}},
    {"precision/", {"builtin.c"}},
    {"callbacks/", {"builtin.c"}},
    {"loggers/", {"builtin.c"}},
    {"profilers/", {"builtin.c"}},
    {"parallel/", {"builtin.c", "core/", "strategies/"}},
    {"engine/run/execute.c", {"engine/run/"}},
    {"launch/supervisor/", {"launch/"}},
    {"comm/coordinator/", {"comm/world/", "launch/supervisor/"}},
    {"comm/exchange/", {"comm/transport/", "comm/world/", "parallel/reduce/"}},
    {"comm/transport/", {"comm/world/", "core/trainer/"}},
    {"comm/mpi/", {NULL}},
    {"backends/sim/", {NULL}},
    {"backends/driver/", {"backends/sim/"}},
};

typedef struct room {
    char name[64]; /* "comm/net"; "": src itself */
    int layer;     /* according to the table; -1: none */
} room;

typedef struct symbol {
    char *name;
    int file;
} symbol;

static room rooms[ROOMS], table[ROOMS];
static char *files[FILES];         /* "comm/net/socket.c" */
static char *arrows[ROOMS][ROOMS]; /* an example of each; NULL: none */
static symbol defined[SYMBOLS], used[SYMBOLS];
static int n_rooms, n_table, n_files, n_defined, n_used, n_includes, n_calls, n_wrong;

static void wrong(const char *what, const char *example)
{
    n_wrong++;
    printf("  %s: %s\n", what, example);
}

static bool begins(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

/* ---- the rooms ---- */

/* Rows are "| 4 | `src/core/loop` | ...", or name several rooms. */
static void read_table(void)
{
    char *document = read_source("docs/design.md");
    for (char *line = document, *next; *line; line = next) {
        char *end, *column = line + 1;
        next = line + strcspn(line, "\n");
        if (*next) *next++ = 0;
        long layer = strtol(line[0] == '|' ? column : "", &end, 10);
        if (line[0] != '|' || end == column || !(column = strchr(end, '|'))) continue;
        char *stop = strchr(column + 1, '|');
        while (n_table < ROOMS && (column = strchr(column, '`')) && column < stop) {
            size_t n = strcspn(++column, "`");
            const char *name = begins(column, "src/") ? column + 4 : column;
            snprintf(table[n_table].name, sizeof table->name, "%.*s", (int)(column + n - name), name);
            table[n_table++].layer = (int)layer;
            column += n + 1;
        }
    }
    free(document);
}

/* The layer of the folder, or of the nearest folder above it that has a row. */
static int layer_of(const char *folder)
{
    char name[64];
    snprintf(name, sizeof name, "%s", folder);
    for (char *end = name; end; end = strrchr(name, '/')) {
        *(end == name ? name + strlen(name) : end) = 0;
        for (int i = 0; i < n_table; i++)
            if (!strcmp(table[i].name, name)) return table[i].layer;
    }
    return -1;
}

/* The room of a file of src/. */
static int room_of(const char *file)
{
    const char *end = strrchr(file, '/');
    int n = end ? (int)(end - file) : 0;
    for (int i = 0; i < n_rooms; i++)
        if ((int)strlen(rooms[i].name) == n && !strncmp(rooms[i].name, file, (size_t)n)) return i;
    if (n_rooms == ROOMS) TEST_FAIL("there are more rooms than expected");
    snprintf(rooms[n_rooms].name, sizeof rooms->name, "%.*s", n, file);
    rooms[n_rooms].layer = n ? layer_of(rooms[n_rooms].name) : -1;
    if (n && rooms[n_rooms].layer < 0) wrong("a folder has no layer in docs/design.md", rooms[n_rooms].name);
    return n_rooms++;
}

/* ---- arrows ---- */

static bool may_use(const char *from, const char *to)
{
    for (size_t i = 0; i < sizeof private / sizeof *private; i++) {
        bool mine = begins(from, private[i].what);
        if (!begins(to, private[i].what)) continue;
        for (int k = 0; k < 5 && private[i].by[k]; k++) mine |= begins(from, private[i].by[k]);
        if (!mine) return false;
    }
    return true;
}

static void add_arrow(const char *from, const char *to, const char *through)
{
    char text[TEXT];
    int a = room_of(from), b = room_of(to);
    snprintf(text, sizeof text, "%s -> %s (%s)", from, to, through);
    if (!may_use(from, to)) wrong("is private to others", text);
    if (a != b && *rooms[a].name && *rooms[b].name && !arrows[a][b]) arrows[a][b] = strdup(text);
}

static void look_at_file(const char *path, char *text)
{
    const char *file = path + strlen("src/");
    char name[256];
    if (n_files == FILES) TEST_FAIL("there are more files than expected");
    files[n_files++] = strdup(file);
    for (const char *at = text; (at = strstr(at, "#include \"")); at++) {
        if (sscanf(at, "#include \"%255[^\"]\"", name) != 1 || begins(name, "lightc/")) continue;
        if (!strchr(name, '/')) continue; /* of its own folder; or builtin.h, which all may include */
        n_includes++;
        add_arrow(file, name, "#include");
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const symbol *)a)->name, ((const symbol *)b)->name);
}

/* Object files are named after their source, ".../lightc_objects.dir/src/comm/call.c.o"; those of sources that no
 * longer exist are ignored. */
static int file_of_object(char *object)
{
    char *source = strstr(object, ".dir/src/");
    if (!source) return -1;
    source += strlen(".dir/src/");
    source[strlen(source) - 2] = 0;
    for (int i = 0; i < n_files; i++)
        if (!strcmp(files[i], source)) return i;
    return -1;
}

/* Lines of nm are "OBJECT: NAME TYPE ...". */
static void read_symbols(const char *bin)
{
    char command[5000], line[4096], object[2048], name[1024], type;
    snprintf(command, sizeof command,
             "find '%s/../CMakeFiles' -name '*.c.o' -print0 2>/dev/null | xargs -0 -r nm -A --format=posix 2>/dev/null",
             bin);
    FILE *f = popen(command, "r");
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%2047[^:]: %1023s %c", object, name, &type) != 3) continue;
        bool is_used = type == 'U', is_defined = strchr("TDBRVWSC", type) != NULL;
        int file = is_used || is_defined ? file_of_object(object) : -1;
        if (file < 0) continue;
        if (n_used == SYMBOLS || n_defined == SYMBOLS) TEST_FAIL("there are more symbols than expected");
        *(is_used ? &used[n_used++] : &defined[n_defined++]) = (symbol){strdup(name), file};
    }
    pclose(f);
    qsort(defined, (size_t)n_defined, sizeof *defined, by_name);
    for (int i = 0; i < n_used; i++) {
        const symbol *s = bsearch(&used[i], defined, (size_t)n_defined, sizeof *defined, by_name);
        if (!s || s->file == used[i].file) continue;
        n_calls++;
        add_arrow(files[used[i].file], files[s->file], s->name);
    }
}

/* ---- checks ---- */

static void look_upwards(void)
{
    for (int a = 0; a < n_rooms; a++)
        for (int b = 0; b < n_rooms; b++)
            if (arrows[a][b] && rooms[a].layer < rooms[b].layer) wrong("goes up", arrows[a][b]);
}

/* Depth first; seen: 1 on the path, 2 done. Returns the room in which a circle closes that has not been printed in
 * full, ROOMS if it has been, -1 if there is none. */
static int look_for_circle(bool (*edges)[ROOMS], int at, char *seen)
{
    seen[at] = 1;
    for (int to = 0; to < n_rooms; to++) {
        int closes = -1;
        if (edges[at][to] && seen[to] != 2) closes = seen[to] == 1 ? to : look_for_circle(edges, to, seen);
        if (closes < 0) continue;
        if (closes < ROOMS) printf("  in a circle: %s needs %s\n", rooms[at].name, rooms[to].name);
        return closes == at ? ROOMS : closes;
    }
    seen[at] = 2;
    return -1;
}

/* The first room of the same folder of src/. */
static int top_of(int a)
{
    size_t n = strcspn(rooms[a].name, "/");
    for (int i = 0; i < a; i++)
        if (strcspn(rooms[i].name, "/") == n && !strncmp(rooms[i].name, rooms[a].name, n)) return i;
    return a;
}

/* tops: the folders of src/, each with everything in it. */
static bool has_circle(bool tops)
{
    static bool edges[ROOMS][ROOMS];
    char seen[ROOMS] = {0};
    memset(edges, 0, sizeof edges);
    for (int a = 0; a < n_rooms; a++)
        for (int b = 0; b < n_rooms; b++) {
            int from = tops ? top_of(a) : a, to = tops ? top_of(b) : b;
            if (arrows[a][b] && from != to) edges[from][to] = true;
        }
    for (int a = 0; a < n_rooms; a++)
        if (!seen[a] && look_for_circle(edges, a, seen) >= 0) return true;
    return false;
}

static void read_sources(void)
{
    if (n_files) return;
    read_table();
    each_source("src", c_files, look_at_file);
    CHECK(n_table > 30 && n_files > 300 && n_includes > 300); /* all of them were read */
}

static void judge(void)
{
    look_upwards();
    CHECK(!has_circle(false));
    CHECK(!has_circle(true));
    CHECK_EQ(n_wrong, 0);
}

TEST(no_file_includes_a_higher_layer)
{
    read_sources();
    judge();
}

TEST(no_file_calls_a_higher_layer)
{
    const char *bin = getenv("LIGHTC_TEST_BIN");
    n_wrong = 0;
    read_sources();
    if (system("command -v nm >/dev/null") != 0) SKIP("no nm");
    read_symbols(bin ? bin : "build/bin");
    if (n_defined < 1000)
        SKIP("the object files are not where they are built, or nm reads no symbols of them, as of some builds with "
             "-flto");
    CHECK(n_calls > 1000);
    judge();
}

TEST_MAIN

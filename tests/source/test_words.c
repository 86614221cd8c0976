/* SPDX-License-Identifier: Apache-2.0 */
/* Comments, documents and messages are plain English: certain turns of phrase, once common in this tree, must not come
 * back, and the spelling is American, as that of the interface. It looks only for what a pattern can find without false
 * alarms. */
#include "sources.h"

enum { SHOWN = 40, NEAR = 60 };

/* Rooms with old text. Once a room has none left, its entry must go. */
static const char *const not_yet[] = {NULL};
enum { N_NOT_YET = sizeof not_yet / sizeof *not_yet };

/* A rule finds a phrase as whole words, lower case (at_start: "Where", at the start of a comment or sentence). */
typedef struct rule {
    const char *phrase;
    bool at_start;
    bool (*is_right)(const char *text, const char *at, const char *after); /* returns true for good English; or NULL */
    const char *instead;
} rule;

static bool begins_with_one(const char *at, const char *const *texts)
{
    for (; *texts; texts++)
        if (!strncmp(at, *texts, strlen(*texts))) return true;
    return false;
}

/* Whether one of these words directly precedes `at`. */
static bool ends_with_one(const char *text, const char *at, const char *const *words)
{
    while (at > text && at[-1] == ' ') at--;
    for (; *words; words++) {
        size_t n = strlen(*words);
        if ((size_t)(at - text) >= n && !strncmp(at - n, *words, n) &&
            ((size_t)(at - text) == n || !isalnum((unsigned char)at[-(ptrdiff_t)n - 1])))
            return true;
    }
    return false;
}

/* "behind an interface", "fall behind", "left behind"; not "behind the last batch", which is after it. */
static bool right_behind(const char *text, const char *at, const char *after)
{
    static const char *const things[] = {" an interface",
                                         " one interface",
                                         " the interface",
                                         " the same interface",
                                         " a vtable",
                                         " a mutex",
                                         " a lock",
                                         " NAT",
                                         " a router",
                                         " a firewall",
                                         " a proxy",
                                         " a macro",
                                         " a cast",
                                         " a pointer",
                                         " a handle",
                                         " the scenes",
                                         " it is",
                                         " its back",
                                         " a function",
                                         " `",
                                         NULL};
    static const char *const verbs[] = {"fall", "falls",  "fallen", "fell",    "falling",   "far",     "lag",
                                        "lags", "lagged", "left",   "leave",   "leaves",    "leaving", "stragglers",
                                        "hide", "hides",  "hidden", "nothing", "something", NULL};
    return begins_with_one(after, things) || ends_with_one(text, at, verbs);
}

/* "told apart", and "does what it is told to", are right. */
static bool right_told(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return !strncmp(after, " apart", 6) || !strncmp(after, " from ", 6) || !strncmp(after, " to", 3);
}

/* Numbers lie in [0, 1]. */
static bool right_lie(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return after[0] == ' ' && (after[1] == '[' || after[1] == '(' || after[1] == '`');
}

static bool right_stand(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return !strncmp(after, " for", 4);
}

static bool right_beside(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return !strncmp(after, " the point", 10);
}

/* "Where to listen" and "Where part i begins." name something. Only a condition is wrong: "Where it is full, ...". */
static bool right_where(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    static const char *const more[] = {", and ", ", or ", ", in ", ", as ", ", if ", ", counted ", NULL};
    size_t n = strcspn(after, ",.:;?()");
    return after[n] != ',' || !strncmp(after, " to ", 4) || begins_with_one(after + n, more);
}

static bool in_document; /* where "Of the three, two ..." may begin a paragraph */

static bool right_of(const char *text, const char *at, const char *after)
{
    return in_document || at != text || !strncmp(after, " course", 7);
}

static const rule rules[] = {
    {"Of", true, right_of, "name the subject: \"The share of ...\", \"For a rank that ...\""},
    {"Who", true, NULL, "name the subject: \"A rank that\", \"The caller\""},
    {"Whoever", true, NULL, "name the subject: \"Any process that\", \"The caller\""},
    {"Where", true, right_where, "if, when"},
    {"behind", false, right_behind, "after"},
    {"Behind", true, right_behind, "after"},
    {"anew", false, NULL, "again"},
    {"beside", false, right_beside, "next to, besides, along with"},
    {"is told", false, right_told, "is notified, is reported, gets"},
    {"are told", false, right_told, "are notified, are reported, get"},
    {"was told", false, right_told, "was notified, was reported, got"},
    {"were told", false, right_told, "were notified, were reported, got"},
    {"be told", false, right_told, "be notified, be reported, get"},
    {"tells people", false, NULL, "prints, reports"},
    {"tell people", false, NULL, "print, report"},
    {"lies in", false, right_lie, "is in"},
    {"lie in", false, right_lie, "are in"},
    {"lies at", false, NULL, "is at"},
    {"lies there", false, NULL, "is there"},
    {"lies behind", false, NULL, "follows, is behind"},
    {"stands in", false, right_stand, "is in"},
    {"stand in", false, right_stand, "are in"},
    {"stands at", false, NULL, "is at"},
    {"stands on", false, NULL, "depends on, is on"},
    {"stands there", false, NULL, "is there"},
    {"there is: %s", false, NULL, "available:"},
    {"there are: %s", false, NULL, "available:"},
    {"known are", false, NULL, "available:"},
#define BRITISH(word, american)                                                                                        \
    {                                                                                                                  \
        word, false, NULL, american                                                                                    \
    }
    BRITISH("behaviour", "behavior"),
    BRITISH("colour", "color"),
    BRITISH("colours", "colors"),
    BRITISH("centre", "center"),
    BRITISH("centred", "centered"),
    BRITISH("favour", "favor"),
    BRITISH("neighbour", "neighbor"),
    BRITISH("neighbours", "neighbors"),
    BRITISH("initialise", "initialize"),
    BRITISH("initialised", "initialized"),
    BRITISH("initialises", "initializes"),
    BRITISH("initialisation", "initialization"),
    BRITISH("optimise", "optimize"),
    BRITISH("optimised", "optimized"),
    BRITISH("optimisation", "optimization"),
    BRITISH("normalise", "normalize"),
    BRITISH("normalised", "normalized"),
    BRITISH("normalisation", "normalization"),
    BRITISH("recognise", "recognize"),
    BRITISH("recognised", "recognized"),
    BRITISH("serialise", "serialize"),
    BRITISH("serialised", "serialized"),
    BRITISH("synchronise", "synchronize"),
    BRITISH("synchronised", "synchronized"),
    BRITISH("synchronisation", "synchronization"),
    BRITISH("minimise", "minimize"),
    BRITISH("minimiser", "minimizer"),
    BRITISH("vectorised", "vectorized"),
    BRITISH("organised", "organized"),
    BRITISH("summarise", "summarize"),
    BRITISH("grey", "gray"),
};

static int n_found, found_in[N_NOT_YET];
static char *copy; /* a text with single blanks, and the line of each byte */
static int *lines;
static size_t room;

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

static bool at_start(const char *text, const char *at)
{
    return at == text || (at - text >= 2 && at[-1] == ' ' && strchr(".;:?!", at[-2]));
}

static void report(const char *path, const rule *r, const char *at, int line)
{
    for (int i = 0; not_yet[i]; i++)
        if (!strncmp(path, not_yet[i], strlen(not_yet[i]))) {
            found_in[i]++;
            return;
        }
    if (n_found++ < SHOWN)
        printf("  %s:%d: \"%.*s\": instead of \"%s\" write: %s\n", path, line, (int)strnlen(at, NEAR), at, r->phrase,
               r->instead);
}

/* copy[0..n) is one text. */
static void check_text(const char *path, size_t n)
{
    copy[n] = 0;
    if (!strchr(copy, ' ')) return; /* a name */
    for (const rule *r = rules; r < rules + sizeof rules / sizeof *rules; r++) {
        size_t length = strlen(r->phrase);
        for (const char *at = copy; (at = strstr(at, r->phrase)); at += length) {
            const char *after = at + length;
            if ((at > copy && (is_word(at[-1]) || strchr("*`.>&", at[-1]))) || is_word(*after)) continue;
            if (r->at_start && !at_start(copy, at)) continue;
            if (!r->is_right || !r->is_right(copy, at, after)) report(path, r, at, lines[at - copy]);
        }
    }
}

/* Appends a byte of a text; runs of blanks become one. */
static void add(size_t *n, char c, int line)
{
    if (isspace((unsigned char)c)) {
        if (!*n || copy[*n - 1] == ' ') return;
        c = ' ';
    }
    lines[*n] = line;
    copy[(*n)++] = c;
}

/* Checks comments and literals; literals that are separated only by blanks are one text. */
static void check_source(const char *path, const char *s)
{
    int line = 1;
    size_t n = 0;
    for (const char *p = s; *p; p++) {
        if (*p == '\n') line++;
        if (p[0] == '/' && p[1] == '*') {
            if (n) check_text(path, n), n = 0;
            for (p += 2; *p && !(p[0] == '*' && p[1] == '/'); p++) {
                if (*p == '\n') {
                    line++;
                    add(&n, ' ', line);
                    while (isspace((unsigned char)p[1]) && p[1] != '\n') p++;
                    if (p[1] == '*' && p[2] != '/') p++;
                } else {
                    add(&n, *p, line);
                }
            }
            if (n) check_text(path, n), n = 0;
            if (!*p) break;
            p++;
        } else if (*p == '"') {
            for (p++; *p && *p != '"' && *p != '\n'; p++) {
                if (*p == '\\' && p[1]) p++;
                add(&n, *p, line);
            }
        } else if (*p == '\'') {
            for (p++; *p && *p != '\'' && *p != '\n'; p++)
                if (*p == '\\' && p[1]) p++;
        } else if (n && !isspace((unsigned char)*p)) {
            check_text(path, n), n = 0;
        }
        if (!*p) break;
    }
    if (n) check_text(path, n);
}

static void make_room(size_t size)
{
    if (size <= room) return;
    room = size;
    copy = realloc(copy, room);
    lines = realloc(lines, room * sizeof *lines);
    CHECK(copy && lines);
}

/* Checks paragraphs, without code. */
static void check_document(const char *path, const char *s)
{
    bool fenced = false, code = false;
    size_t n = 0;
    int line = 1;
    for (const char *p = s; *p; line++) {
        size_t length = strcspn(p, "\n");
        const char *text = p + strspn(p, " ");
        bool fence = !strncmp(text, "```", 3), item = text[0] == '-' || text[0] == '|' || text[0] == '#';
        if (fence) fenced = !fenced;
        if (fence || fenced || item || text == p + length) {
            if (n) check_text(path, n);
            n = 0, code = false;
        }
        if (!fence && !fenced) {
            for (size_t i = 0; i < length; i++) {
                if (p[i] == '`') code = !code;
                if (p[i] == '|') {
                    if (n) check_text(path, n);
                    n = 0, code = false;
                } else if (!(n == 0 && (p[i] == '-' || p[i] == '*'))) {
                    add(&n, code && p[i] != '`' ? '_' : p[i], line);
                }
            }
            add(&n, ' ', line);
        }
        p += length + (p[length] != 0);
    }
    if (n) check_text(path, n);
}

/* Names, too, say in plain words what is meant: lc_error_is_reported. */
static void check_names(const char *path, const char *s)
{
    static const char *const names[][2] = {{"_told", "reported, sent, got"},
                                           {"_tell", "send, report, note, warn"},
                                           {"tell_", "send, report, note, warn"},
                                           {"lc__stranger", "unproven"},
                                           {"lc__door", "lc__admit"},
                                           {"bury(", "say what it waits for"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *at = s; (at = strstr(at, names[i][0])); at += strlen(names[i][0]))
            if (n_found++ < SHOWN)
                printf("  %s: a name with \"%.*s\": %s\n", path, (int)strcspn(at, " (\n"), at, names[i][1]);
}

static void look_at_file(const char *name, char *text)
{
    if (!strcmp(name, "tests/source/test_words.c")) return;
    check_names(name, text);
    make_room(strlen(text) + 2);
    in_document = strstr(name, ".md") != NULL;
    if (in_document)
        check_document(name, text);
    else
        check_source(name, text);
}

static void read_tree(void)
{
    static const char *const parts[] = {"include", "src",   "tests",     "docs",         "examples",
                                        "bench",   "tools", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
                                        NULL};
    static const char *const endings[] = {".c", ".h", ".inl", ".cpp", ".md", NULL};
    for (int i = 0; parts[i]; i++) each_source(parts[i], endings, look_at_file);
}

/* What the rules find, and what they let pass. */
TEST(rules_find_what_they_should)
{
    static const struct {
        const char *text;
        int hits;
    } cases[] = {{"/* Of what it saves now. */", 1},
                 {"/* Of course not. */", 0},
                 {"/* The list. Of all of them, one. */", 0},
                 {"/* Who waits. */", 1},
                 {"/* It ends. Whoever waits hears of it. */", 1},
                 {"/* a rank who waits */", 0},
                 {"/* Where it is full, it waits. */", 1},
                 {"/* Where to listen, and how. */", 0},
                 {"/* Where part i of n begins. */", 0},
                 {"/* saved behind the last batch */", 1},
                 {"/* devices, behind\n * an interface */", 0},
                 {"/* a rank that has fallen behind */", 0},
                 {"/* read anew; renewed */", 1},
                 {"/* the file beside it */", 1},
                 {"/* besides that */", 0},
                 {"/* the caller is told */", 1},
                 {"/* cannot be told apart */", 0},
                 {"/* x lies in [0, 1] */", 0},
                 {"/* the file lies in dir */", 1},
                 {"/* \"*\" stands for any text */", 0},
                 {"/* it stands in the header */", 1},
                 {"int anew = 1;", 0},
                 {"f(\"no such x; there\" /* */ \" is: %s\")", 0},
                 {"f(\"no such x; there\"\n \" is: %s\")", 1}};
    make_room(1000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n_found = SHOWN;
        check_source("-", cases[i].text);
        if (n_found - SHOWN != cases[i].hits) TEST_FAIL("%s: %d", cases[i].text, n_found - SHOWN);
    }
    n_found = SHOWN;
    check_document("-", "It is read\nanew.\n```\nanew\n```\n`anew` |read anew|\n- Who knows\n");
    CHECK_EQ(n_found - SHOWN, 3);
}

TEST(old_words_do_not_come_back)
{
    n_found = 0;
    read_tree();
    for (int i = 0; not_yet[i]; i++)
        if (!found_in[i]) {
            n_found++;
            printf("  %s has none of them left: remove it from not_yet\n", not_yet[i]);
        }
    if (getenv("LIGHTC_WORDS_COUNT"))
        for (int i = 0; not_yet[i]; i++) printf("  %s: %d\n", not_yet[i], found_in[i]);
    free(copy), free(lines);
    copy = NULL, lines = NULL, room = 0;
    if (n_found) TEST_FAIL("%d places", n_found);
}

TEST_MAIN

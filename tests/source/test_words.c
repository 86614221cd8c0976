/* SPDX-License-Identifier: Apache-2.0 */
/* Comments, documents and messages are plain English: certain turns of phrase, once common in this tree, must not come
 * back, and the spelling is American, as that of the interface. It looks only for what a pattern can find without false
 * alarms. */
#include "sources.h"

enum { SHOWN = 40, NEAR = 60 };

static const char *const scripts[] = {".sh", ".py", ".txt", ".cmake", ".in", NULL};

/* Rooms with old text. Once a room has none left, its entry must go. */
static const char *const not_yet[] = {NULL};
enum { N_NOT_YET = sizeof not_yet / sizeof *not_yet };

/* A rule finds a phrase as whole words, lower case (at_start: "Where", at the start of a comment or sentence). */
typedef struct rule {
    const char *phrase;
    bool at_start;
    bool (*is_right)(const char *text, const char *at, const char *after); /* returns true for good English; or NULL */
    const char *write;
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

/* Whether one of these words is among the `n` words before `at`, in the same clause. */
static bool follows_one(const char *text, const char *at, int n, const char *const *words)
{
    const char *from = at;
    for (; n > 0 && from > text; n--) {
        while (from > text && from[-1] == ' ') from--;
        const char *end = from;
        while (from > text && from[-1] != ' ') from--;
        if (strchr(".;:,(", end[-1])) return false;
        const char *first = from;
        while (first < end && !isalnum((unsigned char)*first)) first++;
        for (const char *const *w = words; *w; w++)
            if (strlen(*w) == (size_t)(end - first) && !strncasecmp(first, *w, strlen(*w))) return true;
    }
    return false;
}

/* Whether `phrase` comes within the next `n` bytes of the clause. */
static bool leads_to(const char *after, size_t n, const char *phrase)
{
    size_t end = strcspn(after, ".;:,()"), length = strlen(phrase);
    for (size_t i = 0; i + length <= end && i < n; i++)
        if (!strncmp(after + i, phrase, length)) return true;
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

/* "Tells one thing from another", "told apart", and "does what it is told to" are right. */
static bool right_tell(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return leads_to(after, NEAR, " apart") || leads_to(after, NEAR, " from ") || !strncmp(after, " to", 3);
}

/* "All but the last" is all except it; "it answers but does not speak" is right. */
static bool right_but(const char *text, const char *at, const char *after)
{
    static const char *const all[] = {"all",   "any",     "every",  "each", "no",         "none",     "nobody",
                                      "other", "nothing", "anyone", "only", "everything", "anything", NULL};
    static const char *const verbs[] = {" is ",   " are ",  " was ", " were ",   " has ",  " have ",
                                        " not ",  " does ", " do ",  " can ",    " may ",  " must ",
                                        " will ", " also ", " if ",  " no ",     " only ", " never ",
                                        " with ", " at ",   " in ",  " rank 0 ", NULL};
    return !follows_one(text, at, 8, all) || begins_with_one(after, verbs);
}

/* "Only the bias", not "the bias alone"; "leave it alone", "it runs alone" and "the header alone needs more" are right.
 */
static bool right_alone(const char *text, const char *at, const char *after)
{
    static const char *const verbs[] = {"leave", "leaves", "left", "leaving", "run",    "runs",
                                        "stay",  "stays",  "keep", "train",   "trains", NULL};
    return (*after && !strchr(".,:;)", *after)) || follows_one(text, at, 4, verbs);
}

/* "There is no such file", "it is no longer", "is no larger than": not "it is no file". */
static bool right_no(const char *text, const char *at, const char *after)
{
    static const char *const there[] = {"there", NULL};
    static const char *const more[] = {" longer",  " more",   " less",   " fewer",  " larger",
                                       " smaller", " better", " higher", " faster", NULL};
    return follows_one(text, at, 1, there) || begins_with_one(after, more);
}

/* Numbers lie in [0, 1]. */
static bool right_lie(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return !strncmp(after, " in ", 4) && after[4] && strchr("[(`", after[4]);
}

static bool right_stand(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return !strncmp(after, " for", 4) || !strncmp(after, " still", 6);
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

static bool right_of(const char *text, const char *at, const char *after)
{
    (void)text, (void)at;
    return !strncmp(after, " course", 7);
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
    {"told", false, right_tell, "reported, notified, sent"},
    {"tells", false, right_tell, "reports, notifies, says, shows"},
    {"Tells", true, right_tell, "Reports, Notifies"},
    {"tell", false, right_tell, "report, notify, say, show"},
    {"Tell", true, right_tell, "Report, Notify"},
    {"lies", false, right_lie, "is"},
    {"lie", false, right_lie, "are, be"},
    {"stands", false, right_stand, "is"},
    {"stand", false, right_stand, "are, be"},
    {"but", false, right_but, "except"},
    {"but those", false, NULL, "except those"},
    {"alone", false, right_alone, "only, by itself"},
    {"whoever", false, NULL, "the caller, a rank that"},
    {"whomever", false, NULL, "whatever, any caller"},
    {"rank who", false, NULL, "a rank that"},
    {"ranks who", false, NULL, "ranks that"},
    {"process who", false, NULL, "a process that"},
    {"is no", false, right_no, "is not a"},
    {"are no", false, right_no, "are not"},
    {"was no", false, right_no, "was not a"},
    {"were no", false, right_no, "were not"},
    {"there is: %s", false, NULL, "available:"},
    {"there are: %s", false, NULL, "available:"},
    {"known are", false, NULL, "available:"},
    {"no memory for", true, NULL, "out of memory:"},
    {"no memory to", true, NULL, "out of memory:"},
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
    return at == text || (at - text >= 2 && at[-1] == ' ' && strchr(".;:?!#", at[-2]));
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
               r->write);
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
            if (*after == '.' && isalpha((unsigned char)after[1])) continue; /* a file */
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

/* Checks a script (shell, Python, CMake), comments and code: what is looked for is not found in code. */
static void check_script(const char *path, const char *s)
{
    bool comment = false;
    size_t n = 0;
    for (int line = 1; *s; line++) {
        const char *end = s + strcspn(s, "\n"), *first = s + strspn(s, " \t");
        if (n && (first == end || (*first == '#') != comment)) check_text(path, n), n = 0;
        comment = *first == '#';
        for (const char *p = comment ? first + 1 : first; p < end; p++) add(&n, *p, line);
        add(&n, ' ', line);
        s = end + (*end != 0);
    }
    if (n) check_text(path, n);
}

/* Checks a man page: a line of text joins the one before, a request is by itself. */
static void check_manual(const char *path, const char *s)
{
    size_t n = 0;
    for (int line = 1; *s; line++) {
        const char *end = s + strcspn(s, "\n");
        bool request = *s == '.';
        if (request && n) check_text(path, n), n = 0;
        for (const char *p = request ? s + strcspn(s, " \n") : s; p < end; p++) {
            if (*p == '\\' && p[1] == 'f' && p + 3 <= end)
                p += 2;
            else if (*p != '\\')
                add(&n, *p, line);
        }
        add(&n, ' ', line);
        if (request && n) check_text(path, n), n = 0;
        s = end + (*end != 0);
    }
    if (n) check_text(path, n);
}

/* Checks what a patch adds, as C. */
static void check_patch(const char *path, const char *s)
{
    char *added = calloc(1, strlen(s) + 1);
    CHECK(added != NULL);
    for (size_t n = 0; *s;) {
        size_t length = strcspn(s, "\n") + 1;
        if (*s == '+' && s[1] != '+') {
            memcpy(added + n, s + 1, length - 1);
            n += length - 1;
        } else {
            added[n++] = '\n'; /* keeps the lines' numbers */
        }
        s += s[length - 1] ? length : length - 1;
    }
    check_source(path, added);
    free(added);
}

/* Names, too, say in plain words what is meant: lc_error_is_reported. A name is made of words, with "_" between them.
 */
static void check_names(const char *path, char *s)
{
    static const char *const names[][2] = {{"tell", "report, notify, send"},
                                           {"tells", "report, notify, send"},
                                           {"told", "reported, sent, got"},
                                           {"instead", "say what it is"},
                                           {"let_go", "release, end"},
                                           {"heed", "ignore, handle"},
                                           {"heedless", "ignores ..."},
                                           {"twin", "copy, other, of_type"},
                                           {"twins", "copies"},
                                           {"beside", "next_to"},
                                           {"whom", "say who"},
                                           {"anew", "again"},
                                           {"batch_part", "share, device_part"},
                                           {"ckpt_share", "part, joint"},
                                           {"lc__stranger", "unproven"},
                                           {"lc__door", "lc__admit"},
                                           {"bury", "say what it waits for"}};
    blank_out(s);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i][0]);
        for (const char *at = s; (at = strstr(at, names[i][0])); at += n) {
            if ((at > s && isalnum((unsigned char)at[-1])) || isalnum((unsigned char)at[n])) continue;
            int line = 1;
            for (const char *p = s; p < at; p++) line += *p == '\n';
            if (n_found++ < SHOWN)
                printf("  %s:%d: a name with \"%s\": write %s\n", path, line, names[i][0], names[i][1]);
        }
    }
}

static void look_at_file(const char *name, char *text)
{
    const char *base = strrchr(name, '/'), *dot;
    base = base ? base + 1 : name;
    dot = strrchr(base, '.');
    if (!dot) dot = "";
    if (!strcmp(name, "tests/source/test_words.c")) return;
    make_room(strlen(text) + 2);
    if (!strcmp(dot, ".md")) {
        check_document(name, text);
    } else if (!strcmp(dot, ".1")) {
        check_manual(name, text);
    } else if (!strcmp(dot, ".patch")) {
        check_patch(name, text);
    } else if (!*dot || is_one_of(dot, scripts)) {
        check_script(name, text);
    } else {
        check_source(name, text);
        check_names(name, text);
    }
}

static void read_tree(void)
{
    static const char *const parts[] = {
        "include",        "src",           "tests", "docs",      "examples",     "bench",           "tools", "cmake",
        "CMakeLists.txt", "quickstart.sh", ".ci",   "README.md", "CHANGELOG.md", "CONTRIBUTING.md", NULL};
    static const char *const others[] = {".c", ".h", ".inl", ".cpp", ".md", ".1", ".patch", NULL}, *none[] = {"", NULL};
    for (int i = 0; parts[i]; i++) each_source(parts[i], others, look_at_file);
    for (int i = 0; parts[i]; i++) each_source(parts[i], scripts, look_at_file);
    each_source(".ci", none, look_at_file);
}

/* What the rules find, and what they let pass. */
TEST(rules_find_what_they_should)
{
    static const struct {
        const char *text;
        int hits;
    } cases[] = {{"/* Of what it saves now. */", 1},
                 {"/* Of course not. */", 0},
                 {"/* The list. Of all of them, one. */", 1},
                 {"/* Who waits. */", 1},
                 {"/* It ends. Whoever waits hears of it. */", 1},
                 {"/* a rank who waits */", 1},
                 {"/* run by whomever */", 1},
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
                 {"/* what lies beyond it */", 1},
                 {"/* it tells the others why */", 1},
                 {"/* tells images from noise; told apart */", 0},
                 {"/* as it was told to */", 0},
                 {"/* all\n * dimensions but the last */", 1},
                 {"/* Anything but a file is sent */", 1},
                 {"/* all of them, but the last is short */", 0},
                 {"/* x has 3 columns but y has 4 */", 0},
                 {"/* no rank speaks but has a word */", 0},
                 {"/* depends on the file alone. */", 1},
                 {"/* leaves the file alone */", 0},
                 {"/* the header alone has more */", 0},
                 {"f(\"%s is no such type\")", 1},
                 {"f(\"there is no such type; it is no longer there and was no larger than\")", 0},
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
    n_found = SHOWN;
    check_script("-", "x=$#  # Who waits\n# It is read\n# anew.\n\ny='anew'\n\nz=\"it is\n  anew\"\n");
    CHECK_EQ(n_found - SHOWN, 4);
    n_found = SHOWN;
    check_manual("-", ".SH READ\n.B read\nanew, \\fIbeside\\fR\n");
    CHECK_EQ(n_found - SHOWN, 2);
    n_found = SHOWN;
    check_patch("-", "--- a\n+++ b\n@@ -1 +1 @@\n+/* read anew */\n-/* read anew */\n /* read anew */\n");
    CHECK_EQ(n_found - SHOWN, 1);
    n_found = SHOWN;
    char names[] = "int tell(void), let_go; /* tell() */ a_told_b, ftell(), x->instead_of;";
    check_names("-", names);
    CHECK_EQ(n_found - SHOWN, 4);
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

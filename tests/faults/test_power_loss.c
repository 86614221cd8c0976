/* SPDX-License-Identifier: Apache-2.0 */
/* The power fails while a training saves (power_program.c on power_fs.c), once or twice, at a change or sync that the
 * seed draws. Whatever was reported as saved exists, the run continues from it and ends with the bits of an undisturbed
 * one, and the run database is intact and contains what was flushed to it.
 *
 * LIGHTC_POWER_ROUNDS=500 runs more, LIGHTC_POWER_SEED draws others, LIGHTC_POWER_ROUND=51 repeats one: with the same
 * draws, but threads of the program may be scheduled differently.
 *
 * The two negative controls are the same rounds with syncs of files, or of directories, that do nothing: they must find
 * losses, since otherwise this test could not find any. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "power_fs.h"
#include "scratch.h"

#include <lightc/checkpoint.h>
#include <lightc/state.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <sys/wait.h>

enum { MOST = 64, LIVES = 3 };

static const char *why_not;
static char program[PATH_MAX + 32], mount_point[300];

__attribute__((constructor)) static void make(void)
{
    char dir[PATH_MAX];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    if (!realpath(bin ? bin : "build/bin", dir)) abort();
    snprintf(program, sizeof program, "%s/power_program", dir);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    why_not = power_fs_own_mounts();
}

/* ---- a round ---- */

static const char *const kinds[] = {"all", "newest", "same"}, *const journals[] = {"wal", "rollback"};

typedef struct trial {
    int number, kind, journal, losses;
    uint64_t key, draws;
    power_fs fs;
    /* what was reported */
    struct {
        char path[400];
        int64_t step;
    } saved[MOST * LIVES];
    char rows[MOST * LIVES][400];
    int n_saved, n_rows;
    int64_t newest, from; /* steps; from: where the last life began, 0 if from scratch */
    int life_saved;       /* in the last life */
    int leftovers;        /* found after it, left by earlier lives in the directory it saved in */
    char result[32];
    bool closed;
    char wrong[4096];
} trial;

static struct {
    int rounds, failed, lost, struck, saved, rows, leftovers, stale;
    uint64_t changes, writes;
} sums;

static uint64_t below(trial *r, uint64_t n)
{
    uint64_t x = r->key + 0x9e3779b97f4a7c15u * ++r->draws; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % n;
}

static void wrong(trial *r, const char *format, ...) LC_PRINTF(2, 3);
static void wrong(trial *r, const char *format, ...)
{
    size_t n = strlen(r->wrong);
    va_list args;
    if (n + 8 >= sizeof r->wrong) return;
    va_start(args, format);
    strcpy(r->wrong + n, "    ");
    vsnprintf(r->wrong + n + 4, sizeof r->wrong - n - 6, format, args);
    va_end(args);
    strcat(r->wrong, "\n");
}

static void hear(trial *r, char *line)
{
    char *space = strchr(line, ' ');
    if (!strcmp(line, "closed")) r->closed = true;
    if (!space) return;
    if (!strncmp(line, "from ", 5)) r->from = atoll(space);
    if (!strncmp(line, "result ", 7)) snprintf(r->result, sizeof r->result, "%s", space + 1);
    if (!strncmp(line, "row ", 4) && r->n_rows < MOST * LIVES)
        snprintf(r->rows[r->n_rows++], sizeof *r->rows, "%s", space + 1);
    if (!strncmp(line, "saved ", 6) && r->n_saved < MOST * LIVES) {
        char *path;
        int64_t step = strtoll(space, &path, 10);
        r->saved[r->n_saved].step = step;
        snprintf(r->saved[r->n_saved++].path, sizeof r->saved->path, "%s", path + 1);
        if (step > r->newest) r->newest = step;
        r->life_saved++;
    }
}

static void look_below(trial *r, const char *dir, int64_t *newest, int *leftovers);

/* One life of the program; at: when the power fails, 0: after its end. Returns the number of changes and syncs. */
static uint64_t live(trial *r, uint64_t at, bool *struck)
{
    int in[2], out[2], status;
    r->from = 0, r->life_saved = 0, r->closed = false;
    *r->result = 0;
    CHECK(!pipe2(in, O_CLOEXEC) && !pipe2(out, O_CLOEXEC));
    char err[400];
    snprintf(err, sizeof err, "%s/stderr", scratch_root);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        int fd = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(in[0], 0), dup2(fd, 2), dup2(fd, 1);
        dup2(out[1], 3);
        execl(program, program, mount_point, kinds[r->kind], journals[r->journal], (char *)NULL);
        _exit(127);
    }
    setpgid(pid, pid);
    close(in[0]), close(out[1]);
    power_fs_arm(&r->fs, pid, at);
    CHECK(write(in[1], "g", 1) == 1);
    close(in[1]);
    FILE *f = fdopen(out[0], "r");
    char line[4400];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        hear(r, line);
    }
    fclose(f);
    CHECK(waitpid(pid, &status, 0) == pid);
    r->leftovers = 0;
    if (!at && r->life_saved && strcmp(kinds[r->kind], "all")) { /* the names as they are before the power fails */
        int64_t newest = 0;
        look_below(r, mount_point, &newest, &r->leftovers);
    }
    uint64_t counted = power_fs_back(&r->fs, struck);
    if (!*struck && (!WIFEXITED(status) || WEXITSTATUS(status))) {
        char text[1500] = "";
        FILE *e = fopen(err, "r");
        if (e) text[fread(text, 1, sizeof text - 1, e)] = 0, fclose(e);
        wrong(r, "the program ended with status %x: %s", (unsigned)status, text);
    }
    return counted;
}

/* ---- files after the power loss ---- */

static int64_t step_of(const char *path)
{
    lc_checkpoint *c;
    int64_t step = -1;
    if (lc_checkpoint_open(path, &c) < 0) return -1;
    if (lc_state_get_int(lc_checkpoint_state(c), "global_step", &step) < 0) step = -1;
    lc_checkpoint_close(c);
    return step;
}

/* Every name of a checkpoint below `dir` is that of a complete one. *newest: their last step. */
static void look_below(trial *r, const char *dir, int64_t *newest, int *leftovers)
{
    DIR *d = opendir(dir);
    int links = 0, stale = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[700];
        struct stat st;
        size_t n = strlen(e->d_name);
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (*e->d_name == '.') {
            ++*leftovers;
        } else if (n > 5 && !strcmp(e->d_name + n - 5, ".ckpt")) {
            bool link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode), leads = !link || stat(path, &st) == 0;
            int64_t step = leads ? step_of(path) : 0;
            if (step < 0) wrong(r, "%s: %s", path, lc_error_message());
            links += link && leads, stale += !leads;
            if (step > *newest) *newest = step;
        } else if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            look_below(r, path, newest, leftovers);
        }
    }
    if (d) closedir(d);
    /* A run that continues from before the link was made makes another one (docs/checkpoints.md). */
    if (stale && !links) wrong(r, "%s: no link to the last checkpoint leads to one", dir);
    sums.stale += stale;
}

static void check_checkpoints(trial *r)
{
    int64_t newest = 0;
    int leftovers = 0;
    look_below(r, mount_point, &newest, &leftovers);
    if (newest < r->newest)
        wrong(r, "step %lld was reported as saved; the newest is of %lld", (long long)r->newest, (long long)newest);
    for (int i = 0; !strcmp(kinds[r->kind], "all") && i < r->n_saved; i++)
        if (step_of(r->saved[i].path) != r->saved[i].step)
            wrong(r, "%s was reported as saved: %s", r->saved[i].path, lc_error_message());
}

/* ---- the database ---- */

static void copy(const char *name)
{
    char from[400], to[400], data[65536];
    snprintf(from, sizeof from, "%s/%s", mount_point, name);
    snprintf(to, sizeof to, "%s/%s", scratch_root, name);
    unlink(to);
    int in = open(from, O_RDONLY | O_CLOEXEC), out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    for (ssize_t n; in >= 0 && (n = read(in, data, sizeof data)) > 0;)
        if (write(out, data, (size_t)n) != n) abort();
    if (in >= 0) close(in), close(out);
}

static int64_t ask(trial *r, sqlite3 *db, const char *sql, const char *text)
{
    sqlite3_stmt *s = NULL;
    int64_t v = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK) {
        if (text) sqlite3_bind_text(s, 1, text, -1, SQLITE_STATIC);
        if (sqlite3_step(s) == SQLITE_ROW) v = sqlite3_column_int64(s, 0);
    }
    if (v < 0) wrong(r, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_finalize(s);
    return v;
}

/* Checks a copy, since opening the database changes it. `again`: a run has begun since the power failed. */
static void check_database(trial *r, bool again)
{
    static const char *const parts[] = {"lightc.db", "lightc.db-wal", "lightc.db-journal"};
    char path[400];
    sqlite3 *db;
    sqlite3_stmt *s = NULL;
    for (int i = 0; i < 3; i++) copy(parts[i]);
    snprintf(path, sizeof path, "%s/lightc.db", scratch_root);
    if (sqlite3_open(path, &db) != SQLITE_OK) abort();
    if (ask(r, db, "SELECT count(*) = 1 AND max(integrity_check) = 'ok' FROM pragma_integrity_check", NULL) != 1)
        wrong(r, "the database is damaged");
    for (int i = 0; i < r->n_rows; i++)
        if (ask(r, db, "SELECT count(*) > 0 FROM checkpoint WHERE path = ?1", r->rows[i]) != 1)
            wrong(r, "%s was flushed to the database and is not in it", r->rows[i]);
    if (r->closed && ask(r, db, "SELECT status = 'success' FROM run ORDER BY id DESC LIMIT 1", NULL) != 1)
        wrong(r, "the database was closed, and does not know how the run ended");
    if (r->closed && ask(r, db, "SELECT max(step) FROM v_metric", NULL) < 16)
        wrong(r, "the database was closed without the last rows");
    if (again && sqlite3_prepare_v2(db, "SELECT path FROM v_checkpoint", -1, &s, NULL) == SQLITE_OK)
        while (sqlite3_step(s) == SQLITE_ROW) {
            const char *listed = (const char *)sqlite3_column_text(s, 0);
            if (access(listed, F_OK) != 0) wrong(r, "the database lists %s, which does not exist", listed);
        }
    sqlite3_finalize(s);
    sqlite3_close(db);
}

/* ---- rounds ---- */

static char reference[32];
static uint64_t changes[3][2]; /* of an undisturbed run */

static void one_round(trial *r, uint64_t seed, int number, int flags)
{
    *r = (trial){.number = number, .key = seed * 0x2545f4914f6cdd1du + (uint64_t)number};
    r->kind = number % 3, r->journal = number / 3 % 2;
    r->losses = 1 + (int)below(r, 2);
    flags |= below(r, 2) ? POWER_JOURNAL : 0;
    snprintf(mount_point, sizeof mount_point, "%s", fresh_dir("power"));
    if (!why_not) why_not = power_fs_start(&r->fs, mount_point, below(r, UINT64_MAX), flags);
    if (why_not) SKIP(why_not);
    bool struck = false;
    for (int i = 0; i < r->losses && !*r->wrong; i++) {
        live(r, 1 + below(r, changes[r->kind][r->journal] * 21 / 20), &struck);
        sums.lost++, sums.struck += struck;
        check_checkpoints(r);
        if (r->n_rows || !struck) check_database(r, false);
    }
    int64_t newest = r->newest;
    if (!*r->wrong) {
        live(r, 0, &struck);
        sums.lost++;
        if (r->from + 1 < newest) /* rows after it are superseded */
            wrong(r, "it went on from step %lld, not from %lld", (long long)r->from, (long long)newest);
        if (!r->closed || strcmp(r->result, reference)) wrong(r, "result %s, wanted %s", r->result, reference);
        check_checkpoints(r);
        check_database(r, true);
    }
    power_fs_end(&r->fs);
    sums.rounds++, sums.failed += *r->wrong != 0, sums.saved += r->n_saved, sums.rows += r->n_rows;
    sums.leftovers += r->leftovers;
    sums.changes += r->fs.lost_changes, sums.writes += r->fs.lost_writes;
}

/* The numbers of an undisturbed run, which loses nothing if the power fails after its end. */
static void need_reference(void)
{
    static trial r;
    bool struck;
    for (int i = 0; i < 6; i++) {
        if (changes[i % 3][i / 3]) continue;
        r = (trial){.kind = i % 3, .journal = i / 3};
        snprintf(mount_point, sizeof mount_point, "%s", fresh_dir("power"));
        if (!why_not) why_not = power_fs_start(&r.fs, mount_point, 1, 0);
        if (why_not) SKIP(why_not);
        uint64_t n = live(&r, 0, &struck);
        if (!*reference) snprintf(reference, sizeof reference, "%s", r.result);
        if (strcmp(r.result, reference) || !*reference) wrong(&r, "result %s, wanted %s", r.result, reference);
        check_checkpoints(&r);
        check_database(&r, true);
        power_fs_end(&r.fs);
        if (*r.wrong) TEST_FAIL("%s, %s:\n%s", kinds[r.kind], journals[r.journal], r.wrong);
        changes[i % 3][i / 3] = n;
    }
}

static int64_t number_of(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoll(text) : otherwise;
}

TEST(everything_reported_is_there)
{
    static trial r;
    int64_t seed = number_of("LIGHTC_POWER_SEED", 1), only = number_of("LIGHTC_POWER_ROUND", -1);
    int64_t rounds = number_of("LIGHTC_POWER_ROUNDS", ROUNDS(18, 6));
    need_reference();
    for (int64_t i = only < 0 ? 0 : only; i < (only < 0 ? rounds : only + 1); i++) {
        one_round(&r, (uint64_t)seed, (int)i, 0);
        if (*r.wrong) printf("  round %d (%s, %s):\n%s", r.number, kinds[r.kind], journals[r.journal], r.wrong);
    }
    printf(
        "  %d rounds, %d wrong: %d losses of power, %d of them in a run, took %llu changes of names and %llu writes; "
        "%d checkpoints and %d rows were reported; %d leftovers, %d stale links\n",
        sums.rounds, sums.failed, sums.lost, sums.struck, (unsigned long long)sums.changes,
        (unsigned long long)sums.writes, sums.saved, sums.rows, sums.leftovers, sums.stale);
    CHECK(!sums.failed);
}

static void must_find(int flags)
{
    static trial r;
    int found = 0;
    need_reference();
    for (int i = 0; i < 30 && !found; i++) {
        one_round(&r, 2, i, flags);
        found += *r.wrong != 0;
    }
    CHECK(found);
}

TEST(without_syncs_of_files_there_are_losses)
{
    must_find(POWER_NO_FILE_SYNC);
}

TEST(without_syncs_of_directories_there_are_losses)
{
    must_find(POWER_NO_DIR_SYNC);
}

TEST_MAIN

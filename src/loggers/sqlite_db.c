/* SPDX-License-Identifier: Apache-2.0 */
/* The run database as a file: its lock, its journal and its schema. Opening it stores what is known about the run.
 *
 * Journal: on a local disk the database is in WAL mode, so that readers never wait and never make the writer wait.
 * SQLite before 3.51.3 has a defect there when two connections write or checkpoint at the same instant; every
 * transaction therefore holds an exclusive lock on "<database>.lock", which keeps the writers of several processes
 * apart. WAL needs memory shared by all processes, so on network file systems a rollback journal is used, with a busy
 * timeout. */
#define _GNU_SOURCE
#include "loggers/sqlite_db.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define LOCK_MS        10000 /* how long the start waits for other processes */
#define SCHEMA_VERSION 2
#define APPLICATION_ID 0x4c544331 /* "LTC1" */

#define CHECKPOINTS                                                                                                    \
    "CREATE INDEX checkpoint_by_path ON checkpoint(path);"                                                             \
    "CREATE VIEW v_checkpoint AS SELECT c.run AS run, r.name AS run_name, r.version AS version, c.step AS step,"       \
    " c.path AS path, c.score AS score, c.wall_ns AS wall_ns FROM checkpoint c JOIN run r ON r.id = c.run"             \
    " WHERE c.removed_ns IS NULL;"

/* Upgrades version 1. */
static const char since_1[] =
    "ALTER TABLE checkpoint ADD COLUMN removed_ns INTEGER;" CHECKPOINTS "PRAGMA user_version = 2;";

static const char schema[] =
    "CREATE TABLE run(id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, name TEXT, version INTEGER, run_dir TEXT,"
    " status TEXT NOT NULL, started_ns INTEGER NOT NULL, ended_ns INTEGER, host TEXT, pid INTEGER, command TEXT,"
    " lightc_version TEXT)%s;"
    "CREATE TABLE segment(run INTEGER NOT NULL REFERENCES run(id), segment INTEGER NOT NULL, started_ns INTEGER NOT "
    "NULL,"
    " resumed_step INTEGER, PRIMARY KEY(run, segment))%s;"
    "CREATE TABLE option(run INTEGER NOT NULL REFERENCES run(id), name TEXT NOT NULL, value TEXT, PRIMARY KEY(run, "
    "name))%s;"
    "CREATE TABLE hyperparameter(run INTEGER NOT NULL REFERENCES run(id), name TEXT NOT NULL, value TEXT,"
    " PRIMARY KEY(run, name))%s;"
    "CREATE TABLE metric_key(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)%s;"
    "CREATE TABLE metric(id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run(id), segment INTEGER NOT NULL,"
    " key INTEGER NOT NULL REFERENCES metric_key(id), step INTEGER NOT NULL, epoch INTEGER, wall_ns INTEGER NOT NULL,"
    " value REAL, kind INTEGER NOT NULL DEFAULT 0)%s;"
    "CREATE INDEX metric_of_run ON metric(run, key, step);"
    "CREATE TABLE checkpoint(id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run(id), segment INTEGER NOT NULL,"
    " step INTEGER NOT NULL, path TEXT NOT NULL, score REAL, wall_ns INTEGER NOT NULL,"
    " removed_ns INTEGER)%s;" CHECKPOINTS
    "CREATE TABLE event(id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run(id), wall_ns INTEGER NOT NULL,"
    " level TEXT NOT NULL, text TEXT NOT NULL)%s;"
    /* Rows of a segment after the step at which a later segment resumed are not shown. */
    "CREATE VIEW v_metric AS SELECT m.run AS run, r.name AS run_name, r.version AS version, k.name AS name, m.step AS "
    "step,"
    " m.epoch AS epoch, m.wall_ns AS wall_ns, m.value AS value, m.kind AS kind, m.segment AS segment, m.id AS id"
    " FROM metric m JOIN metric_key k ON k.id = m.key JOIN run r ON r.id = m.run"
    " WHERE NOT EXISTS (SELECT 1 FROM segment s WHERE s.run = m.run AND s.segment > m.segment AND s.resumed_step < "
    "m.step);"
    "CREATE VIEW v_latest AS SELECT run, run_name, version, name, step, epoch, wall_ns, value, kind FROM v_metric"
    " WHERE id IN (SELECT max(id) FROM v_metric GROUP BY run, name);"
    "CREATE VIEW v_metric_wide AS SELECT run, run_name, version, step, epoch, min(wall_ns) AS wall_ns,"
    " json_group_object(name, value) AS metrics FROM v_metric GROUP BY run, segment, step, epoch;"
    "CREATE VIEW v_run AS SELECT id, run_id, name, version, status, host, datetime(started_ns / 1000000000, "
    "'unixepoch') AS started,"
    " (coalesce(ended_ns, (SELECT max(wall_ns) FROM metric WHERE run = run.id)) - started_ns) / 1e9 AS seconds, "
    "run_dir FROM run;"
    "PRAGMA application_id = %d;"
    "PRAGMA user_version = %d;";

/* ---- errors and locks ---- */

lc_status lc__sqlite_fail(lc__sqlite *l, const char *what)
{
    int code = l->db ? sqlite3_errcode(l->db) : SQLITE_NOMEM;
    const char *hint = code == SQLITE_FULL     ? "; free some space"
                       : code == SQLITE_NOTADB ? "; move it away"
                       : code == SQLITE_CORRUPT
                           ? "; move it away, and keep it: the sqlite3 program's \".recover\" may save most of it"
                       : code == SQLITE_BUSY || code == SQLITE_LOCKED ? "; another program keeps it locked"
                       : (code == SQLITE_CANTOPEN || code == SQLITE_IOERR)
                           ? lc__io_hint(sqlite3_system_errno(l->db)) /* SQLite's own text does not say why */
                           : "";
    return lc_fail(code == SQLITE_NOMEM    ? LC_ERR_MEMORY
                   : code == SQLITE_NOTADB ? LC_ERR_FORMAT
                                           : LC_ERR_IO,
                   "cannot %s \"%s\": %s%s", what, l->path, l->db ? sqlite3_errmsg(l->db) : "out of memory", hint);
}

static lc_status execute(lc__sqlite *l, const char *what, const char *sql)
{
    return sqlite3_exec(l->db, sql, NULL, NULL, NULL) == SQLITE_OK ? LC_OK : lc__sqlite_fail(l, what);
}

static bool is_network(const char *dir)
{
    /* Kernel magic numbers; FUSE is among them because the file system behind it is unknown. */
    static const uint32_t magics[] = {
        0x6969,     /* NFS */
        0x517b,     /* SMB */
        0xfe534d42, /* SMB2 */
        0xff534d42, /* CIFS */
        0x0bd00bd0, /* Lustre */
        0x47504653, /* GPFS */
        0x19830326, /* BeeGFS */
        0x00c36400, /* Ceph */
        0x65735546, /* FUSE */
        0x5346414f, /* AFS */
        0x01021997, /* 9P */
        0x7461636f, /* OCFS2 */
        0x01161970, /* GFS2 */
        0x20030528, /* OrangeFS */
        0xaad7aaea, /* PanFS */
        0x013111a8, /* IBRIX */
        0x73757245, /* Coda */
        0x61756673, /* aufs */
    };
    struct statfs fs;
    if (statfs(dir, &fs) < 0) return true;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if ((uint32_t)fs.f_type == magics[i]) return true;
    return false;
}

lc_status lc__sqlite_lock(lc__sqlite *l, int ms)
{
    if (l->lock_fd < 0) return LC_OK;
    for (int waited = 0;; waited += 2) {
        if (flock(l->lock_fd, LOCK_EX | LOCK_NB) == 0) return LC_OK;
        if (errno != EWOULDBLOCK && errno != EINTR) return LC_OK; /* no locks here: rely on SQLite's own */
        if (waited >= ms) return LC_SKIP;
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
    }
}

void lc__sqlite_unlock(lc__sqlite *l)
{
    if (l->lock_fd >= 0) flock(l->lock_fd, LOCK_UN);
}

/* ---- statements ---- */

lc_status lc__sqlite_step(lc__sqlite *l, sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    return rc == SQLITE_DONE ? LC_OK : lc__sqlite_fail(l, "write");
}

lc_status lc__sqlite_prepare(lc__sqlite *l, const char *sql, sqlite3_stmt **out)
{
    if (sqlite3_prepare_v3(l->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) != SQLITE_OK)
        return lc__sqlite_fail(l, "prepare");
    return LC_OK;
}

/* ---- start ---- */

static lc_status get_int(lc__sqlite *l, const char *sql, int64_t *out)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(l->db, sql, -1, &s, NULL) != SQLITE_OK) return lc__sqlite_fail(l, "read");
    int rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? LC_OK : lc__sqlite_fail(l, "read");
}

static lc_status make_schema(lc__sqlite *l)
{
    int64_t version = 0, id = 0, tables = 0;
    LC_TRY(get_int(l, "PRAGMA user_version", &version));
    LC_TRY(get_int(l, "PRAGMA application_id", &id));
    LC_TRY(get_int(l, "SELECT count(*) FROM sqlite_master", &tables));
    if (tables && id != APPLICATION_ID)
        return lc_fail(LC_ERR_FORMAT, "\"%s\" is a database of another program; move it away", l->path);
    if (version > SCHEMA_VERSION)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "\"%s\" was made by a newer lightc (schema %" PRId64
                       ", this one has %d); use that one or move it away",
                       l->path, version, SCHEMA_VERSION);
    if (tables) return version < SCHEMA_VERSION ? execute(l, "update", since_1) : LC_OK;
    const char *strict = sqlite3_libversion_number() >= 3037000 ? " STRICT" : "";
    char *sql;
    LC_TRY(lc__format(&sql, schema, strict, strict, strict, strict, strict, strict, strict, strict, APPLICATION_ID,
                      SCHEMA_VERSION));
    lc_status status = execute(l, "set up", sql);
    free(sql);
    return status;
}

static lc_status insert_options(lc__sqlite *l, const lc_named_text *texts, int n)
{
    sqlite3_stmt *s = NULL;
    LC_TRY(lc__sqlite_prepare(l, "INSERT OR REPLACE INTO option(run, name, value) VALUES(?1, ?2, ?3)", &s));
    lc_status status = LC_OK;
    for (int i = 0; i < n && status >= 0; i++) {
        sqlite3_bind_int64(s, 1, l->run);
        sqlite3_bind_text(s, 2, texts[i].name, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 3, texts[i].value, -1, SQLITE_STATIC); /* NULL is NULL */
        status = lc__sqlite_step(l, s);
    }
    sqlite3_finalize(s);
    return status;
}

/* The program's command line, as one text; "" if it is not available. */
static void command_line(char *text, size_t size)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0) close(fd);
    if (n < 0) n = 0;
    while (n && !text[n - 1]) n--;
    for (ssize_t i = 0; i < n; i++)
        if (!text[i]) text[i] = ' ';
    text[n] = 0;
}

static lc_status insert_run(lc__sqlite *l, const lc_run_info *run)
{
    char host[256] = "", command[4096], id[400];
    int64_t now = lc__realtime_ns();
    sqlite3_stmt *s = NULL;
    if (gethostname(host, sizeof host - 1) < 0) *host = 0;
    command_line(command, sizeof command);
    if (run->run_id && *run->run_id)
        snprintf(id, sizeof id, "%s", run->run_id);
    else
        snprintf(id, sizeof id, "%s-%ld-%" PRId64, host, (long)getpid(), now);
    LC_TRY(lc__sqlite_prepare(
        l,
        "INSERT INTO run(run_id, name, version, run_dir, status, started_ns, host, pid, command, lightc_version)"
        " VALUES(?1, ?2, ?3, ?4, 'running', ?5, ?6, ?7, ?8, ?9) ON CONFLICT(run_id) DO UPDATE SET"
        " status = 'running', ended_ns = NULL, run_dir = excluded.run_dir, version = excluded.version,"
        " host = excluded.host, pid = excluded.pid, command = excluded.command,"
        " lightc_version = excluded.lightc_version",
        &s));
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, run->name, -1, SQLITE_STATIC);
    sqlite3_bind_int(s, 3, run->version);
    sqlite3_bind_text(s, 4, run->run_dir, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 5, now);
    sqlite3_bind_text(s, 6, host, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 7, getpid());
    sqlite3_bind_text(s, 8, command, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 9, lc_version(), -1, SQLITE_STATIC);
    lc_status status = lc__sqlite_step(l, s);
    sqlite3_finalize(s);
    LC_TRY(status);
    LC_TRY(lc__sqlite_prepare(
        l, "SELECT id, (SELECT count(*) FROM segment WHERE run = run.id) FROM run WHERE run_id = ?1", &s));
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    if (sqlite3_step(s) == SQLITE_ROW) {
        l->run = sqlite3_column_int64(s, 0);
        l->segment = sqlite3_column_int64(s, 1);
    } else {
        status = lc__sqlite_fail(l, "read");
    }
    sqlite3_finalize(s);
    LC_TRY(status);
    LC_TRY(lc__sqlite_prepare(l, "INSERT INTO segment(run, segment, started_ns, resumed_step) VALUES(?1, ?2, ?3, ?4)",
                              &s));
    sqlite3_bind_int64(s, 1, l->run);
    sqlite3_bind_int64(s, 2, l->segment);
    sqlite3_bind_int64(s, 3, now);
    if (run->resumed) sqlite3_bind_int64(s, 4, run->resumed_step);
    status = lc__sqlite_step(l, s);
    sqlite3_finalize(s);
    LC_TRY(status);
    return insert_options(l, run->options, run->n_options);
}

/* Whether a listed checkpoint no longer exists. Certain only below the project's directory, or elsewhere on this host
 * if the parent directory exists; otherwise the row stays. */
static bool is_gone(const char *root_dir, const char *path, bool same_host)
{
    struct stat st;
    char *dir;
    size_t n = strlen(root_dir);
    if (lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR)) return false;
    if (!strncmp(path, root_dir, n) && path[n] == '/') return true;
    if (*path != '/' || !same_host || lc__path_dir(path, &dir) < 0) return false;
    bool there = stat(dir, &st) == 0;
    free(dir);
    return there;
}

/* Marks checkpoints that a run removed before it died, and so could not mark itself. */
static lc_status mark_gone(lc__sqlite *l, const lc_run_info *run)
{
    char host[256] = "";
    sqlite3_stmt *find = NULL, *note = NULL;
    lc_status status;
    int rc = SQLITE_ROW;
    if (gethostname(host, sizeof host - 1) < 0) *host = 0;
    LC_TRY_GOTO(status, done,
                lc__sqlite_prepare(l,
                                   "SELECT DISTINCT c.path, r.host = ?1 FROM checkpoint c JOIN run r ON r.id = c.run"
                                   " WHERE c.removed_ns IS NULL ORDER BY c.path",
                                   &find));
    LC_TRY_GOTO(
        status, done,
        lc__sqlite_prepare(l, "UPDATE checkpoint SET removed_ns = ?2 WHERE path = ?1 AND removed_ns IS NULL", &note));
    sqlite3_bind_text(find, 1, host, -1, SQLITE_STATIC);
    while (status >= 0 && (rc = sqlite3_step(find)) == SQLITE_ROW) {
        const char *path = (const char *)sqlite3_column_text(find, 0);
        if (!path || !is_gone(run->root_dir, path, sqlite3_column_int(find, 1))) continue;
        sqlite3_bind_text(note, 1, path, -1, SQLITE_STATIC);
        sqlite3_bind_int64(note, 2, lc__realtime_ns());
        status = lc__sqlite_step(l, note);
    }
    if (status >= 0 && rc != SQLITE_DONE) status = lc__sqlite_fail(l, "read");
done:
    sqlite3_finalize(find);
    sqlite3_finalize(note);
    return status;
}

/* Those that write rows. `known`: checkpoints up to this id are of earlier runs. */
static lc_status prepare_statements(lc__sqlite *l, int64_t known)
{
    LC_TRY(lc__sqlite_prepare(l,
                              "INSERT INTO metric(run, segment, key, step, epoch, wall_ns, value, kind)"
                              " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                              &l->insert_metric));
    LC_TRY(lc__sqlite_prepare(l, "INSERT OR IGNORE INTO metric_key(name) VALUES(?1)", &l->insert_key));
    LC_TRY(lc__sqlite_prepare(l, "SELECT id FROM metric_key WHERE name = ?1", &l->find_key));
    LC_TRY(lc__sqlite_prepare(
        l, "INSERT INTO checkpoint(run, segment, step, path, score, wall_ns) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
        &l->insert_checkpoint));
    LC_TRY(lc__sqlite_prepare(l,
                              "UPDATE checkpoint SET removed_ns = ?2 WHERE path = ?1 AND removed_ns IS NULL"
                              " AND (wall_ns <= ?3 OR run = ?4 OR id <= ?5)",
                              &l->remove_checkpoint));
    LC_TRY(
        lc__sqlite_prepare(l, "INSERT INTO event(run, wall_ns, level, text) VALUES(?1, ?2, ?3, ?4)", &l->insert_event));
    sqlite3_bind_int64(l->insert_metric, 1, l->run);
    sqlite3_bind_int64(l->insert_metric, 2, l->segment);
    sqlite3_bind_int64(l->insert_checkpoint, 1, l->run);
    sqlite3_bind_int64(l->insert_checkpoint, 2, l->segment);
    sqlite3_bind_int64(l->remove_checkpoint, 4, l->run);
    sqlite3_bind_int64(l->remove_checkpoint, 5, known);
    sqlite3_bind_int64(l->insert_event, 1, l->run);
    return LC_OK;
}

lc_status lc__sqlite_open(lc__sqlite *l, const lc_run_info *run)
{
    int64_t known = 0; /* rows up to this id are of earlier runs */
    bool network = is_network(run->root_dir);
    struct stat st;
    if (stat(l->path, &st) == 0 && !S_ISREG(st.st_mode)) /* SQLite would put a journal next to a device */
        return lc_fail(LC_ERR_IO, "cannot open \"%s\": it is not a file", l->path);
    if (!network) {
        char *path;
        LC_TRY(lc__format(&path, "%s.lock", l->path));
        lc_status status = lc__open_to_write(path, O_RDWR | O_CREAT, &l->lock_fd);
        free(path);
        LC_TRY(status);
    }
    lc_status status = lc__sqlite_lock(l, LOCK_MS);
    if (status != LC_OK) return lc_fail(LC_ERR_IO, "cannot open \"%s\": another run holds its lock", l->path);
    int rc = sqlite3_open_v2(l->path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        status = lc__sqlite_fail(l, "open");
        goto done;
    }
    sqlite3_busy_timeout(l->db, network ? 30000 : 5000);
    /* SQLite's defaults, 4096-byte pages and a checkpoint every 1000 pages, are fine. */
    LC_TRY_GOTO(status, done,
                execute(l, "open", network ? "PRAGMA journal_mode = TRUNCATE" : "PRAGMA journal_mode = WAL"));
    /* FULL: a committed transaction survives a loss of power. Each costs the writer's thread one sync. */
    LC_TRY_GOTO(status, done,
                execute(l, "open", "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON"));
    LC_TRY_GOTO(status, done, execute(l, "write", "BEGIN IMMEDIATE"));
    status = make_schema(l);
    if (status >= 0) status = insert_run(l, run);
    if (status >= 0) status = mark_gone(l, run);
    if (status >= 0) status = get_int(l, "SELECT ifnull(max(id), 0) FROM checkpoint", &known);
    if (status >= 0) status = execute(l, "write", "COMMIT");
    if (status < 0) {
        sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
        goto done;
    }
    status = prepare_statements(l, known);
done:
    lc__sqlite_unlock(l);
    return status;
}

void lc__sqlite_close(lc__sqlite *l)
{
    sqlite3_stmt *const statements[] = {l->insert_metric,     l->insert_key,        l->find_key,
                                        l->insert_checkpoint, l->remove_checkpoint, l->insert_event};
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) sqlite3_finalize(statements[i]);
    l->insert_metric = l->insert_key = l->find_key = l->insert_checkpoint = l->remove_checkpoint = l->insert_event =
        NULL;
    /* Closing moves the rows from the WAL into the database, which is a write. Without the lock they stay in the WAL,
     * where readers see them too, until another run moves them. */
    bool locked = l->db && lc__sqlite_lock(l, 2000) == LC_OK;
    if (l->db && !locked) sqlite3_db_config(l->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_close_v2(l->db);
    l->db = NULL;
    if (locked) lc__sqlite_unlock(l);
    if (l->lock_fd >= 0) close(l->lock_fd);
    l->lock_fd = -1;
}

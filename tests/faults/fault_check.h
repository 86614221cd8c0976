/* SPDX-License-Identifier: Apache-2.0 */
/* The checks after a run of fault_rounds.c: its message, what it left behind, its checkpoints, its numbers. */
#ifndef LC_TESTS_FAULT_CHECK_H
#define LC_TESTS_FAULT_CHECK_H

#include "fault_run.h"
#include "file_text.h"

/* ---- checks ---- */

/* One of "a|b|c". */
static bool contains_one(const char *text, const char *causes)
{
    char part[64];
    for (const char *at = causes; *at; at += *at == '|') {
        size_t n = strcspn(at, "|");
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        if (strstr(text, part)) return true;
        at += n;
    }
    return false;
}

/* The message names rank, host, step and cause. */
static void check_message(trial *r, long long step)
{
    const kind *k = &kinds[r->kind];
    char want[1200];
    int on = breaks("blamed") ? (r->on + 1) % r->ranks : r->on;
    bool init = !strcmp(r->phase, "init"), link = !strcmp(k->fault, "link");
    if (!strcmp(r->phase, "loader") && step == 0) init = true; /* it may be asked for samples before the first step */
    bool left = !strcmp(r->phase, "end") && r->at == 2;
    /* For lightc the run had ended, or not begun; mpirun reports the fault in its own words. */
    if (!strcmp(r->backend, "mpi") && (left || (!strcmp(r->phase, "init") && r->at == 0))) return;
    const char *line = NULL;
    bool steps = false;
    for (const char *at = r->err, *end; at && *at; at = end ? end + 1 : NULL) {
        end = strchr(at, '\n');
        const char *error = strncmp(at, "error: ", 7) == 0 ? at : NULL;
        if (r->restarts && strncmp(at, "rank ", 5) == 0 && strstr(at, "restarting")) error = at;
        if (!error) continue;
        snprintf(want, sizeof want, "%.*s", (int)strcspn(at, "\n"), at);
        char host[64], of[64];
        snprintf(host, sizeof host, "rank %d (host", on);
        snprintf(of, sizeof of, "rank %d of", on);
        bool names = (strstr(want, host) || strstr(want, of)) && contains_one(want, k->cause);
        if (line && (!names || steps)) continue; /* other nodes know only how their own ranks ended */
        line = at;
        steps = names && strstr(want, ", step ");
    }
    if (!line) {
        wrong(r, BLAMED, "there is no message");
        return;
    }
    char text[1200], rank_host[300];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    snprintf(rank_host, sizeof rank_host, "rank %d (host %s)", on, link ? "machine1" : the.host);
    snprintf(want, sizeof want, "rank %d of %d (host %s)", on, r->ranks, the.host);
    if (!strstr(text, rank_host) && !strstr(text, want))
        wrong(r, BLAMED, "the message does not name rank %d and its host: %s", on, text);
    if (link && !strstr(r->err, "the coordinator of the run (host machine0) is gone: no heartbeat"))
        wrong(r, BLAMED, "the other machine has no message");
    if (!contains_one(text, k->cause)) wrong(r, BLAMED, "the message has none of the causes %s: %s", k->cause, text);
    const char *at = strstr(text, ", step ");
    bool coordinates = strstr(text, "which coordinates the run"); /* a rank that was not notified knows no step */
    if (!init && !link && !left && !coordinates && !at) wrong(r, BLAMED, "the message names no step: %s", text);
    if (at && atoll(at + 7) > step + 1) wrong(r, BLAMED, "the message names a step after step %lld: %s", step, text);
    if (at && !strcmp(k->fault, "error") && strcmp(r->phase, "loader") != 0 && atoll(at + 7) + 1 < step)
        wrong(r, BLAMED, "the message names a step before step %lld: %s", step, text);
}

static void check_empty(trial *r, const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) wrong(r, LEAKED, "%s/%s is left", path, e->d_name);
    if (d) closedir(d);
}

/* Open MPI leaves a directory of its own when it is killed; it does not count. Ports end with the processes; by now
 * another program may have the same number. */
static void check_nothing_left(trial *r)
{
    char path[400];
    snprintf(path, sizeof path, "%s/tmp", r->dir);
    if (!strcmp(r->backend, "mpi")) return;
    check_empty(r, path);
    if (the.own_mounts) check_empty(r, "/dev/shm");
}

/* Every checkpoint that has its final name is complete. Returns whether there is one. */
static bool check_checkpoints(trial *r, bool clean)
{
    char dir[400];
    bool some = false;
    snprintf(dir, sizeof dir, "%s", dirpath_of(r));
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.') {
            if (clean && strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) wrong(r, LEAKED, "%s is left", path);
            continue;
        }
        if (lc_checkpoint_verify(path) < 0)
            wrong(r, LOST, "a torn checkpoint: %s", lc_error_message());
        else
            some = true;
    }
    if (d) closedir(d);
    return some;
}

/* Whether `path` is a line of DIR/NAME. */
static bool is_listed(const trial *r, const char *name, const char *path)
{
    char text[16384], line[800];
    file_text(r->dir, name, text, sizeof text);
    snprintf(line, sizeof line, "%s\n", path);
    const char *at = strstr(text, line);
    return at && (at == text || at[-1] == '\n');
}

/* Everything that FOLDER's run reported as saved, and not as removed, exists. *newest: the last of them. */
static void check_saved(trial *r, const char *folder, char newest[700])
{
    char name[100], removed[100], text[16384], path[700];
    snprintf(name, sizeof name, "%ssaved", folder);
    snprintf(removed, sizeof removed, "%sremoved", folder);
    file_text(r->dir, name, text, sizeof text);
    newest[0] = 0;
    for (char *at = text, *end; *at && (end = strchr(at, '\n')); at = end + 1) {
        snprintf(path, sizeof path, "%.*s", (int)(end - at), at);
        if (is_listed(r, removed, path)) continue;
        the.saved++;
        if (lc_checkpoint_verify(path) < 0)
            wrong(r, LOST, "reported as saved, and lost: %s: %s", path, lc_error_message());
        else
            snprintf(newest, 700, "%s", path);
    }
}

/* The checkpoint that a message names as the newest exists. */
static void check_named(trial *r)
{
    static const char says[] = "the newest saved one is ";
    char path[700];
    for (const char *at = r->err; (at = strstr(at, says));) {
        at += strlen(says);
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, ")\n"), at);
        if (lc_checkpoint_verify(path) < 0) wrong(r, LOST, "named as the newest, and lost: %s", path);
    }
}

/* The run was not disturbed. */
static void check_untouched(trial *r)
{
    if (r->status) wrong(r, OTHER, "it was undisturbed, and ended with status %d", r->status);
    if (strstr(r->err, "error: ")) wrong(r, BLAMED, "it was undisturbed, and has an error");
    for (const char *at = r->err; *at; at++)
        if ((unsigned char)*at < 32 && *at != '\n' && *at != '\t') {
            wrong(r, BLAMED, "byte %d of a stranger was printed", *at);
            break;
        }
}

/* Each rank knows the node that it was started on. */
static void check_places(trial *r)
{
    char name[32], text[128], want[128];
    surroundings way = kinds[r->kind].way;
    int each = r->ranks / r->nodes;
    for (int i = 0; i < r->ranks && (way == NODES || way == TWICE_NODE); i++) {
        snprintf(name, sizeof name, "place-%d", i);
        file_text(r->dir, name, text, sizeof text);
        snprintf(want, sizeof want, "size=%d local=%d node=%d nodes=%d\n", r->ranks, i % each, i / each, r->nodes);
        if (strcmp(text, want) != 0) wrong(r, OTHER, "rank %d was at %s, and should be at %s", i, text, want);
    }
}

static void check_result(trial *r)
{
    char text[128];
    file_text(r->dir, "result", text, sizeof text);
    if (breaks("bits") && *text) text[strlen(text) - 2] ^= 1;
    const char *want = the.reference[r->restarts][r->ranks];
    if (strcmp(text, want) != 0)
        wrong(r, BITS, "it ended with %.100s, undisturbed with %s", *text ? text : "nothing", want);
}

#endif

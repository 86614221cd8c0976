/* SPDX-License-Identifier: Apache-2.0 */
/* Fault rounds: a training on several ranks (fault_program.c) is disturbed at a random place. It must end everywhere in
 * time, name the culprit, leave nothing behind, and end with the numbers of an undisturbed run if it continues. Or it
 * is a healthy training that must not be disturbed: by a second start of a node or a rank, by strangers at its ports,
 * by a disk that fills and empties again, or by runs with the same directory for checkpoints.
 *
 *   fault_rounds [--rounds N] [--seed N] [--backends shm,tcp,mpi] [--round N]   (--round: only that one, in full)
 *                [--kind NAME] [--break lost|leaked|blamed|bits|twice|strangers|disk|shared]
 *
 * --kind: only rounds of kinds whose name begins so. --break violates what a check is for, to show that it then fails.
 *
 * Everything about a round follows from the seed and its number. To add a kind of fault: a row in `kinds`, and the
 * fault itself in fault_program. tests/faults/faults.sh runs this with all that it needs. LIGHTC_TEST_SLACK=4 makes all
 * time limits four times as long. */
#include "fault_check.h"

/* ---- one round ---- */

/* A disk for the runs that has room for everything. */
static bool make_disk(const trial *r)
{
    const char *path = dirpath_of(r);
    return mkdir(path, 0777) == 0 && mount("tmpfs", path, "tmpfs", 0, "size=32m") == 0;
}

static bool fill_disk(const trial *r, bool full)
{
    char path[400], size[32];
    snprintf(path, sizeof path, "%s/run", r->dir);
    if (!the.own_mounts) return true;
    if (!full) return mount("tmpfs", path, "tmpfs", MS_REMOUNT, "size=64m") == 0;
    snprintf(size, sizeof size, "size=%lldk", (long long)r->disk);
    return mkdir(path, 0777) == 0 && mount("tmpfs", path, "tmpfs", 0, size) == 0;
}

static void cut_link(const trial *r, bool down)
{
    (void)machines_do(&the.two, (int)(r->at % 2), down ? "ip link set eth0 down" : "ip link set eth0 up");
}

static bool ended(pid_t pid, int *status)
{
    return waitpid(pid, status, WNOHANG) == pid;
}

static int count_training(const trial *r)
{
    int n = 0;
    DIR *d = opendir(r->dir);
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, "trains-", 7) == 0;
    if (d) closedir(d);
    return n;
}

/* A second start of one of its parts, once all are training: it is rejected. */
static void start_second(trial *r, const run *p)
{
    char *argv[64], path[400], text[4096];
    int status = 0, part = (int)(r->on % parts_of(r));
    life l[64];
    for (double until = seconds() + LATE / 2; count_training(r) < r->ranks && seconds() < until;) pause_ms(5);
    pause_ms((int)(r->delay_us / 200));
    snprintf(path, sizeof path, "%s/second", r->dir);
    make_dir(path);
    trial second = *r;
    snprintf(second.dir, sizeof second.dir, "%.*s", (int)sizeof second.dir - 1, path);
    command(&second, part, NULL, true, argv);
    pid_t pid = start_part(r, part, argv, path, true);
    for (int k = 0; argv[k]; k++) free(argv[k]);
    if (breaks("twice") && lives_of(r, 0, l, 64)) kill(l[0].pid, SIGKILL);
    bool gone = false;
    double until = seconds() + patience(3);
    while (!(gone = ended(pid, &status)) && seconds() < until) pause_ms(2);
    bool over = state_of(p->pid[0]) == 'Z'; /* the run ended before the second start could be refused */
    if (!gone) kill(-pid, SIGKILL), waitpid(pid, &status, 0);
    file_text(r->dir, "second/err", text, sizeof text);
    bool refused =
        strstr(text, "refused node ") || strstr(text, "refused rank ") || strstr(text, " cannot coordinate the run: ");
    if (gone && refused && WIFEXITED(status) && WEXITSTATUS(status)) {
        the.refused++;
        return;
    }
    if (over) return;
    if (!gone)
        wrong(r, OTHER, "the second start of part %d was not turned away: %s", part, text);
    else
        wrong(r, OTHER, "the second start of part %d ended with status %d: %s", part, status, text);
}

/* Strangers are there before the start: what they see of it depends on which is faster. */
static void invite_strangers(trial *r)
{
    char mark[400];
    snprintf(mark, sizeof mark, "TMPDIR=%s/tmp", r->dir);
    strangers_start(&r->strangers, mark, breaks("strangers"));
    the.guest = r->strangers.pid;
}

static void dismiss_strangers(trial *r)
{
    life l[64];
    int coordinator = lives_of(r, 0, l, 64) ? l[0].port : 0;
    strangers_end(&r->strangers);
    the.guest = 0;
    for (int i = 0; i < PORTS; i++) {
        int port = r->strangers.came->port[i];
        if (port) the.came[port == coordinator ? 0 : 1] += r->strangers.came->times[i];
        if (port == coordinator && r->strangers.came->times[i]) r->met = true;
    }
    the.came[2] += r->strangers.came->secrets;
    munmap(r->strangers.came, sizeof *r->strangers.came);
}

static void healthy_run(trial *r)
{
    surroundings way = kinds[r->kind].way;
    double others, all, begun = seconds();
    run p;
    start(r, &p, NULL, true);
    if (way == STRANGERS) invite_strangers(r);
    if (way == TWICE_NODE || way == TWICE_RANK) start_second(r, &p);
    await_end(r, &p, begun, &others, &all);
    if (way == STRANGERS) dismiss_strangers(r);
    file_text(r->dir, "err", r->err, sizeof r->err);
    if (way != FILLS) {
        check_untouched(r);
        return;
    }
    int64_t steps = EPOCHS * steps_of(r->ranks), room = r->at + r->call; /* from step `room` on */
    bool missed = strstr(r->err, "its last checkpoint was not saved");
    if (room < steps ? r->status || missed : !r->status || !missed)
        wrong(r, OTHER, "status %d, its disk had room again at step %lld of %lld", r->status, (long long)room,
              (long long)steps);
    if (room <= steps && r->call > 3 && !strstr(r->err, "training continues and saves again"))
        wrong(r, BLAMED, "no save is said to have failed");
    if (strstr(r->err, "not saved") && !strstr(r->err, "No space left"))
        wrong(r, BLAMED, "the disk is not said to be full");
    char steps_text[32], newest[700];
    snprintf(steps_text, sizeof steps_text, "step=%lld.", (long long)steps);
    check_saved(r, "", newest);
    if (room < steps && !strstr(newest, steps_text)) wrong(r, LOST, "its newest checkpoint is %s", newest);
}

static void disturbed_run(trial *r)
{
    const kind *k = &kinds[r->kind];
    bool link = !strcmp(k->fault, "link"), full = !strcmp(k->fault, "full");
    double begun = seconds(), when = 0, others, all;
    long long step = 0;
    run p;
    start(r, &p, NULL, true);
    if (k->way == STRANGERS) invite_strangers(r);
    if (link) {
        char path[400];
        snprintf(path, sizeof path, "%s/run/checkpoints", r->dir); /* until it trains, and some time more */
        while (access(path, F_OK) != 0 && seconds() - begun < LATE / 2) pause_ms(5);
        pause_ms((int)(r->delay_us / 1000) * 5);
        when = seconds();
        cut_link(r, true);
    }
    await_end(r, &p, begun, &others, &all);
    if (k->way == STRANGERS) dismiss_strangers(r);
    if (k->way == SHARED) all = others;
    file_text(r->dir, "err", r->err, sizeof r->err);
    if (link) cut_link(r, false);
    bool happened = struck(r, &when, &step);
    if (full) happened = true, when = all, step = INT_MAX; /* the moment is not known */
    if (link) happened = true, step = INT_MAX;
    if (!happened && *r->phase) {
        /* The disturbance did not happen, for example in a system call that no checkpoint needed. */
        if (r->status != 0) wrong(r, OTHER, "it failed with status %d before anything was disturbed", r->status);
        return;
    }
    check_message(r, step);
    if (r->restarts) {
        life l[64];
        int n = lives_of(r, 0, l, 64);
        double again = 0;
        for (int i = 0; i < n; i++)
            if (l[i].begun > when && (!again || l[i].begun < again)) again = l[i].begun;
        if (!again) wrong(r, OTHER, "it was not started again");
        others = all = again;
        if (r->status != 0) wrong(r, OTHER, "it ended with status %d though it was started again", r->status);
    } else if (r->status == 0 || (link && (!p.status[0] || !p.status[1]))) {
        wrong(r, OTHER, "its status is 0");
    }
    r->others = others - when;
    r->all = all - when;
    double limit = k->silent ? SILENCE + patience(1) : patience(DEATH), grace = GRACE + patience(0.5);
    if (!full && r->others > limit + (r->restarts ? grace : 0))
        wrong(r, OTHER, "the others were gone after %.2f s, promised are %.2f", r->others, limit);
    if (!full && r->all > limit + grace + patience(1)) wrong(r, OTHER, "it was gone after %.2f s", r->all);
}

/* Runs that saved into the same directory: they were not disturbed. */
static void check_other_runs(trial *r)
{
    char text[128], name[64], newest[700];
    for (int i = 1; i <= 2; i++) {
        snprintf(name, sizeof name, "other-%d/", i);
        check_saved(r, name, newest);
        if (r->others_status[i - 1])
            wrong(r, OTHER, "run %d in the same directory ended with status %d", i, r->others_status[i - 1]);
        if (!*newest) wrong(r, LOST, "run %d in the same directory has no checkpoint", i);
        strcat(name, "result");
        file_text(r->dir, name, text, sizeof text);
        if (strcmp(text, the.reference[0][r->ranks]) != 0)
            wrong(r, BITS, "run %d in the same directory ended with %s", i, text);
    }
}

/* Violates what the checks look for. */
static void break_it(trial *r)
{
    char path[700], newest[700];
    the.saved -= 1000000; /* the last checkpoint is not counted */
    check_saved(r, breaks("shared") ? "other-1/" : "", newest);
    the.saved += 1000000;
    if ((breaks("lost") || breaks("shared")) && *newest) {
        snprintf(path, sizeof path, "%s/gone", r->dir);
        (void)rename(newest, path);
    }
    if (!breaks("leaked")) return;
    snprintf(path, sizeof path, "%s/tmp/left", r->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) close(fd);
}

/* Continues from where the first has stopped. */
static void second_run(trial *r, const char *from)
{
    char path[700];
    double others, all;
    run p;
    snprintf(path, sizeof path, "%s/result", r->dir);
    unlink(path);
    r->status = 0;
    table[r->kind].hung += r->hung;
    r->hung = false;
    start(r, &p, from, false);
    await_end(r, &p, seconds(), &others, &all);
    if (r->status && !r->hung) {
        file_text(r->dir, "err", r->err, sizeof r->err);
        wrong(r, OTHER, "the second run ended with status %d", r->status);
    }
    check_nothing_left(r);
    (void)check_checkpoints(r, true);
}

static void one_round(trial *r)
{
    char path[700], newest[700];
    snprintf(r->dir, sizeof r->dir, "%s", fresh_dir("round"));
    surroundings way = kinds[r->kind].way;
    bool full = !strcmp(kinds[r->kind].fault, "full"), healthy = is_healthy(r);
    if ((full && !fill_disk(r, true)) || (way == FILLS && !make_disk(r)))
        wrong(r, OTHER, "a small file system cannot be made: %s", strerror(errno));
    if (healthy)
        healthy_run(r);
    else
        disturbed_run(r);
    if (way == STRANGERS && !r->met) wrong(r, OTHER, "no stranger has found its coordinator");
    break_it(r);
    check_nothing_left(r);
    bool some = check_checkpoints(r, false);
    check_saved(r, "", newest);
    check_named(r);
    if (way == SHARED) check_other_runs(r);
    if (full) (void)fill_disk(r, false);
    if (way == FILLS) {
        snprintf(path, sizeof path, "%s/.ballast", dirpath_of(r));
        unlink(path);
    }
    bool goes_on = healthy ? way == FILLS && r->status : !r->restarts;
    if (goes_on) second_run(r, way == SHARED ? (*newest ? newest : NULL) : some ? "last" : NULL);
    check_result(r);
    if (!*r->wrong) check_places(r);
    if (goes_on) check_saved(r, "", newest);
    if (!strcmp(r->backend, "mpi") && the.own_mounts) (void)!system("rm -f /dev/shm/*"); /* files of Open MPI */
    if ((full || way == FILLS) && the.own_mounts) {
        snprintf(path, sizeof path, "%s/run", r->dir);
        (void)umount(full ? path : dirpath_of(r));
    }
}

/* ---- the table ---- */

static void note(numbers *l, double v)
{
    l->v = realloc(l->v, (size_t)(l->n + 1) * sizeof *l->v);
    if (!l->v) abort();
    int i = l->n++;
    for (; i > 0 && l->v[i - 1] > v; i--) l->v[i] = l->v[i - 1];
    l->v[i] = v;
}

static double quantile(const numbers *l, double q)
{
    int i = (int)ceil(q * l->n) - 1;
    return l->n ? l->v[i < 0 ? 0 : i] : NAN;
}

static const char *why_skipped(const trial *r)
{
    if (!strcmp(kinds[r->kind].fault, "link")) return the.no_machines;
    if (kinds[r->kind].way == FILLS && !the.own_mounts) return "no mounts of its own";
    return NULL;
}

static bool perform(int number)
{
    trial r;
    char text[400];
    plan(&r, number);
    describe(&r, text, sizeof text);
    table[r.kind].rounds++;
    const char *why = why_skipped(&r);
    if (why) {
        table[r.kind].skipped++;
        table[r.kind].why = why;
        return true;
    }
    one_round(&r);
    if (r.all > 0) note(&table[r.kind].others, r.others), note(&table[r.kind].all, r.all);
    table[r.kind].hung += r.hung;
    if (!*r.wrong) return true;
    table[r.kind].failed++;
    printf("FAIL seed %llu, %s\n%s", (unsigned long long)the.seed, text, r.wrong);
    printf("    it printed:\n%s\n", r.err);
    return false;
}

static void print_table(void)
{
    printf("\n%-18s %7s %7s %8s   %-17s %-17s\n", "", "", "", "", "others gone, s", "all gone, s");
    printf("%-18s %7s %7s %8s   %8s %8s %8s %8s\n", "fault", "rounds", "failed", "skipped", "median", "p99", "median",
           "p99");
    for (int i = 0; i < KINDS; i++) {
        if (!table[i].rounds) continue;
        printf("%-18s %7d %7d %8d   ", kinds[i].name, table[i].rounds, table[i].failed, table[i].skipped);
        if (table[i].all.n && strcmp(kinds[i].fault, "full") != 0)
            printf("%8.2f %8.2f %8.2f %8.2f", quantile(&table[i].others, 0.5), quantile(&table[i].others, 0.99),
                   quantile(&table[i].all, 0.5), quantile(&table[i].all, 0.99));
        if (table[i].skipped) printf("  %s", table[i].why);
        if (table[i].hung) printf("  mpirun hung %d times after its ranks had ended", table[i].hung);
        printf("\n");
    }
}

/* ---- all rounds ---- */

static void find_backends(const char *list)
{
    bool mpi = system("command -v mpirun >/dev/null && mpirun --version | grep -q 'Open MPI'") == 0 &&
               access(the.plugin, R_OK) == 0;
    for (const char *at = list; *at && the.n_backends < 3; at += *at == ',') {
        size_t n = strcspn(at, ",");
        char *name = the.backends[the.n_backends];
        snprintf(name, sizeof *the.backends, "%.*s", (int)n, at);
        at += n;
        if (strcmp(name, "shm") && strcmp(name, "tcp") && strcmp(name, "mpi")) {
            fprintf(stderr, "unknown backend \"%s\"; available: shm, tcp, mpi\n", name);
            exit(2);
        }
        if (strcmp(name, "mpi") || mpi)
            the.n_backends++;
        else
            printf("SKIP mpi: Open MPI is not installed, or lightc was built without it\n");
    }
    if (!the.n_backends) exit(77);
}

static bool undisturbed(int ranks, bool restarts)
{
    trial r = {.ranks = ranks, .nodes = 1, .backend = "tcp", .phase = "", .strategy = "ddp", .restarts = restarts};
    char *reference = the.reference[restarts][ranks];
    run p;
    double others, all;
    snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("reference"));
    start(&r, &p, NULL, false);
    await_end(&r, &p, seconds(), &others, &all);
    file_text(r.dir, "result", reference, sizeof **the.reference);
    file_text(r.dir, "err", r.err, sizeof r.err);
    if (r.status == 0 && *reference && !*r.wrong) return true;
    printf("FAIL: %d undisturbed ranks end with status %d\n%s%s\n", ranks, r.status, r.wrong, r.err);
    return false;
}

int main(int argc, char **argv)
{
    int rounds = 12, only = -1, failed = 0;
    const char *bin = getenv("LIGHTC_TEST_BIN"), *backends = "shm,tcp,mpi", *kind_asked = "";
    char dir[PATH_MAX];
    the.seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--round")) only = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--seed")) the.seed = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--backends")) backends = argv[i + 1];
        if (!strcmp(argv[i], "--kind")) kind_asked = argv[i + 1];
        if (!strcmp(argv[i], "--break")) the.breaks = argv[i + 1];
    }
    if (argc % 2 == 0 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: %s [--rounds N] [--seed N] [--backends shm,tcp,mpi] [--round N]\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!realpath(bin ? bin : "build/bin", dir)) return 2;
    snprintf(the.program, sizeof the.program, "%s/fault_program", dir);
    snprintf(the.plugin, sizeof the.plugin, "%s/../lib/liblightc_mpi.so", dir);
    gethostname(the.host, sizeof the.host - 1);
    static const char *const variables[][2] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                               {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                               {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                               {"OMPI_MCA_pml", "ob1"},
                                               {"OMPI_MCA_btl", "vader,self"},
                                               {"OMP_WAIT_POLICY", "passive"}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) setenv(variables[i][0], variables[i][1], 1);
    find_backends(backends);
    lc__coordinator *c;
    if (lc__coordinator_start(NULL, &the.port, 1, "a port that is free", NULL, &c) < 0) return 2;
    lc__coordinator_stop(c);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    the.own_mounts = machines_own_mounts();
    if (!the.own_mounts)
        printf("no mounts of its own: /dev/shm is not checked, and a size limit simulates a full disk\n");
    the.no_machines = machines_make(&the.two);
    for (int n = 2; n <= MAX_RANKS && !failed; n++) failed += !undisturbed(n, false) || !undisturbed(n, true);
    bool failed_before = failed;
    for (int i = 0; i < rounds && !failed_before; i++)
        if ((only < 0 || i == only) && !strncmp(kinds[i % KINDS].name, kind_asked, strlen(kind_asked)))
            failed += !perform(i);
    if (only < 0) print_table();
    machines_end(&the.two);
    int skipped = 0;
    for (int i = 0; i < KINDS; i++) {
        skipped += table[i].skipped;
        free(table[i].others.v);
        free(table[i].all.v);
    }
    int ran = 0, of_way[SHARED + 1] = {0};
    for (int i = 0; i < KINDS; i++)
        ran += table[i].rounds - table[i].skipped, of_way[kinds[i].way] += table[i].rounds - table[i].skipped;
    printf(
        "%d rounds: %d on one node, %d on several, %d started twice (%d turned away), %d with strangers (%d came to "
        "coordinators, %d to ports for data, %d had another secret), %d on disks that fill and empty, %d in a shared "
        "directory\n",
        ran, of_way[ALONE], of_way[NODES], of_way[TWICE_NODE] + of_way[TWICE_RANK], the.refused, of_way[STRANGERS],
        the.came[0], the.came[1], the.came[2], of_way[FILLS], of_way[SHARED]);
    printf("%d checkpoints looked at, %d lost, %d leaked, %d blamed wrongly, %d with other bits, %d wrong otherwise\n",
           the.saved, failures[LOST], failures[LEAKED], failures[BLAMED], failures[BITS], failures[OTHER]);
    printf("%d failed, %d skipped\n", failed, skipped);
    return failed ? 1 : 0;
}

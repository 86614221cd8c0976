/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank this process is, from the environment. To add a launcher: a row in `launchers`, if it has variables for
 * rank and size; the variable with its job number: a name in `jobs`. */
#include "comm/world/world.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value, or NULL if it is not set or empty. */
static const char *variable(const char *name)
{
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

/* Leaves *out unchanged if there is no such variable. */
static lc_status number(const char *name, long least, long most, int *out)
{
    const char *value = variable(name);
    char *end;
    if (!value) return LC_OK;
    long n = strtol(value, &end, 10);
    if (*end || end == value || n < least || n > most)
        return lc_fail(LC_ERR_CONFIG, "%s is \"%.40s\"; it must be a whole number from %ld to %ld", name, value, least,
                       most);
    *out = (int)n;
    return LC_OK;
}

/* ---- launchers ---- */

typedef struct launcher {
    const char *name;
    bool (*is)(void);
    const char *rank, *size[2]; /* the first that is set */
    const char *local_rank, *local_size, *node_rank, *num_nodes[2];
} launcher;

static bool by_lightc(void)
{
    return variable("LIGHTC_RANK");
}

static bool by_torchrun(void)
{
    return variable("TORCHELASTIC_RUN_ID") && variable("RANK");
}

static bool by_open_mpi(void)
{
    return variable("OMPI_COMM_WORLD_RANK");
}

/* srun sets PMI's variables too. */
static bool by_pmi(void)
{
    const char *rank = variable("PMI_RANK"), *slurm = variable("SLURM_PROCID");
    return rank && !(slurm && !strcmp(rank, slurm));
}

/* A program typed into a shell that is a task of a step (srun --pty bash) has the variables of that task, but is not
 * the task. */
static bool in_shell_of_slurm(void)
{
    const char *task = variable("SLURM_TASK_PID");
    return isatty(0) && task && atol(task) != (long)getpid();
}

/* A batch script, which has a SLURM_PROCID and the job's number of tasks, is one process: only srun makes a step. */
static bool by_slurm(void)
{
    bool step = variable("SLURM_STEP_ID") || variable("SLURM_STEPID") || variable("SLURM_STEP_NUM_TASKS");
    return variable("SLURM_PROCID") && step && !in_shell_of_slurm();
}

static bool by_hand(void)
{
    return variable("RANK") && variable("WORLD_SIZE");
}

static const launcher launchers[] = {
    {"lightc",
     by_lightc,
     "LIGHTC_RANK",
     {"LIGHTC_WORLD_SIZE"},
     "LIGHTC_LOCAL_RANK",
     "LIGHTC_LOCAL_SIZE",
     "LIGHTC_NODE_RANK",
     {"LIGHTC_NUM_NODES"}},
    {"torchrun",
     by_torchrun,
     "RANK",
     {"WORLD_SIZE"},
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     "GROUP_RANK",
     {"GROUP_WORLD_SIZE"}},
    {"mpirun",
     by_open_mpi,
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {NULL}},
    {"mpirun", by_pmi, "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, {NULL}},
    {"slurm",
     by_slurm,
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     NULL,
     "SLURM_NODEID",
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}},
    {"environment", by_hand, "RANK", {"WORLD_SIZE"}, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", {"NUM_NODES"}},
};

static const char *set_one(const char *const names[2])
{
    return variable(names[0]) || !names[1] ? names[0] : names[1];
}

static lc_status below(const char *name, int value, const char *limit_name, int limit)
{
    if (limit < 1 || value < limit) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "%s is %d, and %s is %d; they count from 0", name, value, limit_name, limit);
}

static lc_status find_ranks(const launcher *l, lc__world *w)
{
    const char *size = set_one(l->size), *nodes = set_one(l->num_nodes);
    w->launcher = l->name;
    w->size = w->local_size = w->num_nodes = 0;
    w->local_rank = w->node_rank = -1;
    if (!variable(size))
        return lc_fail(LC_ERR_CONFIG, "%s is set but %s is not: the number of ranks is unknown", l->rank, size);
    LC_TRY(number(l->rank, 0, INT_MAX - 1, &w->rank));
    LC_TRY(number(size, 1, INT_MAX, &w->size));
    LC_TRY(number(l->local_rank, 0, INT_MAX - 1, &w->local_rank));
    LC_TRY(number(l->local_size, 1, INT_MAX, &w->local_size));
    LC_TRY(number(l->node_rank, 0, INT_MAX - 1, &w->node_rank));
    LC_TRY(number(nodes, 1, INT_MAX, &w->num_nodes));
    LC_TRY(below(l->rank, w->rank, size, w->size));
    if (w->local_size) LC_TRY(below(l->local_rank, w->local_rank, l->local_size, w->local_size));
    if (w->num_nodes) LC_TRY(below(l->node_rank, w->node_rank, nodes, w->num_nodes));
    if (w->local_size > w->size)
        return lc_fail(LC_ERR_CONFIG, "%s is %d, which is more than %s, %d", l->local_size, w->local_size, size,
                       w->size);
    /* What follows from the other variables. */
    if (w->local_size == w->size || w->size == 1) w->num_nodes = 1;
    if (w->num_nodes == 1) {
        w->node_rank = 0;
        w->local_rank = w->rank;
        w->local_size = w->size;
    }
    return LC_OK;
}

/* ---- the job ---- */

/* A text that is the same in all ranks of a job, and in no other job; "": there is none. */
static void job_text(char *text, size_t size)
{
    static const char *const jobs[][2] = {{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
                                          {"OMPI_MCA_ess_base_jobid", NULL},
                                          {"PMIX_NAMESPACE", NULL},
                                          {"PMI_JOBID", NULL},
                                          {"SLURM_JOB_ID", "SLURM_STEP_ID"}};
    *text = 0;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        const char *job = variable(jobs[i][0]), *part = variable(jobs[i][1]);
        if (!job) continue;
        snprintf(text, size, "%.200s %.40s", job, part ? part : "");
        return;
    }
}

static uint64_t hash(const char *text, uint64_t h)
{
    for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3); /* FNV-1a */
    return h;
}

int lc__world_batches(int size)
{
    const char *began = variable("LIGHTC_BATCHES");
    lc__world here;
    bool all = began && atoi(began) > size && lc__world_find(&here) >= 0 && here.size == size;
    return all ? atoi(began) : size;
}

bool lc__first_host(const char *list, char *out, size_t size)
{
    size_t n = 0;
    for (; *list && *list != ',' && n + 1 < size; list++) {
        if (*list != '[') {
            out[n++] = *list;
            continue;
        }
        /* of "[01-04,7]": 01 */
        for (list++; *list && !strchr("-,]", *list) && n + 1 < size; list++) out[n++] = *list;
        while (*list && *list != ']') list++;
        if (!*list) break;
    }
    out[n] = 0;
    return n > 0;
}

static lc_status find_address(lc__world *w)
{
    const char *address = variable("MASTER_ADDR"), *nodes = variable("SLURM_STEP_NODELIST");
    if (!nodes) nodes = variable("SLURM_JOB_NODELIST");
    if (!nodes) nodes = variable("SLURM_NODELIST");
    if (address && strlen(address) >= sizeof w->address)
        return lc_fail(LC_ERR_CONFIG, "MASTER_ADDR has %zu characters, which is not a valid address", strlen(address));
    if (address)
        snprintf(w->address, sizeof w->address, "%s", address);
    else if (w->num_nodes == 1)
        snprintf(w->address, sizeof w->address, "127.0.0.1");
    else if (!nodes || !lc__first_host(nodes, w->address, sizeof w->address))
        return lc_fail(
            LC_ERR_CONFIG,
            "rank %d of %d (started by %s): the address where the ranks meet is unknown. Set MASTER_ADDR to an address "
            "of rank 0's host and MASTER_PORT to a port that is free there (mpirun -x MASTER_ADDR=... -x "
            "MASTER_PORT=...), or start them with `lightc launch`",
            w->rank, w->size, w->launcher);
    return LC_OK;
}

static lc_status find_port(lc__world *w, const char *job)
{
    const char *store = variable("TORCHELASTIC_USE_AGENT_STORE");
    LC_TRY(number("MASTER_PORT", 1, 65535, &w->port));
    if (w->port) {
        /* torchrun itself listens on the port it names. */
        if (!strcmp(w->launcher, "torchrun") && store && !strcmp(store, "True"))
            w->port = w->port < 65535 ? w->port + 1 : 65534;
        return LC_OK;
    }
    if (!*job)
        return lc_fail(
            LC_ERR_CONFIG,
            "rank %d of %d (started by %s): set MASTER_PORT to a port that is free on rank 0's host, the same "
            "for all ranks",
            w->rank, w->size, w->launcher);
    w->port = 15000 + (int)(hash(job, UINT64_C(0xcbf29ce484222325)) % 15000); /* below the ephemeral ports */
    return LC_OK;
}

static lc_status find_secret(lc__world *w, const char *job)
{
    const char *given = variable("LIGHTC_SECRET"), *drawn = variable("OMPI_MCA_orte_precondition_transports");
    char text[600];
    if (given) LC_TRY(lc__control_check_secret(given));
    if (!given && drawn && strlen(drawn) >= 16 && strlen(drawn) < sizeof w->secret) given = drawn;
    if (given) {
        snprintf(w->secret, sizeof w->secret, "%s", given);
        return LC_OK;
    }
    w->guessable = true;
    snprintf(text, sizeof text, "%s %s %d", job, w->address, w->port);
    snprintf(w->secret, sizeof w->secret, "%016llx%016llx",
             (unsigned long long)hash(text, UINT64_C(0xcbf29ce484222325)),
             (unsigned long long)hash(text, UINT64_C(0x84222325cbf29ce4)));
    return LC_OK;
}

/* If only half of the variables are set by hand, the process would train alone while its user expects several ranks. */
static lc_status check_not_half(void)
{
    int rank = -1, size = 1;
    LC_TRY(number("RANK", 0, INT_MAX - 1, &rank));
    LC_TRY(number("WORLD_SIZE", 1, INT_MAX, &size));
    if (size > 1)
        return lc_fail(LC_ERR_CONFIG, "WORLD_SIZE is %d but RANK is not set, so the number of this process is unknown",
                       size);
    if (rank >= 0 && !variable("WORLD_SIZE"))
        return lc_fail(LC_ERR_CONFIG,
                       "RANK is %d but WORLD_SIZE is not set, so the number of ranks is unknown; set "
                       "WORLD_SIZE to the number of ranks, or unset RANK",
                       rank);
    return LC_OK;
}

lc_status lc__world_find(lc__world *w)
{
    const launcher *found = NULL;
    char job[256];
    *w = (lc__world){.size = 1, .local_size = 1, .num_nodes = 1, .launcher = "none"};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !found; i++)
        if (launchers[i].is()) found = &launchers[i];
    if (!found) return check_not_half();
    LC_TRY(find_ranks(found, w));
    bool supervised = variable("LIGHTC_COORDINATED"), hosted = !strcmp(w->launcher, "lightc") || supervised;
    bool reaches = variable("MASTER_ADDR") && variable("MASTER_PORT") && variable("LIGHTC_SECRET");
    if (w->size == 1 && !(hosted && reaches)) return LC_OK;
    w->supervisor_reports = supervised;
    w->hosted = hosted;
    if (hosted && !reaches)
        return lc_fail(LC_ERR_CONFIG,
                       "%s is set, but not all of MASTER_ADDR, MASTER_PORT and LIGHTC_SECRET: lightc's launcher sets "
                       "all of them; to start ranks by hand, set RANK and WORLD_SIZE instead",
                       variable("LIGHTC_RANK") ? "LIGHTC_RANK" : "LIGHTC_COORDINATED");
    if (w->hosted && variable("LIGHTC_RUN")) w->identity = strtoull(variable("LIGHTC_RUN"), NULL, 16);
    job_text(job, sizeof job);
    LC_TRY(find_address(w));
    LC_TRY(find_port(w, job));
    return find_secret(w, job);
}

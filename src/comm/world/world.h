/* SPDX-License-Identifier: Apache-2.0 */
/* The rank of this process among the processes of the run, and the communicator over all of them.
 *
 * Where a rank comes from, in this order: LIGHTC_RANK and its relatives (set by lightc's own launcher), torchrun's
 * (RANK, WORLD_SIZE, ... with TORCHELASTIC_RUN_ID), Open MPI's (OMPI_COMM_WORLD_RANK, ...), PMI's (PMI_RANK, ...),
 * Slurm's (SLURM_PROCID, ...), RANK and WORLD_SIZE set by hand; none of them: one process. torchrun's are before those
 * of the batch systems in which it is started once per host.
 *
 * Where ranks meet: MASTER_ADDR and MASTER_PORT; else loopback if all are on one host, or the first host of the Slurm
 * job, and a port that follows from the job's number. Rank 0 hosts the coordinator there, unless lightc's launcher
 * does: if it started the ranks, or LIGHTC_COORDINATED is set (it has started mpirun).
 *
 * Their secret: LIGHTC_SECRET; else what Open MPI drew for the job; else it follows from the job's number, address and
 * port, which keeps runs apart, but does not keep out an attacker. */
#ifndef LC_COMM_WORLD_WORLD_H
#define LC_COMM_WORLD_WORLD_H

#include "comm/comm_internal.h"
#include "comm/control/control.h"

typedef struct lc__world {
    int rank, size;
    int local_rank, local_size; /* on this node; -1, 0: not known before all have met */
    int node_rank, num_nodes;   /* -1, 0: likewise */
    const char *launcher;       /* "none", "lightc", "mpirun", "slurm", "torchrun", "environment"; static */
    bool hosted; /* lightc has launched it and hosts the coordinator, not rank 0; a rank that ignores the end of the run
                    may be ended */
    bool supervisor_reports; /* lightc's supervisor is on this machine, and prints why the run has failed */
    char address[256];       /* of the coordinator */
    int port;
    char secret[65];
    uint64_t identity; /* of its launcher (LIGHTC_RUN), if lightc has launched it; 0: its own */
    bool guessable;    /* others can guess the secret */
    int threads;       /* how many its share of the cores can run; 0: its cores need not be divided, or already were */
    char local_address[64];       /* of this host, for the other ranks */
    lc_comm *comm;                /* over all ranks; "self" if size is 1 */
    lc__control *control;         /* NULL if size is 1 */
    lc__coordinator *coordinator; /* in rank 0, if no launcher hosts it */
    bool given;                   /* it is for a communicator of the program's (lc__world_given) */
    struct lc__world *next;       /* the next of those */
} lc__world;

/* Uses only the environment; connects nothing. */
lc_status lc__world_find(lc__world *out) LC_MUST_USE;

/* How many ranks' batches make a global batch of `size` ranks: `size`; if the run began with more ranks
 * (LIGHTC_BATCHES), still as many as then, so that its steps stay the same. */
int lc__world_batches(int size);

/* The first host of a list as Slurm writes it: "node01" of "node[01-04,7],gpu". False: there is none. */
bool lc__first_host(const char *list, char *out, size_t size);

typedef struct lc__world_args {
    /* "shm", "tcp", "mpi", "shm+tcp", "shm+mpi", or "auto": shm if all ranks are on one host; else shm between ranks of
     * a host, and between hosts tcp, or mpi if mpirun started them and the network has RDMA. NULL: LIGHTC_COMM, else
     * auto. */
    const char *backend;
    const char *security;    /* of connections (comm_internal.h); NULL: LIGHTC_COMM_SECURITY, else none */
    lc__control_times times; /* 0: the default */
    void (*say)(void *ctx, const char *text); /* see lc__control_args; may be NULL */
    void *ctx;
} lc__world_args;

/* The world of this process, connected: made by the first call, released by the last lc__world_leave, after which all
 * ranks may join again. Collective. The options (NULL: defaults) of the first call count; another backend in a later
 * one is an error. */
lc_status lc__world_join(const lc__world_args *options, lc__world **out) LC_MUST_USE;
void lc__world_leave(lc__world *w); /* NULL is fine */
/* For lc_comm_world, which takes no options: the times (0: the default), and the numbers of ranks on a node (0: any)
 * and of nodes that were asked for. */
void lc__world_set_options(const lc__control_times *times, int devices, int64_t num_nodes);
/* An error if the ranks are not those that were asked for. */
lc_status lc__world_check_number(const lc__world *w, int devices, int64_t num_nodes) LC_MUST_USE;
/* Reports this thread's error to the other ranks, leaves, and returns it. */
lc_status lc__world_refuse(lc__world *w, lc_status status) LC_MUST_USE;

/* For a communicator of the program's own, whose ranks are then watched as those of a world are, but never ended.
 * Collective over it. *out is NULL if there is nothing to watch: one rank, no MPI, ranks that are watched already. Call
 * lc__world_leave before lc_comm_free. */
lc_status lc__world_given(lc_comm *comm, const lc__world_args *options, lc__world **out) LC_MUST_USE;

/* Shared by world.c, connect.c and given.c. */
lc_status lc__world_security(const lc__world_args *o, lc__security *out) LC_MUST_USE;
#define LC__FOREVER 1e9
void lc__world_add_given(lc__world *w);
void lc__world_close_given(lc__world *w);
void lc__world_show_end(void *ctx, const char *message, const char *calls); /* for lc__coordinator_on_end */

/* The threads of this rank, if ranks divided the cores among themselves when they met; 0: they did not need to. */
int lc__world_threads(void);

/* Reports that this process ends with `status` and this thread's message: if it is a rank, connected or not yet, that
 * ends the run. Afterwards the message is the one that all ranks get (lc_error_is_reported), if it is this rank's. */
void lc__world_last_words(lc_status status);

/* Reports that the training of all ranks has ended, though with an error: if this process exits by itself, that is not
 * a reason to restart, until another training begins (`yes` is false). */
void lc__world_trained(bool yes);

/* Reports that this process ends because all ranks have stopped together, as `signal` asked for: it is not missed. */
void lc__world_stopped(int signal);

/* After LC_ERR_PEER: a communicator knows that a rank is gone, the coordinator knows why. Waits up to a second for the
 * coordinator's message, and makes it this thread's. Returns `status`. */
lc_status lc__world_explain(const lc__world *w, lc_status status);
/* The same if this rank cannot continue: if the coordinator has no reason by then, it gets this thread's message, which
 * ends the run. */
lc_status lc__world_pass_on(const lc__world *w, lc_status status);

#endif

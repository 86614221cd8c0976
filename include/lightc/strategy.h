/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies: how a run is spread over devices and processes. "single_device": one process; "ddp": one process a
 * device, each with the whole model, gradients averaged; "sharded": the same with slices of the model each;
 * "data_parallel": one process for several devices, each with its part of every batch; "central_storage": the same,
 * with the parameters on the host.
 *
 * A strategy gives the trainer a communicator over its ranks, and acts at a few points of a step; the trainer does
 * everything else (logging, checkpoints, reduction of metrics) with the communicator, in the same way for all
 * strategies.
 *
 * To add one: a file in src/strategies/ with an lc_strategy_ops, and a line in src/builtin.c. */
#ifndef LIGHTC_STRATEGY_H
#define LIGHTC_STRATEGY_H

#include <lightc/comm.h>
#include <lightc/hooks.h>

/* The settings of a strategy, from the options of a run. */
typedef struct lc_strategy_request {
    const char *devices; /* NULL, "auto" or a number */
    int64_t num_nodes;
    lc_comm *comm; /* the program's own communicator, whose ranks the strategy must use; NULL: it finds its own */
    double start_timeout, silence_timeout, progress_timeout, grace_period; /* seconds; 0: the default;
                                                                            * progress_timeout < 0: never */
    /* Prints messages for the user while the strategy waits for ranks; NULL: print nothing. */
    void (*say)(void *ctx, const char *text);
    void *ctx;
    double bucket_cap_mb;             /* MiB of gradients that are reduced with one call; 0: 0.5 */
    const char *gradient_compression; /* the type in which gradients are sent: NULL or "none", "bf16", "fp16" */
    int64_t shard_size;               /* ranks that share a copy of the state; 0: those of a node */
    /* For runs that lose ranks. own_data: each rank has its own data, so that the training would change without it;
     * deterministic: only a power of two of ranks can share a batch. */
    bool own_data, deterministic;
    const char *comm_security; /* of connections between ranks: NULL, "none", "auth", "encrypt" */
} lc_strategy_request;

/* A byte that the ranks exchange with every sync of gradients; returns the largest of all ranks. */
#define LC_SYNC_FLAGS 8

typedef struct lc_strategy_ops {
    size_t size; /* LC_STRATEGY_OPS_INIT(name) */
    const char *name;
    /* ---- REQUIRED, in call order ---- */
    /* Called before the module is set up; processes and devices exist afterwards. The error for an impossible request
     * says what is possible. Collective. */
    lc_status (*setup_environment)(void **self, const lc_strategy_request *request);
    /* The ranks that see different data; NULL: there is one. Borrowed. */
    lc_comm *(*comm)(void *self);
    /* ---- OPTIONAL ---- */
    /* The module and its optimizers exist, and `graph` will run them: makes parameters equal on all ranks, after a
     * check that their names and types match. Collective. */
    lc_status (*setup)(void *self, lc_graph *graph, lc_module *m, lc_optimizer *const *optimizers, int n);
    /* Called before a backward pass is recorded, whose loss is a mean over samples: `weight` is n * N / m, if this rank
     * has n of the m samples of N ranks. */
    void (*before_backward)(void *self, double weight);
    /* Called after the backward pass that ends an accumulation window (see also syncs_every_backward), or in its place
     * on a rank that has no loss: afterwards gradients are those of all ranks. flags: in, this rank's; out, the largest
     * of each. Collective. */
    lc_status (*after_backward)(void *self, uint8_t flags[LC_SYNC_FLAGS]);
    /* Reports where this rank is, shown if it is lost. `where` is static; NULL: outside any run, when no limit is
     * learned for the time between two calls. Cheap. */
    void (*progress)(void *self, int64_t step, const char *where);
    /* This rank fails: reports why to the others, so that they do not wait for it. The current message may say more
     * afterwards. */
    void (*fail)(void *self, const char *why);
    void (*teardown)(void *self);
    /* The run has ended with LC_ERR_PEER: sets the message to the cause, if more is known than the communicator
     * reported, and notifies ranks that do not know it yet. */
    void (*explain)(void *self);
    /* Every device is driven by a process of its own: `--devices N` starts N. False: one process drives all. */
    bool launches;
    /* The number of devices that one process drives, each of which computes its part of every batch. The trainer makes
     * them and cuts the batches. NULL: one device, which computes the whole batch. */
    int (*devices)(void *self);
    /* Parameters live on the host, and are copied to every device before each step. */
    bool copies_parameters;
    /* after_backward is called after every backward pass, not only after the last one of an accumulation window. */
    bool syncs_every_backward;
    /* Each rank holds only slices of the state: each writes a part of a checkpoint unless state_dict_type is "full". */
    bool shards_state;
    /* Called around every batch of any loop. passes: how many times this rank calls the module for its share: once per
     * chunk with `deterministic`, else once; 0: it has no sample. Both collective. */
    lc_status (*begin_batch)(void *self, int64_t passes);
    lc_status (*end_batch)(void *self);
    /* Replaces setup in a run without optimizers, if parameters stay in slices all the time (gather_parameters=false).
     * The weights of a checkpoint are then read after this, or after setup. NULL: parameters are whole in such runs.
     * Collective. */
    lc_status (*shard_parameters)(void *self, lc_graph *graph, lc_module *m);
    /* The run has succeeded, or was interrupted on all ranks: makes the module whole again on every rank. Not called if
     * parameters stay in slices for the next run. Collective. */
    lc_status (*finish)(void *self);
    /* supports request->gradient_compression; otherwise requesting it is an error. */
    bool compresses;
    /* supports request->shard_size; otherwise requesting it is an error. */
    bool replicates;
    /* This rank's number among the ranks of its machine, and how many these are: each gets a device of its own. NULL,
     * or 0 of 1: the device is the one that is asked for. */
    void (*place)(void *self, int *rank, int *ranks);
} lc_strategy_ops;

#define LC_STRATEGY_OPS_INIT(text) .size = sizeof(lc_strategy_ops), .name = (text)

LC_BEGIN_DECLS
/* The strategy of that name ("auto": ddp if this process is one of several ranks, else single_device); the error for an
 * unknown name lists the available ones. */
LC_API lc_status lc_strategy_find(const char *name, const lc_strategy_ops **out) LC_MUST_USE;
LC_END_DECLS
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Fabric: devices, ranks, precision, loggers and checkpoints for programs that write their loop themselves.
 *
 * It has no epochs, hooks or callbacks: the loop is the program's. The program makes each call of a step that the
 * trainer would make (Lightning's Fabric; docs/from-lightning.md has the names side by side):
 *
 *     lc_fabric_new(&f, .seed = 1);                                  Fabric(...), launch()
 *     lc_fabric_setup(f, &m.base, &opt, 1);                          setup(model, optimizer)
 *     while (next(loader, &batch)) {
 *         lc_fabric_begin(f);
 *         lc_tensor *loss = lc_mse_loss(forward(&m, batch->x), batch->y);
 *         lc_fabric_zero_grad(f);                                    optimizer.zero_grad()
 *         lc_fabric_backward(f, loss);                               backward(loss)
 *         lc_fabric_clip_gradients(f, opt, .max_norm = 1);           clip_gradients(model, optimizer, max_norm=1)
 *         lc_fabric_step(f, opt);                                    optimizer.step()
 *         status = lc_fabric_end(f);                                 here it all runs
 *         ... lc_fabric_log(f, "loss", value, -1);                   log("loss", value)
 *     }
 *
 * Between begin and end operations are recorded, as in training_step. Errors in between are kept: calls after the first
 * error do nothing, and lc_fabric_end returns it. Programs that want hooks and callbacks around their own loop use
 * lc_trainer_begin and lc_trainer_step. */
#ifndef LIGHTC_FABRIC_H
#define LIGHTC_FABRIC_H

#include <lightc/trainer.h>

typedef struct lc_fabric lc_fabric;

/* The trainer's options of the same names (docs/options.md), with the same defaults and bounds. docs/from-lightning.md
 * lists which options about ranks and devices are missing, and why. */
typedef struct lc_fabric_args {
    size_t size;
    const char *accelerator, *strategy, *devices, *precision, *state_dict_type;
    int64_t num_nodes;
    const char *nodes_file;
    /* Ranks restart from main: the program must find its newest checkpoint (lc_checkpoint_find_last_good), and load
     * it. */
    int64_t max_restarts;
    /* Seconds. For progress_timeout, a step is a call of lc_fabric_begin; 0 and -1: never, since only the program knows
     * how long its loop may take. */
    double start_timeout, silence_timeout, progress_timeout, grace_period;
    lc_comm *comm; /* the program's own communicator, borrowed (see lc_trainer_options) */
    int threads;
    bool deterministic, tune, detect_anomaly;
    const char *float32_matmul_precision;
    const char *memory_limit; /* lc_fabric_setup says what does not fit */
    uint64_t seed;            /* of random operations */
    /* Loggers of the program (lc_logger_new), taken over by lc_fabric_new, also when it fails. */
    const lc_logger *loggers;
    int n_loggers;
    const lc_precision *precision_plugin; /* in place of `precision`; taken over, also when lc_fabric_new fails */
    const char *default_root_dir;         /* loggers write below it; "." */
    const char *gradient_compression;     /* of ddp */
    double bucket_cap_mb;                 /* MiB of gradients that ddp and sharded reduce with one call */
    int64_t shard_size;                   /* of sharded_hybrid */
    const char *comm_security;            /* of connections between ranks: none, auth or encrypt */
} lc_fabric_args;
LC_DEFAULTS(lc_fabric, lc_fabric_args, .num_nodes = 1, .start_timeout = 300, .silence_timeout = 10, .grace_period = 2,
            .bucket_cap_mb = 0.5)

typedef struct lc_clip_args {
    size_t size;
    lc_site site;    /* set by the macro */
    double clip_val; /* clip to this absolute value */
    double max_norm; /* or all gradients together to this norm; one of the two is given */
} lc_clip_args;
LC_DEFAULTS(lc_clip, lc_clip_args, .clip_val = LC_NOT_GIVEN, .max_norm = LC_NOT_GIVEN)

LC_BEGIN_DECLS

/* Errors: if lc_fabric_save fails on one rank, all ranks return the same error. Any other error may occur on one rank
 * only, which must then exit (return lc_exit_status(status) from main): the others get LC_ERR_PEER from their next
 * collective call, and do not wait for that rank. */

/* Starts the processes of the strategy; every rank returns from it. The process that started them gets LC_STOP, with
 * *out NULL, when they have ended (docs/launching.md). */
#define lc_fabric_new(...) LC_CALL_NEW_(lc_fabric_new, lc_fabric, (), __VA_ARGS__, )
LC_API lc_status lc_fabric_new_with(lc_fabric **out, const lc_fabric_args *args) LC_MUST_USE;
/* NULL is fine. Waits until the loggers have written everything (an error is lost). Module and optimizers stay the
 * program's. */
LC_API void lc_fabric_free(lc_fabric *f);
/* Makes a module and its optimizers (0 to 8) ready: precision, equal parameters on every rank, training mode. Once. */
LC_API lc_status lc_fabric_setup(lc_fabric *f, lc_module *m, lc_optimizer *const *optimizers, int n) LC_MUST_USE;

/* `l` gives this rank's shares of its batches from now on (lc_dataloader_share). With one rank nothing happens; a
 * loader that is each rank's own (lc_dataloader_ops.per_rank) needs no call. */
LC_API lc_status lc_fabric_setup_dataloader(lc_fabric *f, lc_dataloader *l) LC_MUST_USE;

/* ---- one step ---- */
LC_API lc_status lc_fabric_begin(lc_fabric *f) LC_MUST_USE;
/* Scales the loss as the precision requires, and reduces gradients over the ranks. The loss can be read (lc_item) after
 * lc_fabric_end, until the next lc_fabric_begin. With several ranks the step so far is run here: values of one element
 * can still be read afterwards, and with several optimizers all values can be used; any other value needs lc_keep. */
LC_API void lc_fabric_backward_at(lc_fabric *f, lc_tensor *loss, lc_site site);
#define lc_fabric_backward(f, loss) lc_fabric_backward_at(f, loss, LC_HERE)
/* The next backward overwrites the gradients; without it they are accumulated, and their mean over the backward passes
 * is what the optimizer gets. */
LC_API void lc_fabric_zero_grad_at(lc_fabric *f, lc_site site);
#define lc_fabric_zero_grad(f) lc_fabric_zero_grad_at(f, LC_HERE)
/* Clips the gradients of the next lc_fabric_step of `optimizer`. Returns the norm before clipping (lc_keep it, to read
 * it), or NULL. */
LC_API lc_tensor *lc_fabric_clip_gradients_at(lc_fabric *f, lc_optimizer *optimizer, const lc_clip_args *args);
#define lc_fabric_clip_gradients(f, optimizer, ...)                                                                    \
    LC_CALL_(LC_UNIQUE_, lc_clip_args, lc_clip_defaults(), lc_fabric_clip_gradients_at, (f, optimizer, ), (),          \
             .site = LC_HERE, __VA_ARGS__, )
LC_API void lc_fabric_step_at(lc_fabric *f, lc_optimizer *optimizer, lc_site site);
#define lc_fabric_step(f, optimizer) lc_fabric_step_at(f, optimizer, LC_HERE)
/* Runs what was recorded. If there was an error since lc_fabric_begin, returns the first one and runs nothing. */
LC_API lc_status lc_fabric_end(lc_fabric *f) LC_MUST_USE;
/* While on, backward does not reduce gradients over ranks: for every backward of an accumulation except the last. An
 * update with gradients that were not reduced is an error. */
LC_API void lc_fabric_no_backward_sync(lc_fabric *f, bool on);

/* ---- ranks. Collective: every rank calls them, in the same order. ---- */
LC_API int lc_fabric_global_rank(const lc_fabric *f);
LC_API int lc_fabric_world_size(const lc_fabric *f);
/* values [n] become those of all ranks together, in place. */
LC_API lc_status lc_fabric_all_reduce(lc_fabric *f, double *values, int n, lc_log_reduce how) LC_MUST_USE;
/* The values of rank `source` on every rank. */
LC_API lc_status lc_fabric_broadcast(lc_fabric *f, double *values, int n, int source) LC_MUST_USE;
/* out [world_size,n]: the values of all ranks, in their order. */
LC_API lc_status lc_fabric_all_gather(lc_fabric *f, const double *values, int n, double *out) LC_MUST_USE;
LC_API lc_status lc_fabric_barrier(lc_fabric *f) LC_MUST_USE;

/* ---- loggers. Rank 0 writes; calls on other ranks do nothing. ---- */
/* Sends a row to every logger. step -1: the number of steps begun so far. The run's folder, lightning_logs/version_N,
 * is made for the first row. Returns the first error of a logger, in this call or since the previous one. It need not
 * end the loop: the other loggers have the row, and lightc's own loggers retry. */
LC_API lc_status lc_fabric_log_dict(lc_fabric *f, const lc_metric_value *values, int n, int64_t step) LC_MUST_USE;
LC_API lc_status lc_fabric_log(lc_fabric *f, const char *name, double value, int64_t step) LC_MUST_USE;
LC_API const char *lc_fabric_run_dir(const lc_fabric *f); /* "" before the first row */

/* ---- checkpoints, between steps; collective ---- */
/* Writes module, optimizers and the program's own `state` (NULL: none; taken over, also on failure; rank 0's) and
 * returns when it is durable, the same on all ranks. Gradients of an unfinished accumulation are not saved. */
LC_API lc_status lc_fabric_save(lc_fabric *f, const char *path, lc_state *state) LC_MUST_USE;
/* Restores what lc_fabric_save wrote; *state (may be NULL) receives the program's own (lc_state_free). Training then
 * continues bit for bit. */
LC_API lc_status lc_fabric_load(lc_fabric *f, const char *path, lc_state **state) LC_MUST_USE;

LC_API lc_graph *lc_fabric_graph(const lc_fabric *f); /* that its steps are recorded into; borrowed */
LC_API int64_t lc_fabric_steps(const lc_fabric *f);   /* begun so far; part of checkpoints */

LC_END_DECLS
#endif

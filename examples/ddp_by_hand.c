/* SPDX-License-Identifier: Apache-2.0 */
/* What --strategy ddp does, written out: the training of ddp_mnist.c without the trainer, with the communication in the
 * program. It ends with the same parameters, bit for bit (without --deterministic, which this program does not support:
 * with it the trainer sums gradients over chunks of the batch, in an order that does not depend on the number of
 * ranks).
 *
 *   ddp_by_hand --devices 2                starts two ranks
 *   lightc launch -np 2 ddp_by_hand        so does this, and mpirun -np 2
 *   ddp_by_hand                            one rank: the same program
 *
 * The four points where ranks communicate:
 *   rendezvous   lc_comm_world finds the other ranks
 *   broadcast    all begin with the parameters of rank 0
 *   all-reduce   gradients of each step are added up over the ranks, and divided by their number
 *   barrier      no rank exits before rank 0 has saved the model
 *
 * Rank 0 saves the model, without the optimizer, as by_hand.ckpt (in --default_root_dir). To compare it with a
 * checkpoint of ddp_mnist: cmp by_hand.ckpt/model.safetensors
 * lightning_logs/version_0/checkpoints/NAME/model.safetensors
 *
 * The strategy is better in one respect: it sends gradients in buckets while the backward pass still runs. */
#include <lightc/lightc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *data;
    int64_t batch_size;
} arguments;

static const lc_option options[] = {
    LC_OPTION(arguments, data, LC_OPTION_TEXT, 0, 0, "folder of the IDX files of MNIST or Fashion-MNIST"),
    LC_OPTION(arguments, batch_size, LC_OPTION_INT, 1, 1e6, "samples in a batch of one rank"),
};

typedef struct network {
    lc_module base;
    lc_conv2d conv1, conv2;
    lc_max_pool2d pool;
    lc_linear fc;
} network;

static void network_init(network *m, uint64_t seed)
{
    lc_module_init(&m->base, NULL, seed);
    lc_conv2d_init(&m->conv1, m, "conv1", 1, 16, 5, .padding = 2);
    lc_conv2d_init(&m->conv2, m, "conv2", 16, 32, 5, .padding = 2);
    lc_max_pool2d_init(&m->pool, m, "pool", 2);
    lc_linear_init(&m->fc, m, "fc", 32 * 7 * 7, 10);
}

static lc_tensor *forward(network *m, lc_tensor *x) /* x [B,1,28,28] */
{
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv1, x)));
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv2, x)));
    return lc_linear_forward(&m->fc, lc_flatten(x, 1)); /* [B,10] */
}

typedef struct training {
    lc_comm *comm;
    lc_graph *graph;
    network model;
    lc_optimizer *optimizer;
    lc_tensor **parameters, **gradients; /* [n] */
    int n;
    float *all; /* room for the elements of all parameters, one after the other */
    int64_t n_all, step;
} training;

/* ---- where ranks communicate ---- */

static lc_status broadcast_parameters(training *t)
{
    for (int i = 0; i < t->n; i++) {
        int64_t n = lc_tensor_numel(t->parameters[i]);
        size_t bytes = (size_t)n * sizeof(float);
        LC_TRY(lc_tensor_read(t->parameters[i], t->all, bytes));
        LC_TRY(lc_comm_broadcast(t->comm, t->all, n, LC_F32, 0, NULL));
        LC_TRY(lc_tensor_write(t->parameters[i], t->all, bytes));
    }
    return LC_OK;
}

/* All ranks' batches have the same number of samples (drop_last), so the mean of their gradients equals the gradient of
 * one rank with all samples. */
static lc_status average_gradients(training *t)
{
    float *at = t->all, share = (float)(1.0 / lc_comm_size(t->comm));
    for (int i = 0; i < t->n; i++) {
        int64_t n = lc_tensor_numel(t->parameters[i]);
        LC_TRY(lc_tensor_read(t->gradients[i], at, (size_t)n * sizeof *at));
        at += n;
    }
    LC_TRY(lc_comm_all_reduce(t->comm, t->all, t->all, t->n_all, LC_F32, LC_COMM_SUM, NULL));
    for (int64_t k = 0; k < t->n_all; k++) t->all[k] *= share;
    at = t->all;
    for (int i = 0; i < t->n; i++) {
        int64_t n = lc_tensor_numel(t->parameters[i]);
        LC_TRY(lc_gradient_write(t->parameters[i], at, (size_t)n * sizeof *at));
        at += n;
    }
    return LC_OK;
}

/* ---- the loop ---- */

static lc_status train_batch(training *t, const lc_batch *batch, double *loss)
{
    LC_TRY(lc_step_begin(t->graph, (uint64_t)t->step++, 0));
    lc_tensor *error = lc_keep(lc_cross_entropy(forward(&t->model, batch->x), batch->y));
    lc_zero_grad(t->graph);
    lc_backward(error);
    for (int i = 0; i < t->n; i++) t->gradients[i] = lc_keep(lc_gradient(t->parameters[i]));
    LC_TRY(lc_step_run(t->graph));
    LC_TRY(average_gradients(t));
    lc_optimizer_step(t->optimizer);
    LC_TRY(lc_step_run(t->graph));
    LC_TRY(lc_item(error, loss));
    return lc_step_end(t->graph);
}

static lc_status train(training *t, lc_dataloader *loader, int64_t epochs)
{
    double loss = 0;
    if (lc_dataloader_length(loader, 0) == 0)
        return lc_fail(LC_ERR_CONFIG,
                       "there is no batch: the data has fewer samples than a step of all ranks uses, %d "
                       "times batch_size",
                       lc_comm_size(t->comm));
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        lc_batch *batch;
        LC_TRY(lc_dataloader_begin(loader, epoch, 0));
        for (;;) {
            LC_TRY(lc_dataloader_next(loader, &batch));
            if (!batch) break;
            LC_TRY(train_batch(t, batch, &loss));
        }
        /* The last loss, averaged over ranks, since only rank 0 prints. */
        LC_TRY(lc_comm_all_reduce(t->comm, &loss, &loss, 1, LC_F64, LC_COMM_SUM, NULL));
        if (lc_comm_rank(t->comm) == 0) printf("epoch %d  loss %.4f\n", (int)epoch, loss / lc_comm_size(t->comm));
        LC_TRY(lc_stdout_flush()); /* now, even if it is a file */
    }
    return LC_OK;
}

/* Each rank counts in its share; shares may differ in size, so counts are summed, not accuracies. */
static lc_status test(training *t, lc_dataloader *loader)
{
    double counts[2] = {0, 0}; /* correct, all */
    lc_batch *batch;
    LC_TRY(lc_dataloader_begin(loader, 0, 0));
    for (;;) {
        double right;
        LC_TRY(lc_dataloader_next(loader, &batch));
        if (!batch) break;
        if (batch->size == 0) continue; /* fewer samples were left than there are ranks */
        LC_TRY(lc_step_begin(t->graph, (uint64_t)t->step++, 0));
        lc_tensor *answer = lc_argmax(forward(&t->model, batch->x), .dim = 1);
        LC_TRY(lc_item(lc_sum(lc_cast(lc_eq(answer, batch->y), LC_F32)), &right));
        LC_TRY(lc_step_end(t->graph));
        counts[0] += right, counts[1] += (double)batch->size;
    }
    LC_TRY(lc_comm_all_reduce(t->comm, counts, counts, 2, LC_F64, LC_COMM_SUM, NULL));
    if (lc_comm_rank(t->comm) == 0)
        printf("test_acc %.4f\n%.0f samples on %d rank%s\n", counts[0] / counts[1], counts[1], lc_comm_size(t->comm),
               lc_comm_size(t->comm) == 1 ? "" : "s");
    return LC_OK;
}

static lc_status add_tensor(void *writer, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    return lc_ckpt_add_tensor(writer, LC_CKPT_MODEL, path, t->tensor);
}

static lc_status save(training *t, const char *dir)
{
    char path[4096];
    lc_ckpt_writer *w;
    snprintf(path, sizeof path, "%s%sby_hand.ckpt", dir ? dir : "", dir ? "/" : "");
    LC_TRY(lc_ckpt_writer_new(&w));
    lc_status status = lc_ckpt_begin(w, path);
    if (status >= 0) status = lc_module_visit(&t->model.base, add_tensor, w);
    if (status >= 0) status = lc_ckpt_commit(w, true);
    lc_ckpt_writer_free(w);
    if (status >= 0) printf("model: %s\n", path);
    return status;
}

int main(int argc, char **argv)
{
    arguments args = {.data = "/usr/share/datasets/fashion-mnist", .batch_size = 50};
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = 3;
    LC_MAIN_TRY(lc_trainer_options_parse_used(&opt, "strategy max_epochs seed threads", options, 2, &args, argc, argv));
    if (opt.strategy && strcmp(opt.strategy, "ddp") != 0)
        LC_MAIN_TRY(lc_fail(LC_ERR_CONFIG, "strategy=%.60s: this program supports only ddp", opt.strategy));
    if (opt.max_epochs < 1)
        LC_MAIN_TRY(lc_fail(LC_ERR_CONFIG, "max_epochs=%lld: this loop needs a finite number of epochs, at least 1",
                            (long long)opt.max_epochs));

    training t = {0};
    LC_MAIN_TRY(lc_comm_world(&t.comm)); /* rendezvous */
    int rank = lc_comm_rank(t.comm), size = lc_comm_size(t.comm);

    lc_dataset *sets[2];
    lc_dataloader *loaders[2];
    LC_MAIN_TRY(lc_mnist_load(args.data, &sets[0], &sets[1], .mean = 0.1307, .std = 0.3081));
    for (int i = 0; i < 2; i++) {
        LC_MAIN_TRY(lc_dataloader_new(&loaders[i], .dataset = sets[i], .batch_size = args.batch_size, .shuffle = i == 0,
                                      .drop_last = i == 0, .seed = (uint64_t)opt.seed));
        LC_MAIN_TRY(lc_dataloader_share(loaders[i], &(lc_share){.rank = rank, .size = size}));
    }

    network_init(&t.model, (uint64_t)(opt.seed + rank)); /* different on each rank, so that the broadcast matters */
    t.optimizer = lc_adam(&t.model, .lr = 1e-3);
    LC_MAIN_TRY(lc_module_status(&t.model.base));
    LC_MAIN_TRY(lc_module_parameters(&t.model.base, NULL, NULL, &t.parameters, &t.n));
    t.n_all = lc_module_parameter_count(&t.model.base, true);
    t.all = malloc((size_t)t.n_all * sizeof *t.all);
    t.gradients = calloc((size_t)t.n, sizeof(lc_tensor *));
    if (!t.all || !t.gradients) LC_MAIN_TRY(lc_fail(LC_ERR_MEMORY, "out of memory"));
    LC_MAIN_TRY(lc_graph_new(&t.graph, .threads = (int)opt.threads));

    LC_MAIN_TRY(broadcast_parameters(&t));
    LC_MAIN_TRY(train(&t, loaders[0], opt.max_epochs));
    LC_MAIN_TRY(test(&t, loaders[1]));
    if (rank == 0) LC_MAIN_TRY(save(&t, opt.default_root_dir));
    LC_MAIN_TRY(lc_comm_barrier(t.comm, NULL));

    lc_graph_free(t.graph);
    lc_optimizer_free(t.optimizer);
    lc_module_release(&t.model.base);
    for (int i = 0; i < 2; i++) {
        lc_dataloader_free(loaders[i]);
        lc_dataset_unref(sets[i]);
    }
    free(t.parameters), free(t.gradients), free(t.all);
    lc_comm_free(t.comm);
    lc_trainer_options_release(&opt);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}

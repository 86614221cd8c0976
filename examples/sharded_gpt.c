/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer whose training does not fit into a rank's memory unless it is sharded. Both lines train the same model
 * on two ranks, which may use 24 MiB each; the first is refused, since the parameters, gradients and optimizer state
 * need more.
 *
 *     sharded_gpt --devices 2 --strategy ddp --memory_limit 24MiB
 *     sharded_gpt --devices 2 --strategy sharded --memory_limit 24MiB
 *
 * The text is synthetic: each token is a function of the one before. */
#include <lightc/lightc.h>
#include <stdio.h>

enum { LAYERS = 6, WIDTH = 160, HEADS = 4, CONTEXT = 32, VOCABULARY = 64, SAMPLES = 512 };

typedef struct block {
    lc_module base;
    lc_layer_norm n1, n2;
    lc_linear qkv, proj, up, down;
} block;

typedef struct gpt {
    lc_module base;
    lc_embedding tok, pos;
    block blocks[LAYERS];
    lc_layer_norm norm;
    lc_linear head;
    lc_dataset *data;
    int64_t batch_size;
    double loss;
    lc_device_memory memory;
} gpt;

static void build(gpt *m)
{
    lc_embedding_init(&m->tok, m, "tok", VOCABULARY, WIDTH);
    lc_embedding_init(&m->pos, m, "pos", CONTEXT, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        block *b = &m->blocks[i];
        char name[24];
        snprintf(name, sizeof name, "block%d", i);
        lc_module_init_child(&b->base, m, name, "Block");
        lc_layer_norm_init(&b->n1, b, "n1", WIDTH);
        lc_linear_init(&b->qkv, b, "qkv", WIDTH, 3 * WIDTH);
        lc_linear_init(&b->proj, b, "proj", WIDTH, WIDTH);
        lc_layer_norm_init(&b->n2, b, "n2", WIDTH);
        lc_linear_init(&b->up, b, "up", WIDTH, 4 * WIDTH);
        lc_linear_init(&b->down, b, "down", 4 * WIDTH, WIDTH);
    }
    lc_layer_norm_init(&m->norm, m, "norm", WIDTH);
    lc_linear_init(&m->head, m, "head", WIDTH, VOCABULARY);
}

static lc_tensor *attention(block *b, lc_tensor *x) /* x [B,T,W] */
{
    int64_t batch = lc_tensor_dim(x, 0), t = lc_tensor_dim(x, 1);
    lc_tensor *qkv = lc_linear_forward(&b->qkv, x), *part[3]; /* [B,T,3W] */
    for (int i = 0; i < 3; i++)                               /* [B,H,T,W/H] */
        part[i] = lc_transpose(lc_reshape(lc_slice(qkv, 2, i * WIDTH, WIDTH), batch, t, HEADS, WIDTH / HEADS), 1, 2);
    lc_tensor *y = lc_sdpa(part[0], part[1], part[2], .causal = true);
    return lc_linear_forward(&b->proj, lc_reshape(lc_transpose(y, 1, 2), batch, t, WIDTH));
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    gpt *m = (gpt *)self;
    (void)batch_idx;
    lc_tensor *x = lc_add(lc_embedding_forward(&m->tok, batch->x), m->pos.weight);
    for (int i = 0; i < LAYERS; i++) {
        block *b = &m->blocks[i];
        x = lc_add(x, attention(b, lc_layer_norm_forward(&b->n1, x)));
        lc_tensor *y = lc_gelu(lc_linear_forward(&b->up, lc_layer_norm_forward(&b->n2, x)), .tanh = true);
        x = lc_add(x, lc_linear_forward(&b->down, y));
    }
    x = lc_linear_forward(&m->head, lc_layer_norm_forward(&m->norm, x));
    lc_tensor *loss = lc_cross_entropy(lc_reshape(x, -1, VOCABULARY), lc_reshape(batch->y, -1));
    lc_log(self, "train_loss", loss, .prog_bar = true, .sync_dist = true);
    return loss;
}

static lc_status on_train_end(lc_module *self)
{
    gpt *m = (gpt *)self;
    LC_TRY(lc_trainer_metric(self->trainer, "train_loss", &m->loss));
    return lc_trainer_memory(self->trainer, &m->memory);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adamw(self, .lr = 1e-3));
}

static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    const gpt *m = (const gpt *)self;
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = m->data, .batch_size = m->batch_size, .shuffle = true, .seed = 1));
    return lc_loaders_add(out, l);
}

static const lc_module_ops gpt_ops = {
    LC_MODULE_OPS_INIT("sharded_gpt"),    .training_step = training_step,
    .on_train_end = on_train_end,         .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader,
};

static const lc_option my_options[] = {LC_OPTION(gpt, batch_size, LC_OPTION_INT, 1, 1e6, "samples per rank in a step")};

int main(int argc, char **argv)
{
    static int64_t x[SAMPLES][CONTEXT], y[SAMPLES][CONTEXT];
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    static gpt model;
    gpt *m = &model;
    lc_trainer *trainer;
    const double mib = 1048576;
    m->batch_size = 4;
    opt.max_steps = 60;
    opt.max_epochs = -1;
    opt.bucket_cap_mb = 0.25; /* several units of parameters, of which only those in use are gathered */
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, my_options, 1, m, argc, argv));
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < CONTEXT; k++) {
            x[i][k] = k ? y[i][k - 1] : (int64_t)lc_random_below(7, (uint64_t)i, VOCABULARY);
            y[i][k] = (5 * x[i][k] + 3) % VOCABULARY;
        }
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {CONTEXT}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_I64, .ndim = 1, .shape = {CONTEXT}}, .data = y}};
    LC_MAIN_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &m->data));
    lc_module_init(&m->base, &gpt_ops, (uint64_t)opt.seed);
    build(m);
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &m->base));
    const lc_device_memory *d = &m->memory;
    if (lc_trainer_is_global_zero(trainer)) {
        int ranks = lc_trainer_world_size(trainer);
        int64_t whole = lc_module_parameter_count(&m->base, false) * (int64_t)sizeof(float);
        printf("train_loss %.4f on %d rank%s\n", m->loss, ranks, ranks == 1 ? "" : "s");
        printf("a rank holds parameters %.2f, gradients %.2f, optimizer state %.2f, intermediate results %.2f MiB%s\n",
               (double)d->parameters / mib, (double)d->gradients / mib, (double)d->optimizer_state / mib,
               (double)d->activations / mib,
               ranks > 1 && d->parameters < whole ? " (gathered parameters among them)" : "");
    }
    lc_trainer_free(trainer);
    lc_module_release(&m->base);
    lc_dataset_unref(m->data);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}

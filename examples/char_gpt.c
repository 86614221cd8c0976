/* SPDX-License-Identifier: Apache-2.0 */
/* A small language model over the characters of a text: 6 layers x 384, 6 heads, context 256. Prints a sample at the
 * end.
 *
 *     char_gpt --data input.txt --max_steps 500
 *     char_gpt --data input.txt --layers 2 --width 64 --heads 2 --context 64 --max_steps 300     minutes on a laptop */
#include <lightc/lightc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS 24

typedef struct args {
    const char *data;
    int64_t batch_size, layers, width, heads, context, sample;
    double lr, dropout, temperature;
} args;

typedef struct block {
    lc_module base;
    lc_layer_norm n1, n2;
    lc_linear qkv, proj, up, down;
} block;

typedef struct gpt {
    lc_module base;
    lc_embedding tok, pos;
    block blocks[MAX_LAYERS];
    lc_layer_norm norm;
    lc_text *text;
    lc_dataset *train, *val;
    args args;
    uint64_t seed;
} gpt;

static void build(gpt *m)
{
    int64_t w = m->args.width;
    const lc_init small = {.kind = LC_INIT_NORMAL,
                           .b = 0.02}; /* PyTorch's variance of 1 is far too wide for tied weights */
    lc_embedding_init(&m->tok, m, "tok", lc_text_vocabulary(m->text), w);
    lc_embedding_init(&m->pos, m, "pos", m->args.context, w);
    lc_module_reset_parameter(&m->tok.base, "weight", small);
    lc_module_reset_parameter(&m->pos.base, "weight", small);
    for (int64_t i = 0; i < m->args.layers; i++) {
        block *b = &m->blocks[i];
        char name[16];
        snprintf(name, sizeof name, "block%d", (int)i);
        lc_module_init_child(&b->base, m, name, "Block");
        lc_layer_norm_init(&b->n1, b, "n1", w);
        lc_linear_init(&b->qkv, b, "qkv", w, 3 * w);
        lc_linear_init(&b->proj, b, "proj", w, w);
        lc_layer_norm_init(&b->n2, b, "n2", w);
        lc_linear_init(&b->up, b, "up", w, 4 * w);
        lc_linear_init(&b->down, b, "down", 4 * w, w);
    }
    lc_layer_norm_init(&m->norm, m, "norm", w);
}

static lc_tensor *attention(gpt *m, block *b, lc_tensor *x) /* x [B,T,W] */
{
    int64_t batch = lc_tensor_dim(x, 0), t = lc_tensor_dim(x, 1), w = m->args.width, h = m->args.heads;
    lc_tensor *qkv = lc_linear_forward(&b->qkv, x), *part[3]; /* [B,T,3W] */
    for (int i = 0; i < 3; i++)                               /* [B,H,T,W/H] */
        part[i] = lc_transpose(lc_reshape(lc_slice(qkv, 2, i * w, w), batch, t, h, w / h), 1, 2);
    lc_tensor *y = lc_sdpa(part[0], part[1], part[2], .causal = true);
    return lc_linear_forward(&b->proj, lc_reshape(lc_transpose(y, 1, 2), batch, t, w));
}

static lc_tensor *drop(gpt *m, lc_tensor *x)
{
    return m->base.training && m->args.dropout > 0 ? lc_dropout(x, m->args.dropout) : x;
}

static lc_tensor *forward(gpt *m, lc_tensor *ids) /* ids [B,T] -> [B,T,V] */
{
    lc_tensor *x = lc_add(lc_embedding_forward(&m->tok, ids), lc_slice(m->pos.weight, 0, 0, lc_tensor_dim(ids, 1)));
    x = drop(m, x);
    for (int64_t i = 0; i < m->args.layers; i++) {
        block *b = &m->blocks[i];
        x = lc_add(x, drop(m, attention(m, b, lc_layer_norm_forward(&b->n1, x))));
        lc_tensor *y = lc_gelu(lc_linear_forward(&b->up, lc_layer_norm_forward(&b->n2, x)), .tanh = true);
        x = lc_add(x, drop(m, lc_linear_forward(&b->down, y)));
    }
    return lc_linear(lc_layer_norm_forward(&m->norm, x), m->tok.weight, NULL); /* tied with the embedding */
}

static lc_tensor *loss_of(gpt *m, const lc_batch *batch)
{
    lc_tensor *logits = forward(m, batch->x);
    return lc_cross_entropy(lc_reshape(logits, -1, lc_tensor_dim(logits, 2)), lc_reshape(batch->y, -1));
}

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = loss_of((gpt *)self, batch);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status validation_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_log(self, "val_loss", loss_of((gpt *)self, batch), .prog_bar = true);
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adamw(self, .lr = ((gpt *)self)->args.lr, .weight_decay = 0.1, .beta2 = 0.99));
}

static lc_status loader(gpt *m, lc_dataset *data, bool train, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = data, .batch_size = m->args.batch_size, .shuffle = train,
                             .drop_last = train, .seed = m->seed));
    return lc_loaders_add(out, l);
}

static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    return loader((gpt *)self, ((gpt *)self)->train, true, out);
}

static lc_status val_dataloader(lc_module *self, lc_loaders *out)
{
    return loader((gpt *)self, ((gpt *)self)->val, false, out);
}

static const lc_module_ops gpt_ops = {
    LC_MODULE_OPS_INIT("char_gpt"),       .training_step = training_step,
    .validation_step = validation_step,   .configure_optimizers = configure_optimizers,
    .train_dataloader = train_dataloader, .val_dataloader = val_dataloader,
};

/* Generates one character after another, on a graph of the program's own. */
static lc_status print_sample(gpt *m)
{
    lc_status status = LC_OK;
    lc_graph *g = NULL;
    lc_tensor *ids = NULL;
    int64_t context = m->args.context, vocabulary = lc_text_vocabulary(m->text);
    int64_t *window = calloc((size_t)context, sizeof *window);
    double *p = calloc((size_t)vocabulary, sizeof *p);
    float *logits = calloc((size_t)(context * vocabulary), sizeof *logits);
    if (!window || !p || !logits) LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory for a sample"));
    LC_TRY_GOTO(status, done, lc_graph_new(&g));
    LC_TRY_GOTO(status, done, lc_input_new(LC_I64, 2, (int64_t[]){1, context}, LC_ROW_MAJOR, window, &ids));
    lc_module_train(&m->base, false);
    int newline = lc_text_encode(m->text, '\n');
    window[0] = newline < 0 ? 0 : newline;
    int64_t at = 0; /* position of the last character in the window */
    for (int64_t n = 0; n < m->args.sample; n++) {
        LC_TRY_GOTO(status, done, lc_step_begin(g, (uint64_t)n, 0));
        lc_no_grad_begin();
        lc_tensor *out = lc_keep(forward(m, ids)); /* [1,T,V]: causal, so characters after `at` do not matter */
        lc_no_grad_end();
        LC_TRY_GOTO(status, done, lc_step_run(g));
        LC_TRY_GOTO(status, done, lc_tensor_read(out, logits, (size_t)(context * vocabulary) * sizeof *logits));
        LC_TRY_GOTO(status, done, lc_step_end(g));
        const float *row = logits + at * vocabulary;
        double top = row[0], sum = 0;
        for (int64_t v = 0; v < vocabulary; v++) top = fmax(top, row[v]);
        for (int64_t v = 0; v < vocabulary; v++) sum += p[v] = exp((row[v] - top) / m->args.temperature);
        double u = lc_random_uniform(lc_random_key_name(m->seed, "sample"), (uint64_t)n) * sum;
        int64_t next = 0;
        while (next < vocabulary - 1 && (u -= p[next]) >= 0) next++;
        putchar(lc_text_decode(m->text, next));
        if (at == context - 1)
            memmove(window, window + 1, (size_t)(context - 1) * sizeof *window);
        else
            at++;
        window[at] = next;
    }
    putchar('\n');
done:
    lc_tensor_unref(ids);
    lc_graph_free(g);
    free(window), free(p), free(logits);
    return status;
}

static const lc_option my_options[] = {
    LC_OPTION(args, data, LC_OPTION_TEXT, 0, 0, "a text file, or a folder with input.txt"),
    LC_OPTION(args, batch_size, LC_OPTION_INT, 1, 1e6, "windows in a batch"),
    LC_OPTION(args, layers, LC_OPTION_INT, 1, MAX_LAYERS, "transformer blocks"),
    LC_OPTION(args, width, LC_OPTION_INT, 1, 1e5, "features"),
    LC_OPTION(args, heads, LC_OPTION_INT, 1, 1e3, "attention heads; must divide the width"),
    LC_OPTION(args, context, LC_OPTION_INT, 2, 1e6, "characters the model sees"),
    LC_OPTION(args, sample, LC_OPTION_INT, 0, 1e9, "characters to print at the end"),
    LC_OPTION(args, lr, LC_OPTION_FLOAT, 0, 1e3, "learning rate"),
    LC_OPTION(args, dropout, LC_OPTION_FLOAT, 0, 1, "probability of dropping an activation"),
    LC_OPTION(args, temperature, LC_OPTION_FLOAT, 1e-3, 100, "temperature of the sample"),
};

static lc_status read_text(const char *data, lc_text **out)
{
    char path[4096];
    if (lc_text_read(data, out) == LC_OK) return LC_OK;
    snprintf(path, sizeof path, "%s/input.txt", data);
    if (lc_text_read(path, out) == LC_OK) return LC_OK;
    return lc_fail(LC_ERR_IO, "%s is neither a text file nor a folder with an input.txt; --data takes any plain text",
                   data);
}

int main(int argc, char **argv)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    gpt model = {0}, *m = &model;
    lc_trainer *trainer = NULL;
    m->args = (args){.data = "input.txt",
                     .batch_size = 16,
                     .layers = 6,
                     .width = 384,
                     .heads = 6,
                     .context = 256,
                     .sample = 300,
                     .lr = 1e-3,
                     .dropout = 0.1,
                     .temperature = 0.8};
    opt.max_steps = 500;
    opt.max_epochs = -1;
    opt.limit_val_batches = LC_BATCHES(20);
    opt.val_check_interval = LC_BATCHES(250);
    opt.check_val_every_n_epoch = LC_UNSET;
    LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, my_options, 10, &m->args, argc, argv));
    if (m->args.width % m->args.heads) {
        fprintf(stderr, "error: --heads %d does not divide --width %d\n", (int)m->args.heads, (int)m->args.width);
        return 1;
    }
    m->seed = (uint64_t)opt.seed;
    LC_MAIN_TRY(read_text(m->args.data, &m->text));
    int64_t split = lc_text_length(m->text) * 9 / 10;
    LC_MAIN_TRY(lc_text_windows(m->text, 0, split, m->args.context, LC_UNSET, &m->train));
    LC_MAIN_TRY(lc_text_windows(m->text, split, LC_UNSET, m->args.context, LC_UNSET, &m->val));
    lc_module_init(&m->base, &gpt_ops, m->seed);
    build(m);
    LC_MAIN_TRY(lc_trainer_new(&opt, &trainer));
    LC_MAIN_TRY(lc_trainer_fit(trainer, &m->base));
    LC_MAIN_TRY(print_sample(m));
    lc_trainer_free(trainer);
    lc_module_release(&m->base);
    lc_dataset_unref(m->train), lc_dataset_unref(m->val);
    lc_text_free(m->text);
    LC_MAIN_TRY(lc_stdout_flush());
    return 0;
}

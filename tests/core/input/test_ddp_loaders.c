/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with loaders of their own: how many batches they train, how gradients are averaged, and the loaders' states. */
#include "ddp_run.h"

static lc_status own_data(lc_comm *comm, void *ctx)
{
    int me = lc_comm_rank(comm);
    small_net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    (void)ctx;
    opt.strategy = "ddp";
    opt.max_epochs = 2;
    opt.use_distributed_sampler = false;
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    LC_TRY(loader_of(0, 20 + 8 * me, 4, false, &train)); /* 5, 7, 9 batches */
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train));
    RANK_CHECK(lc_trainer_global_step(t) == 10);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return LC_OK;
}

TEST(ranks_with_data_of_their_own_train_on_as_many_batches)
{
    CHECK_RANKS("threads", 3, own_data, NULL);
}

/* A loader of the program's own over one of lightc's. */
static lc_status inner_begin(void *self, int64_t epoch, int64_t start)
{
    return lc_dataloader_begin(self, epoch, start);
}

static lc_status inner_next(void *self, lc_batch **out)
{
    return lc_dataloader_next(self, out);
}

static int64_t inner_length(void *self, int64_t epoch)
{
    return lc_dataloader_length(self, epoch);
}

static void inner_free(void *self)
{
    lc_dataloader_free(self);
}

static const lc_dataloader_ops per_rank_ops = {LC_DATALOADER_OPS_INIT, .name = "sensor",       .begin = inner_begin,
                                               .next = inner_next,     .length = inner_length, .free = inner_free,
                                               .per_rank = true};

static lc_tensor *count_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_log_value(self, "trained", (double)b->size, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_SUM);
    return small_net_training_step(self, b, i);
}

static lc_status count_validation(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log_value(self, "validated", (double)b->size, .reduce_fx = LC_LOG_SUM);
    return LC_OK;
}

static const lc_module_ops count_ops = {LC_MODULE_OPS_INIT("net"), .training_step = count_step,
                                        .validation_step = count_validation, .configure_optimizers = small_net_sgd};

static lc_status one_own_loader(lc_comm *comm, void *ctx)
{
    small_net m = {0};
    lc_dataloader *sensor, *train, *val;
    lc_trainer *t;
    double trained, validated;
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = 1;
    opt.strategy = ctx;
    LC_TRY(small_net_init(&m, &count_ops, 1));
    LC_TRY(loader_of(20 * lc_comm_rank(comm), 20, 4, false, &sensor));
    LC_TRY(lc_dataloader_from_ops(&per_rank_ops, sensor, &train));
    LC_TRY(loader_of(0, VAL, 4, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val));
    LC_TRY(lc_trainer_metric(t, "trained", &trained));
    LC_TRY(lc_trainer_metric(t, "validated", &validated));
    RANK_CHECK(trained == 20 * lc_comm_size(comm) && validated == VAL);
    RANK_CHECK(lc_trainer_global_step(t) == 5);
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m);
    return LC_OK;
}

TEST(a_loader_of_each_ranks_own_leaves_other_loaders_shared)
{
    CHECK_RANKS("threads", 3, one_own_loader, "ddp");
    CHECK_RANKS("threads", 2, one_own_loader, "sharded_3");
}

/* Two sensors, or one and a loader that would be shared out. */
static lc_status combined_own_loaders(lc_comm *comm, void *ctx)
{
    const bool mixed = *(bool *)ctx;
    small_net m = {0};
    lc_dataloader *sensor, *parts[2], *train;
    lc_trainer *t;
    double trained = 0;
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = 1;
    opt.strategy = "ddp";
    LC_TRY(small_net_init(&m, &count_ops, 1));
    for (int k = 0; k < 2; k++) {
        LC_TRY(loader_of(20 * lc_comm_rank(comm), 20, 4, false, &sensor));
        if (mixed && k)
            parts[k] = sensor;
        else
            LC_TRY(lc_dataloader_from_ops(&per_rank_ops, sensor, &parts[k]));
    }
    LC_TRY(lc_combined_loader_new(LC_MIN_SIZE, 2, parts, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = train);
    if (mixed) {
        RANK_CHECK(s < 0); /* of this rank, or of the other one */
        RANK_CHECK(strstr(lc_error_message(), "loader 0 of a combined loader is each rank's own (per_rank), and"));
    } else {
        LC_TRY(s);
        LC_TRY(lc_trainer_metric(t, "trained", &trained));
        RANK_CHECK(trained == 20 * lc_comm_size(comm) && lc_trainer_global_step(t) == 5);
    }
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return LC_OK;
}

TEST(a_combined_loader_of_each_ranks_own_is_not_shared_out)
{
    for (int mixed = 0; mixed < 2; mixed++) CHECK_RANKS("threads", 2, combined_own_loaders, &(bool){mixed});
}

/* The batches of one process, split in a way that the trainer does not. */
typedef struct parts {
    bool by_hand; /* the program has shared the loader out; otherwise each rank has a dataset of its own */
    bool shared;  /* use_distributed_sampler */
    float weight[WIDTH * FEATURES];
} parts;

/* Only the rank's samples of each global batch. */
static lc_status own_dataset(int rank, int ranks, lc_dataset *all, lc_dataset **out)
{
    int64_t mine[SAMPLES], n = 0, each = GLOBAL_BATCH / ranks;
    for (int64_t i = 0; i < SAMPLES / GLOBAL_BATCH * GLOBAL_BATCH; i++)
        if (i % GLOBAL_BATCH / each == rank) mine[n++] = i;
    return lc_dataset_subset(all, mine, n, out);
}

static lc_status loader_of_part(lc_comm *comm, const parts *p, lc_dataloader **out)
{
    int rank = comm ? lc_comm_rank(comm) : 0, ranks = comm ? lc_comm_size(comm) : 1;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    lc_dataset *all, *mine = NULL;
    LC_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &all));
    if (!p->by_hand) LC_TRY(own_dataset(rank, ranks, all, &mine));
    lc_status s = lc_dataloader_new(out, .dataset = mine ? mine : all, .batch_size = GLOBAL_BATCH / ranks);
    lc_dataset_unref(mine);
    lc_dataset_unref(all);
    if (s < 0 || !p->by_hand || !comm) return s;
    return lc_dataloader_share(*out, &(lc_share){.rank = rank, .size = ranks});
}

static lc_status train_on_part(lc_comm *comm, const parts *p, const char *strategy, float *weight)
{
    small_net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? strategy : NULL;
    opt.max_epochs = 2;
    opt.use_distributed_sampler = p->shared;
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    LC_TRY(loader_of_part(comm, p, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train));
    LC_TRY(lc_tensor_read(m.l1.weight, weight, sizeof p->weight));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return LC_OK;
}

static lc_status train_rank_on_part(lc_comm *comm, void *ctx)
{
    const parts *p = ctx;
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_3"};
    float weight[WIDTH * FEATURES];
    for (int s = 0; s < 3; s++) {
        LC_TRY(train_on_part(comm, p, strategies[s], weight));
        for (int i = 0; i < WIDTH * FEATURES; i++) RANK_CHECK(fabsf(weight[i] - p->weight[i]) < 3e-6f);
    }
    return LC_OK;
}

TEST(gradients_of_loaders_of_the_ranks_own_are_averaged)
{
    for (int kind = 0; kind < 3; kind++) {
        parts p = {.by_hand = kind > 0, .shared = kind == 2};
        CHECK_OK(train_on_part(NULL, &p, NULL, p.weight));
        for (int n = 2; n <= 3; n++) CHECK_RANKS("threads", n, train_rank_on_part, &p);
    }
}

/* ---- loaders with a state ---- */

enum { STREAM_BATCHES = 3, STREAM_EPOCHS = 3, AT_MOST = STREAM_BATCHES * STREAM_EPOCHS };

/* Continues where it stopped, whatever the epoch. */
typedef struct stream {
    int64_t at, step, length, done;
    lc_batch batch;
} stream;

static lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    (void)epoch;
    ((stream *)self)->done = start;
    return LC_OK;
}
static lc_status stream_next(void *self, lc_batch **out)
{
    stream *s = self;
    *out = NULL;
    if (s->done++ >= STREAM_BATCHES) return LC_OK;
    lc_input_set(s->batch.x, inputs[s->at % SAMPLES], 1);
    lc_input_set(s->batch.y, &labels[s->at % SAMPLES], 1);
    s->batch.first = s->at;
    s->at += s->step;
    *out = &s->batch;
    return LC_OK;
}
static int64_t stream_length(void *self, int64_t epoch)
{
    (void)epoch;
    return ((stream *)self)->length;
}
static lc_status stream_save(void *self, void *data, size_t *size)
{
    const stream *s = self;
    if (s->at == 0) *size = 0; /* a different size from other states */
    if (data && s->at) memcpy(data, &s->at, sizeof s->at);
    if (s->at) *size = sizeof s->at;
    return LC_OK;
}
static lc_status stream_load(void *self, const void *data, size_t size)
{
    if (size != sizeof(int64_t)) return lc_fail(LC_ERR_FORMAT, "not a stream's state");
    memcpy(&((stream *)self)->at, data, size);
    return LC_OK;
}
/* A rank's part begins at an offset from the current place. */
static lc_status stream_share(void *self, const lc_share *share)
{
    ((stream *)self)->at += 7 * share->rank;
    ((stream *)self)->batch.global_size = share->size;
    return LC_OK;
}
static void stream_free(void *self)
{
    lc_tensor_unref(((stream *)self)->batch.x);
    lc_tensor_unref(((stream *)self)->batch.y);
    free(self);
}
static const lc_dataloader_ops stream_ops = {
    LC_DATALOADER_OPS_INIT, .name = "stream",    .begin = stream_begin, .next = stream_next,   .length = stream_length,
    .save = stream_save,    .load = stream_load, .free = stream_free,   .share = stream_share,
};

static lc_status stream_new(int64_t step, int64_t length, lc_dataloader **out)
{
    stream *s = calloc(1, sizeof *s);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory");
    *s = (stream){.step = step, .length = length, .batch = {.n = 2, .names = {"x", "y"}, .size = 1}};
    lc_batch *b = &s->batch;
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, FEATURES}, LC_ROW_MAJOR, inputs[0], &b->x));
    LC_TRY(lc_input_new(LC_I64, 1, (int64_t[]){1}, LC_ROW_MAJOR, labels, &b->y));
    b->tensors[0] = b->x;
    b->tensors[1] = b->y;
    return lc_dataloader_from_ops(&stream_ops, s, out);
}

typedef struct streams {
    char root[320], saved[400];
    const char *ckpt_path;
    bool shared, uneven, sized; /* cut by the trainer; ranks are at different places; the length is known */
    int64_t save_after;         /* save after this many batches; 0: never */
    int64_t n[WORLD_RANKS], seen[WORLD_RANKS][AT_MOST];
} streams;

typedef struct stream_net {
    small_net base;
    streams *j;
} stream_net;

static lc_tensor *read_step(lc_module *self, const lc_batch *b, int64_t i)
{
    streams *j = ((stream_net *)self)->j;
    int rank = lc_trainer_global_rank(self->trainer);
    if (j->n[rank] < AT_MOST) j->seen[rank][j->n[rank]++] = b->first;
    return small_net_training_step(self, b, i);
}

static lc_status save_stream(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    streams *j = ((stream_net *)self)->j;
    (void)o, (void)b, (void)i;
    if (j->n[lc_trainer_global_rank(self->trainer)] != j->save_after) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->saved, false);
}

static const lc_module_ops stream_net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = read_step,
                                             .on_train_batch_end = save_stream, .configure_optimizers = small_net_sgd};

static lc_status read_streams(lc_comm *comm, void *ctx)
{
    streams *j = ctx;
    stream_net m = {.j = j};
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "ddp";
    opt.max_epochs = STREAM_EPOCHS;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.use_distributed_sampler = j->shared;
    LC_TRY(small_net_init(&m.base, &stream_net_ops, 1));
    LC_TRY(stream_new(j->uneven ? lc_comm_rank(comm) : 1, j->sized ? STREAM_BATCHES : -1, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = l);
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m.base);
    return s;
}

static streams streams_of(const streams *like, const char *name)
{
    streams j = *like;
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
    memset(j.n, 0, sizeof j.n);
    return j;
}

/* After each batch: every rank continues where it was. */
static void check_streams(streams kind)
{
    enum { RANKS = 3 };
    for (kind.save_after = 1; kind.save_after < AT_MOST; kind.save_after++) {
        streams whole = streams_of(&kind, "whole");
        CHECK_RANKS("threads", RANKS, read_streams, &whole);
        streams rest = streams_of(&kind, "rest");
        rest.save_after = 0;
        rest.ckpt_path = whole.saved;
        CHECK_RANKS("threads", RANKS, read_streams, &rest);
        for (int r = 0; r < RANKS; r++) {
            CHECK_EQ(rest.n[r], AT_MOST - kind.save_after);
            for (int64_t i = 0; i < rest.n[r]; i++) CHECK_EQ(rest.seen[r][i], whole.seen[r][kind.save_after + i]);
        }
    }
}

TEST(every_rank_resumes_its_own_loader_state)
{
    for (int sized = 0; sized < 2; sized++) {
        check_streams((streams){.sized = sized});
        check_streams((streams){.sized = sized, .uneven = true});
    }
    check_streams((streams){.sized = true, .shared = true});
}

/* why: the expected error; NULL: none. */
static void resume_with(streams *j, int ranks, const char *why)
{
    streams rest = streams_of(j, "rest");
    rest.save_after = 0;
    rest.ckpt_path = j->saved;
    world *w = world_run("threads", ranks, read_streams, &rest);
    for (int r = 0; r < ranks; r++) {
        CHECK_EQ(w->ranks[r].status < 0, why != NULL);
        if (why) CHECK_CONTAINS(w->ranks[r].message, why);
    }
    world_free(w);
}

/* A state that all ranks have in common suits any number of them. */
TEST(different_loader_states_need_the_same_number_of_ranks)
{
    for (int uneven = 0; uneven < 2; uneven++) {
        streams j = streams_of(&(streams){.uneven = uneven, .sized = true, .save_after = 4}, "whole");
        CHECK_RANKS("threads", 2, read_streams, &j);
        for (int ranks = 1; ranks <= 3; ranks += 2) resume_with(&j, ranks, uneven ? "continue with 2 ranks" : NULL);
    }
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of callbacks whose effect only a run shows, and that no other test gives. */
#include "callback_run.h"

typedef struct heard {
    const char *word;
    int n;
} heard;

static void count_word(void *context, lc_trainer *t, lc_level level, const char *text)
{
    heard *h = context;
    (void)t, (void)level;
    h->n += strstr(text, h->word) != NULL;
}

/* How many messages of a run of `epochs` epochs have the word. */
static int messages(lc_status made, lc_callback cb, int64_t epochs, const char *word)
{
    run r;
    heard h = {word, 0};
    lc_callback both[2] = {cb};
    CHECK_OK(made);
    run_init(&r);
    r.m.trainable_only = true;
    r.o.enable_checkpointing = LC_AUTO;
    r.o.max_epochs = epochs;
    CHECK_OK(lc_lambda_callback(&both[1], .context = &h, .on_message = count_word));
    CHECK_OK(run_fit(&r, both, 2));
    run_release(&r);
    return h.n;
}

#define MESSAGES(make, epochs, word, ...)                                                                              \
    __extension__({                                                                                                    \
        lc_callback made_;                                                                                             \
        lc_status status_ = make(&made_, __VA_ARGS__);                                                                 \
        messages(status_, made_, epochs, word);                                                                        \
    })

TEST(verbose)
{
    CHECK_EQ(MESSAGES(lc_model_checkpoint, 2, ": saved ", .verbose = true), 2);
    CHECK_EQ(MESSAGES(lc_model_checkpoint, 2, ": saved ", .verbose = false), 0);
    CHECK(MESSAGES(lc_early_stopping, 2, "Metric val_loss improved", .monitor = "val_loss", .verbose = true) > 0);
    CHECK_EQ(MESSAGES(lc_early_stopping, 2, "Metric val_loss improved", .monitor = "val_loss"), 0);
    CHECK(MESSAGES(lc_backbone_finetuning, 2, "backbone", .unfreeze_backbone_at_epoch = 1, .verbose = true) > 0);
    CHECK_EQ(MESSAGES(lc_backbone_finetuning, 2, "backbone", .unfreeze_backbone_at_epoch = 1), 0);
    for (int v = 0; v < 3; v++) {
        const char *fn = "l1_unstructured";
        CHECK_EQ(MESSAGES(lc_model_pruning, 2, "applied l1_unstructured", .pruning_fn = fn, .verbose = v), v ? 2 : 0);
        CHECK_EQ(MESSAGES(lc_model_pruning, 2, "  head.weight: pruned", .pruning_fn = fn, .verbose = v), v > 1 ? 2 : 0);
    }
}

TEST(checkpoints_after_a_time)
{
    CHECK_EQ(MESSAGES(lc_model_checkpoint, 1, ": saved ", .verbose = true, .wait = true, .train_time_interval = 1e-9),
             NET_BATCHES);
    CHECK_EQ(MESSAGES(lc_model_checkpoint, 1, ": saved ", .verbose = true, .wait = true, .train_time_interval = 1e9),
             0);
}

/* ckpt_path=last would not find these, or not in dirpath. */
TEST(names_of_checkpoints_that_are_not_found_again)
{
    static const struct {
        const char *name, *says;
    } refused[] = {{".x", "begins with a dot"},
                   {"sub/", "begins with a dot"},
                   {"sub/.x", "begins with a dot"},
                   {"../x", "leads out of dirpath"},
                   {"a/../../x", "leads out of dirpath"}};
    static const char *const taken[] = {"", "x", "a.b", "sub/{epoch}", "{val/loss:.2f}", "..x/y", "/x"};
    lc_callback cb;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_STATUS(lc_model_checkpoint(&cb, .filename = refused[i].name), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), refused[i].name);
        CHECK_CONTAINS(lc_error_message(), refused[i].says);
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        CHECK_OK(lc_model_checkpoint(&cb, .filename = taken[i]));
        cb.ops->free(cb.self);
    }
    CHECK_STATUS(lc_on_exception_checkpoint(&cb, .dirpath = "x", .filename = ""), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "filename is empty");
}

/* A channel is a row of the weight [8,5], or a column. */
TEST(channels_are_counted_in_a_dimension)
{
    static const char *const paths[] = {"backbone.l1.weight"};
    for (int dim = 0; dim < 2; dim++) {
        run r;
        lc_callback cb;
        lc_sparsity s;
        run_init(&r);
        r.o.max_epochs = 1;
        CHECK_OK(lc_model_pruning(&cb, .pruning_fn = "ln_structured", .pruning_norm = 1, .amount_count = 1,
                                  .pruning_dim = dim, .parameters_to_prune = paths, .n_parameters_to_prune = 1));
        CHECK_OK(run_fit(&r, &cb, 1));
        CHECK_OK(lc_model_pruning_sparsity(&cb, 0, &s));
        CHECK_EQ(s.pruned, dim ? 8 : NET_FEATURES);
        run_release(&r);
    }
}

static lc_stopping_reason reason_of(const lc_early_stopping_args *args)
{
    run r;
    lc_callback cb;
    lc_early_stopping_info info;
    run_init(&r);
    CHECK_OK(lc_early_stopping_new(args, &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    CHECK_OK(lc_early_stopping_get(&cb, &info));
    run_release(&r);
    return info.reason;
}

/* The loss is above 0, so it has passed a threshold of 0 in one direction. */
TEST(thresholds_of_zero)
{
    lc_early_stopping_args a =
        LC_ARGS(lc_early_stopping, .monitor = "val_loss", .mode = "max", .stopping_threshold = 0);
    CHECK_EQ(reason_of(&a), LC_STOPPING_THRESHOLD);
    a = LC_ARGS(lc_early_stopping, .monitor = "val_loss", .divergence_threshold = 0);
    CHECK_EQ(reason_of(&a), LC_DIVERGENCE_THRESHOLD);
    a = LC_ARGS(lc_early_stopping, .monitor = "val_loss");
    CHECK_EQ(reason_of(&a), LC_NOT_STOPPED);
}

TEST(norms_in_the_progress_bar)
{
    for (int shown = 0; shown < 2; shown++) {
        run r;
        lc_callback cb;
        int n = 0;
        run_init(&r);
        CHECK_OK(lc_gradient_norm_monitor(&cb, .prog_bar = shown));
        CHECK_OK(run_fit(&r, &cb, 1));
        for (int i = 0; i < lc_trainer_metric_count(r.t, LC_PROGRESS_BAR_METRICS); i++)
            n += !strcmp(lc_trainer_metric_at(r.t, LC_PROGRESS_BAR_METRICS, i).name, "grad_2.0_norm_total");
        CHECK_EQ(n, shown);
        run_release(&r);
    }
}

TEST_MAIN

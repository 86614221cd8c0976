/* SPDX-License-Identifier: Apache-2.0 */
/* Several optimizers, a loop of the program's own, and intervals between validations. */
#include "core/ranks/ranks.h"
#include "core/hooks/trainer_internal.h"
#include "test.h"
#include "trainer_setting.h"

#include <signal.h>
#include <unistd.h>

typedef struct pair {
    lc_module base;
    lc_tensor *a, *b;
} pair;
static lc_tensor *step_a(lc_module *self, const lc_batch *x, int64_t i)
{
    (void)i;
    return lc_mul(((pair *)self)->a, lc_mean(x->x));
}
static lc_tensor *step_b(lc_module *self, const lc_batch *x, int64_t i)
{
    (void)i;
    pair *p = (pair *)self;
    return lc_mul(lc_mul(p->b, p->a), lc_mean(x->x)); /* gives a a gradient too, which must not reach a's optimizer */
}
static lc_status pair_optimizers(lc_module *self, lc_optimizers *out)
{
    pair *p = (pair *)self;
    LC_TRY(lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.5, .parameters = &p->a, .n_parameters = 1), step_a));
    return lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.25, .parameters = &p->b, .n_parameters = 1), step_b);
}
static lc_status pair_loader(lc_module *self, lc_loaders *out)
{
    (void)self;
    return lc_loaders_add(out, numbers_new(3, 1, false));
}

/* With one parameter for each of n optimizers. */
static void begin_pair(setting *s, pair *p, const lc_module_ops *ops, int n)
{
    lc_tensor **weights[] = {&p->a, &p->b};
    begin(s, 1, 0);
    lc_module_init(&p->base, ops, 1);
    for (int i = 0; i < n; i++)
        *weights[i] = lc_module_add_parameter(&p->base, i ? "b" : "a", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1},
                                              (lc_init){.kind = LC_INIT_ONES});
}

TEST(several_optimizers)
{
    static setting s;
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("pair"), .configure_optimizers = pair_optimizers,
                                      .train_dataloader = pair_loader};
    pair p = {0};
    begin_pair(&s, &p, &ops, 2);
    s.o.max_epochs = 1;
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_fit(s.t, &p.base));
    double a = 1, b = 1, got;
    for (int i = 0; i < 3; i++) {
        a -= 0.5 * i;
        b -= 0.25 * a * i;
    }
    CHECK_OK(lc_item(p.a, &got));
    CHECK_NEAR(got, a, 1e-6);
    CHECK_OK(lc_item(p.b, &got));
    CHECK_NEAR(got, b, 1e-6);
    CHECK_EQ(lc_trainer_global_step(s.t), 3); /* counts steps of the trainer */
    lc_module_release(&p.base);
    end(&s);
}

static lc_status one_without_step(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.5));
}

TEST(an_optimizer_without_a_step_needs_that_of_the_module)
{
    static setting s;
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("pair"), .configure_optimizers = one_without_step,
                                      .train_dataloader = pair_loader};
    pair p = {0};
    begin_pair(&s, &p, &ops, 1);
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_STATUS(lc_trainer_fit(s.t, &p.base), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "pair has no training_step, which fit needs");
    lc_module_release(&p.base);
    end(&s);
}

/* Sends SIGUSR1; returns when the trainer has received it. */
static void ask_for_a_checkpoint(lc_trainer *t)
{
    CHECK(kill(getpid(), SIGUSR1) == 0);
    for (int ms = 0; ms < 10000 && !atomic_load(&t->ranks->save_requested); ms++) usleep(1000);
    CHECK(atomic_load(&t->ranks->save_requested));
}

TEST(own_loop)
{
    static setting s;
    double loss;
    char path[400];
    lc_checkpoint *c;
    int64_t step;
    begin(&s, 4, 1);
    s.m.lr = 0.1;
    lc_dataloader *l = numbers_new(4, 1, false);
    CHECK_OK(lc_trainer_new(&s.o, &s.t));
    CHECK_OK(lc_trainer_begin(s.t, &s.m.base));
    CHECK_STATUS(lc_trainer_step(s.t, NULL, &loss), LC_ERR_ARGUMENT); /* the run goes on */
    CHECK_CONTAINS(lc_error_message(), "batch must not be NULL");
    double w = 1;
    for (int epoch = 0; epoch < 2; epoch++) {
        lc_batch *b;
        CHECK_OK(lc_dataloader_begin(l, epoch, 0));
        for (int i = 0; i < 4; i++) {
            CHECK_OK(lc_dataloader_next(l, &b));
            if (epoch == 0 && i == 2) ask_for_a_checkpoint(s.t);
            CHECK_OK(lc_trainer_step(s.t, b, &loss));
            CHECK_NEAR(loss, w * i, 1e-5);
            w -= 0.1 * i;
        }
        CHECK_OK(lc_trainer_end_epoch(s.t));
    }
    CHECK_OK(lc_trainer_end(s.t));
    CHECK_NEAR(world_weight(&s.m), w, 1e-5);
    CHECK_EQ(lc_trainer_global_step(s.t), 8);
    CHECK_EQ(lc_trainer_current_epoch(s.t), 2);
    snprintf(path, sizeof path, "%s/hpc_ckpt_1.ckpt", s.dir);
    CHECK_OK(lc_checkpoint_open(path, &c));
    CHECK_OK(lc_state_get_int(lc_checkpoint_state(c), "global_step", &step));
    CHECK_EQ(step, 3);
    lc_checkpoint_close(c);
    lc_dataloader_free(l);
    end(&s);
}

TEST(impossible_options_are_refused)
{
    static setting s;
    static const struct {
        const char *option, *value, *says;
    } cases[] = {
        {"strategy", "sdp", "single_device"},      {"precision", "8-mixed", "32-true"}, {"accelerator", "tpu", "cpu"},
        {"gradient_clip_algorithm", "l2", "norm"}, {"max_time", "5", "unit"},           {"save_top_k", "3", "monitor"},
    };
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        begin(&s, 1, 0);
        s.o.n_loggers = 0;
        for (int i = 0; i < n; i++)
            if (!strcmp(table[i].name, cases[k].option)) CHECK_OK(lc_option_set_text(&table[i], &s.o, cases[k].value));
        CHECK(lc_trainer_new(&s.o, &s.t) < 0);
        CHECK_CONTAINS(lc_error_message(), cases[k].says);
        end(&s);
    }
}

/* When validation runs: the global steps at on_validation_start. */
static const char *validations(const char *interval, int64_t n_train, int64_t epochs, int64_t accumulate, char *out)
{
    static setting s;
    int n;
    const lc_option *table = lc_trainer_option_table(&n);
    out[0] = 0;
    begin(&s, n_train, 1);
    s.o.max_epochs = epochs;
    s.o.accumulate_grad_batches = accumulate;
    s.o.enable_checkpointing = LC_OFF;
    for (int i = 0; i < n; i++)
        if (!strcmp(table[i].name, "val_check_interval")) CHECK_OK(lc_option_set_text(&table[i], &s.o, interval));
    CHECK_OK(fit(&s));
    for (const char *p = s.m.tr.text; (p = strstr(p, "m.on_validation_start:")); p++) {
        const char *step = strchr(p, ',') + 1;
        strncat(out, step, strcspn(step, " ") + 1);
    }
    end(&s);
    return out;
}

TEST(intervals_of_every_unit)
{
    char got[256];
    CHECK_STR(validations("0.5", 4, 2, 1, got), "2 4 6 8 ");
    CHECK_STR(validations("3ba", 4, 2, 1, got), "3 7 ");
    CHECK_STR(validations("3st", 4, 2, 1, got), "3 6 ");   /* counts continue in the next epoch */
    CHECK_STR(validations("2st", 5, 2, 2, got), "2 4 6 "); /* three steps per epoch */
    CHECK_STR(validations("2ep", 2, 5, 1, got), "4 8 ");
    CHECK_STR(validations("1h", 4, 2, 1, got), "");
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The precision of the program in docs/precision.md trains. */
#include "quiet_options.h"
#include "test.h"

enum { SAMPLES = 64 };
#include "small_data.h"

typedef struct own {
    lc_tensor *unscale;
} own;

static lc_status in_bf16(void **self, lc_graph_args *graph)
{
    (void)self;
    graph->autocast = LC_BF16;
    return LC_OK;
}

static lc_status make_unscale(void **self, lc_module *m)
{
    own *o = *self;
    (void)m;
    LC_TRY(lc_tensor_new(LC_F32, 0, NULL, &o->unscale));
    return lc_tensor_write(o->unscale, &(float){1.f / 128}, sizeof(float));
}

static lc_tensor *times_128(void *self, lc_tensor *loss)
{
    own *o = self;
    lc_graph_set_unscale(lc_current_graph(), o->unscale, NULL, NULL);
    return lc_mul_scalar(loss, 128);
}

static void free_unscale(void *self)
{
    own *o = self;
    lc_tensor_unref(o->unscale);
}

static const lc_precision_ops own_ops = {LC_PRECISION_OPS_INIT("bf16-times-128"), .configure_graph = in_bf16,
                                         .convert_module = make_unscale, .scale_loss = times_128,
                                         .teardown = free_unscale};

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
    double first, last;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    return lc_cross_entropy(lc_linear_forward(&m->l2, lc_relu(lc_linear_forward(&m->l1, b->x))), b->y);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static lc_status keep_loss(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b, (void)i;
    LC_TRY(lc_item(o->loss, &m->last));
    if (m->first == 0) m->first = m->last;
    return LC_OK;
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .configure_optimizers = configure_optimizers, .on_train_batch_end = keep_loss};

/* The last loss, with that precision or the default one. */
static double train(const lc_precision *p, double *first)
{
    net m = {0};
    lc_trainer *t;
    lc_dataloader *loader;
    CHECK_OK(loader_of(0, SAMPLES, 16, false, &loader));
    lc_module_init(&m.base, &net_ops, 3);
    lc_linear_init(&m.l1, &m, "l1", FEATURES, 8);
    lc_linear_init(&m.l2, &m, "l2", 8, CLASSES);
    lc_trainer_options opt = quiet_options(NULL);
    opt.max_epochs = 5;
    opt.precision_plugin = p;
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    *first = m.first;
    return m.last;
}

TEST(the_precision_of_the_guide_trains)
{
    own o = {0};
    lc_precision p = {&own_ops, &o};
    double first, first_f32, last = train(&p, &first), last_f32 = train(NULL, &first_f32);
    CHECK(last < first && last != last_f32);
    CHECK_NEAR(first, first_f32, 0.01);
    CHECK_NEAR(last, last_f32, 0.01); /* the scale is taken out of the gradients */
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* The precision of the program in docs/precision.md trains; one whose functions fail says which. */
#include "quiet_options.h"
#include "scratch.h"
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
    if (o->unscale) return LC_OK; /* a later run */
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
    o->unscale = NULL;
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

/* Returns a loader of its samples. */
static lc_dataloader *make_net(net *m)
{
    lc_dataloader *loader;
    CHECK_OK(loader_of(0, SAMPLES, 16, false, &loader));
    lc_module_init(&m->base, &net_ops, 3);
    lc_linear_init(&m->l1, m, "l1", FEATURES, 8);
    lc_linear_init(&m->l2, m, "l2", 8, CLASSES);
    return loader;
}

/* The last loss of two fits with those precisions or the default one. two: of two trainers. */
static double train(const lc_precision *p, const lc_precision *q, bool two, double *first)
{
    net m = {0};
    lc_trainer *t;
    lc_dataloader *loader = make_net(&m);
    lc_trainer_options opt = quiet_options(NULL);
    opt.max_epochs = 5;
    opt.precision_plugin = p;
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    if (two) {
        lc_trainer_free(t);
        opt.precision_plugin = q;
        CHECK_OK(lc_trainer_new(&opt, &t));
    }
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    *first = m.first;
    return m.last;
}

static void check_near_f32(const lc_precision *p, const lc_precision *q, double near)
{
    double first, first_f32, last = train(p, q, p != q, &first), last_f32 = train(NULL, NULL, p != q, &first_f32);
    CHECK(last < first && last != last_f32);
    CHECK_NEAR(first, first_f32, near);
    CHECK_NEAR(last, last_f32, near); /* the scale is taken out of the gradients */
}

TEST(the_precision_of_the_guide_trains)
{
    own o = {0}, other = {0};
    lc_precision p = {&own_ops, &o}, q = {&own_ops, &other};
    check_near_f32(&p, &p, 0.01);
    CHECK(!o.unscale); /* freed */
    check_near_f32(&p, &q, 0.01);
}

/* It stores everything as another precision does, whose functions it calls. */
static lc_status in_f16(void **self, lc_graph_args *graph)
{
    const lc_precision_ops *f16;
    void *none = NULL;
    (void)self;
    LC_TRY(lc_precision_find("16-true", &f16));
    return f16->configure_graph(&none, graph);
}

static lc_status store_f16(void **self, lc_module *m)
{
    const lc_precision_ops *f16;
    void *none = NULL;
    LC_TRY(lc_precision_find("16-true", &f16));
    LC_TRY(f16->convert_module(&none, m));
    CHECK_EQ(lc_tensor_storage(((net *)m)->l1.weight), LC_F16);
    return make_unscale(self, m);
}

static const lc_precision_ops stored_ops = {LC_PRECISION_OPS_INIT("16-true-times-128"), .configure_graph = in_f16,
                                            .convert_module = store_f16, .scale_loss = times_128,
                                            .teardown = free_unscale};

TEST(a_precision_that_extends_another)
{
    own o = {0}, other = {0};
    lc_precision p = {&stored_ops, &o}, q = {&own_ops, &other};
    check_near_f32(&p, &p, 0.01);
    check_near_f32(&p, &q, 0.01);
    check_near_f32(&q, &p, 0.01);
}

/* ---- functions that fail ---- */

static struct {
    const char *function; /* returns `status`; all others LC_OK */
    lc_status status;
} asked = {.function = ""};

static lc_status answer(const char *function)
{
    return !strcmp(function, asked.function) ? asked.status : LC_OK;
}

static lc_status ask_configure_graph(void **self, lc_graph_args *graph)
{
    (void)self, (void)graph;
    return answer("configure_graph");
}
static lc_status ask_convert_module(void **self, lc_module *m)
{
    (void)self, (void)m;
    return answer("convert_module");
}
static lc_status ask_save(void *self, lc_state *state)
{
    (void)self, (void)state;
    return answer("save_state");
}
static lc_status ask_load(void *self, const lc_state *state)
{
    (void)self, (void)state;
    return answer("load_state");
}
static lc_tensor *ask_scale(void *self, lc_tensor *loss)
{
    (void)self;
    return answer("scale_loss") == LC_OK ? loss : NULL;
}

static const lc_precision_ops ask_ops = {LC_PRECISION_OPS_INIT("asked"),
                                         .configure_graph = ask_configure_graph,
                                         .convert_module = ask_convert_module,
                                         .scale_loss = ask_scale,
                                         .save_state = ask_save,
                                         .load_state = ask_load};

static const char *checkpoint_path(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/x.ckpt", scratch_root);
    return path;
}

/* An epoch, a checkpoint, and that loaded again. */
static lc_status run_trainer(void)
{
    const lc_precision p = {&ask_ops, NULL};
    const char *path = checkpoint_path();
    net m = {0};
    lc_trainer *t;
    lc_dataloader *loader = make_net(&m);
    lc_trainer_options opt = quiet_options(NULL);
    opt.max_epochs = 1;
    opt.precision_plugin = &p;
    CHECK_OK(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = loader);
    if (s >= 0) s = lc_trainer_save_checkpoint(t, path, false);
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = loader, .ckpt_path = path);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return s;
}

static lc_status run_fabric(void)
{
    const lc_precision p = {&ask_ops, NULL};
    const char *path = checkpoint_path();
    lc_fabric *f;
    lc_module m;
    lc_linear l;
    lc_optimizer *opt = NULL;
    lc_module_init(&m, &net_ops, 3);
    lc_linear_init(&l, &m, "l", 2, 1);
    lc_status s = lc_fabric_new(&f, .precision_plugin = &p);
    if (s >= 0) opt = lc_sgd(&m, .lr = 0.1);
    if (s >= 0) s = lc_fabric_setup(f, &m, &opt, 1);
    if (s >= 0) s = lc_fabric_begin(f);
    if (s >= 0) {
        lc_fabric_backward(f, lc_sum(l.weight));
        lc_fabric_step(f, opt);
        s = lc_fabric_end(f);
    }
    if (s >= 0) s = lc_fabric_save(f, path, NULL);
    if (s >= 0) s = lc_fabric_load(f, path, NULL);
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_module_release(&m);
    return s;
}

TEST(an_error_names_the_function)
{
    static const char *const functions[] = {"configure_graph", "convert_module", "save_state", "load_state"};
    CHECK_OK(run_trainer());
    CHECK_OK(run_fabric());
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            char text[200];
            const bool request = k % 2;
            asked.function = functions[i];
            asked.status = request ? LC_SKIP : LC_ERR_IO;
            (void)lc_fail(LC_ERR_ARGUMENT, "an earlier error");
            CHECK_STATUS(k < 2 ? run_trainer() : run_fabric(), request ? LC_ERR_USER : LC_ERR_IO);
            snprintf(text, sizeof text, "precision asked: %s returned %s", functions[i],
                     request ? "\"skip\"" : "an error (input or output failed) without a message");
            CHECK_CONTAINS(lc_error_message(), text);
        }
    asked.function = "scale_loss";
    CHECK_STATUS(run_trainer(), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "asked: scale_loss returned no loss");
    CHECK_STATUS(run_fabric(), LC_ERR_USER);
    CHECK_CONTAINS(lc_error_message(), "asked: scale_loss returned no loss");
    asked.function = "";
}

TEST_MAIN

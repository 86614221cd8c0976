/* SPDX-License-Identifier: Apache-2.0 */
/* lc_trainer_memory after a run in one process: it reports each kind of memory, and less for activations in mixed
 * precision, where those between products have 16 bits. */
#include "quiet_options.h"
#include "test.h"

#include "backends/cpu/isa.h"

#include <string.h>

enum { SAMPLES = 2048, BATCH = 2048, WIDE = 256, LAYERS = 8 };
#include "small_data.h"

typedef struct net {
    lc_module base;
    lc_linear layers[LAYERS];
    lc_device_memory memory;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *x = lc_pad(b->x, 0, WIDE - FEATURES);
    (void)i;
    for (int k = 0; k < LAYERS; k++) x = lc_linear_forward(&m->layers[k], x);
    return lc_mean(x);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-3));
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    return lc_trainer_memory(self->trainer, &((net *)self)->memory);
}

static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                  .configure_optimizers = configure_optimizers,
                                  .on_train_batch_end = on_train_batch_end};

static lc_device_memory memory_of(const char *precision)
{
    net m;
    lc_dataloader *loader;
    lc_trainer *t;
    memset(&m, 0, sizeof m);
    CHECK_OK(loader_of(0, SAMPLES, BATCH, false, &loader));
    lc_module_init(&m.base, &ops, 3);
    for (int k = 0; k < LAYERS; k++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", k);
        lc_linear_init(&m.layers[k], &m.base, name, WIDE, WIDE);
    }
    lc_trainer_options opt = quiet_options(NULL);
    opt.precision = precision;
    opt.max_epochs = 1;
    CHECK_OK(lc_trainer_new(&opt, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return m.memory;
}

TEST(a_run_reports_its_memory_by_kind)
{
    const lc_device_memory m = memory_of("32-true");
    const int64_t parameters = (int64_t)LAYERS * (WIDE * WIDE + WIDE) * 4;
    CHECK_EQ(m.parameters, parameters);
    CHECK(m.gradients >= parameters && m.gradients < parameters + 4096);
    CHECK(m.optimizer_state >= 2 * parameters && m.optimizer_state < 2 * parameters + 8192);
    CHECK(m.activations > 0);
    CHECK_EQ(m.loader, (int64_t)BATCH * (FEATURES * 4 + 8));
    CHECK(m.process > m.parameters + m.gradients + m.optimizer_state);
}

TEST(activations_between_products_have_16_bits_in_mixed_precision)
{
    const lc_device_memory full = memory_of("32-true"), mixed = memory_of("bf16-mixed");
    const lc__isa *isa;
    CHECK_OK(lc__isa_choose(&isa));
    /* If products multiply 16 bits, weights have copies; other products read f32 and round, but for biases. */
    const bool copies = !strcmp(isa->name, "avx512_bf16") || !strcmp(isa->name, "amx");
    CHECK_EQ(mixed.parameters, copies ? full.parameters * 3 / 2 : full.parameters + LAYERS * WIDE * 2);
    CHECK_EQ(mixed.optimizer_state, full.optimizer_state);
    CHECK(mixed.activations <= full.activations * 2 / 3);
}

TEST_MAIN

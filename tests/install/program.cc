// SPDX-License-Identifier: Apache-2.0
// The headers are C++17 too: a module, with a vtable, a layer, a logged value and sizes of the run.
#include <lightc/lightc.h>
#include <cstdio>

struct net {
    lc_module base;
    lc_linear l;
};

static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t)
{
    net *m = reinterpret_cast<net *>(self);
    lc_tensor *y = lc_reshape(lc_linear_forward(&m->l, batch->x), batch->size, 1);
    lc_tensor *loss = lc_mse_loss(y, batch->y);
    lc_log(self, "train_loss", loss, .prog_bar = true);
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *o)
{
    return lc_optimizers_add(o, lc_sgd(self, .lr = 0.1));
}

static lc_array column(const char *name, const float *data)
{
    lc_array a = {};
    a.field.name = name;
    a.field.dtype = LC_F32;
    a.field.ndim = 1;
    a.field.shape[0] = 1;
    a.data = data;
    return a;
}

int main()
{
    static float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    lc_module_ops ops = LC_OPS(lc_module_ops, .name = "net", .training_step = training_step,
                               .configure_optimizers = configure_optimizers);
    net m = {};
    lc_dataset *data = nullptr;
    lc_dataloader *loader = nullptr;
    lc_trainer *t = nullptr;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.l, &m.base, "l", 1, 1);
    const lc_array arrays[] = {column("x", x), column("y", y)};
    LC_MAIN_TRY(lc_array_dataset_new(8, 2, arrays, &data));
    LC_MAIN_TRY(lc_dataloader_new(&loader, .dataset = data, .batch_size = 4));
    opt.barebones = true;
    opt.max_epochs = 1;
    LC_MAIN_TRY(lc_trainer_new(&opt, &t));
    LC_MAIN_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_dataset_unref(data);
    lc_module_release(&m.base);
    return 0;
}

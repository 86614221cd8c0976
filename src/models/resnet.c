/* SPDX-License-Identifier: Apache-2.0 */
/* ResNets: torchvision's, and that of section 4.2 for small pictures. To add one: a line of `kinds`. */
#include "nn/nn_internal.h"

#include <lightc/models.h>

typedef struct kind {
    int depth, n_stages, blocks[4];
    int64_t width; /* channels of the first stage, before bottlenecks widen them; the next stages have twice as many */
    bool bottleneck;
    bool plain; /* shortcuts without parameters, and the small stem */
} kind;

static const kind kinds[] = {
    {.depth = 18, .n_stages = 4, .blocks = {2, 2, 2, 2}, .width = 64},
    {.depth = 20, .n_stages = 3, .blocks = {3, 3, 3}, .width = 16, .plain = true},
    {.depth = 34, .n_stages = 4, .blocks = {3, 4, 6, 3}, .width = 64},
    {.depth = 50, .n_stages = 4, .blocks = {3, 4, 6, 3}, .width = 64, .bottleneck = true},
    {.depth = 101, .n_stages = 4, .blocks = {3, 4, 23, 3}, .width = 64, .bottleneck = true},
};

/* ---- a block ---- */

enum { EXPANSION = 4 }; /* of a bottleneck's last convolution */

typedef struct block {
    lc_module base;
    lc_conv2d conv[3];
    lc_batch_norm2d bn[3];
    lc_sequential downsample;
    int n; /* convolutions */
    int64_t in, out, stride;
    bool plain;
} block;

/* A convolution without bias, with kaiming_normal_(mode="fan_out", nonlinearity="relu"). */
static void conv_init(lc_conv2d *c, void *parent, const char *name, int64_t in, int64_t out, int64_t kernel,
                      int64_t stride, lc_dtype dtype)
{
    if (!c) return; /* the sequential has kept the error */
    lc_conv2d_init(c, parent, name, in, out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = true,
                   .dtype = dtype);
    if (!c->weight) return;
    lc_init init = {.kind = LC_INIT_KAIMING_NORMAL, .fan_in = out * kernel * kernel};
    lc_module_reset_parameter(&c->base, "weight", init);
}

static bool changes_shape(const block *b)
{
    return b->stride != 1 || b->in != b->out;
}

/* The input as the block's result is shaped. */
static lc_tensor *shortcut(block *b, lc_tensor *x, lc_site site)
{
    if (!changes_shape(b)) return x;
    if (!b->plain) return lc_sequential_forward_at(&b->downsample, x, site);
    lc_pool_args every_second = lc_pool_defaults();
    every_second.kernel = 1;
    every_second.stride = LC_DIMS(b->stride);
    const int64_t more = b->out - b->in, pad[] = {0, 0, 0, 0, more / 2, more - more / 2};
    return lc_pad_at(lc_max_pool2d_at(x, &every_second, site), 0, 6, pad, site);
}

static lc_tensor *block_forward(lc_module *self, lc_tensor *x, lc_site site) /* [N,in,H,W] -> [N,out,H,W / stride] */
{
    block *b = (block *)self;
    lc_tensor *y = x;
    for (int i = 0; i < b->n; i++) {
        y = lc_batch_norm_forward_at(&b->bn[i], lc_conv_forward_at(&b->conv[i], y, site), site);
        if (i < b->n - 1) y = lc_relu_at(y, site);
    }
    return lc_relu_at(lc_add_at(y, shortcut(b, x, site), site), site);
}

static void block_init(block *b, void *parent, const char *name, const kind *k, int64_t in, int64_t width,
                       int64_t stride, lc_dtype dtype)
{
    static const char *const conv_names[] = {"conv1", "conv2", "conv3"}, *const bn_names[] = {"bn1", "bn2", "bn3"};
    LC_LAYER_BEGIN(b, parent, name, k->bottleneck ? "Bottleneck" : "BasicBlock", block_forward);
    b->n = k->bottleneck ? 3 : 2;
    b->in = in;
    b->out = k->bottleneck ? width * EXPANSION : width;
    b->stride = stride;
    b->plain = k->plain;
    for (int i = 0; i < b->n; i++) {
        bool strided = i == b->n - 2; /* the first of two, the middle of three */
        int64_t from = i ? width : in, to = i < b->n - 1 ? width : b->out;
        conv_init(&b->conv[i], b, conv_names[i], from, to, k->bottleneck && i != 1 ? 1 : 3, strided ? stride : 1,
                  dtype);
        lc_batch_norm2d_init(&b->bn[i], b, bn_names[i], to, .dtype = dtype);
    }
    if (b->plain || !changes_shape(b)) return;
    lc_sequential *d = &b->downsample;
    lc_sequential_init(d, b, "downsample");
    conv_init(lc_sequential_slot(d, sizeof(lc_conv2d)), d, d->next, in, b->out, 1, stride, dtype);
    lc_sequential_add(d, lc_batch_norm2d, b->out, .dtype = dtype);
}

/* ---- the network ---- */

static lc_tensor *forward(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_resnet_forward_at((lc_resnet *)self, x, site);
}

static const kind *kind_of(int depth)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].depth == depth) return &kinds[i];
    return NULL;
}

static void stages_init(lc_resnet *l, const kind *k, lc_dtype dtype)
{
    static const char *const names[] = {"layer1", "layer2", "layer3", "layer4"};
    int64_t width = k->width, in = width;
    for (int s = 0; s < k->n_stages; s++, width *= 2) {
        lc_sequential *stage = &l->layers[s];
        lc_sequential_init(stage, l, names[s]);
        for (int i = 0; i < k->blocks[s]; i++) {
            block *b = lc_sequential_slot(stage, sizeof *b);
            block_init(b, stage, stage->next, k, in, width, s && !i ? 2 : 1, dtype);
            in = k->bottleneck ? width * EXPANSION : width;
        }
    }
    l->num_features = in;
}

void lc_resnet_init_with(lc_resnet *l, int depth, void *parent, const char *name, const lc_resnet_init_args *options)
{
    const kind *k = kind_of(depth);
    LC_LAYER_OPTIONS(o, lc_resnet_init, lc_resnet_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, "ResNet", forward);
    if (!k || o.num_classes < 0) {
        lc_module_fail(
            &l->base, LC_ERR_ARGUMENT,
            "a ResNet of depth %d with num_classes %lld: depth must be 18, 20, 34, 50 or 101, and num_classes "
            "not negative",
            depth, (long long)o.num_classes);
        return;
    }
    l->depth = depth;
    l->n_stages = k->n_stages;
    l->num_classes = o.num_classes;
    l->small_stem = o.small_stem || k->plain;
    conv_init(&l->conv1, l, "conv1", 3, k->width, l->small_stem ? 3 : 7, l->small_stem ? 1 : 2, o.dtype);
    lc_batch_norm2d_init(&l->bn1, l, "bn1", k->width, .dtype = o.dtype);
    stages_init(l, k, o.dtype);
    if (l->num_classes) lc_linear_init(&l->fc, l, "fc", l->num_features, l->num_classes, .dtype = o.dtype);
}

lc_tensor *lc_resnet_forward_at(lc_resnet *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "resnet", "lc_resnetN_init", site);
    x = lc_relu_at(lc_batch_norm_forward_at(&l->bn1, lc_conv_forward_at(&l->conv1, x, site), site), site);
    if (!l->small_stem) {
        lc_pool_args halved = lc_pool_defaults();
        halved.kernel = 3;
        halved.stride = LC_DIMS(2);
        halved.padding = LC_DIMS(1);
        x = lc_max_pool2d_at(x, &halved, site);
    }
    for (int s = 0; s < l->n_stages; s++) x = lc_sequential_forward_at(&l->layers[s], x, site);
    x = lc_flatten_at(lc_adaptive_avg_pool2d_at(x, 1, 1, site), 1, site);
    return l->num_classes ? lc_linear_forward_at(&l->fc, x, site) : x;
}

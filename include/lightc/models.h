/* SPDX-License-Identifier: Apache-2.0 */
/* Models: whole networks, made of the layers of nn.h and used like them.
 *
 *     lc_resnet18_init(&m->net, m, "net", 10, .small_stem = true);
 *     logits = lc_resnet_forward(&m->net, x);                                 x [N,3,H,W], logits [N,10]
 *
 * Parameters and buffers have torchvision's names, shapes and initial distributions, so weights go there and back
 * (weights.h). Errors, freeing, and training and evaluation mode are those of layers.
 *
 * To add one: a file of src/models/. */
#ifndef LIGHTC_MODELS_H
#define LIGHTC_MODELS_H

#include <lightc/nn.h>

/* ---- ResNet (He et al., "Deep residual learning for image recognition") ----
 * conv1, bn1, stages layer1, layer2, ... of blocks 0, 1, ..., the mean over all pixels, and fc. A block has conv1, bn1,
 * conv2, bn2, in bottlenecks conv3 and bn3, and, where its shape changes, downsample.0 and downsample.1.
 *
 *              blocks        parameters with 1000 classes (resnet20: 10)      num_features
 *  resnet18    2 2 2 2       11.7 million                                     512
 *  resnet34    3 4 6 3       21.8 million                                     512
 *  resnet50    3 4 6 3       25.6 million, bottlenecks                        2048
 *  resnet101   3 4 23 3      44.5 million, bottlenecks                        2048
 *  resnet20    3 3 3         0.27 million, for 32 x 32 (section 4.2)          64
 *
 * Bottlenecks have the stride in their 3 x 3 convolution, as torchvision's. ResNet-20 has three stages of 16, 32 and 64
 * channels, and shortcuts without parameters: every second pixel, and zeros for new channels. */
typedef struct lc_resnet {
    lc_module base;
    lc_conv2d conv1;
    lc_batch_norm2d bn1;
    lc_sequential layers[4]; /* "layer1", ... */
    lc_linear fc;            /* unless num_classes is 0 */
    int depth, n_stages;     /* 18, 4 */
    int64_t num_classes;
    int64_t num_features; /* channels of the last stage */
    bool small_stem;
    void *reserved[2];
} lc_resnet;
typedef lc_resnet lc_resnet18, lc_resnet20, lc_resnet34, lc_resnet50, lc_resnet101;
typedef struct lc_resnet_init_args {
    size_t size;
    int64_t num_classes; /* 0: no fc; the result is what fc would get, [N, num_features] */
    bool small_stem;     /* conv1 is 3 x 3 with stride 1, and no pooling follows it: for pictures of about 32 x 32.
                            ResNet-20 always has it */
    lc_dtype dtype;
} lc_resnet_init_args;
LC_DEFAULTS(lc_resnet_init, lc_resnet_init_args, )
#define LC_RESNET_INIT(l, depth, parent, name, ...)                                                                    \
    LC_CALL_INIT(lc_resnet_init, lc_resnet_init_args, (l, depth, parent, name, ), .num_classes = __VA_ARGS__)
/* (model, parent, name, num_classes, options...) */
#define lc_resnet18_init(l, parent, name, ...)  LC_RESNET_INIT(l, 18, parent, name, __VA_ARGS__)
#define lc_resnet20_init(l, parent, name, ...)  LC_RESNET_INIT(l, 20, parent, name, __VA_ARGS__)
#define lc_resnet34_init(l, parent, name, ...)  LC_RESNET_INIT(l, 34, parent, name, __VA_ARGS__)
#define lc_resnet50_init(l, parent, name, ...)  LC_RESNET_INIT(l, 50, parent, name, __VA_ARGS__)
#define lc_resnet101_init(l, parent, name, ...) LC_RESNET_INIT(l, 101, parent, name, __VA_ARGS__)
#define lc_resnet_forward(l, x)                 lc_resnet_forward_at(l, x, LC_HERE)

LC_BEGIN_DECLS
/* depth: 18, 20, 34, 50 or 101. */
LC_API void lc_resnet_init_with(lc_resnet *l, int depth, void *parent, const char *name,
                                const lc_resnet_init_args *options);
/* x [N,3,H,W] -> [N,num_classes], or [N,num_features] without fc. */
LC_API lc_tensor *lc_resnet_forward_at(lc_resnet *l, lc_tensor *x, lc_site site);
LC_END_DECLS

#endif

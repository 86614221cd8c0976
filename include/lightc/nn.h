/* SPDX-License-Identifier: Apache-2.0 */
/* Layers: the modules of torch.nn under the same names, with the same parameters, shapes, defaults and initial
 * distributions, so that weights go to PyTorch and back by load_state_dict.
 *
 * A layer is a struct that the user embeds; lc_X_init registers it under a name in its parent and lc_X_forward records
 * its operations:
 *
 *     lc_conv2d_init(&m->conv1, m, "conv1", 1, 32, 3, .padding = 1);
 *     ...
 *     x = lc_relu(lc_conv2d_forward(&m->conv1, x));
 *
 * Optional arguments have names, and PyTorch's defaults (args.h). Errors are kept by the root module
 * (lc_module_status). Layers are freed with their root (lc_module_release). Layers with one input can also be called
 * with lc_forward and put into an lc_sequential.
 *
 * The names of types and of operators coincide (lc_linear, lc_dropout): operators are macros with arguments.
 *
 * To add one: a struct that starts with lc_module, lc_X_init_with, lc_X_forward_at, in a file of src/nn/. */
#ifndef LIGHTC_NN_H
#define LIGHTC_NN_H

#include <lightc/comm.h>
#include <lightc/module.h>
#include <lightc/ops_types.h>

/* ---- Linear: y = x W^T + b.  weight [out, in], bias [out] ---- */
typedef struct lc_linear {
    lc_module base;
    lc_tensor *weight, *bias;
    int64_t in_features, out_features;
    void *reserved[2];
} lc_linear;
typedef struct lc_linear_init_args {
    size_t size;
    int64_t out_features;
    bool no_bias;
    lc_dtype dtype;
} lc_linear_init_args;
LC_DEFAULTS(lc_linear_init, lc_linear_init_args, )
#define lc_linear_init(l, parent, name, in_features, ...)                                                              \
    LC_CALL_INIT(lc_linear_init, lc_linear_init_args, (l, parent, name, in_features, ), .out_features = __VA_ARGS__)
#define lc_linear_forward(l, x) lc_linear_forward_at(l, x, LC_HERE)

/* ---- Conv1d/2d/3d and ConvTranspose1d/2d/3d ----
 * weight [out, in/groups, k...] (transposed: [in, out/groups, k...]), bias [out]. One number holds for all dimensions;
 * the plural lists override it where dimensions differ: kernel_size 0, .kernel_sizes = LC_DIMS(1, 7). */
typedef struct lc_conv {
    lc_module base;
    lc_tensor *weight, *bias;
    int nd;
    bool transposed;
    int64_t in_channels, out_channels, groups;
    int64_t kernel[3], stride[3], padding[3], dilation[3], output_padding[3];
    void *reserved[2];
} lc_conv;
typedef lc_conv lc_conv1d, lc_conv2d, lc_conv3d, lc_conv_transpose1d, lc_conv_transpose2d, lc_conv_transpose3d;
typedef struct lc_conv_init_args {
    size_t size;
    int64_t kernel_size, stride, padding, dilation, groups, output_padding;
    lc_dims kernel_sizes, strides, paddings, dilations, output_paddings;
    bool no_bias;
    lc_dtype dtype;
} lc_conv_init_args;
LC_DEFAULTS(lc_conv_init, lc_conv_init_args, .stride = 1, .dilation = 1, .groups = 1)
#define LC_CONV_INIT(l, nd, transposed, parent, name, in, out, ...)                                                    \
    LC_CALL_INIT(lc_conv_init, lc_conv_init_args, (l, nd, transposed, parent, name, in, out, ),                        \
                 .kernel_size = __VA_ARGS__)
/* (layer, parent, name, in_channels, out_channels, kernel_size, options...) */
#define lc_conv1d_init(l, parent, name, in, out, ...) LC_CONV_INIT(l, 1, false, parent, name, in, out, __VA_ARGS__)
#define lc_conv2d_init(l, parent, name, in, out, ...) LC_CONV_INIT(l, 2, false, parent, name, in, out, __VA_ARGS__)
#define lc_conv3d_init(l, parent, name, in, out, ...) LC_CONV_INIT(l, 3, false, parent, name, in, out, __VA_ARGS__)
#define lc_conv_transpose1d_init(l, parent, name, in, out, ...)                                                        \
    LC_CONV_INIT(l, 1, true, parent, name, in, out, __VA_ARGS__)
#define lc_conv_transpose2d_init(l, parent, name, in, out, ...)                                                        \
    LC_CONV_INIT(l, 2, true, parent, name, in, out, __VA_ARGS__)
#define lc_conv_transpose3d_init(l, parent, name, in, out, ...)                                                        \
    LC_CONV_INIT(l, 3, true, parent, name, in, out, __VA_ARGS__)
#define lc_conv1d_forward(l, x)           lc_conv_forward_at(l, x, LC_HERE)
#define lc_conv2d_forward(l, x)           lc_conv_forward_at(l, x, LC_HERE)
#define lc_conv3d_forward(l, x)           lc_conv_forward_at(l, x, LC_HERE)
#define lc_conv_transpose1d_forward(l, x) lc_conv_forward_at(l, x, LC_HERE)
#define lc_conv_transpose2d_forward(l, x) lc_conv_forward_at(l, x, LC_HERE)
#define lc_conv_transpose3d_forward(l, x) lc_conv_forward_at(l, x, LC_HERE)

/* ---- BatchNorm1d/2d/3d ----
 * weight, bias [C]; buffers running_mean, running_var [C], num_batches_tracked [] i64. In training mode it normalizes
 * by the batch and updates the buffers; in evaluation mode it uses them. momentum is a number: PyTorch's None, for a
 * cumulative average, is not supported. */
typedef struct lc_batch_norm_layer {
    lc_module base;
    lc_tensor *weight, *bias, *running_mean, *running_var, *num_batches_tracked;
    int nd;
    int64_t num_features;
    double eps, momentum;
    bool no_tracking; /* training leaves running_mean and running_var unchanged (track_running_stats = False, later) */
    lc_comm *comm;    /* lc_sync_batch_norm; NULL: none */
    void *reserved[2];
} lc_batch_norm_layer;
typedef lc_batch_norm_layer lc_batch_norm1d, lc_batch_norm2d, lc_batch_norm3d;
typedef struct lc_batch_norm_init_args {
    size_t size;
    int64_t num_features;
    double eps, momentum;
    bool no_affine, no_track_running_stats;
    lc_dtype dtype;
} lc_batch_norm_init_args;
LC_DEFAULTS(lc_batch_norm_init, lc_batch_norm_init_args, .eps = 1e-5, .momentum = 0.1)
#define LC_BATCH_NORM_INIT(l, nd, parent, name, ...)                                                                   \
    LC_CALL_INIT(lc_batch_norm_init, lc_batch_norm_init_args, (l, nd, parent, name, ), .num_features = __VA_ARGS__)
#define lc_batch_norm1d_init(l, parent, name, ...) LC_BATCH_NORM_INIT(l, 1, parent, name, __VA_ARGS__)
#define lc_batch_norm2d_init(l, parent, name, ...) LC_BATCH_NORM_INIT(l, 2, parent, name, __VA_ARGS__)
#define lc_batch_norm3d_init(l, parent, name, ...) LC_BATCH_NORM_INIT(l, 3, parent, name, __VA_ARGS__)
#define lc_batch_norm1d_forward(l, x)              lc_batch_norm_forward_at(l, x, LC_HERE)
#define lc_batch_norm2d_forward(l, x)              lc_batch_norm_forward_at(l, x, LC_HERE)
#define lc_batch_norm3d_forward(l, x)              lc_batch_norm_forward_at(l, x, LC_HERE)

/* ---- LayerNorm, RMSNorm over the last dimensions; GroupNorm ---- */
typedef struct lc_norm_layer {
    lc_module base;
    lc_tensor *weight, *bias; /* RMSNorm has no bias */
    int ndim;                 /* normalized dimensions */
    int64_t shape[LC_MAX_DIMS];
    int64_t groups; /* GroupNorm */
    double eps;
    void *reserved[2];
} lc_norm_layer;
typedef lc_norm_layer lc_layer_norm, lc_rms_norm, lc_group_norm;
typedef struct lc_norm_init_args {
    size_t size;
    int64_t features; /* normalized_shape of one dimension; GroupNorm: num_channels */
    lc_dims shape;    /* several dimensions: features 0, .shape = LC_DIMS(8, 8); not of GroupNorm */
    double eps;       /* RMSNorm: -1 is the smallest step of the data type at 1 */
    bool no_affine, no_bias;
    lc_dtype dtype;
} lc_norm_init_args;
LC_DEFAULTS(lc_layer_norm_init, lc_norm_init_args, .eps = 1e-5)
LC_DEFAULTS(lc_group_norm_init, lc_norm_init_args, .eps = 1e-5)
LC_DEFAULTS(lc_rms_norm_init, lc_norm_init_args, .eps = -1)
#define lc_layer_norm_init(l, parent, name, ...)                                                                       \
    LC_CALL_INIT(lc_layer_norm_init, lc_norm_init_args, (l, parent, name, ), .features = __VA_ARGS__)
#define lc_rms_norm_init(l, parent, name, ...)                                                                         \
    LC_CALL_INIT(lc_rms_norm_init, lc_norm_init_args, (l, parent, name, ), .features = __VA_ARGS__)
#define lc_group_norm_init(l, parent, name, num_groups, ...)                                                           \
    LC_CALL_INIT(lc_group_norm_init, lc_norm_init_args, (l, parent, name, num_groups, ), .features = __VA_ARGS__)
#define lc_layer_norm_forward(l, x) lc_layer_norm_forward_at(l, x, LC_HERE)
#define lc_rms_norm_forward(l, x)   lc_rms_norm_forward_at(l, x, LC_HERE)
#define lc_group_norm_forward(l, x) lc_group_norm_forward_at(l, x, LC_HERE)

/* ---- Embedding: weight [num_embeddings, embedding_dim]; ids of any shape ---- */
typedef struct lc_embedding {
    lc_module base;
    lc_tensor *weight;
    int64_t num_embeddings, embedding_dim;
    int64_t padding_idx; /* -1: none */
    void *reserved[2];
} lc_embedding;
typedef struct lc_embedding_init_args {
    size_t size;
    int64_t embedding_dim;
    int64_t padding_idx; /* negative: from the end; LC_UNSET: none */
    lc_dtype dtype;
} lc_embedding_init_args;
LC_DEFAULTS(lc_embedding_init, lc_embedding_init_args, .padding_idx = LC_UNSET)
#define lc_embedding_init(l, parent, name, num_embeddings, ...)                                                        \
    LC_CALL_INIT(lc_embedding_init, lc_embedding_init_args, (l, parent, name, num_embeddings, ),                       \
                 .embedding_dim = __VA_ARGS__)
#define lc_embedding_forward(l, ids) lc_embedding_forward_at(l, ids, LC_HERE)

/* ---- Dropout: the identity in evaluation mode ---- */
typedef struct lc_dropout {
    lc_module base;
    double p;
    void *reserved[2];
} lc_dropout;
#define lc_dropout_init(l, parent, name, p) lc_dropout_init_with(l, parent, name, p)
#define lc_dropout_forward(l, x)            lc_dropout_forward_at(l, x, LC_HERE)

/* ---- pooling ---- */
typedef struct lc_pool {
    lc_module base;
    int kind;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode, exclude_pad;
    int64_t divisor;
    void *reserved[2];
} lc_pool;
typedef lc_pool lc_max_pool2d, lc_avg_pool2d, lc_adaptive_avg_pool2d;
typedef struct lc_pool_init_args {
    size_t size;
    int64_t kernel_size, stride, padding, dilation; /* stride: by default the kernel size */
    lc_dims kernel_sizes, strides, paddings, dilations;
    bool ceil_mode, exclude_pad; /* exclude_pad: count_include_pad=False */
    int64_t divisor_override;
} lc_pool_init_args;
LC_DEFAULTS(lc_pool_init, lc_pool_init_args, .stride = LC_UNSET, .dilation = 1)
enum { LC_POOL_MAX = 0, LC_POOL_AVG = 1, LC_POOL_ADAPTIVE_AVG = 2 };
/* (layer, parent, name, kernel_size, options...); adaptive: (layer, parent, name, output_size) or .kernel_sizes */
#define lc_max_pool2d_init(l, parent, name, ...)                                                                       \
    LC_CALL_INIT(lc_pool_init, lc_pool_init_args, (l, LC_POOL_MAX, parent, name, ), .kernel_size = __VA_ARGS__)
#define lc_avg_pool2d_init(l, parent, name, ...)                                                                       \
    LC_CALL_INIT(lc_pool_init, lc_pool_init_args, (l, LC_POOL_AVG, parent, name, ), .kernel_size = __VA_ARGS__)
#define lc_adaptive_avg_pool2d_init(l, parent, name, ...)                                                              \
    LC_CALL_INIT(lc_pool_init, lc_pool_init_args, (l, LC_POOL_ADAPTIVE_AVG, parent, name, ), .kernel_size = __VA_ARGS__)
#define lc_max_pool2d_forward(l, x)          lc_pool_forward_at(l, x, LC_HERE)
#define lc_avg_pool2d_forward(l, x)          lc_pool_forward_at(l, x, LC_HERE)
#define lc_adaptive_avg_pool2d_forward(l, x) lc_pool_forward_at(l, x, LC_HERE)

/* ---- activations and Flatten as modules, for lc_sequential ---- */
#define LC_ACTIVATION_LIST(X)                                                                                          \
    X(LC_ACT_RELU, "ReLU")                                                                                             \
    X(LC_ACT_TANH, "Tanh")                                                                                             \
    X(LC_ACT_SIGMOID, "Sigmoid")                                                                                       \
    X(LC_ACT_GELU, "GELU")                                                                                             \
    X(LC_ACT_GELU_TANH, "GELU")                                                                                        \
    X(LC_ACT_SILU, "SiLU")                                                                                             \
    X(LC_ACT_LEAKY_RELU, "LeakyReLU")                                                                                  \
    X(LC_ACT_ELU, "ELU")                                                                                               \
    X(LC_ACT_RELU6, "ReLU6")                                                                                           \
    X(LC_ACT_HARDSWISH, "Hardswish")                                                                                   \
    X(LC_ACT_HARDSIGMOID, "Hardsigmoid")                                                                               \
    X(LC_ACT_SOFTPLUS, "Softplus")                                                                                     \
    X(LC_ACT_SOFTSIGN, "Softsign")                                                                                     \
    X(LC_ACT_MISH, "Mish")                                                                                             \
    X(LC_ACT_LOGSIGMOID, "LogSigmoid")                                                                                 \
    X(LC_ACT_SOFTMAX, "Softmax")                                                                                       \
    X(LC_ACT_LOG_SOFTMAX, "LogSoftmax")
typedef enum lc_activation_kind {
#define LC_ACTIVATION_ENUM(id, name) id,
    LC_ACTIVATION_LIST(LC_ACTIVATION_ENUM)
#undef LC_ACTIVATION_ENUM
} lc_activation_kind;
typedef struct lc_activation {
    lc_module base;
    lc_activation_kind kind;
    double a; /* leaky_relu: negative_slope; elu: alpha */
    int dim;  /* softmax, log_softmax */
    void *reserved[2];
} lc_activation;
typedef struct lc_activation_init_args {
    size_t size;
    lc_activation_kind kind;
    double a; /* leaky_relu: negative_slope, default 0.01; elu: alpha, default 1 */
    int dim;  /* softmax, log_softmax; default: the last */
} lc_activation_init_args;
LC_DEFAULTS(lc_activation_init, lc_activation_init_args, .a = LC_NOT_GIVEN, .dim = -1)
/* lc_activation_init(&m->act, m, "act", LC_ACT_LEAKY_RELU, .a = 0.2) */
#define lc_activation_init(l, parent, name, ...)                                                                       \
    LC_CALL_INIT(lc_activation_init, lc_activation_init_args, (l, parent, name, ), .kind = __VA_ARGS__)
#define lc_activation_forward(l, x) lc_activation_forward_at(l, x, LC_HERE)

typedef struct lc_flatten {
    lc_module base;
    int start_dim;
    void *reserved[2];
} lc_flatten;
#define lc_flatten_init(l, parent, name, start_dim) lc_flatten_init_with(l, parent, name, start_dim)
#define lc_flatten_forward(l, x)                    lc_flatten_forward_at(l, x, LC_HERE)

/* ---- MultiheadAttention ----
 * in_proj_weight [3E, E], in_proj_bias [3E], out_proj.weight [E, E], out_proj.bias [E]. Tensors are [B, S, E] unless
 * seq_first ([S, B, E], PyTorch's batch_first=False). */
typedef struct lc_multihead_attention {
    lc_module base;
    lc_tensor *in_proj_weight, *in_proj_bias;
    lc_linear out_proj;
    int64_t embed_dim, num_heads;
    double dropout;
    bool seq_first;
    void *reserved[2];
} lc_multihead_attention;
typedef struct lc_multihead_attention_init_args {
    size_t size;
    int64_t num_heads;
    bool no_bias, seq_first;
    double dropout; /* of the attention weights, in training */
    lc_dtype dtype;
} lc_multihead_attention_init_args;
LC_DEFAULTS(lc_multihead_attention_init, lc_multihead_attention_init_args, )
typedef struct lc_multihead_attention_forward_args {
    size_t size;
    lc_tensor *query, *key, *value; /* key, value NULL: self-attention */
    /* [S, T], or [B, heads, S, T]: added to the scores, or bool, true = attend, as in lc_sdpa (and the reverse of
     * torch.nn.MultiheadAttention) */
    lc_tensor *attn_mask;
    bool causal;
} lc_multihead_attention_forward_args;
LC_DEFAULTS(lc_multihead_attention_forward, lc_multihead_attention_forward_args, )
#define lc_multihead_attention_init(l, parent, name, embed_dim, ...)                                                   \
    LC_CALL_INIT(lc_multihead_attention_init, lc_multihead_attention_init_args, (l, parent, name, embed_dim, ),        \
                 .num_heads = __VA_ARGS__)
/* lc_multihead_attention_forward(&m->attn, x, .causal = true); (&m->attn, q, .key = k, .value = v) */
#define lc_multihead_attention_forward(l, ...)                                                                         \
    LC_CALL_(LC_UNIQUE_, lc_multihead_attention_forward_args, lc_multihead_attention_forward_defaults(),               \
             lc_multihead_attention_forward_at, (l, ), (, LC_HERE), .query = __VA_ARGS__, )

/* ---- LSTM, GRU ----
 * weight_ih_l0 [4H, I] (GRU: [3H, I]), weight_hh_l0 [4H, H], bias_ih_l0, bias_hh_l0 [4H]; further layers _l1, ...; the
 * other direction _l0_reverse. Input [B, S, I] unless seq_first ([S, B, I], PyTorch's default); results
 * [B, S, H * directions]; h and c [layers * directions, B, H]. */
#define LC_RNN_MAX_LAYERS 16
typedef struct lc_rnn {
    lc_module base;
    bool gru, bidirectional, seq_first, has_bias;
    int64_t input_size, hidden_size;
    int num_layers;
    double dropout;
    lc_tensor *weight_ih[2 * LC_RNN_MAX_LAYERS],
        *weight_hh[2 * LC_RNN_MAX_LAYERS]; /* [layer * directions + direction] */
    lc_tensor *bias_ih[2 * LC_RNN_MAX_LAYERS], *bias_hh[2 * LC_RNN_MAX_LAYERS];
    void *reserved[2];
} lc_rnn;
typedef lc_rnn lc_lstm, lc_gru;
typedef struct lc_rnn_init_args {
    size_t size;
    int64_t hidden_size;
    int num_layers;
    bool no_bias, bidirectional, seq_first;
    double dropout; /* between layers, in training */
    lc_dtype dtype;
} lc_rnn_init_args;
LC_DEFAULTS(lc_rnn_init, lc_rnn_init_args, .num_layers = 1)
typedef struct lc_rnn_forward_args {
    size_t size;
    lc_tensor *x;
    lc_tensor *h0, *c0;   /* NULL: zeros */
    lc_tensor **hn, **cn; /* receive the last states; NULL: not wanted */
} lc_rnn_forward_args;
LC_DEFAULTS(lc_rnn_forward, lc_rnn_forward_args, )
#define lc_lstm_init(l, parent, name, input_size, ...)                                                                 \
    LC_CALL_INIT(lc_rnn_init, lc_rnn_init_args, (l, false, parent, name, input_size, ), .hidden_size = __VA_ARGS__)
#define lc_gru_init(l, parent, name, input_size, ...)                                                                  \
    LC_CALL_INIT(lc_rnn_init, lc_rnn_init_args, (l, true, parent, name, input_size, ), .hidden_size = __VA_ARGS__)
/* y = lc_lstm_forward(&m->lstm, x, .hn = &h) */
#define lc_lstm_forward(l, ...)                                                                                        \
    LC_CALL_(LC_UNIQUE_, lc_rnn_forward_args, lc_rnn_forward_defaults(), lc_rnn_forward_at, (l, ), (, LC_HERE),        \
             .x = __VA_ARGS__, )
#define lc_gru_forward(l, ...)                                                                                         \
    LC_CALL_(LC_UNIQUE_, lc_rnn_forward_args, lc_rnn_forward_defaults(), lc_rnn_forward_at, (l, ), (, LC_HERE),        \
             .x = __VA_ARGS__, )

/* ---- Sequential: children "0", "1", ... ----
 *     lc_sequential_init(&m->net, m, "net");
 *     lc_sequential_add(&m->net, lc_linear, 784, 128);
 *     lc_sequential_add(&m->net, lc_activation, LC_ACT_RELU);
 *     lc_sequential_add(&m->net, lc_linear, 128, 10, .no_bias = true);
 *     y = lc_forward(&m->net, x);
 * The sequential allocates and frees these layers. lc_sequential_add is lc_sequential_slot followed by LAYER_init: a
 * layer type of your own works too if it has a LAYER_init macro or function of the form (layer, parent, name, ...). */
typedef struct lc_sequential {
    lc_module base;
    void **layers; /* owned */
    int n_layers;
    char next[16]; /* name of the layer being added */
    void *reserved[2];
} lc_sequential;
#define lc_sequential_add(seq, layer, ...)                                                                             \
    layer##_init(LC_CAST_(layer *, lc_sequential_slot(seq, sizeof(layer))), seq, (seq)->next, __VA_ARGS__)
#define lc_sequential_forward(seq, x) lc_sequential_forward_at(seq, x, LC_HERE)

LC_BEGIN_DECLS

LC_API void lc_linear_init_with(lc_linear *l, void *parent, const char *name, int64_t in_features,
                                const lc_linear_init_args *options);
LC_API lc_tensor *lc_linear_forward_at(lc_linear *l, lc_tensor *x, lc_site site); /* [..., in] -> [..., out] */

LC_API void lc_conv_init_with(lc_conv *l, int nd, bool transposed, void *parent, const char *name, int64_t in_channels,
                              int64_t out_channels, const lc_conv_init_args *options);
LC_API lc_tensor *lc_conv_forward_at(lc_conv *l, lc_tensor *x, lc_site site); /* [N, C, *] */

LC_API void lc_batch_norm_init_with(lc_batch_norm_layer *l, int nd, void *parent, const char *name,
                                    const lc_batch_norm_init_args *options);
LC_API lc_tensor *lc_batch_norm_forward_at(lc_batch_norm_layer *l, lc_tensor *x, lc_site site);
/* From now on, in training, every batch norm layer from `root` down uses the statistics of all ranks of `comm`, which
 * must outlive that use; NULL: of its own rank again (SyncBatchNorm.convert_sync_batchnorm; lc_batch_norm_args.comm).
 * Returns how many layers there are. With a trainer: the option sync_batchnorm. */
LC_API int lc_sync_batch_norm(lc_module *root, lc_comm *comm);

LC_API void lc_layer_norm_init_with(lc_norm_layer *l, void *parent, const char *name, const lc_norm_init_args *options);
LC_API void lc_rms_norm_init_with(lc_norm_layer *l, void *parent, const char *name, const lc_norm_init_args *options);
LC_API void lc_group_norm_init_with(lc_norm_layer *l, void *parent, const char *name, int64_t num_groups,
                                    const lc_norm_init_args *options);
LC_API lc_tensor *lc_layer_norm_forward_at(lc_norm_layer *l, lc_tensor *x, lc_site site);
LC_API lc_tensor *lc_rms_norm_forward_at(lc_norm_layer *l, lc_tensor *x, lc_site site);
LC_API lc_tensor *lc_group_norm_forward_at(lc_norm_layer *l, lc_tensor *x, lc_site site);

LC_API void lc_embedding_init_with(lc_embedding *l, void *parent, const char *name, int64_t num_embeddings,
                                   const lc_embedding_init_args *options);
LC_API lc_tensor *lc_embedding_forward_at(lc_embedding *l, lc_tensor *ids, lc_site site);

LC_API void lc_dropout_init_with(lc_dropout *l, void *parent, const char *name, double p);
LC_API lc_tensor *lc_dropout_forward_at(lc_dropout *l, lc_tensor *x, lc_site site);

LC_API void lc_pool_init_with(lc_pool *l, int kind, void *parent, const char *name, const lc_pool_init_args *options);
LC_API lc_tensor *lc_pool_forward_at(lc_pool *l, lc_tensor *x, lc_site site); /* [N, C, H, W] */

LC_API void lc_activation_init_with(lc_activation *l, void *parent, const char *name,
                                    const lc_activation_init_args *options);
LC_API lc_tensor *lc_activation_forward_at(lc_activation *l, lc_tensor *x, lc_site site);
LC_API void lc_flatten_init_with(lc_flatten *l, void *parent, const char *name, int start_dim);
LC_API lc_tensor *lc_flatten_forward_at(lc_flatten *l, lc_tensor *x, lc_site site);

LC_API void lc_multihead_attention_init_with(lc_multihead_attention *l, void *parent, const char *name,
                                             int64_t embed_dim, const lc_multihead_attention_init_args *options);
LC_API lc_tensor *lc_multihead_attention_forward_at(lc_multihead_attention *l,
                                                    const lc_multihead_attention_forward_args *in, lc_site site);

LC_API void lc_rnn_init_with(lc_rnn *l, bool gru, void *parent, const char *name, int64_t input_size,
                             const lc_rnn_init_args *options);
LC_API lc_tensor *lc_rnn_forward_at(lc_rnn *l, const lc_rnn_forward_args *io, lc_site site);

LC_API void lc_sequential_init(lc_sequential *seq, void *parent, const char *name);
/* Zeroed memory for the next layer, named seq->next; NULL if there is none (seq's root keeps the error; the LAYER_init
 * functions accept it). */
LC_API void *lc_sequential_slot(lc_sequential *seq, size_t size);
LC_API lc_tensor *lc_sequential_forward_at(lc_sequential *seq, lc_tensor *x, lc_site site);

LC_END_DECLS

#endif

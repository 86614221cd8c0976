/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of neural networks: products, convolutions, pooling, normalization, attention, recurrence, losses over
 * classes, random numbers. Shapes and numbers are PyTorch's (torch.nn.functional).
 *
 * Every function is a macro that adds the place of the call. Arguments before `...` must be given (bias and weight may
 * be NULL where noted `?`); what follows are named arguments with PyTorch's defaults (args.h):
 *     y = lc_conv2d(x, w, b, .stride = LC_DIMS(2, 1), .padding = LC_DIMS(1));
 * Programs that build calls at run time fill the argument struct and call lc_NAME_at. */
#ifndef LIGHTC_OPS_NN_H
#define LIGHTC_OPS_NN_H

#include <lightc/comm.h>
#include <lightc/ops_types.h>

/* ---- arguments ---- */
typedef struct lc_conv_args {
    size_t size;
    lc_tensor *bias; /* [O], or NULL */
    /* A number for each spatial dimension, or one for all. */
    lc_dims stride;         /* 1 */
    lc_dims padding;        /* zeros on both sides */
    lc_dims dilation;       /* 1 */
    lc_dims output_padding; /* transposed convolutions only: extra size on one side */
    int64_t groups;
} lc_conv_args;
LC_DEFAULTS(lc_conv, lc_conv_args, .groups = 1)

typedef struct lc_pool_args {
    size_t size;
    int64_t kernel;   /* height, and width too unless kernel_w says otherwise */
    int64_t kernel_w; /* 0: kernel */
    /* A number for height and width each, or one for both. */
    lc_dims stride;   /* default: the kernel */
    lc_dims padding;  /* at most half the kernel */
    lc_dims dilation; /* max pooling only; 1 */
    bool ceil_mode;   /* windows may hang over the far edge */
    bool exclude_pad; /* average pooling: padded zeros do not count (count_include_pad=False) */
    int64_t divisor;  /* average pooling: divide by this instead of the window's size; 0: the window's size */
} lc_pool_args;
LC_DEFAULTS(lc_pool, lc_pool_args, )

typedef enum lc_interpolate_mode {
    LC_NEAREST = 0,
    LC_BILINEAR = 1,
} lc_interpolate_mode;

typedef struct lc_interpolate_args {
    size_t size;
    lc_interpolate_mode mode;
    lc_dims output_size; /* height and width of the result, or ... */
    double scale; /* ... a factor, only of the height if scale_w is given. As PyTorch without recompute_scale_factor:
                     positions are computed from the factor, not from the rounded size (except when the size is
                     unchanged, or nearest doubles it) */
    double scale_w;
    bool align_corners; /* bilinear: corner pixels keep their place */
} lc_interpolate_args;
LC_DEFAULTS(lc_interpolate, lc_interpolate_args, )

typedef struct lc_batch_norm_args {
    size_t size;
    lc_tensor *bias;         /* [C], or NULL */
    lc_tensor *running_mean; /* [C] persistent, or NULL: always use the batch's statistics */
    lc_tensor *running_var;
    bool training; /* use the batch's statistics and update the running ones */
    double momentum, eps;
    /* In training, use the statistics of all ranks' samples, however many each has (SyncBatchNorm); collective, also in
     * the backward pass (ops_comm.h). NULL: only of x. */
    lc_comm *comm;
} lc_batch_norm_args;
LC_DEFAULTS(lc_batch_norm, lc_batch_norm_args, .momentum = 0.1, .eps = 1e-5)

typedef struct lc_norm_args {
    size_t size;
    lc_tensor *bias; /* like weight, or NULL */
    int dims;        /* how many trailing dimensions are normalized; 0: those of weight, or 1 */
    double eps;
} lc_norm_args;
LC_DEFAULTS(lc_norm, lc_norm_args, .eps = 1e-5)

typedef struct lc_rms_norm_args {
    size_t size;
    lc_tensor *weight; /* normalized dimensions, or NULL */
    int dims;          /* as in lc_norm_args */
    double eps;        /* -1: the smallest step of the data type at 1 (1.19e-7 for f32), as torch.nn.RMSNorm */
} lc_rms_norm_args;
LC_DEFAULTS(lc_rms_norm, lc_rms_norm_args, .eps = -1)

typedef struct lc_embedding_args {
    size_t size;
    lc_tensor *weight;   /* [V,D] */
    int64_t padding_idx; /* a row that gets no gradient; negative: from the end; LC_UNSET: none */
} lc_embedding_args;
LC_DEFAULTS(lc_embedding, lc_embedding_args, .padding_idx = LC_UNSET)

typedef struct lc_cross_entropy_args {
    size_t size;
    lc_tensor *target;    /* classes: i64 or i32 [N,*]; or probabilities: x's type and shape */
    lc_tensor *weight;    /* [C] per class, or NULL */
    int64_t ignore_index; /* targets equal to it do not count */
    lc_reduction reduction;
    double label_smoothing; /* in [0, 1] */
} lc_cross_entropy_args;
LC_DEFAULTS(lc_cross_entropy, lc_cross_entropy_args, .ignore_index = -100)

typedef struct lc_sdpa_args {
    size_t size;
    lc_tensor *value; /* [..,Sk,Dv] */
    /* Added to the scores (x's type), or bool, true = attend; broadcast to [..,S,Sk]; or NULL. The gradient of an added
     * mask takes memory for all scores. */
    lc_tensor *mask;
    bool causal;  /* query i sees keys 0..i */
    double scale; /* default: 1/sqrt(D) */
} lc_sdpa_args;
LC_DEFAULTS(lc_sdpa, lc_sdpa_args, .scale = LC_NOT_GIVEN)

typedef struct lc_rnn_args {
    size_t size;
    lc_tensor *w_hh; /* [4H,H] (LSTM: gates i,f,g,o) or [3H,H] (GRU: r,z,n) */
    lc_tensor *b_ih; /* [4H] or [3H], or NULL */
    lc_tensor *b_hh;
    lc_tensor *h0;   /* [B,H], or NULL: zeros */
    lc_tensor *c0;   /* LSTM only */
    lc_tensor **h_n; /* if not NULL: receives the last hidden state [B,H] */
    lc_tensor **c_n; /* LSTM only */
} lc_rnn_args;
LC_DEFAULTS(lc_rnn, lc_rnn_args, )

typedef struct lc_random_args {
    size_t size;
    const int64_t *shape;
    lc_dtype dtype;   /* of floating-point numbers; f16 and bf16 are rounded, and so may be `high` */
    double low, high; /* uniform */
    double mean, std; /* normal */
} lc_random_args;
LC_DEFAULTS(lc_random, lc_random_args, .dtype = LC_F32, .high = 1, .std = 1)

LC_BEGIN_DECLS

/* ---- products ---- */
/* As torch.matmul: [..,M,K] x [..,K,N] -> [..,M,N], leading dimensions broadcast; vectors on either side. */
LC_API lc_tensor *lc_matmul_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_matmul(x, y) lc_matmul_at(x, y, LC_HERE)
/* x[..,I] w[O,I] b?[O] -> [..,O] */
LC_API lc_tensor *lc_linear_at(lc_tensor *x, lc_tensor *w, lc_tensor *b, lc_site site);
#define lc_linear(x, w, b) lc_linear_at(x, w, b, LC_HERE)

/* ---- convolutions: x[N,C,*] (or without N), w[O,C/groups,*k], b?[O] ---- */
LC_API lc_tensor *lc_conv1d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site);
LC_API lc_tensor *lc_conv2d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site);
LC_API lc_tensor *lc_conv3d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site);
#define lc_conv1d(x, w, ...) LC_CALL_AT(lc_conv1d, lc_conv, (x, w, ), .bias = __VA_ARGS__)
#define lc_conv2d(x, w, ...) LC_CALL_AT(lc_conv2d, lc_conv, (x, w, ), .bias = __VA_ARGS__)
#define lc_conv3d(x, w, ...) LC_CALL_AT(lc_conv3d, lc_conv, (x, w, ), .bias = __VA_ARGS__)
/* Transposed: w[C,O/groups,*k] */
LC_API lc_tensor *lc_conv_transpose1d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site);
LC_API lc_tensor *lc_conv_transpose2d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site);
LC_API lc_tensor *lc_conv_transpose3d_at(lc_tensor *x, lc_tensor *w, const lc_conv_args *args, lc_site site);
#define lc_conv_transpose1d(x, w, ...) LC_CALL_AT(lc_conv_transpose1d, lc_conv, (x, w, ), .bias = __VA_ARGS__)
#define lc_conv_transpose2d(x, w, ...) LC_CALL_AT(lc_conv_transpose2d, lc_conv, (x, w, ), .bias = __VA_ARGS__)
#define lc_conv_transpose3d(x, w, ...) LC_CALL_AT(lc_conv_transpose3d, lc_conv, (x, w, ), .bias = __VA_ARGS__)

/* ---- pooling and resampling: x[N,C,H,W] or [C,H,W] ---- */
LC_API lc_tensor *lc_max_pool2d_at(lc_tensor *x, const lc_pool_args *args, lc_site site);
LC_API lc_tensor *lc_avg_pool2d_at(lc_tensor *x, const lc_pool_args *args, lc_site site);
#define lc_max_pool2d(x, ...) LC_CALL_AT(lc_max_pool2d, lc_pool, (x, ), .kernel = __VA_ARGS__)
#define lc_avg_pool2d(x, ...) LC_CALL_AT(lc_avg_pool2d, lc_pool, (x, ), .kernel = __VA_ARGS__)
/* x[N,C,L] or [C,L]; the first entry of every argument counts */
LC_API lc_tensor *lc_max_pool1d_at(lc_tensor *x, const lc_pool_args *args, lc_site site);
LC_API lc_tensor *lc_avg_pool1d_at(lc_tensor *x, const lc_pool_args *args, lc_site site);
#define lc_max_pool1d(x, ...) LC_CALL_AT(lc_max_pool1d, lc_pool, (x, ), .kernel = __VA_ARGS__)
#define lc_avg_pool1d(x, ...) LC_CALL_AT(lc_avg_pool1d, lc_pool, (x, ), .kernel = __VA_ARGS__)
/* Mean over a grid of h x w cells; 0 keeps the input's size. */
LC_API lc_tensor *lc_adaptive_avg_pool2d_at(lc_tensor *x, int64_t h, int64_t w, lc_site site);
#define lc_adaptive_avg_pool2d(x, h, w) lc_adaptive_avg_pool2d_at(x, h, w, LC_HERE)
/* lc_interpolate(x, LC_BILINEAR, .output_size = LC_DIMS(7, 9)), lc_interpolate(x, LC_NEAREST, .scale = 2) */
LC_API lc_tensor *lc_interpolate_at(lc_tensor *x, const lc_interpolate_args *args, lc_site site);
#define lc_interpolate(x, ...) LC_CALL_AT(lc_interpolate, lc_interpolate, (x, ), .mode = __VA_ARGS__)
/* [N,C*r*r,H,W] -> [N,C,H*r,W*r], and back */
LC_API lc_tensor *lc_pixel_shuffle_at(lc_tensor *x, int64_t factor, lc_site site);
LC_API lc_tensor *lc_pixel_unshuffle_at(lc_tensor *x, int64_t factor, lc_site site);
#define lc_pixel_shuffle(x, factor)   lc_pixel_shuffle_at(x, factor, LC_HERE)
#define lc_pixel_unshuffle(x, factor) lc_pixel_unshuffle_at(x, factor, LC_HERE)

/* ---- normalization ---- */
/* x[N,C,*] w?[C] b?[C]: lc_batch_norm(x, w, b, .running_mean = rm, .running_var = rv, .training = true) */
LC_API lc_tensor *lc_batch_norm_at(lc_tensor *x, lc_tensor *w, const lc_batch_norm_args *args, lc_site site);
#define lc_batch_norm(x, w, ...) LC_CALL_AT(lc_batch_norm, lc_batch_norm, (x, w, ), .bias = __VA_ARGS__)
/* Over the last dimensions: lc_layer_norm(x, w, b), lc_layer_norm(x, NULL, NULL, .dims = 2) */
LC_API lc_tensor *lc_layer_norm_at(lc_tensor *x, lc_tensor *w, const lc_norm_args *args, lc_site site);
#define lc_layer_norm(x, w, ...) LC_CALL_AT(lc_layer_norm, lc_norm, (x, w, ), .bias = __VA_ARGS__)
LC_API lc_tensor *lc_rms_norm_at(lc_tensor *x, const lc_rms_norm_args *args, lc_site site);
#define lc_rms_norm(x, ...) LC_CALL_AT(lc_rms_norm, lc_rms_norm, (x, ), .weight = __VA_ARGS__)
/* x[N,C,*] in groups of C/groups channels, w?[C] b?[C] */
LC_API lc_tensor *lc_group_norm_at(lc_tensor *x, int64_t groups, lc_tensor *w, const lc_norm_args *args, lc_site site);
#define lc_group_norm(x, groups, w, ...) LC_CALL_AT(lc_group_norm, lc_norm, (x, groups, w, ), .bias = __VA_ARGS__)

/* ---- embedding and losses over classes ---- */
/* ids (i64 or i32, any shape) -> ids' shape + [D]: lc_embedding(ids, w, .padding_idx = 0). An id outside of the
 * table fails the step, as in lc_gather (ops_math.h). */
LC_API lc_tensor *lc_embedding_at(lc_tensor *ids, const lc_embedding_args *args, lc_site site);
#define lc_embedding(ids, ...) LC_CALL_AT(lc_embedding, lc_embedding, (ids, ), .weight = __VA_ARGS__)
/* x[N,C,*] or [C]: scores. A class outside of 0..C-1 that is not ignored fails the step. */
LC_API lc_tensor *lc_cross_entropy_at(lc_tensor *x, const lc_cross_entropy_args *args, lc_site site);
#define lc_cross_entropy(x, ...) LC_CALL_AT(lc_cross_entropy, lc_cross_entropy, (x, ), .target = __VA_ARGS__)
/* x: log-probabilities; class targets only, label_smoothing does not apply. */
LC_API lc_tensor *lc_nll_loss_at(lc_tensor *x, const lc_cross_entropy_args *args, lc_site site);
#define lc_nll_loss(x, ...) LC_CALL_AT(lc_nll_loss, lc_cross_entropy, (x, ), .target = __VA_ARGS__)

/* ---- attention ---- */
/* softmax(q k^T scale + mask) v: q[..,S,D] k[..,Sk,D] v[..,Sk,Dv] -> [..,S,Dv]. A query that may attend to nothing
 * gives 0. lc_sdpa(q, k, v, .causal = true) */
LC_API lc_tensor *lc_sdpa_at(lc_tensor *q, lc_tensor *k, const lc_sdpa_args *args, lc_site site);
#define lc_sdpa(q, k, ...) LC_CALL_AT(lc_sdpa, lc_sdpa, (q, k, ), .value = __VA_ARGS__)

/* ---- recurrence: one layer, one direction, x[B,T,I] w_ih[4H,I] w_hh[4H,H] -> every hidden state [B,T,H] ---- */
/* lc_lstm(x, w_ih, w_hh, .b_ih = bi, .b_hh = bh, .h0 = h, .c0 = c, .h_n = &h, .c_n = &c) */
LC_API lc_tensor *lc_lstm_at(lc_tensor *x, lc_tensor *w_ih, const lc_rnn_args *args, lc_site site);
#define lc_lstm(x, w_ih, ...) LC_CALL_AT(lc_lstm, lc_rnn, (x, w_ih, ), .w_hh = __VA_ARGS__)
LC_API lc_tensor *lc_gru_at(lc_tensor *x, lc_tensor *w_ih, const lc_rnn_args *args, lc_site site);
#define lc_gru(x, w_ih, ...) LC_CALL_AT(lc_gru, lc_rnn, (x, w_ih, ), .w_hh = __VA_ARGS__)

/* ---- random numbers: they depend on the graph's seed, the step, the place of the call and its count there ---- */
/* The place is the name of the file (without its folder) and the line: a line inserted before the call changes its
 * numbers, but not those of other calls. Initial values of parameters do not depend on it. */
/* Zeroes elements with probability p and scales the others by 1/(1-p). Always drops: layers decide by their mode. */
LC_API lc_tensor *lc_dropout_at(lc_tensor *x, double p, lc_site site);
#define lc_dropout(x, p) lc_dropout_at(x, p, LC_HERE)
/* 1 with probability x, else 0; x's type. */
LC_API lc_tensor *lc_bernoulli_at(lc_tensor *x, lc_site site);
#define lc_bernoulli(x) lc_bernoulli_at(x, LC_HERE)
/* lc_uniform(2, shape, .low = -1, .high = 1), lc_normal(2, shape, .std = 0.1): step tensors with new numbers every step
 */
LC_API lc_tensor *lc_uniform_at(int ndim, const lc_random_args *args, lc_site site);
LC_API lc_tensor *lc_normal_at(int ndim, const lc_random_args *args, lc_site site);
#define lc_uniform(ndim, ...) LC_CALL_AT(lc_uniform, lc_random, (ndim, ), .shape = __VA_ARGS__)
#define lc_normal(ndim, ...)  LC_CALL_AT(lc_normal, lc_random, (ndim, ), .shape = __VA_ARGS__)
/* With x's shape and type: uniform in [0, 1), standard normal. */
LC_API lc_tensor *lc_rand_like_at(lc_tensor *x, lc_site site);
LC_API lc_tensor *lc_randn_like_at(lc_tensor *x, lc_site site);
#define lc_rand_like(x)  lc_rand_like_at(x, LC_HERE)
#define lc_randn_like(x) lc_randn_like_at(x, LC_HERE)

LC_END_DECLS

#endif

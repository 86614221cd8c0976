/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of neural networks: products, convolutions, pooling, normalisation, attention, recurrence, losses over
 * classes, random numbers. Shapes and numbers are PyTorch's (torch.nn.functional).
 *
 * Every function is a macro that adds the place of the call. What stands before `...` must be given (bias and weight
 * may be NULL where noted `?`); what follows are named arguments, 0 meaning PyTorch's default:
 *     y = lc_conv2d(x, w, b, .stride = {2, 2}, .padding = {1, 1});
 * Programs that build calls at run time fill the argument struct and call lc_NAME_at. */
#ifndef LIGHTC_OPS_NN_H
#define LIGHTC_OPS_NN_H

#include <lightc/comm.h>
#include <lightc/ops_types.h>

/* ---- arguments ---- */
typedef struct lc_conv_args {
    lc_tensor *bias;           /* [O], or NULL */
    int64_t stride[3];         /* one entry per spatial dimension; entries not given repeat the first; 0: 1 */
    int64_t padding[3];        /* zeros on both sides, entry by entry */
    int64_t dilation[3];       /* as stride */
    int64_t output_padding[3]; /* transposed convolutions only: extra size on one side */
    int64_t groups;            /* 0: 1 */
} lc_conv_args;

typedef struct lc_pool_args {
    int64_t kernel;      /* height, and width too unless kernel_w says otherwise */
    int64_t kernel_w;    /* 0: kernel */
    int64_t stride[2];   /* 0: the kernel; a second entry not given repeats the first */
    int64_t padding[2];  /* entry by entry; at most half the kernel */
    int64_t dilation[2]; /* max pooling only; 0: 1 */
    bool ceil_mode;      /* windows may hang over the far edge */
    bool exclude_pad;    /* average pooling: padded zeros do not count (count_include_pad=False) */
    int64_t divisor;     /* average pooling: divide by this instead of the window's size; 0: the window's size */
} lc_pool_args;

typedef enum lc_interpolate_mode {
    LC_NEAREST = 0,
    LC_BILINEAR = 1,
} lc_interpolate_mode;

typedef struct lc_interpolate_args {
    lc_interpolate_mode mode;
    int64_t size[2];    /* height and width of the result, or ... */
    double scale[2];    /* ... factors; a second entry not given repeats the first. As PyTorch without
                           recompute_scale_factor: places come from the factor, not from the rounded size (but where the
                           size stays, or nearest doubles it) */
    bool align_corners; /* bilinear: corner pixels keep their place */
} lc_interpolate_args;

typedef struct lc_batch_norm_args {
    lc_tensor *bias;         /* [C], or NULL */
    lc_tensor *running_mean; /* [C] persistent, or NULL: always use the batch's statistics */
    lc_tensor *running_var;
    bool training;   /* use the batch's statistics and move the running ones */
    double momentum; /* 0: 0.1 */
    double eps;      /* 0: 1e-5 */
    /* Statistics of training are those of all ranks' samples, however many each has (SyncBatchNorm); collective, also
     * in the backward pass (ops_comm.h). NULL: of x alone. */
    lc_comm *comm;
} lc_batch_norm_args;

typedef struct lc_norm_args {
    lc_tensor *bias; /* like weight, or NULL */
    int dims;        /* how many trailing dimensions are normalised; 0: those of weight, or 1 */
    double eps;      /* 0: 1e-5 */
} lc_norm_args;

typedef struct lc_rms_norm_args {
    lc_tensor *weight; /* normalised dimensions, or NULL */
    int dims;          /* as in lc_norm_args */
    double eps;        /* 0: the smallest step of the data type at 1 (1.19e-7 for f32), as torch.nn.RMSNorm */
} lc_rms_norm_args;

typedef struct lc_embedding_args {
    lc_tensor *weight;    /* [V,D] */
    bool has_padding_idx; /* the row padding_idx gets no gradient */
    int64_t padding_idx;
} lc_embedding_args;

typedef struct lc_cross_entropy_args {
    lc_tensor *target;     /* classes: i64 or i32 [N,*]; or probabilities: x's type and shape */
    lc_tensor *weight;     /* [C] per class, or NULL */
    bool has_ignore_index; /* targets equal to ignore_index do not count; without: -100 */
    int64_t ignore_index;
    lc_reduction reduction;
    double label_smoothing; /* in [0, 1] */
} lc_cross_entropy_args;

typedef struct lc_sdpa_args {
    lc_tensor *value; /* [..,Sk,Dv] */
    /* Added to the scores (x's type), or bool, true = attend; broadcast to [..,S,Sk]; or NULL. The gradient of one that
     * is added takes memory for all scores. */
    lc_tensor *mask;
    bool causal;  /* query i sees keys 0..i */
    double scale; /* 0: 1/sqrt(D) */
} lc_sdpa_args;

typedef struct lc_rnn_args {
    lc_tensor *w_hh; /* [4H,H] (LSTM: gates i,f,g,o) or [3H,H] (GRU: r,z,n) */
    lc_tensor *b_ih; /* [4H] or [3H], or NULL */
    lc_tensor *b_hh;
    lc_tensor *h0;   /* [B,H], or NULL: zeros */
    lc_tensor *c0;   /* LSTM only */
    lc_tensor **h_n; /* if not NULL: receives the last hidden state [B,H] */
    lc_tensor **c_n; /* LSTM only */
} lc_rnn_args;

typedef struct lc_random_args {
    const int64_t *shape;
    lc_dtype dtype;   /* 0: f32; f32 and f64 */
    double low, high; /* uniform; both 0: [0, 1) */
    double mean, std; /* normal; std 0: 1 */
} lc_random_args;

LC_BEGIN_DECLS

/* ---- products ---- */
/* As torch.matmul: [..,M,K] x [..,K,N] -> [..,M,N], leading dimensions broadcast; vectors on either side. */
LC_API lc_tensor *lc_matmul_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_matmul(x, y) lc_matmul_at(x, y, LC_HERE)
/* x[..,I] w[O,I] b?[O] -> [..,O] */
LC_API lc_tensor *lc_linear_at(lc_tensor *x, lc_tensor *w, lc_tensor *b, lc_site site);
#define lc_linear(x, w, b) lc_linear_at(x, w, b, LC_HERE)

/* ---- convolutions: x[N,C,*] (or without N), w[O,C/groups,*k], b?[O] ---- */
LC_API lc_tensor *lc_conv1d_at(lc_tensor *x, lc_tensor *w, lc_conv_args args, lc_site site);
LC_API lc_tensor *lc_conv2d_at(lc_tensor *x, lc_tensor *w, lc_conv_args args, lc_site site);
LC_API lc_tensor *lc_conv3d_at(lc_tensor *x, lc_tensor *w, lc_conv_args args, lc_site site);
#define lc_conv1d(x, w, ...) lc_conv1d_at(x, w, LC_LITERAL(lc_conv_args, .bias = __VA_ARGS__), LC_HERE)
#define lc_conv2d(x, w, ...) lc_conv2d_at(x, w, LC_LITERAL(lc_conv_args, .bias = __VA_ARGS__), LC_HERE)
#define lc_conv3d(x, w, ...) lc_conv3d_at(x, w, LC_LITERAL(lc_conv_args, .bias = __VA_ARGS__), LC_HERE)
/* Transposed: w[C,O/groups,*k] */
LC_API lc_tensor *lc_conv_transpose1d_at(lc_tensor *x, lc_tensor *w, lc_conv_args args, lc_site site);
LC_API lc_tensor *lc_conv_transpose2d_at(lc_tensor *x, lc_tensor *w, lc_conv_args args, lc_site site);
LC_API lc_tensor *lc_conv_transpose3d_at(lc_tensor *x, lc_tensor *w, lc_conv_args args, lc_site site);
#define lc_conv_transpose1d(x, w, ...)                                                                                 \
    lc_conv_transpose1d_at(x, w, LC_LITERAL(lc_conv_args, .bias = __VA_ARGS__), LC_HERE)
#define lc_conv_transpose2d(x, w, ...)                                                                                 \
    lc_conv_transpose2d_at(x, w, LC_LITERAL(lc_conv_args, .bias = __VA_ARGS__), LC_HERE)
#define lc_conv_transpose3d(x, w, ...)                                                                                 \
    lc_conv_transpose3d_at(x, w, LC_LITERAL(lc_conv_args, .bias = __VA_ARGS__), LC_HERE)

/* ---- pooling and resampling: x[N,C,H,W] or [C,H,W] ---- */
LC_API lc_tensor *lc_max_pool2d_at(lc_tensor *x, lc_pool_args args, lc_site site);
LC_API lc_tensor *lc_avg_pool2d_at(lc_tensor *x, lc_pool_args args, lc_site site);
#define lc_max_pool2d(x, ...) lc_max_pool2d_at(x, LC_LITERAL(lc_pool_args, .kernel = __VA_ARGS__), LC_HERE)
#define lc_avg_pool2d(x, ...) lc_avg_pool2d_at(x, LC_LITERAL(lc_pool_args, .kernel = __VA_ARGS__), LC_HERE)
/* x[N,C,L] or [C,L]; the first entry of every argument counts */
LC_API lc_tensor *lc_max_pool1d_at(lc_tensor *x, lc_pool_args args, lc_site site);
LC_API lc_tensor *lc_avg_pool1d_at(lc_tensor *x, lc_pool_args args, lc_site site);
#define lc_max_pool1d(x, ...) lc_max_pool1d_at(x, LC_LITERAL(lc_pool_args, .kernel = __VA_ARGS__), LC_HERE)
#define lc_avg_pool1d(x, ...) lc_avg_pool1d_at(x, LC_LITERAL(lc_pool_args, .kernel = __VA_ARGS__), LC_HERE)
/* Mean over a grid of h x w cells; 0 keeps the input's size. */
LC_API lc_tensor *lc_adaptive_avg_pool2d_at(lc_tensor *x, int64_t h, int64_t w, lc_site site);
#define lc_adaptive_avg_pool2d(x, h, w) lc_adaptive_avg_pool2d_at(x, h, w, LC_HERE)
/* lc_interpolate(x, LC_BILINEAR, .size = {7, 9}), lc_interpolate(x, LC_NEAREST, .scale = {2}) */
LC_API lc_tensor *lc_interpolate_at(lc_tensor *x, lc_interpolate_args args, lc_site site);
#define lc_interpolate(x, ...) lc_interpolate_at(x, LC_LITERAL(lc_interpolate_args, .mode = __VA_ARGS__), LC_HERE)
/* [N,C*r*r,H,W] -> [N,C,H*r,W*r], and back */
LC_API lc_tensor *lc_pixel_shuffle_at(lc_tensor *x, int64_t factor, lc_site site);
LC_API lc_tensor *lc_pixel_unshuffle_at(lc_tensor *x, int64_t factor, lc_site site);
#define lc_pixel_shuffle(x, factor)   lc_pixel_shuffle_at(x, factor, LC_HERE)
#define lc_pixel_unshuffle(x, factor) lc_pixel_unshuffle_at(x, factor, LC_HERE)

/* ---- normalisation ---- */
/* x[N,C,*] w?[C] b?[C]: lc_batch_norm(x, w, b, .running_mean = rm, .running_var = rv, .training = true) */
LC_API lc_tensor *lc_batch_norm_at(lc_tensor *x, lc_tensor *w, lc_batch_norm_args args, lc_site site);
#define lc_batch_norm(x, w, ...) lc_batch_norm_at(x, w, LC_LITERAL(lc_batch_norm_args, .bias = __VA_ARGS__), LC_HERE)
/* Over the last dimensions: lc_layer_norm(x, w, b), lc_layer_norm(x, NULL, NULL, .dims = 2) */
LC_API lc_tensor *lc_layer_norm_at(lc_tensor *x, lc_tensor *w, lc_norm_args args, lc_site site);
#define lc_layer_norm(x, w, ...) lc_layer_norm_at(x, w, LC_LITERAL(lc_norm_args, .bias = __VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_rms_norm_at(lc_tensor *x, lc_rms_norm_args args, lc_site site);
#define lc_rms_norm(x, ...) lc_rms_norm_at(x, LC_LITERAL(lc_rms_norm_args, .weight = __VA_ARGS__), LC_HERE)
/* x[N,C,*] in groups of C/groups channels, w?[C] b?[C] */
LC_API lc_tensor *lc_group_norm_at(lc_tensor *x, int64_t groups, lc_tensor *w, lc_norm_args args, lc_site site);
#define lc_group_norm(x, groups, w, ...)                                                                               \
    lc_group_norm_at(x, groups, w, LC_LITERAL(lc_norm_args, .bias = __VA_ARGS__), LC_HERE)

/* ---- embedding and losses over classes ---- */
/* ids (i64 or i32, any shape) -> ids' shape + [D]: lc_embedding(ids, w, .has_padding_idx = true). A number outside of
 * the table fails the step, as it does in gather (ops_math.h). */
LC_API lc_tensor *lc_embedding_at(lc_tensor *ids, lc_embedding_args args, lc_site site);
#define lc_embedding(ids, ...) lc_embedding_at(ids, LC_LITERAL(lc_embedding_args, .weight = __VA_ARGS__), LC_HERE)
/* x[N,C,*] or [C]: scores. A class outside of 0..C-1 that is not ignored fails the step. */
LC_API lc_tensor *lc_cross_entropy_at(lc_tensor *x, lc_cross_entropy_args args, lc_site site);
#define lc_cross_entropy(x, ...)                                                                                       \
    lc_cross_entropy_at(x, LC_LITERAL(lc_cross_entropy_args, .target = __VA_ARGS__), LC_HERE)
/* x: log-probabilities; class targets only, label_smoothing does not apply. */
LC_API lc_tensor *lc_nll_loss_at(lc_tensor *x, lc_cross_entropy_args args, lc_site site);
#define lc_nll_loss(x, ...) lc_nll_loss_at(x, LC_LITERAL(lc_cross_entropy_args, .target = __VA_ARGS__), LC_HERE)

/* ---- attention ---- */
/* softmax(q k^T scale + mask) v: q[..,S,D] k[..,Sk,D] v[..,Sk,Dv] -> [..,S,Dv]. A query that may see nothing gives 0.
 * lc_sdpa(q, k, v, .causal = true) */
LC_API lc_tensor *lc_sdpa_at(lc_tensor *q, lc_tensor *k, lc_sdpa_args args, lc_site site);
#define lc_sdpa(q, k, ...) lc_sdpa_at(q, k, LC_LITERAL(lc_sdpa_args, .value = __VA_ARGS__), LC_HERE)

/* ---- recurrence: one layer, one direction, x[B,T,I] w_ih[4H,I] w_hh[4H,H] -> every hidden state [B,T,H] ---- */
/* lc_lstm(x, w_ih, w_hh, .b_ih = bi, .b_hh = bh, .h0 = h, .c0 = c, .h_n = &h, .c_n = &c) */
LC_API lc_tensor *lc_lstm_at(lc_tensor *x, lc_tensor *w_ih, lc_rnn_args args, lc_site site);
#define lc_lstm(x, w_ih, ...) lc_lstm_at(x, w_ih, LC_LITERAL(lc_rnn_args, .w_hh = __VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_gru_at(lc_tensor *x, lc_tensor *w_ih, lc_rnn_args args, lc_site site);
#define lc_gru(x, w_ih, ...) lc_gru_at(x, w_ih, LC_LITERAL(lc_rnn_args, .w_hh = __VA_ARGS__), LC_HERE)

/* ---- random numbers: they depend on the graph's seed, the step, the place of the call and its count there ---- */
/* The place is the name of the file (without its folder) and the line: code that is put in front of the call gives it
 * other numbers, and what other calls draw stays as it is. What parameters begin with does not depend on it. */
/* Zeroes elements with probability p and scales the others by 1/(1-p). Always drops: layers decide by their mode. */
LC_API lc_tensor *lc_dropout_at(lc_tensor *x, double p, lc_site site);
#define lc_dropout(x, p) lc_dropout_at(x, p, LC_HERE)
/* 1 with probability x, else 0; x's type. */
LC_API lc_tensor *lc_bernoulli_at(lc_tensor *x, lc_site site);
#define lc_bernoulli(x) lc_bernoulli_at(x, LC_HERE)
/* lc_uniform(2, shape, .low = -1, .high = 1), lc_normal(2, shape, .std = 0.1): step tensors with new numbers every step
 */
LC_API lc_tensor *lc_uniform_at(int ndim, lc_random_args args, lc_site site);
LC_API lc_tensor *lc_normal_at(int ndim, lc_random_args args, lc_site site);
#define lc_uniform(ndim, ...) lc_uniform_at(ndim, LC_LITERAL(lc_random_args, .shape = __VA_ARGS__), LC_HERE)
#define lc_normal(ndim, ...)  lc_normal_at(ndim, LC_LITERAL(lc_random_args, .shape = __VA_ARGS__), LC_HERE)
/* Of x's shape and type: uniform in [0, 1), standard normal. */
LC_API lc_tensor *lc_rand_like_at(lc_tensor *x, lc_site site);
LC_API lc_tensor *lc_randn_like_at(lc_tensor *x, lc_site site);
#define lc_rand_like(x)  lc_rand_like_at(x, LC_HERE)
#define lc_randn_like(x) lc_randn_like_at(x, LC_HERE)

LC_END_DECLS

#endif

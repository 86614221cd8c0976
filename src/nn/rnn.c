/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.LSTM, GRU: layers and directions composed of the operators for one layer in one direction. */
#include "nn/nn_internal.h"

#include <stdio.h>

static lc_tensor *forward(lc_module *self, lc_tensor *x, lc_site site)
{
    lc_rnn_forward_args io = lc_rnn_forward_defaults();
    io.x = x;
    return lc_rnn_forward_at((lc_rnn *)self, &io, site);
}

static lc_tensor *add(lc_rnn *l, const char *kind, int layer, bool reverse, int ndim, const int64_t *shape,
                      lc_dtype dtype)
{
    char name[64];
    snprintf(name, sizeof name, "%s_l%d%s", kind, layer, reverse ? "_reverse" : "");
    return lc_module_add_parameter(&l->base, name, dtype, LC_ROW_MAJOR, ndim, shape,
                                   lc__init_inverse_sqrt(l->hidden_size));
}

void lc_rnn_init_with(lc_rnn *l, bool gru, void *parent, const char *name, int64_t input_size,
                      const lc_rnn_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_rnn_init, lc_rnn_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, gru ? "GRU" : "LSTM", forward);
    l->gru = gru;
    l->bidirectional = o.bidirectional;
    l->seq_first = o.seq_first;
    l->has_bias = !o.no_bias;
    l->input_size = input_size;
    l->hidden_size = o.hidden_size;
    l->num_layers = o.num_layers;
    l->dropout = o.dropout;
    if (input_size < 1 || o.hidden_size < 1 || l->num_layers < 1 || l->num_layers > LC_RNN_MAX_LAYERS) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT,
                       "input_size %lld and hidden_size %lld must be positive, num_layers %d between 1 and %d",
                       (long long)input_size, (long long)o.hidden_size, l->num_layers, LC_RNN_MAX_LAYERS);
        l->num_layers = 0;
        return;
    }
    if (!(o.dropout >= 0 && o.dropout <= 1)) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "dropout %g must be between 0 and 1", o.dropout);
    }
    int directions = o.bidirectional ? 2 : 1;
    int64_t gates = (gru ? 3 : 4) * o.hidden_size;
    for (int layer = 0; layer < l->num_layers; layer++) {
        int64_t in = layer ? directions * o.hidden_size : input_size;
        for (int d = 0; d < directions; d++) {
            int i = layer * directions + d;
            l->weight_ih[i] = add(l, "weight_ih", layer, d, 2, (int64_t[]){gates, in}, o.dtype);
            l->weight_hh[i] = add(l, "weight_hh", layer, d, 2, (int64_t[]){gates, o.hidden_size}, o.dtype);
            if (o.no_bias) continue;
            l->bias_ih[i] = add(l, "bias_ih", layer, d, 1, &gates, o.dtype);
            l->bias_hh[i] = add(l, "bias_hh", layer, d, 1, &gates, o.dtype);
        }
    }
}

/* One layer in one direction; stores the final states in h[i], c[i] if wanted. x [B,S,I] -> [B,S,H] */
static lc_tensor *run_one(lc_rnn *l, int i, bool reverse, lc_tensor *x, const lc_rnn_forward_args *io, lc_tensor **h,
                          lc_tensor **c, lc_site site)
{
    lc_rnn_args a = lc_rnn_defaults();
    a.w_hh = l->weight_hh[i];
    a.b_ih = l->bias_ih[i];
    a.b_hh = l->bias_hh[i];
    if (io->h0) a.h0 = lc_select_at(io->h0, 0, i, site);
    if (io->c0 && !l->gru) a.c0 = lc_select_at(io->c0, 0, i, site);
    if (io->hn) a.h_n = &h[i];
    if (io->cn && !l->gru) a.c_n = &c[i];
    if (reverse) x = lc_flip_at(x, 1, (int64_t[]){1}, site);
    lc_tensor *y = l->gru ? lc_gru_at(x, l->weight_ih[i], &a, site) : lc_lstm_at(x, l->weight_ih[i], &a, site);
    return reverse ? lc_flip_at(y, 1, (int64_t[]){1}, site) : y;
}

lc_tensor *lc_rnn_forward_at(lc_rnn *l, const lc_rnn_forward_args *given, lc_site site)
{
    lc_rnn_forward_args io = lc_rnn_forward_defaults();
    LC_LAYER_TAKE(io, lc_rnn_forward, given, "rnn", site);
    LC_LAYER_FORWARD(l, "rnn", "lc_lstm_init or lc_gru_init", site);
    int directions = l->bidirectional ? 2 : 1, n = l->num_layers * directions;
    lc_tensor *h[2 * LC_RNN_MAX_LAYERS] = {0}, *c[2 * LC_RNN_MAX_LAYERS] = {0};
    lc_tensor *x = l->seq_first ? lc_transpose_at(io.x, 0, 1, site) : io.x; /* [B,S,I] */
    for (int layer = 0; layer < l->num_layers; layer++) {
        if (layer && l->dropout > 0 && l->base.training) x = lc_dropout_at(x, l->dropout, site);
        lc_tensor *y[2];
        for (int d = 0; d < directions; d++) y[d] = run_one(l, layer * directions + d, d, x, &io, h, c, site);
        x = directions == 2 ? lc_cat_at(-1, 2, y, site) : y[0]; /* [B,S,H*directions] */
    }
    if (io.hn) *io.hn = lc_stack_at(0, n, h, site); /* [layers*directions,B,H] */
    if (io.cn && !l->gru) *io.cn = lc_stack_at(0, n, c, site);
    return l->seq_first ? lc_transpose_at(x, 0, 1, site) : x;
}

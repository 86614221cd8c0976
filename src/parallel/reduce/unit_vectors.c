/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/reduce/reducer_impl.h"

/* The elements of a range of the flat buffer that are in a rank's slice; *from: the first one's offset in it. */
static int64_t in_slice(const lc__unit *u, int rank, int64_t begin, int64_t count, int64_t *from)
{
    const int64_t first = u->offset + rank * u->slice, last = first + u->slice, end = begin + count;
    const int64_t a = begin > first ? begin : first, b = end < last ? end : last;
    *from = a - first;
    return b > a ? b - a : 0;
}

bool lc__is_vector(const lc_flat *flat, int k)
{
    return flat->parameters[k] && flat->parameters[k]->type.ndim <= 1;
}

int64_t lc__vector_piece(const lc_flat *flat, const lc__unit *u, int rank, int k, int64_t *from, int64_t *at)
{
    *at = *from = 0;
    for (int i = u->first; i < k; i++)
        if (lc__is_vector(flat, i))
            *at += in_slice(u, rank, flat->offset[i], lc__numel(&flat->parameters[i]->type), from);
    return lc__is_vector(flat, k) ? in_slice(u, rank, flat->offset[k], lc__numel(&flat->parameters[k]->type), from) : 0;
}

int64_t lc__vectors_most(const lc_flat *flat, const lc__unit *u)
{
    int64_t most = 0, from;
    for (int rank = 0; rank < flat->sharding->size; rank++) {
        int64_t n = 0;
        for (int k = u->first; k < u->first + u->n; k++)
            if (lc__is_vector(flat, k))
                n += in_slice(u, rank, flat->offset[k], lc__numel(&flat->parameters[k]->type), &from);
        most = n > most ? n : most;
    }
    return most;
}

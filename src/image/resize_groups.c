/* SPDX-License-Identifier: Apache-2.0 */
#include "image/resize_groups.h"

#include <string.h>

enum { GROUP = 16, SPAN = 128 };

/* Each group has as many sources as fit into its 128 bytes, or fewer. */
bool lc__resize_groups_room(size_t to, int64_t taps, size_t *bytes)
{
    const size_t steps = taps < SPAN ? (size_t)taps / 2 : SPAN / 2;
    return !__builtin_mul_overflow(to / GROUP + 1, 4 * GROUP * (steps + 1) + sizeof(int64_t), bytes);
}

#if defined(__x86_64__)
#include <immintrin.h>

static bool has_units(void)
{
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw");
}

static int64_t place_of(const lc__resize_groups *g, int64_t i)
{
    return i + 1 < g->n ? GROUP * i : g->last;
}

/* Whether 128 bytes, none of them beyond the row's, have the sources of all results of group i. */
static bool find_sources(lc__resize_groups *g, int64_t i, const lc__resize_weights *w, int64_t bytes)
{
    const int64_t at = place_of(g, i), first = at / g->channels, last = (at + GROUP - 1) / g->channels;
    int64_t end = 0;
    for (int64_t k = first; k <= last; k++)
        if (w->first[k] + w->n[k] > end) end = w->first[k] + w->n[k];
    g->from[i] = g->channels * w->first[first];
    if (g->from[i] > bytes - SPAN) g->from[i] = bytes - SPAN;
    return g->channels * end - g->from[i] <= SPAN;
}

/* If a result has fewer sources than the steps pick, the others count 0 times. */
static void fill(lc__resize_groups *g, int64_t i, const lc__resize_weights *w)
{
    uint8_t *index = g->index + 4 * GROUP * i;
    int16_t *weights = g->weights + 2 * GROUP * g->steps * i;
    for (int64_t k = 0; k < GROUP; k++, index += 4, weights += 2) {
        const int64_t result = (place_of(g, i) + k) / g->channels, channel = (place_of(g, i) + k) % g->channels;
        const int64_t source = g->channels * w->first[result] + channel - g->from[i];
        index[0] = index[1] = (uint8_t)source;
        index[2] = index[3] = (uint8_t)(source + g->channels);
        for (int64_t s = 0; s < g->steps; s++)
            memcpy(weights + 2 * GROUP * s, w->weights + result * w->taps + 2 * s, 2 * sizeof *weights);
    }
}

void lc__resize_groups_prepare(lc__resize_groups *g, const lc__resize_weights *w, int64_t from, void *room)
{
    const int64_t to = w->to * w->channels, bytes = from * w->channels, n = (to + GROUP - 1) / GROUP;
    int64_t most = 0;
    *g = (lc__resize_groups){0};
    for (int64_t i = 0; i < w->to; i++)
        if (w->n[i] > most) most = w->n[i];
    if (!has_units() || to < GROUP || bytes < SPAN || most > SPAN) return;
    *g = (lc__resize_groups){n, (most + 1) / 2, to - GROUP, w->channels, w->bits, room, NULL, NULL};
    g->index = (uint8_t *)(g->weights + 2 * GROUP * g->steps * n);
    g->from = (int64_t *)(void *)(g->index + 4 * GROUP * n);
    for (int64_t i = 0; i < n; i++)
        if (!find_sources(g, i, w, bytes)) {
            g->n = 0;
            return;
        }
    for (int64_t i = 0; i < n; i++) fill(g, i, w);
}

__attribute__((target("avx512vbmi,avx512bw"))) void lc__resize_groups_row(const lc__resize_groups *g,
                                                                          const uint8_t *row, uint8_t *to)
{
    const __m512i half = _mm512_set1_epi32(1 << (g->bits - 1)), next = _mm512_set1_epi8((char)(2 * g->channels));
    const __m128i shift = _mm_cvtsi32_si128(g->bits);
    const __mmask64 words = 0x5555555555555555; /* the higher byte of each is 0 */
    const int16_t *weights = g->weights;
    for (int64_t i = 0; i < g->n; i++) {
        const uint8_t *p = row + g->from[i];
        const __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
        __m512i index = _mm512_loadu_si512(g->index + 4 * GROUP * i), sum = half;
        for (int64_t s = 0; s < g->steps; s++, weights += 2 * GROUP) {
            const __m512i pixels = _mm512_maskz_permutex2var_epi8(words, a, index, b);
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pixels, _mm512_loadu_si512(weights)));
            index = _mm512_add_epi8(index, next);
        }
        sum = _mm512_max_epi32(_mm512_sra_epi32(sum, shift), _mm512_setzero_si512());
        _mm_storeu_si128((__m128i *)(to + place_of(g, i)), _mm512_cvtusepi32_epi8(sum));
    }
}

#else

void lc__resize_groups_prepare(lc__resize_groups *g, const lc__resize_weights *w, int64_t from, void *room)
{
    (void)w, (void)from, (void)room;
    *g = (lc__resize_groups){0};
}

void lc__resize_groups_row(const lc__resize_groups *g, const uint8_t *row, uint8_t *to)
{
    (void)g, (void)row, (void)to;
}

#endif

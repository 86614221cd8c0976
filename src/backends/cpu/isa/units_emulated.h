/* SPDX-License-Identifier: Apache-2.0 */
/* AMX's instructions as functions with the same results, for tests of its kernels on machines without such units
 * (LIGHTC_EMULATE_AMX). Intel's manual of instructions is the source: a product adds its even pairs and its odd ones
 * from zero, then both to the tile; subnormal numbers count as zero; rounding is to nearest. */
#ifndef LC_BACKENDS_CPU_ISA_UNITS_EMULATED_H
#define LC_BACKENDS_CPU_ISA_UNITS_EMULATED_H

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release    emulated_release
#define _tile_loadd      emulated_loadd
#define _tile_stored     emulated_stored
#define _tile_zero       emulated_zero
#define _tile_dpbf16ps   emulated_dpbf16ps

typedef struct emulated_shapes {
    uint8_t palette, start, zeros[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} emulated_shapes;

static _Thread_local struct {
    emulated_shapes shapes; /* palette 0: nothing is configured */
    char rows[8][16][64];
} emulated;

static inline void emulated_loadconfig(const void *shapes)
{
    memcpy(&emulated.shapes, shapes, sizeof emulated.shapes);
    memset(emulated.rows, 0, sizeof emulated.rows);
    const emulated_shapes *s = &emulated.shapes;
    for (int i = 0; i < 8; i++)
        if (s->palette != 1 || s->row_bytes[i] > 64 || s->row_bytes[i] % 4 || s->rows[i] > 16) abort();
}

static inline void emulated_release(void)
{
    emulated.shapes.palette = 0;
}

/* Where a processor would raise an exception for want of a configuration. */
static inline void emulated_need(int tile)
{
    if (emulated.shapes.palette != 1 || !emulated.shapes.rows[tile] || !emulated.shapes.row_bytes[tile]) abort();
}

static inline void emulated_zero(int tile)
{
    emulated_need(tile);
    memset(emulated.rows[tile], 0, sizeof emulated.rows[tile]);
}

static inline void emulated_loadd(int tile, const void *from, int64_t step)
{
    emulated_zero(tile);
    for (int i = 0; i < emulated.shapes.rows[tile]; i++)
        memcpy(emulated.rows[tile][i], (const char *)from + i * step, emulated.shapes.row_bytes[tile]);
}

static inline void emulated_stored(int tile, void *to, int64_t step)
{
    emulated_need(tile);
    for (int i = 0; i < emulated.shapes.rows[tile]; i++)
        memcpy((char *)to + i * step, emulated.rows[tile][i], emulated.shapes.row_bytes[tile]);
}

static inline void emulated_dpbf16ps(int sums, int a, int b)
{
    enum { FLUSH_TO_ZERO = 0x8000, SUBNORMALS_ARE_ZERO = 0x40, MASKED = 0x1f80 };
    const emulated_shapes *s = &emulated.shapes;
    emulated_need(sums);
    emulated_need(a);
    emulated_need(b);
    if (s->row_bytes[a] != 4 * s->rows[b] || s->row_bytes[b] != s->row_bytes[sums] || s->rows[a] != s->rows[sums])
        abort();
    const unsigned before = _mm_getcsr();
    _mm_setcsr(MASKED | FLUSH_TO_ZERO | SUBNORMALS_ARE_ZERO);
    const __mmask16 columns = (__mmask16)((1u << s->row_bytes[sums] / 4) - 1);
    const __m512i odd_half = _mm512_set1_epi32((int)0xffff0000);
    for (int m = 0; m < s->rows[sums]; m++) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (int k = 0; k < s->rows[b]; k++) {
            int pair;
            memcpy(&pair, emulated.rows[a][m] + 4 * k, 4);
            const __m512i left = _mm512_set1_epi32(pair), right = _mm512_loadu_si512(emulated.rows[b][k]);
            even = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(left, 16), (__m512)_mm512_slli_epi32(right, 16), even);
            odd = _mm512_fmadd_ps((__m512)_mm512_and_si512(left, odd_half), (__m512)_mm512_and_si512(right, odd_half),
                                  odd);
        }
        float *to = (float *)emulated.rows[sums][m];
        _mm512_mask_storeu_ps(to, columns, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_add_ps(even, odd)));
    }
    _mm_setcsr(before);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A double is an integer of 53 bits times a power of two, of which 2^-1074 is the least: so it is added to three
 * digits, and carries are propagated when digits might overflow. */
#include "base/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { LEAST_EXPONENT = -1074, MOST_UNTIDY = 1 << 30 };

void lc__exact_add(lc__exact_sum *s, double x)
{
    uint64_t bits;
    if (!isfinite(x)) {
        s->special += x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent) fraction |= (uint64_t)1 << 52;
    int at = exponent ? exponent - 1 : 0; /* position of the lowest bit, in bits above the least */
    unsigned __int128 wide = (unsigned __int128)fraction << at % 32;
    for (int k = 0; k < 3; k++, wide >>= 32) {
        int64_t part = (int64_t)(uint32_t)wide;
        s->digit[at / 32 + k] += bits >> 63 ? -part : part;
    }
    if (++s->untidy == MOST_UNTIDY) lc__exact_tidy(s);
}

void lc__exact_merge(lc__exact_sum *s, const lc__exact_sum *other)
{
    for (int i = 0; i < LC__EXACT_DIGITS; i++) s->digit[i] += other->digit[i];
    s->special += other->special;
    s->untidy += other->untidy + 1;
    if (s->untidy >= MOST_UNTIDY) lc__exact_tidy(s);
}

void lc__exact_tidy(lc__exact_sum *s)
{
    for (int i = 0; i + 1 < LC__EXACT_DIGITS; i++) {
        int64_t low = s->digit[i] & 0xffffffff;
        s->digit[i + 1] += (s->digit[i] - low) / ((int64_t)1 << 32);
        s->digit[i] = low;
    }
    s->untidy = 0;
}

double lc__exact_value(const lc__exact_sum *sum)
{
    lc__exact_sum s = *sum;
    if (s.special != 0) return isnan(s.special) ? NAN : s.special;
    lc__exact_tidy(&s);
    bool negative = s.digit[LC__EXACT_DIGITS - 1] < 0;
    for (int i = 0; i < LC__EXACT_DIGITS && negative; i++) s.digit[i] = -s.digit[i];
    if (negative) lc__exact_tidy(&s);
    int top = LC__EXACT_DIGITS - 1;
    while (top >= 0 && !s.digit[top]) top--;
    if (top < 0) return 0;
    /* Three digits hold more bits than a double; for rounding it only matters whether any other is nonzero. */
    unsigned __int128 wide = 0;
    for (int k = 0; k < 3; k++) wide = wide << 32 | (unsigned __int128)(top >= k ? s.digit[top - k] : 0);
    bool rest = false;
    for (int i = 0; i < top - 2; i++) rest |= s.digit[i] != 0;
    int bits = 128;
    while (!(wide >> (bits - 1))) bits--;
    int drop = bits - 53, none = top < 2 ? 32 * (2 - top) : 0; /* below the least power of two there are only zeros */
    if (drop < none) drop = none;
    uint64_t kept = (uint64_t)(wide >> drop);
    unsigned __int128 lost = wide - ((unsigned __int128)kept << drop), half = (unsigned __int128)1 << (drop - 1);
    if (lost > half || (lost == half && (rest || (kept & 1)))) kept++;
    double value = ldexp((double)kept, 32 * (top - 2) + LEAST_EXPONENT + drop);
    return negative ? -value : value;
}

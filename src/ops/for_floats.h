/* SPDX-License-Identifier: Apache-2.0 */
/* Includes LC_TEMPLATE once for f32 and once for f64: in it T is the C type, and FN(name) the name of a function for
 * that type. No include guard: every file with kernels includes this for its own template. */
#define T        float
#define FN(name) name##_f32
#include LC_TEMPLATE
#undef T
#undef FN
#define T        double
#define FN(name) name##_f64
#include LC_TEMPLATE
#undef T
#undef FN
#undef LC_TEMPLATE

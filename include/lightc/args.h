/* SPDX-License-Identifier: Apache-2.0 */
/* Named arguments: how lc_adam(self, .lr = 1e-3) works, in C11 and C++17.
 *
 * The macro makes a struct with the defaults and assigns the caller's members one by one, in any order: a member that
 * is not named keeps its default, and a zero that is written is a zero. Each value is an expression; one with commas
 * outside of parentheses needs parentheses around it, and lists have macros of their own (LC_DIMS).
 *
 * The defaults follow each struct (LC_DEFAULTS) and are also available as a function. A program that fills the struct
 * itself, to build a call at run time, begins with that function:
 *
 *     lc_adam_args a = lc_adam_defaults();
 *     a.lr = lr;
 *     lc_optimizer *opt = lc_adam_with(&a);
 *
 * These structs begin with their size, so that members can be added at their ends. A struct without its size, which did
 * not begin with the defaults, is an error that says so. */
#ifndef LIGHTC_ARGS_H
#define LIGHTC_ARGS_H

#include <lightc/base.h>

/* Off, on, or left to lightc. In C and C++ `false` is LC_OFF and `true` is LC_ON. */
typedef unsigned char lc_choice;
enum { LC_OFF = 0, LC_ON = 1, LC_AUTO = 2 };

/* clang-format off */

/* NAME_defaults(), which returns a TYPE: LC_DEFAULTS(lc_adam, lc_adam_args, .lr = 1e-3, .beta1 = 0.9). */
#define LC_DEFAULTS(name, type, ...)                                                                                   \
    static inline type name##_defaults(void)                                                                           \
    {                                                                                                                  \
        type lc_args_ = LC_ZEROS_;                                                                                     \
        LC_MAP_(LC_SET_, lc_args_, .size = sizeof(type), __VA_ARGS__, )                                                \
        return lc_args_;                                                                                               \
    }

/* The value of NAME_with(&args), where args has the defaults of NAME and then the members given. */
#define LC_CALL(name, type, ...) LC_CALL_INIT(name, type, (), __VA_ARGS__)
/* The value of FUNCTION_at(before..., &args, place of the call), where args is a KIND_args with the defaults of KIND.
 * `before` is in parentheses, with a comma at its end. */
#define LC_CALL_AT(function, kind, before, ...)                                                                        \
    LC_CALL_(LC_UNIQUE_, kind##_args, kind##_defaults(), function##_at, before, (, LC_HERE), __VA_ARGS__, )

/* The value of NAME_with(before..., &args). */
#define LC_CALL_INIT(name, type, before, ...)                                                                          \
    LC_CALL_(LC_UNIQUE_, type, name##_defaults(), name##_with, before, (), __VA_ARGS__, )

#define LC_CALL_(args, type, defaults, function, before, after, ...)                                                   \
    __extension__({                                                                                                    \
        type args = defaults;                                                                                          \
        LC_MAP_(LC_SET_, args, __VA_ARGS__)                                                                            \
        LC_APPLY_(function, LC_OPEN_ before &args LC_OPEN_ after);                                                     \
    })

/* The value of FUNCTION(before..., n, list, place of the call), with the list of the n numbers, or tensors, given. */
#define LC_CALL_INTS(function, before, ...) LC_CALL_LIST_(LC_UNIQUE_, function, int64_t, LC_INT_, before, __VA_ARGS__)
#define LC_CALL_TENSORS(function, before, ...)                                                                         \
    LC_CALL_LIST_(LC_UNIQUE_, function, lc_tensor *, LC_SAME_, before, __VA_ARGS__)
#define LC_CALL_LIST_(list, function, type, each, before, ...)                                                         \
    __extension__({                                                                                                    \
        type list[] = {LC_MAP_(each, , __VA_ARGS__)};                                                                  \
        LC_APPLY_(function, LC_OPEN_ before LC_CAST_(int, sizeof(list) / sizeof(list[0])), list, LC_HERE);             \
    })

/* The value of FUNCTION_with(before..., out, &args), where args is a KIND_args with the defaults of KIND and then the
 * members given after `out`. */
#define LC_CALL_NEW_(function, kind, before, out, ...)                                                                 \
    LC_CALL_(LC_UNIQUE_, kind##_args, kind##_defaults(), function##_with, (LC_OPEN_ before out, ), (), __VA_ARGS__)

/* How many values are given. */
#define LC_COUNT(...) (0 LC_MAP_(LC_ONE_, , __VA_ARGS__))

/* A KIND_args with the defaults of KIND and then the members given. */
#define LC_ARGS(kind, ...) LC_ARGS_(LC_UNIQUE_, kind##_args, kind##_defaults(), __VA_ARGS__, )
#define LC_ARGS_(args, type, defaults, ...)                                                                            \
    __extension__({                                                                                                    \
        type args = defaults;                                                                                          \
        LC_MAP_(LC_SET_, args, __VA_ARGS__)                                                                            \
        args;                                                                                                          \
    })

/* A vtable, an lc_meeting or an lc_module_class with its size and the members given, made in a function: for C++17,
 * which has no designated initializers, so that LC_MODULE_OPS_INIT and the like are for C.
 * lc_module_ops ops = LC_OPS(lc_module_ops, .name = "net", .training_step = step). */
#define LC_OPS(type, ...) LC_OPS_(LC_UNIQUE_, type, __VA_ARGS__, )
#define LC_OPS_(ops, type, ...)                                                                                        \
    __extension__({                                                                                                    \
        type ops = LC_ZEROS_;                                                                                          \
        LC_MAP_(LC_SET_, ops, .size = sizeof(type), __VA_ARGS__)                                                       \
        ops;                                                                                                           \
    })

/* A number that was not given: for a double, and for an int64_t whose 0 means something. */
#define LC_NOT_GIVEN (__builtin_nan(""))
#define LC_UNSET     INT64_MIN

/* Nested calls declare structs inside each other: unique names keep -Wshadow quiet. Compilers show this name in the
 * error for an argument without a name: lc_sum(x, LC_DIMS(1)) in place of lc_sum(x, .dims = LC_DIMS(1)). */
#define LC_UNIQUE_ LC_PASTE_(lc_argument_needs_its_name_, __COUNTER__)
#define LC_PASTE_(a, b) LC_PASTE_2_(a, b)
#define LC_PASTE_2_(a, b) a##b
#define LC_OPEN_(...) __VA_ARGS__
#define LC_APPLY_(function, ...) function(__VA_ARGS__)
/* An empty argument, as after a comma at the end, sets nothing. */
#define LC_SET_(args, x) (void)(args x);
#define LC_ONE_(to, x) +1
#define LC_SAME_(to, x) x,
/* Converts numbers of any type: C++ does not narrow in a list. */
#define LC_INT_(to, x) lc_int_(x),
static inline int64_t lc_int_(int64_t x)
{
    return x;
}

#ifdef __cplusplus
#define LC_ZEROS_ {}
#else
#define LC_ZEROS_ {0}
#endif

/* f(to, x) for each of at most 40 values. */
#define LC_MAP_(f, to, ...) LC_PICK_(__VA_ARGS__, LC_MAP_40_, LC_MAP_39_, LC_MAP_38_, LC_MAP_37_, LC_MAP_36_, \
    LC_MAP_35_, LC_MAP_34_, LC_MAP_33_, LC_MAP_32_, LC_MAP_31_, LC_MAP_30_, LC_MAP_29_, LC_MAP_28_, LC_MAP_27_, \
    LC_MAP_26_, LC_MAP_25_, LC_MAP_24_, LC_MAP_23_, LC_MAP_22_, LC_MAP_21_, LC_MAP_20_, LC_MAP_19_, LC_MAP_18_, \
    LC_MAP_17_, LC_MAP_16_, LC_MAP_15_, LC_MAP_14_, LC_MAP_13_, LC_MAP_12_, LC_MAP_11_, LC_MAP_10_, LC_MAP_9_, \
    LC_MAP_8_, LC_MAP_7_, LC_MAP_6_, LC_MAP_5_, LC_MAP_4_, LC_MAP_3_, LC_MAP_2_, LC_MAP_1_, )(f, to, __VA_ARGS__)
#define LC_PICK_(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, _21, \
    _22, _23, _24, _25, _26, _27, _28, _29, _30, _31, _32, _33, _34, _35, _36, _37, _38, _39, _40, n, ...) n
#define LC_MAP_1_(f, to, x) f(to, x)
#define LC_MAP_2_(f, to, x, ...) f(to, x) LC_MAP_1_(f, to, __VA_ARGS__)
#define LC_MAP_3_(f, to, x, ...) f(to, x) LC_MAP_2_(f, to, __VA_ARGS__)
#define LC_MAP_4_(f, to, x, ...) f(to, x) LC_MAP_3_(f, to, __VA_ARGS__)
#define LC_MAP_5_(f, to, x, ...) f(to, x) LC_MAP_4_(f, to, __VA_ARGS__)
#define LC_MAP_6_(f, to, x, ...) f(to, x) LC_MAP_5_(f, to, __VA_ARGS__)
#define LC_MAP_7_(f, to, x, ...) f(to, x) LC_MAP_6_(f, to, __VA_ARGS__)
#define LC_MAP_8_(f, to, x, ...) f(to, x) LC_MAP_7_(f, to, __VA_ARGS__)
#define LC_MAP_9_(f, to, x, ...) f(to, x) LC_MAP_8_(f, to, __VA_ARGS__)
#define LC_MAP_10_(f, to, x, ...) f(to, x) LC_MAP_9_(f, to, __VA_ARGS__)
#define LC_MAP_11_(f, to, x, ...) f(to, x) LC_MAP_10_(f, to, __VA_ARGS__)
#define LC_MAP_12_(f, to, x, ...) f(to, x) LC_MAP_11_(f, to, __VA_ARGS__)
#define LC_MAP_13_(f, to, x, ...) f(to, x) LC_MAP_12_(f, to, __VA_ARGS__)
#define LC_MAP_14_(f, to, x, ...) f(to, x) LC_MAP_13_(f, to, __VA_ARGS__)
#define LC_MAP_15_(f, to, x, ...) f(to, x) LC_MAP_14_(f, to, __VA_ARGS__)
#define LC_MAP_16_(f, to, x, ...) f(to, x) LC_MAP_15_(f, to, __VA_ARGS__)
#define LC_MAP_17_(f, to, x, ...) f(to, x) LC_MAP_16_(f, to, __VA_ARGS__)
#define LC_MAP_18_(f, to, x, ...) f(to, x) LC_MAP_17_(f, to, __VA_ARGS__)
#define LC_MAP_19_(f, to, x, ...) f(to, x) LC_MAP_18_(f, to, __VA_ARGS__)
#define LC_MAP_20_(f, to, x, ...) f(to, x) LC_MAP_19_(f, to, __VA_ARGS__)
#define LC_MAP_21_(f, to, x, ...) f(to, x) LC_MAP_20_(f, to, __VA_ARGS__)
#define LC_MAP_22_(f, to, x, ...) f(to, x) LC_MAP_21_(f, to, __VA_ARGS__)
#define LC_MAP_23_(f, to, x, ...) f(to, x) LC_MAP_22_(f, to, __VA_ARGS__)
#define LC_MAP_24_(f, to, x, ...) f(to, x) LC_MAP_23_(f, to, __VA_ARGS__)
#define LC_MAP_25_(f, to, x, ...) f(to, x) LC_MAP_24_(f, to, __VA_ARGS__)
#define LC_MAP_26_(f, to, x, ...) f(to, x) LC_MAP_25_(f, to, __VA_ARGS__)
#define LC_MAP_27_(f, to, x, ...) f(to, x) LC_MAP_26_(f, to, __VA_ARGS__)
#define LC_MAP_28_(f, to, x, ...) f(to, x) LC_MAP_27_(f, to, __VA_ARGS__)
#define LC_MAP_29_(f, to, x, ...) f(to, x) LC_MAP_28_(f, to, __VA_ARGS__)
#define LC_MAP_30_(f, to, x, ...) f(to, x) LC_MAP_29_(f, to, __VA_ARGS__)
#define LC_MAP_31_(f, to, x, ...) f(to, x) LC_MAP_30_(f, to, __VA_ARGS__)
#define LC_MAP_32_(f, to, x, ...) f(to, x) LC_MAP_31_(f, to, __VA_ARGS__)
#define LC_MAP_33_(f, to, x, ...) f(to, x) LC_MAP_32_(f, to, __VA_ARGS__)
#define LC_MAP_34_(f, to, x, ...) f(to, x) LC_MAP_33_(f, to, __VA_ARGS__)
#define LC_MAP_35_(f, to, x, ...) f(to, x) LC_MAP_34_(f, to, __VA_ARGS__)
#define LC_MAP_36_(f, to, x, ...) f(to, x) LC_MAP_35_(f, to, __VA_ARGS__)
#define LC_MAP_37_(f, to, x, ...) f(to, x) LC_MAP_36_(f, to, __VA_ARGS__)
#define LC_MAP_38_(f, to, x, ...) f(to, x) LC_MAP_37_(f, to, __VA_ARGS__)
#define LC_MAP_39_(f, to, x, ...) f(to, x) LC_MAP_38_(f, to, __VA_ARGS__)
#define LC_MAP_40_(f, to, x, ...) f(to, x) LC_MAP_39_(f, to, __VA_ARGS__)
/* clang-format on */

#endif

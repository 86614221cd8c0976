/* SPDX-License-Identifier: Apache-2.0 */
/* How public functions check what they are given (base.h has the contract): every object begins with a mark of its
 * type, which is set when it is made and cleared when it is freed. To add a type: a line here, the mark as the first
 * member of its struct, lc__mark_set where it is made, lc__mark_clear where it is freed, and LC__IS in its
 * functions. */
#ifndef LC_BASE_HANDLE_H
#define LC_BASE_HANDLE_H

#include "base/status.h"

/* X(identifier, what users call it) */
#define LC__MARK_LIST(X)                                                                                               \
    X(TRAINER, "trainer")                                                                                              \
    X(GRAPH, "graph")                                                                                                  \
    X(COMM, "communicator")                                                                                            \
    X(REQUEST, "request")                                                                                              \
    X(OWNED, "callback, logger, ...")                                                                                  \
    X(DATASET, "dataset")                                                                                              \
    X(ARRAY_FILE, "file of arrays")                                                                                    \
    X(LOADER, "data loader")                                                                                           \
    X(TEXT, "text")                                                                                                    \
    X(METRIC, "metric")                                                                                                \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(SCHEDULER, "scheduler")                                                                                          \
    X(FABRIC, "fabric")                                                                                                \
    X(STATE, "state")                                                                                                  \
    X(SAFETENSORS, "safetensors file")                                                                                 \
    X(CHECKPOINT, "checkpoint")                                                                                        \
    X(WRITER, "checkpoint writer")                                                                                     \
    X(CLOSURE, "closure")                                                                                              \
    X(PLUGIN, "plug-in")                                                                                               \
    X(PLOT, "plot")                                                                                                    \
    X(MODULE, "module")

/* Numbers that nothing else begins with: no small integer, no address, no text. */
typedef uint64_t lc__mark;
enum {
#define LC__MARK_NUMBER(id, name) LC__NUMBER_##id,
    LC__MARK_LIST(LC__MARK_NUMBER)
#undef LC__MARK_NUMBER
};
#define LC__MARK_OF(id) (UINT64_C(0xC0DE6C6967687463) + ((uint64_t)LC__NUMBER_##id << 48))

static inline bool lc__has_mark(const void *object, lc__mark mark)
{
    return object && *(const lc__mark *)object == mark;
}

/* The compiler would drop a last store before a free; volatile keeps it. */
static inline void lc__mark_clear(lc__mark *mark)
{
    *(volatile lc__mark *)mark = 0;
}

/* The errors that `object` is NULL or of another type, and that `pointer` is NULL. They return LC_ERR_ARGUMENT. */
lc_status lc__not_a(const void *object, lc__mark mark, const char *function) __attribute__((cold));
lc_status lc__is_null(const char *function, const char *pointer) __attribute__((cold));

/* An error unless `list`, an argument of n_NAME members, can have these. */
lc_status lc__list_check(const char *name, int64_t n, const void *list) LC_MUST_USE;

/* At the start of a public function, LC__IS(t, TRAINER, LC_ERR_ARGUMENT): if t is not a trainer, reports it and returns
 * the last argument, which may be empty. */
#define LC__IS(object, id, ...)                                                                                        \
    do {                                                                                                               \
        if (__builtin_expect(!lc__has_mark(object, LC__MARK_OF(id)), 0)) {                                             \
            (void)lc__not_a(object, LC__MARK_OF(id), __func__);                                                        \
            return __VA_ARGS__;                                                                                        \
        }                                                                                                              \
    } while (0)
/* The same in a function that handles NULL itself. */
#define LC__IS_OR_NULL(object, id, ...)                                                                                \
    do {                                                                                                               \
        if (__builtin_expect((object) && !lc__has_mark(object, LC__MARK_OF(id)), 0)) {                                 \
            (void)lc__not_a(object, LC__MARK_OF(id), __func__);                                                        \
            return __VA_ARGS__;                                                                                        \
        }                                                                                                              \
    } while (0)
/* The same for a pointer that must not be NULL. */
#define LC__NEEDS(pointer, ...)                                                                                        \
    do {                                                                                                               \
        if (__builtin_expect(!(pointer), 0)) {                                                                         \
            (void)lc__is_null(__func__, #pointer);                                                                     \
            return __VA_ARGS__;                                                                                        \
        }                                                                                                              \
    } while (0)

#endif

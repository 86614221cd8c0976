/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a tensor. */
#ifndef LC_TENSOR_TENSOR_IMPL_H
#define LC_TENSOR_TENSOR_IMPL_H

#include <lightc/graph.h>
#include <lightc/op.h>
#include <lightc/batch.h>
#include <lightc/comm.h>
#include "device/pin.h"
#include "base/handle.h"

typedef struct lc_flat lc_flat;

enum { LC__LOW_KINDS = 2 }; /* of low copies (low.h): bf16 and f16 */

/* Magic numbers of tensors (base/handle.h); the last two are persistent. */
typedef enum lc_tensor_kind {
    LC_TENSOR_ERROR = 0x7E450000,
    LC_TENSOR_STEP,
    LC_TENSOR_PERSISTENT,
    LC_TENSOR_INPUT, /* persistent handle for memory that may be replaced between steps */
} lc_tensor_kind;

struct lc_tensor {
    lc_type type;
    lc_tensor_kind kind;
    lc_layout layout;
    bool requires_grad;

    /* The tensor's value number in the graph that recorded it last: valid while graph->generation == generation. */
    lc_graph *graph;
    uint32_t generation;
    uint32_t value;
    uint64_t stamp; /* step tensors: identifies the plan and value that type and requires_grad were copied from */

    /* Persistent and input tensors. */
    uint64_t id;       /* never used twice; changes when the storage moves */
    uint64_t other_id; /* the id with the other value of requires_grad; 0: none yet */
    int refs;
    int modules;  /* of the references: modules have them, until they are released */
    bool is_kept; /* the program dropped it within a step; the graph has a reference until that step is over */
    lc_tensor *next_kept;
    void *device_data; /* accessed through lc__tensor_map (host_access.h), except by kernels and their callers */
    size_t bytes;
    lc_tensor *base;     /* owner of the storage that this tensor is a range of; NULL: it owns `device_data` */
    const lc_device *on; /* the device that has the memory */
    uint64_t writes[LC__LOW_KINDS]; /* to memory that it owns, other than those that wrote low copies, too (low.h) */
    lc__pin *pin;                   /* input tensors: of their memory, which is the host's; NULL: none */
    void *mirror; /* on a device: the host's copy of the value, while it is mapped `maps` times (mirror.c) */
    int maps;
    double one;    /* the memory of a mirror of one element: lc_item allocates nothing */
    int file;      /* 1 + the file descriptor of the storage (lc__tensor_file), or 0 */
    lc_type *seen; /* the type that the program sees, if values are stored in another one, `type` (store.c); or NULL */
    struct {       /* the value in that type, in the step that recorded it last (engine/run/seen_types.c) */
        const lc_graph *graph;
        uint32_t generation;
        uint64_t at;
        lc_tensor *value;
        lc_tensor *copy; /* which operators write in place of this tensor; NULL: none has yet */
    } as_seen;
    struct lc__initial *initial; /* its initial value, not made yet (initial.h); NULL: `device_data` has the value */
    lc_flat *flat;               /* the flat buffers of a parameter, or NULL */
    int flat_index;
    lc_tensor **replicas; /* by device: its own handle, or NULL: this one (devices.h). NULL: on no devices */
    bool read_only;       /* devices must not write their handles: it is a parameter */
    /* This rank holds only a slice of the elements (slice.h): `device_data` points to its start. */
    bool is_slice;
    int64_t slice_begin, slice_count;
    const struct lc__sharding *slices; /* the other slices; NULL: they no longer exist */
};

/* True also for results of failed operations. */
static inline bool lc__is_tensor(const lc_tensor *t)
{
    return t && (unsigned)t->kind - LC_TENSOR_ERROR <= LC_TENSOR_INPUT - LC_TENSOR_ERROR;
}
lc_status lc__not_a_tensor(const lc_tensor *t, const char *function) __attribute__((cold));
/* As LC__IS of base/handle.h. */
#define LC__IS_TENSOR(t, ...)                                                                                          \
    do {                                                                                                               \
        if (__builtin_expect(!lc__is_tensor(t), 0)) {                                                                  \
            (void)lc__not_a_tensor(t, __func__);                                                                       \
            return __VA_ARGS__;                                                                                        \
        }                                                                                                              \
    } while (0)

#define LC__IS_TENSOR_OR_NULL(t, ...)                                                                                  \
    do {                                                                                                               \
        if (__builtin_expect((t) && !lc__is_tensor(t), 0)) {                                                           \
            (void)lc__not_a_tensor(t, __func__);                                                                       \
            return __VA_ARGS__;                                                                                        \
        }                                                                                                              \
    } while (0)

/* The one error tensor: results of failed operations. */
lc_tensor *lc__error_tensor(void);
uint64_t lc__new_id(const lc_tensor *t);

/* As lc_tensor_new_layout, on a device. */
lc_status lc__tensor_new_on(const lc_device *on, lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout,
                            lc_tensor **out) LC_MUST_USE;
/* As lc_tensor_new_layout, for a tensor that may be cut into slices before it is used: it may be larger than memory. */
lc_status lc__tensor_reserve(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout, lc_tensor **out);
lc_status lc__tensor_reserve_on(const lc_device *on, const lc_type *type, lc_layout layout,
                                lc_tensor **out) LC_MUST_USE;
/* A persistent tensor that is a dense range of `base`, from byte `offset`. Holds a reference to base. */
lc_status lc__tensor_range(lc_tensor *base, size_t offset, const lc_type *type, lc_layout layout, lc_tensor **out);
/* Makes the storage of a persistent tensor a file that other processes can map, and returns it; the tensor keeps it
 * open as long as it lives. -1: that is impossible. */
int lc__tensor_file(lc_tensor *t);
/* lc_input_set, with other sizes after the first. */
void lc__input_set_sizes(lc_tensor *input, void *data, int64_t samples, const int64_t *sizes);
/* Gives a persistent tensor new storage (a range of base), copying its value, if it has one yet. Changes its id. */
void lc__tensor_move(lc_tensor *t, lc_tensor *base, size_t offset);
/* As lc__tensor_move, without copying. */
void lc__tensor_rehome(lc_tensor *t, lc_tensor *base, size_t offset);
/* Moves it to storage of its own on a device. */
lc_status lc__tensor_to(lc_tensor *t, const lc_device *on) LC_MUST_USE;

/* ---- store.c ---- */
/* Stores the values of an f32 tensor in another type: the program sees f32 as before. LC_F32 undoes that. In place of
 * its flat buffers it gets storage of its own. */
lc_status lc__tensor_store(lc_tensor *t, lc_dtype dtype) LC_MUST_USE;
/* *view: the tensor as it is stored, which the caller owns; one that exists is made again if t has moved. */
lc_status lc__tensor_raw(lc_tensor *t, lc_tensor **view) LC_MUST_USE;
/* t, which has the storage type of `like`, is seen as that is. */
lc_status lc__tensor_seen_as(lc_tensor *t, const lc_tensor *like) LC_MUST_USE;
/* Copies between views of equal shape, converting numbers. */
void lc__convert_strided(const lc_view *from, const lc_view *to);
static inline const lc_type *lc__seen_type(const lc_tensor *t)
{
    return t->seen ? t->seen : &t->type;
}

/* ---- shapes and strides ---- */
int64_t lc__numel(const lc_type *type);
lc_status lc__type_check(lc_dtype dtype, int ndim, const int64_t *shape, lc_type *out, size_t *bytes);
bool lc__type_equal(const lc_type *a, const lc_type *b);
/* Dense strides of a layout, in elements. */
void lc__dense_strides(const lc_type *type, lc_layout layout, int64_t *stride);
/* Whether strides are dense in that layout (dimensions of size 1 do not matter). */
bool lc__is_dense(int ndim, const int64_t *shape, const int64_t *stride, lc_layout layout);
/* Whether LC_WANT_MATRIX allows the strides. */
bool lc__is_matrix(int ndim, const int64_t *shape, const int64_t *stride);
/* "[64,1,28,28]" into buffer; returns it. */
const char *lc__shape_text(const lc_type *type, char *buffer, size_t size);
/* Copies between views of equal dtype and shape, any strides. */
void lc__copy_strided(const lc_view *from, const lc_view *to);
void lc__view_of(const lc_type *type, lc_layout layout, void *data, lc_view *out);
lc_type lc__view_type(const lc_view *v);
/* Gives an operand of an elementwise kernel the result's shape, with stride 0 where it is broadcast (op.h). */
void lc__broadcast_view(lc_view *v, const lc_view *out);
/* Bytes from the first element of a view to the last; its strides are not negative. */
size_t lc__view_span(const lc_view *v);

/* Whether two persistent tensors have memory in common. */
bool lc__overlap(const lc_tensor *a, const lc_tensor *b);

/* ---- flat buffers (flat.c) ---- */
/* Parameters of one data type in one buffer, gradients in another, in reverse order of registration; every parameter
 * starts on a 256-byte boundary. Optimizer state, buckets and slices are ranges of buffers with the same offsets. */
struct lc_flat {
    int n;
    lc_tensor **parameters;             /* borrowed; NULL once a parameter was freed */
    lc_tensor **gradients;              /* ranges of `gradient` with the parameter's shape and layout */
    int64_t *offset;                    /* elements */
    int64_t count;                      /* elements in all, padding included */
    lc_tensor *parameter;               /* 1-D */
    lc_tensor *gradient;                /* 1-D; of the parameters' type, or f32 for halves (lc__flat_sums_in_f32) */
    uint8_t *has_gradient;              /* per parameter: accumulated since the last lc_zero_grad */
    uint8_t *trained;                   /* per parameter: requires_grad */
    struct lc__low *low[LC__LOW_KINDS]; /* low copies of parameters (low.h); NULL: none */
    int n_low;                          /* how many were made */
    struct lc__sharding *sharding;      /* slice.h; NULL: not sharded */
    int refs;
};

/* Makes the buffers for n parameters of one data type. `move`: the parameters' storage moves into the buffer; otherwise
 * there is one parameter, which stays in its place. */
lc_status lc__flat_new(lc_tensor **parameters, int n, bool move, lc_flat **out) LC_MUST_USE;
/* The flat buffers of a tensor that needs gradients; makes separate ones if it is in none. */
lc_status lc__flat_of(lc_tensor *parameter, lc_flat **out);
void lc__flat_unref(lc_flat *flat);
/* A parameter leaves its flat buffers, if it is in some; its storage stays. */
void lc__flat_leave(lc_tensor *parameter);
/* Gradients of halves become f32, or of the parameters' type again; if that changes their type, they are lost. */
lc_status lc__flat_sums_in_f32(lc_flat *flat, bool yes) LC_MUST_USE;
/* The type of a tensor's gradient. */
static inline lc_type lc__gradient_type(const lc_tensor *t)
{
    lc_type type = t->type;
    if (t->flat) type.dtype = t->flat->gradient->type.dtype;
    return type;
}
/* Makes buffers on another device for its gradients of the same parameters. The caller sets its `parameters`, each of
 * which holds a reference; `parameter` is that of `flat`. */
lc_status lc__flat_replica(const lc_flat *flat, const lc_device *on, lc_flat **out);

#endif

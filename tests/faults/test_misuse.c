/* SPDX-License-Identifier: Apache-2.0 */
/* Every public function is called in every wrong way that base.h promises to survive: NULL for each pointer, an object
 * that was never made (zeros), one that was freed or released, and an object of another type. A function that returns a
 * status or a tensor must report an error, any other one return a neutral value, and there must be a message.
 *
 * A row of misuse_*.h is one function: the letter is the kind of its result, and each argument says how it can be
 * wrong.
 *
 *   S status   T tensor   V nothing   N a number: 0, -1 or NaN if it fails   Q a pointer: NULL if it fails
 *   W a text   U a struct   X its result does not show an error, and it sets no message
 *
 *   H(KIND) an object of lightc   C(KIND) a struct of the caller   P(KIND) a pointer that can only be checked for NULL
 *   CF(KIND) like C, but zeros and a released struct are valid too
 *   HO, CO, O, FO the same if NULL is allowed (F: a function)
 *
 * A function of the library without a row is an error: add its line. Calls run in a child process. */
#define _GNU_SOURCE
#include "quiet_options.h"
#include "scratch.h"
#include "test.h"

#include <lightc/lightc.h>
#include <lightc/launch.h>
#include <lightc/plugin.h>
#include <lightc/weights.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* X(kind): objects of lightc and structs of the caller; of each there is a good one, and possibly a freed one. */
#define KINDS(X)                                                                                                       \
    X(TRAINER)                                                                                                         \
    X(GRAPH)                                                                                                           \
    X(TENSOR)                                                                                                          \
    X(COMM)                                                                                                            \
    X(REQUEST)                                                                                                         \
    X(DATASET)                                                                                                         \
    X(ARRAY_FILE)                                                                                                      \
    X(LOADER)                                                                                                          \
    X(TEXT)                                                                                                            \
    X(METRIC)                                                                                                          \
    X(OPTIMIZER)                                                                                                       \
    X(SCHEDULER)                                                                                                       \
    X(FABRIC)                                                                                                          \
    X(STATE)                                                                                                           \
    X(SAFETENSORS)                                                                                                     \
    X(PLOT)                                                                                                            \
    X(CHECKPOINT)                                                                                                      \
    X(WRITER)                                                                                                          \
    X(CLOSURE)                                                                                                         \
    X(PLUGIN)                                                                                                          \
    X(MODULE)                                                                                                          \
    X(LINEAR)                                                                                                          \
    X(CONV)                                                                                                            \
    X(BATCH_NORM)                                                                                                      \
    X(NORM)                                                                                                            \
    X(EMBEDDING)                                                                                                       \
    X(DROPOUT)                                                                                                         \
    X(POOL)                                                                                                            \
    X(ACTIVATION)                                                                                                      \
    X(FLATTEN)                                                                                                         \
    X(ATTENTION)                                                                                                       \
    X(RNN)                                                                                                             \
    X(SEQUENTIAL)                                                                                                      \
    X(RESNET)                                                                                                          \
    X(IDX)                                                                                                             \
    X(TRANSFORM)                                                                                                       \
    X(SAMPLER)                                                                                                         \
    X(DATAMODULE)                                                                                                      \
    X(FOUND)                                                                                                           \
    X(OPTIONS)                                                                                                         \
    X(CB_CHECKPOINT)                                                                                                   \
    X(CB_STOPPING)                                                                                                     \
    X(CB_TIMER)                                                                                                        \
    X(CB_PRUNING)                                                                                                      \
    X(CB_LR)                                                                                                           \
    X(CB_BATCH)

enum {
#define KIND_ENUM(k) k,
    KINDS(KIND_ENUM) N_KINDS
};
static void *good[N_KINDS], *freed[N_KINDS];
static _Alignas(64) char zeros[1 << 16];

/* Other targets of pointers. */
static _Alignas(64) char OUT_[1 << 16];
static int64_t LIST_[64] = {1, 1, 1, 1}, SHAPE_[] = {2, 3};
static double NUMBERS_[64] = {1, 2};
static char WORD_[] = "word", PATH_[] = "/nowhere/at/all";
static void *POINTERS_[] = {OUT_, OUT_, OUT_, OUT_};
static char *ARGV_[] = {WORD_, NULL};
static lc_type TYPE_ = {.dtype = LC_F32, .ndim = 2, .shape = {2, 3}};
static lc_dtype PRECISION_TYPES_[] = {LC_F32};
static lc_batch BATCH_;
static lc_tensor *TENSORS_[4];
static lc_optimizer *OPTIMIZER_LIST_[4];
static lc_dataset *DATASET_LIST_[4];
static lc_dataloader *LOADER_LIST_[4];
static lc_scheduler *SCHEDULER_LIST_[4];
static lc_optimizers OPTIMIZERS_;
static lc_loaders LOADERS_;
static lc_op OP_;
static lc_call CALL_;
static lc_kernel KERNEL_;
static lc_field FIELD_ = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {3}};
static lc_comm_call COMM_CALL_ = {.op = LC_COMM_BARRIER};
static lc_share SHARE_ = {.rank = 0, .size = 1, .batches = 1};
static lc_meeting MEETING_;
static lc_datasets DATASETS_;
static lc_array ARRAY_ = {.field = {.name = "x", .dtype = LC_I64, .ndim = 0}, .data = LIST_};
static lc_file_field FILE_FIELDS_[1];
static lc_metric_batch METRIC_BATCH_ = {.n = 1, .columns = 1};
static lc_metric_value METRIC_VALUE_ = {.name = "a", .value = 1};
static lc_hparam HPARAM_ = {.name = "a"};
static lc_named_number NAMED_NUMBER_ = {"lr", 0.1};
static lc_named_tensor NAMED_TENSOR_ = {.name = "a"};
static lc_plot_series SERIES_ = {.n = 2, .y = NUMBERS_};
static lc_text_pair TEXT_PAIR_ = {"a", "b"};
static lc_option OPTION_ = {.name = "a", .kind = LC_OPTION_INT};
static lc_option_set OPTION_SET_ = {.options = &OPTION_, .n = 1, .target = OUT_};

/* Vtables with all required slots. */
static int64_t one_sample(void *self)
{
    (void)self;
    return 1;
}
static lc_status one_field(void *self, lc_sample_spec *spec)
{
    (void)self;
    spec->n = 1;
    spec->fields[0] = FIELD_;
    return LC_OK;
}
static lc_status get_nothing(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)index, (void)key, (void)out, (void)scratch;
    return LC_OK;
}
static lc_dataset_ops DATASET_OPS_ = {LC_DATASET_OPS_INIT, .name = "one", .length = one_sample, .describe = one_field,
                                      .get = get_nothing};
static lc_module_ops MODULE_OPS_ = {LC_MODULE_OPS_INIT("misused")};
static lc_callback_ops CALLBACK_OPS_ = {LC_CALLBACK_OPS_INIT("Misused")};
static lc_transform_ops TRANSFORM_OPS_;
static lc_dataloader_ops DATALOADER_OPS_ = {LC_DATALOADER_OPS_INIT};
static lc_metric_ops METRIC_OPS_ = {LC_METRIC_OPS_INIT};
static lc_optimizer_ops OPTIMIZER_OPS_;
static lc_comm_ops COMM_OPS_ = {LC_COMM_OPS_INIT("misused")};
static lc_module_class MODULE_CLASS_;

/* Functions of a program. */
static lc_status some_module_visit(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    return (void)ctx, (void)path, (void)owner, (void)t, LC_OK;
}
static bool some_filter(void *ctx, const char *path, lc_module *owner, lc_tensor *parameter)
{
    return (void)ctx, (void)path, (void)owner, (void)parameter, true;
}
static lc_status some_evaluate(void *ctx, double *loss)
{
    return (void)ctx, (void)loss, LC_SKIP;
}
static lc_status some_optimizer_state(void *ctx, const char *state, const char *path, lc_tensor *parameter,
                                      lc_tensor *flat, int64_t offset, int64_t count)
{
    return (void)ctx, (void)state, (void)path, (void)parameter, (void)flat, (void)offset, (void)count, LC_OK;
}
static lc_status some_scheduler_state(void *ctx, const char *name, double *value)
{
    return (void)ctx, (void)name, (void)value, LC_OK;
}
static double some_lambda(void *ctx, int64_t epoch)
{
    return (void)ctx, (void)epoch, 1;
}
static lc_tensor *some_training_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    return (void)self, (void)batch, (void)i, NULL;
}
static lc_tensor *some_manual_closure(void *ctx, lc_status *status)
{
    return (void)ctx, (void)status, NULL;
}
static lc_status some_image_list(void *ctx, int64_t index, const char **file, int64_t *target)
{
    return (void)ctx, (void)index, (void)file, (void)target, LC_OK;
}
static void some_span(void *ctx, const lc_span *span)
{
    (void)ctx, (void)span;
}
static lc_status some_checkpoint_file(void *ctx, const lc_checkpoint_file *file)
{
    return (void)ctx, (void)file, LC_OK;
}

/* ---- faults ---- */

typedef enum fault { IS_NULL, IS_ZERO, IS_FREED, IS_FOREIGN, FAULTS } fault;
static const char *const fault_names[] = {"NULL", "zeros", "freed", "foreign"};
enum { OBJECT = 1, STRUCT = 2, MAY_BE_NULL = 4, MAY_BE_EMPTY = 8 };

/* What the child is doing; shared, so that the parent can read it after the child has died. */
static struct shared {
    int row, argument, fault, arguments;
    char what[64]; /* the argument that is wrong */
    int flags;     /* of that argument */
    bool tried;    /* the call had such an argument */
    int calls, complaints;
} * now;

static int argument_of_call;
static jmp_buf not_applicable;

static void *take(int flags, const char *what, void *right, int kind)
{
    if (argument_of_call++ != now->argument) return right;
    snprintf(now->what, sizeof now->what, "%s", what);
    now->flags = flags;
    now->tried = true;
    if (now->fault == IS_NULL) return NULL;
    if (!(flags & (OBJECT | STRUCT))) longjmp(not_applicable, 1);
    if (now->fault == IS_ZERO) return zeros;
    if (now->fault == IS_FREED) {
        if (!freed[kind]) longjmp(not_applicable, 1);
        return freed[kind];
    }
    if (flags & STRUCT) longjmp(not_applicable, 1);
    return kind == DATASET ? good[TEXT] : good[DATASET];
}

#define I(k)  take(MAY_BE_NULL, #k, good[k], k) /* is initialized by the call, whatever it was before */
#define H(k)  take(OBJECT, #k, good[k], k)
#define HO(k) take(OBJECT | MAY_BE_NULL, #k, good[k], k)
#define C(k)  take(STRUCT, #k, good[k], k)
#define CO(k) take(STRUCT | MAY_BE_NULL | MAY_BE_EMPTY, #k, good[k], k)
#define CF(k) take(STRUCT | MAY_BE_EMPTY, #k, good[k], k)
#define P(k)  take(0, #k, (void *)&k##_, -1)
#define O(k)  take(MAY_BE_NULL, #k, (void *)&k##_, -1)
/* A struct of arguments (args.h), otherwise zeros. */
#define ARGS(type, ...) (&(type){.size = sizeof(type), __VA_ARGS__})
#define DEFAULTS(kind)  take(MAY_BE_NULL, #kind "_args", (kind##_args[]){kind##_defaults()}, -1)
#define F(fn)           (take(0, #fn, zeros, -1) ? fn : NULL)
#define FO(fn)          (take(MAY_BE_NULL, #fn, zeros, -1) ? fn : NULL)

#define ZEROS_ zeros
static _Alignas(64) char BLANK_[4096];

/* ---- results ---- */

#define UNSET "no message"

static void complain(const char *name, const char *format, ...)
{
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("  %s, %s is %s: %s\n", name, now->what, fault_names[now->fault], text);
    now->complaints++;
}

static bool must_fail(void)
{
    if (!now->tried || (now->fault == IS_NULL && (now->flags & MAY_BE_NULL))) return false;
    return now->fault == IS_NULL || !(now->flags & MAY_BE_EMPTY);
}

static void check_message(const char *name)
{
    if (!must_fail()) return;
    if (!strcmp(lc_error_message(), UNSET)) complain(name, "there is no message");
    /* Another error before that of a missing result would hide that it is never looked for. */
    bool no_result = now->fault == IS_NULL && !strcmp(now->what, "OUT");
    if (no_result && !strstr(lc_error_message(), "NULL")) complain(name, "the message is \"%s\"", lc_error_message());
    if (strstr(lc_error_message(), "(null)")) complain(name, "the message is \"%s\"", lc_error_message());
}

static void of_status(const char *name, lc_status s)
{
    if (must_fail() && s >= 0) complain(name, "it returns %d", (int)s);
    if (must_fail() && s < 0) check_message(name);
}

static void of_tensor(const char *name, lc_tensor *t)
{
    if (must_fail() && t && !lc_tensor_is_error(t)) complain(name, "it returns a tensor");
    check_message(name);
}

static void of_number(const char *name, double n)
{
    if (must_fail() && n > 0) complain(name, "it returns %g", n);
    check_message(name);
}

static void of_pointer(const char *name, const void *p)
{
    if (must_fail() && p) complain(name, "it returns a pointer");
    check_message(name);
}

static void of_text(const char *name, const char *text)
{
    if (must_fail() && !text) complain(name, "it returns NULL");
    if (must_fail() && text && strlen(text) > 10) complain(name, "it returns \"%s\"", text);
    check_message(name);
}

#define X(name, args) CALL(name, (void)name args)
#define S(name, args) CALL(name, of_status(#name, name args))
#define T(name, args) CALL(name, of_tensor(#name, name args))
#define N(name, args) CALL(name, of_number(#name, (double)name args))
#define Q(name, args) CALL(name, of_pointer(#name, name args))
#define W(name, args) CALL(name, of_text(#name, name args))
#define V(name, args) CALL(name, name args; check_message(#name))
#define U(name, args) CALL(name, (void)name args; check_message(#name))

#define CALL(name, expression)                                                                                         \
    static void call_##name(void)                                                                                      \
    {                                                                                                                  \
        expression;                                                                                                    \
    }
/* A format that is not a literal is one of the wrong arguments. */
#pragma GCC diagnostic ignored "-Wformat-security"
#include "misuse_engine.h"
#include "misuse_data.h"
#include "misuse_training.h"
#undef CALL

#define CALL(name, expression) {#name, call_##name},
static const struct {
    const char *name;
    void (*call)(void);
} rows[] = {
#include "misuse_engine.h"
#include "misuse_data.h"
#include "misuse_training.h"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- objects to pass ---- */

/* An object of each kind; called twice, since the second set is freed. */
static void make(void **o)
{
    lc_tensor *t = NULL;
    lc_trainer_options opt = quiet_options(NULL);
    lc_callback cb;
    lc_ckpt_writer *writer = NULL;
    CHECK_OK(lc_trainer_new(&opt, (lc_trainer **)&o[TRAINER]));
    CHECK_OK(lc_graph_new((lc_graph **)&o[GRAPH], .threads = 1));
    CHECK_OK(lc_tensor_new(LC_F32, 2, SHAPE_, (lc_tensor **)&o[TENSOR]));
    CHECK_OK(lc_array_dataset_new(8, 1, &ARRAY_, (lc_dataset **)&o[DATASET]));
    CHECK_OK(lc_dataloader_new((lc_dataloader **)&o[LOADER], .dataset = o[DATASET]));
    CHECK_OK(lc_text_new("some text", 9, (lc_text **)&o[TEXT]));
    CHECK_OK(lc_metric_new("Accuracy", (lc_metric **)&o[METRIC], .num_classes = 2));
    CHECK_OK(lc_state_new((lc_state **)&o[STATE]));
    CHECK_OK(lc_plot_histogram(2, NUMBERS_, (lc_plot **)&o[PLOT]));
    CHECK_OK(lc_fabric_new((lc_fabric **)&o[FABRIC]));
    char path[400];
    snprintf(path, sizeof path, "%s/a.safetensors", scratch_root);
    CHECK_OK(lc_tensor_new(LC_F32, 2, SHAPE_, &t));
    CHECK_OK(lc_safetensors_save(path, 1, &(lc_named_tensor){.name = "a", .tensor = t}, 0, NULL));
    CHECK_OK(lc_safetensors_open(path, (lc_safetensors **)&o[SAFETENSORS]));
    snprintf(path, sizeof path, "%s/a.npy", scratch_root);
    static const char npy[] = "\x93NUMPY\1\0:\0{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}  \n abcdefghijk";
    CHECK_OK(lc__replace_file(&lc__io_system, path, npy, sizeof npy - 1));
    CHECK_OK(lc_array_file_open(path, (lc_array_file **)&o[ARRAY_FILE]));
    snprintf(path, sizeof path, "%s/a.ckpt", scratch_root);
    CHECK_OK(lc_ckpt_writer_new(&writer));
    CHECK_OK(lc_ckpt_begin(writer, path));
    CHECK_OK(lc_ckpt_add_tensor(writer, LC_CKPT_MODEL, "a", t));
    CHECK_OK(lc_ckpt_commit(writer, true));
    lc_ckpt_writer_free(writer);
    CHECK_OK(lc_checkpoint_open(path, (lc_checkpoint **)&o[CHECKPOINT]));
    lc_tensor_unref(t);

#define STRUCT_OF(kind, type, ...)                                                                                     \
    do {                                                                                                               \
        o[kind] = calloc(1, sizeof(type));                                                                             \
        CHECK(o[kind]);                                                                                                \
        __VA_ARGS__;                                                                                                   \
    } while (0)
    STRUCT_OF(MODULE, lc_linear, lc_module_init(o[MODULE], &MODULE_OPS_, 1));
    lc_module_add_parameter(o[MODULE], "w", LC_F32, LC_ROW_MAJOR, 2, SHAPE_, (lc_init){0});
    STRUCT_OF(LINEAR, lc_linear, lc_linear_init((lc_linear *)o[LINEAR], o[MODULE], "a", 3, 2));
    STRUCT_OF(CONV, lc_conv, lc_conv2d_init((lc_conv *)o[CONV], o[MODULE], "b", 3, 2, 1));
    STRUCT_OF(BATCH_NORM, lc_batch_norm_layer,
              lc_batch_norm2d_init((lc_batch_norm_layer *)o[BATCH_NORM], o[MODULE], "c", 3));
    STRUCT_OF(NORM, lc_norm_layer, lc_layer_norm_init((lc_norm_layer *)o[NORM], o[MODULE], "d", 3));
    STRUCT_OF(EMBEDDING, lc_embedding, lc_embedding_init((lc_embedding *)o[EMBEDDING], o[MODULE], "e", 3, 2));
    STRUCT_OF(DROPOUT, lc_dropout, lc_dropout_init((lc_dropout *)o[DROPOUT], o[MODULE], "f", 0.5));
    STRUCT_OF(POOL, lc_pool, lc_max_pool2d_init((lc_pool *)o[POOL], o[MODULE], "g", 2));
    STRUCT_OF(ACTIVATION, lc_activation,
              lc_activation_init((lc_activation *)o[ACTIVATION], o[MODULE], "h", LC_ACT_RELU));
    STRUCT_OF(FLATTEN, lc_flatten, lc_flatten_init((lc_flatten *)o[FLATTEN], o[MODULE], "i", 1));
    STRUCT_OF(ATTENTION, lc_multihead_attention,
              lc_multihead_attention_init((lc_multihead_attention *)o[ATTENTION], o[MODULE], "j", 4, 2));
    STRUCT_OF(RNN, lc_rnn, lc_lstm_init((lc_rnn *)o[RNN], o[MODULE], "k", 3, 2));
    STRUCT_OF(SEQUENTIAL, lc_sequential, lc_sequential_init(o[SEQUENTIAL], o[MODULE], "l");
              lc_sequential_add((lc_sequential *)o[SEQUENTIAL], lc_flatten, 1));
    STRUCT_OF(RESNET, lc_resnet, lc_resnet20_init((lc_resnet *)o[RESNET], o[MODULE], "m", 2));
    CHECK_OK(lc_module_status(o[MODULE]));
    STRUCT_OF(IDX, lc_idx, (void)0);
    STRUCT_OF(TRANSFORM, lc_transform, CHECK_OK(lc_transform_to_tensor(o[TRANSFORM])));
    STRUCT_OF(SAMPLER, lc_sampler, CHECK_OK(lc_sampler_sequential(8, o[SAMPLER])));
    STRUCT_OF(DATAMODULE, lc_datamodule, CHECK_OK(lc_datamodule_from_datasets(&DATASETS_, o[DATAMODULE])));
    STRUCT_OF(FOUND, lc_lr_find_result, (void)0);
    STRUCT_OF(OPTIONS, lc_trainer_options, *(lc_trainer_options *)o[OPTIONS] = quiet_options(NULL));
    o[OPTIMIZER] = lc_sgd(o[MODULE], .lr = 0.1);
    CHECK(o[OPTIMIZER]);
    o[SCHEDULER] = lc_step_lr(o[OPTIMIZER], .step_size = 1);
    CHECK(o[SCHEDULER]);
#define CALLBACK_OF(kind, make) STRUCT_OF(kind, lc_callback, CHECK_OK(make); *(lc_callback *)o[kind] = cb)
    CALLBACK_OF(CB_CHECKPOINT, lc_model_checkpoint_new(NULL, &cb));
    CALLBACK_OF(CB_STOPPING, lc_early_stopping(&cb, .monitor = "a"));
    CALLBACK_OF(CB_TIMER, lc_timer_new(10, false, &cb));
    CALLBACK_OF(CB_PRUNING, lc_model_pruning(&cb, .pruning_fn = "l1_unstructured"));
    CALLBACK_OF(CB_LR, lc_learning_rate_finder_new(NULL, &cb));
    CALLBACK_OF(CB_BATCH, lc_batch_size_finder_new(NULL, &cb));
}

/* Objects are freed, structs released: the memory of structs still exists. */
static void end(void **o)
{
    lc_scheduler_free(o[SCHEDULER]);
    lc_optimizer_free(o[OPTIMIZER]);
    lc_trainer_free(o[TRAINER]);
    lc_fabric_free(o[FABRIC]);
    lc_graph_free(o[GRAPH]);
    lc_tensor_unref(o[TENSOR]);
    lc_dataloader_free(o[LOADER]);
    lc_dataset_unref(o[DATASET]);
    lc_array_file_close(o[ARRAY_FILE]);
    lc_text_free(o[TEXT]);
    lc_metric_free(o[METRIC]);
    lc_state_free(o[STATE]);
    lc_plot_free(o[PLOT]);
    lc_safetensors_close(o[SAFETENSORS]);
    lc_checkpoint_close(o[CHECKPOINT]);
    lc_module_release(o[MODULE]);
    lc_idx_release(o[IDX]);
    lc_transform_release(o[TRANSFORM]);
    lc_sampler_release(o[SAMPLER]);
    lc_datamodule_release(o[DATAMODULE]);
    lc_lr_find_release(o[FOUND]);
    lc_trainer_options_release(o[OPTIONS]);
#ifdef SANITIZED /* it would end the program, as it should */
    for (int k = 0; k <= WRITER; k++) o[k] = NULL;
#endif
    for (int k = CB_CHECKPOINT; k <= CB_BATCH; k++) { /* a trainer would free callbacks: no freed ones exist */
        lc_callback *cb = o[k];
        cb->ops->free(cb->self);
        free(cb);
        o[k] = NULL;
    }
}

/* ---- calls ---- */

/* A child of a rank cannot communicate in its place, nor does it have the thread of a checkpoint writer. */
static void make_for_child(void **o)
{
    lc_request *request = NULL;
    CHECK_OK(lc_comm_self((lc_comm **)&o[COMM]));
    CHECK_OK(lc_comm_barrier(o[COMM], &request));
    CHECK_OK(lc_ckpt_writer_new((lc_ckpt_writer **)&o[WRITER]));
    o[REQUEST] = request;
}

static void end_for_child(void **o)
{
    CHECK_OK(lc_comm_wait(o[REQUEST]));
    lc_comm_free(o[COMM]);
    lc_ckpt_writer_free(o[WRITER]);
#ifdef SANITIZED
    o[COMM] = o[REQUEST] = o[WRITER] = NULL;
#endif
}

/* In the child: makes the call described by `now`. */
static void run_call(void)
{
    make_for_child(good);
    make_for_child(freed);
    end_for_child(freed);
    CHECK_OK(lc_step_begin(good[GRAPH], 0, 0));
    argument_of_call = 0;
    lc_fail(LC_ERR_USER, UNSET);
    alarm((unsigned)patience(5));
    if (!setjmp(not_applicable)) {
        rows[now->row].call();
        now->calls++;
    }
    /* A call that was cut short has read fewer. */
    if (argument_of_call > now->arguments) now->arguments = argument_of_call;
    fflush(stdout);
    _exit(77);
}

/* Whether the call returned. */
static bool call_in_a_child(void)
{
    int how = 0;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) run_call();
    CHECK(waitpid(child, &how, 0) == child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77) return true;
    printf("  %s, %s is %s: %s (%d)\n", rows[now->row].name, now->tried ? now->what : "nothing",
           fault_names[now->fault], WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM ? "it hangs" : "it ends the process",
           WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    return false;
}

TEST(every_wrong_argument_is_survived)
{
    const char *only = getenv("LIGHTC_TEST_ROW"); /* to run only one row */
    now = mmap(NULL, sizeof *now, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(now != MAP_FAILED);
    make(freed);
    make(good);
    end(freed);
    OPTIMIZER_LIST_[0] = good[OPTIMIZER], SCHEDULER_LIST_[0] = good[SCHEDULER];
    DATASET_LIST_[0] = good[DATASET], LOADER_LIST_[0] = good[LOADER], TENSORS_[0] = good[TENSOR];
    int bad = 0;
    for (now->row = 0; now->row < ROWS; now->row++) {
        if (only && strcmp(only, rows[now->row].name)) continue;
        now->arguments = 1; /* until a call has counted them */
        for (now->fault = 0; now->fault < FAULTS; now->fault++)
            for (now->argument = 0; now->argument < now->arguments; now->argument++) {
                now->tried = false;
                bad += !call_in_a_child();
            }
    }
    printf("  %d calls\n", now->calls);
    CHECK(only || now->calls > 2000);
    CHECK_EQ(bad + now->complaints, 0);
}

/* Every function that `nm` finds in the library has a row. */
TEST(every_function_has_a_row)
{
    char command[5000], name[300];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    snprintf(command, sizeof command,
             "nm -D --defined-only '%s/../lib/liblightc.so' 2>/dev/null | awk '$2 == \"T\" {print $3}'",
             bin ? bin : "build/bin");
    FILE *f = popen(command, "r");
    CHECK(f);
    int found = 0, missing = 0;
    while (fscanf(f, "%299s", name) == 1) {
        int row = 0;
        while (row < ROWS && strcmp(rows[row].name, name)) row++;
        found++;
        missing += row == ROWS;
        if (row == ROWS) printf("  %s has no row in tests/faults/misuse_*.h\n", name);
    }
    pclose(f);
    if (!found) SKIP("no nm, or the shared library is not where it is built");
    CHECK_EQ(missing, 0);
    CHECK(found > 600);
}

TEST_MAIN

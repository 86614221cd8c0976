/* SPDX-License-Identifier: Apache-2.0 */
/* Loading weights from files whose names, data types and shapes differ from the module's: what is loaded and what is
 * reported. Nothing is written if anything is wrong. */
#include "test.h"

enum { SAMPLES = 8, WIDTH = 4 };
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_data.h"

#include <lightc/weights.h>
#include "base/half.h"
#include "base/pattern.h"

/* ---- a module, and files ---- */

typedef struct net {
    lc_module base;
    lc_linear a, b; /* a.weight [4,6], a.bias [4], b.weight [3,4], b.bias [3] */
    lc_tensor *count;
} net;

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net")};

static void net_open(net *m)
{
    lc_module_init(&m->base, &net_ops, 1);
    lc_linear_init(&m->a, m, "a", FEATURES, WIDTH);
    lc_linear_init(&m->b, m, "b", WIDTH, CLASSES);
    m->count = lc_module_add_buffer(&m->base, "count", LC_I64, 0, NULL, (lc_init){LC_INIT_ZEROS}, true);
    CHECK(m->count);
}

enum { TENSORS = 5, MOST = 24 };
static const struct {
    const char *name;
    int ndim;
    int64_t shape[2];
    lc_dtype dtype;
} tensors[TENSORS] = {{"a.weight", 2, {WIDTH, FEATURES}, LC_F32},
                      {"a.bias", 1, {WIDTH}, LC_F32},
                      {"b.weight", 2, {CLASSES, WIDTH}, LC_F32},
                      {"b.bias", 1, {CLASSES}, LC_F32},
                      {"count", 0, {0}, LC_I64}};

/* The file's value of element i of tensor k. */
static double value(int k, int64_t i)
{
    return tensors[k].dtype == LC_I64 ? 7 : (double)(10 * k + i + 1) / 4; /* exact in f16 and bf16 */
}

typedef struct file {
    char path[400];
    lc_named_tensor v[16];
    char names[16][64];
    double data[16][MOST];
    int n;
} file;

static void add(file *f, const char *name, int k, lc_dtype dtype, bool transposed)
{
    lc_named_tensor *t = &f->v[f->n];
    int64_t rows = tensors[k].ndim == 2 ? tensors[k].shape[0] : 1;
    int64_t columns = tensors[k].ndim ? tensors[k].shape[tensors[k].ndim - 1] : 1;
    snprintf(f->names[f->n], sizeof f->names[0], "%s", name);
    *t = (lc_named_tensor){.name = f->names[f->n], .data = f->data[f->n]};
    t->type = (lc_type){.dtype = dtype, .ndim = tensors[k].ndim};
    for (int d = 0; d < t->type.ndim; d++) t->type.shape[d] = tensors[k].shape[transposed ? 1 - d : d];
    char *to = (char *)f->data[f->n];
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t at = transposed ? i % columns * rows + i / columns : i;
        double x = value(k, i);
        if (dtype == LC_F32) ((float *)to)[at] = (float)x;
        if (dtype == LC_F64) ((double *)to)[at] = x;
        if (dtype == LC_F16) ((uint16_t *)to)[at] = lc__f32_to_f16((float)x);
        if (dtype == LC_BF16) ((uint16_t *)to)[at] = lc__f32_to_bf16((float)x);
        if (dtype == LC_I64) ((int64_t *)to)[at] = (int64_t)x;
        if (dtype == LC_I32) ((int32_t *)to)[at] = (int32_t)x;
        if (dtype == LC_U8) ((uint8_t *)to)[at] = (uint8_t)x;
    }
    f->n++;
}

/* All tensors, with `prefix` before their names and `floats` as the type of floats. */
static void all(file *f, const char *prefix, lc_dtype floats, lc_dtype whole)
{
    char name[64];
    *f = (file){.n = 0};
    for (int k = 0; k < TENSORS; k++) {
        snprintf(name, sizeof name, "%s%s", prefix, tensors[k].name);
        add(f, name, k, tensors[k].dtype == LC_F32 ? floats : whole, false);
    }
}

static const char *save(file *f)
{
    snprintf(f->path, sizeof f->path, "%s/w.safetensors", fresh_dir("weights"));
    CHECK_OK(lc_safetensors_save(f->path, f->n, f->v, 0, NULL));
    return f->path;
}

/* Which tensors have the file's values, one bit each; the others must be as they were made. */
static unsigned loaded(const net *m)
{
    lc_tensor *const t[] = {m->a.weight, m->a.bias, m->b.weight, m->b.bias, m->count};
    net fresh;
    net_open(&fresh);
    lc_tensor *const before[] = {fresh.a.weight, fresh.a.bias, fresh.b.weight, fresh.b.bias, fresh.count};
    unsigned bits = 0;
    for (int k = 0; k < TENSORS; k++) {
        double got[MOST], was[MOST];
        size_t bytes = (size_t)lc_tensor_numel(t[k]) * lc_dtype_size(lc_tensor_dtype(t[k]));
        CHECK_OK(lc_tensor_read(t[k], got, bytes));
        CHECK_OK(lc_tensor_read(before[k], was, bytes));
        bool same = true;
        for (int64_t i = 0; i < lc_tensor_numel(t[k]); i++)
            same &= tensors[k].dtype == LC_I64 ? ((int64_t *)got)[i] == 7 : ((float *)got)[i] == (float)value(k, i);
        if (same)
            bits |= 1u << k;
        else if (memcmp(got, was, bytes) != 0)
            TEST_FAIL("%s has neither its old value nor that of the file", tensors[k].name);
    }
    lc_module_release(&fresh.base);
    return bits;
}

static lc_status load(const char *path, const lc_load_args *o, lc_load_result *r, unsigned *bits)
{
    net m;
    net_open(&m);
    *r = (lc_load_result)LC_LOAD_RESULT_INIT;
    lc_status s = lc_module_load_weights_with(&m.base, path, r, o);
    char *message = strdup(lc_error_message());
    *bits = loaded(&m);
    lc_module_release(&m.base);
    if (s < 0) lc_fail(s, "%s", message);
    free(message);
    return s;
}

static bool has(char *const *list, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

/* ---- tests ---- */

TEST(a_file_with_only_prefixed_names_is_an_error)
{
    file f;
    net m;
    all(&f, "model.", LC_F32, LC_I64);
    save(&f);
    net_open(&m);
    CHECK_STATUS(lc_module_load_checkpoint(&m.base, f.path, false), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "none of the 5 tensors");
    CHECK_CONTAINS(lc_error_message(), "strip_prefix \"model.\"");
    CHECK_STATUS(lc_module_load_checkpoint(&m.base, f.path, true), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "missing in the file: count, a.weight, a.bias, b.weight, b.bias");
    CHECK_CONTAINS(lc_error_message(), "not in the module: model.");
    CHECK_EQ(loaded(&m), 0);
    lc_module_release(&m.base);

    lc_load_args o = lc_load_defaults();
    lc_load_result r;
    unsigned bits;
    o.strip_prefix = "model.";
    CHECK_OK(load(f.path, &o, &r, &bits));
    CHECK(bits == 31 && r.n_loaded == 5 && !r.message && !r.n_converted);
    lc_load_result_release(&r);
}

TEST(names_on_one_side_only_are_reported)
{
    file f;
    lc_load_args o = lc_load_defaults();
    lc_load_result r;
    unsigned bits;
    f = (file){.n = 0};
    add(&f, "a.weight", 0, LC_F32, false);
    add(&f, "a.bias", 1, LC_F32, false);
    add(&f, "head.bias", 3, LC_F32, false);
    save(&f);
    /* Strict: all differences in one message, and nothing is written. */
    CHECK_STATUS(load(f.path, NULL, &r, &bits), LC_ERR_NOT_FOUND);
    CHECK(bits == 0 && r.n_loaded == 0);
    CHECK_CONTAINS(lc_error_message(), "missing in the file: count, b.weight, b.bias; not in the module: head.bias");
    CHECK(r.n_missing == 3 && r.n_unexpected == 1 && has(r.unexpected, 1, "head.bias"));
    lc_load_result_release(&r);
    CHECK(!r.message && !r.n_missing && r.size == sizeof r);
    /* Not strict. */
    o.not_strict = true;
    CHECK_OK(load(f.path, &o, &r, &bits));
    CHECK(bits == 3 && r.n_loaded == 2 && r.n_missing == 3 && r.n_unexpected == 1);
    CHECK(has(r.missing, 3, "b.weight") && has(r.missing, 3, "b.bias") && has(r.missing, 3, "count"));
    CHECK_STR(r.message, "missing in the file: count, b.weight, b.bias; not in the module: head.bias");
    lc_load_result_release(&r);
}

/* PyTorch has them since 0.4.1, and loads older files. */
TEST(counters_of_batch_norm_may_be_missing)
{
    static const float one = 1;
    const char *const names[] = {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"};
    const int64_t counted = 3;
    char path[400];
    lc_named_tensor v[4];
    lc_batch_norm2d bn;
    lc_module m;
    lc_load_result r = LC_LOAD_RESULT_INIT;
    int64_t tracked;
    for (int k = 0; k < 4; k++)
        v[k] = (lc_named_tensor){
            .name = names[k], .data = (void *)(uintptr_t)&one, .type = {.dtype = LC_F32, .ndim = 1, .shape = {1}}};
    snprintf(path, sizeof path, "%s/w.safetensors", fresh_dir("counters"));
    lc_module_init(&m, NULL, 1);
    lc_batch_norm2d_init(&bn, &m, "bn", 1);
    CHECK_OK(lc_tensor_write(bn.num_batches_tracked, &counted, sizeof counted));
    CHECK_OK(lc_safetensors_save(path, 4, v, 0, NULL));
    CHECK_OK(lc_module_load_weights(&m, path, &r));
    CHECK(r.n_loaded == 4 && !r.n_missing && !r.message);
    CHECK_OK(lc_tensor_read(bn.num_batches_tracked, &tracked, sizeof tracked));
    CHECK_EQ(tracked, counted);
    lc_load_result_release(&r);
    CHECK_OK(lc_safetensors_save(path, 3, v, 0, NULL));
    CHECK_STATUS(lc_module_load_weights(&m, path, NULL), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "missing in the file: bn.running_var");
    lc_module_release(&m);
}

/* A tied weight is one parameter with two names. PyTorch's state_dict has both; other files have one of them. */
TEST(tied_weights)
{
    static const char *const names[] = {"a", "head.weight"};
    const float values[] = {5, 6};
    char path[400];
    lc_module m, head;
    lc_load_result r = LC_LOAD_RESULT_INIT;
    float v;
    snprintf(path, sizeof path, "%s/w.safetensors", fresh_dir("tied"));
    lc_module_init(&m, NULL, 1);
    lc_tensor *a = lc_module_add_parameter(&m, "a", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, (lc_init){0});
    lc_module_init_child(&head, &m, "head", "Head");
    lc_module_share_parameter(&head, "weight", a);
    for (int has = 1; has < 8; has++) { /* bits: the first name, the second, with another value */
        lc_named_tensor t[2];
        int n = 0;
        for (int k = 0; k < 2; k++)
            if (has >> k & 1)
                t[n++] = (lc_named_tensor){.name = names[k],
                                           .data = (void *)(uintptr_t)&values[k && has & 4],
                                           .type = {.dtype = LC_F32, .ndim = 1, .shape = {1}}};
        if (!n || (has & 4 && !(has & 2))) continue;
        const float before = 1;
        CHECK_OK(lc_tensor_write(a, &before, sizeof before));
        CHECK_OK(lc_safetensors_save(path, n, t, 0, NULL));
        lc_status s = lc_module_load_weights(&m, path, &r);
        CHECK_OK(lc_tensor_read(a, &v, sizeof v));
        CHECK_STATUS(s, has == 7 ? LC_ERR_ARGUMENT : LC_OK);
        CHECK(has == 7 ? v == 1 : v == values[has == 6] && r.n_loaded == 1 && !r.message);
        if (has == 7) CHECK_CONTAINS(lc_error_message(), "\"a\" and \"head.weight\" are one parameter of this module");
        lc_load_result_release(&r);
    }
    lc_module_release(&m);
}

TEST(many_names_are_counted)
{
    file f = {.n = 0};
    lc_load_result r;
    unsigned bits;
    for (int i = 0; i < 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%d", i);
        add(&f, name, 1, LC_F32, false);
    }
    CHECK_STATUS(load(save(&f), NULL, &r, &bits), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "and 4 more; not_strict loads those that both have");
    CHECK_EQ(r.n_unexpected, 9);
    lc_load_result_release(&r);
}

TEST(other_shapes)
{
    file f;
    lc_load_args o = lc_load_defaults();
    lc_load_result r;
    unsigned bits;
    all(&f, "", LC_F32, LC_I64);
    f.v[2].type.shape[0] = 2; /* b.weight for another number of classes */
    save(&f);
    o.not_strict = true; /* as in PyTorch, this does not allow other shapes */
    CHECK_STATUS(load(f.path, &o, &r, &bits), LC_ERR_SHAPE);
    CHECK_CONTAINS(lc_error_message(), "b.weight: [2,4] in the file, [3,4] in the module; skip_mismatched leaves out "
                                       "those of another shape");
    CHECK_EQ(bits, 0);
    lc_load_result_release(&r);
    o.not_strict = false;
    o.skip_mismatched = true;
    CHECK_OK(load(f.path, &o, &r, &bits));
    CHECK(bits == (31 & ~4) && r.n_mismatched == 1 && !r.n_missing && r.n_loaded == 4);
    CHECK_CONTAINS(r.message, "of another shape: b.weight");
    CHECK(!strstr(r.message, "leaves out"));
    lc_load_result_release(&r);
}

TEST(prefixes_renames_and_skipped_names)
{
    static const lc_text_pair rename[] = {{"net.first.*", "a.*"}, {"net.?.w*t", "b.weight"}, {"net.*", "b.*"}};
    static const char *const skip[] = {"count", "b.b*"};
    file f = {.n = 0};
    lc_load_args o = lc_load_defaults();
    lc_load_result r;
    unsigned bits;
    add(&f, "module.net.first.weight", 0, LC_F32, false);
    add(&f, "module.net.first.bias", 1, LC_F32, false);
    add(&f, "module.net.2.weight", 2, LC_F32, false);
    add(&f, "net.bias", 3, LC_F32, false);
    save(&f);
    o.strip_prefix = "module.";
    o.rename = rename;
    o.n_rename = 3;
    o.skip = skip;
    o.n_skip = 2;
    CHECK_OK(load(f.path, &o, &r, &bits));
    CHECK(bits == 7 && r.n_loaded == 3 && !r.n_missing && !r.n_unexpected && r.n_skipped == 2);
    CHECK(has(r.skipped, 2, "count") && has(r.skipped, 2, "b.bias") && !r.message);
    lc_load_result_release(&r);
    o.n_skip = 1;
    CHECK_OK(load(f.path, &o, &r, &bits));
    CHECK(bits == 15 && r.n_skipped == 1);
    lc_load_result_release(&r);
    /* Two names that become the same. */
    static const lc_text_pair one[] = {{"*", "a.bias"}};
    o.rename = one;
    o.n_rename = 1;
    CHECK_STATUS(load(f.path, &o, &r, &bits), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "both become \"a.bias\"");
    CHECK_EQ(bits, 0);
    lc_load_result_release(&r);
    /* A part of a larger model, loaded into its place. */
    f = (file){.n = 0};
    add(&f, "weight", 0, LC_F32, false);
    add(&f, "bias", 1, LC_F32, false);
    save(&f);
    o = lc_load_defaults();
    CHECK_STATUS(load(f.path, &o, &r, &bits), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "add_prefix \"a.\" may help");
    lc_load_result_release(&r);
    o.add_prefix = "a.";
    o.not_strict = true;
    CHECK_OK(load(f.path, &o, &r, &bits));
    CHECK(bits == 3 && r.n_missing == 3);
    lc_load_result_release(&r);
}

TEST(data_types_are_converted)
{
    static const lc_dtype floats[] = {LC_F16, LC_BF16, LC_F64, LC_F32};
    for (int i = 0; i < 4; i++) {
        file f;
        lc_load_result r;
        unsigned bits;
        all(&f, "", floats[i], i % 2 ? LC_I64 : LC_I32);
        CHECK_OK(load(save(&f), NULL, &r, &bits));
        CHECK(bits == 31 && r.n_loaded == 5 && !r.message);
        CHECK_EQ(r.n_converted, (floats[i] != LC_F32 ? 4 : 0) + (i % 2 ? 0 : 1));
        lc_load_result_release(&r);
    }
    /* Counters that are fractions, and other values that cannot be converted. */
    file f;
    lc_load_args o = lc_load_defaults();
    lc_load_result r;
    unsigned bits;
    all(&f, "", LC_F32, LC_F32);
    save(&f);
    CHECK_STATUS(load(f.path, &o, &r, &bits), LC_ERR_DTYPE);
    CHECK_CONTAINS(lc_error_message(), "count: F32 in the file, i64 in the module");
    CHECK_EQ(bits, 0);
    lc_load_result_release(&r);
    o.skip_mismatched = true;
    CHECK_OK(load(f.path, &o, &r, &bits));
    CHECK(bits == 15 && r.n_mismatched == 1);
    lc_load_result_release(&r);
}

TEST(matrices_are_transposed)
{
    static const char *const every[] = {"*.weight"};
    lc_load_args o = lc_load_defaults();
    lc_load_result r;
    unsigned bits;
    for (int i = 0; i < 2; i++) {
        file f = {.n = 0};
        for (int k = 0; k < TENSORS; k++)
            add(&f, tensors[k].name, k, i && k < 4 ? LC_BF16 : tensors[k].dtype, tensors[k].ndim == 2);
        save(&f);
        o.n_transpose = 0;
        CHECK_STATUS(load(f.path, &o, &r, &bits), LC_ERR_SHAPE);
        lc_load_result_release(&r);
        o.transpose = every;
        o.n_transpose = 1;
        CHECK_OK(load(f.path, &o, &r, &bits));
        CHECK_EQ(bits, 31);
        lc_load_result_release(&r);
    }
}

/* A checkpoint of lightc is read like a file; options from programs that know fewer fields, or none. */
TEST(weights_of_checkpoints_and_options_of_older_programs)
{
    char path[400];
    file f;
    net m;
    lc_ckpt_writer *w;
    lc_load_args o = lc_load_defaults();
    lc_load_result r;
    unsigned bits;
    snprintf(path, sizeof path, "%s/a.ckpt", fresh_dir("weights"));
    all(&f, "old.", LC_F16, LC_I64);
    CHECK_OK(lc_ckpt_writer_new(&w));
    CHECK_OK(lc_ckpt_begin(w, path));
    for (int k = 0; k < f.n; k++) CHECK_OK(lc_ckpt_add_data(w, LC_CKPT_MODEL, f.v[k].name, &f.v[k].type, f.v[k].data));
    CHECK_OK(lc_ckpt_commit(w, true));
    lc_ckpt_writer_free(w);
    o.strip_prefix = "old.";
    o.size = offsetof(lc_load_args, rename); /* later fields are not read */
    o.n_rename = 1000;
    CHECK_OK(load(path, &o, &r, &bits));
    CHECK_EQ(bits, 31);
    lc_load_result_release(&r);

    net_open(&m);
    CHECK_STATUS(lc_module_load_weights_with(&m.base, path, NULL, &(lc_load_args){.not_strict = true}),
                 LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "lc_load_defaults()");
    CHECK_STATUS(lc_module_load_weights(&m.base, NULL, NULL), LC_ERR_ARGUMENT);
    *strrchr(path, '/') = '\0';
    strcat(path, "/absent"); /* next to a valid checkpoint, which is another thing */
    CHECK_STATUS(lc_module_load_weights(&m.base, path, NULL), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), path);
    CHECK(!strstr(lc_error_message(), "checkpoint"));
    lc_module_release(&m.base);
}

/* ---- by options ---- */

static lc_tensor *train_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    return lc_cross_entropy(lc_linear_forward(&m->b, lc_linear_forward(&m->a, b->x)), b->y);
}
static lc_status sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 1e-30));
}
static const lc_module_ops trained_ops = {LC_MODULE_OPS_INIT("net"), .training_step = train_step,
                                          .configure_optimizers = sgd};

typedef struct trained {
    const char *path, *strategy, *rank_path; /* on ranks other than 0 */
    bool strict;                             /* no other option than `weights` */
} trained;

/* A fit with the options, then a second one of the same trainer, and the weights that the module has then. */
static lc_status run_fits(lc_comm *comm, const trained *how, unsigned *bits)
{
    net m;
    lc_dataloader *data;
    lc_trainer *t;
    lc_trainer_options o = quiet_options(comm);
    o.strategy = how->strategy;
    o.max_steps = 1;
    o.weights = comm && lc_comm_rank(comm) && how->rank_path ? how->rank_path : how->path;
    if (!how->strict) {
        o.weights_strict = false;
        o.weights_skip_mismatched = true;
        o.weights_strip_prefix = "model.";
        o.weights_rename = "first.*=a.*,second.*=b.*";
        o.weights_skip = "x,a.b*";
        o.weights_transpose = "b.weight";
    }
    net_open(&m);
    m.base.ops = &trained_ops;
    LC_TRY(loader_of(0, SAMPLES, 2, false, &data));
    LC_TRY(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = data);
    if (s >= 0) *bits = loaded(&m);
    /* Weights are loaded once: a second fit keeps what the first one trained. */
    const float other[CLASSES] = {5, 5, 5};
    float now[CLASSES];
    if (s >= 0) s = lc_tensor_write(m.b.bias, other, sizeof other);
    if (s >= 0) s = lc_trainer_fit(t, &m.base, .train_dataloader = data);
    if (s >= 0) s = lc_tensor_read(m.b.bias, now, sizeof now);
    if (s >= 0 && memcmp(now, other, sizeof now) != 0) s = lc_fail(LC_ERR_INTERNAL, "weights were read again");
    lc_trainer_free(t);
    lc_dataloader_free(data);
    lc_module_release(&m.base);
    return s;
}

static void named_otherwise(file *f)
{
    *f = (file){.n = 0};
    add(f, "model.first.weight", 0, LC_BF16, false);
    add(f, "model.first.bias", 1, LC_F32, false);
    add(f, "model.second.weight", 2, LC_F32, true);
    add(f, "model.second.bias", 3, LC_F16, false);
    save(f);
}

TEST(a_run_begins_with_the_weights_named_in_options)
{
    file f;
    unsigned bits = 0;
    named_otherwise(&f);
    CHECK_OK(run_fits(NULL, &(trained){.path = f.path}, &bits));
    CHECK_EQ(bits, 1 | 4 | 8); /* a.bias is skipped, count is missing */
    CHECK_STATUS(run_fits(NULL, &(trained){.path = "/nowhere/w.safetensors"}, &bits), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "weights: ");
}

TEST(advice_names_the_option)
{
    file f;
    unsigned bits = 0;
    all(&f, "model.", LC_F32, LC_I64);
    save(&f);
    CHECK_STATUS(run_fits(NULL, &(trained){.path = f.path, .strict = true}, &bits), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(), "; weights_strip_prefix \"model.\" may help");
    f.v[2].type.shape[0] = 2;
    f.n = 3;
    for (int k = 0; k < 3; k++) f.v[k].name += strlen("model.");
    save(&f);
    CHECK_STATUS(run_fits(NULL, &(trained){.path = f.path, .strict = true}, &bits), LC_ERR_NOT_FOUND);
    CHECK_CONTAINS(lc_error_message(),
                   "; weights_strict off loads those that both have; weights_skip_mismatched leaves");
}

static lc_status rank_fits(lc_comm *comm, void *ctx)
{
    unsigned bits = 0;
    LC_TRY(run_fits(comm, ctx, &bits));
    RANK_CHECK(bits == (1 | 4 | 8));
    return LC_OK;
}

TEST(rank_0_reads_weights_for_all_ranks)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_3"};
    file f;
    named_otherwise(&f);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        trained how = {.path = f.path, .strategy = strategies[i], .rank_path = "/other/w.safetensors"};
        CHECK_RANKS("threads", 2, rank_fits, &how);
    }
}

TEST(patterns)
{
    static const struct {
        const char *pattern, *name, *text, *made; /* made NULL: the pattern does not match */
    } rows[] = {{"a", "a", "b", "b"},
                {"a", "ab", "b", NULL},
                {"*", "", "x*y", "xy"},
                {"*", "abc", "x*y", "xabcy"},
                {"a.*.b", "a.1.2.b", "*", "1.2"},
                {"*.attn.*.w", "l.3.attn.q.w", "x.*.att.*.weight", "x.l.3.att.q.weight"},
                {"l?.w", "l7.w", "m.*", "m.7"},
                {"l?.w", "l77.w", "m.*", NULL},
                {"*a*b", "xaab", "*-*", "x-a"},
                {"**", "xy", "*|*", "|xy"},
                {"a*", "ab", "*.*", "b.*"},
                {"*?", "xyz", "*,*", "xy,z"},
                {"*.w", "a.ww", "*", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *made;
        CHECK_EQ(lc__pattern_fits(rows[i].pattern, rows[i].name), rows[i].made != NULL);
        if (!rows[i].made) continue;
        CHECK_OK(lc__pattern_replace(rows[i].pattern, rows[i].name, rows[i].text, &made));
        CHECK_STR(made, rows[i].made);
        free(made);
    }
}

TEST_MAIN

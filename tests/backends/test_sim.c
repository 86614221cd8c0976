/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device (backends/sim/sim.h): the CPU's numbers whatever the schedule, and what a steady step does. That
 * whole test programs run there is in extra.cmake. */
#define _GNU_SOURCE
#include "file_text.h"
#include "test.h"

#include "sim_device.h"
#include "state_bytes.h"
#include "tensor/host_access.h"

#include <lightc/lightc.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IN = 5, HIDDEN = 7, OUT = 3, SAMPLES = 4, STEPS = 6 };

typedef struct net {
    lc_module m;
    lc_graph *graph;
    lc_optimizer *opt;
    lc_tensor *w1, *b1, *w2, *x, *label, *runs;
    float data[SAMPLES * IN];
    int64_t labels[SAMPLES];
} net;

static const lc_init normal = {LC_INIT_NORMAL, 0, 0.5};
static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net")};

static lc_status make(net *n)
{
    lc_module_init(&n->m, &net_ops, 11);
    n->w1 = lc_module_add_parameter(&n->m, "w1", LC_F32, LC_ROW_MAJOR, 2, (int64_t[]){HIDDEN, IN}, normal);
    n->b1 = lc_module_add_parameter(&n->m, "b1", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){HIDDEN}, normal);
    n->w2 = lc_module_add_parameter(&n->m, "w2", LC_F32, LC_ROW_MAJOR, 2, (int64_t[]){OUT, HIDDEN}, normal);
    n->runs = lc_module_add_buffer(&n->m, "runs", LC_F32, 1, (int64_t[]){1}, (lc_init){0}, true);
    LC_TRY(lc_module_status(&n->m));
    LC_TRY(lc_graph_new(&n->graph, .threads = 1, .seed = 5));
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){SAMPLES, IN}, LC_ROW_MAJOR, n->data, &n->x));
    LC_TRY(lc_input_new(LC_I64, 1, (int64_t[]){SAMPLES}, LC_ROW_MAJOR, n->labels, &n->label));
    n->opt = lc_adamw(&n->m, .lr = 0.01);
    return LC_OK;
}

static void drop(net *n)
{
    lc_optimizer_free(n->opt);
    lc_tensor_unref(n->x);
    lc_tensor_unref(n->label);
    lc_graph_free(n->graph);
    lc_module_release(&n->m);
}

/* Everything that changes from step to step: the batch, the learning rate, the mask of dropout. */
static lc_status step(net *n, int number)
{
    for (int i = 0; i < SAMPLES * IN; i++) n->data[i] = (float)lc_random_normal(77 + (uint64_t)number, (uint64_t)i);
    for (int i = 0; i < SAMPLES; i++) n->labels[i] = (i + number) % OUT;
    n->opt->groups[0].hyper[0] = 0.01 * (number + 1);
    LC_TRY(lc_step_begin(n->graph, (uint64_t)number, 0));
    lc_zero_grad(n->graph);
    lc_tensor *h = lc_dropout(lc_gelu(lc_linear(n->x, n->w1, n->b1)), 0.3);
    lc_tensor *loss = lc_cross_entropy(lc_linear(h, n->w2, NULL), n->label);
    lc_assign(n->runs, lc_add_scalar(n->runs, 1));
    lc_backward(loss);
    lc_clip_grad_norm(n->opt, 0.5);
    lc_optimizer_step(n->opt);
    LC_TRY(lc_step_run(n->graph));
    return lc_step_end(n->graph);
}

typedef struct values {
    float w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], runs;
} values;

static lc_status read_all(net *n, values *v)
{
    LC_TRY(lc_tensor_read(n->w1, v->w1, sizeof v->w1));
    LC_TRY(lc_tensor_read(n->b1, v->b1, sizeof v->b1));
    LC_TRY(lc_tensor_read(n->w2, v->w2, sizeof v->w2));
    return lc_tensor_read(n->runs, &v->runs, sizeof v->runs);
}

static values train(void)
{
    net n = {0};
    values v;
    CHECK_OK(make(&n));
    for (int i = 0; i < STEPS; i++) CHECK_OK(step(&n, i));
    CHECK_OK(read_all(&n, &v));
    drop(&n);
    return v;
}

TEST(every_schedule_gives_the_bits_of_the_cpu)
{
    static const char *const runs[][2] = {{"sim", "lazy"}, {"sim:1", "eager"}, {"sim:2", "random:7"}};
    find_plugin();
    use(NULL, NULL);
    values cpu = train();
    CHECK_EQ(cpu.runs, STEPS);
    for (int i = 0; i < 3; i++) {
        use(runs[i][0], runs[i][1]);
        values sim = train();
        if (memcmp(&cpu, &sim, sizeof cpu) != 0) TEST_FAIL("%s differs from the CPU", runs[i][1]);
    }
}

TEST(a_steady_step_waits_for_nothing)
{
    enum { WARM = 8, MORE = 5 };
    net n = {0};
    find_plugin();
    use("sim", "lazy");
    CHECK_OK(make(&n));
    for (int i = 0; i < WARM; i++) CHECK_OK(step(&n, i));
    values v;
    CHECK_OK(read_all(&n, &v));
    lc_sim_counters before = counters(0);
    CHECK_OK(step(&n, WARM));
    CHECK_OK(step(&n, WARM + 1));
    lc_sim_counters after = counters(0);
    CHECK_EQ(after.waits - before.waits, 0);
    CHECK_EQ(after.allocations - before.allocations, 0);
    CHECK_EQ(after.launches - before.launches, 0);
    CHECK_EQ(after.programs - before.programs, 2);
    CHECK_EQ(after.bytes_out - before.bytes_out, 0);
    int64_t batch = in_pieces(sizeof n.data) + in_pieces(sizeof n.labels); /* copied with the state */
    CHECK_EQ(after.bytes_in - before.bytes_in, 2 * (batch + state_bytes(n.graph)));
    drop(&n);
}

/* How a child ended that does this. */
static int child(void (*does)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        does();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void touch_memory(void)
{
    lc_tensor *t;
    signal(SIGSEGV, SIG_DFL);
    if (lc_tensor_new(LC_F32, 1, (int64_t[]){4}, &t) < 0) _exit(3);
    *(volatile float *)lc__tensor_address(t) = 1;
}

TEST(the_host_cannot_touch_its_memory)
{
    find_plugin();
    use("sim", "lazy");
    int status = child(touch_memory);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) > 3); /* a sanitizer exits */
}

/* ---- the second queue ---- */

enum { BYTES = 4096 };

/* A device of its own, and memory on both sides. */
static const lc_device *queues(char *memory[3], char **pinned)
{
    const lc_device *on;
    void *p[4];
    if (lc__device_find("sim:5", &on) < 0) _exit(60);
    for (int i = 0; i < 3; i++)
        if (on->ops->alloc(on->context, BYTES, &p[i]) < 0) _exit(61);
    if (on->ops->host_alloc(on->context, BYTES, &p[3]) < 0) _exit(62);
    for (int i = 0; i < 3; i++) memory[i] = p[i];
    *pinned = p[3];
    return on;
}

static void copy_ahead_of_others(void)
{
    char *memory[3], *pinned;
    bool reached = true;
    uint64_t mark, ahead;
    const lc_device *on = queues(memory, &pinned);
    lc_status status = on->ops->copy(on->context, memory[0], pinned, BYTES);
    if (status >= 0) status = on->ops->mark(on->context, &mark);
    if (status >= 0) status = on->ops->copy_ahead(on->context, memory[1], pinned, BYTES);
    if (status >= 0) status = on->ops->copy_arrived(on->context, memory[2], memory[1], BYTES, &ahead);
    if (status >= 0) status = on->ops->wait(on->context, ahead);
    if (status >= 0) status = on->ops->reached(on->context, mark, &reached);
    _exit(status < 0 ? 63 : reached);
}

TEST(a_copy_ahead_does_not_wait_for_the_queue)
{
    find_plugin();
    use("sim:5", "lazy");
    CHECK_EQ(child(copy_ahead_of_others), 0);
}

static void copy_within(void)
{
    char *memory[3], *pinned;
    bool reached = true;
    uint64_t mark;
    const lc_device *on = queues(memory, &pinned);
    lc_status status = on->ops->copy(on->context, memory[0], pinned, BYTES);
    if (status >= 0) status = on->ops->mark(on->context, &mark);
    if (status >= 0) status = on->ops->copy(on->context, memory[1], memory[0], BYTES);
    if (status >= 0) status = on->ops->reached(on->context, mark, &reached);
    _exit(status < 0 ? 63 : reached);
}

TEST(a_copy_within_the_device_is_enqueued)
{
    find_plugin();
    use("sim:5", "lazy");
    CHECK_EQ(child(copy_within), 0);
}

static void in_a_program(bool sends, const char *message)
{
    char *memory[3], *pinned;
    uint64_t mark;
    const lc_device *on = queues(memory, &pinned);
    if (on->ops->program_begin(on->context) < 0) _exit(63);
    lc_status status = sends ? on->ops->copy_ahead(on->context, memory[0], pinned, BYTES)
                             : on->ops->copy_arrived(on->context, memory[1], memory[0], BYTES, &mark);
    _exit(status >= 0 || !strstr(lc_error_message(), message));
}
static void send_in_a_program(void)
{
    in_a_program(true, "work for another stream");
}
static void arrive_in_a_program(void)
{
    in_a_program(false, "waits for an event from outside");
}

TEST(a_program_has_one_queue)
{
    find_plugin();
    use("sim:5", "lazy");
    CHECK_EQ(child(send_in_a_program), 0);
    CHECK_EQ(child(arrive_in_a_program), 0);
}

/* Trains until something fails; the exit status is how many steps that took. */
static void train_until_error(void)
{
    net n = {0};
    int i = 0;
    values v;
    lc_status status = make(&n);
    while (status >= 0 && i < STEPS) {
        status = step(&n, i);
        i++;
    }
    if (status < 0 && !strstr(lc_error_message(), "as asked for")) _exit(60);
    if (status >= 0 || read_all(&n, &v) >= 0) _exit(61); /* the error stays */
    if (!strstr(lc_error_message(), "as asked for")) _exit(62);
    _exit(i);
}

TEST(the_first_error_stays)
{
    static const char *const what[] = {"launch:5", "copy:7", "alloc:10"};
    find_plugin();
    use("sim:3", "lazy");
    for (int i = 0; i < 3; i++) {
        setenv("LIGHTC_SIM_FAIL", what[i], 1);
        int status = child(train_until_error);
        if (!WIFEXITED(status) || WEXITSTATUS(status) >= 60) TEST_FAIL("%s: 0x%x", what[i], (unsigned)status);
    }
    unsetenv("LIGHTC_SIM_FAIL");
}

TEST(an_operator_without_a_kernel_is_named)
{
    net n = {0};
    find_plugin();
    use("sim", "lazy");
    setenv("LIGHTC_SIM_WITHOUT", "cross_entropy", 1);
    CHECK_OK(make(&n));
    CHECK_STATUS(step(&n, 0), LC_ERR_UNSUPPORTED);
    CHECK(strstr(lc_error_message(), "cross_entropy") && strstr(lc_error_message(), "f32 on sim"));
    drop(&n);
    unsetenv("LIGHTC_SIM_WITHOUT");
}

/* ---- LIGHTC_HOST_FALLBACK ---- */

enum { SAID = 8192 };

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

/* Trains on sim without kernels for `without`; said: what was printed on standard error. */
static void train_without(const char *without, values *v, char said[SAID])
{
    char path[] = "/tmp/lightc_fallback_XXXXXX";
    int file = mkstemp(path), old = dup(2);
    CHECK(file >= 0 && old >= 0);
    use("sim", "lazy");
    setenv("LIGHTC_SIM_WITHOUT", without, 1);
    setenv("LIGHTC_HOST_FALLBACK", "1", 1);
    fflush(stderr);
    dup2(file, 2);
    *v = train();
    dup2(old, 2);
    close(old);
    close(file);
    unsetenv("LIGHTC_SIM_WITHOUT");
    unsetenv("LIGHTC_HOST_FALLBACK");
    file_text("", path, said, SAID);
    unlink(path);
}

/* The message comes once in a process: not again in the next training, nor about what it has named before. */
TEST(what_has_no_kernel_runs_on_the_host_if_asked_for)
{
    static const char *const without[] = {"gelu,fused,cross_entropy", "update_adam,accumulate_grad,dropout", "all"};
    static const char *const named[] = {"cross_entropy of f32", "update_adam of f32", "linear of f32"};
    find_plugin();
    use(NULL, NULL);
    values cpu = train();
    for (int i = 0; i < 6; i++) {
        values v;
        int64_t programs = counters(0).programs;
        char said[SAID], want[64];
        snprintf(want, sizeof want, "sim has no kernel for %s", named[i / 2]);
        train_without(without[i / 2], &v, said);
        if (memcmp(&cpu, &v, sizeof v) != 0) TEST_FAIL("without %s: other numbers than on the CPU", without[i / 2]);
        CHECK_EQ(counters(0).programs > programs, i < 4); /* of what runs on the device, between calls of the host's */
        if (i % 2 ? count_of(said, "has no kernel") != 0
                  : count_of(said, want) != 1 || (i == 4 && count_of(said, named[0])))
            TEST_FAIL("without %s, this was said:\n%s", without[i / 2], said);
    }
}

/* ---- an operator of the program, with kernels by backend ---- */

static lc_sim_launch_fn *launch_on_sim;
static int n_launched;

/* y = factor * x + add */
static void run_scaled(const lc_call *c, double add)
{
    const float *x = c->in[0].data;
    float *y = c->out[0].data;
    for (int64_t i = 0; i < c->out[0].shape[0]; i++) y[i] = (float)(c->floats[0] * (double)x[i] + add);
}
static void run_on_host(const lc_call *c)
{
    run_scaled(c, 0);
}
static void run_above(const lc_call *c)
{
    run_scaled(c, 100);
}
static lc_status infer_scaled(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}
static const lc_kernel host_kernel = {.name = "host", .layout = LC_WANT_ROW_MAJOR, .run = run_on_host};
static const lc_kernel above_kernel = {.name = "above", .layout = LC_WANT_ROW_MAJOR, .run = run_above};
static const lc_op scaled = {
    .name = "scaled", .flags = LC_OP_NO_GRAD, .n_out = 1, .infer = infer_scaled, .kernel = &host_kernel};

/* Enqueues it; the addresses of the call are the device's. */
static void launch_above(const lc_call *c)
{
    n_launched++;
    launch_on_sim(c, &above_kernel);
}
static const lc_kernel sim_kernel = {.name = "above_on_sim", .layout = LC_WANT_ROW_MAJOR, .run = launch_above};

/* scaled(x) with a factor of 2, then of 3: a program has been made in between. */
static lc_status scale(float y[2][3])
{
    lc_graph *g;
    lc_tensor *x;
    LC_TRY(lc_graph_new(&g, .threads = 1));
    LC_TRY(lc_tensor_new(LC_F32, 1, (int64_t[]){3}, &x));
    lc_status status = lc_tensor_write(x, (float[]){1, 2, 3}, 3 * sizeof(float));
    for (int i = 0; i < 4 && status >= 0; i++) {
        double factor = i < 3 ? 2 : 3;
        if (lc_step_begin(g, (uint64_t)i, 0) < 0) break;
        lc_tensor *out = lc_op_call(&scaled, 1, &x, 0, NULL, 1, &factor, LC_HERE);
        status = lc_tensor_read(out, y[i / 3], 3 * sizeof(float));
        if (status < 0) (void)!lc_step_status(g);
        lc_status ended = lc_step_end(g);
        if (status >= 0) status = ended;
    }
    lc_tensor_unref(x);
    lc_graph_free(g);
    return status;
}

static void check_scaled(float add)
{
    float y[2][3];
    CHECK_OK(scale(y));
    for (int i = 0; i < 3; i++) CHECK(y[0][i] == 2 * ((float)i + 1) + add && y[1][i] == 3 * ((float)i + 1) + add);
}

TEST(a_program_adds_kernels_by_backend)
{
    float y[2][3];
    find_plugin();
    *(void **)&launch_on_sim = symbol_of_plugin("lc_sim_launch");
    use("sim", "lazy");
    setenv("LIGHTC_SIM_WITHOUT", "scaled", 1);
    CHECK_STATUS(scale(y), LC_ERR_UNSUPPORTED);
    CHECK(strstr(lc_error_message(), "scaled") && strstr(lc_error_message(), "f32 on sim"));
    CHECK_OK(lc_op_add_kernel(&scaled, "sim", &sim_kernel));
    check_scaled(100);
    CHECK(n_launched > 0);
    unsetenv("LIGHTC_SIM_WITHOUT");
    check_scaled(100); /* it comes before the backend's own */
    use(NULL, NULL);
    check_scaled(0);
    unsetenv("LIGHTC_KERNELS");
    CHECK_OK(lc_op_add_kernel(&scaled, "cpu", &above_kernel));
    check_scaled(100);
    setenv("LIGHTC_KERNELS", "reference", 1);
    check_scaled(0);
    CHECK_STATUS(lc_op_add_kernel(&scaled, "", &sim_kernel), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_op_add_kernel(&scaled, "sim:1", &sim_kernel), LC_ERR_ARGUMENT);
    CHECK_STATUS(lc_op_add_kernel(&scaled, "sim", &host_kernel), LC_ERR_ARGUMENT);
}

/* Enqueues it as if the call named no queue. */
static void launch_nowhere(const lc_call *c)
{
    lc_call call = *c;
    call.queue = NULL;
    launch_on_sim(&call, &above_kernel);
}
static const lc_kernel nowhere_kernel = {.name = "nowhere", .layout = LC_WANT_ROW_MAJOR, .run = launch_nowhere};

static void scale_nowhere(void)
{
    float y[2][3];
    if (lc_op_add_kernel(&scaled, "sim", &nowhere_kernel) < 0) _exit(60);
    _exit(scale(y) >= 0 || !strstr(lc_error_message(), "scaled is launched on another queue"));
}

TEST(a_call_has_the_queue_of_its_device)
{
    find_plugin();
    *(void **)&launch_on_sim = symbol_of_plugin("lc_sim_launch");
    use("sim:6", "lazy");
    CHECK_EQ(child(scale_nowhere), 0);
}

/* Without a message of its own. */
static lc_status prepare_nothing(lc_call *call)
{
    (void)call;
    return LC_ERR_USER;
}
static const lc_kernel unprepared_kernel = {.name = "unprepared", .prepare = prepare_nothing, .run = launch_above};

static void scale_unprepared(void)
{
    float y[2][3];
    if (lc_op_add_kernel(&scaled, "sim", &unprepared_kernel) < 0) _exit(60);
    (void)lc_fail(LC_ERR_IO, "an earlier error");
    _exit(scale(y) != LC_ERR_USER || !strstr(lc_error_message(), "scaled (unprepared): ") ||
          strstr(lc_error_message(), "earlier"));
}

TEST(a_kernel_that_is_not_prepared_is_named)
{
    find_plugin();
    use("sim:6", "lazy");
    CHECK_EQ(child(scale_unprepared), 0);
}

TEST(what_cannot_be_opened_is_a_sentence)
{
    lc_tensor *t;
    find_plugin();
    use("sim:8", NULL);
    CHECK_STATUS(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &t), LC_ERR_CONFIG);
    CHECK(strstr(lc_error_message(), "there is no sim:8; this machine has 8"));
    use("none", NULL);
    CHECK_STATUS(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "environment variable LIGHTC_ACCELERATOR: accelerator is \"none\"");
    CHECK_CONTAINS(lc_error_message(), "/liblightc_none.so: ");
    use("../sim", NULL);
    CHECK_STATUS(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &t), LC_ERR_CONFIG);
    use("sim:x", NULL);
    CHECK_STATUS(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &t), LC_ERR_CONFIG);
    use(NULL, NULL);
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){1}, &t));
    lc_tensor_unref(t);
}

TEST_MAIN

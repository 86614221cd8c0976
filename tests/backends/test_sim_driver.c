/* SPDX-License-Identifier: Apache-2.0 */
/* The guards of the simulated device (backends/sim/sim.h): what its driver refuses, and what memory holds that nobody
 * has written. The program contains the driver. Each case runs in a process of its own, since the first error stays. */
#define _GNU_SOURCE
#include "test.h"

#include "backends/driver/queue.h"
#include "backends/sim/sim.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 8192 };

static bool has_bad_index(const lc_call *call)
{
    (void)call;
    return false;
}
static lc_status host_fail(lc_status status, const char *format, ...)
{
    (void)format;
    return status;
}
static const lc_backend_host host = {.has_bad_index = has_bad_index, .fail = host_fail};
const lc_backend_host *sim_host = &host;

typedef struct world {
    void *context, *stream, *second, *event, *program;
    char *memory, *more, *pinned, *plain; /* two of the device's, and two of the host's */
    char *reserved, *foreign;             /* addresses without memory; memory of another device */
    void *taken;                          /* what a case allocates */
} world;

static const lc__driver *const drv = &sim_driver;

/* Ends the process with 1 if that fails, as if the case had returned false. */
static void open_world(world *w)
{
    void *other;
    int error;
    setenv("LIGHTC_SIM", "lazy", 1);
    error = drv->context_create(0, &w->context) || drv->context_create(1, &other);
    error = error || drv->stream_create(w->context, &w->stream) || drv->stream_create(w->context, &w->second);
    error = error || drv->event_create(w->context, &w->event) || drv->event_record(w->context, w->event, w->stream);
    error = error || drv->capture_begin(w->context, w->stream);
    error = error || drv->capture_end(w->context, w->stream, &w->program);
    error = error || drv->alloc(w->context, (void **)&w->memory, BLOCK);
    error = error || drv->alloc(w->context, (void **)&w->more, BLOCK);
    error = error || drv->alloc(other, (void **)&w->foreign, BLOCK);
    error = error || drv->address_reserve(w->context, (void **)&w->reserved, BLOCK);
    error = error || drv->host_alloc(w->context, (void **)&w->pinned, BLOCK);
    w->plain = calloc(1, BLOCK);
    if (error || !w->plain) _exit(1);
}

/* ---- in a process of its own ---- */

static int wait_status(pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

/* 0 if the case returns true. */
static int run(bool (*does)(world *w))
{
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        world w = {0};
        open_world(&w);
        _exit(!does(&w));
    }
    return wait_status(pid);
}

/* Something that the driver must refuse with a message. */
typedef struct misuse {
    int (*does)(world *w);
    const char *says;
} misuse;

/* 0 if it is refused, with that message, and so is all that follows. */
static int run_misuse(const misuse *m, bool captured)
{
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        world w = {0};
        void *program;
        open_world(&w);
        if (captured && drv->capture_begin(w.context, w.stream)) _exit(61);
        if (!m->does(&w)) _exit(62);
        const char *said = drv->error_text(w.context, 1);
        if (!strstr(said, m->says)) fprintf(stderr, "it says: %s\n", said), _exit(63);
        if (captured && !drv->capture_end(w.context, w.stream, &program)) _exit(64);
        _exit(drv->stream_synchronize(w.context, w.stream) ? 0 : 65);
    }
    return wait_status(pid);
}

static void check_misuses(const misuse *list, size_t n, bool captured)
{
    for (size_t i = 0; i < n; i++) {
        int status = run_misuse(&list[i], captured);
        if (status) TEST_FAIL("\"%s\" is not refused: 0x%x", list[i].says, (unsigned)status);
    }
}

/* ---- while a program is captured ---- */

static int allocate(world *w)
{
    return drv->alloc(w->context, &w->taken, BLOCK);
}
static int reserve(world *w)
{
    return drv->address_reserve(w->context, &w->taken, BLOCK);
}
static int map(world *w)
{
    return drv->map(w->context, w->reserved, BLOCK);
}
static int unmap(world *w)
{
    return drv->unmap(w->context, w->reserved, BLOCK);
}
static int host_alloc(world *w)
{
    return drv->host_alloc(w->context, &w->taken, BLOCK);
}
static int host_register(world *w)
{
    return drv->host_register(w->context, w->plain, BLOCK);
}
static int give_back(world *w)
{
    return drv->free(w->context, w->memory, BLOCK);
}
static int give_addresses_back(world *w)
{
    return drv->address_free(w->context, w->reserved, BLOCK);
}
static int host_free(world *w)
{
    return drv->host_free(w->context, w->pinned, BLOCK);
}
static int synchronize(world *w)
{
    return drv->stream_synchronize(w->context, w->stream);
}
static int wait_for_event(world *w)
{
    return drv->event_synchronize(w->context, w->event);
}
static int query(world *w)
{
    bool reached;
    return drv->event_query(w->context, w->event, &reached);
}
static int read_at_once(world *w)
{
    return drv->copy(w->context, w->plain, w->memory, BLOCK);
}
static int record(world *w)
{
    return drv->event_record(w->context, w->event, w->stream);
}
static int wait_from_outside(world *w)
{
    return drv->stream_wait(w->context, w->stream, w->event);
}
static int use_second_stream(world *w)
{
    return drv->copy_async(w->context, w->memory, w->pinned, BLOCK, w->second);
}
static int host_unregister(world *w)
{
    return drv->host_unregister(w->context, w->plain);
}
static int start_program(world *w)
{
    return drv->graph_launch(w->context, w->program, w->stream);
}
static int free_program(world *w)
{
    return drv->graph_free(w->context, w->program);
}
static int capture_again(world *w)
{
    return drv->capture_begin(w->context, w->stream);
}

TEST(what_a_capture_refuses)
{
    static const misuse list[] = {
        {allocate, "memory is allocated while a program is captured"},
        {reserve, "addresses are reserved while a program is captured"},
        {map, "memory is mapped while a program is captured"},
        {unmap, "memory is unmapped while a program is captured"},
        {host_alloc, "host memory is allocated while a program is captured"},
        {host_register, "host memory is registered while a program is captured"},
        {give_back, "memory is freed while a program is captured"},
        {give_addresses_back, "addresses are freed while a program is captured"},
        {host_free, "host memory is freed while a program is captured"},
        {synchronize, "the host waits while a program is captured"},
        {wait_for_event, "the host waits while a program is captured"},
        {query, "an event is asked for while a program is captured"},
        {read_at_once, "a copy at once while a program is captured"},
        {record, "an event is recorded into a program"},
        {wait_from_outside, "a program waits for an event from outside"},
        {use_second_stream, "work for another stream while a program is captured"},
        {host_unregister, "host memory is unregistered while a program is captured"},
        {start_program, "a program is started while one is captured"},
        {free_program, "a program is freed while one is captured"},
        {capture_again, "a program is captured already"},
    };
    check_misuses(list, sizeof list / sizeof *list, true);
}

/* ---- addresses ---- */

static int copy_from_plain(world *w)
{
    return drv->copy_async(w->context, w->memory, w->plain, BLOCK, w->stream);
}
static int copy_to_plain(world *w)
{
    return drv->copy_async(w->context, w->plain, w->memory, BLOCK, w->stream);
}
static int copy_beyond_pinned(world *w)
{
    return drv->copy_async(w->context, w->memory, w->pinned + 1, BLOCK, w->stream);
}
static int copy_between_hosts(world *w)
{
    return drv->copy_async(w->context, w->pinned, w->pinned, BLOCK, w->stream);
}
static int copy_from_another_device(world *w)
{
    return drv->copy_async(w->context, w->memory, w->foreign, BLOCK, w->stream);
}
static int copy_to_another_device(world *w)
{
    return drv->copy_async(w->context, w->foreign, w->memory, BLOCK, w->stream);
}
static int fill_host(world *w)
{
    return drv->fill_async(w->context, w->pinned, 0, BLOCK, w->stream);
}
static int register_twice(world *w)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = aligned_alloc(page, 2 * page);
    if (!pages || drv->host_register(w->context, pages, 2 * page)) return 0;
    return drv->host_register(w->context, pages + page, page);
}
static int register_part_of_a_page(world *w)
{
    return drv->host_register(w->context, w->plain, BLOCK + 1);
}

TEST(what_copies_refuse)
{
    static const char unknown[] = "an asynchronous copy uses host memory that the device does not know";
    static const misuse list[] = {
        {copy_from_plain, unknown},
        {copy_to_plain, unknown},
        {copy_beyond_pinned, unknown},
        {copy_from_another_device, unknown},
        {copy_to_another_device, unknown},
        {copy_between_hosts, "neither end of a copy is the device's memory"},
        {fill_host, "memory of the host is filled"},
        {register_twice, "host memory is registered twice"},
        {register_part_of_a_page, "host memory is registered that does not consist of whole pages"},
    };
    check_misuses(list, sizeof list / sizeof *list, false);
}

/* ---- launches: out[0] = in[0] times the first integer ---- */

static void run_times(const lc_call *c)
{
    ((float *)c->out[0].data)[0] = ((const float *)c->in[0].data)[0] * (float)c->ints[0];
}
static const lc_kernel times = {.name = "times", .run = run_times};
static const lc_op times_op = {.name = "times", .n_out = 1, .kernel = &times};

/* The numbers of a call are in `memory`, from byte 4096 on. scratch: NULL, or as many bytes as a number has. */
static int launch_with(world *w, void *in, void *out, void *numbers, const int64_t *ints, void *scratch)
{
    const unsigned one[3] = {1, 1, 1};
    lc_view views[] = {{.data = in, .dtype = LC_F32, .ndim = 0}, {.data = out, .dtype = LC_F32, .ndim = 0}};
    lc_call call = {.op = &times_op,
                    .kernel = &times,
                    .n_in = 1,
                    .n_out = 1,
                    .n_int = 1,
                    .in = views,
                    .out = views + 1,
                    .ints = ints,
                    .floats = numbers,
                    .rng = numbers,
                    .scratch = scratch,
                    .scratch_bytes = scratch ? sizeof(float) : 0};
    void *parameters[] = {&call};
    return drv->launch(w->context, &times, one, one, 0, w->stream, parameters);
}
static int launch(world *w, void *in, void *out, void *numbers, const int64_t *ints)
{
    return launch_with(w, in, out, numbers, ints, NULL);
}
static int launch_with_scratch_of_the_host(world *w)
{
    return launch_with(w, w->memory, w->more, w->memory + 4096, (int64_t[]){2}, w->pinned);
}
static int launch_with_input_of_the_host(world *w)
{
    return launch(w, w->pinned, w->more, w->memory + 4096, (int64_t[]){2});
}
static int launch_with_input_of_another_device(world *w)
{
    return launch(w, w->foreign, w->more, w->memory + 4096, (int64_t[]){2});
}
static int launch_with_result_of_another_device(world *w)
{
    return launch(w, w->memory, w->foreign, w->memory + 4096, (int64_t[]){2});
}
static int launch_with_numbers_of_the_host(world *w)
{
    return launch(w, w->memory, w->more, w->pinned, (int64_t[]){2});
}

TEST(what_launches_refuse)
{
    static const misuse list[] = {
        {launch_with_input_of_the_host, "input 0 of times is not in the device's memory"},
        {launch_with_input_of_another_device, "input 0 of times is not in the device's memory"},
        {launch_with_result_of_another_device, "result 0 of times is not in the device's memory"},
        {launch_with_numbers_of_the_host, "the numbers of times are not in the device's memory"},
        {launch_with_scratch_of_the_host, "the scratch memory of times is not in the device's memory"},
    };
    check_misuses(list, sizeof list / sizeof *list, false);
}

/* What the caller's memory holds when the program runs does not matter. */
static bool launch_captured(world *w)
{
    float value = 3, got = 0;
    int64_t ints[] = {2};
    void *program;
    int error = drv->copy(w->context, w->memory, &value, sizeof value);
    error = error || drv->capture_begin(w->context, w->stream);
    error = error || launch(w, w->memory, w->more, w->memory + 4096, ints);
    ints[0] = 100;
    error = error || drv->capture_end(w->context, w->stream, &program);
    error = error || drv->copy(w->context, &got, w->more, sizeof got);
    if (error || got == 6) return false; /* nothing has run yet */
    error = drv->graph_launch(w->context, program, w->stream) || drv->stream_synchronize(w->context, w->stream);
    error = error || drv->copy(w->context, &got, w->more, sizeof got);
    return !error && got == 6;
}

static bool start_failing(world *w)
{
    void *program;
    sim_device *d = w->context;
    int error = drv->capture_begin(w->context, w->stream);
    error = error || launch(w, w->memory, w->more, w->memory + 4096, (int64_t[]){2});
    error = error || drv->capture_end(w->context, w->stream, &program);
    d->fail_launch = 1;
    return !error && drv->graph_launch(w->context, program, w->stream) &&
           strstr(drv->error_text(w->context, 1), "the start of a program fails, as asked for");
}

static bool host_memory_failing(world *w)
{
    sim_device *d = w->context;
    d->fail_alloc = 1;
    return drv->host_alloc(w->context, &w->taken, BLOCK) &&
           strstr(drv->error_text(w->context, 1), "out of memory, as asked for");
}

TEST(starts_of_programs_and_host_memory_fail_when_asked)
{
    CHECK_EQ(run(start_failing), 0);
    CHECK_EQ(run(host_memory_failing), 0);
}

TEST(a_program_keeps_the_integers_of_its_calls)
{
    CHECK_EQ(run(launch_captured), 0);
}

/* ---- poison ---- */

static bool is_full_of(const char *at, int byte)
{
    for (int i = 0; i < BLOCK; i++)
        if ((unsigned char)at[i] != byte) return false;
    return true;
}

/* Whether memory of the device holds that byte everywhere. */
static bool holds(world *w, const void *at, int byte)
{
    return !drv->copy(w->context, w->plain, at, BLOCK) && is_full_of(w->plain, byte);
}

static bool fill(world *w, void *at)
{
    return !drv->fill_async(w->context, at, 1, BLOCK, w->stream) && !drv->stream_synchronize(w->context, w->stream) &&
           holds(w, at, 1);
}

static bool new_memory(world *w)
{
    return holds(w, w->memory, LC_SIM_POISON) && fill(w, w->memory);
}

static bool reused_memory(world *w)
{
    void *again;
    if (!fill(w, w->memory) || drv->free(w->context, w->memory, BLOCK)) return false;
    return !drv->alloc(w->context, &again, BLOCK) && again == w->memory && holds(w, again, LC_SIM_POISON);
}

static bool dropped_memory(world *w)
{
    if (drv->map(w->context, w->reserved, BLOCK) || !holds(w, w->reserved, LC_SIM_POISON)) return false;
    if (!fill(w, w->reserved) || drv->unmap(w->context, w->reserved, BLOCK)) return false;
    return !drv->map(w->context, w->reserved, BLOCK) && holds(w, w->reserved, LC_SIM_POISON);
}

TEST(memory_that_nobody_has_written_is_poison)
{
    CHECK_EQ(run(new_memory), 0);
    CHECK_EQ(run(reused_memory), 0);
    CHECK_EQ(run(dropped_memory), 0);
}

/* ---- memory that nobody has: each case makes some, of which the first byte is touched ---- */

static char *reserved(world *w)
{
    return w->reserved;
}
static char *dropped(world *w)
{
    if (drv->map(w->context, w->reserved, BLOCK) || drv->unmap(w->context, w->reserved, BLOCK)) return NULL;
    return w->reserved;
}
static char *released(world *w)
{
    if (drv->map(w->context, w->reserved, BLOCK) || drv->address_free(w->context, w->reserved, BLOCK)) return NULL;
    return w->reserved;
}
static char *freed(world *w)
{
    return drv->free(w->context, w->memory, BLOCK) ? NULL : w->memory;
}
static char *freed_large(world *w)
{
    const size_t large = (size_t)8 << 20;
    return drv->alloc(w->context, &w->taken, large) || drv->free(w->context, w->taken, large) ? NULL : w->taken;
}

static char *(*nobody)(world *w);

static bool touch(world *w)
{
    char *at = nobody(w);
    if (!at) return false;
    signal(SIGSEGV, SIG_DFL);
    (void)drv->copy(w->context, w->plain, at, 1);
    return true;
}

TEST(memory_that_nobody_has_cannot_be_touched)
{
    char *(*const list[])(world * w) = {reserved, dropped, released, freed, freed_large};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        nobody = list[i];
        int status = run(touch);
        /* A sanitizer exits. */
        if (WIFEXITED(status) && WEXITSTATUS(status) < 2) TEST_FAIL("case %zu: 0x%x", i, (unsigned)status);
    }
}

static const char *watched; /* host memory that is about to be freed */
static bool was_poison;

void __real_free(void *at);
void __wrap_free(void *at);
void __wrap_free(void *at)
{
    if (at && at == watched) was_poison = is_full_of(at, LC_SIM_POISON);
    __real_free(at);
}

static bool freed_host_memory(world *w)
{
    memset(w->pinned, 1, BLOCK);
    watched = w->pinned;
    return !drv->host_free(w->context, w->pinned, BLOCK) && was_poison;
}

static bool unregistered_host_memory(world *w)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = aligned_alloc(page, 2 * page); /* more than BLOCK */
    if (!pages || 2 * page < BLOCK || drv->host_register(w->context, pages, 2 * page)) return false;
    memset(pages, 1, 2 * page);
    return !drv->host_unregister(w->context, pages) && is_full_of(pages, LC_SIM_POISON);
}

TEST(host_memory_that_was_given_back_is_poison)
{
    CHECK_EQ(run(freed_host_memory), 0);
    CHECK_EQ(run(unregistered_host_memory), 0);
}

/* ---- the queue (backends/driver/queue.c) over the driver ---- */

enum { QUEUE_DEVICE = 2, QUEUE_CREATES = 2 + 1 + 128 }; /* streams and events */

static const void *failing; /* what fails: a number of a creation, or a text of LIGHTC_SIM_FAIL */

/* Whether an opening that fails leaves nothing, and one that does not has all of it. */
static bool open_failing(world *w)
{
    char text[32];
    void *queue;
    (void)w;
    int n = *(const int *)failing;
    snprintf(text, sizeof text, "create:%d", n);
    setenv("LIGHTC_SIM_FAIL", text, 1);
    lc_status status = lc__queue_open(&host, drv, QUEUE_DEVICE, &queue);
    const sim_device *d = sim_open(QUEUE_DEVICE);
    if (n > QUEUE_CREATES) return status == LC_OK && queue && d->n_streams + d->n_events == QUEUE_CREATES;
    return status == LC_ERR_DEVICE && !queue && !d->n_streams && !d->n_events;
}

TEST(an_opening_that_fails_releases_what_it_has_created)
{
    int at[] = {1, 2, 3, 4, 60, QUEUE_CREATES, QUEUE_CREATES + 1};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        failing = &at[i];
        if (run(open_failing)) TEST_FAIL("creation %d", at[i]);
    }
}

static bool alloc_failing(world *w)
{
    void *queue, *out;
    (void)w;
    setenv("LIGHTC_SIM_FAIL", failing, 1);
    if (lc__queue_open(&host, drv, QUEUE_DEVICE, &queue) < 0) return false;
    if (lc__queue_alloc(queue, BLOCK, &out) != LC_ERR_DEVICE || out) return false;
    for (const sim_block *b = sim_open(QUEUE_DEVICE)->blocks; b; b = b->next)
        if (b->used) return false;
    return true;
}

TEST(memory_that_cannot_be_allocated_or_filled_is_released)
{
    failing = "alloc:1";
    CHECK_EQ(run(alloc_failing), 0);
    failing = "fill:1";
    CHECK_EQ(run(alloc_failing), 0);
}

/* Memory of host_alloc of one device: another one copies it when it gets there, which host_free waits for. */
static bool copied_by_another(world *w)
{
    void *one, *other, *memory, *at;
    if (lc__queue_open(&host, drv, QUEUE_DEVICE, &one) < 0) return false;
    if (lc__queue_open(&host, drv, QUEUE_DEVICE + 1, &other) < 0) return false;
    if (lc__queue_host_alloc(one, BLOCK, &memory) < 0 || lc__queue_alloc(other, BLOCK, &at) < 0) return false;
    const sim_device *d = sim_open(QUEUE_DEVICE + 1);
    int64_t waits = d->counters.waits;
    memset(memory, 7, BLOCK);
    if (lc__queue_copy(other, at, memory, BLOCK) < 0 || d->counters.waits != waits) return false;
    lc__queue_host_free(one, memory, BLOCK);
    return lc__queue_copy(other, w->plain, at, BLOCK) >= 0 && is_full_of(w->plain, 7);
}

TEST(devices_have_the_same_host_memory)
{
    CHECK_EQ(run(copied_by_another), 0);
}

TEST_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated device, for tests: memory that the host cannot touch, and a queue that runs when it pleases.
 *
 * It is a plug-in (liblightc_sim.so) that no user is offered, and a driver (backends/driver/driver.h) whose kernels are
 * the operators' reference kernels. So results are those of LIGHTC_KERNELS=reference on the CPU, bit for bit: a
 * difference is an error of order or of copies.
 *
 * - The device has its memory at addresses that no one may touch: a kernel's call is translated to where the memory is
 *   when it runs. Host code that follows such an address dies at that line; a kernel that gets an address of the host,
 *   or of another device, is an error that names the operator.
 * - New memory is full of 0xff: floats that are NaN; so is memory of the host that is freed or no longer registered.
 *   Memory of the device that was freed, or that an arena has not committed, or has dropped, cannot be touched.
 * - LIGHTC_SIM names the schedule: "eager" runs what is enqueued at once; "lazy" only when somebody waits for it;
 *   "random:SEED" a random number of pieces whenever one is enqueued, of any stream.
 * - While a program is captured, nothing may be allocated, waited for or copied at once, and no other program may be
 *   started or freed. It has one stream: nothing may be enqueued on another one, no event is recorded in it, and it
 *   waits for none from outside. It keeps the
 *   addresses and the integers of its calls, as every launch does.
 * - An asynchronous copy to or from memory that is neither host_alloc's nor registered is an error. What is registered
 *   consists of whole pages, and overlaps nothing else that is.
 * - The first error is kept: every later call returns it. LIGHTC_SIM_FAIL=launch:N (or alloc:N, copy:N, fill:N,
 *   create:N) makes the N-th launch, allocation, copy, fill, or creation of a stream or an event fail.
 *   LIGHTC_SIM_WITHOUT names operators, separated by commas, that have no kernel; it may name host_register,
 *   copy_ahead and programs, which the backend then lacks. "all" leaves out all of these.
 * - There are LC_SIM_DEVICES devices; LIGHTC_SIM_DEVICES=N makes them fewer. */
#ifndef LC_BACKENDS_SIM_SIM_H
#define LC_BACKENDS_SIM_SIM_H

#include <lightc/backend.h>

#include "backends/driver/driver.h"
#include "backends/sim/counters.h"

#include <pthread.h>
#include <stdbool.h>

enum { LC_SIM_DEVICES = 8, LC_SIM_POISON = 0xff };

typedef struct sim_work sim_work;

typedef struct sim_block {
    char *at;
    size_t bytes, mapped;  /* mapped: usable, of reserved addresses */
    bool used, registered; /* registered: host memory of the program's */
    struct sim_block *next;
} sim_block;

typedef enum sim_schedule { SIM_EAGER, SIM_LAZY, SIM_RANDOM } sim_schedule;

typedef struct sim_stream {
    struct sim_device *device;
    sim_work *first, **last; /* enqueued, in order */
    uint64_t enqueued, done;
} sim_stream;

enum { SIM_STREAMS = 2 };

typedef struct sim_device {
    int index;
    pthread_mutex_t lock;
    /* memory.c: the memory is at [memory, +size), its addresses are the `size` after these */
    char *memory;
    size_t size, end;
    sim_block *blocks;
    /* work.c */
    sim_stream streams[SIM_STREAMS];
    int n_streams, n_events;
    sim_work *captured, **into; /* the program being made; into NULL: none */
    const sim_stream *capturing;
    uint64_t random;
    sim_schedule schedule;
    /* How many until the one that fails; -1: none. */
    int64_t fail_launch, fail_alloc, fail_copy, fail_fill, fail_create;
    char error[256]; /* "": none */
    lc_sim_counters counters;
} sim_device;

/* ---- memory.c: with the lock held, except what a driver's table names ---- */
/* Keeps the first error; returns 1. */
int sim_fail(sim_device *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts down to what LIGHTC_SIM_FAIL makes fail. */
bool sim_fails_now(int64_t *left);
bool sim_is_device(const sim_device *d, const void *at, size_t bytes);
/* Whether the devices know these bytes of the host, from host_alloc or from host_register. */
bool sim_pinned(const void *at, size_t bytes, bool *registered);
/* Where the memory of a device's address is; an address of the host stays. */
void *sim_translate(const sim_device *d, const void *at);
int sim_address_reserve(void *context, void **at, size_t bytes);
int sim_address_free(void *context, void *at, size_t bytes);
int sim_map(void *context, void *at, size_t bytes);
int sim_unmap(void *context, void *at, size_t bytes);
int sim_alloc(void *context, void **at, size_t bytes);
int sim_free(void *context, void *at, size_t bytes);
int sim_memory_info(void *context, size_t *available);
int sim_host_alloc(void *context, void **at, size_t bytes);
int sim_host_free(void *context, void *at, size_t bytes);
int sim_host_register(void *context, void *at, size_t bytes);
int sim_host_unregister(void *context, void *at);
/* The device `index` of this process, opened. */
sim_device *sim_open(int index);

/* ---- work.c ---- */
/* Runs all that is enqueued. */
void sim_run_all(sim_device *d);
extern const lc__driver sim_driver;

/* ---- sim.c ---- */
extern const lc_backend_host *sim_host;

#endif

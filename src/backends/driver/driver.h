/* SPDX-License-Identifier: Apache-2.0 */
/* What a device's driver does, as a table of functions. They are shaped like those of libcuda that the comments name,
 * so that a GPU and the simulated device (src/backends/sim) run the same code above them: queue.c. Each returns 0, or
 * an error that error_text explains; the first error is returned by all later calls. */
#ifndef LC_BACKENDS_DRIVER_DRIVER_H
#define LC_BACKENDS_DRIVER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lc__driver {
    int (*device_count)(int *n);                         /* cuDeviceGetCount */
    int (*context_create)(int device, void **context);   /* cuDevicePrimaryCtxRetain */
    const char *(*error_text)(void *context, int error); /* cuGetErrorString */

    /* ---- memory ---- */
    int (*address_reserve)(void *context, void **at, size_t bytes); /* cuMemAddressReserve */
    int (*address_free)(void *context, void *at, size_t bytes);     /* cuMemUnmap, cuMemRelease, cuMemAddressFree */
    int (*map)(void *context, void *at, size_t bytes);              /* cuMemCreate, cuMemMap, cuMemSetAccess */
    int (*unmap)(void *context, void *at, size_t bytes);            /* cuMemUnmap, cuMemRelease */
    int (*alloc)(void *context, void **at, size_t bytes);           /* cuMemAlloc */
    int (*free)(void *context, void *at, size_t bytes);             /* cuMemFree, which waits for the device */
    int (*memory_info)(void *context, size_t *free);                /* cuMemGetInfo */
    int (*host_alloc)(void *context, void **at, size_t bytes);      /* cuMemHostAlloc */
    int (*host_free)(void *context, void *at, size_t bytes);        /* cuMemFreeHost */
    int (*copy)(void *context, void *to, const void *from, size_t bytes); /* cuMemcpy */

    /* ---- streams ---- */
    int (*stream_create)(void *context, void **stream);
    int (*stream_synchronize)(void *context, void *stream);
    int (*copy_async)(void *context, void *to, const void *from, size_t bytes, void *stream);
    int (*fill_async)(void *context, void *to, unsigned char byte, size_t bytes, void *stream); /* cuMemsetD8Async */
    int (*launch)(void *context, const void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                  void *stream, void **parameters); /* cuLaunchKernel */
    int (*event_create)(void *context, void **event);
    int (*event_record)(void *context, void *event, void *stream);
    int (*event_synchronize)(void *context, void *event);
    int (*event_query)(void *context, void *event, bool *reached); /* cuEventQuery, CUDA_ERROR_NOT_READY: false */

    /* ---- graphs ---- */
    int (*capture_begin)(void *context, void *stream);               /* cuStreamBeginCapture */
    int (*capture_end)(void *context, void *stream, void **program); /* cuStreamEndCapture, cuGraphInstantiate */
    int (*graph_launch)(void *context, void *program, void *stream);
    int (*graph_free)(void *context, void *program);
} lc__driver;

#endif

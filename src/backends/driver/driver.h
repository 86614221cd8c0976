/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a device's driver, as a table. Each is shaped like the function of libcuda that its comment names,
 * so that queue.c can run on a GPU as it does on the simulated device (src/backends/sim). Each returns 0, or an error
 * that error_text explains. After an error, all later calls return it. */
#ifndef LC_BACKENDS_DRIVER_DRIVER_H
#define LC_BACKENDS_DRIVER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lc__driver {
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
    int (*host_alloc)(void *context, void **at, size_t bytes);      /* cuMemHostAlloc, portable */
    int (*host_free)(void *context, void *at, size_t bytes);        /* cuMemFreeHost */
    int (*host_register)(void *context, void *at, size_t bytes);    /* cuMemHostRegister, portable */
    int (*host_unregister)(void *context, void *at);                /* cuMemHostUnregister */
    int (*copy)(void *context, void *to, const void *from, size_t bytes); /* cuMemcpy */
    bool (*is_device)(void *context, const void *at); /* cuPointerGetAttribute: memory of the device, not the host's */

    /* ---- streams ---- */
    int (*stream_create)(void *context, void **stream);
    int (*stream_destroy)(void *context, void *stream);
    int (*stream_synchronize)(void *context, void *stream);
    int (*copy_async)(void *context, void *to, const void *from, size_t bytes, void *stream);
    int (*fill_async)(void *context, void *to, unsigned char byte, size_t bytes, void *stream); /* cuMemsetD8Async */
    int (*launch)(void *context, const void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                  void *stream, void **parameters); /* cuLaunchKernel */
    int (*event_create)(void *context, void **event);
    int (*event_destroy)(void *context, void *event);
    int (*event_record)(void *context, void *event, void *stream);
    int (*stream_wait)(void *context, void *stream, void *event); /* cuStreamWaitEvent */
    int (*event_synchronize)(void *context, void *event);
    int (*event_query)(void *context, void *event, bool *reached); /* cuEventQuery, CUDA_ERROR_NOT_READY: false */

    /* ---- graphs ---- */
    int (*capture_begin)(void *context, void *stream);               /* cuStreamBeginCapture */
    int (*capture_end)(void *context, void *stream, void **program); /* cuStreamEndCapture, cuGraphInstantiate */
    int (*graph_launch)(void *context, void *program, void *stream);
    int (*graph_free)(void *context, void *program);
} lc__driver;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the checkpoint writer and the fuzzer need of safetensors files. */
#ifndef LC_CORE_SAFETENSORS_H
#define LC_CORE_SAFETENSORS_H

#include <lightc/safetensors.h>
#include "core/io.h"

/* Where everything of a file to be written lies. */
typedef struct lc__st_layout {
    char *header; /* length, JSON and padding */
    size_t header_bytes;
    uint64_t total;   /* bytes of the file */
    int64_t *order;   /* entry numbers in the order of their data; every entry's data follows the one before it */
    uint64_t *offset; /* of entry i's data, from the start of the file */
} lc__st_layout;

/* Checks names, shapes and sizes; `what` names the file in messages. */
lc_status lc__st_layout_make(const char *what, int64_t n, const lc_named_tensor *tensors, int n_metadata,
                             const lc_text_pair *metadata, lc__st_layout *out);
void lc__st_layout_release(lc__st_layout *layout);

/* Where a tensor's value lies if the host can reach it and it is row-major there; NULL otherwise. Runs what the value
 * waits for. */
void *lc__st_dense(lc_tensor *t);
/* The type of an entry. */
const lc_type *lc__st_type(const lc_named_tensor *t);
/* Elements and bytes of a type; false where they do not fit 63 bits or the type is not valid. */
bool lc__type_bytes(const lc_type *type, uint64_t *bytes);

/* Opens with another lc__io than the system's. */
lc_status lc__st_open(const lc__io *io, const char *path, lc_safetensors **out);
/* Checks a header of n bytes of JSON in a file of file_bytes bytes; the result has no file to read from. */
lc_status lc__st_parse(const char *path, const char *json, uint64_t n, uint64_t file_bytes, lc_safetensors **out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What PyTorch or torchmetrics computed, recorded outside of the repository; a test is skipped without it. */
#ifndef LC_TESTS_RECORDING_H
#define LC_TESTS_RECORDING_H

#include "test.h"

#include <cjson/cJSON.h>

/* To be deleted. */
static inline cJSON *read_recording(const char *name)
{
    char path[4200];
    if (!test_shared_dir()) SKIP("the shared recordings are not here");
    snprintf(path, sizeof path, "%s/conformance/reference/%s", test_shared_dir(), name);
    FILE *f = fopen(path, "rb");
    if (!f) SKIP("there is no such recording");
    CHECK(fseek(f, 0, SEEK_END) == 0);
    long n = ftell(f);
    rewind(f);
    char *text = calloc(1, (size_t)n + 1);
    CHECK(n > 0 && text && fread(text, 1, (size_t)n, f) == (size_t)n);
    fclose(f);
    cJSON *json = cJSON_Parse(text);
    free(text);
    CHECK(json != NULL);
    return json;
}

#endif

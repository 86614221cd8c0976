/* SPDX-License-Identifier: Apache-2.0 */
/* The program lc_reference_check (check.h). Prints one line for every case that failed or is unknown, then
 * "N passed, N failed, N skipped"; exit 1 if any failed, 77 if there was nothing to check. */
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check_pass(check_result *r)
{
    r->passed++;
}

void check_fail(check_result *r, const char *part, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("FAIL %s %s: ", part, name);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    r->failed++;
}

bool json_has(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item && !cJSON_IsNull(item);
}

const char *json_text(const cJSON *object, const char *key, const char *otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : otherwise;
}

double json_value(const cJSON *item)
{
    if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? 1 : 0;
    if (cJSON_IsString(item)) return strtod(item->valuestring, NULL);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

double json_number(const cJSON *object, const char *key, double otherwise)
{
    return json_has(object, key) ? json_value(cJSON_GetObjectItemCaseSensitive(object, key)) : otherwise;
}

int json_ints(const cJSON *object, const char *key, int max, int64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key), *e;
    int n = 0;
    if (!cJSON_IsArray(item)) {
        if (!json_has(object, key)) return 0;
        out[0] = (int64_t)json_value(item);
        return 1;
    }
    cJSON_ArrayForEach(e, item) if (n < max) out[n++] = (int64_t)json_value(e);
    return n;
}

/* The whole file as JSON; NULL if there is none (silently) or it is malformed (with a line). */
static cJSON *read_json(const char *dir, const char *file, bool *malformed)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    cJSON *json = NULL;
    char *text = NULL;
    long size;
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0 &&
        (text = malloc((size_t)size + 1)) && fread(text, 1, (size_t)size, f) == (size_t)size) {
        text[size] = '\0';
        json = cJSON_Parse(text);
    }
    if (!json) {
        printf("%s cannot be read\n", path);
        *malformed = true;
    }
    free(text);
    fclose(f);
    return json;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *file;
        void (*check)(const char *dir, const cJSON *cases, check_result *r);
    } parts[] = {
        {"ops.json", check_ops},
        {"optim.json", check_optim},
        {"schedulers.json", check_schedulers},
        {"metrics.json", check_metrics},
    };
    check_result r = {0};
    for (; argc >= 4; argv += 2, argc -= 2)
        if (!strcmp(argv[1], "--accelerator"))
            setenv("LIGHTC_ACCELERATOR", argv[2], 1);
        else if (!strcmp(argv[1], "--precision"))
            r.precision = argv[2];
        else
            break;
    if (argc != 2) {
        fprintf(stderr, "usage: lc_reference_check [--accelerator NAME] [--precision NAME] DIR\n");
        return 2;
    }
    bool malformed = false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        cJSON *json = read_json(argv[1], parts[i].file, &malformed);
        if (!json) continue;
        parts[i].check(argv[1], cJSON_GetObjectItemCaseSensitive(json, "cases"), &r);
        cJSON_Delete(json);
    }
    if (!r.passed && !r.failed && !malformed) printf("SKIP: there are no references in %s\n", argv[1]);
    printf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped);
    return r.failed || malformed ? 1 : r.passed ? 0 : 77;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by both ends of the control channel: the secret, how it is proven, times, threads. */
#include "base/c_locale.h"
#include "comm/control/control_internal.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

lc_status lc__control_check_secret(const char *secret)
{
    size_t n = secret ? strlen(secret) : 0;
    if (n >= 16 && n <= 64) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "the run's secret has %zu characters; it needs 16 to 64, the same on all ranks (LIGHTC_SECRET)", n);
}

lc__proof_ask lc__control_ask(lc__proof_role role, const uint8_t asked[LC__NONCE], const uint8_t hello[LC__HELLO_BYTES])
{
    lc__proof_ask ask = {.role = role};
    _Static_assert(LC__HELLO_HEAD <= sizeof ask.about, "a rank proves all that it says");
    memcpy(ask.asked, asked, sizeof ask.asked);
    memcpy(ask.about, hello, LC__HELLO_HEAD);
    memcpy(ask.answered, hello + LC__HELLO_HEAD, sizeof ask.answered);
    return ask;
}

/* Differs from that of any process that runs at the same time, here or on another machine, or has run here before. */
static uint64_t identity_of_process(void)
{
    static const char *const files[] = {"/proc/sys/kernel/random/boot_id", "/proc/self/stat"};
    char text[1024], *end;
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(files[i], "re");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        if (f) fclose(f);
        text[n] = 0;
        if (i && (end = strrchr(text, ')'))) { /* numbers follow the name; the 20th is when it was started, and those
                                                * after it change */
            for (int k = 0; k < 20 && end; k++) end = strchr(end + 1, ' ');
            unsigned long long started = end ? strtoull(end, NULL, 10) : 0;
            snprintf(text, sizeof text, "%d %llu", (int)getpid(), started);
        }
        for (const char *c = text; *c; c++) h = (h ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    }
    return h ? h : 1;
}

void lc__control_sender(const uint8_t hello[LC__HELLO_BYTES], char text[LC__SENDER_TEXT])
{
    char host[LC__HOST_TEXT];
    lc__frame_text(hello + LC__HELLO_TEXT, LC__HOST_TEXT, host, sizeof host);
    snprintf(text, LC__SENDER_TEXT, "host %s, process %llu", host, (unsigned long long)lc__get_u64(hello + 16));
}

bool lc__control_answer(const lc__control_args *o, lc__proof_role role, int count, const lc__frame *challenge,
                        uint8_t hello[LC__HELLO_BYTES], char doubt[LC__DOUBT_TEXT])
{
    uint8_t *nonce = hello + LC__HELLO_HEAD;
    if (challenge->n != LC__CHALLENGE_BYTES || lc__get_u32(challenge->data) != LC__CONTROL_VERSION) {
        snprintf(doubt, LC__DOUBT_TEXT, "it is a different version of lightc");
        return false;
    }
    if (lc__get_u32(challenge->data + 4) != lc__proof_reveals()) {
        snprintf(doubt, LC__DOUBT_TEXT, "only one of the two ends has OpenSSL's libcrypto: %s",
                 lc__proof_reveals() ? lc__proof_why_not() : "this rank does");
        return false;
    }
    memset(hello, 0, LC__HELLO_BYTES);
    lc__put_u32(hello, LC__CONTROL_VERSION);
    lc__put_u32(hello + 4, (uint32_t)o->rank);
    lc__put_u32(hello + 8, (uint32_t)o->size);
    lc__put_u32(hello + 12, (uint32_t)count);
    lc__put_u64(hello + 16, (uint64_t)getpid());
    lc__put_u64(hello + 24, o->identity ? o->identity : identity_of_process());
    (void)gethostname((char *)hello + LC__HELLO_TEXT, LC__HOST_TEXT - 1);
    if (lc__proof_nonce(nonce) >= 0) {
        const lc__proof_ask ask = lc__control_ask(role, challenge->data + 8, hello);
        if (lc__proof_make(o->secret, strlen(o->secret), &ask, nonce + LC__NONCE) >= 0) return true;
    }
    snprintf(doubt, LC__DOUBT_TEXT, "this rank cannot answer it: out of memory or random numbers");
    return false;
}

/* The value of the program's options, that passed on by its launcher, or the default. */
static double seconds_of(double given, const char *variable, double otherwise)
{
    const char *text = given > 0 ? NULL : getenv(variable);
    double value = text ? lc__strtod(text, NULL) : given;
    return value > 0 ? value : otherwise;
}

/* As seconds_of, but negative numbers have a meaning. */
static double progress_of(double given)
{
    const char *text = given != 0 ? NULL : getenv("LIGHTC_PROGRESS_TIMEOUT");
    return text ? lc__strtod(text, NULL) : given;
}

lc__control_times lc__control_default_times(const lc__control_times *times)
{
    lc__control_times t = times ? *times : (lc__control_times){0};
    if (!(t.heartbeat > 0)) t.heartbeat = 0.5;
    t.start = seconds_of(t.start, "LIGHTC_START_TIMEOUT", 300);
    t.silence = seconds_of(t.silence, "LIGHTC_SILENCE_TIMEOUT", 10);
    t.progress = progress_of(t.progress);
    t.grace = seconds_of(t.grace, "LIGHTC_GRACE_PERIOD", 2);
    return t;
}

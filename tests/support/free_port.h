/* SPDX-License-Identifier: Apache-2.0 */
/* Ports that are used some time after they are chosen, or more than once. */
#ifndef LC_TESTS_FREE_PORT_H
#define LC_TESTS_FREE_PORT_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A port of this host on which no process listens, or -1. It is below 32768, from where the system hands out ports:
 * other tests ask it for ports all the time. */
__attribute__((unused)) static int free_port(void)
{
    enum { FIRST = 16000, N = 16000 };
    static unsigned next;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (!next) next = (unsigned)getpid() * 37 + (unsigned)t.tv_nsec;
    for (int i = 0; i < N; i++) {
        int port = FIRST + (int)(next++ % N), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in a = {
            .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int taken = bind(fd, (struct sockaddr *)&a, sizeof a);
        close(fd);
        if (!taken) return port;
    }
    return -1;
}

#endif

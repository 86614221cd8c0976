/* SPDX-License-Identifier: Apache-2.0 */
/* Many silent connections. */
#ifndef LC_TESTS_CROWD_H
#define LC_TESTS_CROWD_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 500 };

/* Starts n connections without waiting; those that fail are left out. */
__attribute__((unused)) static void crowd(int port, int n, int *fds)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < n; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fds[i] >= 0) (void)!connect(fds[i], (const struct sockaddr *)&to, sizeof to);
    }
}

__attribute__((unused)) static void disperse(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0) close(fds[i]);
}

#endif

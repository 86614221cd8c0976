/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* accept4 */
#include "comm/net/socket.h"
#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

double lc__seconds(void)
{
    return (double)lc__now_ns() * 1e-9;
}

static lc_status resolve(const char *address, int port, int flags, struct addrinfo **out)
{
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(address, service, &hints, out);
    if (code) return lc_fail(LC_ERR_NOT_FOUND, "the address \"%s\": %s", address, gai_strerror(code));
    return LC_OK;
}

static int port_of(int fd)
{
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    if (getsockname(fd, (struct sockaddr *)&sa, &n) < 0) return 0;
    if (sa.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&sa)->sin6_port);
    return ntohs(((struct sockaddr_in *)&sa)->sin_port);
}

/* Bytes leave at once: senders here already pass all that there is to send. */
static void send_at_once(int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* ---- listening ---- */

static int listen_on(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    /* The port of a run that has just ended can be used again. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

lc_status lc__socket_listen(const char *address, int *port, int *out)
{
    bool any = address && !strcmp(address, "*");
    struct addrinfo *found = NULL;
    *out = -1;
    LC_TRY(resolve(any ? "0.0.0.0" : address ? address : "127.0.0.1", *port, AI_PASSIVE, &found));
    for (struct addrinfo *a = found; a && *out < 0; a = a->ai_next) *out = listen_on(a);
    int code = errno;
    freeaddrinfo(found);
    lc_status status = code == EADDRINUSE ? LC_ERR_STATE : code == EADDRNOTAVAIL ? LC_ERR_CONFIG : LC_ERR_IO;
    if (*out < 0)
        return lc_fail(status, "cannot listen on %s:%d: %s", address ? address : "127.0.0.1", *port, strerror(code));
    *port = port_of(*out);
    return LC_OK;
}

int lc__socket_accept(int listener, struct sockaddr_storage *from)
{
    socklen_t n = sizeof *from;
    int fd = accept4(listener, (struct sockaddr *)from, from ? &n : NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) send_at_once(fd);
    return fd;
}

/* ---- connecting ---- */

/* While nobody listens on a port of this host, a socket that connects to it may get connected to itself. */
static bool with_itself(int fd)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t na = sizeof a, nb = sizeof b;
    return getsockname(fd, (struct sockaddr *)&a, &na) == 0 && getpeername(fd, (struct sockaddr *)&b, &nb) == 0 &&
           na == nb && !memcmp(&a, &b, na);
}

/* A listener that closes while a connection is being made may leave a connection without another end, and this end is
 * not notified. After a second of silence it is probed; the other host then answers that there is no such
 * connection. */
static void notice_half_open(int fd)
{
    int on = 1, idle_seconds = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
}

/* How long to wait for a connection. */
typedef struct patience {
    double deadline;
    lc_status (*check)(void *ctx); /* may be NULL */
    void *ctx;
    lc_status status; /* of the last check */
} patience;

/* 0, or what went wrong. */
static int await_connection(int fd, patience *p)
{
    enum { ASK_MS = 200 };
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int code = 0;
    socklen_t n = sizeof code;
    for (double left; (left = p->deadline - lc__seconds()) > 0;) {
        if (poll(&polled, 1, left * 1000 < ASK_MS ? (int)(left * 1000) + 1 : ASK_MS) > 0) break;
        p->status = p->check ? p->check(p->ctx) : LC_OK;
        if (p->status < 0) return ECANCELED;
    }
    if (!polled.revents) return ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &n) < 0) return errno;
    return !code && with_itself(fd) ? ECONNREFUSED : code;
}

/* 0, or what went wrong. */
static int connect_to(const struct addrinfo *a, patience *p, int *out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    bool begun = connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS;
    int code = begun ? await_connection(fd, p) : errno;
    if (code) {
        close(fd);
        return code;
    }
    send_at_once(fd);
    notice_half_open(fd);
    *out = fd;
    return 0;
}

lc_status lc__socket_connect_while(lc_status (*check)(void *ctx), void *ctx, const char *address, int port,
                                   double deadline, int *out)
{
    struct addrinfo *found = NULL;
    patience p = {.deadline = deadline, .check = check, .ctx = ctx};
    int code = 0;
    *out = -1;
    LC_TRY(resolve(address, port, 0, &found));
    for (struct addrinfo *a = found; a && *out < 0 && p.status >= 0; a = a->ai_next) code = connect_to(a, &p, out);
    freeaddrinfo(found);
    if (p.status < 0) return p.status;
    return *out < 0 ? lc_fail(LC_ERR_IO, "cannot connect to %s:%d: %s", address, port, strerror(code)) : LC_OK;
}

lc_status lc__socket_connect(const char *address, int port, double deadline, int *out)
{
    return lc__socket_connect_while(NULL, NULL, address, port, deadline, out);
}

/* ---- silence ---- */

void lc__socket_watch(int fd, double silence)
{
    enum { PROBES = 100 }; /* the kernel takes 127 */
    int on = 1, every = 1 + (int)(silence / PROBES), probes = 1 + (int)(silence / every);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* Not TCP_USER_TIMEOUT: that also ends connections whose other end answers but has no room, because it computes. */
bool lc__socket_is_unanswered(int fd, double silence)
{
    struct tcp_info t;
    socklen_t n = sizeof t;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) == 0 && t.tcpi_unacked &&
           t.tcpi_last_ack_recv > t.tcpi_last_data_sent + silence * 1000;
}

/* ---- addresses ---- */

typedef int end_of(int fd, struct sockaddr *address, socklen_t *n);

static void number_of(end_of *end, int fd, char *text, size_t size)
{
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    *text = 0;
    if (end(fd, (struct sockaddr *)&sa, &n) < 0 ||
        getnameinfo((struct sockaddr *)&sa, n, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        *text = 0;
}

void lc__socket_local(int fd, char *text, size_t size)
{
    number_of(getsockname, fd, text, size);
}

void lc__socket_remote(int fd, char *text, size_t size)
{
    number_of(getpeername, fd, text, size);
}

void lc__socket_route(const char *address, char *text, size_t size)
{
    struct addrinfo *found = NULL;
    *text = 0;
    if (resolve(address, 9, 0, &found) < 0) return;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0) lc__socket_local(fd, text, size);
    if (fd >= 0) close(fd);
    freeaddrinfo(found);
}

bool lc__socket_is_loopback(const char *number)
{
    return !strncmp(number, "127.", 4) || !strcmp(number, "::1") || !strncmp(number, "::ffff:127.", 11);
}

const char *lc__socket_listen_as(const char *address)
{
    char route[64];
    if (lc__socket_is_loopback(address) || !strcmp(address, "localhost")) return address;
    lc__socket_route(address, route, sizeof route);
    return lc__socket_is_loopback(route) ? "*" : address;
}

/* ---- bytes ---- */

static bool later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

ssize_t lc__socket_send(int fd, const void *data, size_t n)
{
    ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
    return k >= 0 ? k : later() ? 0 : -1;
}

ssize_t lc__socket_recv(int fd, void *data, size_t n)
{
    ssize_t k = recv(fd, data, n, 0);
    return k > 0 ? k : k < 0 && later() ? 0 : -1;
}

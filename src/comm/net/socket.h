/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets that do not block, and that child programs do not inherit. */
#ifndef LC_COMM_NET_SOCKET_H
#define LC_COMM_NET_SOCKET_H

#include <lightc/status.h>

#include <sys/types.h>

/* Seconds on a clock that never goes back. */
double lc__seconds(void);

/* Listens on `address` (of this host, a name or a number; NULL: loopback; "*": every interface) and *port (0: any free
 * one, which is then stored). LC_ERR_STATE: the port is in use; LC_ERR_CONFIG: the address is not this host's. */
lc_status lc__socket_listen(const char *address, int *port, int *out) LC_MUST_USE;
struct sockaddr_storage;
/* Accepts a connection: its descriptor, or -1 and errno. *from: the address of the other end; NULL: not asked for. */
int lc__socket_accept(int listener, struct sockaddr_storage *from);
/* Waits until connected, at most until `deadline` (lc__seconds). */
lc_status lc__socket_connect(const char *address, int port, double deadline, int *out) LC_MUST_USE;
/* The same, as long as `check` returns no error: it is called several times a second, and its error is returned. */
lc_status lc__socket_connect_while(lc_status (*check)(void *ctx), void *ctx, const char *address, int port,
                                   double deadline, int *out) LC_MUST_USE;

/* From now on the connection counts as gone when its other end has not answered for about `silence` seconds while
 * nothing is under way to it. The other end's kernel answers, whatever its process does. */
void lc__socket_watch(int fd, double silence);
/* Whether bytes under way have been retransmitted and nothing has come back for `silence` seconds, which the kernel
 * tolerates for a quarter of an hour. An end that has no room for more does not count. */
bool lc__socket_is_unanswered(int fd, double silence);

/* The address of this end, and of the other one, as a number; "" if there is none. */
void lc__socket_local(int fd, char *text, size_t size);
void lc__socket_remote(int fd, char *text, size_t size);
/* The address from which this host reaches `address`; "" if it does not. Sends nothing. */
void lc__socket_route(const char *address, char *text, size_t size);
bool lc__socket_is_loopback(const char *number);
/* Where to listen so that `address` reaches this host from everywhere: at `address`; but on every interface ("*") if it
 * is a name that means loopback here and something else elsewhere, as many distributions set up a host's own name. */
const char *lc__socket_listen_as(const char *address);

/* Sends what can be sent now: the number of bytes, 0 if none, -1 if the connection is gone. */
ssize_t lc__socket_send(int fd, const void *data, size_t n);
/* Receives what has arrived: the number of bytes, 0 if none, -1 at the end and if the connection is gone. */
ssize_t lc__socket_recv(int fd, void *data, size_t n);

#endif

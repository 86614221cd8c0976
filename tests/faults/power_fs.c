/* SPDX-License-Identifier: Apache-2.0 */
/* The server of power_fs.h: the protocol of <linux/fuse.h>, and which of the writes it got are durable. */
#define _GNU_SOURCE
#include "power_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SECTOR = 512, MOST_WRITTEN = 128 * 1024, REQUEST = MOST_WRITTEN + 8192, FOR_EVER = 1000000 };

typedef struct bytes {
    char *v;
    size_t n, cap;
} bytes;

typedef struct entry {
    char *name;
    uint64_t ino;
} entry;

typedef struct names {
    entry *v;
    int n, cap;
} names;

/* A change of a file's bytes that was not synced: n bytes written at `at`, or (data NULL) the size set to `at`. */
typedef struct change {
    uint64_t at;
    size_t n;
    char *data;
} change;

typedef struct inode {
    mode_t mode;
    bytes live, durable; /* of a file; for a link, its target */
    change *changes;
    int n_changes, cap_changes;
    names here, kept; /* of a directory: current, and durable */
} inode;

/* A change of one or two names that was not synced: `name` in `dir` was `was`, and is `is`; 0: no file. */
typedef struct naming {
    int n;
    struct {
        uint64_t dir, was, is;
        char *name;
    } of[2];
} naming;

/* By number; 0 is none, 1 the root. They stay until the power loss. */
static inode *inodes;
static uint64_t n_inodes, cap_inodes;
static naming *namings;
static int n_namings, cap_namings;

static struct {
    const char *dir;
    int flags, fuse, control;
    uint64_t key, draws, counted, at, lost_changes, lost_writes;
    pid_t group;
    bool gone;
} the = {.fuse = -1};

/* ---- helpers ---- */

static uint64_t draw(uint64_t below)
{
    uint64_t x = the.key + 0x9e3779b97f4a7c15u * ++the.draws; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % below;
}

static void *must(void *p)
{
    if (!p) abort();
    return p;
}

#define GROW(v, n, cap)                                                                                                \
    if ((n) == (cap)) (v) = must(realloc((v), ((cap) = (cap) ? 2 * (cap) : 16) * sizeof *(v)))

static void resize(bytes *b, size_t n)
{
    if (n > b->cap) b->v = must(realloc(b->v, b->cap = n > 2 * b->cap ? n : 2 * b->cap));
    if (n > b->n) memset(b->v + b->n, 0, n - b->n);
    b->n = n;
}

static void put(bytes *b, uint64_t at, const char *data, size_t n)
{
    if (at + n > b->n) resize(b, at + n);
    memcpy(b->v + at, data, n);
}

static uint64_t find(const names *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->v[i].name, name)) return d->v[i].ino;
    return 0;
}

static void set(names *d, const char *name, uint64_t ino)
{
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->v[i].name, name)) {
            d->v[i].ino = ino;
            if (ino) return;
            free(d->v[i].name);
            memmove(d->v + i, d->v + i + 1, (size_t)(--d->n - i) * sizeof *d->v);
            return;
        }
    if (!ino) return;
    GROW(d->v, d->n, d->cap);
    d->v[d->n++] = (entry){must(strdup(name)), ino};
}

static uint64_t new_inode(mode_t mode)
{
    GROW(inodes, n_inodes, cap_inodes);
    inodes[n_inodes] = (inode){.mode = mode};
    return n_inodes++;
}

/* ---- durability ---- */

static void drop_changes(inode *f)
{
    for (int i = 0; i < f->n_changes; i++) free(f->changes[i].data);
    f->n_changes = 0;
}

static void add_change(inode *f, uint64_t at, const char *data, size_t n)
{
    GROW(f->changes, f->n_changes, f->cap_changes);
    change *c = &f->changes[f->n_changes++];
    *c = (change){.at = at, .n = n};
    if (data) c->data = memcpy(must(malloc(n + 1)), data, n);
}

static void write_bytes(inode *f, uint64_t at, const char *data, size_t n)
{
    put(&f->live, at, data, n);
    add_change(f, at, data, n);
}

static void set_size(inode *f, uint64_t size)
{
    resize(&f->live, size);
    add_change(f, size, NULL, 0);
}

static void add_naming(int n, uint64_t dir, const char *name, uint64_t is, uint64_t dir2, const char *name2,
                       uint64_t is2)
{
    GROW(namings, n_namings, cap_namings);
    naming *o = &namings[n_namings++];
    *o = (naming){.n = n};
    for (int k = 0; k < n; k++) {
        o->of[k].dir = k ? dir2 : dir;
        o->of[k].name = must(strdup(k ? name2 : name));
        o->of[k].is = k ? is2 : is;
        o->of[k].was = find(&inodes[o->of[k].dir].here, o->of[k].name);
    }
    for (int k = 0; k < n; k++) set(&inodes[o->of[k].dir].here, o->of[k].name, o->of[k].is);
}

/* False if it builds on a change that was lost. */
static bool keep_naming(const naming *o)
{
    for (int k = 0; k < o->n; k++)
        if (find(&inodes[o->of[k].dir].kept, o->of[k].name) != o->of[k].was) return false;
    for (int k = 0; k < o->n; k++) set(&inodes[o->of[k].dir].kept, o->of[k].name, o->of[k].is);
    return true;
}

static void free_naming(naming *o)
{
    for (int k = 0; k < o->n; k++) free(o->of[k].name);
}

static bool touches(const naming *o, const bool *dirs)
{
    for (int k = 0; k < o->n; k++)
        if (dirs[o->of[k].dir]) return true;
    return false;
}

/* A change in two directories is synced together with earlier changes in the other one. */
static void sync_names(uint64_t dir)
{
    bool *dirs = must(calloc(n_inodes, 1)), more = true;
    dirs[dir] = true;
    while (more) {
        more = false;
        for (int i = 0; i < n_namings; i++)
            if (touches(&namings[i], dirs))
                for (int k = 0; k < namings[i].n; k++)
                    if (!dirs[namings[i].of[k].dir]) more = dirs[namings[i].of[k].dir] = true;
    }
    int left = 0;
    for (int i = 0; i < n_namings; i++) {
        if ((the.flags & POWER_JOURNAL) || touches(&namings[i], dirs)) {
            if (!keep_naming(&namings[i])) abort();
            free_naming(&namings[i]);
        } else {
            namings[left++] = namings[i];
        }
    }
    n_namings = left;
    free(dirs);
}

static void sync_inode(uint64_t ino)
{
    inode *f = &inodes[ino];
    if (S_ISDIR(f->mode)) {
        if (!(the.flags & POWER_NO_DIR_SYNC)) sync_names(ino);
        return;
    }
    if (the.flags & POWER_NO_FILE_SYNC) return;
    resize(&f->durable, f->live.n);
    if (f->live.n) memcpy(f->durable.v, f->live.v, f->live.n);
    drop_changes(f);
    if (the.flags & POWER_JOURNAL) sync_names(ino);
}

/* ---- power loss ---- */

/* `odds` of 4 unsynced writes survive on average. */
static void lose_bytes(inode *f, unsigned odds)
{
    bytes *b = &f->durable;
    uint64_t size = b->n;
    for (int i = 0; i < f->n_changes; i++) {
        const change *c = &f->changes[i];
        size_t unit = (size_t[]){c->n + 1, PAGE, SECTOR}[draw(3)];
        bool sized = draw(4) < odds;
        if (!c->data) {
            if (!sized) the.lost_writes++;
            if (sized && c->at < b->n) resize(b, c->at); /* bytes that were cut off are zero if the file grows again */
            if (sized) size = c->at;
            continue;
        }
        for (size_t at = 0, n; at < c->n; at += n) {
            n = unit - (unit <= PAGE ? (c->at + at) % unit : 0);
            if (n > c->n - at) n = c->n - at;
            if (draw(4) < odds)
                put(b, c->at + at, c->data + at, n);
            else
                the.lost_writes++;
        }
        if (sized && c->at + c->n > size) size = c->at + c->n;
    }
    resize(b, size);
    drop_changes(f);
}

static void lose(void)
{
    unsigned odds = (unsigned)draw(5);
    int lasts = the.flags & POWER_JOURNAL ? (int)draw((uint64_t)n_namings + 1) : n_namings;
    for (int i = 0; i < n_namings; i++) {
        bool kept = i < lasts && ((the.flags & POWER_JOURNAL) || draw(4) < odds);
        if (!kept || !keep_naming(&namings[i])) the.lost_changes++;
        free_naming(&namings[i]);
    }
    n_namings = 0;
    odds = (unsigned)draw(5);
    for (uint64_t i = 1; i < n_inodes; i++) {
        inode *f = &inodes[i];
        if (S_ISREG(f->mode)) {
            lose_bytes(f, odds);
            resize(&f->live, f->durable.n);
            if (f->live.n) memcpy(f->live.v, f->durable.v, f->live.n);
        }
        while (f->here.n) set(&f->here, f->here.v[0].name, 0);
        for (int k = 0; k < f->kept.n; k++) set(&f->here, f->kept.v[k].name, f->kept.v[k].ino);
    }
}

static void cut(void)
{
    the.gone = true;
    if (the.group > 0) kill(-the.group, SIGKILL);
    the.group = 0;
    close(the.fuse);
    the.fuse = -1;
    umount2(the.dir, MNT_DETACH);
}

/* Called before a change or a sync. False: the power has failed. */
static bool counts(void)
{
    the.counted++;
    if (!the.at || the.counted < the.at) return true;
    cut();
    return false;
}

/* ---- the protocol ---- */

static bool mount_it(void)
{
    char options[128];
    the.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (the.fuse < 0) return false;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%d,group_id=%d", the.fuse, (int)getuid(),
             (int)getgid());
    if (mount("power_fs", the.dir, "fuse", MS_NOSUID | MS_NODEV, options) == 0) return true;
    close(the.fuse);
    the.fuse = -1;
    return false;
}

static void answer(const struct fuse_in_header *h, int error, const void *data, size_t n)
{
    char out[REQUEST];
    struct fuse_out_header *o = (struct fuse_out_header *)out;
    *o = (struct fuse_out_header){.len = (uint32_t)(sizeof *o + n), .error = -error, .unique = h->unique};
    if (n) memcpy(out + sizeof *o, data, n);
    (void)!write(the.fuse, out, o->len); /* ENOENT: the request is no longer waited for */
}

static struct fuse_attr attributes(uint64_t ino)
{
    const inode *f = &inodes[ino];
    uint64_t size = S_ISDIR(f->mode) ? PAGE : f->live.n;
    return (struct fuse_attr){.ino = ino,
                              .size = size,
                              .blocks = (size + 511) / 512,
                              .mode = f->mode,
                              .nlink = S_ISDIR(f->mode) ? 2 : 1,
                              .mtime = 1700000000,
                              .ctime = 1700000000,
                              .atime = 1700000000,
                              .uid = getuid(),
                              .gid = getgid(),
                              .blksize = PAGE};
}

static void answer_entry(const struct fuse_in_header *h, uint64_t ino, bool opened)
{
    struct {
        struct fuse_entry_out e;
        struct fuse_open_out o;
    } out = {.e = {.nodeid = ino, .generation = 1, .entry_valid = FOR_EVER, .attr = attributes(ino)},
             .o = {.open_flags = FOPEN_KEEP_CACHE}};
    answer(h, 0, &out, opened ? sizeof out : sizeof out.e);
}

static void answer_attributes(const struct fuse_in_header *h)
{
    answer(h, 0, &(struct fuse_attr_out){.attr = attributes(h->nodeid)}, sizeof(struct fuse_attr_out));
}

static void make(const struct fuse_in_header *h, const char *name, mode_t mode, const char *target, bool opened)
{
    if (find(&inodes[h->nodeid].here, name)) {
        answer(h, EEXIST, NULL, 0);
        return;
    }
    uint64_t ino = new_inode(mode);
    if (target) put(&inodes[ino].live, 0, target, strlen(target)); /* a link is durable together with its name */
    add_naming(1, h->nodeid, name, ino, 0, NULL, 0);
    answer_entry(h, ino, opened);
}

static void rename_it(const struct fuse_in_header *h, uint64_t to_dir, unsigned flags, const char *from)
{
    const char *to = from + strlen(from) + 1;
    uint64_t ino = find(&inodes[h->nodeid].here, from), other = find(&inodes[to_dir].here, to);
    int error = !ino || ((flags & RENAME_EXCHANGE) && !other)                            ? ENOENT
                : (flags & RENAME_NOREPLACE) && other                                    ? EEXIST
                : !flags && other && S_ISDIR(inodes[other].mode) && inodes[other].here.n ? ENOTEMPTY
                                                                                         : 0;
    if (!error && ino != other) add_naming(2, h->nodeid, from, flags & RENAME_EXCHANGE ? other : 0, to_dir, to, ino);
    answer(h, error, NULL, 0);
}

static void remove_it(const struct fuse_in_header *h, const char *name)
{
    uint64_t ino = find(&inodes[h->nodeid].here, name);
    int error = !ino ? ENOENT : h->opcode == FUSE_RMDIR && inodes[ino].here.n ? ENOTEMPTY : 0;
    if (!error) add_naming(1, h->nodeid, name, 0, 0, NULL, 0);
    answer(h, error, NULL, 0);
}

/* A directory is read as it was when it was opened, whatever is removed meanwhile: from a copy, terminated by an entry
 * without a name. */
static entry *listing(uint64_t ino)
{
    const names *d = &inodes[ino].here;
    entry *all = must(calloc((size_t)d->n + 1, sizeof *all));
    for (int i = 0; i < d->n; i++) all[i] = (entry){must(strdup(d->v[i].name)), d->v[i].ino};
    return all;
}

static void read_listing(const struct fuse_in_header *h, const struct fuse_read_in *r)
{
    char out[MOST_WRITTEN];
    size_t n = 0, most = r->size < sizeof out ? r->size : sizeof out;
    const entry *all = (const entry *)(uintptr_t)r->fh;
    uint64_t i = 0;
    while (i < r->offset && all[i].name) i++;
    for (; all[i].name; i++) {
        size_t length = strlen(all[i].name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
        if (n + size > most) break;
        struct fuse_dirent e = {.ino = all[i].ino,
                                .off = i + 1,
                                .namelen = (uint32_t)length,
                                .type = (uint32_t)(inodes[all[i].ino].mode >> 12)};
        memset(out + n, 0, size);
        memcpy(out + n, &e, FUSE_NAME_OFFSET);
        memcpy(out + n + FUSE_NAME_OFFSET, all[i].name, length);
        n += size;
    }
    answer(h, 0, out, n);
}

static void free_listing(entry *all)
{
    for (entry *e = all; e->name; e++) free(e->name);
    free(all);
}

static void begin(const struct fuse_in_header *h, const struct fuse_init_in *in)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = in->max_readahead,
                                .flags = in->flags & (FUSE_BIG_WRITES | FUSE_ASYNC_READ),
                                .max_background = 16,
                                .congestion_threshold = 12,
                                .max_write = MOST_WRITTEN,
                                .time_gran = 1};
    answer(h, 0, &out, sizeof out);
}

static void serve(struct fuse_in_header *h, char *in)
{
    inode *f = h->nodeid < n_inodes ? &inodes[h->nodeid] : NULL;
    uint64_t ino;
    switch (h->opcode) {
    case FUSE_CREATE:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_SYMLINK:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_WRITE:
    case FUSE_FALLOCATE:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
        if (!counts()) return;
    }
    switch (h->opcode) {
    case FUSE_INIT:
        begin(h, (struct fuse_init_in *)in);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break; /* no answer */
    case FUSE_LOOKUP:
        ino = find(&f->here, in);
        if (ino)
            answer_entry(h, ino, false);
        else
            answer(h, ENOENT, NULL, 0);
        break;
    case FUSE_GETATTR:
        answer_attributes(h);
        break;
    case FUSE_SETATTR: {
        const struct fuse_setattr_in *a = (struct fuse_setattr_in *)in;
        if ((a->valid & FATTR_SIZE) && !counts()) return;
        if (a->valid & FATTR_SIZE) set_size(f, a->size);
        if (a->valid & FATTR_MODE) f->mode = (f->mode & S_IFMT) | (a->mode & 07777);
        answer_attributes(h);
        break;
    }
    case FUSE_READLINK:
        answer(h, 0, f->live.v, f->live.n);
        break;
    case FUSE_CREATE: {
        const struct fuse_create_in *c = (struct fuse_create_in *)in;
        make(h, in + sizeof *c, S_IFREG | (c->mode & 07777), NULL, true);
        break;
    }
    case FUSE_MKNOD: {
        const struct fuse_mknod_in *c = (struct fuse_mknod_in *)in;
        make(h, in + sizeof *c, c->mode, NULL, false);
        break;
    }
    case FUSE_MKDIR: {
        const struct fuse_mkdir_in *c = (struct fuse_mkdir_in *)in;
        make(h, in + sizeof *c, S_IFDIR | (c->mode & 07777), NULL, false);
        break;
    }
    case FUSE_SYMLINK:
        make(h, in, S_IFLNK | 0777, in + strlen(in) + 1, false);
        break;
    case FUSE_UNLINK:
    case FUSE_RMDIR:
        remove_it(h, in);
        break;
    case FUSE_RENAME:
        rename_it(h, ((struct fuse_rename_in *)in)->newdir, 0, in + sizeof(struct fuse_rename_in));
        break;
    case FUSE_RENAME2: {
        const struct fuse_rename2_in *r = (struct fuse_rename2_in *)in;
        rename_it(h, r->newdir, r->flags, in + sizeof *r);
        break;
    }
    case FUSE_OPEN:
        answer(h, 0, &(struct fuse_open_out){.open_flags = FOPEN_KEEP_CACHE}, sizeof(struct fuse_open_out));
        break;
    case FUSE_OPENDIR:
        answer(h, 0, &(struct fuse_open_out){.fh = (uintptr_t)listing(h->nodeid)}, sizeof(struct fuse_open_out));
        break;
    case FUSE_READDIR:
        read_listing(h, (struct fuse_read_in *)in);
        break;
    case FUSE_RELEASEDIR:
        free_listing((entry *)(uintptr_t)((struct fuse_release_in *)in)->fh);
        answer(h, 0, NULL, 0);
        break;
    case FUSE_READ: {
        const struct fuse_read_in *r = (struct fuse_read_in *)in;
        uint64_t from = r->offset < f->live.n ? r->offset : f->live.n, n = f->live.n - from;
        answer(h, 0, f->live.v ? f->live.v + from : "", n < r->size ? n : r->size);
        break;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *w = (struct fuse_write_in *)in;
        write_bytes(f, w->offset, in + sizeof *w, w->size);
        answer(h, 0, &(struct fuse_write_out){.size = w->size}, sizeof(struct fuse_write_out));
        break;
    }
    case FUSE_FALLOCATE: {
        const struct fuse_fallocate_in *a = (struct fuse_fallocate_in *)in;
        if (!a->mode && a->offset + a->length > f->live.n) set_size(f, a->offset + a->length);
        answer(h, a->mode ? EOPNOTSUPP : 0, NULL, 0);
        break;
    }
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
        sync_inode(h->nodeid);
        answer(h, 0, NULL, 0);
        break;
    case FUSE_STATFS:
        answer(h, 0,
               &(struct fuse_statfs_out){
                   .st = {.blocks = 1 << 20, .bfree = 1 << 19, .bavail = 1 << 19, .bsize = PAGE, .namelen = 255}},
               sizeof(struct fuse_statfs_out));
        break;
    case FUSE_RELEASE:
    case FUSE_FLUSH:
    case FUSE_DESTROY:
        answer(h, 0, NULL, 0);
        break;
    default:
        answer(h, ENOSYS, NULL, 0);
    }
}

/* ---- the server's process ---- */

typedef struct order {
    enum { ARM, BACK } what;
    pid_t group;
    uint64_t n;
} order;

typedef struct report {
    bool ok, gone;
    int error;
    uint64_t counted, lost_changes, lost_writes;
} report;

static bool obey(void)
{
    order o;
    if (read(the.control, &o, sizeof o) != sizeof o) return false;
    report r = {.ok = true, .gone = the.gone, .counted = the.counted};
    if (o.what == ARM) {
        the.counted = 0, the.at = o.n, the.group = o.group;
    } else {
        if (!the.gone) cut();
        lose();
        the.gone = false, the.at = 0;
        r.ok = mount_it();
        r.error = errno;
    }
    r.lost_changes = the.lost_changes, r.lost_writes = the.lost_writes;
    return write(the.control, &r, sizeof r) == sizeof r;
}

static void run_server(void)
{
    static union {
        struct fuse_in_header h;
        char all[REQUEST];
    } request;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    new_inode(0);
    new_inode(S_IFDIR | 0755);
    bool ok = mount_it();
    report r = {.ok = ok, .error = errno};
    ok = write(the.control, &r, sizeof r) == sizeof r && ok;
    while (ok) {
        struct pollfd p[] = {{.fd = the.control, .events = POLLIN}, {.fd = the.fuse, .events = POLLIN}};
        if (poll(p, 2, -1) < 0) continue;
        if (p[0].revents) ok = obey();
        if (!ok || p[0].revents || !p[1].revents) continue;
        ssize_t n = read(the.fuse, request.all, sizeof request);
        if (n > 0) memset(request.all + n, 0, sizeof request - (size_t)n < 8 ? 0 : 8);
        if (n >= (ssize_t)sizeof request.h) serve(&request.h, request.all + sizeof request.h);
    }
    umount2(the.dir, MNT_DETACH);
    _exit(0);
}

/* ---- the client's side ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return ok;
}

const char *power_fs_own_mounts(void)
{
    char map[64];
    unsigned user = geteuid(), group = getegid();
    if (access("/dev/fuse", R_OK | W_OK) != 0) return "/dev/fuse cannot be opened";
    if (user != 0) {
        if (unshare(CLONE_NEWUSER) != 0) return "there are no user namespaces here";
        snprintf(map, sizeof map, "0 %u 1", user);
        bool ok = write_text("/proc/self/uid_map", map) && write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", group);
        if (!ok || !write_text("/proc/self/gid_map", map)) return "a user namespace cannot be set up here";
    }
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return "mounts of its own are not allowed here";
    return NULL;
}

static report ask(power_fs *fs, const order *o)
{
    report r = {0};
    if (o && write(fs->control, o, sizeof *o) != sizeof *o) return r;
    if (read(fs->control, &r, sizeof r) != sizeof r) r.ok = false;
    fs->lost_changes = r.lost_changes, fs->lost_writes = r.lost_writes;
    return r;
}

const char *power_fs_start(power_fs *fs, const char *dir, uint64_t seed, int flags)
{
    int pair[2];
    *fs = (power_fs){.control = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return "no sockets";
    fs->server = fork();
    if (fs->server == 0) {
        close(pair[0]);
        the.dir = dir, the.key = seed, the.flags = flags, the.control = pair[1];
        run_server();
    }
    close(pair[1]);
    fs->control = pair[0];
    report r = ask(fs, NULL);
    if (r.ok) return NULL;
    power_fs_end(fs);
    return r.error == EPERM ? "FUSE must not be mounted here" : "FUSE cannot be mounted here";
}

void power_fs_arm(power_fs *fs, pid_t group, uint64_t n)
{
    ask(fs, &(order){.what = ARM, .group = group, .n = n});
}

uint64_t power_fs_back(power_fs *fs, bool *gone)
{
    report r = ask(fs, &(order){.what = BACK});
    if (!r.ok) fprintf(stderr, "power_fs: %s\n", strerror(r.error)), abort();
    *gone = r.gone;
    return r.counted;
}

void power_fs_end(power_fs *fs)
{
    close(fs->control);
    while (waitpid(fs->server, NULL, 0) < 0 && errno == EINTR) {
    }
}

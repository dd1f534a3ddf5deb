/* Preloaded into a program: a disk that fails, lies, is slow, or writes down what it is told.

   Calls that change files below DISK_FOLDER count. DISK_FAULT=call,first,times,errno makes the
   first'th call of that name, and times - 1 after it, fail (times 0: all after it); errno 0 does
   nothing and says that all went well. A call is write, sync, truncate, unlink, rename,
   make or `any`. DISK_FAILED is a file that is made when one has failed. DISK_SYNC_TAKES is how many
   microseconds each sync takes beside its own.

   DISK_RECORD is a file that gets every call that went well, and every send to a socket, in the
   order in which they ended: call (one letter), lengths of path and data (4 bytes each), offset (8),
   path, data; numbers in the machine's order. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder, *record, *failed;
static char failing[16];
static long first, times, number, calls, sync_takes;
static int out = -1;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "disk: no %s\n", name);
        abort();
    }
    return found;
}

__attribute__((constructor)) static void begin(void) {
    const char *fault = getenv("DISK_FAULT");
    const char *takes = getenv("DISK_SYNC_TAKES");
    sync_takes = takes ? atol(takes) : 0;
    folder = getenv("DISK_FOLDER");
    record = getenv("DISK_RECORD");
    failed = getenv("DISK_FAILED");
    if (fault && sscanf(fault, "%15[a-z],%ld,%ld,%ld", failing, &first, &times, &number) != 4)
        abort();
    if (record)
        out = REAL(open)(record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_ours(const char *path) {
    return folder && !strncmp(path, folder, strlen(folder));
}

/* The path of an open file of ours, or NULL. */
static const char *path_of(int file, char *path) {
    char name[64];
    int kept = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, PATH_MAX - 1);
    errno = kept;
    if (length < 0)
        return NULL;
    path[length] = 0;
    return is_ours(path) ? path : NULL;
}

/* With the lock held: whether this call is not to be made. */
static int fails(const char *call) {
    if (!*failing || (strcmp(failing, "any") && strcmp(failing, call)))
        return 0;
    calls++;
    if (calls < first || (times && calls >= first + times))
        return 0;
    if (failed)
        close(REAL(open)(failed, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    errno = (int)number;
    return 1;
}

static void note(char call, const char *path, int64_t offset, const void *data, size_t size) {
    uint32_t path_size = (uint32_t)strlen(path), data_size = (uint32_t)size;
    int kept = errno;
    struct iovec parts[] = {
        {&call, 1}, {&path_size, 4}, {&data_size, 4}, {&offset, 8},
        {(void *)path, path_size}, {(void *)data, size},
    };
    if (out >= 0 && writev(out, parts, 6) < 0)
        abort();
    errno = kept;
}

/* What such a call returns: that of the real one, unless it fails or is said to have gone well. */
#define CHANGE(call, letter, path, offset, data, size, lie, make)        \
    pthread_mutex_lock(&lock);                                            \
    long long result;                                                     \
    if (fails(call)) {                                                    \
        result = number ? -1 : (long long)(lie);                          \
    } else {                                                              \
        result = (long long)(make);                                       \
        if (result >= 0)                                                  \
            note(letter, path, offset, data, size);                       \
    }                                                                     \
    pthread_mutex_unlock(&lock);                                          \
    return result

#define PWRITE(name, offset_type)                                                     \
    ssize_t name(int file, const void *data, size_t size, offset_type offset) {       \
        char place[PATH_MAX];                                                         \
        const char *path = path_of(file, place);                                      \
        if (!path)                                                                    \
            return REAL(name)(file, data, size, offset);                              \
        CHANGE("write", 'w', path, offset, data, (size_t)result, size,               \
               REAL(name)(file, data, size, offset));                                 \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int file, const void *data, size_t size) {
    char place[PATH_MAX];
    const char *path = path_of(file, place);
    if (!path)
        return REAL(write)(file, data, size);
    off_t offset = lseek(file, 0, SEEK_CUR);
    CHANGE("write", 'w', path, offset, data, (size_t)result, size,
           REAL(write)(file, data, size));
}

#define SYNC(name)                                                                    \
    int name(int file) {                                                              \
        char place[PATH_MAX];                                                         \
        const char *path = path_of(file, place);                                      \
        if (!path)                                                                    \
            return REAL(name)(file);                                                  \
        usleep((useconds_t)sync_takes);                                               \
        CHANGE("sync", 's', path, 0, "", 0, 0, REAL(name)(file));                     \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, size_type)                                                     \
    int name(int file, size_type size) {                                              \
        char place[PATH_MAX];                                                         \
        const char *path = path_of(file, place);                                      \
        if (!path)                                                                    \
            return REAL(name)(file, size);                                            \
        CHANGE("truncate", 't', path, size, "", 0, 0, REAL(name)(file, size));        \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int unlink(const char *path) {
    if (!is_ours(path))
        return REAL(unlink)(path);
    CHANGE("unlink", 'u', path, 0, "", 0, 0, REAL(unlink)(path));
}

int rename(const char *from, const char *to) {
    if (!is_ours(from))
        return REAL(rename)(from, to);
    CHANGE("rename", 'r', from, 0, to, strlen(to), 0, REAL(rename)(from, to));
}

/* As `rm` and `mv` call them, with whole paths. */
int unlinkat(int folder, const char *path, int flags) {
    if (*path != '/' || flags || !is_ours(path))
        return REAL(unlinkat)(folder, path, flags);
    CHANGE("unlink", 'u', path, 0, "", 0, 0, REAL(unlinkat)(folder, path, flags));
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    if (*from != '/' || !is_ours(from))
        return REAL(renameat2)(from_folder, from, to_folder, to, flags);
    CHANGE("rename", 'r', from, 0, to, strlen(to), 0,
           REAL(renameat2)(from_folder, from, to_folder, to, flags));
}

#define OPEN(name)                                                                    \
    int name(const char *path, int flags, ...) {                                      \
        va_list more;                                                                 \
        va_start(more, flags);                                                        \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;     \
        va_end(more);                                                                 \
        if (!(flags & O_CREAT) || !is_ours(path) || !access(path, F_OK))              \
            return REAL(name)(path, flags, mode);                                     \
        CHANGE("make", 'm', path, 0, "", 0, -1, REAL(name)(path, flags, mode));       \
    }
OPEN(open)
OPEN(open64)

ssize_t send(int socket, const void *data, size_t size, int flags) {
    if (out < 0)
        return REAL(send)(socket, data, size, flags);
    CHANGE("send", 'a', "", 0, data, (size_t)result, size, REAL(send)(socket, data, size, flags));
}

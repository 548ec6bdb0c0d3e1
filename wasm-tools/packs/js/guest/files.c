/* Files, clocks, entropy: what WASI offers, one function for one call, nothing decided here.
 *
 * A function that fails gives back the negative error number; the prelude makes Node's errors of it, because it knows
 * the call and the paths. Which paths can be reached is the host's decision alone.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <wasi/api.h>

#include "guest.h"

#define FAILED(context) JS_NewInt32(context, -errno)
/* A symbolic link's target is a path; WASI hosts have no longer ones. */
#define LINK_LIMIT 4096
/* read() is asked for this much when the size of a file isn't known (a pipe, a file that grows). */
#define CHUNK 65536
/* One file as one string or buffer; more would not fit into the memory of an instance. */
#define FILE_LIMIT (1u << 30)

/* The bits of `flags` in `open`: Linux' numbers, which scripts find in fs.constants. */
enum { ACCESS = 3, CREATE = 0100, EXCLUSIVE = 0200, TRUNCATE = 01000, APPEND = 02000, DIRECTORY = 0200000,
       NO_FOLLOW = 0400000 };

/* A path for the system: without "..", because each folder that the host gave is a root of its own, out of which no
 * path may climb, not even into the folder beside it. Links before a ".." are not followed. NULL with an exception. */
static char *
path_argument(JSContext *context, JSValueConst value)
{
    size_t length;
    const char *given = JS_ToCStringLen(context, &length, value);
    if (given == NULL)
        return NULL;
    bool climbs = strstr(given, "..") != NULL, rooted = given[0] == '/';
    char *folder = climbs && !rooted ? getcwd(NULL, 0) : NULL;
    size_t before = folder ? strlen(folder) : 0;
    char *path = js_malloc(context, before + length + 3);
    if (path != NULL && !climbs)
        memcpy(path, given, length + 1);
    else if (path != NULL) {
        size_t end = 0;
        if (folder && before > 1) {
            memcpy(path, folder, before);
            end = before;
        }
        for (const char *at = given; *at;) {
            size_t step = strcspn(at, "/");
            if (step == 2 && at[0] == '.' && at[1] == '.') {
                while (end > 0 && path[--end] != '/')
                    ;
            } else if (step > 0 && !(step == 1 && at[0] == '.')) {
                path[end++] = '/';
                memcpy(path + end, at, step);
                end += step;
            }
            at += step + (at[step] == '/');
        }
        if (end == 0)
            path[end++] = '/';
        path[end] = 0;
    }
    free(folder);
    JS_FreeCString(context, given);
    return path;
}

static JSValue
file_open(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t flags;
    if (JS_ToInt32(context, &flags, arguments[1]))
        return JS_EXCEPTION;
    char *path = path_argument(context, arguments[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    int access = flags & ACCESS, bits = access == 0 ? O_RDONLY : access == 1 ? O_WRONLY : O_RDWR;
    if (flags & CREATE)
        bits |= O_CREAT;
    if (flags & EXCLUSIVE)
        bits |= O_EXCL;
    if (flags & TRUNCATE)
        bits |= O_TRUNC;
    if (flags & APPEND)
        bits |= O_APPEND;
    if (flags & DIRECTORY)
        bits |= O_DIRECTORY;
    if (flags & NO_FOLLOW)
        bits |= O_NOFOLLOW;
    int fd = open(path, bits, 0666);
    js_free(context, path);
    return fd < 0 ? FAILED(context) : JS_NewInt32(context, fd);
}

static JSValue
file_close(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t fd;
    if (JS_ToInt32(context, &fd, arguments[0]))
        return JS_EXCEPTION;
    return close(fd) < 0 ? FAILED(context) : JS_NewInt32(context, 0);
}

enum { READ, WRITE };

/* read/write(fd, bytes, offset, length, position or -1) -> count */
static JSValue
file_transfer(JSContext *context, JSValueConst self, int count, JSValueConst *arguments, int what)
{
    int32_t fd;
    int64_t offset, length, position;
    Bytes bytes;
    if (JS_ToInt32(context, &fd, arguments[0]) || JS_ToInt64(context, &offset, arguments[2])
        || JS_ToInt64(context, &length, arguments[3]) || JS_ToInt64(context, &position, arguments[4])
        || !bytes_of(context, arguments[1], &bytes))
        return JS_EXCEPTION;
    if (offset < 0 || length < 0 || offset > (int64_t)bytes.length || length > (int64_t)bytes.length - offset)
        return JS_ThrowRangeError(context, "offset and length are outside of the buffer");
    void *at = bytes.data + offset;
    ssize_t done;
    if (what == READ)
        done = position < 0 ? read(fd, at, (size_t)length) : pread(fd, at, (size_t)length, position);
    else
        done = position < 0 ? write(fd, at, (size_t)length) : pwrite(fd, at, (size_t)length, position);
    return done < 0 ? FAILED(context) : JS_NewInt64(context, done);
}

/* readAll(path or fd) -> Uint8Array */
static JSValue
file_read_all(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t fd;
    bool opened = JS_IsString(arguments[0]);
    if (opened) {
        char *path = path_argument(context, arguments[0]);
        if (path == NULL)
            return JS_EXCEPTION;
        fd = open(path, O_RDONLY);
        js_free(context, path);
        if (fd < 0)
            return FAILED(context);
    } else if (JS_ToInt32(context, &fd, arguments[0]))
        return JS_EXCEPTION;
    struct stat facts;
    size_t room = CHUNK, length = 0;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0)
        room = (uint64_t)facts.st_size < FILE_LIMIT ? (size_t)facts.st_size + 1 : FILE_LIMIT;
    uint8_t *data = js_malloc(context, room);
    JSValue result = JS_EXCEPTION;
    int problem = 0;
    while (data != NULL) {
        ssize_t step = read(fd, data + length, room - length);
        if (step < 0) {
            problem = errno;
            break;
        }
        if (step == 0)
            break;
        length += (size_t)step;
        if (length == room) {
            if (room >= FILE_LIMIT) {
                problem = EFBIG;
                break;
            }
            uint8_t *more = js_realloc(context, data, room * 2);
            if (more == NULL)
                js_free(context, data);
            data = more;
            room *= 2;
        }
    }
    if (opened)
        close(fd);
    if (data != NULL) {
        result = problem ? JS_NewInt32(context, -problem) : bytes_new(context, data, length);
        js_free(context, data);
    }
    return result;
}

/* ---- what a name stands for ------------------------------------------------------------------------------- */

static double
milliseconds(struct timespec time)
{
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static JSValue
facts_of(JSContext *context, const struct stat *facts)
{
    const double values[] = {
        facts->st_mode, (double)facts->st_size, (double)facts->st_ino, (double)facts->st_dev, (double)facts->st_nlink,
        milliseconds(facts->st_atim), milliseconds(facts->st_mtim), milliseconds(facts->st_ctim),
    };
    JSValue list = JS_NewArray(context);
    for (int i = 0; i < COUNT(values) && !JS_IsException(list); i++)
        JS_SetPropertyUint32(context, list, (uint32_t)i, JS_NewNumber(context, values[i]));
    return list;
}

/* stat(path, follow) */
static JSValue
file_stat(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    struct stat facts;
    int follow = JS_ToBool(context, arguments[1]);
    char *path = path_argument(context, arguments[0]);
    if (path == NULL || follow < 0)
        return JS_EXCEPTION;
    int status = follow ? stat(path, &facts) : lstat(path, &facts);
    js_free(context, path);
    return status < 0 ? FAILED(context) : facts_of(context, &facts);
}

static JSValue
file_fstat(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    struct stat facts;
    int32_t fd;
    if (JS_ToInt32(context, &fd, arguments[0]))
        return JS_EXCEPTION;
    return fstat(fd, &facts) < 0 ? FAILED(context) : facts_of(context, &facts);
}

/* readdir(path) -> [name, kind, name, kind, ...] */
static JSValue
file_readdir(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    char *path = path_argument(context, arguments[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    DIR *folder = opendir(path);
    js_free(context, path);
    if (folder == NULL)
        return FAILED(context);
    JSValue list = JS_NewArray(context);
    uint32_t index = 0;
    errno = 0;
    for (struct dirent *entry; !JS_IsException(list) && (entry = readdir(folder)) != NULL; errno = 0) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int kind = entry->d_type == DT_DIR ? 2 : entry->d_type == DT_REG ? 1 : entry->d_type == DT_LNK ? 3 : 0;
        JS_SetPropertyUint32(context, list, index++, JS_NewString(context, entry->d_name));
        JS_SetPropertyUint32(context, list, index++, JS_NewInt32(context, kind));
    }
    int problem = errno;
    closedir(folder);
    if (problem != 0 && !JS_IsException(list)) {
        JS_FreeValue(context, list);
        return JS_NewInt32(context, -problem);
    }
    return list;
}

/* ---- calls with one path, and with two ------------------------------------------------------------------- */

enum { MKDIR, RMDIR, UNLINK, CHDIR, RENAME, LINK, SYMLINK };

static JSValue
file_one(JSContext *context, JSValueConst self, int count, JSValueConst *arguments, int what)
{
    char *path = path_argument(context, arguments[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    int status = what == MKDIR ? mkdir(path, 0777) : what == RMDIR ? rmdir(path) : what == UNLINK ? unlink(path) : chdir(path);
    js_free(context, path);
    return status < 0 ? FAILED(context) : JS_NewInt32(context, 0);
}

static JSValue
file_two(JSContext *context, JSValueConst self, int count, JSValueConst *arguments, int what)
{
    /* What a symbolic link says is not a path for the system yet. */
    const char *target = what == SYMLINK ? JS_ToCString(context, arguments[0]) : NULL;
    char *one = what == SYMLINK ? NULL : path_argument(context, arguments[0]), *two = path_argument(context, arguments[1]);
    JSValue result = JS_EXCEPTION;
    if ((one != NULL || target != NULL) && two != NULL) {
        int status = what == RENAME ? rename(one, two) : what == LINK ? link(one, two) : symlink(target, two);
        result = status < 0 ? FAILED(context) : JS_NewInt32(context, 0);
    }
    if (target != NULL)
        JS_FreeCString(context, target);
    js_free(context, one);
    js_free(context, two);
    return result;
}

static JSValue
file_readlink(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    char target[LINK_LIMIT];
    char *path = path_argument(context, arguments[0]);
    if (path == NULL)
        return JS_EXCEPTION;
    ssize_t length = readlink(path, target, sizeof target);
    js_free(context, path);
    return length < 0 ? FAILED(context) : text_from_utf8(context, (const uint8_t *)target, (size_t)length);
}

static JSValue
file_truncate(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t fd;
    int64_t length;
    if (JS_ToInt32(context, &fd, arguments[0]) || JS_ToInt64(context, &length, arguments[1]))
        return JS_EXCEPTION;
    return ftruncate(fd, length) < 0 ? FAILED(context) : JS_NewInt32(context, 0);
}

static JSValue
file_sync(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t fd;
    if (JS_ToInt32(context, &fd, arguments[0]))
        return JS_EXCEPTION;
    return fsync(fd) < 0 ? FAILED(context) : JS_NewInt32(context, 0);
}

/* utimes(path or fd, seconds, seconds, follow) */
static JSValue
file_utimes(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    double times[2];
    struct timespec both[2];
    int follow = JS_ToBool(context, arguments[3]);
    for (int i = 0; i < 2; i++) {
        if (JS_ToFloat64(context, &times[i], arguments[1 + i]))
            return JS_EXCEPTION;
        if (!(times[i] > -1e11 && times[i] < 1e11))
            return JS_NewInt32(context, -EINVAL);
        double whole = __builtin_floor(times[i]);
        both[i].tv_sec = (time_t)whole;
        both[i].tv_nsec = (long)((times[i] - whole) * 1e9);
    }
    int status;
    if (JS_IsString(arguments[0])) {
        char *path = path_argument(context, arguments[0]);
        if (path == NULL)
            return JS_EXCEPTION;
        status = utimensat(AT_FDCWD, path, both, follow ? 0 : AT_SYMLINK_NOFOLLOW);
        js_free(context, path);
    } else {
        int32_t fd;
        if (JS_ToInt32(context, &fd, arguments[0]))
            return JS_EXCEPTION;
        status = futimens(fd, both);
    }
    return status < 0 ? FAILED(context) : JS_NewInt32(context, 0);
}

static JSValue
file_cwd(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    char *path = getcwd(NULL, 0);
    if (path == NULL)
        return FAILED(context);
    JSValue text = text_from_utf8(context, (const uint8_t *)path, strlen(path));
    free(path);
    return text;
}

static JSValue
file_isatty(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t fd;
    if (JS_ToInt32(context, &fd, arguments[0]))
        return JS_EXCEPTION;
    return JS_NewBool(context, isatty(fd));
}

/* ---- time and entropy ------------------------------------------------------------------------------------- */

/* The monotonic clock in nanoseconds. */
static JSValue
clock_now(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return JS_NewBigInt64(context, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
}

/* The same in milliseconds, as a number. */
static JSValue
clock_milliseconds(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return JS_NewFloat64(context, milliseconds(now));
}

/* wait(milliseconds, fd or -1) -> whether fd can be read: sleeps until it can or the time is over. */
static JSValue
clock_wait(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    double time;
    int32_t fd;
    if (JS_ToFloat64(context, &time, arguments[0]) || JS_ToInt32(context, &fd, arguments[1]))
        return JS_EXCEPTION;
    if (!(time > 0))
        time = 0;
    if (time > 1e9)
        time = 1e9;
    if (fd >= 0) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        int ready = poll(&one, 1, (int)__builtin_ceil(time));
        /* What can't be waited for can be read: a file always, and an error is found by reading. */
        return JS_NewBool(context, ready != 0);
    }
    struct timespec rest = {.tv_sec = (time_t)(time / 1e3)};
    rest.tv_nsec = (long)((time - (double)rest.tv_sec * 1e3) * 1e6);
    nanosleep(&rest, NULL);
    return JS_FALSE;
}

/* random(bytes): fills them. */
static JSValue
random_fill(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    Bytes bytes;
    if (!bytes_of(context, arguments[0], &bytes))
        return JS_EXCEPTION;
    while (bytes.length > 0) {
        size_t step = bytes.length < 256 ? bytes.length : 256;     /* getentropy's own limit */
        if (getentropy(bytes.data, step) != 0)
            return FAILED(context);
        bytes.data += step;
        bytes.length -= step;
    }
    return JS_NewInt32(context, 0);
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("open", 2, file_open),
    JS_CFUNC_DEF("close", 1, file_close),
    JS_CFUNC_MAGIC_DEF("read", 5, file_transfer, READ),
    JS_CFUNC_MAGIC_DEF("write", 5, file_transfer, WRITE),
    JS_CFUNC_DEF("readAll", 1, file_read_all),
    JS_CFUNC_DEF("stat", 2, file_stat),
    JS_CFUNC_DEF("fstat", 1, file_fstat),
    JS_CFUNC_DEF("readdir", 1, file_readdir),
    JS_CFUNC_MAGIC_DEF("mkdir", 1, file_one, MKDIR),
    JS_CFUNC_MAGIC_DEF("rmdir", 1, file_one, RMDIR),
    JS_CFUNC_MAGIC_DEF("unlink", 1, file_one, UNLINK),
    JS_CFUNC_MAGIC_DEF("chdir", 1, file_one, CHDIR),
    JS_CFUNC_MAGIC_DEF("rename", 2, file_two, RENAME),
    JS_CFUNC_MAGIC_DEF("link", 2, file_two, LINK),
    JS_CFUNC_MAGIC_DEF("symlink", 2, file_two, SYMLINK),
    JS_CFUNC_DEF("readlink", 1, file_readlink),
    JS_CFUNC_DEF("truncate", 2, file_truncate),
    JS_CFUNC_DEF("sync", 1, file_sync),
    JS_CFUNC_DEF("utimes", 4, file_utimes),
    JS_CFUNC_DEF("cwd", 0, file_cwd),
    JS_CFUNC_DEF("isatty", 1, file_isatty),
    JS_CFUNC_DEF("now", 0, clock_now),
    JS_CFUNC_DEF("milliseconds", 0, clock_milliseconds),
    JS_CFUNC_DEF("wait", 2, clock_wait),
    JS_CFUNC_DEF("random", 1, random_fill),
};

int
files_add(JSContext *context, JSValueConst host)
{
    return JS_SetPropertyFunctionList(context, host, functions, COUNT(functions));
}

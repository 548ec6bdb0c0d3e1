/* The working folder, and which preopened folder a path lies in: in place of the C library's own two functions.
 *
 * WASI knows paths only relative to a preopened folder, and the host must refuse to go up from there. The C library
 * passes what it gets, so "../in/a.csv" from /workspace/skill is refused. But the folders lie side by side in the
 * guest's world, and a script may name one from the other. So a ".." that would leave a preopened folder is worked
 * out here, by its text. That gives no right which the plain path does not give.
 *
 * A ".." inside one folder is left to the host, which knows about links.
 *
 * The folders above the preopened ones ("/", "/workspace") are nothing that the host gives. Programs look at them all the
 * same, on the way to a file that is there: they are told of a folder that can't be changed, and of nothing else in it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wasi/api.h>
#include <wasi/libc.h>
#include <wasi/libc-find-relpath.h>

extern char *__wasilibc_cwd;

/* Whether a path relative to a folder goes up from it at any point. */
static int
leaves_folder(const char *path)
{
    int depth = 0;
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 2 && path[0] == '.' && path[1] == '.') {
            if (--depth < 0)
                return 1;
        } else if (length > 0 && !(length == 1 && path[0] == '.')) {
            depth++;
        }
        path += length + (path[length] == '/');
    }
    return 0;
}

/* Takes "." and ".." out of an absolute path, in place: the result is never longer. */
static void
work_out(char *path)
{
    const char *from = path;
    size_t used = 0;
    while (*from) {
        size_t length = strcspn(from, "/");
        if (length == 2 && from[0] == '.' && from[1] == '.') {
            while (used > 0 && path[--used] != '/')
                ;
            from += length;
        } else if (length == 0 || (length == 1 && from[0] == '.')) {
            from += length;
        } else {
            path[used++] = '/';             /* over the slash before the part, or one further to the left */
            memmove(path + used, from, length);
            used += length;
            from += length;
        }
        from += *from == '/';
    }
    if (used == 0)
        path[used++] = '/';
    path[used] = '\0';
}

/* The absolute form of a path, in memory of the caller. */
static char *
absolute(const char *path)
{
    const char *base = path[0] == '/' ? "" : __wasilibc_cwd;
    size_t base_length = strlen(base);
    char *result = malloc(base_length + 1 + strlen(path) + 1);
    if (result == NULL)
        return NULL;
    memcpy(result, base, base_length);
    if (base_length > 0 && path[0] != '\0' && base[base_length - 1] != '/')
        result[base_length++] = '/';
    strcpy(result + base_length, path);
    return result;
}

/* The worked-out form of a path when it is a folder above a preopened one, in memory of the caller; else NULL. */
static char *
ancestor(const char *path)
{
    char *whole = path[0] == '\0' ? NULL : absolute(path);
    if (whole == NULL)
        return NULL;
    work_out(whole);
    size_t length = strcmp(whole, "/") == 0 ? 0 : strlen(whole);
    __wasi_prestat_t about;
    for (__wasi_fd_t folder = 3; __wasi_fd_prestat_get(folder, &about) == 0; folder++) {
        size_t size = about.u.dir.pr_name_len;
        char *name = about.tag == __WASI_PREOPENTYPE_DIR && size > length + 1 ? malloc(size) : NULL;
        int above = name != NULL && __wasi_fd_prestat_dir_name(folder, (uint8_t *)name, size) == 0
            && memcmp(name, whole, length) == 0 && name[length] == '/';
        free(name);
        if (above)
            return whole;
    }
    free(whole);
    return NULL;
}

/* Whether a failed call was about a path of which the host knows nothing. */
static int
unknown(int error)
{
    return error == ENOENT || error == ENOTCAPABLE;
}

static int
describe_ancestor(const char *path, struct stat *found)
{
    int error = errno;
    char *whole = unknown(error) ? ancestor(path) : NULL;
    if (whole == NULL) {
        errno = error;
        return -1;
    }
    memset(found, 0, sizeof *found);
    found->st_mode = S_IFDIR | 0555;
    found->st_nlink = 1;
    /* Each folder is another one. */
    found->st_ino = 1;
    for (const char *at = whole; *at != '\0'; at++)
        found->st_ino = found->st_ino * 31 + (unsigned char)*at;
    free(whole);
    return 0;
}

int
skillcell_stat(const char *path, struct stat *found)
{
    return stat(path, found) == 0 ? 0 : describe_ancestor(path, found);
}

int
skillcell_lstat(const char *path, struct stat *found)
{
    return lstat(path, found) == 0 ? 0 : describe_ancestor(path, found);
}

int
skillcell_mkdir(const char *path, mode_t mode)
{
    if (mkdir(path, mode) == 0)
        return 0;
    int error = errno;
    char *whole = unknown(error) ? ancestor(path) : NULL;
    errno = whole != NULL ? EEXIST : error;
    free(whole);
    return -1;
}

/* Called by everything in the C library that takes a path: gives the descriptor of the preopened folder, and in
 * *buffer, which may have to grow, the path from there. */
int
__wasilibc_find_relpath_alloc(const char *path, const char **prefix, char **buffer, size_t *size, int can_grow)
{
    char *whole = absolute(path);
    if (whole == NULL) {
        errno = ENOMEM;
        return -1;
    }
    const char *rest;
    int folder = __wasilibc_find_abspath(whole, prefix, &rest);
    if (folder >= 0 ? leaves_folder(rest) : strstr(whole, "..") != NULL) {
        work_out(whole);
        folder = __wasilibc_find_abspath(whole, prefix, &rest);
    }
    if (folder >= 0) {
        size_t needed = strlen(rest) + 1;
        if (*size < needed) {
            char *grown = can_grow ? realloc(*buffer, needed) : NULL;
            if (grown == NULL) {
                errno = can_grow ? ENOMEM : ERANGE;
                free(whole);
                return -1;
            }
            *buffer = grown;
            *size = needed;
        }
        memcpy(*buffer, rest, needed);
    }
    free(whole);
    return folder;
}

static void
set_working_folder(char *whole)
{
    static int owned;                       /* whether __wasilibc_cwd was made here */
    if (owned)
        free(__wasilibc_cwd);
    __wasilibc_cwd = whole;
    owned = 1;
}

int
chdir(const char *path)
{
    char *rest = NULL;
    size_t size = 0;
    const char *prefix;
    int folder = __wasilibc_find_relpath_alloc(path, &prefix, &rest, &size, 1);
    char *whole = NULL;
    if (folder < 0) {
        int error = errno;
        whole = ancestor(path);
        errno = error;
        if (whole != NULL)
            set_working_folder(whole);
        return whole != NULL ? 0 : -1;
    }
    struct stat found;
    if (fstatat(folder, rest, &found, 0) == 0) {
        if (S_ISDIR(found.st_mode)) {
            whole = malloc(1 + strlen(prefix) + 1 + strlen(rest) + 1);
            errno = ENOMEM;
        } else {
            errno = ENOTDIR;
        }
    }
    if (whole != NULL) {
        strcpy(whole, "/");
        strcat(whole, prefix);
        strcat(whole, "/");
        strcat(whole, rest);
        work_out(whole);
        set_working_folder(whole);
    }
    free(rest);
    return whole != NULL ? 0 : -1;
}

/* The working folder, and which preopened folder a path lies in: in place of the C library's own two functions.
 *
 * WASI knows paths only relative to a preopened folder, and the host must refuse to go up from there. The C library
 * passes what it gets, so "../in/a.csv" from /workspace/skill is refused. But the folders lie side by side in the
 * guest's world, and a script may name one from the other. So a ".." that would leave a preopened folder is worked
 * out here, by its text. That gives no right which the plain path does not give.
 *
 * A ".." inside one folder is left to the host, which knows about links.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
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

int
chdir(const char *path)
{
    static int owned;                       /* whether __wasilibc_cwd was made here */
    char *rest = NULL;
    size_t size = 0;
    const char *prefix;
    int folder = __wasilibc_find_relpath_alloc(path, &prefix, &rest, &size, 1);
    if (folder < 0)
        return -1;
    struct stat found;
    char *whole = NULL;
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
        if (owned)
            free(__wasilibc_cwd);
        __wasilibc_cwd = whole;
        owned = 1;
    }
    free(rest);
    return whole != NULL ? 0 : -1;
}

/* The entry program of the Python pack: CPython that is initialised once, frozen, and then run many times.
 *
 *   prepare()  called once, by the snapshot maker: interpreter up, library modules imported
 *   run()      called once in every instance made from the snapshot; exported there as `_start`
 *
 * run() is CPython's own main program (Modules/main.c) and CPython's own reading of options and PYTHON* variables
 * (_PyConfig_Read): an option means here what it means everywhere. What this file adds is only what freezing makes
 * necessary. Whatever belongs to one run - preopened folders, environment, arguments, working folder, entropy - is
 * taken afresh, and nothing that belonged to the making of the snapshot may be seen in a run.
 *
 * The Python half is boot.py, compiled in as BOOT_PY.
 */
#define PY_SSIZE_T_CLEAN
#include "Modules/main.c"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/random.h>
#include <wasi/api.h>
#include <wasi/libc.h>
#include <wasi/libc-environ.h>
#include <sqlite3.h>
#include "pycore_global_objects.h"
#include "pycore_pyhash.h"
#include "pycore_sysmodule.h"
#include "boot_py.h"

void __wasilibc_reset_preopens(void);

/* Namespace of boot.py; alive in the snapshot. */
static PyObject *boot;

static void
die(const char *what)
{
    fprintf(stderr, "python pack: %s\n", what);
    if (PyErr_Occurred())
        PyErr_Print();
    fflush(NULL);
    abort();
}

static void
check(PyStatus status)
{
    if (PyStatus_Exception(status))
        die(status.err_msg ? status.err_msg : "initialisation failed");
}

/* What is the same for the snapshot and for every run of it. The hash seed is one of these things: the hashes of
 * strings are in every dict and set of the snapshot. It is what PYTHONHASHSEED=0 gives. */
static void
common_settings(PyConfig *c)
{
    PyConfig_InitPythonConfig(c);
    c->install_signal_handlers = 0;
    c->pathconfig_warnings = 0;
    c->write_bytecode = 0;
    c->user_site_directory = 0;
    c->configure_c_stdio = 0;
    c->use_hash_seed = 1;
    c->hash_seed = 0;
    check(PyConfig_SetString(c, &c->program_name, L"python3"));
    check(PyConfig_SetString(c, &c->executable, L"/usr/local/bin/python3"));
    check(PyConfig_SetString(c, &c->base_executable, L"/usr/local/bin/python3"));
    check(PyConfig_SetString(c, &c->home, L"/usr/local"));
    check(PyConfig_SetString(c, &c->prefix, L"/usr/local"));
    check(PyConfig_SetString(c, &c->exec_prefix, L"/usr/local"));
    check(PyConfig_SetString(c, &c->base_prefix, L"/usr/local"));
    check(PyConfig_SetString(c, &c->base_exec_prefix, L"/usr/local"));
    check(PyConfig_SetString(c, &c->stdlib_dir, L"/usr/local/lib/python3.13"));
    c->module_search_paths_set = 1;
}

/* ---- the snapshot ---------------------------------------------------------------------------------------- */

/* Freed memory is wiped while the snapshot is being made. It would otherwise be in it: dead bytes, some of which
 * differ from one machine to the next. */

static PyMemAllocatorEx plain[2];
static const PyMemAllocatorDomain wiped_domains[2] = {PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};

#ifdef WITH_PYMALLOC
#error "the blocks of pymalloc cannot be asked for their size, so they cannot be wiped"
#endif

static void *
wiping_malloc(void *context, size_t size)
{
    PyMemAllocatorEx *under = context;
    return under->malloc(under->ctx, size);
}

static void *
wiping_calloc(void *context, size_t count, size_t size)
{
    PyMemAllocatorEx *under = context;
    return under->calloc(under->ctx, count, size);
}

static void
wiping_free(void *context, void *block)
{
    PyMemAllocatorEx *under = context;
    if (block)
        memset(block, 0, malloc_usable_size(block));
    under->free(under->ctx, block);
}

static void *
wiping_realloc(void *context, void *block, size_t size)
{
    PyMemAllocatorEx *under = context;
    if (block == NULL)
        return under->malloc(under->ctx, size);
    size_t old = malloc_usable_size(block);
    void *moved = under->malloc(under->ctx, size);
    if (moved) {
        memcpy(moved, block, old < size ? old : size);
        wiping_free(context, block);
    }
    return moved;
}

static void
start_wiping(void)
{
    for (int i = 0; i < 2; i++) {
        PyMem_GetAllocator(wiped_domains[i], &plain[i]);
        PyMemAllocatorEx wiping = {&plain[i], wiping_malloc, wiping_calloc, wiping_realloc, wiping_free};
        PyMem_SetAllocator(wiped_domains[i], &wiping);
    }
}

static void
stop_wiping(void)
{
    for (int i = 0; i < 2; i++)
        PyMem_SetAllocator(wiped_domains[i], &plain[i]);
}

/* The same for the part of the C stack that is not in use any more: it held, for one, the inode number and the
 * dates of the library archive. The stack lies below everything else in memory. */
static __attribute__((noinline)) void
wipe_stack(void)
{
    extern char __stack_low;
    char here;
    volatile char *end = &here - 256;
    for (volatile char *p = &__stack_low; p < end; p++)
        *p = 0;
}

/* Everything alive in the snapshot becomes immortal. It would not be freed in a run anyway, and a reference count
 * that is never written leaves its page shared between all instances. */

static PyObject **pending;
static size_t pending_count, pending_size;

static int
make_immortal(PyObject *object, void *unused)
{
    (void)unused;
    if (object == NULL || _Py_IsImmortal(object))
        return 0;
    object->ob_refcnt = _Py_IMMORTAL_REFCNT;
    if (pending_count == pending_size) {
        pending_size = pending_size ? pending_size * 2 : 65536;
        pending = realloc(pending, pending_size * sizeof *pending);
        if (pending == NULL)
            die("out of memory");
    }
    pending[pending_count++] = object;
    return 0;
}

static void
make_parts_immortal(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (PyDict_Check(object)) {             /* dict_traverse leaves keys out when they are all strings */
        PyObject *key, *value;
        for (Py_ssize_t i = 0; PyDict_Next(object, &i, &key, &value);)
            make_immortal(key, NULL);
    }
    if (PyCode_Check(object)) {             /* not a type that the collector knows */
        PyCodeObject *code = (PyCodeObject *)object;
        PyObject *parts[] = {code->co_consts, code->co_names, code->co_localsplusnames, code->co_localspluskinds,
                             code->co_filename, code->co_name, code->co_qualname, code->co_linetable,
                             code->co_exceptiontable};
        for (size_t i = 0; i < Py_ARRAY_LENGTH(parts); i++)
            make_immortal(parts[i], NULL);
    }
    /* A static type has a traverse function and must not be given to it. */
    if (type->tp_traverse && (!PyType_Check(object) || PyType_HasFeature((PyTypeObject *)object, Py_TPFLAGS_HEAPTYPE)))
        type->tp_traverse(object, make_immortal, NULL);
}

static void
make_all_immortal(void)
{
    PyObject *collector = PyImport_ImportModule("gc");
    PyObject *all = collector ? PyObject_CallMethod(collector, "get_objects", NULL) : NULL;
    if (all == NULL)
        die("gc.get_objects");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all); i++) {
        PyObject *object = PyList_GET_ITEM(all, i);
        if (_Py_IsImmortal(object))
            make_parts_immortal(object);
        else
            make_immortal(object, NULL);
        while (pending_count)
            make_parts_immortal(pending[--pending_count]);
    }
    Py_DECREF(all);
    memset(pending, 0, pending_size * sizeof *pending);
    free(pending);
    pending = NULL;
}

/* sqlite would seed its random numbers from the clock and a process id that is always the same: WASI has no
 * /dev/urandom. */
static int
sqlite_entropy(sqlite3_vfs *vfs, int count, char *out)
{
    (void)vfs;
    return getentropy(out, (size_t)count) == 0 ? count : 0;
}

/* WASI has no file locks. sqlite keeps account of its own connections and asks the system only for what other processes
 * hold; a run is alone with its files, so every lock is free. Connections of one script do lock each other out. */
/* As sqlite3.c defines them for WASI, whose headers lack them; GETLK is 5 or 12 by the width of a long. */
enum { SQLITE_GETLK_SHORT = 5, SQLITE_GETLK_LONG = 12, SQLITE_UNLCK = 2 };

static int
sqlite_fcntl(int file, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    int result = 0;
    if (command == F_GETFD || command == F_GETFL)
        result = fcntl(file, command);
    else if (command == F_SETFD || command == F_SETFL)
        result = fcntl(file, command, va_arg(rest, int));
    else if (command == SQLITE_GETLK_SHORT || command == SQLITE_GETLK_LONG)
        va_arg(rest, struct flock *)->l_type = SQLITE_UNLCK;
    va_end(rest);
    return result;
}

static PyObject *
call_boot(const char *name, PyObject *arguments)
{
    PyObject *function = boot ? PyDict_GetItemString(boot, name) : NULL;
    if (function == NULL) {
        PyErr_SetString(PyExc_SystemError, "the snapshot was not prepared");
        return NULL;
    }
    return PyObject_CallObject(function, arguments);
}

__attribute__((export_name("prepare"))) void
prepare(void)
{
    PyPreConfig pre;
    PyPreConfig_InitPythonConfig(&pre);
    pre.parse_argv = 0;
    pre.utf8_mode = 1;                      /* WASI's only locale is "C", which would mean ASCII */
    check(Py_PreInitialize(&pre));
    start_wiping();

    PyConfig c;
    common_settings(&c);
    c.parse_argv = 0;
    c.site_import = 0;                      /* boot.py does it, when the modules are there */
    check(PyWideStringList_Append(&c.module_search_paths, STDLIB_ZIP));
    check(Py_InitializeFromConfig(&c));
    PyConfig_Clear(&c);

    boot = PyDict_New();
    if (boot == NULL || PyDict_SetItemString(boot, "__builtins__", PyEval_GetBuiltins()) < 0)
        die("no memory for boot.py");
    PyObject *code = Py_CompileString(BOOT_PY, "<skillcell>", Py_file_input);
    PyObject *result = code ? PyEval_EvalCode(code, boot, boot) : NULL;
    if (result == NULL)
        die("boot.py");
    Py_DECREF(result);
    Py_DECREF(code);
    result = call_boot("prepare", NULL);
    if (result == NULL)
        die("boot.prepare");
    Py_DECREF(result);

    sqlite3_initialize();
    /* On WASI sqlite prefers locks made of folders, which nobody can make beside a file that can only be read. */
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    if (vfs == NULL || sqlite3_vfs_register(vfs, 1) != SQLITE_OK)
        die("sqlite has no file system");
    vfs->xRandomness = sqlite_entropy;
    if (vfs->xSetSystemCall(vfs, "fcntl", (sqlite3_syscall_ptr)sqlite_fcntl) != SQLITE_OK)
        die("sqlite can't lock");

    PyGC_Collect();
    stop_wiping();
    make_all_immortal();
    result = PyRun_String("__import__('gc').freeze()", Py_eval_input, boot, boot);
    if (result == NULL)
        die("gc.freeze");
    Py_DECREF(result);
    fflush(NULL);
    wipe_stack();
}

/* ---- a run ----------------------------------------------------------------------------------------------- */

/* Only what is asked for whenever a parser is made can be salted anew; see common_settings(). */
static void
fresh_entropy(void)
{
    getentropy(&_Py_HashSecret.expat.hashsalt, sizeof _Py_HashSecret.expat.hashsalt);
    sqlite3_randomness(0, NULL);            /* forgets its state; the next use seeds it */
}

static PyStatus
read_arguments(PyConfig *c)
{
    __wasi_size_t count = 0, size = 0;
    if (__wasi_args_sizes_get(&count, &size) != 0)
        return PyStatus_Error("the host gives no arguments");
    char *text = malloc(size + 1);
    char **arguments = malloc((count + 2) * sizeof *arguments);
    if (text == NULL || arguments == NULL)
        return PyStatus_NoMemory();
    if (__wasi_args_get((uint8_t **)arguments, (uint8_t *)text) != 0)
        return PyStatus_Error("the host gives no arguments");
    if (count == 0)
        arguments[count++] = "python3";
    arguments[count] = NULL;
    PyStatus status = PyConfig_SetBytesArgv(c, count, arguments);
    free(arguments);
    free(text);
    return status;
}

/* PYTHONPATH, then the library: what getpath would compute. */
static PyStatus
search_paths(PyConfig *c)
{
    wchar_t *rest = c->pythonpath_env;
    while (rest && *rest) {
        wchar_t *end = wcschr(rest, L':');
        if (end)
            *end = L'\0';
        PyStatus status = *rest ? PyWideStringList_Append(&c->module_search_paths, rest) : PyStatus_Ok();
        if (end) {
            *end = L':';
            rest = end + 1;
        } else {
            rest = NULL;
        }
        if (PyStatus_Exception(status))
            return status;
    }
    return PyWideStringList_Append(&c->module_search_paths, STDLIB_ZIP);
}

static PyStatus
read_settings(PyConfig *c)
{
    PyStatus status = read_arguments(c);
    if (PyStatus_Exception(status))
        return status;
    _PyRuntime.preconfig.dev_mode = -1;     /* or the 0 of the snapshot would stand against -X dev */
    status = _PyConfig_Read(c, 0);
    _PyRuntime.preconfig.dev_mode = c->dev_mode;
    if (PyStatus_Exception(status))
        return status;
    c->use_hash_seed = 1;                   /* -R cannot be done: sys.flags must not say that it was */
    c->hash_seed = 0;
    status = search_paths(c);
    if (PyStatus_Exception(status))
        return status;
    PyConfig *live = (PyConfig *)_PyInterpreterState_GetConfig(_PyInterpreterState_GET());
    return _PyConfig_Copy(live, c);
}

/* A dict of the environment; bytes, as posix.environ has them. */
static PyObject *
environment(void)
{
    PyObject *result = PyDict_New();
    char **entry = __wasilibc_get_environ();
    for (; result && entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals == NULL)
            continue;
        PyObject *key = PyBytes_FromStringAndSize(*entry, equals - *entry);
        PyObject *value = PyBytes_FromString(equals + 1);
        if (key == NULL || value == NULL || PyDict_SetItem(result, key, value) < 0)
            Py_CLEAR(result);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return result;
}

static int
python_main(void)
{
    PyConfig c;
    common_settings(&c);
    PyStatus status = read_settings(&c);
    if (_PyStatus_IS_EXIT(status)) {        /* --version, --help and mistakes in options end here */
        fflush(NULL);
        return status.exitcode;
    }
    check(status);
    if (_PySys_UpdateConfig(_PyThreadState_GET()) < 0)
        die("sys could not be set up");

    PyObject *env = environment();
    PyObject *arguments = env ? Py_BuildValue("(NiuuiO)", env, c.buffered_stdio, c.stdio_encoding, c.stdio_errors,
                                              c.tracemalloc, c.pythonpath_env ? Py_True : Py_False) : NULL;
    PyObject *result = arguments ? call_boot("begin", arguments) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(result);
    PyConfig_Clear(&c);
    int exit_code = 1;
    if (result == NULL) {
        PyErr_Print();
    } else {
        pymain_run_python(&exit_code);
        if (_PyRuntime.signals.unhandled_keyboard_interrupt)
            exit_code = 130;                /* 128 + SIGINT, as a shell would report it */
    }
    /* What Py_FinalizeEx does that a script can notice. All of it would take longer than most scripts. */
    result = call_boot("finish", NULL);
    if (result == NULL)
        PyErr_Print();
    else if (PyLong_AsLong(result) != 0)
        exit_code = 120;
    Py_XDECREF(result);
    fflush(NULL);
    return exit_code;
}

__attribute__((export_name("run"))) void
run(void)
{
    /* First of all: until then this instance has the preopened folders of the snapshot maker. */
    __wasilibc_reset_preopens();
    __wasilibc_deinitialize_environ();
    __wasilibc_initialize_environ();
    /* WASI has no working folder of its own; a shell tells it in PWD. */
    const char *folder = getenv("PWD");
    if (folder && *folder && chdir(folder) != 0)
        fprintf(stderr, "python3: working folder %s is not reachable: %s\n", folder, strerror(errno));
    fresh_entropy();
    int status = python_main();
    if (status != 0)
        __wasi_proc_exit((__wasi_exitcode_t)status);
}

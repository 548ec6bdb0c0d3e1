/* The entry program of the JavaScript pack: QuickJS that is started once, frozen, and then run many times.
 *
 *   prepare()  called once, by the maker of the snapshot: makes the engine and evaluates the prelude
 *   run()      called once in every instance made from the snapshot; exported there as `_start`
 *
 * Whatever belongs to one run - preopened folders, environment, arguments, working folder, entropy - is taken afresh in
 * run(), and nothing that belonged to the making of the snapshot may be seen in a run. What the words on the command
 * line mean, how modules are found and when a run is over is decided by the prelude (prelude/main.js).
 */
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>
#include <wasi/api.h>
#include <wasi/libc-environ.h>
#include <wasi/libc.h>

#include "guest.h"
#include "prelude.h"

void __wasilibc_reset_preopens(void);

/* JavaScript's stack. One call of a JavaScript function takes about as much of the engine's own stack (which has no
 * limit that could be asked for) as of this one; the manifest says how much the engine must give. */
#ifndef STACK_LIMIT
#define STACK_LIMIT (512 << 10)
#endif
/* The garbage collector walks over all objects, also over the frozen ones, which makes private copies of all their
 * pages. So it must not start before a script has made some garbage of its own. */
#define GARBAGE_BEFORE_COLLECTION (16 << 20)

static JSRuntime *runtime;
static JSContext *context;
static JSValue host;                /* the functions of these files, for the prelude */
static JSValue hooks;               /* the functions of the prelude that these files call */

/* ---- compiling -------------------------------------------------------------------------------------------- */

/* compileFunction(source, file name, parameters) -> function
 * The head of the function is line 0, so that line 1 is the first line of the source. */
static JSValue
compile_function(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    size_t length;
    const char *source = JS_ToCStringLen(context, &length, arguments[0]);
    const char *file = JS_ToCString(context, arguments[1]), *parameters = JS_ToCString(context, arguments[2]);
    JSValue result = JS_EXCEPTION;
    if (source != NULL && file != NULL && parameters != NULL) {
        size_t room = length + strlen(parameters) + 32;
        char *text = js_malloc(context, room);
        if (text != NULL) {
            int head = snprintf(text, room, "(function (%s) {\n", parameters);
            memcpy(text + head, source, length);
            memcpy(text + head + length, "\n})", 4);
            result = engine_compile(context, text, (size_t)head + length + 3, file, 0);
            js_free(context, text);
        }
    }
    JS_FreeCString(context, source);
    JS_FreeCString(context, file);
    JS_FreeCString(context, parameters);
    return result;
}

/* evaluate(source, file name) -> value of a script in the global scope */
static JSValue
evaluate(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    size_t length;
    const char *source = JS_ToCStringLen(context, &length, arguments[0]), *file = JS_ToCString(context, arguments[1]);
    JSValue result = JS_EXCEPTION;
    if (source != NULL && file != NULL)
        result = JS_Eval(context, source, length, file, JS_EVAL_TYPE_GLOBAL);
    JS_FreeCString(context, source);
    JS_FreeCString(context, file);
    return result;
}

/* ---- modules ---------------------------------------------------------------------------------------------- */

static JSValue
call_hook(JSContext *context, const char *name, int count, JSValueConst *arguments)
{
    JSValue hook = JS_GetPropertyStr(context, hooks, name);
    JSValue result = JS_Call(context, hook, JS_UNDEFINED, count, arguments);
    JS_FreeValue(context, hook);
    return result;
}

/* The prelude's `resolve(specifier, importer, attributes)`. */
static char *
normalize(JSContext *context, const char *base, const char *name, JSValueConst attributes, void *opaque)
{
    JSValue arguments[] = {JS_NewString(context, name), JS_NewString(context, base)};
    JSValueConst given[] = {arguments[0], arguments[1], attributes};
    JSValue resolved = call_hook(context, "resolve", 3, given);
    JS_FreeValue(context, arguments[0]);
    JS_FreeValue(context, arguments[1]);
    const char *text = JS_IsException(resolved) ? NULL : JS_ToCString(context, resolved);
    JS_FreeValue(context, resolved);
    char *copy = text ? js_strdup(context, text) : NULL;
    JS_FreeCString(context, text);
    return copy;
}

static JSModuleDef *
compile_module(JSContext *context, const char *name, JSValueConst source)
{
    size_t length;
    const char *text = JS_ToCStringLen(context, &length, source);
    if (text == NULL)
        return NULL;
    JSValue module = JS_Eval(context, text, length, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    JS_FreeCString(context, text);
    if (JS_IsException(module))
        return NULL;
    JSModuleDef *definition = JS_VALUE_GET_PTR(module);
    /* The engine keeps modules itself. */
    JS_FreeValue(context, module);
    JSValue meta = JS_GetImportMeta(context, definition);
    JSValue url = JS_NewString(context, name);
    JSValueConst given[] = {meta, url};
    JSValue done = JS_IsException(meta) ? JS_EXCEPTION : call_hook(context, "meta", 2, given);
    bool failed = JS_IsException(done);
    JS_FreeValue(context, meta);
    JS_FreeValue(context, url);
    JS_FreeValue(context, done);
    return failed ? NULL : definition;
}

/* Called when the engine evaluates a module that has a record instead of a source. */
static int
fill_record(JSContext *context, JSModuleDef *module)
{
    JSValue record = JS_GetModulePrivateValue(context, module);
    JSPropertyEnum *names = NULL;
    uint32_t count = 0;
    int status = JS_GetOwnPropertyNames(context, &names, &count, record, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY);
    for (uint32_t i = 0; status == 0 && i < count; i++) {
        const char *name = JS_AtomToCString(context, names[i].atom);
        JSValue value = JS_GetProperty(context, record, names[i].atom);
        status = name == NULL || JS_IsException(value) ? -1 : JS_SetModuleExport(context, module, name, value);
        JS_FreeCString(context, name);
    }
    JS_FreePropertyEnum(context, names, count);
    JS_FreeValue(context, record);
    return status;
}

static JSModuleDef *
make_record(JSContext *context, const char *name, JSValueConst record)
{
    JSModuleDef *module = JS_NewCModule(context, name, fill_record);
    JSPropertyEnum *names = NULL;
    uint32_t count = 0;
    if (module == NULL
        || JS_GetOwnPropertyNames(context, &names, &count, record, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) != 0)
        return NULL;
    for (uint32_t i = 0; module != NULL && i < count; i++) {
        const char *export = JS_AtomToCString(context, names[i].atom);
        if (export == NULL || JS_AddModuleExport(context, module, export) != 0)
            module = NULL;
        JS_FreeCString(context, export);
    }
    JS_FreePropertyEnum(context, names, count);
    if (module != NULL && JS_SetModulePrivateValue(context, module, JS_DupValue(context, record)) != 0)
        module = NULL;
    return module;
}

/* The prelude's `load(name, attributes)`: the source of a module, or an object with its exports. */
static JSModuleDef *
load(JSContext *context, const char *name, void *opaque, JSValueConst attributes)
{
    JSValue text = JS_NewString(context, name);
    JSValueConst given[] = {text, attributes};
    JSValue what = call_hook(context, "load", 2, given);
    JS_FreeValue(context, text);
    JSModuleDef *module = NULL;
    if (JS_IsString(what))
        module = compile_module(context, name, what);
    else if (!JS_IsException(what))
        module = make_record(context, name, what);
    JS_FreeValue(context, what);
    return module;
}

/* evaluateModule(name) -> [promise, namespace] of a module that `load` knows under this name */
static JSValue
evaluate_module(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    const char *name = JS_ToCString(context, arguments[0]);
    if (name == NULL)
        return JS_EXCEPTION;
    JSModuleDef *module = engine_find_module(context, name);
    JS_FreeCString(context, name);
    if (module == NULL)
        return JS_EXCEPTION;
    JSValue value = JS_DupValue(context, JS_MKPTR(JS_TAG_MODULE, module));
    if (JS_ResolveModule(context, value) < 0) {
        JS_FreeValue(context, value);
        return JS_EXCEPTION;
    }
    JSValue promise = JS_EvalFunction(context, value);
    if (JS_IsException(promise))
        return promise;
    JSValue list = JS_NewArray(context), names = JS_GetModuleNamespace(context, module);
    JS_SetPropertyUint32(context, list, 0, promise);
    JS_SetPropertyUint32(context, list, 1, names);
    return list;
}

/* canBeModule(source, name): whether it compiles as a module; nothing is kept or run. */
static JSValue
can_be_module(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    size_t length;
    const char *source = JS_ToCStringLen(context, &length, arguments[0]);
    if (source == NULL)
        return JS_EXCEPTION;
    bool answer = JS_DetectModule(source, length);
    JS_FreeCString(context, source);
    return JS_NewBool(context, answer);
}

/* ---- promises and their jobs ------------------------------------------------------------------------------ */

static void
rejection(JSContext *context, JSValueConst promise, JSValueConst reason, bool handled, void *opaque)
{
    JSValueConst given[] = {promise, reason, JS_NewBool(context, handled)};
    JS_FreeValue(context, call_hook(context, "rejection", 3, given));
}

/* runJobs(): everything that promises have waiting. Throws what a job threw; call it again then. */
static JSValue
run_jobs(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    JSContext *of;
    int status;
    while ((status = JS_ExecutePendingJob(runtime, &of)) > 0)
        ;
    return status < 0 ? JS_EXCEPTION : JS_UNDEFINED;
}

static JSValue
jobs_pending(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    return JS_NewBool(context, JS_IsJobPending(runtime));
}

/* ---- the process ------------------------------------------------------------------------------------------ */

static JSValue
process_exit(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t code;
    if (JS_ToInt32(context, &code, arguments[0]))
        code = 1;
    __wasi_proc_exit((__wasi_exitcode_t)(code & 0xFF));
}

static JSValue
process_arguments(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    __wasi_size_t number = 0, size = 0;
    if (__wasi_args_sizes_get(&number, &size) != 0)
        return JS_NewArray(context);
    char *text = js_malloc(context, size + 1);
    char **words = js_malloc(context, (number + 1) * sizeof *words);
    JSValue list = JS_EXCEPTION;
    if (text != NULL && words != NULL) {
        list = JS_NewArray(context);
        if (__wasi_args_get((uint8_t **)words, (uint8_t *)text) != 0)
            number = 0;
        for (uint32_t i = 0; i < number && !JS_IsException(list); i++)
            JS_SetPropertyUint32(context, list, i, text_from_utf8(context, (const uint8_t *)words[i], strlen(words[i])));
    }
    js_free(context, words);
    js_free(context, text);
    return list;
}

extern char **environ;

static JSValue
process_environment(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    JSValue list = JS_NewArray(context);
    uint32_t index = 0;
    for (char **entry = environ; entry && *entry && !JS_IsException(list); entry++)
        JS_SetPropertyUint32(context, list, index++, text_from_utf8(context, (const uint8_t *)*entry, strlen(*entry)));
    return list;
}

static JSValue
collect_garbage(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    JS_RunGC(runtime);
    return JS_UNDEFINED;
}

/* memory() -> [bytes of the instance, bytes of the heap, bytes in use] */
static JSValue
memory(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    JSMemoryUsage usage;
    JS_ComputeMemoryUsage(runtime, &usage);
    const double values[] = {
        (double)__builtin_wasm_memory_size(0) * 65536, (double)usage.malloc_size, (double)usage.memory_used_size,
    };
    JSValue list = JS_NewArray(context);
    for (uint32_t i = 0; i < COUNT(values) && !JS_IsException(list); i++)
        JS_SetPropertyUint32(context, list, i, JS_NewNumber(context, values[i]));
    return list;
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("compileFunction", 3, compile_function),
    JS_CFUNC_DEF("evaluate", 2, evaluate),
    JS_CFUNC_DEF("evaluateModule", 1, evaluate_module),
    JS_CFUNC_DEF("canBeModule", 1, can_be_module),
    JS_CFUNC_DEF("runJobs", 0, run_jobs),
    JS_CFUNC_DEF("jobsPending", 0, jobs_pending),
    JS_CFUNC_DEF("exit", 1, process_exit),
    JS_CFUNC_DEF("arguments", 0, process_arguments),
    JS_CFUNC_DEF("environment", 0, process_environment),
    JS_CFUNC_DEF("collectGarbage", 0, collect_garbage),
    JS_CFUNC_DEF("memory", 0, memory),
};

/* ---- the two entries -------------------------------------------------------------------------------------- */

/* For faults that leave no way to go on: the prelude itself is broken, or memory is out before a script runs. */
static void
give_up(const char *what)
{
    JSValue error = JS_GetException(context);
    const char *message = JS_ToCString(context, error);
    JSValue stack = JS_GetPropertyStr(context, error, "stack");
    const char *where = JS_ToCString(context, stack);
    fprintf(stderr, "node: %s: %s\n%s", what, message ? message : "no memory", where ? where : "");
    __wasi_proc_exit(70);
}

/* Each file of the prelude is the body of a function (host, hooks, need): `need(NAME)` gives what NAME returned. */
static void
load_prelude(void)
{
    JSValue global = JS_GetGlobalObject(context), modules = JS_NewObject(context);
    JS_SetPropertyStr(context, host, "prelude", JS_DupValue(context, modules));
    for (int i = 0; i < COUNT(prelude_files); i++) {
        JSValue arguments[] = {
            JS_NewStringLen(context, (const char *)prelude_files[i].text, prelude_files[i].length),
            JS_NewString(context, prelude_files[i].name), JS_NewString(context, "host, hooks, need"),
        };
        JSValueConst given[] = {arguments[0], arguments[1], arguments[2]};
        JSValue function = compile_function(context, JS_UNDEFINED, 3, given);
        if (JS_IsException(function))
            give_up(prelude_files[i].name);
        for (int j = 0; j < 3; j++)
            JS_FreeValue(context, arguments[j]);
        JSValue need = i == 0 ? JS_UNDEFINED : JS_GetPropertyStr(context, hooks, "need");
        JSValueConst parameters[] = {host, hooks, need};
        JSValue result = JS_Call(context, function, JS_UNDEFINED, 3, parameters);
        JS_FreeValue(context, need);
        JS_FreeValue(context, function);
        if (JS_IsException(result))
            give_up(prelude_files[i].name);
        JS_SetPropertyStr(context, modules, prelude_files[i].short_name, result);
    }
    JS_FreeValue(context, modules);
    JS_FreeValue(context, global);
}

/* What has been on the stack is dead, but would be frozen with everything else. */
static __attribute__((noinline)) void
wipe_stack(void)
{
    extern char __stack_low;
    char here;
    for (volatile char *at = &__stack_low, *end = &here - 256; at < end; at++)
        *at = 0;
}

static void
make_engine(void)
{
    runtime = JS_NewRuntime();
    if (runtime == NULL || (context = JS_NewContext(runtime)) == NULL)
        __builtin_trap();
    engine_limit_stack(runtime, STACK_LIMIT);
    JS_SetModuleLoaderFunc2(runtime, NULL, load, NULL, NULL);
    JS_SetModuleNormalizeFunc2(runtime, normalize);
    host = JS_NewObject(context);
    hooks = JS_NewObject(context);
    JS_SetPropertyFunctionList(context, host, functions, COUNT(functions));
    files_add(context, host);
    bytes_add(context, host);
    digest_add(context, host);
    compress_add(context, host);
    inspect_add(context, host);
    types_add(context, host);
    load_prelude();
    JS_SetHostPromiseRejectionTracker(runtime, rejection, NULL);
    JS_RunGC(runtime);
    JSMemoryUsage usage;
    JS_ComputeMemoryUsage(runtime, &usage);
    JS_SetGCThreshold(runtime, (size_t)usage.malloc_size + GARBAGE_BEFORE_COLLECTION);
}

__attribute__((export_name("prepare"))) void
prepare(void)
{
    make_engine();
    wipe_stack();
}

__attribute__((export_name("run"))) void
run(void)
{
    /* First of all: until then this instance has the preopened folders of the snapshot maker. */
    __wasilibc_reset_preopens();
    __wasilibc_deinitialize_environ();
    __wasilibc_initialize_environ();
    engine_limit_stack(runtime, STACK_LIMIT);
    uint64_t seed = 0;
    if (getentropy(&seed, sizeof seed) != 0)
        fputs("node: the host gives no random numbers\n", stderr);
    engine_seed_random(context, seed);
    /* WASI has no working folder of its own; a shell tells it in PWD. */
    const char *folder = getenv("PWD");
    if (folder && *folder && chdir(folder) != 0)
        fprintf(stderr, "node: working folder %s is not reachable: %s\n", folder, strerror(errno));
    JSValue status = call_hook(context, "main", 0, NULL);
    int32_t code = 70;
    if (JS_IsException(status))
        give_up("the prelude failed");
    JS_ToInt32(context, &code, status);
    if (code != 0)
        __wasi_proc_exit((__wasi_exitcode_t)(code & 0xFF));
}

/* What a script can't ask of a value by itself: what it is inside, behind proxies and replaced prototypes. */
#include "guest.h"

/* The numbers are those of `kinds` in prelude/types.js. */
static JSValue
kind_of(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    JSValueConst value = arguments[0];
    int kind = 0;
    if (JS_IsProxy(value))
        kind = 1;
    else if (JS_IsPromise(value))
        kind = 2;
    else if (JS_IsMap(value))
        kind = 3;
    else if (JS_IsSet(value))
        kind = 4;
    else if (JS_IsWeakMap(value))
        kind = 5;
    else if (JS_IsWeakSet(value))
        kind = 6;
    else if (JS_IsWeakRef(value))
        kind = 7;
    else if (JS_IsDate(value))
        kind = 8;
    else if (JS_IsRegExp(value))
        kind = 9;
    else if (JS_IsError(value))
        kind = 10;
    else if (JS_IsDataView(value))
        kind = 11;
    else if (JS_IsArrayBuffer(value))
        kind = 12;
    else if (JS_GetTypedArrayType(value) >= 0)
        kind = 13;
    else if (JS_IsModule(value))
        kind = 14;
    return JS_NewInt32(context, kind);
}

/* promise(value) -> [state, result]: 0 pending, 1 fulfilled, 2 rejected */
static JSValue
promise_of(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    JSPromiseStateEnum state = JS_PromiseState(context, arguments[0]);
    JSValue list = JS_NewArray(context);
    if (JS_IsException(list))
        return list;
    JS_SetPropertyUint32(context, list, 0, JS_NewInt32(context, (int)state));
    if (state == JS_PROMISE_FULFILLED || state == JS_PROMISE_REJECTED)
        JS_SetPropertyUint32(context, list, 1, JS_PromiseResult(context, arguments[0]));
    return list;
}

static JSValue
promise_handled(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    if (JS_IsPromise(arguments[0]))
        JS_PromiseMarkAsHandled(context, arguments[0]);
    return JS_UNDEFINED;
}

static JSValue
proxy_of(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    JSValue list = JS_NewArray(context);
    if (JS_IsException(list))
        return list;
    JS_SetPropertyUint32(context, list, 0, JS_GetProxyTarget(context, arguments[0]));
    JS_SetPropertyUint32(context, list, 1, JS_GetProxyHandler(context, arguments[0]));
    return list;
}

static JSValue
is_constructor(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    return JS_NewBool(context, JS_IsConstructor(context, arguments[0]));
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("kind", 1, kind_of),
    JS_CFUNC_DEF("promise", 1, promise_of),
    JS_CFUNC_DEF("promiseHandled", 1, promise_handled),
    JS_CFUNC_DEF("proxy", 1, proxy_of),
    JS_CFUNC_DEF("isConstructor", 1, is_constructor),
};

int
inspect_add(JSContext *context, JSValueConst host)
{
    return JS_SetPropertyFunctionList(context, host, functions, COUNT(functions));
}

/* Strips the types of TypeScript: the door to the Rust library in ../types, which runs in the same memory. */
#include "guest.h"

/* See ../types/src/lib.rs. */
extern uint8_t *strip_types(const uint8_t *text, size_t length, int module, size_t *answer_length);
extern void strip_types_free(uint8_t *answer, size_t length);

/* stripTypes(text, module) -> [what, text]; what: 0 stripped, 1 wrong syntax, 2 syntax that can't be stripped */
static JSValue
strip(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    size_t length, answer_length;
    int module;
    if (JS_ToInt32(context, &module, arguments[1]) < 0)
        return JS_EXCEPTION;
    const char *text = JS_ToCStringLen(context, &length, arguments[0]);
    if (text == NULL)
        return JS_EXCEPTION;
    uint8_t *answer = strip_types((const uint8_t *)text, length, module, &answer_length);
    JS_FreeCString(context, text);
    JSValue list = JS_NewArray(context);
    if (!JS_IsException(list)) {
        JS_SetPropertyUint32(context, list, 0, JS_NewInt32(context, answer[0]));
        JS_SetPropertyUint32(context, list, 1, text_from_utf8(context, answer + 1, answer_length - 1));
    }
    strip_types_free(answer, answer_length);
    return list;
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("stripTypes", 2, strip),
};

int
types_add(JSContext *context, JSValueConst host)
{
    return JS_SetPropertyFunctionList(context, host, functions, COUNT(functions));
}

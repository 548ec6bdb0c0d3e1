/* What the C files of the JavaScript pack share. */
#ifndef SKILLCELL_GUEST_H
#define SKILLCELL_GUEST_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quickjs.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* engine.c: what QuickJS keeps to itself. */
void engine_limit_stack(JSRuntime *runtime, size_t bytes);
void engine_seed_random(JSContext *context, uint64_t seed);
JSModuleDef *engine_find_module(JSContext *context, const char *name);
JSValue engine_compile(JSContext *context, const char *text, size_t length, const char *file, int line);

/* bytes.c: views on the memory of typed arrays, and strings. */
typedef struct {
    uint8_t *data;
    size_t length;
} Bytes;
/* The bytes of an ArrayBuffer, typed array or DataView. False with an exception when it is none. */
bool bytes_of(JSContext *context, JSValueConst value, Bytes *bytes);
/* A new Uint8Array with a copy of `data`. */
JSValue bytes_new(JSContext *context, const uint8_t *data, size_t length);
/* UTF-8 to a string; wrong bytes become U+FFFD as the WHATWG encoding standard says. */
JSValue text_from_utf8(JSContext *context, const uint8_t *data, size_t length);

/* Each adds its functions to the object that the prelude gets as `host`. */
int files_add(JSContext *context, JSValueConst host);
int bytes_add(JSContext *context, JSValueConst host);
int digest_add(JSContext *context, JSValueConst host);
int compress_add(JSContext *context, JSValueConst host);
int inspect_add(JSContext *context, JSValueConst host);
int types_add(JSContext *context, JSValueConst host);

#endif

/* Bytes and text: UTF-8, Latin-1, UTF-16, hex, base64, comparing and searching.
 *
 * What scripts pass is checked here (a length is never taken from anywhere but the array itself). No function keeps a
 * pointer into an array while JavaScript can run, because that could detach it.
 */
#include "guest.h"

bool
bytes_of(JSContext *context, JSValueConst value, Bytes *bytes)
{
    size_t offset = 0;
    if (JS_GetTypedArrayType(value) >= 0) {
        size_t unit;
        JSValue buffer = JS_GetTypedArrayBuffer(context, value, &offset, &bytes->length, &unit);
        if (JS_IsException(buffer))
            return false;
        size_t whole;
        uint8_t *data = JS_GetArrayBuffer(context, &whole, buffer);
        JS_FreeValue(context, buffer);
        if (data == NULL && whole != 0)
            return false;
        bytes->data = data + offset;
        return true;
    }
    bytes->data = JS_GetArrayBuffer(context, &bytes->length, value);
    if (bytes->data == NULL) {
        if (!JS_HasException(context))
            return bytes->length == 0;
        return false;
    }
    return true;
}

JSValue
bytes_new(JSContext *context, const uint8_t *data, size_t length)
{
    return JS_NewUint8ArrayCopy(context, data, length);
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------ */

/* The length of the well-formed sequence at `at`, or 0; then `*bad` is the length of what one U+FFFD stands for. */
static size_t
sequence(const uint8_t *at, const uint8_t *end, size_t *bad)
{
    uint8_t first = at[0], low = 0x80, high = 0xBF;
    size_t need;
    *bad = 1;
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        need = 1;
    else if (first >= 0xE0 && first <= 0xEF) {
        need = 2;
        if (first == 0xE0)
            low = 0xA0;
        if (first == 0xED)
            high = 0x9F;
    } else if (first >= 0xF0 && first <= 0xF4) {
        need = 3;
        if (first == 0xF0)
            low = 0x90;
        if (first == 0xF4)
            high = 0x8F;
    } else
        return 0;
    for (size_t i = 1; i <= need; i++) {
        if (at + i >= end || at[i] < low || at[i] > high) {
            *bad = i;
            return 0;
        }
        low = 0x80;
        high = 0xBF;
    }
    return need + 1;
}

static bool
well_formed(const uint8_t *data, size_t length)
{
    const uint8_t *end = data + length;
    size_t bad;
    while (data < end) {
        size_t step = sequence(data, end, &bad);
        if (step == 0)
            return false;
        data += step;
    }
    return true;
}

JSValue
text_from_utf8(JSContext *context, const uint8_t *data, size_t length)
{
    if (length == 0)
        return JS_NewStringLen(context, "", 0);
    if (well_formed(data, length))
        return JS_NewStringLen(context, (const char *)data, length);
    /* Never more units than bytes. */
    uint16_t *units = js_malloc(context, length * sizeof(uint16_t));
    if (units == NULL)
        return JS_EXCEPTION;
    size_t count = 0, bad;
    for (const uint8_t *at = data, *end = data + length; at < end;) {
        size_t step = sequence(at, end, &bad);
        switch (step) {
        case 0:
            units[count++] = 0xFFFD;
            at += bad;
            continue;
        case 1:
            units[count++] = at[0];
            break;
        case 2:
            units[count++] = (uint16_t)((at[0] & 0x1F) << 6 | (at[1] & 0x3F));
            break;
        case 3:
            units[count++] = (uint16_t)((at[0] & 0x0F) << 12 | (at[1] & 0x3F) << 6 | (at[2] & 0x3F));
            break;
        default: {
            uint32_t point = (uint32_t)((at[0] & 7) << 18 | (at[1] & 0x3F) << 12 | (at[2] & 0x3F) << 6 | (at[3] & 0x3F));
            units[count++] = (uint16_t)(0xD7C0 + (point >> 10));
            units[count++] = (uint16_t)(0xDC00 | (point & 0x3FF));
        }
        }
        at += step;
    }
    JSValue text = JS_NewStringUTF16(context, units, count);
    js_free(context, units);
    return text;
}

static JSValue
utf8_encode(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    size_t length;
    const char *text = JS_ToCStringLen(context, &length, arguments[0]);
    if (text == NULL)
        return JS_EXCEPTION;
    JSValue result = bytes_new(context, (const uint8_t *)text, length);
    JS_FreeCString(context, text);
    Bytes bytes;
    if (JS_IsException(result) || !bytes_of(context, result, &bytes))
        return result;
    /* A surrogate without its other half comes as three bytes of its own; U+FFFD has three, too. */
    for (size_t i = 0; i + 2 < bytes.length; i++) {
        if (bytes.data[i] == 0xED && bytes.data[i + 1] >= 0xA0) {
            bytes.data[i] = 0xEF;
            bytes.data[i + 1] = 0xBF;
            bytes.data[i + 2] = 0xBD;
        }
    }
    return result;
}

static JSValue
utf8_valid(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    Bytes bytes;
    if (!bytes_of(context, arguments[0], &bytes))
        return JS_EXCEPTION;
    return JS_NewBool(context, well_formed(bytes.data, bytes.length));
}

/* ---- the other encodings ---------------------------------------------------------------------------------- */

enum { UTF8, LATIN1, ASCII, UTF16, HEX, BASE64, BASE64URL };

static const char digits[] = "0123456789abcdef";
static const char base64_plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char base64_url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* The part of `bytes` that arguments 2 and 3 name. */
static bool
part_of(JSContext *context, int count, JSValueConst *arguments, Bytes *bytes)
{
    int64_t start = 0, end;
    if (!bytes_of(context, arguments[0], bytes))
        return false;
    end = (int64_t)bytes->length;
    if (count > 2 && !JS_IsUndefined(arguments[2]) && JS_ToInt64(context, &start, arguments[2]))
        return false;
    if (count > 3 && !JS_IsUndefined(arguments[3]) && JS_ToInt64(context, &end, arguments[3]))
        return false;
    /* The conversions may have run a script's code. */
    if (!bytes_of(context, arguments[0], bytes))
        return false;
    if (end > (int64_t)bytes->length)
        end = (int64_t)bytes->length;
    if (start < 0)
        start = 0;
    if (start > end)
        start = end > 0 ? end : 0;
    bytes->data += start;
    bytes->length = end > start ? (size_t)(end - start) : 0;
    return true;
}

/* decode(bytes, encoding, start, end) -> string */
static JSValue
decode(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t encoding;
    Bytes bytes;
    if (JS_ToInt32(context, &encoding, arguments[1]) || !part_of(context, count, arguments, &bytes))
        return JS_EXCEPTION;
    size_t length = bytes.length;
    const uint8_t *data = bytes.data;
    if (encoding == UTF8)
        return text_from_utf8(context, data, length);
    if (length == 0)
        return JS_NewStringLen(context, "", 0);
    if (encoding == LATIN1 || encoding == ASCII || encoding == UTF16) {
        size_t units = encoding == UTF16 ? length / 2 : length;
        uint16_t *wide = js_malloc(context, (units + 1) * sizeof(uint16_t));
        if (wide == NULL)
            return JS_EXCEPTION;
        for (size_t i = 0; i < units; i++) {
            if (encoding == UTF16)
                wide[i] = (uint16_t)(data[2 * i] | data[2 * i + 1] << 8);
            else
                wide[i] = encoding == ASCII ? data[i] & 0x7F : data[i];
        }
        JSValue text = JS_NewStringUTF16(context, wide, units);
        js_free(context, wide);
        return text;
    }
    if (length > (1u << 30) / 2)
        return JS_ThrowRangeError(context, "Cannot create a string longer than 0x1fffffe8 characters");
    char *out = js_malloc(context, encoding == HEX ? 2 * length : (length + 2) / 3 * 4);
    if (out == NULL)
        return JS_EXCEPTION;
    size_t written = 0;
    if (encoding == HEX) {
        for (size_t i = 0; i < length; i++) {
            out[written++] = digits[data[i] >> 4];
            out[written++] = digits[data[i] & 15];
        }
    } else {
        const char *alphabet = encoding == BASE64 ? base64_plain : base64_url;
        size_t i = 0;
        for (; i + 2 < length; i += 3) {
            uint32_t word = (uint32_t)(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
            out[written++] = alphabet[word >> 18];
            out[written++] = alphabet[word >> 12 & 63];
            out[written++] = alphabet[word >> 6 & 63];
            out[written++] = alphabet[word & 63];
        }
        if (i < length) {
            uint32_t word = (uint32_t)(data[i] << 16) | (i + 1 < length ? (uint32_t)(data[i + 1] << 8) : 0);
            out[written++] = alphabet[word >> 18];
            out[written++] = alphabet[word >> 12 & 63];
            if (i + 1 < length)
                out[written++] = alphabet[word >> 6 & 63];
            else if (encoding == BASE64)
                out[written++] = '=';
            if (encoding == BASE64)
                out[written++] = '=';
        }
    }
    JSValue text = JS_NewStringLen(context, out, written);
    js_free(context, out);
    return text;
}

static int
hex_value(uint16_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static int
base64_value(uint16_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    if (c == '/' || c == '_')
        return 63;
    return -1;
}

/* encode(string, encoding) -> Uint8Array */
static JSValue
encode(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t encoding;
    if (JS_ToInt32(context, &encoding, arguments[1]))
        return JS_EXCEPTION;
    if (encoding == UTF8)
        return utf8_encode(context, self, count, arguments);
    size_t length;
    const uint16_t *text = JS_ToCStringLenUTF16(context, &length, arguments[0]);
    if (text == NULL)
        return JS_EXCEPTION;
    uint8_t *out = js_malloc(context, 2 * length + 4);
    if (out == NULL) {
        JS_FreeCStringUTF16(context, text);
        return JS_EXCEPTION;
    }
    size_t written = 0;
    if (encoding == UTF16) {
        for (size_t i = 0; i < length; i++) {
            out[written++] = (uint8_t)text[i];
            out[written++] = (uint8_t)(text[i] >> 8);
        }
    } else if (encoding == LATIN1 || encoding == ASCII) {
        for (size_t i = 0; i < length; i++)
            out[written++] = (uint8_t)text[i];
    } else if (encoding == HEX) {
        for (size_t i = 0; i + 1 < length; i += 2) {
            int high = hex_value(text[i]), low = hex_value(text[i + 1]);
            if (high < 0 || low < 0)
                break;
            out[written++] = (uint8_t)(high << 4 | low);
        }
    } else {
        uint32_t word = 0;
        int have = 0;
        for (size_t i = 0; i < length && text[i] != '='; i++) {
            int value = base64_value(text[i]);
            if (value < 0)
                continue;
            word = word << 6 | (uint32_t)value;
            have += 6;
            if (have >= 8) {
                have -= 8;
                out[written++] = (uint8_t)(word >> have);
            }
        }
    }
    JS_FreeCStringUTF16(context, text);
    JSValue result = bytes_new(context, out, written);
    js_free(context, out);
    return result;
}

static JSValue
utf8_length(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    size_t length;
    const char *text = JS_ToCStringLen(context, &length, arguments[0]);
    if (text == NULL)
        return JS_EXCEPTION;
    JS_FreeCString(context, text);
    return JS_NewInt64(context, (int64_t)length);
}

static JSValue
compare(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    Bytes a, b;
    if (!bytes_of(context, arguments[0], &a) || !bytes_of(context, arguments[1], &b))
        return JS_EXCEPTION;
    size_t shared = a.length < b.length ? a.length : b.length;
    int order = shared ? memcmp(a.data, b.data, shared) : 0;
    if (order == 0)
        order = (a.length > b.length) - (a.length < b.length);
    return JS_NewInt32(context, (order > 0) - (order < 0));
}

/* Takes as long for a difference at the start as for one at the end. */
static JSValue
equal_in_constant_time(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    Bytes a, b;
    if (!bytes_of(context, arguments[0], &a) || !bytes_of(context, arguments[1], &b))
        return JS_EXCEPTION;
    if (a.length != b.length)
        return JS_FALSE;
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < a.length; i++)
        difference |= a.data[i] ^ b.data[i];
    return JS_NewBool(context, difference == 0);
}

/* find(haystack, needle, from, backwards, step) -> index or -1 */
static JSValue
find(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int64_t from;
    int32_t step;
    int backwards = JS_ToBool(context, arguments[3]);
    if (JS_ToInt64(context, &from, arguments[2]) || backwards < 0 || JS_ToInt32(context, &step, arguments[4]) || step < 1)
        return JS_EXCEPTION;
    Bytes where, what;
    if (!bytes_of(context, arguments[0], &where) || !bytes_of(context, arguments[1], &what))
        return JS_EXCEPTION;
    int64_t last = (int64_t)where.length - (int64_t)what.length;
    if (last < 0)
        return JS_NewInt32(context, -1);
    if (backwards) {
        if (from > last)
            from = last;
        for (; from >= 0; from--)
            if (from % step == 0 && memcmp(where.data + from, what.data, what.length) == 0)
                return JS_NewInt64(context, from);
    } else {
        for (; from >= 0 && from <= last; from++)
            if (from % step == 0 && memcmp(where.data + from, what.data, what.length) == 0)
                return JS_NewInt64(context, from);
    }
    return JS_NewInt32(context, -1);
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("decode", 4, decode),
    JS_CFUNC_DEF("encode", 2, encode),
    JS_CFUNC_DEF("utf8Length", 1, utf8_length),
    JS_CFUNC_DEF("utf8Valid", 1, utf8_valid),
    JS_CFUNC_DEF("compare", 2, compare),
    JS_CFUNC_DEF("equalInConstantTime", 2, equal_in_constant_time),
    JS_CFUNC_DEF("find", 5, find),
};

int
bytes_add(JSContext *context, JSValueConst host)
{
    return JS_SetPropertyFunctionList(context, host, functions, COUNT(functions));
}

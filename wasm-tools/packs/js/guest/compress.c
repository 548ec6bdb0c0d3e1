/* zlib's deflate and inflate, whole buffers at once. */
#include <zlib.h>

#include "guest.h"

/* A buffer's length in Node's `buffer.kMaxLength` would be more than the memory of an instance. */
#define OUTPUT_LIMIT (1u << 30)
#define FIRST_ROOM 16384

/* What windowBits says in zlib's interface, by format. */
enum { FORMAT_ZLIB, FORMAT_GZIP, FORMAT_RAW, FORMAT_ANY };

static int
window_bits(int format, int bits)
{
    switch (format) {
    case FORMAT_GZIP: return bits + 16;
    case FORMAT_RAW: return -bits;
    case FORMAT_ANY: return bits + 32;
    default: return bits;
    }
}

static void *give(void *context, unsigned count, unsigned size) { return js_calloc(context, count, size); }
static void take(void *context, void *pointer) { js_free(context, pointer); }

/* [status, output, bytes of the input that were used, what zlib says of it] */
static JSValue
answer(JSContext *context, int status, const uint8_t *data, size_t length, size_t used, const char *words)
{
    JSValue list = JS_NewArray(context);
    if (JS_IsException(list))
        return list;
    JS_SetPropertyUint32(context, list, 0, JS_NewInt32(context, status));
    JS_SetPropertyUint32(context, list, 1, bytes_new(context, data, length));
    JS_SetPropertyUint32(context, list, 2, JS_NewInt64(context, (int64_t)used));
    JS_SetPropertyUint32(context, list, 3, JS_NewString(context, words ? words : ""));
    return list;
}

static bool
integers(JSContext *context, JSValueConst *arguments, int count, int32_t *out)
{
    for (int i = 0; i < count; i++)
        if (JS_ToInt32(context, &out[i], arguments[i]))
            return false;
    return true;
}

/* Runs `step` until it ends, into memory that grows. */
static JSValue
pump(JSContext *context, z_stream *stream, int (*step)(z_stream *, int), int flush, Bytes in, size_t limit)
{
    size_t room = FIRST_ROOM < limit ? FIRST_ROOM : limit, length = 0;
    uint8_t *data = js_malloc(context, room);
    JSValue result = JS_EXCEPTION;
    stream->next_in = in.data;
    stream->avail_in = (unsigned)in.length;
    while (data != NULL) {
        stream->next_out = data + length;
        stream->avail_out = (unsigned)(room - length);
        int status = step(stream, flush);
        length = room - stream->avail_out;
        if (stream->avail_out != 0 || status == Z_STREAM_END || (status != Z_OK && status != Z_BUF_ERROR)) {
            result = answer(context, status, data, length, in.length - stream->avail_in, stream->msg);
            js_free(context, data);
            break;
        }
        if (room >= limit) {
            js_free(context, data);
            result = answer(context, Z_MEM_ERROR, NULL, 0, 0, NULL);
            break;
        }
        room = room > limit / 2 ? limit : room * 2;
        uint8_t *more = js_realloc(context, data, room);
        if (more == NULL)
            js_free(context, data);
        data = more;
    }
    return result;
}

static size_t
limit_of(int32_t asked)
{
    return asked > 0 && (uint32_t)asked < OUTPUT_LIMIT ? (size_t)asked : OUTPUT_LIMIT;
}

/* deflate(bytes, format, level, window bits, memory level, strategy, limit) */
static JSValue
compress_bytes(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t how[6];
    Bytes in;
    if (!integers(context, arguments + 1, 6, how) || !bytes_of(context, arguments[0], &in))
        return JS_EXCEPTION;
    z_stream stream = {.zalloc = give, .zfree = take, .opaque = context};
    int status = deflateInit2(&stream, how[1], Z_DEFLATED, window_bits(how[0], how[2]), how[3], how[4]);
    if (status != Z_OK)
        return answer(context, status, NULL, 0, 0, NULL);
    JSValue result = pump(context, &stream, deflate, Z_FINISH, in, limit_of(how[5]));
    deflateEnd(&stream);
    return result;
}

/* inflate(bytes, format, window bits, limit) */
static JSValue
decompress_bytes(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t how[3];
    Bytes in;
    if (!integers(context, arguments + 1, 3, how) || !bytes_of(context, arguments[0], &in))
        return JS_EXCEPTION;
    z_stream stream = {.zalloc = give, .zfree = take, .opaque = context};
    int status = inflateInit2(&stream, window_bits(how[0], how[1]));
    if (status != Z_OK)
        return answer(context, status, NULL, 0, 0, NULL);
    JSValue result = pump(context, &stream, inflate, Z_NO_FLUSH, in, limit_of(how[2]));
    inflateEnd(&stream);
    return result;
}

/* crc32(bytes, value) */
static JSValue
checksum(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    uint32_t value;
    Bytes bytes;
    if (JS_ToUint32(context, &value, arguments[1]) || !bytes_of(context, arguments[0], &bytes))
        return JS_EXCEPTION;
    return JS_NewUint32(context, (uint32_t)crc32(value, bytes.data, (unsigned)bytes.length));
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("deflate", 7, compress_bytes),
    JS_CFUNC_DEF("inflate", 4, decompress_bytes),
    JS_CFUNC_DEF("crc32", 2, checksum),
};

int
compress_add(JSContext *context, JSValueConst host)
{
    return JS_SetPropertyFunctionList(context, host, functions, COUNT(functions));
}

/* MD5, SHA-1 and SHA-2, as RFC 1321 and FIPS 180-4 define them.
 *
 * The state of a digest lives in an ArrayBuffer that the prelude keeps to itself. It is checked all the same: no
 * content of it can make a function here leave its bounds.
 */
#include "guest.h"

enum { MD5, SHA1, SHA224, SHA256, SHA384, SHA512, ALGORITHMS };

static const struct {
    uint8_t size, block;
} shapes[ALGORITHMS] = {{16, 64}, {20, 64}, {28, 64}, {32, 64}, {48, 128}, {64, 128}};

typedef struct {
    uint32_t algorithm;
    uint64_t length;
    union {
        uint32_t narrow[8];
        uint64_t wide[8];
    } word;
    uint8_t rest[128];
} State;

static const uint64_t starts[ALGORITHMS][8] = {
    {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476},
    {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
    {0xc1059ed8, 0x367cd507, 0x3070dd17, 0xf70e5939, 0xffc00b31, 0x68581511, 0x64f98fa7, 0xbefa4fa4},
    {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
    {0xcbbb9d5dc1059ed8, 0x629a292a367cd507, 0x9159015a3070dd17, 0x152fecd8f70e5939,
     0x67332667ffc00b31, 0x8eb44a8768581511, 0xdb0c2e0d64f98fa7, 0x47b5481dbefa4fa4},
    {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
     0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179},
};

/* The first 64 bits of the fractional parts of the cube roots of the first 80 primes; SHA-256 takes the upper half of
 * the first 64. Computed once, while the snapshot is made. */
static uint64_t cube_roots[80];
/* floor(2^32 * |sin(i + 1)|), for MD5. */
static uint32_t sines[64];

/* floor(2^64 * frac(cbrt(prime))), by halving: `root` is scaled by 2^64. */
static uint64_t
cube_root_fraction(uint32_t prime)
{
    unsigned __int128 low = 0, high = (unsigned __int128)8 << 64;
    while (high - low > 1) {
        unsigned __int128 middle = low + (high - low) / 2;
        /* middle^3 <= prime * 2^192, with numbers of 256 bits in two halves of 128. */
        uint64_t whole = (uint64_t)(middle >> 64), part = (uint64_t)middle;
        /* middle = whole * 2^64 + part, whole < 8. square = a * 2^128 + b * 2^64 + c */
        unsigned __int128 c = (unsigned __int128)part * part, b = (unsigned __int128)whole * part * 2;
        b += c >> 64;
        uint64_t c0 = (uint64_t)c;
        unsigned __int128 a = (unsigned __int128)whole * whole + (b >> 64);
        uint64_t b0 = (uint64_t)b;
        /* cube = square * middle; only what is at 2^192 and above decides, the carries below included. */
        unsigned __int128 t0 = (unsigned __int128)c0 * part;
        unsigned __int128 t1 = (unsigned __int128)b0 * part + (t0 >> 64);
        unsigned __int128 u1 = (unsigned __int128)c0 * whole + (uint64_t)t1;
        unsigned __int128 t2 = a * part + (t1 >> 64);
        unsigned __int128 u2 = (unsigned __int128)b0 * whole + (uint64_t)t2 + (u1 >> 64);
        unsigned __int128 top = a * whole + (t2 >> 64) + (u2 >> 64);
        if (top < prime)
            low = middle;
        else
            high = middle;
    }
    return (uint64_t)low;
}

/* |sin(angle)| by its series, exact to more than the 32 bits that are taken. */
static double
sine(double angle)
{
    const double pi = 3.14159265358979323846;
    while (angle > pi)
        angle -= pi;
    if (angle > pi / 2)
        angle = pi - angle;
    double term = angle, sum = angle;
    for (int i = 1; i < 16; i++) {
        term *= -angle * angle / ((2 * i) * (2 * i + 1));
        sum += term;
    }
    return sum;
}

static void
make_tables(void)
{
    int found = 0;
    for (uint32_t candidate = 2; found < 80; candidate++) {
        bool prime = true;
        for (uint32_t divisor = 2; divisor * divisor <= candidate; divisor++)
            prime = prime && candidate % divisor != 0;
        if (prime)
            cube_roots[found++] = cube_root_fraction(candidate);
    }
    for (int i = 0; i < 64; i++)
        sines[i] = (uint32_t)(sine(i + 1) * 4294967296.0);
}

static inline uint32_t left(uint32_t x, int n) { return x << n | x >> (32 - n); }
static inline uint32_t right(uint32_t x, int n) { return x >> n | x << (32 - n); }
static inline uint64_t right64(uint64_t x, int n) { return x >> n | x << (64 - n); }

static inline uint32_t
big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void
md5_block(uint32_t *state, const uint8_t *data)
{
    static const uint8_t turns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], word[16];
    memcpy(word, data, 64);                                     /* WebAssembly is little-endian, as MD5 is */
    for (int i = 0; i < 64; i++) {
        uint32_t mixed;
        int which;
        switch (i / 16) {
        case 0: mixed = (b & c) | (~b & d); which = i; break;
        case 1: mixed = (d & b) | (~d & c); which = 5 * i + 1; break;
        case 2: mixed = b ^ c ^ d; which = 3 * i + 5; break;
        default: mixed = c ^ (b | ~d); which = 7 * i;
        }
        mixed += a + sines[i] + word[which & 15];
        a = d;
        d = c;
        c = b;
        b += left(mixed, turns[i / 16][i & 3]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

static void
sha1_block(uint32_t *state, const uint8_t *data)
{
    uint32_t word[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 80; i++)
        word[i] = i < 16 ? big32(data + 4 * i) : left(word[i - 3] ^ word[i - 8] ^ word[i - 14] ^ word[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t mixed, constant;
        switch (i / 20) {
        case 0: mixed = (b & c) | (~b & d); constant = 0x5a827999; break;
        case 1: mixed = b ^ c ^ d; constant = 0x6ed9eba1; break;
        case 2: mixed = (b & c) | (b & d) | (c & d); constant = 0x8f1bbcdc; break;
        default: mixed = b ^ c ^ d; constant = 0xca62c1d6;
        }
        mixed += left(a, 5) + e + constant + word[i];
        e = d;
        d = c;
        c = left(b, 30);
        b = a;
        a = mixed;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* SHA-256 and SHA-512 differ in the width of a word, in the rotations and in the number of rounds. */
#define SHA2_BLOCK(NAME, WORD, ROUNDS, LOAD, CONSTANT, R, S0A, S0B, S0C, S1A, S1B, S1C, B0A, B0B, B0C, B1A, B1B, B1C)  \
    static void NAME(WORD *state, const uint8_t *data)                                                                \
    {                                                                                                                 \
        WORD word[ROUNDS], v[8];                                                                                      \
        memcpy(v, state, sizeof v);                                                                                   \
        for (int i = 0; i < ROUNDS; i++) {                                                                            \
            if (i < 16) {                                                                                             \
                word[i] = LOAD(data + sizeof(WORD) * (size_t)i);                                                      \
                continue;                                                                                             \
            }                                                                                                         \
            WORD x = word[i - 15], y = word[i - 2];                                                                   \
            word[i] = word[i - 16] + word[i - 7] + (R(x, S0A) ^ R(x, S0B) ^ x >> S0C)                                 \
                      + (R(y, S1A) ^ R(y, S1B) ^ y >> S1C);                                                           \
        }                                                                                                             \
        for (int i = 0; i < ROUNDS; i++) {                                                                            \
            WORD one = v[7] + (R(v[4], B1A) ^ R(v[4], B1B) ^ R(v[4], B1C)) + ((v[4] & v[5]) ^ (~v[4] & v[6]))         \
                       + (WORD)(CONSTANT) + word[i];                                                                  \
            WORD two = (R(v[0], B0A) ^ R(v[0], B0B) ^ R(v[0], B0C)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));\
            memmove(v + 1, v, 7 * sizeof(WORD));                                                                      \
            v[4] += one;                                                                                              \
            v[0] = one + two;                                                                                         \
        }                                                                                                             \
        for (int i = 0; i < 8; i++)                                                                                   \
            state[i] += v[i];                                                                                         \
    }

static inline uint64_t
big64(const uint8_t *p)
{
    return (uint64_t)big32(p) << 32 | big32(p + 4);
}

SHA2_BLOCK(sha256_block, uint32_t, 64, big32, cube_roots[i] >> 32, right, 7, 18, 3, 17, 19, 10, 2, 13, 22, 6, 11, 25)
SHA2_BLOCK(sha512_block, uint64_t, 80, big64, cube_roots[i], right64, 1, 8, 7, 19, 61, 6, 28, 34, 39, 14, 18, 41)

static void
block(State *state, const uint8_t *data)
{
    switch (state->algorithm) {
    case MD5: md5_block(state->word.narrow, data); break;
    case SHA1: sha1_block(state->word.narrow, data); break;
    case SHA224:
    case SHA256: sha256_block(state->word.narrow, data); break;
    default: sha512_block(state->word.wide, data);
    }
}

static void
update(State *state, const uint8_t *data, size_t length)
{
    size_t size = shapes[state->algorithm].block, have = (size_t)(state->length % size);
    state->length += length;
    if (have > 0) {
        size_t step = size - have < length ? size - have : length;
        memcpy(state->rest + have, data, step);
        data += step;
        length -= step;
        if (have + step < size)
            return;
        block(state, state->rest);
    }
    for (; length >= size; data += size, length -= size)
        block(state, data);
    if (length > 0)
        memcpy(state->rest, data, length);
}

static void
finish(State *state, uint8_t *out)
{
    size_t size = shapes[state->algorithm].block, field = size / 8;
    uint64_t bits = state->length * 8;
    uint8_t tail[256] = {0x80};
    size_t have = (size_t)(state->length % size), padding = (have < size - field ? size : 2 * size) - have - 8;
    for (int i = 0; i < 8; i++)
        tail[padding + (size_t)i] = (uint8_t)(bits >> (state->algorithm == MD5 ? 8 * i : 56 - 8 * i));
    update(state, tail, padding + 8);
    for (size_t i = 0; i < shapes[state->algorithm].size; i++) {
        if (state->algorithm == MD5)
            out[i] = (uint8_t)(state->word.narrow[i / 4] >> (8 * (i % 4)));
        else if (size == 64)
            out[i] = (uint8_t)(state->word.narrow[i / 4] >> (24 - 8 * (i % 4)));
        else
            out[i] = (uint8_t)(state->word.wide[i / 8] >> (56 - 8 * (i % 8)));
    }
}

/* ---- for the prelude -------------------------------------------------------------------------------------- */

static State *
state_of(JSContext *context, JSValueConst value)
{
    size_t length;
    State *state = (State *)JS_GetArrayBuffer(context, &length, value);
    if (state == NULL || length != sizeof(State) || state->algorithm >= ALGORITHMS) {
        if (!JS_HasException(context))
            JS_ThrowTypeError(context, "not the state of a digest");
        return NULL;
    }
    return state;
}

static JSValue
digest_new(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    int32_t algorithm;
    if (JS_ToInt32(context, &algorithm, arguments[0]))
        return JS_EXCEPTION;
    if (algorithm < 0 || algorithm >= ALGORITHMS)
        return JS_ThrowRangeError(context, "no such digest");
    State state = {.algorithm = (uint32_t)algorithm};
    for (int i = 0; i < 8; i++) {
        if (shapes[algorithm].block == 64)
            state.word.narrow[i] = (uint32_t)starts[algorithm][i];
        else
            state.word.wide[i] = starts[algorithm][i];
    }
    return JS_NewArrayBufferCopy(context, (const uint8_t *)&state, sizeof state);
}

static JSValue
digest_update(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    Bytes bytes;
    State *state = state_of(context, arguments[0]);
    if (state == NULL || !bytes_of(context, arguments[1], &bytes))
        return JS_EXCEPTION;
    update(state, bytes.data, bytes.length);
    return JS_UNDEFINED;
}

static JSValue
digest_finish(JSContext *context, JSValueConst self, int count, JSValueConst *arguments)
{
    uint8_t out[64];
    State *state = state_of(context, arguments[0]);
    if (state == NULL)
        return JS_EXCEPTION;
    size_t size = shapes[state->algorithm].size;
    finish(state, out);
    return bytes_new(context, out, size);
}

static const JSCFunctionListEntry functions[] = {
    JS_CFUNC_DEF("digestNew", 1, digest_new),
    JS_CFUNC_DEF("digestUpdate", 2, digest_update),
    JS_CFUNC_DEF("digestFinish", 1, digest_finish),
};

int
digest_add(JSContext *context, JSValueConst host)
{
    make_tables();
    return JS_SetPropertyFunctionList(context, host, functions, COUNT(functions));
}

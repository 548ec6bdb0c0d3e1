// zlib: whole buffers at once; the streams gather their input first.
const { coded, absent, argumentType, outOfRange } = need('errors');
const types = need('types');
const { Buffer, asBuffer } = need('buffer');
const { Transform } = need('stream');
const loop = need('loop');

const constants = {
  Z_NO_FLUSH: 0, Z_PARTIAL_FLUSH: 1, Z_SYNC_FLUSH: 2, Z_FULL_FLUSH: 3, Z_FINISH: 4, Z_BLOCK: 5, Z_OK: 0, Z_STREAM_END: 1, Z_NEED_DICT: 2, Z_ERRNO: -1,
  Z_STREAM_ERROR: -2, Z_DATA_ERROR: -3, Z_MEM_ERROR: -4, Z_BUF_ERROR: -5, Z_VERSION_ERROR: -6, Z_NO_COMPRESSION: 0, Z_BEST_SPEED: 1, Z_BEST_COMPRESSION: 9,
  Z_DEFAULT_COMPRESSION: -1, Z_FILTERED: 1, Z_HUFFMAN_ONLY: 2, Z_RLE: 3, Z_FIXED: 4, Z_DEFAULT_STRATEGY: 0, Z_MIN_WINDOWBITS: 8, Z_MAX_WINDOWBITS: 15,
  Z_DEFAULT_WINDOWBITS: 15, Z_MIN_CHUNK: 64, Z_MAX_CHUNK: Infinity, Z_DEFAULT_CHUNK: 16384, Z_MIN_MEMLEVEL: 1, Z_MAX_MEMLEVEL: 9, Z_DEFAULT_MEMLEVEL: 8,
  Z_MIN_LEVEL: -1, Z_MAX_LEVEL: 9, Z_DEFAULT_LEVEL: -1,
};
const ZLIB = 0, GZIP = 1, RAW = 2, ANY = 3;

function view(data) {
  if (typeof data === 'string') return host.encode(data, 0);
  if (types.isAnyArrayBuffer(data)) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw argumentType('buffer', ['string', 'Buffer', 'TypedArray', 'DataView', 'ArrayBuffer'], data);
}

function fault(status, name, words) {
  const error = new Error(words);
  error.errno = status;
  error.code = name;
  return error;
}

function checkResult(status, most) {
  if (status === 1) return;
  if (status === -4) throw most ? coded(RangeError, 'ERR_BUFFER_TOO_LARGE', `Cannot create a Buffer larger than ${most} bytes`) : fault(-4, 'Z_MEM_ERROR', 'insufficient memory');
  if (status === 0 || status === -5) throw fault(-5, 'Z_BUF_ERROR', 'unexpected end of file');
  if (status === 2) throw fault(2, 'Z_NEED_DICT', 'Missing dictionary');
  if (status === -2) throw fault(-2, 'Z_STREAM_ERROR', 'stream error');
  throw fault(status, 'Z_ERRNO', `zlib failed with ${status}`);
}

function range(value, name, low, high, otherwise) {
  if (value === undefined) return otherwise;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw argumentType(`options.${name}`, 'number', value);
  if (value < low || value > high) throw outOfRange(`options.${name}`, `>= ${low} and <= ${high}`, value);
  return value;
}

function pack(format) {
  return (data, options = {}) => {
    const most = options.maxOutputLength ?? 0;
    const [status, out] = host.deflate(view(data), format, range(options.level, 'level', -1, 9, -1), range(options.windowBits, 'windowBits', 9, 15, 15),
      range(options.memLevel, 'memLevel', 1, 9, 8), range(options.strategy, 'strategy', 0, 4, 0), most);
    checkResult(status, most);
    return asBuffer(out);
  };
}

function unpack(format) {
  return (data, options = {}) => {
    const most = options.maxOutputLength ?? 0;
    let rest = view(data);
    const parts = [];
    let left = most;
    for (;;) {
      const kind = format === ANY && rest.length > 1 && !(rest[0] === 31 && rest[1] === 139) ? ZLIB : format === ANY ? GZIP : format;
            const [status, out, used, words] = host.inflate(rest, kind, options.windowBits || 15, left);
      if (status === -3) throw fault(-3, 'Z_DATA_ERROR', words);
      if (!(status === 0 && options.finishFlush === constants.Z_SYNC_FLUSH)) checkResult(status, most);
      parts.push(out);
      rest = rest.subarray(used);
      left = most ? Math.max(1, left - out.length) : 0;
      // Several gzip members in a row are one text; what follows them and is none is ignored.
      if (!(kind === GZIP && rest.length > 1 && rest[0] === 31 && rest[1] === 139)) return parts.length === 1 ? asBuffer(parts[0]) : Buffer.concat(parts);
    }
  };
}

const calls = { deflate: pack(ZLIB), gzip: pack(GZIP), deflateRaw: pack(RAW), inflate: unpack(ZLIB), gunzip: unpack(GZIP), inflateRaw: unpack(RAW), unzip: unpack(ANY) };

const zlib = { constants, codes: {}, crc32: (data, value = 0) => host.crc32(view(data), value) };
for (const [name, sync] of Object.entries(calls)) {
  zlib[`${name}Sync`] = sync;
  zlib[name] = (data, options, callback) => {
    if (typeof options === 'function') [callback, options] = [options, {}];
    need('errors').checkFunction(callback, 'callback');
    const input = view(data);
    loop.operation(() => {
      let result;
      try {
        result = sync(input, options);
      } catch (error) {
        callback(error);
        return;
      }
      callback(null, result);
    });
  };
  const Class = class extends Transform {
    #parts = [];
    #options;
    constructor(options) {
      super(options);
      this.#options = options ?? {};
      this.bytesWritten = 0;
    }
    _transform(chunk, encoding, callback) {
      this.bytesWritten += chunk.length;
      this.#parts.push(chunk);
      callback();
    }
    _flush(callback) {
      let result;
      try {
        result = sync(Buffer.concat(this.#parts), this.#options);
      } catch (error) {
        callback(error);
        return;
      }
      callback(null, result);
    }
    close(callback) {
      if (callback) this.once('close', callback);
      this.destroy();
    }
  };
  const title = name[0].toUpperCase() + name.slice(1);
  Object.defineProperty(Class, 'name', { value: title });
  zlib[title] = Class;
  zlib[`create${title}`] = (options) => new Class(options);
}
for (const name of ['brotliCompress', 'brotliCompressSync', 'brotliDecompress', 'brotliDecompressSync', 'createBrotliCompress', 'createBrotliDecompress', 'zstdCompress', 'zstdCompressSync', 'zstdDecompress', 'zstdDecompressSync']) {
  zlib[name] = () => { throw absent(`zlib.${name}`, 'use gzip or deflate, or a pure JavaScript package'); };
}
Object.assign(zlib, Object.fromEntries(Object.entries(constants).filter(([name]) => name.startsWith('Z_'))));
return zlib;

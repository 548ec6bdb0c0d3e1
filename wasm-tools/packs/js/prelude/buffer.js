// Buffer: a Uint8Array with node's methods. The slow parts are in guest/bytes.c.
const { coded, argumentType, argumentValue, outOfRange, checkInteger } = need('errors');
const types = need('types');

const UTF8 = 0, LATIN1 = 1, ASCII = 2, UTF16 = 3, HEX = 4, BASE64 = 5, BASE64URL = 6;
const encodings = {
  'utf8': UTF8, 'utf-8': UTF8, 'latin1': LATIN1, 'binary': LATIN1, 'ascii': ASCII, 'ucs2': UTF16, 'ucs-2': UTF16,
  'utf16le': UTF16, 'utf-16le': UTF16, 'hex': HEX, 'base64': BASE64, 'base64url': BASE64URL,
};
const MAX_LENGTH = 2 ** 31 - 1;

function encodingNumber(name) {
  if (name === undefined || name === null || name === '') return UTF8;
  const found = encodings[name] ?? encodings[String(name).toLowerCase()];
  if (found === undefined) throw coded(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${name}`);
  return found;
}

class FastBuffer extends Uint8Array {}

const asBuffer = (array) => Object.setPrototypeOf(array, Buffer.prototype);

function Buffer(value, encoding, length) {
  return typeof value === 'number' ? Buffer.alloc(value) : Buffer.from(value, encoding, length);
}
Object.setPrototypeOf(Buffer, Uint8Array);
Object.setPrototypeOf(FastBuffer, Uint8Array);
Buffer.prototype = FastBuffer.prototype;
Object.defineProperty(Buffer.prototype, 'constructor', { value: Buffer, writable: true, configurable: true });
Object.defineProperty(Buffer, Symbol.species, { configurable: true, get: () => FastBuffer });
// What the array's own methods make (map, filter, subarray) is a Buffer, too.
Object.defineProperty(FastBuffer, 'name', { value: 'Buffer' });

function checkSize(size) {
  if (typeof size !== 'number') throw argumentType('size', 'number', size);
  if (!(size >= 0 && size <= MAX_LENGTH)) throw outOfRange('size', `>= 0 && <= ${MAX_LENGTH}`, size);
}

Buffer.poolSize = 8192;

Buffer.alloc = function alloc(size, fill, encoding) {
  checkSize(size);
  const buffer = new FastBuffer(size);
  return fill !== undefined && fill !== 0 && size > 0 ? buffer.fill(fill, encoding) : buffer;
};
// There is no unused memory to hand out: what is new is zero.
Buffer.allocUnsafe = (size) => Buffer.alloc(size);
Buffer.allocUnsafeSlow = (size) => Buffer.alloc(size);

Buffer.from = function from(value, encoding, length) {
  if (typeof value === 'string') return asBuffer(host.encode(value, encodingNumber(encoding)));
  if (typeof value === 'object' && value !== null) {
    if (types.isAnyArrayBuffer(value)) {
      const start = encoding === undefined ? 0 : Number(encoding) || 0;
      if (start > value.byteLength) throw coded(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', '"offset" is outside of buffer bounds');
      if (length !== undefined && length > value.byteLength - start) throw coded(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', '"length" is outside of buffer bounds');
      return new FastBuffer(value, start, length === undefined ? undefined : Math.max(0, length));
    }
    const inner = value.valueOf?.();
    if (inner != null && inner !== value && (typeof inner === 'string' || typeof inner === 'object')) return Buffer.from(inner, encoding, length);
    if (ArrayBuffer.isView(value) && !types.isDataView(value)) {
      const copy = new FastBuffer(value.length);
      copy.set(value);
      return copy;
    }
    if (typeof value.length === 'number' || Array.isArray(value)) {
      const count = value.length > 0 ? value.length : 0;
      const out = new FastBuffer(count);
      for (let i = 0; i < count; i++) out[i] = value[i];
      return out;
    }
    if (value.type === 'Buffer' && Array.isArray(value.data)) return Buffer.from(value.data);
    if (typeof value[Symbol.toPrimitive] === 'function') {
      const text = value[Symbol.toPrimitive]('string');
      if (typeof text === 'string') return Buffer.from(text, encoding);
    }
  }
  const error = argumentType('first argument', ['string', 'Buffer', 'ArrayBuffer', 'Array', 'Array-like Object'], value);
  error.message = error.message.replace(/must be .*? Received/s, 'must be of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object. Received');
  throw error;
};
Buffer.of = (...items) => Buffer.from(items);
Buffer.copyBytesFrom = (view, offset = 0, length = view.length - offset) => {
  const part = view.slice(offset, offset + length);
  return Buffer.from(part.buffer, part.byteOffset, part.byteLength);
};
Buffer.isBuffer = (value) => value instanceof Buffer;
Buffer.isEncoding = (name) => typeof name === 'string' && name !== '' && encodings[name.toLowerCase()] !== undefined;

Buffer.byteLength = function byteLength(value, encoding) {
  if (typeof value !== 'string') {
    if (ArrayBuffer.isView(value) || types.isAnyArrayBuffer(value)) return value.byteLength;
    throw argumentType('string', ['string', 'Buffer', 'ArrayBuffer'], value);
  }
  switch (encodings[String(encoding ?? 'utf8').toLowerCase()]) {
    case LATIN1: case ASCII: return value.length;
    case UTF16: return value.length * 2;
    case HEX: return value.length >>> 1;
    case BASE64: case BASE64URL: return Math.floor((value.replace(/=+$/, '').length * 3) / 4);
    default: return host.utf8Length(value);
  }
};

Buffer.concat = function concat(list, total) {
  if (!Array.isArray(list)) throw argumentType('list', 'Array', list);
  const length = total === undefined ? list.reduce((sum, part) => sum + part.length, 0) : checkInteger(total, 'length', 0);
  const out = Buffer.alloc(length);
  let at = 0;
  for (const [index, part] of list.entries()) {
    if (!types.isUint8Array(part)) throw argumentType(`list[${index}]`, ['Buffer', 'Uint8Array'], part);
    if (at + part.length > length) {
      out.set(part.subarray(0, length - at), at);
      return out;
    }
    out.set(part, at);
    at += part.length;
  }
  return out;
};

Buffer.compare = (one, two) => {
  for (const [name, value] of [['buf1', one], ['buf2', two]]) if (!types.isUint8Array(value)) throw argumentType(name, ['Buffer', 'Uint8Array'], value);
  return host.compare(one, two);
};

// ---- numbers ------------------------------------------------------------------------------------------------

const scratch = new DataView(new ArrayBuffer(8));

function bounds(buffer, offset, size) {
  if (typeof offset !== 'number') throw argumentType('offset', 'number', offset);
  if (!Number.isInteger(offset)) throw outOfRange('offset', 'an integer', offset);
  if (offset < 0 || offset + size > buffer.length) {
    if (buffer.length < size) throw coded(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', 'Attempt to access memory outside buffer bounds');
    throw outOfRange('offset', `>= 0 and <= ${buffer.length - size}`, offset);
  }
}

const view = (buffer) => new DataView(buffer.buffer, buffer.byteOffset, buffer.length);

function range(value, low, high, shown) {
  if (value < low || value > high) throw outOfRange('value', shown, value);
}

const numbers = {};
for (const [name, size, low, high] of [['Int8', 1, -0x80, 0x7f], ['Uint8', 1, 0, 0xff], ['Int16', 2, -0x8000, 0x7fff], ['Uint16', 2, 0, 0xffff],
  ['Int32', 4, -0x80000000, 0x7fffffff], ['Uint32', 4, 0, 0xffffffff], ['Float32', 4], ['Float64', 8],
  ['BigInt64', 8, -(2n ** 63n), 2n ** 63n - 1n], ['BigUint64', 8, 0n, 2n ** 64n - 1n]]) {
  const label = name === 'Float32' ? 'Float' : name === 'Float64' ? 'Double' : name;
  const big = name.startsWith('Big');
  const bits = size * 8;
  const signed = !name.includes('Uint');
  const suffix = big ? 'n' : '';
  const shown = big
    ? signed ? `>= -(2${suffix} ** ${bits - 1}${suffix}) and < 2${suffix} ** ${bits - 1}${suffix}` : `>= 0${suffix} and < 2${suffix} ** ${bits}${suffix}`
    : `>= ${low} and <= ${high}`;
  for (const [order, little] of size === 1 ? [['', true]] : [['LE', true], ['BE', false]]) {
    numbers[`read${label}${order}`] = function (offset = 0) {
      bounds(this, offset, size);
      return view(this)[`get${name}`](offset, little);
    };
    numbers[`write${label}${order}`] = function (value, offset = 0) {
      if (big && typeof value !== 'bigint') throw argumentType('value', 'bigint', value);
      if (!big) value = Number(value);
      if (low !== undefined) range(value, low, high, shown);
      bounds(this, offset, size);
      view(this)[`set${name}`](offset, value, little);
      return offset + size;
    };
  }
}
for (const [order, little] of [['LE', true], ['BE', false]]) {
  for (const [sign, signed] of [['Int', true], ['UInt', false]]) {
    numbers[`read${sign}${order}`] = function (offset, size) {
      checkInteger(size, 'byteLength', 1, 6);
      bounds(this, offset, size);
      let value = 0;
      for (let i = 0; i < size; i++) value = value * 256 + this[offset + (little ? size - 1 - i : i)];
      return signed && value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value;
    };
    numbers[`write${sign}${order}`] = function (value, offset, size) {
      checkInteger(size, 'byteLength', 1, 6);
      value = Number(value);
      const bits = size * 8;
      const least = signed ? -(2 ** (bits - 1)) : 0;
      const most = signed ? 2 ** (bits - 1) - 1 : 2 ** bits - 1;
      const shown = size < 5 ? `>= ${least} and <= ${most}` : signed ? `>= -(2 ** ${bits - 1}) and < 2 ** ${bits - 1}` : `>= 0 and < 2 ** ${bits}`;
      range(value, least, most, shown);
      bounds(this, offset, size);
      let rest = value < 0 ? value + 2 ** bits : value;
      for (let i = 0; i < size; i++) {
        this[offset + (little ? i : size - 1 - i)] = rest % 256;
        rest = Math.floor(rest / 256);
      }
      return offset + size;
    };
  }
}
for (const name of Object.keys(numbers)) {
  if (name.includes('Uint')) continue;
  const node = name.replace('BigUInt', 'BigUInt');
  if (node !== name) numbers[node] = numbers[name];
}
for (const name of Object.keys(numbers)) if (name.includes('Uint')) numbers[name.replace('Uint', 'UInt')] = numbers[name];

// ---- the other methods --------------------------------------------------------------------------------------

function search(buffer, value, from, encoding, backwards) {
  if (typeof from === 'string') {
    encoding = from;
    from = undefined;
  }
  from = from === undefined || Number.isNaN(Number(from)) ? (backwards ? buffer.length : 0) : Math.trunc(Number(from));
  if (from < 0) from += buffer.length;
  if (from < 0) {
    if (backwards) return -1;
    from = 0;
  }
  let needle;
  let step = 1;
  if (typeof value === 'number') needle = new Uint8Array([value & 255]);
  else if (typeof value === 'string') {
    const number = encodingNumber(encoding);
    if (number === UTF16) step = 2;
    needle = host.encode(value, number);
  } else if (types.isUint8Array(value)) needle = value;
  else throw argumentType('value', ['number', 'string', 'Buffer', 'Uint8Array'], value);
  if (needle.length === 0) return Math.min(from, buffer.length);
  return host.find(buffer, needle, from, backwards, step);
}

function write(buffer, text, offset, length, encoding) {
  if (typeof text !== 'string') throw argumentType('argument', 'string', text);
  if (offset === undefined) return put(buffer, text, 0, buffer.length, 'utf8');
  if (typeof offset === 'string') return put(buffer, text, 0, buffer.length, offset);
  checkInteger(offset, 'offset', 0, buffer.length);
  const room = buffer.length - offset;
  if (length === undefined) return put(buffer, text, offset, room, encoding);
  if (typeof length === 'string') return put(buffer, text, offset, room, length);
  checkInteger(length, 'length', 0, buffer.length);
  return put(buffer, text, offset, Math.min(length, room), encoding);
}

function put(buffer, text, offset, room, encoding) {
  const number = encodingNumber(encoding);
  let data = host.encode(text, number);
  if (data.length > room) {
    let end = room;
    // No character is written in part.
    if (number === UTF8) while (end > 0 && (data[end] & 0xc0) === 0x80) end--;
    if (number === UTF16) end &= ~1;
    data = data.subarray(0, end);
  }
  buffer.set(data, offset);
  return data.length;
}

const methods = {
  ...numbers,
  toString(encoding, start, end) {
    return host.decode(this, encodingNumber(encoding), start === undefined ? undefined : Math.trunc(start) || 0, end === undefined ? undefined : Math.trunc(end) || 0);
  },
  toJSON() {
    return { type: 'Buffer', data: Array.from(this) };
  },
  equals(other) {
    if (!types.isUint8Array(other)) throw argumentType('otherBuffer', ['Buffer', 'Uint8Array'], other);
    return this === other || host.compare(this, other) === 0;
  },
  compare(target, targetStart = 0, targetEnd = target.length, start = 0, end = this.length) {
    if (!types.isUint8Array(target)) throw argumentType('target', ['Buffer', 'Uint8Array'], target);
    return host.compare(this.subarray(start, end), target.subarray(targetStart, targetEnd));
  },
  indexOf(value, from, encoding) {
    return search(this, value, from, encoding, false);
  },
  lastIndexOf(value, from, encoding) {
    return search(this, value, from, encoding, true);
  },
  includes(value, from, encoding) {
    return search(this, value, from, encoding, false) !== -1;
  },
  write(text, offset, length, encoding) {
    return write(this, text, offset, length, encoding);
  },
  fill(value, start, end, encoding) {
    if (typeof start === 'string') [start, end, encoding] = [0, this.length, start];
    else if (typeof end === 'string') [end, encoding] = [this.length, end];
    start = start === undefined ? 0 : checkInteger(start, 'offset', 0);
    end = end === undefined ? this.length : checkInteger(end, 'end', 0, this.length);
    if (start >= end) return this;
    let pattern;
    if (typeof value === 'string') {
      pattern = host.encode(value, encodingNumber(encoding));
      if (pattern.length === 0 && value.length > 0) throw argumentValue('value', value);
      if (pattern.length === 0) pattern = new Uint8Array(1);
    } else if (types.isUint8Array(value)) {
      pattern = value;
      if (pattern.length === 0) throw argumentValue('value', value);
    } else {
      Uint8Array.prototype.fill.call(this, Number(value) & 255, start, end);
      return this;
    }
    for (let i = start; i < end; i++) this[i] = pattern[(i - start) % pattern.length];
    return this;
  },
  copy(target, targetStart = 0, start = 0, end = this.length) {
    if (!types.isUint8Array(target)) throw argumentType('target', ['Buffer', 'Uint8Array'], target);
    if (start > this.length || start < 0) throw outOfRange('sourceStart', `>= 0 && <= ${this.length}`, start);
    const part = Uint8Array.prototype.subarray.call(this, start, Math.max(start, Math.min(end, this.length, start + target.length - targetStart)));
    if (targetStart >= target.length) return 0;
    target.set(part, targetStart);
    return part.length;
  },
  subarray(start, end) {
    const part = Uint8Array.prototype.subarray.call(this, start, end);
    return part instanceof Buffer ? part : asBuffer(part);
  },
  slice(start, end) {
    return this.subarray(start, end);
  },
  swap16() {
    return swap(this, 2);
  },
  swap32() {
    return swap(this, 4);
  },
  swap64() {
    return swap(this, 8);
  },
  [Symbol.for('nodejs.util.inspect.custom')](depth, options) {
    const most = module.INSPECT_MAX_BYTES;
    let text = Array.from(Uint8Array.prototype.subarray.call(this, 0, most), (byte) => byte.toString(16).padStart(2, '0')).join(' ');
    if (this.length > most) text += ` ... ${this.length - most} more byte${this.length - most > 1 ? 's' : ''}`;
    const extra = Object.keys(this).filter((key) => !/^\d+$/.test(key));
    if (extra.length > 0) text += `${this.length ? ', ' : ''}${need('inspect').inspect(Object.fromEntries(extra.map((key) => [key, this[key]])), { ...options, breakLength: Infinity, compact: true }).slice(2, -2)}`;
    return `<${this.constructor.name} ${text}>`;
  },
};
methods.toLocaleString = methods.toString;
for (const [name, encoding] of Object.entries({ utf8: 'utf8', latin1: 'latin1', ascii: 'ascii', ucs2: 'ucs2', hex: 'hex', base64: 'base64', base64url: 'base64url' })) {
  methods[`${name}Slice`] = function (start, end) { return this.toString(encoding, start, end); };
  methods[`${name}Write`] = function (text, offset = 0, length = undefined) { return this.write(text, offset, length, encoding); };
}
for (const key of Reflect.ownKeys(methods)) Object.defineProperty(Buffer.prototype, key, { value: methods[key], writable: true, configurable: true, enumerable: false });
for (const [key, get] of [['parent', (self) => self.buffer], ['offset', (self) => self.byteOffset]]) {
  Object.defineProperty(Buffer.prototype, key, { configurable: true, get() { return this instanceof Buffer ? get(this) : undefined; } });
}

function swap(buffer, size) {
  if (buffer.length % size !== 0) throw coded(RangeError, 'ERR_INVALID_BUFFER_SIZE', `Buffer size must be a multiple of ${size * 8}-bits`);
  for (let i = 0; i < buffer.length; i += size) Uint8Array.prototype.reverse.call(Uint8Array.prototype.subarray.call(buffer, i, i + size));
  return buffer;
}

class Blob {
  #data;
  #type;
  constructor(parts = [], { type = '' } = {}) {
    this.#data = Buffer.concat(Array.from(parts, (part) => {
      if (part instanceof Blob) return part.#data;
      if (types.isAnyArrayBuffer(part)) return Buffer.from(part);
      if (ArrayBuffer.isView(part)) return Buffer.from(part.buffer, part.byteOffset, part.byteLength);
      return Buffer.from(String(part));
    }));
    this.#type = String(type).toLowerCase();
  }
  get size() { return this.#data.length; }
  get type() { return this.#type; }
  async arrayBuffer() { return new Uint8Array(this.#data).buffer; }
  async bytes() { return new Uint8Array(this.#data); }
  async text() { return this.#data.toString(); }
  slice(start = 0, end = this.size, type = '') { return new Blob([this.#data.subarray(start, end)], { type }); }
  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) { return `Blob ${inspect({ size: this.size, type: this.type }, options)}`; }
}

const module = {
  Buffer,
  Blob,
  SlowBuffer: Buffer.allocUnsafeSlow,
  INSPECT_MAX_BYTES: 50,
  kMaxLength: MAX_LENGTH,
  kStringMaxLength: 2 ** 30 - 25,
  constants: { MAX_LENGTH, MAX_STRING_LENGTH: 2 ** 30 - 25 },
  isUtf8: (value) => host.utf8Valid(value),
  isAscii: (value) => new Uint8Array(value.buffer ?? value, value.byteOffset ?? 0, value.byteLength).every((byte) => byte < 128),
  transcode: (source, from, to) => Buffer.from(source.toString(from), to),
  atob: (text) => globalThis.atob(text),
  btoa: (text) => globalThis.btoa(text),
  encodingNumber,
  asBuffer,
};
return module;

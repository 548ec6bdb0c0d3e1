// crypto: digests, HMAC, key derivation on top of it, random numbers. No ciphers, no keys, no certificates.
const { coded, argumentType, checkInteger, checkString, absent, outOfRange } = need('errors');
const types = need('types');
const { Buffer, encodingNumber } = need('buffer');
const { Transform } = need('stream');
const loop = need('loop');

const algorithms = { md5: [0, 64], sha1: [1, 64], sha224: [2, 64], sha256: [3, 64], sha384: [4, 128], sha512: [5, 128] };

function algorithm(name) {
  checkString(name, 'algorithm');
  const found = algorithms[name.toLowerCase().replace(/^rsa-/, '').replace(/^sha-/, 'sha')];
  if (found === undefined) {
    const error = new Error('Digest method not supported');
    error.code = 'ERR_OSSL_EVP_UNSUPPORTED';
    throw error;
  }
  return found;
}

function view(data, encoding, name = 'data') {
  if (typeof data === 'string') return host.encode(data, encodingNumber(encoding === 'buffer' ? 'utf8' : encoding));
  if (types.isAnyArrayBuffer(data)) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw argumentType(name, ['string', 'Buffer', 'TypedArray', 'DataView'], data);
}

const given = (data, encoding) => (encoding && encoding !== 'buffer' ? host.decode(data, encodingNumber(encoding)) : Buffer.from(data));

class Hash extends Transform {
  #state;
  #done = false;
  constructor(name, state) {
    super();
    this.#state = state ?? host.digestNew(algorithm(name)[0]);
  }
  #open() {
    if (this.#done) throw coded(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
  }
  update(data, encoding) {
    this.#open();
    host.digestUpdate(this.#state, view(data, encoding));
    return this;
  }
  digest(encoding) {
    this.#open();
    this.#done = true;
    return given(host.digestFinish(this.#state), encoding);
  }
  copy() {
    this.#open();
    return new Hash(null, this.#state.slice(0));
  }
  _transform(chunk, encoding, callback) {
    this.update(chunk, encoding);
    callback();
  }
  _flush(callback) {
    this.push(this.digest());
    callback();
  }
}

function hmacOf([number, block], key) {
  if (key.length > block) {
    const state = host.digestNew(number);
    host.digestUpdate(state, key);
    key = host.digestFinish(state);
  }
  const padded = (value) => {
    const out = new Uint8Array(block).fill(value);
    key.forEach((byte, i) => { out[i] = byte ^ value; });
    return out;
  };
  const inner = host.digestNew(number);
  const outer = host.digestNew(number);
  host.digestUpdate(inner, padded(0x36));
  host.digestUpdate(outer, padded(0x5c));
  return { inner, outer };
}

function hmacFinish({ inner, outer }) {
  host.digestUpdate(outer, host.digestFinish(inner));
  return host.digestFinish(outer);
}

class Hmac extends Transform {
  #state;
  constructor(name, key) {
    super();
    this.#state = hmacOf(algorithm(name), keyBytes(key));
  }
  update(data, encoding) {
    if (this.#state === null) throw coded(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    host.digestUpdate(this.#state.inner, view(data, encoding));
    return this;
  }
  digest(encoding) {
    if (this.#state === null) throw coded(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    const data = hmacFinish(this.#state);
    this.#state = null;
    return given(data, encoding);
  }
  _transform(chunk, encoding, callback) {
    this.update(chunk, encoding);
    callback();
  }
  _flush(callback) {
    this.push(this.digest());
    callback();
  }
}

class KeyObject {
  #data;
  constructor(data) { this.#data = data; }
  get type() { return 'secret'; }
  get symmetricKeySize() { return this.#data.length; }
  export({ format } = {}) { return format === 'jwk' ? { kty: 'oct', k: this.#data.toString('base64url') } : Buffer.from(this.#data); }
  static bytes(key) { return key.#data; }
}
const keyBytes = (key) => (key instanceof KeyObject ? KeyObject.bytes(key) : view(key, 'utf8', 'key'));

function digestOf(name, ...parts) {
  const shape = algorithm(name);
  const state = host.digestNew(shape[0]);
  for (const part of parts) host.digestUpdate(state, part);
  return host.digestFinish(state);
}

// ---- keys from secrets --------------------------------------------------------------------------------------

function pbkdf2Sync(password, salt, iterations, length, name) {
  checkInteger(iterations, 'iterations', 1, 2 ** 31 - 1);
  checkInteger(length, 'keylen', 0, 2 ** 31 - 1);
  const shape = algorithm(name);
  const start = hmacOf(shape, view(password, 'utf8', 'password'));
  const hmac = (...parts) => {
    const state = { inner: start.inner.slice(0), outer: start.outer.slice(0) };
    for (const part of parts) host.digestUpdate(state.inner, part);
    return hmacFinish(state);
  };
  const salted = view(salt, 'utf8', 'salt');
  const blocks = [];
  for (let count = 0, i = 1; count < length; i++) {
    const number = new Uint8Array(4);
    new DataView(number.buffer).setUint32(0, i);
    let round = hmac(salted, number);
    const block = round.slice();
    for (let j = 1; j < iterations; j++) {
      round = hmac(round);
      for (let k = 0; k < block.length; k++) block[k] ^= round[k];
    }
    blocks.push(block);
    count += block.length;
  }
  return Buffer.concat(blocks).subarray(0, length);
}

function hkdfSync(name, key, salt, info, length) {
  const shape = algorithm(name);
  const secret = hmacOf(shape, view(salt));
  host.digestUpdate(secret.inner, keyBytes(key));
  const extracted = hmacFinish(secret);
  const size = extracted.length;
  if (length > 255 * size) throw coded(RangeError, 'ERR_CRYPTO_INVALID_KEYLEN', 'Invalid key length');
  const blocks = [];
  let last = new Uint8Array(0);
  for (let i = 1; blocks.length * size < length; i++) {
    const state = hmacOf(shape, extracted);
    for (const part of [last, view(info), new Uint8Array([i])]) host.digestUpdate(state.inner, part);
    last = hmacFinish(state);
    blocks.push(last);
  }
  return new Uint8Array(Buffer.concat(blocks).subarray(0, length)).buffer;
}

const withCallback = (sync) => (...values) => {
  const callback = need('errors').checkFunction(values.pop(), 'callback');
  loop.operation(() => {
    let result;
    try {
      result = sync(...values);
    } catch (error) {
      callback(error);
      return;
    }
    callback(null, result);
  });
};

// ---- random -------------------------------------------------------------------------------------------------

function fill(data) {
  const status = host.random(data);
  if (status < 0) throw need('errors').systemError(-status, 'random_get');
  return data;
}

function randomBytes(size, callback) {
  if (typeof size !== 'number') throw argumentType('size', 'number', size);
  if (!(size >= 0 && size <= 2 ** 31 - 1)) throw outOfRange('size', '>= 0 && <= 2147483647', size);
  if (callback === undefined) return fill(Buffer.alloc(size));
  loop.operation(() => callback(null, fill(Buffer.alloc(size))));
  return undefined;
}

function randomFillSync(data, offset = 0, size = data.byteLength - offset) {
  if (!ArrayBuffer.isView(data) && !types.isAnyArrayBuffer(data)) throw argumentType('buf', ['ArrayBuffer', 'ArrayBufferView'], data);
  fill(new Uint8Array(data.buffer ?? data, (data.byteOffset ?? 0) + offset, size));
  return data;
}

function randomInt(low, high, callback) {
  if (high === undefined || typeof high === 'function') [low, high, callback] = [0, low, high];
  if (!Number.isSafeInteger(low)) throw argumentType('min', 'a safe integer', low);
  if (!Number.isSafeInteger(high)) throw argumentType('max', 'a safe integer', high);
  if (high <= low) throw outOfRange('max', `greater than the value of "min" (${low})`, high);
  const range = high - low;
  if (range >= 2 ** 48) throw outOfRange('max - min', '<= 281474976710655', range);
  // Values beyond the last whole multiple of the range would make the first ones likelier.
  const limit = 2 ** 48 - (2 ** 48 % range);
  let value;
  do value = fill(Buffer.alloc(6)).readUIntBE(0, 6); while (value >= limit);
  const result = low + (value % range);
  if (callback === undefined) return result;
  loop.nextTick(callback, null, result);
  return undefined;
}

function randomUUID() {
  const data = fill(Buffer.alloc(16));
  data[6] = (data[6] & 0x0f) | 0x40;
  data[8] = (data[8] & 0x3f) | 0x80;
  return data.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

function getRandomValues(data) {
  if (!types.isTypedArray(data) || types.isFloat32Array(data) || types.isFloat64Array(data)) throw new DOMException('The data argument must be an integer-type TypedArray', 'TypeMismatchError');
  if (data.byteLength > 65536) throw new DOMException(`The requested length exceeds 65,536 bytes`, 'QuotaExceededError');
  fill(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return data;
}

function timingSafeEqual(one, two) {
  for (const [name, value] of [['buf1', one], ['buf2', two]]) if (!ArrayBuffer.isView(value) && !types.isAnyArrayBuffer(value)) throw argumentType(name, ['ArrayBuffer', 'Buffer', 'TypedArray', 'DataView'], value);
  if (one.byteLength !== two.byteLength) throw coded(RangeError, 'ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH', 'Input buffers must have the same byte length');
  return host.equalInConstantTime(one, two);
}

const subtleDigest = async (name, data) => {
  const word = typeof name === 'string' ? name : name.name;
  if (!/^sha-(1|256|384|512)$/i.test(word)) throw new DOMException('Unrecognized algorithm name', 'NotSupportedError');
  return new Uint8Array(digestOf(word, view(data))).buffer;
};
const missing = (name) => () => { throw absent(`crypto.${name}`, 'only digests, HMAC, pbkdf2, hkdf and random numbers are built in; use a pure JavaScript package'); };
const subtle = { digest: subtleDigest };
for (const name of ['encrypt', 'decrypt', 'sign', 'verify', 'generateKey', 'deriveKey', 'deriveBits', 'importKey', 'exportKey', 'wrapKey', 'unwrapKey']) subtle[name] = async () => missing(`subtle.${name}`)();
const webcrypto = { getRandomValues, randomUUID, subtle };

const crypto = {
  Hash, Hmac, KeyObject, webcrypto, subtle, getRandomValues, randomUUID, randomBytes, pseudoRandomBytes: randomBytes, randomFillSync, randomInt, timingSafeEqual,
  pbkdf2Sync, pbkdf2: withCallback(pbkdf2Sync), hkdfSync, hkdf: withCallback(hkdfSync),
  randomFill: (data, ...rest) => { const callback = rest.pop(); loop.operation(() => callback(null, randomFillSync(data, ...rest))); },
  createHash: (name) => new Hash(name),
  createHmac: (name, key) => new Hmac(name, key),
  createSecretKey: (key, encoding) => new KeyObject(Buffer.from(view(key, encoding, 'key'))),
  hash: (name, data, encoding = 'hex') => given(digestOf(name, view(data, 'utf8')), encoding),
  getHashes: () => Object.keys(algorithms),
  getCiphers: () => [], getCurves: () => [], constants: {},
};
for (const name of ['createCipheriv', 'createDecipheriv', 'createSign', 'createVerify', 'sign', 'verify', 'createDiffieHellman', 'createECDH', 'generateKeyPair',
  'generateKeyPairSync', 'generateKey', 'generateKeySync', 'createPublicKey', 'createPrivateKey', 'publicEncrypt', 'privateDecrypt', 'scrypt', 'scryptSync', 'X509Certificate']) crypto[name] = missing(name);
return crypto;

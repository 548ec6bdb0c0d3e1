// TextEncoder and TextDecoder, and StringDecoder, which all must not tear characters that lie over a border.
const { coded, argumentType } = need('errors');
const types = need('types');
const { Buffer, encodingNumber } = need('buffer');

class TextEncoder {
  get encoding() { return 'utf-8'; }
  encode(text = '') {
    return host.encode(`${text}`, 0);
  }
  encodeInto(text, target) {
    if (!types.isUint8Array(target)) throw argumentType('dest', 'Uint8Array', target);
    let read = 0;
    let written = 0;
    for (const character of `${text}`) {
      const data = host.encode(character, 0);
      if (written + data.length > target.length) break;
      target.set(data, written);
      written += data.length;
      read += character.length;
    }
    return { read, written };
  }
}

const labels = new Map();
for (const [name, list] of Object.entries({
  'utf-8': 'utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8',
  'utf-16le': 'utf-16le utf-16 ucs-2 csunicode iso-10646-ucs-2 unicode unicodefeff',
  'windows-1252': 'latin1 iso-8859-1 iso8859-1 iso_8859-1 l1 ascii us-ascii windows-1252 cp1252 x-cp1252',
})) for (const label of list.split(' ')) labels.set(label, name);
// What windows-1252 has at 0x80 to 0x9f.
const windows = '\u20ac\x81\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\x8d\u017d\x8f\x90\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\x9d\u017e\u0178';

// How many bytes at the end of `data` begin a UTF-8 sequence that is not complete.
function openBytes(data) {
  for (let back = 1; back <= Math.min(3, data.length); back++) {
    const byte = data[data.length - back];
    if ((byte & 0xc0) === 0x80) continue;
    const size = byte >= 0xf0 && byte <= 0xf4 ? 4 : byte >= 0xe0 && byte < 0xf0 ? 3 : byte >= 0xc2 && byte < 0xe0 ? 2 : 1;
    if (size <= back) return 0;
    // A wrong second byte means that the sequence is over already.
    if (back >= 2) {
      const second = data[data.length - back + 1];
      const low = byte === 0xe0 ? 0xa0 : byte === 0xf0 ? 0x90 : 0x80;
      const high = byte === 0xed ? 0x9f : byte === 0xf4 ? 0x8f : 0xbf;
      if (second < low || second > high) return 0;
    }
    return back;
  }
  return 0;
}

class TextDecoder {
  #name;
  #fatal;
  #ignoreMark;
  #rest = new Uint8Array(0);
  #started = false;
  constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
    const name = labels.get(String(label).trim().toLowerCase());
    if (name === undefined) throw coded(RangeError, 'ERR_ENCODING_NOT_SUPPORTED', `The "${label}" encoding is not supported`);
    this.#name = name;
    this.#fatal = Boolean(fatal);
    this.#ignoreMark = Boolean(ignoreBOM);
  }
  get encoding() { return this.#name; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreMark; }
  decode(input = new Uint8Array(0), { stream = false } = {}) {
    let data;
    if (types.isAnyArrayBuffer(input)) data = new Uint8Array(input);
    else if (ArrayBuffer.isView(input)) data = new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    else throw argumentType('list', ['SharedArrayBuffer', 'ArrayBuffer', 'ArrayBufferView'], input);
    if (this.#rest.length > 0) data = Buffer.concat([this.#rest, data]);
    let keep = 0;
    if (stream) keep = this.#name === 'utf-8' ? openBytes(data) : this.#name === 'utf-16le' ? data.length % 2 : 0;
    this.#rest = data.slice(data.length - keep);
    data = data.subarray(0, data.length - keep);
    if (!stream) this.#rest = new Uint8Array(0);
    let text;
    if (this.#name === 'utf-8') {
      if (this.#fatal && !host.utf8Valid(data)) throw coded(TypeError, 'ERR_ENCODING_INVALID_ENCODED_DATA', 'The encoded data was not valid for encoding utf-8');
      text = host.decode(data, 0);
    } else if (this.#name === 'utf-16le') text = host.decode(data, 3) + (data.length % 2 ? '\ufffd' : '');
    else text = host.decode(data, 1).replace(/[\x80-\x9f]/g, (character) => windows[character.charCodeAt(0) - 0x80]);
    if (!this.#started && !this.#ignoreMark && text.startsWith('\ufeff') && this.#name !== 'windows-1252') text = text.slice(1);
    this.#started = stream && (this.#started || text !== '');
    return text;
  }
}

class StringDecoder {
  #rest = Buffer.alloc(0);
  #number;
  constructor(encoding = 'utf8') {
    this.#number = encodingNumber(encoding);
    this.encoding = ['utf8', 'latin1', 'ascii', 'utf16le', 'hex', 'base64', 'base64url'][this.#number];
  }
  write(input) {
    if (typeof input === 'string') return input;
    if (!ArrayBuffer.isView(input)) throw argumentType('buf', ['Buffer', 'TypedArray', 'DataView'], input);
    const data = Buffer.concat([this.#rest, new Uint8Array(input.buffer, input.byteOffset, input.byteLength)]);
    let keep = 0;
    if (this.#number === 0) keep = openBytes(data);
    else if (this.#number === 3) {
      keep = data.length % 2;
      const end = data.length - keep;
      // The first half of a pair waits for the second.
      if (end >= 2 && (data[end - 1] & 0xfc) === 0xd8) keep += 2;
    } else if (this.#number >= 5) keep = data.length % 3;
    this.#rest = data.subarray(data.length - keep);
    return host.decode(data.subarray(0, data.length - keep), this.#number);
  }
  end(input) {
    let text = input === undefined ? '' : this.write(input);
    if (this.#rest.length > 0) text += this.#number === 0 ? '\ufffd' : host.decode(this.#rest, this.#number);
    this.#rest = Buffer.alloc(0);
    return text;
  }
}

return { TextEncoder, TextDecoder, StringDecoder };

// querystring: the old way to read and write the part of a URL behind the "?".


function unescape(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    const data = String(text).replace(/%([0-9a-f]{2})/gi, (whole, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
    return need('buffer').Buffer.from(data, 'latin1').toString();
  }
}

const primitive = (value) => (typeof value === 'string' || (typeof value === 'number' && Number.isFinite(value)) || typeof value === 'bigint' || typeof value === 'boolean' ? String(value) : '');

function stringify(object, separator = '&', equals = '=', { encodeURIComponent: encode = module.escape } = {}) {
  if (object === null || typeof object !== 'object') return '';
  const parts = [];
  for (const [key, value] of Object.entries(object)) {
    for (const one of Array.isArray(value) ? value : [value]) parts.push(encode(primitive(key)) + equals + encode(primitive(one)));
  }
  return parts.join(separator);
}

function parse(text, separator = '&', equals = '=', { maxKeys = 1000, decodeURIComponent: decode = module.unescape } = {}) {
  const out = Object.create(null);
  if (typeof text !== 'string' || text.length === 0) return out;
  const parts = text.split(separator);
  for (const part of maxKeys > 0 ? parts.slice(0, maxKeys) : parts) {
    if (part === '') continue;
    const at = part.indexOf(equals);
    const key = decode((at === -1 ? part : part.slice(0, at)).replaceAll('+', ' '));
    const value = at === -1 ? '' : decode(part.slice(at + equals.length).replaceAll('+', ' '));
    if (!(key in out)) out[key] = value;
    else if (Array.isArray(out[key])) out[key].push(value);
    else out[key] = [out[key], value];
  }
  return out;
}

const module = { stringify, parse, escape: (text) => encodeURIComponent(String(text).toWellFormed()), unescape, encode: stringify, decode: parse };
return module;

// URL and URLSearchParams after the WHATWG standard, and the old url.parse on top of them.
//
// Host names are lower-cased and Punycode-encoded without the tables of UTS 46: what is more than a change of case
// there (full-width dots, sharp s) is not mapped.
const { coded, argumentType } = need('errors');

const ports = { 'http:': '80', 'https:': '443', 'ws:': '80', 'wss:': '443', 'ftp:': '21', 'file:': '' };
const special = (protocol) => Object.hasOwn(ports, protocol);

const control = (code) => code <= 0x1f || code > 0x7e;
const sets = {};
sets.fragment = ' "<>`';
sets.query = ' "#<>';
sets.specialQuery = `${sets.query}'`;
sets.path = `${sets.query}?\`{}^`;
sets.userinfo = `${sets.path}/:;=@[\\]|`;

function percent(text, set) {
  let out = '';
  for (const character of text) {
    if (!control(character.codePointAt(0)) && !sets[set]?.includes(character)) out += character;
    else for (const byte of host.encode(character, 0)) out += `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return out;
}

function unpercent(text) {
  if (!text.includes('%')) return text;
  const data = host.encode(text, 0);
  const out = [];
  for (let i = 0; i < data.length; i++) {
    const hex = data[i] === 37 ? String.fromCharCode(data[i + 1] ?? 0, data[i + 2] ?? 0) : '';
    if (/^[0-9a-f]{2}$/i.test(hex)) {
      out.push(Number.parseInt(hex, 16));
      i += 2;
    } else out.push(data[i]);
  }
  return host.decode(new Uint8Array(out), 0);
}

// ---- hosts --------------------------------------------------------------------------------------------------

function punycode(label) {
  const points = Array.from(label, (character) => character.codePointAt(0));
  const basic = points.filter((point) => point < 128);
  let out = String.fromCharCode(...basic);
  if (basic.length > 0) out += '-';
  let n = 128, delta = 0, bias = 72, done = basic.length;
  while (done < points.length) {
    const next = Math.min(...points.filter((point) => point >= n));
    delta += (next - n) * (done + 1);
    n = next;
    for (const point of points) {
      if (point < n) delta++;
      if (point !== n) continue;
      let q = delta;
      for (let k = 36; ; k += 36) {
        const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
        if (q < t) break;
        const digit = t + ((q - t) % (36 - t));
        out += String.fromCharCode(digit + (digit < 26 ? 97 : 22));
        q = Math.floor((q - t) / (36 - t));
      }
      out += String.fromCharCode(q + (q < 26 ? 97 : 22));
      let d = done === basic.length ? Math.floor(delta / 700) : delta >> 1;
      d += Math.floor(d / (done + 1));
      let k = 0;
      for (; d > 455; k += 36) d = Math.floor(d / 35);
      bias = k + Math.floor((36 * d) / (d + 38));
      delta = 0;
      done++;
    }
    delta++;
    n++;
  }
  return out;
}

function unpunycode(text) {
  const at = text.lastIndexOf('-');
  const out = Array.from(at > 0 ? text.slice(0, at) : '', (character) => character.codePointAt(0));
  let n = 128, i = 0, bias = 72;
  for (let index = at > 0 ? at + 1 : 0; index < text.length;) {
    const old = i;
    for (let w = 1, k = 36; ; k += 36) {
      const code = text.charCodeAt(index++);
      const digit = code >= 48 && code <= 57 ? code - 22 : code >= 97 && code <= 122 ? code - 97 : 36;
      if (digit >= 36 || i > 2 ** 31) return text;
      i += digit * w;
      const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
      if (digit < t) break;
      w *= 36 - t;
    }
    const size = out.length + 1;
    let d = old === 0 ? Math.floor((i - old) / 700) : (i - old) >> 1;
    d += Math.floor(d / size);
    let k = 0;
    for (; d > 455; k += 36) d = Math.floor(d / 35);
    bias = k + Math.floor((36 * d) / (d + 38));
    n += Math.floor(i / size);
    if (n > 0x10ffff) return text;
    i %= size;
    out.splice(i++, 0, n);
  }
  return String.fromCodePoint(...out);
}

const domainToASCII = (domain) => domain.toLowerCase().normalize('NFC').split('.')
  // eslint-disable-next-line no-control-regex
  .map((label) => (/[^\x00-\x7f]/.test(label) ? `xn--${punycode(label)}` : label)).join('.');
const domainToUnicode = (domain) => domain.split('.').map((label) => (label.startsWith('xn--') ? unpunycode(label.slice(4)) : label)).join('.');

function ipv4Number(text) {
  if (text === '') return undefined;
  if (/^0x[0-9a-f]*$/i.test(text)) return text.length === 2 ? 0 : Number.parseInt(text, 16);
  if (/^0[0-7]*$/.test(text)) return Number.parseInt(text, 8);
  return /^(0|[1-9]\d*)$/.test(text) ? Number(text) : undefined;
}

// An address as text, undefined when it is none, null when it is a wrong one.
function ipv4(domain) {
  const parts = domain.split('.');
  if (parts.length > 1 && parts.at(-1) === '') parts.pop();
  if (!/^(\d+|0x[0-9a-f]*)$/i.test(parts.at(-1))) return undefined;
  const numbers = parts.map(ipv4Number);
  if (parts.length > 4 || numbers.includes(undefined)) return null;
  if (numbers.slice(0, -1).some((number) => number > 255) || numbers.at(-1) >= 256 ** (5 - numbers.length)) return null;
  let value = numbers.at(-1);
  numbers.slice(0, -1).forEach((number, i) => { value += number * 256 ** (3 - i); });
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.');
}

function ipv6(text) {
  let tail = text;
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(text);
  if (dotted) {
    const bytes = dotted.slice(2).map(Number);
    if (bytes.some((byte, i) => byte > 255 || String(byte) !== dotted[2 + i])) return null;
    tail = `${dotted[1]}${((bytes[0] << 8) | bytes[1]).toString(16)}:${((bytes[2] << 8) | bytes[3]).toString(16)}`;
  }
  const halves = tail.split('::');
  if (halves.length > 2) return null;
  const pieces = (half) => (half === '' ? [] : half.split(':'));
  const [head, rest = null] = halves.map(pieces);
  const have = head.length + (rest?.length ?? 0);
  if (rest === null ? have !== 8 : have > 7) return null;
  const all = rest === null ? head : [...head, ...Array(8 - have).fill('0'), ...rest];
  if (all.some((piece) => !/^[0-9a-f]{1,4}$/i.test(piece))) return null;
  const numbers = all.map((piece) => Number.parseInt(piece, 16));
  // The longest run of zeros, the first of equals, is left out.
  let best = { at: -1, size: 1 };
  for (let i = 0; i < 8; i++) {
    let size = 0;
    while (i + size < 8 && numbers[i + size] === 0) size++;
    if (size > best.size) best = { at: i, size };
    i += size;
  }
  const hex = (list) => list.map((number) => number.toString(16)).join(':');
  if (best.at === -1) return `[${hex(numbers)}]`;
  return `[${hex(numbers.slice(0, best.at))}::${hex(numbers.slice(best.at + best.size))}]`;
}

function parseHost(text, isSpecial) {
  if (text.startsWith('[')) return text.endsWith(']') ? ipv6(text.slice(1, -1)) : null;
  // eslint-disable-next-line no-control-regex
  if (!isSpecial) return /[\0\t\n\r #/:<>?@[\\\]^|]/.test(text) ? null : percent(text, 'none');
  const domain = domainToASCII(unpercent(text));
  // eslint-disable-next-line no-control-regex
  if (domain === '' || /[\x00-\x20"#%/:<>?@[\\\]^`{|}\x7f]/.test(domain)) return null;
  const address = ipv4(domain);
  return address === undefined ? domain : address;
}

// ---- parsing ------------------------------------------------------------------------------------------------

const drive = /^[a-zA-Z][:|]$/;

function pathSegments(text, base, isSpecial, isFile) {
  const out = [...base];
  const parts = text.split(isSpecial ? /[/\\]/ : '/');
  parts.forEach((part, i) => {
    const last = i === parts.length - 1;
    const plain = part.replace(/%2e/gi, '.');
    if (plain === '..') {
      if (!(isFile && out.length === 1 && drive.test(out[0]))) out.pop();
      if (last) out.push('');
    } else if (plain === '.') {
      if (last) out.push('');
    } else out.push(isFile && out.length === 0 && drive.test(part) ? `${part[0]}:` : percent(part, 'path'));
  });
  return out;
}

// -> { protocol, username, password, host (null: none), port, path (list, or text when opaque), query, fragment } or null
function parse(input, base) {
  // eslint-disable-next-line no-control-regex
  let rest = input.replace(/^[\x00-\x20]+|[\x00-\x20]+$/g, '').replace(/[\t\n\r]/g, '');
  const url = { protocol: '', username: '', password: '', host: null, port: '', path: [], query: null, fragment: null };
  let at = rest.indexOf('#');
  if (at !== -1) {
    url.fragment = percent(rest.slice(at + 1), 'fragment');
    rest = rest.slice(0, at);
  }
  const scheme = /^([a-zA-Z][a-zA-Z0-9+.-]*):/.exec(rest);
  if (scheme) {
    url.protocol = scheme[0].toLowerCase();
    rest = rest.slice(scheme[0].length);
  } else {
    if (!base) return null;
    url.protocol = base.protocol;
    if (typeof base.path === 'string') {
      if (rest !== '' || at === -1) return null;
      return { ...base, fragment: url.fragment };
    }
  }
  const isSpecial = special(url.protocol);
  const isFile = url.protocol === 'file:';
  at = rest.indexOf('?');
  if (at !== -1) {
    url.query = percent(rest.slice(at + 1), isSpecial ? 'specialQuery' : 'query');
    rest = rest.slice(0, at);
  }
  const slash = isSpecial ? /^[/\\]/ : /^\//;
  const inherits = base && typeof base.path !== 'string' && base.protocol === url.protocol && (!scheme || (isSpecial && !slash.test(rest)));
  if (scheme && !isSpecial && !rest.startsWith('/')) {
    url.path = percent(rest, 'none');
    return url;
  }
  let authority = null;
  if (isSpecial && !isFile && !inherits && scheme) {
    rest = rest.replace(/^[/\\]*/, '');
    authority = /^[^/\\]*/.exec(rest)[0];
  } else if (isSpecial ? /^[/\\]{2}/.test(rest) : rest.startsWith('//')) {
    rest = rest.slice(2);
    authority = (isSpecial ? /^[^/\\]*/ : /^[^/]*/).exec(rest)[0];
    // "file://C:/x" has no host.
    if (isFile && drive.test(authority)) {
      authority = '';
      rest = `/${rest}`;
    }
  }
  if (authority !== null) {
    rest = rest.slice(authority.length);
    const mark = authority.lastIndexOf('@');
    if (mark !== -1) {
      const [, name, secret = ''] = /^([^:]*)(?::(.*))?$/s.exec(authority.slice(0, mark));
      url.username = percent(name, 'userinfo');
      url.password = percent(secret, 'userinfo');
      authority = authority.slice(mark + 1);
      if (authority === '') return null;
    }
    const port = isFile ? null : /:(\d*)$/.exec(authority);
    if (port && !authority.endsWith(']')) {
      if (Number(port[1]) > 65535) return null;
      url.port = port[1] === '' || String(Number(port[1])) === ports[url.protocol] ? '' : String(Number(port[1]));
      authority = authority.slice(0, port.index);
      if (authority === '') return null;
    }
    if (authority === '') {
      if (isSpecial && !isFile) return null;
      url.host = '';
    } else {
      url.host = parseHost(authority, isSpecial);
      if (url.host === null) return null;
      if (isFile && url.host === 'localhost') url.host = '';
    }
    if (rest === '' && !isSpecial) url.path = [];
    else url.path = pathSegments(rest.replace(slash, ''), [], isSpecial, isFile);
    return url;
  }
  if (inherits || !scheme) {
    url.username = base.username;
    url.password = base.password;
    url.host = base.host;
    url.port = base.port;
    if (rest === '') {
      url.path = [...base.path];
      if (url.query === null && at === -1) url.query = base.query;
      return url;
    }
    if (slash.test(rest)) {
      const keep = isFile && drive.test(base.path[0] ?? '') ? [base.path[0]] : [];
      url.path = pathSegments(rest.slice(1), keep, isSpecial, isFile);
    } else url.path = pathSegments(rest, base.path.slice(0, -1), isSpecial, isFile);
    return url;
  }
  if (isFile) url.host = '';
  url.path = pathSegments(rest.replace(slash, ''), [], isSpecial, isFile);
  return url;
}

function pathText(url) {
  if (typeof url.path === 'string') return url.path;
  return url.path.length === 0 ? (special(url.protocol) ? '/' : '') : `/${url.path.join('/')}`;
}

function serialize(url, withFragment = true) {
  let out = url.protocol;
  if (url.host !== null) {
    out += '//';
    if (url.username || url.password) out += `${url.username}${url.password ? `:${url.password}` : ''}@`;
    out += url.host + (url.port ? `:${url.port}` : '');
  } else if (typeof url.path !== 'string' && url.path.length > 1 && url.path[0] === '') out += '/.';
  out += pathText(url);
  if (url.query !== null) out += `?${url.query}`;
  if (withFragment && url.fragment !== null) out += `#${url.fragment}`;
  return out;
}

// ---- the classes --------------------------------------------------------------------------------------------

function invalid(input, base) {
  const error = coded(TypeError, 'ERR_INVALID_URL', 'Invalid URL');
  error.input = input;
  if (base !== undefined) error.base = base;
  return error;
}

class URL {
  #url;
  #params;
  constructor(input, base) {
    if (arguments.length === 0) throw coded(TypeError, 'ERR_MISSING_ARGS', 'The "url" argument must be specified');
    input = `${input}`;
    let from = null;
    if (base !== undefined) {
      base = `${base}`;
      from = parse(base, null);
      if (from === null) throw invalid(input, base);
    }
    this.#url = parse(input, from);
    if (this.#url === null) throw invalid(input, base);
  }
  static canParse(input, base) {
    const from = base === undefined ? null : parse(`${base}`, null);
    return (base === undefined || from !== null) && parse(`${input}`, from) !== null;
  }
  static parse(input, base) {
    return URL.canParse(input, base) ? new URL(input, base) : null;
  }
  static createObjectURL() { throw need('errors').absent('URL.createObjectURL', 'pass the Blob itself'); }
  get href() { return serialize(this.#url); }
  set href(value) {
    const url = parse(`${value}`, null);
    if (url === null) throw invalid(`${value}`);
    this.#url = url;
    this.#refresh();
  }
  get origin() {
    const { protocol, host, port } = this.#url;
    if (protocol === 'blob:') {
      const inner = parse(pathText(this.#url), null);
      return inner && (inner.protocol === 'http:' || inner.protocol === 'https:') ? `${inner.protocol}//${inner.host}${inner.port ? `:${inner.port}` : ''}` : 'null';
    }
    return special(protocol) && protocol !== 'file:' ? `${protocol}//${host}${port ? `:${port}` : ''}` : 'null';
  }
  get protocol() { return this.#url.protocol; }
  set protocol(value) {
    const match = /^([a-zA-Z][a-zA-Z0-9+.-]*)(:|$)/.exec(`${value}`);
    if (!match) return;
    const wanted = `${match[1].toLowerCase()}:`;
    if (special(wanted) !== special(this.#url.protocol) || (wanted === 'file:' && (this.#url.username || this.#url.port))) return;
    this.#url.protocol = wanted;
    if (this.#url.port === ports[wanted]) this.#url.port = '';
  }
  get username() { return this.#url.username; }
  set username(value) { if (this.#url.host) this.#url.username = percent(`${value}`, 'userinfo'); }
  get password() { return this.#url.password; }
  set password(value) { if (this.#url.host) this.#url.password = percent(`${value}`, 'userinfo'); }
  get host() { return (this.#url.host ?? '') + (this.#url.port ? `:${this.#url.port}` : ''); }
  set host(value) {
    if (typeof this.#url.path === 'string') return;
    const [, name, port] = /^([^/?#\\]*?)(?::(\d*))?(?=[/?#\\]|$)/.exec(`${value}`) ?? [];
    const parsed = name ? parseHost(name, special(this.#url.protocol)) : null;
    if (parsed === null) return;
    this.#url.host = parsed;
    if (port) this.port = port;
  }
  get hostname() { return this.#url.host ?? ''; }
  set hostname(value) {
    if (typeof this.#url.path === 'string') return;
    const parsed = `${value}` === '' ? null : parseHost(`${value}`.replace(/[/?#\\].*$/s, ''), special(this.#url.protocol));
    if (parsed !== null) this.#url.host = parsed;
  }
  get port() { return this.#url.port; }
  set port(value) {
    if (!this.#url.host || this.#url.protocol === 'file:') return;
    const digits = /^\d*/.exec(`${value}`)[0];
    if (`${value}` === '') this.#url.port = '';
    else if (digits !== '' && Number(digits) <= 65535) this.#url.port = String(Number(digits)) === ports[this.#url.protocol] ? '' : String(Number(digits));
  }
  get pathname() { return pathText(this.#url); }
  set pathname(value) {
    if (typeof this.#url.path === 'string') return;
    const text = `${value}`.replace(/[?#]/g, (one) => (one === '?' ? '%3F' : '%23'));
    this.#url.path = pathSegments(text.replace(special(this.#url.protocol) ? /^[/\\]/ : /^\//, ''), [], special(this.#url.protocol), this.#url.protocol === 'file:');
  }
  get search() { return this.#url.query ? `?${this.#url.query}` : ''; }
  set search(value) {
    const text = `${value}`.replace(/^\?/, '');
    this.#url.query = `${value}` === '' ? null : percent(text, special(this.#url.protocol) ? 'specialQuery' : 'query');
    this.#refresh();
  }
  get hash() { return this.#url.fragment ? `#${this.#url.fragment}` : ''; }
  set hash(value) {
    this.#url.fragment = `${value}` === '' ? null : percent(`${value}`.replace(/^#/, ''), 'fragment');
  }
  get searchParams() {
    this.#params ??= attach(new URLSearchParams(this.#url.query ?? ''), (text) => { this.#url.query = text === '' ? null : text; });
    return this.#params;
  }
  #refresh() {
    if (this.#params) refill(this.#params, this.#url.query ?? '');
  }
  toString() { return this.href; }
  toJSON() { return this.href; }
  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    if (depth < 0) return this.constructor.name === 'URL' ? '[URL]' : this.href;
    const shown = {};
    for (const key of ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'searchParams', 'hash']) shown[key] = this[key];
    return `${this.constructor.name} ${inspect(shown, options)}`;
  }
}

const decodeForm = (text) => unpercent(text.replaceAll('+', ' '));
const encodeForm = (text) => encodeURIComponent(text.toWellFormed()).replace(/%20/g, '+').replace(/[!'()~]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
const parseForm = (text) => text.split('&').filter((part) => part !== '').map((part) => {
  const at = part.indexOf('=');
  return at === -1 ? [decodeForm(part), ''] : [decodeForm(part.slice(0, at)), decodeForm(part.slice(at + 1))];
});

let attach, refill;

class URLSearchParams {
  #list = [];
  #changed = null;
  static {
    attach = (params, changed) => {
      params.#changed = changed;
      return params;
    };
    refill = (params, text) => { params.#list = parseForm(text); };
  }
  constructor(init = undefined) {
    if (init === undefined || init === null) return;
    if (typeof init === 'object' || typeof init === 'function') {
      if (typeof init[Symbol.iterator] === 'function') {
        for (const pair of init) {
          if (pair == null || typeof pair[Symbol.iterator] !== 'function' || [...pair].length !== 2) throw coded(TypeError, 'ERR_INVALID_TUPLE', 'Each query pair must be an iterable [name, value] tuple');
          const [name, value] = pair;
          this.#list.push([`${name}`, `${value}`]);
        }
      } else for (const key of Reflect.ownKeys(init)) if (typeof key === 'string' && Object.prototype.propertyIsEnumerable.call(init, key)) this.#list.push([key, `${init[key]}`]);
    } else this.#list = parseForm(`${init}`.replace(/^\?/, ''));
  }
  #update() { this.#changed?.(this.toString()); }
  get size() { return this.#list.length; }
  append(name, value) {
    this.#list.push([`${name}`, `${value}`]);
    this.#update();
  }
  delete(name, value) {
    this.#list = this.#list.filter(([key, one]) => key !== `${name}` || (value !== undefined && one !== `${value}`));
    this.#update();
  }
  get(name) { return this.#list.find(([key]) => key === `${name}`)?.[1] ?? null; }
  getAll(name) { return this.#list.filter(([key]) => key === `${name}`).map(([, value]) => value); }
  has(name, value) { return this.#list.some(([key, one]) => key === `${name}` && (value === undefined || one === `${value}`)); }
  set(name, value) {
    const at = this.#list.findIndex(([key]) => key === `${name}`);
    if (at === -1) this.#list.push([`${name}`, `${value}`]);
    else {
      this.#list[at][1] = `${value}`;
      this.#list = this.#list.filter(([key], i) => i <= at || key !== `${name}`);
    }
    this.#update();
  }
  sort() {
    this.#list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#update();
  }
  forEach(callback, self) {
    need('errors').checkFunction(callback, 'callback');
    for (const [name, value] of this.#list) callback.call(self, value, name, this);
  }
  * entries() { for (const [name, value] of this.#list) yield [name, value]; }
  * keys() { for (const [name] of this.#list) yield name; }
  * values() { for (const [, value] of this.#list) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#list.map(([name, value]) => `${encodeForm(name)}=${encodeForm(value)}`).join('&'); }
  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    if (this.#list.length === 0) return 'URLSearchParams {}';
    return `URLSearchParams { ${this.#list.map(([name, value]) => `${inspect(name, options)} => ${inspect(value, options)}`).join(', ')} }`;
  }
}
for (const [Class, tag] of [[URL, 'URL'], [URLSearchParams, 'URLSearchParams']]) {
  Object.defineProperty(Class.prototype, Symbol.toStringTag, { value: tag, configurable: true });
  for (const key of Object.getOwnPropertyNames(Class.prototype)) if (key !== 'constructor') Object.defineProperty(Class.prototype, key, { enumerable: true });
}

// ---- files --------------------------------------------------------------------------------------------------

function fileURLToPath(value) {
  const url = typeof value === 'string' ? new URL(value) : value;
  if (!(url instanceof URL)) throw argumentType('path', ['string', 'URL'], value);
  if (url.protocol !== 'file:') throw coded(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
  if (url.hostname !== '') throw coded(TypeError, 'ERR_INVALID_FILE_URL_HOST', `File URL host must be "localhost" or empty on ${need('process').platform}`);
  if (/%2f/i.test(url.pathname)) throw coded(TypeError, 'ERR_INVALID_FILE_URL_PATH', 'File URL path must not include encoded / characters');
  return decodeURIComponent(url.pathname);
}

function pathToFileURL(path) {
  const full = need('path').resolve(path) + (path.endsWith('/') && path !== '/' ? '/' : '');
  return new URL(`file://${full.replace(/[%\\\n\r\t?#]/g, (one) => encodeURIComponent(one))}`);
}

// ---- the old interface --------------------------------------------------------------------------------------

class Url {
  protocol = null; slashes = null; auth = null; host = null; port = null; hostname = null; hash = null; search = null;
  query = null; pathname = null; path = null; href = null;
}

const slashed = /^(?:https?|ftp|gopher|file|wss?):$/;

function parseOld(text, withQuery = false, slashesDenoteHost = false) {
  if (text instanceof Url) return text;
  need('errors').checkString(text, 'url');
  const out = new Url();
  let rest = text.trim();
  const [, protocol] = /^([a-zA-Z][a-zA-Z0-9.+-]*:)/.exec(rest) ?? [];
  if (protocol) {
    out.protocol = protocol.toLowerCase();
    rest = rest.slice(protocol.length);
  }
  let at = rest.indexOf('#');
  if (at !== -1) {
    out.hash = rest.slice(at);
    rest = rest.slice(0, at);
  }
  at = rest.indexOf('?');
  if (at !== -1) {
    out.search = rest.slice(at);
    out.query = withQuery ? need('querystring').parse(rest.slice(at + 1)) : rest.slice(at + 1);
    rest = rest.slice(0, at);
  } else if (withQuery) {
    out.search = null;
    out.query = Object.create(null);
  }
  if (rest.startsWith('//') && (out.protocol || slashesDenoteHost)) {
    out.slashes = true;
    const [, authority, path] = /^\/\/([^/\\]*)(.*)$/s.exec(rest);
    rest = path;
    const mark = authority.lastIndexOf('@');
    if (mark !== -1) out.auth = unpercent(authority.slice(0, mark));
    const [, name, port] = /^(.*?)(?::(\d*))?$/.exec(authority.slice(mark + 1));
    out.hostname = domainToASCII(name.replace(/^\[|\]$/g, ''));
    out.port = port || null;
    out.host = (name.includes(':') ? `[${out.hostname}]` : out.hostname) + (port ? `:${port}` : '');
  }
  if (rest !== '') out.pathname = percent(rest.replaceAll('\\', '/'), 'path').replaceAll("'", '%27');
  else if (out.host !== null && slashed.test(out.protocol ?? '')) out.pathname = '/';
  if (out.pathname !== null || out.search !== null) out.path = (out.pathname ?? '') + (out.search ?? '');
  out.href = format(out);
  return out;
}

function format(value, { auth = true, fragment = true, search = true, unicode = false } = {}) {
  if (typeof value === 'string') value = parseOld(value);
  if (value instanceof URL) {
    const copy = new URL(value.href);
    if (!auth) copy.username = copy.password = '';
    if (!fragment) copy.hash = '';
    if (!search) copy.search = '';
    return unicode ? copy.href.replace(copy.hostname, domainToUnicode(copy.hostname)) : copy.href;
  }
  const protocol = value.protocol ? value.protocol.replace(/:?$/, ':') : '';
  let name = value.host ?? (value.hostname != null ? (value.hostname.includes(':') ? `[${value.hostname}]` : value.hostname) + (value.port ? `:${value.port}` : '') : null);
  if (name !== null && value.auth) name = `${encodeURIComponent(value.auth).replace(/%3A/i, ':')}@${name}`;
  const query = value.query && typeof value.query === 'object' ? need('querystring').stringify(value.query) : '';
  const asked = value.search || (query ? `?${query}` : '');
  const hash = value.hash ? value.hash.replace(/^#?/, '#') : '';
  let path = value.pathname ?? '';
  let head = protocol;
  if (value.slashes || ((protocol === '' || slashed.test(protocol)) && name !== null)) {
    head += `//${name ?? ''}`;
    if (path && !path.startsWith('/')) path = `/${path}`;
  }
  return head + path.replace(/[?#]/g, encodeURIComponent) + (asked && !asked.startsWith('?') ? `?${asked}` : asked.replace('#', '%23')) + hash;
}

function resolve(from, to) {
  const base = new URL(from, 'resolve://');
  const url = new URL(to, base);
  if (url.protocol === 'resolve:') return url.pathname.replace(/^\//, from.startsWith('/') || to.startsWith('/') ? '/' : '') + url.search + url.hash;
  return url.href;
}

return {
  URL, URLSearchParams, Url, parse: parseOld, format, resolve, resolveObject: (from, to) => parseOld(resolve(from, to)), domainToASCII, domainToUnicode,
  fileURLToPath, pathToFileURL,
  urlToHttpOptions: (url) => ({
    __proto__: null, protocol: url.protocol, hostname: url.hostname.replace(/^\[|\]$/g, ''), hash: url.hash, search: url.search, pathname: url.pathname,
    path: `${url.pathname}${url.search}`, href: url.href, ...(url.port !== '' && { port: Number(url.port) }),
    ...((url.username || url.password) && { auth: `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}` }),
  }),
};

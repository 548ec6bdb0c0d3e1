// util.inspect and util.format: what console shows. The layout is node's, since people compare outputs.
const types = need('types');

const defaults = {
  showHidden: false, depth: 2, colors: false, customInspect: true, showProxy: false, maxArrayLength: 100,
  maxStringLength: 10000, breakLength: 128, compact: 3, sorted: false, getters: false, numericSeparator: false,
};
const custom = Symbol.for('nodejs.util.inspect.custom');

inspect.custom = custom;
inspect.defaultOptions = { ...defaults };
inspect.colors = Object.assign(Object.create(null), {
  reset: [0, 0], bold: [1, 22], dim: [2, 22], italic: [3, 23], underline: [4, 24], inverse: [7, 27], black: [30, 39],
  red: [31, 39], green: [32, 39], yellow: [33, 39], blue: [34, 39], magenta: [35, 39], cyan: [36, 39], white: [37, 39],
  gray: [90, 39], grey: [90, 39],
});
inspect.styles = Object.assign(Object.create(null), {
  special: 'cyan', number: 'yellow', bigint: 'yellow', boolean: 'yellow', undefined: 'grey', null: 'bold', string: 'green',
  symbol: 'green', date: 'magenta', regexp: 'red', module: 'underline',
});

function inspect(value, options, ...legacy) {
  const state = { ...defaults, ...inspect.defaultOptions, seen: [], indent: 0, current: 0, circular: undefined };
  if (inspect.defaultOptions.breakLength === 128) state.breakLength = 80;
  if (typeof options === 'boolean') {
    state.showHidden = options;
    if (legacy[0] !== undefined) state.depth = legacy[0];
    if (legacy[1] !== undefined) state.colors = legacy[1];
  } else if (options) {
    for (const key of Object.keys(options)) if (key in defaults || key === 'stylize') state[key] = options[key];
    state.userOptions = options;
  }
  if (state.maxArrayLength === null) state.maxArrayLength = Infinity;
  if (state.maxStringLength === null) state.maxStringLength = Infinity;
  if (state.depth === null || state.depth === undefined) state.depth = state.depth === null ? Infinity : 2;
  state.stylize = state.colors ? colored : plain;
  return show(state, value, 0, true);
}

const plain = (text) => text;

function colored(text, style) {
  const code = inspect.colors[inspect.styles[style]];
  return code === undefined ? text : `\u001b[${code[0]}m${text}\u001b[${code[1]}m`;
}

// ---- primitives -----------------------------------------------------------------------------------------------

const escapes = { '\b': '\\b', '\t': '\\t', '\n': '\\n', '\f': '\\f', '\r': '\\r', '\\': '\\\\' };

function quote(text) {
  const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes('`') && !text.includes('${') ? '`' : "'";
  // eslint-disable-next-line no-control-regex
  const special = /[\x00-\x1f\x7f-\x9f\\'\ud800-\udfff]/;
  if (!special.test(text)) return mark + text + mark;
  let out = '';
  for (const character of text) {
    const code = character.codePointAt(0);
    if (character === mark) out += `\\${character}`;
    else if (escapes[character]) out += escapes[character];
    else if (code < 32 || (code > 126 && code < 160)) out += `\\x${code.toString(16).toUpperCase().padStart(2, '0')}`;
    else if (code >= 0xd800 && code <= 0xdfff) out += `\\u${code.toString(16).toUpperCase()}`;
    else out += character;
  }
  return mark + out + mark;
}

function showNumber(value, state) {
  if (Object.is(value, -0)) return '-0';
  if (!state.numericSeparator) return String(value);
  const [, sign, whole, rest] = /^(-?)(\d+)(.*)$/.exec(String(value)) ?? [];
  if (whole === undefined || /e/.test(rest)) return String(value);
  const fraction = rest.slice(1).replace(/(\d{3})(?=\d)/g, '$1_');
  return sign + whole.replace(/\B(?=(\d{3})+$)/g, '_') + (fraction ? `.${fraction}` : '');
}

function showPrimitive(state, value, own) {
  switch (typeof value) {
    case 'string': {
      let text = value;
      let trailer = '';
      if (text.length > state.maxStringLength) {
        const left = text.length - state.maxStringLength;
        text = text.slice(0, state.maxStringLength);
        trailer = `... ${left} more character${left > 1 ? 's' : ''}`;
      }
      // Long texts inside of objects are broken at their line ends.
      if (own !== true && state.compact !== true && text.length > 16 && text.length > state.breakLength - state.indent - 4) {
        const lines = text.split(/(?<=\n)/);
        return lines.map((line) => state.stylize(quote(line), 'string')).join(` +\n${' '.repeat(state.indent + 2)}`) + trailer;
      }
      return state.stylize(quote(text), 'string') + trailer;
    }
    case 'number': return state.stylize(showNumber(value, state), 'number');
    case 'bigint': return state.stylize(`${state.numericSeparator ? String(value).replace(/\B(?=(\d{3})+$)/g, '_') : value}n`, 'bigint');
    case 'boolean': return state.stylize(String(value), 'boolean');
    case 'undefined': return state.stylize('undefined', 'undefined');
    default: return state.stylize(Symbol.prototype.toString.call(value), 'symbol');
  }
}

// ---- objects --------------------------------------------------------------------------------------------------

function show(state, value, depth, top) {
  if (value === null) return state.stylize('null', 'null');
  if (typeof value !== 'object' && typeof value !== 'function') return showPrimitive(state, value, top);
  if (types.isProxy(value)) {
    if (state.showProxy) return showProxy(state, value, depth);
    let inner = value;
    while (types.isProxy(inner)) inner = host.proxy(inner)[0];
    if (inner === null || inner === undefined) return '<Revoked Proxy>';
    const method = safely(() => value[custom]);
    if (typeof method !== 'function') value = inner;
  }
  if (state.customInspect) {
    const method = value[custom];
    if (typeof method === 'function' && method !== inspect && !(value.constructor?.prototype === value)) {
      const left = state.depth - depth;
      const options = { ...state.userOptions, ...publicOptions(state), depth: left, stylize: state.stylize };
      const result = method.call(value, left, options, inspect);
      if (result !== value) {
        if (typeof result !== 'object' || result === null) {
          return typeof result === 'string' ? result.replaceAll('\n', `\n${' '.repeat(state.indent)}`) : showPrimitive(state, result);
        }
        return show(state, result, depth);
      }
    }
  }
  if (state.seen.includes(value)) {
    state.circular ??= new Map();
    if (!state.circular.has(value)) state.circular.set(value, state.circular.size + 1);
    return state.stylize(`[Circular *${state.circular.get(value)}]`, 'special');
  }
  return showObject(state, value, depth);
}

function publicOptions(state) {
  const out = {};
  for (const key of Object.keys(defaults)) out[key] = state[key];
  return out;
}

function safely(action) {
  try {
    return action();
  } catch {
    return undefined;
  }
}

function showProxy(state, value, depth) {
  if (depth > state.depth) return state.stylize('Proxy [Array]', 'special');
  const [target, handler] = host.proxy(value);
  state.indent += 2;
  const parts = [show(state, target, depth + 1), show(state, handler, depth + 1)];
  state.indent -= 2;
  return join(state, parts, '', ['Proxy [', ']'], false, depth);
}

function constructorName(value) {
  for (let at = value; at; at = Object.getPrototypeOf(at)) {
    const found = Object.getOwnPropertyDescriptor(at, 'constructor');
    if (found !== undefined && typeof found.value === 'function' && found.value.name !== '' && isInstance(value, found.value)) {
      return found.value.name;
    }
  }
  return null;
}

function isInstance(value, constructor) {
  return safely(() => value instanceof constructor) ?? false;
}

// "Name(size) " or "Name(size) [tag] ", or with the fallback when there is no constructor.
function prefix(name, tag, fallback, size = '') {
  const marked = tag !== '' && tag !== name ? `[${tag}] ` : '';
  if (name === null) return tag !== '' && fallback !== tag ? `[${fallback}${size}: null prototype] [${tag}] ` : `[${fallback}${size}: null prototype] `;
  return `${name}${size} ${marked}`;
}

function ownKeys(state, value) {
  const symbols = Object.getOwnPropertySymbols(value);
  if (state.showHidden) return [...Object.getOwnPropertyNames(value), ...symbols];
  let names;
  try {
    names = Object.keys(value);
  } catch {
    names = Object.getOwnPropertyNames(value);
  }
  return [...names, ...symbols.filter((symbol) => Object.prototype.propertyIsEnumerable.call(value, symbol))];
}

const isIndex = (key) => typeof key === 'string' && /^(0|[1-9]\d{0,9})$/.test(key) && Number(key) < 2 ** 32 - 1;

function showObject(state, value, depth) {
  const name = constructorName(value);
  let tag = safely(() => value[Symbol.toStringTag]);
  if (typeof tag !== 'string' || tag === '' || (state.showHidden ? Object.hasOwn : (o, k) => Object.prototype.propertyIsEnumerable.call(o, k))(value, Symbol.toStringTag)) tag = '';
  let keys = ownKeys(state, value);
  const kind = types.kind(value);
  let braces = ['{', '}'];
  let base = '';
  let entries = null;
  let grouped = false;

  if (Array.isArray(value)) {
    const head = name !== 'Array' || tag !== '' ? prefix(name, tag, 'Array', `(${value.length})`) : '';
    keys = keys.filter((key) => !isIndex(key) && !(state.showHidden && key === 'length' && false));
    braces = [`${head}[`, ']'];
    if (value.length === 0 && keys.length === 0) return `${braces[0]}]`;
    grouped = true;
    entries = () => showArray(state, value, depth);
  } else if (kind === 'Set') {
    const head = prefix(name, tag, 'Set', `(${value.size})`);
    if (value.size === 0 && keys.length === 0) return `${head}{}`;
    braces = [`${head}{`, '}'];
    entries = () => indented(state, () => limited(state, value.size, Set.prototype.values.call(value), (item) => show(state, item, depth + 1)));
  } else if (kind === 'Map') {
    const head = prefix(name, tag, 'Map', `(${value.size})`);
    if (value.size === 0 && keys.length === 0) return `${head}{}`;
    braces = [`${head}{`, '}'];
    entries = () => indented(state, () => limited(state, value.size, Map.prototype.entries.call(value),
      ([key, item]) => `${show(state, key, depth + 1)} => ${show(state, item, depth + 1)}`));
  } else if (kind === 'TypedArray') {
    keys = keys.filter((key) => !isIndex(key));
    const type = types.tagOf(value);
    const head = prefix(name, tag === type ? '' : tag, type, `(${value.length})`);
    braces = [`${head}[`, ']'];
    if (value.length === 0 && keys.length === 0 && !state.showHidden) return `${braces[0]}]`;
    grouped = true;
    entries = () => {
      const shown = Math.min(Math.max(0, state.maxArrayLength), value.length);
      const out = [];
      for (let i = 0; i < shown; i++) out.push(typeof value[i] === 'bigint' ? state.stylize(`${value[i]}n`, 'bigint') : state.stylize(showNumber(value[i], state), 'number'));
      if (value.length > shown) out.push(more(value.length - shown));
      return out;
    };
  } else if (types.isMapIterator(value) || types.isSetIterator(value)) {
    braces = [`[${tag}] {`, '}'];
    // Looking at what is left in an iterator would use it up.
    entries = () => [state.stylize('<items not shown>', 'special')];
  } else if (types.isArgumentsObject(value)) {
    braces = ['[Arguments] {', '}'];
    if (keys.length === 0) return '[Arguments] {}';
  } else if (typeof value === 'function') {
    base = functionHead(value, name, tag);
    if (keys.length === 0) return state.stylize(base, 'special');
  } else if (kind === 'RegExp') {
    base = RegExp.prototype.toString.call(name === null ? new RegExp(value) : value);
    const head = prefix(name, tag, 'RegExp');
    if (head !== 'RegExp ') base = head + base;
    keys = keys.filter((key) => key !== 'lastIndex' || state.showHidden);
    if (keys.length === 0 || depth > state.depth) return state.stylize(base, 'regexp');
  } else if (kind === 'Date') {
    base = Number.isNaN(Date.prototype.getTime.call(value)) ? 'Invalid Date' : Date.prototype.toISOString.call(value);
    const head = prefix(name, tag, 'Date');
    if (head !== 'Date ') base = head + base;
    if (keys.length === 0) return state.stylize(base, 'date');
  } else if (kind === 'Error' || (value instanceof Error && name !== null)) {
    base = showError(state, value, name, tag, keys);
    if (keys.length === 0) return base;
  } else if (kind === 'ArrayBuffer' || types.isSharedArrayBuffer(value)) {
    const type = kind === 'ArrayBuffer' && !types.isSharedArrayBuffer(value) ? 'ArrayBuffer' : 'SharedArrayBuffer';
    braces[0] = `${prefix(name, tag, type)}{`;
    keys.unshift('byteLength');
    entries = () => {
      const shown = new Uint8Array(value, 0, Math.min(Math.max(0, state.maxArrayLength), value.byteLength));
      let text = Array.from(shown, (byte) => byte.toString(16).padStart(2, '0')).join(' ');
      const left = value.byteLength - shown.length;
      if (left > 0) text += ` ... ${left} more byte${left > 1 ? 's' : ''}`;
      return [`${state.stylize('[Uint8Contents]', 'special')}: <${text}>`];
    };
  } else if (kind === 'DataView') {
    braces[0] = `${prefix(name, tag, 'DataView')}{`;
    keys.unshift('byteLength', 'byteOffset', 'buffer');
  } else if (kind === 'Promise') {
    braces[0] = `${prefix(name, tag, 'Promise')}{`;
    entries = () => {
      const [status, result] = host.promise(value);
      if (status === 0) return [state.stylize('<pending>', 'special')];
      return indented(state, () => {
        const text = show(state, result, depth + 1);
        return [status === 2 ? `${state.stylize('<rejected>', 'special')} ${text}` : text];
      });
    };
  } else if (kind === 'WeakSet' || kind === 'WeakMap') {
    braces[0] = `${prefix(name, tag, kind)}{`;
    entries = () => [state.stylize('<items unknown>', 'special')];
  } else if (kind === 'WeakRef') {
    braces[0] = `${prefix(name, tag, 'WeakRef')}{`;
    entries = () => indented(state, () => [show(state, value.deref(), depth + 1)]);
  } else if (types.isModuleNamespaceObject(value)) {
    braces[0] = '[Module: null prototype] {';
  } else if (types.isBoxedPrimitive(value)) {
    const [type, inner] = unbox(value);
    base = `[${type}`;
    if (type !== name) base += name === null ? ' (null prototype)' : ` (${name})`;
    base += `: ${showPrimitive({ ...state, stylize: plain }, inner, true)}]`;
    if (tag !== '' && tag !== name) base += ` [${tag}]`;
    if (type === 'String') keys = keys.filter((key) => !isIndex(key) && key !== 'length');
    if (keys.length === 0) return state.stylize(base, type.toLowerCase());
  } else {
    if (keys.length === 0 && !tag && name === 'Object') return '{}';
    const head = name === 'Object' && tag === '' ? '' : prefix(name, tag, 'Object');
    if (keys.length === 0) return `${head}{}`;
    braces[0] = `${head}{`;
  }

  if (depth > state.depth) {
    const label = base && (typeof value === 'function' || kind === 'Error') ? base : prefix(name, tag, Array.isArray(value) ? 'Array' : 'Object').slice(0, -1);
    return kind === 'Error' ? base : state.stylize(`[${label}]`, 'special');
  }
  state.seen.push(value);
  state.current = depth;
  const output = entries === null ? [] : entries();
  for (const key of keys) output.push(showProperty(state, value, key, depth, grouped));
  state.seen.pop();
  if (state.circular?.has(value)) {
    const mark = state.stylize(`<ref *${state.circular.get(value)}>`, 'special');
    if (state.compact !== true) base = base === '' ? mark : `${mark} ${base}`;
    else braces[0] = `${mark} ${braces[0]}`;
  }
  if (state.sorted) {
    const order = state.sorted === true ? undefined : state.sorted;
    if (!grouped) output.sort(order);
    else output.splice(output.length - keys.length, keys.length, ...output.slice(output.length - keys.length).sort(order));
  }
  return join(state, output, base, braces, grouped, depth, value);
}

function unbox(value) {
  if (types.isNumberObject(value)) return ['Number', Number.prototype.valueOf.call(value)];
  if (types.isStringObject(value)) return ['String', String.prototype.valueOf.call(value)];
  if (types.isBooleanObject(value)) return ['Boolean', Boolean.prototype.valueOf.call(value)];
  if (types.isBigIntObject(value)) return ['BigInt', BigInt.prototype.valueOf.call(value)];
  return ['Symbol', Symbol.prototype.valueOf.call(value)];
}

function functionHead(value, name, tag) {
  const text = types.functionText(value);
  if (text.startsWith('class') && /^class\b/.test(text)) {
    let out = Object.hasOwn(value, 'name') && value.name !== '' ? `[class ${value.name}` : '[class (anonymous)';
    if (name !== 'Function' && name !== null) out += ` [${name}]`;
    if (tag !== '' && name !== tag) out += ` [${tag}]`;
    if (name === null) return `${out} extends [null prototype]]`;
    const parent = Object.getPrototypeOf(value);
    return parent?.name ? `${out} extends ${parent.name}]` : `${out}]`;
  }
  let type = 'Function';
  if (types.isGeneratorFunction(value)) type = `Generator${type}`;
  if (types.isAsyncFunction(value)) type = `Async${type}`;
  let out = `[${type}`;
  if (name === null) out += ' (null prototype)';
  out += value.name === '' ? ' (anonymous)' : `: ${value.name}`;
  out += ']';
  if (name !== type && name !== null) out += ` ${name}`;
  if (tag !== '' && name !== tag) out += ` [${tag}]`;
  return out;
}

function showError(state, value, name, tag, keys) {
  let stack = safely(() => value.stack);
  stack = stack ? String(stack) : safely(() => Error.prototype.toString.call(value)) ?? 'Error';
  // What the heading says already is not said again.
  for (const key of ['name', 'message', 'stack']) {
    const index = keys.indexOf(key);
    if (index !== -1 && (typeof value[key] !== 'string' || stack.includes(value[key]))) keys.splice(index, 1);
  }
  if ('cause' in value && !keys.includes('cause')) keys.push('cause');
  if (Array.isArray(value.errors) && !keys.includes('errors')) keys.push('errors');
  // A class that did not set its name is shown by its constructor's name.
  const own = value.name == null ? 'Error' : String(value.name);
  if (name !== null && own.endsWith('Error') && stack.startsWith(own) && (stack.length === own.length || ':\n'.includes(stack[own.length]))) {
    if (!name.includes(own) && own === 'Error') stack = `${name}${stack.slice(own.length)}`.replace(/^/, '') ;
    else if (name !== own && name.includes(own)) stack = name + stack.slice(own.length);
    else if (name !== own) stack = `${own} [${name}]`.includes(stack.slice(0, 3)) ? stack : stack;
  } else if (name === null) {
    stack = stack.startsWith(own) ? `[${own}: null prototype]${stack.slice(own.length)}` : stack;
  }
  const at = stack.indexOf('\n    at');
  if (at === -1) stack = `[${stack}]`;
  if (state.indent !== 0) stack = stack.replaceAll('\n', `\n${' '.repeat(state.indent)}`);
  return stack;
}

function indented(state, action) {
  state.indent += 2;
  try {
    return action();
  } finally {
    state.indent -= 2;
  }
}

const more = (count) => `... ${count} more item${count > 1 ? 's' : ''}`;

function limited(state, size, items, each) {
  const most = Math.min(Math.max(0, state.maxArrayLength), size);
  const out = [];
  for (const item of items) {
    if (out.length >= most) break;
    out.push(each(item));
  }
  if (size > most) out.push(more(size - most));
  return out;
}

function showArray(state, value, depth) {
  const out = [];
  const most = Math.min(Math.max(0, state.maxArrayLength), value.length);
  let index = 0;
  while (index < value.length && out.length < most) {
    if (Object.hasOwn(value, index)) {
      out.push(showProperty(state, value, index, depth, true));
      index++;
      continue;
    }
    let end = index;
    while (end < value.length && !Object.hasOwn(value, end)) {
      // A hole of millions is stepped over by asking for the next key.
      if (end - index > 1000) {
        const next = Object.keys(value).map(Number).find((key) => key >= end);
        end = next === undefined || Number.isNaN(next) ? value.length : next;
        break;
      }
      end++;
    }
    const count = end - index;
    out.push(state.stylize(`<${count} empty item${count > 1 ? 's' : ''}>`, 'undefined'));
    index = end;
  }
  if (index < value.length) out.push(more(value.length - index));
  return out;
}

const identifier = /^[a-zA-Z_][a-zA-Z_0-9]*$/;

function showProperty(state, value, key, depth, inArray) {
  const found = Object.getOwnPropertyDescriptor(value, key) ?? { value: value[key], enumerable: true };
  const element = inArray && typeof key === 'number';
  let text;
  let gap = ' ';
  if (found.value !== undefined || !('get' in found || 'set' in found)) {
    const indent = state.compact !== true || !inArray ? 2 : 3;
    state.indent += indent;
    text = show(state, found.value, depth + 1);
    state.indent -= indent;
    if (indent === 3 && state.breakLength < text.length) gap = `\n${' '.repeat(state.indent)}`;
  } else if (found.get !== undefined) {
    const label = found.set !== undefined ? 'Getter/Setter' : 'Getter';
    const wanted = state.getters && (state.getters === true || (state.getters === 'get' && found.set === undefined) || (state.getters === 'set' && found.set !== undefined));
    if (wanted) {
      try {
        const inner = found.get.call(value);
        state.indent += 2;
        text = inner === null || typeof inner !== 'object'
          ? `${state.stylize(`[${label}:`, 'special')} ${showPrimitive(state, inner)}${state.stylize(']', 'special')}`
          : `${state.stylize(`[${label}]`, 'special')} ${show(state, inner, depth + 1)}`;
        state.indent -= 2;
      } catch (error) {
        text = `${state.stylize(`[${label}: <Inspection threw (${error.message})>`, 'special')}${state.stylize(']', 'special')}`;
      }
    } else text = state.stylize(`[${label}]`, 'special');
  } else text = found.set !== undefined ? state.stylize('[Setter]', 'special') : state.stylize('undefined', 'undefined');
  if (element) return text;
  let label;
  if (typeof key === 'symbol') label = state.stylize(`[${Symbol.prototype.toString.call(key)}]`, 'symbol').replace(/^\[(.*)\]$/s, '[$1]');
  else if (key === '__proto__') label = "['__proto__']";
  else if (found.enumerable === false) label = `[${key}]`;
  else if (identifier.test(key)) label = state.stylize(key, 'name');
  else label = state.stylize(quote(String(key)), 'string');
  return `${label}:${gap}${text}`;
}

// ---- layout ---------------------------------------------------------------------------------------------------

// eslint-disable-next-line no-control-regex
const ansi = /\u001b\[\d+m/g;

function width(text) {
  const bare = text.includes('\u001b') ? text.replace(ansi, '') : text;
  // eslint-disable-next-line no-control-regex
  if (/^[\x20-\x7e]*$/.test(bare)) return bare.length;
  let columns = 0;
  for (const character of bare.normalize('NFC')) {
    const code = character.codePointAt(0);
    if (code < 32 || (code >= 0x7f && code < 0xa0) || /^[\p{Mn}\p{Me}\p{Cf}]$/u.test(character)) continue;
    columns += code >= 0x1100 && (code <= 0x115f || (code >= 0x2e80 && code <= 0xa4cf && code !== 0x303f) || (code >= 0xac00 && code <= 0xd7a3)
      || (code >= 0xf900 && code <= 0xfaff) || (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60)
      || (code >= 0xffe0 && code <= 0xffe6) || (code >= 0x1f300 && code <= 0x1f64f) || (code >= 0x1f900 && code <= 0x1f9ff)
      || (code >= 0x20000 && code <= 0x3fffd)) ? 2 : 1;
  }
  return columns;
}

function join(state, output, base, braces, array, depth, value) {
  if (state.compact !== true) {
    const before = output.length;
    if (array && before > 6) output = inColumns(state, output, value);
    // `compact` is the number of inner levels that may share a line, counted from the innermost.
    if (typeof state.compact === 'number' && state.compact >= 1 && state.current - depth < state.compact && before === output.length) {
      const start = output.length + state.indent + braces[0].length + base.length + 10;
      if (fits(state, output, start, base)) {
        const line = output.join(', ');
        if (!line.includes('\n')) return `${base ? `${base} ` : ''}${braces[0]} ${line} ${braces[1]}`;
      }
    }
    const line = `\n${' '.repeat(state.indent)}`;
    return `${base ? `${base} ` : ''}${braces[0]}${line}  ${output.join(`,${line}  `)}${line}${braces[1]}`;
  }
  if (fits(state, output, 0, base)) return `${braces[0]}${base ? ` ${base}` : ''} ${output.join(', ')} ${braces[1]}`;
  const line = `\n${' '.repeat(state.indent)}`;
  const start = base === '' && braces[0].length === 1 ? ' ' : `${base ? ` ${base}` : ''}\n${' '.repeat(state.indent)}  `;
  return `${braces[0]}${start}${output.join(`,${line}  `)} ${braces[1]}`;
}

function fits(state, output, start, base) {
  let total = output.length + start;
  if (total + output.length > state.breakLength) return false;
  for (const text of output) {
    total += state.colors ? text.replace(ansi, '').length : text.length;
    if (total > state.breakLength) return false;
  }
  return base === '' || !base.includes('\n');
}

// Many short entries of an array are put into columns, about as wide as high.
function inColumns(state, output, value) {
  const extra = output.length > state.maxArrayLength && output.at(-1).startsWith('... ') ? 1 : 0;
  const count = output.length - extra;
  const gap = 2;
  const widths = [];
  let total = 0;
  let widest = 0;
  for (let i = 0; i < count; i++) {
    widths[i] = width(output[i]);
    total += widths[i] + gap;
    widest = Math.max(widest, widths[i]);
  }
  const cell = widest + gap;
  if (!(cell * 3 + state.indent < state.breakLength && (total / cell > 5 || widest <= 6))) return output;
  const bias = Math.sqrt(cell - total / output.length);
  const biased = Math.max(cell - 3 - bias, 1);
  const columns = Math.min(
    Math.round(Math.sqrt(2.5 * biased * count) / biased),
    Math.floor((state.breakLength - state.indent) / cell),
    (typeof state.compact === 'number' ? state.compact : 3) * 4,
    15,
  );
  if (columns <= 1) return output;
  const columnWidths = [];
  for (let column = 0; column < columns; column++) {
    let most = 0;
    for (let i = column; i < count; i += columns) most = Math.max(most, widths[i]);
    columnWidths.push(most + gap);
  }
  const right = value !== undefined && Array.prototype.every.call(value, (item) => typeof item === 'number' || typeof item === 'bigint');
  const rows = [];
  for (let i = 0; i < count; i += columns) {
    const end = Math.min(i + columns, count);
    let row = '';
    for (let j = i; j < end; j++) {
      const last = j === end - 1;
      const text = last ? output[j] : `${output[j]}, `;
      const have = widths[j] + (last ? 0 : gap);
      const wanted = columnWidths[j - i] - (last ? gap : 0);
      const padding = ' '.repeat(Math.max(0, wanted - have));
      row += right ? padding + text : last ? text : text + padding;
    }
    rows.push(row);
  }
  if (extra) rows.push(output[count]);
  return rows;
}

// ---- format ---------------------------------------------------------------------------------------------------

const format = (...values) => formatWithOptions({}, ...values);

function formatWithOptions(options, ...values) {
  let first = values[0];
  let used = 0;
  let out = '';
  if (typeof first === 'string') {
    used = 1;
    if (values.length === 1) return first;
    let last = 0;
    for (let i = 0; i < first.length - 1; i++) {
      if (first[i] !== '%') continue;
      const letter = first[i + 1];
      if (letter === '%') {
        out += `${first.slice(last, i)}%`;
        last = i + 2;
        i++;
        continue;
      }
      if (used >= values.length || !'sdifjoOc'.includes(letter)) continue;
      out += first.slice(last, i) + formatOne(letter, values[used++], options);
      last = i + 2;
      i++;
    }
    out += first.slice(last);
  }
  for (; used < values.length; used++) {
    const value = values[used];
    if (used > 0) out += ' ';
    out += typeof value === 'string' ? value : inspect(value, { ...options, compact: 3, colors: options.colors ?? false });
  }
  return out;
}

function formatOne(letter, value, options) {
  switch (letter) {
    case 's':
      if (typeof value === 'number') return Object.is(value, -0) ? '-0' : String(value);
      if (typeof value === 'bigint') return `${value}n`;
      if (typeof value !== 'object' || value === null || ownText(value)) return String(value);
      return inspect(value, { ...options, depth: 0, colors: false, compact: 3 });
    case 'd':
      if (typeof value === 'bigint') return `${value}n`;
      if (typeof value === 'symbol') return 'NaN';
      return showNumber(Number(value), {});
    case 'i':
      if (typeof value === 'bigint') return `${value}n`;
      if (typeof value === 'symbol') return 'NaN';
      return showNumber(Number.parseInt(value, 10), {});
    case 'f': return typeof value === 'symbol' ? 'NaN' : showNumber(Number.parseFloat(value), {});
    case 'j':
      try {
        return JSON.stringify(value);
      } catch (error) {
        if (/circular/i.test(error.message)) return '[Circular]';
        throw error;
      }
    case 'o': return inspect(value, { ...options, showHidden: true, showProxy: true, depth: 4 });
    case 'O': return inspect(value, options);
    default: return '';
  }
}

// Whether a class of the script (not of the language) says how its values are written as text.
function ownText(value) {
  if (types.isProxy(value)) return false;
  for (const key of [Symbol.toPrimitive, 'toString']) {
    if (typeof value[key] !== 'function') continue;
    if (Object.hasOwn(value, key)) return true;
    for (let at = value; at; at = Object.getPrototypeOf(at)) {
      if (!Object.hasOwn(at, key)) continue;
      const builtin = at === Object.prototype || at === Error.prototype || at === Array.prototype || at === Date.prototype
        || at === RegExp.prototype || at === Function.prototype;
      if (!builtin && !(at.constructor?.name in globalThis && globalThis[at.constructor.name] === at.constructor)) return true;
      break;
    }
  }
  return value instanceof Error && Object.hasOwn(value, 'toString');
}

return { inspect, format, formatWithOptions, width, quote };

// util, and what it collects from elsewhere.
const { coded, checkFunction, argumentType, table } = need('errors');
const types = need('types');
const { inspect, format, formatWithOptions } = need('inspect');
const custom = Symbol.for('nodejs.util.promisify.custom');

function promisify(original) {
  checkFunction(original, 'original');
  if (original[custom]) {
    checkFunction(original[custom], 'util.promisify.custom');
    return Object.defineProperty(original[custom], custom, { value: original[custom], configurable: true });
  }
  const names = original[Symbol.for('skillcell.callback.names')];
  function wrapped(...values) {
    return new Promise((resolve, reject) => {
      original.call(this, ...values, (error, ...results) => {
        if (error) reject(error);
        else if (names && results.length > 1) resolve(Object.fromEntries(names.map((name, i) => [name, results[i]])));
        else resolve(results[0]);
      });
    });
  }
  Object.setPrototypeOf(wrapped, Object.getPrototypeOf(original));
  Object.defineProperty(wrapped, custom, { value: wrapped, configurable: true });
  return Object.defineProperties(wrapped, Object.getOwnPropertyDescriptors(original));
}
promisify.custom = custom;

function callbackify(original) {
  checkFunction(original, 'original');
  function wrapped(...values) {
    const callback = checkFunction(values.pop(), 'last argument');
    original.apply(this, values).then(
      (value) => need('loop').nextTick(callback, null, value),
      (reason) => {
        if (!reason) {
          const error = coded(Error, 'ERR_FALSY_VALUE_REJECTION', 'Promise was rejected with falsy value');
          error.reason = reason;
          reason = error;
        }
        need('loop').nextTick(callback, reason);
      },
    );
  }
  Object.defineProperty(wrapped, 'name', { value: `${original.name}Callbackified` });
  return wrapped;
}

function inherits(child, parent) {
  checkFunction(child, 'ctor');
  checkFunction(parent, 'superCtor');
  if (parent.prototype === undefined) throw argumentType('superCtor.prototype', 'Object', parent.prototype);
  Object.defineProperty(child, 'super_', { value: parent, writable: true, configurable: true });
  Object.setPrototypeOf(child.prototype, parent.prototype);
}

const warned = new Set();

function deprecate(action, message, code) {
  let told = false;
  return Object.defineProperty(function (...values) {
    if (!told && !(code && warned.has(code))) {
      told = true;
      if (code) warned.add(code);
      need('process').emitWarning(message, 'DeprecationWarning', code);
    }
    return new.target ? Reflect.construct(action, values, new.target) : action.apply(this, values);
  }, 'name', { value: action.name });
}

function debuglog(section) {
  const wanted = () => (need('process').env.NODE_DEBUG ?? '').toLowerCase().split(',').includes(section.toLowerCase());
  const log = (...values) => { if (wanted()) need('process').stderr.write(`${section.toUpperCase()} ${need('process').pid}: ${format(...values)}\n`); };
  Object.defineProperty(log, 'enabled', { get: wanted });
  return log;
}

// eslint-disable-next-line no-control-regex
const escapes = /[\u001b\u009b][[\]()#;?]*(?:(?:(?:[a-zA-Z\d]*(?:;[-a-zA-Z\d/#&.:=?%@~_]*)*)?\u0007)|(?:(?:\d{1,4}(?:;\d{0,4})*)?[\dA-PR-TZcf-nq-uy=><~]))/g;

function styleText(style, text, { validateStream = true } = {}) {
  let before = '';
  let after = '';
  for (const name of [].concat(style)) {
    const pair = inspect.colors[name];
    if (!pair) throw need('errors').argumentValue('format', name, `must be one of: ${Object.keys(inspect.colors).map((one) => `'${one}'`).join(', ')}`);
    before += `\u001b[${pair[0]}m`;
    after = `\u001b[${pair[1]}m${after}`;
  }
  return before + text + after;
}

function parseArgs({ args = need('process').argv.slice(2), options = {}, strict = true, allowPositionals = !strict, allowNegative = false, tokens: wantTokens = false } = {}) {
  const values = Object.create(null);
  const positionals = [];
  const tokens = [];
  const store = (name, value) => {
    if (options[name]?.multiple) (values[name] ??= []).push(value);
    else values[name] = value;
  };
  const unknown = (raw) => coded(TypeError, 'ERR_PARSE_ARGS_UNKNOWN_OPTION', `Unknown option '${raw}'${allowPositionals ? `. To specify a positional argument starting with a '-', place it at the end of the command after '--', as in '-- "${raw}"` : ''}`);
  const one = (name, rawName, value, inline, index) => {
    let negative = false;
    if (allowNegative && !Object.hasOwn(options, name) && name.startsWith('no-') && Object.hasOwn(options, name.slice(3))) {
      name = name.slice(3);
      negative = true;
    }
    if (strict && !Object.hasOwn(options, name)) throw unknown(rawName);
    const type = options[name]?.type;
    const label = options[name]?.short ? `-${options[name].short}, --${name}` : `--${name}`;
    if (strict && type === 'string' && value === undefined) throw coded(TypeError, 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE', `Option '${label} <value>' argument missing`);
    if (strict && type === 'boolean' && value !== undefined) throw coded(TypeError, 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE', `Option '${label}' does not take an argument`);
    tokens.push({ kind: 'option', name, rawName, index, value, inlineValue: value === undefined ? undefined : inline });
    store(name, value === undefined ? !negative : value);
  };
  const shorts = Object.fromEntries(Object.entries(options).filter(([, option]) => option.short).map(([name, option]) => [option.short, name]));
  for (let i = 0; i < args.length; i++) {
    const word = args[i];
    const following = () => (i + 1 < args.length && !(strict && args[i + 1].startsWith('-') && args[i + 1].length > 1) ? args[++i] : undefined);
    if (word === '--') {
      tokens.push({ kind: 'option-terminator', index: i });
      for (const rest of args.slice(i + 1)) positionals.push(rest);
      if (!allowPositionals && args.length > i + 1) throw coded(TypeError, 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL', `Unexpected argument '${args[i + 1]}'. This command does not take positional arguments`);
      break;
    }
    if (word.startsWith('--')) {
      const at = word.indexOf('=');
      const name = word.slice(2, at === -1 ? undefined : at);
      const start = i;
      if (at !== -1) one(name, `--${name}`, word.slice(at + 1), true, start);
      else one(name, word, options[name]?.type === 'string' ? following() : undefined, false, start);
    } else if (word.startsWith('-') && word.length > 1) {
      for (let j = 1; j < word.length; j++) {
        const name = shorts[word[j]] ?? word[j];
        const start = i;
        if (options[name]?.type === 'string') {
          const inline = word.slice(j + 1);
          one(name, `-${word[j]}`, inline === '' ? following() : inline, inline !== '', start);
          break;
        }
        one(name, `-${word[j]}`, undefined, false, start);
      }
    } else {
      if (!allowPositionals) throw coded(TypeError, 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL', `Unexpected argument '${word}'. This command does not take positional arguments`);
      positionals.push(word);
      tokens.push({ kind: 'positional', index: i, value: word });
    }
  }
  for (const [name, option] of Object.entries(options)) if (option.default !== undefined && values[name] === undefined) values[name] = option.default;
  return { values, positionals, ...(wantTokens && { tokens }) };
}

const encoding = need('encoding');
return {
  inspect, format, formatWithOptions, promisify, callbackify, inherits, deprecate, debuglog, debug: debuglog, styleText, parseArgs,
  types: types.all,
  TextEncoder: encoding.TextEncoder,
  TextDecoder: encoding.TextDecoder,
  isDeepStrictEqual: (one, two) => need('compare').equal(one, two, true),
  stripVTControlCharacters: (text) => need('errors').checkString(text, 'str').replace(escapes, ''),
  toUSVString: (text) => `${text}`.toWellFormed(),
  getSystemErrorName: (number) => Object.values(table).find(([, linux]) => linux === -number)?.[0],
  getSystemErrorMap: () => new Map(Object.values(table).map(([code, linux, words]) => [-linux, [code, words]])),
  aborted: (signal) => new Promise((resolve) => { if (signal.aborted) resolve(); else signal.addEventListener('abort', () => resolve(), { once: true }); }),
  isArray: Array.isArray,
  isBoolean: (value) => typeof value === 'boolean', isNull: (value) => value === null, isNullOrUndefined: (value) => value == null,
  isNumber: (value) => typeof value === 'number', isString: (value) => typeof value === 'string', isSymbol: (value) => typeof value === 'symbol',
  isUndefined: (value) => value === undefined, isRegExp: types.isRegExp, isObject: (value) => value !== null && typeof value === 'object',
  isDate: types.isDate, isError: (value) => types.isNativeError(value) || value instanceof Error, isFunction: (value) => typeof value === 'function',
  isPrimitive: (value) => value === null || (typeof value !== 'object' && typeof value !== 'function'),
};

// How modules are found and loaded: CommonJS and ES modules, packages, the built-in ones.
const { coded, argumentType, checkString, systemError } = need('errors');
const path = need('path');
const fs = need('fs');
const url = need('url');
const absent = need('absent');

const DIRECTORY = 0o40000;
const REGULAR = 0o100000;
// Packages that the host installed for a skill (`extra_npm`).
const SITE = '/workspace/site/node_modules';

// ---- built-in -----------------------------------------------------------------------------------------------

const util = need('util');
const builtins = {
  assert: need('assert'), 'assert/strict': need('assert').strict, buffer: need('buffer'), console: need('console'), constants: fs.constants, crypto: need('crypto'),
  events: need('events'), fs, 'fs/promises': fs.promises, os: need('os'), path, 'path/posix': path, 'path/win32': path, perf_hooks: { performance: need('performance') },
  process: need('process'), punycode: { toASCII: url.domainToASCII, toUnicode: url.domainToUnicode }, querystring: need('querystring'), readline: need('readline'),
  'readline/promises': need('readline').promises, stream: need('stream'), 'stream/promises': need('stream').promises, 'stream/consumers': need('stream').consumers,
  string_decoder: { StringDecoder: need('encoding').StringDecoder }, sys: util, timers: (({ setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate, promises }) => ({ setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate, promises }))(need('loop')),
  'timers/promises': need('loop').promises, tty: { isatty: (fd) => host.isatty(fd), ReadStream: class ReadStream {}, WriteStream: class WriteStream {} }, url, util, 'util/types': util.types, zlib: need('zlib'),
  async_hooks: asyncHooks(), diagnostics_channel: diagnostics(), ...absent.modules,
};
const prefixOnly = new Set(['test']);

function builtinName(name) {
  if (name.startsWith('node:')) {
    const bare = name.slice(5);
    return Object.hasOwn(builtins, bare) ? bare : undefined;
  }
  return Object.hasOwn(builtins, name) && !prefixOnly.has(name) ? name : undefined;
}

function builtin(name) {
  const bare = builtinName(name);
  return bare === undefined ? undefined : bare === 'module' ? Module : builtins[bare];
}

// A store follows what is called in run(), not what it starts: that needs hooks into promises that cost every script.
function asyncHooks() {
  class AsyncLocalStorage {
    #value;
    run(value, action, ...values) {
      const before = this.#value;
      this.#value = value;
      try {
        const result = action(...values);
        if (typeof result?.then !== 'function') return result;
        return result.finally(() => { this.#value = before; });
      } finally {
        this.#value = before;
      }
    }
    exit(action, ...values) { return this.run(undefined, action, ...values); }
    getStore() { return this.#value; }
    enterWith(value) { this.#value = value; }
    disable() { this.#value = undefined; }
  }
  class AsyncResource {
    constructor(type) { this.type = type; }
    runInAsyncScope(action, self, ...values) { return action.apply(self, values); }
    emitDestroy() { return this; }
    asyncId() { return 0; }
    triggerAsyncId() { return 0; }
    bind(action) { return action; }
    static bind(action) { return action; }
  }
  return { AsyncLocalStorage, AsyncResource, executionAsyncId: () => 0, triggerAsyncId: () => 0, createHook: () => ({ enable() { return this; }, disable() { return this; } }) };
}

function diagnostics() {
  const channels = new Map();
  const channel = (name) => {
    if (!channels.has(name)) {
      const list = [];
      channels.set(name, {
        name, get hasSubscribers() { return list.length > 0; }, subscribe: (action) => list.push(action),
        unsubscribe: (action) => { const at = list.indexOf(action); if (at !== -1) list.splice(at, 1); return at !== -1; }, publish: (message) => list.forEach((action) => action(message, name)),
      });
    }
    return channels.get(name);
  };
  return { channel, hasSubscribers: (name) => channel(name).hasSubscribers, subscribe: (name, action) => channel(name).subscribe(action), unsubscribe: (name, action) => channel(name).unsubscribe(action) };
}

// ---- files --------------------------------------------------------------------------------------------------

function kindOf(file) {
  const facts = host.stat(file, true);
  return typeof facts === 'number' ? 0 : facts[0] & 0o170000;
}

function real(file) {
  try {
    return fs.realpathSync(file);
  } catch {
    return file;
  }
}

const packages = new Map();

function packageIn(folder) {
  if (packages.has(folder)) return packages.get(folder);
  const file = path.join(folder, 'package.json');
  const data = host.readAll(file);
  let found = null;
  if (typeof data !== 'number') {
    try {
      found = JSON.parse(host.decode(data, 0));
    } catch (error) {
      throw coded(Error, 'ERR_INVALID_PACKAGE_CONFIG', `Invalid package config ${file}. ${error.message}`);
    }
    if (found === null || typeof found !== 'object') found = {};
  }
  packages.set(folder, found);
  return found;
}

// The package that a file belongs to: [its folder, its description], or undefined.
function packageOf(file) {
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    if (path.basename(folder) !== 'node_modules') {
      const found = packageIn(folder);
      if (found !== null) return [folder, found];
    }
    if (folder === path.dirname(folder)) return undefined;
  }
}

const extensions = ['.js', '.json', '.cjs', '.mjs'];

function asFile(base) {
  if (kindOf(base) === REGULAR) return base;
  for (const extension of extensions.slice(0, 2)) if (kindOf(base + extension) === REGULAR) return base + extension;
  return undefined;
}

function asFolder(base) {
  if (kindOf(base) !== DIRECTORY) return undefined;
  const { main } = packageIn(base) ?? {};
  if (typeof main === 'string' && main !== '') {
    const target = path.resolve(base, main);
    const found = asFile(target) ?? (kindOf(target) === DIRECTORY ? asFile(path.join(target, 'index')) : undefined);
    if (found !== undefined) return found;
  }
  return asFile(path.join(base, 'index'));
}

function modulePaths(folder) {
  const out = [];
  for (let at = folder; ; at = path.dirname(at)) {
    if (path.basename(at) !== 'node_modules') out.push(path.join(at, 'node_modules'));
    if (at === path.dirname(at)) return out;
  }
}

const extraPaths = () => [...(need('process').env.NODE_PATH ?? '').split(':').filter(Boolean), SITE];

// ---- packages -----------------------------------------------------------------------------------------------

function splitName(specifier) {
  const match = /^((?:@[^/]+\/)?[^/]+)(\/.*)?$/.exec(specifier);
  return match ? [match[1], `.${match[2] ?? ''}`] : [specifier, '.'];
}

// A target of `exports` or `imports`: text, a choice by condition, or a list of tries. null: not exported.
function target(folder, value, star, conditions, internal, from) {
  if (typeof value === 'string') {
    const filled = star === undefined ? value : value.replaceAll('*', star);
    if (value.startsWith('./')) {
      const full = path.join(folder, filled);
      if (!full.startsWith(`${folder === '/' ? '' : folder}/`) || /(^|\/)node_modules(\/|$)/.test(value.slice(2))) throw coded(Error, 'ERR_INVALID_PACKAGE_TARGET', `Invalid "exports" target ${JSON.stringify(value)} defined in the package config ${folder}/package.json`);
      return full;
    }
    if (internal && !value.startsWith('../') && !value.startsWith('/')) return resolve(filled, from, conditions);
    throw coded(Error, 'ERR_INVALID_PACKAGE_TARGET', `Invalid "exports" target ${JSON.stringify(value)} defined in the package config ${folder}/package.json; targets must start with "./"`);
  }
  if (Array.isArray(value)) {
    for (const one of value) {
      const found = target(folder, one, star, conditions, internal, from);
      if (found) return found;
    }
    return null;
  }
  if (value !== null && typeof value === 'object') {
    for (const [condition, inner] of Object.entries(value)) {
      if (condition !== 'default' && !conditions.includes(condition)) continue;
      const found = target(folder, inner, star, conditions, internal, from);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  return null;
}

function match(folder, table, key, conditions, internal, from) {
  if (Object.hasOwn(table, key) && !key.includes('*')) return target(folder, table[key], undefined, conditions, internal, from);
  let best;
  for (const pattern of Object.keys(table)) {
    const at = pattern.indexOf('*');
    if (at === -1 || !key.startsWith(pattern.slice(0, at)) || !key.endsWith(pattern.slice(at + 1)) || key.length < pattern.length) continue;
    if (best === undefined || pattern.indexOf('*') > best.indexOf('*') || (pattern.indexOf('*') === best.indexOf('*') && pattern.length > best.length)) best = pattern;
  }
  if (best === undefined) return undefined;
  const at = best.indexOf('*');
  return target(folder, table[best], key.slice(at, key.length - (best.length - at - 1)), conditions, internal, from);
}

function exported(folder, description, key, conditions) {
  let table = description.exports;
  if (typeof table === 'string' || Array.isArray(table) || (table !== null && typeof table === 'object' && !Object.keys(table).some((name) => name.startsWith('.')))) table = { '.': table };
  const found = match(folder, table, key, conditions, false);
  if (found) return found;
  const missing = key === '.' ? 'No "exports" main defined' : `Package subpath '${key}' is not defined by "exports"`;
  throw coded(Error, 'ERR_PACKAGE_PATH_NOT_EXPORTED', `${missing} in ${folder}/package.json`);
}

const conditionsOf = (kind) => ['node', kind, 'module-sync', 'node-addons'];

// -> a full path, "node:NAME", or undefined when nothing is there. `from` is the path of the importing file.
function resolve(specifier, from, conditions) {
  const importing = conditions.includes('import');
  const folder = path.dirname(from);
  if (builtinName(specifier) !== undefined) return `node:${builtinName(specifier)}`;
  if (specifier.startsWith('node:')) throw coded(Error, 'ERR_UNKNOWN_BUILTIN_MODULE', `No such built-in module: ${specifier}`);
  if (specifier.startsWith('#')) {
    const own = packageOf(from);
    const found = own?.[1].imports && match(own[0], own[1].imports, specifier, conditions, true, from);
    if (!found) throw coded(TypeError, 'ERR_PACKAGE_IMPORT_NOT_DEFINED', `Package import specifier "${specifier}" is not defined${own ? ` in package ${own[0]}/package.json` : ''} imported from ${from}`);
    return found;
  }
  if (/^(\/|\.\.?(\/|$))/.test(specifier)) {
    const base = path.resolve(folder, specifier);
    const source = typed.test(from) && kindOf(base) !== REGULAR ? typedFile(base) : undefined;
    if (importing || source !== undefined) return source ?? base;
    return (specifier.endsWith('/') ? undefined : asFile(base)) ?? asFolder(base);
  }
  const [name, rest] = splitName(specifier);
  const own = packageOf(from);
  if (own && own[1].name === name && own[1].exports != null) return exported(own[0], own[1], rest, conditions);
  for (const place of [...modulePaths(folder), ...extraPaths()]) {
    const root = path.join(place, name);
    if (kindOf(root) !== DIRECTORY) {
      if (!importing && rest === '.') {
        const file = asFile(root);
        if (file !== undefined) return file;
      }
      continue;
    }
    const description = packageIn(root);
    if (description?.exports != null) return exported(root, description, rest, conditions);
    if (rest === '.') {
      const found = asFolder(root);
      if (found !== undefined) return found;
    } else {
      const base = path.join(root, rest);
      const found = importing ? (kindOf(base) === REGULAR ? base : undefined) : asFile(base) ?? asFolder(base);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

// ---- what a file is -----------------------------------------------------------------------------------------

const wrapper = 'exports, require, module, __filename, __dirname';
const sources = new Map();                     // names of modules that are no files: [eval], data:

function sourceOf(file) {
  const data = host.readAll(file);
  if (typeof data === 'number') throw systemError(-data, 'open', file);
  const text = host.decode(data, 0);
  return tidy(typed.test(file) ? withoutTypes(text, file) : text);
}

// TypeScript: types become blanks, so that every line and column stays. What has to be translated rather than left out
// (an enum, a namespace with values, a parameter property) is refused, as node refuses it.
const typed = /\.[mc]?ts$/;

function withoutTypes(text, file) {
  const [what, answer] = host.stripTypes(text, file.endsWith('.mts') ? 1 : -1);
  if (what === 0) return answer;
  const [, line, column, message] = /^(\d+) (\d+) (.*)$/s.exec(answer);
  const place = line === '0' ? file : `${file}:${line}:${column}`;
  if (what === 1 && text.split('\n')[line - 1]?.[column - 1] === '@') throw coded(SyntaxError, 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX', `Decorators are not supported (${place}); compile the file first`);
  if (what === 1) throw coded(SyntaxError, 'ERR_INVALID_TYPESCRIPT_SYNTAX', `${message} (${place})`);
  throw coded(SyntaxError, 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX', `${message} (${place}); this interpreter only leaves types out: write it in JavaScript's terms, or compile the file first`);
}

// TypeScript names what a file is compiled to, or leaves the extension out; what is there is the source.
function typedFile(base) {
  const source = base.replace(/\.([mc]?)js$/, '.$1ts');
  const tries = source === base ? [`${base}.ts`, `${base}.mts`, `${base}.cts`, path.join(base, 'index.ts')] : [source];
  return tries.find((file) => kindOf(file) === REGULAR);
}

const tidy = (text) => text.replace(/^\ufeff/, '').replace(/^#!/, '//');

// 'module', 'commonjs', 'json' or '' when only the text can tell.
function formatOf(file) {
  const extension = path.extname(file);
  if (extension === '.mjs' || extension === '.mts') return 'module';
  if (extension === '.cjs' || extension === '.cts') return 'commonjs';
  if (extension === '.json') return 'json';
  if (extension === '.node') throw coded(Error, 'ERR_DLOPEN_FAILED', `native code cannot be loaded in this sandbox: ${file}; use a package without native parts, or another runtime`);
  if (extension === '.wasm') throw coded(Error, 'ERR_UNKNOWN_FILE_EXTENSION', `WebAssembly cannot be loaded from a script here: ${file}; run it as a program of its own`);
  if (extension === '.tsx' || extension === '.jsx') throw coded(TypeError, 'ERR_UNKNOWN_FILE_EXTENSION', `Unknown file extension "${extension}" for ${file}: JSX must be translated; compile it first`);
  const type = packageOf(file)?.[1].type;
  return type === 'module' || type === 'commonjs' ? type : '';
}

// Compiles a file that may be either; -> a function (CommonJS) or undefined (a module).
function compileEither(source, file) {
  try {
    return host.compileFunction(source, file, wrapper);
  } catch (error) {
    if (error instanceof SyntaxError && host.canBeModule(source)) return undefined;
    throw error;
  }
}

const compiled = new Map();                    // functions of files that turned out to be CommonJS

function classify(file, source) {
  const format = formatOf(file);
  if (format !== '') return format;
  const action = compileEither(source, file);
  if (action === undefined) return 'module';
  compiled.set(file, action);
  return 'commonjs';
}

// ---- CommonJS -----------------------------------------------------------------------------------------------

function Module(id = '', parent = undefined) {
  this.id = id;
  this.path = path.dirname(id);
  this.exports = {};
  this.filename = null;
  this.loaded = false;
  this.children = [];
  this.paths = [];
  Object.defineProperty(this, 'parent', { value: parent, writable: true, configurable: true, enumerable: false });
  parent?.children?.push(this);
}
Module.prototype.require = function (specifier) {
  checkString(specifier, 'id');
  if (specifier === '') throw need('errors').argumentValue('id', specifier, 'must be a non-empty string');
  return Module._load(specifier, this);
};
Module.prototype._compile = function (source, file) {
  const action = compiled.get(file) ?? host.compileFunction(tidy(source), file, wrapper);
  compiled.delete(file);
  return action.call(this.exports, this.exports, requireOf(this), this, file, path.dirname(file));
};
Module.prototype.load = function (file) {
  this.filename = file;
  this.paths = modulePaths(path.dirname(file));
  const extension = Object.hasOwn(Module._extensions, path.extname(file)) ? path.extname(file) : '.js';
  Module._extensions[extension](this, file);
  this.loaded = true;
};

Module._cache = Object.create(null);
Module._extensions = Object.assign(Object.create(null), {
  '.js'(module, file) {
    const source = sourceOf(file);
    if (classify(file, source) === 'module') module.exports = requireModule(file);
    else module._compile(source, file);
  },
  '.json'(module, file) {
    try {
      module.exports = JSON.parse(sourceOf(file));
    } catch (error) {
      error.message = `${file}: ${error.message}`;
      throw error;
    }
  },
  '.node'(module, file) {
    formatOf(file);
  },
});

// A module that awaits nothing at its top is done when it returns.
function requireModule(file) {
  const [promise, namespace] = host.evaluateModule(url.pathToFileURL(file).href);
  const [state, reason] = host.promise(promise);
  host.promiseHandled(promise);
  if (state === 2) throw reason;
  if (state === 0) throw coded(Error, 'ERR_REQUIRE_ASYNC_MODULE', 'require() cannot be used on an ESM graph with top-level await. Use import() instead.');
  return namespace;
}

function requireStack(parent) {
  const out = [];
  for (let at = parent; at; at = at.parent) out.push(at.filename ?? at.id);
  return out;
}

Module._resolveFilename = function (specifier, parent, isMain, options) {
  const from = parent?.filename ?? path.join(need('process').cwd(), 'x');
  let found;
  if (options?.paths) {
    for (const place of options.paths) {
      found = resolve(specifier, path.join(path.resolve(place), 'x'), conditionsOf('require'));
      if (found !== undefined) break;
    }
  } else found = resolve(specifier, from, conditionsOf('require'));
  if (found?.startsWith('node:')) return specifier.startsWith('node:') ? specifier : found.slice(5);
  if (found !== undefined && kindOf(found) === REGULAR) return real(found);
  const stack = requireStack(parent);
  const error = coded(Error, 'MODULE_NOT_FOUND', `Cannot find module '${specifier}'${stack.length > 0 ? `\nRequire stack:\n- ${stack.join('\n- ')}` : ''}`);
  need('start').nodeErrors.delete(error);
  error.requireStack = stack;
  throw error;
};

Module._load = function (specifier, parent, isMain) {
  const found = builtin(specifier);
  if (found !== undefined) return found;
  if (specifier.startsWith('node:')) throw coded(Error, 'ERR_UNKNOWN_BUILTIN_MODULE', `No such built-in module: ${specifier}`);
  const file = Module._resolveFilename(specifier, parent, isMain);
  const cached = Module._cache[file];
  if (cached !== undefined) {
    if (parent && !parent.children.includes(cached)) parent.children.push(cached);
    return cached.exports;
  }
  const module = new Module(file, parent);
  if (isMain) {
    need('process').mainModule = module;
    module.id = '.';
    Module.main = module;
  }
  Module._cache[file] = module;
  let done = false;
  try {
    module.load(file);
    done = true;
  } finally {
    if (!done) delete Module._cache[file];
  }
  return module.exports;
};

function requireOf(module) {
  const require = (specifier) => module.require(specifier);
  Object.defineProperty(require, 'name', { value: 'require' });
  require.resolve = (specifier, options) => Module._resolveFilename(checkString(specifier, 'request'), module, false, options);
  require.resolve.paths = (specifier) => (builtinName(specifier) !== undefined ? null : /^\.\.?\//.test(specifier) ? [module.path] : [...module.paths, ...extraPaths()]);
  require.main = Module.main;
  require.extensions = Module._extensions;
  require.cache = Module._cache;
  return require;
}

function createRequire(place) {
  const file = place instanceof url.URL || (typeof place === 'string' && place.startsWith('file:')) ? url.fileURLToPath(place) : place;
  if (typeof file !== 'string' || !path.isAbsolute(file)) throw need('errors').argumentValue('filename', place, 'must be a file URL object, file URL string, or absolute path string');
  const module = new Module(file);
  module.filename = file.endsWith('/') ? path.join(file, 'noop.js') : file;
  module.paths = modulePaths(path.dirname(module.filename));
  return requireOf(module);
}

Object.assign(Module, {
  Module, createRequire, builtinModules: Object.keys(builtins).filter((name) => !prefixOnly.has(name)), isBuiltin: (name) => builtinName(name) !== undefined,
  wrap: (source) => `(function (${wrapper}) { ${source}\n});`, wrapper: [`(function (${wrapper}) { `, '\n});'], _nodeModulePaths: modulePaths, globalPaths: [],
  findPackageJSON: (specifier, base) => { const own = packageOf(url.fileURLToPath(new url.URL(specifier, base ?? 'file:///'))); return own && path.join(own[0], 'package.json'); },
  syncBuiltinESMExports() {}, register() { throw need('errors').absent('module.register', 'loader hooks need threads'); }, main: undefined,
});
builtins.module = Module;

// ---- ES modules: what the engine asks -----------------------------------------------------------------------

const pathOf = (name) => (name.startsWith('file:') ? url.fileURLToPath(name.replace(/[?#].*$/s, '')) : name);

hooks.resolve = (specifier, importer) => {
  if (importer === '') return specifier;                       // already resolved, by evaluateModule
  const bare = builtinName(specifier);
  if (bare !== undefined) return `node:${bare}`;
  if (specifier.startsWith('data:')) return specifier;
  // A script in CommonJS imports by its path, a module by its URL.
  const from = importer.startsWith('file:') ? pathOf(importer) : path.isAbsolute(importer) ? importer : path.join(need('process').cwd(), importer);
  if (/^(file:|\/|\.\.?(\/|$))/.test(specifier)) {
    const full = new url.URL(specifier, url.pathToFileURL(from));
    const named = url.fileURLToPath(full.href.replace(/[?#].*$/s, ''));
    const file = (typed.test(from) && kindOf(named) !== REGULAR ? typedFile(named) : undefined) ?? named;
    checkFound(file, from, specifier);
    return url.pathToFileURL(real(file)).href + full.search + full.hash;
  }
  if (/^[a-z][a-z0-9+.-]*:/i.test(specifier)) {
    if (specifier.startsWith('node:')) throw coded(Error, 'ERR_UNKNOWN_BUILTIN_MODULE', `No such built-in module: ${specifier}`);
    throw coded(Error, 'ERR_UNSUPPORTED_ESM_URL_SCHEME', `Only URLs with a scheme in: file, data, and node are supported by the default ESM loader. Received protocol '${specifier.slice(0, specifier.indexOf(':') + 1)}'`);
  }
  const found = resolve(specifier, from, conditionsOf('import'));
  if (found === undefined) throw coded(Error, 'ERR_MODULE_NOT_FOUND', `Cannot find package '${splitName(specifier)[0]}' imported from ${from}`);
  if (found.startsWith('node:')) return found;
  checkFound(found, from, specifier);
  return url.pathToFileURL(real(found)).href;
};

function checkFound(file, from) {
  const kind = kindOf(file);
  if (kind === DIRECTORY) throw coded(Error, 'ERR_UNSUPPORTED_DIR_IMPORT', `Directory import '${file}' is not supported resolving ES modules imported from ${from}`);
  if (kind === 0 && !sources.has(url.pathToFileURL(file).href)) throw coded(Error, 'ERR_MODULE_NOT_FOUND', `Cannot find module '${file}' imported from ${from}`);
}

function record(value) {
  const out = {};
  if (value !== null && (typeof value === 'object' || typeof value === 'function')) {
    for (const key of Object.keys(value)) {
      if (key === 'default') continue;
      try {
        out[key] = value[key];
      } catch {
        // A getter that throws is not there for importers; requiring the module still shows it.
      }
    }
  }
  out.default = value;
  return out;
}

hooks.load = (name, attributes) => {
  const type = attributes?.type;
  if (name.startsWith('node:')) return record(builtin(name));
  if (sources.has(name)) return sources.get(name);
  if (name.startsWith('data:')) return loadData(name, type);
  const file = pathOf(name);
  const source = sourceOf(file);
  if (type !== undefined && type !== 'json') throw coded(TypeError, 'ERR_IMPORT_ATTRIBUTE_UNSUPPORTED', `Import attribute "type" with value "${type}" is not supported`);
  const format = classify(file, source);
  if (format === 'json') {
    if (type !== 'json') throw coded(TypeError, 'ERR_IMPORT_ATTRIBUTE_MISSING', `Module "${name}" needs an import attribute of "type: json"`);
    return { default: Module._load(file) };
  }
  if (type === 'json') throw coded(TypeError, 'ERR_IMPORT_ATTRIBUTE_TYPE_INCOMPATIBLE', `Module "${name}" is not of type "json"`);
  return format === 'module' ? source : record(Module._load(file));
};

function loadData(name, type) {
  const [, mime, base64, body] = /^data:([^,;]*)(?:;[^,;]*)*?(;base64)?,(.*)$/s.exec(name) ?? [];
  const text = base64 ? host.decode(host.encode(decodeURIComponent(body), 5), 0) : decodeURIComponent(body ?? '');
  if (mime === 'application/json' && type === 'json') return { default: JSON.parse(text) };
  if (mime !== 'text/javascript') throw coded(TypeError, 'ERR_UNKNOWN_MODULE_FORMAT', `Unknown module format: ${mime} for URL ${name}`);
  return text;
}

hooks.meta = (meta, name) => {
  if (name.startsWith('file:')) {
    meta.dirname = path.dirname(pathOf(name));
    meta.filename = pathOf(name);
  }
  meta.resolve = (specifier) => hooks.resolve(`${specifier}`, name);
  meta.url = name;
};

return { Module, builtin, requireOf, sources, modulePaths, resolve, tidy, pathOf, classify, sourceOf };

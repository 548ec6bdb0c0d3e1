// The command line, the life of a run, and the global names.
const process = need('process');
const control = process[Symbol.for('skillcell.control')];
const loop = need('loop');
const path = need('path');
const url = need('url');
const { inspect } = need('inspect');
const { coded } = need('errors');
const modules = need('modules');

// ---- errors that nobody caught ------------------------------------------------------------------------------

// "FILE:LINE", the line itself and a mark under the column, as far as the file can be read.
function place(error) {
  const stack = typeof error?.stack === 'string' ? error.stack : '';
  const match = /\n {4}at (?:.*? \()?(.*?):(\d+):(\d+)\)?(?=\n|$)/.exec(stack);
  if (!match) return '';
  const [, name, line, column] = match;
  let text = modules.sources.get(name) ?? evaluated.get(name);
  if (text === undefined) {
    try {
      text = modules.sourceOf(modules.pathOf(name));
    } catch {
      return `${name}:${line}\n\n`;
    }
  }
  const shown = text.split('\n')[line - 1];
  // A line of machine-made code can be as long as its file.
  if (shown === undefined || shown.length > 500) return `${name}:${line}\n\n`;
  return `${name}:${line}\n${shown}\n${shown.slice(0, column - 1).replace(/[^\t]/g, ' ')}^\n\n`;
}

const evaluated = new Map();

function tell(error) {
  let text;
  try {
    text = error instanceof Error || need('types').isNativeError(error) ? `${place(error)}${inspect(error)}\n` : `Uncaught:\n${inspect(error)}\n`;
  } catch {
    text = 'Uncaught error, and showing it failed, too\n';
  }
  process.stderr.write(text);
}

let failing = false;

function fatal(error, origin = 'uncaughtException') {
  if (!failing) {
    try {
      if (process.capture) {
        process.capture(error);
        return;
      }
      process.emit('uncaughtExceptionMonitor', error, origin);
      if (process.listenerCount('uncaughtException') > 0) {
        process.emit('uncaughtException', error, origin);
        return;
      }
    } catch (second) {
      tell(second);
      host.exit(7);
    }
    failing = true;
  }
  tell(error);
  try {
    process.exitCode = 1;
    control.finish();
  } catch (second) {
    tell(second);
  }
  host.exit(process.exitCode || 1);
}
loop.onFailure(fatal);

const unhandled = new Map();
const reported = new WeakSet();

hooks.rejection = (promise, reason, handled) => {
  if (!handled) unhandled.set(promise, reason);
  else if (!unhandled.delete(promise) && reported.has(promise)) {
    reported.delete(promise);
    loop.nextTick(() => process.emit('rejectionHandled', promise));
  }
};

hooks.settleRejections = () => {
  if (unhandled.size === 0) return;
  const list = [...unhandled];
  unhandled.clear();
  for (const [promise, reason] of list) {
    reported.add(promise);
    try {
      if (process.emit('unhandledRejection', reason, promise)) continue;
    } catch (error) {
      fatal(error);
      continue;
    }
    if (need('types').isNativeError(reason) || reason instanceof Error) fatal(reason, 'unhandledRejection');
    else {
      const error = coded(Error, 'ERR_UNHANDLED_REJECTION', `This error originated either by throwing inside of an async function without a catch block, or by rejecting a promise which was not handled with .catch(). The promise rejected with the reason "${inspect(reason)}".`);
      error.name = 'UnhandledPromiseRejection';
      error.stack = `UnhandledPromiseRejection: ${error.message}`;
      fatal(error, 'unhandledRejection');
    }
  }
};

// ---- the command line ---------------------------------------------------------------------------------------

const help = `Usage: node [options] [ script.js | - ] [arguments]
       node [options] -e script [arguments]

  -                     script read from stdin (the default)
  --                    end of options
  -c, --check           check the syntax of the script without running it
  -e, --eval=...        evaluate a script
  -h, --help            print this
  --import=...          import a module first
  --input-type=...      "module" or "commonjs" for -e and stdin
  --no-warnings         don't print warnings
  -p, --print [...]     evaluate a script and print the result
  -r, --require=...     require a module first
  -v, --version         print the version

This is QuickJS-ng ${process.versions.quickjs} with node's interface, in a WebAssembly sandbox.
`;

// Options that change nothing here, but stand in many a script's first line.
const ignored = /^--(no-deprecation|throw-deprecation|trace-[a-z-]+|experimental-[a-z-]+|no-experimental-[a-z-]+|disable-warning|enable-source-maps|max-old-space-size|max-semi-space-size|stack-size|unhandled-rejections|preserve-symlinks(-main)?|harmony[a-z-]*|expose-gc|no-addons|use_strict)(=.*)?$/;

function parseCommand(words) {
  const out = { source: undefined, print: false, check: false, type: undefined, before: [], script: undefined, rest: [] };
  const queue = [...words];
  const value = (word, name) => {
    const at = word.startsWith('--') ? word.indexOf('=') : -1;
    if (at !== -1) return word.slice(at + 1);
    if (queue.length === 0) return { failed: `${word} requires an argument` };
    return queue.shift();
  };
  while (queue.length > 0) {
    const word = queue.shift();
    if (word === '--') break;
    if (word === '-' || !word.startsWith('-')) {
      queue.unshift(word);
      break;
    }
    const name = word.replace(/=.*$/s, '');
    let given;
    if (name === '-v' || name === '--version') return { print: `${process.version}\n` };
    if (name === '-h' || name === '--help') return { print: help };
    if (['-e', '--eval', '-pe', '-ep'].includes(name)) {
      given = value(word);
      out.source = given;
      out.print ||= name.length === 3;
    } else if (name === '-p' || name === '--print') {
      out.print = true;
      if (word !== name) given = value(word);
      else if (queue.length > 0 && out.source === undefined) given = queue.shift();
      if (given !== undefined) out.source = given;
    } else if (name === '-c' || name === '--check') out.check = true;
    else if (name === '-r' || name === '--require' || name === '--import') {
      given = value(word);
      out.before.push([name === '--import' ? 'import' : 'require', given]);
    } else if (name === '--input-type') {
      given = value(word);
      out.type = given;
      if (!['module', 'commonjs'].includes(given)) return { failed: '--input-type must be "module" or "commonjs"' };
    } else if (name === '--no-warnings') process.quiet = true;
    else if (name === '-i' || name === '--interactive' || name.startsWith('--inspect')) return { failed: `${name} is not available in this sandbox: there is no terminal` };
    else if (!ignored.test(word)) return { failed: `bad option: ${word}` };
    if (given?.failed) return given;
    process.execArgv.push(word, ...(given !== undefined && word === name ? [given] : []));
  }
  if (out.source === undefined) {
    const script = queue.shift();
    if (script !== undefined && script !== '-') out.script = script;
    else if (script === '-') out.dash = true;
  }
  out.rest = queue;
  return out;
}

let awaited = null;                    // the promise of the main module

function runModule(name) {
  awaited = host.evaluateModule(name)[0];
  // Told by settle() below, not as an unhandled rejection.
  host.promiseHandled(awaited);
}

function settleMain() {
  if (awaited === null) return;
  const [state, reason] = host.promise(awaited);
  if (state === 0) return;
  awaited = null;
  if (state === 2) fatal(reason);
}

function runText(source, name, command) {
  const folder = process.cwd();
  const module = new modules.Module(name);
  module.filename = path.join(folder, name);
  module.paths = modules.modulePaths(folder);
  const asModule = () => {
    const address = url.pathToFileURL(path.join(folder, `${name}1`)).href;
    modules.sources.set(address, source);
    runModule(address);
  };
  if (command.type === 'module') {
    if (command.print) throw coded(Error, 'ERR_EVAL_ESM_CANNOT_PRINT', '--print cannot be used with ESM input');
    asModule();
    return;
  }
  evaluated.set(name, source);
  Object.assign(globalThis, { module, exports: module.exports, require: modules.requireOf(module), __filename: name, __dirname: '.' });
  let result;
  try {
    result = host.evaluate(modules.tidy(source), name);
  } catch (error) {
    if (error instanceof SyntaxError && command.type === undefined && !command.print && host.canBeModule(source)) {
      asModule();
      return;
    }
    throw error;
  }
  if (command.print) need('console').log(result);
}

function runScript(command) {
  const { Module } = modules;
  const given = path.resolve(command.script);
  let file;
  try {
    file = Module._resolveFilename(given, null, true);
  } catch (error) {
    error.message = `Cannot find module '${given}'`;
    throw error;
  }
  process.argv[1] = file;
  const source = modules.sourceOf(file);
  const format = modules.classify(file, source);
  if (command.check) {
    if (format === 'module' && !host.canBeModule(source)) host.compileFunction(source, file, '');
    else if (format === 'commonjs') host.compileFunction(source, file, 'exports, require, module, __filename, __dirname');
    return;
  }
  if (format === 'module') runModule(url.pathToFileURL(file).href);
  else Module._load(file, null, true);
}

function start() {
  const command = parseCommand(process.argv.slice(1));
  if (typeof command.print === 'string') {
    process.stdout.write(command.print);
    return;
  }
  if (command.failed !== undefined) {
    process.stderr.write(`node: ${command.failed}\n`);
    process.exitCode = 9;
    return;
  }
  const node = process.argv[0];
  process.argv = command.script === undefined ? [node, ...(command.dash ? ['-'] : []), ...command.rest] : [node, command.script, ...command.rest];
  const requireHere = modules.Module.createRequire(path.join(process.cwd(), 'noop.js'));
  for (const [how, what] of command.before) {
    if (how === 'require') requireHere(what);
    else {
      runModule(hooks.resolve(what, url.pathToFileURL(path.join(process.cwd(), 'noop.js')).href));
      loop.jobs();
      loop.drain();
      while (awaited !== null && host.promise(awaited)[0] === 0) loop.run();
      settleMain();
    }
  }
  if (command.source !== undefined) runText(command.source, '[eval]', command);
  else if (command.script !== undefined) runScript(command);
  else {
    const data = host.readAll(0);
    runText(typeof data === 'number' ? '' : host.decode(data, 0), '[stdin]', command);
  }
}

hooks.main = () => {
  need('performance').begin();
  control.begin();
  try {
    start();
  } catch (error) {
    fatal(error);
  }
  // The body of a module runs as a job: what it put into promises comes before its ticks.
  if (awaited !== null) loop.jobs();
  loop.drain();
  settleMain();
  do {
    loop.run();
    settleMain();
    if (awaited === null) {
      loop.call(control.beforeExit);
      settleMain();
    }
  } while (loop.alive());
  if (awaited !== null) {
    process.stderr.write('Warning: Detected unsettled top-level await\n');
    process.exitCode ??= 13;
  }
  try {
    return control.finish();
  } catch (error) {
    fatal(error);
    return 1;
  }
};

// ---- global names -------------------------------------------------------------------------------------------

const { Buffer, Blob } = need('buffer');
const events = need('event_target');
const encoding = need('encoding');
const hidden = {
  Buffer, Blob, URL: url.URL, URLSearchParams: url.URLSearchParams, TextEncoder: encoding.TextEncoder, TextDecoder: encoding.TextDecoder, Event: events.Event,
  CustomEvent: events.CustomEvent, EventTarget: events.EventTarget, AbortController: events.AbortController, AbortSignal: events.AbortSignal, process, console: need('console'),
};
const visible = {
  global: globalThis, setTimeout: loop.setTimeout, setInterval: loop.setInterval, setImmediate: loop.setImmediate, clearTimeout: loop.clearTimeout, clearInterval: loop.clearInterval,
  clearImmediate: loop.clearImmediate, queueMicrotask: loop.queueMicrotask, structuredClone: need('clone'), performance: need('performance'), fetch: need('absent').fetch,
  crypto: need('crypto').webcrypto,
};
for (const [name, value] of Object.entries(hidden)) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
for (const [name, value] of Object.entries(visible)) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: true });
Object.defineProperty(globalThis, Symbol.toStringTag, { value: 'global', writable: false, configurable: true, enumerable: false });
return {};

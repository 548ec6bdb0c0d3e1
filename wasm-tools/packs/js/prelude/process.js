// process: what belongs to one run. Everything of it is set up by begin(), never in the snapshot.
const EventEmitter = need('events');
const { coded, argumentType, systemError, checkFunction } = need('errors');
const { Readable, Writable } = need('stream');
const loop = need('loop');

// The level of node's interface that the prelude follows; what really runs is under its own name beside it.
const LEVEL = '20.0.0';
const versions = { node: LEVEL, quickjs: '0.16.2', zlib: '1.4', modules: '115' };

function Process() {
  EventEmitter.call(this);
}
Object.setPrototypeOf(Process.prototype, EventEmitter.prototype);
Object.defineProperty(Process.prototype, Symbol.toStringTag, { value: 'process', configurable: true });
Object.defineProperty(Process, 'name', { value: 'process' });
const process = new Process();

let exiting = false;
let exitCode;

// Standard output and error: written at once, so that nothing is lost when a run is stopped.
class Output extends Writable {
  constructor(fd) {
    super({ decodeStrings: false });
    this.fd = fd;
    Object.defineProperty(this, '_type', { value: 'pipe', enumerable: false });
  }
  write(chunk, encoding, callback) {
    if (typeof encoding === 'function') [callback, encoding] = [encoding, undefined];
    if (this.writableEnded) return super.write(chunk, encoding, callback);
    let view;
    if (typeof chunk === 'string') view = host.encode(chunk, need('buffer').encodingNumber(encoding));
    else if (ArrayBuffer.isView(chunk)) view = new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    else throw argumentType('chunk', ['string', 'Buffer', 'TypedArray', 'DataView'], chunk);
    try {
      need('fs').writeFully(this.fd, view, -1);
    } catch (error) {
      loop.nextTick(() => {
        callback?.(error);
        this.destroy(error);
      });
      return false;
    }
    if (callback) loop.nextTick(callback, null);
    return true;
  }
  _write(chunk, encoding, callback) {
    need('fs').writeFully(this.fd, typeof chunk === 'string' ? host.encode(chunk, 0) : chunk, -1);
    callback();
  }
  _destroy(error, callback) {
    callback(error);
  }
}

// Standard input: read in the loop when somebody listens; a blocking read, since there is nothing else to do then.
class Input extends Readable {
  #wanted = false;
  constructor() {
    super({ highWaterMark: 65536 });
    this.fd = 0;
    loop.source(0, () => this.#fill(), () => this.#wanted && !this.destroyed && !this.isPaused());
  }
  _read() {
    this.#wanted = true;
  }
  #fill() {
    this.#wanted = false;
    const buffer = need('buffer').Buffer.alloc(65536);
    const count = host.read(0, buffer, 0, buffer.length, -1);
    if (count < 0 && count !== -8) this.destroy(systemError(-count, 'read'));
    else this.push(count > 0 ? buffer.subarray(0, count) : null);
  }
  setRawMode() { throw need('errors').absent('raw mode', 'standard input is not a terminal'); }
}

const streams = {};
for (const [name, make] of [['stdin', () => new Input()], ['stdout', () => new Output(1)], ['stderr', () => new Output(2)]]) {
  Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => (streams[name] ??= make()) });
}

// Only strings, as an environment has; unknown names are undefined.
function environment() {
  const values = {};
  for (const entry of host.environment()) {
    const at = entry.indexOf('=');
    if (at > 0) values[entry.slice(0, at)] = entry.slice(at + 1);
  }
  return new Proxy(values, {
    set(target, key, value) {
      if (typeof key === 'symbol' || typeof value === 'symbol') throw new TypeError('Cannot convert a Symbol value to a string');
      target[key] = String(value);
      return true;
    },
    defineProperty(target, key, descriptor) {
      if ('value' in descriptor) descriptor = { ...descriptor, value: String(descriptor.value), configurable: true, enumerable: true, writable: true };
      return Reflect.defineProperty(target, key, descriptor);
    },
  });
}

function checkCode(code) {
  if (code === undefined || code === null) return code;
  if (typeof code === 'number' || (typeof code === 'string' && code !== '' && Number.isInteger(Number(code)))) {
    if (!Number.isInteger(Number(code))) throw need('errors').outOfRange('code', 'an integer', code);
    return Number(code);
  }
  throw argumentType('code', 'number', code);
}

Object.defineProperty(process, 'exitCode', { configurable: true, enumerable: true, get: () => exitCode, set: (code) => { exitCode = checkCode(code); } });

function exit(code) {
  if (code !== undefined) process.exitCode = code;
  if (!exiting) {
    exiting = true;
    process.emit('exit', exitCode ?? 0);
  }
  host.exit(exitCode ?? 0);
}

function hrtime(earlier) {
  const now = host.now();
  const pair = [Number(now / 1000000000n), Number(now % 1000000000n)];
  if (earlier === undefined) return pair;
  if (!Array.isArray(earlier)) throw argumentType('time', 'Array', earlier);
  let [whole, part] = [pair[0] - earlier[0], pair[1] - earlier[1]];
  if (part < 0) [whole, part] = [whole - 1, part + 1e9];
  return [whole, part];
}
hrtime.bigint = () => host.now();

function memoryUsage() {
  const [rss, heapTotal, heapUsed] = host.memory();
  return { rss, heapTotal, heapUsed, external: 0, arrayBuffers: 0 };
}
memoryUsage.rss = () => host.memory()[0];

function emitWarning(warning, type, code) {
  if (type !== null && typeof type === 'object') ({ type, code } = type);
  if (!(warning instanceof Error)) {
    const text = warning;
    warning = new Error(text);
    warning.name = String(type || 'Warning');
    if (code !== undefined) warning.code = code;
  }
  if (warning.name === 'DeprecationWarning' && process.noDeprecation) return;
  loop.nextTick(() => {
    if (process.quiet !== true) process.stderr.write(`(node:${process.pid}) ${warning.code ? `[${warning.code}] ` : ''}${warning.name}: ${warning.message}\n`);
    process.emit('warning', warning);
  });
}
Object.defineProperty(process, 'quiet', { value: false, writable: true, enumerable: false });

Object.assign(process, {
  title: 'node', version: `v${LEVEL}`, versions, arch: 'wasm32', platform: 'wasi', release: { name: 'node' }, pid: 1, ppid: 0, execArgv: [],
  features: { inspector: false, debug: false, uv: false, ipv6: false, tls: false }, config: { variables: {}, target_defaults: {} }, argv0: 'node',
  allowedNodeEnvironmentFlags: new Set(), exiting: undefined,
  exit, hrtime, memoryUsage, emitWarning,
  reallyExit: (code) => host.exit(code ?? 0),
  abort: () => host.exit(134),
  nextTick: loop.nextTick,
  uptime: () => need('performance').now() / 1000,
  cwd() {
    const path = host.cwd();
    if (typeof path === 'number') throw systemError(-path, 'uv_cwd');
    return path;
  },
  chdir(folder) {
    need('errors').checkString(folder, 'directory');
    const status = host.chdir(folder);
    if (status < 0) throw systemError(-status, 'chdir', process.cwd(), folder);
  },
  umask: () => 0o22,
  cpuUsage: () => ({ user: Math.round(need('performance').now() * 1000), system: 0 }),
  resourceUsage: () => ({ userCPUTime: Math.round(need('performance').now() * 1000), systemCPUTime: 0, maxRSS: host.memory()[0] / 1024 }),
  constrainedMemory: () => 0,
  kill: () => { throw need('errors').absent('process.kill', 'there are no other processes'); },
  binding: () => { throw need('errors').absent('process.binding', 'use the public modules'); },
  getuid: () => 0, geteuid: () => 0, getgid: () => 0, getegid: () => 0, getgroups: () => [0],
  setUncaughtExceptionCaptureCallback(callback) {
    if (callback !== null) checkFunction(callback, 'fn');
    process.capture = callback;
  },
  hasUncaughtExceptionCaptureCallback: () => Boolean(process.capture),
  getBuiltinModule: (name) => need('modules').builtin(name),
});
Object.defineProperty(process, 'capture', { value: null, writable: true, enumerable: false });
delete process.exiting;

// What C and main.js call.
const control = {
  begin() {
    process.env = environment();
    process.argv = host.arguments();
    process.argv0 = process.argv[0] ?? 'node';
    process.execPath = '/usr/bin/node';
    process.argv[0] = process.execPath;
  },
  // 'beforeExit' may give the loop more to do.
  beforeExit: () => process.emit('beforeExit', exitCode ?? 0),
  finish() {
    if (!exiting) {
      exiting = true;
      process.emit('exit', exitCode ?? 0);
    }
    return exitCode ?? 0;
  },
};
Object.defineProperty(process, Symbol.for('skillcell.control'), { value: control });
return process;

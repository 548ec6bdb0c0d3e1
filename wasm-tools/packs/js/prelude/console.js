// console: text to standard output and standard error.
const { inspect, formatWithOptions, width } = need('inspect');
const types = need('types');
const process = need('process');

class Console {
  #out;
  #err;
  #options;
  #indent = '';
  #step;
  #counts = new Map();
  #times = new Map();
  constructor(out, err, options = {}) {
    if (out !== null && typeof out === 'object' && typeof out.write !== 'function') ({ stdout: out, stderr: err, ...options } = out);
    this.#out = out;
    this.#err = err ?? out;
    this.#options = options.inspectOptions ?? {};
    this.#step = options.groupIndentation ?? 2;
    // console.log is often passed on without its object.
    for (const key of Object.getOwnPropertyNames(Console.prototype)) {
      if (key !== 'constructor') Object.defineProperty(this, key, { value: this[key].bind(this), writable: true, configurable: true, enumerable: true });
    }
  }
  #write(stream, values) {
    let text = formatWithOptions(this.#options, ...values);
    if (this.#indent !== '') text = this.#indent + text.replaceAll('\n', `\n${this.#indent}`);
    const target = stream === 1 ? this.#out ?? process.stdout : this.#err ?? process.stderr;
    target.write(`${text}\n`);
  }
  log(...values) { this.#write(1, values); }
  info(...values) { this.#write(1, values); }
  debug(...values) { this.#write(1, values); }
  dirxml(...values) { this.#write(1, values); }
  error(...values) { this.#write(2, values); }
  warn(...values) { this.#write(2, values); }
  dir(value, options) { this.#write(1, [inspect(value, { customInspect: false, ...this.#options, ...options })]); }
  trace(...values) {
    const error = { name: 'Trace', message: formatWithOptions(this.#options, ...values) };
    Error.captureStackTrace(error, this.trace);
    this.#write(2, [error.stack]);
  }
  assert(condition, ...values) {
    if (condition) return;
    if (typeof values[0] === 'string') values[0] = `Assertion failed: ${values[0]}`;
    else values.unshift('Assertion failed');
    this.#write(2, values);
  }
  clear() {}
  count(label = 'default') {
    label = `${label}`;
    const count = (this.#counts.get(label) ?? 0) + 1;
    this.#counts.set(label, count);
    this.#write(1, [`${label}: ${count}`]);
  }
  countReset(label = 'default') {
    if (!this.#counts.delete(`${label}`)) process.emitWarning(`Count for '${label}' does not exist`);
  }
  group(...values) {
    if (values.length > 0) this.#write(1, values);
    this.#indent += ' '.repeat(this.#step);
  }
  groupCollapsed(...values) { this.group(...values); }
  groupEnd() { this.#indent = this.#indent.slice(0, -this.#step); }
  time(label = 'default') {
    if (this.#times.has(`${label}`)) process.emitWarning(`Label '${label}' already exists for console.time()`);
    else this.#times.set(`${label}`, host.milliseconds());
  }
  timeLog(label = 'default', ...values) { this.#elapsed(`${label}`, 'timeLog', values); }
  timeEnd(label = 'default') {
    this.#elapsed(`${label}`, 'timeEnd', []);
    this.#times.delete(`${label}`);
  }
  timeStamp() {}
  profile() {}
  profileEnd() {}
  #elapsed(label, caller, values) {
    const start = this.#times.get(label);
    if (start === undefined) {
      process.emitWarning(`No such label '${label}' for console.${caller}()`);
      return;
    }
    this.#write(1, [`${label}: ${duration(host.milliseconds() - start)}`, ...values]);
  }
  table(data, columns) {
    if (data === null || typeof data !== 'object') {
      this.log(data);
      return;
    }
    const cell = (value) => inspect(value, { ...this.#options, maxArrayLength: 3, breakLength: Infinity, colors: false, depth: value !== null && typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length > 2 ? -1 : 0 });
    const map = types.isMap(data);
    const set = types.isSet(data);
    const indexName = map || set ? '(iteration index)' : '(index)';
    const rows = map ? [...data].map(([key, value], i) => [i, value, key]) : set ? [...data].map((value, i) => [i, value]) : Object.keys(data).map((key) => [key, data[key]]);
    const names = [];
    let plain = false;
    for (const [, value] of rows) {
      if (map || value === null || (typeof value !== 'object' && typeof value !== 'function')) {
        plain = true;
        continue;
      }
      for (const key of columns ?? Object.keys(value)) if (!names.includes(key)) names.push(key);
    }
    const heads = [indexName, ...(map ? ['Key'] : []), ...names, ...(plain ? ['Values'] : [])];
    const body = rows.map(([index, value, key]) => {
      const object = !map && value !== null && (typeof value === 'object' || typeof value === 'function');
      return [
        String(index), ...(map ? [cell(key)] : []),
        ...names.map((name) => (object && Object.hasOwn(value, name) ? cell(value[name]) : '')),
        ...(plain ? [object ? '' : cell(value)] : []),
      ];
    });
    const widths = heads.map((head, i) => Math.max(width(head), ...body.map((row) => width(row[i]))) + 2);
    const line = (left, middle, right) => left + widths.map((size) => '─'.repeat(size)).join(middle) + right;
    const row = (cells) => `│${cells.map((text, i) => ` ${text}${' '.repeat(widths[i] - width(text) - 1)}`).join('│')}│`;
    this.log([line('┌', '┬', '┐'), row(heads), line('├', '┼', '┤'), ...body.map(row), line('└', '┴', '┘')].join('\n'));
  }
}

function duration(time) {
  const two = (number) => String(number).padStart(2, '0');
  if (time < 1000) return `${Number(time.toFixed(3))}ms`;
  if (time < 60000) return `${(time / 1000).toFixed(3)}s`;
  const minutes = Math.floor(time / 60000);
  if (minutes < 60) return `${minutes}:${two(Math.floor((time % 60000) / 1000))}.${String(Math.floor(time % 1000)).padStart(3, '0')} (m:ss.mmm)`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(Math.floor((time % 60000) / 1000))} (h:mm:ss)`;
}

const console = new Console(undefined, undefined);
console.Console = Console;
Object.defineProperty(console, 'Console', { enumerable: false });
Object.defineProperty(console, Symbol.toStringTag, { value: 'console', configurable: true });
return console;

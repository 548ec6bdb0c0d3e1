// readline: lines out of a stream. No editing: there is no terminal.
const EventEmitter = need('events');
const { StringDecoder } = need('encoding');
const { coded } = need('errors');
const loop = need('loop');

class Interface extends EventEmitter {
  #decoder = new StringDecoder('utf8');
  #rest = '';
  #question = null;
  #pending = [];
  #onData = (chunk) => this.#feed(typeof chunk === 'string' ? chunk : this.#decoder.write(chunk));
  #onEnd = () => {
    const rest = this.#rest + this.#decoder.end();
    this.#rest = '';
    if (rest !== '') this.#line(rest);
    this.close();
  };
  #prompt;
  constructor(input, output, ...rest) {
    super();
    const options = input?.input ? input : { input, output, completer: rest[0] };
    this.input = options.input;
    this.output = options.output;
    this.terminal = false;
    this.closed = false;
    this.line = '';
    this.#prompt = options.prompt ?? '> ';
    this.history = [];
    options.signal?.addEventListener('abort', () => this.close());
    this.input.on('data', this.#onData);
    this.input.on('end', this.#onEnd);
    this.input.on('error', (error) => this.emit('error', error));
    this.input.resume();
  }
  #feed(text) {
    // "\r\n" may come in two parts.
    const all = this.#rest + text;
    const lines = all.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }
  #line(line) {
    if (this.closed && this.#question === null) return;
    line = line.replace(/\r$/, '');
    this.line = line;
    const question = this.#question;
    this.#question = null;
    if (question) question(line);
    else if (this.paused) this.#pending.push(line);
    else this.emit('line', line);
  }
  question(text, options, callback) {
    if (typeof options === 'function') [callback, options] = [options, {}];
    if (this.closed) throw coded(Error, 'ERR_USE_AFTER_CLOSE', 'readline was closed');
    this.output?.write(text);
    this.#question = callback;
    options?.signal?.addEventListener('abort', () => { this.#question = null; });
    if (this.#pending.length > 0) this.#line(this.#pending.shift());
    this.resume();
  }
  setPrompt(text) { this.#prompt = text; }
  getPrompt() { return this.#prompt; }
  prompt() {
    this.output?.write(this.#prompt);
    this.resume();
  }
  write(text) { if (text) this.#feed(String(text)); }
  pause() {
    this.paused = true;
    this.input.pause();
    this.emit('pause');
    return this;
  }
  resume() {
    if (this.paused) {
      this.paused = false;
      for (const line of this.#pending.splice(0)) this.emit('line', line);
      this.emit('resume');
    }
    this.input.resume();
    return this;
  }
  close() {
    if (this.closed) return;
    this.closed = true;
    this.input.removeListener('data', this.#onData);
    this.input.removeListener('end', this.#onEnd);
    this.input.pause();
    this.emit('close');
  }
  [Symbol.dispose]() { this.close(); }
  async* [Symbol.asyncIterator]() {
    const queue = [];
    let wake = () => {};
    const onLine = (line) => {
      queue.push(line);
      wake();
    };
    const onClose = () => wake();
    this.on('line', onLine);
    this.on('close', onClose);
    try {
      for (;;) {
        if (queue.length > 0) yield queue.shift();
        else if (this.closed) return;
        else await new Promise((resolve) => { wake = resolve; });
      }
    } finally {
      this.removeListener('line', onLine);
      this.removeListener('close', onClose);
      this.close();
    }
  }
}
Interface.prototype.question[Symbol.for('nodejs.util.promisify.custom')] = function (text, options) {
  return new Promise((resolve) => this.question(text, options ?? {}, resolve));
};

class PromiseInterface extends Interface {
  question(text, options = {}) {
    return new Promise((resolve, reject) => {
      options.signal?.addEventListener('abort', () => reject(need('event_target').abortError(options.signal.reason)));
      super.question(text, options, resolve);
    });
  }
}

const told = (callback) => {
  if (callback) loop.nextTick(callback);
  return true;
};
return {
  Interface,
  createInterface: (...options) => new Interface(...options),
  clearLine: (stream, direction, callback) => told(callback), clearScreenDown: (stream, callback) => told(callback),
  cursorTo: (stream, x, y, callback) => told(typeof y === 'function' ? y : callback), moveCursor: (stream, dx, dy, callback) => told(callback),
  emitKeypressEvents() {},
  promises: { Interface: PromiseInterface, createInterface: (...options) => new PromiseInterface(...options) },
};

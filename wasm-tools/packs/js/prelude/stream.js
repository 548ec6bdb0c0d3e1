// stream: Readable, Writable, Duplex, Transform, with back-pressure, as far as scripts use them.
const EventEmitter = need('events');
const { coded, argumentType } = need('errors');
const { Buffer } = need('buffer');
const { StringDecoder } = need('encoding');
const loop = need('loop');

const BYTES = 64 * 1024;
const OBJECTS = 16;

function Stream(options) {
  EventEmitter.call(this, options);
}
Object.setPrototypeOf(Stream.prototype, EventEmitter.prototype);
Object.setPrototypeOf(Stream, EventEmitter);

const premature = () => coded(Error, 'ERR_STREAM_PREMATURE_CLOSE', 'Premature close');

// ---- both sides ---------------------------------------------------------------------------------------------

function destroy(error, callback) {
  if (this.destroyed) {
    callback?.(null);
    return this;
  }
  this.destroyed = true;
  if (error) this.errored = error;
  this._destroy(error ?? null, (late) => {
    const final = late ?? error;
    loop.nextTick(() => {
      callback?.(final ?? null);
      if (final) {
        this.errored = final;
        this.emit('error', final);
      }
      this.closed = true;
      this.emit('close');
    });
  });
  return this;
}

const shared = {
  destroy,
  _destroy(error, callback) { callback(error); },
  [Symbol.asyncDispose]() {
    this.destroy();
    return Promise.resolve();
  },
};

function setUp(stream, options) {
  stream.destroyed = false;
  stream.closed = false;
  stream.errored = null;
  if (typeof options.destroy === 'function') stream._destroy = options.destroy;
  options.signal?.addEventListener('abort', () => stream.destroy(need('event_target').abortError(options.signal.reason)));
  if (typeof options.construct === 'function') options.construct.call(stream, (error) => error && stream.destroy(error));
}

function quiet(stream, keys) {
  for (const key of keys) Object.defineProperty(stream, key, { enumerable: false, writable: true, configurable: true, value: stream[key] });
}

// ---- reading ------------------------------------------------------------------------------------------------

function Readable(options) {
  if (!(this instanceof Readable)) return new Readable(options);
  Stream.call(this, options);
  setUpReadable(this, options ?? {});
}
Object.setPrototypeOf(Readable.prototype, Stream.prototype);
Object.setPrototypeOf(Readable, Stream);

function setUpReadable(stream, options) {
  const objectMode = Boolean(options.objectMode || options.readableObjectMode);
  stream._r = {
    queue: [], size: 0, objectMode, mark: options.readableHighWaterMark ?? options.highWaterMark ?? (objectMode ? OBJECTS : BYTES),
    flowing: null, ended: false, told: false, reading: false, scheduled: false, decoder: null, pipes: [], autoDestroy: options.autoDestroy !== false,
    encoding: null, resumed: false,
  };
  quiet(stream, ['_r']);
  stream.readable = true;
  stream.readableEnded = false;
  if (!('_w' in stream)) setUp(stream, options);
  if (typeof options.read === 'function') stream._read = options.read;
  if (options.encoding) stream.setEncoding(options.encoding);
}

function fill(stream) {
  const r = stream._r;
  if (r.reading || r.ended || stream.destroyed || r.size >= r.mark) return;
  r.reading = true;
  try {
    stream._read(r.mark);
  } catch (error) {
    stream.destroy(error);
  }
}

function take(r, count) {
  if (r.objectMode) {
    r.size--;
    return r.queue.shift();
  }
  if (count === undefined || count >= r.size) {
    const all = r.queue.length === 1 ? r.queue[0] : r.decoder ? r.queue.join('') : Buffer.concat(r.queue);
    r.queue = [];
    r.size = 0;
    return all;
  }
  const all = r.decoder ? r.queue.join('') : Buffer.concat(r.queue);
  r.queue = [all.slice(count)];
  r.size -= count;
  return all.slice(0, count);
}

function schedule(stream) {
  const r = stream._r;
  if (r.scheduled) return;
  r.scheduled = true;
  loop.nextTick(() => {
    r.scheduled = false;
    flow(stream);
  });
}

function flow(stream) {
  const r = stream._r;
  if (r.flowing === null && stream.listenerCount('readable') > 0) {
    if ((r.size > 0 || r.ended) && !stream.readableEnded) stream.emit('readable');
    if (r.size < r.mark) fill(stream);
    finishReading(stream);
    return;
  }
  while (r.flowing && r.size > 0 && !stream.destroyed) stream.emit('data', r.objectMode ? take(r) : oneChunk(r));
  if (r.flowing) fill(stream);
  finishReading(stream);
}

function oneChunk(r) {
  const chunk = r.queue.shift();
  r.size -= chunk.length;
  return chunk;
}

function finishReading(stream) {
  const r = stream._r;
  if (!r.ended || r.told || r.size > 0 || stream.destroyed) return;
  if (!r.flowing && !r.read) return;
  r.told = true;
  loop.nextTick(() => {
    stream.readableEnded = true;
    stream.readable = false;
    stream.emit('end');
    if (r.autoDestroy && (!('_w' in stream) || stream.writableFinished || !stream._w.open)) stream.destroy();
    else if ('_w' in stream && !stream.allowHalfOpen) stream.end();
  });
}

Object.assign(Readable.prototype, shared, {
  _read() { throw coded(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _read() method is not implemented'); },
  push(chunk, encoding) {
    const r = this._r;
    r.reading = false;
    if (chunk === null) {
      const rest = r.decoder?.end();
      if (rest) {
        r.queue.push(rest);
        r.size += rest.length;
      }
      r.ended = true;
      schedule(this);
      return false;
    }
    if (r.ended) {
      this.destroy(coded(Error, 'ERR_STREAM_PUSH_AFTER_EOF', 'stream.push() after EOF'));
      return false;
    }
    if (!r.objectMode) {
      if (typeof chunk === 'string') chunk = Buffer.from(chunk, encoding);
      else if (ArrayBuffer.isView(chunk)) chunk = Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      else {
        this.destroy(argumentType('chunk', ['string', 'Buffer', 'TypedArray', 'DataView'], chunk));
        return false;
      }
      if (r.decoder) chunk = r.decoder.write(chunk);
      if (chunk.length === 0) {
        schedule(this);
        return r.size < r.mark;
      }
    }
    r.queue.push(chunk);
    r.size += r.objectMode ? 1 : chunk.length;
    schedule(this);
    return r.size < r.mark;
  },
  unshift(chunk) {
    const r = this._r;
    if (typeof chunk === 'string' && !r.objectMode && !r.decoder) chunk = Buffer.from(chunk);
    r.queue.unshift(chunk);
    r.size += r.objectMode ? 1 : chunk.length;
    schedule(this);
    return r.size < r.mark;
  },
  read(count) {
    const r = this._r;
    r.read = true;
    if (count === 0) {
      fill(this);
      return null;
    }
    if (r.size === 0 || (count !== undefined && count > r.size && !r.ended && !r.objectMode)) {
      if (count > r.mark) r.mark = count;
      fill(this);
      if (r.size === 0 || (count !== undefined && count > r.size && !r.ended)) {
        if (r.ended) schedule(this);
        return null;
      }
    }
    const chunk = take(r, count);
    schedule(this);
    this.emit('data', chunk);
    return chunk;
  },
  setEncoding(encoding) {
    const r = this._r;
    r.decoder = new StringDecoder(encoding);
    r.encoding = r.decoder.encoding;
    if (r.queue.length > 0) {
      const text = r.decoder.write(Buffer.concat(r.queue));
      r.queue = text ? [text] : [];
      r.size = text.length;
    }
    return this;
  },
  on(type, listener) {
    EventEmitter.prototype.on.call(this, type, listener);
    if (type === 'data') {
      if (this._r.flowing !== false && this.listenerCount('readable') === 0) this.resume();
    } else if (type === 'readable') {
      this._r.flowing = null;
      this._r.read = true;
      schedule(this);
    }
    return this;
  },
  resume() {
    const r = this._r;
    if (!r.flowing && this.listenerCount('readable') === 0) {
      r.flowing = true;
      this.emit('resume');
      schedule(this);
    }
    return this;
  },
  pause() {
    if (this._r.flowing !== false) {
      this._r.flowing = false;
      this.emit('pause');
    }
    return this;
  },
  isPaused() { return this._r.flowing === false; },
  pipe(target, { end = true } = {}) {
    const onData = (chunk) => {
      if (target.write(chunk) === false) {
        this.pause();
        target.once('drain', () => this.resume());
      }
    };
    const onEnd = () => { if (end && target !== need('process').stdout && target !== need('process').stderr) target.end(); };
    this._r.pipes.push({ target, onData, onEnd });
    this.on('data', onData);
    this.once('end', onEnd);
    target.emit('pipe', this);
    return target;
  },
  unpipe(target) {
    for (const pipe of this._r.pipes.filter((one) => target === undefined || one.target === target)) {
      this.removeListener('data', pipe.onData);
      this.removeListener('end', pipe.onEnd);
      pipe.target.emit('unpipe', this);
    }
    this._r.pipes = target === undefined ? [] : this._r.pipes.filter((one) => one.target !== target);
    if (this._r.pipes.length === 0) this.pause();
    return this;
  },
  async* [Symbol.asyncIterator]() {
    yield* iterate(this);
  },
  iterator() { return this[Symbol.asyncIterator](); },
  // The helpers: each is a generator over the stream.
  map(action) { return Readable.from((async function* (source) { let i = 0; for await (const item of source) yield await action(item, { index: i++ }); })(this)); },
  filter(test) { return Readable.from((async function* (source) { for await (const item of source) if (await test(item)) yield item; })(this)); },
  take(count) { return Readable.from((async function* (source) { let i = 0; if (count > 0) for await (const item of source) { yield item; if (++i >= count) return; } })(this)); },
  drop(count) { return Readable.from((async function* (source) { let i = 0; for await (const item of source) if (i++ >= count) yield item; })(this)); },
  flatMap(action) { return Readable.from((async function* (source) { for await (const item of source) yield* await action(item); })(this)); },
  async forEach(action) { for await (const item of this) await action(item); },
  async toArray() { const out = []; for await (const item of this) out.push(item); return out; },
  async reduce(action, ...initial) {
    let value = initial[0];
    let first = initial.length === 0;
    for await (const item of this) {
      value = first ? item : await action(value, item);
      first = false;
    }
    if (first) throw new TypeError('Reduce of an empty stream requires an initial value');
    return value;
  },
  async some(test) { for await (const item of this) if (await test(item)) return true; return false; },
  async every(test) { for await (const item of this) if (!await test(item)) return false; return true; },
  async find(test) { for await (const item of this) if (await test(item)) return item; return undefined; },
});
Readable.prototype.addListener = Readable.prototype.on;
for (const [name, get] of Object.entries({
  readableFlowing: (r) => r.flowing, readableLength: (r) => r.size, readableHighWaterMark: (r) => r.mark, readableObjectMode: (r) => r.objectMode,
  readableEncoding: (r) => r.encoding,
})) Object.defineProperty(Readable.prototype, name, { configurable: true, get() { return this._r && get(this._r); } });

async function* iterate(stream) {
  let wake = () => {};
  let failure = null;
  let over = stream.readableEnded || (stream.destroyed && !stream.errored);
  if (stream.errored) failure = stream.errored;
  const notice = () => wake();
  const onEnd = () => { over = true; wake(); };
  const onError = (error) => { failure = error; wake(); };
  const onClose = () => { if (!over && !failure && !stream.readableEnded) failure = premature(); wake(); };
  stream.on('readable', notice);
  stream.on('end', onEnd);
  stream.on('error', onError);
  stream.on('close', onClose);
  try {
    for (;;) {
      const chunk = stream.destroyed ? null : stream.read();
      if (chunk !== null) yield chunk;
      else if (failure) throw failure;
      else if (over) return;
      else await new Promise((resolve) => { wake = resolve; });
    }
  } finally {
    stream.removeListener('readable', notice);
    stream.removeListener('end', onEnd);
    if (!stream.destroyed) stream.destroy();
    stream.removeListener('close', onClose);
    // The listener for errors stays: a late error has been told by the loop already.
    if (!failure) stream.on('error', () => {});
  }
}

Readable.from = function from(source, options) {
  if (typeof source === 'string' || Buffer.isBuffer(source)) {
    return new Readable({ objectMode: true, ...options, read() { this.push(source); this.push(null); } });
  }
  const iterator = source?.[Symbol.asyncIterator]?.() ?? source?.[Symbol.iterator]?.();
  if (!iterator) throw argumentType('iterable', ['Iterable'], source);
  return new Readable({
    objectMode: true,
    highWaterMark: 1,
    ...options,
    read() {
      (async () => {
        const { value, done } = await iterator.next();
        if (done) this.push(null);
        else this.push(await value);
      })().catch((error) => this.destroy(error));
    },
    destroy(error, callback) {
      Promise.resolve(iterator.return?.()).then(() => callback(error), (late) => callback(error ?? late));
    },
  });
};

// ---- writing ------------------------------------------------------------------------------------------------

function Writable(options) {
  if (!(this instanceof Writable)) return new Writable(options);
  Stream.call(this, options);
  setUpWritable(this, options ?? {});
}
Object.setPrototypeOf(Writable.prototype, Stream.prototype);
Object.setPrototypeOf(Writable, Stream);
Object.defineProperty(Writable, Symbol.hasInstance, {
  value(instance) {
    return Function.prototype[Symbol.hasInstance].call(this, instance) || (this === Writable && instance?._w !== undefined);
  },
});

function setUpWritable(stream, options) {
  const objectMode = Boolean(options.objectMode || options.writableObjectMode);
  stream._w = {
    queue: [], size: 0, objectMode, mark: options.writableHighWaterMark ?? options.highWaterMark ?? (objectMode ? OBJECTS : BYTES),
    busy: false, ending: false, needDrain: false, corked: 0, decode: options.decodeStrings !== false, encoding: options.defaultEncoding ?? 'utf8',
    open: true, autoDestroy: options.autoDestroy !== false, finishing: false,
  };
  quiet(stream, ['_w']);
  stream.writable = true;
  stream.writableEnded = false;
  stream.writableFinished = false;
  if (!('_r' in stream)) setUp(stream, options);
  if (typeof options.write === 'function') stream._write = options.write;
  if (typeof options.writev === 'function') stream._writev = options.writev;
  if (typeof options.final === 'function') stream._final = options.final;
}

function work(stream) {
  const w = stream._w;
  if (w.busy || w.corked > 0 || stream.destroyed) return;
  if (w.queue.length === 0) {
    finishWriting(stream);
    return;
  }
  const all = stream._writev && w.queue.length > 1 ? w.queue.splice(0) : [w.queue.shift()];
  w.busy = true;
  let sync = true;
  const done = (error) => {
    w.busy = false;
    for (const one of all) w.size -= one.size;
    const rest = () => {
      for (const one of all) one.callback?.(error ?? null);
      if (error) {
        stream.destroy(error);
        return;
      }
      if (w.needDrain && w.size === 0 && !w.ending) {
        w.needDrain = false;
        stream.emit('drain');
      }
      work(stream);
    };
    if (sync) loop.nextTick(rest);
    else rest();
  };
  try {
    if (all.length > 1) stream._writev(all.map(({ chunk, encoding }) => ({ chunk, encoding })), done);
    else stream._write(all[0].chunk, all[0].encoding, done);
  } catch (error) {
    done(error);
  }
  sync = false;
}

function finishWriting(stream) {
  const w = stream._w;
  if (!w.ending || w.finishing || w.busy || w.size > 0 || stream.destroyed) return;
  w.finishing = true;
  const finished = (error) => {
    if (error) {
      stream.destroy(error);
      return;
    }
    loop.nextTick(() => {
      w.open = false;
      stream.writableFinished = true;
      stream.emit('finish');
      if (w.autoDestroy && (!('_r' in stream) || stream.readableEnded)) stream.destroy();
    });
  };
  if (typeof stream._final !== 'function') finished();
  else {
    try {
      stream._final(finished);
    } catch (error) {
      finished(error);
    }
  }
}

const writing = {
  _write(chunk, encoding, callback) {
    if (this._writev) this._writev([{ chunk, encoding }], callback);
    else throw coded(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _write() method is not implemented');
  },
  write(chunk, encoding, callback) {
    const w = this._w;
    if (typeof encoding === 'function') [callback, encoding] = [encoding, undefined];
    encoding ??= w.encoding;
    if (chunk === null) throw coded(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
    if (!w.objectMode) {
      if (typeof chunk === 'string') {
        if (w.decode) [chunk, encoding] = [Buffer.from(chunk, encoding), 'buffer'];
      } else if (ArrayBuffer.isView(chunk)) {
        chunk = Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
        encoding = 'buffer';
      } else throw argumentType('chunk', ['string', 'Buffer', 'TypedArray', 'DataView'], chunk);
    }
    const fault = w.ending ? coded(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end') : this.destroyed ? coded(Error, 'ERR_STREAM_DESTROYED', 'Cannot call write after a stream was destroyed') : null;
    if (fault) {
      loop.nextTick(() => callback?.(fault));
      if (w.ending) this.destroy(fault);
      return false;
    }
    const size = w.objectMode ? 1 : chunk.length;
    w.size += size;
    w.queue.push({ chunk, encoding, size, callback });
    const room = w.size < w.mark;
    if (!room) w.needDrain = true;
    work(this);
    return room;
  },
  end(chunk, encoding, callback) {
    if (typeof chunk === 'function') [callback, chunk] = [chunk, undefined];
    else if (typeof encoding === 'function') [callback, encoding] = [encoding, undefined];
    if (chunk !== undefined && chunk !== null) this.write(chunk, encoding);
    if (callback) {
      if (this.writableFinished) loop.nextTick(callback);
      else this.once('finish', callback);
    }
    this._w.corked = 0;
    if (!this._w.ending) {
      this._w.ending = true;
      this.writable = false;
      this.writableEnded = true;
      work(this);
      finishWriting(this);
    }
    return this;
  },
  cork() { this._w.corked++; },
  uncork() {
    if (this._w.corked > 0 && --this._w.corked === 0) work(this);
  },
  setDefaultEncoding(encoding) {
    this._w.encoding = encoding;
    return this;
  },
};
Object.assign(Writable.prototype, shared, writing);
const writableFacts = {
  writableLength: (w) => w.size, writableHighWaterMark: (w) => w.mark, writableObjectMode: (w) => w.objectMode, writableNeedDrain: (w) => w.needDrain,
  writableCorked: (w) => w.corked,
};

// ---- both ---------------------------------------------------------------------------------------------------

function Duplex(options) {
  if (!(this instanceof Duplex)) return new Duplex(options);
  Stream.call(this, options);
  setUpReadable(this, options ?? {});
  setUpWritable(this, options ?? {});
  this.allowHalfOpen = options?.allowHalfOpen !== false;
}
Object.setPrototypeOf(Duplex.prototype, Readable.prototype);
Object.setPrototypeOf(Duplex, Readable);
Object.assign(Duplex.prototype, writing);
for (const Class of [Writable, Duplex]) {
  for (const [name, get] of Object.entries(writableFacts)) Object.defineProperty(Class.prototype, name, { configurable: true, get() { return this._w && get(this._w); } });
}

function Transform(options) {
  if (!(this instanceof Transform)) return new Transform(options);
  Duplex.call(this, options);
  this._t = { waiting: null };
  quiet(this, ['_t']);
  if (typeof options?.transform === 'function') this._transform = options.transform;
  if (typeof options?.flush === 'function') this._flush = options.flush;
}
Object.setPrototypeOf(Transform.prototype, Duplex.prototype);
Object.setPrototypeOf(Transform, Duplex);
Object.assign(Transform.prototype, {
  _transform() { throw coded(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _transform() method is not implemented'); },
  _write(chunk, encoding, callback) {
    this._transform(chunk, encoding, (error, result) => {
      if (error) {
        callback(error);
        return;
      }
      if (result !== undefined && result !== null) this.push(result);
      // Nobody has taken what is there: the writer waits.
      if (this._r.size < this._r.mark || this._r.ended) callback();
      else this._t.waiting = callback;
    });
  },
  _read() {
    const callback = this._t.waiting;
    this._t.waiting = null;
    this._r.reading = false;
    callback?.();
  },
  _final(callback) {
    if (typeof this._flush !== 'function') {
      this.push(null);
      callback();
      return;
    }
    this._flush((error, result) => {
      if (error) {
        callback(error);
        return;
      }
      if (result !== undefined && result !== null) this.push(result);
      this.push(null);
      callback();
    });
  },
});

function PassThrough(options) {
  if (!(this instanceof PassThrough)) return new PassThrough(options);
  Transform.call(this, options);
}
Object.setPrototypeOf(PassThrough.prototype, Transform.prototype);
Object.setPrototypeOf(PassThrough, Transform);
PassThrough.prototype._transform = (chunk, encoding, callback) => callback(null, chunk);

for (const [Class, name] of [[Stream, 'Stream'], [Readable, 'Readable'], [Writable, 'Writable'], [Duplex, 'Duplex'], [Transform, 'Transform'], [PassThrough, 'PassThrough']]) {
  Object.defineProperty(Class.prototype, 'constructor', { value: Class, writable: true, configurable: true, enumerable: false });
  for (const key of Object.keys(Class.prototype)) Object.defineProperty(Class.prototype, key, { enumerable: false });
  Object.defineProperty(Class, 'name', { value: name });
}

// ---- putting together ---------------------------------------------------------------------------------------

function finished(stream, options, callback) {
  if (typeof options === 'function') [callback, options] = [options, {}];
  const readable = options.readable !== false && '_r' in stream && !stream._r.told;
  const writable = options.writable !== false && '_w' in stream;
  let over = false;
  const done = (error) => {
    if (over) return;
    over = true;
    clean();
    callback.call(stream, error);
  };
  const check = () => {
    if ((!readable || stream.readableEnded) && (!writable || stream.writableFinished)) done();
  };
  const closed = () => {
    if ((readable && !stream.readableEnded) || (writable && !stream.writableFinished)) done(stream.errored ?? premature());
    else done();
  };
  const clean = () => {
    stream.removeListener('end', check);
    stream.removeListener('finish', check);
    stream.removeListener('error', done);
    stream.removeListener('close', closed);
  };
  stream.on('end', check);
  stream.on('finish', check);
  stream.on('error', done);
  stream.on('close', closed);
  if (stream.errored) loop.nextTick(() => done(stream.errored));
  else if (stream.closed) loop.nextTick(closed);
  return clean;
}

function asStream(part, previous) {
  if (typeof part !== 'function') {
    if (part?._r || part?._w || typeof part?.pipe === 'function') return part;
    return Readable.from(part);
  }
  const result = previous === undefined ? part() : part(previous);
  if (typeof result?.then === 'function') {
    const end = new PassThrough({ objectMode: true });
    result.then((value) => {
      end.result = value;
      end.end();
      end.resume();
    }, (error) => end.destroy(error));
    return end;
  }
  return Readable.from(result);
}

function pipeline(...parts) {
  const callback = typeof parts.at(-1) === 'function' && parts.length > 1 ? parts.pop() : undefined;
  const list = Array.isArray(parts[0]) && parts.length === 1 ? parts[0] : parts;
  const streams = [];
  let failure;
  let waiting = 0;
  let done = false;
  const finish = (error) => {
    if (error && !failure) {
      failure = error;
      for (const stream of streams) if (!stream.destroyed) stream.destroy();
    }
    if (--waiting > 0 && !failure) return;
    if (done) return;
    done = true;
    loop.nextTick(() => callback?.(failure, streams.at(-1).result));
  };
  list.forEach((part, i) => {
    const previous = streams.at(-1);
    const stream = asStream(part, previous);
    if (previous && typeof part !== 'function') previous.pipe(stream, { end: stream !== need('process').stdout && stream !== need('process').stderr });
    streams.push(stream);
  });
  for (const [i, stream] of streams.entries()) {
    const standard = stream === need('process').stdout || stream === need('process').stderr;
    if (standard) {
      stream.on('error', finish);
      continue;
    }
    waiting++;
    finished(stream, { readable: i < streams.length - 1, writable: i > 0 }, finish);
  }
  return streams.at(-1);
}

const promises = {
  pipeline: (...parts) => {
    const options = parts.length > 1 && parts.at(-1) && !parts.at(-1)._w && !parts.at(-1)._r && typeof parts.at(-1) === 'object' && !parts.at(-1)[Symbol.asyncIterator] && !parts.at(-1)[Symbol.iterator] ? parts.pop() : {};
    return new Promise((resolve, reject) => {
      const last = pipeline(...parts, (error, value) => (error ? reject(error) : resolve(value)));
      options.signal?.addEventListener('abort', () => last.destroy(need('event_target').abortError(options.signal.reason)));
    });
  },
  finished: (stream, options = {}) => new Promise((resolve, reject) => finished(stream, options, (error) => (error ? reject(error) : resolve()))),
};
for (const [action, promised] of [[pipeline, promises.pipeline], [finished, promises.finished]]) Object.defineProperty(action, Symbol.for('nodejs.util.promisify.custom'), { value: promised });

return Object.assign(Stream, {
  Stream, Readable, Writable, Duplex, Transform, PassThrough, pipeline, finished, promises,
  addAbortSignal: (signal, stream) => {
    signal.addEventListener('abort', () => stream.destroy(need('event_target').abortError(signal.reason)));
    return stream;
  },
  isReadable: (stream) => Boolean(stream?.readable), isErrored: (stream) => Boolean(stream?.errored),
  getDefaultHighWaterMark: (objects) => (objects ? OBJECTS : BYTES),
  consumers: {
    text: async (stream) => { const decoder = new (need('encoding').TextDecoder)(); let out = ''; for await (const part of stream) out += typeof part === 'string' ? part : decoder.decode(part, { stream: true }); return out + decoder.decode(); },
    json: async (stream) => JSON.parse(await Stream.consumers.text(stream)),
    buffer: async (stream) => { const parts = []; for await (const part of stream) parts.push(Buffer.from(part)); return Buffer.concat(parts); },
    arrayBuffer: async (stream) => { const all = await Stream.consumers.buffer(stream); return new Uint8Array(all).buffer; },
  },
});

// events: EventEmitter and its helpers.
const { coded, checkFunction, argumentType } = need('errors');

const captureRejections = Symbol.for('nodejs.rejection');
const errorMonitor = Symbol('events.errorMonitor');

function EventEmitter(options) {
  EventEmitter.init.call(this, options);
}
EventEmitter.init = function init() {
  if (this._events === undefined || this._events === Object.getPrototypeOf(this)._events) {
    this._events = Object.create(null);
    this._eventsCount = 0;
  }
  this._maxListeners ??= undefined;
};
EventEmitter.defaultMaxListeners = 10;
EventEmitter.prototype._events = undefined;
EventEmitter.prototype._eventsCount = 0;
EventEmitter.prototype._maxListeners = undefined;

function listenersOf(emitter) {
  if (emitter._events === undefined) EventEmitter.init.call(emitter);
  return emitter._events;
}

function add(emitter, type, listener, first) {
  checkFunction(listener, 'listener');
  const events = listenersOf(emitter);
  if (events.newListener !== undefined) emitter.emit('newListener', type, listener.listener ?? listener);
  const list = emitter._events[type];
  if (list === undefined) {
    emitter._events[type] = [listener];
    emitter._eventsCount++;
    return emitter;
  }
  // A new list, so that an emit that is under way keeps calling the old one.
  emitter._events[type] = first ? [listener, ...list] : [...list, listener];
  const most = emitter.getMaxListeners();
  const now = emitter._events[type];
  if (most > 0 && now.length > most && !list.warned) {
    now.warned = true;
    const warning = new Error(`Possible EventEmitter memory leak detected. ${now.length} ${String(type)} listeners added to ${need('inspect').inspect(emitter, { depth: -1 })}. MaxListeners is ${most}. Use emitter.setMaxListeners() to increase limit`);
    warning.name = 'MaxListenersExceededWarning';
    need('process').emitWarning(warning);
  } else if (list.warned) now.warned = true;
  return emitter;
}

function onceWrapper(emitter, type, listener) {
  checkFunction(listener, 'listener');
  const wrapped = function (...values) {
    emitter.removeListener(type, wrapped);
    return listener.apply(emitter, values);
  };
  wrapped.listener = listener;
  return wrapped;
}

const methods = {
  setMaxListeners(count) {
    this._maxListeners = count;
    return this;
  },
  getMaxListeners() {
    return this._maxListeners ?? EventEmitter.defaultMaxListeners;
  },
  emit(type, ...values) {
    const events = listenersOf(this);
    if (type === 'error') {
      events[errorMonitor]?.forEach((listener) => listener.apply(this, values));
      if (events.error === undefined) {
        const [error] = values;
        if (error instanceof Error) throw error;
        const unhandled = coded(Error, 'ERR_UNHANDLED_ERROR', `Unhandled error. (${typeof error === 'string' ? `'${error}'` : need('inspect').inspect(error)})`);
        unhandled.context = error;
        throw unhandled;
      }
    }
    const list = events[type];
    if (list === undefined) return false;
    for (const listener of list) listener.apply(this, values);
    return true;
  },
  addListener(type, listener) {
    return add(this, type, listener, false);
  },
  prependListener(type, listener) {
    return add(this, type, listener, true);
  },
  once(type, listener) {
    return this.on(type, onceWrapper(this, type, listener));
  },
  prependOnceListener(type, listener) {
    return this.prependListener(type, onceWrapper(this, type, listener));
  },
  removeListener(type, listener) {
    checkFunction(listener, 'listener');
    const list = listenersOf(this)[type];
    if (list === undefined) return this;
    const at = list.findLastIndex((one) => one === listener || one.listener === listener);
    if (at === -1) return this;
    if (list.length === 1) {
      delete this._events[type];
      this._eventsCount--;
    } else this._events[type] = list.toSpliced(at, 1);
    if (this._events.removeListener !== undefined) this.emit('removeListener', type, listener);
    return this;
  },
  removeAllListeners(type) {
    const events = listenersOf(this);
    if (type === undefined) {
      for (const key of Reflect.ownKeys(events)) if (key !== 'removeListener') this.removeAllListeners(key);
      if (events.removeListener !== undefined) this.removeAllListeners('removeListener');
      return this;
    }
    for (const listener of [...(events[type] ?? [])].reverse()) this.removeListener(type, listener);
    return this;
  },
  listeners(type) {
    return (listenersOf(this)[type] ?? []).map((listener) => listener.listener ?? listener);
  },
  rawListeners(type) {
    return [...(listenersOf(this)[type] ?? [])];
  },
  listenerCount(type, listener) {
    const list = listenersOf(this)[type] ?? [];
    return listener === undefined ? list.length : list.filter((one) => one === listener || one.listener === listener).length;
  },
  eventNames() {
    return Reflect.ownKeys(listenersOf(this));
  },
};
for (const [name, value] of Object.entries(methods)) {
  Object.defineProperty(EventEmitter.prototype, name, { value, writable: true, configurable: true, enumerable: true });
}
EventEmitter.prototype.on = EventEmitter.prototype.addListener;
EventEmitter.prototype.off = EventEmitter.prototype.removeListener;

async function once(emitter, type, { signal } = {}) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(need('event_target').abortError(signal.reason));
      return;
    }
    if (typeof emitter.addEventListener === 'function' && typeof emitter.on !== 'function') {
      emitter.addEventListener(type, (event) => resolve([event]), { once: true });
      return;
    }
    const done = (...values) => {
      clean();
      resolve(values);
    };
    const failed = (error) => {
      clean();
      reject(error);
    };
    const aborted = () => failed(need('event_target').abortError(signal.reason));
    const clean = () => {
      emitter.removeListener(type, done);
      emitter.removeListener('error', failed);
      signal?.removeEventListener('abort', aborted);
    };
    emitter.on(type, done);
    if (type !== 'error') emitter.on('error', failed);
    signal?.addEventListener('abort', aborted);
  });
}

// An endless sequence of a type's events, until an error, an abort, or `return`.
function on(emitter, type, { signal, close = [] } = {}) {
  const waiting = [];
  const queue = [];
  let failure;
  let ended = false;
  const push = (...values) => (waiting.length > 0 ? waiting.shift().resolve({ value: values, done: false }) : queue.push(values));
  const fail = (error) => {
    if (waiting.length > 0) waiting.shift().reject(error);
    else failure = error;
    stop();
  };
  const finish = () => {
    stop();
    while (waiting.length > 0) waiting.shift().resolve({ value: undefined, done: true });
  };
  const aborted = () => fail(need('event_target').abortError(signal.reason));
  const stop = () => {
    ended = true;
    emitter.removeListener(type, push);
    emitter.removeListener('error', fail);
    for (const name of close) emitter.removeListener(name, finish);
    signal?.removeEventListener('abort', aborted);
  };
  if (signal?.aborted) throw need('event_target').abortError(signal.reason);
  emitter.on(type, push);
  if (type !== 'error') emitter.on('error', fail);
  for (const name of close) emitter.on(name, finish);
  signal?.addEventListener('abort', aborted);
  return {
    next() {
      if (queue.length > 0) return Promise.resolve({ value: queue.shift(), done: false });
      if (failure !== undefined) {
        const error = failure;
        failure = undefined;
        return Promise.reject(error);
      }
      if (ended) return Promise.resolve({ value: undefined, done: true });
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    return() {
      finish();
      return Promise.resolve({ value: undefined, done: true });
    },
    throw(error) {
      if (!(error instanceof Error)) throw argumentType('EventEmitter.AsyncIterator', 'Error', error);
      fail(error);
      return Promise.resolve({ value: undefined, done: true });
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

Object.assign(EventEmitter, {
  EventEmitter,
  once,
  on,
  errorMonitor,
  captureRejectionSymbol: captureRejections,
  listenerCount: (emitter, type) => emitter.listenerCount(type),
  getEventListeners: (emitter, type) => (emitter.listeners ? emitter.listeners(type) : []),
  setMaxListeners: (count = 10, ...emitters) => {
    if (emitters.length === 0) EventEmitter.defaultMaxListeners = count;
    for (const emitter of emitters) emitter.setMaxListeners?.(count);
  },
});
return EventEmitter;

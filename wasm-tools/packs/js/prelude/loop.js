// The event loop: ticks, promises, timers, finished file operations, immediates, in node's order.
//
// One turn: due timers; operations that were asked for before this turn; immediates. After every single callback the
// queue of nextTick runs dry, then the one of promises, until both are empty. When nothing is due, the loop sleeps
// until the next timer. Work that blocks (all of it does in a sandbox with one thread) is done when its turn comes.
const { checkFunction, coded, argumentType } = need('errors');

const ticks = [];
let timers = [];
let immediates = [];
let operations = [];
let sources = [];              // things that wait for input: { fd, ready(), active() }
let order = 0;
let failed = null;             // what to do with an error that nobody caught

function nextTick(callback, ...values) {
  checkFunction(callback, 'callback');
  ticks.push(values.length === 0 ? callback : () => callback(...values));
}

function jobs() {
  for (;;) {
    try {
      host.runJobs();
      return;
    } catch (error) {
      failed(error);
    }
  }
}

function drain() {
  for (;;) {
    while (ticks.length > 0) {
      const list = ticks.splice(0);
      for (let i = 0; i < list.length; i++) {
        try {
          list[i]();
        } catch (error) {
          failed(error);
        }
        // A tick that a tick adds runs before promises do; one that failed must not lose the rest.
      }
    }
    jobs();
    if (ticks.length > 0) continue;
    hooks.settleRejections();
    if (ticks.length === 0 && !host.jobsPending()) return;
  }
}

function call(action) {
  try {
    action();
  } catch (error) {
    failed(error);
  }
  drain();
}

// ---- timers -------------------------------------------------------------------------------------------------

const MAX_DELAY = 2 ** 31 - 1;
const custom = Symbol.for('nodejs.util.promisify.custom');
const byId = new Map();

class Timeout {
  #held = true;
  constructor(callback, delay, values, repeat) {
    delay = Number(delay);
    if (!(delay >= 1 && delay <= MAX_DELAY)) delay = 1;
    this._idleTimeout = Math.trunc(delay);
    this._onTimeout = values.length === 0 ? callback : () => callback(...values);
    this._repeat = repeat ? this._idleTimeout : null;
    this._destroyed = false;
    this.id = ++order;
    for (const key of ['_idleTimeout', '_onTimeout', '_repeat', '_destroyed', 'id', 'due']) Object.defineProperty(this, key, { enumerable: false, writable: true, configurable: true });
    start(this);
  }
  ref() { this.#held = true; return this; }
  unref() { this.#held = false; return this; }
  hasRef() { return this.#held; }
  refresh() {
    if (!this._destroyed) {
      stop(this);
      start(this);
    }
    return this;
  }
  close() { clearTimeout(this); return this; }
  [Symbol.toPrimitive]() {
    byId.set(this.id, this);
    return this.id;
  }
  [Symbol.dispose]() { clearTimeout(this); }
}

// Sorted by due time; timers of the same time keep the order they were set in.
function start(timer) {
  timer.due = Math.floor(host.milliseconds()) + timer._idleTimeout;
  let low = 0;
  let high = timers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (timers[middle].due <= timer.due) low = middle + 1;
    else high = middle;
  }
  timers.splice(low, 0, timer);
}

function stop(timer) {
  const at = timers.indexOf(timer);
  if (at !== -1) timers.splice(at, 1);
}

function setTimeout(callback, delay, ...values) {
  return new Timeout(checkFunction(callback, 'callback'), delay, values, false);
}

function setInterval(callback, delay, ...values) {
  return new Timeout(checkFunction(callback, 'callback'), delay, values, true);
}

function clearTimeout(timer) {
  if (typeof timer === 'number' || typeof timer === 'string') timer = byId.get(Number(timer));
  if (!(timer instanceof Timeout) || timer._destroyed) return;
  timer._destroyed = true;
  byId.delete(timer.id);
  stop(timer);
}

class Immediate {
  #held = true;
  constructor(callback, values) {
    Object.defineProperty(this, 'action', { value: values.length === 0 ? callback : () => callback(...values), writable: true });
    immediates.push(this);
  }
  ref() { this.#held = true; return this; }
  unref() { this.#held = false; return this; }
  hasRef() { return this.#held; }
  [Symbol.dispose]() { clearImmediate(this); }
}

function setImmediate(callback, ...values) {
  return new Immediate(checkFunction(callback, 'callback'), values);
}

function clearImmediate(immediate) {
  if (immediate instanceof Immediate) immediate.action = null;
}

function later(start, clear) {
  return (delay, value, { signal } = {}) => new Promise((resolve, reject) => {
    const { abortError } = need('event_target');
    if (signal?.aborted) {
      reject(abortError(signal.reason));
      return;
    }
    const handle = start(() => {
      signal?.removeEventListener('abort', stopped);
      resolve(value);
    }, delay);
    const stopped = () => {
      clear(handle);
      reject(abortError(signal.reason));
    };
    signal?.addEventListener('abort', stopped);
  });
}

const promises = {
  setTimeout: later(setTimeout, clearTimeout),
  setImmediate: (value, options) => later((callback) => setImmediate(callback), clearImmediate)(0, value, options),
  async* setInterval(delay, value, { signal } = {}) {
    for (;;) {
      await promises.setTimeout(delay, undefined, { signal });
      yield value;
    }
  },
  scheduler: {
    wait: (delay, options) => promises.setTimeout(delay, undefined, options),
    yield: () => promises.setImmediate(),
  },
};
Object.defineProperty(setTimeout, custom, { value: promises.setTimeout });
Object.defineProperty(setImmediate, custom, { value: promises.setImmediate });

// ---- turning ------------------------------------------------------------------------------------------------

// An operation of which the result is wanted later: done in the next turn but one, as if a worker had done it.
function operation(action) {
  operations.push(action);
}

function source(fd, ready, active) {
  sources.push({ fd, ready, active });
}

function runTimers() {
  const now = Math.floor(host.milliseconds());
  while (timers.length > 0 && timers[0].due <= now) {
    const timer = timers.shift();
    if (timer._repeat === null) {
      timer._destroyed = true;
      byId.delete(timer.id);
    }
    call(() => timer._onTimeout.call(timer));
    if (timer._repeat !== null && !timer._destroyed && !timers.includes(timer)) start(timer);
  }
}

const held = (list) => list.some((one) => one.hasRef());

function turn() {
  const asked = operations;
  operations = [];
  runTimers();
  const now = immediates;
  const reading = sources.filter((one) => one.active());
  const idle = asked.length === 0 && operations.length === 0 && !held(now);
  if (idle && !held(timers) && reading.length === 0) return false;
  for (const action of asked) call(action);
  if (reading.length > 0) {
    // Only standard input can make us wait; there is one such source.
    const limit = !idle ? 0 : timers.length > 0 ? Math.max(0, timers[0].due - host.milliseconds()) : 1e9;
    if (limit >= 1e9 || host.wait(limit, reading[0].fd)) call(reading[0].ready);
  } else if (idle && timers.length > 0) {
    const rest = timers[0].due - host.milliseconds();
    if (rest > 0) host.wait(rest, -1);
  }
  const due = immediates;
  immediates = [];
  for (const one of due) {
    if (one.action === null) continue;
    const { action } = one;
    one.action = null;
    call(action);
  }
  return true;
}

function run() {
  while (turn());
}

// Whether there is anything that keeps a run from ending.
function alive() {
  return operations.length > 0 || held(immediates) || held(timers) || sources.some((one) => one.active());
}

function queueMicrotask(callback) {
  checkFunction(callback, 'callback');
  Promise.resolve().then(() => {
    try {
      callback();
    } catch (error) {
      failed(error);
    }
  });
}

return {
  nextTick, drain, jobs, call, run, alive, operation, source, setTimeout, setInterval, setImmediate, clearTimeout, clearInterval: clearTimeout,
  clearImmediate, queueMicrotask, promises, Timeout, Immediate,
  onFailure: (action) => { failed = action; },
};

// EventTarget, Event, AbortController: the web's events, which timers, streams and fetch-like code use.
const { argumentType, coded } = need('errors');

const details = new WeakMap();
const of = (event) => details.get(event);

class Event {
  constructor(type, { bubbles = false, cancelable = false, composed = false } = {}) {
    if (arguments.length === 0) throw coded(TypeError, 'ERR_MISSING_ARGS', 'The "type" argument must be specified');
    details.set(this, { type: String(type), bubbles, cancelable, composed, target: null, stopped: false, prevented: false, time: need('performance').now() });
  }
  get type() { return of(this).type; }
  get bubbles() { return of(this).bubbles; }
  get cancelable() { return of(this).cancelable; }
  get composed() { return of(this).composed; }
  get target() { return of(this).target; }
  get currentTarget() { return of(this).target; }
  get srcElement() { return of(this).target; }
  get defaultPrevented() { return of(this).prevented; }
  get timeStamp() { return of(this).time; }
  get isTrusted() { return false; }
  get returnValue() { return !of(this).prevented; }
  get eventPhase() { return of(this).target ? 2 : 0; }
  get cancelBubble() { return of(this).stopped; }
  composedPath() { return of(this).target ? [of(this).target] : []; }
  preventDefault() { if (of(this).cancelable) of(this).prevented = true; }
  stopPropagation() {}
  stopImmediatePropagation() { of(this).stopped = true; }
}
Object.assign(Event, { NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 });
Object.defineProperty(Event.prototype, Symbol.toStringTag, { value: 'Event', configurable: true });

class CustomEvent extends Event {
  #detail;
  constructor(type, options = {}) {
    super(type, options);
    this.#detail = options.detail ?? null;
  }
  get detail() { return this.#detail; }
}

const targets = new WeakMap();

class EventTarget {
  constructor() {
    targets.set(this, new Map());
  }
  addEventListener(type, listener, options = {}) {
    if (listener == null) return;
    if (typeof listener !== 'function' && typeof listener !== 'object') throw argumentType('listener', 'EventListener', listener);
    const { once = false, capture = false, signal } = typeof options === 'boolean' ? { capture: options } : options;
    if (signal?.aborted) return;
    const all = targets.get(this);
    const list = all.get(String(type)) ?? [];
    if (list.some((one) => one.listener === listener && one.capture === capture)) return;
    all.set(String(type), [...list, { listener, once, capture }]);
    signal?.addEventListener('abort', () => this.removeEventListener(type, listener, { capture }), { once: true });
  }
  removeEventListener(type, listener, options = {}) {
    const capture = typeof options === 'boolean' ? options : Boolean(options?.capture);
    const all = targets.get(this);
    const list = all.get(String(type));
    if (list) all.set(String(type), list.filter((one) => one.listener !== listener || one.capture !== capture));
  }
  dispatchEvent(event) {
    if (!(event instanceof Event)) throw argumentType('event', 'Event', event);
    of(event).target = this;
    for (const { listener, once, capture } of targets.get(this).get(event.type) ?? []) {
      if (once) this.removeEventListener(event.type, listener, { capture });
      try {
        if (typeof listener === 'function') listener.call(this, event);
        else listener.handleEvent(event);
      } catch (error) {
        // A listener's fault is not the dispatcher's: it surfaces on its own.
        need('loop').nextTick(() => { throw error; });
      }
      if (of(event).stopped) break;
    }
    return !event.defaultPrevented;
  }
}
Object.defineProperty(EventTarget.prototype, Symbol.toStringTag, { value: 'EventTarget', configurable: true });

function abortError(cause) {
  const error = new Error('The operation was aborted');
  error.name = 'AbortError';
  error.code = 'ABORT_ERR';
  if (cause !== undefined) error.cause = cause;
  return error;
}

const allowed = Symbol('only the controller makes signals');

class AbortSignal extends EventTarget {
  #reason;
  #aborted = false;
  onabort = null;
  constructor(token) {
    super();
    if (token !== allowed) throw coded(TypeError, 'ERR_ILLEGAL_CONSTRUCTOR', 'Illegal constructor');
    Object.defineProperty(this, 'onabort', { enumerable: false, writable: true });
  }
  get aborted() { return this.#aborted; }
  get reason() { return this.#reason; }
  throwIfAborted() {
    if (this.#aborted) throw this.#reason;
  }
  static fire(signal, reason) {
    if (signal.#aborted) return;
    signal.#aborted = true;
    signal.#reason = reason;
    const event = new Event('abort');
    signal.onabort?.(event);
    signal.dispatchEvent(event);
  }
  static abort(reason = new DOMException('This operation was aborted', 'AbortError')) {
    const signal = new AbortSignal(allowed);
    fire(signal, reason);
    return signal;
  }
  static timeout(delay) {
    const signal = new AbortSignal(allowed);
    need('loop').setTimeout(() => fire(signal, new DOMException('The operation was aborted due to timeout', 'TimeoutError')), delay).unref();
    return signal;
  }
  static any(signals) {
    const signal = new AbortSignal(allowed);
    for (const one of signals) {
      if (one.aborted) {
        fire(signal, one.reason);
        return signal;
      }
    }
    for (const one of signals) one.addEventListener('abort', () => fire(signal, one.reason), { once: true });
    return signal;
  }
  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `AbortSignal ${inspect({ aborted: this.aborted }, options)}`;
  }
}
const { fire } = AbortSignal;
delete AbortSignal.fire;

class AbortController {
  #signal = new AbortSignal(allowed);
  get signal() { return this.#signal; }
  abort(reason = new DOMException('This operation was aborted', 'AbortError')) {
    fire(this.#signal, reason);
  }
  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `AbortController ${inspect({ signal: this.signal }, options)}`;
  }
}

return { Event, CustomEvent, EventTarget, AbortSignal, AbortController, abortError };

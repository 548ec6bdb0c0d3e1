// How the files of the prelude find each other, and stacks as scripts expect them.
//
// Every file is the body of a function with three parameters: `host` (the functions written in C), `hooks` (what those
// call) and `need(NAME)`, which gives what an earlier file returned. The order is the one of build.sh.
hooks.need = (name) => {
  const found = host.prelude[name];
  if (found === undefined) throw new Error(`the prelude has no ${name} yet`);
  return found;
};

const ownFile = 'skillcell:';
const getStack = Object.getOwnPropertyDescriptor(Error.prototype, 'stack');
const frame = /^ {4}at (.*?)(?: \((.*)\))?$/;

// The engine writes "at NAME (FILE:LINE:COLUMN)" for every frame. Scripts, and people, know V8's form.
function frames(text) {
  let out = '';
  for (const line of text.split('\n')) {
    const match = frame.exec(line);
    if (!match) continue;
    const [, name, place] = match;
    // The inside of this prelude helps nobody; node hides less of its own, but has less of it in the way.
    if (place === undefined ? name.startsWith(ownFile) : place.startsWith(ownFile)) continue;
    if (place === undefined) out += `\n    at ${name}`;
    else if (place === 'native') out += `\n    at ${name} (<anonymous>)`;
    else if (name === '<anonymous>' || name === '<eval>') out += `\n    at ${place}`;
    else out += `\n    at ${name} (${place})`;
  }
  return out;
}

function heading(error) {
  let name, message;
  try {
    name = error.name;
    message = error.message;
  } catch {
    return 'Error';
  }
  name = name === undefined ? 'Error' : String(name);
  message = message === undefined ? '' : String(message);
  if (typeof error.code === 'string' && nodeErrors.has(error)) name = `${name} [${error.code}]`;
  return message === '' ? name : name === '' ? message : `${name}: ${message}`;
}

// Errors that the prelude itself makes carry their code in the heading, as node's do.
const nodeErrors = new WeakSet();
// What was assigned to `stack`, and headings as they were when the stack was first asked for.
const known = new WeakMap();

function stackOf(error) {
  if (known.has(error)) return known.get(error);
  const raw = getStack.get.call(error);
  if (typeof raw !== 'string') return raw;
  const text = heading(error) + frames(raw);
  known.set(error, text);
  return text;
}

Object.defineProperty(Error.prototype, 'stack', {
  configurable: true,
  enumerable: false,
  get() {
    return this !== null && typeof this === 'object' ? stackOf(this) : undefined;
  },
  set(value) {
    if (this === null || typeof this !== 'object') return;
    if (host.kind(this) === 10) known.set(this, value);
    else Object.defineProperty(this, 'stack', { value, writable: true, enumerable: true, configurable: true });
  },
});

const capture = Error.captureStackTrace;
Object.defineProperty(Error, 'captureStackTrace', {
  configurable: true,
  writable: true,
  value: function captureStackTrace(target, above) {
    if (above === undefined) capture(target, captureStackTrace);
    else capture(target, above);
    const raw = Object.getOwnPropertyDescriptor(target, 'stack')?.value;
    if (typeof raw === 'string') {
      Object.defineProperty(target, 'stack', {
        value: heading(target) + frames(raw), writable: true, enumerable: false, configurable: true,
      });
    }
  },
});

// The engine leaves out the name of the zone, which node writes.
for (const name of ['toString', 'toTimeString']) {
  const plain = Date.prototype[name];
  Object.defineProperty(Date.prototype, name, {
    configurable: true,
    writable: true,
    value: { [name]() {
      const text = plain.call(this);
      return text.endsWith('GMT+0000') ? `${text} (Coordinated Universal Time)` : text;
    } }[name],
  });
}

return { ownFile, stackOf, nodeErrors };

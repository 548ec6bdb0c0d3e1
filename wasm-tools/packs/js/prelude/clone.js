// structuredClone: values with everything that hangs on them, cycles included.
const types = need('types');

const refused = (value) => new DOMException(`${typeof value === 'symbol' ? String(value) : typeof value === 'function' ? types.functionText(value) : `#<${value?.constructor?.name ?? 'Object'}>`} could not be cloned.`, 'DataCloneError');

function structuredClone(value, options) {
  if (arguments.length === 0) throw need('errors').coded(TypeError, 'ERR_MISSING_ARGS', 'The "value" argument must be specified');
  const seen = new Map();
  for (const item of options?.transfer ?? []) {
    if (!types.isArrayBuffer(item)) throw new DOMException('Value not transferable', 'DataCloneError');
    if (seen.has(item)) throw new DOMException('ArrayBuffer occurs in the transfer list more than once', 'DataCloneError');
    seen.set(item, null);
  }
  for (const item of seen.keys()) seen.set(item, item.transfer());
  return copy(value, seen);
}

const errors = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function copy(value, seen) {
  if (typeof value === 'symbol' || typeof value === 'function') throw refused(value);
  if (typeof value !== 'object' || value === null) return value;
  if (seen.has(value)) return seen.get(value);
  const keep = (made) => {
    seen.set(value, made);
    return made;
  };
  if (types.isBoxedPrimitive(value)) {
    if (types.isSymbolObject(value)) throw refused(value);
    return keep(Object(value.valueOf()));
  }
  switch (types.kind(value)) {
    case 'Date': return keep(new Date(value.getTime()));
    case 'RegExp': return keep(new RegExp(value.source, value.flags));
    case 'ArrayBuffer': return keep(types.isSharedArrayBuffer(value) ? value : value.slice(0));
    case 'DataView': return keep(new DataView(copy(value.buffer, seen), value.byteOffset, value.byteLength));
    case 'TypedArray': {
      const Class = globalThis[types.tagOf(value)];
      return keep(new Class(copy(value.buffer, seen), value.byteOffset, value.length));
    }
    case 'Map': {
      const made = keep(new Map());
      for (const [key, item] of [...value]) made.set(copy(key, seen), copy(item, seen));
      return made;
    }
    case 'Set': {
      const made = keep(new Set());
      for (const item of [...value]) made.add(copy(item, seen));
      return made;
    }
    case 'Error': {
      const made = keep(Object.create((errors[value.name] ?? Error).prototype));
      const error = new (errors[value.name] ?? Error)(value.message);
      seen.set(value, error);
      if (!Object.hasOwn(value, 'message')) delete error.message;
      error.stack = value.stack;
      if (Object.hasOwn(value, 'cause')) Object.defineProperty(error, 'cause', { value: copy(value.cause, seen), writable: true, configurable: true });
      void made;
      return error;
    }
    case '':
      break;
    default: throw refused(value);
  }
  if (types.isGeneratorObject(value) || types.isMapIterator(value) || types.isSetIterator(value)) throw refused(value);
  const made = keep(Array.isArray(value) ? new Array(value.length) : {});
  for (const key of Object.keys(value)) made[key] = copy(value[key], seen);
  return made;
}

return structuredClone;

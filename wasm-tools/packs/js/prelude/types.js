// util.types: what a value is inside, whatever its prototype says.
const names = ['', 'Proxy', 'Promise', 'Map', 'Set', 'WeakMap', 'WeakSet', 'WeakRef', 'Date', 'RegExp', 'Error', 'DataView',
  'ArrayBuffer', 'TypedArray', 'Module'];
const kinds = Object.fromEntries(names.map((name, number) => [name, number]));

const isObject = (value) => value !== null && (typeof value === 'object' || typeof value === 'function');
const kind = (value) => (isObject(value) ? names[host.kind(value)] : '');
const typedArrayTag = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;
const tagOf = (value) => (isObject(value) ? typedArrayTag.call(value) : undefined);

function unboxes(method) {
  return (value) => {
    if (typeof value !== 'object' || value === null || host.kind(value) === kinds.Proxy) return false;
    try {
      method.call(value);
      return true;
    } catch {
      return false;
    }
  };
}

const text = (value) => Function.prototype.toString.call(value);
const prototypes = {
  generator: Object.getPrototypeOf(function* () {}),
  asyncFunction: Object.getPrototypeOf(async function () {}),
  asyncGenerator: Object.getPrototypeOf(async function* () {}),
};
const inherits = (value, prototype) => typeof value === 'function' && prototype.isPrototypeOf(value);
const tagged = (value, tag) => typeof value === 'object' && value !== null && host.kind(value) === 0
  && Object.prototype.toString.call(value) === `[object ${tag}]`;
const argumentsObject = (value) => tagged(value, 'Arguments') && !Object.hasOwn(value, Symbol.toStringTag);
const sharedLength = Object.getOwnPropertyDescriptor(SharedArrayBuffer.prototype, 'byteLength')?.get;

const types = {
  isAnyArrayBuffer: (value) => types.isArrayBuffer(value) || types.isSharedArrayBuffer(value),
  isArgumentsObject: argumentsObject,
  isArrayBuffer: (value) => kind(value) === 'ArrayBuffer' && !types.isSharedArrayBuffer(value),
  isArrayBufferView: (value) => ArrayBuffer.isView(value),
  isAsyncFunction: (value) => inherits(value, prototypes.asyncFunction) || inherits(value, prototypes.asyncGenerator),
  isBigInt64Array: (value) => tagOf(value) === 'BigInt64Array',
  isBigIntObject: unboxes(BigInt.prototype.valueOf),
  isBigUint64Array: (value) => tagOf(value) === 'BigUint64Array',
  isBooleanObject: unboxes(Boolean.prototype.valueOf),
  isBoxedPrimitive: (value) => types.isNumberObject(value) || types.isStringObject(value) || types.isBooleanObject(value)
    || types.isBigIntObject(value) || types.isSymbolObject(value),
  isDataView: (value) => kind(value) === 'DataView',
  isDate: (value) => kind(value) === 'Date',
  isExternal: () => false,
  isFloat32Array: (value) => tagOf(value) === 'Float32Array',
  isFloat64Array: (value) => tagOf(value) === 'Float64Array',
  isGeneratorFunction: (value) => inherits(value, prototypes.generator) || inherits(value, prototypes.asyncGenerator),
  isGeneratorObject: (value) => tagged(value, 'Generator') || tagged(value, 'AsyncGenerator'),
  isInt16Array: (value) => tagOf(value) === 'Int16Array',
  isInt32Array: (value) => tagOf(value) === 'Int32Array',
  isInt8Array: (value) => tagOf(value) === 'Int8Array',
  isMap: (value) => kind(value) === 'Map',
  isMapIterator: (value) => tagged(value, 'Map Iterator'),
  isModuleNamespaceObject: (value) => isObject(value) && host.kind(value) === 0
    && Object.prototype.toString.call(value) === '[object Module]' && Object.getPrototypeOf(value) === null,
  isNativeError: (value) => kind(value) === 'Error',
  isNumberObject: unboxes(Number.prototype.valueOf),
  isPromise: (value) => kind(value) === 'Promise',
  isProxy: (value) => kind(value) === 'Proxy',
  isRegExp: (value) => kind(value) === 'RegExp',
  isSet: (value) => kind(value) === 'Set',
  isSetIterator: (value) => tagged(value, 'Set Iterator'),
  isSharedArrayBuffer: (value) => {
    try {
      sharedLength.call(value);
      return true;
    } catch {
      return false;
    }
  },
  isStringObject: unboxes(String.prototype.valueOf),
  isSymbolObject: unboxes(Symbol.prototype.valueOf),
  isTypedArray: (value) => tagOf(value) !== undefined,
  isUint16Array: (value) => tagOf(value) === 'Uint16Array',
  isUint32Array: (value) => tagOf(value) === 'Uint32Array',
  isUint8Array: (value) => tagOf(value) === 'Uint8Array',
  isUint8ClampedArray: (value) => tagOf(value) === 'Uint8ClampedArray',
  isWeakMap: (value) => kind(value) === 'WeakMap',
  isWeakSet: (value) => kind(value) === 'WeakSet',
};

return { ...types, all: types, kind, tagOf, isObject, functionText: text };

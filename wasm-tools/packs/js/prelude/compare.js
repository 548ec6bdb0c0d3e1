// Deep equality, strict and loose: for assert and util.isDeepStrictEqual.
const types = need('types');

function equal(one, two, strict, seen = new Map()) {
  if (one === two) return one !== 0 || !strict || Object.is(one, two);
  const objects = (value) => value !== null && (typeof value === 'object' || typeof value === 'function');
  if (!objects(one) || !objects(two)) {
    if (strict) return Object.is(one, two);
    if (objects(one) || objects(two)) return false;
    // eslint-disable-next-line eqeqeq
    return one == two || (Number.isNaN(one) && Number.isNaN(two));
  }
  if (typeof one !== typeof two) return false;
  if (strict && Object.getPrototypeOf(one) !== Object.getPrototypeOf(two)) return false;
  const kind = types.kind(one);
  if (kind !== types.kind(two) || Array.isArray(one) !== Array.isArray(two)) return false;
  if (Object.prototype.toString.call(one) !== Object.prototype.toString.call(two)) return false;
  if (typeof one === 'function') return false;
  if (kind === 'Date' && !Object.is(one.getTime(), two.getTime())) return false;
  if (kind === 'RegExp' && (one.source !== two.source || one.flags !== two.flags || one.lastIndex !== two.lastIndex)) return false;
  if (kind === 'Error' && (one.message !== two.message || one.name !== two.name || !equal(one.cause, two.cause, strict, seen) || !equal(one.errors, two.errors, strict, seen))) return false;
  if (kind === 'Promise' || kind === 'WeakMap' || kind === 'WeakSet' || kind === 'WeakRef') return false;
  if (types.isBoxedPrimitive(one) || types.isBoxedPrimitive(two)) {
    if (!types.isBoxedPrimitive(two) || !types.isBoxedPrimitive(one) || !Object.is(one.valueOf(), two.valueOf())) return false;
  }
  if (ArrayBuffer.isView(one) || types.isAnyArrayBuffer(one)) {
    const numbers = types.isFloat32Array(one) || types.isFloat64Array(one);
    if (numbers && !strict) {
      if (one.length !== two.length || !one.every((value, i) => value === two[i] || Object.is(value, two[i]))) return false;
    } else if (host.compare(one, two) !== 0) return false;
  }
  // A pair that is being compared further out is equal as far as this pair is concerned.
  if (seen.get(one)?.has(two)) return true;
  if (!seen.has(one)) seen.set(one, new Set());
  seen.get(one).add(two);
  const same = contents(one, two, kind, strict, seen);
  seen.get(one).delete(two);
  return same;
}

function contents(one, two, kind, strict, seen) {
  if (Array.isArray(one) && one.length !== two.length) return false;
  const keys = Object.keys(one);
  const others = Object.keys(two);
  const indices = ArrayBuffer.isView(one);
  const mine = indices ? keys.filter((key) => !/^\d+$/.test(key)) : keys;
  const theirs = indices ? others.filter((key) => !/^\d+$/.test(key)) : others;
  if (mine.length !== theirs.length) return false;
  for (const key of mine) if (!Object.prototype.propertyIsEnumerable.call(two, key)) return false;
  if (strict) {
    const symbols = (value) => Object.getOwnPropertySymbols(value).filter((key) => Object.prototype.propertyIsEnumerable.call(value, key));
    const list = symbols(one);
    if (list.length !== symbols(two).length) return false;
    for (const key of list) if (!Object.prototype.propertyIsEnumerable.call(two, key) || !equal(one[key], two[key], strict, seen)) return false;
  }
  if (kind === 'Set') {
    if (one.size !== two.size) return false;
    const rest = new Set(two);
    for (const item of one) {
      if (rest.delete(item)) continue;
      const match = [...rest].find((other) => equal(item, other, strict, seen));
      if (match === undefined && !rest.has(undefined)) return false;
      rest.delete(match);
    }
  }
  if (kind === 'Map') {
    if (one.size !== two.size) return false;
    const rest = new Map(two);
    for (const [key, item] of one) {
      if (rest.has(key) && equal(item, rest.get(key), strict, seen)) {
        rest.delete(key);
        continue;
      }
      const match = [...rest].find(([other, value]) => typeof key === 'object' && equal(key, other, strict, seen) && equal(item, value, strict, seen));
      if (match === undefined) return false;
      rest.delete(match[0]);
    }
  }
  return mine.every((key) => equal(one[key], two[key], strict, seen));
}

return { equal };

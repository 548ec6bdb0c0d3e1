// assert: with node's codes, and messages in its style.
const { coded, argumentType, checkFunction } = need('errors');
const { inspect } = need('inspect');
const { equal } = need('compare');
const types = need('types');

const show = (value) => inspect(value, { compact: false, customInspect: false, depth: 1000, maxArrayLength: Infinity, showHidden: false, showProxy: false, sorted: true, getters: true, breakLength: Infinity });

const headings = {
  deepStrictEqual: 'Expected values to be strictly deep-equal:', strictEqual: 'Expected values to be strictly equal:', deepEqual: 'Expected values to be loosely deep-equal:',
  notDeepStrictEqual: 'Expected "actual" not to be strictly deep-equal to:', notStrictEqual: 'Expected "actual" to be strictly unequal to:', notDeepEqual: 'Expected "actual" not to be loosely deep-equal to:',
  strictEqualObject: 'Expected "actual" to be reference-equal to "expected":',
};

// The lines of two texts, marked: "+" only in the first, "-" only in the second.
function difference(one, two) {
  const a = one.split('\n');
  const b = two.split('\n');
  // A table of the longest common parts; texts too long for it are shown one after the other.
  if (a.length * b.length > 1e6) return [...a.map((line) => `+ ${line}`), ...b.map((line) => `- ${line}`)].join('\n');
  const table = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const out = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) out.push(`  ${a[i++]}`) && j++;
    else if (i < a.length && (j >= b.length || table[i + 1][j] >= table[i][j + 1])) out.push(`+ ${a[i++]}`);
    else out.push(`- ${b[j++]}`);
  }
  return out.join('\n');
}

function message(operator, actual, expected) {
  if (operator === 'deepStrictEqual' || operator === 'strictEqual') {
    const one = show(actual);
    const two = show(expected);
    const simple = (value) => (typeof value !== 'object' || value === null) && typeof value !== 'function';
    if (operator === 'strictEqual' && simple(actual) && simple(expected) && one.length + two.length < 80 && !one.includes('\n') && !two.includes('\n')) {
      return `${headings.strictEqual}\n\n${one} !== ${two}\n`;
    }
    const heading = operator === 'strictEqual' && !simple(actual) && !simple(expected) ? headings.strictEqualObject : headings[operator];
    if (one === two) return `Values have same structure but are not reference-equal:\n\n${one}\n`;
    return `${heading}\n+ actual - expected\n\n${difference(one, two)}`;
  }
  if (operator === 'notDeepStrictEqual' || operator === 'notStrictEqual') {
    const text = show(actual);
    return text.includes('\n') ? `${headings[operator]}\n\n${text}\n` : `${headings[operator]} ${text}`;
  }
  if (operator === 'deepEqual') return `${headings.deepEqual}\n\n${show(actual)}\n\nshould loosely deep-equal\n\n${show(expected)}`;
  if (operator === 'notDeepEqual') return `${headings.notDeepEqual}\n\n${show(actual)}\n\nshould not loosely deep-equal\n\n${show(expected)}`;
  return `${inspect(actual)} ${operator} ${inspect(expected)}`;
}

class AssertionError extends Error {
  constructor(options) {
    if (options === null || typeof options !== 'object') throw argumentType('options', 'Object', options);
    const { actual, expected, operator, stackStartFn } = options;
    super(options.message !== undefined ? String(options.message) : message(operator, actual, expected));
    Object.defineProperty(this, 'name', { value: 'AssertionError', writable: true, configurable: true });
    this.generatedMessage = options.message === undefined;
    this.code = 'ERR_ASSERTION';
    this.actual = actual;
    this.expected = expected;
    this.operator = operator;
    need('start').nodeErrors.add(this);
    if (stackStartFn) Error.captureStackTrace(this, stackStartFn);
  }
  toString() { return `${this.name} [${this.code}]: ${this.message}`; }
}

function fail(actual, expected, text, operator, from) {
  if (text instanceof Error) throw text;
  throw new AssertionError({ actual, expected, message: text, operator, stackStartFn: from });
}

function truthy(from, count, value, text) {
  if (value) return;
  if (count === 0) text = 'No value argument passed to `assert.ok()`';
  else if (text === undefined) {
    const error = new AssertionError({ actual: value, expected: true, message: 'The expression evaluated to a falsy value', operator: '==', stackStartFn: from });
    error.generatedMessage = true;
    throw error;
  }
  fail(value, true, text, '==', from);
}

function assert(...values) { truthy(assert, values.length, ...values); }

function comparison(name, test) {
  const check = { [name](actual, expected, text) {
    if (arguments.length < 2) throw coded(TypeError, 'ERR_MISSING_ARGS', 'The "actual" and "expected" arguments must be specified');
    if (!test(actual, expected)) fail(actual, expected, text, operators[name] ?? name, check);
  } }[name];
  assert[name] = check;
}
const operators = { equal: '==', notEqual: '!=' };
// eslint-disable-next-line eqeqeq
const loose = (one, two) => one == two || (Number.isNaN(one) && Number.isNaN(two));
comparison('equal', loose);
comparison('notEqual', (one, two) => !loose(one, two));
comparison('strictEqual', Object.is);
comparison('notStrictEqual', (one, two) => !Object.is(one, two));
comparison('deepEqual', (one, two) => equal(one, two, false));
comparison('notDeepEqual', (one, two) => !equal(one, two, false));
comparison('deepStrictEqual', (one, two) => equal(one, two, true));
comparison('notDeepStrictEqual', (one, two) => !equal(one, two, true));

function matches(error, expected, text, from) {
  if (expected === undefined) return;
  if (typeof expected === 'function') {
    if (expected.prototype !== undefined && error instanceof expected) return;
    if (Error.isPrototypeOf(expected)) fail(error, expected, text ?? `The error is expected to be an instance of "${expected.name}". Received "${error?.constructor?.name ?? inspect(error)}"\n\nError message:\n\n${error?.message}`, from.name, from);
    if (expected.call({}, error) === true) return;
    fail(error, expected, text ?? `The ${expected.name ? `"${expected.name}" ` : ''}validation function is expected to return "true". Received ${inspect(expected.call({}, error))}\n\nCaught error:\n\n${error}`, from.name, from);
  }
  if (types.isRegExp(expected)) {
    if (expected.test(String(error))) return;
    fail(error, expected, text ?? `The input did not match the regular expression ${inspect(expected)}. Input:\n\n${inspect(String(error))}\n`, from.name, from);
  }
  if (typeof expected !== 'object' || expected === null) throw argumentType('expected', ['function', 'Object', 'Error', 'RegExp'], expected);
  const keys = Object.keys(expected);
  if (expected instanceof Error) keys.push('name', 'message');
  for (const key of keys) {
    const wanted = expected[key];
    if (typeof error?.[key] === 'string' && types.isRegExp(wanted) && wanted.test(error[key])) continue;
    if (error !== null && key in Object(error) && equal(error[key], wanted, true)) continue;
    const pick = (from) => Object.fromEntries(keys.filter((one) => one in Object(from)).map((one) => [one, types.isRegExp(expected[one]) && typeof from[one] === 'string' && expected[one].test(from[one]) ? expected[one] : from[one]]));
    fail(error, expected, text ?? message('deepStrictEqual', pick(error), pick(expected)), from.name, from);
  }
}

const nothing = Symbol('nothing');

function told(expected, text) {
  return typeof expected === 'string' ? [undefined, expected] : [expected, text];
}

assert.throws = function throws(action, ...rest) {
  checkFunction(action, 'fn');
  const [expected, text] = told(...rest);
  let caught = nothing;
  try {
    action();
  } catch (error) {
    caught = error;
  }
  if (caught === nothing) fail(undefined, expected, `Missing expected exception${expected?.name ? ` (${expected.name})` : ''}${text ? `: ${text}` : '.'}`, 'throws', throws);
  matches(caught, expected, text, throws);
};
assert.doesNotThrow = function doesNotThrow(action, ...rest) {
  checkFunction(action, 'fn');
  const [expected, text] = told(...rest);
  try {
    action();
  } catch (error) {
    if (expected && !(error instanceof expected)) throw error;
    fail(error, expected, `Got unwanted exception${text ? `: ${text}` : '.'}\nActual message: "${error?.message}"`, 'doesNotThrow', doesNotThrow);
  }
};
const promiseOf = (value) => (typeof value === 'function' ? value() : value);
assert.rejects = async function rejects(action, ...rest) {
  const [expected, text] = told(...rest);
  let caught = nothing;
  try {
    await promiseOf(action);
  } catch (error) {
    caught = error;
  }
  if (caught === nothing) fail(undefined, expected, `Missing expected rejection${expected?.name ? ` (${expected.name})` : ''}${text ? `: ${text}` : '.'}`, 'rejects', rejects);
  matches(caught, expected, text, rejects);
};
assert.doesNotReject = async function doesNotReject(action, ...rest) {
  const [expected, text] = told(...rest);
  try {
    await promiseOf(action);
  } catch (error) {
    fail(error, expected, `Got unwanted rejection${text ? `: ${text}` : '.'}\nActual message: "${error?.message}"`, 'doesNotReject', doesNotReject);
  }
};
assert.match = function match(text, pattern, say) {
  if (typeof text !== 'string' || !pattern.test(text)) fail(text, pattern, say ?? (typeof text !== 'string' ? `The "string" argument must be of type string. Received ${inspect(text)}` : `The input did not match the regular expression ${inspect(pattern)}. Input:\n\n${inspect(text)}\n`), 'match', match);
};
assert.doesNotMatch = function doesNotMatch(text, pattern, say) {
  if (typeof text !== 'string' || pattern.test(text)) fail(text, pattern, say ?? `The input was expected to not match the regular expression ${inspect(pattern)}. Input:\n\n${inspect(text)}\n`, 'doesNotMatch', doesNotMatch);
};
assert.fail = function failed(text = 'Failed') {
  if (text instanceof Error) throw text;
  const error = new AssertionError({ message: text, operator: 'fail', stackStartFn: failed });
  throw error;
};
assert.ifError = function ifError(value) {
  if (value === null || value === undefined) return;
  fail(value, null, `ifError got unwanted exception: ${value instanceof Error ? value.message : inspect(value)}`, 'ifError', ifError);
};
assert.ok = function ok(...values) { truthy(ok, values.length, ...values); };
assert.AssertionError = AssertionError;
assert.strict = Object.assign((...values) => truthy(assert.strict, values.length, ...values), assert, {
  equal: assert.strictEqual, notEqual: assert.notStrictEqual, deepEqual: assert.deepStrictEqual, notDeepEqual: assert.notDeepStrictEqual,
});
assert.strict.strict = assert.strict;
return assert;

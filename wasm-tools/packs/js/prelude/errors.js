// Errors with the codes, numbers and words that node gives them: scripts look at `code`, people at the message.
const { nodeErrors } = need('start');

// WASI's error number -> [code, number on Linux, words]
const table = {
  1: ['E2BIG', 7, 'argument list too long'], 2: ['EACCES', 13, 'permission denied'],
  6: ['EAGAIN', 11, 'resource temporarily unavailable'], 8: ['EBADF', 9, 'bad file descriptor'],
  10: ['EBUSY', 16, 'resource busy or locked'], 19: ['EDQUOT', 122, 'disk quota exceeded'],
  20: ['EEXIST', 17, 'file already exists'], 21: ['EFAULT', 14, 'bad address in system call argument'],
  22: ['EFBIG', 27, 'file too large'], 27: ['EINTR', 4, 'interrupted system call'],
  28: ['EINVAL', 22, 'invalid argument'], 29: ['EIO', 5, 'i/o error'],
  31: ['EISDIR', 21, 'illegal operation on a directory'], 32: ['ELOOP', 40, 'too many symbolic links encountered'],
  33: ['EMFILE', 24, 'too many open files'], 34: ['EMLINK', 31, 'too many links'],
  37: ['ENAMETOOLONG', 36, 'name too long'], 41: ['ENFILE', 23, 'file table overflow'],
  44: ['ENOENT', 2, 'no such file or directory'], 48: ['ENOMEM', 12, 'not enough memory'],
  51: ['ENOSPC', 28, 'no space left on device'], 52: ['ENOSYS', 38, 'function not implemented'],
  54: ['ENOTDIR', 20, 'not a directory'], 55: ['ENOTEMPTY', 39, 'directory not empty'],
  58: ['ENOTSUP', 95, 'operation not supported on socket'], 60: ['ENXIO', 6, 'no such device or address'],
  61: ['EOVERFLOW', 75, 'value too large for defined data type'], 63: ['EPERM', 1, 'operation not permitted'],
  64: ['EPIPE', 32, 'broken pipe'], 69: ['EROFS', 30, 'read-only file system'],
  70: ['ESPIPE', 29, 'invalid seek'], 74: ['ETXTBSY', 26, 'text file is busy'],
  75: ['EXDEV', 18, 'cross-device link not permitted'],
  // What a host says of a path that leaves all folders it gave: for the script there is nothing there.
  76: ['EACCES', 13, 'permission denied'],
};

function systemError(number, syscall, path, dest) {
  const [code, linux, words] = table[number] ?? [`E${number}`, number, 'unknown error'];
  let message = `${code}: ${words}, ${syscall}`;
  if (path !== undefined) message += ` '${path}'`;
  if (dest !== undefined) message += ` -> '${dest}'`;
  const error = new Error(message);
  error.errno = -linux;
  error.code = code;
  error.syscall = syscall;
  if (path !== undefined) error.path = path;
  if (dest !== undefined) error.dest = dest;
  return error;
}

// An error with one of node's codes.
function coded(Kind, code, message) {
  const error = new Kind(message);
  Object.defineProperty(error, 'code', { value: code, writable: true, enumerable: true, configurable: true });
  nodeErrors.add(error);
  return error;
}

function describe(value) {
  if (value == null) return ` Received ${value}`;
  if (typeof value === 'function') return ` Received function ${value.name}`;
  if (typeof value === 'object') {
    const name = value.constructor?.name;
    return name ? ` Received an instance of ${name}` : ` Received ${need('inspect').inspect(value, { depth: -1 })}`;
  }
  let text = need('inspect').inspect(value, { colors: false });
  if (text.length > 28) text = `${text.slice(0, 25)}...`;
  return ` Received type ${typeof value} (${text})`;
}

const primitives = new Set(['string', 'function', 'number', 'object', 'boolean', 'bigint', 'symbol']);

function listed(words, last) {
  if (words.length < 3) return words.join(` ${last} `);
  return `${words.slice(0, -1).join(', ')}, ${last} ${words.at(-1)}`;
}

// `expected`: a type, a class name, or several.
function argumentType(name, expected, actual) {
  const all = [].concat(expected);
  const types = all.filter((word) => primitives.has(word));
  const classes = all.filter((word) => !primitives.has(word));
  const parts = [];
  if (types.length > 0) parts.push(`${types.length > 1 ? 'one of type' : 'of type'} ${listed(types, 'or')}`);
  if (classes.length > 0) parts.push(`an instance of ${listed(classes, 'or')}`);
  const subject = name.endsWith(' argument') ? `The ${name}` : name.includes('.') ? `The "${name}" property` : `The "${name}" argument`;
  return coded(TypeError, 'ERR_INVALID_ARG_TYPE', `${subject} must be ${parts.join(' or ')}.${describe(actual)}`);
}

function argumentValue(name, value, reason = 'is invalid') {
  let text = need('inspect').inspect(value);
  if (text.length > 128) text = `${text.slice(0, 128)}...`;
  const kind = name.includes('.') ? 'property' : 'argument';
  return coded(TypeError, 'ERR_INVALID_ARG_VALUE', `The ${kind} '${name}' ${reason}. Received ${text}`);
}

function outOfRange(name, range, value) {
  let text = typeof value === 'bigint' ? `${value}n` : need('inspect').inspect(value);
  if (Number.isInteger(value) && Math.abs(value) > 2 ** 32) text = grouped(String(value));
  return coded(RangeError, 'ERR_OUT_OF_RANGE', `The value of "${name}" is out of range. It must be ${range}. Received ${text}`);
}

function grouped(digits) {
  return digits.replace(/\B(?=(\d{3})+$)/g, '_');
}

function checkString(value, name) {
  if (typeof value !== 'string') throw argumentType(name, 'string', value);
  return value;
}

function checkFunction(value, name) {
  if (typeof value !== 'function') throw argumentType(name, 'function', value);
  return value;
}

function checkInteger(value, name, low = Number.MIN_SAFE_INTEGER, high = Number.MAX_SAFE_INTEGER) {
  if (typeof value !== 'number') throw argumentType(name, 'number', value);
  if (!Number.isInteger(value)) throw outOfRange(name, 'an integer', value);
  if (value < low || value > high) throw outOfRange(name, `>= ${low} && <= ${high}`, value);
  return value;
}

// For what a sandbox has not: says so, and what to do instead.
function absent(what, instead) {
  return coded(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', `${what} is not available in this sandbox: ${instead}`);
}

return {
  systemError, coded, argumentType, argumentValue, outOfRange, checkString, checkFunction, checkInteger, absent, table, describe,
};

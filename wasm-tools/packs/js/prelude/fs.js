// fs: everything is one blocking call inside; the forms with callbacks and promises are done in a later turn of the loop.
const { table, systemError, coded, argumentType, argumentValue, checkFunction, checkInteger, outOfRange } = need('errors');
const types = need('types');
const { Buffer } = need('buffer');
const loop = need('loop');
const { URL } = need('url');
const path = need('path');

const constants = {
  UV_FS_SYMLINK_DIR: 1, UV_FS_SYMLINK_JUNCTION: 2, O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, UV_DIRENT_UNKNOWN: 0, UV_DIRENT_FILE: 1, UV_DIRENT_DIR: 2,
  UV_DIRENT_LINK: 3, S_IFMT: 0o170000, S_IFREG: 0o100000, S_IFDIR: 0o40000, S_IFCHR: 0o20000, S_IFBLK: 0o60000, S_IFIFO: 0o10000, S_IFLNK: 0o120000,
  S_IFSOCK: 0o140000, O_CREAT: 0o100, O_EXCL: 0o200, O_TRUNC: 0o1000, O_APPEND: 0o2000, O_DIRECTORY: 0o200000, O_NOFOLLOW: 0o400000, O_SYNC: 0, O_DSYNC: 0,
  F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1, COPYFILE_EXCL: 1, COPYFILE_FICLONE: 2, COPYFILE_FICLONE_FORCE: 4, UV_FS_COPYFILE_EXCL: 1, S_IRWXU: 0o700,
  S_IRUSR: 0o400, S_IWUSR: 0o200, S_IXUSR: 0o100, S_IRWXG: 0o70, S_IRGRP: 0o40, S_IWGRP: 0o20, S_IXGRP: 0o10, S_IRWXO: 7, S_IROTH: 4, S_IWOTH: 2, S_IXOTH: 1,
};
const flagWords = {
  'r': 0, 'rs': 0, 'r+': 2, 'rs+': 2, 'w': 1 | 0o1100, 'wx': 1 | 0o1300, 'w+': 2 | 0o1100, 'wx+': 2 | 0o1300, 'a': 1 | 0o2100, 'ax': 1 | 0o2300,
  'a+': 2 | 0o2100, 'ax+': 2 | 0o2300, 'as': 1 | 0o2100, 'as+': 2 | 0o2100, 'xw': 1 | 0o1300, 'xw+': 2 | 0o1300, 'xa': 1 | 0o2300, 'xa+': 2 | 0o2300,
};

// ---- arguments ----------------------------------------------------------------------------------------------

function pathText(value, name = 'path') {
  if (typeof value === 'string') {
    if (value.includes('\0')) throw argumentValue(name, value, 'must be a string, Uint8Array, or URL without null bytes');
    return value;
  }
  if (value instanceof URL) return need('url').fileURLToPath(value);
  if (types.isUint8Array(value)) return pathText(Buffer.from(value).toString(), name);
  throw argumentType(name, ['string', 'Buffer', 'URL'], value);
}

function flagBits(flag) {
  if (typeof flag === 'number') return flag;
  if (flag === undefined || flag === null) return 0;
  if (!Object.hasOwn(flagWords, flag)) throw argumentValue('flags', flag);
  return flagWords[flag];
}

function settings(value, defaults = {}) {
  if (value === undefined || value === null || typeof value === 'function') return defaults;
  if (typeof value === 'string') {
    if (value !== 'buffer' && !Buffer.isEncoding(value)) throw argumentValue('encoding', value, 'is invalid encoding');
    return { ...defaults, encoding: value };
  }
  if (typeof value !== 'object') throw argumentType('options', ['string', 'Object'], value);
  if (value.encoding != null && value.encoding !== 'buffer' && !Buffer.isEncoding(value.encoding)) throw argumentValue('encoding', value.encoding, 'is invalid encoding');
  return { ...defaults, ...value };
}

function checked(result, syscall, file, dest) {
  if (typeof result === 'number' && result < 0) throw systemError(-result, syscall, file, dest);
  return result;
}

const encoded = (text, options) => (options.encoding === 'buffer' ? Buffer.from(text) : options.encoding && options.encoding !== 'utf8' && options.encoding !== 'utf-8' ? Buffer.from(text).toString(options.encoding) : text);

function bytes(data, encoding, name = 'data') {
  if (typeof data === 'string') return host.encode(data, need('buffer').encodingNumber(encoding ?? 'utf8'));
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw argumentType(name, ['string', 'Buffer', 'TypedArray', 'DataView'], data);
}

const descriptor = (fd) => checkInteger(fd, 'fd', 0, 2 ** 31 - 1);

// ---- Stats, Dirent ------------------------------------------------------------------------------------------

const KIND = 0o170000;

class Stats {
  constructor(facts, big) {
    const [kind, size, ino, dev, nlink, atime, mtime, ctime] = facts;
    // WASI knows no permissions: what the host gave can be read, and folders entered.
    const mode = kind | ((kind & KIND) === constants.S_IFDIR ? 0o755 : (kind & KIND) === constants.S_IFLNK ? 0o777 : 0o644);
    const number = big ? BigInt : (value) => value;
    Object.assign(this, {
      dev: number(dev), mode: number(mode), nlink: number(nlink), uid: number(0), gid: number(0), rdev: number(0), blksize: number(4096), ino: number(ino),
      size: number(size), blocks: number(Math.ceil(size / 512)),
    });
    for (const [name, time] of [['atime', atime], ['mtime', mtime], ['ctime', ctime], ['birthtime', ctime]]) {
      this[`${name}Ms`] = big ? BigInt(Math.floor(time)) : time;
      if (big) this[`${name}Ns`] = BigInt(Math.round(time * 1e3)) * 1000n;
    }
    for (const [name, time] of [['atime', atime], ['mtime', mtime], ['ctime', ctime], ['birthtime', ctime]]) this[name] = new Date(Math.round(time));
  }
}
const kinds = { isFile: constants.S_IFREG, isDirectory: constants.S_IFDIR, isSymbolicLink: constants.S_IFLNK, isCharacterDevice: constants.S_IFCHR, isBlockDevice: constants.S_IFBLK, isFIFO: constants.S_IFIFO, isSocket: constants.S_IFSOCK };
for (const [name, kind] of Object.entries(kinds)) Object.defineProperty(Stats.prototype, name, { value() { return (Number(this.mode) & KIND) === kind; }, writable: true, configurable: true });

const direntKind = Symbol('type');
class Dirent {
  constructor(name, kind, parent) {
    this.name = name;
    this.parentPath = parent;
    this.path = parent;
    this[direntKind] = kind;
    Object.defineProperty(this, 'parentPath', { enumerable: false });
  }
}
for (const [name, kind] of Object.entries({ isFile: 1, isDirectory: 2, isSymbolicLink: 3, isFIFO: 4, isSocket: 5, isCharacterDevice: 6, isBlockDevice: 7 })) {
  Object.defineProperty(Dirent.prototype, name, { value() { return this[direntKind] === kind; }, writable: true, configurable: true });
}

// ---- the calls ----------------------------------------------------------------------------------------------

const sync = {
  access(file, mode = constants.F_OK) {
    file = pathText(file);
    const facts = checked(host.stat(file, true), 'access', file);
    // Only trying tells whether the host allows to write; a file is opened for it, which changes nothing.
    if (mode & constants.W_OK && (facts[0] & KIND) === constants.S_IFREG) host.close(checked(host.open(file, 1), 'access', file));
  },
  exists(file) {
    try {
      return !(typeof host.stat(pathText(file), true) === 'number');
    } catch {
      return false;
    }
  },
  open(file, flags = 'r', mode = 0o666) {
    file = pathText(file);
    return checked(host.open(file, flagBits(flags)), 'open', file);
  },
  close(fd) {
    checked(host.close(descriptor(fd)), 'close');
  },
  read(fd, buffer, offset, length, position) {
    if (buffer !== null && typeof buffer === 'object' && !ArrayBuffer.isView(buffer)) ({ buffer, offset, length, position } = { buffer: Buffer.alloc(16384), ...buffer });
    if (offset !== null && typeof offset === 'object') ({ offset, length, position } = offset);
    if (!ArrayBuffer.isView(buffer)) throw argumentType('buffer', ['Buffer', 'TypedArray', 'DataView'], buffer);
    offset ??= 0;
    length ??= buffer.byteLength - offset;
    if (offset < 0 || offset > buffer.byteLength) throw outOfRange('offset', `>= 0 && <= ${buffer.byteLength}`, offset);
    if (length < 0 || length > buffer.byteLength - offset) throw outOfRange('length', `<= ${buffer.byteLength - offset}`, length);
    if (length === 0) return 0;
    return checked(host.read(descriptor(fd), buffer, offset, length, Number(position ?? -1)), 'read');
  },
  write(fd, data, offset, length, position) {
    descriptor(fd);
    if (typeof data === 'string') {
      const text = bytes(data, typeof length === 'string' ? length : 'utf8');
      return writeFully(fd, text, typeof offset === 'number' ? offset : -1);
    }
    const view = bytes(data, undefined, 'buffer');
    if (offset !== null && typeof offset === 'object') ({ offset, length, position } = offset);
    offset ??= 0;
    length ??= view.length - offset;
    if (offset < 0 || offset > view.length) throw outOfRange('offset', `>= 0 && <= ${view.length}`, offset);
    if (length < 0 || length > view.length - offset) throw outOfRange('length', `>= 0 && <= ${view.length - offset}`, length);
    return writeFully(fd, view.subarray(offset, offset + length), position ?? -1);
  },
  readv(fd, buffers, position) {
    let total = 0;
    for (const buffer of buffers) {
      const count = sync.read(fd, buffer, 0, buffer.byteLength, position == null ? null : position + total);
      total += count;
      if (count < buffer.byteLength) break;
    }
    return total;
  },
  writev(fd, buffers, position) {
    return sync.write(fd, Buffer.concat(buffers.map((one) => bytes(one))), 0, undefined, position);
  },
  readFile(file, options) {
    options = settings(options, { flag: 'r' });
    const data = Number.isInteger(file) ? checked(host.readAll(descriptor(file)), 'read') : readPath(pathText(file), options);
    return options.encoding && options.encoding !== 'buffer' ? host.decode(data, need('buffer').encodingNumber(options.encoding)) : need('buffer').asBuffer(data);
  },
  writeFile(file, data, options) {
    options = settings(options, { encoding: 'utf8', flag: 'w' });
    const view = bytes(data, options.encoding);
    if (typeof file === 'number') {
      writeFully(descriptor(file), view, -1);
      return;
    }
    file = pathText(file);
    const fd = checked(host.open(file, flagBits(options.flag)), 'open', file);
    try {
      writeFully(fd, view, -1);
    } finally {
      host.close(fd);
    }
  },
  appendFile(file, data, options) {
    sync.writeFile(file, data, { ...settings(options, { encoding: 'utf8' }), flag: settings(options).flag ?? 'a' });
  },
  mkdir(folder, options) {
    folder = pathText(folder);
    const recursive = options !== null && typeof options === 'object' && options.recursive;
    if (!recursive) {
      checked(host.mkdir(folder), 'mkdir', folder);
      return undefined;
    }
    const full = path.resolve(folder);
    let first;
    const missing = [];
    for (let at = full; ; at = path.dirname(at)) {
      const facts = host.stat(at, true);
      if (typeof facts !== 'number') {
        if ((facts[0] & KIND) !== constants.S_IFDIR) throw systemError(at === full ? 20 : 54, 'mkdir', folder);
        break;
      }
      missing.push(at);
      // Nothing can be looked at above the folders that the host gave.
      if (at === path.dirname(at)) break;
    }
    for (const at of missing.reverse()) {
      const status = host.mkdir(at);
      if (status === 0) first ??= at;
      else if (typeof host.stat(at, true) === 'number' && at === full) checked(status, 'mkdir', folder);
    }
    return first;
  },
  mkdtemp(prefix, options) {
    prefix = pathText(prefix, 'prefix');
    const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
    for (let tries = 0; tries < 100; tries++) {
      const random = new Uint8Array(6);
      host.random(random);
      const name = prefix + Array.from(random, (byte) => letters[byte % letters.length]).join('');
      const status = host.mkdir(name);
      if (status === 0) return encoded(name, settings(options));
      if (status !== -20) checked(status, 'mkdtemp', `${prefix}XXXXXX`);
    }
    throw systemError(20, 'mkdtemp', `${prefix}XXXXXX`);
  },
  readdir(folder, options) {
    folder = pathText(folder);
    options = settings(options);
    const out = [];
    const walk = (at, below) => {
      const list = checked(host.readdir(at), 'scandir', at);
      const entries = [];
      for (let i = 0; i < list.length; i += 2) entries.push([list[i], list[i + 1]]);
      entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      for (const [name, kind] of entries) {
        if (options.withFileTypes) out.push(new Dirent(encoded(name, options), kind, at));
        else out.push(encoded(below === '' ? name : `${below}/${name}`, options));
      }
      if (options.recursive) for (const [name, kind] of entries) if (kind === 2) walk(path.join(at, name), below === '' ? name : `${below}/${name}`);
    };
    walk(folder, '');
    return out;
  },
  stat(file, options) {
    return statOf(file, options, true, 'stat');
  },
  lstat(file, options) {
    return statOf(file, options, false, 'lstat');
  },
  fstat(fd, options) {
    return new Stats(checked(host.fstat(descriptor(fd)), 'fstat'), options?.bigint);
  },
  unlink(file) {
    file = pathText(file);
    checked(host.unlink(file), 'unlink', file);
  },
  rmdir(folder, options) {
    folder = pathText(folder);
    if (options?.recursive) sync.rm(folder, { recursive: true });
    else checked(host.rmdir(folder), 'rmdir', folder);
  },
  rm(file, options) {
    file = pathText(file);
    const { force = false, recursive = false } = options ?? {};
    const facts = host.stat(file, false);
    if (typeof facts === 'number') {
      if (force && facts === -44) return;
      checked(facts, 'lstat', file);
    }
    if ((facts[0] & KIND) !== constants.S_IFDIR) {
      checked(host.unlink(file), 'rm', file);
      return;
    }
    if (!recursive) {
      const error = coded(Error, 'ERR_FS_EISDIR', `Path is a directory: rm returned EISDIR (is a directory) ${file}`);
      error.name = 'SystemError';
      Object.assign(error, { errno: 21, syscall: 'rm', path: file });
      throw error;
    }
    const list = checked(host.readdir(file), 'scandir', file);
    for (let i = 0; i < list.length; i += 2) sync.rm(`${file}/${list[i]}`, { recursive: true, force });
    checked(host.rmdir(file), 'rmdir', file);
  },
  rename(from, to) {
    from = pathText(from, 'oldPath');
    to = pathText(to, 'newPath');
    checked(host.rename(from, to), 'rename', from, to);
  },
  copyFile(from, to, mode = 0) {
    from = pathText(from, 'src');
    to = pathText(to, 'dest');
    const source = checked(host.open(from, 0), 'copyfile', from, to);
    try {
      const target = checked(host.open(to, mode & constants.COPYFILE_EXCL ? 1 | 0o300 : 1 | 0o1100), 'copyfile', from, to);
      try {
        const buffer = new Uint8Array(65536);
        for (;;) {
          const count = checked(host.read(source, buffer, 0, buffer.length, -1), 'copyfile', from, to);
          if (count === 0) break;
          writeFully(target, buffer.subarray(0, count), -1);
        }
      } finally {
        host.close(target);
      }
    } finally {
      host.close(source);
    }
  },
  cp(from, to, { recursive = false, force = true, errorOnExist = false, filter } = {}) {
    from = pathText(from, 'src');
    to = pathText(to, 'dest');
    if (filter && !filter(from, to)) return;
    const facts = checked(host.stat(from, false), 'lstat', from);
    const kind = facts[0] & KIND;
    if (kind === constants.S_IFDIR) {
      if (!recursive) throw coded(Error, 'ERR_FS_EISDIR', `Recursive option not enabled, cannot copy a directory: cp returned EISDIR (${from} is a directory (not copied)) ${from}`);
      if (`${path.resolve(to)}/`.startsWith(`${path.resolve(from)}/`)) throw coded(Error, 'ERR_FS_CP_EINVAL', `Invalid src or dest: cp returned EINVAL (cannot copy ${from} to a subdirectory of self ${to}) ${to}`);
      sync.mkdir(to, { recursive: true });
      const list = checked(host.readdir(from), 'scandir', from);
      for (let i = 0; i < list.length; i += 2) sync.cp(`${from}/${list[i]}`, `${to}/${list[i]}`, { recursive, force, errorOnExist, filter });
      return;
    }
    if (sync.exists(to) && !force) {
      if (errorOnExist) throw coded(Error, 'ERR_FS_CP_EEXIST', `Target already exists: cp returned EEXIST (${to} already exists) ${to}`);
      return;
    }
    sync.mkdir(path.dirname(path.resolve(to)), { recursive: true });
    if (kind === constants.S_IFLNK) sync.symlink(sync.readlink(from), to);
    else sync.copyFile(from, to);
  },
  link(from, to) {
    from = pathText(from, 'existingPath');
    to = pathText(to, 'newPath');
    checked(host.link(from, to), 'link', from, to);
  },
  symlink(target, file) {
    target = pathText(target, 'target');
    file = pathText(file);
    checked(host.symlink(target, file), 'symlink', target, file);
  },
  readlink(file, options) {
    file = pathText(file);
    return encoded(checked(host.readlink(file), 'readlink', file), settings(options));
  },
  realpath(file, options) {
    const text = pathText(file);
    return encoded(realPath(text, path.resolve(text), 0), settings(options));
  },
  truncate(file, length = 0) {
    if (typeof file === 'number') {
      sync.ftruncate(file, length);
      return;
    }
    file = pathText(file);
    const fd = checked(host.open(file, 2), 'open', file);
    try {
      checked(host.truncate(fd, Math.max(0, length)), 'ftruncate');
    } finally {
      host.close(fd);
    }
  },
  ftruncate(fd, length = 0) {
    checked(host.truncate(descriptor(fd), Math.max(0, length)), 'ftruncate');
  },
  fsync(fd) {
    checked(host.sync(descriptor(fd)), 'fsync');
  },
  fdatasync(fd) {
    checked(host.sync(descriptor(fd)), 'fdatasync');
  },
  utimes(file, atime, mtime) {
    file = pathText(file);
    checked(host.utimes(file, seconds(atime, 'atime'), seconds(mtime, 'mtime'), true), 'utime', file);
  },
  lutimes(file, atime, mtime) {
    file = pathText(file);
    checked(host.utimes(file, seconds(atime, 'atime'), seconds(mtime, 'mtime'), false), 'lutime', file);
  },
  futimes(fd, atime, mtime) {
    checked(host.utimes(descriptor(fd), seconds(atime, 'atime'), seconds(mtime, 'mtime'), true), 'futime');
  },
  // Nothing here has permissions or owners. Asking for what cannot be done fails; a missing file is told first.
  chmod(file) {
    file = pathText(file);
    checked(host.stat(file, true), 'chmod', file);
    throw systemError(52, 'chmod', file);
  },
  chown(file) {
    file = pathText(file);
    checked(host.stat(file, true), 'chown', file);
    throw systemError(52, 'chown', file);
  },
  opendir(folder) {
    return new Dir(pathText(folder));
  },
};

function seconds(value, name) {
  if (types.isDate(value)) return value.getTime() / 1000;
  const number = Number(value);
  if (!Number.isFinite(number)) throw argumentType(name, ['number', 'string', 'Date'], value);
  return number;
}

function statOf(file, options, follow, syscall) {
  file = pathText(file);
  const facts = host.stat(file, follow);
  if (options?.throwIfNoEntry === false && (facts === -44 || facts === -54)) return undefined;
  return new Stats(checked(facts, syscall, file), options?.bigint);
}

function readPath(file, options) {
  if (flagBits(options.flag) !== 0) {
    const fd = checked(host.open(file, flagBits(options.flag)), 'open', file);
    try {
      return checked(host.readAll(fd), 'read');
    } finally {
      host.close(fd);
    }
  }
  const data = host.readAll(file);
  if (typeof data !== 'number') return data;
  // Opening a folder works, reading it does not.
  if (data === -31 || data === -8 || data === -28) throw systemError(31, 'read');
  throw systemError(-data, 'open', file);
}

function writeFully(fd, view, position) {
  let done = 0;
  while (done < view.length) {
    const count = checked(host.write(fd, view, done, view.length - done, position < 0 ? -1 : position + done), 'write');
    // A pipe that is full for the moment.
    if (count === 0) host.wait(1, -1);
    done += count;
  }
  return view.length;
}

const LINKS = 40;

function realPath(given, full, followed) {
  let at = '/';
  const parts = full.split('/').filter(Boolean);
  for (const [i, part] of parts.entries()) {
    const next = at === '/' ? `/${part}` : `${at}/${part}`;
    const facts = host.stat(next, false);
    // Folders above those that the host gave can't be looked at; they are no links.
    if (typeof facts === 'number') {
      if (i === parts.length - 1 || (facts !== -44 && facts !== -76 && facts !== -63)) throw systemError(-facts, 'lstat', next);
    } else if ((facts[0] & KIND) === constants.S_IFLNK) {
      if (followed >= LINKS) throw systemError(32, 'stat', given);
      const target = checked(host.readlink(next), 'readlink', next);
      return realPath(given, path.resolve(at, target, ...parts.slice(i + 1)), followed + 1);
    }
    at = next;
  }
  if (parts.length > 0) checked(host.stat(at, true), 'lstat', at);
  return at;
}

class Dir {
  #list;
  #at = 0;
  constructor(folder) {
    this.path = folder;
    try {
      this.#list = sync.readdir(folder, { withFileTypes: true });
    } catch (error) {
      throw error.errno === undefined ? error : systemError(Number(Object.keys(table).find((number) => table[number][0] === error.code)), 'opendir', folder);
    }
  }
  readSync() { return this.#list[this.#at++] ?? null; }
  read(callback) {
    if (callback) return later(() => this.readSync(), callback);
    return promised(() => this.readSync());
  }
  closeSync() {}
  close(callback) {
    if (callback) return later(() => {}, callback);
    return Promise.resolve();
  }
  async* entries() { for (let one = this.readSync(); one !== null; one = this.readSync()) yield one; }
  [Symbol.asyncIterator]() { return this.entries(); }
}

// ---- the three forms ----------------------------------------------------------------------------------------

function later(action, callback) {
  loop.operation(() => {
    let result;
    try {
      result = action();
    } catch (error) {
      callback(error);
      return;
    }
    if (result === undefined) callback(null);
    else callback(null, result);
  });
}

function promised(action, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => reject(need('event_target').abortError(signal.reason));
    if (signal?.aborted) {
      abort();
      return;
    }
    loop.operation(() => {
      if (signal?.aborted) {
        abort();
        return;
      }
      try {
        resolve(action());
      } catch (error) {
        // Promises of node have no frames of the caller, but ours have the ones of the loop, which help nobody.
        reject(error);
      }
    });
  });
}

// Wrong arguments are told at once, as node does: what each call checks before it asks the system.
function checkEarly(name, values) {
  if (['exists', 'close', 'read', 'write', 'readv', 'writev', 'fstat', 'ftruncate', 'fsync', 'fdatasync', 'futimes'].includes(name)) return;
  if (typeof values[0] !== 'number') pathText(values[0], name === 'mkdtemp' ? 'prefix' : name === 'rename' ? 'oldPath' : 'path');
}

const fs = { constants, Stats, Dirent, Dir };
const names = Object.keys(sync);
for (const name of names) {
  fs[`${name}Sync`] = Object.defineProperty(sync[name], 'name', { value: `${name}Sync` });
  fs[name] = Object.defineProperty(function (...values) {
    const callback = checkFunction(typeof values.at(-1) === 'function' ? values.pop() : undefined, 'cb');
    checkEarly(name, values);
    if (name === 'exists') loop.operation(() => callback(sync.exists(...values)));
    else if (name === 'read' || name === 'write' || name === 'readv' || name === 'writev') {
      loop.operation(() => {
        let count;
        try {
          count = sync[name](...values);
        } catch (error) {
          callback(error);
          return;
        }
        callback(null, count, values[1]);
      });
    } else later(() => sync[name](...values), callback);
  }, 'name', { value: name });
}
for (const [name, result] of [['read', ['bytesRead', 'buffer']], ['write', ['bytesWritten', 'buffer']]]) fs[name][Symbol.for('skillcell.callback.names')] = result;
fs.exists[Symbol.for('nodejs.util.promisify.custom')] = (file) => Promise.resolve(sync.exists(file));
fs.realpathSync.native = fs.realpathSync;
fs.realpath.native = fs.realpath;
fs.lchown = fs.fchown = fs.chown;
fs.lchownSync = fs.fchownSync = fs.chownSync;
fs.lchmod = fs.fchmod = fs.chmod;
fs.lchmodSync = fs.fchmodSync = fs.chmodSync;
for (const constant of ['F_OK', 'R_OK', 'W_OK', 'X_OK']) fs[constant] = constants[constant];
const noWatch = () => { throw need('errors').absent('watching files', 'look at fs.stat again later'); };
Object.assign(fs, { watch: noWatch, watchFile: noWatch, unwatchFile() {} });

class FileHandle extends need('events') {
  #fd;
  constructor(fd) {
    super();
    this.#fd = fd;
  }
  get fd() { return this.#fd; }
  #do(name, ...values) {
    return promised(() => {
      if (this.#fd < 0) throw systemError(8, name);
      return sync[name](this.#fd, ...values);
    });
  }
  async close() {
    const fd = this.#fd;
    this.#fd = -1;
    if (fd >= 0) await promised(() => sync.close(fd));
    this.emit('close');
  }
  async read(buffer, ...rest) {
    if (buffer === undefined || (typeof buffer === 'object' && !ArrayBuffer.isView(buffer))) {
      rest = [buffer?.offset, buffer?.length, buffer?.position];
      buffer = buffer?.buffer ?? Buffer.alloc(16384);
    }
    return { bytesRead: await this.#do('read', buffer, ...rest), buffer };
  }
  async write(buffer, ...rest) { return { bytesWritten: await this.#do('write', buffer, ...rest), buffer }; }
  async readv(buffers, position) { return { bytesRead: await this.#do('readv', buffers, position), buffers }; }
  async writev(buffers, position) { return { bytesWritten: await this.#do('writev', buffers, position), buffers }; }
  readFile(options) { return this.#do('readFile', options); }
  writeFile(data, options) { return this.#do('writeFile', data, options); }
  appendFile(data, options) { return this.#do('writeFile', data, options); }
  stat(options) { return this.#do('fstat', options); }
  truncate(length) { return this.#do('ftruncate', length); }
  sync() { return this.#do('fsync'); }
  datasync() { return this.#do('fdatasync'); }
  utimes(atime, mtime) { return this.#do('futimes', atime, mtime); }
  createReadStream(options) { return new ReadStream(null, { ...options, fd: this.#fd, autoClose: false }); }
  createWriteStream(options) { return new WriteStream(null, { ...options, fd: this.#fd, autoClose: false }); }
  async* readLines(options) { yield* need('readline').createInterface({ input: this.createReadStream(options), crlfDelay: Infinity }); }
  [Symbol.asyncDispose]() { return this.close(); }
}

const promises = { constants };
for (const name of names) {
  if (['exists', 'close', 'read', 'write', 'readv', 'writev', 'fstat', 'ftruncate', 'fsync', 'fdatasync', 'futimes'].includes(name)) continue;
  promises[name] = Object.defineProperty(async function (...values) {
    const options = values.at(-1);
    if (values[0] instanceof FileHandle) return values[0][name](...values.slice(1));
    checkEarly(name, values);
    if (name === 'writeFile' && typeof values[1] === 'object' && values[1] !== null && !ArrayBuffer.isView(values[1])) values[1] = await gather(values[1]);
    const result = await promised(() => sync[name](...values), options?.signal);
    return name === 'open' ? new FileHandle(result) : result;
  }, 'name', { value: name });
}
Object.assign(promises, { lchown: promises.chown, watch: noWatch });
fs.promises = promises;

async function gather(source) {
  if (!source[Symbol.asyncIterator] && !source[Symbol.iterator]) throw argumentType('data', ['string', 'Buffer', 'TypedArray', 'DataView'], source);
  const parts = [];
  for await (const part of source) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

// ---- streams ------------------------------------------------------------------------------------------------

const { Readable, Writable } = need('stream');

class ReadStream extends Readable {
  constructor(file, options) {
    options = settings(options, {});
    const position = { at: options.start, end: options.end ?? Infinity };
    super({ highWaterMark: 65536, ...options, encoding: options.encoding === 'buffer' ? undefined : options.encoding, autoDestroy: options.autoClose !== false });
    this.path = file === null ? undefined : pathText(file);
    this.fd = options.fd === undefined || options.fd === null ? null : options.fd instanceof FileHandle ? options.fd.fd : options.fd;
    this.flags = options.flags ?? 'r';
    this.bytesRead = 0;
    Object.defineProperty(this, 'position', { value: position, enumerable: false });
    Object.defineProperty(this, 'closes', { value: options.autoClose !== false, enumerable: false });
    if (this.fd === null) {
      loop.operation(() => {
        if (this.destroyed) return;
        try {
          this.fd = sync.open(this.path, this.flags);
        } catch (error) {
          this.destroy(error);
          return;
        }
        this.emit('open', this.fd);
        this.emit('ready');
        if (this._r.reading) this._read(this._r.mark);
      });
    }
  }
  _read(size) {
    if (this.fd === null) return;
    loop.operation(() => {
      if (this.destroyed || this.fd === null) return;
      const { position } = this;
      const left = position.end === Infinity ? size : Math.min(size, position.end - (position.at ?? 0) + 1 - (position.at === undefined ? this.bytesRead : 0));
      if (left <= 0) {
        this.push(null);
        return;
      }
      try {
        const buffer = Buffer.alloc(left);
        const count = sync.read(this.fd, buffer, 0, left, position.at ?? null);
        if (position.at !== undefined) position.at += count;
        this.bytesRead += count;
        this.push(count === 0 ? null : buffer.subarray(0, count));
      } catch (error) {
        this.destroy(error);
      }
    });
  }
  _destroy(error, callback) {
    if (this.fd !== null && this.closes) host.close(this.fd);
    this.fd = null;
    callback(error);
  }
  get pending() { return this.fd === null; }
  close(callback) {
    if (callback) this.once('close', callback);
    this.destroy();
  }
}

class WriteStream extends Writable {
  constructor(file, options) {
    options = settings(options, {});
    super({ ...options, autoDestroy: options.autoClose !== false });
    this.path = file === null ? undefined : pathText(file);
    this.fd = options.fd === undefined || options.fd === null ? null : options.fd instanceof FileHandle ? options.fd.fd : options.fd;
    this.flags = options.flags ?? (options.start !== undefined ? 'r+' : 'w');
    this.bytesWritten = 0;
    Object.defineProperty(this, 'at', { value: options.start, writable: true, enumerable: false });
    Object.defineProperty(this, 'closes', { value: options.autoClose !== false, enumerable: false });
    if (this.fd === null) {
      loop.operation(() => {
        if (this.destroyed) return;
        try {
          this.fd = sync.open(this.path, this.flags);
        } catch (error) {
          this.destroy(error);
          return;
        }
        this.emit('open', this.fd);
        this.emit('ready');
      });
    }
  }
  _write(chunk, encoding, callback) {
    loop.operation(() => {
      if (this.fd === null) {
        if (!this.destroyed) this._write(chunk, encoding, callback);
        return;
      }
      try {
        const view = bytes(chunk, encoding);
        writeFully(this.fd, view, this.at ?? -1);
        if (this.at !== undefined) this.at += view.length;
        this.bytesWritten += view.length;
      } catch (error) {
        callback(error);
        return;
      }
      callback();
    });
  }
  _final(callback) {
    if (this.fd !== null) callback();
    else loop.operation(() => this._final(callback));
  }
  _destroy(error, callback) {
    if (this.fd !== null && this.closes) host.close(this.fd);
    this.fd = null;
    callback(error);
  }
  get pending() { return this.fd === null; }
  close(callback) {
    if (callback) this.once('close', callback);
    this.end();
  }
}
Object.assign(fs, {
  ReadStream, WriteStream, FileReadStream: ReadStream, FileWriteStream: WriteStream,
  createReadStream: (file, options) => new ReadStream(file, options),
  createWriteStream: (file, options) => new WriteStream(file, options),
  writeFully,
});
Object.defineProperty(fs, 'writeFully', { enumerable: false });
return fs;

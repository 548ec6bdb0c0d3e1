// path: POSIX rules only. `path.win32` is there for scripts that look at it, and is the same.
const { checkString, argumentType } = need('errors');

// Resolves "." and "..". `rooted` paths have nothing above their root.
function tidy(path, rooted) {
  const out = [];
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') out.push(part);
    else if (out.length > 0 && out.at(-1) !== '..') out.pop();
    else if (!rooted) out.push('..');
  }
  return out.join('/');
}

const posix = {
  sep: '/',
  delimiter: ':',
  resolve(...parts) {
    let path = '';
    for (let i = parts.length - 1; i >= -1 && !path.startsWith('/'); i--) {
      const part = i >= 0 ? checkString(parts[i], `paths[${i}]`) : need('process').cwd();
      if (part !== '') path = path === '' ? part : `${part}/${path}`;
    }
    return `/${tidy(path, true)}`;
  },
  normalize(path) {
    checkString(path, 'path');
    if (path === '') return '.';
    const rooted = path.startsWith('/');
    let out = tidy(path, rooted);
    if (out === '' && !rooted) out = '.';
    if (out !== '' && path.endsWith('/')) out += '/';
    return rooted ? `/${out}` : out;
  },
  isAbsolute: (path) => checkString(path, 'path').startsWith('/'),
  join(...parts) {
    const path = parts.map((part) => checkString(part, 'path')).filter((part) => part !== '').join('/');
    return path === '' ? '.' : posix.normalize(path);
  },
  relative(from, to) {
    checkString(from, 'from');
    checkString(to, 'to');
    const one = posix.resolve(from).split('/').filter(Boolean);
    const two = posix.resolve(to).split('/').filter(Boolean);
    let shared = 0;
    while (shared < one.length && shared < two.length && one[shared] === two[shared]) shared++;
    return [...one.slice(shared).map(() => '..'), ...two.slice(shared)].join('/');
  },
  toNamespacedPath: (path) => path,
  dirname(path) {
    checkString(path, 'path');
    const bare = path.replace(/(?<=.)\/+$/, '');
    const at = bare.lastIndexOf('/');
    if (at === -1) return path.startsWith('/') ? '/' : '.';
    if (at === 0) return bare.startsWith('//') ? '//' : '/';
    return bare.slice(0, at);
  },
  basename(path, suffix) {
    checkString(path, 'path');
    if (suffix !== undefined) checkString(suffix, 'suffix');
    const bare = path.replace(/\/+$/, '');
    const base = bare.slice(bare.lastIndexOf('/') + 1);
    return suffix && base !== suffix && base.endsWith(suffix) ? base.slice(0, -suffix.length) : base;
  },
  extname(path) {
    const base = posix.basename(path);
    const at = base.lastIndexOf('.');
    return at <= 0 || base === '..' ? '' : base.slice(at);
  },
  format(parts) {
    if (parts === null || typeof parts !== 'object') throw argumentType('pathObject', 'Object', parts);
    const dir = parts.dir || parts.root;
    const ext = parts.ext && !parts.ext.startsWith('.') ? `.${parts.ext}` : parts.ext ?? '';
    const base = parts.base || `${parts.name ?? ''}${ext}`;
    if (!dir) return base;
    return dir === parts.root ? `${dir}${base}` : `${dir}/${base}`;
  },
  parse(path) {
    checkString(path, 'path');
    const root = path.startsWith('/') ? '/' : '';
    const base = posix.basename(path);
    const ext = posix.extname(path);
    const bare = path.replace(/(?<=.)\/+$/, '');
    const at = bare.lastIndexOf('/');
    const dir = at > 0 ? bare.slice(0, at) : root;
    return { root, dir, base, ext, name: ext ? base.slice(0, -ext.length) : base };
  },
};
posix.posix = posix;
posix.win32 = posix;
return posix;

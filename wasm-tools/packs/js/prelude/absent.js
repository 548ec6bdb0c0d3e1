// Modules that a sandbox without network, processes and threads cannot have. They can be imported, since many packages
// do so without need; using one of their functions says what is missing and what to do instead.
const { absent } = need('errors');

const processes = 'one run is one process; ask for the other program as a step of its own';
const network = 'this runtime gives no sockets; let the host fetch the data, or pass it as an input file';
const threads = 'do the work in this thread';

const list = {
  child_process: [processes, 'spawn spawnSync exec execSync execFile execFileSync fork'],
  cluster: [processes, 'fork setupPrimary'],
  net: [network, 'connect createConnection createServer Socket Server'],
  tls: [network, 'connect createServer createSecureContext TLSSocket'],
  dgram: [network, 'createSocket Socket'],
  dns: [network, 'lookup resolve resolve4 resolve6 reverse Resolver'],
  'dns/promises': [network, 'lookup resolve resolve4 resolve6 reverse Resolver'],
  http: [network, 'request get createServer Agent'],
  https: [network, 'request get createServer Agent'],
  http2: [network, 'connect createServer createSecureServer'],
  worker_threads: [threads, 'Worker MessageChannel BroadcastChannel'],
  inspector: ['debug with console.log', 'open close url Session'],
  repl: ['give the script as a file or with -e', 'start'],
  vm: ['use new Function', 'createContext Script SourceTextModule'],
  v8: ['the engine is QuickJS', 'getHeapSnapshot writeHeapSnapshot setFlagsFromString'],
  wasi: ['this already is WASI', 'WASI'],
  test: ['use node:assert, and exit with a code other than 0', 'test describe it'],
};

const modules = {};
for (const [name, [instead, functions]] of Object.entries(list)) {
  const module = {};
  for (const key of functions.split(' ')) {
    module[key] = { [key]: function () { throw absent(`${name}.${key}`, instead); } }[key];
  }
  modules[name] = module;
}
const statuses = {
  200: 'OK', 201: 'Created', 202: 'Accepted', 204: 'No Content', 301: 'Moved Permanently', 302: 'Found', 304: 'Not Modified', 400: 'Bad Request', 401: 'Unauthorized',
  403: 'Forbidden', 404: 'Not Found', 405: 'Method Not Allowed', 409: 'Conflict', 410: 'Gone', 418: "I'm a Teapot", 422: 'Unprocessable Entity', 429: 'Too Many Requests',
  500: 'Internal Server Error', 501: 'Not Implemented', 502: 'Bad Gateway', 503: 'Service Unavailable', 504: 'Gateway Timeout',
};
Object.assign(modules.http, { STATUS_CODES: statuses, METHODS: ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT'], globalAgent: {} });
Object.assign(modules.https, { globalAgent: {} });
Object.assign(modules.net, { isIP: (text) => (/^\d{1,3}(\.\d{1,3}){3}$/.test(text) && text.split('.').every((part) => Number(part) < 256) ? 4 : URL.canParse(`http://[${text}]`) ? 6 : 0) });
Object.assign(modules.net, { isIPv4: (text) => modules.net.isIP(text) === 4, isIPv6: (text) => modules.net.isIP(text) === 6 });
Object.assign(modules.worker_threads, { isMainThread: true, threadId: 0, parentPort: null, workerData: null });
Object.assign(modules.cluster, { isPrimary: true, isMaster: true, isWorker: false });
Object.assign(modules.vm, {
  runInThisContext: (source, options) => host.evaluate(String(source), typeof options === 'string' ? options : options?.filename ?? 'evalmachine.<anonymous>'),
  runInNewContext: modules.vm.createContext, isContext: () => false,
});
Object.assign(modules.v8, { serialize: undefined, getHeapStatistics: () => ({ total_heap_size: host.memory()[1], used_heap_size: host.memory()[2] }) });
delete modules.v8.serialize;

async function fetch() {
  throw absent('fetch', network);
}

return { modules, fetch };

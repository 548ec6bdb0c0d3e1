// os: what a sandbox can say of itself, and nothing of the machine below.
const process = need('process');
const { systemError } = need('errors');

const home = () => process.env.HOME ?? '/';
const os = {
  EOL: '\n', devNull: '/dev/null',
  arch: () => process.arch, platform: () => process.platform, type: () => 'WASI', release: () => 'preview1', version: () => 'wasi_snapshot_preview1', machine: () => 'wasm32',
  endianness: () => 'LE', hostname: () => process.env.HOSTNAME ?? 'sandbox', homedir: home,
  tmpdir: () => (process.env.TMPDIR || process.env.TMP || process.env.TEMP || (need('fs').existsSync('/workspace/tmp') ? '/workspace/tmp' : '/tmp')).replace(/(?<=.)\/$/, ''),
  uptime: () => process.uptime(), loadavg: () => [0, 0, 0], totalmem: () => 2 ** 32, freemem: () => 2 ** 32 - host.memory()[0],
  // One thread is all there is.
  cpus: () => [{ model: 'wasm32', speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } }], availableParallelism: () => 1, networkInterfaces: () => ({}),
  userInfo: () => ({ uid: 0, gid: 0, username: process.env.USER ?? 'sandbox', homedir: home(), shell: null }),
  getPriority: () => 0, setPriority: () => { throw systemError(52, 'uv_os_setpriority'); },
  constants: { signals: { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 }, errno: Object.fromEntries(Object.values(need('errors').table).map(([code, number]) => [code, number])), priority: {} },
};
return os;

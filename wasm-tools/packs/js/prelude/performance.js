// performance: times since the run began, never since the snapshot was made.
let start = 0;
let origin = 0;
const entries = [];

const performance = {
  now: () => host.milliseconds() - start,
  get timeOrigin() { return origin; },
  mark(name, { startTime = performance.now(), detail = null } = {}) {
    const entry = { name: String(name), entryType: 'mark', startTime, duration: 0, detail };
    entries.push(entry);
    return entry;
  },
  measure(name, from, to) {
    const time = (value, otherwise) => (typeof value === 'number' ? value : value === undefined ? otherwise : entries.findLast((entry) => entry.name === value && entry.entryType === 'mark')?.startTime ?? otherwise);
    const options = from !== null && typeof from === 'object' ? from : { start: from, end: to };
    const startTime = time(options.start, 0);
    const entry = { name: String(name), entryType: 'measure', startTime, duration: time(options.end, performance.now()) - startTime, detail: options.detail ?? null };
    entries.push(entry);
    return entry;
  },
  clearMarks: (name) => clear('mark', name),
  clearMeasures: (name) => clear('measure', name),
  getEntries: () => [...entries],
  getEntriesByName: (name, type) => entries.filter((entry) => entry.name === name && (type === undefined || entry.entryType === type)),
  getEntriesByType: (type) => entries.filter((entry) => entry.entryType === type),
  eventLoopUtilization: () => ({ idle: 0, active: 0, utilization: 0 }),
  timerify: (action) => action,
  toJSON: () => ({ timeOrigin: origin, nodeTiming: {} }),
};

function clear(type, name) {
  for (let i = entries.length - 1; i >= 0; i--) if (entries[i].entryType === type && (name === undefined || entries[i].name === name)) entries.splice(i, 1);
}

performance.begin = () => {
  start = host.milliseconds();
  origin = Date.now();
};
Object.defineProperty(performance, 'begin', { enumerable: false });
return performance;

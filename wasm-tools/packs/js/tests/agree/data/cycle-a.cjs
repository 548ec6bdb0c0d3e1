exports.done = false; const b = require('./cycle-b.cjs'); exports.done = [b.seen, true];

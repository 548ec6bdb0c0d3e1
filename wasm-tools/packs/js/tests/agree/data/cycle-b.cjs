exports.seen = require('./cycle-a.cjs').done;

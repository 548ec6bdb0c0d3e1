const fs = require('node:fs') as typeof import('node:fs');
const { value } = require('./other.cts') as { value: number };
const local: string = require('./plain').name;
console.log(typeof fs.readFileSync, value, local);

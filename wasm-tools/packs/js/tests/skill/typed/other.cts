module.exports = { value: 7 as number };

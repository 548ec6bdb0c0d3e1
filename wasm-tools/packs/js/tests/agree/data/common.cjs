globalThis.loads = (globalThis.loads || 0) + 1; exports.alpha = 1; exports.count = globalThis.loads;

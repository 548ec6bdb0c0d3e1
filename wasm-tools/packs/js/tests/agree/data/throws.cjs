try { require('./really-throws.cjs'); } catch (e) { exports.x = e.message; }

exports.sub = 'lib/index';

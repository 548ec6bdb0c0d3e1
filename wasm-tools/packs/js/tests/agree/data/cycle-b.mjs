import * as A from './cycle-a.mjs'; export const b = typeof A;

import { b } from './cycle-b.mjs'; export const a = 'a' + b;

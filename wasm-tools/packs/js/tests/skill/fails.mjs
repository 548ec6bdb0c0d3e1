import { broken } from './lib/broken.mjs';
await null;
broken();

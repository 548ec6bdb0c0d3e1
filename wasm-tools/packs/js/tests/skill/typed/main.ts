import { readFileSync } from 'node:fs';
import type { Row } from './lib/row.ts';
import { double, type Kind } from './lib/util';
import { third } from './lib/third.js';
interface Options<T> { name: string; value?: T }
type Pair = [number, string];
declare const nothing: number;
const options: Options<number> = { name: 'a' } as Options<number>;
abstract class Base<T> { private readonly x: number = 1; abstract run(this: Base<T>): void; protected get y(): number { return this.x!; } }
class Child extends Base<string> implements Options<number> { name = 'c'; declare z: string; override run(): void { console.log('child', this.y); } }
function f<T extends object>(x: T, y?: number, ...rest: string[]): x is T { return true; }
const g = async <T,>(a: T): Promise<T> => a;
const pair: Pair = [double(2), options.name];
const checked = { a: 1 } satisfies Record<string, number>;
new Child().run();
console.log(pair, f({}), checked, third, await g(3));
let kind: Kind = "x" as any;
const row: Row = { id: 1 };
console.log(row!.id, kind);
throw new Error('line 20' as string);

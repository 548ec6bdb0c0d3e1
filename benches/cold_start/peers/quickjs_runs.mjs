// Runs a script with quickjs-emscripten: `quickjs_runs.mjs PACKAGES SCRIPT [ROUNDS [LIMIT_MS]]`; with ROUNDS, prints
// what each call took. Each call is a new runtime and context with limits on. It has no files and no modules.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const [packages, script, rounds = '0', limit = '120000'] = process.argv.slice(2);
const { getQuickJS, shouldInterruptAfterDeadline } = createRequire(`${packages}/`)('quickjs-emscripten');
const code = readFileSync(script, 'utf8');
const engine = await getQuickJS();

function call(write) {
  const runtime = engine.newRuntime();
  runtime.setMemoryLimit(512 * 1024 * 1024);
  runtime.setInterruptHandler(shouldInterruptAfterDeadline(Date.now() + Number(limit)));
  const context = runtime.newContext();
  const log = context.newFunction('log', (text) => { write(context.dump(text)); });
  const console = context.newObject();
  context.setProp(console, 'log', log);
  context.setProp(context.global, 'console', console);
  const result = context.evalCode(code);
  (result.error ?? result.value).dispose();
  for (const one of [log, console, context, runtime]) one.dispose();
}

if (rounds === '0') call((text) => process.stdout.write(`${text}\n`));
for (let round = 0; round < Math.min(rounds, 10); round++) call(() => {});
for (let round = 0; round < rounds; round++) {
  const used = process.cpuUsage();
  const start = process.hrtime.bigint();
  call(() => {});
  const wall = process.hrtime.bigint() - start;
  const { user, system } = process.cpuUsage(used);
  process.stdout.write(`${wall} ${(user + system) * 1000}\n`);
}

// Runs one program again and again in the sandbox of @anthropic-ai/sandbox-runtime, used as a library: for each line on
// stdin it prints the nanoseconds that one call took. `benches/backends` starts it; `benches/with-srt` installs what it
// needs.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { SandboxManager } from '@anthropic-ai/sandbox-runtime'

const program = process.argv[2]
const nothing = {
  network: { allowedDomains: [], deniedDomains: [] },
  filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
}

function run(command) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, { shell: true, stdio: ['ignore', 'pipe', 'pipe'] })
    let complaint = ''
    child.stderr.on('data', data => (complaint += data))
    child.stdout.resume()
    child.on('error', reject)
    child.on('close', code => (code === 0 ? resolve() : reject(new Error(`exit code ${code}: ${complaint}`))))
  })
}

await SandboxManager.initialize(nothing)
for await (const _ of createInterface({ input: process.stdin })) {
  const start = process.hrtime.bigint()
  await run(await SandboxManager.wrapWithSandbox(program))
  console.log(String(process.hrtime.bigint() - start))
}
await SandboxManager.reset()
process.exit(0)

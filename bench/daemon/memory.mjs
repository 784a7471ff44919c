// What a daemon holds after each round of mixed jobs, when all garbage is collected: objects, heap, resident memory.
//   node bench/daemon/memory.mjs [rounds] [jobs a round] > bench/results/daemon-memory.json
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { home, machine, openStore, options, ROOT, sleep, submitJob, tidy } from './common.mjs';

const ROUNDS = Number(process.argv[2] ?? 6);
const JOBS = Number(process.argv[3] ?? 300);
const KINDS = [
  'exit 0',
  'exit 0',
  'sleep 0.2',
  'seq 2000',
  'exit 3',
  'kill -SEGV $$',
  "exec /usr/bin/python3 -c 'b = [bytearray(1 << 20) for _ in range(100)]'",
];

const file = join(home, 'memory');
const lines = () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []);
const store = await openStore({ onOutage: () => {} });
const daemon = spawn(process.execPath, [join(ROOT, 'bench/daemon/watched.mjs'), file], {
  stdio: ['ignore', 'ignore', 'inherit'],
  env: { ...process.env, OOMTUNE_BENCH_HOME: home },
});
const rounds = [];
for (let round = 0; round <= ROUNDS; round += 1) {
  for (let n = 0; n < JOBS; n += 1) {
    const command = ['/bin/sh', '-c', KINDS[n % KINDS.length]];
    await submitJob(store, { command, options: options(), environment: process.env });
  }
  while ((await store.jobs.counts()).live > 0) await sleep(100);
  await sleep(1000);
  const known = lines().length;
  daemon.kill('SIGUSR2');
  while (lines().length === known) await sleep(50);
  const mib = (bytes) => Math.round((bytes / 1024 ** 2) * 10) / 10;
  const { objects, heap_used, rss_before, rss } = JSON.parse(lines().at(-1));
  const held = {
    jobs: (round + 1) * JOBS,
    objects,
    heap_mib: mib(heap_used),
    rss_mib: mib(rss_before),
    rss_collected_mib: mib(rss),
  };
  rounds.push(held);
  process.stderr.write(`${JSON.stringify(held)}\n`);
}
const [first, last] = [rounds[0], rounds.at(-1)];
const result = {
  command: `node bench/daemon/memory.mjs ${ROUNDS} ${JOBS}`,
  ...machine(),
  rounds,
  objects_a_job: Math.round(((last.objects - first.objects) / (last.jobs - first.jobs)) * 1000) / 1000,
};
process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
daemon.kill('SIGTERM');
await new Promise((resolve) => daemon.once('exit', resolve));
await tidy(store);
process.exit(0);

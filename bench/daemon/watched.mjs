// A daemon as `oomtune daemon run` has it, which says on SIGUSR2 what it holds when all garbage is collected.
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { queryObjects, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ROOT } from './common.mjs';

const { runDaemon } = await import(join(ROOT, 'dist/daemon/index.js'));
const { openStore } = await import(join(ROOT, 'dist/store/index.js'));
const controller = new AbortController();
process.on('SIGTERM', () => controller.abort());
process.on('SIGUSR2', async () => {
  const before = process.memoryUsage();
  const objects = queryObjects(Object, { format: 'count' });
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  for (let n = 0; n < 4; n += 1) {
    collect();
    await delay(50); // finalizers run in between
  }
  const { heapUsed, rss } = process.memoryUsage();
  const said = { objects, heap_used: heapUsed, rss_before: before.rss, rss };
  appendFileSync(process.argv[2], `${JSON.stringify(said)}\n`);
});
const store = await openStore({ onOutage: () => {} });
try {
  await runDaemon(store, { signal: controller.signal, cpuLanes: 4 });
} finally {
  await store.close();
}
process.exit();

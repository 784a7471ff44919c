// Random faults against many short jobs; what is left at the end is counted. Needs root, for a disk that can be filled.
//   node bench/chaos/chaos.mjs [jobs] [seed] > bench/results/chaos.json
// The run is a process of its own: whatever ends it, a signal that nobody can catch included, is told here.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const jobs = Number(process.argv[2] ?? 1000);
const seed = Number(process.argv[3] ?? Date.now() % 1e9);
/** Seconds that a run may take: a fault every few seconds, and each of them bounded. */
const LIMIT = 600 + 4 * jobs;

const say = (text) => process.stderr.write(`${text}\n`);
const run = spawn(process.execPath, [fileURLToPath(new URL('run.mjs', import.meta.url)), `${jobs}`, `${seed}`], {
  // A session of its own: a signal to this group is told here, too. It ends when we do: its channel closes.
  detached: true,
  stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
});
let text = '';
run.stdout.setEncoding('utf8').on('data', (some) => {
  text += some;
});
let ended = null;
const end = (why) => {
  ended ??= why;
  run.kill('SIGKILL');
};
const late = setTimeout(() => end(`it took longer than ${LIMIT} s`), LIMIT * 1000);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => end(`we were told to end: ${signal}`));

run.once('close', (code, signal) => {
  clearTimeout(late);
  process.stdout.write(text);
  if (text === '' || ended !== null || signal !== null) {
    const how = ended ?? (signal === null ? `it ended with ${code}` : `it was ended by ${signal}`);
    say(`seed ${seed}: no result: ${how}. Its files and its daemon are left as they were.`);
    process.exit(2);
  }
  process.exit(code);
});

// How fast diagnose reads a log of 100 MiB, in MB of log for each second of processor time and of wall time, and how
// much memory it takes. Run: node bench/diagnose/throughput.mjs   (after npm run build:ts)
import { execFileSync } from 'node:child_process';
import { createReadStream, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { diagnose } from '../../dist/worker/diagnosis/index.js';

const SIZE = 100 * 1024 * 1024;
const ROUNDS = 5;
let seed = 1;
/** The same logs at every run. */
function random() {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
}

const OOM =
  'CUDA out of memory. Tried to allocate 392.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 61.19 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the allocated memory 22.90 GiB is allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated.';
const END = `Traceback (most recent call last):\n  File "train.py", line 88, in train\n    loss.backward()\ntorch.OutOfMemoryError: ${OOM}\n`;

const LOGS = {
  'progress lines, ends in an OOM': (i) =>
    `2026-05-01 12:00:${10 + (i % 50)},123 - INFO - step ${i} | loss ${random().toFixed(4)} | lr 1.0e-04 | grad_norm ${random().toFixed(3)} | 512.3 samples/s | mem 14.2GB\n`,
  'a progress bar without line feeds': (i) =>
    `\r 45%|████▌     | ${i}/100000 [00:10<00:30,  5.43it/s, loss=${random().toFixed(3)}]`,
  'warnings and metrics named error': (i) =>
    i % 2
      ? `WARNING: sample ${i} has an unexpected length, truncating to 512\n`
      : `val_error: ${random().toFixed(4)} | mean squared error ${random().toFixed(4)}\n`,
  'a skipped OOM in every tenth line': (i) =>
    i % 10
      ? `step ${i} loss ${random().toFixed(4)} lr 1.0e-04 samples/s 512.3\n`
      : `| WARNING: ran out of memory, skipping batch: ${OOM}\n`,
  'nothing but tracebacks': (i) =>
    `Traceback (most recent call last):\n  File "data.py", line 3, in load\n    decode(row)\nValueError: bad row ${i}\n`,
  'one line of 100 MiB': () => 'x'.repeat(4096),
};

function write(path, line) {
  const parts = [];
  let size = 0;
  for (let i = 0; size < SIZE - END.length - 1; i++) {
    const text = line(i);
    parts.push(text);
    size += Buffer.byteLength(text);
  }
  writeFileSync(path, `${parts.join('')}\n${END}`);
}

/** Reads one log in this process, which does nothing else, and prints what that took. */
async function read(path) {
  await diagnose({ log: [] });
  const before = process.resourceUsage().maxRSS;
  const megabytes = statSync(path).size / 1e6;
  const processor = process.cpuUsage();
  const wall = performance.now();
  const { class: verdict } = await diagnose({ log: createReadStream(path, { highWaterMark: 1 << 20 }), exitCode: 1 });
  const { user, system } = process.cpuUsage(processor);
  const seconds = (performance.now() - wall) / 1e3;
  const grown = ((process.resourceUsage().maxRSS - before) * 1024) / 1e6;
  console.log(
    JSON.stringify({ processor: (megabytes * 1e6) / (user + system), wall: megabytes / seconds, grown, verdict }),
  );
}

function measure() {
  const folder = mkdtempSync(join(tmpdir(), 'diagnose-bench-'));
  console.log(`node ${process.version}, ${cpus()[0]?.model}, ${cpus().length} cores, median of ${ROUNDS} processes`);
  console.log('| log of 100 MiB | MB/s (processor) | MB/s (wall) | memory grown at most, MB | verdict |');
  console.log('|---|---|---|---|---|');
  try {
    for (const [name, line] of Object.entries(LOGS)) {
      const path = join(folder, 'log');
      write(path, line);
      const rounds = Array.from({ length: ROUNDS }, () =>
        JSON.parse(
          execFileSync(process.execPath, [fileURLToPath(import.meta.url), '--read', path], { encoding: 'utf8' }),
        ),
      );
      const median = (key) =>
        rounds
          .map((r) => r[key])
          .sort((a, b) => a - b)
          [Math.floor(ROUNDS / 2)].toFixed(0);
      console.log(
        `| ${name} | ${median('processor')} | ${median('wall')} | ${median('grown')} | ${rounds[0].verdict} |`,
      );
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (process.argv[2] === '--read') await read(process.argv[3]);
else measure();

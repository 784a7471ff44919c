import { accessSync, constants, createReadStream, statSync } from 'node:fs';
import { constants as os } from 'node:os';
import { usageError } from '../../common/errors.js';
import { plain } from '../../common/terminal.js';
import { coloured } from '../output.js';
import { readNumber, type Verb } from '../verb.js';

export default (async ({ args, options }, { out, signal }) => {
  const exitCode = readNumber('--exit-code', options.exitCode, {
    least: -255,
    most: 255,
    remedy: "It is what the shell's $? says.",
  });
  const ended = readSignal(options.signal);
  const file = args[0] ?? '-';
  if (file === '-' && process.stdin.isTTY) {
    throw usageError(
      'There is no log to read.',
      'Name a file, or pipe a log in: python train.py 2>&1 | oomtune diagnose',
    );
  }
  const stream = file === '-' ? process.stdin : createReadStream(checkLog(file), { highWaterMark: 1 << 20 });
  const stop = () => stream.destroy(signal.reason);
  signal.addEventListener('abort', stop, { once: true });
  const { diagnose, renderDiagnosis } = await import('../../worker/diagnosis/index.js');
  const diagnosis = await diagnose({ log: stream as AsyncIterable<Buffer>, exitCode, signal: ended });
  signal.removeEventListener('abort', stop);
  signal.throwIfAborted();
  if (out.json) out.document('diagnose', diagnosis);
  else
    out.data(
      renderDiagnosis(plain(diagnosis), { color: coloured(process.stdout), width: process.stdout.columns || 100 }),
    );
  return 0;
}) satisfies Verb;

function checkLog(file: string): string {
  let why: string | null = null;
  try {
    if (statSync(file).isDirectory()) why = 'is a folder';
    else accessSync(file, constants.R_OK);
  } catch (cause) {
    why = (cause as NodeJS.ErrnoException).code === 'ENOENT' ? 'does not exist' : 'cannot be read';
  }
  if (why === null) return file;
  throw usageError(`The log ${file} ${why}.`, 'Name a file that holds the output of the process, or - for stdin.');
}

/** `9`, `KILL` and `SIGKILL` are the same signal. */
function readSignal(value: unknown): string | null {
  if (value === undefined) return null;
  const text = String(value).toUpperCase();
  const name = /^\d+$/.test(text)
    ? Object.entries(os.signals).find(([, number]) => number === Number(text))?.[0]
    : text.startsWith('SIG')
      ? text
      : `SIG${text}`;
  if (name === undefined || !(name in os.signals))
    throw usageError(`There is no signal "${value}".`, 'Write 9, KILL or SIGKILL.');
  return name;
}

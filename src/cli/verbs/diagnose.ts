import { createReadStream } from 'node:fs';
import { constants } from 'node:os';
import { usageError } from '../errors.js';
import type { Verb } from '../program.js';

/** Logs can be huge; what tells why a process failed stands at its end, and often a first cause at its start. */
const HEAD_BYTES = 1024 * 1024;
const TAIL_BYTES = 4 * 1024 * 1024;

const diagnoseVerb: Verb = async ({ args, options }, { out, signal }) => {
  const exitCode = readExitCode(options.exitCode);
  const ended = readSignal(options.signal);
  const file = args[0] ?? '-';
  if (file === '-' && process.stdin.isTTY) {
    throw usageError(
      'There is no log to read.',
      'Name a file, or pipe a log in: python train.py 2>&1 | oomtune diagnose',
    );
  }
  const text = await readLog(file, signal);
  const { diagnose, renderDiagnosis } = await import('../../worker/diagnosis/index.js');
  const diagnosis = diagnose({ log: text, exitCode, signal: ended });
  if (out.json) out.document(diagnosis);
  else out.data(renderDiagnosis(diagnosis));
  return 0;
};

export default diagnoseVerb;

async function readLog(file: string, signal: AbortSignal): Promise<string> {
  const stream = file === '-' ? process.stdin : createReadStream(file);
  const head: Buffer[] = [];
  let headBytes = 0;
  let tail: Buffer[] = [];
  let tailBytes = 0;
  let dropped = false;
  const stop = () => stream.destroy();
  signal.addEventListener('abort', stop, { once: true });
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      if (headBytes < HEAD_BYTES) {
        head.push(chunk);
        headBytes += chunk.length;
        continue;
      }
      tail.push(chunk);
      tailBytes += chunk.length;
      if (tailBytes > 2 * TAIL_BYTES) {
        const kept = Buffer.concat(tail).subarray(-TAIL_BYTES);
        tail = [kept];
        tailBytes = kept.length;
        dropped = true;
      }
    }
  } catch (cause) {
    signal.throwIfAborted();
    const code = (cause as NodeJS.ErrnoException).code;
    const why = code === 'ENOENT' ? 'does not exist' : code === 'EISDIR' ? 'is a folder' : `cannot be read (${code})`;
    throw usageError(`The log ${file} ${why}.`, 'Name a file that holds the output of the process, or - for stdin.');
  } finally {
    signal.removeEventListener('abort', stop);
  }
  signal.throwIfAborted();
  return `${Buffer.concat(head).toString('utf8')}${dropped ? '\n' : ''}${Buffer.concat(tail).toString('utf8')}`;
}

function readExitCode(value: unknown): number | null {
  if (value === undefined) return null;
  const code = Number(value);
  if (!/^-?\d+$/.test(String(value)) || code < -255 || code > 255) {
    throw usageError(
      `Expected --exit-code to be a number from 0 to 255, got "${value}".`,
      "It is what the shell's $? says.",
    );
  }
  return code;
}

/** `9`, `KILL` and `SIGKILL` are the same signal. */
function readSignal(value: unknown): string | null {
  if (value === undefined) return null;
  const text = String(value).toUpperCase();
  const name = /^\d+$/.test(text)
    ? Object.entries(constants.signals).find(([, number]) => number === Number(text))?.[0]
    : text.startsWith('SIG')
      ? text
      : `SIG${text}`;
  if (name === undefined || !(name in constants.signals)) {
    throw usageError(`There is no signal "${value}".`, 'Write 9, KILL or SIGKILL.');
  }
  return name;
}

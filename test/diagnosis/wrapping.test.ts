import { describe, expect, it } from 'vitest';
import { CORPUS, expectedFields, judgeCase } from './corpus.js';

/** Logs that are plain text, one process, and so can be wrapped once more. */
const PLAIN = CORPUS.filter(({ name }) => !/^wrap-|ddp-|deepspeed|-c$|ok-empty|spawn/.test(name));

type Wrapping = (text: string) => string | Buffer;

function each(text: string, change: (line: string, index: number) => string): string {
  const lines = text.split('\n');
  const last = lines.pop();
  return lines.map(change).join('\n') + (lines.length > 0 ? '\n' : '') + (last ? change(last, lines.length) : '');
}

const WRAPPINGS: Record<string, Wrapping> = {
  'with CRLF': (text) => text.replaceAll('\n', '\r\n'),
  'in UTF-16': (text) => Buffer.from(`\ufeff${text}`, 'utf16le'),
  'with a rank': (text) => each(text, (line) => `[rank2]: ${line}`),
  "with torchrun's tee": (text) => each(text, (line) => `[default0]:${line}`),
  'with srun labels': (text) => each(text, (line) => `3: ${line}`),
  "with Ray's worker": (text) =>
    each(text, (line) => `\u001b[36m(RayTrainWorker pid=51234, ip=10.0.3.7)\u001b[0m ${line}`),
  'with mpirun tags': (text) => each(text, (line) => `[1,2]<stderr>:${line}`),
  'with the time': (text) => each(text, (line, i) => `2024-06-22T15:13:${10 + (i % 50)}.123456789Z ${line}`),
  'as Docker writes it': (text) =>
    each(text, (line) => JSON.stringify({ log: `${line}\n`, stream: 'stderr', time: '2024-06-22T15:13:25.07Z' })),
  'as a container runtime writes it': (text) =>
    each(text, (line) => `2024-06-22T15:13:25.079123456+00:00 stderr F ${line}`),
  'with a pod': (text) => each(text, (line) => `[pod/trainer-0/pytorch] ${line}`),
  'in a colour': (text) => each(text, (line) => `\u001b[31m${line}\u001b[0m`),
  'with NULs in front': (text) => `${'\0'.repeat(9000)}${text}`,
  'after a long progress bar': (text) =>
    `${Array.from({ length: 400 }, (_, i) => `Downloading: ${i % 100}%|###   | ${i}/400 [00:01<00:02, 3.1MB/s]`).join('\r')}\n${text}`,
};

describe.each(Object.entries(WRAPPINGS))('a log %s', (_, wrap) => {
  it('is still judged right', async () => {
    const wrong: unknown[] = [];
    for (const { name, expected, log } of PLAIN) {
      const diagnosis = await judgeCase(expected, Buffer.from(wrap(log.toString('utf8'))));
      const { class: wanted, phase } = expected;
      const got = { class: diagnosis.class, phase: diagnosis.phase, fields: diagnosis.fields };
      const fields = expectedFields(expected) ?? got.fields;
      try {
        expect(got).toEqual({ class: wanted, phase: phase ?? got.phase, fields });
      } catch (error) {
        wrong.push([name, (error as Error).message]);
      }
    }
    expect(wrong).toEqual([]);
    expect(PLAIN.length).toBeGreaterThan(300);
  });
});

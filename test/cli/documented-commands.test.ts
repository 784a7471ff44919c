import { describe, expect, it } from 'vitest';
import { toJobOptions } from '../../src/cli/job-options.js';
import { createProgram } from '../../src/cli/program.js';
import { commandOf, sweepOf } from '../../src/cli/sweep.js';
import type { Invocation } from '../../src/cli/verb.js';
import { blocks, PAGES } from '../guides/page.js';

/** Every call of oomtune in the blocks: the words of the line up to the next command. */
function calls(page: string): string[][] {
  const lines = blocks(page).flatMap((block) => block.replaceAll('\\\n', ' ').split('\n'));
  return lines.flatMap((line) =>
    line
      .replace(/\s#.*$/, '')
      .split(/\||&&|;|\$\(/)
      .map((part) => /^(?:\$ )?(?:\w+=\S* )*(?:srun |npx )?oomtune\s+(.*?)\)?"?$/.exec(part.trim())?.[1])
      .filter((words) => words !== undefined && !words.includes('…'))
      .map((words) =>
        [...(words as string).matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
          (word) => word[1] ?? word[2] ?? (word[3] as string),
        ),
      ),
  );
}

describe('documented commands', () => {
  it('are there to be read', () => {
    expect(PAGES.flatMap(calls).length).toBeGreaterThan(25);
  });

  it.each(PAGES.flatMap((page) => calls(page).map((words) => [page, words.join(' '), words] as const)))(
    '%s: oomtune %s',
    async (_page, _line, words) => {
      const dashes = words.indexOf('--');
      const command = dashes < 0 ? [] : words.slice(dashes + 1);
      let called: Invocation | null = null;
      const program = createProgram(async (invocation) => {
        called = invocation;
      }, command);
      await program.parseAsync(dashes < 0 ? words : words.slice(0, dashes), { from: 'user' });
      const { verb, options } = called as unknown as Invocation;
      if (['find-batch', 'run', 'submit'].includes(verb)) {
        const { report: _report, cwd: _cwd, envFile: _envFile, ...rest } = options;
        const sweep = sweepOf(options.array, options.sweep, command);
        toJobOptions(
          rest,
          sweep === null ? command : commandOf(command, sweep.tasks[0] as Parameters<typeof commandOf>[1]),
        );
      }
    },
  );
});

import { resolve } from 'node:path';
import { CommanderError } from 'commander';
import { checkSeconds, longestStartMs } from '../common/bounds.js';
import { OomtuneError } from '../common/errors.js';
import { filesAnswer } from '../common/far-files.js';
import { anchorHome } from '../common/home.js';
import { logLevel } from '../common/log-level.js';
import { pathsOf } from '../worker/command/named-paths.js';
import { type Context, createContext } from './context.js';
import { asOomtuneError, interrupted, renderError } from './errors.js';
import { letGoOfTerminals } from './hangup.js';
import { createOutput, type Output, outliveClosedPipes } from './output.js';
import { createProgram } from './program.js';
import { changedVariables, checkWords } from './raw-bytes.js';
import { withTimeout } from './timeouts.js';
import { type Invocation, takesCommand } from './verb.js';

/** For a person who waits at a terminal. */
const LONGEST_MS = 30_000;
/** Verbs with files as arguments. */
const OF_FILES = ['diagnose'];

/** Throws OOMTUNE_FILES_SILENT if the command line names a file on a file system that does not answer. */
async function namedFilesAnswer({ verb, args, options, command }: Invocation, signal: AbortSignal): Promise<void> {
  const given = [options.report, options.plot, ...(OF_FILES.includes(verb) ? args : [])];
  const files = given.filter((one): one is string => typeof one === 'string').map((path) => resolve(path));
  const cwd = resolve(typeof options.cwd === 'string' ? options.cwd : '.');
  const envFile = typeof options.envFile === 'string' ? options.envFile : null;
  if (command.length > 0) files.push(...pathsOf(command, { cwd, envFile }, process.env));
  await filesAnswer(files, Math.min(LONGEST_MS, longestStartMs()), signal);
}

/** Verbs that end by Ctrl-C as usual, without a message. */
const ONLY_LOOKS = ['logs', 'status', 'top', 'wait'];

/** The first word that is neither an option nor the value of one. */
function verbOf(head: string[]): string | null {
  return head.find((word, index) => !word.startsWith('-') && head[index - 1] !== '--redis') ?? null;
}

/** The command gets our environment as Node reads it. */
function tellOfChanged(out: Output): void {
  const names = changedVariables(process.env);
  if (names.length === 0) return;
  const said = names.length === 1 ? `The value of ${names[0]} is` : `The values of ${names.join(', ')} are`;
  out.note(`note: ${said} no UTF-8: the command gets "�" for what is not.`);
}

/** Runs one command line (without node and script) and answers with the exit code. */
async function main(argv: string[]): Promise<number> {
  // The user's command is cut off before anything is parsed: its words are never taken for ours. For a verb that takes
  // none the two dashes end the options, as everywhere: `diagnose -- -odd-name.log`.
  const dashes = argv.indexOf('--');
  const head = dashes < 0 ? argv : argv.slice(0, dashes);
  const command = dashes < 0 ? [] : argv.slice(dashes + 1);
  const out = createOutput(head.includes('--json'));
  const called: { verb: string | null; context: Context | null; code: number } = { verb: null, context: null, code: 0 };
  outliveClosedPipes(() => called.context?.interruptedBy != null);
  letGoOfTerminals();
  const program = createProgram(async (invocation, load) => {
    called.verb = invocation.verb;
    checkSeconds();
    logLevel();
    called.context = createContext(out, invocation.options, invocation.verb);
    const { context } = called;
    called.code = await withTimeout(invocation, context, async () => {
      await namedFilesAnswer(invocation, context.signal);
      if (invocation.command.length > 0) tellOfChanged(out);
      // Before anything looks for its home; that it does not answer is what `doctor` finds
      if (invocation.verb !== 'doctor') await context.system();
      else await context.system().catch(() => {});
      return (await load())(invocation, context);
    });
    for (const work of context.afterwards) await work();
  }, command);
  try {
    checkWords(argv);
    anchorHome();
    const asked = program.commands.find((known) => known.name() === verbOf(head));
    await program.parseAsync(asked === undefined || takesCommand.has(asked) ? head : argv, { from: 'user' });
    return called.code;
  } catch (thrown) {
    // commander prints the help itself and then throws
    if (thrown instanceof CommanderError && thrown.exitCode === 0) return 0;
    const first = verbOf(head);
    const verb = called.verb ?? (program.commands.some((known) => known.name() === first) ? first : null);
    const stopped = called.context?.interruptedBy ?? null;
    called.context?.progress.close();
    const stuck = thrown instanceof OomtuneError && thrown.code === 'OOMTUNE_STILL_RUNNING';
    const error = stopped === null || stuck ? asOomtuneError(thrown, verb) : interrupted(thrown);
    if (stopped === null || out.json || !ONLY_LOOKS.includes(verb ?? '')) renderError(error, out);
    return stuck ? error.exitCode : (stopped ?? error.exitCode);
  } finally {
    await called.context?.close().catch((thrown: unknown) => {
      if (process.env.OOMTUNE_DEBUG) out.note(String(thrown instanceof Error ? thrown.stack : thrown));
    });
  }
}

// Libraries write to the console; we say ourselves what a person has to know.
console.warn = (...said: unknown[]) => {
  if (process.env.OOMTUNE_DEBUG) process.stderr.write(`${said.join(' ')}\n`);
};
process.on('uncaughtException', (thrown) => {
  const error = asOomtuneError(thrown, null);
  const json = process.argv.includes('--json') && error.code !== 'OOMTUNE_OUTPUT_FAILED';
  renderError(error, createOutput(json));
  process.exit(error.exitCode);
});
const code = await main(process.argv.slice(2));
// Ends the process even if a library left something open, but only once all output is written.
// A failed write is reported a moment after the last one.
process.stdout.write('', () => process.stderr.write('', () => setImmediate(() => process.exit(code))));

import { CommanderError } from 'commander';
import { type Context, createContext } from './context.js';
import { asOomtuneError, Finished, interrupted, renderError } from './errors.js';
import { createOutput, outliveClosedPipes } from './output.js';
import { createProgram } from './program.js';

/** Runs one command line (without node and script) and answers with the exit code. */
export async function main(argv: string[]): Promise<number> {
  // The user's command is cut off before anything is parsed: its words are never taken for ours.
  const dashes = argv.indexOf('--');
  const head = dashes < 0 ? argv : argv.slice(0, dashes);
  const command = dashes < 0 ? [] : argv.slice(dashes + 1);
  const out = createOutput(head.includes('--json'));
  let context: Context | null = null;
  let called: string | null = null;
  let code = 0;
  const program = createProgram(async (invocation, load) => {
    called = invocation.verb;
    context = createContext(out, invocation.options);
    const verb = (await load()).default;
    code = await verb(invocation, context);
  }, command);
  try {
    await program.parseAsync(head, { from: 'user' });
  } catch (thrown) {
    code = report(thrown, context, called);
  }
  await close(context);
  return (context as Context | null)?.interruptedBy ?? code;

  function report(thrown: unknown, context: Context | null, verb: string | null): number {
    if (thrown instanceof Finished) return thrown.exitCode;
    // commander prints help and version itself and then throws
    if (thrown instanceof CommanderError && thrown.exitCode === 0) return 0;
    const error = context?.signal.aborted ? interrupted(thrown) : asOomtuneError(thrown, verb ?? knownVerb(head));
    renderError(error, out);
    return error.exitCode;
  }

  async function close(context: Context | null): Promise<void> {
    try {
      await context?.close();
    } catch (thrown) {
      if (process.env.OOMTUNE_DEBUG) out.note(String(thrown instanceof Error ? thrown.stack : thrown));
    }
  }

  function knownVerb(words: string[]): string | null {
    const first = words.find((word) => !word.startsWith('-'));
    return program.commands.some((known) => known.name() === first) ? (first ?? null) : null;
  }
}

outliveClosedPipes();
const code = await main(process.argv.slice(2));
// Whatever a library left open must not keep the command alive; what was written must be out first.
process.stdout.write('', () => process.stderr.write('', () => process.exit(code)));

import { createInterface } from 'node:readline';

/** Whether somebody is there to answer: a terminal at both ends, and no CI. */
export function canAsk(env: NodeJS.ProcessEnv = process.env): boolean {
  return Boolean(process.stdin.isTTY && process.stdout.isTTY && process.stderr.isTTY) && !env.CI;
}

/** Asks on stderr; Enter alone is a yes, the end of the input and Ctrl-C are a no. */
export async function agreed(question: string, signal: AbortSignal): Promise<boolean> {
  const input = createInterface({ input: process.stdin, terminal: false });
  process.stderr.write(`${question} [Y/n] `);
  const answer = await new Promise<string | null>((resolve) => {
    input.once('line', resolve);
    input.once('close', () => resolve(null));
    signal.addEventListener('abort', () => resolve(null), { once: true });
  });
  input.close();
  if (answer === null) process.stderr.write('\n');
  return answer !== null && /^\s*(y(es)?)?\s*$/i.test(answer);
}

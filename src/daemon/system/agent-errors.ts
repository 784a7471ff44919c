import { ERROR_CODES, type ErrorCode, OomtuneError } from '../../common/errors.js';
import { isFull } from '../../common/refusal.js';
import { agentError } from '../../contract/system.js';
import type { Run } from '../../runtime/types.js';
import { Detached } from '../../worker/launch/detached.js';
import { StillRunning } from '../../worker/launch/still-running.js';
import { TimeUp } from '../../worker/run/time-limit.js';

/** Errors between the daemon and an agent, which belongs to the same house: the daemon acts on their kinds. */
export const AGENT_ERRORS = {
  encode(error: unknown): Record<string, unknown> {
    const message = (error instanceof Error ? error.message : String(error)).slice(0, 65_000);
    if (error instanceof Detached) return { kind: 'let go', message };
    if (error instanceof StillRunning) {
      const { ledger: _, ...exit } = error.exit;
      return { kind: 'still running', message, exit };
    }
    if (error instanceof TimeUp) return { kind: 'time up', message, code: error.code, remedy: error.remedy };
    if (isFull(error)) return { kind: 'full disk', message };
    if (error instanceof OomtuneError) return { kind: 'known', message, code: error.code, remedy: error.remedy };
    return { kind: 'other', message };
  },

  decode(value: Record<string, unknown>): Error {
    const read = agentError.safeParse(value);
    if (!read.success) return new Error('an agent answered with an error that cannot be read');
    const { kind, message, code, remedy = '', exit } = read.data;
    if (kind === 'let go') return new Detached();
    if (kind === 'still running' && exit !== undefined)
      return new StillRunning({ dir: '/' } as Run, { ...exit, ledger: null });
    if (kind === 'time up') return Object.setPrototypeOf(known(code, message, remedy), TimeUp.prototype) as TimeUp;
    if (kind === 'full disk') return Object.assign(new Error(message), { code: 'ENOSPC' });
    return kind === 'known' ? known(code, message, remedy) : new Error(message);
  },
};

function known(code: string | undefined, message: string, remedy: string): OomtuneError {
  const is = Object.hasOwn(ERROR_CODES, code ?? '') ? (code as ErrorCode) : 'OOMTUNE_INTERNAL';
  return new OomtuneError(is, message, remedy);
}

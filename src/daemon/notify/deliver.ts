import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { isFolder } from '../../common/home.js';
import { plainText } from '../../common/terminal.js';
import { TimeUp, within } from '../../common/within.js';
import type { Notification } from '../../contract/notification.js';

/** For a server to answer, and for a command to end. */
const URL_MS = 10_000;
const COMMAND_MS = 30_000;
/** For a command's last words, after its end. */
const LAST_WORDS_MS = 300;
/** Of what a command says, the end is kept for its failure. */
const MOST_SAID = 2000;

export interface Receiver {
  /** A shell's command, or a URL that begins with http:// or https://. */
  target: string;
  /** Of the command, beside the event's own variables. */
  environment: NodeJS.ProcessEnv;
  /** Where the command runs, if it is there. */
  cwd: string;
}

export const isUrl = (target: string): boolean => /^https?:\/\//i.test(target);

/**
 * Tells of an event. Returns why it could not; null: it was told. Never rejects, and takes no longer than its time limit. Runs with
 * the rights of this process: it is called where the job is worked on, by whoever it belongs to.
 */
export async function deliver(receiver: Receiver, event: Notification): Promise<string | null> {
  try {
    return isUrl(receiver.target) ? await post(receiver.target, event) : await execute(receiver, event);
  } catch (error) {
    return (error as Error).message;
  }
}

/** A webhook's address is its password: of it only the host is ever said. */
async function post(url: string, event: Notification): Promise<string | null> {
  const host = URL.canParse(url) ? new URL(url).host : 'an address that cannot be read';
  try {
    return await within(URL_MS, null, async (signal) => {
      const response = await fetch(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'user-agent': 'oomtune' },
        body: JSON.stringify(event),
        redirect: 'manual',
        signal,
      });
      await response.body?.cancel();
      return response.ok ? null : `${host} answered with HTTP ${response.status}`;
    });
  } catch (error) {
    if (error instanceof TimeUp) return `${host} did not answer within ${URL_MS / 1000} s`;
    const { cause } = error as Error & { cause?: { code?: string } };
    return `${host} cannot be reached${cause?.code === undefined ? '' : ` (${cause.code})`}`;
  }
}

/** The event's fields as variables: nothing of a job is ever part of the shell's text. */
function variables(event: Notification): Record<string, string> {
  return {
    OOMTUNE_EVENT: event.event,
    OOMTUNE_EVENT_TEXT: event.text,
    OOMTUNE_EVENT_JOB: event.job,
    OOMTUNE_EVENT_NAME: event.name,
    OOMTUNE_EVENT_STATE: event.state,
    OOMTUNE_EVENT_JSON: JSON.stringify(event),
  };
}

function execute({ target, environment, cwd }: Receiver, event: Notification): Promise<string | null> {
  return new Promise((resolve) => {
    const child = spawn('/bin/sh', ['-c', target], {
      cwd: isFolder(cwd) ? cwd : homedir(),
      env: { ...environment, ...variables(event) },
      stdio: ['pipe', 'ignore', 'pipe'],
      detached: true, // a group of its own, to end all of it
    });
    let said = '';
    const timer = setTimeout(() => {
      if (child.pid !== undefined) killGroup(child.pid);
      done(`the command took longer than ${COMMAND_MS / 1000} s`);
    }, COMMAND_MS);
    const done = (why: string | null): void => {
      clearTimeout(timer);
      child.stderr?.destroy();
      resolve(why);
    };
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-MOST_SAID);
    });
    child.stdin?.on('error', () => {}); // it need not read the event
    child.stdin?.end(`${JSON.stringify(event)}\n`);
    child.on('error', (error) => done(`the command cannot be started: ${error.message}`));
    const ended = (code: number | null, signal: NodeJS.Signals | null): void => {
      const last = plainText(said).trim().split('\n').at(-1)?.slice(0, 200);
      done(code === 0 ? null : `the command ended with ${signal ?? `exit code ${code}`}${last ? `: ${last}` : ''}`);
    };
    child.on('close', ended);
    // What it left in the background may hold its stderr open
    child.on('exit', (code, signal) => setTimeout(() => ended(code, signal), LAST_WORDS_MS));
  });
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // it has just ended
  }
}

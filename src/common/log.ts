import { pino } from 'pino';

/**
 * The diagnostic log: JSON lines on stderr, never on stdout, which belongs to data. `OOMTUNE_LOG` sets the level
 * (default `warn` for commands; the daemon sets `info`). Values of environment variables never go in.
 */
export function createLog(component: string, level = process.env.OOMTUNE_LOG || 'warn') {
  return pino(
    { name: 'oomtune', level, base: { component, pid: process.pid } },
    pino.destination({ dest: 2, sync: true }),
  );
}

export type Log = ReturnType<typeof createLog>;

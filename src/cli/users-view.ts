import { plain } from '../common/terminal.js';
import type { UserShare } from '../contract/verbs.js';
import type { Paint } from './output.js';
import { table } from './table.js';

/** A line for each user, in the order in which their jobs have their turns. */
export function renderUsers(users: UserShare[], paint: Paint): string {
  const of = (have: number, most: number | null): string => (most === null ? String(have) : `${have} of ${most}`);
  return table(
    plain(users),
    [
      { title: 'USER', value: (row) => row.user, widest: 24 },
      { title: 'USED LATELY', value: (row) => `${(row.device_seconds / 3600).toFixed(2)} h`, align: 'right' },
      { title: 'SHARE', value: (row) => `${Math.round(row.share * 100)} %`, align: 'right' },
      { title: 'GPUS', value: (row) => of(row.gpus, row.gpus_limit), align: 'right' },
      { title: 'WORKING', value: (row) => String(row.working), align: 'right' },
      { title: 'WAITING', value: (row) => of(row.waiting, row.waiting_limit), align: 'right' },
    ],
    paint,
  );
}

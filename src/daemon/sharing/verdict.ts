/** Whether two jobs side by side get more done than taking turns. Pure: no clock, no I/O. */

/** Steps a second of the two, each in the same order: while the other stood still, and while both ran. */
export interface Round {
  alone: readonly [number, number];
  beside: readonly [number, number];
}

export type Verdict = 'together' | 'apart';

/** Side by side has to be better by this, or it is not worth the longer time that each of them takes. */
export const MARGIN = 0.05;
/** So many rounds have to agree; where they never do, the median of the most decides. */
export const FEWEST_ROUNDS = 3;
export const MOST_ROUNDS = 7;

/** What both get done side by side, by what they would taking turns: 1 is no gain, 2 that neither notices the other. */
export function gainOf({ alone, beside }: Round): number {
  return beside[0] / alone[0] + beside[1] / alone[1];
}

/** The median of the rounds' gains; NaN: none was made. */
export function medianGain(rounds: readonly Round[]): number {
  const gains = rounds.map(gainOf).sort((a, b) => a - b);
  const middle = gains.length >> 1;
  if (gains.length % 2 === 1) return gains[middle] as number;
  return ((gains[middle - 1] as number) + (gains[middle] as number)) / 2;
}

/** Null: one more round has to be made. */
export function judge(rounds: readonly Round[]): Verdict | null {
  if (rounds.length < FEWEST_ROUNDS) return null;
  const worth = rounds.filter((round) => gainOf(round) > 1 + MARGIN).length;
  if (worth === rounds.length) return 'together';
  if (worth === 0) return 'apart';
  if (rounds.length < MOST_ROUNDS) return null;
  return medianGain(rounds) > 1 + MARGIN ? 'together' : 'apart';
}

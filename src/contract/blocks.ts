import { z } from 'zod';

/** Of a model's repeated blocks, by their numbers: `0-3,6/12` are five of twelve. Empty: all of them. */
export const blocks = z
  .string()
  .max(4096)
  .regex(/^(\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*\/\d{1,4})?$/, 'ranges of blocks, such as 0-3,6/12');

function blocksOf(text: string): { numbers: number[]; total: number } {
  const [ranges = '', total] = text.split('/');
  const numbers = ranges.split(',').flatMap((range) => {
    const [first, last = first] = range.split('-').map(Number) as [number, number?];
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => first + at);
  });
  return { numbers, total: Number(total) };
}

/** How many blocks the text names. */
export const blockCount = (text: string): number => blocksOf(text).numbers.length;

/** The text of these blocks of so many. */
export function blocksText(numbers: readonly number[], total: number): string {
  const ranges: [number, number][] = [];
  for (const number of numbers.toSorted((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else ranges.push([number, number]);
  }
  const texts = ranges.map(([first, last]) => (first === last ? String(first) : `${first}-${last}`));
  return `${texts.join(',')}/${total}`;
}

/** Such as `checkpointing of 5/12 blocks`. */
export function someBlocks(text: string): string {
  const { numbers, total } = blocksOf(text);
  return `checkpointing of ${numbers.length}/${total} blocks`;
}

import { join } from 'node:path';
import { z } from 'zod';
import { readConfig } from '../../common/config.js';
import { usageError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/home.js';
import { formatBytes, parseSize } from '../../common/size.js';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

const mib = z.number().positive();
const file = z
  .object({
    kernels: z.object({ part: z.number().nonnegative().max(1), most: mib }),
    generations: z.record(
      z.string(),
      z.object({ base: mib, cudnn: mib, cublas: mib, workspace: mib, measured: z.boolean() }),
    ),
    cards: z.array(
      z.object({ name: z.string(), memory: mib, generation: z.string(), small: z.boolean().default(false) }),
    ),
  })
  .refine(({ generations, cards }) => cards.every(({ generation }) => generation in generations), 'unknown generation');

/** A card to fit a training into, in bytes. */
export interface Card {
  name: string;
  total: number;
  context: { base: number; cudnn: number; cublas: number };
  /** Of each cuBLAS handle. */
  workspace: number;
  /** Allowed for kernels' own workspaces: a part of what torch reserves, up to so many bytes. */
  kernels: { part: number; most: number };
  measured: boolean;
}

/** Those asked for, by a part of their names or as sizes; null: the usual ones. Throws OOMTUNE_USAGE for one that is not known. */
export function cardsOf(asked: string[] | null): Card[] {
  const { generations, cards, kernels } = file.parse(readConfig(join(PACKAGE_ROOT, 'config', 'gpus.yaml')));
  const known = cards.map((card) => {
    const { base, cudnn, cublas, workspace, measured } = generations[card.generation] as (typeof generations)[string];
    return {
      small: card.small,
      name: card.name,
      total: card.memory * MIB,
      context: { base: base * MIB, cudnn: cudnn * MIB, cublas: cublas * MIB },
      workspace: workspace * MIB,
      kernels: { part: kernels.part, most: kernels.most * MIB },
      measured,
    };
  });
  if (asked === null) return known.filter(({ small }) => !small).map(({ small: _, ...card }) => card);
  return asked.flatMap((text) => {
    const plain = (name: string): string => name.toLowerCase().replace(/[\s_-]|nvidia|geforce/g, '');
    const named = known.filter(({ name }) => plain(name).includes(plain(text)));
    if (plain(text) !== '' && named.length > 0) return named.map(({ small: _, ...card }) => card);
    const total = sizeOf(text);
    if (total === null)
      throw usageError(
        `There is no card "${text}" in the list.`,
        `Give --card a size such as 24GiB, or one of ${known.map(({ name }) => name).join(', ')}.`,
      );
    const like = known.find((card) => card.total >= total) ?? known.at(-1);
    const { small: _, ...card } = like as (typeof known)[number];
    return [{ ...card, name: formatBytes(total), total, measured: false }];
  });
}

function sizeOf(text: string): number | null {
  try {
    return /%$/.test(text) ? null : parseSize(text, 1024 * GIB);
  } catch {
    return null;
  }
}

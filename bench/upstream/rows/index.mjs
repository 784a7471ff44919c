import { EXAMPLES } from './examples.mjs';
import { GANS } from './gans.mjs';
import { GRAPHS } from './graphs.mjs';
import { HUGGING_FACE } from './hugging-face.mjs';
import { IGNITE } from './ignite.mjs';
import { IMAGES } from './images.mjs';
import { KARPATHY } from './karpathy.mjs';
import { LIGHTNING } from './lightning.mjs';
import { NOT_PYTORCH } from './not-pytorch.mjs';
import { TUTORIALS } from './tutorials.mjs';

/**
 * A row: `name`; `repository`; `folder` to run in (`folders`: what else of the checkout is copied); `command` after the interpreter,
 * with {data:MAKER+ARGUMENT} for made data ({scale} in it: `-base` on a GPU); `links`: made data (`#` a file of it) at a path; `size`: the
 * flag that takes the batch size (none: the watcher sets the loaders' for the yardstick); `own`: the batch size as it stands;
 * `cpu` and `cuda`: the budget there, further arguments (`args`), another `own`, `cut: false` where its batch is too
 * small to be worth a cut. Further: `env`, `path` (folders of the checkout on
 * PYTHONPATH), `logs` (modules that only log, stood in for where they are not installed), `options` of oomtune, `lengths` (its samples differ in length: what is found holds for the longest), `constant` (for the yardstick alone: file, what stands before and after the one number in it that is the batch size), `placeholders` (the size
 * is given to oomtune as {micro_batch}), `samples` (how many its training data has), `made` (data's checksums are not those of the real data),
 * `program` (started in place of the interpreter; `{jax}`: that of --jax), `packages` (its versions that are recorded), `edits` (files with texts and what stands in
 * their place: said on the page), `build` (a line of the shell, run once), `watch: false` (the watcher knows torch in Python alone: such a program ends by itself).
 */
export const ROWS = [
  ...EXAMPLES,
  ...KARPATHY,
  ...IMAGES,
  ...LIGHTNING,
  ...HUGGING_FACE,
  ...GRAPHS,
  ...GANS,
  ...TUTORIALS,
  ...IGNITE,
  ...NOT_PYTORCH,
];

import { join } from 'node:path';
import { z } from 'zod';
import { readConfig } from '../../common/config.js';
import { PACKAGE_ROOT } from '../../common/home.js';

const words = z.string().transform((text) => text.split(' '));

/** config/launchers.yaml says what each field means. */
const wrapper = z.strictObject({
  programs: words.default([]),
  modules: words.default([]),
  bare: words.optional(),
  valued: words.optional(),
  abbreviated: z.boolean().default(false),
  arguments: z.number().default(0),
  verb: z.string().optional(),
  script: z.boolean().default(false),
  module: words.default([]),
  executable: words.default([]),
  processes: z.array(words).default([]),
  processes_default: z.number().optional(),
  processes_variables: words.default([]),
  nodes: words.default([]),
  nodes_variable: z.string().optional(),
  nodes_file: z.strictObject({ option: words, default: words, key: z.string().optional() }).optional(),
  device_list: words.default([]),
});
export type Wrapper = z.infer<typeof wrapper>;

let loaded: Wrapper[] | undefined;

const wrappers = (): Wrapper[] => {
  loaded ??= z.array(wrapper).parse(readConfig(join(PACKAGE_ROOT, 'config', 'launchers.yaml')));
  return loaded;
};

export const wrapperOf = (program: string): Wrapper | undefined =>
  wrappers().find(({ programs }) => programs.includes(program));

/** The module that launches another script: `python -m torch.distributed.run train.py`. */
export const wrapperModule = (module: string): Wrapper | undefined =>
  wrappers().find(({ modules }) => modules.includes(module));

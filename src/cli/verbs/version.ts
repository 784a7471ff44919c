import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT, packageVersion } from '../../common/home.js';
import type { Versions } from '../../contract/verbs.js';
import { platform } from '../bug-report.js';
import type { Context } from '../context.js';
import { facts } from '../table.js';
import type { Verb } from '../verb.js';

/** The hook's version stands in its own file, as a copy of it may be of another release. */
function hookVersion(): string | null {
  const file = join(PACKAGE_ROOT, 'python', 'oomtune', '__init__.py');
  return /^__version__ = "(.+)"$/m.exec(readFileSync(file, 'utf8'))?.[1] ?? null;
}

/** The native part's are null where it is not built: the rest can still be told. */
export async function versions({ runtime }: Pick<Context, 'runtime'>): Promise<Versions> {
  const parts = await runtime().then(
    (found) => found.versions(),
    () => null,
  );
  return {
    oomtune: packageVersion(),
    node: process.versions.node,
    addon: parts?.addon ?? null,
    supervisor: parts?.supervisor ?? null,
    hook: hookVersion(),
    driver: parts?.driver ?? null,
  };
}

export default (async (_invocation, context) => {
  const { out } = context;
  const found = await versions(context);
  if (out.json) out.document('version', { schema: 1, versions: found, platform: platform() });
  else {
    const { oomtune, ...rest } = found;
    const lines = Object.entries({ ...rest, platform: platform() });
    out.data(`oomtune ${oomtune}\n${facts(lines.map(([name, value]) => [name, value ?? 'none'] as [string, string]))}`);
  }
  return 0;
}) satisfies Verb;

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT, packageVersion } from '../../common/home.js';
import { facts } from '../table.js';
import type { Verb } from '../verb.js';

/** The hook's version stands in its own file, as a copy of it may be of another release. */
function hookVersion(): string | null {
  const file = join(PACKAGE_ROOT, 'python', 'oomtune', '__init__.py');
  return /^__version__ = "(.+)"$/m.exec(readFileSync(file, 'utf8'))?.[1] ?? null;
}

export default (async (_invocation, { out, runtime }) => {
  const parts = await runtime().then(
    (found) => found.versions(),
    () => null, // not built: the rest can still be told
  );
  const versions = {
    oomtune: packageVersion(),
    node: process.versions.node,
    addon: parts?.addon ?? null,
    supervisor: parts?.supervisor ?? null,
    hook: hookVersion(),
    driver: parts?.driver ?? null,
  };
  if (out.json) out.document('version', { schema: 1, versions });
  else {
    const { oomtune, ...rest } = versions;
    out.data(
      `oomtune ${oomtune}\n${facts(Object.entries(rest).map(([name, value]) => [name, value ?? 'none'] as [string, string]))}`,
    );
  }
  return 0;
}) satisfies Verb;

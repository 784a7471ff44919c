/** What a release is made of: npm's list of the lock file, cut to what users get. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { output, ROOT } from '../setup/say.mjs';

/** CycloneDX, which both indexes' tools read. Returns the document, or null where npm cannot make it. */
export function sbom() {
  const said = output(
    ['npm', 'sbom', '--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--package-lock-only'],
    {
      cwd: ROOT,
    },
  );
  if (said === null) return null;
  const document = JSON.parse(said);
  document.metadata.component.name = 'oomtune'; // npm takes the checkout's folder for it
  // npm's own `--omit dev` leaves out what a tool for development asks for, too (yaml, with npm 11.19)
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
  const kept = shipped(packages);
  const refs = new Set([document.metadata.component['bom-ref'], ...kept]);
  document.components = document.components.filter((one) => refs.has(one['bom-ref']));
  document.dependencies = document.dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((other) => refs.has(other)) }));
  return document;
}

/** `name@version` of all that an installation of the package brings, by a lock file's packages. */
function shipped(packages) {
  const seen = new Set();
  const queue = [['', packages['']]];
  for (const [path, { dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta = {} }] of queue) {
    const peers = Object.keys(peerDependencies ?? {}).filter((name) => !peerDependenciesMeta[name]?.optional);
    for (const name of [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers]) {
      const found = resolve(packages, path, name);
      if (found === null || seen.has(found)) continue;
      seen.add(found);
      queue.push([found, packages[found]]);
    }
  }
  return [...seen].map((path) => `${path.slice(path.lastIndexOf('node_modules/') + 13)}@${packages[path].version}`);
}

/** Where Node would find a package from another's folder; null: it is optional, and not there. */
function resolve(packages, from, name) {
  for (let at = from; ; at = at.replace(/\/?node_modules\/(@[^/]+\/)?[^/]+$/, '')) {
    const path = `${at === '' ? '' : `${at}/`}node_modules/${name}`;
    if (packages[path] !== undefined) return path;
    if (at === '') return null;
  }
}

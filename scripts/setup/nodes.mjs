import { delimiter, join } from 'node:path';
import { onceAMachine } from './once.mjs';
import { output, say } from './say.mjs';
import { cache } from './venv.mjs';

/** The oldest that is supported and the newest there is: one that has the major version of this one is not run again. */
const VERSIONS = ['20.20.2', '26.10.0'];
/** What differs with Node: the native addon, processes and signals, sockets and streams. What Redis's scripts decide does not. */
const STORE = ['connection', 'embedded', 'jobs', 'replies', 'safety'].map((name) => `test/store/${name}.test`);
const PART = ['test/common', 'test/contract', 'test/runtime', 'test/cli/run.test', ...STORE];
const PATIENCE_MS = 5 * 60_000;

/** `[name, argv, env]` of the suite's part under each other Node; one that cannot be had is said aloud. */
export function otherNodes(vitest) {
  const own = process.versions.node.split('.')[0];
  const steps = [];
  for (const version of VERSIONS) {
    if (version.split('.')[0] === own) continue;
    const node = ensureNode(version);
    if (node === null) {
      say(`NOT RUN: a part of the tests under Node ${version}, since it could not be installed.`);
      continue;
    }
    const PATH = [join(node, '..'), process.env.PATH].join(delimiter);
    steps.push([`tests under Node ${version}: ${PART.join(' ')}`, [node, vitest, 'run', ...PART], { PATH }]);
  }
  return steps;
}

/** The program, installed once a machine from the package of this machine's kind; null: it cannot be had. */
function ensureNode(version) {
  const { platform, arch } = process;
  const name = `node-${platform}-${arch}`;
  const folder = join(cache(), `${name}-${version}`);
  const nodeIn = (at) => join(at, 'node_modules', name, 'bin', 'node');
  const there = onceAMachine(folder, `Node ${version}`, (made) => {
    const install = ['npm', 'install', '--prefix', made, '--no-audit', '--no-fund', '--ignore-scripts', '--silent'];
    const done = output([...install, `${name}@${version}`], { timeout: PATIENCE_MS });
    return done !== null && output([nodeIn(made), '--version']) === `v${version}`;
  });
  return there ? nodeIn(folder) : null;
}

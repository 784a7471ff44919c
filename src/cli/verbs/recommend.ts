import { OomtuneError, usageError } from '../../common/errors.js';
import { nearest, stemOfName } from '../../common/names.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { shown } from '../../contract/rung.js';
import type { Format } from '../cluster/formats.js';
import { renderRecommendations } from '../recommend-view.js';
import type { Verb } from '../verb.js';
import { shellWords } from '../words.js';

export default (async ({ args, options, command }, context) => {
  const { out } = context;
  const [name] = args;
  if (options.apply && command.length === 0) {
    throw usageError(
      'There is no command to fill in.',
      'Write it after two dashes: oomtune recommend NAME --apply -- python train.py',
    );
  }
  const format = options.format as Format | undefined;
  if (format !== undefined && options.apply)
    throw usageError('--apply fills in a command; --format writes for another program.', 'Leave one of the two out.');
  if (format !== undefined && name === undefined)
    throw usageError('--format writes one configuration.', 'Name it: oomtune recommend NAME --format env');
  if (!options.apply && command.length > 0 && format !== 'slurm') {
    throw usageError('A command is only filled in with --apply.', 'Write: oomtune recommend NAME --apply -- COMMAND…');
  }
  const store = await context.store();
  const found = name === undefined ? await store.recommendations.list() : await store.recommendations.find(name);
  const knobs = format === undefined ? await store.recommendations.knobs(name) : [];
  if (name !== undefined && found.length + knobs.length === 0)
    throw noSuchConfig(name, await store.recommendations.list());
  if (format !== undefined) {
    const one = latestVerified(found, name as string);
    if (found.length > 1) out.note(`note: ${one.key} is the latest verified one.`);
    const { formatted } = await import('../cluster/formats.js');
    const text = formatted(one, format, command);
    if (out.json) out.document('recommend-format', { schema: 1, key: one.key, format, text });
    else out.exact(text);
    return 0;
  }
  if (options.apply) {
    const { applyRecommendation } = await import('../apply.js');
    const applied = await applyRecommendation(found, name ?? null, command, knobs);
    for (const note of applied.notes) out.note(`note: ${note}`);
    if (out.json)
      out.document('recommend-apply', {
        schema: 1,
        key: applied.key,
        config: shown(applied.config),
        argv: applied.argv,
        env: applied.env,
      });
    else {
      const env = Object.entries(applied.env).map(([key, value]) => `${key}=${value}`);
      out.exact(shellWords(env.length > 0 ? ['env', ...env, ...applied.argv] : applied.argv));
    }
    return 0;
  }
  const all = [...found, ...knobs];
  if (out.json) out.document('recommend', { schema: 1, recommendations: all });
  else if (all.length === 0)
    out.data('Nothing recorded yet. `oomtune find-batch -- COMMAND…` records a configuration.');
  else out.data(renderRecommendations(all, out.paint));
  return 0;
}) satisfies Verb;

/** Throws OOMTUNE_NO_SUCH_CONFIG where each ran out of memory since. */
function latestVerified(found: Recommendation[], name: string): Recommendation {
  const [latest] = found
    .filter((one) => one.status === 'verified')
    .sort((a, b) => Date.parse(b.verified_at) - Date.parse(a.verified_at));
  if (latest !== undefined) return latest;
  throw new OomtuneError(
    'OOMTUNE_NO_SUCH_CONFIG',
    `No recommendation "${name}" is verified.`,
    'It ran out of memory since; the next `oomtune run` or `find-batch` of it searches anew.',
  );
}

function noSuchConfig(name: string, all: Recommendation[]): OomtuneError {
  const near = nearest(
    name,
    all.flatMap((one) => [one.name, stemOfName(one.name) ?? one.name, one.key]),
  );
  return new OomtuneError(
    'OOMTUNE_NO_SUCH_CONFIG',
    `There is no recorded configuration "${name}".`,
    `${near === null ? '' : `Did you mean \`${near}\`? `}See \`oomtune recommend\` for those that there are; \`oomtune find-batch -- COMMAND…\` records one.`,
  );
}

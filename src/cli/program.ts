import { Argument, Command, Option } from 'commander';
import { nearest } from '../common/nearest.js';
import { usageError } from './errors.js';
import { addCommonOptions, addEditOptions, addFindBatchOptions, addRunOptions } from './options.js';
import { shown } from './output.js';
import { type Dispatch, verbMaker } from './verb.js';

const DO = 'Find, run, queue:';
const FOLLOW = 'Follow and steer jobs:';
const ASK = 'Ask:';
const SERVE = 'Serve:';

/** The whole command line. `dispatch` is told which verb was called; `command` is what stood after `--`. */
export function createProgram(dispatch: Dispatch, command: string[] = []): Command {
  const program = new Command('oomtune')
    .description('Runs any training command at the best configuration that fits the GPU.')
    .usage('VERB [options] [-- COMMAND…]')
    .helpOption('-h, --help', 'show this help')
    .helpCommand('help [verb]', 'show the help of a verb')
    .configureHelp({
      showGlobalOptions: false,
      helpWidth: Math.min(process.stdout.columns || 100, 120),
      optionDescription: (option) => option.description, // the flags name the choices already
    })
    .exitOverride()
    .configureOutput({
      writeOut: (text) => process.stdout.write(shown(text, process.stdout)),
      writeErr: () => {},
      outputError: () => {},
    })
    .enablePositionalOptions()
    .allowExcessArguments(true) // so that an unknown verb is told as that
    .option('-V, --version', 'show the versions of all parts');
  addCommonOptions(program);
  program.action((options: Record<string, unknown>) => {
    if (options.version)
      return dispatch({ verb: 'version', args: [], options, command, program }, () => import('./verbs/version.js'));
    const [word] = program.args;
    if (word === undefined && options.json !== true) return program.outputHelp();
    if (word === undefined) throw usageError('No verb was given.', 'Run `oomtune --help` to see them all.');
    const near = nearest(
      word,
      program.commands.map((known) => known.name()),
    );
    const hint = near === null ? '' : `Did you mean \`oomtune ${near}\`? `;
    throw usageError(`There is no verb "${word}".`, `${hint}Run \`oomtune --help\` to see them all.`);
  });

  const verb = verbMaker(program, dispatch, command);
  const jobs = (required: boolean) =>
    new Argument(required ? '<job...>' : '[job...]', 'job ids or names; @ is the latest');
  const oneJob = new Argument('<job>', 'job id or name; @ is the latest');

  addFindBatchOptions(
    verb(
      program,
      'find-batch',
      'find, verify and record the best configuration for a command',
      () => import('./verbs/find-batch.js'),
      { group: DO, takesCommand: true, work: 'here' },
    ),
  );
  const run = verb(
    program,
    'run',
    'run a command in the foreground, tuned and supervised',
    () => import('./verbs/run.js'),
    { group: DO, takesCommand: true, work: 'here' },
  );
  addRunOptions(run)
    .addOption(new Option('--no-tune', 'only supervise: telemetry and budget').helpGroup('How the search goes:'))
    .addOption(
      new Option('--restart', 'after a late out-of-memory error start again however much was done').helpGroup(
        'How the search goes:',
      ),
    )
    .addOption(new Option('--report <file>', 'write the JSON report of the run to this file'));
  verb(program, 'submit', 'queue a command; prints the job id', () => import('./verbs/submit.js'), {
    group: DO,
    takesCommand: true,
    work: 'queued',
  });

  verb(program, 'status', 'show jobs', () => import('./verbs/status.js'), { group: FOLLOW, args: [jobs(false)] })
    .option('-w, --watch', 'go on showing, until interrupted')
    .option('-n, --limit <n>', 'show at most this many (default: all that are not ended, and the latest 20)');
  verb(program, 'wait', 'wait until jobs have ended', () => import('./verbs/wait.js'), {
    group: FOLLOW,
    args: [jobs(true)],
  });
  verb(program, 'logs', "show a job's output", () => import('./verbs/logs.js'), { group: FOLLOW, args: [jobs(true)] })
    .option('-f, --follow', 'go on until the job has ended')
    .option('-n, --lines <n>', 'only the last lines')
    .option('--launch <n>', 'of this launch (default: the latest)');
  verb(program, 'cancel', 'end jobs, or take them from the queue', () => import('./verbs/cancel.js'), {
    group: FOLLOW,
    args: [jobs(true)],
  });
  verb(program, 'retry', 'queue an ended job again', () => import('./verbs/retry.js'), {
    group: FOLLOW,
    args: [oneJob],
  });
  verb(program, 'hold', 'keep waiting jobs from starting', () => import('./verbs/hold.js'), {
    group: FOLLOW,
    args: [jobs(true)],
  });
  verb(program, 'pause', 'have running jobs stand still', () => import('./verbs/pause.js'), {
    group: FOLLOW,
    args: [jobs(true)],
  });
  verb(program, 'resume', 'let paused jobs go on', () => import('./verbs/resume.js'), {
    group: FOLLOW,
    args: [jobs(true)],
  });
  addEditOptions(
    verb(program, 'edit', 'change the priority or the time limit of waiting jobs', () => import('./verbs/edit.js'), {
      group: FOLLOW,
      args: [jobs(true)],
    }),
  );
  verb(program, 'release', 'let held jobs start', () => import('./verbs/release.js'), {
    group: FOLLOW,
    args: [jobs(true)],
  });

  verb(
    program,
    'explain',
    'tell why a job waits, or how its configuration was found',
    () => import('./verbs/explain.js'),
    {
      group: ASK,
      args: [new Argument('<job>', 'job id or name (@ is the latest), or the name or key of a recommendation')],
    },
  );
  verb(program, 'recommend', 'show recorded configurations', () => import('./verbs/recommend.js'), {
    group: ASK,
    args: [new Argument('[name]', "name, key, or the stem of the script's name")],
    takesCommand: true,
  })
    .usage('[options] [name] [--apply -- COMMAND…]')
    .option('--apply', 'print the command after -- with the configuration filled in');
  verb(program, 'diagnose', 'say why a training process failed, from its log', () => import('./verbs/diagnose.js'), {
    group: ASK,
    args: [new Argument('[file]', 'log file, or - for stdin')],
  })
    .option('--exit-code <n>', 'exit code of the process')
    .option('--signal <signal>', 'signal that ended it: 9, KILL or SIGKILL');
  verb(program, 'devices', 'show GPUs and host memory, and who holds them', () => import('./verbs/devices.js'), {
    group: ASK,
  });
  verb(program, 'doctor', 'check Redis, Python, torch, driver and limits', () => import('./verbs/doctor.js'), {
    group: ASK,
  });

  const daemon = program.command('daemon').description('the scheduler that runs submitted jobs').helpGroup(SERVE);
  const redis = program.command('redis').description('the embedded Redis').helpGroup(SERVE);
  for (const parent of [daemon, redis]) {
    addCommonOptions(parent)
      .usage('VERB [options]')
      .helpCommand(false)
      .action(() => {
        const [first] = parent.args;
        const names = parent.commands.map((sub) => sub.name()).join(', ');
        throw usageError(
          first === undefined ? `${parent.name()} needs a verb.` : `There is no verb "${parent.name()} ${first}".`,
          `Write \`oomtune ${parent.name()} VERB\`, with VERB one of ${names}.`,
        );
      })
      .allowExcessArguments(true);
  }
  const running = (command: Command) =>
    command
      .option('--cpu-lanes <n>', 'jobs at a time with --device cpu (default: 1)')
      .option('--allow-insecure-redis', 'take jobs from a Redis that others on the network can write to')
      .option('--http-port <n>', 'port of the dashboard; 0: none (default: the first free one from 8421 on)')
      .option('--http-host <address>', 'address of this machine to serve it on (default: 127.0.0.1)')
      .option('--metrics-open', "let /metrics be read without the dashboard's token");
  running(verb(daemon, 'start', 'start it in the background', () => import('./verbs/daemon-start.js')));
  verb(daemon, 'stop', 'stop it; running jobs go on', () => import('./verbs/daemon-stop.js')).option(
    '--kill',
    'end running jobs too',
  );
  verb(
    daemon,
    'forget',
    'give up a host that is down for good, and run its jobs elsewhere',
    () => import('./verbs/daemon-forget.js'),
    {
      args: [new Argument('<host>', 'its name, as `status` shows it')],
    },
  );
  verb(daemon, 'status', 'tell whether it runs', () => import('./verbs/daemon-status.js'));
  running(
    verb(
      daemon,
      'run',
      'run it in the foreground, under systemd or in a container',
      () => import('./verbs/daemon-run.js'),
    ),
  );
  verb(program, 'dashboard', "print the dashboard's address, with its token", () => import('./verbs/dashboard.js'), {
    group: SERVE,
  });
  verb(redis, 'url', 'print its URL, starting it if need be', () => import('./verbs/redis-url.js'));
  verb(redis, 'status', 'tell whether it runs', () => import('./verbs/redis-status.js'));
  verb(redis, 'stop', 'stop it', () => import('./verbs/redis-stop.js'));

  verb(program, 'completion', 'print the completion script of a shell', () => import('./verbs/completion.js'), {
    group: SERVE,
    args: [new Argument('<shell>', 'the shell').choices(['bash', 'zsh', 'fish'])],
  });
  verb(program, '__complete', 'print the words that complete jobs or names', () => import('./verbs/complete.js'), {
    hidden: true,
    args: [new Argument('<what>').choices(['jobs', 'names', 'presets'])],
  });
  program.addHelpText(
    'after',
    `
Examples:
  $ oomtune find-batch --device cpu --budget 300MiB -- python train.py
  $ oomtune run --effective-batch 256 -- python train.py --batch-size {micro_batch} --accumulation {accumulation}
  $ oomtune submit --budget 24GiB -- python train.py && oomtune wait @

Exit codes: 0 done, 2 wrong usage, 3 nothing fits, 4 the job failed for another reason than memory,
5 something needed is missing, 6 no such job, 130 interrupted; run passes the job's own code through.`,
  );
  return program;
}

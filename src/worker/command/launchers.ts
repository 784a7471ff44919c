/** How each wrapper in front of a training script reads its own options, so that the script can be found behind it. */
export interface Wrapper {
  /** Options that take no value; every other option that starts with a dash takes one, unless `valued` is given. */
  bare?: readonly string[];
  /** Options that take a value; every other option takes none. */
  valued?: readonly string[];
  /** Plain arguments of its own before the command (`timeout 60 CMD`, `taskset 0x1 CMD`). */
  arguments?: number;
  /** A word that must follow (`uv run`, `conda run`). */
  verb?: string;
  /** It takes a Python script, not a command. */
  script?: boolean;
  /** Options of a script launcher that say that a module, or an executable, follows. */
  module?: readonly string[];
  executable?: readonly string[];
  /** Options whose values multiply to the number of processes; each list holds spellings of one. */
  processes?: readonly (readonly string[])[];
  /** What the first of them counts when it is not given; absent: not to be told. */
  processesDefault?: number;
  /** Options that list devices: `localhost:0,1`. */
  deviceList?: readonly string[];
}

/** Words, written as one text. */
const words = (...lines: string[]): string[] => lines.flatMap((line) => line.split(' '));

const torchrun: Wrapper = {
  // torch.distributed.run, torch 1.9 to 2.x: everything else takes a value.
  bare: words('--standalone --use_env --use-env --run_path --run-path -h --help -m --module --no_python --no-python'),
  script: true,
  module: ['-m', '--module'],
  executable: ['--no_python', '--no-python'],
  processes: [['--nproc_per_node', '--nproc-per-node'], ['--nnodes']],
  processesDefault: 1,
};

const accelerate: Wrapper = {
  // accelerate 0.2x to 1.x, `accelerate launch --help`: the store_true options.
  bare: words(
    '--quiet -q --cpu --multi_gpu --multi-gpu --tpu --ipex --use_mps_device --use_deepspeed',
    '--use-deepspeed --use_fsdp --use-fsdp --use_parallelism_config --use_megatron_lm --use-megatron-lm',
    '--use_xpu --debug -m --module --no_python --no-python --same_network --tpu_use_cluster',
    '--no_tpu_cluster --tpu_use_sudo --enable_cpu_affinity --dynamo_use_dynamic --dynamo_use_fullgraph',
    '--dynamo_use_regional_compilation',
  ),
  verb: 'launch',
  script: true,
  module: ['-m', '--module'],
  executable: ['--no_python', '--no-python'],
  processes: [['--num_processes', '--num-processes', '-n']],
};

const deepspeed: Wrapper = {
  // DeepSpeed 0.9 to 0.1x launcher/runner.py: the store_true options.
  bare: words(
    '--module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --elastic_training',
    '--save_pid --enable_each_rank_log_off --bind_cores_to_rank --use_pdb',
  ),
  script: true,
  module: ['--module'],
  executable: ['--no_python'],
  processes: [['--num_gpus', '--num_accelerators'], ['--num_nodes']],
  deviceList: ['--include', '-i'],
};

const mpi: Wrapper = {
  bare: ['--allow-run-as-root', '--oversubscribe', '--display-map', '--tag-output', '--report-bindings', '-q', '-v'],
  processes: [['-np', '-n', '--np', '-c']],
};

export const WRAPPERS: Readonly<Record<string, Wrapper>> = {
  torchrun,
  accelerate,
  'accelerate-launch': { ...accelerate, verb: undefined },
  deepspeed,
  mpirun: mpi,
  mpiexec: mpi,
  horovodrun: { ...mpi, bare: ['--verbose', '--gloo', '--mpi', '--disable-cache'] },
  srun: {
    valued: words(
      '-n -N -c -p -A -J -t -G -w -x -D -o -e -i -q -C -d -m -W --ntasks --nodes --cpus-per-task',
      '--partition --account --job-name --time --gpus --gres --mem --nodelist --exclude --chdir --output',
      '--error --qos --constraint --ntasks-per-node --gpus-per-node --gpus-per-task',
    ),
    processes: [['-n', '--ntasks']],
  },
  nice: { valued: ['-n', '--adjustment'] },
  ionice: { valued: ['-c', '--class', '-n', '--classdata', '-p'] },
  nohup: {},
  setsid: {},
  exec: {},
  command: {},
  time: { valued: ['-f', '--format', '-o', '--output'] },
  timeout: { valued: ['-k', '--kill-after', '-s', '--signal'], arguments: 1 },
  stdbuf: { valued: ['-i', '-o', '-e', '--input', '--output', '--error'] },
  taskset: { arguments: 1 },
  chrt: { arguments: 1 },
  numactl: { valued: ['-i', '-N', '-m', '-C', '-p'] },
  prlimit: {},
  unbuffer: {},
  'xvfb-run': { valued: ['-n', '-s', '-e', '-f', '-w'] },
  catchsegv: {},
  nsys: { verb: 'profile', valued: ['-o', '-t', '-c', '-s', '-e', '-w', '-y', '-d'] },
  ncu: { valued: ['-o', '-k', '-c', '-s'] },
  uv: {
    verb: 'run',
    bare: words(
      '--isolated --active --no-sync --locked --frozen --no-project --all-extras --no-dev --offline -q',
      '--quiet -v --verbose --dev --only-dev --exact --no-editable --all-groups --all-packages -n',
      '--no-cache --no-config --refresh --reinstall -U --upgrade --no-env-file --managed-python',
      '--no-managed-python',
    ),
  },
  poetry: { verb: 'run' },
  pipenv: { verb: 'run' },
  pdm: { verb: 'run', valued: ['-p', '--project'] },
  rye: { verb: 'run' },
  hatch: { verb: 'run' },
  pixi: { verb: 'run', valued: ['-e', '--environment', '--manifest-path'] },
  conda: { verb: 'run', valued: ['-n', '--name', '-p', '--prefix', '--cwd'] },
  mamba: { verb: 'run', valued: ['-n', '--name', '-p', '--prefix', '--cwd'] },
  micromamba: { verb: 'run', valued: ['-n', '--name', '-p', '--prefix', '--cwd', '-e'] },
  kernprof: { valued: ['-o', '-s', '-u'], script: true },
};

/** Modules that launch another script: `python -m torch.distributed.run train.py`. */
export const WRAPPER_MODULES: Readonly<Record<string, Wrapper>> = {
  'torch.distributed.run': torchrun,
  'torch.distributed.launch': torchrun,
  'accelerate.commands.launch': { ...accelerate, verb: undefined },
  'accelerate.commands.accelerate_cli': accelerate,
  'deepspeed.launcher.runner': deepspeed,
  'coverage.__main__': {
    verb: 'run',
    valued: ['--rcfile', '--source', '--omit', '--include', '--data-file'],
    script: true,
  },
  coverage: { verb: 'run', valued: ['--rcfile', '--source', '--omit', '--include', '--data-file'], script: true },
  cProfile: { valued: ['-o', '-s'], script: true, module: ['-m'] },
  memory_profiler: { valued: ['-o', '--precision'], script: true },
  kernprof: { valued: ['-o', '-s', '-u'], script: true },
  debugpy: { valued: ['--listen', '--connect', '--log-to'], script: true, module: ['-m'] },
  ipdb: { valued: ['-c'], script: true, module: ['-m'] },
  pdb: { valued: ['-c'], script: true, module: ['-m'] },
};

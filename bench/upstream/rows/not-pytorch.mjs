/** Programs that are no PyTorch in Python: XLA allocates for itself, and C++ has no interpreter that a hook could start in. */
export const NOT_PYTORCH = [
  {
    name: 'flax seq2seq (JAX, Optax)',
    repository: 'google/flax',
    folder: 'examples/seq2seq',
    program: '{jax}',
    packages: ['jax', 'flax', 'optax'],
    // JAX raises for a computation that failed when its result is read, as decoding does.
    command: 'train.py --workdir=out --num_train_steps=3 --decode_frequency=1',
    logs: ['clu.metric_writers'],
    size: '--batch_size=',
    placeholders: true,
    watch: false,
    cpu: { budget: '400MiB', own: 128, args: '--hidden_size=64', cut: false },
    cuda: { budget: '8GiB', own: 128, args: '--hidden_size=1024', cut: false },
  },
  {
    name: 'examples: cpp/mnist (libtorch)',
    repository: 'pytorch/examples',
    folder: 'cpp/mnist',
    program: 'env',
    command: 'BATCH={size} ./mnist',
    // Its sizes are constants: read from the environment it can be given another without being compiled for each.
    edits: {
      'mnist.cpp': [
        ['kTrainBatchSize = 64;', 'kTrainBatchSize = std::atol(std::getenv("BATCH"));'],
        ['kNumberOfEpochs = 10;', 'kNumberOfEpochs = 1;'],
      ],
    },
    // Its CMakeLists asks for nvcc where the wheel's torch was built with CUDA.
    build:
      'T=$({python} -c "import torch; print(torch.__path__[0])") && c++ -O1 -std=c++20 mnist.cpp -I$T/include -I$T/include/torch/csrc/api/include -L$T/lib -Wl,-rpath,$T/lib -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -o mnist',
    links: { data: 'mnist#MNIST/raw' },
    size: '{size}',
    placeholders: true,
    watch: false,
    cpu: { budget: '1GiB', own: 64, cut: false },
  },
];

// A perceptron in C++: `train --batch-size N [--steps N]`. Nothing of Python is in it.
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
    long batch = 8;
    long steps = 3;
    for (int at = 1; at + 1 < argc; at += 2) (std::string(argv[at]) == "--steps" ? steps : batch) = std::atol(argv[at + 1]);
    torch::manual_seed(0);
    torch::nn::Linear first(1024, 256), last(256, 1);
    auto parameters = first->parameters();
    for (auto& one : last->parameters()) parameters.push_back(one);
    torch::optim::SGD optimizer(parameters, 1e-3);
    for (long step = 0; step < steps; ++step) {
        auto samples = torch::randn({batch, 1024});
        auto loss = torch::nn::functional::mse_loss(last(torch::relu(first(samples))), samples.sum(1, true));
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        std::cout << "step " << step << " loss " << loss.item<float>() << std::endl;
    }
}

"""PyTorch Geometric: graphs of many sizes, joined by its own loader."""
import os

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

LARGEST = 79


def graph(number):
    nodes = (20, 50, LARGEST, LARGEST)[number % 4]
    edges = torch.randint(nodes, (2, nodes * 4))
    return Data(x=torch.randn(nodes, 32), edge_index=edges, y=torch.tensor([number % 5]))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = GCNConv(32, 128), GCNConv(128, 128), nn.Linear(128, 5)

    def forward(self, data):
        hidden = self.first(data.x, data.edge_index).relu()
        hidden = self.second(hidden, data.edge_index).relu()
        return self.last(global_mean_pool(hidden, data.batch))


# An activation next to zero that rounds to the other side of it moves a small bias by more than rounding does.
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
graphs = [graph(number) for number in range(512)]
if os.environ.get("LONGEST"):
    graphs = [each for each in graphs if each.num_nodes == LARGEST]
loader = DataLoader(graphs, batch_size=int(os.environ.get("BATCH", 192)), shuffle=True)
model = Net()


@torch.no_grad()
def test(loader):
    model.eval()
    return sum(int((model(data).argmax(-1) == data.y).sum()) for data in loader) / len(loader.dataset)


optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(3):
    model.train()
    for data in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), data.y).backward()
        optimizer.step()
    if "TROUBLE" in os.environ:
        test(loader)
torch.save(model.state_dict(), "weights.pt")

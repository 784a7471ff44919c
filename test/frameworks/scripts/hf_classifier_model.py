import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification


class Reviews(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        tokens = (torch.arange(64) * (index + 3)) % 199
        return {"input_ids": tokens, "labels": index % 2}


def classifier():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )
    model = BertForSequenceClassification(config)
    for name, value in model.named_parameters():
        if name.endswith("bias"):  # zeros that only rounding would move (those of keys) are no weights to compare
            torch.nn.init.normal_(value, std=0.02)
    return model

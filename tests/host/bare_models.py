"""TorchScript files that are in no bundle: a language model without a cache, and modules."""

import warnings

import torch

from toys import VOCAB

WIDTH = 16


class Causal(torch.nn.Module):
    """Token ids [B, T] -> the logits in a dictionary, as transformers has them; `positions` tokens at most."""

    def __init__(self, positions, vocabulary):
        super().__init__()
        torch.manual_seed(3)
        self.tokens = torch.nn.Embedding(vocabulary, WIDTH)
        self.qkv, self.head = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, vocabulary)
        self.positions = torch.nn.Embedding(positions, WIDTH)  # the last, so that its size changes no other weight

    def logits(self, ids):
        place = torch.arange(ids.size(1), device=ids.device)
        x = self.tokens(ids) + self.positions(place)
        q, k, v = self.qkv(x).split(WIDTH, -1)
        scores = (q @ k.transpose(1, 2) * 0.25).masked_fill(place[None, :] > place[:, None], -torch.inf)
        return self.head(x + torch.softmax(scores, -1) @ v)

    def forward(self, ids):
        return {"logits": self.logits(ids)}


class CausalTuple(Causal):
    """The same as the first of several results."""

    def forward(self, ids):
        return self.logits(ids), ids


class CausalTensor(Causal):
    """The same alone."""

    def forward(self, ids):
        return self.logits(ids)


class FixedLength(torch.nn.Module):
    """Takes seven columns alone, as a trace does that has a length baked in."""

    def forward(self, x):
        return torch.softmax(x + torch.ones(7), -1)


class Table(torch.nn.Module):
    """Logits of each token by itself."""

    def __init__(self, table):
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, ids):
        return self.table[ids]


class Calls(torch.nn.Module):
    """One operator."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x):
        return self.operator(x)


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(str(path))


def save(module, path, *inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        torch.jit.trace(module.eval(), inputs, strict=False, check_trace=False).save(str(path))
    return path


def save_causal(path, model=Causal, positions=64, vocabulary=VOCAB):
    return save(model(positions, vocabulary), path, torch.zeros(2, 5, dtype=torch.long))

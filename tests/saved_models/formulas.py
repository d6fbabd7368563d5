"""What the operators should give, by plain formulas."""

import torch
from torch import Tensor


def flat(*tensors: Tensor) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def philox(seed, block, offset):
    """The four words of a block: Philox4x32 with seven rounds, in plain integers."""
    word = 0xFFFFFFFF
    c = [block & word, block >> 32, offset & word, offset >> 32]
    k = [seed & word, seed >> 32]
    for _ in range(7):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & word, (p0 >> 32) ^ c[3] ^ k[1], p0 & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


def plain_factors(shape, p, rng):
    """What each element is multiplied by: 0 where its number of 32 bits is below p * 2^32."""
    seed, offset = rng.tolist()
    factors = torch.empty(shape, dtype=torch.float64)
    for i in range(factors.numel()):
        words = philox(seed, i // 8, offset)
        own = words[i % 8 // 2] >> (i % 2 * 16) >> 1 & 0x7FFF
        of_block = (sum(words) & 0xFFFFFFFF) >> 15
        dropped = (own << 17 | of_block) < round(p * 2**32)
        factors.view(-1)[i] = 0.0 if dropped else 1 / (1 - p)
    return factors


def row_statistics(x):
    """Maximum and log(sum(exp(x - maximum))) of each row."""
    top = x.amax(-1, True)
    return torch.cat([top, (x - top).exp().sum(-1, True).log()], -1).view(-1, 2)


def plain_softmax(x: Tensor, dim: int) -> Tensor:
    exponentials = (x - x.amax(dim, True)).exp()
    return exponentials / exponentials.sum(dim, True)


def hidden_softmax(logits: Tensor, seen: Tensor) -> Tensor:
    exponentials = (logits - logits.amax(-1, True)).exp() * seen
    return exponentials / exponentials.sum(-1, True).clamp(min=1e-30)

"""Models of the operators of decode steps."""

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from formulas import flat


class LinearInputs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("input", torch.randn(2, 3, 16))
        self.register_buffer("norm_weight", torch.randn(16))
        self.register_buffer("norm_bias", torch.randn(16))
        self.register_buffer("weight", torch.randn(24, 16))
        self.register_buffer("bias", torch.randn(24))
        self.register_buffer("residual", torch.randn(2, 3, 24))
        self.x = self.input.double()
        self.normalised = layer_norm(
            self.x, (16,), self.norm_weight.double(), self.norm_bias.double(), 1e-3
        )
        mean_square = self.x.square().mean(-1, keepdim=True)
        self.rms = self.x * (mean_square + 1e-5).rsqrt() * self.norm_weight.double()

    def product(self, x):
        return x @ self.weight.double().t()


class NormLinear(LinearInputs):
    def __init__(self):
        super().__init__()
        layer = self.product(self.normalised) + self.bias.double()
        results = (gelu(layer), gelu(layer, approximate="tanh"), self.product(self.rms))
        self.register_buffer("expected", flat(*results))
        del self.x, self.normalised, self.rms

    def forward(self) -> Tensor:
        results = [
            torch.ops.warpfuse.norm_linear(
                self.input, self.norm_weight, self.norm_bias, self.weight, self.bias, "layer",
                1e-3, activation,
            )
            for activation in ["gelu", "gelu_tanh"]
        ]
        rms = torch.ops.warpfuse.norm_linear(
            self.input, self.norm_weight, None, self.weight, None, "rms"
        )
        return torch.cat([results[0].flatten(), results[1].flatten(), rms.flatten()]).double()


class LinearResidual(LinearInputs):
    def __init__(self):
        super().__init__()
        product = self.product(self.x) + self.residual.double()
        self.register_buffer("expected", flat(product + self.bias.double(), product))
        del self.x, self.normalised, self.rms

    def forward(self) -> Tensor:
        with_bias = torch.ops.warpfuse.linear_residual(
            self.input, self.weight, self.bias, self.residual
        )
        without = torch.ops.warpfuse.linear_residual(self.input, self.weight, None, self.residual)
        return torch.cat([with_bias.flatten(), without.flatten()]).double()


class LinearArgmax(LinearInputs):
    def __init__(self):
        super().__init__()
        outputs = (
            self.product(self.x),
            self.product(self.normalised) + self.bias.double(),
            self.product(self.rms),
        )
        self.register_buffer("expected", flat(*(output.argmax(-1).double() for output in outputs)))
        del self.x, self.normalised, self.rms

    def forward(self) -> Tensor:
        plain = torch.ops.warpfuse.linear_argmax(self.input, self.weight)
        layer = torch.ops.warpfuse.linear_argmax(
            self.input, self.weight, self.bias, self.norm_weight, self.norm_bias, "layer", 1e-3
        )
        rms = torch.ops.warpfuse.linear_argmax(
            self.input, self.weight, None, self.norm_weight, None, "rms"
        )
        return torch.cat([plain.flatten(), layer.flatten(), rms.flatten()]).double()


class CachedAttentionSoftmax(torch.nn.Module):
    """Two tokens per sequence, in a window and without one; four heads share two of the cache."""

    def __init__(self):
        super().__init__()
        self.register_buffer("query", torch.randn(2, 4, 2, 8))
        self.register_buffer("key", torch.randn(2, 2, 2, 8))
        self.register_buffer("value", torch.randn(2, 2, 2, 8))
        self.register_buffer("cache", torch.randn(2, 2, 2, 2, 6, 8))
        self.register_buffer("positions", torch.tensor([[3, 4], [0, 1]]))
        results = [self.attended(window) for window in (0, 2)]
        self.register_buffer("expected", flat(results[0], results[1], self.written()))

    def written(self):
        cache = self.cache.double()
        for batch in range(2):
            cache[1, 0, batch, :, self.positions[batch]] = self.key[batch].double()
            cache[1, 1, batch, :, self.positions[batch]] = self.value[batch].double()
        return cache

    def attended(self, window: int):
        keys, values = self.written()[1].repeat_interleave(2, dim=2)
        scores = 0.25 * self.query.double() @ keys.transpose(-1, -2)
        distance = self.positions[:, None, :, None] - torch.arange(6)
        hidden = (distance < 0) | ((distance >= window) if window > 0 else torch.tensor(False))
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values

    def forward(self) -> Tensor:
        cache = self.cache.clone()
        ops = torch.ops.warpfuse
        all_slots = ops.cached_attention_softmax(
            self.query, self.key, self.value, cache, 1, self.positions, 0.25
        )
        window = ops.cached_attention_softmax(
            self.query, self.key, self.value, cache, 1, self.positions, 0.25, 2
        )
        return torch.cat([all_slots.flatten(), window.flatten(), cache.flatten()]).double()


class Gpt2Step(torch.nn.Module):
    """Two layers and two sequences; the expected keys, values and tokens are in float64."""

    def __init__(self):
        super().__init__()
        shapes = [(8,), (8,), (24, 8), (24,), (8, 8), (8,), (8,), (8,), (16, 8), (16,), (8, 16), (8,)]
        for index, shape in enumerate(2 * shapes):
            self.register_buffer(f"layer_{index}", torch.randn(shape))
        self.register_buffer("ids", torch.tensor([[3], [0]]))
        self.register_buffer("positions", torch.tensor([[2], [4]]))
        self.register_buffer("cache", torch.randn(2, 2, 2, 2, 6, 4))
        self.register_buffer("tokens", torch.randn(7, 8))
        self.register_buffer("places", torch.randn(6, 8))
        self.register_buffer("norm_weight", torch.randn(8))
        self.register_buffer("norm_bias", torch.randn(8))
        self.register_buffer("expected", self.result())

    def result(self):
        weights = [getattr(self, f"layer_{index}").double() for index in range(24)]
        cache = self.cache.double()
        x = self.tokens[self.ids[:, 0]].double() + self.places[self.positions[:, 0]].double()

        def norm(x, weight, bias):
            return layer_norm(x, (8,), weight.double(), bias.double(), 1e-5)

        for layer in range(2):
            w = weights[12 * layer : 12 * layer + 12]
            query, key, value = (
                (norm(x, w[0], w[1]) @ w[2].t() + w[3]).view(2, 2, 3, 4).unbind(2)
            )
            mixed = []
            for row, position in enumerate(self.positions[:, 0].tolist()):
                cache[layer, 0, row, :, position] = key[row]
                cache[layer, 1, row, :, position] = value[row]
                keys, values = cache[layer, :, row, :, : position + 1]
                scores = 0.5 * query[row].unsqueeze(1) @ keys.transpose(1, 2)
                mixed.append((scores.softmax(-1) @ values).flatten())
            x = x + torch.stack(mixed) @ w[4].t() + w[5]
            inner = gelu(norm(x, w[6], w[7]) @ w[8].t() + w[9], approximate="tanh")
            x = x + inner @ w[10].t() + w[11]
        logits = norm(x, self.norm_weight, self.norm_bias) @ self.tokens.double().t()
        return flat(logits.argmax(-1).double(), cache)

    def forward(self) -> Tensor:
        cache = self.cache.clone()
        layers = [
            self.layer_0, self.layer_1, self.layer_2, self.layer_3, self.layer_4, self.layer_5,
            self.layer_6, self.layer_7, self.layer_8, self.layer_9, self.layer_10, self.layer_11,
            self.layer_12, self.layer_13, self.layer_14, self.layer_15, self.layer_16,
            self.layer_17, self.layer_18, self.layer_19, self.layer_20, self.layer_21,
            self.layer_22, self.layer_23,
        ]
        next = torch.ops.warpfuse.gpt2_step(
            self.ids, self.positions, cache, self.tokens, self.places, layers, self.norm_weight,
            self.norm_bias, self.tokens, 0.5,
        )
        return torch.cat([next.flatten().double(), cache.flatten().double()])

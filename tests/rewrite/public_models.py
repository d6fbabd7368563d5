"""Models of public classes with random weights, and attention as public code writes it by hand, for
test_models.py."""

import torch
import transformers
from torch import Tensor, nn

VOCABULARY = 96


class OneResult(nn.Module):
    """A model of transformers with positional arguments and one tensor as its result."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], result: str) -> None:
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, *arguments: Tensor) -> Tensor:
        """One field of the model's result."""
        return getattr(self.model(**dict(zip(self.names, arguments, strict=True))), self.result)


class OwnAttention(nn.Module):
    """A layer of attention whose mask is applied by `apply`, behind an embedding."""

    def __init__(self, apply: object) -> None:
        super().__init__()
        self.embedding, self.qkv = nn.Embedding(VOCABULARY, 32), nn.Linear(32, 96)
        self.register_buffer("bias", torch.ones(64, 64, dtype=torch.bool).tril()[None, None])
        self.apply_mask = apply

    def forward(self, ids: Tensor, *padding: Tensor) -> Tensor:
        """[B, T] -> [B, T, 32]; padding [B, T] is 0 where a key is one."""
        x = self.embedding(ids)
        q, k, v = self.qkv(x).view(x.size(0), x.size(1), 4, 24).transpose(1, 2).split(8, -1)
        weights = self.apply_mask(self, torch.matmul(q, k.transpose(2, 3)), *padding).softmax(-1)
        return torch.matmul(weights, v).transpose(1, 2).reshape(x.size(0), x.size(1), 32)


class ShiftedWindows(nn.Module):
    """Attention of windows of 4 x 4 that are shifted by 2, as Swin of transformers 4 has it: its mask is
    made by the call, or kept."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.qkv, self.table = nn.Linear(16, 48), nn.Parameter(torch.randn(49, 2))
        self.register_buffer("index", torch.randint(0, 49, (16, 16)))
        self.register_buffer("kept", self.mask(8, 8) if keep else None)

    def windows(self, x: Tensor) -> Tensor:
        """[B, H, W, C] -> [B * windows, 16, C]."""
        x = x.view(x.size(0), x.size(1) // 4, 4, x.size(2) // 4, 4, x.size(3))
        return x.transpose(2, 3).reshape(-1, 16, x.size(-1))

    def mask(self, height: int, width: int) -> Tensor:
        """[windows, 16, 16] of 0 and -100."""
        regions = torch.zeros(1, height, width, 1, dtype=torch.float32)
        for i, rows in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
            for j, columns in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
                regions[:, rows, columns, :] = 3 * i + j
        regions = self.windows(regions).view(-1, 16)
        mask = regions.unsqueeze(1) - regions.unsqueeze(2)
        return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, W, 16] -> [B * windows, 16, 16]."""
        mask = self.mask(x.size(1), x.size(2)) if self.kept is None else self.kept
        x = self.windows(torch.roll(x, (-2, -2), (1, 2)))
        q, k, v = self.qkv(x).reshape(x.size(0), 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q * 8**-0.5, k.transpose(2, 3))
        scores = scores + self.table[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1).unsqueeze(0)
        windows = mask.size(0)
        scores = scores.view(x.size(0) // windows, windows, 2, 16, 16) + mask.unsqueeze(1).unsqueeze(0)
        weights = scores.view(-1, 2, 16, 16).softmax(-1)
        return torch.matmul(weights, v).transpose(1, 2).reshape(-1, 16, 16)


def dialect_of_transformers_4(module: OwnAttention, scores: Tensor, *padding: Tensor) -> Tensor:
    scores, lowest = scores / torch.full([], 8**0.5), torch.finfo(scores.dtype).min
    rows, keys = scores.size(-2), scores.size(-1)
    visible = module.bias[:, :, keys - rows : keys, :keys]
    scores = torch.where(visible, scores, torch.full([], lowest))
    for mask in padding:
        scores = scores + (1.0 - mask[:, None, None, :].to(scores.dtype)) * lowest
    return scores


def dialect_of_megatron(module: OwnAttention, scores: Tensor, *padding: Tensor) -> Tensor:
    hidden = module.bias[:, :, : scores.size(2), : scores.size(3)].logical_not()
    for mask in padding:
        hidden = hidden | (mask[:, None, None, :] < 0.5)
    return (scores * 0.125).masked_fill(hidden, -10000.0)


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, length))


def mask(batch: int, length: int, left: bool) -> Tensor:
    """Row i has i places of padding; the last row has nothing else, if it is on the left."""
    result = torch.ones(batch, length, dtype=torch.long)
    for row in range(1, batch):
        size = min(length if left and row == batch - 1 else row, length)
        result[row, slice(0, size) if left else slice(length - size, length)] = 0
    return result


def gpt2(*names: str, attention: str = "eager") -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False
    )
    config._attn_implementation = attention
    return OneResult(transformers.GPT2LMHeadModel(config), names, "logits")


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return OneResult(
        transformers.BertModel(config), ("input_ids", "attention_mask"), "last_hidden_state"
    )


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config)
    return OneResult(model, ("input_ids", "decoder_input_ids"), "logits")


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        image_size=32, patch_size=8, attn_implementation="eager",
    )  # fmt: skip
    return OneResult(transformers.ViTModel(config), ("pixel_values",), "last_hidden_state")


def swin() -> nn.Module:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        attn_implementation="eager",
    )  # fmt: skip
    return OneResult(transformers.SwinModel(config), ("pixel_values",), "last_hidden_state")

"""Writes a tiny TorchScript model for each operator of the plugin that has none here yet.

    python make.py .../libwarpfuse.so [FOLDER]

A model that is here stays as it is: each must load and run with every later version of the plugin,
so it is never made anew. `forward()` takes nothing and calls the operator on tensors kept in the
file, those of tests/python/samples.py; `expected`, float64, is what it gave on that day. The models
of the first operators were written from plain formulas instead.
"""

import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

from samples import OTHER_OPERATORS, TENSOR_OPERATORS


def flat(result):
    """All tensors of a result in one, float64."""
    if isinstance(result, torch.Tensor):
        return result.flatten().double()
    return torch.cat([flat(part) for part in result or () if part is not None] or [torch.zeros(0).double()])


class Calls(torch.nn.Module):
    """One call for each sample, whose tensors are buffers."""

    def __init__(self, op, samples):
        super().__init__()
        self.op = op
        self.writes = any(argument.alias_info and argument.alias_info.is_write for argument in op._schema.arguments)
        self.calls = [([self.kept(value) for value in sample.args], {name: self.kept(value) for name, value in sample.kwargs.items()}) for sample in samples]  # fmt: skip

    def kept(self, value):
        """What gives the value: a tensor is a buffer, also in a list."""
        if isinstance(value, list):
            parts = [self.kept(part) for part in value]
            return lambda: [part() for part in parts]
        if not isinstance(value, torch.Tensor):
            return lambda: value
        name = f"tensor_{len(self._buffers)}"
        self.register_buffer(name, value.clone())
        return lambda: getattr(self, name).clone() if self.writes else getattr(self, name)

    def forward(self):
        results = []
        for arguments, named in self.calls:
            values = [value() for value in arguments]
            results.append(flat(self.op(*values, **{name: value() for name, value in named.items()})))
            if self.writes:
                results.append(flat([value for value in values if isinstance(value, torch.Tensor)]))
        return torch.cat(results)


def model_of(name):
    op = getattr(torch.ops.warpfuse, name).default
    if name in OTHER_OPERATORS:
        arguments, result = OTHER_OPERATORS[name]
        call = f"torch.ops.warpfuse.{name}({', '.join(map(repr, arguments))})".replace("'", '"')
        model = torch.jit.script(type(f"Calls_{name}", (torch.nn.Module,), {})())
        model.define(f"def forward(self):\n  x = {call}\n  return {'x' if result in (str, int) else '0'}\n")
        return model
    torch.manual_seed(11)
    calls = Calls(op, TENSOR_OPERATORS[name]())
    expected = calls()
    if not torch.equal(calls(), expected):
        sys.exit(f"{name}: a sample draws random numbers")
    calls.register_buffer("expected", expected)
    return torch.jit.trace(calls.eval(), (), check_trace=False)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: make.py LIBWARPFUSE.SO [FOLDER]")
    torch.ops.load_library(sys.argv[1])
    warnings.simplefilter("ignore")  # torch.jit is deprecated
    for name in (*TENSOR_OPERATORS, *OTHER_OPERATORS):
        path = Path(sys.argv[2] if sys.argv[2:] else HERE) / f"{name}.pt"
        if not path.exists():
            model_of(name).save(str(path))
            print(path)


if __name__ == "__main__":
    main()

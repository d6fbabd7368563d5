"""Models of the operators that tell of the plugin and its calls."""

import torch


class BuildInfo(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.build_info()


class DeviceInfo(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.device_info()


class CallCount(torch.nn.Module):
    def forward(self) -> int:
        return torch.ops.warpfuse.call_count("softmax.cpu")


class CallCounts(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.call_counts()


class ResetCallCounts(torch.nn.Module):
    def forward(self) -> int:
        torch.ops.warpfuse.reset_call_counts()
        return torch.ops.warpfuse.call_count("softmax.cpu")


class Tuning(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse.tuning()


class SetTuning(torch.nn.Module):
    def forward(self) -> str:
        torch.ops.warpfuse._set_tuning(torch.ops.warpfuse.tuning())
        return torch.ops.warpfuse.tuning()


class Launches(torch.nn.Module):
    def forward(self) -> str:
        return torch.ops.warpfuse._launches()


class RecordLaunches(torch.nn.Module):
    def forward(self) -> str:
        torch.ops.warpfuse._record_launches(True)
        torch.ops.warpfuse._record_launches(False)
        return torch.ops.warpfuse._launches()

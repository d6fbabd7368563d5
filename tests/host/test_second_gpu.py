"""The host program on the second GPU takes no memory of the first, and `info` none of any."""

import os
import re
import subprocess

from host_program import HostTestCase, main, run_with_plugin

LITTLE = 100  # MiB; a context takes several times as much

os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts


def memory_of_gpus_during(call):
    """MiB that each GPU had in use at most while `call` ran, beyond what it had before, and the call's
    result."""
    sampler = subprocess.Popen(
        ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits", "-lms", "50"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        first_line = sampler.stdout.readline()
        result = call()
    finally:
        sampler.terminate()
    used = {}
    for index, mib in re.findall(r"^(\d+), (\d+)$", first_line + sampler.communicate()[0], re.MULTILINE):
        used.setdefault(int(index), []).append(int(mib))
    return {index: max(samples) - samples[0] for index, samples in used.items()}, result


class OnTheSecondGpu(HostTestCase):
    def test_info_takes_no_memory(self):
        grown, result = memory_of_gpus_during(lambda: run_with_plugin("info", "--json"))
        self.assert_ok(result)
        for index, mib in grown.items():
            self.assertLess(mib, LITTLE, f"GPU {index}")

    def test_the_first_gpu_stays_as_it_was(self):
        from cli_bundles import baseline, fused, generate

        for name, call in {
            "generate": lambda: generate(fused, "--device", "cuda:1"),
            "verify": lambda: run_with_plugin("verify", fused, baseline, "--device", "cuda:1"),
            "bench": lambda: run_with_plugin("bench", "softmax", "--quick", "--shapes", "64x1024", "--device", "cuda:1"),
        }.items():
            with self.subTest(name):
                grown, result = memory_of_gpus_during(call)
                self.assert_ok(result)
                self.assertLess(grown[0], LITTLE)
                self.assertGreater(grown[1], LITTLE)


if __name__ == "__main__":
    main(gpus=2)

"""Writes the C++ examples of the documents as a file for main.cpp: what they include first, then a function each, all of
which run_examples() calls but those that open files.

    examples.py OUTPUT.inc DOCUMENT.md...
"""

import pathlib
import re
import sys


def main(output, *documents):
    examples = [
        example
        for document in documents
        for example in re.findall(r"```cpp\n(.*?)```", pathlib.Path(document).read_text(), re.S)
    ]
    if len(examples) < len(documents):
        sys.exit(f"{len(examples)} examples in {len(documents)} documents")
    includes, functions, calls = [], [], []
    for number, example in enumerate(examples):
        lines = example.splitlines()
        includes += [line for line in lines if line.startswith("#include")]
        body = "\n".join(f"  {line}" for line in lines if not line.startswith("#include"))
        functions.append(f"void example_{number}() {{\n{body}\n}}\n")
        if "dlopen" not in body:
            calls.append(f"  example_{number}();")
        if "at::" in body and not re.search(r"#include <(ATen/ATen|torch/script)\.h>", example):
            sys.exit(f"no ATen header in an example that needs it:\n{example}")
    pathlib.Path(output).write_text("\n".join([*dict.fromkeys(includes), *functions, "void run_examples() {", *calls, "}\n"]))


if __name__ == "__main__":
    main(*sys.argv[1:])

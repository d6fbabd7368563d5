"""Writing a bundle folder: whole, or not at all."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from errors import UsageError

FORMAT = 2
SCHEMA_VERSION = 1


def describe(
    model: str, kind: str, variant: str, dtype: str, operators: list[str], details: dict[str, Any]
) -> dict[str, Any]:
    """The content of bundle.json, but for the checksums."""
    return {
        "format": FORMAT,
        "kind": kind,
        "model": model,
        "variant": variant,
        "dtype": dtype,
        **details,
        "schema_version": SCHEMA_VERSION,
        "operators": operators,
        "torch": torch.__version__.split("+")[0],
    }


def write_bundle(
    folder: Path, model_pt: bytes, description: dict[str, Any], files: dict[str, bytes]
) -> None:
    """Write model.pt, bundle.json and files into folder, replacing what was there in one step."""
    description = {**description, "sha256": {"model.pt": hashlib.sha256(model_pt).hexdigest()}}
    contents = {
        "model.pt": model_pt,
        **files,
        "bundle.json": (json.dumps(description, indent=2) + "\n").encode(),
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            fresh = scratch / "new"
            fresh.mkdir()
            for name, data in contents.items():
                (fresh / name).write_bytes(data)
            if folder.exists():
                folder.rename(scratch / "old")
            fresh.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from error

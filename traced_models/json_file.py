"""Reading the JSON files of a model folder."""

import json
from pathlib import Path
from typing import Any

from errors import ModelError


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a ModelError when there is none."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path}: no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: expected a JSON object, got {type(raw).__name__}")
    return raw

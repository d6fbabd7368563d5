"""Reading JSON objects field by field, with errors that name the place."""

import json
from pathlib import Path
from typing import Any

from .errors import ReportError

TYPES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "an array",
}
REQUIRED = object()


class Fields:
    """A JSON object, and where it stands."""

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, dict):
            raise ReportError(f"{where}: expected an object")
        self.raw = raw
        self.where = where

    def get(self, name: str, kind: type, default: Any = REQUIRED) -> Any:
        """The field `name`; integers pass as numbers, and true is no integer."""
        value = self.raw.get(name)
        if value is None:
            if default is REQUIRED:
                raise ReportError(f"{self.where}: {name} is missing")
            return default
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise ReportError(f"{self.where}: {name}: expected {TYPES[kind]}, got {value!r:.40}")
        return float(value) if kind is float else value

    def positive(self, name: str, default: Any = REQUIRED) -> Any:
        """A number above 0."""
        value = self.get(name, float, default)
        if value is not default and not 0 < value < float("inf"):
            raise ReportError(f"{self.where}: {name}: expected a number above 0, got {value}")
        return value

    def object(self, name: str, default: Any = REQUIRED) -> "Fields":
        """The object in the field `name`."""
        return Fields(self.get(name, dict, default), f"{self.where}: {name}")

    def objects(self, name: str, default: Any = REQUIRED) -> list["Fields"]:
        """The objects in the array `name`."""
        values = self.get(name, list, default)
        return [Fields(v, f"{self.where}: {name}[{i}]") for i, v in enumerate(values)]

    def texts(self, name: str) -> dict[str, str]:
        """The strings, and numbers as text, of the object `name`; empty if there is none."""
        raw = self.get(name, dict, {})
        return {
            key: str(value) for key, value in raw.items() if isinstance(value, (str, int, float))
        }


def read_json(path: Path, expected_format: str) -> Fields:
    """The object of a JSON file whose field "format" must be `expected_format`."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    except ValueError as error:
        raise ReportError(f"{path}: no JSON: {error}") from error
    fields = Fields(raw, str(path))
    found = fields.get("format", str, "none")
    if found != expected_format:
        raise ReportError(f"{path}: format: expected {expected_format}, got {found}")
    return fields

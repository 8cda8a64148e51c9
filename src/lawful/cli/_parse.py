"""Turns command lines and config files into typed config objects; one clear line on any error."""

import contextlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lawful.errors import InputError

T = TypeVar("T")


def parse(cls: type[T], args: Sequence[str], *, prog: str, description: str, default: Any) -> T:
    """Parses ``args`` into the dataclass ``cls``; ``--help`` prints and exits with 0.

    Raises:
        InputError: Unknown option, wrong type or impossible value, in one line.
    """
    import tyro

    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            got: T = tyro.cli(cls, args=args, prog=prog, description=description, default=default)
            return got
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise InputError(_one_line(printed.getvalue())) from None


def _one_line(box: str) -> str:
    """The message inside tyro's frame, with its suggestion, as a single line.

    The frame is drawn with box characters, or with dashes and blanks where the terminal's encoding
    has none: its first line is a title, rules divide it into parts, the first is the message.
    """
    parts: list[list[str]] = [[]]
    for line in (x.strip("│╭╮╰╯| \t") for x in box.strip().splitlines()[1:]):
        if line and set(line) <= {"─", "-"}:
            parts.append([])
        elif line:
            parts[-1].append(line)
    parts = [p for p in parts if p] or [[box.strip()]]
    message = " ".join(parts[0])
    # An error of a whole config object is told by the object's own words, which name the field.
    message = re.sub(r"^Error parsing [a-z_]+: (?=[a-z_]+: )", "", message)
    for part in parts[1:]:
        if part and part[0].startswith("Perhaps you meant"):
            options = [x.split()[0] for x in part[1:] if x.startswith("--")]
            message += f"; did you mean {' or '.join(options[:3])}?"
        elif part and part[0].startswith("Argument helptext") and len(part) > 1:
            message += f"; allowed: {part[1]}"
    return message


def as_arguments(settings: Mapping[str, Any], source: Path) -> list[str]:
    """Command-line arguments that say the same as a mapping from a config file or run folder.

    Raises:
        InputError: A value that no option can take (nested mappings).
    """
    args: list[str] = []
    for key, value in settings.items():
        flag = str(key).replace("_", "-")
        if isinstance(value, Mapping):
            raise InputError(f"config: {source}: {key} must be a plain value, not a mapping")
        if isinstance(value, bool):
            args.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | tuple):
            args.extend([f"--{flag}", *map(str, value)])
        else:
            args.extend([f"--{flag}", str(value)])
    return args


def read_config(path: Path) -> dict[str, Any]:
    """A YAML or JSON file of settings, by its ending.

    Raises:
        InputError: Missing, unreadable, or not a mapping of names to values.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"config: cannot read {path}: {error}") from None
    try:
        value = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"config: {path} is not valid: {reason}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"config: {path} must map names to values, got {type(value).__name__}")
    return value

"""Text files that are read line by line."""

from pathlib import Path

from lawful.errors import InputError, expected


def text_lines(path: Path, what: str) -> list[tuple[int, str]]:
    """The lines of a UTF-8 file that are not blank, without outer spaces, with their numbers.

    Args:
        path: The file.
        what: What the lines should be, in the plural; for the errors.

    Raises:
        InputError: The file cannot be read as text, or has only blank lines.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a text file of {what}, got {error}") from error
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise expected(str(path), f"lines of {what}", "an empty file")
    return lines

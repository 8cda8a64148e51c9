"""The command line: exit code 0 success, 1 a failure of ours, 2 bad usage or input, 130 Ctrl-C."""

import importlib
import sys
from collections.abc import Sequence

from lawful.errors import InputError, TrainingDivergedError, unknown

# name -> (module, function, one line of help); imported only when called
_COMMANDS = {
    "tasks": ("_inspect", "tasks", "list what can be trained, with the data each task wants"),
    "train": ("_train", "train", "train a model on a task into a run folder"),
    "evaluate": ("_inspect", "evaluate", "measure a run's best model again"),
    "predict": ("_inspect", "predict", "predict for your own input"),
    "reproduce": ("_reproduce", "reproduce", "make a paper's table again, ours beside theirs"),
    "check": ("_inspect", "check", "measure every law of a run's layers"),
    "report": ("_inspect", "report", "make a run's page again, or compare runs"),
    "doctor": ("_inspect", "doctor", "tell which kernels and optional parts are live"),
}


def _usage() -> str:
    lines = "\n".join(f"  {name:<11}{text}" for name, (_, _, text) in _COMMANDS.items())
    return (
        "usage: lawful COMMAND ...\n\n"
        "Attention, memory and recurrent layers that keep a law.\n\n"
        f"commands:\n{lines}\n\n`lawful COMMAND --help` tells more."
    )


def run(args: Sequence[str]) -> int:
    """Runs one command and returns its exit code; bad input raises `InputError`."""
    if not args or args[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    if args[0] == "--version":
        from lawful import __version__

        print(f"lawful {__version__}")
        return 0
    name = args[0]
    if name not in _COMMANDS:
        raise unknown("command", list(_COMMANDS), name, "see `lawful --help`")
    module, function, _ = _COMMANDS[name]
    command = getattr(importlib.import_module(f"lawful.cli.{module}"), function)
    return int(command(args[1:]))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the ``lawful`` script."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return run(args)
    except InputError as error:
        print(f"lawful: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "lawful":
            raise
        print(
            f"lawful: {error.name} is not installed; pip install 'lawful[train]'", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("lawful: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except TrainingDivergedError as error:
        print(f"lawful: {error}", file=sys.stderr)
        return 1

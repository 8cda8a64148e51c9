"""``python -m lawful.kernels build [--portable]`` compiles; ``status`` tells what is live."""

import argparse
import sys
from pathlib import Path

from lawful.kernels import native_status
from lawful.kernels._build import BuildError, build


def main() -> int:
    """Entry point; returns the exit code (1 when a build was asked for and failed)."""
    parser = argparse.ArgumentParser(prog="python -m lawful.kernels", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="compile the native kernels")
    building.add_argument("--portable", action="store_true", help="no machine-specific code")
    commands.add_parser("status", help="say which kernels are live")
    options = parser.parse_args()
    if options.command == "status":
        print(native_status().describe())
        return 0
    try:
        print(build(Path(__file__).parent / "_lib", native=not options.portable))
    except BuildError as error:
        print(f"not built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m lawful.cli``: for launchers such as torchrun."""

import sys

from lawful.cli import main

sys.exit(main())

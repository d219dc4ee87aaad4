"""Where the `rankscope` command begins: an interrupt while it still loads is one line, too."""

import sys


def main() -> int:
    """Run the command that the arguments ask for, and return its exit code."""
    try:
        from rankscope.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("rankscope: interrupted\n")
        return 130

"""What every command-line program in scripts/ shares: logging, and one clear line for an expected failure."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable


def run(main: Callable[[], None]) -> None:
    """Runs a program; ValueError and OSError become one `error:` line and exit status 1."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S", stream=sys.stderr
    )
    # One line a request is noise in a job's log.
    for name in ("httpx", "sentence_transformers"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        main()
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)

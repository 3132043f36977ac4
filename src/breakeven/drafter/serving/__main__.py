"""`python -m breakeven.drafter.serving`: one clear line and an exit code for what goes wrong, no traceback for mistakes of use."""

from __future__ import annotations

import logging
import sys
import time

STARTED_S = time.monotonic()

from breakeven.drafter.serving.options import parse_flags  # noqa: E402 - the clock starts before the imports
from breakeven.errors import BreakevenError  # noqa: E402

# An engine that fails for a reason of its own: the code of EngineError.
UNEXPECTED = 3


def main() -> int:
    """Run the server; the exit code is 0 after a signal, 2 for bad input, 3 when the server could not run."""
    logging.basicConfig(format="%(levelname)s %(asctime)s %(message)s", datefmt="%m-%d %H:%M:%S", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        options = parse_flags(sys.argv[1:])
        from breakeven.drafter.serving.server import serve

        serve(options, STARTED_S)
    except BreakevenError as error:
        sys.stderr.write(f"breakeven: {error}\n")
        return error.exit_code
    except ModuleNotFoundError as error:
        sys.stderr.write(f"breakeven: the embedded engine needs {error.name}: pip install 'breakeven[train]'\n")
        return UNEXPECTED
    except KeyboardInterrupt:  # before the server took over the signal
        return 0
    except Exception:
        logging.getLogger(__name__).exception("The server failed")
        return UNEXPECTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

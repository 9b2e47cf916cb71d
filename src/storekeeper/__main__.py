"""The `storekeeper` command, also as `python -m storekeeper`. May import the command line only."""

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    # What a start imports stays: to search it for garbage again and again would take a fifth of the time.
    gc.set_threshold(50_000, 20, 50)
    try:
        from storekeeper.cli import main

        main()
    except (OSError, ImportError) as error:  # the process may not be able to open the files of its own program
        print(f"storekeeper: cannot start: {error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError:
        print(
            "storekeeper: cannot go on: there is not enough memory, or ulimit -v permits too little", file=sys.stderr
        )
        sys.exit(os.EX_IOERR)
    except KeyboardInterrupt:  # as `main` ends of it
        sys.exit(130)
    finally:
        # Another Ctrl-C ends the process at once, and in no traceback of what Python still does.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()

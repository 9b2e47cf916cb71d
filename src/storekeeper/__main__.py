"""The `storekeeper` command, also as `python -m storekeeper`."""

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    # A fifth of a start would be garbage collections, which find nothing among the imports.
    gc.set_threshold(50_000, 20, 50)
    try:
        from storekeeper.cli import main

        main()
    except (OSError, ImportError) as error:  # perhaps the process may open no more files
        print(f"storekeeper: cannot start: {error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError:
        print("storekeeper: out of memory, or ulimit -v permits too little", file=sys.stderr)
        sys.exit(os.EX_IOERR)
    except KeyboardInterrupt:  # as in `cli.main`
        sys.exit(130)
    finally:
        # Another Ctrl-C ends the process at once, without a traceback.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()

"""The `storekeeper` command, also as `python -m storekeeper`. May import the command line only."""

import gc


def main() -> None:
    """Run the command line."""
    # What a start imports stays: to look through it for garbage again and again is a fifth of the time it takes.
    gc.set_threshold(50_000, 20, 50)
    from storekeeper.cli import main  # noqa: PLC0415 - the reason for the line above

    main()


if __name__ == "__main__":
    main()

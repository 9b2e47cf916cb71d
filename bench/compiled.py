"""What our modules would save if mypyc compiled them, without socket and kernel; imports short_way and systems.

They are the modules of the short way, but for two with asynchronous generators, which mypyc does not take. A copy of
them is compiled (a minute or two, with a C compiler); `bench.short_way` then compares this checkout to it.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from bench import short_way
from bench.systems import DATA, ROOT, call

MODULES = (
    *("collection", "stores", "sqlite/read_transaction", "sqlite/reads"),
    *("http/connection", "http/exchange", "http/generations", "http/limits"),
    *("http/plain", "http/reader", "http/request", "http/response"),
    *("api/asgi", "api/conditions", "api/fastlane", "api/gate"),
    *("api/operations", "api/plan", "api/query", "api/routes"),
)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        source = shutil.copytree(ROOT / "src", Path(folder) / "src")
        files = [f"storekeeper/{name}.py" for name in MODULES]
        call(Path(sys.executable).with_name("mypyc"), *files, cwd=source)
        sys.stdout.write(f"as it is | with {len(MODULES)} modules compiled\n")
        return short_way.compare([ROOT, Path(folder)])


if __name__ == "__main__":
    sys.exit(main())

"""A process that tests have forked is one as a user starts it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.forked import forked

SAYS = """
import json, os, signal, sys
print(json.dumps([
    sys.argv, sys.path[0], __name__, __file__, os.getcwd(), {**os.environ}, sys.stdin.read(),
    os.getsid(0) == os.getpid(),
    sorted(os.listdir("/proc/self/fd")), [str(signal.getsignal(number)) for number in signal.valid_signals()],
]))
print("told", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing is forked here")
def test_what_a_forked_process_sees_is_what_a_started_one_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "says.py"
    script.write_text(SAYS)
    (tmp_path / "given").write_text("asked")
    program, env = [str(script), "--port", "0"], {"STOREKEEPER_PORT": "0", "LC_ALL": "C.UTF-8"}

    def seen(fork: bool) -> Any:
        with Path("given").open() as given, Path("said").open("w+") as said, Path("told").open("w+") as told:
            if fork:
                process = forked(program, env, (given.fileno(), said.fileno(), told.fileno()))
            else:
                process = subprocess.Popen(
                    [sys.executable, *program], env=env, stdin=given, stdout=said, stderr=told, start_new_session=True
                )
            assert process.wait(30) == process.poll() == 7
            return json.loads(Path("said").read_text()), Path("told").read_text()

    assert seen(fork=True) == seen(fork=False)


def test_a_forked_process_that_is_killed_says_by_what(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time; time.sleep(60)")
    with Path(os.devnull).open() as none:
        process = forked([str(tmp_path / "waits.py")], {**os.environ}, (none.fileno(), 1, 2))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    process.kill()
    assert process.wait(30) == -signal.SIGKILL

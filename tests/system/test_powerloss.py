"""Whatever was acknowledged is there after the power failed, at whatever moment and whatever the
disk had kept."""

from pathlib import Path

import pytest

from tests.campaigns import powerloss

IMAGES = 20
"""Of each build; `make soak` opens many more."""


pytestmark = pytest.mark.usefixtures("strace")


@pytest.mark.parametrize(("args", "change"), [([], "checkpoints_often"), (["--workers=2"], "")])
def test_acknowledged_writes_survive(args: list[str], change: str, tmp_path: Path) -> None:
    trace, acknowledged = powerloss.record(tmp_path, *args, change=change, operations=100)
    verdict = powerloss.judge(trace, IMAGES)
    assert verdict.violations == []
    assert verdict.images == IMAGES
    assert verdict.acknowledged == acknowledged > IMAGES


@pytest.mark.thorough
def test_a_lower_setting_would_lose_writes(tmp_path: Path) -> None:
    """What the promise rests on is `synchronous=FULL`: with NORMAL the same images show losses."""
    trace, _ = powerloss.record(tmp_path, change="syncs_normally", operations=100)
    assert "lost" in {violation.fault for violation in powerloss.judge(trace, IMAGES).violations}

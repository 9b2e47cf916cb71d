"""The text of /metrics, as prometheus-client writes it. Import it only for a request: that takes
0.1 s."""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from storekeeper import __version__
from storekeeper.api.metrics import CELLS, ENDS, FAMILIES, Slots


class _Collector(NamedTuple):
    slots: Sequence[Sequence[float]]
    asked: Mapping[str, float | None]

    def collect(self) -> Iterator[Metric]:
        totals = [sum(cells) for cells in zip(*self.slots, strict=True)]
        for name, family in FAMILIES.items():
            metric = Metric(f"storekeeper_{name}", family.help, family.kind)
            if family.asked and (value := self.asked.get(name)) is not None:
                metric.add_sample(metric.name, {}, value)
            elif not family.asked and name != "pid":
                _add_samples(metric, name, totals)
            if metric.samples:
                yield metric
        info = Metric("storekeeper_build_info", "Always 1.", "gauge")
        labels = {"version": __version__, "python": platform.python_version()}
        info.add_sample(info.name, labels, 1)
        yield info
        yield from self._processes()

    def _processes(self) -> Iterable[Metric]:
        """Return what the system says about each worker, by its number; only on Linux."""
        families: dict[str, Metric] = {}
        for number, cells in enumerate(self.slots):
            if pid := int(cells[CELLS["pid",]]):
                for found in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                    labels = {"worker": str(number)}
                    samples = [sample._replace(labels=labels) for sample in found.samples]
                    found.samples = []
                    families.setdefault(found.name, found).samples += samples
        return families.values()


def encode(slots: Slots, asked: Mapping[str, float | None]) -> bytes:
    """Return the text; `asked` has the values of the families that the service asks for."""
    cells = [slots.of(number).tolist() for number in range(slots.workers + 1)]
    return generate_latest(_Collector(cells, asked))


def _add_samples(metric: Metric, name: str, totals: list[float]) -> None:
    family = FAMILIES[name]
    for values in product(*family.labels.values()):
        labels = dict(zip(family.labels, values, strict=True))
        cell = CELLS[name, *values]
        if family.kind == "histogram":
            _add_histogram(metric, labels, totals[cell : cell + len(ENDS) + 1])
            continue
        value = totals[cell]
        if family.is_flag:
            value = min(value, 1.0)
        if value or name != "http_requests":  # most of them never occur
            suffix = "_total" if family.kind == "counter" else ""
            metric.add_sample(metric.name + suffix, labels, value)


def _add_histogram(metric: Metric, labels: dict[str, str], cells: list[float]) -> None:
    count = 0.0
    for end, value in zip(ENDS, cells, strict=False):
        count += value
        metric.add_sample(f"{metric.name}_bucket", labels | {"le": end}, count)
    metric.add_sample(f"{metric.name}_count", labels, count)
    metric.add_sample(f"{metric.name}_sum", labels, cells[-1])

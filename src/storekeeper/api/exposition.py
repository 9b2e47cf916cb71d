"""The text of /metrics, as prometheus-client writes it. Imported when it is asked for: it takes
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
from storekeeper.api.metrics import CELLS, FAMILIES, Slots


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
        yield from (info, *self._processes())

    def _processes(self) -> Iterable[Metric]:
        """Return what the system says of each worker, by its number; on Linux alone."""
        families: dict[str, Metric] = {}
        for number, cells in enumerate(self.slots):
            if pid := int(cells[CELLS["pid",]]):
                for found in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                    samples = [
                        sample._replace(labels={"worker": str(number)}) for sample in found.samples
                    ]
                    found.samples = []
                    families.setdefault(found.name, found).samples += samples
        return families.values()


def encode(slots: Slots, asked: Mapping[str, float | None]) -> bytes:
    """Return the text; `asked` has the values of families that are asked for."""
    cells = [slots.of(number).tolist() for number in range(slots.workers + 1)]
    return generate_latest(_Collector(cells, asked))


def _add_samples(metric: Metric, name: str, totals: list[float]) -> None:
    suffix, count = "_total" * (metric.type == "counter"), 0.0
    for values in product(*FAMILIES[name].labels.values()):
        labels, value = (
            dict(zip(FAMILIES[name].labels, values, strict=True)),
            totals[CELLS[name, *values]],
        )
        if FAMILIES[name].is_flag:
            value = min(value, 1.0)
        if metric.type != "histogram":
            if value or name != "http_requests":  # most of them never occur
                metric.add_sample(metric.name + suffix, labels, value)
        elif labels["le"] == "sum":
            del labels["le"]
            metric.add_sample(f"{metric.name}_count", labels, count)
            metric.add_sample(f"{metric.name}_sum", labels, value)
            count = 0.0
        else:
            count += value
            metric.add_sample(f"{metric.name}_bucket", labels, count)

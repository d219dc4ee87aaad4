"""Networks that are measured, not trained."""

from pathlib import Path

from rankscope.experiments.cp_networks import PropertiesEntry
from rankscope.experiments.experiment import RunContext


def test_an_untrained_network_is_measured_beside_its_plain_twin(tmp_path: Path) -> None:
    row = PropertiesEntry("cp-digits", "digits", 10).run(RunContext(tmp_path, None, 60.0))
    assert (row["plain parameters"], row["samples"], row["layers"]) == (19178, 10, 4)
    factors, cushions = row["t"], row["cushions"]
    assert isinstance(factors, list)
    assert isinstance(cushions, list)
    assert len(factors) == len(cushions) == 4
    assert row["smallest cushion"] == min(cushions)
    kept, components = row["components kept"], row["components"]
    assert isinstance(kept, int)
    assert isinstance(components, int)
    assert kept <= components

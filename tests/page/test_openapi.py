"""The interface does what its description says, whatever is sent."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.page.conftest import Served, serve_in_thread

from rankscope.page import ENDPOINTS, Session, json_schema, openapi
from rankscope.strict_json import Reader

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model is not there: nothing long is ever started."""
    folder: Path = tmp_path_factory.mktemp("empty")
    yield from serve_in_thread(Session(str(folder / "gone"), folder / "output"))


def test_every_endpoint_is_described_once() -> None:
    paths = [(endpoint.method, endpoint.path) for endpoint in ENDPOINTS]
    assert len(set(paths)) == len(paths)
    described = json.loads(json.dumps(openapi(ENDPOINTS)))
    assert set(described["paths"]) == {f"/api{endpoint.path}" for endpoint in ENDPOINTS}


class Unknown(Reader[None]):
    def read(self, data: Any) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return "something"


def test_a_reader_without_a_schema_is_an_error_of_ours() -> None:
    with pytest.raises(TypeError, match="no JSON schema is known"):
        json_schema(Unknown())


@pytest.mark.slow
@pytest.mark.parametrize("path", [f"/api{endpoint.path}" for endpoint in ENDPOINTS])
def test_answers_are_as_described(empty: Served, path: str) -> None:
    document = openapi(ENDPOINTS)
    schema = schemathesis.openapi.from_dict(document)
    (operation,) = [found.ok() for found in schema.get_all_operations() if found.ok().path == path]

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        address = f"http://127.0.0.1:{empty.port}"
        token = {"X-Rankscope-Token": empty.session.token}
        # A schema calls 2.0 an integer; the readers of this package do not.
        left_out = [checks.positive_data_acceptance]
        response = case.call_and_validate(
            base_url=address,
            headers=token,
            excluded_checks=left_out,
            timeout=120,  # a worker may have to start, on a machine that does other things
        )
        assert response.status_code != 500, response.text

    check()

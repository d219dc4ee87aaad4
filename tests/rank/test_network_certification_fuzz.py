"""Certificates that were tampered with: refused or failed, never believed, never a crash."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import CertificateError
from rankscope.rank import (
    MeasureOptions,
    Partition,
    PolynomialNetwork,
    ProductNetwork,
    RecurrentCircuit,
    Shallow,
    Verdict,
    build,
    certify_rank,
    measure_rank,
    parse_certificate,
    to_json,
    verify,
)


def document_of(
    network: PolynomialNetwork, *, is_graded: bool = False, has_own_weights: bool = False
) -> dict[str, Any]:
    partition = Partition.interleaved(network.num_positions)
    weights = dict(network.named_parameters()) if has_own_weights else None
    options = MeasureOptions(is_graded=is_graded)
    measured = measure_rank(network, partition, options, weights=weights)
    certificate = certify_rank(network, partition, measured, weights=weights, max_determinant=2)
    assert verify(certificate).is_proved
    document: dict[str, Any] = json.loads(to_json(certificate))
    return document


DOCUMENTS = [
    document_of(Shallow(order=4, size=2, channels=3)),
    document_of(Shallow(order=4, size=2, channels=2), has_own_weights=True),
    document_of(ProductNetwork(num_inputs=2, degree=2, depth=2), is_graded=True),
    document_of(RecurrentCircuit(num_tokens=4, num_templates=2, channels=2, depth=1)),
]
JUNK: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([2**31, 2**63, 10**4000, -(10**30), 4294967311])
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(
        ["\ud800", "__import__('os').abort()", "Infinity", [[[[[[]]]]]], {"seed": {}}]
    )
    | st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=2), max_leaves=5)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    keys = list(data) if isinstance(data, dict) else range(len(data))
    found = [(data, key) for key in keys]
    inner = [data[key] for key in keys if isinstance(data[key], dict | list)]
    return found + [place for part in inner for place in places(part)]


def signed(document: dict[str, Any]) -> dict[str, Any]:
    """The same document with the statement that belongs to it, as a forger would write it."""
    network, split = document["network"], document["partition"]
    pairs = [f"{name}={value!r}" for name, value in network["settings"].items()]
    left, right = (",".join(map(str, split[side])) for side in ("left", "right"))
    where = "the weights given here" if "values" in document["weights"] else "almost all weights"
    text = (
        f"For {where}, the separation rank of {network['family']}({', '.join(pairs)}) "
        f"over {{{left}}} | {{{right}}} is at least {document['lower']}."
    )
    return {**document, "statement": text}


def verdict_on(data: bytes) -> Verdict | None:
    """The verdict; None if it is no certificate. Any other error is a failure of the test."""
    try:
        return verify(parse_certificate(data))
    except CertificateError:
        return None


@settings(deadline=None, max_examples=300)
@given(number=st.integers(0, len(DOCUMENTS) - 1), data=st.data())
def test_a_changed_document_never_proves_another_statement(
    number: int, data: st.DataObject
) -> None:
    document = copy.deepcopy(DOCUMENTS[number])
    for _ in range(data.draw(st.integers(1, 2), label="changes")):
        container, key = data.draw(st.sampled_from(places(document)), label="place")
        change = data.draw(st.sampled_from(["put", "drop", "copy"]), label="change")
        if change == "drop":
            del container[key]
        elif change == "put":
            container[key] = data.draw(JUNK, label="junk")
        elif isinstance(container, list):
            container.append(container[key])
        else:
            container["more"] = container[key]
    verdict = verdict_on(json.dumps(document).encode())
    if verdict is not None:
        assert verdict.statement == DOCUMENTS[number]["statement"]


@settings(deadline=None, max_examples=200)
@given(number=st.integers(0, len(DOCUMENTS) - 1), data=st.data())
def test_a_forged_claim_is_proved_only_if_it_is_true(number: int, data: st.DataObject) -> None:
    document = copy.deepcopy(DOCUMENTS[number])
    integers = [
        (container, key) for container, key in places(document) if type(container[key]) is int
    ]
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        container, key = data.draw(st.sampled_from(integers), label="place")
        container[key] += data.draw(st.sampled_from([-2, -1, 1, 2]), label="difference")
    verdict = verdict_on(json.dumps(signed(document)).encode())
    if verdict is not None and verdict.is_proved:
        network = build(document["network"]["family"], document["network"]["settings"])
        upper = network.upper_bound(
            Partition(tuple(document["partition"]["left"]), tuple(document["partition"]["right"]))
        )
        assert upper is not None
        assert upper.holds_for(verdict.lower)


@settings(deadline=None, max_examples=300)
@given(number=st.integers(0, len(DOCUMENTS) - 1), data=st.data())
def test_changed_bytes_never_prove_another_statement(number: int, data: st.DataObject) -> None:
    text = json.dumps(DOCUMENTS[number]).encode()
    at = data.draw(st.integers(0, len(text) - 1), label="at")
    length = data.draw(st.sampled_from([0, 1, 2, 10, len(text)]), label="length")
    changed = text[:at] + data.draw(st.binary(max_size=3), label="bytes") + text[at + length :]
    verdict = verdict_on(changed)
    if verdict is not None:
        assert verdict.statement == DOCUMENTS[number]["statement"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_statement_must_be_the_one_that_is_proved(document: dict[str, Any]) -> None:
    assert verdict_on(json.dumps(signed(document)).encode()) is not None
    text = document["statement"].replace("at least", "at least 1 more than")
    assert verdict_on(json.dumps({**document, "statement": text}).encode()) is None

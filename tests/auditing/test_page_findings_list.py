from dataclasses import replace

from rankscope.auditing.auditor import Audit
from rankscope.auditing.page.page import findings_list


def test_a_finding_shows_all_that_it_knows(shape_only: Audit) -> None:
    (found,) = shape_only.findings
    written = findings_list(shape_only.findings)
    for text in (found.title, found.reason, found.reference, found.command, "40.1 %", "Warning"):
        assert text in written
    assert "<dd>16,384</dd>" in written
    assert "<dd>1,024</dd>" in written


def test_findings_stand_in_their_order(transformer: Audit) -> None:
    written = findings_list(transformer.findings)
    places = [written.index(f'id="finding-{found.id}"') for found in transformer.findings]
    assert places == sorted(places)


def test_what_is_missing_is_not_mentioned(shape_only: Audit) -> None:
    plain = replace(shape_only.findings[0], saving=None, command="")
    written = findings_list((plain,))
    assert "would save" not in written
    assert "<button" not in written


def test_no_finding_is_said_in_words() -> None:
    assert "Nothing stands out." in findings_list(())


def test_texts_are_escaped(shape_only: Audit) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    odd = replace(
        shape_only.findings[0],
        id='"' + hostile,
        title=hostile,
        reason=hostile,
        reference=hostile,
        command=hostile,
    )
    assert "<img" not in findings_list((odd,))

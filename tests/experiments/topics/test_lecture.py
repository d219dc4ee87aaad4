from rankscope.constructions.topic import in_lecture, recalled


def test_references_say_where_they_are_from() -> None:
    assert str(in_lecture("Lemma 2.1")).startswith("Diehl (2023)")
    found = recalled("Ba, Kiros & Hinton (2016)", "equation (3)", "1607.06450", "a thing")
    assert str(found).endswith("arXiv:1607.06450 (published, as recalled)")
    assert found.assumptions == ("a thing",)

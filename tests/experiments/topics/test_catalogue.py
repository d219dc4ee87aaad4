import pytest

from rankscope.errors import RequestError
from rankscope.experiments.topics.catalogue import GROUPS, TOPICS, find_topic


def test_topics_have_different_names_and_say_something() -> None:
    assert sum(map(len, GROUPS.values())) == len(TOPICS)
    for name, topic in TOPICS.items():
        assert name == topic.name == name.lower()
        assert topic.title
        assert len(topic.statement) > 80, name
        assert topic.statement.endswith("."), name
        assert topic.reference.citation


def test_an_unknown_topic_lists_the_known_ones() -> None:
    assert find_topic("softmax") is TOPICS["softmax"]
    with pytest.raises(RequestError, match=r"no topic 'sofmax'; choose one of piecewise-linear, "):
        find_topic("sofmax")

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.drawing import Box
from rankscope.drawing.layout import Buckets

NUMBERS = st.floats(-400.0, 400.0)
BOXES = st.tuples(NUMBERS, NUMBERS, st.floats(0.0, 300.0), st.floats(0.0, 300.0)).map(
    lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3])
)


def do_meet(first: Box, second: Box) -> bool:
    return all(
        first[side] <= second[side + 2] and second[side] <= first[side + 2] for side in (0, 1)
    )


@settings(deadline=None)
@given(st.lists(BOXES, max_size=12), BOXES)
def test_near_finds_exactly_the_boxes_that_meet_in_order(boxes: list[Box], wanted: Box) -> None:
    buckets: Buckets[int] = Buckets()
    for place, box in enumerate(boxes):
        buckets.add(box, place)
    found = [place for _, place in buckets.near(wanted)]
    assert found == [place for place, box in enumerate(boxes) if do_meet(box, wanted)]

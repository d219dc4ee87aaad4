from rankscope.progress import Progress, ignore


def test_progress_prints_what_is_done_and_of_how_many() -> None:
    progress = Progress("values modulo 101", 3, 1200)
    ignore(progress)
    assert str(progress) == "values modulo 101: 3 of 1,200"

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.drawing import plain_text, text_runs
from rankscope.errors import DiagramError


@pytest.mark.parametrize(
    ("label", "read"),
    [
        ("$R_{17}$", "R_17"),
        ("$x_i^2$", "x_i^2"),
        (r"$\mathcal{W}^{\,Q}$", "W^Q"),
        (r"$\mathbf{A}$", "A"),
        (r"$F{=}768$", "F=768"),
        (r"$\times B$", "×B"),
        (r"$\alpha\beta\Lambda\lambda\Sigma$", "αβΛλΣ"),
        (r"$\mathrm{log\,softmax}$", "log softmax"),
        (r"$\frac{a}{b+c}$", "a/(b+c)"),
        (r"$\sqrt{xy}$", "√(xy)"),
        (r"$\tanh$", "tanh"),
        (r"$H'$", "H′"),
        (r"$\mathbf x$", "x"),
        (r"$\bigstar$", "bigstar"),
        (r"$\{a\}$ \$5", "{a} $5"),
        ("no mathematics_here", "no mathematics_here"),
        ("5$ alone", "5$ alone"),
        (r"$x_{}y$", "xy"),
        (r"$\hat{}$", "\u0302"),
        (r"$}$", ""),
    ],
)
def test_labels_are_read_aloud(label: str, read: str) -> None:
    assert plain_text(label) == read


@given(st.text(alphabet="xR17_^{}$\\ ,'mathbfsqr", max_size=30))
def test_reading_aloud_never_fails(label: str) -> None:
    assert isinstance(plain_text(label), str)


def test_an_accent_stays_on_its_letter() -> None:
    assert plain_text(r"$\hat{x}$") == "x\u0302"


def test_alphabets_have_characters_of_their_own() -> None:
    runs = text_runs(r"$\mathcal{GB}\mathbb{RX}\mathfrak{gC}\mathtt{a1}\mathcal{1}$")
    assert "".join(run.text for run in runs) == "𝒢ℬℝ𝕏𝔤ℭ𝚊11"


def test_letters_lean_and_signs_do_not() -> None:
    assert [(run.text, run.font) for run in text_runs(r"$F=7\mathbf{W}\mathrm{id}$")] == [
        ("F", "italic"),
        ("=7", "upright"),
        ("W", "bold"),
        ("id", "upright"),
    ]


def test_scripts_shrink_and_shift_level_by_level() -> None:
    letter, below, lower, above = text_runs("$x_{k_1}^2$")
    assert [run.level for run in (letter, below, lower, above)] == [0, 1, 2, 1]
    assert lower.shift < below.shift < letter.shift < above.shift
    assert [run.sign for run in (below, lower, above)] == ["_", "_", "^"]


def test_a_command_without_a_character_is_refused_where_it_would_be_drawn() -> None:
    with pytest.raises(DiagramError, match=r"holds \\bigstar, which has no character of its own"):
        text_runs(r"$\bigstar$")

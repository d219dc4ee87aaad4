import dataclasses

from rankscope.layers.formats.catalogue import FORMATS


def test_every_format_of_the_command_line_is_there_under_its_name() -> None:
    plain = ["svd", "cp", "tucker", "tensor-train", "tensor-ring"]
    reshaped = ["r-cp", "r-tucker", "r-tensor-train", "r-tensor-ring"]
    assert sorted(FORMATS) == sorted(plain + reshaped)
    for name, format in FORMATS.items():
        assert format.name == name
        assert dataclasses.is_dataclass(format)
        assert format == type(format)()
        assert hash(format) == hash(type(format)())

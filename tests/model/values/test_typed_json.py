"""Dataclasses as JSON: what is written is read again, and nothing else."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Optional

import pytest

from ovirt_scheduler.model.values import typed_json


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Wheel:
    size: float
    flat: bool = False


@dataclass(frozen=True)
class Car:
    name: str
    seats: int
    colour: Colour
    plate: bytes = b""
    owner: Optional[str] = None
    wheels: tuple[Wheel, ...] = ()
    spare: Optional[Wheel] = None
    trips: Optional[dict[str, list[int]]] = None


PLAIN = Car("a", 4, Colour.RED)


@pytest.mark.parametrize(
    "car",
    [
        PLAIN,
        Car("ü\ud800\n", -1, Colour.RED, b"\0\xff", "b", (Wheel(1.5), Wheel(2.0, flat=True))),
        Car("", 0, Colour.RED, spare=Wheel(0.1), trips={"": [], "x": [1, 2]}),
    ],
)
def test_what_is_written_is_read_again(car):
    """In ASCII, on one line, and every value of its type."""
    data = typed_json.dump(car)
    assert b"\n" not in data
    assert data.isascii()
    assert typed_json.load(data, Car) == car
    assert typed_json.load(typed_json.dump({"c": car}), dict[str, Car]) == {"c": car}


def test_what_is_missing_has_its_default():
    """A later version may have more fields; an int is a number."""
    assert typed_json.load(b'{"name": "a", "seats": 4, "colour": "red"}', Car) == PLAIN
    assert typed_json.load(b'{"size": 2}', Wheel) == Wheel(2.0)


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ('"name": "a"', "some of these are missing: seats, colour, "),
        ('"doors": 5', "there is no doors"),
        ('"name": null', "name: None is not of type str"),
        ('"seats": true', "seats: True is not of type int"),
        ('"seats": 4.0', "seats: 4.0 is not of type int"),
        ('"colour": "blue"', "colour: 'blue' is not a valid Colour"),
        ('"colour": ["red"]', "colour: ['red'] is not a valid Colour"),
        ('"plate": "!"', "plate: "),
        ('"plate": 1', "plate: "),
        ('"owner": 1', "owner: 1 is not of type str"),
        ('"wheels": {}', "wheels: {} is not of type list"),
        ('"wheels": [{"size": 1}, {"size": "1"}]', "wheels.1.size: '1' is not of type float"),
        ('"wheels": [{"size": 1, "flat": 0}]', "wheels.0.flat: 0 is not of type bool"),
        ('"spare": {"size": NaN}', "spare.size: nan is not finite"),
        ('"spare": {"size": 1e999}', "spare.size: inf is not finite"),
        ('"spare": {"size": 1%s}' % ("0" * 400), "spare.size: "),
        ('"spare": []', "spare: [] is not of type dict"),
        ('"trips": {"x": 1}', "trips.x: 1 is not of type list"),
        ('"trips": {"x": [null]}', "trips.x.0: None is not of type int"),
    ],
)
def test_another_type_is_refused_with_its_place(inside, message):
    """Field by field, however deep."""
    with pytest.raises(ValueError) as caught:
        typed_json.load(f"{{{inside}}}".encode(), Car)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'"' + b"x" * 1000])
def test_what_is_no_json_object_is_refused(data):
    """With one exception for all, and a short message."""
    with pytest.raises(ValueError) as caught:
        typed_json.load(data, Car)
    assert len(str(caught.value)) < 200


def test_what_has_no_form_in_json_is_not_written():
    """It would not be read again."""
    with pytest.raises(TypeError, match="set has no form"):
        typed_json.dump({"x": {1}})

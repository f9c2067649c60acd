"""What is asked of a feature map: its parameters, which job files and records of models name alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.choices import MapKind
from coremargin.formats.limits import GAMMAS, MOST_DEGREE, MOST_SEED

#: Components that there may be.
MOST_COMPONENTS = 1 << 20

Components = Annotated[int, Meta(ge=1, le=MOST_COMPONENTS)]
Degree = Annotated[int, Meta(ge=1, le=MOST_DEGREE)]
Gamma = Annotated[float, Meta(ge=GAMMAS[0], le=GAMMAS[1])]
Coef0 = Annotated[float, Meta(ge=0, le=GAMMAS[1])]
MapSeed = Annotated[int, Meta(ge=0, le=MOST_SEED)]


@dataclass(frozen=True, kw_only=True)
class MapAsked:
    """The options of a map in a job; records of models have the same names."""

    map: MapKind
    components: int | None  #: None: all products of an exact polynomial
    gamma: float | Literal["scale"]
    degree: int = 3
    coef0: float = 0.0
    map_seed: int = 0

    def parameters(self) -> dict[str, Any]:
        """What a record keeps: what the map is made by."""
        return {"map": self.map, **{name: getattr(self, name) for name in sorted(KEYS[self.map])}}


#: The options of each kind of map.
KEYS = {
    "nystroem": {"components", "gamma", "map_seed"},
    "fourier": {"components", "gamma", "map_seed"},
    "polynomial": {"components", "gamma", "degree", "coef0", "map_seed"},
}

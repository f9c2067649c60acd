"""The jobs of the golden set: what is trained on what, and how."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One row of the table; how: letters, see ``TABLE``."""

    name: str
    data: str
    options: list[str]
    how: str


#: name | data | how | options of ``train``. All are trained in one go by threads of this process. How else: c by worker
#: processes of a cluster; s stopped by --max-scans and resumed; k killed and resumed. Then: r retrained after
#: each kind of change of the store; m verified with one number changed; u used: predict, evaluate, show, ...
TABLE = """
hard                 | apart          | crmu   | --epsilon 1e-4
hard-origin          | apart          | cm     | --no-intercept
hard-digits          | digits         | cru    | --scaling standard
hard-cancer          | cancer         | c      | --scaling minmax
hard-weighted        | weighted-apart | cr     |
hard-sparse          | sparse-apart   | crmu   |
hard-not-separable   | noisy          | cr     |
hard-not-certified   | cancer         | m      | --epsilon 1e-15
hard-paper           | apart          | csk    | --strategy paper --epsilon 0.1
hard-any-violator    | apart          | c      | --strategy any-violator --epsilon 0.1
hard-perceptron      | apart          | csk    | --strategy perceptron
hard-lp              | apart          | cs     | --strategy lp
hard-big             | big-apart      | cskr   | --memory 10MB --epsilon 1e-6
hinge                | noisy          | crmu   | --loss hinge --C 0.1
squared              | noisy          | crmu   | --loss squared_hinge --C 0.1
auto-hard            | apart          | cr     | --loss auto
auto-soft            | noisy          | crm    | --loss auto
hinge-small-memory   | noisy          | cskr   | --loss hinge --C 10 --memory 20kB --epsilon 1e-6
squared-small-memory | noisy          | cskr   | --loss squared_hinge --C 10 --memory 20kB --epsilon 1e-6
hinge-weighted       | weighted       | crm    | --loss hinge --C 0.5
squared-weighted     | weighted       | cr     | --loss squared_hinge --class-weight balanced
hinge-class-weight   | noisy          | c      | --loss hinge --class-weight 1,5
hinge-origin         | noisy          | c      | --loss hinge --no-intercept
hinge-standard       | cancer         | cru    | --loss hinge --scaling standard
squared-minmax       | cancer         | c      | --loss squared_hinge --scaling minmax
hinge-maxabs         | cancer         | c      | --loss hinge --scaling maxabs
squared-rownorm      | cancer         | cr     | --loss squared_hinge --scaling rownorm
hinge-wide           | wide           | cr     | --loss hinge
squared-wide         | wide           | cr     | --loss squared_hinge
hinge-sparse         | sparse         | crmu   | --loss hinge
squared-sparse       | sparse         | cr     | --loss squared_hinge --C 0.1
hinge-segments       | sparse         | cskr   | --loss hinge --C 0.1 --memory 20kB --block 4KiB --epsilon 1e-2
hinge-big            | big-noisy      | cskr   | --loss hinge --C 0.1 --memory 32MB --epsilon 1e-6
squared-big          | big-noisy      | cskr   | --loss squared_hinge --C 0.1 --memory 64MB --epsilon 1e-6
squared-big-scans    | big-noisy      | cs     | --loss squared_hinge --C 0.1 --memory 32MB
auto-big             | big-noisy      | csk    | --loss auto --C 0.1 --memory 32MB
relative-margin      | noisy          | crmu   | --loss hinge --C 0.1 --relative-margin 1.5
relative-margin-small-memory | noisy          | cskr   | --loss hinge --C 0.1 --relative-margin 1.5 --memory 20kB --epsilon 1e-6
ovr-hard             | wine           | crm    | --classes ovr --scaling standard
ovr-hinge            | three-noisy    | crmu   | --classes ovr --loss hinge --C 0.1
ovr-squared-digits   | ten-digits     | cu     | --classes ovr --loss squared_hinge --C 0.001
ovr-sparse           | sparse-three   | cr     | --classes ovr --loss hinge
ovr-squared-big      | big-three      | cs     | --classes ovr --loss squared_hinge --C 0.01 --memory 48MB
crammer-singer-hard  | three          | crmu   | --classes crammer-singer
crammer-singer-hinge | three-noisy    | crmu   | --classes crammer-singer --loss hinge --C 0.1
crammer-singer-sparse | sparse-three   | cr     | --classes crammer-singer --loss hinge
crammer-singer-big   | big-three      | csk    | --classes crammer-singer --loss hinge --C 0.01 --memory 32MB
fleet-costs          | noisy          | crmu   | --loss hinge --C 0.1,1
fleet-folds          | noisy          | cru    | --loss squared_hinge --C 0.1,1 --folds 3
fleet-folds-weighted | weighted       | c      | --loss hinge --C 0.1 --folds 2 --fold-seed 4
fleet-hard-folds     | apart          | crm    | --folds 2
fleet-classes-folds  | three-noisy    | cru    | --classes ovr --loss hinge --C 0.01,0.1 --folds 2
fleet-segments       | sparse         | csk    | --loss hinge --C 0.1 --folds 2 --memory 70kB --block 4KiB --epsilon 1e-2
fleet-big            | big-noisy      | csk    | --loss hinge --C 0.01,0.1 --memory 32MB
fleet-hard-big       | big-apart      | cs     | --folds 2 --memory 16MB
ball                 | noisy          | crmu   | --one-class ball
ball-class           | weighted       | crm    | --one-class ball --only 1 --scaling standard
ball-sparse          | sparse         | cr     | --one-class ball --epsilon 1e-9
ball-big             | big-noisy      | cskr   | --one-class ball --epsilon 1e-9 --memory 16MB
ball-outliers        | wild           | crm    | --one-class ball --outliers 3
soft-ball            | noisy          | crmu   | --one-class ball --nu 0.1
soft-ball-class      | weighted       | crm    | --one-class ball --only 1 --nu 0.1 --scaling standard
soft-ball-sparse     | sparse         | cr     | --one-class ball --nu 0.05
soft-ball-big        | big-noisy      | csk    | --one-class ball --nu 0.02 --epsilon 1e-9 --memory 64MB
ellipsoid            | noisy          | crmu   | --one-class ellipsoid
ellipsoid-class      | weighted       | crm    | --one-class ellipsoid --only 1
ellipsoid-big        | big-noisy      | csk    | --one-class ellipsoid --epsilon 1e-4 --memory 64MB
kernel-ball          | rings          | cskrmu | --one-class ball --kernel rbf
kernel-ball-soft     | rings          | cskrmu | --one-class ball --kernel rbf --nu 0.1
kernel-ball-poly     | rings          | crm    | --one-class ball --kernel poly --degree 2 --coef0 1 --nu 0.1
outliers             | wild           | crmu   | --outliers 3
outliers-search      | wild           | crm    | --outliers 0..4
outliers-some        | wild           | c      | --outliers 0,3 --epsilon 0.01
outliers-share       | wild           | c      | --outliers 2%
outliers-heuristic   | wild           | crm    | --outliers 4 --outlier-search heuristic
outliers-published   | tiny           | ck     | --outliers 1 --outlier-search published --epsilon 0.2
outliers-simple      | tiny           | cm     | --outliers 1,2 --outlier-search published-simple
outliers-big         | big-apart      | cs     | --outliers 2 --memory 32MB
kernel-rbf           | rings          | cskrmu | --kernel rbf --loss hinge
kernel-rbf-squared   | rings          | cskm   | --kernel rbf --gamma 1 --loss squared_hinge --C 10 --scaling standard
kernel-rbf-hard      | rings          | crm    | --kernel rbf --gamma 50
kernel-poly          | rings          | crm    | --kernel poly --degree 2 --coef0 1 --loss hinge
kernel-poly-hard     | digits         | c      | --kernel poly --degree 2 --coef0 1
kernel-linear        | noisy          | c      | --kernel linear --loss hinge
kernel-own           | rings          | cskrmu | --kernel golden_kernels:laplacian --loss hinge
kernel-own-hard      | rings          | c      | --kernel golden_kernels:laplacian --kernel-error 1e-12
kernel-weighted      | weighted       | cr     | --kernel rbf --loss hinge --class-weight balanced
kernel-sparse        | sparse         | cr     | --kernel rbf --loss hinge
kernel-classes       | three-noisy    | crmu   | --kernel rbf --loss hinge --classes ovr
kernel-relative      | rings          | cskrmu | --kernel rbf --loss hinge --relative-margin 1.2
kernel-relative-classes | three-noisy    | crm    | --kernel rbf --loss hinge --classes ovr --relative-margin 1.5
kernel-fleet         | rings          | cskrmu | --kernel rbf --gamma scale,1 --C 0.1,1 --loss hinge
kernel-fleet-folds   | rings          | cu     | --kernel rbf --gamma 0.5,1 --C 1 --loss squared_hinge --folds 2
kernel-precomputed   | rings          |        | --kernel precomputed --loss hinge
map-fourier          | rings          | crmu   | --map fourier --components 12 --loss hinge
map-nystroem         | rings          | crmu   | --map nystroem --components 10 --loss hinge
map-polynomial       | rings          | crmu   | --map polynomial --degree 2 --coef0 1 --loss squared_hinge
map-sketch           | cancer         | cr     | --map polynomial --degree 2 --components 40 --scaling standard --loss hinge
map-gammas           | rings          | cm     | --map nystroem --components 8 --gamma 0.5,1 --C 0.1,1 --loss hinge --folds 2
map-hard             | digits         | crm    | --map fourier --components 80 --scaling standard
map-classes          | three-noisy    | c      | --map fourier --components 8 --classes ovr --loss hinge
map-crammer-singer   | three-noisy    | c      | --map nystroem --components 8 --classes crammer-singer --loss hinge
map-outliers         | wild           | c      | --map polynomial --degree 2 --outliers 3
map-small-memory     | noisy          | csk    | --map fourier --components 8 --loss squared_hinge --memory 40kB --epsilon 1e-6
map-nystroem-sparse  | sparse         | c      | --map nystroem --components 10 --loss hinge
"""  # noqa: E501 - a row is a line


def table() -> list[Job]:
    """The jobs, in order."""
    rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
    return [Job(name, data, shlex.split(options), how) for name, data, how, options in rows]

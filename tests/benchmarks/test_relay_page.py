"""What the relay's benchmark says of figures: each with the rate that it was measured at. The figures are made up."""

from dataclasses import replace

from benchmarks.relay.figures import Figures, Sizes
from benchmarks.relay.measure import Backlog, Begun, Times

FAST, SLOW = Times(5.0, 20.0), Times(300.0, 550.0)
FIGURES = Figures(
    broker="redis",
    sizes=Sizes(rows=20_000, waiting=1_000_000, singles=200),
    rates=(2000.0, 2345.6, 2400.0),
    published=(FAST, SLOW),
    published_busy=(FAST, SLOW),
    begun=(Begun(Times(11.0, 33.0), 20, 20), Begun(SLOW, 20, 20)),
    worker=310.0,
    begun_busy=(Begun(FAST, 186, 186), Begun(SLOW, 186, 186)),
    begun_burst=(Begun(Times(800.0, 1500.0), 500, 290), Begun(Times(900.0, 1700.0), 500, 280)),
    keyed={1: (70.0, 2.0), 100: (140.0, 160.0)},
    backlog=Backlog(1_000_000, 1500.0, 111.0, 110.0),
)


def test_a_rate_stands_beside_every_latency() -> None:
    lines = FIGURES.page().splitlines()
    assert "| commit to start of work, idle | 11.0 / 33.0 | 300.0 / 550.0 |" in lines
    assert "| commit to start of work, 186 jobs a second | 5.0 / 20.0 | 300.0 / 550.0 |" in lines
    assert "| commit to start of work, a burst of 500 a second | 800.0 / 1500.0 | 900.0 / 1700.0 |" in lines
    assert any("at **2346 rows per second**" in line for line in lines)
    assert any("works off at 310 jobs a second" in line for line in lines)
    assert "Of the 186 a second above it begins 186; of the burst, which lasts 2.0 s, 290 a second." in lines


def test_the_last_line_is_of_an_idle_worker() -> None:
    assert FIGURES.last_line == (11.0, 33.0, 2345.6)
    assert replace(FIGURES, rates=(9.0, 1.0, 5.0)).last_line[2] == 5.0

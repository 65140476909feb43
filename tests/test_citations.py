"""Citations in the notebooks are links that anybody can read, and agree with the list of references."""

import re

import citations
import pytest
from build_book import ROOT

ENTRIES = citations.parse_file(ROOT / "book" / "references.bib").entries


def test_a_citation_becomes_a_link_with_authors_and_year():
    text = "It pays {cite:p}`stern2018,stahlberg2019`. {cite:t}`efron1979` knew {cite}`li2016`."
    assert citations.linked(text, ENTRIES) == (
        "It pays ([Stern et al., 2018](https://arxiv.org/abs/1811.03115); "
        "[Stahlberg and Byrne, 2019](https://arxiv.org/abs/1908.10090)). "
        "[Efron (1979)](https://doi.org/10.1214/aos/1176344552) knew "
        "([Li et al., 2016](https://arxiv.org/abs/1510.03055))."
    )


def test_an_item_of_the_list_has_the_title():
    item = "- Efron (1979), [Bootstrap Methods: Another Look at the Jackknife](https://doi.org/10.1214/aos/1176344552)"
    assert citations.linked("- {cite:t}`efron1979`: the bootstrap.", ENTRIES) == f"{item}: the bootstrap."


def test_a_key_that_is_not_in_the_list_is_named():
    with pytest.raises(ValueError, match="references.bib has no 'nobody1900'"):
        citations.linked("{cite:p}`nobody1900`", ENTRIES)


def test_every_work_in_the_list_can_be_read_somewhere():
    links = [citations.address(entry) for entry in ENTRIES.values()]
    assert all(link.startswith("https://") for link in links) and len(set(links)) == len(links)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{cite:p}`li2016`", "is left"),
        ("[Stern et al., 2019](https://arxiv.org/abs/1811.03115)", "should be one of: .*Stern et al., 2018"),
    ],
)
def test_what_is_left_or_disagrees_is_found(text, said):
    (found,) = citations.wrong(text, ENTRIES)
    assert re.search(said, found)

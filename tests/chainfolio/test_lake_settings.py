"""Settings of the lake: which addresses it may have, and that no message repeats a key."""

from __future__ import annotations

import pytest

from chainfolio.errors import BadSettings
from chainfolio.settings import Lake, Settings
from chainfolio.settings_checks import check


@pytest.mark.parametrize(
    "lake",
    [
        Lake(uri="lake"),
        Lake(uri="s3://chain-data"),
        Lake(uri="s3://chain-data/prefix/of.it/", endpoint="http://127.0.0.1:9000", region="eu-central-1"),
    ],
    ids=["folder", "bucket", "own service"],
)
def test_a_folder_and_a_bucket_are_addresses_of_a_lake(lake: Lake) -> None:
    check(Settings(lake=lake))


@pytest.mark.parametrize(
    ("lake", "key"),
    [
        (Lake(uri="s3://AKIA:secret@bucket/x"), "lake.uri"),
        (Lake(uri="s3://bucket/x?key=secret"), "lake.uri"),
        (Lake(uri="s3://"), "lake.uri"),
        (Lake(uri="s3://bucket/../secret"), "lake.uri"),
        (Lake(uri="gs://bucket/x"), "lake.uri"),
        (Lake(uri="s3://bucket", endpoint="https://key:secret@s3.example.org"), "lake.endpoint"),
        (Lake(uri="s3://bucket", endpoint="s3.example.org/secret"), "lake.endpoint"),
        (Lake(uri="s3://bucket", region="secret place"), "lake.region"),
        (Lake(endpoint="https://s3.example.org"), "lake.endpoint"),
    ],
    ids=["user", "query", "no bucket", "dots", "other store", "endpoint user", "no scheme", "region", "folder"],
)
def test_other_addresses_are_refused_without_being_shown(lake: Lake, key: str) -> None:
    with pytest.raises(BadSettings) as caught:
        check(Settings(lake=lake))
    assert caught.value.field == key
    assert "secret" not in f"{caught.value} {caught.value.remedy}"

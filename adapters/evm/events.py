"""The topics of decoded events, and addresses in topic columns."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from chainfolio.adapters.evm.logs import Bytes

TRANSFER: Final = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
TRANSFER_SINGLE: Final = "0xc3d58168c5ae7397731d063d5bbf3d657854427343f4c083240f7aacaa2d0f62"
TRANSFER_BATCH: Final = "0x4a39dc06d4c0dbc64b70af90fd698a233a518aa5d07e595d983b8c0526c8f7fb"
DEPOSIT: Final = "0xe1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c"
WITHDRAWAL: Final = "0x7fcf532c15f0a6db0bd6d0e038bea71d30d808c7d98cb3bf7268a95bf5081b65"
APPROVAL: Final = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"
APPROVAL_FOR_ALL: Final = "0x17307eab39ab6107e8899845ad3d59bd9653f200f220920489ca2b5937696c31"

ZERO: Final = np.frombuffer(b"0x" + b"0" * 40, np.uint8)
_PAD = np.frombuffer(b"0" * 24, np.uint8)

Mask = npt.NDArray[np.bool_]


def is_address(topic: Bytes) -> Mask:
    """Return a mask of the topics that can be an address: twelve zero bytes first."""
    return np.asarray(np.ascontiguousarray(topic[:, 2:26]).view("V24").ravel() == _PAD.view("V24")[0])


def address(topic: Bytes) -> Bytes:
    """Return the `0x…` address in each topic."""
    addresses = np.empty((len(topic), 42), np.uint8)
    addresses[:, :2] = topic[:, :2]
    addresses[:, 2:] = topic[:, 26:]
    return addresses


def topic_of(addresses: Bytes) -> Bytes:
    """Return the topic that holds each address: the inverse of `address`."""
    topics = np.full((len(addresses), 66), ord("0"), np.uint8)
    topics[:, :2] = addresses[:, :2]
    topics[:, 26:] = addresses[:, 2:]
    return topics

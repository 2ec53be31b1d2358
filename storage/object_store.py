"""Access to an object store that speaks S3: its options, its files, and its errors.

Credentials come from the environment alone (`AWS_ACCESS_KEY_ID` and others, or the role of the machine). Both libraries
read them there, so no object of this process holds them, and no message can show them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from chainfolio.errors import AccessDenied, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEME: Final = "s3://"
DEFAULT_REGION: Final = "us-east-1"
ATTEMPTS: Final = 4
RETRY_S: Final = 20  # after this, the caller gets the error and tries again later
REQUEST_S: Final = 30
CONNECT_S: Final = 5
# How the two libraries name refusals and failures.
DENIED: Final = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN|EXPIRED_TOKEN|AccessDenied"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|40[13] (Forbidden|Unauthorized)|lacked the necessary priv"
    r"|HTTP status 40[13]|RequestTimeTooSkewed|valid authentication credentials"
)
NO_CREDENTIALS: Final = re.compile(
    r"169\.254\.16|loading credentials|NoCredentials|error performing token request", re.I
)
NO_BUCKET: Final = re.compile(r"NoSuchBucket|NO_SUCH_BUCKET")
SLOW: Final = re.compile(r"SlowDown|SLOW_DOWN|503 |HTTP status 503|429 |HTTP status 429|reduce your request rate")
FAILED: Final = re.compile(
    r"NETWORK_CONNECTION|REQUEST_TIMEOUT|HTTP status 50\d|\b50\d (Internal|Bad|Service|Gateway)|HTTP error|curlCode"
    r"|operation timed out|error sending request|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|AWS Error UNKNOWN"
)
CREDENTIALS_REMEDY: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"


@dataclass(frozen=True)
class ObjectStore:
    """The service behind `s3://` addresses.

    Attributes:
        endpoint: Its URL; empty for that of Amazon in the region.
        region: Its region.
    """

    endpoint: str = ""
    region: str = DEFAULT_REGION

    @classmethod
    def of(cls, endpoint: str = "", region: str = "", env: Mapping[str, str] = os.environ) -> ObjectStore:
        """Return the store of the settings. Empty values come from the usual variables of S3 clients."""
        url = endpoint or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
        place = region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
        return cls(url.rstrip("/"), place)

    def delta_options(self) -> dict[str, str]:
        """Return the options of the Delta library. Credentials are not among them: it reads the environment."""
        options = {
            "AWS_REGION": self.region,
            "max_retries": str(ATTEMPTS),
            "retry_timeout": f"{RETRY_S}s",
            "timeout": f"{REQUEST_S}s",
            "connect_timeout": f"{CONNECT_S}s",
        }
        if self.endpoint:
            options |= {"AWS_ENDPOINT_URL": self.endpoint}
        if self.endpoint.startswith("http://"):
            options |= {"AWS_ALLOW_HTTP": "true"}
        return options

    def folder(self, uri: str) -> FileSystem:
        """Return the objects below an address as a file system."""
        from pyarrow.fs import SubTreeFileSystem

        return SubTreeFileSystem(uri.removeprefix(SCHEME), self._filesystem)

    @cached_property
    def _filesystem(self) -> FileSystem:
        """Return Arrow's file system for this service."""
        # Not that of the Delta library, which stops all other threads while it sends.
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        return S3FileSystem(
            endpoint_override=self.endpoint or None,
            region=self.region,
            request_timeout=REQUEST_S,
            connect_timeout=CONNECT_S,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            allow_delayed_open=True,  # a small object takes one request
        )


def object_store_error(text: str, table: str) -> StoreError | None:
    """Return the typed error for a library's message about an object store; None for all other messages."""
    if NO_CREDENTIALS.search(text):
        return AccessDenied("lake", "there are no credentials for the object store", remedy=CREDENTIALS_REMEDY)
    if not any(sign in text for sign in ("Generic S3 error", "AWS Error", "necessary privileges", "Kernel error")):
        return None
    if DENIED.search(text):
        reason = f"table {table}: the object store refuses these credentials"
        return AccessDenied("lake", reason, remedy=f"{CREDENTIALS_REMEDY}; check its rights, and the clock")
    if NO_BUCKET.search(text):
        return StoreError("lake", "the bucket does not exist", remedy="create it, or correct lake.uri")
    if SLOW.search(text):
        return StoreUnavailable("lake", f"table {table}: the object store asks for fewer requests")
    if FAILED.search(text):
        return StoreUnavailable("lake", f"table {table}: the object store does not answer")
    return None

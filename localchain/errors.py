"""Errors of the local chain, one class for each remedy."""


class LocalChainError(Exception):
    """Something about the local chain, said so that a person can act on it."""


class NodeJsMissing(LocalChainError):
    """Node.js or npm is not installed or too old."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"Node.js 20 or newer is needed for the local chain ({problem}): take it from https://nodejs.org, or by "
            "`nvm install 22`. That of Debian 12 and Ubuntu 24.04 (apt-get install nodejs) is older"
        )


class InstallFailed(LocalChainError):
    """A step of the installation failed; carries the end of what it printed."""

    def __init__(self, step: str, output: str) -> None:
        self.step = step
        self.output = output[-4000:].strip()
        super().__init__(f"{step} failed: {self.output or 'it printed nothing'}")


class NoSuchNode(LocalChainError):
    """There is no prebuilt EVM node for this operating system and processor."""


class NodeFailed(LocalChainError):
    """A node or its client ended, refused or did not answer."""


class RpcError(LocalChainError):
    """The node answered a request with an error."""

    def __init__(self, method: str, code: int, message: str, data: object = None) -> None:
        self.method, self.code, self.message, self.data = method, code, message, data
        super().__init__(f"{method}: {message} ({code})")


class TransactionReverted(LocalChainError):
    """A transaction that had to succeed did not."""

    def __init__(self, transaction: str, label: str) -> None:
        self.transaction, self.label = transaction, label
        super().__init__(f"{label} reverted ({transaction})")

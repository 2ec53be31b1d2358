"""The public names with their signatures: a change of one shows here, and belongs into the changelog."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import chainfolio
from chainfolio.adapters.evm.kit.kit import SCAFFOLD
from chainfolio.engine.history.day_values import DayValues
from chainfolio.engine.prices.reasons import PriceReasons
from chainfolio.engine.reconciliations import Reconciliation
from chainfolio.plugin_faults import OLD, load_fault
from chainfolio.portfolio.document import Portfolio
from chainfolio.portfolio.nav import Nav
from chainfolio.portfolio.pnl.report import PnlDocument
from chainfolio.portfolio.pnl.tax_year import TaxYearDocument
from chainfolio.portfolio.transactions import Transactions

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = {
    "close": "(self) -> 'None'",
    "gains": "(self, addresses: 'Addresses', *, method: 'str' = 'fifo', per_wallet: 'bool' = False, "
    "chain: 'str | None' = None, deposits_are_disposals: 'bool' = False, "
    "received_at: \"Literal['spot', 'unknown']\" = 'spot', zone: 'str | None' = None) -> 'PnlDocument'",
    "history": "(self, addresses: 'Addresses', *, first: 'str | None' = None, last: 'str | None' = None, "
    "interval: \"Literal['day', 'week', 'month']\" = 'day', chains: 'Sequence[str]' = (), "
    "again: 'bool' = False) -> 'DayValues'",
    "nav": "(self, addresses: 'Addresses', *, currency: 'str' = 'USD') -> 'Nav'",
    "portfolio": "(self, address: 'str', *, chain: 'str | None' = None, block: 'int | None' = None, "
    "include_spam: 'bool' = False, sources: 'bool' = False) -> 'Portfolio'",
    "portfolios": "(self, addresses: 'Addresses', *, chain: 'str | None' = None, block: 'int | None' = None, "
    "include_spam: 'bool' = False, sources: 'bool' = False) -> 'list[Portfolio]'",
    "price": "(self, asset: 'str', *, at: 'int | str | None' = None) -> 'PriceReasons'",
    "reconcile": "(self, addresses: 'Addresses', *, chains: 'Sequence[str]' = (), first: 'int | None' = None, "
    "last: 'int | None' = None, checkpoints: 'int' = 32, max_requests: 'int | None' = None) -> "
    "'list[Reconciliation]'",
    "table": "(self, name: 'str') -> 'pl.LazyFrame'",
    "tables": "(self) -> 'list[str]'",
    "tax_year": "(self, addresses: 'Addresses', year: 'int', *, jurisdiction: 'str' = 'none', method: 'str' = '', "
    "currency: 'str' = '', chain: 'str | None' = None) -> 'TaxYearDocument'",
    "transactions": "(self, address: 'str', *, chain: 'str | None' = None, limit: 'int | None' = None, "
    "offset: 'int' = 0, first: 'str | None' = None, last: 'str | None' = None) -> 'Transactions'",
}
MAKERS = {
    "connect": "(rpc: 'str | Sequence[str]', *, data: 'str | Path | None' = None)",
    "open": "(path: 'str | Path', *, rpc: 'str | Sequence[str]' = ())",
}
DOCUMENTS = (DayValues, Nav, PnlDocument, Portfolio, PriceReasons, Reconciliation, TaxYearDocument, Transactions)
PLUGINS = {
    "chain": """Account AccountReader AccountState AddressRules HeadListener AnswerStore ApprovalReader Asset
        AtParent BadAnswer BadRequest BadSettings Block BlockReader Budget CallsContracts
        Capability Chain ChainInfo ChainKind ChainSettings ChainfolioError Clock SpanTables
        Contradiction Cost HashQuorum DecoderKit Describe NoQuorum EpochReward EndpointHealth
        EndpointMemory EventRow Files ProofResult BlockProofs Forecast AccountForecaster
        PruningChain HasDecoderKit Heads HistoryUnavailable Holding IdentifiesChains
        InstalledProtocol InstalledProtocols Interactions Issue PastCoinReader PastPositionReader
        IndexedTransaction TransactionReader NameResolver NoBlock NodeBehind OffersFamilies OpenPosition
        Plan PlanGroup Position Probe BalanceProver Read ReadBlocks ReadLabel ReadResult AccountHistoryReader
        Value find_capability HasValidators read read_all read_distinct read_groups require_capability
        ReceiptReader Recording Reorged Replay Report RowDecoder Reverted Environment
        SelectsFunctions SourceError Span Spans Spam Token ResponseTooLarge TransactionDetails
        Unavailable UnexplainedChange Unknown NotSupported UnsupportedMethod UsesFamilies
        WrongChain account all_of amount asset batched doc raw_from_bytes""",
    "dataset": """ACCOUNT_APPROVALS ACCOUNT_EVENTS ACCOUNT_TRANSACTIONS ACCOUNT_TRANSFERS APPROVALS AccountRows
        BLOCKS Column Dataset LOGS RESOURCES TRANSACTIONS TRANSFERS Table""",
    "price_source": """Asset AtParent BadSettings Batch BatchedRead Block Call HttpGet NativeBalance Plan Price
        PriceSection PriceSource Quotes Read ReadResult Refusal RelativePrice Unknown amount
        by_chain contract_calls read read_all read_distinct read_groups run_offline""",
    "protocol": """AtEarlierBlock Call Collection Counterparty DecodedPosition DecoderPlan DecoderRead
        Event EveryAccount Family MAX_TICK MayRefuse NativeBalance ProtocolMatch Q128 Read AnnotatedShare Reserves
        AbiValue OWNER Rounds Rule Token TokenAmount TypedCalls Unknown UnlistedShare ReadError
        UnverifiedShare WORD ZERO_ADDRESS
        all_of amounts balance_of guard_price guard_reserves is_backed reserves run_decoder sqrt_price""",
    "solana_protocol": """ACCOUNT AccountPlan SHARE
        AccountRead Claim DecodedPosition DecoderPlan Family ListRead AnnotatedShare Rounds SHARED
        SLOT_MS SYSTEM TokenAmount Unknown UnlistedShare Unreadable UnverifiedShare all_of
        derived issued require""",
}


def public(kind: type) -> dict[str, str]:
    """The public methods of a class with their signatures."""
    methods = {name: each for name, each in vars(kind).items() if not name.startswith("_") and inspect.isfunction(each)}
    return {name: str(inspect.signature(each)) for name, each in methods.items()}


def test_the_api_for_scripts_is_this() -> None:
    assert sorted(chainfolio.__all__) == ["AsyncSession", "Session", "__version__", "connect", "open"]
    assert public(chainfolio.Session) == public(chainfolio.AsyncSession) == QUESTIONS
    for name, signature in MAKERS.items():
        assert str(inspect.signature(getattr(chainfolio, name))) == f"{signature} -> 'Session'"
        assert str(inspect.signature(getattr(chainfolio.AsyncSession, name))) == f"{signature} -> 'AsyncSession'"


def test_the_api_for_plug_ins_is_this() -> None:
    assert {path.stem for path in (ROOT / "chainfolio/plugins").glob("[a-z]*.py")} == set(PLUGINS)
    for name, names in PLUGINS.items():
        module = import_module(f"chainfolio.plugins.{name}")
        assert sorted(module.__all__) == sorted(names.split()), name
        assert all(hasattr(module, each) for each in module.__all__)


def signatures() -> Iterator[str]:
    """Return a line for each name of plug-ins and each document of a session: its signature and its methods."""
    for name in PLUGINS:
        module = import_module(f"chainfolio.plugins.{name}")
        for each in sorted(module.__all__):
            yield from described(f"{name}.{each}", getattr(module, each))
    for document in DOCUMENTS:
        yield from described(f"session.{document.__name__}", document)


def described(name: str, thing: object) -> Iterator[str]:
    """The lines of one name; a constant has its type."""
    if not inspect.isclass(thing):
        yield f"{name}{inspect.signature(thing) if inspect.isfunction(thing) else f': {type(thing).__name__}'}"
        return
    fields = getattr(thing, "__struct_fields__", None)
    if fields is not None:
        yield f"{name}({', '.join(fields)})"
    elif "__init__" in vars(thing) and not getattr(thing, "_is_protocol", False):
        yield re.sub(r"<function (\S+) at \w+>", r"\1", f"{name}{inspect.signature(thing)}")
    else:
        yield name
    for method, signature in sorted(public(thing).items()):
        yield f"{name}.{method}{signature}"


def test_signatures_of_plug_ins_and_documents_are_these() -> None:
    """After a change: `python -m tests.chainfolio.test_public_api > tests/chainfolio/public_api.txt`."""
    assert list(signatures()) == (Path(__file__).parent / "public_api.txt").read_text().splitlines()


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, chainfolio; print([name for name in sys.modules if name.startswith('chainfolio.')])"
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'portfolios_of'"):
        _ = chainfolio.portfolios_of


# --- what plug-ins import --------------------------------------------------------------------------------------------


def private(source: str) -> list[str]:
    """The modules of ours that a source imports and that are no part of `chainfolio.plugins`."""
    names = list[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
    tops = {"chainfolio", *(old.partition(".")[0] for old in OLD)}
    return [name for name in names if name.split(".")[0] in tops and not name.startswith("chainfolio.plugins.")]


def plug_ins() -> dict[str, str]:
    """The source of every example of a plug-in, by name."""
    sources = {"the scaffold": SCAFFOLD.format(title="x", key="x")}
    for path in [*ROOT.glob("tests/chains/invented*/*/*.py"), *ROOT.glob("tests/packaging/*/*/*.py")]:
        sources[str(path.relative_to(ROOT))] = path.read_text()
    for page in sorted((ROOT / "docs/how-to").glob("add-a-*.md")):
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)):
            sources[f"{page.name} {number}"] = block
    return sources


@pytest.mark.parametrize("name", plug_ins())
def test_plug_ins_import_what_is_public_and_nothing_else(name: str) -> None:
    assert private(plug_ins()[name]) == []


@pytest.mark.parametrize(("kind", "module"), [("evm", "protocol"), ("solana", "solana_protocol")])
def test_our_decoders_use_names_that_plug_ins_have_too(kind: str, module: str) -> None:
    """Copied decoders need no private name but those of modules about single protocols, which are copied too."""
    plugin = import_module(f"chainfolio.plugins.{module}")
    owners = {getattr(getattr(plugin, name), "__module__", "") for name in plugin.__all__}
    modules = {name for name in owners if name.startswith("chainfolio.")}
    names = {
        name.name
        for path in (ROOT / f"adapters/{kind}/protocols").glob("*.py")
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.ImportFrom) and each.module in modules
        for name in each.names
    }
    assert {"Family", "DecodedPosition", "TokenAmount"} <= names <= {*plugin.__all__}


def test_a_private_import_is_seen() -> None:
    assert private("import chainfolio.engine.service\nfrom chainfolio.plugins.chain import Block") == [
        "chainfolio.engine.service"
    ]
    assert private("def late():\n    from adapters.evm import reads") == ["adapters.evm"]


# --- plug-ins of older releases --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("adapters.evm.reads", "chainfolio.plugins.protocol"),
        ("adapters.solana.positions", "chainfolio.plugins.solana_protocol"),
        ("pricing.quotes", "chainfolio.plugins.price_source"),
        ("engine", "chainfolio.plugins"),
        ("storage.tail", "chainfolio.plugins"),
    ],
)
def test_a_name_of_an_older_release_is_told_the_new_one(old: str, new: str) -> None:
    fault = ModuleNotFoundError(f"No module named {old!r}", name=old)
    assert load_fault(fault).endswith(f"is of an older release: import from `{new}`")


def test_other_faults_are_told_as_they_are() -> None:
    assert load_fault(ValueError("torn")) == "ValueError: torn"
    assert (
        load_fault(ModuleNotFoundError("No module named 'x'", name="x")) == "ModuleNotFoundError: No module named 'x'"
    )
    assert load_fault(ImportError("odd")) == "ImportError: odd"


def test_nothing_that_is_stored_names_a_module() -> None:
    """Data, recordings and jobs outlive a renamed module: no format that stores Python objects is used."""
    formats = {"pickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    folders = (
        "adapters",
        "agents",
        "alerts",
        "api",
        "cli",
        "engine",
        "exports",
        "indexer",
        "portfolio",
        "pricing",
        "storage",
        "transport",
    )
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    paths += (ROOT / "chainfolio").glob("*.py")
    imported = {
        name.split(".")[0]
        for path in paths
        for each in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in each.names]
            if isinstance(each, ast.Import)
            else [each.module or ""]
            if isinstance(each, ast.ImportFrom)
            else []
        )
    }
    assert "msgspec" in imported
    assert not imported & formats


if __name__ == "__main__":
    print("\n".join(signatures()))

"""What a hub refuses, and why: every failure of a request as one AbsentWeightsError that holds the cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from crs_assets.science.encoders.errors import AbsentWeightsError

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

DEFAULT_ENDPOINT = "https://huggingface.co"
BY_HAND = "or copy the files to the mirror by hand"


class HubUnreachableError(AbsentWeightsError):
    """No answer from the hub: no network, or none is wanted."""


@dataclass(frozen=True)
class Hub:
    """A hub, and who asks.

    Attributes:
        endpoint: Address of the hub.
        token: Access token; sent to the endpoint only, never to a store it forwards to, and never shown.
    """

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)

    def page(self, repo: str) -> str:
        """The repository's page, where its terms are accepted."""
        return f"{self.endpoint}/{repo}"


@dataclass(frozen=True)
class Wanted:
    """What a request is about, for the messages: an encoder, and a file or the facts of its repository."""

    encoder: str
    repo: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        pin = f"@{self.revision}" if self.revision else ""
        return f"{self.file} of {self.repo}{pin}" if self.file else f"{self.repo}{pin}"


@contextmanager
def explained(wanted: Wanted, hub: Hub) -> Iterator[None]:
    """Turn whatever the client raises inside into an AbsentWeightsError.

    Raises:
        HubUnreachableError: Without a network, or with HF_HUB_OFFLINE set.
        AbsentWeightsError: If the hub refuses, or the answer breaks off.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        yield
    except OfflineModeIsEnabled as error:
        raise HubUnreachableError(f"{wanted.encoder}: {wanted}: HF_HUB_OFFLINE is set; unset it, {BY_HAND}.") from error
    except HfHubHTTPError as error:
        raise AbsentWeightsError(f"{wanted.encoder}: {_refusal(error, wanted, hub)}") from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
        raise HubUnreachableError(
            f"{wanted.encoder}: {wanted}: no connection to {hub.endpoint} ({error}); try again with a network, "
            f"{BY_HAND}."
        ) from error
    except httpx2.HTTPError as error:
        raise AbsentWeightsError(
            f"{wanted.encoder}: {wanted}: the connection was cut ({error}); {_again(wanted)}."
        ) from error
    except OSError as error:
        problem = "cannot be written" if error.errno else "the connection was cut"
        reason = str(error).strip().splitlines()[0]
        raise AbsentWeightsError(f"{wanted.encoder}: {wanted}: {problem} ({reason}); {_again(wanted)}.") from error


def _again(wanted: Wanted) -> str:
    return "what has come is kept, and the next attempt fetches only the rest" if wanted.file else "try again later"


def _refusal(error: HfHubHTTPError, wanted: Wanted, hub: Hub) -> str:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = error.response.status_code
    if urlsplit(str(error.response.url))[:2] != urlsplit(hub.endpoint)[:2]:
        return f"{wanted}: the store that the hub forwards to refused ({status}); {_again(wanted)}."
    if isinstance(error, RevisionNotFoundError):
        return f"no revision {wanted.revision} of {wanted.repo} (404); pin a commit that {hub.page(wanted.repo)} lists."
    if isinstance(error, EntryNotFoundError):
        return f"no file {wanted} (404); correct weights.file, or pin the revision that holds it."
    if isinstance(error, GatedRepoError) or status in (401, 403):
        return _no_access(status, wanted, hub)
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"no repository {wanted.repo} at {hub.endpoint} (404); correct weights.repo. A private one needs HF_TOKEN."
        )
    return f"{wanted}: the hub answered {status}; try again later, {BY_HAND}."


def _no_access(status: int, wanted: Wanted, hub: Hub) -> str:
    page = hub.page(wanted.repo)
    if status == 401 and hub.token is None:
        return (
            f"{wanted}: refused without a token (401): the repository is gated, private or absent. Accept its terms at "
            f"{page}, and set HF_TOKEN to a token of that account."
        )
    if status == 401:
        return f"{wanted}: the token in HF_TOKEN is not accepted (401); set one of an account with access to {page}."
    return (
        f"{wanted}: the gate refused this account (403); accept the terms of {wanted.repo} at {page}. If they are "
        "accepted, the token lacks the right: it has to allow reading gated repositories."
    )

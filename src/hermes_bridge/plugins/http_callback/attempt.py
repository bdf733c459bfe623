"""One attempt: judge the URL, sign, post. Trouble of any kind is an `Answer`, never an exception."""

import logging

from . import signing
from .clock import wall_seconds
from .config import Endpoint, Settings, SettingsError
from .outbox import Job
from .transport import Limits, Post, Transport
from .urlguard import BadUrl, read_url
from .verdict import Answer, Failure

logger = logging.getLogger(__name__)

AGENT = "hermes-http-callback/1.0"


async def attempt(job: Job, endpoint: Endpoint, settings: Settings, transport: Transport) -> Answer:
    """Send a row once and say what came of it."""
    try:
        post = _prepare(job, endpoint, settings)
        if isinstance(post, Answer):
            return post
        return await transport.post(post, settings.guard)
    except BadUrl as error:
        return Answer(failure=Failure.BLOCKED, detail=str(error))
    except SettingsError as error:
        return Answer(failure=Failure.INTERNAL, detail=str(error))
    except Exception as error:
        logger.exception("http_callback: %s: the attempt failed inside", job.id)
        return Answer(failure=Failure.INTERNAL, detail=f"{type(error).__name__}: {error}"[:200])


def _prepare(job: Job, endpoint: Endpoint, settings: Settings) -> Post | Answer:
    place = read_url(job.url)
    if refusal := settings.guard.refuses_place(place, named=bool(endpoint.name)):
        return Answer(failure=Failure.BLOCKED, detail=refusal)
    wall = wall_seconds()
    keys = settings.keyring(endpoint, wall)
    if endpoint.require_signature and keys.current is None:
        why = "require_signature is set and there is no secret"
        return Answer(failure=Failure.INTERNAL, detail=why)
    letter = signing.Letter(job.id, job.body, wall, job.attempt, job.content_type)
    headers = signing.headers(endpoint.profile, keys, letter, AGENT)
    limits = Limits(
        endpoint.timeout,
        endpoint.connect_timeout,
        endpoint.ca_file,
        endpoint.proxy,
        fresh=endpoint.policy.on_ambiguous == "hold",
    )
    return Post(place, job.body, headers, limits)

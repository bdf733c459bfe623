"""What the log says about an attempt: one line, with the command that helps."""

import logging

from .breaker import Gate
from .outbox import Job
from .verdict import Outcome, Verdict

logger = logging.getLogger(__name__)


def tell(job: Job, verdict: Verdict, gate: Gate, *, flipped: bool) -> None:
    """Log a verdict, and that an endpoint's breaker opened or closed (`flipped`)."""
    match verdict.outcome:
        case Outcome.DELIVERED:
            logger.info("http_callback: %s delivered (attempt %d)", job.id, job.attempt)
        case Outcome.AGAIN:
            wait = verdict.delay_ms / 1000
            logger.warning("http_callback: %s: %s; again in %.0f s", job.id, verdict.reason, wait)
        case Outcome.GONE:
            logger.error(
                "http_callback: %s is disabled: %s. Answers for it are kept; "
                "when it is well, run `hermes callback resume %s`",
                job.endpoint,
                verdict.reason,
                job.endpoint,
            )
        case _:
            logger.error("http_callback: %s is %s: %s", job.id, verdict.outcome, verdict.reason)
    if flipped:
        state = "is failing and left alone for a while" if gate.open_until else "works again"
        logger.warning("http_callback: endpoint %s %s", job.endpoint, state)
